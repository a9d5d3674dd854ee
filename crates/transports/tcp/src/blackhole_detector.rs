//! Connections that fall silent one after another although each was made: what the network between
//! does to long packets, and when it is given up.
//!
//! A way may take calls and lose longer packets without a word: a tunnel whose packets are longer
//! than what carries it lets through, a switch that was set for shorter ones than the hosts behind
//! it. The handshake is short and passes; what follows does not. So who finds a connection silent
//! that was made after another had been found so calls that address with small segments from then
//! on. One that has carried long packets before says nothing: a link that fails again and again
//! does not lose those alone. Each side finds that out for itself, whoever calls: the one that
//! sends by the silence, the other by the reset that ends it. Owned by the transport and, of each
//! stream, by its calls. Time is an argument.

use garonne_transport::limits::{
    TCP_SEGMENT, TCP_SHORT_PACKET_ADDRESSES, TCP_SILENCE_MAX, TCP_SILENT_MAX,
};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Way in which a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// Bytes were under way, and the other host confirmed nothing.
    Silent,
    /// The other host has reset it, as who finds it silent does, or this one's system has given it
    /// up.
    Lost,
    /// Otherwise.
    Ended,
}

/// Description of the end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedConnection {
    pub(crate) how: ConnectionEnd,
    /// The peer's end.
    pub(crate) with: Option<IpAddr>,
    /// True if it has carried long packets.
    pub(crate) carried: bool,
    /// Something waits for a connection here.
    pub(crate) wanted: bool,
}

/// Action that follows from the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Nothing.
    Nothing,
    /// Longer packets are lost by the ways that were tried.
    Brief,
    /// All are, as it seems, and have been for long.
    Over,
}

/// The connections of a stream that fell silent in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlackholeDetector {
    since: Option<Instant>,
    in_row: u32,
    /// The peer's ends of those.
    with: Vec<IpAddr>,
    /// Bytes that had been moved when the peer was found silent, and how often it was since that
    /// moved.
    moved: u64,
    barren: u32,
}

impl BlackholeDetector {
    /// Returns the peer's ends of the connections that were found silent in a row.
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        &self.with
    }

    /// A connection is made.
    pub(crate) fn opened(&mut self, now: Instant) {
        self.since = Some(now);
    }

    /// Records that a connection has ended. `moved` changes whenever the two get on, by whatever
    /// connection.
    pub(crate) fn ended(&mut self, ended: EndedConnection, moved: u64, now: Instant) -> NextStep {
        let Some(since) = self.since.take() else {
            return NextStep::Nothing;
        };
        let lived = now.saturating_duration_since(since);
        let is_silent = match ended.how {
            ConnectionEnd::Silent => true,
            // Whoever finds a silence has waited for its end; this side may have heard of the
            // connection later.
            ConnectionEnd::Lost => lived >= TCP_SILENCE_MAX / 2,
            ConnectionEnd::Ended => false,
        };
        if lived > LIVED || ended.carried {
            (self.in_row, self.barren) = (0, 0);
            self.with.clear();
        }
        if !is_silent {
            return NextStep::Nothing;
        }
        self.in_row += 1;
        if let Some(with) = ended.with.filter(|with| !self.with.contains(with)) {
            self.with.push(with);
        }
        self.barren = if moved == self.moved {
            self.barren + 1
        } else {
            1
        };
        self.moved = moved;
        match () {
            () if self.barren >= TCP_SILENT_MAX && ended.wanted => NextStep::Over,
            () if self.in_row > 1 => NextStep::Brief,
            () => NextStep::Nothing,
        }
    }
}

/// A connection that was silent from its beginning has not lived for longer.
const LIVED: Duration = TCP_SILENCE_MAX.saturating_mul(2);

/// Addresses to which longer packets are lost; beyond [`TCP_SHORT_PACKET_ADDRESSES`] the first is
/// forgotten.
#[derive(Debug, Default)]
pub(crate) struct ShortLivedConnections(VecDeque<IpAddr>);

impl ShortLivedConnections {
    /// Another, or one that it was already.
    pub(crate) fn add(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        if self.has(address) {
            return;
        }
        if self.0.len() >= TCP_SHORT_PACKET_ADDRESSES {
            self.0.pop_front();
        }
        self.0.push_back(address);
    }

    /// Returns how long a segment to this address may be; `None`: as long as its network lets it.
    pub(crate) fn longest_to(&self, address: IpAddr) -> Option<u32> {
        self.has(address).then_some(TCP_SEGMENT)
    }

    /// Returns whether the address is one of them.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use garonne_transport::limits::TCP_CARRIED;

