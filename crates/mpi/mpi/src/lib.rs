//! MPI semantics over an engine: communicators, datatypes, point-to-point, collectives, topologies,
//! errors.
//!
//! The C edge (`bodies`) decodes handles and calls in here; simulated jobs call in here directly.
//! A rank is a value ([`process::Process`]): nothing in this crate is global, so several ranks may
//! live in one OS process.
//!
//! # How the edge calls in
//!
//! - Objects ([`comm::Comm`], [`request::Request`], [`info::Info`], [`group::Group`],
//!   [`session::Session`] …) are values that the edge keeps behind its handles. Predefined handles
//!   are mapped by the edge; null handles never come here.
//! - A buffer, count and datatype become a [`garonne_sync::user::Data`] at the edge.
//! - Every fallible function returns [`error::Result`]. The edge raises an `Err` on the error
//!   handler of the object that the standard names and returns [`error::Error::code`].
//! - Constants that are arguments (`MPI_ANY_SOURCE`, `MPI_PROC_NULL` …) have their ABI values
//!   everywhere in this crate.

#![forbid(unsafe_code)]

pub mod attr;
pub mod coll;
pub mod comm;
pub mod datatype;
pub mod errhandler;
pub mod error;
pub mod file;
pub mod group;
pub mod info;
pub mod limits;
pub mod op;
mod ordered_map;
pub mod p2p;
pub mod partitioned;
pub mod process;
pub mod request;
pub mod session;
pub mod topo;
mod unmatched_sends;
pub mod unreceived_messages;
pub mod win;

#[cfg(test)]
pub(crate) mod testing;

/// `MPI_ANY_SOURCE` of the standard ABI.
pub const ANY_SOURCE: i32 = -1;
/// `MPI_ANY_TAG` of the standard ABI.
pub const ANY_TAG: i32 = -2;
/// `MPI_PROC_NULL` of the standard ABI.
pub const PROC_NULL: i32 = -3;
/// `MPI_ROOT` of the standard ABI.
pub const ROOT: i32 = -4;
/// `MPI_UNDEFINED` of the standard ABI.
pub const UNDEFINED: i32 = -32766;

/// Reads any bytes as what other worlds and partners of partitioned communication send.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    comm::other_worlds::read_anything(bytes);
    partitioned::matching::read_anything(bytes);
}

#[cfg(test)]
#[test]
fn kept_inputs_are_read_again() {
    garonne_transport::fuzz_seeds::replay("worlds_and_partitions", read_anything);
}
