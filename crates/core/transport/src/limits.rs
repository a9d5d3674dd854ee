//! Every bound of the transports, each with the sentence that justifies it.

/// Lanes in an inbox: a rank's hot peers are a few neighbours, and every lane costs each poll one
/// look.
pub const LANES: usize = 4;

/// Slots of a mailbox: a window of 64 messages from each of several peers fits, in half of a
/// first-level cache.
pub const MAILBOX_SLOTS: u32 = 512;

/// Payload area of a mailbox in 64-byte units: four of the largest packets plus what small ones
/// need.
pub const MAILBOX_UNITS: u32 = 4096;

/// Slots of a lane: a window of 64 messages of each of as many threads as shards, so that none of
/// them waits for a reader whose threads share a core.
pub const LANE_SLOTS: u32 = 1024;

/// Payload area of a lane in units at least: half a megabyte, more than first-level caches hold,
/// and four of them more than second-level caches.
pub const LANE_UNITS: u32 = 8192;

/// Payload area in units of the lanes that an inbox may have to give, together, as long as each has
/// [`LANE_UNITS`]: two megabytes, more than second-level caches hold. What a writer fills again
/// then lies in a cache that both sides share as a rule, or in none, and not in the reader's own,
/// which would have to give it up line by line: two cores of a Zen 4 move 64 KB in 2.7 µs so, in 7
/// to 8 through half a megabyte, 4 MB in 150 µs and in 300. With four megabytes 4 MB take 220
/// again; and four ranks with three lanes of two megabytes each exchange 64 KB in one and a half to
/// twice the time that they take with half a megabyte, since no cache holds all of that.
pub const LANES_UNITS: u32 = 32768;

/// Slots that only control packets may use: an eighth, so that data flows on when the rest is full.
pub const RESERVED_SLOTS_DIVISOR: u32 = 8;

/// Payload units that only control packets may use, per reserved slot: the largest control payload
/// takes two, and one may be lost where the area wraps.
pub const RESERVED_UNITS_PER_SLOT: u32 = 3;

/// Largest payload of a packet: an eighth of a mailbox's area, a sixteenth of the shortest lane's,
/// so that two sides copy at the same time.
pub const PACKET_MAX: usize = 32 * 1024;

/// Payloads up to this length are sent without a separate claim: copying them in one go costs less
/// than lending room, as long as nothing is gained by letting the receiver begin before the end.
pub const INLINE_MAX: usize = 4096;

/// Payloads that travel with their envelope: what both sides copy at once, piece by piece, moves
/// before an announcement and a system call have, and a receive that comes late costs only one copy
/// more. Those longer than a packet do so where a lane has room for all pieces, else they are
/// announced.
pub const EAGER_MAX: usize = 64 * 1024;

/// Shortest message that follows its envelope in pieces: below, more records cost what copying at
/// the same time saves.
pub const FRAGMENTS_FROM: usize = 8 * 1024;

/// Pieces that such a message is cut into, if it is long: the first and the last are copied by one
/// side alone.
pub const FRAGMENTS_MAX: usize = 4;

/// Bytes of a piece from which on two pieces do: what a piece costs beside its copy is a tenth of
/// copying this.
pub const FRAGMENT_MIN: usize = 8 * 1024;

/// Shortest payload for which the stores that write it into a lane are chosen by measurement:
/// below, bypassing the caches saves nothing.
pub const STORES_FROM: usize = 2048;

/// Records from one writer in the mailbox before it is granted a free lane: enough to tell a
/// neighbour from a passer-by.
pub const LANE_GRANT_AFTER: u32 = 16;

/// Regions a rank can have exposed at once: beyond that, messages travel by packets until one is
/// revoked.
pub const REGIONS: usize = 64;

/// One-sided accesses to unmapped memory of a peer that looks for packets go there as requests
/// below this length: a system call takes longer than that, and copies more beyond.
pub const REQUEST_BELOW: u64 = 8 * 1024;

