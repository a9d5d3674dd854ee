//! Networks that hosts of a running job get: each agent looks when somebody asks
//! (`garonne network add`), and all learn what was found.
//!
//! The first agent keeps the list, which only grows, in one order for all; each agent writes it
//! into its own board and rings its ranks, and goes by these networks itself where it has to call
//! another host.

use super::Agent;
use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::limits::ADDED_MAX;
use garonne_job::new_networks::{self, NewAddress};
use garonne_links::addresses;
use std::net::IpAddr;

impl Agent<'_> {
    /// Looks for addresses that this host did not have before.
    pub(super) fn find_new_addresses(&mut self) {
        if self.host_exchange.is_none() || !self.ctx.job.nodes.several() {
            return;
        }
        let known = self.own_addresses();
        let mut found = addresses::own();
        found.retain(|address| {
            !known.contains(address) && !self.new_addresses.contains(&(self.ctx.node, *address))
        });
        match found.is_empty() {
            true => {}
            false if self.ctx.is_child() => self.ctx.report(&AgentReport::NewAddresses(found)),
            false => self.report_new_addresses(self.ctx.node, &found),
        }
    }

    /// A host has got these addresses: for the first agent.
    pub(super) fn report_new_addresses(&mut self, node: u32, found: &[IpAddr]) {
        let before = self.new_addresses.len();
        for address in found {
            let entry = (node, *address);
            if self.new_addresses.len() < ADDED_MAX && !self.new_addresses.contains(&entry) {
                self.new_addresses.push(entry);
            }
        }
        if self.new_addresses.len() > before {
            self.ctx
                .command_all(&AgentCommand::NewAddresses(self.new_addresses.clone()));
            self.publish_new_addresses();
        }
    }

    /// The first agent says which addresses there are besides those of the beginning.
    pub(super) fn set_new_addresses(&mut self, list: Vec<NewAddress>) {
        self.new_addresses = list;
        self.publish_new_addresses();
    }

    fn publish_new_addresses(&self) {
        for world in &self.worlds {
            new_networks::show(&world.board, &self.new_addresses);
        }
        self.update_host_endpoints();
        self.wake_ranks();
    }
}
