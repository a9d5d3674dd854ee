//! What hosts reach each other by, as agents tell it when a network is to be left alone
//! (docs/reference/job.md, D16).

use super::count;
use ipnet::IpNet;

use crate::error::Result;
use crate::limits;
use crate::rank_messages::{MessageReader, MessageWriter, malformed, network, put_network};

/// An address of a host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address, with the bits of its network.
    pub at: IpNet,
    /// Ranks may use it.
    pub usable: bool,
    /// Ranks may go on from there, through a router.
    pub leads_on: bool,
    /// The interface has a link.
    pub linked: bool,
}

const USABLE: u8 = 1;
const LEADS_ON: u8 = 2;
const LINKED: u8 = 4;

pub(super) fn put_interface_addresses(
    writer: MessageWriter,
    all: &[InterfaceAddress],
) -> MessageWriter {
    let shown = &all[..all.len().min(limits::ADDRESSES_MAX)];
    let writer = writer.raw((shown.len() as u32).to_le_bytes());
    shown.iter().fold(writer, |writer, own| {
        let usable = if own.usable { USABLE } else { 0 };
        let leads_on = if own.leads_on { LEADS_ON } else { 0 };
        let linked = if own.linked { LINKED } else { 0 };
        put_network(writer, &own.at).raw([usable | leads_on | linked])
    })
}

pub(super) fn read_interface_addresses(r: &mut MessageReader<'_>) -> Result<Vec<InterfaceAddress>> {
    let count = count(r, 7, limits::ADDRESSES_MAX)?;
    let one = |r: &mut MessageReader<'_>| {
        let (at, [flags]) = (network(r)?, r.raw()?);
        if flags > USABLE | LEADS_ON | LINKED {
            return Err(malformed("an address has what is unknown"));
        }
        Ok(InterfaceAddress {
            at,
            usable: flags & USABLE != 0,
            leads_on: flags & LEADS_ON != 0,
            linked: flags & LINKED != 0,
        })
    };
    (0..count).map(|_| one(r)).collect()
}
