//! Waits at addresses, for primitives whose memory is a program's: the queues are elsewhere.
//!
//! A waiter joins the queue of its address under a bucket's lock. Whoever changes the memory then
//! asks the bucket, which is one load where nobody waits. A wait allocates nothing, since the
//! program's allocator may be what waits.

use crate::context::{self, Fiber};
use crate::limits::{DEFERRED_WAKES, PARKING_BUCKETS};
use crate::posix_thread::PosixThread;
use crate::wait_queue::WaitHandle;
use crate::waiting_count::WaitingCount;
use garonne_sync::futex;
use garonne_sync::mutex::lock;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A waiter's word: nobody has ended the wait.
const WAITING: u32 = 0;
/// A waiter's word: the event has come.
const WOKEN: u32 = 1;
/// A waiter's word: somebody wants it to look at its request.
const INTERRUPTED: u32 = 2;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkOutcome {
    /// There was nothing to wait for.
    Invalid,
    /// Somebody ended it.
    Woken,
    /// The time for the wait is over.
    TimedOut,
    /// [`Parker::interrupt`] was called.
    Interrupted,
}

/// A thread or fiber that may wait at one address at a time.
#[derive(Debug)]
pub struct Parker {
    fiber: Option<Arc<Fiber>>,
    /// The fiber waits, and not the thread.
    is_fiber: AtomicBool,
    signal: AtomicU32,
    interrupted: AtomicBool,
    /// The thread is to wait as its kernel thread.
    binds: AtomicBool,
    address: AtomicUsize,
    tag: AtomicU32,
    /// The next waiter of the bucket. Changed under the bucket's lock.
    next: Mutex<Option<Arc<Parker>>>,
}

impl Parker {
    /// The calling thread, which `posix` is if there is one.
    pub fn new(posix: Option<&PosixThread>) -> Arc<Self> {
        Arc::new(Self {
            fiber: posix.map(|thread| thread.fiber().clone()),
            is_fiber: AtomicBool::new(false),
            signal: AtomicU32::new(WAITING),
            interrupted: AtomicBool::new(false),
            binds: AtomicBool::new(false),
            address: AtomicUsize::new(0),
            tag: AtomicU32::new(0),
            next: Mutex::new(None),
        })
    }

    /// Ends this wait, or the next one, if it may be interrupted.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        let waiting =
            self.signal
                .compare_exchange(WAITING, INTERRUPTED, Ordering::AcqRel, Ordering::Relaxed);
        if waiting.is_ok() {
            self.unpark();
        }
    }

    /// Forgets that [`Parker::interrupt`] was called.
    pub fn clear_interrupt(&self) {
        self.interrupted.store(false, Ordering::SeqCst);
    }

    /// Has the thread wait as its kernel thread, now and from now on.
    pub fn bind(&self) {
        self.binds.store(true, Ordering::SeqCst);
        self.unpark();
    }

    /// Tells whether its last wait is, or was, one of the kernel's thread.
    pub fn is_bound_wait(&self) -> bool {
        !self.is_fiber.load(Ordering::Relaxed)
    }

    /// Tells whether [`Parker::interrupt`] was called.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    fn wake(&self) {
        // SYNC(parker-event)
        self.signal.store(WOKEN, Ordering::Release);
        self.unpark();
    }

    fn unpark(&self) {
        match &self.fiber {
            Some(fiber) if self.is_fiber.load(Ordering::Relaxed) => fiber.unpark(),
            _ => _ = futex::wake(&self.signal, 1),
        }
    }

    /// Waits until the word says `WOKEN`, or another reason ends the wait.
    fn wait(&self, deadline: Option<u64>, may_interrupt: bool) -> ParkOutcome {
        let fiber = self
            .fiber
            .as_ref()
            .filter(|_| self.is_fiber.load(Ordering::Relaxed));
        let timer = match (fiber, deadline) {
            (Some(fiber), Some(deadline)) => {
                let timers = &fiber.scheduler.timers;
                Some(timers.add(deadline, WaitHandle::Fiber(fiber.clone())))
            }
            _ => None,
        };
        let outcome = loop {
            // SYNC(parker-event): pairs with `wake`.
            let signal = self.signal.load(Ordering::Acquire);
            if signal == WOKEN {
                break ParkOutcome::Woken;
            }
            if may_interrupt && self.interrupted.load(Ordering::SeqCst) {
                break ParkOutcome::Interrupted;
            }
            let left = deadline.map(|deadline| deadline.saturating_sub(crate::runtime::now()));
            if left == Some(0) {
                break ParkOutcome::TimedOut;
            }
            match fiber.filter(|_| self.is_fiber.load(Ordering::Relaxed)) {
                Some(fiber) if self.binds.load(Ordering::SeqCst) => {
                    crate::posix_thread::bind(fiber);
                    // Whoever looked at this before has changed the word before.
                    self.is_fiber.store(false, Ordering::SeqCst);
                }
                Some(fiber) => fiber.park(),
                None => _ = futex::wait(&self.signal, signal, left.map(Duration::from_nanos)),
            }
        };
        if let (Some(fiber), Some(timer)) = (fiber, timer) {
            fiber.scheduler.timers.remove(timer);
        }
        outcome
    }
}

