//! How long the other end of a line has been silent, and when this end has to say something.

use std::time::{Duration, Instant};

use garonne_job::limits::{AGENT_SILENCE_MAX, PING_EVERY};

/// An agent that checks later than this was kept from it, and so may have been those it listens
/// for: by a stop, a frozen container, a machine that slept.
const AWAY: Duration = PING_EVERY.saturating_mul(2);

/// Times at which a link was last used in each direction. Only time in which this end could read
/// counts as silence.
#[derive(Debug)]
pub(super) struct Heartbeat {
    heard: Instant,
    said: Instant,
    looked: Instant,
}

impl Heartbeat {
    pub fn new(now: Instant) -> Self {
        Self {
            heard: now,
            said: now,
            looked: now,
        }
    }

    /// Notes that a message of the other side arrived.
    pub fn received(&mut self, now: Instant) {
        self.heard = now;
    }

    /// This side has said something.
    pub fn sent(&mut self, now: Instant) {
        self.said = now;
    }

    /// When the other side was last heard, later by the time for which this side did not listen.
    pub fn heard(&self) -> Instant {
        self.heard
    }

    /// When somebody has to look.
    pub fn due(&self) -> Instant {
        (self.said + PING_EVERY)
            .min(self.heard + AGENT_SILENCE_MAX)
            .min(self.looked + PING_EVERY)
    }

    /// Returns whether the other side has been silent for too long.
    pub fn is_over(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.looked);
        if since > AWAY {
            self.heard = (self.heard + since).min(now);
        }
        self.looked = now;
        now >= self.heard + AGENT_SILENCE_MAX
    }

    /// Returns whether this side has to say that it is there.
    pub fn must_speak(&self, now: Instant) -> bool {
        now >= self.said + PING_EVERY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks whenever it is due until the heartbeat is over, and says after how long that was.
    fn silence(heartbeat: &mut Heartbeat, mut now: Instant) -> Duration {
        let start = now;
        while !heartbeat.is_over(now) {
            if heartbeat.must_speak(now) {
                heartbeat.sent(now);
            }
            assert!(heartbeat.due() > now, "a look that is due at once");
            now = heartbeat.due();
        }
        now - start
    }

    #[test]
    fn who_says_nothing_is_lost_in_time() {
        let now = Instant::now();
        assert_eq!(silence(&mut Heartbeat::new(now), now), AGENT_SILENCE_MAX);
    }

    #[test]
    fn who_was_stopped_itself_listens_anew() {
        let start = Instant::now();
        let mut heartbeat = Heartbeat::new(start);
        assert!(!heartbeat.is_over(start + PING_EVERY));
        let thawed = start + PING_EVERY + 10 * AGENT_SILENCE_MAX;
        assert!(!heartbeat.is_over(thawed), "both may have been frozen");
        let left = silence(&mut heartbeat, thawed);
        assert!(
            left <= AGENT_SILENCE_MAX && left >= AGENT_SILENCE_MAX - PING_EVERY,
            "{left:?}"
        );
    }

    #[test]
    fn a_sign_of_life_is_due_before_the_other_side_misses_it() {
        let now = Instant::now();
        let mut heartbeat = Heartbeat::new(now);
        heartbeat.received(now + PING_EVERY);
        assert!(heartbeat.due() <= now + PING_EVERY && heartbeat.must_speak(heartbeat.due()));
    }
}
