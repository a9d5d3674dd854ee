//! What all transports share: the conformance suite that each of them passes, the limits of what
//! they take, the kernel's description of memory in blocks, and how a transport is loaded as a
//! module.
//!
//! The trait that they implement is [`garonne_engine::transport::Transport`]. No unsafe code
//! outside files named `sys.rs`.

#![deny(unsafe_code)]

pub mod conformance;
pub mod dynamic;
pub mod fuzz_seeds;
pub mod interceptor;
pub mod iovec;
pub mod limits;
pub mod module;
pub mod sys;
pub mod timer_fd;
