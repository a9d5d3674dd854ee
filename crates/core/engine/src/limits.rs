//! Every bound of the engine, each with the sentence that justifies it.

/// Bytes of a transport's own in a descriptor: libfabric keys can exceed 128 bits and come with an
/// address each.
pub const DESCRIPTOR_BLOB_MAX: usize = 40;

/// Payload that every control packet may carry: a request to send with the largest descriptor fits,
/// and two cache lines hold it with its header.
pub const CONTROL_PAYLOAD_MAX: usize = 88;

/// Unexpected envelopes that one peer may leave here in a small job; larger jobs share
/// [`ENVELOPES_TOTAL`]: two windows of 64 messages of each of 32 threads. Also bounds what is
/// queued for a peer that reads nothing: an answer for each envelope, since their credit counts as
/// returned when it has left, and one to a question.
pub const ENVELOPES_MAX: u32 = 4096;

/// Least unexpected envelopes granted to a peer: enough that a burst of small sends to a busy
/// receiver never waits.
pub const ENVELOPES_MIN: u32 = 1024;

/// Unexpected envelopes that all peers together may leave here, as long as the minimum per peer
/// allows it: 13 MB of records.
pub const ENVELOPES_TOTAL: u32 = 64 << 10;

/// Unexpected payload in bytes that one peer may leave here in a small job; larger jobs share
/// [`PAYLOAD_TOTAL`]. A window of eight of the longest messages that travel with their envelope.
pub const PAYLOAD_CREDIT_MAX: u64 = 2 << 20;

/// Unexpected payload in bytes granted to a peer of another world: one of the longest messages that
/// travel with their envelope.
pub const PAYLOAD_BETWEEN_WORLDS: u64 = 256 << 10;

/// Least unexpected payload in bytes granted to a peer: a handful of eager messages.
pub const PAYLOAD_CREDIT_MIN: u64 = 16 << 10;

/// Unexpected payload in bytes that all peers together may leave here, as long as the minimum per
/// peer allows it.
pub const PAYLOAD_TOTAL: u64 = 16 << 20;

/// Payload in bytes that sends to oneself may leave unexpected before they wait for their receive
/// instead.
pub const SELF_CREDIT: u64 = 4 << 20;

/// A send to oneself up to this length is copied once more rather than made to wait for its
/// receive.
pub const SELF_EAGER_MAX: u64 = 64 << 10;

/// Payload kept inside the record of an unexpected message: what a small slot of a transport
/// carries.
pub const UNEXPECTED_INLINE: usize = 32;

/// Largest buffer that the store of unexpected payload keeps for reuse: above it rendezvous is the
/// rule.
pub const UNEXPECTED_BUFFER_LOG2_MAX: u32 = 18;

/// Buffers of one size that the store keeps for reuse: more would only be left behind by a past
/// flood.
pub const UNEXPECTED_BUFFERS: usize = 64;

/// Largest message that may come in fragments behind its envelope: what the store keeps buffers
/// for.
pub const FRAGMENTED_MAX: u64 = 1 << UNEXPECTED_BUFFER_LOG2_MAX;

/// Events that a rank remembers: the last few thousand say what led to where it is, in 64 KB.
pub const EVENTS: usize = 2048;

/// Sends that a send log remembers, in 8 KB: of a rank that sends and receives as much with two
/// neighbours so many of each were among its last events. An inbox has lanes for four writers, so
/// there are some four send logs per rank in each communicator, though one rank that sends to all
/// may have one to each of them.
pub const SEND_LOG: usize = 512;

/// Trails that can be read after a rank's death, in 132 KB that are touched as they fill: those of
/// a rank's first 16 neighbours in its communicators.
pub const SEND_CHANNELS_KEPT: usize = 16;

/// Trails of a rank among which a send is looked for: those of some tens of neighbours in some tens
/// of communicators, each a read of another process's memory.
pub const SEND_LOGS_READ: usize = 4096;

/// Sequences whose place is remembered: a halo exchange talks to some tens of neighbours; 1 KB.
pub const ROUTES: usize = 64;

