//! The agent: starts the ranks of a job on this node, passes their output on, serves the processes
//! that register, and ends the job at the first failure or when everything is done.
//!
//! Owned by one process with one thread, forked by the launcher. It sleeps in one epoll; every
//! descriptor has a token. A rank's direct child is watched through SIGCHLD and stays unreaped
//! until the end (so that its process id cannot be given to another while peers may still write to
//! it); a process that registers from behind a wrapper is watched through a pidfd. Three
//! descriptors per rank bound what it needs: two pipes and a private socket.

mod admission;
mod adopted;
mod agent_link;
mod child_agents;
mod context;
mod crash_examination;
mod disabled_networks;
mod epoll_token;
mod executable;
mod exit_log;
mod failure_cause;
mod faults;
mod final_output;
mod flight_recorders;
mod hang_report;
mod heartbeat;
mod helper_process;
mod host_exchange;
mod hosts;
mod interrupt;
mod job_end;
mod joined_hosts;
mod launcher_link;
mod missing_ranks;
mod networks;
mod new_networks;
mod other_mpi;
mod output;
mod output_routing;
mod output_source;
mod packet_sockets;
mod parent_link;
mod rank_libraries;
pub(crate) mod rank_start;
mod ranks;
mod reaper;
mod relay_rendezvous;
mod relay_search;
mod relays;
mod remote_start;
mod requests;
mod reverse_connect;
mod root_role;
mod shutdown;
mod snapshots;
#[path = "spawn/sys.rs"]
#[allow(unsafe_code)]
mod spawn;
mod spawned_jobs;
pub mod stall_detector;
mod stdin_forwarder;
mod suspension;
mod timers;
mod timestamp;
mod traceback;
mod tree_dispatch;
mod tree_links;
mod worlds;

use garonne_job::agent_socket_name::AgentSocketName;
use garonne_job::process_exit::ProcessExit;
pub use garonne_job::settings::ENV_SINGLETONS;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::net::SendFlags;

use admission::Admission;
use adopted::AdoptedRole;
pub(crate) use adopted::adopt;
use context::Context;
use epoll_token::EpollToken;
use flight_recorders::FlightRecorders;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::Job;
use garonne_job::layout::JobId;
use garonne_job::rank_messages::LauncherMessage;
use garonne_job::registration_secret::draw_job_id;
use garonne_links::agent_discovery;
use garonne_links::process_tree;
use garonne_links::sys;
pub(crate) use host_exchange::listen_at;
use job_end::JobEnd;
pub(crate) use joined_hosts::{AgentStart, RootConnection};
use networks::Networks;
use output::{OutputSink, StreamKind};
use output_routing::Output;
use output_source::OutputSource;
use rank_start::{PreparedProgram, RankStarter};
use ranks::{RankSlot, Ranks, RegisteredProcess};
use root_role::RootRole;

/// The agent of one host: the parts of its work, and the loop that hands them their events.
///
/// Owned by its process. [`Agent::new`] makes it; [`Agent::run_ranks`] (or `adopt_and_serve`, for
/// ranks of another launcher) meets the other agents, starts the ranks and serves to the end. Each
/// part keeps its state to itself and gets the context as an argument. What concerns several parts
/// is here: which part gets an event ([`Agent::handle`], [`Agent::handle_due`]), messages of other
/// agents (`tree_dispatch`), and how failures end the job (`shutdown`).
struct Agent<'a> {
    /// What all parts may use.
    ctx: Context<'a>,
    admission: Admission,
    ranks: Ranks,
    output: Output,
    /// Flight recorders of the ranks, for readers after their death.
    flight_recorders: FlightRecorders,
    end: JobEnd,
    missing_ranks: missing_ranks::MissingRanks,
    /// At the first agent of several.
    root_role: Option<Box<RootRole>>,
    /// State for ranks that another launcher started.
    adopted_role: Option<AdoptedRole>,
    networks: Networks,
    snapshots: snapshots::Snapshots,
    other_mpi: other_mpi::OtherMpiDetector,
    stdin: stdin_forwarder::StdinForwarder,
    exit_log: exit_log::ExitLog,
    suspension: suspension::SuspensionDetector,
    hang_reports: hang_report::HangReports,
    crash_examinations: crash_examination::CrashExaminations,
    faults: faults::Faults,
}

