//! Two hosts that nobody can call meet at a third one that both can call.
//!
//! Part of the search for ways (`relays`), and its last resort: the first agent has such a host
//! open its port ([`garonne_tcp::relay`]), the job's own first, since all have called it
//! before; then has the agents of the two try whether they reach it, one after the other, and where
//! both do, that host expects them and says so, and then the ranks of both learn of a way there
//! (`relay_routes`), unless they have just learned of another. A host that cannot expect them, or
//! of which nothing is heard any more, is none, and keeps no other from being it. Each calls the
//! other by that, and the host between joins the two calls. Nothing of this is kept while it is
//! under way: each step's message bears all that the next one needs.

use std::time::Instant;

use super::context::Context;
use super::relay_search::RelaySearch;
use super::relays::{ProbeTarget, Relays};
use super::worlds::Worlds;
use garonne_job::agent_messages::{
    AgentCommand, AgentReport, RelayRoute, RendezvousPoint, ReverseConnectRequest,
};
use garonne_job::limits::RENDEZVOUS_HOSTS_MAX;

impl Relays {
    /// Nobody reaches either of two: for the first agent, which has them meet at this host.
    pub fn search_rendezvous_at_root(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        call: ReverseConnectRequest,
        failed: u32,
    ) {
        match self.is_possible_rendezvous(ctx, call) {
            true => self.offer_rendezvous(ctx, worlds, call),
            false => self.search_rendezvous_elsewhere(ctx, call, failed),
        }
    }

    /// Looks for a rendezvous at hosts other than the root's. The two do not reach that one, or it
    /// is one of theirs. Others are asked, in each round that came to nothing those behind the ones
    /// of the round before.
    pub fn search_rendezvous_elsewhere(
        &mut self,
        ctx: &mut Context<'_>,
        call: ReverseConnectRequest,
        failed: u32,
    ) {
        let Some((from, to)) = ctx.nodes_of(call) else {
            return;
        };
        let count = ctx.job.nodes.names.len() as u32;
        let others: Vec<u32> = (0..count)
            .filter(|node| ![ctx.node, from, to].contains(node))
            .collect();
        for node in of_round(&others, failed) {
            ctx.command(node, &AgentCommand::OpenRendezvous(call));
        }
    }

    /// Returns whether this node has neither of two ranks, which are on two others.
    fn is_possible_rendezvous(&self, ctx: &Context<'_>, call: ReverseConnectRequest) -> bool {
        ctx.nodes_of(call)
            .is_some_and(|(from, to)| from != to && ![from, to].contains(&ctx.node))
    }

    /// Two may meet at this node.
    pub fn offer_rendezvous(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        call: ReverseConnectRequest,
    ) {
        if !self.is_possible_rendezvous(ctx, call) {
            return;
        }
        let Some(port) = self.relay_port(ctx) else {
            return;
        };
        match ctx.is_child() {
            true => ctx.report(&AgentReport::RendezvousOpened(call, port)),
            false => self.rendezvous_opened(ctx, worlds, call, (ctx.node, port)),
        }
    }

    /// Two may meet at a node: for the first agent, which has the first of them try whether it
    /// reaches that.
    pub fn rendezvous_opened(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        call: ReverseConnectRequest,
        (via, port): (u32, u16),
    ) {
        if let Some((from, _)) = ctx.nodes_of(call) {
            self.order_rendezvous_try(ctx, worlds, from, RendezvousPoint { call, via, port });
        }
    }

    fn order_rendezvous_try(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        node: u32,
        venue: RendezvousPoint,
    ) {
        match node == ctx.node {
            true => self.try_rendezvous(ctx, worlds, venue),
            false => ctx.command(node, &AgentCommand::TryRendezvous(venue)),
        }
    }

    /// Tries whether this node reaches the one where two may meet; if it is that one itself, both
    /// have, and do meet there from now on.
    pub fn try_rendezvous(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        venue: RendezvousPoint,
    ) {
        if venue.via == ctx.node {
            let two = ctx
                .nodes_of(venue.call)
                .filter(|_| self.is_possible_rendezvous(ctx, venue.call));
            if two.is_some_and(|two| self.expect_rendezvous_here(ctx, two)) {
                self.rendezvous_probe_reached(ctx, worlds, venue);
            }
            return;
        }
        self.start_probe(ctx, ProbeTarget::Venue(venue), (venue.via, venue.port));
    }

    /// This node reaches it, or is it.
    pub fn rendezvous_probe_reached(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        venue: RendezvousPoint,
    ) {
        match ctx.is_child() {
            true => ctx.report(&AgentReport::RendezvousReached(venue)),
            false => self.rendezvous_reached(ctx, worlds, venue, ctx.node),
        }
    }