/// Sequences whose ready messages are taken without a look at sequence and peer state: one for each
/// lane that a rank's neighbours are granted, twice over; 512 B.
pub const RECV_CHANNELS: usize = 8;

/// Packets taken from a transport in one poll: large enough to hide the poll's own cost, small
/// enough that waiting code gets its turn.
pub const POLL_BUDGET: u32 = 32;

/// Polls for what a dead peer sent before its death: more than its inbox holds, and not for ever
/// where others go on sending.
pub const LAST_POLLS: u32 = 4096;

/// Contexts that one packet may revoke: more than a communicator has.
pub const REVOKED_CONTEXTS_MAX: u32 = 16;

/// Packets taken in one poll by who shares the engine with other threads: they wait while it holds
/// the engine.
pub const SHARED_POLL_BUDGET: u32 = 4;

/// One-sided accesses of one origin that a target may still have to answer: at 0.2 µs each they
/// fill a network whose answers take 50 µs. Also bounds the answers that a target keeps for a peer
/// that reads nothing, some 30 KB.
pub const ACCESSES_IN_FLIGHT: u32 = 256;

/// Bytes of elements that one answer to an atomic access brings back: with its header they fit a
/// control packet.
pub const FETCHED_MAX: usize = 64;

/// Bytes of one copy that is carried out without the engine: some twenty microseconds, so that
/// whoever comes back finds most of a message still to be divided.
pub const OFFLOAD_MAX: u64 = 256 << 10;

/// Pieces of large messages that one pass sends to one peer before others get their turn.
pub const PIECES_PER_PASS: u32 = 8;

/// Length of messages for which the transport is asked anew what it can do: the question takes a
/// hundredth of their way.
pub const CAPABILITIES_FROM: u64 = 4096;

/// Pieces that a message is cut into at least, as far as [`PIECE_MIN`] allows: both sides copy at
/// once for all but one of them.
pub const PIECES_AT_LEAST: u64 = 8;

/// Least piece: a record's own cost is a tenth of copying this.
pub const PIECE_MIN: u64 = 4 * 1024;

/// Bytes gathered at a time between two non-contiguous sides: fits the first cache.
pub const BOUNCE_BYTES: usize = 4096;

/// Blocks of a layout looked up first, to see whether they are large.
pub const BLOCKS_AT_FIRST: usize = 8;

/// Blocks of a layout looked up at a time when large blocks are copied in place.
pub const BLOCKS_AT_A_TIME: usize = 64;

/// Operations looked at to say what a rank waits for: said while going to sleep, so it must not
/// take longer than that.
pub const PENDING_SCAN_MAX: usize = 4096;

/// Bytes that surely move during one unsuccessful poll of ten nanoseconds: 4 GB/s, what the slowest
/// copies between cores reach.
pub const BYTES_PER_POLL: u64 = 40;

/// Bytes of a transfer that a waiter watches without sleep: beyond a few milliseconds a wake-up no
/// longer counts.
pub const TRANSFER_BYTES_MAX: u64 = 16 << 20;

/// Longest message that its sender writes ahead: it does so in one go, in a call that may have been
/// made for something else, and more would keep that call for longer than a few milliseconds.
pub const EARLY_RTR_TO: u64 = 16 << 20;

/// Offers of offered receives that an engine remembers, of all peers together: a rank has some
/// tens of neighbours, and what is forgotten is fetched instead.
pub const EARLY_OFFERS_MAX: usize = 64;

/// Receives that a rank announces at a time: half of what a transport may expose at once, so that
/// sends find room there, too.
pub const EARLY_OFFERS_SENT: usize = 32;

/// Envelopes to one peer and context that are looked up among what was sent to find the one that an
/// offer is for: a fraction of the ring of events, since others use it, too.
pub const EARLY_LOG: u64 = 256;

/// Posted receives of the same messages before one that is announced: a window of requests in
/// flight.
pub const EARLY_SKIP_MAX: u32 = 64;

/// Receives with more room than this may be offered early, and messages longer than this are then
/// written there while the receiver computes; the transport's own limit counts, too. Asked where
/// receives are posted, which for small ones must cost nothing more.
pub const EARLY_RTR_FROM: u32 = 16 << 10;