/// Runs the job to its end and returns its exit code. `link` is the socket to the launcher, which
/// is told the code too; `signals` are this process's.
pub(crate) fn run(
    job: &Job,
    launcher: i32,
    link: &OwnedFd,
    signals: &sys::SignalFd,
    beginning: AgentStart,
) -> i32 {
    let outcome = run_job(job, launcher, link, signals, beginning);
    match outcome {
        Ok(code) => report_exit_code(link, code),
        Err(error) => {
            process_tree::kill_all();
            report_start_failure(job, link, &error)
        }
    }
}

/// The job could not be begun, or its agent cannot go on: says why. Returns the job's exit code, as
/// the launcher is told it.
pub(crate) fn report_start_failure(job: &Job, link: &OwnedFd, error: &Error) -> i32 {
    OutputSink::new(StreamKind::Err).write(format!("{error}\n").as_bytes());
    report_exit_code(link, exit_log::failed_to_start(job, error))
}

fn report_exit_code(link: &OwnedFd, code: i32) -> i32 {
    // If the launcher is gone, nobody needs the answer.
    let _ = sys::send(
        link.as_fd(),
        &LauncherMessage::Done { code }.encode(),
        &[],
        SendFlags::empty(),
    );
    code
}

fn run_job(
    job: &Job,
    launcher: i32,
    link: &OwnedFd,
    signals: &sys::SignalFd,
    beginning: AgentStart,
) -> Result<i32> {
    process_tree::adopt_orphans()
        .map_err(|e| Error::system(codes::G0209, "cannot become the parent of orphans", e))?;
    let id = beginning
        .outer()
        .map_or_else(draw_job_id, |outer| Ok(outer.job))?;
    let name = AgentSocketName::new(launcher as u32, id);
    let (hello, shared) = agent_discovery::bind(&name)?;
    let mut agent = Agent::new(job, id, launcher, hello, (link, signals))?;
    agent.ctx.node = beginning.outer().map_or(0, |outer| outer.node);
    agent.ctx.listen(
        agent.ctx.registration_socket.as_fd(),
        EpollToken::Registration,
    )?;
    agent.ctx.listen(link.as_fd(), EpollToken::Launcher)?;
    let starter = RankStarter::new(job, agent.admission.secret(), &name, &shared, signals)?;
    agent
        .admission
        .limit_pidfds(job.ranks_of(agent.ctx.node).len());
    let done = agent.run_ranks(starter, beginning);
    drop(shared);
    match done {
        Err(error) if agent.ctx.is_child() => Ok(agent.failed_here(&error)),
        done => done,
    }
}

impl<'a> Agent<'a> {
    /// Makes an agent without ranks, which watches signals only.
    fn new(
        job: &'a Job,
        id: JobId,
        launcher: i32,
        hello: OwnedFd,
        (link, signals): (&'a OwnedFd, &'a sys::SignalFd),
    ) -> Result<Self> {
        let ctx = Context::new(job, id, launcher, hello, (link, signals))?;
        let agent = Self {
            ctx,
            admission: Admission::new()?,
            ranks: Ranks::default(),
            output: Output::new(job),
            flight_recorders: FlightRecorders::default(),
            end: JobEnd::new(job),
            missing_ranks: missing_ranks::MissingRanks::default(),
            root_role: None,
            adopted_role: None,
            networks: Networks::default(),
            snapshots: snapshots::Snapshots::default(),
            other_mpi: other_mpi::OtherMpiDetector::default(),
            stdin: stdin_forwarder::StdinForwarder::default(),
            exit_log: exit_log::ExitLog::default(),
            suspension: suspension::SuspensionDetector::default(),
            hang_reports: hang_report::HangReports::default(),
            crash_examinations: crash_examination::CrashExaminations::default(),
            faults: faults::Faults::new(job),
        };
        agent.ctx.listen(signals.as_fd(), EpollToken::Signals)?;
        Ok(agent)
    }

