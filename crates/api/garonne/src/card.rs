//! The two messages by which endpoints agree on a connection: HELLO of the side that connects, and
//! REPLY of the side that accepts. Both come from another process, and are checked.

use crate::attributes::Delivery;
use crate::limits::CONNECT_DATA_MAX;
use garonne_tcp::SECRET_BYTES;
use std::net::{IpAddr, SocketAddr};

/// Name of the format and its version.
const MAGIC: [u8; 6] = *b"garAP1";
const ACCEPTED: u8 = 0;
const REJECTED: u8 = 1;

/// Wish of the side that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) delivery: Delivery,
    /// Longest message that the sender takes.
    pub(crate) message_max: u64,
    /// Where the sender listens for the engine's connections.
    pub(crate) place: SocketAddr,
    /// Bytes for the program of the other side.
    pub(crate) data: Vec<u8>,
}

/// Answer of the side that was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The connection comes to be.
    Accepted {
        /// Secret of the connection, drawn for it.
        secret: [u8; SECRET_BYTES],
        /// Longest message that the sender takes.
        message_max: u64,
        /// Where the sender listens for the engine's connections.
        place: SocketAddr,
        /// Bytes for the program of the other side.
        data: Vec<u8>,
    },
    /// The program of the other side does not want it.
    Rejected,
}

impl Hello {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.push(self.delivery.number());
        bytes.extend(self.message_max.to_le_bytes());
        encode_place(self.place, &mut bytes);
        bytes.extend(&self.data);
        bytes
    }

    /// Reads one; `None`: these bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let (delivery, rest) = rest.split_first()?;
        let (message_max, rest) = rest.split_first_chunk()?;
        let (place, data) = decode_place(rest)?;
        (data.len() <= CONNECT_DATA_MAX).then_some(())?;
        Some(Self {
            delivery: Delivery::from_number(*delivery)?,
            message_max: u64::from_le_bytes(*message_max),
            place,
            data: data.to_vec(),
        })
    }
}

impl Reply {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        match self {
            Self::Rejected => bytes.push(REJECTED),
            Self::Accepted {
                secret,
                message_max,
                place,
                data,
            } => {
                bytes.push(ACCEPTED);
                bytes.extend(secret);
                bytes.extend(message_max.to_le_bytes());
                encode_place(*place, &mut bytes);
                bytes.extend(data);
            }
        }
        bytes
    }

    /// Reads one; `None`: these bytes are none.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        match rest.split_first()? {
            (&REJECTED, []) => Some(Self::Rejected),
            (&ACCEPTED, rest) => {
                let (secret, rest) = rest.split_first_chunk()?;
                let (message_max, rest) = rest.split_first_chunk()?;
                let (place, data) = decode_place(rest)?;
                (data.len() <= CONNECT_DATA_MAX).then_some(())?;
                Some(Self::Accepted {
                    secret: *secret,
                    message_max: u64::from_le_bytes(*message_max),
                    place,
                    data: data.to_vec(),
                })
            }
            _ => None,
        }
    }
}

fn encode_place(place: SocketAddr, bytes: &mut Vec<u8>) {
    let ip = match place.ip() {
        IpAddr::V4(four) => four.to_ipv6_mapped(),
        IpAddr::V6(six) => six,
    };
    bytes.extend(ip.octets());
    bytes.extend(place.port().to_le_bytes());
}

fn decode_place(bytes: &[u8]) -> Option<(SocketAddr, &[u8])> {
    let (ip, rest) = bytes.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk()?;
    let ip = IpAddr::from(*ip).to_canonical();
    Some((SocketAddr::new(ip, u16::from_le_bytes(*port)), rest))
}

/// Reads any bytes as both messages. What is understood is written as the same bytes.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    if let Some(hello) = Hello::decode(bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Some(hello));
    }
    if let Some(reply) = Reply::decode(bytes) {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            delivery: Delivery::Reliable,
            message_max: 1 << 40,
            place: "10.1.2.3:4711".parse().unwrap(),
            data: b"who I am".to_vec(),
        }
    }

    fn reply() -> Reply {
        Reply::Accepted {
            secret: [7; SECRET_BYTES],
            message_max: 12,
            place: "[fd00::7]:9".parse().unwrap(),
            data: vec![0; CONNECT_DATA_MAX],
        }
    }

    #[test]
    fn kept_inputs_are_read_again() {
        garonne_transport::fuzz_seeds::replay("endpoint_cards", read_anything);
        let kept = include_bytes!("../../../../fuzz/seeds/endpoint_cards/hello");
        assert!(Hello::decode(kept).is_some());
        let kept = include_bytes!("../../../../fuzz/seeds/endpoint_cards/accepted");
        assert!(matches!(Reply::decode(kept), Some(Reply::Accepted { .. })));
    }

    #[test]
    fn both_are_read_as_they_were_written() {
        assert_eq!(Hello::decode(&hello().encode()), Some(hello()));
        assert_eq!(Reply::decode(&reply().encode()), Some(reply()));
        let rejected = Reply::Rejected.encode();
        assert_eq!(Reply::decode(&rejected), Some(Reply::Rejected));
    }

    #[test]
    fn damaged_ones_are_refused_and_harm_nobody() {
        let data = hello().data.len();
        let (hello, reply) = (hello().encode(), reply().encode());
        for end in 0..hello.len() - data {
            assert_eq!(Hello::decode(&hello[..end]), None);
        }
        let mut long = reply.clone();
        long.push(0);
        assert_eq!(Reply::decode(&long), None);
        for bytes in [hello, reply] {
            for at in 0..bytes.len().min(64) {
                for flip in [1, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= flip;
                    read_anything(&damaged);
                    read_anything(&damaged[..at]);
                }
            }
        }
    }
}
