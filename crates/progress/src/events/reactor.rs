//! The thread of the ordinary class: it waits for events, runs what is wanted at once, and looks after tasks for which nobody finds the time.
//!
//! One per [`Tasks`](crate::tasks::Tasks), started when first needed. It sleeps in a [`Kernel`], and does what others wish for ([`Wishes`](crate::tasks::Wishes)). What it does itself is short; events become tasks, which run where their place says. Bounded by the descriptors of the process.

use crate::events::kernel::{FIRST_SOURCE, Kernel, News};
use crate::facade::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::limits::{STOP_LIMIT, TICK, TICK_LONGEST};
use crate::own_thread::OwnThread;
use crate::sys;
use crate::tasks::{AnyTask, At, Error, Keypoint, Scheduler};
use rustix::event::epoll::EventFlags;
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Reactor {
    kernel: Kernel,
    scheduler: Weak<Scheduler>,
    stop: AtomicBool,
    sources: Mutex<Sources>,
    thread: OwnThread,
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
        let reactor = Arc::new(Self {
            kernel: Kernel::new()?,
            scheduler: Arc::downgrade(scheduler),
            stop: AtomicBool::new(false),
            sources: Mutex::new(Sources {
                next: FIRST_SOURCE,
                ..Sources::default()
            }),
            thread: OwnThread::default(),
        });
        let started = reactor.thread.start(&reactor);
        started.map_err(|error| Error::System("cannot start a thread", error.raw_os_error().unwrap_or(0)))?;
        Ok(reactor)
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
        self.thread.end(Instant::now() + STOP_LIMIT);
        let sources = std::mem::take(&mut *lock(&self.sources));
        // Outside the lock: tasks that go may hold watches of their own.
        drop(sources);
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
        if self.stop.load(Ordering::Acquire) {
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

    fn run(&self, scheduler: &Arc<Scheduler>) {
        let mut served = Served {
            runs: vec![0; scheduler.tree.areas().len()],
            period: TICK,
        };
        let mut news = Vec::new();
        while !self.stop.load(Ordering::Acquire) {
            let wishes = &scheduler.wishes;
            if wishes.take_timer() {
                self.tick(TICK);
            }
            wishes.take_starts(|home| scheduler.pool.start(scheduler, home));
            wishes.take_urgent(|area| self.serve(scheduler, area));
            self.kernel.wait(&mut news);
            for news in news.drain(..) {
                match news {
                    News::Bell => {}
                    News::Timer => self.look_after(scheduler, &mut served),
                    News::Alarm => self.fire_alarms(scheduler),
                    News::Source(id) => self.fire(scheduler, id),
                }
            }
        }
    }

    fn fire(&self, scheduler: &Arc<Scheduler>, id: u64) {
        let task = lock(&self.sources)
            .by_id
            .get(&id)
            .map(|source| source.task.clone());
        if let Some(task) = task {
            super::deliver(scheduler, &task);
        }
    }

    fn fire_alarms(&self, scheduler: &Arc<Scheduler>) {
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
        due.iter().for_each(|task| super::deliver(scheduler, task));
    }

    fn set_alarm(&self, sources: &Sources) {
        if let Some((&(at, _), ())) = sources.alarms.first_key_value() {
            let after = at.saturating_duration_since(Instant::now());
            self.kernel.set_alarm(after);
        }
    }

    /// Runs a queue here, within its place.
    fn serve(&self, scheduler: &Arc<Scheduler>, area: usize) {
        let root = scheduler.tree.root();
        let bind = |area: usize| sys::bind(&scheduler.tree.areas()[area].cpus);
        let moved = area != root && bind(area).is_ok();
        scheduler.serve(area, &self.at(scheduler));
        if moved {
            let _ = bind(root);
        }
    }

    fn at(&self, scheduler: &Arc<Scheduler>) -> At {
        At {
            core: scheduler.core_here(),
            keypoint: Keypoint::Timer,
            polls: false,
        }
    }

    /// The timer: what has waited since the last look without that anybody ran anything of its queue is run here.
    fn look_after(&self, scheduler: &Arc<Scheduler>, served: &mut Served) {
        let (mut waiting, mut left) = (false, Vec::new());
        scheduler.racks.each_waiting(|area| {
            waiting = true;
            let runs = scheduler.racks.runs(area);
            if runs == served.runs[area] {
                left.push(area);
            }
            served.runs[area] = runs;
        });
        for area in &left {
            self.serve(scheduler, *area);
            served.runs[*area] = scheduler.racks.runs(*area);
        }
        if !waiting {
            served.period = TICK;
            scheduler.timing.store(false, Ordering::SeqCst);
            // What came before that store trusted the timer.
            scheduler.racks.each_waiting(|_| waiting = true);
            if !waiting || scheduler.timing.swap(true, Ordering::SeqCst) {
                return;
            }
        } else if left.is_empty() {
            // Others see to it.
            served.period = (served.period * 2).min(TICK_LONGEST);
        } else {
            served.period = TICK;
        }
        self.tick(served.period);
    }
}

impl sys::Work for Reactor {
    fn work(self: Arc<Self>) {
        sys::name_thread(c"garonne-events");
        if let Some(scheduler) = self.scheduler.upgrade() {
            self.run(&scheduler);
        }
        self.thread.leaves();
    }
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