    /// Meets the agents of the other hosts. The job's exit code, if it ended before that.
    fn wait_for_agents(&mut self, beginning: AgentStart) -> Result<Option<i32>> {
        self.ctx.waiting_for_agents = true;
        let listeners = self.connect_agents(beginning)?;
        let ended = self.serve_until(|agent| agent.ctx.links.are_connected())?;
        if ended.is_none() {
            self.ctx.waiting_for_agents = false;
            self.exchange_hosts(listeners)?;
        }
        Ok(ended)
    }

    /// Everything from the meeting of the agents, if there are several, to the end.
    fn run_ranks(&mut self, starter: RankStarter<'_>, beginning: AgentStart) -> Result<i32> {
        if self.ctx.job.nodes.several()
            && let Some(code) = self.wait_for_agents(beginning)?
        {
            return Ok(code);
        }
        self.start_ranks(&starter)?;
        drop(starter);
        self.stdin.open_stdin(&mut self.ctx);
        // Orders may have come together with the one to start.
        self.read_parent();
        match self.serve_until(|_| false)? {
            Some(code) => Ok(code),
            None => Ok(0),
        }
    }

    fn start_ranks(&mut self, starter: &RankStarter<'_>) -> Result<()> {
        self.output.open_output_files(&self.ctx)?;
        self.exit_log.begin();
        // A program need not be on hosts that run none of its ranks.
        let of_rank = self.ctx.job.program_of_rank();
        let here = |index: usize| {
            let mut ranks = of_rank.iter().zip(0..);
            ranks.any(|(program, rank)| {
                *program == index && self.ctx.job.nodes.of(rank) == self.ctx.node
            })
        };
        let programs = self.ctx.job.programs.iter().enumerate();
        let ready = programs
            .map(|(index, program)| {
                here(index)
                    .then(|| starter.prepare(index, program))
                    .transpose()
            })
            .collect::<Result<Vec<_>>>()?;
        if !self.ctx.job.nodes.several()
            && ready.iter().flatten().any(PreparedProgram::uses_both_rails)
        {
            self.exchange_on_one_host()?;
        }
        for (rank, program) in of_rank.into_iter().enumerate() {
            let rank = rank as u32;
            let node = self.ctx.job.nodes.of(rank);
            let (pid, out, err) = match &ready[program] {
                Some(ready) if node == self.ctx.node => {
                    let input = self.stdin.open_stdin_pipe(&self.ctx, rank);
                    let started = starter.start(rank, ready, input)?;
                    self.ctx.listen(
                        started.stdout.as_fd(),
                        EpollToken::Output(StreamKind::Out, rank),
                    )?;
                    self.ctx.listen(
                        started.stderr.as_fd(),
                        EpollToken::Output(StreamKind::Err, rank),
                    )?;
                    (
                        started.pid,
                        OutputSource::Pipe(started.stdout),
                        OutputSource::Pipe(started.stderr),
                    )
                }
                _ => (0, OutputSource::far(), OutputSource::far()),
            };
            self.output.add_rank(&self.ctx, (out, err));
            let listener = self.ctx.hosts.take_listener(rank);
            self.ranks.add(RankSlot {
                node,
                pid,
                program,
                // Of ranks of other hosts only the first agent hears.
                ended: (node != self.ctx.node && self.root_role.is_none())
                    .then_some(ProcessExit::Exit(0)),
                member: None,
                wrapper_deadline: None,
                listener,
                end_reported: false,
            });
        }
        self.other_mpi.watch(&self.ctx, &ready);
        Ok(())
    }

