//! Messages between a job and a host that wants to join it (docs/reference/job.md, clauses J1 to
//! J6).

use crate::agent_messages::AgentBootstrap;
use crate::error::Result;
#[cfg(any(test, fuzzing))]
use crate::join_key;
use crate::limits;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};

/// Offer of a host that joins: its name and slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOffer {
    /// Name.
    pub name: String,
    /// How many ranks it takes before the next host's turn.
    pub slots: u32,
}

/// From the job to a host that wants to join.
#[derive(Clone, Debug)]
pub enum ToJoiner {
    /// The host has a place; so many of so many hosts are here.
    Wait {
        /// Hosts that are here.
        came: u32,
        /// Hosts that are wanted.
        wanted: u32,
    },
    /// The host cannot take part.
    Refused {
        /// Code for `garonne explain`.
        code: String,
        /// Line for the user.
        text: String,
    },
    /// All are here: the line is its agent's from now on.
    Bootstrap(Box<AgentBootstrap>),
}

impl HostOffer {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        MessageWriter::new(381)
            .bytes(self.name.as_bytes())
            .raw(self.slots.to_le_bytes())
            .0
    }

    /// Decodes the message. Anything else is an error.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        if kind != 381 {
            return Err(malformed("it is no offer"));
        }
        let (name, slots) = (r.text()?, r.u32()?);
        let strange = |letter: char| letter.is_control() || letter.is_whitespace();
        if name.is_empty() || name.len() > limits::HOST_NAME_MAX || name.contains(strange) {
            return Err(malformed("the host's name is none"));
        }
        if slots == 0 || slots > limits::RANKS_MAX {
            return Err(malformed("it offers no slots, or too many"));
        }
        r.end(Self { name, slots })
    }
}

impl ToJoiner {
    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToJoiner::Wait { came, wanted } => {
                MessageWriter::new(382)
                    .raw(came.to_le_bytes())
                    .raw(wanted.to_le_bytes())
                    .0
            }
            ToJoiner::Refused { code, text } => {
                MessageWriter::new(383)
                    .bytes(code.as_bytes())
                    .bytes(text.as_bytes())
                    .0
            }
            // On this line every message has its length already.
            ToJoiner::Bootstrap(bootstrap) => bootstrap.encode().split_off(4),
        }
    }

    /// Decodes the message. Anything else is an error.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = MessageReader::new(message)?;
        let said = match kind {
            382 => ToJoiner::Wait {
                came: r.u32()?,
                wanted: r.u32()?,
            },
            383 => ToJoiner::Refused {
                code: r.text()?,
                text: r.text()?,
            },
            _ => {
                return AgentBootstrap::decode(message)
                    .map(|bootstrap| ToJoiner::Bootstrap(Box::new(bootstrap)));
            }
        };
        r.end(said)
    }
}

/// Reads any bytes as each kind of message, and as the text of a key.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let _ = (HostOffer::decode(bytes), ToJoiner::decode(bytes));
    let text = String::from_utf8_lossy(bytes);
    if let Ok(key) = join_key::JoinKey::read(&text) {
        // Whatever is accepted is written back as something that means the same.
        let again = join_key::JoinKey::read(&key.text()).expect("a key that was read");
        assert!(again.is_the_same(&key));
    }
    join_key::read_bytes(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_tcp::Secret;

    #[test]
    fn what_both_sides_say_reads_back_and_no_part_of_it_does() {
        let offer = HostOffer {
            name: "n1".into(),
            slots: 4,
        };
        assert_eq!(HostOffer::decode(&offer.encode()).unwrap(), offer);
        let bootstrap = AgentBootstrap {
            job: 7,
            secret: Secret::generate().unwrap(),
            node: 2,
            name: "n1".into(),
            parent: 0,
            parent_name: "here".into(),
            port: 80,
            addresses: vec![],
        };
        let said = [
            ToJoiner::Wait { came: 1, wanted: 2 },
            ToJoiner::Refused {
                code: "G0227".into(),
                text: "full".into(),
            },
            ToJoiner::Bootstrap(Box::new(bootstrap)),
        ];
        for message in said {
            let bytes = message.encode();
            let again = ToJoiner::decode(&bytes).unwrap();
            assert_eq!(format!("{again:?}"), format!("{message:?}"));
            assert!((0..bytes.len()).all(|cut| ToJoiner::decode(&bytes[..cut]).is_err()));
        }
        let bytes = offer.encode();
        assert!((0..bytes.len()).all(|cut| HostOffer::decode(&bytes[..cut]).is_err()));
    }

    #[test]
    fn offers_of_nothing_and_names_that_would_garble_a_line_are_refused() {
        for (name, slots) in [("a", 0), ("a", u32::MAX), ("", 1), ("a b", 1), ("a\nb", 1)] {
            let offer = HostOffer {
                name: name.into(),
                slots,
            };
            assert!(HostOffer::decode(&offer.encode()).is_err(), "{offer:?}");
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/join_keys");
        let inputs = std::fs::read_dir(dir).unwrap();
        let count = inputs
            .map(|input| read_anything(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 3);
    }
}
