//! Which call this rank entered last, on its card, where it outlives the process: an agent that finds the rank killed by a bad address names the call.
//!
//! Plain stores at the entry of every call, into words of this process's own until the rank has a card. The calls that have a shortest way store their site
//! alone: one instruction less, and the site tells nearly all. Threads overwrite each other, and the words stay when a call is over: whoever reads them has a hint.

use crate::call::Call;
use crate::thunk::Site;
use garonne_node::client::Client;
use garonne_node::layout;
use std::ptr;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Site of a call; and a site with the number of the call there (`layout::named_call`).
type Words = [AtomicU64; 2];

static NOWHERE: Words = [AtomicU64::new(0), AtomicU64::new(0)];

static CARD: AtomicPtr<Words> = AtomicPtr::new((&raw const NOWHERE).cast_mut());

/// Keeps the card mapped for ever.
static CLIENT: OnceLock<Arc<Client>> = OnceLock::new();

#[inline(always)]
fn words() -> &'static Words {
    // SAFETY: the words above, or those of the card, which `CLIENT` keeps mapped.
    unsafe { &*CARD.load(Ordering::Relaxed) }
}

/// This thread enters a call.
#[inline(always)]
pub(crate) fn note(call: Call, site: Site) {
    let [at, named] = words();
    at.store(site.address(), Ordering::Relaxed);
    named.store(layout::named_call(site.address(), call.0), Ordering::Relaxed);
}

/// This thread enters a call that has a shortest way.
#[inline(always)]
pub(crate) fn note_quick(site: Site) {
    words()[0].store(site.address(), Ordering::Relaxed);
}

/// Calls are noted on the card of this rank from now on.
pub(crate) fn follow(client: &Arc<Client>) {
    let client = CLIENT.get_or_init(|| client.clone());
    CARD.store(ptr::from_ref(client.own_entered()).cast_mut(), Ordering::Relaxed);
}

/// This process is a forked child, whose calls are not the rank's.
pub(crate) fn in_child() {
    CARD.store((&raw const NOWHERE).cast_mut(), Ordering::Relaxed);
}
