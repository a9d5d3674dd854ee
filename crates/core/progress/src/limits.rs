//! Every bound of this crate, each with the sentence that justifies it.

/// Tries for a busy engine, from one spin between them to twice as many each time, before its
/// holder is given a turn: half a microsecond in all, longer than nearly every operation.
pub const DOUBLINGS_BEFORE_TURN: u32 = 5;

/// Time that who finds a busy engine contended leaves it to its holder: the dozen lines that an
/// engine consists of take 0.5 to 1 µs from one core to another, and an operation 50 ns.
pub const TURN: std::time::Duration = std::time::Duration::from_nanos(1500);

/// Number of times that this time is doubled.
pub const TURNS_MAX: u32 = 2;

/// Turns for which a thread that only looks for news leaves the engine to those who need it: longer
/// than taking it takes, and little beside a look if they do not run.
pub const YIELD_LOCK_SPINS: u32 = 32;

/// Turns for which a thread that polls in vain leaves the engine to others at most, while these
/// take it between its looks: some microseconds, in which they do dozens of things without having
/// to fetch the engine from each other's cores.
pub const YIELD_LOCK_SPINS_MAX: u32 = 64;

/// Looks in a row that follow one that brought something, before others are asked after again: what
/// they bring is as much as a thread does meanwhile.
pub const POLLS_AFTER_PACKET: u32 = 16;

/// A core that was given away for at least this long was somebody else's meanwhile: between the
/// half or whole microsecond that giving it in vain takes and the three or more of two switches.
pub const YIELD_TAKEN_FROM: std::time::Duration = std::time::Duration::from_micros(2);

/// Times that a waiter gives a core away in vain before it sleeps, where ranks exceed cores: some
/// thirty microseconds, which is what being woken costs. Its partner then runs on another core, and
/// costs nobody anything.
pub const YIELDS_IN_VAIN: u32 = 40;

/// Sleeps in one wait before it is told to those who watch: short waits, which are many, do not pay
/// for telling.
pub const PARKS_BEFORE_TELLING: u32 = 1;

/// Sleeps between two publications of what was sent: a rank that sleeps often does not pay for
/// each, and one that sleeps for long is told of anyway.
pub const PARKS_PER_PUBLICATION: u32 = 16;

/// Polls of spinning on: some two hundred microseconds, twice the dearest wake-up seen.
pub const SPIN_ON_POLLS: u32 = 20_000;

/// News that come later than this after the beginning of spinning on came while the core was taken
/// away: longer than the polls take, shorter than a time slice.
pub const SPIN_ON_LIMIT: std::time::Duration = std::time::Duration::from_millis(1);

/// Most waits in a row that do not spin on: with them a lost time slice adds a tenth to as many
/// wake-ups.
pub const SPIN_ON_SKIPS: u32 = 255;

/// Tasks that wait at one core at most: a core runs them one by one, and a submitter that is told
/// to wait loses nothing by it.
pub const CORE_TASKS: usize = 128;

/// Tasks that wait at one larger area at most: what one cache line of a bitmap names.
pub const SHARED_TASKS: usize = garonne_sync::task_slots::TASKS_MAX;

/// Looks of a worker or waiter before it sleeps: some tens of microseconds, which is what being
/// woken costs.
pub const WORKER_SPINS: u32 = 2_000;

/// Turns of a leader before it asks again which core it is on, and which queues it is to watch:
/// asking costs as much as a look, and the kernel moves threads rarely. Random schedules are
/// shorter than that.
pub const CPU_CHECK_TURNS: u32 = if cfg!(shuttle) { 2 } else { 64 };

/// Turns, for each core that polls, after which a leader looks at a queue that another watches:
/// together they look about every microsecond. So long a task waits more whose watcher is busy;
/// more often, and the queue's line would be away from the watcher when a task comes.
pub const RARE_TURNS: u32 = 16;