/// Ranks of one node: their local numbers have sixteen bits in a slot's stamp.
pub const LOCAL_RANKS_MAX: u32 = u16::MAX as u32;

/// Blocks of a region that is not contiguous: a list of 64 KB, read once per message by whoever
/// reads the region.
pub const REGION_BLOCKS_MAX: usize = 4096;

/// Mean length below which blocks travel packed instead: the kernel spends about as long on a
/// block's bookkeeping as on copying this much.
pub const REGION_BLOCK_MIN: u64 = 1024;

/// Time that a failed transfer waits to hear that its peer died: an agent hears of a death within
/// milliseconds.
pub const VERDICT_WAIT: std::time::Duration = std::time::Duration::from_millis(100);

/// Bytes of one bulk read, so that other traffic gets its turn: a tenth of a millisecond at 10
/// GB/s.
pub const READ_CHUNK: u64 = 1 << 20;

/// Shared memory for collectives of each rank that is a thread: the boards of several
/// communicators. Virtual until touched.
pub const COLL_HEAP_BYTES: usize = 16 << 20;

/// Alignment of a rank's share of the memory for collectives: no two shares have a page in common.
pub const COLL_HEAP_ALIGN: usize = 4096;

/// Least part of a shared copy: below, the price of the call outweighs what two cores save.
pub const PART_MIN: u64 = 32 * 1024;

/// Largest part of a shared copy: what one side does at most while the other has nothing left to
/// do.
pub const SHARE_PART_MAX: u64 = 256 * 1024;

/// Least part of a shared copy of more than two of them: each part costs a call, some fiftieth of
/// copying so much.
pub const SHARE_PART_LEAST: u64 = 64 * 1024;

/// Shortest message that two sides may share: two parts.
pub const SHARE_MIN: u64 = 2 * PART_MIN;

/// Classes of length by which paces are kept, each twice the one before; the first is that of
/// [`TUNER_FROM_LOG2`].
pub const TUNER_CLASSES: usize = 14;

/// Shorter messages count with the first class: 4 KB, from which bytes cost more than the call.
pub const TUNER_FROM_LOG2: u32 = 12;

/// Peers whose paces a rank shows to those who watch: the first that announced something, which are
/// its neighbours as a rule.
pub const TUNERS_SHOWN: usize = 16;

/// Messages of one class between two tries of ways that are all known: the way not preferred also
/// leaves colder caches to the next message.
pub const TUNER_RETRY_EVERY: u32 = 50;

/// One part in so many of the time that messages of a class take may be lost by trying ways that
/// are not preferred.
pub const TUNER_EARNED_SURE: i64 = 64;

/// Messages counted so while a way is not known well: a job that sends some dozens of messages
/// should find the best way within them.
pub const TUNER_EARNED_UNSURE: i64 = 16;

/// Part of its time that a way through the kernel has to save to be preferred to lanes: with
/// less, jobs that went by what was measured message by message took longer than those that kept to
/// lanes (near cores, 256 KB to 16 MB: 1.2 to 1.5 times).
pub const TUNER_KERNEL_HANDICAP: u32 = 4;

/// Messages in a row for which a way is tried: the first finds caches and lanes as another way left
/// them, and does not count.
pub const TUNER_TRIES: u32 = 4;

/// Messages from this length on are tried one by one: they replace most of what caches hold anyway.
pub const TUNER_TRIED_ONCE_FROM: u64 = 2 << 20;

/// Length from which what a message costs beside its bytes (a handshake, some calls of the kernel)
/// is less than a tenth of it: the paces of longer ones are much the same.
pub const TUNER_LONG_FROM: u64 = 1 << 20;

/// Messages of a class that go the usual way at first until one of them is measured; then others
/// are tried all the same: where several are always fetched at once none ever is.
pub const TUNER_UNMEASURED: u32 = 16;

/// Longest message that goes by packets because its lane has not been filled once: some four fill
/// the longest. A longer one pays for all pages at once, and what it takes tells little less.
pub const TUNER_UNTRIED_MAX: u64 = 8 << 20;

