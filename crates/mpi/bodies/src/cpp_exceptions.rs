//! Exceptions that callbacks of C++ programs throw.
//!
//! [`catch_exception`] catches an exception that leaves a callback, so that no frame of the library
//! is cut short. Locks are released, and collectives go on for the sake of the other ranks. The MPI
//! call of the callback ends as a failed call and throws the exception again instead of returning
//! ([`rethrow`]).
//!
//! The catching frame is written in assembly, because Rust can let foreign exceptions pass but
//! cannot hold them. The throwing code brings its own unwinder, mostly the shared one of libgcc.
//! This library has another unwinder with separate tables. Therefore all code here looks up the
//! functions of the unwinder that called.

use crate::call::CallError;
use garonne_mpi::error::Class;
use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

/// `_Unwind_Exception`, as the C++ ABI for Itanium has it on all 64-bit machines.
#[repr(C)]
struct UnwindException {
    class: u64,
    cleanup: Option<unsafe extern "C" fn(c_int, *mut UnwindException)>,
    private: [usize; 2],
}

type SetRegisterFn = unsafe extern "C" fn(*mut c_void, c_int, usize);
type SetIpFn = unsafe extern "C" fn(*mut c_void, usize);
type RaiseFn = unsafe extern "C-unwind" fn(*mut UnwindException) -> c_int;

// The unwinder that is part of this library, for those who throw with it.
unsafe extern "C-unwind" {
    fn _Unwind_SetGR(context: *mut c_void, register: c_int, value: usize);
    fn _Unwind_SetIP(context: *mut c_void, address: usize);
    fn _Unwind_RaiseException(exception: *mut UnwindException) -> c_int;
    fn _Unwind_Backtrace(
        each: unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    /// Calls `run(place)`. Returns null, or the exception that `run` threw.
    fn garonne_call_catching(
        run: unsafe extern "C-unwind" fn(*mut c_void),
        place: *mut c_void,
    ) -> *mut UnwindException;
    fn garonne_caught();
}

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".pushsection .text.garonne_call_catching,\"ax\",@progbits",
    ".globl garonne_call_catching",
    ".hidden garonne_call_catching",
    ".type garonne_call_catching, @function",
    ".p2align 4",
    "garonne_call_catching:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, garonne_catching_personality",
    "sub rsp, 8",
    ".cfi_def_cfa_offset 16",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "xor eax, eax",
    ".globl garonne_caught",
    ".hidden garonne_caught",
    "garonne_caught:",
    "add rsp, 8",
    ".cfi_def_cfa_offset 8",
    "ret",
    ".cfi_endproc",
    ".size garonne_call_catching, . - garonne_call_catching",
    ".globl garonne_catching_personality",
    ".hidden garonne_catching_personality",
    ".type garonne_catching_personality, @function",
    "garonne_catching_personality:",
    ".cfi_startproc",
    "mov r9, qword ptr [rsp]",
    "jmp {personality}",
    ".cfi_endproc",
    ".size garonne_catching_personality, . - garonne_catching_personality",
    ".popsection",
    personality = sym personality,
);

#[cfg(target_arch = "aarch64")]
global_asm!(
    ".pushsection .text.garonne_call_catching,\"ax\",@progbits",
    ".globl garonne_call_catching",
    ".hidden garonne_call_catching",
    ".type garonne_call_catching, @function",
    ".p2align 4",
    "garonne_call_catching:",
    ".cfi_startproc",
    ".cfi_personality 0x1b, garonne_catching_personality",
    "stp x29, x30, [sp, #-16]!",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset w29, -16",
    ".cfi_offset w30, -8",
    "mov x29, sp",
    "mov x9, x0",
    "mov x0, x1",
    "blr x9",
    "mov x0, xzr",
    ".globl garonne_caught",
    ".hidden garonne_caught",
    "garonne_caught:",
    "ldp x29, x30, [sp], #16",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore w29",
    ".cfi_restore w30",
    "ret",
    ".cfi_endproc",
    ".size garonne_call_catching, . - garonne_call_catching",
    ".globl garonne_catching_personality",
    ".hidden garonne_catching_personality",
    ".type garonne_catching_personality, @function",
    "garonne_catching_personality:",
    ".cfi_startproc",
    "mov x5, x30",
    "b {personality}",
    ".cfi_endproc",
    ".size garonne_catching_personality, . - garonne_catching_personality",
    ".popsection",
    personality = sym personality,
);

// Of the unwinder's interface.
const SEARCH_PHASE: c_int = 1;
const HANDLER_FRAME: c_int = 4;
const HANDLER_FOUND: c_int = 6;
const INSTALL_CONTEXT: c_int = 7;
const CONTINUE_UNWIND: c_int = 8;
const END_OF_STACK: c_int = 5;
const CAUGHT_BY_ANOTHER_LANGUAGE: c_int = 1;
/// Register in which a landing pad receives the exception, in the unwinder's numbering: rax on
/// x86-64, x0 on aarch64.
const EXCEPTION_REGISTER: c_int = 0;

