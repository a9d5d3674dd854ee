//! What a locked engine needs from its environment: how long to spin, how to yield a core, how to
//! end the job.
//!
//! `node` implements the trait for real processes, `sim` for threads and simulated ranks. The
//! locked engine calls it.

use crate::limits::{AWAY_FROM, REST, YIELD_TAKEN_FROM};
use garonne_engine::api::{CallOrigin, Peer};
use garonne_engine::observe::events::{PendingReport, SentMessage};
use std::sync::atomic::AtomicU32;
use std::time::{Duration, Instant};

/// Time that a waiter looks before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinBudget {
    /// Polls without success before giving way; 0 when more ranks than cores are runnable.
    pub spins: u32,
    /// Times that others take the core when it is given to them before it sleeps, and 0 where
    /// nobody else should want it.
    pub yields: u32,
    /// Threads of the rank that may wait awake at once, each on a core of its own: one polls, and
    /// the others look whether they are called before they sleep.
    pub spinners: u32,
}

/// Fate of a core that a thread gave away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum YieldOutcome {
    /// Nobody else wanted it.
    Unused,
    /// Others ran there.
    Taken,
}

/// Callers in another process of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossibleSenders {
    /// The process, by its id as seen from here.
    pub process: u32,
    /// One of these it was.
    pub origins: Vec<CallOrigin>,
}

/// Facts of a communicator that others may know. Where its list and its counters lie stays readable
/// until it is told that the communicator is no more.
#[derive(Clone, Copy, Debug)]
pub struct CommunicatorInfo<'a> {
    /// Name that the program gave; empty if it gave none.
    pub name: &'a str,
    /// Processes of the members.
    pub members: GroupMembers<'a>,
    /// How many collectives this process has entered, by [`CollectiveCounter`]. They stay readable
    /// as long as it is there.
    pub counts: &'a CollectiveCounts,
}

/// Counters of a communicator, which its owner keeps anyway.
pub type CollectiveCounts = [AtomicU32; 4];

/// Which of them counts what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectiveCounter {
    /// Collectives that return when they are done, constructors among them.
    Blocking = 0,
    /// Nonblocking collectives.
    Nonblocking = 1,
    /// Starts of persistent collectives.
    Persistent = 2,
    /// Constructors that have begun to talk.
    Constructions = 3,
}

/// The processes of a group, by rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMembers<'a> {
    /// Cannot be told so (an intercommunicator has two groups).
    Untold,
    /// `size` processes from `first` on, `stride` apart (modulo 2^32).
    Strided {
        /// Process of rank 0.
        first: Peer,
        /// Distance between successive ones.
        stride: u32,
        /// How many.
        size: u32,
    },
    /// The listed processes.
    List(&'a [Peer]),
    /// The communicator is no more: its counters are to be copied.
    Gone,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerFate {
    /// Nothing: it may live.
    Unknown,
    /// Ended well: the process answers nothing any more.
    Left,
    /// Dead.
    Died,
}

/// News of the thread that advances what the program leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressThreadEvent {
    /// The thread was started.
    Started,
    /// The system gave no thread, with this error number: nothing advances but inside MPI calls.
    Refused(i32),
    /// The thread was woken, or polls by itself, and is about to work. Only for tracers.
    Called,
    /// The thread was woken and something moved.
    Worked,
    /// The thread stops working until it is woken again. Only for tracers.
    Leaves,
}

/// Hears what the threads of a locked engine do, for those who watch a rank from outside.
pub trait WaitObserver {
    /// The rank sleeps for a while already and waits for this; `None`: it is awake again. For those
    /// who watch from outside. Called by one thread at a time.
    fn note_long_wait(&self, _waiting: Option<&PendingReport>) {}

    /// There is a communicator of this number, name and members now, or no more
    /// ([`GroupMembers::Gone`]): for those who watch from outside.
    fn publish_communicator(&self, _number: u32, _known: &CommunicatorInfo<'_>) {}

    /// The calling thread is about to sleep, or (`false`) awake again. For those who watch from
    /// outside.
    fn note_sleep(&self, _asleep: bool) {}

    /// What becomes of the thread that releases ownership. For those who watch from outside. Called
    /// by one thread at a time.
    fn note_progress_thread(&self, _news: ProgressThreadEvent) {}
}

/// The services that a locked engine gets from the process, thread or simulation in which it runs.
pub trait Environment: WaitObserver + Send + Sync {
    /// Returns how patient a waiter may be at the moment.
    fn spin_budget(&self) -> SpinBudget;

    /// Returns a number that changes when a process of the job dies and the job goes on. Asked
    /// before a thread sleeps.
    fn deaths(&self) -> u32 {
        0
    }

    /// Returns what is known of a process of the job. Asked of all when one has died, and, before a
    /// thread sleeps, of those whose answers it waits for.
    fn fate(&self, peer: Peer) -> PeerFate {
        let _ = peer;
        PeerFate::Unknown
    }

    /// Lets another runnable thread have this core.
    fn yield_core(&self) -> YieldOutcome {
        let begun = Instant::now();
        std::thread::yield_now();
        match begun.elapsed() < YIELD_TAKEN_FROM {
            true => YieldOutcome::Unused,
            false => YieldOutcome::Taken,
        }
    }

    /// Returns how long a waiter that gave way as often as its [`SpinBudget`] says goes on doing so
    /// before it sleeps, while that pays: others took the core, but may have been waiters as well.
    fn extended_yield(&self) -> Duration {
        Duration::ZERO
    }

    /// Returns how long to sleep at most when queued work found no room.
    fn retry_interval(&self) -> Option<Duration> {
        Some(Duration::from_micros(200))
    }

    /// Returns how long what was left open is left to the program before its progress thread looks
    /// after it: for where the progress thread would take its core from somebody who computes.
    /// `None`: there is a core to spare, and peers call the progress thread at once.
    fn takeover_delay(&self) -> Option<Duration> {
        None
    }

    /// Returns how long a progress thread with nothing to do stays awake before it sleeps, looking
    /// for more: nothing but where idle cores are nobody else's. Asked once, by the progress
    /// thread.
    fn progress_spin_time(&self) -> Duration {
        Duration::ZERO
    }

    /// A progress thread that is awake and whose few looks took this long was put aside meanwhile:
    /// others want its core.
    fn preemption_threshold(&self) -> Duration {
        AWAY_FROM
    }

    /// Returns whether ownership is released also where the program never computed between leaving
    /// something open and waiting for it. For tests and measurements.
    fn releases_always(&self) -> bool {
        false
    }

    /// Returns how long a progress thread that nobody calls stays before it asks whether it is
    /// needed.
    fn progress_thread_rest(&self) -> Duration {
        REST
    }

    /// The process of a peer, by its id as seen from here; `None`: it cannot be named from here.
    fn process_of(&self, _peer: Peer) -> Option<u32> {
        None
    }

    /// Returns who made a send, as far as that can be found out from here: for putting an error
    /// into words.
    fn possible_senders(&self, _sent: &SentMessage) -> Option<PossibleSenders> {
        None
    }

    /// Ends the job with this exit code. Does not return.
    fn abort(&self, code: i32, message: &str) -> !;

    /// Seconds since an arbitrary fixed point.
    fn wtime(&self) -> f64;
}
