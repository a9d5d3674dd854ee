//! The agent: starts the ranks of a job on this node, passes their output on, serves the processes that register, and
//! ends the job at the first failure or when everything is done.
//!
//! Owned by one process with one thread, forked by the launcher. It sleeps in one epoll; every descriptor has a token.
//! A rank's direct child is watched through SIGCHLD and stays unreaped until the end (so that its process id cannot be
//! given to another while peers may still write to it); a process that registers from behind a wrapper is watched
//! through a pidfd. Three descriptors per rank bound what it needs: two pipes and a private socket.

mod absence;
mod ending;
mod output;
mod passing;
mod serve;
#[path = "spawn/sys.rs"]
#[allow(unsafe_code)]
mod spawn;
mod stamp;
mod start;

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use garonne_sync::shm::Segment;
use rustix::event::{Timespec, epoll};
use rustix::net::{RecvFlags, SendFlags};

use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::layout::{self, JobId, Shape};
use crate::limits;
use crate::processes::{self, Ended};
use crate::rendezvous::{self, JobName};
use crate::sys;
use crate::wire::Link;
use ending::Ending;
use output::{Kind, Marking, Sink, Stream};
use passing::Sinks;
use start::Starter;

/// Which descriptor an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Hello,
    Link,
    Signals,
    Output(Kind, u32),
    Control(u32),
    Process(u32),
    Sink(Kind),
}

impl Token {
    fn pack(self) -> epoll::EventData {
        let (kind, index) = match self {
            Token::Hello => (0, 0),
            Token::Link => (1, 0),
            Token::Signals => (2, 0),
            Token::Output(Kind::Out, rank) => (3, rank),
            Token::Output(Kind::Err, rank) => (4, rank),
            Token::Control(conn) => (5, conn),
            Token::Process(conn) => (6, conn),
            Token::Sink(Kind::Out) => (7, 0),
            Token::Sink(Kind::Err) => (8, 0),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(index))
    }

    fn unpack(data: epoll::EventData) -> Self {
        let index = data.u64() as u32;
        match data.u64() >> 32 {
            0 => Token::Hello,
            1 => Token::Link,
            2 => Token::Signals,
            3 => Token::Output(Kind::Out, index),
            4 => Token::Output(Kind::Err, index),
            5 => Token::Control(index),
            6 => Token::Process(index),
            7 => Token::Sink(Kind::Out),
            _ => Token::Sink(Kind::Err),
        }
    }
}

/// A registered process of a rank.
#[derive(Debug)]
struct Member {
    epoch: u32,
    pid: i32,
    socket: Option<OwnedFd>,
    /// `None` if the process is the rank's direct child, or not visible from here.
    pidfd: Option<OwnedFd>,
    direct: bool,
    finalized: bool,
    gone: bool,
    report: String,
}

/// A rank as started.
#[derive(Debug)]
struct Slot {
    pid: i32,
    program: usize,
    ended: Option<Ended>,
    out: Stream,
    err: Stream,
    /// Index in `members` of the newest process that registered.
    member: Option<u32>,
    /// The registered process disappeared before its wrapper: the wrapper's status is awaited until then.
    dark_until: Option<Instant>,
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
    /// Whether there are descriptors enough for a pidfd per rank; else the end of its socket tells of a death.
    room_for_pidfds: bool,
    paused: bool,
    ending: Option<Ending>,
    /// The rank behind a wrapper that died first, from then until it is known how: other failures do not count any more.
    suspect: Option<u32>,
    deadline: Option<Instant>,
    last_signal: Option<Instant>,
    /// When to look whether all wait for a rank that will not come; `None`: no rank is missing.
    absence_due: Option<Instant>,
}

/// Runs the job to its end and returns its exit code. `link` is the socket to the launcher, which is told the code
/// too; `signals` are this process's.
pub(crate) fn run(job: &Job, launcher: i32, link: &OwnedFd, signals: &sys::Signals) -> i32 {
    let outcome = run_job(job, launcher, link, signals);
    let code = outcome.unwrap_or_else(|error| {
        processes::kill_all();
        let mut sink = Sink::new(Kind::Err);
        sink.write(format!("{error}\n").as_bytes());
        start_error_code(&error)
    });
    // If the launcher is gone, nobody needs the answer.
    let _ = sys::send(
        link.as_fd(),
        &Link::Done { code }.encode(),
        &[],
        SendFlags::empty(),
    );
    code
}

