//! When a rank that polls looks at all sockets, which is a call of the system beside the one by
//! which it receives.
//!
//! Owned by the transport. Between two looks only the connection that brought something last is
//! received from. Bounded by [`TCP_POLL_ALL_EVERY`] polls that bring nothing, and by
//! [`TCP_POLL_ALL_AFTER`] while that connection brings everything; the clock is read only then, and
//! then by one poll in so many.

use garonne_engine::api::Peer;
use garonne_transport::limits::{TCP_POLL_ALL_AFTER, TCP_POLL_ALL_EVERY};
use std::time::Instant;

/// When all sockets are looked at, and not only that which brought something last.
#[derive(Debug, Default)]
struct LookInterval {
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

impl LookInterval {
    /// Counts a poll of the one socket that told of so much. Returns whether all are due.
    #[inline]
    fn is_due(&mut self, told: u32, now: impl FnOnce() -> Instant) -> bool {
        self.polls = self.polls.wrapping_add(1);
        self.brought |= told > 0;
        self.polls.is_multiple_of(TCP_POLL_ALL_EVERY)
            && (told == 0 && !self.may_wait() || self.is_late(now))
    }

    fn may_wait(&self) -> bool {
        self.brought && !self.others
    }

    fn is_late(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let now = now();
        now.saturating_duration_since(*self.since.get_or_insert(now)) >= TCP_POLL_ALL_AFTER
    }

    /// In the look that is on something of another socket was seen, or not.
    fn saw_another(&mut self, another: bool) {
        self.another |= another;
    }

    /// All were looked at.
    fn ended(&mut self) {
        *self = Self {
            others: self.another,
            ..Self::default()
        };
    }
}

/// Which connections a poll receives from, and what it leaves to the next.
///
/// Owned by the transport. A poll begins with [`PollPacing::begin`] and receives from
/// [`PollPacing::last_active`]. [`PollPacing::is_due`] says whether it then looks at all sockets.
/// A look tells of each socket by [`PollPacing::saw`], and of each peer that brought something by
/// [`PollPacing::brought`]; [`PollPacing::looked`] ends it.
#[derive(Debug, Default)]
pub(crate) struct PollPacing {
    looks: LookInterval,
    /// The peer that brought something last.
    last_active: Option<Peer>,
    /// Bulk data that may be there are left to the next poll, for small messages that were told of.
    bulk_put_off: bool,
    /// The last poll left bulk data to the next. Some may have been read already, so that no socket
    /// tells of them: who was told nothing would sleep.
    bulk_left: bool,
    /// Some sockets tell of much alone.
    in_background: bool,
}

impl PollPacing {
    /// A poll begins.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.bulk_put_off = false;
    }

    /// Returns the peer that brought something last.
    #[inline]
    pub(crate) fn last_active(&self) -> Option<Peer> {
        self.last_active
    }

    /// Returns whether all sockets are to be looked at, after a poll of the last active peer alone
    /// told of so much.
    #[inline]
    pub(crate) fn is_due(&mut self, told: u32, now: impl FnOnce() -> Instant) -> bool {
        self.looks.is_due(told, now)
    }

    /// In a look the socket for packets of this peer was ready, or another socket.
    pub(crate) fn saw(&mut self, packets_of: Option<Peer>) {
        let another = self.last_active.is_none() || packets_of != self.last_active;
        self.looks.saw_another(another);
    }

    /// In a look a peer brought something; `before` was active last when it began.
    pub(crate) fn brought(&mut self, peer: Peer, before: Option<Peer>) {
        self.last_active = Some(peer);
        self.looks.saw_another(Some(peer) != before);
    }

    /// All sockets were looked at.
    pub(crate) fn looked(&mut self) {
        self.looks.ended();
    }

    /// Notes whether bulk data that may be there are left to the next poll, for small messages.
    #[inline]
    pub(crate) fn put_bulk_off(&mut self, put_off: bool) {
        self.bulk_put_off = put_off;
    }

    /// Returns whether this poll left bulk data to the next, for small messages.
    #[inline]
    pub(crate) fn has_put_bulk_off(&self) -> bool {
        self.bulk_put_off
    }

    /// Notes whether bulk data were left that no socket may tell of.
    pub(crate) fn leave_bulk(&mut self, left: bool) {
        self.bulk_left |= left;
    }

    /// Returns whether bulk data were left that no socket may tell of; they are not from now on.
    #[inline]
    pub(crate) fn take_bulk_left(&mut self) -> bool {
        std::mem::take(&mut self.bulk_left)
    }

    /// Sets whether polls take time from a computing program. Returns whether they did before.
    pub(crate) fn set_in_background(&mut self, in_background: bool) -> bool {
        std::mem::replace(&mut self.in_background, in_background)
    }

    /// Returns whether polls take time from a computing program.
    pub(crate) fn is_in_background(&self) -> bool {
        self.in_background
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Polls a microsecond apart up to the next look, of which those whose number this divides tell
    /// of something of the one connection.
    fn polls_to_a_look(looks: &mut LookInterval, brings: u32) -> u32 {
        let begun = Instant::now();
        (1..1000)
            .find(|poll| {
                let told = u32::from(brings > 0 && poll % brings == 0);
                looks.is_due(told, || begun + Duration::from_micros((*poll).into()))
            })
            .expect("all are looked at in the end")
    }

    #[test]
    fn looks_are_rare_only_while_the_one_connection_brings_something_and_no_other_does() {
        let mut looks = LookInterval::default();
        let seldom = TCP_POLL_ALL_AFTER.as_micros() as u32 + TCP_POLL_ALL_EVERY;
        for _ in 0..3 {
            assert_eq!(polls_to_a_look(&mut looks, 3), seldom);
            looks.ended();
        }
        assert_eq!(
            polls_to_a_look(&mut looks, 0),
            TCP_POLL_ALL_EVERY,
            "nothing came"
        );
        looks.saw_another(true);
        looks.saw_another(false);
        looks.ended();
        assert_eq!(
            polls_to_a_look(&mut looks, 3),
            TCP_POLL_ALL_EVERY,
            "another brought something"
        );
        looks.ended();
        assert_eq!(polls_to_a_look(&mut looks, 3), seldom, "only for one look");
    }

    #[test]
    fn a_connection_that_brings_something_in_every_poll_keeps_no_other_waiting() {
        let seldom = TCP_POLL_ALL_AFTER.as_micros() as u32 + TCP_POLL_ALL_EVERY;
        let mut looks = LookInterval::default();
        assert_eq!(polls_to_a_look(&mut looks, 1), seldom);
        looks.saw_another(true);
        looks.ended();
        assert_eq!(polls_to_a_look(&mut looks, 1), seldom);
    }

    #[test]
    fn who_polls_seldom_looks_as_often_as_ever() {
        let (mut looks, begun) = (LookInterval::default(), Instant::now());
        let polls =
            (1u32..).find(|poll| looks.is_due(1, || begun + Duration::from_millis((*poll).into())));
        assert_eq!(polls, Some(2 * TCP_POLL_ALL_EVERY));
    }
}
