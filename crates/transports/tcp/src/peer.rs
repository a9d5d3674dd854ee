//! One peer of the TCP transport: its streams, and the calls that open them again.
//!
//! Owned by the transport; made when the peer is first spoken to or calls. Says when a peer counts
//! as gone: by its closed port, by silence, by calls that come to nothing. Time is an argument.

use crate::blackhole_detector::BlackholeDetector;
use crate::coalescer::QueuedSince;
use crate::connector::{ConnectFailure, Connector};
use crate::frame::{RejectReason, StreamNumber};
use crate::handshake::HandshakeError;
use crate::multipath::Multipath;
use crate::packet_stream::PacketStream;
use garonne_transport::limits::{
    TCP_DISABLED_AFTER, TCP_FRUITLESS_MAX, TCP_FRUITLESS_WRONG, TCP_GIVE_WAY_AFTER,
    TCP_GIVE_WAY_MAX, TCP_HIGHER_RANK_DELAY, TCP_LOST_LIMIT, TCP_REFUSED_LIMIT,
    TCP_RELAYED_REQUEST_EVERY, TCP_RETRY_FIRST, TCP_RETRY_MAX, TCP_REVERSE_CONNECT_AFTER,
    TCP_REVERSE_CONNECT_EVERY, TCP_UNREACHABLE_LIMIT,
};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// State of a call.
#[derive(Debug, Default)]
pub(crate) enum ConnectState {
    /// Nobody needs it, or the stream is open.
    #[default]
    Rest,
    /// Under way.
    Out(Box<Connector>),
    /// To be tried at this time.
    At(Instant),
}

/// The history of a stream's calls.
#[derive(Debug)]
pub(crate) struct ConnectAttempts {
    pub(crate) call: ConnectState,
    retry: Duration,
    fruitless: u32,
    lost_since: Option<Instant>,
    refused_since: Option<Instant>,
    /// Which of the peer's addresses is tried; one that worked is kept.
    address: usize,
    /// The first of the peer's addresses when one was last tried. None: they are tried in turn all
    /// the same.
    first: Option<SocketAddr>,
    /// The peer's end of the connection that stands, or stood last.
    pub(crate) met: Option<IpAddr>,
    /// When the peer was last asked to call from its side.
    asked: Option<Instant>,
    /// Since when the peer asks for our call: it does not reach us.
    wanted_there: Option<Instant>,
    /// Time that a call waits for its answer before it is given up when the peer asks for another.
    /// Longer each time: it may be the answer that takes so long.
    patience: Duration,
    /// The socket is watched for room.
    pub(crate) watches_room: bool,
    pub(crate) silences: BlackholeDetector,
}

/// Decision after an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RetryDecision {
    /// The call is tried again.
    Again,
    /// The peer counts as gone.
    Gone,
    /// Neither side reaches the other.
    Apart,
}

impl Default for ConnectAttempts {
    fn default() -> Self {
        Self {
            call: ConnectState::Rest,
            retry: TCP_RETRY_FIRST,
            fruitless: 0,
            lost_since: None,
            refused_since: None,
            address: 0,
            first: None,
            met: None,
            asked: None,
            wanted_there: None,
            patience: TCP_GIVE_WAY_AFTER,
            watches_room: false,
            silences: BlackholeDetector::default(),
        }
    }
}

impl ConnectAttempts {
    /// Calls as soon as there is time, unless it is under way.
    pub(crate) fn want(&mut self, now: Instant) {
        if matches!(self.call, ConnectState::Rest) {
            self.call = ConnectState::At(now);
        }
    }

    /// The stream is open.
    pub(crate) fn opened(&mut self) {
        let (address, first, silences) =
            (self.address, self.first, std::mem::take(&mut self.silences));
        *self = Self {
            address,
            first,
            silences,
            ..Self::default()
        };
    }

    /// This side was kept from looking for so long, up to now: it could neither call nor be called.
    pub(crate) fn away(&mut self, time: Duration, now: Instant) {
        let counted = [
            &mut self.lost_since,
            &mut self.refused_since,
            &mut self.wanted_there,
        ];
        for since in counted.into_iter().flatten() {
            *since = (*since + time).min(now);
        }
    }

    /// The first address is tried again first.
    pub(crate) fn start_over(&mut self) {
        self.address = 0;
    }

