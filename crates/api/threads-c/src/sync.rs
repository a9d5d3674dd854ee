//! Mutexes, conditions, semaphores, barriers, once.

use crate::objects::{CObject, begin, code, end, time_until, value};
use garonne_fiber::{Barrier, Condvar, Once, RawMutex, Semaphore, caller};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

/// What a mutex does when its holder locks it again, or somebody else unlocks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MutexKind {
    /// The holder waits for ever; others unlock it.
    Normal,
    /// The holder's locks are counted; others are refused.
    Recursive,
    /// Both are refused.
    Checking,
}

/// A mutex of a C program.
#[derive(Debug)]
struct CMutex {
    raw: RawMutex,
    kind: MutexKind,
    /// Who holds it, where the kind asks for that; 0: nobody.
    owner: AtomicUsize,
    depth: AtomicU32,
}

impl CMutex {
    fn new(kind: MutexKind) -> Self {
        Self {
            raw: RawMutex::new(),
            kind,
            owner: AtomicUsize::new(0),
            depth: AtomicU32::new(0),
        }
    }

    fn take(
        &self,
        again: c_int,
        take: impl FnOnce(&RawMutex) -> Result<(), c_int>,
    ) -> Result<(), c_int> {
        if self.kind == MutexKind::Normal {
            return take(&self.raw);
        }
        let own = caller();
        if self.owner.load(Ordering::Relaxed) == own {
            if self.kind == MutexKind::Checking {
                return Err(again);
            }
            self.depth.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        take(&self.raw)?;
        self.owner.store(own, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self) -> Result<(), c_int> {
        if self.kind != MutexKind::Normal {
            if self.owner.load(Ordering::Relaxed) != caller() {
                return Err(libc::EPERM);
            }
            if self.depth.load(Ordering::Relaxed) != 0 {
                self.depth.fetch_sub(1, Ordering::Relaxed);
                return Ok(());
            }
            self.owner.store(0, Ordering::Relaxed);
        }
        self.raw.unlock();
        Ok(())
    }

    /// Waits for a condition. All locks of a recursive mutex are released meanwhile.
    fn wait(&self, condition: &Condvar, limit: Option<Duration>) -> Result<(), c_int> {
        if self.kind != MutexKind::Normal && self.owner.load(Ordering::Relaxed) != caller() {
            return Err(libc::EPERM);
        }
        let (owner, depth) = (
            self.owner.swap(0, Ordering::Relaxed),
            self.depth.swap(0, Ordering::Relaxed),
        );
        let notified = condition.wait_raw(&self.raw, limit);
        self.owner.store(owner, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
        if notified {
            Ok(())
        } else {
            Err(libc::ETIMEDOUT)
        }
    }
}

fn normal_mutex() -> CMutex {
    CMutex::new(MutexKind::Normal)
}

/// `garonne_mutex_init`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_mutex_init(mutex: *mut CObject, kind: c_int) -> c_int {
    let kind = match kind {
        0 => MutexKind::Normal,
        1 => MutexKind::Recursive,
        2 => MutexKind::Checking,
        _ => return libc::EINVAL,
    };
    // SAFETY: the header asks for valid or null pointers.
    unsafe { begin(mutex, CMutex::new(kind)) }
}

/// `garonne_mutex_destroy`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_mutex_destroy(mutex: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { end(mutex, |mutex: &CMutex| mutex.raw.await_last_use()) }
}

/// `garonne_mutex_lock`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_mutex_lock(mutex: *mut CObject) -> c_int {
    let lock = |raw: &RawMutex| {
        raw.lock();
        Ok(())
    };
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(mutex, normal_mutex) }.and_then(|mutex| mutex.take(libc::EDEADLK, lock)))
}

/// `garonne_mutex_trylock`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_mutex_trylock(mutex: *mut CObject) -> c_int {
    let lock = |raw: &RawMutex| {
        if raw.try_lock() {
            Ok(())
        } else {
            Err(libc::EBUSY)
        }
    };
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(mutex, normal_mutex) }.and_then(|mutex| mutex.take(libc::EBUSY, lock)))
}

/// `garonne_mutex_timedlock`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_mutex_timedlock(
    mutex: *mut CObject,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let limit = unsafe { time_until(until) };
    let lock = |raw: &RawMutex| {
        if raw.lock_for(limit?) {
            Ok(())
        } else {
            Err(libc::ETIMEDOUT)
        }
    };
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(mutex, normal_mutex) }.and_then(|mutex| mutex.take(libc::EDEADLK, lock)))
}