/// Most that is earned, in messages of the class: a long quiet time is no reason to lose much
/// at once, and a way that is so much slower is out.
pub const TUNER_EARNED_MAX: i64 = 32;

/// Fetches in a row that take much longer than usual until that counts as the new usual: two may be
/// preemptions.
pub const TUNER_CHANGED: u8 = 3;

/// Slots that a reader of several records fetches ahead: what it handles in the time in which a
/// line comes from another core.
pub const FETCH_AHEAD: u32 = 4;

/// Times that a way must have been measured to count as known: the first pay for pages and caches
/// that were never touched, and one may meet a preemption.
pub const TUNER_SURE: u8 = 4;

/// Largest payload of a packet over TCP: a few of them fill what a socket takes at once, and two
/// fit a receive buffer.
pub const TCP_PACKET_MAX: usize = 64 * 1024;

/// Payloads that travel with their envelope over TCP: copying them twice more takes less than the
/// round trip of an announcement.
pub const TCP_EAGER_MAX: usize = 32 * 1024;

/// Payloads longer than [`TCP_INLINE_MAX`] up to this length leave behind their envelope from where
/// they lie, if next to nothing waits to leave before them and the peer has granted room, and are
/// copied for replay while the other side takes them in. Longer ones are announced, since a small
/// message behind one of these waits for it.
pub const TCP_FRAGMENTED_MAX: usize = 256 * 1024;

/// Bytes of such a message in its first packet, where that does not hold all of it: what a receiver
/// takes in at once, and copies.
pub const TCP_FIRST_FRAGMENT: usize = 4096;

/// Packets of such a message at most.
pub const TCP_FRAGMENTS_MAX: usize = 1 + TCP_FRAGMENTED_MAX.div_ceil(TCP_PACKET_MAX);

/// Bytes taken in at once where the last message went to where it belongs without a copy: an
/// envelope, and what small messages come with it as a rule. More than a first packet with its
/// frame and the frame of the next, so that the rest goes where it belongs with one more call.
pub const TCP_SMALL_READ: usize = TCP_FIRST_FRAGMENT + 1024;

/// Payloads up to this length are copied behind what waits to be sent; larger ones leave from where
/// they lie, unless they are to wait for others.
pub const TCP_INLINE_MAX: usize = 4096;

/// Bytes of a block of small frames in the log of one peer: what one system call sends well.
pub const TCP_BLOCK: usize = 64 * 1024;

/// Bytes that one peer may leave unacknowledged with data packets: a megabyte covers a hundred
/// microseconds at 10 GB/s.
pub const TCP_LOG_MAX: usize = 1 << 20;

/// Bytes of packets to one peer that wait for their socket, after which further data stays in the
/// engine's window, where small messages overtake large ones; the socket takes as many at a time.
/// What it takes to keep a fast link busy while the rank does something else.
pub const TCP_UNSENT_MAX: usize = 64 * 1024;

/// Bytes that control packets may add to the log: more than all that an engine queues for one peer
/// in a pass.
pub const TCP_LOG_RESERVE: usize = 256 * 1024;

/// Empty blocks that a transport keeps for the next peer: one burst of large packets.
pub const TCP_SPARE_BLOCKS: usize = 32;

/// Bytes of the other side's log that are delivered without a word after which an acknowledgement
/// is sent by itself: a quarter of it, so that it never fills for want of one.
pub const TCP_ACK_BYTES: usize = TCP_LOG_MAX / 4;

/// Bytes after which an acknowledgement is sent even in a poll that brings packets, whose receiver
/// may be about to send something that says it, too; else the next poll that brings none does. More
/// than the longest message that comes in pieces takes of the log, and little enough that another
/// such message finds room beside what is owed and one that is under way.
pub const TCP_ACK_LATE: usize = 3 * TCP_LOG_MAX / 8;

