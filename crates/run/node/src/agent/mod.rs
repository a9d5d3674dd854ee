//! The agent: starts the ranks of a job on this node, passes their output on, serves the processes
//! that register, and ends the job at the first failure or when everything is done.
//!
//! Owned by one process with one thread, forked by the launcher. It sleeps in one epoll; every
//! descriptor has a token. A rank's direct child is watched through SIGCHLD and stays unreaped
//! until the end (so that its process id cannot be given to another while peers may still write to
//! it); a process that registers from behind a wrapper is watched through a pidfd. Three
//! descriptors per rank bound what it needs: two pipes and a private socket.

mod absence;
mod added;
mod adopted;
mod below;
mod blame;
mod branch;
mod callback;
mod children;
mod closing;
mod crashed;
mod drained;
mod due;
mod ending;
mod executable;
mod far;
mod gateway;
pub mod grace;
mod hosts;
mod input;
mod interrupt;
mod joined;
mod kept;
mod last_words;
mod looks;
mod meeting;
mod member;
mod naming;
mod other_mpi;
mod outer;
mod output;
mod own_program;
mod passing;
mod recorders;
mod renewal;
mod search;
mod serve;
mod source;
#[path = "spawn/sys.rs"]
#[allow(unsafe_code)]
mod spawn;
pub mod stall;
mod stamp;
mod standstill;
pub(crate) mod start;
mod tally;
mod token;
mod traceback;
mod trunk;
mod verdict;
mod vigil;
mod world;

use std::collections::HashMap;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use garonne_sync::shm::Segment;
use ipnet::IpNet;
use rustix::event::epoll;
use rustix::net::SendFlags;

use crate::added::Added;
use crate::admission::{Admission, draw_job_id};
use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::layout::{JobId, Shape};
use crate::processes::{self, Ended};
use crate::rendezvous::{self, JobName};
use crate::wire::Link;
use crate::{limits, sys};
use adopted::Adopted;
pub(crate) use adopted::adopt;
use below::Below;
use blame::Held;
use callback::Callbacks;
use ending::Ending;
use far::Far;
use hosts::Hosts;
pub(crate) use hosts::listen_at;
pub(crate) use joined::{Beginning, Outer};
use member::Member;
pub use other_mpi::ENV_SINGLETONS;
use outer::{Tail, Up};
use output::{Kind, Marking, Sink, Stream};
use passing::Sinks;
use recorders::Recorders;
use source::Source;
use start::{Ready, Starter};
use token::Token;

/// A rank as started.
#[derive(Debug)]
struct Slot {
    /// Where it runs; elsewhere than here there is no process of it, and the other agent tells of
    /// its end.
    node: u32,
    pid: i32,
    program: usize,
    ended: Option<Ended>,
    out: Stream,
    err: Stream,
    /// Index in `members` of the newest process that registered.
    member: Option<u32>,
    /// The registered process disappeared before its wrapper: the wrapper's status is awaited until
    /// then.
    dark_until: Option<Instant>,
    /// The port at which other hosts' ranks reach it.
    listener: Option<TcpListener>,
    /// By stream: bytes that may still be sent to the first agent; or, there, that were taken and
    /// not yet told of.
    room: [usize; 2],
    /// By stream: the beginning of a line, which the first agent gets with its end.
    tails: [Tail; 2],
    /// The first agent knows of its end.
    told: bool,
}

impl Slot {
    fn stream(&self, kind: Kind) -> &Stream {
        match kind {
            Kind::Out => &self.out,
            Kind::Err => &self.err,
        }
    }

    fn stream_mut(&mut self, kind: Kind) -> &mut Stream {
        match kind {
            Kind::Out => &mut self.out,
            Kind::Err => &mut self.err,
        }
    }
}

/// The shared memory of one generation of MPI processes, and what they exchange.
#[derive(Debug)]
struct World {
    shape: Shape,
    file: OwnedFd,
    board: Segment,
    version: String,
    by: u32,
    fence: Vec<u32>,
    store: HashMap<String, Vec<u8>>,
    waiting: Vec<(u32, String)>,
}

