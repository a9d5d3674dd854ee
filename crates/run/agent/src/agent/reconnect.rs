//! An agent's line to the one above it goes on by another connection, and by another network if
//! there is one: where the connection has failed, where nothing was heard for [`LINE_QUIET`], and
//! where its network is to be left alone (`garonne network drain`).
//!
//! All addresses are called at once, each round with a higher turn; the first that proves itself is
//! taken, the others are dropped before they have proved anything. Meanwhile the line before may
//! come to life again, which ends the round. Only the agent below calls; the one above waits
//! (`child_agents`).

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use garonne_tcp::agent_channel::{self, ChannelConnect, ConnectOutcome};
use rustix::event::epoll;

use super::{Agent, EpollToken};
use garonne_job::limits::{LINE_QUIET, MOVE_ROUNDS, RENEWAL_ROUND};
use garonne_links::addresses;

/// Attempts to replace the connection to the parent, at all addresses at once.
#[derive(Debug, Default)]
pub(super) struct Reconnect {
    turn: u32,
    calls: Vec<Option<ChannelConnect>>,
    /// When the last round began.
    begun: Option<Instant>,
    /// Rounds that are still to be tried for a network that is to be left alone.
    moves: u32,
    /// The last round is one of these.
    moving: bool,
}

impl Agent<'_> {
    /// When to look at the line.
    pub(super) fn reconnect_due(&self) -> Option<Instant> {
        let up = self.child_role.as_ref()?;
        let trunk = up.link.as_ref()?;
        let again = up.reconnect.begun.map(|begun| begun + RENEWAL_ROUND);
        let quiet = trunk.heard() + LINE_QUIET;
        match trunk.is_down() || up.reconnect.moves > 0 {
            true => again.or(Some(trunk.heard())),
            false => again.map(|again| again.max(quiet)).or(Some(quiet)),
        }
    }

    /// The networks to be left alone have changed.
    pub(super) fn move_link(&mut self) {
        let is_there = self.link_is_on_disabled_network();
        if let Some(up) = &mut self.child_role {
            up.reconnect.moves = if is_there { MOVE_ROUNDS } else { 0 };
            up.reconnect.begun = None;
        }
        self.check_link(Instant::now());
    }

    fn link_is_on_disabled_network(&self) -> bool {
        let trunk = self.child_role.as_ref().and_then(|up| up.link.as_ref());
        let is_out = |address: SocketAddr| self.is_on_disabled_network(address.ip());
        let ends = trunk.and_then(|trunk| trunk.ends());
        ends.is_some_and(|(own, other)| is_out(own) || is_out(other))
    }

    fn is_on_disabled_network(&self, address: IpAddr) -> bool {
        addresses::is_of(&self.disabled_networks, address)
    }

    /// Calls the agent above again where that is due, and no longer where it is not.
    pub(super) fn check_link(&mut self, now: Instant) {
        let Some(up) = &mut self.child_role else {
            return;
        };
        let Some(trunk) = &up.link else { return };
        let is_silent = trunk.is_down() || now >= trunk.heard() + LINE_QUIET;
        let in_round = up
            .reconnect
            .begun
            .is_some_and(|begun| now < begun + RENEWAL_ROUND);
        if in_round && (is_silent || up.reconnect.moving) {
            return;
        }
        if !is_silent && up.reconnect.moves == 0 {
            up.reconnect.calls.clear();
            up.reconnect.begun = None;
            return;
        }
        up.reconnect.begun = Some(now);
        up.reconnect.turn += 1;
        up.reconnect.calls.clear();
        up.reconnect.moving = !is_silent;
        if !is_silent {
            up.reconnect.moves -= 1;
        }
        let (turn, received, port, reached) = (
            up.reconnect.turn,
            trunk.received(),
            up.port,
            up.parent_address,
        );
        let parent = up.parent;
        let house = agent_channel::house(up.secret.clone(), self.id.0.to_ne_bytes(), self.node);
        let house = agent_channel::house_again(house, turn);
        let mut addresses = self.addresses_now(parent);
        if addresses.is_empty() {
            addresses.push(reached);
        }
        // A network that is to be left alone is better than none.
        if !is_silent
            || addresses
                .iter()
                .any(|address| !self.is_on_disabled_network(*address))
        {
            addresses.retain(|address| !self.is_on_disabled_network(*address));
        }
        let calls = addresses.into_iter().filter_map(|address| {
            let address = SocketAddr::new(address, port);
            ChannelConnect::begin_again(&house, (address, parent), received).ok()
        });
        let calls: Vec<_> = calls.map(Some).collect();
        for (call, place) in calls.iter().flatten().zip(0..) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            if let Some(fd) = call.fd() {
                let _ = epoll::add(&self.epoll, fd, EpollToken::Reconnect(place).pack(), flags);
            }
        }
        if let Some(up) = &mut self.child_role {
            up.reconnect.calls = calls;
        }
    }

    /// Reconnects to the parent where no epoll tells when a socket is ready.
    pub(super) fn reconnect_now(&mut self) {
        self.check_link(Instant::now());
        let calls = self
            .child_role
            .as_ref()
            .map_or(0, |up| up.reconnect.calls.len());
        (0..calls as u32).for_each(|place| self.reconnect_ready(place));
    }

    /// A call goes on.
    pub(super) fn reconnect_ready(&mut self, place: u32) {
        let Some(up) = &mut self.child_role else {
            return;
        };
        let Some(slot) = up.reconnect.calls.get_mut(place as usize) else {
            return;
        };
        let Some(call) = slot else { return };
        let had_called = call.has_called();
        match call.look() {
            ConnectOutcome::Waits => {
                if !had_called
                    && call.has_called()
                    && let Some(fd) = call.fd()
                {
                    let token = EpollToken::Reconnect(place).pack();
                    let _ = epoll::modify(&self.epoll, fd, token, epoll::EventFlags::IN);
                }
            }
            ConnectOutcome::Failed(_) | ConnectOutcome::Refused(_) | ConnectOutcome::Cut(_) => {
                *slot = None
            }
            ConnectOutcome::Open(line) => {
                let (turn, parent) = (up.reconnect.turn, up.parent);
                up.reconnect.calls.clear();
                (up.reconnect.begun, up.reconnect.moves) = (None, 0);
                let trunk = up.link.as_mut();
                let renewed = trunk.is_some_and(|trunk| {
                    trunk.replace_connection(&self.epoll, (*line, turn)).is_ok()
                });
                match renewed {
                    true => {
                        self.share_connection(parent);
                        self.read_parent();
                    }
                    false => self.parent_lost(),
                }
            }
        }
    }
}
