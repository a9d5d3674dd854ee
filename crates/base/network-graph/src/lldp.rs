//! What a neighbour says of itself by the Link Layer Discovery Protocol, IEEE 802.1AB.
//!
//! A data unit is a list of fields, each of a type of seven bits, a length of nine bits and so many
//! bytes. The first three are the chassis, the port and the time to live, in this order.

use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};

use thiserror::Error;

/// EtherType of the protocol.
pub const ETHERTYPE: u16 = 0x88cc;

/// Groups to which data units are sent: nearest bridge, nearest bridge that is no repeater, nearest
/// customer bridge.
pub const GROUPS: [[u8; 6]; 3] = [
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x03],
    [0x01, 0x80, 0xc2, 0x00, 0x00, 0x00],
];

/// Bytes of the Ethernet header in front of a data unit.
const HEADER: usize = 14;

/// What a neighbour can do, as bits of its capabilities.
const BRIDGE: u16 = 1 << 2;
const ROUTER: u16 = 1 << 4;
const STATION: u16 = 1 << 7;

/// Reason why a frame is no data unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LldpError {
    /// Another protocol.
    #[error("it is no frame of LLDP")]
    Protocol,
    /// The frame ends within a field.
    #[error("it ends within a field")]
    Short,
    /// Chassis, port and time to live are not the first fields.
    #[error("it does not begin with chassis, port and time to live")]
    Order,
    /// A field that must be once is there twice.
    #[error("a field that may be there once is there twice")]
    Twice,
    /// A field has no meaning with its length.
    #[error("a field has a length that it cannot have")]
    Length,
}

/// What a neighbour says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LldpNeighbour {
    /// Identifier of the neighbour's chassis: an address or a name.
    pub chassis: String,
    /// Identifier of the port to which the cable leads.
    pub port: String,
    /// Seconds for which this holds. 0: the neighbour is about to leave.
    pub seconds: u16,
    /// What the administrator calls the port.
    pub port_description: Option<String>,
    /// Name of the system.
    pub system_name: Option<String>,
    /// Capabilities that are enabled, as bits.
    enabled: Option<u16>,
}

impl LldpNeighbour {
    /// The best name: of the system, or else of the chassis.
    pub fn name(&self) -> &str {
        self.system_name.as_deref().unwrap_or(&self.chassis)
    }

    /// Whether it is a machine that runs programs. Who says nothing is taken for a switch. So is a
    /// station that also forwards: many switches call themselves stations, too.
    pub fn is_host(&self) -> bool {
        let has = |bits: u16, wanted| bits & wanted != 0;
        self.enabled
            .is_some_and(|bits| has(bits, STATION) && !has(bits, BRIDGE | ROUTER))
    }
}

/// Decodes a whole Ethernet frame.
///
/// # Errors
/// Why it is no data unit.
pub fn frame(bytes: &[u8]) -> Result<LldpNeighbour, LldpError> {
    let kind = bytes.get(12..HEADER).ok_or(LldpError::Short)?;
    if kind != ETHERTYPE.to_be_bytes() {
        return Err(LldpError::Protocol);
    }
    data_unit(&bytes[HEADER..])
}

/// Decodes a data unit, behind the Ethernet header.
///
/// # Errors
/// Why it is none.
pub fn data_unit(mut rest: &[u8]) -> Result<LldpNeighbour, LldpError> {
    let mut told = LldpNeighbour::default();
    for count in 0.. {
        // The end mark may be missing where the frame ends.
        if rest.is_empty() && count >= 3 {
            break;
        }
        let (head, behind) = rest.split_at_checked(2).ok_or(LldpError::Short)?;
        let word = u16::from_be_bytes([head[0], head[1]]);
        let (kind, len) = (word >> 9, usize::from(word & 0x1ff));
        let (value, after) = behind.split_at_checked(len).ok_or(LldpError::Short)?;
        rest = after;
        match (count, kind) {
            (0, 1) => told.chassis = identifier(value, Subtypes::CHASSIS)?,
            (1, 2) => told.port = identifier(value, Subtypes::PORT)?,
            (2, 3) => {
                let seconds = value.first_chunk::<2>().ok_or(LldpError::Length)?;
                told.seconds = u16::from_be_bytes(*seconds);
            }
            (0..=2, _) => return Err(LldpError::Order),
            (_, 0) => break,
            (_, 1..=3) => return Err(LldpError::Twice),
            (_, 4) => once(&mut told.port_description, value)?,
            (_, 5) => once(&mut told.system_name, value)?,
            (_, 7) => {
                let bits = value.get(2..4).ok_or(LldpError::Length)?;
                told.enabled = Some(u16::from_be_bytes([bits[0], bits[1]]));
            }
            _ => {}
        }
    }
    Ok(told)
}

fn once(place: &mut Option<String>, value: &[u8]) -> Result<(), LldpError> {
    if place.is_some() {
        return Err(LldpError::Twice);
    }
    let text = text(value);
    *place = (!text.is_empty()).then_some(text);
    Ok(())
}

