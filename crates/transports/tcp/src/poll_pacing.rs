//! When a rank that polls looks at all sockets, which is a call of the system beside the one by
//! which it receives.
//!
//! Part of [`TcpTransport`](super::TcpTransport). Between two looks only the connection that
//! brought something last is received from. Bounded by [`TCP_LOOK_EVERY`] polls that bring nothing,
//! and by [`TCP_LOOK_SELDOM`] while that connection brings everything; the clock is read only then,
//! and then by one poll in so many.

use garonne_transport::limits::{TCP_LOOK_EVERY, TCP_LOOK_SELDOM};
use std::time::Instant;

/// When all sockets are looked at, and not only that which brought something last.
#[derive(Debug, Default)]
pub(super) struct PollPacing {
    /// Polls since the last look.
    polls: u32,
    /// The watched socket has brought something since.
    brought: bool,
    /// The last look saw something of another.
    others: bool,
    /// And what this one has seen so far.
    another: bool,
    /// When it was first put off since the last look.
    since: Option<Instant>,
}

impl PollPacing {
    /// A poll of that socket has told of so much. Whether all are due.
    #[inline]
    pub(super) fn is_due(&mut self, told: u32, now: impl FnOnce() -> Instant) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.brought |= told > 0;
        self.polls.is_multiple_of(TCP_LOOK_EVERY)
            && (told == 0 && !self.may_wait() || self.is_late(now))
    }

    fn may_wait(&self) -> bool {
        self.brought && !self.others
    }

    fn is_late(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let now = now();
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= TCP_LOOK_SELDOM
    }

    /// In the look that is on something of another socket was seen, or not.
    pub(super) fn saw_another(&mut self, another: bool) {
        self.another |= another;
    }

    /// All were looked at.
    pub(super) fn ended(&mut self) {
        *self = Self {
            others: self.another,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Polls a microsecond apart up to the next look, of which those whose number this divides tell
    /// of something of the one connection.
    fn polls_to_a_look(glance: &mut PollPacing, brings: u32) -> u32 {
        let begun = Instant::now();
        (1..1000)
            .find(|poll| {
                let told = u32::from(brings > 0 && poll % brings == 0);
                glance.is_due(told, || begun + Duration::from_micros((*poll).into()))
            })
            .expect("all are looked at in the end")
    }

    #[test]
    fn looks_are_rare_only_while_the_one_connection_brings_something_and_no_other_does() {
        let mut glance = PollPacing::default();
        let seldom = TCP_LOOK_SELDOM.as_micros() as u32 + TCP_LOOK_EVERY;
        for _ in 0..3 {
            assert_eq!(polls_to_a_look(&mut glance, 3), seldom);
            glance.ended();
        }
        assert_eq!(
            polls_to_a_look(&mut glance, 0),
            TCP_LOOK_EVERY,
            "nothing came"
        );
        glance.saw_another(true);
        glance.saw_another(false);
        glance.ended();
        assert_eq!(
            polls_to_a_look(&mut glance, 3),
            TCP_LOOK_EVERY,
            "another brought something"
        );
        glance.ended();
        assert_eq!(polls_to_a_look(&mut glance, 3), seldom, "only for one look");
    }

    #[test]
    fn a_connection_that_brings_something_in_every_poll_keeps_no_other_waiting() {
        let seldom = TCP_LOOK_SELDOM.as_micros() as u32 + TCP_LOOK_EVERY;
        let mut glance = PollPacing::default();
        assert_eq!(polls_to_a_look(&mut glance, 1), seldom);
        glance.saw_another(true);
        glance.ended();
        assert_eq!(polls_to_a_look(&mut glance, 1), seldom);
    }

    #[test]
    fn who_polls_seldom_looks_as_often_as_ever() {
        let (mut glance, begun) = (PollPacing::default(), Instant::now());
        let polls = (1u32..)
            .find(|poll| glance.is_due(1, || begun + Duration::from_millis((*poll).into())));
        assert_eq!(polls, Some(2 * TCP_LOOK_EVERY));
    }
}
