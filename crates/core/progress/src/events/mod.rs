//! Events that become tasks (as XPaulette does in PIOMan's family): descriptors, alarms, signals,
//! words of memory, the ends of blocking calls and of tasks.
//!
//! An action has a place and an urgency, as a task has. `Urgency::Now` promises that it runs as
//! soon as the kernel gives a woken ordinary thread a core, also while all cores compute.
//! `Urgency::Idle` promises that an idle core runs it; if there is none, the timer's thread does,
//! which asks for a core after one or two ticks ([`crate::limits::TICK`]). A source is watched
//! until its action returns [`WatchAction::Stop`] or its [`EventWatch`] is dropped; after that the
//! action does not run. An event that fires while its action runs is not lost: the action runs once
//! more.

pub(crate) mod blocking;
mod event_threads;
#[cfg_attr(shuttle, path = "poller_shuttle.rs")]
pub(crate) mod poller;
pub(crate) mod reactor;
#[cfg(not(shuttle))]
mod signals;
pub(crate) mod word_watch;

pub use blocking::BlockingCall;
pub use word_watch::FutexWord;

use crate::events::reactor::Reactor;
use crate::events::word_watch::WordWatcher;
use crate::facade::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::sys;
use crate::tasks::{
    AnyTask, Error, Keypoint, RunContext, RunOutcome, Scheduler, TaskOptions, Tasks,
};
use rustix::event::epoll::EventFlags;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Wish of an action at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchAction {
    /// To be called again at the next event.
    Keep,
    /// No more.
    Stop,
}

/// Events of a descriptor that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// The descriptor can be read from, or its other side is gone.
    Readable,
    /// The descriptor can be written to.
    Writable,
    /// Either.
    Both,
}

impl Interest {
    fn flags(self) -> EventFlags {
        match self {
            Self::Readable => EventFlags::IN | EventFlags::RDHUP,
            Self::Writable => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::RDHUP | EventFlags::OUT,
        }
    }
}

/// Pokes a task of another thread's. An event is never lost for want of room: then this thread runs
/// the queue itself.
fn deliver(scheduler: &Arc<Scheduler>, task: &Arc<AnyTask>) {
    while let Err(Error::Resource(_)) = crate::tasks::poke(scheduler, task) {
        scheduler.pass(Keypoint::Forced);
    }
}

/// A source that is watched. Dropping it ends that: afterwards its action does not run, and the
/// drop waits for a run that goes on, unless it is made by it. In a forked child the drop does
/// nothing: it is the parent's.
#[derive(Debug)]
pub struct EventWatch {
    source: WatchSource,
    task: Arc<AnyTask>,
    /// Set first: news on their way find an action that does nothing.
    gone: Arc<AtomicBool>,
    /// Forks before this process.
    forks: u32,
}

/// Watcher and its number.
#[derive(Clone, Debug)]
enum WatchSource {
    Reactor(Weak<Reactor>, u64),
    Words(Weak<WordWatcher>, u64),
    /// A one-off that nobody watches.
    None,
}

impl WatchSource {
    fn forget(&self) {
        match self {
            Self::Reactor(reactor, id) => {
                if let Some(reactor) = reactor.upgrade() {
                    reactor.forget(*id);
                }
            }
            Self::Words(words, id) => {
                if let Some(words) = words.upgrade() {
                    words.forget(*id);
                }
            }
            Self::None => {}
        }
    }
}

impl Drop for EventWatch {
    fn drop(&mut self) {
        if sys::forks_now() != self.forks {
            // What the parent's threads had in their hands at the fork stays so: nobody waits for
            // that, and the kernel watches for the parent.
            std::mem::forget(self.task.clone());
            return;
        }
        self.gone.store(true, Ordering::Release);
        self.source.forget();
        self.task.withdraw();
    }
}

/// A source's number, known to its action from the moment on that it is watched. Zero before: no
/// source has that.
type SourceNumber = Arc<AtomicU64>;

