//! What a peer that has proved itself may do: anything. Functions that have bytes of a fuzzer, or
//! of the tests, decide what it sends, in which parts, and what this side does meanwhile.
//!
//! Each ends when the peer breaks the format, as its connection does. What they assert: memory
//! stays within its bounds, each step ends, and nothing is touched that was given back.

pub use crate::bulk::hostile::receive_anything as bulk;
pub use crate::ofi_path::hello::read_anything as hello;
pub use crate::packet_stream::hostile::receive_anything as link;
pub use crate::relay::hostile::{meet_anyhow as meeting, pass_anything_on as relay};

use crate::connection::Connection;
use crate::handshake::SessionTerms;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};
use std::os::fd::OwnedFd;

/// Bytes that decide what happens.
#[derive(Debug)]
pub(crate) struct FuzzScript<'a>(pub(crate) &'a [u8]);

impl<'a> FuzzScript<'a> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next ones, as many as there are.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        first
    }
}

/// The other end of a connection.
#[derive(Debug)]
pub(crate) struct HostilePeer(OwnedFd);

impl HostilePeer {
    /// A connection, and its other end.
    pub(crate) fn new() -> (Connection, Self) {
        let pair = socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::NONBLOCK,
            None,
        );
        let (own, other) = pair.expect("a pair of sockets");
        (
            Connection::new(own, SessionTerms::plain(), Vec::new()),
            Self(other),
        )
    }

    /// Sends as much of it as there is room for.
    pub(crate) fn says(&self, bytes: &[u8]) {
        let _ = rustix::net::send(&self.0, bytes, SendFlags::NOSIGNAL);
    }

    /// Takes what has come.
    pub(crate) fn hears(&self) -> Vec<u8> {
        let (mut bytes, mut all) = ([0; 4096], Vec::new());
        while let Ok((_, got @ 1..)) =
            rustix::net::recv(&self.0, &mut bytes[..], RecvFlags::DONTWAIT)
        {
            all.extend_from_slice(&bytes[..got]);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_sent_for_large_data_is_taken_or_ends_the_connection(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            bulk(&bytes);
        }

        #[test]
        fn whatever_is_sent_as_packets_is_taken_or_ends_the_connection(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            link(&bytes);
        }
    }

    proptest! {
        // Each has connections of its own.
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whatever_ends_do_is_passed_on_or_ends_the_passage(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            relay(&bytes);
        }

        #[test]
        fn whatever_two_do_that_are_to_meet_joins_them_or_ends_their_calls(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            meeting(&bytes);
        }
    }
}
