//! What two endpoints agree on when they connect.

use crate::error::misuse;
use crate::limits::MESSAGE_MAX;
use garonne_job::error::Result;

/// Promise of a connection about its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Delivery {
    /// All arrive, in the order in which they were sent.
    #[default]
    ReliableOrdered,
    /// All arrive. Today they arrive in order, too.
    Reliable,
    /// Messages may be lost. Not there yet: a connection with this attribute is refused.
    Datagram,
}

impl Delivery {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::ReliableOrdered => 0,
            Self::Reliable => 1,
            Self::Datagram => 2,
        }
    }

    pub(crate) fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::ReliableOrdered),
            1 => Some(Self::Reliable),
            2 => Some(Self::Datagram),
            _ => None,
        }
    }
}

/// Attributes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// What is promised of its messages.
    pub delivery: Delivery,
    /// Length of the longest message that this side takes. A peer that sends a longer one breaks
    /// the connection.
    pub message_max: u64,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            delivery: Delivery::default(),
            message_max: MESSAGE_MAX,
        }
    }
}

impl Attributes {
    /// Refuses what is not there yet.
    pub(crate) fn check(&self) -> Result<()> {
        match self.delivery {
            Delivery::ReliableOrdered | Delivery::Reliable => Ok(()),
            Delivery::Datagram => Err(misuse(
                "connections with the attribute Datagram are not there yet (docs/user/api.md)",
            )),
        }
    }
}
