//! What this library knows of the C library's data, looked at before any thread starts.
//!
//! Words of mutexes, conditions, barriers, locks and semaphores are read and written here by their
//! places. Where a place is another one the program is refused: it would hang or lose wake-ups.

use crate::barrier::BarrierWords;
use crate::condition::{ATTRIBUTES_AT, MONOTONIC, SHARED};
use crate::mutex::{self, MutexWords};
use crate::real;
use crate::rwlock::{PREFERENCE_AT, PREFERS_WRITERS, RwlockWords};
use crate::semaphore::SHARED_AT;
use libc::{c_int, c_void};
use std::ffi::CStr;

/// First version of glibc that has all functions which this library takes.
const LEAST_VERSION: (u32, u32) = (2, 30);

/// Bytes that hold any of the objects, and their attributes.
#[repr(C, align(16))]
struct Object([u8; 128]);

impl Object {
    fn new() -> Self {
        Self([0; 128])
    }

    fn at(&mut self) -> *mut c_void {
        self.0.as_mut_ptr().cast()
    }

    fn word(&self, at: usize) -> u32 {
        let bytes = self.0[at..].first_chunk();
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    /// # Safety
    /// The object is one of these words, as the C library has filled them in.
    unsafe fn read<T: Copy>(&self) -> T {
        const { assert!(size_of::<T>() <= 128 && align_of::<T>() <= 16) };
        // SAFETY: the bytes are there and aligned; words have no wrong values.
        unsafe { std::ptr::from_ref(self).cast::<T>().read() }
    }
}

/// Ends the process where the C library is one that this library does not know.
pub(crate) fn require_known() {
    if let Err(what) = find_difference() {
        let version = version().map_or("of an unknown version", |(_, text)| text);
        let text = format!(
            "garonne: the C library (glibc {version}) {what}, so its threads cannot run as fibers. \
             Run the program without `garonne threads run`\n"
        );
        // SAFETY: the bytes live. No destructor of the program is to run: nothing of it has.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(1);
        }
    }
}

/// The version of glibc, and as text.
fn version() -> Option<((u32, u32), &'static str)> {
    // SAFETY: a text that lives as long as the process.
    let text = unsafe { CStr::from_ptr(libc::gnu_get_libc_version()) };
    let text = text.to_str().ok()?;
    let mut numbers = text.split('.').map_while(|number| number.parse().ok());
    Some(((numbers.next()?, numbers.next()?), text))
}

fn find_difference() -> Result<(), &'static str> {
    if version().is_none_or(|(number, _)| number < LEAST_VERSION) {
        return Err("is older than 2.30");
    }
    // SAFETY: each object is initialised before it is used, and is larger than the C library's.
    unsafe {
        mutexes()?;
        conditions()?;
        barriers()?;
        rwlocks()?;
        semaphores()
    }
}