/// Turns after which it looks again whether what it found has waited all the time: more than a
/// watcher takes that is there.
pub const RECHECK_TURNS: u32 = 4;

/// Tasks that a leader has taken from a queue in [`CPU_CHECK_TURNS`] turns to become its watcher:
/// more than chance brings.
pub const WATCHES_FROM: u32 = 2;

/// Tasks that wait at a place where somebody polls before another worker is called: fewer are run
/// sooner than it would wake.
pub const BACKLOG: u32 = 8;

/// The first nap of a worker between two looks at tasks that repeat: about what waking costs.
pub const WORKER_SLEEP_FIRST: std::time::Duration = std::time::Duration::from_micros(50);

/// A worker's longest nap, unless a task says otherwise: with it a hundred idle ranks use less than
/// one per cent of a core.
pub const WORKER_SLEEP_MAX: std::time::Duration = std::time::Duration::from_millis(50);

/// A sleeping waiter looks for work itself this often, for systems that refuse workers; as cheap as
/// the longest nap.
pub const WAITER_SLEEP: std::time::Duration = std::time::Duration::from_millis(100);

/// A thread that finds no wait slot asks again this often: more than four thousand threads that
/// wait at once are no case to be quick in.
pub const NO_SLOT_SLEEP: std::time::Duration = std::time::Duration::from_millis(10);

/// Number of times that a thread gives its core away before it is parked down, while that pays: as
/// often as a sleep and a wake-up cost switches and system calls.
pub const YIELDS_BEFORE_PARK: u32 = 4;

/// Threads that wait already, at most, where another lingers before it is parked down: among more
/// each gives way to others that do the same.
pub const YIELDING_WAITERS_MAX: u32 = 3;

/// Looks of the thread that polls for others before it gives its core away to one of them, again
/// and again while somebody takes it: a microsecond or two, which is what a switch costs.
pub const LEADER_YIELD_FIRST: u32 = 32;

/// Polls between two yields at most, when nobody took the core for some times: about fifty
/// microseconds, with which yielding costs less than a hundredth.
pub const LEADER_YIELD_LAST: u32 = 1024;

/// How soon the timer looks after tasks for which somebody was called: a time slice or less, and at
/// most one look of some microseconds in each.
pub const TICK: std::time::Duration = std::time::Duration::from_millis(1);

/// The timer's longest interval while others look after what waits.
pub const TICK_LONGEST: std::time::Duration = std::time::Duration::from_millis(64);

/// Time that a run of the event thread goes on, without saying that it is long, before its
/// standby goes on with everything else: a few times what a task may take, and about what the
/// kernel lets a thread wait for its core now and then, which is no reason to change.
pub const LATE: std::time::Duration = std::time::Duration::from_millis(5);

/// Long runs of threads that led, at most, beside which the timer runs tasks that can wait for an
/// idle core: as many more threads of the ordinary class would take the cores from those that
/// compute.
pub const LONG_AT_TIMER: u32 = 4;

/// Long runs of threads that led at most, of tasks that are wanted now: each has a thread, as
/// blocking calls have. The event thread is held up by one more.
pub const LONG_RUNS: u32 = 64;

/// Time that a standby stays while the event thread runs nothing: longer than the beat of most
/// alarms, and starting another costs some tens of microseconds only. Random schedules have no
/// time.
pub const STAND_IN_REST: std::time::Duration = match cfg!(shuttle) {
    true => std::time::Duration::from_micros(1),
    false => std::time::Duration::from_secs(10),
};

/// Stack of the library's own threads: they run tasks, which are small; a large stack would count
/// against limits on address space.
pub const STACK: usize = 256 * 1024;

/// Time that the end of everything waits for a thread of its own: longer than a task takes, shorter
/// than a user notices.
pub const STOP_LIMIT: std::time::Duration = std::time::Duration::from_millis(200);

