//! The event thread as a group of threads that lead in turn ([`LeaderFollower`]). One waits for
//! events and runs what it finds; from the first run on, one standby exists beside it.
//!
//! The standby sleeps until a run of the leader declares itself long
//! ([`crate::tasks::Tasks::lengthy`]) or takes longer than [`LATE`]. Then the standby leads and
//! continues with everything. The former leader ends its run, and becomes the standby if there is
//! none, or ends. A standby that was not needed for [`STAND_IN_REST`] ends, too. Bounded by
//! [`LONG_RUNS`]. A thread that the system refuses is asked for again after [`START_AGAIN`], and
//! until then the leader runs everything itself.

use crate::events::reactor::Reactor;
use crate::facade::{AtomicU32, Mutex, Ordering, lock, thread_local};
use crate::library_thread::LibraryThread;
use crate::limits::{LATE, LONG_AT_TIMER, LONG_RUNS, STAND_IN_REST, START_AGAIN, TICK};
use crate::sys;
use crate::tasks::Scheduler;
use garonne_sync::leader_follower::{LeaderFollower, LeaderTurn};
use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

thread_local! {
    /// The reactor by its address, and the run, within which this thread leads.
    static RUNS: Cell<Option<(usize, LeaderTurn)>> = const { Cell::new(None) };
}

/// The threads that lead the reactor in turn. The reactor owns them.
#[derive(Debug)]
pub(super) struct EventThreads {
    leader_follower: LeaderFollower,
    /// Threads that led when their run began, and lead no longer.
    long: AtomicU32,
    /// The queue, plus one, of which the leader runs what is urgent. Whoever takes the lead
    /// goes on with that.
    urgent: AtomicU32,
    threads: Mutex<ThreadList>,
}

#[derive(Debug, Default)]
struct ThreadList {
    members: Vec<Arc<EventThread>>,
    refused_at: Option<Instant>,
    over: bool,
}

/// Role with which a thread begins.
#[derive(Debug)]
enum StartRole {
    Leader(LeaderTurn),
    Standby,
}

/// One of the threads.
#[derive(Debug)]
struct EventThread {
    reactor: Arc<Reactor>,
    role: StartRole,
    thread: LibraryThread,
}

impl sys::ThreadMain for EventThread {
    fn work(self: Arc<Self>) {
        sys::name_thread(c"garonne-events");
        if let Some(scheduler) = self.reactor.scheduler() {
            self.reactor.attend(&scheduler, &self.role);
        }
        match self.reactor.leaves_by_itself(&self) {
            true => self.thread.retires(),
            false => self.thread.leaves(),
        }
    }
}

impl EventThreads {
    pub(super) fn new() -> (Self, LeaderTurn) {
        let (lead, turn) = LeaderFollower::new();
        let event_threads = Self {
            leader_follower: lead,
            long: AtomicU32::new(0),
            urgent: AtomicU32::new(0),
            threads: Mutex::default(),
        };
        (event_threads, turn)
    }

    /// Returns whether the timer runs what could wait for an idle core.
    pub(super) fn has_time(&self) -> bool {
        self.long.load(Ordering::SeqCst) < LONG_AT_TIMER
    }

    /// The leader is about to run what is urgent in this queue; `None`: no longer.
    pub(super) fn note_urgent(&self, area: Option<usize>) {
        let area = area.map_or(0, |area| area as u32 + 1);
        self.urgent.store(area, Ordering::SeqCst);
    }

    /// Waits until `deadline` for all threads, which were told to leave.
    pub(super) fn end(&self, deadline: Instant) {
        let members = {
            let mut threads = lock(&self.threads);
            threads.over = true;
            std::mem::take(&mut threads.members)
        };
        members
            .iter()
            .for_each(|member| member.thread.end(deadline));
    }
}

impl Reactor {
    /// Starts the first thread.
    pub(super) fn begin(self: &Arc<Self>, turn: LeaderTurn) -> io::Result<()> {
        self.start_member(
            &mut lock(&self.event_threads.threads),
            StartRole::Leader(turn),
        )
    }

    /// Returns whether nobody waits for the end of this thread: it was not told to leave.
    fn leaves_by_itself(&self, member: &Arc<EventThread>) -> bool {
        let mut threads = lock(&self.event_threads.threads);
        let its = |other: &Arc<EventThread>| Arc::ptr_eq(other, member);
        let place = threads
            .members
            .iter()
            .position(its)
            .filter(|_| !self.stops());
        place
            .map(|place| threads.members.swap_remove(place))
            .is_some()
    }

