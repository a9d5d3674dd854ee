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

/// Longest message that a connection takes unless its attributes say otherwise: more than programs
/// send at once, and less than what a hostile peer could hurt a machine with.
pub const MESSAGE_MAX: u64 = 256 << 20;

/// Bytes that a connect request or its answer may carry: a name and a version, not a message.
pub const CONNECT_DATA_MAX: usize = 1024;

/// Connect requests that wait for the program's answer at one endpoint. Further callers are sent
/// away, and may call again.
pub const REQUESTS_MAX: usize = 1024;

/// Bytes of received messages that wait in the event queue of an endpoint. Beyond, messages stay
/// with the engine, whose credits stop their senders.
pub const HELD_MAX: usize = 64 << 20;

/// Events that wait in the queue of an endpoint before messages stay with the engine.
pub const EVENTS_MAX: usize = 4096;

/// Longest message that is offered to the engine's shortest way: beyond, copying costs more than
/// the way.
pub const SMALL_MAX: usize = 64 << 10;

/// Messages of one connection that are received at once: enough to hide the round trip of a large
/// one.
pub const RECEIVES_MAX: usize = 8;

/// Time after which the two ends of a new connection must have agreed: several round trips of a
/// busy machine.
pub const AGREE_LIMIT: Duration = Duration::from_secs(10);

/// Pause between two looks at connections that come to be: little beside their round trips.
pub const AGREE_LOOK: Duration = Duration::from_millis(1);

/// Calls that were cut off and are tried again: a listener with many callers cuts some.
pub const CALLS_AGAIN: u32 = 4;

/// Pause before a call is tried again.
pub const CALL_PAUSE: Duration = Duration::from_millis(50);

/// Time that a connection that is closed tries to bring what it sent to the other side: the
/// transport gives up a silent peer by then.
pub const CLOSE_LIMIT: Duration = Duration::from_secs(40);

/// Connections up to which each one is polled at once. With more of them the system is asked first
/// which have something.
pub const POLLED_ALL_MAX: usize = 4;

/// Polls of few connections between two looks at what calls: calls are not in a hurry.
pub const POLLS_PER_LOOK: u32 = 16;

/// Bytes that hold every URI that [`EventEndpoint::listen`](crate::EventEndpoint::listen) returns,
/// with a zero at its end: the scheme, an address of IPv6 with its zone, and a port.
pub const URI_MAX: usize = 96;

/// Pause between two looks of an endpoint of a rank that waits: what comes within a host changes
/// memory, and rings no descriptor.
pub const JOB_LOOK: Duration = Duration::from_micros(500);
