//! The thread pointer, and threads that lend their control block.

use std::io;
use std::sync::mpsc;

/// Bytes of a lending thread's stack, on which it only sleeps.
const SLEEPING_STACK: usize = 64 << 10;

/// Starts a thread that sleeps for ever with all signals blocked. Returns its thread pointer.
pub(super) fn sleeping_thread() -> io::Result<usize> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("garonne-identity".into())
        .stack_size(SLEEPING_STACK);
    thread.spawn(move || {
        // SAFETY: the set is filled in before it is used. Signals go to threads that run code.
        unsafe {
            let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), std::ptr::null_mut());
        }
        let sent = sender.send(thread_pointer());
        drop(sender);
        while sent.is_ok() {
            // Not by parking: the fiber parks as this thread.
            // SAFETY: has no precondition.
            unsafe { libc::pause() };
        }
    })?;
    receiver.recv().map_err(io::Error::other)
}

/// Returns the calling thread's pointer to its control block.
#[inline(never)]
pub(super) fn thread_pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word of the control block is its own address, by the ABI.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags));
    }
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags));
    }
    pointer
}

/// Bit of `AT_HWCAP2`: programs may write the base of FS by themselves.
#[cfg(target_arch = "x86_64")]
const HWCAP2_FSGSBASE: libc::c_ulong = 1 << 1;

#[cfg(target_arch = "x86_64")]
fn may_write_base() -> bool {
    static MAY: std::sync::OnceLock<bool> = std::sync::OnceLock::new();
    // SAFETY: reads the auxiliary vector.
    *MAY.get_or_init(|| unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0)
}

/// Sets the calling thread's pointer.
///
/// # Safety
/// `pointer` is that of a control block that no other thread uses meanwhile.
unsafe fn set_thread_pointer(pointer: usize) {
    #[cfg(target_arch = "x86_64")]
    {
        const ARCH_SET_FS: usize = 0x1002;
        if may_write_base() {
            // SAFETY: the kernel allows the instruction; the caller vouches for the pointer.
            unsafe { std::arch::asm!("wrfsbase {}", in(reg) pointer, options(nostack)) };
            return;
        }
        // SAFETY: as above, by a system call without the C library, which would set `errno`.
        unsafe {
            std::arch::asm!("syscall", inlateout("rax") libc::SYS_arch_prctl as usize => _,
                in("rdi") ARCH_SET_FS, in("rsi") pointer, lateout("rcx") _, lateout("r11") _,
                options(nostack));
        }
    }
    // SAFETY: the caller vouches for the pointer.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!("msr tpidr_el0, {}", in(reg) pointer, options(nostack));
    }
}

/// Runs `body` with this thread pointer.
#[inline(never)]
pub(super) fn with_thread_pointer(pointer: usize, body: &mut dyn FnMut()) {
    let own = thread_pointer();
    // SAFETY: the identity's thread sleeps for ever, and one fiber has the identity, which one
    // worker runs at a time. `own` is the worker's.
    unsafe { set_thread_pointer(pointer) };
    body();
    // SAFETY: as above.
    unsafe { set_thread_pointer(own) };
}
