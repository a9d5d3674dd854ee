//! Random schedules of waiters that are no threads, beside waiters that are: all wait on the same
//! wait slots, for messages that only their leader takes in.
//!
//! The waiters of an executor are tasks that its threads poll by hand, each time on whichever
//! thread is free. A lost wake-up shows as a schedule in which all threads are blocked, or that has
//! no end.

use crate::facade::{AtomicBool, AtomicU32, Mutex, Ordering, lock};
use crate::tasks::shuttle_tests::schedules;
use garonne_sync::deferred_wake::{self, DeferredWakes};
use garonne_sync::futex;
use garonne_sync::waiter::{self, Waiter, WaiterId, WaiterState};
use garonne_sync::waiters::{WaitSlot, Waiters, WakeReason};
use shuttle::thread::{JoinHandle, spawn};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};

/// State that a rank's waiters share: wait slots, and messages that nobody has taken.
#[derive(Default)]
struct Rank {
    waiters: Waiters,
    /// Receivers of messages that have come.
    inbox: Mutex<VecDeque<usize>>,
    /// Messages of each receiver that a leader took in.
    taken_in: Vec<AtomicU32>,
    leads: AtomicBool,
}

impl Rank {
    fn new(receivers: usize) -> Arc<Self> {
        Arc::new(Self {
            taken_in: (0..receivers).map(|_| AtomicU32::new(0)).collect(),
            ..Self::default()
        })
    }

    /// A leader's look at the inbox: takes one message in and wakes its receiver.
    fn poll(&self, leader: WaiterId) {
        assert!(self.waiters.is_led_by(leader));
        assert!(!self.leads.swap(true, Ordering::SeqCst), "two leaders");
        {
            let _as_under_a_lock = DeferredWakes::new();
            let mut inbox = lock(&self.inbox);
            if let Some(receiver) = inbox.pop_front() {
                self.taken_in[receiver].fetch_add(1, Ordering::SeqCst);
                self.waiters.notify(|key| key == receiver as u64);
            }
        }
        self.leads.store(false, Ordering::SeqCst);
    }

    fn has(&self, receiver: usize, messages: u32) -> bool {
        self.taken_in[receiver].load(Ordering::SeqCst) >= messages
    }

    /// Receives so many messages, one after the other, as a thread that sleeps.
    fn receive_as_thread(&self, receiver: usize, messages: u32) {
        let who = waiter::current();
        assert!(!who.is_logical());
        for message in 1..=messages {
            let mut slot = None;
            loop {
                let seen = self.waiters.event_count();
                if self.has(receiver, message) {
                    break;
                }
                let leads = self.waiters.try_lead(who.id()) || {
                    let slot = slot
                        .get_or_insert_with(|| self.waiters.take_slot(who.clone()).expect("slots"));
                    slot.wait(receiver as u64, seen, 0) == WakeReason::Lead
                };
                if leads {
                    while !self.has(receiver, message) {
                        self.poll(who.id());
                        shuttle::thread::yield_now();
                    }
                    self.waiters.pass_leadership();
                    break;
                }
            }
        }
    }
}

/// Receives as [`Rank::receive_as_thread`] does, but returns to its executor where a thread sleeps.
async fn receive(rank: Arc<Rank>, receiver: usize, messages: u32) {
    let who = waiter::current();
    assert!(who.is_logical());
    for message in 1..=messages {
        let mut slot: Option<WaitSlot<'_>> = None;
        loop {
            let seen = rank.waiters.event_count();
            if rank.has(receiver, message) {
                break;
            }
            let leads = rank.waiters.try_lead(who.id()) || {
                let slot =
                    slot.get_or_insert_with(|| rank.waiters.take_slot(who.clone()).expect("slots"));
                if slot.begin_wait(receiver as u64, seen) {
                    while !slot.is_woken() {
                        suspend(false).await;
                    }
                }
                slot.end_wait() == WakeReason::Lead
            };
            if leads {
                while !rank.has(receiver, message) {
                    assert_eq!(waiter::current_id(), who.id());
                    rank.poll(who.id());
                    suspend(true).await;
                }
                rank.waiters.pass_leadership();
                break;
            }
        }
    }
}

/// Returns to the executor once. `ready`: the waiter wants to be polled again all the same.
fn suspend(ready: bool) -> impl Future<Output = ()> {
    let mut suspended = false;
    poll_fn(move |context| {
        if std::mem::replace(&mut suspended, true) {
            return Poll::Ready(());
        }
        if ready {
            context.waker().wake_by_ref();
        }
        Poll::Pending
    })
}

