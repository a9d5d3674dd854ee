//! The MPI call that each thread of this rank entered last. The record lies in the node's shared
//! segment and outlives the process: an agent that finds the rank killed by a bad address names the
//! call.
//!
//! The entry of every call makes plain stores into words of the calling thread. Threads do not
//! share these words, because each call would fetch them from another core. A thread-local word
//! with the initial-exec model points to them. At first it points to words of this process that
//! nobody reads. A thread claims words in the shared segment with its first call that records its
//! name, once the rank is there.
//!
//! Functions with a fast path store only their call site: one instruction less, and the site tells
//! nearly all. The words stay when a call is over, so a reader gets a hint and no proof.

use crate::call::CallId;
use crate::entry::CallSite;
use crate::tls_word::tls_word;
use garonne_job::layout::last_calls::{LastCall, named_call};
use garonne_rank::client::AgentClient;
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

/// Connection to the agent; keeps the shared segment mapped for ever.
static CLIENT: OnceLock<Arc<AgentClient>> = OnceLock::new();

/// True once threads may claim words in the shared segment.
static ENABLED: AtomicBool = AtomicBool::new(false);

/// Threads that got one so far.
static CLAIMED_SLOTS: AtomicU32 = AtomicU32::new(0);

/// Returns the address of the words of the calling thread.
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
    // SAFETY: the words above, or those in the shared segment, which `CLIENT` keeps
    // mapped.
    unsafe { &*own_words() }
}

/// Records the call that this thread enters: its site and its name.
#[inline(always)]
pub(crate) fn record(call: CallId, site: CallSite) {
    if ptr::eq(own_words(), unclaimed_words()) {
        claim_slot();
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

/// Claims words in the shared segment for the calling thread, if there are any.
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

/// Lets the threads of this rank claim words from now on. The calling thread claims the first.
pub(crate) fn enable(client: &Arc<AgentClient>) {
    CLIENT.get_or_init(|| client.clone());
    ENABLED.store(true, Ordering::Relaxed);
    if ptr::eq(own_words(), unclaimed_words()) {
        claim_slot();
    }
}

/// Stops recording in a forked child, whose calls are not the rank's. The calling thread is the
/// child's only one.
pub(crate) fn in_child() {
    ENABLED.store(false, Ordering::Relaxed);
    set_own_words(unclaimed_words());
}
