//! The event thread, of the ordinary class: it waits for events, runs urgent tasks at once, and
//! serves tasks for which nobody else finds the time.
//!
//! There is one for each [`Tasks`](crate::tasks::Tasks), started when first needed. It sleeps in an
//! [`EventPoller`] and serves requests ([`EventRequests`](crate::tasks::EventRequests)). Events
//! become tasks, which run where their place says, some of them here. While one of those takes
//! long, another thread becomes the event thread ([`event_threads`](super::event_threads)). Work
//! that the leader has begun and not finished lies in this struct, where the next leader continues.
//! Bounded by the descriptors of the process.

use crate::events::event_threads::EventThreads;
use crate::events::poller::{EventPoller, FIRST_SOURCE, PolledEvent};
use crate::facade::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::limits::{STOP_LIMIT, TICK, TICK_LONGEST};
use crate::sys;
use crate::tasks::{
    self, AnyTask, Error, Keypoint, NapBackoff, RunContext, RunTally, Scheduler, ThreadOrder,
};
use garonne_sync::leader_follower::LeaderTurn;
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Reactor {
    pub(super) kernel: EventPoller,
    pub(super) event_threads: EventThreads,
    scheduler: Weak<Scheduler>,
    stop: AtomicBool,
    sources: Mutex<EventSources>,
    /// What came and was not seen to yet. Whoever leads takes from it.
    pending: Mutex<VecDeque<PendingEvent>>,
    /// The nap, in microseconds, after which it comes back to tasks that are urgent and ask to
    /// be run again; 0: it does not. SYNC(urgent-again).
    again: AtomicU32,
}

#[derive(Debug)]
enum PendingEvent {
    Polled(PolledEvent),
    /// A task that is to hear of its event.
    Deliver(Arc<AnyTask>),
    /// Somebody has no other thread for it.
    Order(Arc<dyn ThreadOrder>),
}

#[derive(Debug, Default)]
struct EventSources {
    next: u64,
    by_id: HashMap<u64, EventSource>,
    /// When alarms are due.
    alarms: BTreeMap<(Instant, u64), ()>,
    /// When tasks that are urgent are run again.
    again: Option<Instant>,
}

#[derive(Debug)]
struct EventSource {
    task: Arc<AnyTask>,
    kind: SourceKind,
}

#[derive(Debug)]
enum SourceKind {
    /// A descriptor of ours. Whoever has it besides, for a moment, is about to have it watched
    /// again.
    Descriptor(Arc<OwnedFd>),
    /// An alarm: when it is due (`None`: not set), and how long after that again.
    Alarm(Option<Instant>, Option<Duration>),
}

impl Reactor {
    pub(crate) fn start(scheduler: &Arc<Scheduler>) -> Result<Arc<Self>, Error> {
        let (event_threads, turn) = EventThreads::new();
        let reactor = Arc::new(Self {
            kernel: EventPoller::new()?,
            event_threads,
            scheduler: Arc::downgrade(scheduler),
            stop: AtomicBool::new(false),
            sources: Mutex::new(EventSources {
                next: FIRST_SOURCE,
                ..EventSources::default()
            }),
            pending: Mutex::default(),
            again: AtomicU32::new(0),
        });
        let started = reactor.begin(turn);
        started.map_err(|error| {
            Error::System("cannot start a thread", error.raw_os_error().unwrap_or(0))
        })?;
        Ok(reactor)
    }

    pub(super) fn scheduler(&self) -> Option<Arc<Scheduler>> {
        self.scheduler.upgrade()
    }

    /// Something is wished for.
    pub(crate) fn ring(&self) {
        self.kernel.ring();
    }

    /// Has the thread do something, before all else that waits.
    pub(crate) fn submit_order(&self, order: Arc<dyn ThreadOrder>) {
        lock(&self.pending).push_front(PendingEvent::Order(order));
        self.ring();
    }

