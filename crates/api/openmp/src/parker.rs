//! Waiting of OpenMP threads: a parker for each thread, and a table of waits by address.

use crate::limits::{PARK_BUCKETS, SPIN_ROUNDS, SPINS_PER_COUNT, SPINS_PER_LOOK};
use crate::park_word::ParkWord;
use garonne_fiber::Semaphore;
use garonne_sync::mutex::lock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What one OpenMP thread waits on. Spurious ends are allowed: whoever waits looks again.
#[derive(Debug)]
pub(crate) struct Parker {
    word: ParkWord,
    semaphore: Semaphore,
    /// The thread waits in a barrier, where it runs any task of its team. The thread alone sets it.
    takes_tasks: AtomicBool,
}

impl Default for Parker {
    fn default() -> Self {
        Self {
            word: ParkWord::new(),
            semaphore: Semaphore::new(0),
            takes_tasks: AtomicBool::new(false),
        }
    }
}

impl Parker {
    /// The thread is about to wait. It looks once more before it parks.
    pub(crate) fn announce(&self) {
        self.word.announce();
    }

    /// The thread does not wait after all.
    pub(crate) fn cancel(&self) {
        self.word.awake();
    }

    /// Waits until somebody notifies the thread, or has done so since `announce`.
    pub(crate) fn park(&self) {
        if self.word.sleeps() {
            self.semaphore.wait();
        }
        self.word.awake();
    }

    /// What the thread may wait for has changed: ends its wait.
    pub(crate) fn notify(&self) {
        if self.word.notify() {
            self.semaphore.post();
        }
    }

    /// The thread waits where it runs any task, or no longer does. Returns what it did before.
    pub(crate) fn set_takes_tasks(&self, takes: bool) -> bool {
        let before = self.takes_tasks.load(Ordering::Relaxed);
        // Before the word says that it is idle.
        self.takes_tasks.store(takes, Ordering::Release);
        before
    }

    /// Tells whether the thread waits for tasks, or is about to.
    pub(crate) fn is_idle(&self) -> bool {
        self.word.is_idle() && self.takes_tasks.load(Ordering::Acquire)
    }
}

/// Threads of active teams in the process: where they exceed CPUs nobody spins.
static ACTIVE: AtomicUsize = AtomicUsize::new(1);

/// Counts threads that become active, or idle.
pub(crate) fn add_active(threads: isize) {
    if threads == 0 {
        return;
    }
    ACTIVE.fetch_add(threads as usize, Ordering::Relaxed);
}

/// How many rounds a wait spins before it parks.
fn spin_rounds() -> u32 {
    let globals = crate::icv::globals();
    if globals.spins == Some(0) || ACTIVE.load(Ordering::Relaxed) > globals.cpus.len() {
        return 0;
    }
    globals.spins.unwrap_or(SPIN_ROUNDS)
}

/// Waits until `is_over`. Meanwhile `work` may do something, and says whether it did.
pub(crate) fn wait_until(
    parker: &Parker,
    mut is_over: impl FnMut() -> bool,
    mut work: impl FnMut() -> bool,
) {
    let (mut spins, mut rounds) = (0, spin_rounds());
    loop {
        if is_over() {
            return;
        }
        if work() {
            spins = 0;
            continue;
        }
        if spins < rounds {
            // Only the awaited word is looked at, since others write the rest.
            for _ in 0..SPINS_PER_LOOK {
                std::hint::spin_loop();
                if is_over() {
                    return;
                }
            }
            spins += SPINS_PER_LOOK;
            if spins.is_multiple_of(SPINS_PER_COUNT) {
                // More threads may have become active.
                rounds = spin_rounds();
            }
            continue;
        }
        parker.announce();
        if is_over() {
            parker.cancel();
            return;
        }
        if work() {
            parker.cancel();
            continue;
        }
        parker.park();
    }
}

/// Waits of a bucket, by address.
type Waits = Vec<(usize, Arc<Parker>)>;

/// Threads that wait for a change of a word, by its address.
struct ParkTable([Mutex<Waits>; PARK_BUCKETS]);

static TABLE: ParkTable = ParkTable([const { Mutex::new(Vec::new()) }; PARK_BUCKETS]);

fn bucket(address: usize) -> &'static Mutex<Waits> {
    &TABLE.0[(address >> 2).wrapping_mul(0x9E37_79B1) % PARK_BUCKETS]
}

/// Waits at this address while `must_wait`, which is asked under the lock that wakers take.
pub(crate) fn wait_at(address: usize, must_wait: impl Fn() -> bool) {
    for _ in 0..spin_rounds() {
        if !must_wait() {
            return;
        }
        std::hint::spin_loop();
    }
    let parker = Arc::new(Parker::default());
    {
        let mut waiting = lock(bucket(address));
        if !must_wait() {
            return;
        }
        parker.announce();
        waiting.push((address, parker.clone()));
    }
    parker.park();
}

/// Wakes so many threads that wait at this address, those first that came first.
pub(crate) fn wake_at(address: usize, count: usize) {
    let mut woken = Vec::new();
    lock(bucket(address)).retain(|(at, parker)| {
        let is_meant = *at == address && woken.len() < count;
        if is_meant {
            woken.push(parker.clone());
        }
        !is_meant
    });
    woken.iter().for_each(|parker| parker.notify());
}