const _: () = assert!(TCP_FRAGMENTED_MAX + TCP_PACKET_MAX < TCP_ACK_LATE);
const _: () = assert!(TCP_ACK_LATE + 2 * (TCP_FRAGMENTED_MAX + TCP_PACKET_MAX / 4) <= TCP_LOG_MAX);

/// Frames delivered without a word after which an acknowledgement is sent: keeps the log of tiny
/// frames short.
pub const TCP_ACK_FRAMES: u32 = 1024;

/// Receive buffer of a connection: two of the largest frames.
pub const TCP_RECEIVE: usize = 3 * TCP_PACKET_MAX;

/// Times that a look takes in what came from one peer without finding a packet in it: a long packet
/// needs two. Who sends nothing but words, however quickly, is left to the next look after some
/// tens of thousands of them, less than a millisecond.
pub const TCP_FILLS_MAX: u32 = 2;

/// Bytes of one frame of bulk data: others get their turn after a tenth of a millisecond at 10
/// GB/s, and its head counts for nothing.
pub const TCP_BULK_FRAME: u64 = 1 << 20;

/// Bytes of a region that leave before they are asked for: what socket buffers take from a side
/// that then computes, and the longest of which a request and its answer still cost a part that
/// shows.
pub const EAGER_PREFIX_MAX: u64 = 1 << 20;

/// Looks in which the beginning of a region waits in the socket for its read: the announcement
/// comes with one of them, as a rule, and the engine reads after it.
pub const EAGER_PREFIX_POLLS: u32 = 2;

/// Blocks of [`EAGER_PREFIX_MAX`] bytes in which a rank keeps what came before its read: as many
/// bytes as the engine keeps of unexpected messages.
pub const EAGER_PREFIXES_KEPT: usize = 16;

/// Regions that are announced and nothing more after the other side had no place for the beginning
/// of one, the first time; it doubles up to [`EAGER_PREFIX_SKIPS_MAX`].
pub const EAGER_PREFIX_SKIPS: u32 = 16;

/// Upper bound of what [`EAGER_PREFIX_SKIPS`] grows to: what is sent in vain is a thousandth then.
pub const EAGER_PREFIX_SKIPS_MAX: u32 = 1024;

/// Bytes of large data of which a socket tells at least where telling wakes a thread: reading them
/// takes longer than that wake-up.
pub const TCP_LOW_WATER: usize = 1 << 20;

/// Bytes of bulk data that are moved each way before packets are looked at again while small
/// messages come and go: moving them takes about as long as a small message.
pub const TCP_SLICE: usize = 32 * 1024;

/// Bytes of a slice where some of what is sent or received is to stand in nobody's way, and what
/// waits in a socket to be sent then: moving so little costs more than the bytes do.
pub const TCP_SLICE_YIELDING: usize = 8 * 1024;

/// And while none do: a millisecond on a slow core. A sender whose socket is always full shares the
/// kernel's work with its receiver, whose confirmations have the rest leave; one that moves slice
/// by slice does it alone, in more than twice the time.
pub const TCP_SLICE_ALONE: usize = 1 << 20;

/// Bytes of large data that wait in a socket to be sent at most while somebody polls who has more
/// as soon as they leave: twice what a fast link takes meanwhile. More would have left the caches
/// before it leaves.
pub const TCP_BULK_UNSENT: usize = 128 * 1024;

/// A thread that comes back to a socket within this time polls. After more it may be long until it
/// is asked again, and takes what it has room for.
pub const TCP_POLLS_WITHIN: std::time::Duration = std::time::Duration::from_micros(20);

/// Time for which a small message keeps slices of bulk data short: a round trip, and what it meets
/// at the other end.
pub const TCP_LATENCY_PRIORITY_FOR: std::time::Duration = std::time::Duration::from_micros(200);

/// Blocks of shaped data that one system call moves from where they lie.
pub const TCP_BLOCKS: usize = 64;

/// Mean length from which on blocks are moved so, in bytes: copying shorter ones takes less than
/// looking at each.
pub const TCP_BLOCK_LEAST: u64 = 2048;

