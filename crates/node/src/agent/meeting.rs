//! Two hosts that nobody can call meet at a third one that both can call.
//!
//! Part of the search for ways (`gateway`), and its last resort: the first agent has such a host open its port ([`garonne_rails::tcp::relay`]), the job's own first, since all have called it before; then has the
//! agents of the two try whether they reach it, one after the other, and where both do, that host expects them, and the ranks of both learn of a way there (`ways`). Each calls the other by that, and the host between joins the
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
            if let Some(two) = self.nodes_of(venue.call).filter(|_| self.is_between(venue.call)) {
                self.have_meet_here(two);
            }
            return;
        }
        self.try_at(Tried::Venue(venue), (venue.via, venue.port));
    }

    /// This node reaches it.
    pub(super) fn venue_reached(&mut self, venue: Venue) {
        match self.up.is_some() {
            true => self.report(&Report::Reaches(venue)),
            false => self.reaches(venue, self.node),
        }
    }

    /// A node reaches the one where two may meet: for the first agent, which has the second try it after the first, and tells both after the second.
    pub(super) fn reaches(&mut self, venue: Venue, node: u32) {
        let (call, via, port) = (venue.call, venue.via, venue.port);
        let Some((from, to)) = self.nodes_of(call) else {
            return;
        };
        match node {
            _ if from == to => {}
            node if node == from => self.have_tried(to, venue),
            // Both are told of one at a time, so that both call there first; and before them the one that is to expect them.
            node if node == to && self.is_settled_now((from, to)) => {
                self.have_tried(via, venue);
                for (node, to) in [(from, to), (to, from)] {
                    self.tell_way(node, Way { to, via, port });
                }
            }
            _ => {}
        }
    }
}
