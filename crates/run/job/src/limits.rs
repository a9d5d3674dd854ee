//! The limits of this crate, each with the reason for its value.

use std::time::Duration;

/// Turns of waiting between two calls at a port that cut the first one off.
pub const PORT_RECALL: u32 = 20;

/// Bytes of one control message. Larger ones (a long abort text) are cut: the socket's buffer holds
/// many of this size.
pub const MESSAGE_BYTES_MAX: usize = 32 * 1024;

/// Bytes of a key in the exchange of blobs: a name, not data.
pub const KEY_BYTES_MAX: usize = 256;

/// Bytes of a value in the exchange of blobs: addresses and small descriptors fit, bulk data
/// belongs on a transport.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;

/// Ranks of one job, by format. A host touches eight bytes for each, and the blocks and inboxes of
/// its own.
pub const RANKS_MAX: u32 = 1 << 20;

/// Ranks of one host: shared memory numbers them with 16 bits.
pub const LOCAL_RANKS_MAX: u32 = garonne_transport::limits::LOCAL_RANKS_MAX;

/// Bytes of the collective area for each rank, when the caller does not say: what it may lend to
/// the communicators that it leads. Virtual until touched; one board with lanes and wide cells for
/// all ranks takes about half of it.
pub const COLL_BYTES_PER_RANK: u64 = 32 << 20;

/// Bytes of addresses that a rank leaves to the program, and to itself for threads and tables, when
/// it takes what it can do without: some stacks of threads.
pub const ADDRESSES_LEFT: usize = 16 << 20;

/// Inboxes of a world that are there beside one for each rank: up to 64 ranks each has sixteen, one
/// for each shard, which is 3 GB of addresses that nobody maps; threads that share a rank are fewer
/// where ranks are many.
pub const INBOXES: u32 = 1024;

/// Largest size accepted for one part of a world's shared memory; a larger one is a damaged header.
pub const PART_BYTES_MAX: u64 = 1 << 32;

/// Worlds that one job may go through (a script that runs MPI programs one after the other): each
/// holds a memory file.
pub const WORLDS_MAX: u32 = 256;

/// A line of output longer than this is passed on in pieces: what a rank can make the agent hold
/// per stream.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// While an overlong line passes in pieces the other ranks wait, up to this length: whoever never
/// ends a line must not silence the others for ever.
pub const LINE_PASSES_BYTES_MAX: usize = 64 << 20;

/// Time that the others wait for a rank that stops in the middle of such a line. Not
/// [`PARTIAL_LINE_WAIT`]: on a busy machine a writer may well get no processor for that long.
pub const LINE_PASSES_WAIT: Duration = Duration::from_secs(1);

/// Output that waits for a slow reader. Beyond it the agent stops reading from ranks, which then
/// block in `write`.
pub const OUTPUT_PENDING_BYTES_MAX: usize = 1 << 20;

/// Number of times that a rank's pipe is read when its last words are wanted: each time at least a
/// quarter of what a pipe holds.
pub const DRAIN_READS: usize = 5;

/// An unfinished line (a prompt, a progress bar) is passed on after this long without a newline.
pub const PARTIAL_LINE_WAIT: Duration = Duration::from_millis(100);

/// How long what a rank writes from a traceback on is held back while its job goes on: Python ends
/// soon after one that nobody catches, and whoever reads along misses little.
pub const TRACEBACK_WAIT: Duration = Duration::from_secs(1);

/// Bytes of a rank that are held back at most: tracebacks of deep recursions are some hundred
/// lines.
pub const TRACEBACK_BYTES_MAX: usize = 32 * 1024;

/// Time that the words of a failure wait for what other ranks write of it: as long as these have to
/// end, and to be read.
pub const FAILURE_WAIT: Duration = Duration::from_millis(500);