/// `garonne_mutex_unlock`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_mutex_unlock(mutex: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(mutex, normal_mutex) }.and_then(CMutex::release))
}

/// `garonne_cond_init`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_cond_init(condition: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { begin(condition, Condvar::new()) }
}

/// `garonne_cond_destroy`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_cond_destroy(condition: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { end(condition, Condvar::await_last_use) }
}

/// `garonne_cond_wait`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_cond_wait(condition: *mut CObject, mutex: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { wait(condition, mutex, None) })
}

/// `garonne_cond_timedwait`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_cond_timedwait(
    condition: *mut CObject,
    mutex: *mut CObject,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { time_until(until).and_then(|limit| wait(condition, mutex, Some(limit))) })
}

/// # Safety
/// Both are null or point to objects of their kinds.
unsafe fn wait(
    condition: *mut CObject,
    mutex: *mut CObject,
    limit: Option<Duration>,
) -> Result<(), c_int> {
    // SAFETY: the caller says so.
    let (condition, mutex) =
        unsafe { (value(condition, Condvar::new)?, value(mutex, normal_mutex)?) };
    mutex.wait(condition, limit)
}

/// `garonne_cond_signal`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_cond_signal(condition: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(condition, Condvar::new) }.map(Condvar::notify_one))
}

/// `garonne_cond_broadcast`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_cond_broadcast(condition: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(condition, Condvar::new) }.map(Condvar::notify_all))
}

fn empty_semaphore() -> Semaphore {
    Semaphore::new(0)
}

/// `garonne_sem_init`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_init(semaphore: *mut CObject, units: c_uint) -> c_int {
    if units > i32::MAX as c_uint {
        return libc::EINVAL;
    }
    // SAFETY: the header asks for valid or null pointers.
    unsafe { begin(semaphore, Semaphore::new(units)) }
}

/// `garonne_sem_destroy`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_destroy(semaphore: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { end(semaphore, Semaphore::await_last_use) }
}

/// `garonne_sem_wait`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_wait(semaphore: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(semaphore, empty_semaphore) }.map(Semaphore::wait))
}

/// `garonne_sem_trywait`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_trywait(semaphore: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let taken = unsafe { value(semaphore, empty_semaphore) }.map(Semaphore::try_wait);
    code(taken.and_then(|taken| if taken { Ok(()) } else { Err(libc::EAGAIN) }))
}

/// `garonne_sem_timedwait`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_timedwait(
    semaphore: *mut CObject,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let (semaphore, limit) = unsafe { (value(semaphore, empty_semaphore), time_until(until)) };
    code(semaphore.and_then(|semaphore| {
        if semaphore.wait_for(limit?) {
            Ok(())
        } else {
            Err(libc::ETIMEDOUT)
        }
    }))
}

/// `garonne_sem_post`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_post(semaphore: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    let added = unsafe { value(semaphore, empty_semaphore) }.map(Semaphore::post);
    code(added.and_then(|added| if added { Ok(()) } else { Err(libc::EOVERFLOW) }))
}

/// `garonne_sem_getvalue`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_sem_getvalue(semaphore: *mut CObject, units: *mut c_int) -> c_int {
    if units.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: the header asks for valid or null pointers.
    code(
        unsafe { value(semaphore, empty_semaphore) }.map(|semaphore| {
            // SAFETY: not null, and the header asks for valid pointers.
            unsafe { units.write(semaphore.value() as c_int) }
        }),
    )
}

/// `garonne_barrier_init`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_barrier_init(
    barrier: *mut CObject,
    participants: c_uint,
) -> c_int {
    if participants == 0 {
        return libc::EINVAL;
    }
    // SAFETY: the header asks for valid or null pointers.
    unsafe { begin(barrier, Barrier::new(participants as usize)) }
}

/// `garonne_barrier_destroy`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_barrier_destroy(barrier: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    unsafe { end(barrier, Barrier::await_last_use) }
}

/// `garonne_barrier_wait`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_barrier_wait(barrier: *mut CObject) -> c_int {
    // SAFETY: the header asks for valid or null pointers.
    match unsafe { value(barrier, || Barrier::new(1)) } {
        Ok(barrier) if barrier.wait() => -1,
        Ok(_) => 0,
        Err(error) => error,
    }
}

/// `garonne_once`
///
/// # Safety
/// As the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_once(
    once: *mut CObject,
    function: Option<extern "C-unwind" fn()>,
) -> c_int {
    let Some(function) = function else {
        return libc::EINVAL;
    };
    // SAFETY: the header asks for valid or null pointers.
    code(unsafe { value(once, Once::new) }.map(|once| once.call(|| function())))
}
