//! Bounds of the Ethernet transport.

/// Bytes behind the Ethernet header that every network carries. Longer frames only on request:
/// an interface's own MTU says nothing about the switches behind it.
pub const FRAME_DEFAULT: usize = 1500;
/// Longest frame that may be asked for: what is common for jumbo frames.
pub const FRAME_MAX: usize = 9000;
/// Shortest frame that may be asked for: a packet of the engine has to fit in the window.
pub const FRAME_MIN: usize = 1500;
/// Bytes behind the Ethernet header that are tried first where longer frames got lost: tunnels and
/// VLAN tags leave at least this.
pub const FRAME_SURE: usize = 576;
/// Shortest limit of frames that is worth it: below, TCP carries all.
pub const FRAME_LEAST: usize = 128;
/// Time without progress after which a path is asked whether it carries frames: longer than a
/// woken process of a busy host takes.
pub const DOUBT_NS: u64 = 100_000_000;
/// Longest time between two such questions: a peer that computes is not asked all the time.
pub const DOUBT_MAX_NS: u64 = 5_000_000_000;
/// Time that a frame may take longer than another one that was answered.
pub const PROBE_GRACE_NS: u64 = 30_000_000;
/// Times that a probe for a length is sent to a peer that answers nothing.
pub const PROBE_TRIES: u32 = 6;
/// Time between two looks whether frames arrive again.
pub const RETURN_NS: u64 = 1_000_000_000;
/// Time between two looks whether longer frames arrive.
pub const LONGER_NS: u64 = 5_000_000_000;
/// Bytes behind the Ethernet header of frames that TCP carries: one packet of it.
pub const FRAME_BY_TCP: usize = 32 * 1024;
/// Frames that wait for TCP to take them; more are as good as lost.
pub const BY_TCP_MAX: usize = 512;
/// Peers of which a rank shows what it knows.
pub const SHOWN_PEERS: usize = 128;
/// Bytes of the receive ring for each [`FRAME_JUMBO`] of a frame's longest: a window of each of 20
/// peers, in slots of 2 KB; half as many in slots of 16 KB.
pub const RING_BYTES: usize = 2 << 20;
/// Length of frames from which the receive ring grows.
pub const FRAME_JUMBO: usize = 2000;
/// Ethertype of frames: the first of those that IEEE 802 leaves for local experiments.
pub const ETHERTYPE: u16 = 0x88B5;
/// First wait for an acknowledgement: a woken process of a busy host answers sooner.
pub const RETRY_FIRST_NS: u64 = 1_000_000;
/// Longest wait for an acknowledgement: a rank that returns from computing is heard within it.
pub const RETRY_MAX_NS: u64 = 50_000_000;
/// Packets after which an acknowledgement leaves although more may come: a quarter of a window.
pub const ACKNOWLEDGE_AFTER: u32 = 12;
/// Frames of one block of large data at most: requests that are repeated to a peer which was only
/// late bring no more than a ring holds.
pub const BLOCK_FRAMES_MAX: usize = 64;
/// Frames of one block at least where many peers are read at once.
pub const BLOCK_FRAMES_MIN: usize = 32;
/// Time after the last frame of a block at which those that are still missing count as lost.
pub const OVERTAKEN_NS: u64 = 200_000;
/// Blocks asked for and not there, per peer: one on its way while another is being asked for.
pub const BLOCKS_ASKED: usize = 2;
/// Regions that peers may read at once.
pub const REGIONS_MAX: usize = 1 << 16;
/// Frames taken from the ring in one poll: others get their turn between.
pub const FRAMES_PER_POLL: u32 = 64;
/// Time between two looks at who has died or left.
pub const LIVENESS_CHECK_NS: u64 = 20_000_000;
/// Times that a goodbye is sent: the third is lost rarely, and the agent tells of ends, too.
pub const GOODBYES: u32 = 3;
/// Pieces that wait for the window before a peer takes no more packets: another window.
pub const BACKLOG: usize = 64;
/// Pieces that may wait when a control packet is added: a longest packet and a reserve more, so
/// that control goes on where data have to wait.
pub const BACKLOG_CONTROL: usize = BACKLOG + 64;