/// Bytes packed or unpacked at a time where bulk data is not contiguous: fits the second-level
/// cache.
pub const TCP_BOUNCE: usize = 64 * 1024;

/// Requests for bulk data of one peer that wait here: more than the engine has in flight with one
/// peer as a rule; a peer with more is mad.
pub const TCP_BULK_REQUESTS_MAX: usize = 4096;

/// Connections that have not proved who they are: a flood fills them, the oldest leaves first, and
/// they cost some kilobytes each.
pub const TCP_UNAUTHENTICATED_MAX: usize = 32;

/// Time that a connection may take to prove who it is, from its first byte's turn on: a thousand
/// round trips of a slow network.
pub const TCP_AUTHENTICATION_LIMIT: std::time::Duration = std::time::Duration::from_secs(2);

/// Time that a caller that has shown the secret keeps its place before others: it needs one more
/// turn of its own, on a machine that may be busy starting all those who call.
pub const TCP_PROOF_STAYS: std::time::Duration = std::time::Duration::from_millis(500);

/// Connections taken from the listener in one poll, so that a flood leaves the poll time for the
/// job's own traffic.
pub const TCP_ACCEPTS_PER_POLL: u32 = 8;

/// Connections that the kernel keeps for the listener: as many ranks may call at once as a node
/// has, and more try again by themselves.
pub const TCP_BACKLOG: i32 = 512;

/// Attempts to connect may take this long before the next address is tried: a lost first packet is
/// repeated after one second.
pub const TCP_CONNECT_LIMIT: std::time::Duration = std::time::Duration::from_secs(4);

/// A peer that cannot be reached for this long counts as gone: links that flap for some seconds are
/// waited for.
pub const TCP_LOST_LIMIT: std::time::Duration = std::time::Duration::from_secs(30);

/// A peer whose host refuses connections to its port for this long counts as gone: its process has
/// ended, since it listens before its address is told. Where other hosts look for a way meanwhile,
/// it is given [`TCP_UNREACHABLE_LIMIT`]: a firewall may answer for it, and that a process has
/// ended its agent says.
pub const TCP_REFUSED_LIMIT: std::time::Duration = std::time::Duration::from_millis(500);

/// A process that looks so much later than it meant to was kept from it, by a stop, a frozen
/// container, a machine that slept: what it could not do meanwhile counts as nobody's silence.
/// Longer than a machine with too much to do keeps a process waiting, and little beside what is
/// waited for.
pub const TCP_SUSPENDED_FROM: std::time::Duration = std::time::Duration::from_secs(1);

/// First wait between two attempts to connect; it doubles up to [`TCP_RETRY_MAX`].
pub const TCP_RETRY_FIRST: std::time::Duration = std::time::Duration::from_millis(5);

/// Longest wait between two attempts to connect: a link that is back is noticed in a time that
/// nobody minds after an outage.
pub const TCP_RETRY_MAX: std::time::Duration = std::time::Duration::from_millis(250);

/// A call that waits for its answer this long gives way to one from the other side: the other side
/// is awake, and the call may be lost. A peer that asks for a call has one that waited so long
/// given up for another, the first time; each further one of this side waits twice as long, up to
/// [`TCP_GIVE_WAY_MAX`].
pub const TCP_GIVE_WAY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// Upper bound of what [`TCP_GIVE_WAY_AFTER`] grows to: longer than a host between may take to get
/// through, and than a program that calls MPI now and then computes between two calls.
pub const TCP_GIVE_WAY_MAX: std::time::Duration = std::time::Duration::from_secs(32);

/// A connection with bytes under way whose host acknowledges nothing for this long is broken: the
/// kernel of a living host always answers, whatever its processes do.
pub const TCP_SILENCE_MAX: std::time::Duration = std::time::Duration::from_secs(8);

/// Connections that a rank shows to those who watch: two to a rank of each of as many hosts as a
/// job may have, which is more than one talks to as a rule.
pub const TCP_SHOWN: usize = 128;