    /// Has the timer look after what waits, after this time.
    pub(crate) fn tick(&self, after: Duration) {
        self.kernel.set_timer(after);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
        self.event_threads.end(Instant::now() + STOP_LIMIT);
        let sources = std::mem::take(&mut *lock(&self.sources));
        let pending = std::mem::take(&mut *lock(&self.pending));
        // Outside the locks: tasks that go may hold watches of their own.
        drop((sources, pending));
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Has `task` poked when the descriptor is as asked. Watched once; see `rearm`. Returns the
    /// source's number.
    pub(crate) fn watch(
        &self,
        fd: Arc<OwnedFd>,
        flags: EventFlags,
        task: Arc<AnyTask>,
        number: &AtomicU64,
    ) -> Result<u64, Error> {
        let mut sources = lock(&self.sources);
        self.open()?;
        let id = sources.number();
        // Before the first event.
        number.store(id, Ordering::Release);
        self.kernel
            .watch(fd.as_fd(), id, flags | EventFlags::ONESHOT)?;
        let kind = SourceKind::Descriptor(fd);
        sources.by_id.insert(id, EventSource { task, kind });
        Ok(id)
    }

    /// Has `task` poked after `first`, and then every `period`.
    pub(crate) fn alarm(
        &self,
        (first, period): (Duration, Option<Duration>),
        task: Arc<AnyTask>,
        number: &AtomicU64,
    ) -> Result<u64, Error> {
        let due = Instant::now().checked_add(first);
        let due = due.ok_or(Error::Misuse("the time of an alarm is too far off"))?;
        let mut sources = lock(&self.sources);
        self.open()?;
        let id = sources.number();
        number.store(id, Ordering::Release);
        let kind = SourceKind::Alarm(Some(due), period);
        sources.by_id.insert(id, EventSource { task, kind });
        sources.alarms.insert((due, id), ());
        self.set_alarm(&sources);
        Ok(id)
    }

    fn open(&self) -> Result<(), Error> {
        if self.stops() {
            return Err(Error::Misuse("these tasks were ended"));
        }
        Ok(())
    }

    /// The action of a descriptor is over: it is watched again, unless it was forgotten meanwhile,
    /// when the kernel knows it no longer. Takes no lock.
    pub(crate) fn rearm(&self, fd: &OwnedFd, flags: EventFlags, id: u64) {
        self.kernel
            .rearm(fd.as_fd(), id, flags | EventFlags::ONESHOT);
    }

    /// The source is watched no longer.
    pub(crate) fn forget(&self, id: u64) {
        let source = {
            let mut sources = lock(&self.sources);
            let source = sources.by_id.remove(&id);
            match &source {
                Some(EventSource {
                    kind: SourceKind::Descriptor(fd),
                    ..
                }) => self.kernel.forget(fd.as_fd()),
                Some(EventSource {
                    kind: SourceKind::Alarm(Some(due), _),
                    ..
                }) => {
                    sources.alarms.remove(&(*due, id));
                }
                _ => {}
            }
            source
        };
        drop(source);
    }

    /// Leads, from this turn on. Returns the last when all end; `None`: another leads, since a run
    /// took long.
    pub(super) fn lead(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        mut turn: LeaderTurn,
    ) -> Option<LeaderTurn> {
        let mut served = ServiceState {
            runs: vec![0; scheduler.tree.areas().len()],
            period: TICK,
            naps: vec![NapBackoff::default(); scheduler.tree.areas().len()],
        };
        let mut news = Vec::new();
        while !self.stops() {
            let wishes = &scheduler.event_requests;
            if wishes.take_timer() {
                self.tick(TICK);
            }
            wishes.take_starts(|home| scheduler.pool.start(scheduler, home));
            let leads = wishes.take_urgent(|area| {
                let next = self.serve_urgent(scheduler, area, (turn, &mut served));
                turn = next.unwrap_or(turn);
                next.is_some()
            });
            if !leads {
                return None;
            }
            let piece = lock(&self.pending).pop_front();
            if let Some(piece) = piece {
                turn = self.handle(scheduler, piece, (turn, &mut served))?;
                continue;
            }
            self.kernel.wait(&mut news);
            lock(&self.pending).extend(news.drain(..).map(PendingEvent::Polled));
        }
        Some(turn)
    }

    /// This and whatever else runs tasks answers `None` if another leads afterwards.
    fn handle(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        piece: PendingEvent,
        (turn, served): (LeaderTurn, &mut ServiceState),
    ) -> Option<LeaderTurn> {
        match piece {
            PendingEvent::Polled(PolledEvent::Bell) => {}
            PendingEvent::Polled(PolledEvent::Timer) => {
                return self.run_overdue(scheduler, turn, served);
            }
            PendingEvent::Polled(PolledEvent::Alarm) => self.fire_alarms(scheduler),
            PendingEvent::Polled(PolledEvent::Source(id)) => {
                let task = lock(&self.sources)
                    .by_id
                    .get(&id)
                    .map(|source| source.task.clone());
                if let Some(task) = task {
                    return self.deliver(scheduler, task, turn);
                }
            }
            PendingEvent::Order(order) => order.carry_out(),
            PendingEvent::Deliver(task) => return self.deliver(scheduler, task, turn),
        }
        Some(turn)
    }

    /// Pokes a task. An event is never lost for want of room: then this thread runs the queue
    /// itself, and comes back to it, or whoever leads then does.
    fn deliver(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        task: Arc<AnyTask>,
        turn: LeaderTurn,
    ) -> Option<LeaderTurn> {
        if let Err(Error::Resource(_)) = tasks::poke(scheduler, &task) {
            lock(&self.pending).push_front(PendingEvent::Deliver(task));
            return self.run_guarded(turn, || {
                scheduler.pass(Keypoint::Forced);
            });
        }
        Some(turn)
    }

    fn fire_alarms(&self, scheduler: &Scheduler) {
        let mut due = Vec::new();
        {
            let mut sources = lock(&self.sources);
            let now = Instant::now();
            if sources.again.take_if(|at| *at <= now).is_some() {
                // Before the look: who finds it set leaves what it offered before to this.
                // SYNC(urgent-again).
                self.again.swap(0, Ordering::SeqCst);
                if let Some(racks) = scheduler.urgent.get() {
                    racks.for_each_nonempty(|area| scheduler.event_requests.run(area));
                }
            }
            while let Some((&(at, id), ())) = sources.alarms.first_key_value()
                && at <= now
            {
                sources.alarms.remove(&(at, id));
                let Some(source) = sources.by_id.get_mut(&id) else {
                    continue;
                };
                due.push(source.task.clone());
                if let SourceKind::Alarm(next, period) = &mut source.kind {
                    // Beats that were missed are left out.
                    *next = period.and_then(|period| Some(at.checked_add(period)?.max(now)));
                    if let Some(next) = *next {
                        sources.alarms.insert((next, id), ());
                    }
                }
            }
            self.set_alarm(&sources);
        }
        lock(&self.pending).extend(due.into_iter().map(PendingEvent::Deliver));
    }

    fn set_alarm(&self, sources: &EventSources) {
        let first = sources.alarms.first_key_value().map(|((at, _), ())| *at);
        if let Some(at) = first.into_iter().chain(sources.again).min() {
            let after = at.saturating_duration_since(Instant::now());
            self.kernel.set_alarm(after);
        }
    }

    /// Returns how soon it comes back to tasks that are urgent and ask to be run again, without
    /// being told: to all that were offered before this call.
    pub(crate) fn next_rerun(&self) -> Option<Duration> {
        // It writes, so that it is in one order with the offer and the other side's swap and look.
        // SYNC(urgent-again).
        match self.again.fetch_or(0, Ordering::SeqCst) {
            0 => None,
            us => Some(Duration::from_micros(us.into())),
        }
    }

    /// Comes back to them after this nap at the latest.
    fn schedule_rerun(&self, nap: Duration) {
        let mut sources = lock(&self.sources);
        // Random schedules have no time.
        let at = Instant::now() + if cfg!(shuttle) { Duration::ZERO } else { nap };
        if sources.again.is_none_or(|other| at < other) {
            sources.again = Some(at);
            let us = u32::try_from(nap.as_micros()).unwrap_or(u32::MAX).max(1);
            self.again.store(us, Ordering::SeqCst);
            self.set_alarm(&sources);
        }
    }

    /// Runs a queue here, within its place.
    fn serve(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        area: usize,
        (turn, run): (LeaderTurn, impl FnOnce(&RunContext)),
    ) -> Option<LeaderTurn> {
        self.run_guarded(turn, || {
            let root = scheduler.tree.root();
            let bind = |area: usize| sys::bind(&scheduler.tree.areas()[area].cpus);
            let moved = area != root && bind(area).is_ok();
            let at = RunContext {
                core: scheduler.current_core(),
                keypoint: Keypoint::Timer,
                polls: false,
            };
            run(&at);
            if moved {
                let _ = bind(root);
            }
        })
    }

    fn serve_urgent(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        area: usize,
        (turn, served): (LeaderTurn, &mut ServiceState),
    ) -> Option<LeaderTurn> {
        // Somebody who polls may have been quicker.
        let Some(racks) = scheduler.urgent.get().filter(|racks| racks.any_ready(area)) else {
            return Some(turn);
        };
        let mut tally = RunTally::default();
        self.event_threads.note_urgent(Some(area));
        let run = |at: &RunContext| tally = scheduler.serve_urgent(racks, area, at);
        let Some(turn) = self.serve(scheduler, area, (turn, run)) else {
            // Another leads, and does not know.
            if tally.rerun > 0 {
                scheduler.hand_over_urgent(&[area as u32], tally.patience_us);
            }
            return None;
        };
        self.event_threads.note_urgent(None);
        let naps = &mut served.naps[area];
        if tally.settled > 0 {
            naps.over();
        }
        if let Some(nap) = naps.next(tally) {
            self.schedule_rerun(nap);
        }
        Some(turn)
    }

    /// The timer: what has waited since the last look without that anybody ran anything of its
    /// queue is run here.
    fn run_overdue(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        mut turn: LeaderTurn,
        served: &mut ServiceState,
    ) -> Option<LeaderTurn> {
        let (mut waiting, mut left) = (false, Vec::new());
        scheduler.queues.for_each_nonempty(|area| {
            waiting = true;
            let runs = scheduler.queues.runs(area);
            if runs == served.runs[area] {
                left.push(area);
            }
            served.runs[area] = runs;
        });
        if !self.event_threads.has_time() {
            left.clear();
        }
        for area in &left {
            let run = |at: &RunContext| {
                scheduler.serve(*area, at);
            };
            turn = self.serve(scheduler, *area, (turn, run))?;
            served.runs[*area] = scheduler.queues.runs(*area);
        }
        if !waiting {
            served.period = TICK;
            scheduler.timer_runs.store(false, Ordering::SeqCst);
            // What came before that store trusted the timer.
            scheduler.queues.for_each_nonempty(|_| waiting = true);
            if !waiting || scheduler.timer_runs.swap(true, Ordering::SeqCst) {
                return Some(turn);
            }
        } else if left.is_empty() {
            // Others see to it.
            served.period = (served.period * 2).min(TICK_LONGEST);
        } else {
            served.period = TICK;
        }
        self.tick(served.period);
        Some(turn)
    }
}

/// State of the leading thread.
struct ServiceState {
    /// Runs of each queue at the last look.
    runs: Vec<u32>,
    period: Duration,
    /// By queue of what is urgent.
    naps: Vec<NapBackoff>,
}

impl EventSources {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::events::{Interest, WatchAction};
    use crate::tasks::{Place, TaskOptions, TaskSettings, Tasks};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    #[test]
    fn an_action_that_goes_on_watching_takes_no_lock_that_the_thread_for_events_needs() {
        let tasks = Tasks::new(TaskSettings::here()).unwrap();
        // It is left to this thread's keypoint.
        let poller = tasks.poller(Keypoint::Wait);
        let (there, here) = UnixStream::pair().unwrap();
        let how = TaskOptions::at(Place::Machine);
        let watch = tasks.on_descriptor((&here, Interest::Readable), &how, |_: &RunContext| {
            WatchAction::Keep
        });
        let scheduler = tasks.scheduler();
        std::io::Write::write_all(&mut &there, b"x").unwrap();
        let comes = || {
            while !scheduler.queues.any_ready(scheduler.tree.root()) {
                std::thread::yield_now();
            }
        };
        comes();
        let held = lock(&scheduler.reactor().unwrap().sources);
        let (tell, told) = channel();
        let its = tasks.clone();
        let runner = std::thread::spawn(move || tell.send(its.schedule(Keypoint::Forced).settled));
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(1));
        drop(held);
        runner.join().unwrap().unwrap();
        // What is left unread calls it again.
        comes();
        drop((watch, poller));
    }
}
