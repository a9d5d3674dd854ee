//! Locks of readers and writers. Their words are the C library's own; only waits happen here.

use crate::record::{self, Bound, LOT};
use crate::{real, time};
use garonne_fiber::ParkOutcome;
use libc::{c_int, c_void, timespec};

/// Words of a lock, as glibc lays them out.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RwlockWords {
    state: [u32; 6],
    writer: i32,
    shared: i32,
}

impl RwlockWords {
    pub(crate) fn is_written_by(&self, tid: c_int) -> bool {
        self.writer == tid && self.shared == 0
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared != 0
    }
}

/// Byte at which glibc keeps whom a lock prefers.
pub(crate) const PREFERENCE_AT: usize = 48;
pub(crate) const PREFERS_WRITERS: u32 = 2;

/// Who waits, as a tag of the wait.
const READER: u32 = 1;
const WRITER: u32 = 2;

type Deadline = Option<Option<u64>>;

/// The lock's words.
///
/// # Safety
/// `lock` points to a lock.
unsafe fn is_shared(lock: *mut c_void) -> bool {
    // SAFETY: the caller says so; the word never changes while the lock is used.
    unsafe { (*lock.cast::<RwlockWords>()).shared != 0 }
}

unsafe fn take(
    lock: *mut c_void,
    tag: u32,
    deadline: impl FnOnce() -> Deadline,
    with_kernel: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the program passes a lock, here and below.
    if record::is_off() || unsafe { is_shared(lock) } {
        let _bound = Bound::new();
        return with_kernel();
    }
    // SAFETY: as above.
    let first = unsafe { try_take(lock, tag) };
    if first != libc::EBUSY {
        return first;
    }
    let Some(deadline) = deadline() else {
        return libc::EINVAL;
    };
    let Some(own) = record::own() else {
        return with_kernel();
    };
    // SAFETY: as above. Others may write the word meanwhile.
    let writer =
        unsafe { std::ptr::read_volatile(&raw const (*lock.cast::<RwlockWords>()).writer) };
    if writer == own.tid {
        return libc::EDEADLK;
    }
    loop {
        let mut result = libc::EBUSY;
        let must_wait = || {
            // SAFETY: as above.
            result = unsafe { try_lock(lock, tag) };
            result == libc::EBUSY
        };
        let place = (lock as usize, tag);
        match LOT.park(own.parker(), place, deadline, false, must_wait, || {}) {
            ParkOutcome::Invalid => return result,
            ParkOutcome::TimedOut => return libc::ETIMEDOUT,
            _ => (),
        }
        // SAFETY: as above.
        let result = unsafe { try_lock(lock, tag) };
        if result != libc::EBUSY {
            return result;
        }
    }
}

unsafe fn try_lock(lock: *mut c_void, tag: u32) -> c_int {
    // SAFETY: as the caller says.
    unsafe {
        match tag {
            READER => real::pthread_rwlock_tryrdlock(lock),
            _ => real::pthread_rwlock_trywrlock(lock),
        }
    }
}

/// Takes the lock if it is free, and if no writer goes before.
unsafe fn try_take(lock: *mut c_void, tag: u32) -> c_int {
    // SAFETY: as the caller says; the place is that of an aligned word.
    let preference = unsafe { lock.byte_add(PREFERENCE_AT).cast::<u32>().read_volatile() };
    if tag == READER && preference == PREFERS_WRITERS && LOT.has_waiter(lock as usize, WRITER) {
        return libc::EBUSY;
    }
    // SAFETY: as the caller says.
    unsafe { try_lock(lock, tag) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_rdlock(lock: *mut c_void) -> c_int {
    // SAFETY: the program passes a lock.
    unsafe {
        take(
            lock,
            READER,
            || Some(None),
            || real::pthread_rwlock_rdlock(lock),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_wrlock(lock: *mut c_void) -> c_int {
    // SAFETY: the program passes a lock.
    unsafe {
        take(
            lock,
            WRITER,
            || Some(None),
            || real::pthread_rwlock_wrlock(lock),
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_timedrdlock(
    lock: *mut c_void,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a lock and a time.
    unsafe {
        let deadline = || time::deadline(libc::CLOCK_REALTIME, end).map(Some);
        take(lock, READER, deadline, || {
            real::pthread_rwlock_timedrdlock(lock, end)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_timedwrlock(
    lock: *mut c_void,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a lock and a time.
    unsafe {
        let deadline = || time::deadline(libc::CLOCK_REALTIME, end).map(Some);
        take(lock, WRITER, deadline, || {
            real::pthread_rwlock_timedwrlock(lock, end)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_clockrdlock(
    lock: *mut c_void,
    clock: c_int,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a lock and a time.
    unsafe {
        let deadline = || time::deadline(clock, end).map(Some);
        take(lock, READER, deadline, || {
            real::pthread_rwlock_clockrdlock(lock, clock, end)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_clockwrlock(
    lock: *mut c_void,
    clock: c_int,
    end: *const timespec,
) -> c_int {
    // SAFETY: the program passes a lock and a time.
    unsafe {
        let deadline = || time::deadline(clock, end).map(Some);
        take(lock, WRITER, deadline, || {
            real::pthread_rwlock_clockwrlock(lock, clock, end)
        })
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_rwlock_unlock(lock: *mut c_void) -> c_int {
    // SAFETY: the program passes a lock.
    let result = unsafe { real::pthread_rwlock_unlock(lock) };
    if result == 0 && !record::is_off() {
        // All readers may go on, or a writer: whoever comes too late waits again.
        LOT.unpark_all(lock as usize, None);
    }
    result
}
