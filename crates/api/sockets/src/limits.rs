//! Bounds of this library, each with its reason.

use std::time::Duration;

/// Descriptors that may be virtual sockets: numbers below this. Tables of words by number; pages
/// that nobody touches cost nothing.
pub(crate) const DESCRIPTORS: usize = 1 << 17;

/// Bytes that are copied before they are published: the other side copies meanwhile.
pub(crate) const COPY_STEP: usize = 32 << 10;

/// Longest spin before a sleep: as long as waking a sleeper takes.
pub(crate) const SPIN: Duration = Duration::from_micros(30);

/// A spin that is shorter is not worth its clock readings.
pub(crate) const SPIN_MIN_NS: u32 = 1_000;

/// Sleeps without a spin before one is tried again, once spins have failed.
pub(crate) const SPIN_PAUSE: u32 = 16;

/// Filler bytes at most: a socket of the least buffer takes six.
pub(crate) const FILLERS: u32 = 32;

/// Time for a bell byte that its writer has announced: the writer may have lost its core. A writer
/// that dies meanwhile is noticed at once.
pub(crate) const BELL_MS: i32 = 1_000;

/// Time for an offer whose client has connected to the mailbox and not written yet.
pub(crate) const OFFER_MS: i32 = 1_000;

/// Offers that wait for their connections to be accepted, at most what the system allows.
pub(crate) const OFFERS: i32 = 4_096;

/// Writes between two looks whether the other side lives.
pub(crate) const LOOK_EVERY: u32 = 16;

/// Share of the descriptors that the library takes at most: one of so many.
pub(crate) const OWN_SHARE: usize = 2;

/// Descriptors laid aside for taking an offer: the client's way, the memory and the socket.
pub(crate) const RESERVE: usize = 3;

/// Time for the bytes of a writer whose filler came alone: it may have lost its core.
pub(crate) const FILLER_WAIT: Duration = Duration::from_millis(20);