thread_local! {
    /// The thread is in a part that a signal handler of the program must not enter again.
    static IS_CRITICAL: Cell<bool> = const { Cell::new(false) };
    /// Addresses that handlers would have woken meanwhile.
    static DEFERRED: [Cell<usize>; DEFERRED_WAKES] = const { [const { Cell::new(0) }; DEFERRED_WAKES] };
}

#[inline(never)]
fn set_critical(is: bool) {
    compiler_fence(Ordering::SeqCst);
    let _ = IS_CRITICAL.try_with(|critical| critical.set(is));
    compiler_fence(Ordering::SeqCst);
}

#[inline(never)]
fn is_critical() -> bool {
    IS_CRITICAL.try_with(Cell::get).unwrap_or(false)
}

/// A handler's wake-up waits for the part that the handler interrupted.
#[inline(never)]
fn defer(address: usize) {
    let _ = DEFERRED.try_with(|deferred| {
        if let Some(free) = deferred.iter().find(|place| place.get() == 0) {
            free.set(address);
        }
    });
}

#[inline(never)]
fn take_deferred() -> Option<usize> {
    let take = |deferred: &[Cell<usize>; DEFERRED_WAKES]| {
        let place = deferred.iter().find(|place| place.get() != 0)?;
        Some(place.replace(0))
    };
    DEFERRED.try_with(take).ok().flatten()
}

/// Waiters of some addresses, in the order in which they came.
#[derive(Debug)]
struct ParkedList {
    first: Option<Arc<Parker>>,
    last: Option<Arc<Parker>>,
}

impl ParkedList {
    fn push(&mut self, parker: Arc<Parker>) {
        match self.last.replace(parker.clone()) {
            Some(last) => *lock(&last.next) = Some(parker),
            None => self.first = Some(parker),
        }
    }

    /// Takes the first waiter out that is meant.
    fn take(&mut self, is_meant: impl Fn(&Arc<Parker>) -> bool) -> Option<Arc<Parker>> {
        let mut before: Option<Arc<Parker>> = None;
        let mut at = self.first.clone();
        while let Some(parker) = at {
            let next = lock(&parker.next).clone();
            if !is_meant(&parker) {
                at = next;
                before = Some(parker);
                continue;
            }
            *lock(&parker.next) = None;
            match &before {
                Some(before) => *lock(&before.next) = next.clone(),
                None => self.first = next.clone(),
            }
            if next.is_none() {
                self.last = before;
            }
            return Some(parker);
        }
        None
    }

    fn has(&self, is_meant: impl Fn(&Arc<Parker>) -> bool) -> bool {
        let mut at = self.first.clone();
        while let Some(parker) = at {
            if is_meant(&parker) {
                return true;
            }
            at = lock(&parker.next).clone();
        }
        false
    }
}

#[derive(Debug)]
struct Bucket {
    /// Waiters, and those that are about to look whether they must wait.
    waiting: WaitingCount,
    parked: Mutex<ParkedList>,
}

impl Bucket {
    const fn new() -> Self {
        Self {
            waiting: WaitingCount::new(),
            parked: Mutex::new(ParkedList {
                first: None,
                last: None,
            }),
        }
    }
}

/// See the module's paragraph. One for all addresses of the process.
#[derive(Debug)]
pub struct ParkingLot([Bucket; PARKING_BUCKETS]);

impl ParkingLot {
    /// A parking lot where nobody waits.
    pub const fn new() -> Self {
        Self([const { Bucket::new() }; PARKING_BUCKETS])
    }