    fn start_member(self: &Arc<Self>, threads: &mut ThreadList, role: StartRole) -> io::Result<()> {
        let member = Arc::new(EventThread {
            reactor: self.clone(),
            role,
            thread: LibraryThread::default(),
        });
        member.thread.start(&member)?;
        threads.members.push(member);
        Ok(())
    }

    /// The life of a thread.
    fn attend(self: &Arc<Self>, scheduler: &Arc<Scheduler>, role: &StartRole) {
        let mut turn = match role {
            StartRole::Leader(turn) => Some(*turn),
            StartRole::Standby => self.run_standby(scheduler),
        };
        while let Some(leads) = turn {
            if self.lead(scheduler, leads).is_some() {
                // All end. Whoever stands in is to see it.
                self.kernel.set_guard(Duration::ZERO);
                return;
            }
            // Its long run is over, and another leads.
            let long = self.event_threads.long.fetch_sub(1, Ordering::SeqCst);
            if long >= LONG_AT_TIMER {
                self.tick(TICK);
            }
            if long >= LONG_RUNS {
                // The standby may have been refused the lead: it is to try again.
                self.kernel.set_guard(Duration::ZERO);
            }
            turn = match self.event_threads.leader_follower.reserve_standby() {
                true => self.run_standby(scheduler),
                false => None,
            };
        }
    }

    /// Stands in until it leads. `None`: it was not wanted for a long time, or all end.
    fn run_standby(&self, scheduler: &Arc<Scheduler>) -> Option<LeaderTurn> {
        let event_threads = &self.event_threads;
        while !self.stops() {
            let seen = event_threads.leader_follower.turn();
            let is_late = self.kernel.wait_guard(STAND_IN_REST);
            if self.stops() {
                break;
            }
            if is_late {
                // Before the other can be through with its run.
                if event_threads.long.fetch_add(1, Ordering::SeqCst) < LONG_RUNS
                    && let Some(turn) = event_threads.leader_follower.take_lead()
                {
                    self.take_over_work(scheduler);
                    return Some(turn);
                }
                event_threads.long.fetch_sub(1, Ordering::SeqCst);
            } else if event_threads.leader_follower.turn() == seen
                && event_threads.leader_follower.leave_standby()
            {
                break;
            }
        }
        None
    }

    /// What the one that led had begun and may not come to.
    fn take_over_work(&self, scheduler: &Scheduler) {
        if let Some(area) = self
            .event_threads
            .urgent
            .swap(0, Ordering::SeqCst)
            .checked_sub(1)
        {
            scheduler.event_requests.run(area as usize);
        }
        self.tick(TICK);
    }

    /// Runs tasks, which may take long. `None`: another leads meanwhile.
    pub(super) fn run_guarded(
        self: &Arc<Self>,
        turn: LeaderTurn,
        run: impl FnOnce(),
    ) -> Option<LeaderTurn> {
        let lead = &self.event_threads.leader_follower;
        let within = lead.begin_run(turn);
        if !lead.has_standby() {
            self.hire();
        }
        self.kernel.set_guard(LATE);
        RUNS.with(|runs| runs.set(Some((self.address(), within))));
        run();
        RUNS.with(|runs| runs.set(None));
        let turn = lead.end_run(within)?;
        self.kernel.clear_guard();
        Some(turn)
    }

    /// A run on this thread says that it is long: if it is the leader, everything else is the
    /// standby's at once.
    pub(crate) fn note_long_run(&self) {
        let within = RUNS.with(Cell::get);
        if within.is_some_and(|(address, run)| {
            address == self.address() && self.event_threads.leader_follower.turn() == run
        }) {
            self.kernel.set_guard(Duration::ZERO);
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    #[cold]
    fn hire(self: &Arc<Self>) {
        let lead = &self.event_threads.leader_follower;
        let mut threads = lock(&self.event_threads.threads);
        let refused = |at: Instant| at.elapsed() < START_AGAIN;
        if threads.over || threads.refused_at.is_some_and(refused) || !lead.reserve_standby() {
            return;
        }
        if self.start_member(&mut threads, StartRole::Standby).is_err() {
            threads.refused_at = Some(Instant::now());
            lead.cancel_standby();
        }
    }
}