/// Between asking the other ranks to end (SIGTERM) and ending them, where nobody says
/// (`GARONNE_KILL_AFTER`): time for a handler, and still "under a second".
pub const TERM_GRACE: Duration = Duration::from_millis(250);

/// Time that the other ranks have to finalise and end by themselves when one failed after
/// `MPI_Finalize`.
pub const FINALIZED_GRACE: Duration = Duration::from_millis(400);

/// Time that processes that a rank left behind have to end by themselves after a successful job.
pub const LEFTOVER_GRACE: Duration = Duration::from_millis(300);

/// Time that the agent waits for a wrapper to say with which status its registered child ended,
/// where the kernel does not. Together with [`TERM_GRACE`] still "under a second"; the peers do not
/// learn of the end before, so nobody's words about it come first.
pub const WRAPPER_WAIT: Duration = Duration::from_millis(600);

/// Between two looks at the board while a rank has ended without MPI_Init: the looks cost the agent
/// microseconds, and only then.
pub const MISSING_RANKS_CHECK: Duration = Duration::from_millis(100);

/// Time that the waits of all ranks must have lasted before the missing one is blamed: far beyond
/// any pause between two messages of ranks that sleep, and still "under a second".
pub const MISSING_RANKS_WAIT: Duration = Duration::from_millis(300);

/// When ranks of a program that was linked with another MPI are first looked at: their libraries
/// are mapped then, and a program that begins MPI has not ended.
pub const OTHER_MPI_FIRST_LOOK: Duration = Duration::from_millis(5);

/// Ranks that are looked at together for another MPI: some 0.1 ms each, in the agent, and only
/// until they register.
pub const OTHER_MPI_RANKS: usize = 8;

/// Time that a rank may have another MPI loaded before it ends the job: a program that is to
/// register does so at once.
pub const OTHER_MPI_WAIT: Duration = Duration::from_millis(500);

/// Time that a process behind a wrapper with another MPI is waited for. The process may be a helper
/// of the script that will start the rank's program.
pub const OTHER_MPI_BEHIND_WRAPPER: Duration = Duration::from_secs(10);

/// Time that output is still collected after the last rank has gone but something holds its pipe
/// open.
pub const DRAIN_WAIT: Duration = Duration::from_millis(100);

/// Time that last words wait to be read by another launcher before it is asked to end the job.
pub const LAST_WORDS_WAIT: Duration = Duration::from_secs(1);

/// Time that killed processes may take to disappear (one may sit in the kernel, waiting for a disk)
/// before the agent gives up.
pub const SWEEP_WAIT: Duration = Duration::from_secs(5);

/// Lowest number of the control socket in a rank: out of the way of shells and programs that use
/// small numbers by hand.
pub const CONTROL_FD_MIN: i32 = 100;

/// Polls of a waiter before it sleeps, while every rank has a core: some twenty microseconds, about
/// the price of one wake-up, so that waiting costs at most twice the best choice.
pub const SPINS: u32 = 2000;
/// Polls before sleeping where messages come from other hosts, too: about the price of two
/// wake-ups, of the thread that watches the sockets and of the rank.
pub const SPINS_REMOTE: u32 = 4 * SPINS;
/// How long what a rank leaves open is left to it where no core is to spare: a time slice. Less
/// than this is computed between most messages, and a look in each costs a thousandth of a core.
pub const GRACE: Duration = Duration::from_millis(4);
/// The longest such time, in times of the shortest: a quarter of a second.
pub const GRACES_MAX: u64 = 64;
/// Time that a progress thread stays awake after it was last needed, where whole cores are idle:
/// several times what waking it takes (5 to 50 µs in a virtual machine), so that it is awake in a
/// program that leaves messages open every few ten microseconds, and a tenth of a core in one that
/// does every millisecond.
pub const PROGRESS_SPIN_TIME: Duration = Duration::from_micros(100);
/// Times that a waiter gives way before it sleeps, while ranks exceed cores: one round lets a
/// partner on the same core answer without a sleep and a wake-up.
pub const YIELDS_CROWDED: u32 = 2;
/// Time that it goes on giving way after that, as long as that pays: twice the dearest wake-up
/// seen. Where all ranks of a core sleep the core sleeps, too, and then each of them costs its
/// partners on other cores a wake-up, which makes those sleep in turn; who gives way to others that
/// only wait lets them look, and keeps the core awake.
pub const YIELDS_ON: Duration = Duration::from_micros(200);