/// Exit code of a job that could not start, after the habit of shells.
fn start_error_code(error: &Error) -> i32 {
    match error {
        Error::System { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => 126,
        error if error.code() == codes::G0210 => 127,
        _ => 1,
    }
}

fn run_job(job: &Job, launcher: i32, link: &OwnedFd, signals: &sys::Signals) -> Result<i32> {
    let setup = |what: &'static str| move |error: rustix::io::Errno| Error::system(codes::G0209, what, error);
    processes::adopt_orphans()
        .map_err(|e| Error::system(codes::G0209, "cannot become the parent of orphans", e))?;
    let id = job_id()?;
    let name = JobName::new(launcher as u32, id);
    let (hello, shared) = rendezvous::bind(&name)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(setup("cannot make an epoll"))?;
    let pipe = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
        .map_err(setup("cannot make the lifeline"))?;
    let mut agent = Agent {
        job,
        id,
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
        suspect: None,
        deadline: job.timeout.map(|timeout| Instant::now() + timeout),
        last_signal: None,
        absence_due: None,
    };
    agent.listen(agent.hello.as_fd(), Token::Hello)?;
    agent.listen(link.as_fd(), Token::Link)?;
    agent.listen(signals.as_fd(), Token::Signals)?;
    let starter = Starter::new(job, id, &name, &shared, signals)?;
    agent.room_for_pidfds = start::open_files_limit() >= limits::FDS_OF_AGENT + 4 * u64::from(job.size());
    agent.start_ranks(&starter)?;
    drop(starter);
    drop(shared);
    agent.serve_until_done()
}

/// A random identity: the secret of the job, too.
fn job_id() -> Result<JobId> {
    let mut bytes = [0; 16];
    let got = rustix::fs::open(
        "/dev/urandom",
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC,
        0.into(),
    )
    .and_then(|file| rustix::io::read(file, &mut bytes));
    match got {
        Ok(16) => Ok(JobId(u128::from_ne_bytes(bytes))),
        Ok(_) => Err(Error::resource(codes::G0304, "/dev/urandom is empty")),
        Err(error) => Err(Error::system(codes::G0209, "cannot read /dev/urandom", error)),
    }
}

impl Agent<'_> {
    fn listen(&self, fd: BorrowedFd<'_>, token: Token) -> Result<()> {
        epoll::add(&self.epoll, fd, token.pack(), epoll::EventFlags::IN)
            .map_err(|error| Error::system(codes::G0209, "cannot watch a descriptor", error))
    }

    fn start_ranks(&mut self, starter: &Starter<'_>) -> Result<()> {
        let marking = Marking {
            tags: self.job.tags,
            stamps: self.job.stamps,
            colour: self.job.colour,
        };
        let ready = self
            .job
            .programs
            .iter()
            .enumerate()
            .map(|(index, program)| starter.prepare(index, program))
            .collect::<Result<Vec<_>>>()?;
        for (rank, program) in self.job.program_of_rank().into_iter().enumerate() {
            let rank = rank as u32;
            let started = starter.start(rank, &ready[program])?;
            let (out, err) = (started.stdout, started.stderr);
            self.listen(out.as_fd(), Token::Output(Kind::Out, rank))?;
            self.listen(err.as_fd(), Token::Output(Kind::Err, rank))?;
            self.slots.push(Slot {
                pid: started.pid,
                program,
                ended: None,
                out: Stream::new(out, rank, Kind::Out, marking),
                err: Stream::new(err, rank, Kind::Err, marking),
                member: None,
                dark_until: None,
            });
        }
        Ok(())
    }

    fn serve_until_done(mut self) -> Result<i32> {
        let mut events = Vec::with_capacity(64);
        loop {
            if let Some(code) = self.finished()? {
                return Ok(code);
            }
            let timeout = self.next_due().map(|due| {
                let wait = due.saturating_duration_since(Instant::now());
                Timespec {
                    tv_sec: wait.as_secs() as i64,
                    tv_nsec: i64::from(wait.subsec_nanos()),
                }
            });
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
            // Deaths before what others say of them.
            let mut tokens: Vec<_> = events.iter().map(|event| Token::unpack(event.data)).collect();
            tokens.sort_by_key(|token| !matches!(token, Token::Process(_)));
            for token in tokens {
                self.handle(token)?;
            }
            self.handle_due()?;
        }
    }

    fn handle(&mut self, token: Token) -> Result<()> {
        match token {
            Token::Hello => self.serve_hello(),
            Token::Link => self.serve_link(),
            Token::Signals => self.serve_signals(),
            Token::Output(kind, rank) => self.pump(kind, rank),
            Token::Control(member) => self.serve_member(member),
            Token::Process(member) => self.member_gone(member),
            Token::Sink(kind) => self.flush(kind),
        }
        Ok(())
    }

    /// The launcher speaks, or is gone: then nobody sees the rest, and nothing must be left.
    fn serve_link(&mut self) {
        let message = sys::recv(self.link.as_fd(), RecvFlags::DONTWAIT);
        match message.as_ref().map(|message| Link::decode(&message.bytes)) {
            Ok(Ok(Link::Signal { signal, broadcast })) => self.signalled(signal, broadcast),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => {
                processes::kill_all();
                sys::exit_now(1);
            }
        }
    }

    fn serve_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal.number {
                libc::SIGCHLD => self.look_at_children(),
                // A key on the terminal reaches launcher, agent and ranks alike. It is seen here before the ends of the
                // ranks that it causes, so these are not taken for failures.
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                    self.signalled(signal.number, signal.from_kernel);
                }
                _ => {}
            }
        }
    }

    /// Some child has ended: finds out which ranks have, and reaps orphans.
    fn look_at_children(&mut self) {
        let mut found = false;
        for rank in 0..self.slots.len() {
            let slot = &mut self.slots[rank];
            if slot.ended.is_none()
                && let Some(ended) = processes::ended(slot.pid)
            {
                slot.ended = Some(ended);
                found = true;
                self.rank_ended(rank as u32, ended);
            }
        }
        if !found {
            for pid in processes::children_of(rustix::process::getpid().as_raw_pid()) {
                if !self.slots.iter().any(|slot| slot.pid == pid) {
                    processes::reap(pid);
                }
            }
        }
    }

    /// When something is to be done without an event.
    fn next_due(&self) -> Option<Instant> {
        let streams = self
            .slots
            .iter()
            .flat_map(|slot| [slot.out.due(), slot.err.due()])
            .flatten();
        let ending = self.ending.as_ref().and_then(Ending::due);
        let passes = self.sinks.iter().filter_map(Sink::pass_due);
        streams
            .chain(passes)
            .filter(|_| !self.paused)
            .chain(self.slots.iter().filter_map(|slot| slot.dark_until))
            .chain(ending)
            .chain(self.deadline)
            .chain(self.absence_due())
            .min()
    }

    fn handle_due(&mut self) -> Result<()> {
        let now = Instant::now();
        self.output_due(now);
        for rank in 0..self.slots.len() {
            let slot = &mut self.slots[rank];
            if slot.dark_until.is_some_and(|due| due <= now) {
                slot.dark_until = None;
                self.left_in_the_dark(rank as u32);
            }
        }
        if self.deadline.is_some_and(|due| due <= now) {
            self.deadline = None;
            self.out_of_time();
        }
        self.look_for_absent(now);
        Ok(())
    }

    fn program_name(&self, rank: u32) -> String {
        let program = &self.job.programs[self.slots[rank as usize].program];
        program
            .argv
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    fn new_world(&mut self, epoch: u32, version: &str, by: u32) -> Result<()> {
        if epoch >= limits::WORLDS_MAX {
            return Err(Error::resource(
                codes::G0302,
                format!("this job has started {epoch} worlds of MPI programs already"),
            ));
        }
        let placement = &self.job.placement;
        let shape = Shape {
            job: self.id,
            epoch,
            size: self.job.size(),
            coll_bytes: self.job.coll_bytes,
            inbox_bytes: self.job.inbox_bytes,
            cpus_milli: placement.cpus_milli,
            bound: !placement.masks.is_empty(),
        };
        let (file, board) = crate::memory::create(&shape)?;
        if self.job.traced {
            // For ever: the launcher, which reads, ends with the job.
            layout::trace_until(&board).store(u64::MAX, Relaxed);
            board.atomic_u32(layout::TRACE_WORD).store(1, Relaxed);
            let message = Link::World.encode();
            sys::send(self.link.as_fd(), &message, &[file.as_fd()], SendFlags::empty())
                .map_err(|error| Error::system(codes::G0209, "cannot hand a world to the launcher", error))?;
        }
        let version = version.to_owned();
        let world = World {
            shape,
            file,
            board,
            version,
            by,
            fence: vec![],
            store: HashMap::new(),
            waiting: vec![],
        };
        self.worlds.push(world);
        Ok(())
    }
}
