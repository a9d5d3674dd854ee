//! The thread of the ordinary class: it waits for events, runs what is wanted at once, and looks after tasks for which nobody finds the time.
//!
//! One for each [`Tasks`](crate::tasks::Tasks), started when first needed. It sleeps in a [`Kernel`], and does what others wish for ([`Wishes`](crate::tasks::Wishes)). Events become tasks, which run where their place says, some of them here. While one of those takes long another thread
//! is this one ([`crew`](super::crew)): what the leader has begun and not done yet lies here, where whoever leads goes on with it. Bounded by the descriptors of the process.

use crate::events::crew::Crew;
use crate::events::kernel::{FIRST_SOURCE, Kernel, News};
use crate::facade::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::limits::{STOP_LIMIT, TICK, TICK_LONGEST};
use crate::sys;
use crate::tasks::{self, AnyTask, At, Error, Keypoint, Scheduler};
use garonne_sync::lead::Turn;
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Reactor {
    pub(super) kernel: Kernel,
    pub(super) crew: Crew,
    scheduler: Weak<Scheduler>,
    stop: AtomicBool,
    sources: Mutex<Sources>,
    /// What came and was not seen to yet. Whoever leads takes from it.
    pending: Mutex<VecDeque<Piece>>,
}

#[derive(Debug)]
enum Piece {
    News(News),
    /// A task that is to hear of its event.
    Told(Arc<AnyTask>),
}

#[derive(Debug, Default)]
struct Sources {
    next: u64,
    by_id: HashMap<u64, Source>,
    /// When alarms are due.
    alarms: BTreeMap<(Instant, u64), ()>,
}

#[derive(Debug)]
struct Source {
    task: Arc<AnyTask>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// A descriptor of ours, and what is asked of it.
    Descriptor(OwnedFd, EventFlags),
    /// An alarm: when it is due (`None`: not set), and how long after that again.
    Alarm(Option<Instant>, Option<Duration>),
}

impl Reactor {
    pub(crate) fn start(scheduler: &Arc<Scheduler>) -> Result<Arc<Self>, Error> {
        let (crew, turn) = Crew::new();
        let reactor = Arc::new(Self {
            kernel: Kernel::new()?,
            crew,
            scheduler: Arc::downgrade(scheduler),
            stop: AtomicBool::new(false),
            sources: Mutex::new(Sources {
                next: FIRST_SOURCE,
                ..Sources::default()
            }),
            pending: Mutex::default(),
        });
        let started = reactor.begin(turn);
        started.map_err(|error| Error::System("cannot start a thread", error.raw_os_error().unwrap_or(0)))?;
        Ok(reactor)
    }

    pub(super) fn scheduler(&self) -> Option<Arc<Scheduler>> {
        self.scheduler.upgrade()
    }

    /// Something is wished for.
    pub(crate) fn ring(&self) {
        self.kernel.ring();
    }

    /// Has the timer look after what waits, after this time.
    pub(crate) fn tick(&self, after: Duration) {
        self.kernel.set_timer(after);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
        self.crew.end(Instant::now() + STOP_LIMIT);
        let sources = std::mem::take(&mut *lock(&self.sources));
        let pending = std::mem::take(&mut *lock(&self.pending));
        // Outside the locks: tasks that go may hold watches of their own.
        drop((sources, pending));
    }