/// How a field's subtype says what its bytes are.
struct Subtypes {
    hardware_address: u8,
    network_address: u8,
}

impl Subtypes {
    const CHASSIS: Self = Self {
        hardware_address: 4,
        network_address: 5,
    };
    const PORT: Self = Self {
        hardware_address: 3,
        network_address: 4,
    };
}

/// An identifier: a subtype and at least one byte.
fn identifier(value: &[u8], subtypes: Subtypes) -> Result<String, LldpError> {
    let (kind, id) = value.split_first().ok_or(LldpError::Length)?;
    let told = match *kind {
        kind if kind == subtypes.hardware_address => hexadecimal(id),
        kind if kind == subtypes.network_address => address(id),
        _ => text(id),
    };
    match told.is_empty() {
        true => Err(LldpError::Length),
        false => Ok(told),
    }
}

fn address(id: &[u8]) -> String {
    let four = |bytes: &[u8]| {
        bytes
            .try_into()
            .ok()
            .map(|four: [u8; 4]| Ipv4Addr::from(four))
    };
    let sixteen = |bytes: &[u8]| {
        bytes
            .try_into()
            .ok()
            .map(|all: [u8; 16]| Ipv6Addr::from(all))
    };
    let known = match id.split_first() {
        Some((1, bytes)) => four(bytes).map(|address| address.to_string()),
        Some((2, bytes)) => sixteen(bytes).map(|address| address.to_string()),
        _ => None,
    };
    known.unwrap_or_else(|| hexadecimal(id))
}

fn hexadecimal(bytes: &[u8]) -> String {
    let mut told = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        // Writing to a string does not fail.
        let _ = write!(told, "{colon}{byte:02x}");
    }
    told
}

/// Text that a terminal may see, whatever a neighbour sent, and no longer than a name.
fn text(bytes: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(bytes)
        .chars()
        .map(|letter| match letter.is_control() {
            true => '?',
            false => letter,
        })
        .collect();
    let mut end = text.len().min(crate::limits::NAME_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    // Some systems pad their names.
    text[..end].trim_matches([' ', '?']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn field(kind: u16, value: &[u8]) -> Vec<u8> {
        let head = kind << 9 | value.len() as u16;
        [&head.to_be_bytes()[..], value].concat()
    }

    fn unit(more: &[Vec<u8>]) -> Vec<u8> {
        let chassis = field(1, b"\x04\x02\x00\x00\x00\x00\x07");
        let port = field(2, b"\x05swp3");
        let seconds = field(3, &[0, 120]);
        [chassis, port, seconds, more.concat()].concat()
    }

    #[test]
    fn a_switch_and_a_host_say_who_they_are() {
        let bridge = unit(&[
            field(4, b"to node3"),
            field(5, b"leaf1"),
            field(7, &[0, 0x14, 0, 0x04]),
            field(127, &[0, 0x12, 0x0f, 1, 3]),
            field(0, &[]),
            b"padding of short frames".to_vec(),
        ]);
        let told = data_unit(&bridge).unwrap();
        assert_eq!(
            (told.name(), told.port.as_str(), told.seconds),
            ("leaf1", "swp3", 120)
        );
        assert_eq!(told.port_description.as_deref(), Some("to node3"));
        assert!(!told.is_host());
        let station = data_unit(&unit(&[field(7, &[0, 0x80, 0, 0x80])])).unwrap();
        assert_eq!(station.name(), "02:00:00:00:00:07");
        assert!(station.is_host());
        let mut whole = [&GROUPS[0][..], &[2, 0, 0, 0, 0, 7], &[0x88, 0xcc]].concat();
        whole.extend(&bridge);
        assert_eq!(frame(&whole), Ok(told));
        whole[12] = 8;
        assert_eq!(frame(&whole), Err(LldpError::Protocol));
    }

    #[test]
    fn broken_units_are_refused_with_the_reason() {
        let good = unit(&[field(0, &[])]);
        for end in 0..good.len() - 2 {
            assert_eq!(data_unit(&good[..end]), Err(LldpError::Short), "{end}");
        }
        assert_eq!(data_unit(&field(2, b"\x05a")), Err(LldpError::Order));
        let twice = unit(&[field(5, b"a"), field(5, b"b")]);
        assert_eq!(data_unit(&twice), Err(LldpError::Twice));
        assert_eq!(data_unit(&field(1, &[4])), Err(LldpError::Length));
        let escape = unit(&[field(5, b"\x1b[31mleaf\x00")]);
        assert_eq!(data_unit(&escape).unwrap().name(), "[31mleaf");
    }

    proptest! {
        #[test]
        fn no_frame_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(told) = data_unit(&bytes) {
                prop_assert!(!told.chassis.is_empty() && !told.name().contains(char::is_control));
            }
            let _ = frame(&bytes);
        }

        #[test]
        fn no_field_does_harm(kind in 0u16..128, value in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(told) = data_unit(&unit(&[field(kind, &value)])) {
                prop_assert!(!told.name().is_empty() && told.name().len() <= crate::limits::NAME_MAX);
            }
        }
    }
}