/// Control packets for which there is room from the beginning: credits return on the way of small
/// messages, which must not allocate.
pub const OUTBOX: usize = 8;

/// Low bits of a request's generation that a short name keeps: enough to notice most uses of a
/// handle after its end, and with 23 bits of slot a name fits a C `int`.
pub const SHORT_GENERATION_BITS: u32 = 6;

/// Longest message that is kept for others to leave with it: beyond, the write that it spares costs
/// less than its bytes. A write of 64 KB over TCP takes as long as three or four of 8 KB, and a
/// sixth less than two of 32 KB.
pub const COALESCE_EACH_MAX: usize = 32 * 1024;

/// Bytes that are kept at most: what a write carries well while the receiver reads what came
/// before.
pub const COALESCE_BYTES: usize = 64 * 1024;

/// Longest message that counts as small where a window is full, and overtakes longer ones: some of
/// them leave in the time of one of those.
pub const ORDER_SMALL_MAX: usize = 4096;

/// Series in a row after which the first message of the next is kept, too: fewer are chance.
pub const COALESCE_SERIES: u32 = 3;

/// Messages that leave at once after one was overdue, the first time; it doubles up to
/// [`COALESCE_BACKOFF_MAX`].
pub const COALESCE_BACKOFF_FIRST: u32 = 32;

/// See [`COALESCE_BACKOFF_FIRST`]: with it the time lost in waiting in vain is less than what the
/// messages between cost.
pub const COALESCE_BACKOFF_MAX: u32 = 1 << 15;

/// Looks that came in time for what was kept after which those that did not are forgotten.
pub const COALESCE_FORGIVES_AFTER: u32 = 256;

/// Messages of a window that a plan looks at: planning takes a microsecond or two then, on
/// transports whose packets take longer.
pub const ORDER_LOOK_AHEAD: usize = 64;

/// One message in so many of a plan is the oldest that waits: small ones have most of the
/// transport, and large ones still move.
pub const ORDER_FAIR: usize = 8;

/// Messages that overtake the oldest of a window at most before it leaves with the next room,
/// whatever a plan says: a look-ahead's worth, so that plans have their way where windows drain.
pub const ORDER_PATIENCE: u32 = 64;

/// Ways over which large data are split at most: with more, shares of what is just worth splitting
/// would be too small for any way to take them.
pub const STRIPE_PATHS: usize = 4;

/// Bytes of a piece at least, where data are split: on a fast network the request costs about as
/// much as moving them.
pub const STRIPE_LEAST: u64 = 64 * 1024;

/// Bytes of a piece at most: what a connection that breaks may keep of a transfer.
pub const STRIPE_MOST: u64 = 8 << 20;

/// Bytes of a piece where all are to be alike: several of what is just worth splitting, and long
/// enough for a request to cost little.
pub const STRIPE_EQUAL: u64 = 256 * 1024;

/// Microseconds that a piece should take at most: ten of them are soon enough to learn that a way
/// has become slower, and rare enough to cost nothing.
pub const STRIPE_MICROSECONDS: f64 = 20_000.0;

/// Random questions of each kind that a strategy is examined with, each asked twice: a property
/// that fails once in some hundreds is found, in less than a second.
pub const EXAMINE_CASES: u64 = 2000;

/// Sequences of messages in which it is looked for one that is overtaken for ever.
pub const EXAMINE_STREAMS: u64 = 64;

/// Messages that may overtake one there: sixteen look-aheads, many times what any fair order needs.
pub const EXAMINE_STARVED: u64 = 1024;

/// Longest sleep of who would sleep on several bells where that cannot be: long enough to cost less
/// than a fiftieth of a core, and short beside what waits for so rare a case.
pub const SHORT_SLEEP: std::time::Duration = std::time::Duration::from_millis(1);

/// Messages kept, and operations ended, that an engine remembers for those who wait until its host
/// has told them: more than a poll or a call brings, so that nobody is woken in vain.
pub const COMPLETION_EVENTS_MAX: usize = 256;