    /// Tries this address of the peer next.
    pub(crate) fn turn_to(&mut self, address: usize) {
        (self.address, self.first) = (address, None);
    }

    /// The stream broke; who is to call again does.
    pub(crate) fn broke(&mut self, now: Instant, higher: bool) {
        (self.lost_since, self.wanted_there) = (Some(now), None);
        self.watches_room = false;
        self.call = ConnectState::At(if higher {
            now + TCP_HIGHER_RANK_DELAY
        } else {
            now
        });
    }

    /// The peer does not reach this side, and wants to be called. So it is called again where a
    /// call has stood unanswered: whoever has that is not the peer, or is where the peer does not
    /// come.
    pub(crate) fn wanted_there(&mut self, now: Instant) {
        self.wanted_there.get_or_insert(now);
        if self.is_unanswered(now) {
            self.leave(now);
            self.patience = (self.patience * 2).min(TCP_GIVE_WAY_MAX);
        }
        self.want(now);
    }

    /// The peer wants to be called while the stream is open here. Whether it has said so before,
    /// and this end alone seems to stand: what was on its way when the stream opened comes once.
    pub(crate) fn wanted_though_open(&mut self, now: Instant) -> bool {
        now >= *self.wanted_there.get_or_insert(now) + TCP_GIVE_WAY_AFTER
    }

    /// Returns whether a call under way has waited for the peer's answer for so long that it may be
    /// lost.
    pub(crate) fn is_unanswered(&self, now: Instant) -> bool {
        let ConnectState::Out(line) = &self.call else {
            return false;
        };
        let since = line.waits_since();
        since.is_some_and(|since| now >= since + self.patience)
    }

    /// Returns whether it is time to ask the peer for its call; it is asked then.
    pub(crate) fn asks(&mut self, now: Instant) -> bool {
        let due = self
            .asked
            .is_none_or(|asked| now >= asked + TCP_REVERSE_CONNECT_EVERY);
        if due {
            self.asked = Some(now);
        }
        due
    }

    /// An attempt at a peer failed that may well live where no call gets in: that nobody answers at
    /// its addresses says nothing then, and whether it lives is known otherwise. But if it does not
    /// reach this side either, the two will not meet.
    pub(crate) fn failed_hidden(
        &mut self,
        failure: &ConnectFailure,
        now: Instant,
    ) -> RetryDecision {
        let gone = self.failed(failure, now);
        if !matches!(
            failure,
            ConnectFailure::Refused | ConnectFailure::Unreachable
        ) {
            return if gone {
                RetryDecision::Gone
            } else {
                RetryDecision::Again
            };
        }
        let both = self.lost_since.zip(self.wanted_there);
        match both.is_some_and(|(lost, wanted)| now >= lost.max(wanted) + TCP_UNREACHABLE_LIMIT) {
            true => RetryDecision::Apart,
            false => RetryDecision::Again,
        }
    }

    /// An attempt at a peer failed to which others look for a way: that its port refuses says
    /// little until they have had the time for that.
    pub(crate) fn failed_led(&mut self, failure: &ConnectFailure, now: Instant) -> RetryDecision {
        let gone = self.failed(failure, now);
        let sought = self
            .refused_since
            .filter(|_| *failure == ConnectFailure::Refused);
        match sought.map_or(gone, |since| now >= since + TCP_UNREACHABLE_LIMIT) {
            true => RetryDecision::Gone,
            false => RetryDecision::Again,
        }
    }

    /// Returns whether an attempt under way, which nobody has taken yet but a host between, is
    /// better given up since a new address comes before all others; that is tried then.
    pub(crate) fn is_led_elsewhere(&mut self, addresses: &[SocketAddr], now: Instant) -> bool {
        let unheard = matches!(&self.call, ConnectState::Out(line) if line.called().is_none() || line.is_kept());
        let new = unheard && self.is_outdated(addresses);
        if new {
            (self.address, self.patience) = (0, TCP_GIVE_WAY_AFTER);
            self.leave(now);
        }
        new
    }

    /// Gives the attempt under way up, for another at once.
    fn leave(&mut self, now: Instant) {
        let kept = matches!(&self.call, ConnectState::Out(line) if line.is_kept());
        self.call = ConnectState::At(now);
        if kept {
            // A host between was reached, and where to meet is the first of its addresses.
            (self.address, self.lost_since, self.refused_since) = (0, None, None);
        }
    }

