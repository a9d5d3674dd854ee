//! Two hosts that nobody can call meet at a third one that both can call.
//!
//! Part of the search for ways (`gateway`), and its last resort: the first agent has such a host open its port ([`garonne_rails::tcp::relay`]), the job's own first, since all have called it before; then has the
//! agents of the two try whether they reach it, one after the other, and where both do, that host expects them and says so, and then the ranks of both learn of a way there (`ways`). Each calls the other by that, and the host between joins the
//! two calls. Nothing of this is kept while it is under way: each step's message bears all that the next one needs.

use super::Agent;
use super::gateway::Tried;
use crate::limits::VENUES_MAX;
use crate::orders::{Callback, Order, Report, Venue, Way};

impl Agent<'_> {
    /// Nobody reaches either of two: for the first agent, which has them meet at this host.
    pub(super) fn seek_venue_here(&mut self, call: Callback) {
        match self.is_between(call) {
            true => self.offer_venue(call),
            false => self.seek_venue_elsewhere(call),
        }
    }

    /// They do not reach this host, or it is one of theirs: others are asked.
    pub(super) fn seek_venue_elsewhere(&mut self, call: Callback) {
        let Some((from, to)) = self.nodes_of(call) else {
            return;
        };
        let count = self.job.nodes.names.len() as u32;
        let others = (0..count).filter(|node| ![self.node, from, to].contains(node));
        for node in others.take(VENUES_MAX).collect::<Vec<_>>() {
            self.order(node, &Order::Meet(call));
        }
    }

    /// Whether this node has neither of two ranks, which are on two others.
    fn is_between(&self, call: Callback) -> bool {
        self.nodes_of(call)
            .is_some_and(|(from, to)| from != to && ![from, to].contains(&self.node))
    }

    /// Two may meet at this node.
    pub(super) fn offer_venue(&mut self, call: Callback) {
        if !self.is_between(call) {
            return;
        }
        let Some(port) = self.gateway_port() else { return };
        match self.up.is_some() {
            true => self.report(&Report::Meets(call, port)),
            false => self.meets(call, (self.node, port)),
        }
    }

    /// Two may meet at a node: for the first agent, which has the first of them try whether it reaches that.
    pub(super) fn meets(&mut self, call: Callback, (via, port): (u32, u16)) {
        if let Some((from, _)) = self.nodes_of(call) {
            self.have_tried(from, Venue { call, via, port });
        }
    }

    fn have_tried(&mut self, node: u32, venue: Venue) {
        match node == self.node {
            true => self.try_venue(venue),
            false => self.order(node, &Order::Try(venue)),
        }
    }

    /// Tries whether this node reaches the one where two may meet; if it is that one itself, both have, and do meet there from now on.
    pub(super) fn try_venue(&mut self, venue: Venue) {
        if venue.via == self.node {
            let two = self.nodes_of(venue.call).filter(|_| self.is_between(venue.call));
            if two.is_some_and(|two| self.have_meet_here(two)) {
                self.venue_reached(venue);
            }
            return;
        }
        self.try_at(Tried::Venue(venue), (venue.via, venue.port));
    }

    /// This node reaches it, or is it.
    pub(super) fn venue_reached(&mut self, venue: Venue) {
        match self.up.is_some() {
            true => self.report(&Report::Reaches(venue)),
            false => self.reaches(venue, self.node),
        }
    }

    /// A node reaches the one where two may meet, or is that one and expects them: for the first agent.
    pub(super) fn reaches(&mut self, venue: Venue, node: u32) {
        let (call, via, port) = (venue.call, venue.via, venue.port);
        let Some((from, to)) = self.nodes_of(call) else {
            return;
        };
        match after(node, (from, to), via) {
            Then::Second => self.have_tried(to, venue),
            // Both are told of one at a time, so that both call there first.
            Then::Expect if self.is_settled_now((from, to)) => self.have_tried(via, venue),
            Then::Tell => {
                for (node, to) in [(from, to), (to, from)] {
                    self.tell_way(node, Way { to, via, port });
                }
            }
            Then::Expect | Then::Nothing => {}
        }
    }
}

/// What follows when a node says that it reaches the one where two may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Nothing,
    /// The first does: the second tries it.
    Second,
    /// Both do: it is to expect them.
    Expect,
    /// It does: both learn of it, and never before, since calls for which it does not wait it would try to pass on.
    Tell,
}

/// Pure. Each step is of one node, and the next is of another.
fn after(node: u32, (from, to): (u32, u32), via: u32) -> Then {
    match node {
        _ if from == to || [from, to].contains(&via) => Then::Nothing,
        node if node == from => Then::Second,
        node if node == to => Then::Expect,
        node if node == via => Then::Tell,
        _ => Then::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_learn_of_a_place_to_meet_when_that_expects_them_and_not_before() {
        let says = |node| after(node, (1, 2), 3);
        assert_eq!([1, 2, 3].map(says), [Then::Second, Then::Expect, Then::Tell]);
        assert_eq!(says(4), Then::Nothing);
        assert_eq!(after(1, (1, 1), 3), Then::Nothing);
        assert_eq!(after(1, (1, 2), 1), Then::Nothing);
        // The place may be the first agent's own.
        assert_eq!(after(0, (1, 2), 0), Then::Tell);
    }
}
