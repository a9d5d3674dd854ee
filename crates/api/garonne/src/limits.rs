//! Every bound of this crate, each with the sentence that justifies it.

use std::time::Duration;

/// Largest tag: the packet header has room for 31 bits.
pub const TAG_MAX: u32 = i32::MAX as u32;

/// Time that [`Endpoint::connect`](crate::Endpoint::connect) waits for the other side's `accept`:
/// longer than a busy machine needs to start a process.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// Pause between two looks while a connection comes to be: little beside the round trips of the
/// handshake between hosts.
pub const CONNECT_LOOK: Duration = Duration::from_micros(200);

/// Time that an endpoint that leaves tries to end operations whose requests were dropped: sends to
/// a peer that never receives would keep it for ever.
pub const LEAVE_LIMIT: Duration = Duration::from_secs(2);

/// Looks at the sockets of a pair before a waiting thread sleeps: some tens of microseconds, a
/// round trip between hosts.
pub const SPINS: u32 = 200;

/// Bytes of the longest greeting: an address of IPv6 with its zone and port as text.
pub const GREETING_MAX: usize = 96;
