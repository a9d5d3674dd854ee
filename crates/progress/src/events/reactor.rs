//! The thread of the ordinary class: it waits for events, runs what is wanted at once, and looks after tasks for which nobody finds the time.
//!
//! One per [`Tasks`](crate::tasks::Tasks), started when first needed. It sleeps in one epoll: a bell by which other threads speak to it, the timer, alarms, and
//! the descriptors that are watched. What it does itself is short; events become tasks, which run where their place says. Bounded by the descriptors of the process.

use crate::limits::{STACK, STOP_LIMIT, TICK, TICK_LONGEST};
use crate::sys;
use crate::tasks::{AnyTask, At, Error, Keypoint, Scheduler};
use garonne_sync::roster::Bits;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Tokens below this are the reactor's own descriptors.
const FIRST_SOURCE: u64 = 16;
const BELL: u64 = 0;
const TIMER: u64 = 1;
const ALARM: u64 = 2;

/// Events taken from the kernel at once: enough for a busy moment, the rest stays with the kernel.
const EVENTS_AT_ONCE: usize = 64;

#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: OwnedFd,
    bell: OwnedFd,
    timer: OwnedFd,
    alarm: OwnedFd,
    /// Queues in which something is wanted at once.
    urgent: Bits,
    areas: usize,
    /// Homes whose workers are to be started.
    homes: Bits,
    stop: AtomicBool,
    sources: Mutex<Sources>,
    thread: Mutex<Option<JoinHandle<()>>>,
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(what: &'static str) -> impl Fn(rustix::io::Errno) -> Error {
    move |errno| Error::System(what, errno.raw_os_error())
}

impl Reactor {
    pub(crate) fn start(scheduler: &Arc<Scheduler>) -> Result<Arc<Self>, Error> {
        let timer = || {
            timerfd_create(
                TimerfdClockId::Monotonic,
                TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
            )
            .map_err(failed("cannot make a timer"))
        };
        let areas = scheduler.tree.areas().len();
        let reactor = Arc::new(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("cannot make an epoll"))?,
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
                .map_err(failed("cannot make an eventfd"))?,
            timer: timer()?,
            alarm: timer()?,
            urgent: Bits::new(areas),
            areas,
            homes: Bits::new(scheduler.pool.homes.len()),
            stop: AtomicBool::new(false),
            sources: Mutex::new(Sources {
                next: FIRST_SOURCE,
                ..Sources::default()
            }),
            thread: Mutex::new(None),
        });
        for (fd, token) in [
            (&reactor.bell, BELL),
            (&reactor.timer, TIMER),
            (&reactor.alarm, ALARM),
        ] {
            reactor.add(fd.as_fd(), token, EventFlags::IN)?;
        }
        let (its, its_scheduler) = (reactor.clone(), scheduler.clone());
        let thread = sys::without_signals(|| {
            std::thread::Builder::new()
                .name(String::from("garonne-events"))
                .stack_size(STACK)
                .spawn(move || its.work(&its_scheduler))
        });
        let thread = thread
            .map_err(|error| Error::System("cannot start a thread", error.raw_os_error().unwrap_or(0)))?;
        *lock(&reactor.thread) = Some(thread);
        Ok(reactor)
    }

    fn add(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> Result<(), Error> {
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)
            .map_err(failed("cannot watch this descriptor"))
    }

    /// Has a queue run at once, whatever computes.
    pub(crate) fn urgent(&self, area: usize) {
        self.urgent.set(area);
        self.ring();
    }

    /// Has the worker of a home started.
    pub(crate) fn start_worker(&self, home: usize) {
        // One that is asked for already comes.
        if self.homes.set(home) {
            self.ring();
        }
    }

    fn ring(&self) {
        // Refused only when the count is full: then it rings already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Has the timer look after what waits, after this time.
    pub(crate) fn tick(&self, after: Duration) {
        set(&self.timer, after);
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
        let thread = lock(&self.thread).take();
        crate::tasks::leave(thread.into_iter().collect(), STOP_LIMIT);
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
        self.add(fd.as_fd(), id, flags)?;
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
            // It was added before, and only `forget` removes it.
            let _ = epoll::modify(&self.epoll, fd, EventData::new_u64(id), *flags);
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
                }) => {
                    let _ = epoll::delete(&self.epoll, fd);
                }
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

    fn work(&self, scheduler: &Arc<Scheduler>) {
        let mut served = Served {
            runs: vec![0; self.areas],
            period: TICK,
        };
        let mut events = Vec::with_capacity(EVENTS_AT_ONCE);
        while !self.stop.load(Ordering::Acquire) {
            events.clear();
            // A signal cannot come here, and the descriptor is ours.
            if epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None).is_err() {
                continue;
            }
            for event in &events {
                match event.data.u64() {
                    BELL => drain(&self.bell),
                    TIMER => {
                        drain(&self.timer);
                        self.look_after(scheduler, &mut served);
                    }
                    ALARM => {
                        drain(&self.alarm);
                        self.fire_alarms(scheduler);
                    }
                    id => self.fire(scheduler, id),
                }
            }
            self.start_workers(scheduler);
            self.run_urgent(scheduler);
        }
    }

    fn start_workers(&self, scheduler: &Arc<Scheduler>) {
        for home in 0..scheduler.pool.homes.len() {
            if self.homes.word(home / 64) != 0 && self.homes.clear(home) {
                scheduler.pool.start(scheduler, home);
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
            set(&self.alarm, after);
        }
    }

    fn run_urgent(&self, scheduler: &Arc<Scheduler>) {
        for area in 0..self.areas {
            if self.urgent.word(area / 64) == 0 {
                continue;
            }
            if self.urgent.clear(area) {
                self.serve(scheduler, area);
            }
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

fn drain(fd: &OwnedFd) {
    let mut count = [0u8; 8];
    let _ = rustix::io::read(fd, &mut count);
}

/// Sets a timer once; a time of zero would switch it off.
fn set(timer: &OwnedFd, after: Duration) {
    let after = after.max(Duration::from_nanos(1));
    let value = rustix::time::Timespec {
        tv_sec: after.as_secs().min(i64::MAX as u64) as i64,
        tv_nsec: after.subsec_nanos().into(),
    };
    let once = Itimerspec {
        it_interval: rustix::time::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: value,
    };
    // The descriptor and the value are valid.
    let _ = timerfd_settime(timer, TimerfdTimerFlags::empty(), &once);
}