/// Descriptors of the agent that do not grow with the ranks (three standard ones, epoll, signals,
/// link, lifeline, sockets, a memory file per world), and some that are open only while a rank
/// starts.
pub const FDS_OF_AGENT: u64 = 40;

/// Ranks of which the launcher is told what they recorded where a job ends badly: a file of a
/// megabyte at most.
pub const RECORDERS_TOLD: usize = 64;

/// Longest sleep of a rank whose queued packets found no room, should the ring of the reader be
/// lost: half a per mille of a core.
pub const ROOM_RETRY: Duration = Duration::from_millis(5);

/// Time that ranks record after whoever traces them was last heard of: many times the pause between
/// two looks of a tracer, and short enough that one that was killed costs nobody anything for long.
pub const TRACE_LEASE: Duration = Duration::from_secs(2);

/// Communicators whose names and members a rank shows to those who watch: real programs hold some
/// tens; the table takes 16 KB.
pub const COMMS_SHOWN: usize = 128;

/// Hosts of one job, by format: each has a rank at least, but the launcher's.
pub const HOSTS_MAX: usize = 1 << 17;

/// Agents that report to one agent: each has a line, and signs of life each two seconds. Three
/// levels serve 32,768 hosts, and up to 32 all report to the first, as the hosts of most jobs do.
pub const FAN_OUT: u32 = 32;

/// Most that may: as many callers are heard at a time as a port has places, and the rest call
/// again.
pub const FAN_OUT_MAX: u32 = 1024;

/// Hosts that join a job: all report to the first agent, since nobody knows whom else they reach.
pub const JOINED_HOSTS_MAX: u32 = 63;

/// Hosts in one message of agents: some tens of kilobytes, and with as many addresses as there may
/// be half a megabyte.
pub const HOSTS_PER_MESSAGE: usize = 1024;

/// Bytes of a host's entry in the table that its ranks share: a name of 255 letters and
/// [`ADDRESSES_MAX`] addresses.
pub const PLACE_BYTES_MAX: usize = 1024;

/// Bytes of the names of all hosts, for a tool that looks at a job before its first rank has come;
/// later it reads them in the job's memory.
pub const HOST_NAMES_MAX: usize = 16 * 1024;

/// Hosts that `garonne run` starts agents on one by one without a word about it.
pub const STARTED_FLAT: usize = 64;

/// Addresses of one host that others are told: real ones have a few; one with a bridge for each
/// container would have hundreds.
pub const ADDRESSES_MAX: usize = 16;

/// Networks of a job that may be out of use at once: hosts have fewer.
pub const DRAINED_MAX: usize = 8;

/// Questions whether a network may be left alone that are open at once, at an agent: people ask
/// them.
pub const DRAINS_MAX: usize = 8;

/// Kinds of hosts, by the networks that they are on, of which each two are looked at before a
/// network is left alone: some millions of looks at two short lists. A machine has a few kinds; of
/// more than these nobody finds out beforehand whether two of them lose each other.
pub const KINDS_MAX: usize = 256;

/// Looks at the table of such networks while it is written, which takes well below a microsecond.
pub const DISABLED_READS: u32 = 100_000;

/// Addresses that the hosts of a job have got since it began, all together: of some dozens of hosts
/// one each. Further ones are not used.
pub const ADDED_MAX: usize = 64;

/// Ways through other hosts that the ranks of a host know: one or two for each host that they have
/// no network in common with.
pub const WAYS_MAX: usize = 128;