    /// Returns whether another of the peer's addresses comes first now than when one was last
    /// tried.
    pub(crate) fn is_outdated(&self, addresses: &[SocketAddr]) -> bool {
        self.first.is_some() && self.first != addresses.first().copied()
    }

    /// Returns the peer's addresses that may be tried now. Addresses on a disabled network come
    /// last, and only when there are no others or these have failed for long.
    pub(crate) fn may_try<'a>(
        &self,
        addresses: &'a [SocketAddr],
        is_drained: impl Fn(IpAddr) -> bool,
        now: Instant,
    ) -> &'a [SocketAddr] {
        let left = addresses
            .iter()
            .take_while(|address| !is_drained(address.ip()))
            .count();
        let in_vain = self
            .lost_since
            .is_some_and(|since| now >= since + TCP_DISABLED_AFTER);
        match left == 0 || in_vain {
            true => addresses,
            false => &addresses[..left],
        }
    }

    /// The address to try: one that has come before all others since the last try, or the next in
    /// turn.
    pub(crate) fn address(&mut self, addresses: &[SocketAddr]) -> Option<SocketAddr> {
        if self.is_outdated(addresses) {
            self.address = 0;
        }
        self.first = addresses.first().copied();
        addresses
            .get(self.address % addresses.len().max(1))
            .copied()
    }

    /// An attempt failed. `true`: the peer counts as gone.
    pub(crate) fn failed(&mut self, failure: &ConnectFailure, now: Instant) -> bool {
        self.call = ConnectState::At(now + self.retry);
        self.retry = (self.retry * 2).min(TCP_RETRY_MAX);
        let lost_since = *self.lost_since.get_or_insert(now);
        if *failure == ConnectFailure::Refused {
            let since = *self.refused_since.get_or_insert(now);
            self.address += 1;
            return now >= since + TCP_REFUSED_LIMIT;
        }
        self.refused_since = None;
        match failure {
            ConnectFailure::Refused => false,
            ConnectFailure::Unreachable | ConnectFailure::Unheard => {
                self.address += 1;
                now >= lost_since + TCP_LOST_LIMIT
            }
            // The other side is calling, and will get through.
            ConnectFailure::Fault(HandshakeError::Refused(RejectReason::Busy)) => false,
            ConnectFailure::Fault(
                HandshakeError::Versions { .. }
                | HandshakeError::Library(_)
                | HandshakeError::Refused(RejectReason::Sealing),
            ) => true,
            ConnectFailure::Fault(_) => {
                self.address += 1;
                self.fruitless += TCP_FRUITLESS_WRONG;
                self.fruitless >= TCP_FRUITLESS_MAX
            }
            ConnectFailure::Cut => {
                self.lost_since = None;
                self.fruitless += 1;
                self.fruitless >= TCP_FRUITLESS_MAX
            }
            // The other side computes, or is on its way: whether it lives is known otherwise. Where
            // to meet is the first of its addresses.
            ConnectFailure::Alone => {
                self.lost_since = None;
                self.address = 0;
                false
            }
        }
    }

    /// The other side's call is refused while this one is on its way to it, for a while.
    pub(crate) fn stands(&self, now: Instant) -> bool {
        match &self.call {
            ConnectState::Out(line) => line
                .called()
                .is_some_and(|called| now < called + TCP_GIVE_WAY_AFTER),
            _ => false,
        }
    }

    /// An attempt is under way.
    pub(crate) fn is_out(&self) -> bool {
        matches!(self.call, ConnectState::Out(_))
    }

    /// The next attempt is not before this time.
    pub(crate) fn put_off(&mut self, at: Instant) {
        self.call = ConnectState::At(at);
    }

    /// Returns the kind of the attempt under way that has lasted as long as one may.
    pub(crate) fn late(&self, now: Instant) -> Option<ConnectFailure> {
        let ConnectState::Out(line) = &self.call else {
            return None;
        };
        let (limit, failure) = line.limit()?;
        (now >= limit).then_some(failure)
    }

    /// When there is something to do.
    pub(crate) fn due(&self) -> Option<Instant> {
        match &self.call {
            ConnectState::Rest => None,
            ConnectState::At(at) => Some(*at),
            ConnectState::Out(line) => {
                let limit = line.limit().map(|(limit, _)| limit);
                let after = |wait: Duration| self.asked.map(|asked| asked + wait);
                let ask = match line.called() {
                    None => {
                        let ask = line.begun() + TCP_REVERSE_CONNECT_AFTER;
                        Some(after(TCP_REVERSE_CONNECT_EVERY).map_or(ask, |again| ask.max(again)))
                    }
                    Some(called) if line.is_kept() => Some(
                        after(TCP_RELAYED_REQUEST_EVERY)
                            .unwrap_or(called + TCP_RELAYED_REQUEST_EVERY),
                    ),
                    Some(_) => None,
                };
                ask.into_iter().chain(limit).min()
            }
        }
    }
}

