//! Every bound of the rails, each with the sentence that justifies it.

/// Lanes in an inbox: a rank's hot peers are a few neighbours, and every lane costs each poll one look.
pub const LANES: usize = 4;

/// Slots of a mailbox: a window of 64 messages from each of several peers fits, in half of a first-level cache.
pub const MAILBOX_SLOTS: u32 = 512;

/// Payload area of a mailbox in 64-byte units: four of the largest packets plus what small ones need.
pub const MAILBOX_UNITS: u32 = 4096;

/// Slots of a lane: a window of 64 messages twice over, so that reader and writer never stand on each other's toes.
pub const LANE_SLOTS: u32 = 256;

/// Payload area of a lane in units: four of the largest packets, the depth of a pipelined copy.
pub const LANE_UNITS: u32 = 2048;

/// Slots that only control packets may use: an eighth, so that data flows on when the rest is full.
pub const RESERVED_SLOTS_DIVISOR: u32 = 8;

/// Payload units that only control packets may use, per reserved slot: the largest control payload takes two, and one
/// may be lost where the area wraps.
pub const RESERVED_UNITS_PER_SLOT: u32 = 3;

/// Largest payload of a packet: a quarter of a lane's area, so that two sides copy at the same time.
pub const PACKET_MAX: usize = 32 * 1024;

/// Payloads up to this length are sent without a separate claim: copying them in one go costs less than lending room, as long as
/// nothing is gained by letting the receiver begin before the end.
pub const INLINE_MAX: usize = 4096;

/// Payloads that travel with their envelope where the peer's memory cannot be read: as much as a packet takes, whose second
/// copy still costs less than a handshake.
pub const EAGER_MAX: usize = PACKET_MAX;

/// The same where it can: what two copies move before an announcement and a system call have.
pub const EAGER_READABLE_MAX: usize = 16 * 1024;

/// Shortest message that follows its envelope in pieces: below, more records cost what copying at the same time saves.
pub const FLOW_FROM: usize = 8 * 1024;

/// Bytes of such a piece: the receiver begins after a third of a microsecond, and a record costs half of that.
pub const FLOW_PIECE: usize = 4 * 1024;

/// Records from one writer in the mailbox before it is granted a free lane: enough to tell a neighbour from a passer-by.
pub const LANE_GRANT_AFTER: u32 = 16;

/// Regions a rank can have exposed at once: beyond that, messages travel by packets until one is revoked.
pub const REGIONS: usize = 64;

/// Ranks of one node: what sixteen bits of a slot's stamp can name.
pub const RANKS_MAX: u32 = 1 << 15;

/// Blocks of a region that is not contiguous: a list of 64 KB, read once per message by whoever reads the region.
pub const REGION_BLOCKS_MAX: usize = 4096;

/// Mean length below which blocks travel packed instead: the kernel spends about as long on a block's bookkeeping as on
/// copying this much.
pub const REGION_BLOCK_MIN: u64 = 1024;

/// How long a failed transfer waits to hear that its peer died: an agent hears of a death within milliseconds.
pub const VERDICT_WAIT: std::time::Duration = std::time::Duration::from_millis(100);

/// Bytes of one bulk read, so that other traffic gets its turn: a tenth of a millisecond at 10 GB/s.
pub const READ_CHUNK: u64 = 1 << 20;

/// Shared memory for collectives of each rank that is a thread: the boards of several communicators. Virtual until touched.
pub const COMMONS_BYTES: usize = 16 << 20;

/// Alignment of a rank's share of the memory for collectives: no two shares have a page in common.
pub const COMMONS_ALIGN: usize = 4096;

/// Least part of a shared copy: below, the price of the call outweighs what two cores save.
pub const PART_MIN: u64 = 32 * 1024;

/// Largest part of a shared copy: what one side does at most while the other has nothing left to do.
pub const SHARE_PART_MAX: u64 = 256 * 1024;

/// Shortest message that two sides may share: two parts.
pub const SHARE_MIN: u64 = 2 * PART_MIN;

/// Classes of length by which paces are kept, each twice the one before; the first is that of [`PACE_FROM_LOG2`].
pub const PACE_CLASSES: usize = 14;

/// Shorter messages count with the first class: 4 KB, from which bytes cost more than the call.
pub const PACE_FROM_LOG2: u32 = 12;

/// Peers whose paces a rank shows to those who watch: the first that announced something, which are its neighbours as a rule.
pub const PACES_SHOWN: usize = 16;

/// Messages of one class between two tries of a way that is not preferred: half a per cent of them may take a few times longer.
pub const PACE_RETRY_EVERY: u32 = 200;

/// Slots that a reader of several records fetches ahead: what it handles in the time in which a line comes from another core.
pub const FETCH_AHEAD: u32 = 4;

/// The same while a way is not measured in its class, but only known from other lengths.
pub const PACE_LEARN_EVERY: u32 = 8;

/// Times that a way must have been measured to count as known: the first pay for pages and caches that were never touched, and one may
/// meet a preemption.
pub const PACE_SURE: u8 = 4;
