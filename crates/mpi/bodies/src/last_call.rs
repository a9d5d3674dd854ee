//! The MPI call that each thread of this rank entered last. The record lies in the node's shared
//! segment and outlives the process: an agent that finds the rank killed by a bad address names the
//! call.
//!
//! The entry of every call makes plain stores into words of the calling thread. Threads do not
//! share these words, because each call would fetch them from another core. A word of the thread
//! points to them (`thread_words`). At first it points to words of this process that nobody reads.
//! A thread claims words in the shared segment with its first call that records its name, once the
//! rank is there.
//!
//! Functions with a fast path store only their call site: one instruction less, and the site tells
//! nearly all. The words stay when a call is over, so a reader gets a hint and no proof.

use crate::call::CallId;
use crate::entry::CallSite;
use crate::init_state::is_forked_child;
use crate::rank_context::RankContext;
use crate::thread_words::{self, LAST_CALL};
use garonne_job::layout::last_calls::{LastCall, named_call};
use garonne_rank::client::AgentClient;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

unsafe extern "C" {
    /// Words of threads that have claimed none.
    static garonne_unclaimed_last_call: LastCall;
}

/// The words in the shared segment that threads of a rank may claim.
pub(crate) struct LastCalls {
    /// Connection to the agent; keeps the shared segment mapped for ever. `None` until threads may
    /// claim words.
    client: OnceLock<Arc<AgentClient>>,
    /// Threads that got words so far.
    claimed: AtomicU32,
}

impl LastCalls {
    /// No words to claim.
    pub const fn new() -> Self {
        Self {
            client: OnceLock::new(),
            claimed: AtomicU32::new(0),
        }
    }

    /// Claims words in the shared segment for the calling thread, if there are any.
    #[cold]
    #[inline(never)]
    fn claim(&self) {
        let Some(client) = self.client.get().filter(|_| !is_forked_child()) else {
            return;
        };
        let place = self.claimed.fetch_add(1, Ordering::Relaxed);
        // The first is the thread that initialised MPI, whose last call is worth telling also while
        // the process ends. Others get none any more when they end.
        let known = place == 0
            || CLEAR_ON_THREAD_EXIT
                .try_with(|leaves| leaves.0.set(true))
                .is_ok();
        if known {
            set_own_words(client.own_last_call(place));
        }
    }
}

/// Returns the address of the words of the calling thread.
#[inline(always)]
fn own_words() -> *const LastCall {
    thread_words::read::<LAST_CALL>().cast()
}

fn set_own_words(words: *const LastCall) {
    thread_words::write::<LAST_CALL>(words.cast());
}

fn unclaimed_words() -> *const LastCall {
    &raw const garonne_unclaimed_last_call
}

#[inline(always)]
fn words() -> &'static LastCall {
    // SAFETY: the words above, or those in a shared segment, which the rank's `LastCalls` keeps
    // mapped.
    unsafe { &*own_words() }
}

/// Records the call that this thread enters: its site and its name.
#[inline(always)]
pub(crate) fn record(call: CallId, site: CallSite) {
    if ptr::eq(own_words(), unclaimed_words()) {
        RankContext::current().last_calls.claim();
    }
    let [at, named] = words();
    at.store(site.address(), Ordering::Relaxed);
    named.store(named_call(site.address(), call.0), Ordering::Relaxed);
}

/// Records the site of a call that this thread enters. Used by fast paths.
#[inline(always)]
pub(crate) fn record_site(site: CallSite) {
    words()[0].store(site.address(), Ordering::Relaxed);
}

/// Clears a thread's words when the thread exits.
struct ClearOnThreadExit(Cell<bool>);

impl Drop for ClearOnThreadExit {
    fn drop(&mut self) {
        if self.0.get() {
            words()
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
            set_own_words(unclaimed_words());
        }
    }
}

thread_local! {
    static CLEAR_ON_THREAD_EXIT: ClearOnThreadExit = const { ClearOnThreadExit(Cell::new(false)) };
}

/// Lets the threads of this rank claim words from now on. The calling thread claims the first.
pub(crate) fn enable(client: &Arc<AgentClient>) {
    let calls = &RankContext::current().last_calls;
    calls.client.get_or_init(|| client.clone());
    if ptr::eq(own_words(), unclaimed_words()) {
        calls.claim();
    }
}

/// Words that a thread had before it entered another rank.
#[derive(Debug)]
pub(crate) struct SetAsideWords(*const LastCall);

/// Sets the calling thread's words aside: it enters another rank, whose words it may claim.
pub(crate) fn set_aside() -> SetAsideWords {
    let before = SetAsideWords(own_words());
    set_own_words(unclaimed_words());
    before
}

/// Gives the calling thread its words back: it leaves the other rank.
pub(crate) fn restore(before: &SetAsideWords) {
    set_own_words(before.0);
}

/// Stops recording in a forked child, whose calls are not the rank's. The calling thread is the
/// child's only one.
pub(crate) fn in_child() {
    set_own_words(unclaimed_words());
}
