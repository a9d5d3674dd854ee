//! OpenMP's locks: simple ones, nestable ones, and those of OpenMP 2.5's binaries.

use garonne_openmp::{current, lock};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// A nestable lock, in the program's 16 bytes.
#[repr(C)]
pub struct NestLock {
    word: AtomicU32,
    count: AtomicU32,
    owner: AtomicUsize,
}

/// A nestable lock of OpenMP 2.5, owned by a thread.
#[repr(C)]
pub struct OldNestLock {
    owner: AtomicU32,
    count: AtomicU32,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_init_lock(word: *mut u32) {
    // SAFETY: the program passes its lock.
    unsafe { word.write(0) };
}

#[unsafe(no_mangle)]
pub extern "C" fn garonne_destroy_lock(_: *mut u32) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_set_lock(word: *mut u32) {
    // SAFETY: the program passes its lock, which it has initialised.
    lock::lock(unsafe { AtomicU32::from_ptr(word) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_unset_lock(word: *mut u32) {
    // SAFETY: as above.
    lock::unlock(unsafe { AtomicU32::from_ptr(word) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_test_lock(word: *mut u32) -> c_int {
    // SAFETY: as above.
    c_int::from(lock::try_lock(unsafe { AtomicU32::from_ptr(word) }))
}

impl NestLock {
    fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            count: AtomicU32::new(0),
            owner: AtomicUsize::new(0),
        }
    }

    fn set(&self, waits: bool) -> u32 {
        let me = current().task_id();
        if self.owner.load(Ordering::Relaxed) != me {
            if waits {
                lock::lock(&self.word);
            } else if !lock::try_lock(&self.word) {
                return 0;
            }
            self.owner.store(me, Ordering::Relaxed);
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn unset(&self) {
        if self.count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.owner.store(0, Ordering::Relaxed);
            lock::unlock(&self.word);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_init_nest_lock(lock: *mut NestLock) {
    // SAFETY: the program passes its lock.
    unsafe { lock.write(NestLock::new()) };
}

#[unsafe(no_mangle)]
pub extern "C" fn garonne_destroy_nest_lock(_: *mut NestLock) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_set_nest_lock(lock: *const NestLock) {
    // SAFETY: the program passes its lock, which it has initialised.
    unsafe { (*lock).set(true) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_unset_nest_lock(lock: *const NestLock) {
    // SAFETY: as above.
    unsafe { (*lock).unset() };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_test_nest_lock(lock: *const NestLock) -> c_int {
    // SAFETY: as above.
    unsafe { (*lock).set(false) as c_int }
}

// Fortran's nestable locks have 8 bytes: the address of the lock.

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_init_nest_lock_f(lock: *mut *mut NestLock) {
    // SAFETY: the program passes its word.
    unsafe { lock.write(Box::into_raw(Box::new(NestLock::new()))) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_destroy_nest_lock_f(lock: *mut *mut NestLock) {
    // SAFETY: the word is as initialised; it is destroyed once.
    unsafe {
        drop(Box::from_raw(lock.read()));
        lock.write(std::ptr::null_mut());
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_set_nest_lock_f(lock: *mut *mut NestLock) {
    // SAFETY: the word is as initialised.
    unsafe { (**lock).set(true) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_unset_nest_lock_f(lock: *mut *mut NestLock) {
    // SAFETY: as above.
    unsafe { (**lock).unset() };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_test_nest_lock_f(lock: *mut *mut NestLock) -> c_int {
    // SAFETY: as above.
    unsafe { (**lock).set(false) as c_int }
}

// Nestable locks of OpenMP 2.5: the word of the owner is the lock.

impl OldNestLock {
    fn set(&self, waits: bool) -> u32 {
        let me = current().id();
        if self.owner.load(Ordering::Acquire) != me {
            while self
                .owner
                .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                if !waits {
                    return 0;
                }
                current().yield_now();
            }
            self.count.store(0, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_init_nest_lock_25(lock: *mut u64) {
    // SAFETY: the program passes its lock.
    unsafe { lock.write(0) };
}

#[unsafe(no_mangle)]
pub extern "C" fn garonne_destroy_nest_lock_25(_: *mut c_void) {}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_set_nest_lock_25(lock: *const OldNestLock) {
    // SAFETY: the program passes its lock, which it has initialised.
    unsafe { (*lock).set(true) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_unset_nest_lock_25(lock: *const OldNestLock) {
    // SAFETY: as above.
    unsafe {
        if (*lock).count.fetch_sub(1, Ordering::Relaxed) == 1 {
            (*lock).owner.store(0, Ordering::Release);
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn garonne_test_nest_lock_25(lock: *const OldNestLock) -> c_int {
    // SAFETY: as above.
    unsafe { (*lock).set(false) as c_int }
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b"
    };
}

/// Two versions of a name: the present one, and that of OpenMP 2.5.
macro_rules! versions {
    ($($name:literal: $new:ident $old:ident;)*) => {$(
        std::arch::global_asm!(
            concat!(".globl ", $name, "_garonne_30"),
            concat!(".type ", $name, "_garonne_30,%function"),
            concat!($name, "_garonne_30: ", jump!(), " {new}"),
            concat!(".symver ", $name, "_garonne_30, ", $name, "@@OMP_3.0"),
            concat!(".globl ", $name, "_garonne_10"),
            concat!(".type ", $name, "_garonne_10,%function"),
            concat!($name, "_garonne_10: ", jump!(), " {old}"),
            concat!(".symver ", $name, "_garonne_10, ", $name, "@OMP_1.0"),
            new = sym $new,
            old = sym $old,
        );
    )*};
}

versions! {
    "omp_init_lock": garonne_init_lock garonne_init_lock;
    "omp_destroy_lock": garonne_destroy_lock garonne_destroy_lock;
    "omp_set_lock": garonne_set_lock garonne_set_lock;
    "omp_unset_lock": garonne_unset_lock garonne_unset_lock;
    "omp_test_lock": garonne_test_lock garonne_test_lock;
    "omp_init_nest_lock": garonne_init_nest_lock garonne_init_nest_lock_25;
    "omp_destroy_nest_lock": garonne_destroy_nest_lock garonne_destroy_nest_lock_25;
    "omp_set_nest_lock": garonne_set_nest_lock garonne_set_nest_lock_25;
    "omp_unset_nest_lock": garonne_unset_nest_lock garonne_unset_nest_lock_25;
    "omp_test_nest_lock": garonne_test_nest_lock garonne_test_nest_lock_25;
    "omp_init_lock_": garonne_init_lock garonne_init_lock;
    "omp_destroy_lock_": garonne_destroy_lock garonne_destroy_lock;
    "omp_set_lock_": garonne_set_lock garonne_set_lock;
    "omp_unset_lock_": garonne_unset_lock garonne_unset_lock;
    "omp_test_lock_": garonne_test_lock garonne_test_lock;
    "omp_init_nest_lock_": garonne_init_nest_lock_f garonne_init_nest_lock_25;
    "omp_destroy_nest_lock_": garonne_destroy_nest_lock_f garonne_destroy_nest_lock_25;
    "omp_set_nest_lock_": garonne_set_nest_lock_f garonne_set_nest_lock_25;
    "omp_unset_nest_lock_": garonne_unset_nest_lock_f garonne_unset_nest_lock_25;
    "omp_test_nest_lock_": garonne_test_nest_lock_f garonne_test_nest_lock_25;
}