/// Between two looks for such silence.
pub const TCP_SILENCE_CHECK: std::time::Duration = std::time::Duration::from_secs(1);

/// Bytes of a segment on the lines between agents, which move little: what the shortest packets of
/// IPv6 hold, so that no tunnel on the way that loses longer ones without a word takes the line
/// along. And on connections between ranks where two in a row were made and then fell silent.
pub const TCP_SEGMENT: u32 = 1220;

/// Connections in a row that were made and then fell silent, nothing having been moved between,
/// after which the peer counts as gone: two by which long packets went, and some with small
/// segments by each of the networks that a pair uses.
pub const TCP_SILENT_MAX: u32 = 6;

/// Bytes in order that a connection has brought to one side before it fell silent, from which on
/// that was no matter of long packets: more than its handshake and the short packets before the
/// first long one.
pub const TCP_CARRIED: u64 = 16 * 1024;

/// Addresses that a rank remembers as such to which longer packets are lost: those of more hosts
/// than it talks to as a rule.
pub const TCP_SHORT_PACKET_ADDRESSES: usize = 256;

/// A connection without traffic is probed by the kernel after this many seconds, every
/// [`TCP_PROBE_EVERY_S`], and broken after [`TCP_PROBES`] probes without answer: 19 seconds in all.
pub const TCP_PROBE_AFTER_S: u64 = 10;

/// Seconds between two of the probes that [`TCP_PROBE_AFTER_S`] begins.
pub const TCP_PROBE_EVERY_S: u64 = 3;

/// Number of the probes that [`TCP_PROBE_AFTER_S`] begins.
pub const TCP_PROBES: u32 = 3;

/// Polls between two looks at all sockets; between, only the connection that brought something last
/// is looked at.
pub const TCP_POLL_ALL_EVERY: u32 = 4;

/// Time between two looks while that connection goes on bringing something and no other does: a
/// look costs as much as two polls, and what another brings all the same waits for no longer than a
/// few of a program's own messages take.
pub const TCP_POLL_ALL_AFTER: std::time::Duration = std::time::Duration::from_micros(20);

/// Time that a transport that is dropped waits for its last words to leave: long enough for a
/// receiver that is busy, short enough for one that never comes back.
pub const TCP_LINGER: std::time::Duration = std::time::Duration::from_secs(5);

/// Attempts to connect that were accepted and then came to nothing, without success between, before
/// the peer counts as gone: half a minute of tries.
pub const TCP_FRUITLESS_MAX: u32 = 100;

/// Weight of an attempt that ended because the other side could not prove itself: an address that
/// belongs to somebody else is given up in some seconds.
pub const TCP_FRUITLESS_WRONG: u32 = 5;

/// Regions that a rank can have exposed over TCP: as many large sends may be under way; beyond,
/// messages travel by packets.
pub const TCP_REGIONS: usize = 4096;

/// Packets up to this length are kept packed with others until they leave, so that those leave
/// together; larger ones, whose copy would take longer than that spares, keep their block. A block
/// holds two of these.
pub const TCP_PACKED_MAX: usize = 32 * 1024;

/// How much longer the higher rank of a pair waits before it calls again, so that as a rule one of
/// both calls.
pub const TCP_HIGHER_RANK_DELAY: std::time::Duration = std::time::Duration::from_millis(20);

/// Looks for a sign that the sender of a message waits for its end, before it is taken to compute:
/// a call that announces a message needs less than a microsecond until it waits.
pub const SENDER_POLLS: u64 = 16;

/// Bytes of a message for each such look, where that makes more of them: copying so many takes
/// thirty times as long as a look, and between far cores the sign needs half a microsecond.
pub const SENDER_POLL_BYTES: u64 = 8 * 1024;

/// Upper bound of the number of looks: some microseconds.
pub const SENDER_POLLS_MAX: u64 = 256;