    /// Serves until the job is over, and gives its code; or until it is time for something else.
    fn serve_until(&mut self, enough: impl Fn(&Self) -> bool) -> Result<Option<i32>> {
        let mut events = Vec::with_capacity(64);
        self.handle_losses();
        loop {
            if let Some(code) = self.exit_code_if_done()? {
                return Ok(Some(code));
            }
            if !self.ctx.is_ending && enough(self) {
                return Ok(None);
            }
            let timeout = self.suspension.before_wait(self.next_due());
            events.clear();
            match epoll::wait(
                &self.ctx.epoll,
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
            self.after_wait();
            self.handle_losses();
            // Deaths before what others say of them.
            let mut tokens: Vec<_> = events
                .iter()
                .map(|event| EpollToken::unpack(event.data))
                .collect();
            tokens.sort_by_key(|token| !matches!(token, EpollToken::Process(_)));
            for token in tokens {
                self.handle(token)?;
                self.handle_losses();
            }
            self.output.read_resumed(&mut self.ctx);
            self.handle_losses();
            self.handle_due()?;
            self.report_ends();
            self.handle_losses();
        }
    }

    fn handle(&mut self, token: EpollToken) -> Result<()> {
        match token {
            EpollToken::Registration => self.accept_registration(),
            EpollToken::Launcher if self.ctx.is_adopted => self.first_rank_disconnected(),
            EpollToken::Launcher => self.read_launcher(),
            EpollToken::Signals => self.serve_signals(),
            EpollToken::Output(kind, rank) => self.output.read_output(&mut self.ctx, kind, rank),
            EpollToken::Control(member) => self.read_process(member),
            EpollToken::Process(member) => self.process_gone(member),
            EpollToken::Sink(kind) => self.output.flush(&self.ctx, kind),
            EpollToken::AgentListener => self.accept_child(),
            EpollToken::Unauthenticated(place) => self.read_unauthenticated(place),
            EpollToken::AgentLink(node) if node == self.ctx.node => self.read_parent(),
            EpollToken::AgentLink(node) => self.read_child(node),
            EpollToken::StarterOutput(node) => self.read_starter_output(node),
            EpollToken::Stdin => self.stdin.read_stdin(&mut self.ctx),
            EpollToken::StdinPipe => self.stdin.flush_stdin_pipes(&mut self.ctx),
            EpollToken::LauncherProcess => self.launcher_exited(),
            EpollToken::LateJoin => self.accept_late_join(),
            EpollToken::LateJoiner(place) => self.read_late_joiner(place),
            EpollToken::ReverseConnect(place) => {
                self.networks.reverse_connect_ready(&self.ctx, place)
            }
            EpollToken::Reconnect(place) => self.reconnect_ready(place),
            EpollToken::Probe(place) => {
                self.networks
                    .probe_ready(&mut self.ctx, self.ranks.worlds(), place)
            }
            EpollToken::SnapshotProcess(number) => {
                self.snapshots.read_snapshot(&mut self.ctx, number)
            }
            EpollToken::QueryClient(number) => self.snapshots.client_ready(&mut self.ctx, number),
            EpollToken::HangReport => {
                if let Some(report) = self.hang_reports.read() {
                    self.hang_report_ended(report);
                }
            }
            EpollToken::CrashExaminer => self.crash_examinations.read_examiner(&self.ranks),
        }
        Ok(())
    }

    fn serve_signals(&mut self) {
        while let Some(signal) = self.ctx.signals.next() {
            match signal.number {
                libc::SIGCHLD => self.reap_children(),
                // A key on the terminal reaches launcher, agent and ranks alike. It is seen here
                // before the ends of the ranks that it causes, so these are not taken for failures.
                libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                    if self.has_joined() {
                        self.say_ended_by(signal.number);
                    }
                    self.signalled(signal.number, signal.from_kernel);
                }
                _ => {}
            }
        }
    }
}
