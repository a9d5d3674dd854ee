//! Waiting of OpenMP threads: a parker for each thread, and a table of waits by address.

use crate::limits::{PARK_BUCKETS, SPIN_ROUNDS};
use garonne_fiber::Semaphore;
use garonne_sync::mutex::lock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The thread runs, and nobody has notified it.
const EMPTY: u32 = 0;
/// The thread has said that it is about to wait, and looks once more.
const IDLE: u32 = 1;
/// The thread waits.
const PARKED: u32 = 2;
/// The thread was notified: its next wait ends at once.
const NOTIFIED: u32 = 3;

/// What one OpenMP thread waits on. Spurious ends are allowed: whoever waits looks again.
#[derive(Debug)]
pub(crate) struct Parker {
    state: AtomicU32,
    semaphore: Semaphore,
    /// The thread waits in a barrier, where it runs any task of its team.
    takes_tasks: AtomicBool,
}

impl Default for Parker {
    fn default() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            semaphore: Semaphore::new(0),
            takes_tasks: AtomicBool::new(false),
        }
    }
}

impl Parker {
    /// The thread is about to wait. It looks once more before it parks.
    pub(crate) fn announce(&self) {
        let from = (EMPTY, IDLE, Ordering::SeqCst, Ordering::SeqCst);
        let _ = self.state.compare_exchange(from.0, from.1, from.2, from.3);
    }

    /// The thread does not wait after all.
    pub(crate) fn cancel(&self) {
        self.state.swap(EMPTY, Ordering::SeqCst);
    }

    /// Waits until somebody notifies the thread, or has done so since `announce`.
    pub(crate) fn park(&self) {
        let waits = self
            .state
            .compare_exchange(IDLE, PARKED, Ordering::SeqCst, Ordering::SeqCst);
        if waits.is_ok() {
            self.semaphore.wait();
        }
        self.state.swap(EMPTY, Ordering::SeqCst);
    }

    /// Ends the thread's wait, or its next one.
    pub(crate) fn notify(&self) {
        if self.state.swap(NOTIFIED, Ordering::SeqCst) == PARKED {
            self.semaphore.post();
        }
    }

    /// The thread waits where it runs any task, or no longer does. Returns what it did before.
    pub(crate) fn set_takes_tasks(&self, takes: bool) -> bool {
        self.takes_tasks.swap(takes, Ordering::SeqCst)
    }

    /// Tells whether the thread waits for tasks, or is about to.
    pub(crate) fn is_idle(&self) -> bool {
        self.takes_tasks.load(Ordering::SeqCst)
            && matches!(self.state.load(Ordering::SeqCst), IDLE | PARKED)
    }
}

/// Threads of active teams in the process: where they exceed CPUs nobody spins.
static ACTIVE: AtomicUsize = AtomicUsize::new(1);

/// Counts threads that become active, or idle.
pub(crate) fn add_active(threads: isize) {
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
    let mut spins = 0;
    loop {
        if is_over() {
            return;
        }
        if work() {
            spins = 0;
            continue;
        }
        if spins < spin_rounds() {
            spins += 1;
            std::hint::spin_loop();
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