/// Time that a worker of the idle class waits for a thread that it has the event thread start:
/// longer than one that is put aside by others' runs takes.
pub const START_WAITS: std::time::Duration = std::time::Duration::from_millis(100);

/// Time between two tries to start a thread that the system refused.
pub const START_AGAIN: std::time::Duration = std::time::Duration::from_secs(1);

/// Threads for blocking calls at most: calls beyond that are rarely all needed at once, and each
/// thread costs the process.
pub const BLOCKERS: usize = 64;

/// Blocking calls that wait for a thread at most.
pub const CALLS: usize = 1024;

/// Time that a thread for blocking calls stays without one: starting another costs some tens of
/// microseconds only.
pub const BLOCKER_IDLE: std::time::Duration = std::time::Duration::from_secs(1);

/// Words of memory that are watched at most; every change makes one thread look at all.
pub const WORDS: usize = 1024;

/// Time that a change of a watched word goes unnoticed if nobody wakes its sleepers: rare enough to
/// cost nothing.
pub const WORD_CHECK_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

/// Receives with room for no more than this are left to the program's calls: no transport announces
/// messages so short, so they come without anybody's hands.
pub const ASYNC_RECV_MIN: u32 = 16 * 1024;

/// Bytes that wait to be moved when a call is about to return, from which on the progress thread is
/// woken for them: below, moving them takes less than waking it.
pub const HANDED_OVER_FROM: u64 = 128 * 1024;

/// Operations or steppers left open of which all are looked at whenever another is: as many as a
/// halo exchange has, and cheaper than lending.
pub const OPEN_FEW: usize = 32;

/// Times in a row that a call site leaves something open for a moment only before it is lent no
/// hands: one or two may be chance.
pub const SHORT_RELEASES: u8 = 3;

/// Computing for less than this hides less than releasing ownership and waking them costs both
/// sides together, where there is a core to spare.
pub const RELEASE_WORTH: std::time::Duration = std::time::Duration::from_micros(50);

/// Time of computing that is worth a release where the progress thread is awake: a line or two go
/// from core to core for each message.
pub const RELEASE_WORTH_AWAKE: std::time::Duration = std::time::Duration::from_micros(2);

/// Threshold while it is not known whether a progress thread stays awake: what is left open within
/// such a time counts as one soon after the other.
pub const PROGRESS_SPIN_GUESS: std::time::Duration = std::time::Duration::from_micros(100);

/// Looks of a progress thread that is awake between two looks at the clock, which costs as much as
/// one or two of these.
pub const PROGRESS_SPIN_POLLS: u32 = 32;

/// A progress thread whose few looks took this long was put aside meanwhile: far more than they
/// take, and less than others have of a core once they got it.
pub const AWAY_FROM: std::time::Duration = std::time::Duration::from_micros(50);

/// Time that it then does without spins, twice as long each time, up to the longest: in the end it
/// takes a tenth of a millisecond of a second from who wants its core.
pub const PROGRESS_SPIN_PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// See [`PROGRESS_SPIN_PAUSE`].
pub const PROGRESS_SPIN_PAUSE_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Releases in a row, each soon after the one before, that find the progress thread asleep before
/// it is called: calling costs the program some microseconds.
pub const PROGRESS_WAKE_AFTER: u32 = 4;
/// Releases in a row before the progress thread is woken, at most, where it was asleep again each
/// time soon after.
pub const PROGRESS_WAKE_AFTER_MAX: u32 = 16;

/// Graces in a row that a progress thread lets pass because ownership was released in each: a
/// program that lends so often comes back as a rule.
pub const GRACES_DEFERRED_MAX: u32 = 4;

/// Graces in a row with nothing lent after which the progress thread rests: a program that lends
/// often does not wake it each time, and one that has ceased to is not bothered for long.
pub const GRACES_BEFORE_REST: u32 = 25;