/// `text` where something does not hold.
fn require(holds: bool, text: &'static str) -> Result<(), &'static str> {
    holds.then_some(()).ok_or(text)
}

const MUTEX: &str = "lays out mutexes in another way than this library knows";

unsafe fn mutexes() -> Result<(), &'static str> {
    // SAFETY: as the caller says, here and below.
    unsafe {
        let (mut lock, mut attr) = (Object::new(), Object::new());
        libc::pthread_mutexattr_init(attr.at().cast());
        libc::pthread_mutexattr_settype(attr.at().cast(), libc::PTHREAD_MUTEX_RECURSIVE);
        libc::pthread_mutex_init(lock.at().cast(), attr.at().cast());
        real::pthread_mutex_trylock(lock.at());
        let words: MutexWords = lock.read();
        let is_as_known = words.is_held_once_by(real::gettid());
        require(is_as_known && words.kind() == mutex::RECURSIVE, MUTEX)?;
        real::pthread_mutex_unlock(lock.at());
        require(lock.read::<MutexWords>().is_free(), MUTEX)?;
        libc::pthread_mutexattr_settype(attr.at().cast(), libc::PTHREAD_MUTEX_ERRORCHECK);
        libc::pthread_mutexattr_setpshared(attr.at().cast(), libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_mutexattr_setrobust(attr.at().cast(), libc::PTHREAD_MUTEX_ROBUST);
        libc::pthread_mutex_init(lock.at().cast(), attr.at().cast());
        let wanted = mutex::ERROR_CHECKING | mutex::SHARED | mutex::ROBUST;
        require(lock.read::<MutexWords>().kind() == wanted, MUTEX)
    }
}

unsafe fn conditions() -> Result<(), &'static str> {
    // SAFETY: as the caller says.
    unsafe {
        let (mut cond, mut attr) = (Object::new(), Object::new());
        libc::pthread_cond_init(cond.at().cast(), std::ptr::null());
        let plain = cond.word(ATTRIBUTES_AT);
        libc::pthread_condattr_init(attr.at().cast());
        libc::pthread_condattr_setclock(attr.at().cast(), libc::CLOCK_MONOTONIC);
        libc::pthread_condattr_setpshared(attr.at().cast(), libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_cond_init(cond.at().cast(), attr.at().cast());
        require(
            (plain, cond.word(ATTRIBUTES_AT)) == (0, SHARED | MONOTONIC),
            "lays out conditions in another way than this library knows",
        )
    }
}

unsafe fn barriers() -> Result<(), &'static str> {
    const COUNT: u32 = 7;
    // SAFETY: as the caller says.
    unsafe {
        let (mut barrier, mut attr) = (Object::new(), Object::new());
        libc::pthread_barrier_init(barrier.at().cast(), std::ptr::null(), COUNT);
        let plain: BarrierWords = barrier.read();
        libc::pthread_barrierattr_init(attr.at().cast());
        libc::pthread_barrierattr_setpshared(attr.at().cast(), libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_barrier_init(barrier.at().cast(), attr.at().cast(), COUNT);
        let shared: BarrierWords = barrier.read();
        require(
            plain.is_fresh(COUNT, false) && shared.is_fresh(COUNT, true),
            "lays out barriers in another way than this library knows",
        )
    }
}

unsafe extern "C" {
    fn pthread_rwlockattr_setkind_np(attr: *mut c_void, kind: c_int) -> c_int;
}

unsafe fn rwlocks() -> Result<(), &'static str> {
    // SAFETY: as the caller says.
    unsafe {
        let (mut lock, mut attr) = (Object::new(), Object::new());
        libc::pthread_rwlockattr_init(attr.at().cast());
        pthread_rwlockattr_setkind_np(attr.at(), PREFERS_WRITERS as c_int);
        libc::pthread_rwlock_init(lock.at().cast(), attr.at().cast());
        let preference = lock.word(PREFERENCE_AT);
        real::pthread_rwlock_trywrlock(lock.at());
        let held: RwlockWords = lock.read();
        libc::pthread_rwlockattr_setpshared(attr.at().cast(), libc::PTHREAD_PROCESS_SHARED);
        libc::pthread_rwlock_init(lock.at().cast(), attr.at().cast());
        let shared: RwlockWords = lock.read();
        let is_as_known = held.is_written_by(real::gettid()) && shared.is_shared();
        require(
            is_as_known && preference == PREFERS_WRITERS,
            "lays out locks of readers and writers in another way than this library knows",
        )
    }
}

unsafe fn semaphores() -> Result<(), &'static str> {
    // SAFETY: as the caller says.
    unsafe {
        let mut semaphore = Object::new();
        libc::sem_init(semaphore.at().cast(), 0, 5);
        let own = semaphore.word(SHARED_AT);
        libc::sem_init(semaphore.at().cast(), 1, 5);
        require(
            own == 0 && semaphore.word(SHARED_AT) != 0,
            "lays out semaphores in another way than this library knows",
        )
    }
}
