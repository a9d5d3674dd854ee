//! An agent's line to the one above it goes on by another connection, and by another network if
//! there is one: where the connection has failed, where nothing was heard for [`LINE_QUIET`], and
//! where its network is to be left alone (`garonne rail drain`).
//!
//! All addresses are called at once, each round with a higher turn; the first that proves itself is
//! taken, the others are dropped before they have proved anything. Meanwhile the line before may
//! come to life again, which ends the round. Only the agent below calls; the one above waits
//! (`child_agents`).

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use garonne_rails::tcp::trusted::{self, Call, Called};
use rustix::event::epoll;

use super::{Agent, EpollToken};
use crate::addresses;
use crate::limits::{LINE_QUIET, MOVE_ROUNDS, RENEWAL_ROUND};

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(super) struct Reconnect {
    turn: u32,
    calls: Vec<Option<Call>>,
    /// When the last round began.
    begun: Option<Instant>,
    /// Rounds that are still to be tried for a network that is to be left alone.
    moves: u32,
    /// The last round is one of these.
    moving: bool,
}

impl Agent<'_> {
    /// When to look at the line.
    pub(super) fn renewal_due(&self) -> Option<Instant> {
        let up = self.up.as_ref()?;
        let trunk = up.trunk.as_ref()?;
        let again = up.renewal.begun.map(|begun| begun + RENEWAL_ROUND);
        let quiet = trunk.heard() + LINE_QUIET;
        match trunk.is_down() || up.renewal.moves > 0 {
            true => again.or(Some(trunk.heard())),
            false => again.map(|again| again.max(quiet)).or(Some(quiet)),
        }
    }

    /// The networks to be left alone have changed.
    pub(super) fn move_line(&mut self) {
        let is_there = self.line_is_drained();
        if let Some(up) = &mut self.up {
            up.renewal.moves = if is_there { MOVE_ROUNDS } else { 0 };
            up.renewal.begun = None;
        }
        self.keep_line(Instant::now());
    }

    fn line_is_drained(&self) -> bool {
        let trunk = self.up.as_ref().and_then(|up| up.trunk.as_ref());
        let is_out = |address: SocketAddr| self.is_drained(address.ip());
        let ends = trunk.and_then(|trunk| trunk.ends());
        ends.is_some_and(|(own, other)| is_out(own) || is_out(other))
    }

    fn is_drained(&self, address: IpAddr) -> bool {
        addresses::is_of(&self.drained, address)
    }

    /// Calls the agent above again where that is due, and no longer where it is not.
    pub(super) fn keep_line(&mut self, now: Instant) {
        let Some(up) = &mut self.up else { return };
        let Some(trunk) = &up.trunk else { return };
        let is_silent = trunk.is_down() || now >= trunk.heard() + LINE_QUIET;
        let in_round = up
            .renewal
            .begun
            .is_some_and(|begun| now < begun + RENEWAL_ROUND);
        if in_round && (is_silent || up.renewal.moving) {
            return;
        }
        if !is_silent && up.renewal.moves == 0 {
            up.renewal.calls.clear();
            up.renewal.begun = None;
            return;
        }
        up.renewal.begun = Some(now);
        up.renewal.turn += 1;
        up.renewal.calls.clear();
        up.renewal.moving = !is_silent;
        if !is_silent {
            up.renewal.moves -= 1;
        }
        let (turn, received, port, reached) =
            (up.renewal.turn, trunk.received(), up.port, up.reached);
        let parent = up.parent;
        let house = trusted::house(up.secret.clone(), self.id.0.to_ne_bytes(), self.node);
        let house = trusted::house_again(house, turn);
        let mut addresses = self.addresses_now(parent);
        if addresses.is_empty() {
            addresses.push(reached);
        }
        // A network that is to be left alone is better than none.
        if !is_silent || addresses.iter().any(|address| !self.is_drained(*address)) {
            addresses.retain(|address| !self.is_drained(*address));
        }
        let calls = addresses.into_iter().filter_map(|address| {
            let address = SocketAddr::new(address, port);
            Call::begin_again(&house, (address, parent), received).ok()
        });
        let calls: Vec<_> = calls.map(Some).collect();
        for (call, place) in calls.iter().flatten().zip(0..) {
            let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            if let Some(fd) = call.fd() {
                let _ = epoll::add(&self.epoll, fd, EpollToken::Renewal(place).pack(), flags);
            }
        }
        if let Some(up) = &mut self.up {
            up.renewal.calls = calls;
        }
    }

    /// The same, where nobody is told when a call's socket is ready.
    pub(super) fn renew_at_once(&mut self) {
        self.keep_line(Instant::now());
        let calls = self.up.as_ref().map_or(0, |up| up.renewal.calls.len());
        (0..calls as u32).for_each(|place| self.renewal_ready(place));
    }

    /// A call goes on.
    pub(super) fn renewal_ready(&mut self, place: u32) {
        let Some(up) = &mut self.up else { return };
        let Some(slot) = up.renewal.calls.get_mut(place as usize) else {
            return;
        };
        let Some(call) = slot else { return };
        let had_called = call.has_called();
        match call.look() {
            Called::Waits => {
                if !had_called
                    && call.has_called()
                    && let Some(fd) = call.fd()
                {
                    let token = EpollToken::Renewal(place).pack();
                    let _ = epoll::modify(&self.epoll, fd, token, epoll::EventFlags::IN);
                }
            }
            Called::Failed(_) | Called::Refused(_) | Called::Cut(_) => *slot = None,
            Called::Open(line) => {
                let (turn, parent) = (up.renewal.turn, up.parent);
                up.renewal.calls.clear();
                (up.renewal.begun, up.renewal.moves) = (None, 0);
                let trunk = up.trunk.as_mut();
                let renewed =
                    trunk.is_some_and(|trunk| trunk.renew(&self.epoll, (*line, turn)).is_ok());
                match renewed {
                    true => {
                        self.show_line(parent);
                        self.first_speaks();
                    }
                    false => self.cut_off(),
                }
            }
        }
    }
}