thread_local! {
    /// `_Unwind_RaiseException` of the unwinder by which this thread caught its latest exception.
    static RAISE: Cell<RaiseFn> = const { Cell::new(_Unwind_RaiseException) };
    /// The exception that this thread's MPI call throws instead of returning.
    static PENDING: Cell<Option<ManuallyDrop<Exception>>> = const { Cell::new(None) };
}

/// The personality routine of `garonne_call_catching`: tells an unwinder that this frame catches
/// everything. `caller` is an address in that unwinder.
///
/// # Safety
/// Called by an unwinder only.
unsafe extern "C" fn personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    exception: *mut UnwindException,
    context: *mut c_void,
    caller: usize,
) -> c_int {
    if actions & SEARCH_PHASE != 0 {
        return HANDLER_FOUND;
    }
    if actions & HANDLER_FRAME == 0 {
        // A thread that is cancelled: nobody can hold that.
        return CONTINUE_UNWIND;
    }
    // For an unwinder that is linked into the program and shows nothing: it is libgcc's, too.
    prepare_own_unwinder();
    // SAFETY: each is the function of that name of the unwinder's interface.
    unsafe {
        let set_word: SetRegisterFn = match find_symbol(caller, c"_Unwind_SetGR") {
            Some(found) => std::mem::transmute::<*mut c_void, SetRegisterFn>(found),
            None => {
                std::mem::transmute::<*const c_void, SetRegisterFn>(_Unwind_SetGR as *const c_void)
            }
        };
        let set_address: SetIpFn = match find_symbol(caller, c"_Unwind_SetIP") {
            Some(found) => std::mem::transmute::<*mut c_void, SetIpFn>(found),
            None => std::mem::transmute::<*const c_void, SetIpFn>(_Unwind_SetIP as *const c_void),
        };
        if let Some(found) = find_symbol(caller, c"_Unwind_RaiseException") {
            RAISE.set(std::mem::transmute::<*mut c_void, RaiseFn>(found));
        }
        set_word(context, EXCEPTION_REGISTER, exception.expose_provenance());
        set_address(context, garonne_caught as *const () as usize);
    }
    INSTALL_CONTEXT
}

/// Initialises the tables of this library's unwinder. The first walk builds them; the unwinder
/// aborts without them.
fn prepare_own_unwinder() {
    unsafe extern "C" fn no_frame(_: *mut c_void, _: *mut c_void) -> c_int {
        END_OF_STACK
    }
    // SAFETY: looks at no frame.
    unsafe { _Unwind_Backtrace(no_frame, ptr::null_mut()) };
}

/// A function of the object that `address` belongs to, or else of those that all see.
pub(crate) fn find_symbol(address: usize, name: &CStr) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: fills in the place; the name is that of a loaded object, which is not loaded anew.
    let found = unsafe {
        let known = libc::dladdr(ptr::with_exposed_provenance(address), info.as_mut_ptr()) != 0;
        let object = match known {
            true => libc::dlopen(
                info.assume_init().dli_fname,
                libc::RTLD_LAZY | libc::RTLD_NOLOAD,
            ),
            false => ptr::null_mut(),
        };
        let found = match object.is_null() {
            true => ptr::null_mut(),
            false => libc::dlsym(object, name.as_ptr()),
        };
        if !object.is_null() {
            libc::dlclose(object);
        }
        match found.is_null() {
            true => libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()),
            false => found,
        }
    };
    (!found.is_null()).then_some(found)
}

/// An exception that was caught.
#[derive(Debug)]
pub(crate) struct Exception {
    header: *mut UnwindException,
    raise: RaiseFn,
}

// SAFETY: an exception belongs to no thread; what counts those of a thread is told of each move.
unsafe impl Send for Exception {}

/// Per-thread exception counts of the C++ runtime (`__cxa_eh_globals`).
#[repr(C)]
struct CxaGlobals {
    caught: *mut c_void,
    uncaught: u32,
}

impl Exception {
    /// Takes ownership of the exception that this thread just caught.
    fn new(header: *mut UnwindException) -> Self {
        let exception = Self {
            header,
            raise: RAISE.get(),
        };
        exception.adjust_uncaught(u32::wrapping_sub);
        exception
    }

    /// A function of the C++ library that made it.
    fn library(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: whoever threw it made the header.
        let (class, cleanup) = unsafe { ((*self.header).class, (*self.header).cleanup?) };
        let is_cxx = (class >> 8) & 0xff_ffff == u64::from(u32::from_be_bytes(*b"\0C++"));
        is_cxx.then(|| find_symbol(cleanup as *const () as usize, name))?
    }