/// Waiters that are ready to go on, and the threads that sleep until there is one.
#[derive(Default)]
struct Executor {
    ready: Mutex<VecDeque<Arc<Fiber>>>,
    /// Changes with each waiter that gets ready, and when the last ends.
    word: AtomicU32,
    /// Waiters that have not ended.
    alive: AtomicU32,
}

impl Executor {
    fn start(self: &Arc<Self>, body: impl Future<Output = ()> + Send + 'static) {
        let fiber = Arc::new(Fiber {
            state: WaiterState::new(),
            executor: self.clone(),
            is_ready: AtomicBool::new(false),
            body: Mutex::new(Some(Box::pin(body))),
        });
        self.alive.fetch_add(1, Ordering::SeqCst);
        fiber.wake();
    }

    fn tell(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        deferred_wake::wake_all(&self.word);
    }

    /// Polls waiters until all have ended.
    fn run(&self) {
        loop {
            let seen = self.word.load(Ordering::SeqCst);
            if self.alive.load(Ordering::SeqCst) == 0 {
                return;
            }
            let next = lock(&self.ready).pop_front();
            match next {
                Some(fiber) => fiber.go_on(),
                None => {
                    futex::wait(&self.word, seen, None);
                }
            }
        }
    }
}

/// A waiter that an executor polls.
struct Fiber {
    state: WaiterState,
    executor: Arc<Executor>,
    /// The waiter is among those that are ready.
    is_ready: AtomicBool,
    /// What it does, until that has ended.
    body: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

impl std::fmt::Debug for Fiber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fiber({:?})", self.state)
    }
}

impl Wake for Fiber {
    fn wake(self: Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::SeqCst) {
            lock(&self.executor.ready).push_back(self.clone());
            self.executor.tell();
        }
    }
}

/// The waiter of a [`Fiber`]: it never blocks, and is woken as any future is.
#[derive(Debug)]
struct FiberWaiter(Arc<Fiber>);

impl Waiter for FiberWaiter {
    fn state(&self) -> &WaiterState {
        &self.0.state
    }

    fn park(&self, _: &AtomicU32, _: u32) {
        unreachable!("it returns to its executor instead");
    }

    fn unpark(&self, _: &AtomicU32) {
        self.0.clone().wake();
    }

    fn yield_now(&self) -> bool {
        unreachable!("it returns to its executor instead");
    }
}

impl Fiber {
    /// Polls the waiter on the calling thread.
    fn go_on(self: Arc<Self>) {
        let thread = waiter::current_id();
        let mut body = lock(&self.body);
        self.is_ready.store(false, Ordering::SeqCst);
        let Some(future) = body.as_mut() else {
            return;
        };
        let entered = waiter::enter(Arc::new(FiberWaiter(self.clone())));
        let waker = self.clone().into();
        let over = future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_ready();
        drop(entered);
        assert_eq!(waiter::current_id(), thread);
        if over {
            *body = None;
            self.executor.alive.fetch_sub(1, Ordering::SeqCst);
            self.executor.tell();
        }
    }
}

const MESSAGES: u32 = 2;

/// Runs threads that receive for themselves, and waiters on threads of an executor;
/// others send to all of them.
fn world(threads: usize, fibers: usize, executor_threads: usize) {
    let rank = Rank::new(threads + fibers);
    let executor = Arc::new(Executor::default());
    let mut running: Vec<JoinHandle<()>> = (0..threads)
        .map(|receiver| {
            let rank = rank.clone();
            spawn(move || rank.receive_as_thread(receiver, MESSAGES))
        })
        .collect();
    for receiver in threads..threads + fibers {
        executor.start(receive(rank.clone(), receiver, MESSAGES));
    }
    running.extend((0..executor_threads).map(|_| {
        let executor = executor.clone();
        spawn(move || executor.run())
    }));
    let sent = rank.clone();
    running.push(spawn(move || {
        for _ in 0..MESSAGES {
            for receiver in (0..threads + fibers).rev() {
                lock(&sent.inbox).push_back(receiver);
            }
        }
    }));
    running
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    let total = MESSAGES * (threads + fibers) as u32;
    assert!(rank.waiters.notified_count() <= total, "woken in vain");
    assert!(!rank.waiters.has_leader());
}

#[test]
fn waiters_of_one_thread_wait_on_the_slots_of_a_rank() {
    schedules(false, || world(0, 4, 1));
}

#[test]
fn waiters_go_on_in_another_thread_than_they_were_suspended_in() {
    schedules(false, || world(0, 3, 2));
}

#[test]
fn waiters_and_threads_hand_leadership_to_each_other() {
    schedules(false, || world(2, 2, 1));
}