struct Agent<'a> {
    job: &'a Job,
    id: JobId,
    admission: Admission,
    launcher: i32,
    epoll: OwnedFd,
    hello: OwnedFd,
    link: &'a OwnedFd,
    signals: &'a sys::Signals,
    lifeline: (OwnedFd, OwnedFd),
    slots: Vec<Slot>,
    members: Vec<Member>,
    worlds: Vec<World>,
    sinks: Sinks,
    /// Whether there are descriptors enough for a pidfd per rank; else the end of its socket tells
    /// of a death.
    room_for_pidfds: bool,
    paused: bool,
    ending: Option<Ending>,
    /// What ranks record for readers after their death.
    recorders: Recorders,
    /// The rank behind a wrapper that died first, from then until it is known how: other failures
    /// do not count any more.
    suspect: Option<u32>,
    /// The first failure, while it is not known whether a host is gone that may be its cause.
    held: Option<Held>,
    deadline: Option<Instant>,
    last_signal: Option<Instant>,
    /// When to look whether all wait for a rank that will not come; `None`: no rank is missing.
    absence_due: Option<Instant>,
    /// Which of the job's nodes this is; 0 is the launcher's.
    node: u32,
    /// At the first agent of several.
    far: Option<Box<Far>>,
    /// At the others: the line to the one above.
    up: Option<Box<Up>>,
    /// At those with agents below them.
    below: Option<Box<Below>>,
    /// Of ranks that another launcher started.
    adopted: Option<Adopted>,
    /// Where everybody is, in a job on several hosts.
    hosts: Option<Hosts>,
    /// Not all agents are there yet: no rank has been started.
    gathering: bool,
    /// Streams of other hosts that may be read again.
    revived: Vec<(Kind, u32)>,
    /// Calls to ranks of this node on behalf of those that wait for theirs.
    callbacks: Callbacks,
    /// Networks that ranks are not to use.
    drained: Vec<IpNet>,
    drains: drained::Drains,
    /// Addresses that hosts have got since the job began.
    added: Vec<Added>,
    gateways: gateway::Gateways,
    looks: looks::Looks,
    other_mpi: other_mpi::OtherMpi,
    input: input::Input,
    /// Between asking ranks to end and ending them.
    grace: Duration,
    tally: tally::Tally,
    standstill: standstill::Standstill,
    verdicts: verdict::Verdicts,
    crashes: crashed::Crashes,
    last_words: last_words::LastWords,
}

/// Runs the job to its end and returns its exit code. `link` is the socket to the launcher, which
/// is told the code too; `signals` are this process's.
pub(crate) fn run(
    job: &Job,
    launcher: i32,
    link: &OwnedFd,
    signals: &sys::Signals,
    beginning: Beginning,
) -> i32 {
    let outcome = run_job(job, launcher, link, signals, beginning);
    match outcome {
        Ok(code) => done(link, code),
        Err(error) => {
            processes::kill_all();
            not_begun(job, link, &error)
        }
    }
}

/// The job could not be begun, or its agent cannot go on: says why. Returns the job's exit code, as
/// the launcher is told it.
pub(crate) fn not_begun(job: &Job, link: &OwnedFd, error: &Error) -> i32 {
    Sink::new(Kind::Err).write(format!("{error}\n").as_bytes());
    done(link, tally::failed_to_start(job, error))
}

fn done(link: &OwnedFd, code: i32) -> i32 {
    // If the launcher is gone, nobody needs the answer.
    let _ = sys::send(
        link.as_fd(),
        &Link::Done { code }.encode(),
        &[],
        SendFlags::empty(),
    );
    code
}

fn run_job(
    job: &Job,
    launcher: i32,
    link: &OwnedFd,
    signals: &sys::Signals,
    beginning: Beginning,
) -> Result<i32> {
    processes::adopt_orphans()
        .map_err(|e| Error::system(codes::G0209, "cannot become the parent of orphans", e))?;
    let id = beginning
        .outer()
        .map_or_else(draw_job_id, |outer| Ok(outer.job))?;
    let name = JobName::new(launcher as u32, id);
    let (hello, shared) = rendezvous::bind(&name)?;
    let mut agent = Agent::new(job, id, launcher, hello, (link, signals))?;
    agent.node = beginning.outer().map_or(0, |outer| outer.node);
    agent.listen(agent.hello.as_fd(), Token::Hello)?;
    agent.listen(link.as_fd(), Token::Link)?;
    let starter = Starter::new(job, &agent.admission, &name, &shared, signals)?;
    agent.room_for_pidfds =
        start::open_files_limit() >= limits::FDS_OF_AGENT + 4 * u64::from(job.size());
    let done = agent.run_ranks(starter, beginning);
    drop(shared);
    match done {
        Err(error) if agent.up.is_some() => Ok(agent.failed_here(&error)),
        done => done,
    }
}