/// State of one remote rank: its packet stream, its bulk connections, calls under way. Owned by the
/// transport, from the first use on.
#[derive(Debug, Default)]
pub(crate) struct TcpPeer {
    pub(crate) link: PacketStream,
    pub(crate) paths: Multipath,
    calls: ConnectAttempts,
    /// True if the peer counts as gone once everything that came from it was delivered.
    pub(crate) condemned: bool,
    pub(crate) keeping: QueuedSince,
    /// True if its last small messages were told of before its bulk data were taken.
    pub(crate) went_first: bool,
}

impl TcpPeer {
    pub(crate) fn calls(&mut self, stream: StreamNumber) -> &mut ConnectAttempts {
        match stream {
            StreamNumber::Small => &mut self.calls,
            StreamNumber::Bulk(path) => &mut self.paths.at(path).calls,
        }
    }

    /// The calls of a stream, if it was ever wanted.
    pub(crate) fn call_of(&self, stream: StreamNumber) -> Option<&ConnectAttempts> {
        match stream {
            StreamNumber::Small => Some(&self.calls),
            StreamNumber::Bulk(path) => self.paths.get(path).map(|path| &path.calls),
        }
    }

    /// When a stream has something to do.
    pub(crate) fn due(&self, stream: StreamNumber) -> Option<Instant> {
        self.call_of(stream)?.due()
    }

    /// Returns the streams that were ever wanted.
    pub(crate) fn streams(&self) -> impl Iterator<Item = StreamNumber> + use<> {
        std::iter::once(StreamNumber::Small).chain(self.paths.numbers().map(StreamNumber::Bulk))
    }

