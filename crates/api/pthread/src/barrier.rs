//! Barriers and locks that spin.

use crate::real;
use crate::record::{self, Bound, LOT};
use garonne_fiber::ParkOutcome;
use libc::{c_int, c_void};

/// Words of a barrier, as glibc lays them out. Here `arrived` counts those of the current round.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct BarrierWords {
    arrived: u32,
    round: u32,
    count: u32,
    shared: u32,
    left: u32,
}

impl BarrierWords {
    /// Tells whether it is a new barrier of so many threads.
    pub(crate) fn is_fresh(&self, count: u32, shared: bool) -> bool {
        (self.arrived, self.round, self.left) == (0, 0, 0)
            && self.count == count
            && (self.shared != 0) == shared
    }
}

const SERIAL: c_int = -1;

/// Tries of a lock that spins before other fibers run.
const SPINS: u32 = 100;

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_barrier_wait(barrier: *mut c_void) -> c_int {
    let words = barrier.cast::<BarrierWords>();
    // SAFETY: the program passes a barrier; these words never change while it is used.
    let (count, shared) = unsafe { ((*words).count, (*words).shared) };
    let own = record::own().filter(|_| !record::is_off() && shared == 0);
    let Some(own) = own else {
        let _bound = Bound::new();
        // SAFETY: as above.
        return unsafe { real::pthread_barrier_wait(barrier) };
    };
    let address = barrier as usize;
    loop {
        // SAFETY: as above. Others may write the word meanwhile.
        let round = unsafe { std::ptr::read_volatile(&raw const (*words).round) };
        let mut is_stale = false;
        let must_wait = || {
            // SAFETY: both words change under the lock of the address alone.
            let words = unsafe { &mut *words };
            is_stale = words.round != round;
            if is_stale {
                return false;
            }
            words.arrived += 1;
            if words.arrived < count {
                return true;
            }
            words.arrived = 0;
            words.round = words.round.wrapping_add(1);
            false
        };
        match LOT.park(
            own.parker(),
            (address, round),
            None,
            false,
            must_wait,
            || {},
        ) {
            ParkOutcome::Invalid if is_stale => (),
            ParkOutcome::Invalid => {
                LOT.unpark_all(address, Some(round));
                return SERIAL;
            }
            _ => return 0,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_barrier_destroy(barrier: *mut c_void) -> c_int {
    // SAFETY: the program passes a barrier.
    if unsafe { (*barrier.cast::<BarrierWords>()).shared } == 0 && !record::is_off() {
        // Those who were woken do not touch it.
        return 0;
    }
    let _bound = Bound::new();
    // SAFETY: as above.
    unsafe { real::pthread_barrier_destroy(barrier) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn garonne_pthread_spin_lock(lock: *mut c_int) -> c_int {
    let mut tries = 0u32;
    // SAFETY: the program passes a lock.
    while unsafe { real::pthread_spin_trylock(lock) } != 0 {
        tries += 1;
        if tries.is_multiple_of(SPINS) {
            // The holder may be a fiber that waits for this worker.
            // SAFETY: has no precondition.
            unsafe { crate::sleep::garonne_sched_yield() };
        }
        std::hint::spin_loop();
    }
    0
}
