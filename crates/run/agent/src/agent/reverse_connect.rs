//! Ranks that do not reach each other in one direction: who wants to be called tells its agent, the
//! agents pass that on, and the agent of the other rank calls that rank at its own port, on behalf
//! of the first. So the rank is woken as by any call, and nothing but who has the job's secret can
//! make it call.
//!
//! Bounded by [`CALLBACKS_MAX`]; one call for each pair and stream at a time, which lasts as long
//! as the rank computes.

use std::net::{IpAddr, SocketAddr};

use garonne_tcp::LocalIdentity;
use garonne_tcp::agent_channel::{self, ChannelConnect, ConnectOutcome};
use rustix::event::epoll;

use super::EpollToken;
use super::context::Context;
use garonne_job::agent_messages::ReverseConnectRequest;
use garonne_job::codes;
use garonne_job::limits::CALLBACKS_MAX;
use garonne_job::node_map::listed;

/// Connections that this node's agent opens to its own ranks on behalf of ranks of other hosts.
///
/// Owned by the agent. [`connect_to_rank`](Self::connect_to_rank) opens one, and
/// [`ready`](Self::ready) goes on with it as the epoll tells.
#[derive(Debug, Default)]
pub(super) struct ReverseConnects {
    pending: Vec<Option<PendingRequest>>,
}

#[derive(Debug)]
struct PendingRequest {
    request: ReverseConnectRequest,
    call: ChannelConnect,
    /// Addresses of this host that were not tried yet; the next one is the last.
    remaining_addresses: Vec<IpAddr>,
}

impl ReverseConnects {
    /// Calls a rank of this host on behalf of one of another, unless that is under way or too many
    /// are.
    pub fn connect_to_rank(&mut self, ctx: &Context<'_>, what: ReverseConnectRequest) {
        let under_way = self.pending.iter().flatten();
        if under_way.clone().any(|asking| asking.request == what)
            || under_way.count() >= CALLBACKS_MAX
        {
            return;
        }
        let mut left = ctx.hosts.addresses_of(ctx.node).to_vec();
        left.reverse();
        self.connect_at(ctx, what, left);
    }

    /// Calls the rank at the next address.
    fn connect_at(
        &mut self,
        ctx: &Context<'_>,
        what: ReverseConnectRequest,
        mut left: Vec<IpAddr>,
    ) {
        let (Some(secret), Some(port)) = (&ctx.secret, ctx.hosts.port_of(what.to)) else {
            return;
        };
        let identity: LocalIdentity =
            agent_channel::identity_of_asking(secret.clone(), ctx.id.0.to_ne_bytes(), what.from);
        while let Some(address) = left.pop() {
            let address = SocketAddr::new(address, port);
            let Ok(call) = ChannelConnect::ask(&identity, (address, what.to), what.bulk) else {
                continue;
            };
            let free = self.pending.iter().position(Option::is_none);
            let place = free.unwrap_or(self.pending.len());
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            let token = EpollToken::ReverseConnect(place as u32).pack();
            let watched = call
                .fd()
                .is_some_and(|fd| epoll::add(&ctx.epoll, fd, token, flags).is_ok());
            if !watched {
                continue;
            }
            let asking = Some(PendingRequest {
                request: what,
                call,
                remaining_addresses: left,
            });
            match free {
                Some(place) => self.pending[place] = asking,
                None => self.pending.push(asking),
            }
            return;
        }
    }

    /// Goes on with a call to a rank of this node.
    pub fn ready(&mut self, ctx: &Context<'_>, place: u32) {
        let Some(slot) = self.pending.get_mut(place as usize) else {
            return;
        };
        let Some(asking) = slot else { return };
        let had_called = asking.call.has_called();
        match asking.call.look() {
            ConnectOutcome::Waits => {
                if !had_called
                    && asking.call.has_called()
                    && let Some(fd) = asking.call.fd()
                {
                    let token = EpollToken::ReverseConnect(place).pack();
                    let _ = epoll::modify(&ctx.epoll, fd, token, epoll::EventFlags::IN);
                }
            }
            // The rank knows: nothing more is to be said.
            ConnectOutcome::Open(_) => *slot = None,
            ConnectOutcome::Failed(_) | ConnectOutcome::Refused(_) | ConnectOutcome::Cut(_) => {
                if let Some(PendingRequest {
                    request: what,
                    remaining_addresses: left,
                    ..
                }) = slot.take()
                {
                    self.connect_at(ctx, what, left);
                }
            }
        }
    }
}

/// Returns the failure of a rank of this node that does not reach another, nor that one it.
pub(super) fn unreachable(ctx: &Context<'_>, peer: u32) -> Option<String> {
    if peer >= ctx.job.size() || ctx.is_here(peer) {
        return None;
    }
    let (here, there) = (ctx.node, ctx.job.nodes.of(peer));
    let side = |node: u32| {
        format!(
            "host '{}' (ranks {})",
            ctx.host_name(node),
            listed(&ctx.job.ranks_of(node))
        )
    };
    let at: Vec<String> = ctx
        .addresses_now(there)
        .iter()
        .map(IpAddr::to_string)
        .collect();
    let tried = match at.is_empty() {
        true => String::from("has no address to call"),
        false => format!("reaches nobody at {}", at.join(", ")),
    };
    Some(format!(
        "error[{}]: {} and {} cannot reach each other: '{}' {tried}, and no call comes from '{}'",
        codes::G0229,
        side(here),
        side(there),
        ctx.host_name(here),
        ctx.host_name(there),
    ))
}

/// Returns the failure of a rank of this node that cannot have a connection to another.
pub(super) fn refused(
    ctx: &Context<'_>,
    (rank, peer): (u32, u32),
    code: &str,
    text: &str,
) -> Option<String> {
    let code = codes::find(code).filter(|_| peer < ctx.job.size())?;
    let host = |rank| ctx.host_name(ctx.job.nodes.of(rank));
    Some(format!(
        "error[{}]: rank {rank} on host '{}' cannot have a connection to rank {peer} on host '{}': {text}",
        code.id,
        host(rank),
        host(peer)
    ))
}
