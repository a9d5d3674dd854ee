//! Switches between a borrowed stack and others, and the sleep of its kernel thread.

use super::{AWAY, BorrowedStack};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

// Both functions save what a call preserves on the stack that they leave, and its pointer in
// `save`. `leave` goes on as the kernel thread, on a stack where it only sleeps. There it touches
// no thread-local variable: whoever runs the borrowed stack has the same thread pointer.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".macro garonne_fiber_save",
    "push rbp",
    "push rbx",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "sub rsp, 8",
    "stmxcsr [rsp]",
    "fnstcw [rsp + 4]",
    ".endm",
    ".macro garonne_fiber_restore",
    "ldmxcsr [rsp]",
    "fldcw [rsp + 4]",
    "add rsp, 8",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbx",
    "pop rbp",
    "ret",
    ".endm",
    ".globl garonne_fiber_switch",
    ".hidden garonne_fiber_switch",
    ".type garonne_fiber_switch, @function",
    "garonne_fiber_switch:",
    "garonne_fiber_save",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "garonne_fiber_restore",
    ".size garonne_fiber_switch, . - garonne_fiber_switch",
    ".globl garonne_fiber_leave",
    ".hidden garonne_fiber_leave",
    ".type garonne_fiber_leave, @function",
    "garonne_fiber_leave:",
    "garonne_fiber_save",
    "mov [rdi], rsp",
    "mov rsp, rsi",
    "mov r12, rdi",
    "mov r13, rdx",
    "mov dword ptr [r13], 1",
    "2:",
    "cmp dword ptr [r13], 1",
    "jne 3f",
    "mov rdi, r13",
    "mov esi, 128",
    "mov edx, 1",
    "xor r10d, r10d",
    "mov eax, 202",
    "syscall",
    "jmp 2b",
    "3:",
    "mov dword ptr [r13], 0",
    "mov rsp, [r12]",
    "garonne_fiber_restore",
    ".size garonne_fiber_leave, . - garonne_fiber_leave",
    ".purgem garonne_fiber_save",
    ".purgem garonne_fiber_restore",
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".macro garonne_fiber_save",
    "sub sp, sp, #160",
    "stp x19, x20, [sp]",
    "stp x21, x22, [sp, #16]",
    "stp x23, x24, [sp, #32]",
    "stp x25, x26, [sp, #48]",
    "stp x27, x28, [sp, #64]",
    "stp x29, x30, [sp, #80]",
    "stp d8, d9, [sp, #96]",
    "stp d10, d11, [sp, #112]",
    "stp d12, d13, [sp, #128]",
    "stp d14, d15, [sp, #144]",
    "mov x9, sp",
    "str x9, [x0]",
    "mov sp, x1",
    ".endm",
    ".macro garonne_fiber_restore",
    "ldp x19, x20, [sp]",
    "ldp x21, x22, [sp, #16]",
    "ldp x23, x24, [sp, #32]",
    "ldp x25, x26, [sp, #48]",
    "ldp x27, x28, [sp, #64]",
    "ldp x29, x30, [sp, #80]",
    "ldp d8, d9, [sp, #96]",
    "ldp d10, d11, [sp, #112]",
    "ldp d12, d13, [sp, #128]",
    "ldp d14, d15, [sp, #144]",
    "add sp, sp, #160",
    "ret",
    ".endm",
    ".globl garonne_fiber_switch",
    ".hidden garonne_fiber_switch",
    ".type garonne_fiber_switch, @function",
    "garonne_fiber_switch:",
    "garonne_fiber_save",
    "garonne_fiber_restore",
    ".size garonne_fiber_switch, . - garonne_fiber_switch",
    ".globl garonne_fiber_leave",
    ".hidden garonne_fiber_leave",
    ".type garonne_fiber_leave, @function",
    "garonne_fiber_leave:",
    "garonne_fiber_save",
    "mov x20, x0",
    "mov x21, x2",
    "mov w9, #1",
    "stlr w9, [x21]",
    "2:",
    "ldar w9, [x21]",
    "cmp w9, #1",
    "b.ne 3f",
    "mov x0, x21",
    "mov x1, #128",
    "mov x2, #1",
    "mov x3, #0",
    "mov x8, #98",
    "svc #0",
    "b 2b",
    "3:",
    "str wzr, [x21]",
    "ldr x9, [x20]",
    "mov sp, x9",
    "garonne_fiber_restore",
    ".size garonne_fiber_leave, . - garonne_fiber_leave",
    ".purgem garonne_fiber_save",
    ".purgem garonne_fiber_restore",
);