/// Time that a progress thread sleeps before it asks whether it is needed at all: starting another
/// costs some tens of microseconds, so a program that computes for seconds between two messages
/// does not notice, and one that left something open once has no second thread soon afterwards.
pub const REST: std::time::Duration = std::time::Duration::from_secs(1);

/// Up to when a transport that is to be looked at by itself has the progress thread woken when
/// ownership is released, so that it does: connections are tried again after less than that. Looks
/// for peers that fell silent come each second while bytes are under way, which is no reason to
/// wake anybody with each message.
pub const POLL_DUE_SOON: std::time::Duration = std::time::Duration::from_millis(300);

/// How many times as long it sleeps at most, when it was needed: something stays open, and nobody
/// calls.
pub const REST_TIMES: u32 = 64;

/// Looks of the progress thread for bytes that are on their way before it sleeps: some ten
/// microseconds, which is what being called costs. None on the core that the program computes on.
pub const HELPER_SPINS: u32 = 1_000;

/// Time that a fork waits at most for a turn of a progress thread: one takes as long as the copies
/// in it, and may wait for a lock that the forking thread holds.
pub const FORK_WAITS: std::time::Duration = std::time::Duration::from_millis(100);

/// Between two looks whether that turn is over, or the fork: few enough not to disturb, and soon
/// enough for a program that forks often.
pub const FORK_LOOKS: std::time::Duration = std::time::Duration::from_micros(20);

/// Looks that brought nothing after which a leader looks at the shards that nobody polls: each
/// costs as much as its own, and what is there is waited for by nobody just now.
pub const OTHER_SHARDS_EVERY: u32 = 16;

/// Time that a leader sleeps at first, at most, while there are other shards: something may be open
/// there of a thread that is gone, whose peers wait for this rank to advance it.
pub const OTHER_SHARDS_SLEEP: std::time::Duration = std::time::Duration::from_millis(20);

/// Number of times that this time is doubled while it sleeps again and again: a thread that waits
/// for long wakes six times a second.
pub const OTHER_SHARDS_DOUBLINGS: u32 = 3;

/// Calls of others in one wait of a leader's own, where each that waits has a core, before it steps
/// aside for the next: threads that are answered in turn stay below.
pub const SERVED_BEFORE_ASIDE: u32 = 16;

/// Wake-ups by a leader after which it asks anew whether the woken thread wants its core: one
/// needless switch among so many.
pub const CROWDED_CALLS: u32 = 64;

/// Time that a leader that steps aside sleeps at most: as any sleeper's first nap, since what a
/// peer wrote meanwhile without a fence may have been seen by nobody.
pub const STEP_ASIDE_SLEEP: std::time::Duration = std::time::Duration::from_micros(500);

/// Naps in a row in which nobody came in its place before it sleeps as leaders do: ten milliseconds
/// of a thread that woke for nothing each half.
pub const SLEEPS_IN_VAIN: u32 = 20;

/// Looks of a leader that leaves and finds more each time, before it wakes the one that is to go
/// on.
pub const HANDOVER_POLLS: u32 = 4;

/// Looks for a message that nothing was posted for with the engine in hand, where several threads
/// share it: a tenth of a microsecond, which others wait for it at most.
pub const UNPOSTED_POLLS: u32 = 8;

/// Turns of [`UNPOSTED_POLLS`] polls: a microsecond in all, in which an answer on the way arrives,
/// and short beside other duties.
pub const UNPOSTED_TURNS: u32 = 8;

/// Room of a receive that is looked for so at most: no transport sends so short a message in
/// pieces.
pub const UNPOSTED_LEN_MAX: u32 = 4096;

/// Steppers that end in one run and are known by name to those who wait for them: where more end at
/// once, most that wait are concerned, and all ask again.
pub const ENDED_KNOWN: usize = 8;

/// Operations of which a thread waits for any without taking memory for their names: more than most
/// programs have open at a time.
pub const ANY_OF_FEW: usize = 16;