    const NEAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const FAR: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 1, 1));

    /// Connections that end so, each after so many seconds, and what had been moved by then: what
    /// followed from each.
    fn row(ends: &[(ConnectionEnd, IpAddr, u64, u64)]) -> (Vec<NextStep>, BlackholeDetector) {
        row_of(ends, false, true)
    }

    fn row_of(
        ends: &[(ConnectionEnd, IpAddr, u64, u64)],
        carried: bool,
        wanted: bool,
    ) -> (Vec<NextStep>, BlackholeDetector) {
        let (mut silences, mut now) = (BlackholeDetector::default(), Instant::now());
        let follows = ends.iter().map(|&(how, with, seconds, moved)| {
            silences.opened(now);
            now += Duration::from_secs(seconds);
            let ended = EndedConnection {
                how,
                with: Some(with),
                carried,
                wanted,
            };
            silences.ended(ended, moved, now)
        });
        (follows.collect(), silences)
    }

    #[test]
    fn a_connection_that_is_silent_like_the_one_before_it_is_made_anew_with_small_segments() {
        use NextStep::{Brief, Nothing};
        let (follows, _) = row(&[
            (ConnectionEnd::Silent, NEAR, 3600, 1),
            (ConnectionEnd::Silent, NEAR, 9, 1),
        ]);
        assert_eq!(follows, [Nothing, Brief]);
        // As the other side sees it.
        let (follows, _) = row(&[
            (ConnectionEnd::Lost, NEAR, 3600, 1),
            (ConnectionEnd::Lost, NEAR, 9, 1),
        ]);
        assert_eq!(follows, [Nothing, Brief]);
        // By two networks in turn: both.
        let (follows, silences) = row(&[
            (ConnectionEnd::Silent, NEAR, 3600, 1),
            (ConnectionEnd::Silent, FAR, 9, 1),
        ]);
        assert_eq!((follows[1], silences.with), (Brief, vec![NEAR, FAR]));
    }

    #[test]
    fn links_that_fail_now_and_then_and_connections_that_are_cut_off_say_nothing_of_lengths() {
        for ends in [
            [
                (ConnectionEnd::Silent, NEAR, 60, 1),
                (ConnectionEnd::Silent, NEAR, 60, 2),
            ],
            [
                (ConnectionEnd::Silent, NEAR, 60, 1),
                (ConnectionEnd::Lost, NEAR, 1, 2),
            ],
            [
                (ConnectionEnd::Lost, NEAR, 0, 1),
                (ConnectionEnd::Lost, NEAR, 0, 2),
            ],
            [
                (ConnectionEnd::Silent, NEAR, 60, 1),
                (ConnectionEnd::Ended, NEAR, 9, 2),
            ],
        ] {
            assert_eq!(row(&ends).0, [NextStep::Nothing; 2]);
        }
    }

    #[test]
    fn a_peer_to_which_no_connection_brings_anything_is_given_up_and_no_other() {
        let ends = [(ConnectionEnd::Silent, NEAR, 9, 1); TCP_SILENT_MAX as usize];
        let (follows, _) = row(&ends);
        assert_eq!(follows.last(), Some(&NextStep::Over));
        assert!(!follows[..follows.len() - 1].contains(&NextStep::Over));
        // Something moves, if seldom.
        let ends: Vec<_> = (0..100)
            .map(|n| (ConnectionEnd::Silent, NEAR, 9, n / 2))
            .collect();
        assert!(!row(&ends).0.contains(&NextStep::Over));
    }

    #[test]
    fn links_that_fail_again_and_again_but_carry_long_packets_between_say_nothing_of_lengths() {
        let ends = [(ConnectionEnd::Silent, NEAR, 11, 1); 100];
        assert_eq!(row_of(&ends, true, true).0, [NextStep::Nothing; 100]);
    }

    #[test]
    fn connections_that_are_cut_off_while_nobody_wants_them_end_nothing() {
        let ends = [(ConnectionEnd::Lost, NEAR, 5, 1); 100];
        assert!(!row_of(&ends, false, false).0.contains(&NextStep::Over));
    }

    #[test]
    fn addresses_are_remembered_up_to_a_bound() {
        let mut brief = ShortLivedConnections::default();
        let address = |n: usize| IpAddr::from((n as u32).to_be_bytes());
        for n in 0..TCP_SHORT_PACKET_ADDRESSES + 1 {
            assert!(!brief.has(address(n)));
            (0..2).for_each(|_| brief.add(address(n)));
            assert!(
                brief.has(address(n)) && brief.0.len() == TCP_SHORT_PACKET_ADDRESSES.min(n + 1)
            );
        }
        assert!(
            !brief.has(address(0))
                && brief.has(address(1))
                && brief.has(address(TCP_SHORT_PACKET_ADDRESSES))
        );
    }

    #[test]
    fn what_a_connection_has_carried_is_known_also_when_it_was_reset() {
        use std::io::{Read, Write};
        use std::os::fd::AsFd;
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut two, _) = listener.accept().unwrap();
        let bytes = 2 * TCP_CARRIED as usize;
        one.write_all(&vec![7; bytes]).unwrap();
        two.read_exact(&mut vec![0; bytes]).unwrap();
        rustix::net::sockopt::set_socket_linger(&one, Some(Duration::ZERO)).unwrap();
        assert!(sys::carried(one.as_fd()).is_some_and(|[confirmed, _]| confirmed >= TCP_CARRIED));
        drop(one);
        assert!(two.read(&mut [0]).is_err(), "reset");
        assert!(sys::carried(two.as_fd()).is_some_and(|[_, came]| came >= TCP_CARRIED));
    }
}
