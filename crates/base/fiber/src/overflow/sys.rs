//! The signal handler that recognises guards of stacks.

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

/// Bytes of a worker's signal stack.
const SIGNAL_STACK: usize = 64 << 10;

/// What the process did with the signal before.
struct Before(libc::sigaction);

static BEFORE: OnceLock<Before> = OnceLock::new();

thread_local! {
    static HAS_SIGNAL_STACK: Cell<bool> = const { Cell::new(false) };
}

/// Installs the handler, once for the process.
pub(super) fn install() {
    BEFORE.get_or_init(|| {
        // SAFETY: the action is filled in before it is used; `sigaction` writes the old one.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&mut action.sa_mask);
            let mut before: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(libc::SIGSEGV, &action, &mut before);
            Before(before)
        }
    });
}

/// Gives the calling thread a stack for signals, for its whole life.
pub(super) fn prepare_thread() {
    if HAS_SIGNAL_STACK.replace(true) {
        return;
    }
    let stack = Box::leak(vec![0u8; SIGNAL_STACK].into_boxed_slice());
    let signal_stack = libc::stack_t {
        ss_sp: stack.as_mut_ptr().cast(),
        ss_flags: 0,
        ss_size: SIGNAL_STACK,
    };
    // SAFETY: the memory is leaked, so it lives as long as the thread.
    unsafe { libc::sigaltstack(&signal_stack, std::ptr::null_mut()) };
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid description of the fault.
    let address = unsafe { (*info).si_addr() } as usize;
    let is_overflow = super::report_overflow(address, |bytes| {
        // SAFETY: the bytes are live; nothing can be done where writing fails.
        unsafe { libc::write(2, bytes.as_ptr().cast(), bytes.len()) };
    });
    let before = BEFORE.get().map(|before| before.0);
    let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
    if is_overflow || handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the default action is restored; the fault comes again and ends the process, with
        // the registers of the place where it happened.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    }
    let takes_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: the handler that was installed before ours, called as its flags say.
    unsafe {
        if takes_info {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            handler(signal);
        }
    }
}