impl<'a> Agent<'a> {
    /// One without ranks, which watches signals only.
    fn new(
        job: &'a Job,
        id: JobId,
        launcher: i32,
        hello: OwnedFd,
        (link, signals): (&'a OwnedFd, &'a sys::Signals),
    ) -> Result<Self> {
        let setup = |what: &'static str| {
            move |error: rustix::io::Errno| Error::system(codes::G0209, what, error)
        };
        let epoll =
            epoll::create(epoll::CreateFlags::CLOEXEC).map_err(setup("cannot make an epoll"))?;
        let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(setup("cannot make the lifeline"))?;
        let agent = Self {
            job,
            id,
            admission: Admission::draw()?,
            launcher,
            epoll,
            hello,
            link,
            signals,
            lifeline: pipe,
            slots: Vec::new(),
            members: Vec::new(),
            worlds: Vec::new(),
            sinks: Sinks::new(job.streams),
            room_for_pidfds: true,
            paused: false,
            ending: None,
            recorders: Recorders::default(),
            suspect: None,
            held: None,
            deadline: job.timeout.map(|timeout| Instant::now() + timeout),
            last_signal: None,
            absence_due: None,
            node: 0,
            far: None,
            up: None,
            below: None,
            adopted: None,
            hosts: None,
            gathering: false,
            revived: Vec::new(),
            callbacks: Callbacks::default(),
            drained: Vec::new(),
            drains: drained::Drains::default(),
            added: Vec::new(),
            gateways: gateway::Gateways::default(),
            looks: looks::Looks::default(),
            other_mpi: other_mpi::OtherMpi::default(),
            input: input::Input::default(),
            grace: grace::of(job),
            tally: tally::Tally::default(),
            standstill: standstill::Standstill::default(),
            verdicts: verdict::Verdicts::default(),
            crashes: crashed::Crashes::default(),
            last_words: last_words::LastWords::default(),
        };
        agent.listen(signals.as_fd(), Token::Signals)?;
        Ok(agent)
    }

    fn listen(&self, fd: BorrowedFd<'_>, token: Token) -> Result<()> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
            .map_err(|error| Error::system(codes::G0209, "cannot watch a descriptor", error))
    }

    /// Meets the agents of the other hosts. The job's exit code, if it ended before that.
    fn gather(&mut self, beginning: Beginning) -> Result<Option<i32>> {
        self.gathering = true;
        let listeners = self.meet(beginning)?;
        let ended = self.serve_until(|agent| agent.has_met())?;
        if ended.is_none() {
            self.gathering = false;
            self.settle_hosts(listeners)?;
        }
        Ok(ended)
    }

    /// Everything from the meeting of the agents, if there are several, to the end.
    fn run_ranks(&mut self, starter: Starter<'_>, beginning: Beginning) -> Result<i32> {
        if self.job.nodes.several()
            && let Some(code) = self.gather(beginning)?
        {
            return Ok(code);
        }
        self.start_ranks(&starter)?;
        drop(starter);
        self.open_input();
        // Orders may have come together with the one to start.
        self.first_speaks();
        match self.serve_until(|_| false)? {
            Some(code) => Ok(code),
            None => Ok(0),
        }
    }

    fn start_ranks(&mut self, starter: &Starter<'_>) -> Result<()> {
        self.open_output_files()?;
        self.tally.begin();
        let marking = Marking {
            tags: self.job.tags,
            stamps: self.job.stamps,
            colour: self.job.colour,
        };
        // A program need not be on hosts that run none of its ranks.
        let of_rank = self.job.program_of_rank();
        let here = |index: usize| {
            let mut ranks = of_rank.iter().zip(0..);
            ranks.any(|(program, rank)| *program == index && self.job.nodes.of(rank) == self.node)
        };
        let programs = self.job.programs.iter().enumerate();
        let ready = programs
            .map(|(index, program)| {
                here(index)
                    .then(|| starter.prepare(index, program))
                    .transpose()
            })
            .collect::<Result<Vec<_>>>()?;
        if !self.job.nodes.several() && ready.iter().flatten().any(Ready::uses_both_rails) {
            self.settle_alone()?;
        }
        for (rank, program) in of_rank.into_iter().enumerate() {
            let rank = rank as u32;
            let node = self.job.nodes.of(rank);
            let (pid, out, err) = match &ready[program] {
                Some(ready) if node == self.node => {
                    let input = self.open_feed(rank);
                    let started = starter.start(rank, ready, input)?;
                    self.listen(started.stdout.as_fd(), Token::Output(Kind::Out, rank))?;
                    self.listen(started.stderr.as_fd(), Token::Output(Kind::Err, rank))?;
                    (
                        started.pid,
                        Source::Pipe(started.stdout),
                        Source::Pipe(started.stderr),
                    )
                }
                _ => (0, Source::far(), Source::far()),
            };
            let err = Stream::new(err, rank, Kind::Err, marking);
            let listener = self.take_listener(rank);
            self.slots.push(Slot {
                node,
                pid,
                program,
                // Of ranks of other hosts only the first agent hears.
                ended: (node != self.node && self.far.is_none()).then_some(Ended::Exit(0)),
                out: Stream::new(out, rank, Kind::Out, marking),
                err: match self.job.files.err {
                    None => err.hold_tracebacks(),
                    Some(_) => err,
                },
                member: None,
                dark_until: None,
                listener,
                room: [if self.far.is_some() {
                    0
                } else {
                    limits::FAR_WINDOW
                }; 2],
                tails: Default::default(),
                told: false,
            });
        }
        self.watch_for_other_mpi(&ready);
        Ok(())
    }

    /// Serves until the job is over, and gives its code; or until it is time for something else.
    fn serve_until(&mut self, enough: impl Fn(&Self) -> bool) -> Result<Option<i32>> {
        let mut events = Vec::with_capacity(64);
        loop {
            if let Some(code) = self.finished()? {
                return Ok(Some(code));
            }
            if self.ending.is_none() && enough(self) {
                return Ok(None);
            }
            let timeout = self.standstill.lie_down(self.next_due());
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::system(
                        codes::G0209,
                        "the agent cannot wait for events",
                        error,
                    ));
                }
            }
            self.wake();
            // Deaths before what others say of them.
            let mut tokens: Vec<_> = events
                .iter()
                .map(|event| Token::unpack(event.data))
                .collect();
            tokens.sort_by_key(|token| !matches!(token, Token::Process(_)));
            for token in tokens {
                self.handle(token)?;
            }
            self.pump_revived();
            self.handle_due()?;
            self.tell_ends();
        }
    }

    fn handle(&mut self, token: Token) -> Result<()> {
        match token {
            Token::Hello => self.serve_hello(),
            Token::Link if self.adopted.is_some() => self.leader_silent(),
            Token::Link => self.serve_link(),
            Token::Signals => self.serve_signals(),
            Token::Output(kind, rank) => self.pump(kind, rank),
            Token::Control(member) => self.serve_member(member),
            Token::Process(member) => self.member_gone(member),
            Token::Sink(kind) => self.flush(kind),
            Token::Porch => self.open_porch(),
            Token::Stranger(place) => self.stranger_speaks(place),
            Token::Trunk(node) if node == self.node => self.first_speaks(),
            Token::Trunk(node) => self.branch_speaks(node),
            Token::Words(node) => self.branch_words(node),
            Token::Input => self.read_input(),
            Token::Feed => self.push_feed(),
            Token::Above => self.launcher_gone(),
            Token::Gate => self.open_gate(),
            Token::Late(place) => self.late_speaks(place),
            Token::Callback(place) => self.callback_ready(place),
            Token::Renewal(place) => self.renewal_ready(place),
            Token::Probe(place) => self.probe_ready(place),
            Token::Look(number) => self.look_speaks(number),
            Token::Asker(number) => self.asker_takes(number),
            Token::Verdict => self.verdict_speaks(),
            Token::Crash => self.crash_speaks(),
        }
        Ok(())
    }

    fn serve_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal.number {
                libc::SIGCHLD => self.look_at_children(),
                // A key on the terminal reaches launcher, agent and ranks alike. It is seen here
                // before the ends of the ranks that it causes, so these are not taken for failures.
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                    if self.is_guest() {
                        self.say_ended_by(signal.number);
                    }
                    self.signalled(signal.number, signal.from_kernel);
                }
                _ => {}
            }
        }
    }
}