unsafe extern "C" {
    /// Saves the caller in `save` and goes on where `load` was saved.
    fn garonne_fiber_switch(save: *const AtomicUsize, load: usize);
    /// Saves the caller in `save`, sets `word` to `AWAY` on the stack that ends at `top`, sleeps
    /// there until `word` is another one, sets it to `HOME`, and goes on where `save` says.
    fn garonne_fiber_leave(save: *const AtomicUsize, top: usize, word: *const AtomicU32);
}

/// Signals that a kernel thread takes while it sleeps: the C library's call that changes the user
/// of all threads waits for an answer of each.
const TAKEN_ASLEEP: u64 = 1 << (33 - 1);

/// Sets the calling kernel thread's signal mask. By the kernel's own call, since the C library's
/// never blocks the signal of cancellation.
pub(super) fn set_signal_mask(mask: u64) -> u64 {
    let (mask, mut before) = (mask, 0u64);
    // SAFETY: both words have the kernel's size of a set, which is passed too.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const mask,
            &raw mut before,
            size_of::<u64>(),
        );
    }
    before
}

/// Signals that the processor raises: a worker blocks one while a handler of it runs, only then.
const RAISED_BY_CODE: [libc::c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
];

/// Tells whether the calling worker runs a signal handler.
pub(super) fn is_in_handler() -> bool {
    let mut mask = 0u64;
    // SAFETY: the word has the kernel's size of a set, which is passed too.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_BLOCK,
            std::ptr::null::<u64>(),
            &raw mut mask,
            size_of::<u64>(),
        );
    }
    let is_blocked = |signal: &libc::c_int| mask & 1 << (signal - 1) != 0;
    RAISED_BY_CODE.iter().any(is_blocked)
}

impl BorrowedStack {
    /// Leaves the borrowed stack to whoever runs it next. Returns when it is run. Called on the
    /// borrowed stack by its kernel thread.
    pub(super) fn leave_kernel_thread(&self) {
        let top = self.sleep_stack.0.as_ptr_range().end as usize & !15;
        // Called as a function would be: the return address is missing.
        let top = top - if cfg!(target_arch = "x86_64") { 8 } else { 0 };
        debug_assert_ne!(self.home.load(Ordering::Relaxed), AWAY);
        // SAFETY: the memory below `top` is a stack of this thread alone; the words live in the
        // fiber, which the caller and whoever runs it hold.
        unsafe { garonne_fiber_leave(&raw const self.thread, top, &raw const self.home) };
    }

    /// Runs the borrowed stack on the calling worker until it leaves. Called through the fiber's
    /// only `Runnable`, and after the kernel thread went away.
    #[inline]
    pub(super) fn switch_to(&self) {
        let thread = self.thread.load(Ordering::Relaxed);
        // Debuggers take the worker's registers then.
        self.thread.store(0, Ordering::Relaxed);
        // SAFETY: the thread has saved itself there, and nobody else runs it.
        unsafe { garonne_fiber_switch(&raw const self.worker, thread) };
    }

    /// Goes on as the worker that runs the borrowed stack.
    #[inline]
    pub(super) fn switch_back(&self) {
        let worker = self.worker.load(Ordering::Relaxed);
        // SAFETY: the worker has saved itself there when it ran this stack.
        unsafe { garonne_fiber_switch(&raw const self.thread, worker) };
    }
}

/// Signals that a kernel thread which sleeps does not take.
pub(super) const BLOCKED_ASLEEP: u64 = !TAKEN_ASLEEP;