/// Hosts whose ranks have reached neither the other for this long are led through a third one, if
/// one reaches both: a rank asks for a call each second, and a first packet that was lost is
/// repeated after one.
pub const WAY_AFTER: Duration = Duration::from_millis(1500);

/// A host that two others can both call is looked for when none that reaches one of them has
/// answered for this long, first the job's own and after as long again all others: a call that gets
/// through is answered in a round trip, and ranks ask each second.
pub const RENDEZVOUS_AFTER: Duration = Duration::from_millis(800);

/// Hosts beside the job's own that are asked at once whether two others can meet there, each of
/// which both try: it is one of the first as a rule, and the next time the next are asked.
pub const RENDEZVOUS_HOSTS_MAX: usize = 16;

/// Two that were asked for longer ago than this are two cases.
pub const WAY_FORGETS: Duration = Duration::from_secs(5);

/// While a pair is asked for without end, the next time that all others are asked comes after
/// [`WAY_FORGETS`], twice that, and so on to so many times: a rank may wait at the right place for
/// one that computes for hours.
pub const WAY_ROUNDS: u32 = 4;

/// Pairs of hosts that a way is looked for at a time: all pairs of 128 hosts of which none reaches
/// another, in less than two megabytes. Further ones ask again each second.
pub const SOUGHT_MAX: usize = 16 * 1024;

/// A host where as many pairs are to meet as may ([`SOUGHT_MAX`]) forgets those that have not
/// called there for this long: a call that is kept comes again after ten seconds. Of a pair that
/// was connected meanwhile the next call is led nowhere, and another place is looked for, as the
/// first time.
pub const RENDEZVOUS_FORGETS: Duration = Duration::from_secs(30);

/// Time that a host tries whether it reaches another for them.
pub const PROBE_LIMIT: Duration = Duration::from_secs(4);

/// Probes at once, each of one address.
pub const PROBES_MAX: usize = 64;

/// Words, variables or programs of one job that an agent of another host accepts: more than a
/// kernel passes to a program.
pub const JOB_WORDS_MAX: usize = 1 << 20;

/// Bytes of the first message to an agent of another host: it fits a pipe, so that handing it over
/// never blocks.
pub const BOOTSTRAP_BYTES_MAX: usize = 4096;

/// Bytes of the shortest value that launchers' exchanges must take: what MPICH, Intel, Slurm, Flux
/// and PMIx have is at least twice this.
pub const EXCHANGE_VALUE_MIN: usize = 512;

/// Addresses of the first agent that go through a launcher's exchange: with them it fits
/// [`EXCHANGE_VALUE_MIN`].
pub const EXCHANGE_ADDRESSES_MAX: usize = 8;

/// Bytes of a line that a launcher may send: some times the longest value of any.
pub const EXCHANGE_LINE_MAX: usize = 64 * 1024;

/// Time that an agent that a rank of another launcher's starts may take to answer: it loads one
/// program from a disk that may be a network's.
pub const AGENT_START_WAIT: Duration = Duration::from_secs(30);

/// Time that the ranks that another launcher started may take from its fence to their agent: both
/// are steps of the same call.
pub const ADOPTED_WAIT: Duration = Duration::from_secs(20);

/// Time that a rank that has called MPI_Abort under another launcher waits for its agent to print
/// why, before it asks the launcher for the end.
pub const ABORT_WAIT: Duration = Duration::from_secs(2);

/// Time that a rank that crashed stands still for being examined: programs with much debug
/// information take a second.
pub const CRASH_WAIT: Duration = Duration::from_secs(2);

/// Stack of the handler that tells of a crash: it calls little, but the kernel lays down all
/// registers on it, up to 11 KB.
pub const CRASH_STACK_BYTES: usize = 64 * 1024;

/// Bytes of text about a crash at most: some lines, of which each names a function and a file.
pub const CRASH_TEXT_BYTES_MAX: usize = 8 * 1024;

