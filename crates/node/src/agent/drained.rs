//! `garonne rail`: networks are taken out of use, and into use again, on all hosts of a running job.
//!
//! Whoever is asked passes the change to the first agent, which keeps the list, and tells all; each agent writes it into its own board and rings its ranks. What would leave a host
//! without a network the first agent passes over: two may have asked at once.

use garonne_sync::doorbell::Doorbell;
use ipnet::IpNet;

use super::Agent;
use crate::drained;
use crate::layout::{Card, State};
use crate::limits::DRAINED_MAX;
use crate::orders::{Order, Report};

impl Agent<'_> {
    /// A network is to be used or not.
    pub(super) fn set_drained(&mut self, network: IpNet, drained: bool) {
        if self.up.is_some() {
            return self.report(&Report::Drain(network, drained));
        }
        let known = self.drained.iter().position(|known| *known == network);
        match (known, drained) {
            (None, true)
                if self.drained.len() < DRAINED_MAX
                    && drained::loses_last(&self.places_now(), &self.drained, &network).is_none() =>
            {
                self.drained.push(network);
            }
            (Some(known), false) => {
                self.drained.remove(known);
            }
            // Nothing changes but what hosts may have got since.
            (None, false) => {}
            _ => return,
        }
        let order = Order::Drained(self.drained.clone());
        self.order_all(&order);
        self.show_drained();
        self.look_for_addresses();
    }

    /// The first agent says which networks are not to be used.
    pub(super) fn drained_are(&mut self, networks: Vec<IpNet>) {
        self.drained = networks;
        self.show_drained();
        self.look_for_addresses();
        self.move_line();
    }

    fn show_drained(&self) {
        for world in &self.worlds {
            drained::write(&world.board, &self.drained);
        }
        self.ring_ranks();
    }

    /// Has the ranks of this host look at what was changed on their boards.
    pub(super) fn ring_ranks(&self) {
        for world in &self.worlds {
            for rank in 0..world.shape.size {
                let card = Card::of(&world.board, rank);
                if self.is_here(rank) && card.state() == State::Running {
                    Doorbell::new(card.doorbell()).ring_fenced();
                }
            }
        }
    }
}