/// Polls of shared memory for one of TCP at the most seldom: together they take about as long as
/// one look at the sockets.
pub const MULTI_TCP_EVERY_MAX: u32 = 32;

/// Stack of the thread that watches sockets: it makes one system call after another.
pub const WATCHER_STACK: usize = 64 * 1024;

/// Longest sleep where sockets cannot be watched for want of a thread: few enough looks that nobody
/// notices their cost.
pub const MULTI_SLEEP: std::time::Duration = std::time::Duration::from_millis(2);

/// Between two looks at messages that are kept for others to leave with them: they are overdue
/// after at most two of these, and a thread that looks so often takes less than one percent of a
/// core.
pub const TCP_COALESCE_CHECK: std::time::Duration = std::time::Duration::from_micros(500);

/// Naps in which a socket took nothing of what waits for it, after which the next are twice as
/// long; as often as [`TCP_COALESCE_DOUBLINGS`] says.
pub const TCP_COALESCE_CHECKS_STUCK: u32 = 8;

/// Doublings of the pause of [`TCP_COALESCE_CHECKS_STUCK`]: 32 milliseconds, a thousandth of a
/// core.
pub const TCP_COALESCE_DOUBLINGS: u32 = 6;

/// Naps without anything kept after which that thread sleeps until it is called: waking it costs
/// more than some naps.
pub const TCP_COALESCE_CHECKS_IDLE: u32 = 40;

/// Longest message between agents: what a job is, with a node for each of a million ranks, a name
/// for each of 131,072 hosts, and an environment as large as the kernel lets a program have.
pub const AGENT_MESSAGE_MAX: usize = 16 << 20;

/// A call that nobody has taken after this long may never be: then the peer is asked to call from
/// its side, which costs it one message. Connections within a site stand after a millisecond.
pub const TCP_REVERSE_CONNECT_AFTER: std::time::Duration = std::time::Duration::from_millis(50);

/// Between two requests to a peer for its call: it acts at once if it looks, and asking again only
/// mends what a broken way between agents has lost.
pub const TCP_REVERSE_CONNECT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Time between two requests while a host between keeps this side's call: the peer may be connected
/// to this side as it seems to it, or wait elsewhere, and the search for another place goes on only
/// while somebody asks ([`TCP_REVERSE_CONNECT_EVERY`] is for calls that nobody has).
pub const TCP_RELAYED_REQUEST_EVERY: std::time::Duration = std::time::Duration::from_secs(2);

/// A pair of which neither side has reached the other for this long, and both know it, will not:
/// links that fail for ten seconds are waited for, and a third host that both can call is looked
/// for twice in that time.
pub const TCP_UNREACHABLE_LIMIT: std::time::Duration = std::time::Duration::from_secs(12);

/// For how long a peer, to which others may look for a way, is called by no network that is to be
/// left alone: a third host is found within five seconds. Then by all: such a network is better
/// than none, and than the end that [`TCP_UNREACHABLE_LIMIT`] brings.
pub const TCP_DISABLED_AFTER: std::time::Duration = std::time::Duration::from_secs(8);
const _: () = assert!(TCP_DISABLED_AFTER.as_millis() < TCP_UNREACHABLE_LIMIT.as_millis());

/// Pieces that one of several ways is asked for at once: the next is under way to its server while
/// one comes.
pub const TCP_PIECES: usize = 2;

/// Bytes from which on further networks are used: below, what another connection would save is less
/// than its first call and its own latency.
pub const TCP_MULTIPATH_MIN: u64 = 512 * 1024;

/// Bytes per microsecond that a way is taken to move before anything has moved: about a ten-gigabit
/// network. The first pieces are as short as that makes them.
pub const TCP_PATH_RATE: f64 = 1000.0;

/// Between two calls by a further network that does not answer: a connection that would help is
/// tried as often as people notice, and a network that is none costs little.
pub const TCP_EXTRA_NETWORK_RETRY: std::time::Duration = std::time::Duration::from_secs(2);