    pub(super) fn stops(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Has `task` poked when the descriptor is as asked. Watched once; see `rearm`. Returns the source's number.
    pub(crate) fn watch(
        &self,
        fd: OwnedFd,
        flags: EventFlags,
        task: Arc<AnyTask>,
        number: &AtomicU64,
    ) -> Result<u64, Error> {
        let mut sources = lock(&self.sources);
        self.open()?;
        let id = sources.number();
        // Before the first event.
        number.store(id, Ordering::Release);
        let flags = flags | EventFlags::ONESHOT;
        self.kernel.watch(fd.as_fd(), id, flags)?;
        let kind = Kind::Descriptor(fd, flags);
        sources.by_id.insert(id, Source { task, kind });
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
        let kind = Kind::Alarm(Some(due), period);
        sources.by_id.insert(id, Source { task, kind });
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

    /// The action of a descriptor is over: it is watched again.
    pub(crate) fn rearm(&self, id: u64) {
        let sources = lock(&self.sources);
        if let Some(Source {
            kind: Kind::Descriptor(fd, flags),
            ..
        }) = sources.by_id.get(&id)
        {
            self.kernel.rearm(fd.as_fd(), id, *flags);
        }
    }

    /// The source is watched no longer.
    pub(crate) fn forget(&self, id: u64) {
        let source = {
            let mut sources = lock(&self.sources);
            let source = sources.by_id.remove(&id);
            match &source {
                Some(Source {
                    kind: Kind::Descriptor(fd, _),
                    ..
                }) => self.kernel.forget(fd.as_fd()),
                Some(Source {
                    kind: Kind::Alarm(Some(due), _),
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

    /// Leads, from this turn on. Returns the last when all end; `None`: another leads, since a run took long.
    pub(super) fn lead(self: &Arc<Self>, scheduler: &Arc<Scheduler>, mut turn: Turn) -> Option<Turn> {
        let mut served = Served {
            runs: vec![0; scheduler.tree.areas().len()],
            period: TICK,
        };
        let mut news = Vec::new();
        while !self.stops() {
            let wishes = &scheduler.wishes;
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
                turn = self.see_to(scheduler, piece, (turn, &mut served))?;
                continue;
            }
            self.kernel.wait(&mut news);
            lock(&self.pending).extend(news.drain(..).map(Piece::News));
        }
        Some(turn)
    }

    /// This and whatever else runs tasks answers `None` if another leads afterwards.
    fn see_to(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        piece: Piece,
        (turn, served): (Turn, &mut Served),
    ) -> Option<Turn> {
        match piece {
            Piece::News(News::Bell) => {}
            Piece::News(News::Timer) => return self.look_after(scheduler, turn, served),
            Piece::News(News::Alarm) => self.fire_alarms(),
            Piece::News(News::Source(id)) => {
                let task = lock(&self.sources)
                    .by_id
                    .get(&id)
                    .map(|source| source.task.clone());
                if let Some(task) = task {
                    return self.deliver(scheduler, task, turn);
                }
            }
            Piece::Told(task) => return self.deliver(scheduler, task, turn),
        }
        Some(turn)
    }

    /// Pokes a task. An event is never lost for want of room: then this thread runs the queue itself, and comes back to it, or whoever leads then does.
    fn deliver(self: &Arc<Self>, scheduler: &Arc<Scheduler>, task: Arc<AnyTask>, turn: Turn) -> Option<Turn> {
        if let Err(Error::Resource(_)) = tasks::poke(scheduler, &task) {
            lock(&self.pending).push_front(Piece::Told(task));
            return self.within(turn, || {
                scheduler.pass(Keypoint::Forced);
            });
        }
        Some(turn)
    }

    fn fire_alarms(&self) {
        let mut due = Vec::new();
        {
            let mut sources = lock(&self.sources);
            let now = Instant::now();
            while let Some((&(at, id), ())) = sources.alarms.first_key_value()
                && at <= now
            {
                sources.alarms.remove(&(at, id));
                let Some(source) = sources.by_id.get_mut(&id) else {
                    continue;
                };
                due.push(source.task.clone());
                if let Kind::Alarm(next, period) = &mut source.kind {
                    // Beats that were missed are left out.
                    *next = period.and_then(|period| Some(at.checked_add(period)?.max(now)));
                    if let Some(next) = *next {
                        sources.alarms.insert((next, id), ());
                    }
                }
            }
            self.set_alarm(&sources);
        }
        lock(&self.pending).extend(due.into_iter().map(Piece::Told));
    }

    fn set_alarm(&self, sources: &Sources) {
        if let Some((&(at, _), ())) = sources.alarms.first_key_value() {
            let after = at.saturating_duration_since(Instant::now());
            self.kernel.set_alarm(after);
        }
    }

    /// Runs a queue here, within its place: all of it, or what is wanted now.
    fn serve(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        (area, wanted): (usize, Wanted),
        turn: Turn,
    ) -> Option<Turn> {
        self.within(turn, || {
            let root = scheduler.tree.root();
            let bind = |area: usize| sys::bind(&scheduler.tree.areas()[area].cpus);
            let moved = area != root && bind(area).is_ok();
            let at = At {
                core: scheduler.core_here(),
                keypoint: Keypoint::Timer,
                polls: false,
                only_urgent: wanted == Wanted::Urgent,
            };
            scheduler.serve(area, &at);
            if moved {
                let _ = bind(root);
            }
        })
    }

    fn serve_urgent(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        area: usize,
        (turn, served): (Turn, &mut Served),
    ) -> Option<Turn> {
        let racks = &scheduler.racks;
        // Somebody who polls may have been quicker.
        if !racks.any_ready(area) {
            return Some(turn);
        }
        let before = racks.runs(area);
        self.crew.note_urgent(Some(area));
        let turn = self.serve(scheduler, (area, Wanted::Urgent), turn)?;
        self.crew.note_urgent(None);
        // What could wait was looked at and left: that is nothing that anybody ran.
        let looks = racks.runs(area).wrapping_sub(before);
        served.runs[area] = served.runs[area].wrapping_add(looks);
        Some(turn)
    }

    /// The timer: what has waited since the last look without that anybody ran anything of its queue is run here.
    fn look_after(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        mut turn: Turn,
        served: &mut Served,
    ) -> Option<Turn> {
        let (mut waiting, mut left) = (false, Vec::new());
        scheduler.racks.each_waiting(|area| {
            waiting = true;
            let runs = scheduler.racks.runs(area);
            if runs == served.runs[area] {
                left.push(area);
            }
            served.runs[area] = runs;
        });
        if !self.crew.has_time() {
            left.clear();
        }
        for area in &left {
            turn = self.serve(scheduler, (*area, Wanted::All), turn)?;
            served.runs[*area] = scheduler.racks.runs(*area);
        }
        if !waiting {
            served.period = TICK;
            scheduler.timing.store(false, Ordering::SeqCst);
            // What came before that store trusted the timer.
            scheduler.racks.each_waiting(|_| waiting = true);
            if !waiting || scheduler.timing.swap(true, Ordering::SeqCst) {
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

/// Which tasks of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Urgent,
}

/// What the timer remembers.
struct Served {
    /// Runs of each queue at the last look.
    runs: Vec<u32>,
    period: Duration,
}

impl Sources {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
