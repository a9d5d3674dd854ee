//! Which calls this rank's threads entered last, on the node's board, where they outlive the
//! process: an agent that finds the rank killed by a bad address names the call.
//!
//! Plain stores at the entry of every call, into words of the calling thread's own: words that
//! threads share would be fetched from each other's cores with each call. Which those are stands in
//! a thread-local word of this library with the initial-exec model, which at first names words of
//! this process's own that nobody reads; a thread gets a place on the board with its first call
//! that says its name, once the rank is there. The calls that have a shortest way store their site
//! alone: one instruction less, and the site tells nearly all. Words stay when a call is over:
//! whoever reads them has a hint.

use crate::call::CallId;
use crate::entry::CallSite;
use crate::tls_word::tls_word;
use garonne_node::client::AgentClient;
use garonne_node::layout::last_calls::{LastCall, named_call};
use std::arch::{asm, global_asm};
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

global_asm!(
    ".pushsection .bss.garonne_entered_nowhere,\"aw\",@nobits",
    ".globl garonne_entered_nowhere",
    ".hidden garonne_entered_nowhere",
    ".type garonne_entered_nowhere, %object",
    ".size garonne_entered_nowhere, 16",
    ".p2align 6",
    "garonne_entered_nowhere:",
    ".zero 64",
    ".popsection",
    ".pushsection .tdata.garonne_entered,\"awT\",@progbits",
    ".globl garonne_entered",
    ".hidden garonne_entered",
    ".type garonne_entered, %object",
    ".size garonne_entered, 8",
    ".p2align 3",
    "garonne_entered:",
    ".quad garonne_entered_nowhere",
    ".popsection",
);

unsafe extern "C" {
    static garonne_entered_nowhere: LastCall;
}

/// Keeps the board mapped for ever.
static CLIENT: OnceLock<Arc<AgentClient>> = OnceLock::new();

/// Threads get places of the rank.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Threads that got one so far.
static CLAIMED_SLOTS: AtomicU32 = AtomicU32::new(0);

/// Where the calling thread stores.
#[inline(always)]
fn own_words() -> *const LastCall {
    tls_word!("garonne_entered")
}

#[cfg(target_arch = "x86_64")]
fn set_own_words(words: *const LastCall) {
    // SAFETY: writes this thread's instance of the eight-byte word defined above.
    unsafe {
        asm!(
            "mov {at}, qword ptr [rip + garonne_entered@GOTTPOFF]",
            "mov qword ptr fs:[{at}], {words}",
            at = out(reg) _,
            words = in(reg) words,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(target_arch = "aarch64")]
fn set_own_words(words: *const LastCall) {
    // SAFETY: writes this thread's instance of the eight-byte word defined above.
    unsafe {
        asm!(
            "adrp {at}, :gottprel:garonne_entered",
            "ldr {at}, [{at}, :gottprel_lo12:garonne_entered]",
            "mrs {base}, tpidr_el0",
            "str {words}, [{base}, {at}]",
            at = out(reg) _,
            base = out(reg) _,
            words = in(reg) words,
            options(nostack, preserves_flags),
        );
    }
}

fn unclaimed_words() -> *const LastCall {
    &raw const garonne_entered_nowhere
}

#[inline(always)]
fn words() -> &'static LastCall {
    // SAFETY: the words above, or those of the board, which `CLIENT` keeps mapped.
    unsafe { &*own_words() }
}

/// This thread enters a call.
#[inline(always)]
pub(crate) fn record(call: CallId, site: CallSite) {
    if ptr::eq(own_words(), unclaimed_words()) {
        claim_slot();
    }
    let [at, named] = words();
    at.store(site.address(), Ordering::Relaxed);
    named.store(named_call(site.address(), call.0), Ordering::Relaxed);
}

/// This thread enters a call that has a shortest way.
#[inline(always)]
pub(crate) fn record_site(site: CallSite) {
    words()[0].store(site.address(), Ordering::Relaxed);
}

/// A thread that goes has entered nothing.
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

/// Gives the calling thread a place, if there are any.
#[cold]
#[inline(never)]
fn claim_slot() {
    if !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let Some(client) = CLIENT.get() else { return };
    let place = CLAIMED_SLOTS.fetch_add(1, Ordering::Relaxed);
    // The first is the thread that initialised MPI, whose last call is worth telling also while the
    // process ends. Others get none any more when they end.
    let known = place == 0
        || CLEAR_ON_THREAD_EXIT
            .try_with(|leaves| leaves.0.set(true))
            .is_ok();
    if known {
        set_own_words(client.own_last_call(place));
    }
}

/// The threads of this rank have places from now on, the calling one the first.
pub(crate) fn enable(client: &Arc<AgentClient>) {
    CLIENT.get_or_init(|| client.clone());
    ENABLED.store(true, Ordering::Relaxed);
    if ptr::eq(own_words(), unclaimed_words()) {
        claim_slot();
    }
}

/// This process is a forked child, whose calls are not the rank's. The calling thread is its only
/// one.
pub(crate) fn in_child() {
    ENABLED.store(false, Ordering::Relaxed);
    set_own_words(unclaimed_words());
}
