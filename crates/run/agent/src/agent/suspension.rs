//! Whether this agent itself stood still: stopped, frozen with its container, suspended with its
//! machine, or without processor time.
//!
//! The agents of other hosts take one that stands still for gone and end their part of the job.
//! When this agent goes on it must not blame them. Only the agent's own turns are looked at: one
//! that lasted longer than the agent was to sleep in it.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, Timespec, clock_gettime};

use super::Agent;
use garonne_job::limits::{AGENT_SILENCE_MAX, PING_EVERY};
use garonne_links::sys;

/// Others may take an agent that stood still for this long for gone: it may have said nothing for
/// some time before.
const TAKEN_FOR_GONE: Duration = AGENT_SILENCE_MAX.saturating_sub(PING_EVERY.saturating_mul(2));

/// Time that a standstill explains that lines to other hosts have ended: their ends are read as
/// soon as the agent goes on.
const EXPLAINS: Duration = PING_EVERY;

/// Times of the agent's own turns, by which it notices that it was stopped.
#[derive(Debug, Default)]
pub(super) struct SuspensionDetector {
    /// When this agent woke up last, in time since the machine was started, to which a suspended
    /// machine's belongs.
    awake: Option<Duration>,
    /// For how long it is to sleep, where anything is due.
    wait: Option<Duration>,
    /// When this agent went on, and how long it had stood still, at the last time that others may
    /// have taken it for gone.
    last: Option<(Instant, Duration)>,
}

impl SuspensionDetector {
    /// The agent goes to sleep until then, or until something happens. Returns how long that is.
    pub fn before_wait(&mut self, due: Option<Instant>) -> Option<Timespec> {
        self.wait = due.map(|due| due.saturating_duration_since(Instant::now()));
        self.awake.get_or_insert_with(since_boot);
        self.wait.map(sys::timespec)
    }

    /// The agent is awake again. Returns for how long it stood still.
    pub fn after_wait(&mut self) -> Duration {
        let now = since_boot();
        let turn = self
            .awake
            .replace(now)
            .map(|before| now.saturating_sub(before));
        let turn = turn.zip(self.wait.take());
        self.note(turn, Instant::now())
    }

    /// A turn took this long, and the agent was to sleep for that long in it.
    fn note(&mut self, turn: Option<(Duration, Duration)>, now: Instant) -> Duration {
        let Some((turn, wait)) = turn else {
            return Duration::ZERO;
        };
        let stood = turn.saturating_sub(wait);
        if stood >= TAKEN_FOR_GONE {
            self.last = Some((now, turn));
        }
        stood
    }

    /// For how long this agent stood still, if that is why the lines to others end now.
    pub fn explains(&self, now: Instant) -> Option<Duration> {
        let (until, stood) = self.last?;
        (now.saturating_duration_since(until) <= EXPLAINS).then_some(stood)
    }
}

fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

impl Agent<'_> {
    /// This agent has waited for events. Where others may have taken it for gone meanwhile, their
    /// ends are heard first: what its ranks say of their peers comes of those.
    pub(super) fn after_wait(&mut self) {
        let stood = self.suspension.after_wait();
        if let Some(below) = self.ctx.links.children_mut() {
            below.extend_deadlines(stood);
        }
        if stood < TAKEN_FOR_GONE {
            return;
        }
        let below = self.ctx.links.children();
        let nodes = below.map_or(Vec::new(), |below| below.nodes());
        nodes.into_iter().for_each(|node| self.read_child(node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_that_was_to_be_long_is_no_standstill() {
        let (mut still, now) = (SuspensionDetector::default(), Instant::now());
        let long = 2 * AGENT_SILENCE_MAX;
        assert_eq!(still.note(Some((long, long)), now), Duration::ZERO);
        assert_eq!(still.note(None, now), Duration::ZERO);
        assert_eq!(still.explains(now), None);
    }

    #[test]
    fn a_standstill_explains_what_ends_right_after_it() {
        let (mut still, now) = (SuspensionDetector::default(), Instant::now());
        let short = TAKEN_FOR_GONE / 2;
        assert_eq!(
            still.note(Some((short + PING_EVERY, PING_EVERY)), now),
            short
        );
        assert_eq!(still.explains(now), None);
        let long = 2 * AGENT_SILENCE_MAX;
        assert_eq!(still.note(Some((long, PING_EVERY)), now), long - PING_EVERY);
        assert_eq!(still.explains(now), Some(long));
        // What happens in the turns after it is read then.
        still.note(Some((PING_EVERY / 2, PING_EVERY)), now + PING_EVERY / 2);
        assert_eq!(still.explains(now + PING_EVERY / 2), Some(long));
        assert_eq!(still.explains(now + 2 * EXPLAINS), None);
    }

    #[test]
    fn an_agent_that_wakes_in_time_did_not_stand_still() {
        let mut still = SuspensionDetector::default();
        still.before_wait(Some(Instant::now() + AGENT_SILENCE_MAX));
        assert!(still.after_wait() < PING_EVERY && still.last.is_none());
    }
}