    /// A node reaches the one where two may meet, or is that one and expects them: for the first
    /// agent.
    pub fn rendezvous_reached(
        &mut self,
        ctx: &mut Context<'_>,
        worlds: &Worlds,
        venue: RendezvousPoint,
        node: u32,
    ) {
        let (call, via, port) = (venue.call, venue.via, venue.port);
        let Some((from, to)) = ctx.nodes_of(call) else {
            return;
        };
        match next(
            self.advance_relay_search(),
            (node, via),
            (from, to),
            Instant::now(),
        ) {
            RendezvousStep::Second => self.order_rendezvous_try(ctx, worlds, to, venue),
            RendezvousStep::Expect => self.order_rendezvous_try(ctx, worlds, via, venue),
            RendezvousStep::Tell => {
                for (node, to) in [(from, to), (to, from)] {
                    self.announce_route(ctx, worlds, node, RelayRoute { to, via, port });
                }
            }
            RendezvousStep::Nothing => {}
        }
    }
}

/// Next step when a node reports that it reaches a rendezvous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RendezvousStep {
    Nothing,
    /// The first does: the second tries it.
    Second,
    /// Both do: it is to expect them.
    Expect,
    /// Both nodes reach the rendezvous and learn of it, and never before, since calls for which it
    /// does not wait it would try to pass on.
    Tell,
}

/// Returns the next step, or none if the two were just told of another place. Both are told of one
/// at a time, so that both connect there first. What has not agreed yet to be that place keeps no
/// other from it.
fn next(
    search: &mut RelaySearch,
    (node, via): (u32, u32),
    two: (u32, u32),
    now: Instant,
) -> RendezvousStep {
    match after(node, two, via) {
        RendezvousStep::Expect if search.is_settled(two, now) => RendezvousStep::Nothing,
        RendezvousStep::Tell if !search.settle(two, now) => RendezvousStep::Nothing,
        then => then,
    }
}

/// Pure. Each step is of one node, and the next is of another.
fn after(node: u32, (from, to): (u32, u32), via: u32) -> RendezvousStep {
    match node {
        _ if from == to || [from, to].contains(&via) => RendezvousStep::Nothing,
        node if node == from => RendezvousStep::Second,
        node if node == to => RendezvousStep::Expect,
        node if node == via => RendezvousStep::Tell,
        _ => RendezvousStep::Nothing,
    }
}

/// Returns the hosts that are asked in a round, after `failed` rounds without success.
fn of_round(others: &[u32], failed: u32) -> Vec<u32> {
    let first = (failed as usize).wrapping_mul(RENDEZVOUS_HOSTS_MAX) % others.len().max(1);
    let (before, behind) = others.split_at(first);
    behind
        .iter()
        .chain(before)
        .take(RENDEZVOUS_HOSTS_MAX)
        .copied()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_does_not_agree_keeps_no_other_from_being_it_and_they_are_told_of_one() {
        let (mut search, now) = (RelaySearch::default(), Instant::now());
        let mut says = |node, via| next(&mut search, (node, via), (1, 2), now);
        assert_eq!(
            [1, 2].map(|node| says(node, 3)),
            [RendezvousStep::Second, RendezvousStep::Expect]
        );
        // It says no more. Two others do at the same time.
        for via in [4, 5] {
            assert_eq!(
                [1, 2].map(|node| says(node, via)),
                [RendezvousStep::Second, RendezvousStep::Expect]
            );
        }
        assert_eq!(
            [says(4, 4), says(5, 5)],
            [RendezvousStep::Tell, RendezvousStep::Nothing]
        );
        assert_eq!(
            [1, 2].map(|node| says(node, 6)),
            [RendezvousStep::Second, RendezvousStep::Nothing]
        );
    }

    #[test]
    fn all_hosts_are_asked_in_some_round() {
        assert!(of_round(&[], 3).is_empty());
        assert_eq!(of_round(&[4, 5], 3), [4, 5]);
        let others: Vec<u32> = (0..3 * RENDEZVOUS_HOSTS_MAX as u32 + 1).collect();
        let mut asked: Vec<u32> = (0..4)
            .flat_map(|failed| of_round(&others, failed))
            .collect();
        assert_eq!(asked.len(), 4 * RENDEZVOUS_HOSTS_MAX);
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(asked, others);
    }

    #[test]
    fn both_learn_of_a_place_to_meet_when_that_expects_them_and_not_before() {
        let says = |node| after(node, (1, 2), 3);
        assert_eq!(
            [1, 2, 3].map(says),
            [
                RendezvousStep::Second,
                RendezvousStep::Expect,
                RendezvousStep::Tell
            ]
        );
        assert_eq!(says(4), RendezvousStep::Nothing);
        assert_eq!(after(1, (1, 1), 3), RendezvousStep::Nothing);
        assert_eq!(after(1, (1, 2), 1), RendezvousStep::Nothing);
        // The place may be the first agent's own.
        assert_eq!(after(0, (1, 2), 0), RendezvousStep::Tell);
    }
}