impl Tasks {
    fn action(
        &self,
        how: &TaskOptions,
        run: impl Fn(&RunContext) + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        let gone = Arc::new(AtomicBool::new(false));
        let its_gone = gone.clone();
        let work: Box<dyn Fn(&RunContext) -> RunOutcome + Send + Sync> = Box::new(move |at| {
            if !its_gone.load(Ordering::Acquire) {
                run(at);
            }
            RunOutcome::Done
        });
        Ok(EventWatch {
            source: WatchSource::None,
            task: Arc::new(self.task(how, work)?),
            gone,
            forks: sys::forks(),
        })
    }

    fn events_thread(&self) -> Result<Arc<Reactor>, Error> {
        self.scheduler().alive()?;
        let refused = Error::Resource("the system gives no thread or descriptor for events");
        self.scheduler().reactor().cloned().ok_or(refused)
    }

    /// Calls `action` whenever a descriptor is as asked. A duplicate of it is watched, so it may be
    /// closed meanwhile, but stays open in the kernel until the watch ends. What an action leaves
    /// unread calls it again at once: one that keeps watching reads until there is no more, or it
    /// keeps a core busy.
    pub fn on_descriptor(
        &self,
        (fd, interest): (impl AsFd, Interest),
        how: &TaskOptions,
        action: impl Fn(&RunContext) -> WatchAction + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        let copy = fd.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|error| {
            Error::System(
                "cannot duplicate the descriptor",
                error.raw_os_error().unwrap_or(0),
            )
        })?;
        self.on_owned((copy, interest.flags()), how, |_| {}, action)
    }

    /// `begin` is told of the task before the first event.
    fn on_owned(
        &self,
        (fd, flags): (OwnedFd, EventFlags),
        how: &TaskOptions,
        begin: impl FnOnce(&Arc<AnyTask>),
        action: impl Fn(&RunContext) -> WatchAction + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        let reactor = self.events_thread()?;
        let (number, its_reactor) = (SourceNumber::default(), Arc::downgrade(&reactor));
        let (its_number, fd) = (number.clone(), Arc::new(fd));
        let its_fd = Arc::downgrade(&fd);
        let mut watch = self.action(how, move |at| {
            let next = action(at);
            if let Some(reactor) = its_reactor.upgrade() {
                let id = its_number.load(Ordering::Acquire);
                match (next, its_fd.upgrade()) {
                    // No lock: this may be a worker of the idle class, which the kernel puts aside
                    // with what it holds.
                    (WatchAction::Keep, Some(fd)) => reactor.rearm(&fd, flags, id),
                    (WatchAction::Keep, None) => {}
                    (WatchAction::Stop, _) => reactor.forget(id),
                }
            }
        })?;
        begin(&watch.task);
        let id = reactor.watch(fd, flags, watch.task.clone(), &number)?;
        watch.source = WatchSource::Reactor(Arc::downgrade(&reactor), id);
        Ok(watch)
    }

    /// Calls `action` after `first`, and then every `period` if there is one. Beats that come while
    /// the action still runs are one.
    pub fn on_alarm(
        &self,
        (first, period): (Duration, Option<Duration>),
        how: &TaskOptions,
        action: impl Fn(&RunContext) -> WatchAction + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        if period.is_some_and(|period| period.is_zero()) {
            return Err(Error::Misuse("the period of an alarm is zero"));
        }
        let reactor = self.events_thread()?;
        let (number, its_reactor) = (SourceNumber::default(), Arc::downgrade(&reactor));
        let its_number = number.clone();
        let mut watch = self.action(how, move |at| {
            if action(at) == WatchAction::Stop
                && let Some(reactor) = its_reactor.upgrade()
            {
                reactor.forget(its_number.load(Ordering::Acquire));
            }
        })?;
        let id = reactor.alarm((first, period), watch.task.clone(), &number)?;
        watch.source = WatchSource::Reactor(Arc::downgrade(&reactor), id);
        Ok(watch)
    }

    /// Calls `action` with the number of each of these signals that comes. All watches of a signal
    /// in this process hear of it, and one may end without the others. No handler is installed: the
    /// signals are blocked in the calling thread and those that it starts from now on; a thread
    /// that exists already and does not block them takes them as before. They stay blocked after
    /// the last watch, since other threads have them blocked by then, too: what comes stays pending
    /// in the kernel, for the next watch.
    #[cfg(not(shuttle))]
    pub fn on_signals(
        &self,
        signals: &[i32],
        how: &TaskOptions,
        action: impl Fn(i32, &RunContext) -> WatchAction + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        let failed = |error: std::io::Error| {
            Error::System(
                "cannot watch these signals",
                error.raw_os_error().unwrap_or(0),
            )
        };
        if !signals.iter().all(|signal| sys::is_told_of(*signal)) {
            return Err(Error::Misuse(
                "a signal that is not there or cannot be watched",
            ));
        }
        let fd = sys::signal_descriptor(signals).map_err(failed)?;
        let read = fd.try_clone().map_err(failed)?;
        let ear = signals::SignalSubscription::new();
        let number = ear.number();
        let listens =
            |task: &Arc<AnyTask>| signals::subscribe(number, signals, self.scheduler(), task);
        self.on_owned((fd, EventFlags::IN), how, listens, move |at| {
            // One that stopped before its descriptor was watched is called by that once more.
            let Some(heard) = ear.hear(read.as_fd()) else {
                return WatchAction::Stop;
            };
            let mut each = heard
                .into_iter()
                .flat_map(|(signal, times)| (0..times).map(move |_| signal));
            if each.any(|signal| action(signal, at) == WatchAction::Stop) {
                ear.leave();
                return WatchAction::Stop;
            }
            WatchAction::Keep
        })
    }

    /// Calls `action` with the new value whenever a word of memory is not what it was when the
    /// action was last called, at first `expected`. Whoever changes it wakes its sleepers with a
    /// futex call; without that, changes are noticed after [`crate::limits::WORD_CHECK_EVERY`].
    /// Changes back to the old value may go unnoticed.
    pub fn on_word(
        &self,
        (word, expected): (Arc<dyn FutexWord>, u32),
        how: &TaskOptions,
        action: impl Fn(u32, &RunContext) -> WatchAction + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        let scheduler = self.scheduler();
        scheduler.alive()?;
        let (number, words) = (SourceNumber::default(), Arc::downgrade(&scheduler.words));
        let (its_number, its_words, its_word) = (number.clone(), words.clone(), word.clone());
        let seen = AtomicU32::new(expected);
        let mut watch = self.action(how, move |at| {
            let value = its_word.word().load(Ordering::Acquire);
            let changed = seen.swap(value, Ordering::Relaxed) != value;
            let next = if changed {
                action(value, at)
            } else {
                WatchAction::Keep
            };
            if let Some(words) = its_words.upgrade() {
                let id = its_number.load(Ordering::Acquire);
                match next {
                    WatchAction::Keep => words.rearm(id, value),
                    WatchAction::Stop => words.forget(id),
                }
            }
        })?;
        let id = scheduler
            .words
            .watch(scheduler, (word, expected), watch.task.clone(), &number)?;
        watch.source = WatchSource::Words(words, id);
        Ok(watch)
    }

    /// Makes a call that may block on a thread of its own.
    pub fn blocking<T: Send + 'static>(
        &self,
        call: impl FnOnce() -> T + Send + 'static,
    ) -> Result<BlockingCall<T>, Error> {
        self.scheduler().alive()?;
        BlockingCall::make(&self.scheduler().blockers, call)
    }

    /// Calls `action` once, when a blocking call is over; at once if it is.
    pub fn on_completion<T: Send + 'static>(
        &self,
        call: &BlockingCall<T>,
        how: &TaskOptions,
        action: impl Fn(&RunContext) + Send + Sync + 'static,
    ) -> Result<EventWatch, Error> {
        self.scheduler().alive()?;
        let watch = self.action(how, action)?;
        call.then(Arc::downgrade(self.scheduler()), watch.task.clone());
        Ok(watch)
    }
}
