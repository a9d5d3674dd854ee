//! The limits of this crate, each with the reason for its value.

/// Highest CPU number plus one: what the kernel's largest configuration supports; bounds masks read
/// from text.
pub const CPUS_MAX: u32 = 8192;