/// Time that a rank of another launcher's that was killed is not blamed, while others may turn out
/// to have failed before: launchers kill within milliseconds.
pub const FAILURE_CAUSE_WAIT: Duration = Duration::from_millis(100);

/// Time that ranks have to end by themselves when the launcher's process above them is gone: it may
/// have told them.
pub const ORPHANS_WAIT: Duration = Duration::from_secs(1);

/// Ports behind `MASTER_PORT` of which rank 0 takes the first that is free, and which the others
/// try.
pub const EXCHANGE_PORTS: u16 = 8;

/// Bytes of what all ranks exchange where there is no launcher to ask: some hundred for each of
/// 16,384 ranks. Larger jobs have a launcher.
pub const EXCHANGE_TABLE_MAX: usize = 8 << 20;

/// Bytes of a value there.
pub const EXCHANGE_VALUE_MAX: usize = 4 * EXCHANGE_VALUE_MIN;

/// Between two looks for rank 0, or for the others: nobody notices it at a program's start.
pub const LEADER_LOOK: Duration = Duration::from_millis(10);

/// Time that ranks of a launcher that cannot be asked wait for each other in MPI_Init: pods of a
/// cluster start minutes apart.
pub const LEADER_WAIT: Duration = Duration::from_secs(600);

/// Time that ranks whose rank 0 answers with another library look for another one, behind the other
/// ports: the start of another job may stand at one of them.
pub const REFUSAL_STANDS: Duration = Duration::from_secs(10);

/// For how long rank 0 hears calls of which it knows that they do not belong to its job before it
/// says so: they may be those of another one.
pub const UNAUTHENTICATED_STAY: Duration = Duration::from_secs(3);

/// Time that the names of hosts are looked up that may be this one: a file or a name server that is
/// near answers within some milliseconds, ssh takes this long anyway, and where there is no name
/// server nobody notices it.
pub const NAMES_WAIT: Duration = Duration::from_millis(300);

/// Hosts whose names are looked up so although one of them is known to be this one, which some
/// lists name twice: those of a job that somebody writes by hand. A batch system's long list says
/// each once.
pub const NAMES_ASKED: usize = 64;

/// Time that hosts of a running job may take to look at their interfaces again and to tell all what
/// they have: some messages up and down the tree of agents.
pub const NETWORK_WAIT: Duration = Duration::from_secs(3);

/// Time that agents may take to report after the command that starts them was given: ssh and slow
/// name servers take seconds, a host that is down two minutes of the kernel's patience, which
/// nobody wants to wait for.
pub const GATHER_WAIT: Duration = Duration::from_secs(60);

/// Time that an agent tries the addresses of the first one: a lost first packet is repeated after
/// one second and after three.
pub const CALL_WAIT: Duration = Duration::from_secs(10);

/// Time that an agent that was cut off without a word calls again: the first one has places for
/// some callers at a time, and those of many hosts may call at once. Who has the key of another job
/// is told after this.
pub const CUT_WAIT: Duration = Duration::from_secs(3);

/// Time that an agent that was started for a job, and so knows its secret, connects again where it
/// is reset: the agent that it calls may hear its first callers slowly where many start on busy
/// machines. Still within [`GATHER_WAIT`].
pub const BUSY_WAIT: Duration = Duration::from_secs(30);

/// Before it calls the same address again; doubled each time.
pub const CUT_PAUSE: Duration = Duration::from_millis(20);

/// The longest such pause.
pub const CUT_PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bytes that are kept of what a started command writes before its agent has reported, kept for the
/// message about its failure.
pub const STARTER_WORDS_MAX: usize = 4096;

/// An agent that has said nothing for this long says that it is there.
pub const PING_EVERY: Duration = Duration::from_secs(2);

