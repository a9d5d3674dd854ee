//! What agents say of ranks that do not reach each other, and of the ways that are found for them
//! (docs/reference/job.md, D4 and D5: 310, 312, 313, 319, 320, 329, 331, 337, 338).

use crate::error::Result;
use crate::rank_messages::{MessageReader, MessageWriter};

/// A rank wants to be called by another, whom it does not reach itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ReverseConnectRequest {
    /// The one that is to be called.
    pub from: u32,
    /// The one that is to call.
    pub to: u32,
    /// For bulk data, not for packets.
    pub bulk: bool,
}

/// A way between hosts that have no network in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelayRoute {
    /// The node where it leads.
    pub to: u32,
    /// The node that passes calls on.
    pub via: u32,
    /// Port of the relay.
    pub port: u16,
}

/// A relay at which two ranks that nobody can connect to may meet, if the hosts of both reach it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RendezvousPoint {
    /// The two.
    pub call: ReverseConnectRequest,
    /// The node that joins their calls.
    pub via: u32,
    /// Port of the relay.
    pub port: u16,
}

pub(super) fn put_reverse_connect(
    writer: MessageWriter,
    call: &ReverseConnectRequest,
) -> MessageWriter {
    writer
        .raw(call.from.to_le_bytes())
        .raw(call.to.to_le_bytes())
        .raw([u8::from(call.bulk)])
}

pub(super) fn read_reverse_connect(r: &mut MessageReader<'_>) -> Result<ReverseConnectRequest> {
    Ok(ReverseConnectRequest {
        from: r.u32()?,
        to: r.u32()?,
        bulk: r.raw()? != [0],
    })
}

pub(super) fn put_relay_route(writer: MessageWriter, way: &RelayRoute) -> MessageWriter {
    writer
        .raw(way.to.to_le_bytes())
        .raw(way.via.to_le_bytes())
        .raw(way.port.to_le_bytes())
}

pub(super) fn read_relay_route(r: &mut MessageReader<'_>) -> Result<RelayRoute> {
    Ok(RelayRoute {
        to: r.u32()?,
        via: r.u32()?,
        port: r.u16()?,
    })
}

pub(super) fn put_rendezvous_point(
    writer: MessageWriter,
    venue: &RendezvousPoint,
) -> MessageWriter {
    put_reverse_connect(writer, &venue.call)
        .raw(venue.via.to_le_bytes())
        .raw(venue.port.to_le_bytes())
}

pub(super) fn read_rendezvous_point(r: &mut MessageReader<'_>) -> Result<RendezvousPoint> {
    Ok(RendezvousPoint {
        call: read_reverse_connect(r)?,
        via: r.u32()?,
        port: r.u16()?,
    })
}