    /// The socket of a stream, if it is open.
    pub(crate) fn fd(&self, stream: StreamNumber) -> Option<BorrowedFd<'_>> {
        match stream {
            StreamNumber::Small => self.link.channel(),
            StreamNumber::Bulk(path) => self.paths.get(path)?.bulk.channel(),
        }
        .map(|channel| channel.fd())
    }

    /// The stream has something to do.
    pub(crate) fn is_wanted(&self, stream: StreamNumber) -> bool {
        match stream {
            StreamNumber::Small => true,
            StreamNumber::Bulk(path) => self.paths.is_wanted_on(path),
        }
    }

    /// Changes whenever something got from one side to the other, as far as this one knows.
    pub(crate) fn moved(&self) -> u64 {
        let packets = u64::from(self.link.expected()) + u64::from(self.link.log.acknowledged());
        packets + self.paths.bytes_brought().iter().sum::<u64>()
    }

    /// Bytes are under way on an open stream.
    pub(crate) fn is_waiting(&self) -> bool {
        self.link.is_up() && !self.link.log.is_settled()
            || self.paths.is_serving()
            || self.paths.is_wanted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how long until a peer counts as gone, if every attempt ends so; `None`: longer than
    /// an hour.
    fn given_up_after(failure: &ConnectFailure) -> Option<Duration> {
        given_up(|calls, now| calls.failed(failure, now))
    }

    /// Returns the time after which calls are given up; `fails` says what an attempt that ends is
    /// taken for.
    fn given_up(mut fails: impl FnMut(&mut ConnectAttempts, Instant) -> bool) -> Option<Duration> {
        let (mut calls, begun) = (ConnectAttempts::default(), Instant::now());
        let mut now = begun;
        while now < begun + Duration::from_secs(3600) {
            calls.want(now);
            if fails(&mut calls, now) {
                return Some(now - begun);
            }
            let ConnectState::At(at) = calls.call else {
                panic!("it is tried again")
            };
            assert!(at > now && at <= now + TCP_RETRY_MAX);
            now = at;
        }
        None
    }

    #[test]
    fn a_closed_port_is_given_up_soon_and_a_silent_host_later() {
        let refused = given_up_after(&ConnectFailure::Refused).unwrap();
        assert!((TCP_REFUSED_LIMIT..TCP_REFUSED_LIMIT * 2).contains(&refused));
        let lost = given_up_after(&ConnectFailure::Unreachable).unwrap();
        assert!((TCP_LOST_LIMIT..TCP_LOST_LIMIT * 2).contains(&lost));
    }

    #[test]
    fn time_in_which_this_side_was_kept_from_calling_is_nobody_s_silence() {
        let (mut calls, begun) = (ConnectAttempts::default(), Instant::now());
        calls.broke(begun, false);
        let stopped = TCP_LOST_LIMIT + Duration::from_secs(3);
        let half = TCP_LOST_LIMIT / 2;
        calls.away(stopped, begun + stopped);
        assert!(!calls.failed(&ConnectFailure::Unreachable, begun + stopped));
        assert!(!calls.failed(&ConnectFailure::Unreachable, begun + stopped + half));
        assert!(calls.failed(
            &ConnectFailure::Unreachable,
            begun + stopped + TCP_LOST_LIMIT
        ));
        // Where neither side reaches the other, and both know it.
        let (mut calls, asked) = (ConnectAttempts::default(), begun + half);
        calls.broke(begun, false);
        calls.wanted_there(asked);
        calls.away(stopped, asked + stopped);
        let verdict = calls.failed_hidden(&ConnectFailure::Unreachable, asked + stopped);
        assert_eq!(verdict, RetryDecision::Again);
        let verdict = calls.failed_hidden(
            &ConnectFailure::Unreachable,
            asked + stopped + TCP_UNREACHABLE_LIMIT,
        );
        assert_eq!(verdict, RetryDecision::Apart);
    }

    #[test]
    fn a_closed_port_is_given_up_later_where_others_look_for_a_way_meanwhile() {
        let led = |failure: ConnectFailure| {
            given_up(|calls, now| calls.failed_led(&failure, now) == RetryDecision::Gone).unwrap()
        };
        let refused = led(ConnectFailure::Refused);
        assert!((TCP_UNREACHABLE_LIMIT..TCP_UNREACHABLE_LIMIT + TCP_RETRY_MAX).contains(&refused));
        for failure in [
            ConnectFailure::Unreachable,
            ConnectFailure::Unheard,
            ConnectFailure::Cut,
        ] {
            assert_eq!(Some(led(failure.clone())), given_up_after(&failure));
        }
    }

    #[test]
    fn a_peer_where_no_call_gets_in_is_never_given_up_by_a_side_that_it_reaches() {
        for failure in [ConnectFailure::Refused, ConnectFailure::Unreachable] {
            let (mut calls, begun) = (ConnectAttempts::default(), Instant::now());
            for second in 0..3600 {
                let verdict = calls.failed_hidden(&failure, begun + Duration::from_secs(second));
                assert_eq!(verdict, RetryDecision::Again);
            }
            // From now on it says that it reaches nobody, too.
            let asked = begun + Duration::from_secs(3600);
            calls.wanted_there(asked);
            assert_eq!(calls.failed_hidden(&failure, asked), RetryDecision::Again);
            let later = asked + TCP_UNREACHABLE_LIMIT;
            assert_eq!(calls.failed_hidden(&failure, later), RetryDecision::Apart);
        }
    }

    #[test]
    fn a_peer_is_asked_for_its_call_now_and_then() {
        let (mut calls, now) = (ConnectAttempts::default(), Instant::now());
        assert!(calls.asks(now) && !calls.asks(now + TCP_REVERSE_CONNECT_EVERY / 2));
        assert!(calls.asks(now + TCP_REVERSE_CONNECT_EVERY));
        calls.opened();
        assert!(calls.asks(now + TCP_REVERSE_CONNECT_EVERY));
    }

    #[test]
    fn an_address_that_belongs_to_somebody_else_is_given_up() {
        for failure in [
            ConnectFailure::Cut,
            ConnectFailure::Fault(HandshakeError::NotAuthentic),
            ConnectFailure::Fault(HandshakeError::Garbage),
        ] {
            assert!(
                given_up_after(&failure).unwrap() < 2 * TCP_LOST_LIMIT,
                "{failure:?}"
            );
        }
    }

    #[test]
    fn a_peer_that_calls_itself_is_waited_for() {
        assert_eq!(
            given_up_after(&ConnectFailure::Fault(HandshakeError::Refused(
                RejectReason::Busy
            ))),
            None
        );
    }

    #[test]
    fn a_peer_that_does_not_come_where_both_can_be_met_is_waited_for() {
        assert_eq!(given_up_after(&ConnectFailure::Alone), None);
        let (mut calls, begun) = (ConnectAttempts::default(), Instant::now());
        for second in 0..3600 {
            let now = begun + Duration::from_secs(second);
            calls.wanted_there(now);
            assert_eq!(
                calls.failed_hidden(&ConnectFailure::Alone, now),
                RetryDecision::Again
            );
        }
    }

    #[test]
    fn another_library_is_given_up_at_once() {
        let fault = HandshakeError::Library(crate::frame::LibraryName::own());
        assert_eq!(
            given_up_after(&ConnectFailure::Fault(fault)),
            Some(Duration::ZERO)
        );
    }

    #[test]
    fn addresses_are_tried_in_turn_and_the_one_that_worked_is_kept() {
        let addresses: Vec<SocketAddr> = (1..4)
            .map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
            .collect();
        let (mut calls, now) = (ConnectAttempts::default(), Instant::now());
        assert_eq!(calls.address(&addresses), Some(addresses[0]));
        calls.failed(&ConnectFailure::Unreachable, now);
        assert_eq!(calls.address(&addresses), Some(addresses[1]));
        calls.opened();
        calls.broke(now, false);
        assert_eq!(calls.address(&addresses), Some(addresses[1]));
        assert_eq!(calls.address(&[]), None);
    }

    #[test]
    fn a_network_that_is_to_be_left_alone_is_called_when_nothing_else_has_led_there_for_long() {
        let addresses = [1, 2, 3].map(|last| SocketAddr::from(([10, 0, 0, last], 7)));
        let is_drained = |address: IpAddr| address == addresses[2].ip();
        let (mut calls, begun) = (ConnectAttempts::default(), Instant::now());
        assert_eq!(
            calls.may_try(&addresses, is_drained, begun),
            &addresses[..2]
        );
        assert_eq!(
            calls.may_try(&addresses[2..], is_drained, begun),
            &addresses[2..]
        );
        calls.broke(begun, false);
        let (soon, late) = (begun + TCP_DISABLED_AFTER / 2, begun + TCP_DISABLED_AFTER);
        let _ = calls.failed(&ConnectFailure::Unreachable, soon);
        assert_eq!(calls.may_try(&addresses, is_drained, soon), &addresses[..2]);
        assert_eq!(calls.may_try(&addresses, is_drained, late), addresses);
        calls.opened();
        assert_eq!(calls.may_try(&addresses, is_drained, late), &addresses[..2]);
    }

    #[test]
    fn an_address_that_comes_before_all_others_is_tried_next_whenever_it_came() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (mut calls, now) = (ConnectAttempts::default(), Instant::now());
        let before = [at(1), at(2)];
        assert_eq!(calls.address(&before), Some(at(1)));
        calls.failed(&ConnectFailure::Unreachable, now);
        // Between two tries.
        let addresses = [at(3), at(1), at(2)];
        assert_eq!(calls.address(&addresses), Some(at(3)));
        calls.failed(&ConnectFailure::Unreachable, now);
        assert_eq!(calls.address(&addresses), Some(at(1)));
        // While a connection stood.
        calls.opened();
        calls.broke(now, false);
        let addresses = [at(4), at(3), at(1), at(2)];
        assert_eq!(calls.address(&addresses), Some(at(4)));
        // What is called next for another reason stays so.
        calls.turn_to(2);
        assert_eq!(calls.address(&[at(5), at(4), at(3)]), Some(at(3)));
    }
}
