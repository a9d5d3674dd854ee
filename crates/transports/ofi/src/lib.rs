//! Networks that libfabric reaches, if the library is on the machine: it is loaded at run time, and
//! nothing is linked to it.
//!
//! [`abi`] is what of the library's binary interface is used, [`library`] loads it and asks which
//! providers it has, [`endpoint`] moves messages and memory by one of them. Knows nothing of ranks,
//! jobs or packets: who uses an endpoint says whom it belongs to.

#![warn(missing_docs)]

pub mod abi;
pub mod endpoint;
pub mod library;