/// Microseconds after which what a way has moved counts a third: a network that becomes slower is
/// known for that soon, and a burst is not taken for its rate.
pub const TCP_RATE_MEMORY: f64 = 100_000.0;

/// Microseconds that a rate which was found another time counts as: the first piece, which takes
/// about as long, weighs more.
pub const TCP_KNOWN_RATE_WEIGHT: f64 = 5_000.0;

/// Part of the fastest way's rate below which a way may get nothing of messages of some megabytes,
/// and so cannot show that it has become faster.
pub const TCP_SLOW_PATH: f64 = 0.25;

/// Time after which a slow way is tried with a piece again: what kept it back may be over, and
/// waiting for one piece so seldom is not to be noticed.
pub const TCP_SLOW_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Or after so many times as long as its last piece took, if that is more: two percent of the time
/// at most are lost to ways that stay slow.
pub const TCP_SLOW_COST: u32 = 50;

/// Connections that a host passes on for others at once, and calls that wait there for those whom
/// they call: two or more for each pair of ranks that has no other way.
pub const RELAYED_CONNECTIONS_MAX: usize = 512;

/// Callers there beside those, that have not said yet whom they call: as many as may call within
/// some round trips, so that one whose call is under way is not crowded out by others, and comes to
/// the one who waits for it however many wait.
pub const RELAY_UNIDENTIFIED_MAX: usize = 128;

/// Bytes on their way through a host in each direction of such a connection, beside what its
/// sockets hold: few turns for a large message, and little memory.
pub const RELAY_BUFFER: usize = 128 * 1024;

/// Buffers that are moved before others have their turn: some hundred microseconds of copying.
pub const RELAY_BUFFERS_PER_TURN: usize = 4;

/// Time that a call is kept at a host between for that of the one called, who was told meanwhile: a
/// rank that looks comes within a round trip or two of its agents' lines, even if these have to be
/// made anew. Whoever is not met calls again, so this bounds what a call that was left behind
/// costs, not how long a rank may compute. As long has a caller there until its call comes, and the
/// one called until the proof does: both say something only when their ranks look.
pub const RELAY_HALF_LIMIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Endpoints of libfabric that a rank has open at most, one for each peer whose large data it takes
/// by a fast network: each holds queues and memory of the library's, and a rank talks at length
/// with a few dozen others as a rule. Peers beyond them are reached by TCP.
pub const OFI_ENDPOINTS_MAX: usize = 64;

/// Bytes that one read of remote memory moves at most: what is heard of between, so that a way that
/// stands still is seen, and its rate is known.
pub const OFI_READ_MAX: u64 = 1 << 20;

/// Reads of remote memory under way for one peer: enough that the network is never idle, below what
/// an endpoint takes.
pub const OFI_READS_IN_FLIGHT: u32 = 8;

/// Longest name of a provider that is told to a peer.
pub const OFI_PROVIDER_NAME_MAX: usize = 64;

/// Longest address of an endpoint that is told to a peer: what libfabric's addresses have at most.
pub const OFI_ADDRESS_MAX: usize = 256;

/// A way by libfabric that broke so often in a row without bringing anything is left alone: the two
/// endpoints do not reach each other.
pub const OFI_FAILURES_MAX: u32 = 3;

/// Looks for silence in a row after which a way by libfabric is given up. More than the one of a
/// socket: its endpoint is closed then, and opening another costs tens of milliseconds, while a
/// peer that does not look for a second or two is as silent as a network that is gone.
pub const OFI_SILENT_CHECKS: u32 = 3;

/// While something is under way by a provider of libfabric that has no descriptor to wait for, its
/// owner looks after it so often, asleep or not: this is how it moves.
pub const OFI_POLL_EVERY: std::time::Duration = std::time::Duration::from_millis(1);

/// Time between two looks where there is a descriptor, should it not tell: not to be noticed where
/// it does.
pub const OFI_CHECK_EVERY: std::time::Duration = std::time::Duration::from_millis(20);