/// An agent that was not heard for this long counts as lost: links that fail for ten seconds are
/// waited for, since the kernel may take as long again to repeat what was lost meanwhile.
pub const AGENT_SILENCE_MAX: Duration = Duration::from_secs(20);

/// An agent that was not heard for this long is called again, by all its addresses: three signs of
/// life are missing, which a link that fails for five seconds does not cost.
pub const LINE_QUIET: Duration = Duration::from_secs(6);

/// Time that such calls are given before they are made anew: a first packet that was lost is
/// repeated after one second.
pub const RECONNECT_ROUND: Duration = Duration::from_secs(3);

/// Rounds of calls that are to move a line off a network that is to be left alone: others may not
/// lead there.
pub const MOVE_ROUNDS: u32 = 3;

/// Time that there may be no connection where the network has cut it: the other side needs a sign
/// of life that is refused, and a call.
pub const LINE_DOWN_MAX: Duration = Duration::from_secs(6);

/// How long before the line to an agent is reset the command may have ended that started it, for
/// the two to be one event: it is told when the agent's processes are reaped, which takes some
/// milliseconds, also on a busy machine.
pub const STARTER_BEFORE_LINE: Duration = Duration::from_secs(1);

/// Connections of an agent that its launcher keeps, too: those of most jobs, and a small part of
/// the descriptors that a process may have as a rule, since it needs some to end what the agent
/// leaves.
pub const LINES_KEPT: usize = 64;

/// Output of one stream of a rank on its way between agents, not yet passed on: what a pipe holds.
pub const REMOTE_WINDOW: usize = 64 * 1024;

/// Output that is taken before the other agent is told that there is room again: few messages, and
/// never a dry pipe.
pub const REMOTE_ROOM_STEP: usize = REMOTE_WINDOW / 4;

/// In a job that has failed, an agent of another host that was not heard for this long is not
/// waited for: more than it lets pass between two signs of life, and nobody who has asked for the
/// end waits longer for a host that is gone.
pub const REMOTE_GRACE: Duration = Duration::from_secs(3);

/// Looks without a pause of a rank that leaves: what keeps it is mostly a peer that is about to
/// make room.
pub const EXIT_CHECKS: u32 = 1000;

/// Between two later looks, and while its last words to other hosts are still on their way: nobody
/// notices it at a program's end.
pub const EXIT_CHECK: Duration = Duration::from_micros(200);

/// Time that one who looks at a job waits for its agent: it answers within milliseconds unless it
/// was stopped.
pub const QUERY_WAIT: Duration = Duration::from_secs(1);

/// Bytes of a host's name, as the name service has it.
pub const HOST_NAME_MAX: usize = 255;

/// Addresses in a join key: hosts with more networks than this have some that are of no use to
/// others, and a key is to stay short.
pub const JOIN_ADDRESSES_MAX: usize = 8;

/// Letters of a join key: enough for as many names of [`HOST_NAME_MAX`].
pub const JOIN_KEY_TEXT_MAX: usize = 4096;

/// Time that hosts have to join where nobody says: people go from host to host with a key, and
/// batch systems start containers minutes apart.
pub const JOIN_WAIT: Duration = Duration::from_secs(600);

/// Hosts with the key beyond those asked for that are heard, to be told that the job is full; where
/// more come, the one leaves that has said nothing for the longest.
pub const JOIN_SPARE: usize = 16;

/// Between two looks of a host that waits for others to join; its socket wakes it for everything
/// that comes.
pub const JOIN_CHECK: Duration = Duration::from_secs(60);

/// Hosts that came too late and have not hung up yet.
pub const LATE_LINES_MAX: usize = 8;

/// Time that they may take to read why.
pub const LATE_WAIT: Duration = Duration::from_secs(5);

/// Calls on behalf of ranks of other hosts under way to one host's ranks: several for each pair
/// that waits, and a rank that computes answers none.
pub const CALLBACKS_MAX: usize = 256;

