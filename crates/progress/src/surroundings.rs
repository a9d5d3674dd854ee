//! What a host needs from where it runs: how patiently to wait, how to give way, how to end the job.
//!
//! Implemented by `node` for real processes and by `sim` for threads and simulated ranks; called by the engine host.

use garonne_engine::api::Origin;
use garonne_engine::event::{Sent, Waiting};
use std::time::Duration;

/// How long a waiter looks before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Polls without success before giving way; 0 when more ranks than cores are runnable.
    pub spins: u32,
    /// Times to give way to others before sleeping.
    pub yields: u32,
}

/// Callers in another process of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Senders {
    /// The process, by its id as seen from here.
    pub process: u32,
    /// One of these it was.
    pub origins: Vec<Origin>,
}

/// See the module's paragraph.
pub trait Surroundings: Send + Sync {
    /// How patient a waiter may be at the moment.
    fn patience(&self) -> Patience;

    /// Lets another runnable thread have this core.
    fn give_way(&self) {
        std::thread::yield_now();
    }

    /// How long to sleep at most when queued work found no room.
    fn retry(&self) -> Option<Duration> {
        Some(Duration::from_micros(200))
    }

    /// The rank sleeps for a while already and waits for this; `None`: it is awake again. For those who watch from outside.
    /// Called by one thread at a time.
    fn waits(&self, _waiting: Option<&Waiting>) {}

    /// Who made a send, as far as that can be found out from here: for putting an error into words.
    fn senders(&self, _sent: &Sent) -> Option<Senders> {
        None
    }

    /// Ends the job with this exit code. Does not return.
    fn abort(&self, code: i32, message: &str) -> !;

    /// Seconds since an arbitrary fixed point.
    fn seconds(&self) -> f64;
}
