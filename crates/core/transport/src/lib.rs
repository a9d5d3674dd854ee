//! What all transports share: the conformance suite that each of them passes, the limits of what
//! they take, and the kernel's description of memory in blocks.
//!
//! The trait that they implement is [`garonne_engine::transport::Transport`]. No unsafe code
//! outside `sys.rs`.

#![deny(unsafe_code)]

pub mod conformance;
pub mod fuzz_seeds;
pub mod iovec;
pub mod limits;
pub mod sys;
