//! Networks that hosts of a running job get: each agent looks when somebody asks
//! (`garonne network add`), and all learn what was found.
//!
//! The first agent keeps the list, which only grows, in one order for all; each agent writes it
//! into its own board and rings its ranks, and goes by these networks itself where it has to call
//! another host.

use std::net::IpAddr;

use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::new_networks::{self, NewAddress};
use garonne_links::addresses;

use super::context::Context;
use super::relays::Relays;
use super::worlds::Worlds;

/// Users of the networks of hosts: ranks, by their boards, and the relay of this node.
#[derive(Clone, Copy)]
pub(super) struct NetworkUsers<'a> {
    /// Worlds of the ranks.
    pub worlds: &'a Worlds,
    /// Relay of this node.
    pub relays: &'a Relays,
}

impl NetworkUsers<'_> {
    /// Has them look at what was changed.
    pub fn notify(self, ctx: &Context<'_>) {
        self.relays.update_host_endpoints(ctx);
        self.worlds.wake_ranks(ctx);
    }
}

/// Looks for addresses that this host did not have before.
pub(super) fn find(ctx: &mut Context<'_>, users: NetworkUsers<'_>) {
    if !ctx.hosts.are_known() || !ctx.job.nodes.several() {
        return;
    }
    let known = ctx.hosts.addresses_of(ctx.node);
    let mut found = addresses::own();
    found.retain(|address| {
        !known.contains(address) && !ctx.hosts.new_addresses().contains(&(ctx.node, *address))
    });
    match found.is_empty() {
        true => {}
        false if ctx.is_child() => ctx.report(&AgentReport::NewAddresses(found)),
        false => add(ctx, users, ctx.node, &found),
    }
}

/// Notes addresses that a host has got, and tells all: at the first agent.
pub(super) fn add(ctx: &mut Context<'_>, users: NetworkUsers<'_>, node: u32, found: &[IpAddr]) {
    if ctx.hosts.add_new_addresses(node, found) {
        let list = ctx.hosts.new_addresses().to_vec();
        ctx.command_all(&AgentCommand::NewAddresses(list));
        publish(ctx, users);
    }
}

/// Takes the list of addresses that there are besides those of the beginning from the first agent.
pub(super) fn set(ctx: &mut Context<'_>, users: NetworkUsers<'_>, list: Vec<NewAddress>) {
    ctx.hosts.set_new_addresses(list);
    publish(ctx, users);
}

fn publish(ctx: &Context<'_>, users: NetworkUsers<'_>) {
    for world_memory in users.worlds.world_memories() {
        new_networks::show(world_memory, ctx.hosts.new_addresses());
    }
    users.notify(ctx);
}