    fn bucket(&self, address: usize) -> &Bucket {
        // The high bits of a product by a large odd number depend on all bits of the address.
        let hash = (address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &self.0[(hash >> 40) as usize % PARKING_BUCKETS]
    }

    /// Waits at an address, until `deadline` on the scheduler's clock if there is one.
    ///
    /// `must_wait` is asked under the bucket's lock: who changes the memory comes before, or finds
    /// the waiter. `enter` runs after that, before the wait.
    pub fn park(
        &self,
        parker: &Arc<Parker>,
        (address, tag): (usize, u32),
        deadline: Option<u64>,
        may_interrupt: bool,
        must_wait: impl FnOnce() -> bool,
        enter: impl FnOnce(),
    ) -> ParkOutcome {
        let bucket = self.bucket(address);
        let is_fiber = parker.fiber.is_some() && context::with_current(|fiber| fiber.is_some());
        let is_fiber = is_fiber && !crate::borrowed_stack::is_in_handler();
        bucket.waiting.enter();
        let waits = self.critical(|| {
            let mut parked = lock(&bucket.parked);
            if !must_wait() {
                bucket.waiting.leave(1);
                return false;
            }
            parker.is_fiber.store(is_fiber, Ordering::Relaxed);
            parker.address.store(address, Ordering::Relaxed);
            parker.tag.store(tag, Ordering::Relaxed);
            parker.signal.store(WAITING, Ordering::SeqCst);
            parked.push(parker.clone());
            true
        });
        if !waits {
            return ParkOutcome::Invalid;
        }
        enter();
        let outcome = context::keeping_errno(|| parker.wait(deadline, may_interrupt));
        if outcome == ParkOutcome::Woken {
            return outcome;
        }
        let take = || lock(&bucket.parked).take(|other| Arc::ptr_eq(other, parker));
        let withdrawn = self.critical(take);
        if withdrawn.is_some() {
            bucket.waiting.leave(1);
            return outcome;
        }
        // Whoever took the waiter out wakes it, if it has not yet.
        context::keeping_errno(|| parker.wait(None, false))
    }

    /// Ends the wait at an address that began first. `false`: nobody waits there.
    #[inline]
    pub fn unpark_one(&self, address: usize) -> bool {
        let bucket = self.bucket(address);
        if bucket.waiting.is_zero() {
            return false;
        }
        if is_critical() {
            defer(address);
            return true;
        }
        let is_meant = |parker: &Arc<Parker>| parker.address.load(Ordering::Relaxed) == address;
        self.critical(|| {
            let first = lock(&bucket.parked).take(is_meant);
            if let Some(first) = &first {
                bucket.waiting.leave(1);
                first.wake();
            }
            first.is_some()
        })
    }

    /// Calls `body`, which takes locks of this crate: a signal handler that interrupts it takes
    /// none.
    fn critical<R>(&self, body: impl FnOnce() -> R) -> R {
        context::keeping_errno(|| {
            set_critical(true);
            let result = body();
            set_critical(false);
            self.wake_deferred();
            result
        })
    }

    #[inline]
    fn wake_deferred(&self) {
        while let Some(address) = take_deferred() {
            self.unpark_one(address);
        }
    }

    /// Ends all waits at an address, if it is given only those with a tag. Returns how many.
    pub fn unpark_all(&self, address: usize, tag: Option<u32>) -> usize {
        let bucket = self.bucket(address);
        if bucket.waiting.is_zero() {
            return 0;
        }
        let is_meant = |parker: &Arc<Parker>| {
            parker.address.load(Ordering::Relaxed) == address
                && tag.is_none_or(|tag| parker.tag.load(Ordering::Relaxed) == tag)
        };
        self.critical(|| Self::unpark_chain(bucket, is_meant))
    }

    fn unpark_chain(bucket: &Bucket, is_meant: impl Fn(&Arc<Parker>) -> bool) -> usize {
        let mut parked = lock(&bucket.parked);
        let mut chain: Option<Arc<Parker>> = None;
        let mut count = 0;
        // Chained by their own words in the opposite order, and turned around.
        while let Some(parker) = parked.take(&is_meant) {
            *lock(&parker.next) = chain.replace(parker.clone());
            count += 1;
        }
        let mut turned: Option<Arc<Parker>> = None;
        while let Some(parker) = chain {
            chain = std::mem::replace(&mut *lock(&parker.next), turned.take());
            turned = Some(parker);
        }
        bucket.waiting.leave(count as u32);
        drop(parked);
        while let Some(parker) = turned {
            turned = lock(&parker.next).take();
            parker.wake();
        }
        count
    }

    /// Tells whether anybody waits at an address with this tag.
    pub fn has_waiter(&self, address: usize, tag: u32) -> bool {
        let bucket = self.bucket(address);
        let is_meant = |parker: &Arc<Parker>| {
            parker.address.load(Ordering::Relaxed) == address
                && parker.tag.load(Ordering::Relaxed) == tag
        };
        !bucket.waiting.is_zero() && self.critical(|| lock(&bucket.parked).has(is_meant))
    }
}

impl Default for ParkingLot {
    fn default() -> Self {
        Self::new()
    }
}