    /// Changes the C++ runtime's count of uncaught exceptions of this thread by one.
    fn adjust_uncaught(&self, change: fn(u32, u32) -> u32) {
        if let Some(found) = self.library(c"__cxa_get_globals") {
            // SAFETY: the C++ ABI's function of this name, which gives the calling thread's counts.
            unsafe {
                let get = std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn() -> *mut CxaGlobals,
                >(found);
                let globals = get();
                (*globals).uncaught = change((*globals).uncaught, 1);
            }
        }
    }

    /// Nobody up the stack catches it: what C++ does then.
    fn terminate(header: *mut UnwindException) -> ! {
        let exception = ManuallyDrop::new(Self {
            header,
            raise: _Unwind_RaiseException,
        });
        let begin = exception.library(c"__cxa_begin_catch");
        if let (Some(begin), Some(end)) = (begin, exception.library(c"_ZSt9terminatev")) {
            // SAFETY: the C++ ABI's function of this name, and `std::terminate`.
            unsafe {
                let begin = std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(*mut UnwindException) -> *mut c_void,
                >(begin);
                let end = std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(end);
                begin(header);
                end();
            }
        }
        std::process::abort()
    }
}

impl Drop for Exception {
    fn drop(&mut self) {
        // SAFETY: it is ours, and used by nobody any more; this is how a foreign exception is
        // deleted.
        unsafe {
            if let Some(cleanup) = (*self.header).cleanup {
                cleanup(CAUGHT_BY_ANOTHER_LANGUAGE, self.header);
            }
        }
    }
}

/// Calls code of the program's.
///
/// # Errors
/// What it throws.
pub(crate) fn catch_exception<R: Copy>(run: impl FnOnce() -> R + Copy) -> Result<R, Exception> {
    struct Invocation<F, R> {
        run: F,
        result: MaybeUninit<R>,
    }
    /// Runs the closure. The frame has nothing to drop, so exceptions pass without a landing pad.
    ///
    /// # Safety
    /// `place` is an `Invocation` of these types.
    unsafe extern "C-unwind" fn enter<F: FnOnce() -> R + Copy, R: Copy>(place: *mut c_void) {
        let place = place.cast::<Invocation<F, R>>();
        // SAFETY: by this function's contract; nobody else uses the place meanwhile.
        unsafe { (*place).result = MaybeUninit::new(((*place).run)()) };
    }
    fn enter_of<F: FnOnce() -> R + Copy, R: Copy>(
        _: &Invocation<F, R>,
    ) -> unsafe extern "C-unwind" fn(*mut c_void) {
        enter::<F, R>
    }
    let mut place = Invocation {
        run,
        result: MaybeUninit::uninit(),
    };
    let enter = enter_of(&place);
    // SAFETY: `enter` is the one for this place.
    let thrown = unsafe { garonne_call_catching(enter, (&raw mut place).cast()) };
    if thrown.is_null() {
        // SAFETY: it returned.
        Ok(unsafe { place.result.assume_init() })
    } else {
        Err(Exception::new(thrown))
    }
}

/// Makes the current MPI call of this thread throw `exception` when the call ends. The first of
/// several exceptions is thrown.
pub(crate) fn set_pending(exception: Exception) {
    let first = PENDING
        .take()
        .unwrap_or_else(|| ManuallyDrop::new(exception));
    PENDING.set(Some(first));
}

/// Returns whether the current MPI call of this thread will throw.
pub(crate) fn is_pending() -> bool {
    let pending = PENDING.take();
    let is_pending = pending.is_some();
    PENDING.set(pending);
    is_pending
}

/// Returns the error with which a call ends that will throw. The program never sees this error.
pub(crate) fn pending_error() -> CallError {
    CallError::new(Class::Other, "a function of the program threw an exception")
}

/// Ends a successful body with an error if an exception is pending.
///
/// # Errors
/// Fails with [`pending_error`] if this call will throw.
pub(crate) fn check_pending() -> crate::call::Result<()> {
    if is_pending() {
        Err(pending_error())
    } else {
        Ok(())
    }
}

/// Throws what this thread's call has to throw, if anything. Called when nothing of the call is
/// left to be dropped.
pub(crate) fn rethrow() {
    let Some(exception) = PENDING.take() else {
        return;
    };
    exception.adjust_uncaught(u32::wrapping_add);
    let (header, raise) = (exception.header, exception.raise);
    // Rust's personality asks it about the frames that the exception passes.
    prepare_own_unwinder();
    // SAFETY: the exception is ours, and from here on whoever catches it has it.
    unsafe { raise(header) };
    Exception::terminate(header)
}
