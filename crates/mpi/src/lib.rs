//! MPI semantics over an engine: communicators, datatypes, point-to-point, collectives, topologies, errors.
//!
//! The C edge (`mpi-abi`) decodes handles and calls in here; simulated jobs call in here directly. A rank is a value
//! ([`process::Process`]): nothing in this crate is global, so several ranks may live in one OS process.

#![forbid(unsafe_code)]

pub mod comm;
pub mod datatype;
pub mod error;
pub mod group;
pub mod limits;
pub mod process;