/// Between two looks of an agent whose own part is over at whether those below it are done: they
/// tell, and this only bounds what a missed word costs.
pub const CHILDREN_CHECK: Duration = Duration::from_millis(100);

/// Time that one who asks what the ranks of all hosts show waits for those that have not answered:
/// a look takes a tenth of a second, reading a program's debug information some more, and a host
/// that is stopped or gone is to be named while the user still looks.
pub const LOOK_WAIT: Duration = Duration::from_secs(4);

/// Bytes of what a host's ranks show: [`LOCAL_RANKS_MAX`] ranks without details, and
/// [`LOOK_RANKS_DETAILED_BYTES`]. It fits a message of agents.
pub const LOOK_BYTES_MAX: usize = 10 << 20;

/// Bytes of a snapshot with what ranks wait for in detail, and their communicators: about a
/// kilobyte for each of 2,000 ranks of one host. Further ranks of that host are told without.
pub const LOOK_RANKS_DETAILED_BYTES: usize = 2 << 20;

/// Bytes of a place in a program, or of a communicator's name, as others are told.
pub const LOOK_TEXT_MAX: usize = 512;

/// Tools that query one agent at a time, and queries that an agent answers together: people ask,
/// and few of them. Further ones are not answered.
pub const LOOKERS_MAX: usize = 8;

/// Hosts' recordings that one agent makes at a time: each takes a part of a core from the ranks,
/// and more than two who trace one job are a mistake.
pub const RECORDERS_MAX: usize = 2;

/// Bytes that may wait on a line between agents before an agent reads no more records for it: a few
/// times what leaves in one turn, and soon gone when something else is to pass.
pub const RECORDS_WAITING_MAX: usize = 1 << 20;

/// Time that it leaves them lying then: a line of 1 Gbit/s sends that megabyte in 8 ms.
pub const RECORDS_PAUSE: Duration = Duration::from_millis(10);

/// Time that an agent whose ranks have ended waits for what they recorded to be read and passed on:
/// two million records that wait ([`RECORDS_WAITING_MAX`] does not hold them up, a program that
/// reads them does) are told in a few seconds, and a job does not end later for a reader that
/// stands still.
pub const RECORDS_GRACE: Duration = Duration::from_secs(10);

/// Number of times that the clock of each host is asked for: the quickest of so many answers was
/// kept waiting by nobody, and all take a few milliseconds.
pub const CLOCK_ROUNDS: usize = 16;

/// Bytes that may wait on one line between agents, or for one who asks, before looks are left out:
/// who does not take them is slow, and who asks names what did not come.
pub const LOOK_WAITING_MAX: usize = 64 << 20;

/// Networks of which it is kept what they gave: some of each of a few dozen clusters; the oldest go
/// first.
pub const TUNED_MAX: usize = 256;

/// Runs of tasks that found nothing are recorded from this length on: one that polls takes less,
/// some hundred thousand times a second, and a journal has 32,768 records; one that takes longer is
/// something to see.
pub const FRUITLESS_RUN_NS: u64 = 10_000;

/// Time that a key that ends a job waits for the verdict on it: two looks, of 0.1 s each on one
/// host. Who presses it again waits no more.
pub const INTERRUPT_VERDICT: Duration = Duration::from_millis(1200);

/// Time that a job that is out of time waits for its verdict: hosts that are stopped have
/// [`LOOK_WAIT`] to answer.
pub const TIMEOUT_VERDICT: Duration = Duration::from_secs(6);

/// Between looks whether ranks stand still: two that see the same make 10 s.
pub const STALL_CHECK: Duration = Duration::from_secs(5);

/// The longest pause between looks at a job that stands still for a good reason: a server that
/// waits for somebody.
pub const STALL_CHECK_MAX: Duration = Duration::from_secs(300);

/// Bytes of a verdict in words: a few lines of at most some hundred bytes each.
pub const VERDICT_BYTES_MAX: usize = 64 << 10;
