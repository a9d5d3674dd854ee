//! Mutexes. Their words are the C library's own; only waits happen here.

use crate::record::{self, Bound, LOT};
use crate::{real, time};
use garonne_fiber::ParkOutcome;
use libc::{c_int, c_void, timespec};

/// Words of a mutex, as glibc lays them out.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct MutexWords {
    lock: i32,
    count: u32,
    owner: i32,
    users: u32,
    kind: i32,
}

impl MutexWords {
    /// Tells whether this thread alone has it, once.
    pub(crate) fn is_held_once_by(&self, tid: c_int) -> bool {
        self.lock == 1 && (self.count, self.owner, self.users) == (1, tid, 1)
    }

    pub(crate) fn is_free(&self) -> bool {
        self.lock == 0 && (self.count, self.owner, self.users) == (0, 0, 0)
    }

    pub(crate) fn kind(&self) -> i32 {
        self.kind
    }
}

const TYPE: i32 = 3;
pub(crate) const RECURSIVE: i32 = 1;
pub(crate) const ERROR_CHECKING: i32 = 2;
/// Robust, with a priority protocol, or shared by processes: the kernel has a part in these.
const OF_KERNEL: i32 = ROBUST | 0x20 | 0x40 | SHARED;
pub(crate) const ROBUST: i32 = 0x10;
pub(crate) const SHARED: i32 = 0x80;

/// Kind of a mutex.
///
/// # Safety
/// `mutex` points to a mutex.
unsafe fn kind(mutex: *mut c_void) -> i32 {
    // SAFETY: the caller says so; the word never changes while the mutex is used.
    unsafe { (*mutex.cast::<MutexWords>()).kind }
}

/// Owner of a mutex, if it has one.
///
/// # Safety
/// `mutex` points to a mutex.
unsafe fn owner(mutex: *mut c_void) -> i32 {
    // SAFETY: the caller says so. Others may write the word meanwhile.
    unsafe { std::ptr::read_volatile(&raw const (*mutex.cast::<MutexWords>()).owner) }
}

/// The kernel's thread takes a mutex that the kernel has a part in.
unsafe fn lock_with_kernel(mutex: *mut c_void, lock: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: as the caller says.
    let kind = unsafe { kind(mutex) };
    if kind & ROBUST != 0
        && let Some(own) = record::unbound()
    {
        // The kernel looks for the mutex among those of the thread that took it, when that ends.
        own.stay_bound();
    }
    let _bound = Bound::new();
    lock()
}

#[inline]
unsafe fn lock_until(
    mutex: *mut c_void,
    deadline: impl FnOnce() -> Option<Option<u64>>,
    with_kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program passes a mutex, here and below.
    unsafe {
        if kind(mutex) & OF_KERNEL != 0 {
            return lock_with_kernel(mutex, with_kernel);
        }
        let result = real::pthread_mutex_trylock(mutex);
        if result != libc::EBUSY {
            return result;
        }
        if record::is_off() {
            return with_kernel();
        }
        wait_for(mutex, deadline)
    }
}

#[cold]
unsafe fn wait_for(mutex: *mut c_void, deadline: impl FnOnce() -> Option<Option<u64>>) -> c_int {
    let Some(deadline) = deadline() else {
        return libc::EINVAL;
    };
    let Some(own) = record::own() else {
        // While the thread makes its record, which takes no lock of the program.
        // SAFETY: the program passes a mutex.
        return unsafe { real::pthread_mutex_lock(mutex) };
    };
    // SAFETY: as above.
    if unsafe { kind(mutex) & TYPE == ERROR_CHECKING && owner(mutex) == own.tid } {
        return libc::EDEADLK;
    }
    loop {
        let mut result = libc::EBUSY;
        let must_wait = || {
            // SAFETY: as above.
            result = unsafe { real::pthread_mutex_trylock(mutex) };
            result == libc::EBUSY
        };
        let place = (mutex as usize, 0);
        match LOT.park(own.parker(), place, deadline, false, must_wait, || {}) {
            ParkOutcome::Invalid => return result,
            ParkOutcome::TimedOut => return libc::ETIMEDOUT,
            _ => (),
        }
        // SAFETY: as above.
        let result = unsafe { real::pthread_mutex_trylock(mutex) };
        if result != libc::EBUSY {
            return result;
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_mutex_lock(mutex: *mut c_void) -> c_int {
    // SAFETY: the program passes a mutex.
    unsafe { lock_until(mutex, || Some(None), || real::pthread_mutex_lock(mutex)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_mutex_trylock(mutex: *mut c_void) -> c_int {
    // SAFETY: the program passes a mutex.
    unsafe {
        if kind(mutex) & ROBUST != 0 {
            return lock_with_kernel(mutex, || real::pthread_mutex_trylock(mutex));
        }
        real::pthread_mutex_trylock(mutex)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_mutex_timedlock(
    mutex: *mut c_void,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a mutex and a time.
    unsafe {
        let deadline = || time::deadline(libc::CLOCK_REALTIME, end).map(Some);
        lock_until(mutex, deadline, || {
            real::pthread_mutex_timedlock(mutex, end)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_mutex_clocklock(
    mutex: *mut c_void,
    clock: c_int,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a mutex and a time.
    unsafe {
        let deadline = || time::deadline(clock, end).map(Some);
        let with_kernel = || real::pthread_mutex_clocklock(mutex, clock, end);
        lock_until(mutex, deadline, with_kernel)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_mutex_unlock(mutex: *mut c_void) -> c_int {
    // SAFETY: the program passes a mutex.
    let result = unsafe { real::pthread_mutex_unlock(mutex) };
    // From here on the mutex's memory may be gone; its address is still the queue's name.
    if result == 0 && !record::is_off() {
        LOT.unpark_one(mutex as usize);
    }
    result
}
