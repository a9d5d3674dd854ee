//! Networks that hosts of a running job get: each agent looks when somebody asks
//! (`garonne rail add`), and all learn what was found.
//!
//! The first agent keeps the list, which only grows, in one order for all; each agent writes it
//! into its own board and rings its ranks, and goes by these networks itself where it has to call
//! another host.

use super::Agent;
use crate::addresses;
use crate::agent_messages::{AgentCommand, AgentReport};
use crate::limits::ADDED_MAX;
use crate::new_networks::{self, NewAddress};
use std::net::IpAddr;

impl Agent<'_> {
    /// Looks for addresses that this host did not have before.
    pub(super) fn look_for_addresses(&mut self) {
        if self.hosts.is_none() || !self.job.nodes.several() {
            return;
        }
        let known = self.own_addresses();
        let mut found = addresses::own();
        found.retain(|address| {
            !known.contains(address) && !self.added.contains(&(self.node, *address))
        });
        match found.is_empty() {
            true => {}
            false if self.up.is_some() => self.report(&AgentReport::Added(found)),
            false => self.have_addresses(self.node, &found),
        }
    }

    /// A host has got these addresses: for the first agent.
    pub(super) fn have_addresses(&mut self, node: u32, found: &[IpAddr]) {
        let before = self.added.len();
        for address in found {
            let entry = (node, *address);
            if self.added.len() < ADDED_MAX && !self.added.contains(&entry) {
                self.added.push(entry);
            }
        }
        if self.added.len() > before {
            self.order_all(&AgentCommand::Added(self.added.clone()));
            self.show_added();
        }
    }

    /// The first agent says which addresses there are besides those of the beginning.
    pub(super) fn added_are(&mut self, list: Vec<NewAddress>) {
        self.added = list;
        self.show_added();
    }

    fn show_added(&self) {
        for world in &self.worlds {
            new_networks::show(&world.board, &self.added);
        }
        self.look_around();
        self.ring_ranks();
    }
}
