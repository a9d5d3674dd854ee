//! When a rank that polls looks at all sockets, which is a call of the system beside the one by which it receives.
//!
//! Part of [`TcpRail`](super::TcpRail). Between two looks only the connection that brought something last is received from. Counts polls, reads no clock; bounded by [`TCP_LOOK_SELDOM`].

use crate::limits::{TCP_LOOK_EVERY, TCP_LOOK_SELDOM};

/// When all sockets are looked at, and not only that which brought something last.
#[derive(Debug, Default)]
pub(super) struct Glance {
    /// Polls since the last look, and how many there are to be.
    polls: u32,
    every: u32,
    /// That socket has brought something since.
    brought: bool,
}

impl Glance {
    /// A poll of that socket has told of so much. Whether all are due.
    #[inline]
    pub(super) fn is_due(&mut self, told: u32) -> bool {
        self.polls += 1;
        self.brought |= told > 0;
        told == 0 && self.polls >= self.every
    }

    /// All were looked at, and no other has brought anything (`alone`).
    pub(super) fn ended(&mut self, alone: bool) {
        let seldom = alone && self.brought;
        let every = if seldom { 2 * self.every } else { 0 };
        *self = Self {
            every: every.clamp(TCP_LOOK_EVERY, TCP_LOOK_SELDOM),
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls up to the next look, of which that one tells of something of the one connection.
    fn polls_to_a_look(glance: &mut Glance, brings: Option<u32>) -> u32 {
        (1..=10 * TCP_LOOK_SELDOM)
            .find(|poll| glance.is_due(u32::from(brings == Some(*poll))))
            .expect("all are looked at in the end")
    }

    #[test]
    fn looks_grow_rare_only_while_the_one_connection_brings_something_and_no_other_does() {
        let mut glance = Glance::default();
        glance.ended(true);
        for expected in [4, 8, 16, 32, 32] {
            assert_eq!(polls_to_a_look(&mut glance, Some(2)), expected);
            glance.ended(true);
        }
        assert_eq!(polls_to_a_look(&mut glance, Some(2)), TCP_LOOK_SELDOM);
        glance.ended(false);
        assert_eq!(
            polls_to_a_look(&mut glance, Some(2)),
            TCP_LOOK_EVERY,
            "another brought something"
        );
        glance.ended(true);
        glance.is_due(1);
        glance.ended(true);
        assert_eq!(polls_to_a_look(&mut glance, None), 16);
        glance.ended(true);
        assert_eq!(polls_to_a_look(&mut glance, None), TCP_LOOK_EVERY, "nothing came");
    }
}
