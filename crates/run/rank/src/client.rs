//! A rank's connection to its agent: registration, the world's shared memory, the end of the job.
//!
//! Owned by the MPI library of one process, which makes at most one [`AgentClient`] at a time. It
//! opens three descriptors, all close-on-exec (a private socket, the memory file, the lifeline),
//! starts no thread, prints nothing and never ends the process itself; the kernel does, when the
//! agent is gone. In a forked child every call is refused.

use garonne_sync::mutex::lock;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};

use garonne_sync::guarded_fd::GuardedFd;
use garonne_sync::shm::{MapAccess, Segment};
use garonne_tcp::{Secret, Versions};
use rustix::event::{PollFd, PollFlags};
use rustix::net::{RecvFlags, SendFlags};

use garonne_ethernet::packet_socket::Sockets;
use garonne_job::agreement::{AgreementKey, Contribution, Decision};
use garonne_job::codes;
use garonne_job::crash_report::CrashReport;
use garonne_job::error::{Error, Result};
use garonne_job::host_table::HostTable;
use garonne_job::layout::last_calls::{self, LastCall};
use garonne_job::layout::rank_endpoint::{self, RankEndpoint};
use garonne_job::layout::{self, JobId, RankBlock, RankState, ShardBlock, WorldShape};
use garonne_job::limits;
use garonne_job::rank_messages::{self, ToAgent, ToRank, truncate};
use garonne_launchers::{self as launchers, LauncherExchange};
use garonne_links::agent_answer::{decode, refusal, unexpected};
use garonne_links::agent_discovery::JobEnvironment;
use garonne_links::capabilities;
use garonne_links::memory_file;
use garonne_links::process_tree;
use garonne_links::socket_pair::private_pair;
use garonne_links::sys;
use garonne_shm::LocalRanks;

pub use garonne_launchers::abort_job;

/// Facts about a world that its agent tells a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorldInfo {
    /// Identity of the job.
    pub job: JobId,
    /// Number of the world in its job: 0, or more when a script runs MPI programs one after the
    /// other.
    pub epoch: u32,
    /// This process's rank.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// Number of this life of the rank.
    pub incarnation: u32,
    /// Processor time that the ranks may use together, in thousandths of a core.
    pub cpus_milli: u32,
    /// True if every rank is bound to a core of its own.
    pub bound: bool,
    /// Nodes of the job, and which this one is.
    pub nodes: u32,
    /// See [`WorldInfo::nodes`].
    pub node: u32,
    /// Ranks on this node.
    pub here: u32,
}

impl WorldInfo {
    /// Returns whether there are more ranks than cores here: then waiting by spinning takes time
    /// from a rank that could run.
    pub fn oversubscribed(&self) -> bool {
        u64::from(self.here) * 1000 > u64::from(self.cpus_milli)
    }
}

/// A registered rank.
#[derive(Debug)]
pub struct AgentClient {
    control: Mutex<GuardedFd>,
    /// Version of the protocol between rank and agent.
    protocol: u16,
    // Held open, never read: its end is this process's end.
    _lifeline: GuardedFd,
    file: GuardedFd,
    shape: WorldShape,
    rank: u32,
    world_memory: Segment,
    own_inbox: Segment,
    /// The ranks of this host.
    local: LocalRanks,
    /// Until it is taken: what the way to other hosts begins with.
    outward: Mutex<Option<NetworkHandover>>,
    /// The launcher, if it is another than ours, until it was told that this rank needs it no more.
    exchange: Mutex<Option<Box<dyn LauncherExchange>>>,
    guard: sys::ForkGuard,
    decisions: Mutex<Decisions>,
}

/// Decisions of agreements that the agent has sent and that nobody has taken yet.
#[derive(Debug, Default)]
struct Decisions {
    /// Number of decisions that were heard of.
    counted: u32,
    arrived: Vec<Decision>,
}

/// Listener and secret that a rank of a job on several hosts receives from its agent.
#[derive(Debug)]
pub struct NetworkHandover {
    /// Listener at which ranks of other hosts connect.
    pub listener: TcpListener,
    /// Sockets for Ethernet frames, where the job asks for them and the agent could open them.
    pub packet_sockets: Option<Sockets>,
    /// Secret of the job, which both sides prove.
    pub secret: Secret,
}

impl AgentClient {
    /// Joins the job that the environment names. `None`: there is none, or this process was started
    /// by a rank without being one; it is then a world of one, without an agent. A rank of another
    /// launcher's is refused.
    pub fn from_env() -> Result<Option<Self>> {
        Self::from_env_as(rank_messages::LIBRARY_VERSION, rank_messages::PROTOCOLS)
    }

    /// Registers under another version and with other protocols, for tests of jobs with several.
    #[doc(hidden)]
    pub fn from_env_as(version: &str, protocols: Versions) -> Result<Option<Self>> {
        let version = (version, protocols);
        match JobEnvironment::from_env()? {
            None => {
                launchers::exchange()?.map_or(Ok(None), |exchange| Self::adopted(exchange, version))
            }
            Some(invitation) => Self::register(&invitation, version).map_err(Error::with_host),
        }
    }

    /// Registers as a rank that another launcher started.
    fn adopted(
        mut exchange: Box<dyn LauncherExchange>,
        version: (&str, Versions),
    ) -> Result<Option<Self>> {
        let registered = launchers::exchange_agents(exchange.as_mut()).and_then(|met| {
            let client = Self::register(&met.invitation, version);
            drop(met.line);
            client.map_err(Error::with_host)
        });
        match registered {
            Ok(client) => Ok(client.map(|client| Self {
                exchange: Mutex::new(Some(exchange)),
                ..client
            })),
            Err(error) => {
                launchers::keep_exchange(exchange);
                Err(error)
            }
        }
    }

    fn register(
        invitation: &JobEnvironment,
        (version, protocols): (&str, Versions),
    ) -> Result<Option<Self>> {
        let guard = sys::ForkGuard::new().map_err(|e| {
            Error::system(codes::G0304, "cannot set up a page for fork detection", e)
        })?;
        let hello = invitation.connect()?;
        let (ours, theirs) = private_pair()?;
        let pid = rustix::process::getpid().as_raw_pid() as u32;
        let request = ToAgent::Register {
            protocols,
            admission: invitation.admission.clone(),
            rank: invitation.rank,
            pid,
            version: version.to_owned(),
        };
        let lost =
            |error| Error::system(codes::G0209, "cannot talk to the agent of this job", error);
        sys::send(
            hello.as_fd(),
            &request.encode(),
            &[theirs.as_fd()],
            SendFlags::empty(),
        )
        .map_err(lost)?;
        drop((hello, theirs));
        let reply = sys::recv(ours.as_fd(), RecvFlags::empty()).map_err(lost)?;
        let (protocol, rank) = match decode(&reply)? {
            ToRank::Welcome { protocol, rank } => (protocol, rank),
            ToRank::Singleton => return Ok(None),
            ToRank::Refused { code, text } => return Err(refusal(&code, text)),
            other => return Err(unexpected(&other)),
        };
        if protocols.agree((protocol, protocol).into()).is_err() {
            let text = format!(
                "the agent of this job chose protocol {protocol}, but Garonne {version} speaks protocols {protocols}"
            );
            return Err(Error::peer(codes::G0203, text));
        }
        let no_room = || {
            Error::resource(
                codes::G0302,
                "no room for the descriptors of the job (ulimit -n)",
            )
        };
        let mut fds = reply.fds.into_iter();
        let (Some(file), Some(lifeline)) = (fds.next(), fds.next()) else {
            return Err(no_room());
        };
        let outward = fds.next().zip(fds.next());
        let packet_sockets = fds.next().zip(fds.next());
        let packet_sockets = packet_sockets.map(|(waking, quiet)| Sockets { waking, quiet });
        sys::die_with(lifeline.as_fd()).map_err(|e| match e.kind() {
            std::io::ErrorKind::BrokenPipe => Error::peer(
                codes::G0204,
                "the agent of this job ended while this rank registered".to_owned(),
            ),
            _ => Error::system(codes::G0209, "cannot arm the lifeline to the agent", e),
        })?;
        let (shape, world_memory) = memory_file::open(file.as_fd(), MapAccess::ReadWrite)?;
        if rank >= shape.size {
            return Err(Error::peer(
                codes::G0209,
                format!("the agent says rank {rank} in a world of {}", shape.size),
            ));
        }
        let outward = match outward {
            None if shape.nodes > 1 => return Err(no_room()),
            None => None,
            Some((listener, secret)) => Some(NetworkHandover {
                listener: TcpListener::from(listener),
                packet_sockets,
                secret: Secret::take(secret).map_err(|error| {
                    Error::peer(
                        codes::G0209,
                        format!("the job's secret cannot be taken over: {error:?}"),
                    )
                })?,
            }),
        };
        let local = LocalRanks::new(rank_endpoint::local_ranks(&world_memory, &shape).collect());
        if local.number(rank).is_none() {
            return Err(Error::peer(
                codes::G0209,
                format!("the agent says rank {rank} of another host"),
            ));
        }
        let own_inbox = memory_file::map(
            file.as_fd(),
            shape.inbox_offset(rank),
            shape.inbox_bytes,
            MapAccess::ReadWrite,
        )?;
        if let Some(launcher) = invitation.agent.launcher() {
            capabilities::allow_siblings_below(launcher as i32);
        }
        let card = RankBlock::of(&world_memory, rank);
        card.set_pid(pid, process_tree::own_space(), sys::monotonic_ns());
        card.set_state(RankState::Running);
        Ok(Some(Self {
            control: Mutex::new(GuardedFd::new(ours)),
            protocol,
            _lifeline: GuardedFd::new(lifeline),
            file: GuardedFd::new(file),
            shape,
            rank,
            world_memory,
            own_inbox,
            local,
            outward: Mutex::new(outward),
            exchange: Mutex::new(None),
            guard,
            decisions: Mutex::default(),
        }))
    }

    /// Facts about the world and this rank's place in it.
    pub fn world(&self) -> WorldInfo {
        WorldInfo {
            job: self.shape.job,
            epoch: self.shape.epoch,
            rank: self.rank,
            size: self.shape.size,
            incarnation: self.rank_block(self.rank).incarnation(),
            cpus_milli: self.shape.cpus_milli,
            bound: self.shape.bound,
            nodes: self.shape.nodes,
            node: self.shape.node,
            here: self.local.count(),
        }
    }

    /// Takes the listener and secret for connections to other hosts; `None` in a job on one host,
    /// and when they were taken.
    pub fn take_network_handover(&self) -> Option<NetworkHandover> {
        lock(&self.outward).take()
    }

    /// Returns the table of the job's hosts, for jobs on several.
    pub(crate) fn host_table(&self) -> Result<HostTable> {
        if self.shape.hosts_bytes == 0 {
            return Err(Error::peer(
                codes::G0301,
                "this world has no table of hosts",
            ));
        }
        let table = self.map(
            self.shape.hosts_offset(),
            self.shape.hosts_bytes,
            MapAccess::Read,
        )?;
        Ok(HostTable::new(table, self.shape.nodes))
    }

    /// Header and cards of the world.
    pub fn world_memory(&self) -> Segment {
        self.world_memory.clone()
    }

    /// The ranks of this host.
    pub fn local_ranks(&self) -> LocalRanks {
        self.local.clone()
    }

    /// Returns where a rank runs. `rank` must be below the world's size.
    pub fn endpoint(&self, rank: u32) -> RankEndpoint {
        RankEndpoint::of(&self.world_memory, &self.shape, rank)
    }

    /// Returns node and port of a rank.
    pub(crate) fn host_of(&self, rank: u32) -> (u32, u16) {
        let endpoint = self.endpoint(rank);
        (endpoint.node(), endpoint.port())
    }

    /// Returns the state of a rank. Of one of another host only its good end is known.
    pub fn state_of(&self, rank: u32) -> RankState {
        match self.local.number(rank) {
            Some(_) => self.rank_block(rank).state(),
            None if self.endpoint(rank).has_died() => RankState::Gone,
            None if self.endpoint(rank).has_ended() => RankState::Finalized,
            None => RankState::Absent,
        }
    }

    /// Returns the block of a rank of this host. `rank` must be below the world's size.
    pub fn rank_block(&self, rank: u32) -> RankBlock {
        RankBlock::of(&self.world_memory, rank)
    }

    /// Returns the words in which this thread of this rank stores the latest MPI call that it
    /// entered: see `last_calls::place`.
    pub fn own_last_call(&self, thread: u32) -> &LastCall {
        last_calls::call_slot(&self.world_memory, &self.shape, thread, self.rank)
    }

    /// Returns whether a thread of a rank of this host entered no MPI call after this one, as far
    /// as is known.
    pub fn last_call(&self, rank: u32, call: u16) -> bool {
        last_calls::latest_call(&self.world_memory, &self.shape, rank)
            .iter()
            .any(|(_, named)| *named == Some(call))
    }

    /// Maps part of the world's memory, also where the program has closed the descriptor of its
    /// file.
    fn map(&self, offset: u64, len: u64, access: MapAccess) -> Result<Segment> {
        match self.file.get() {
            Some(file) => memory_file::map(file, offset, len, access),
            None => memory_file::map_beyond(&self.world_memory, offset, len),
        }
    }

    /// Maps the area that collectives share. Zero at first, the same for all ranks.
    pub fn collective_area(&self) -> Result<Segment> {
        self.check_owner()?;
        self.map(
            self.shape.coll_offset(),
            self.shape.coll_bytes,
            MapAccess::ReadWrite,
        )
    }

    /// Returns the board, borrowed from this client.
    pub(crate) fn board_ref(&self) -> &Segment {
        &self.world_memory
    }

    /// Maps the memory that this rank records into while it is traced.
    pub(crate) fn map_own_trace(&self) -> Result<Segment> {
        self.check_owner()?;
        let at = self.shape.trace_offset(self.rank);
        self.map(at, layout::TRACE_BYTES, MapAccess::ReadWrite)
    }

    /// The inbox that peers write to.
    pub fn own_inbox(&self) -> Segment {
        self.own_inbox.clone()
    }

    /// Maps the inbox of a peer. It exists (zeroed) also before the peer has started. No message to
    /// the agent.
    pub fn map_peer(&self, rank: u32) -> Result<Segment> {
        self.map_shard_inbox(0, rank)
    }

    /// Shards that each rank may have.
    pub fn shards(&self) -> u32 {
        self.shape.shards
    }

    /// The card of a rank in one of its further shards; `None`: there is no such shard, or no such
    /// rank.
    pub(crate) fn shard_block(&self, shard: u32, rank: u32) -> Option<ShardBlock> {
        ShardBlock::of(&self.world_memory, &self.shape, shard, rank)
    }

    /// Maps the inbox of a rank in a shard, zeroed when the job began.
    pub(crate) fn map_shard_inbox(&self, shard: u32, rank: u32) -> Result<Segment> {
        self.check_owner()?;
        if rank >= self.shape.size || shard >= self.shape.shards {
            return Err(Error::misuse(
                codes::G0102,
                format!(
                    "no shard {shard} of rank {rank} in a world of {}",
                    self.shape.size
                ),
            ));
        }
        let at = self.shape.shard_inbox_offset(shard, rank);
        self.map(at, self.shape.inbox_bytes, MapAccess::ReadWrite)
    }

    /// Writes a word of the inbox of a rank in a shard without mapping it.
    pub(crate) fn write_shard_inbox(
        &self,
        shard: u32,
        rank: u32,
        at: u64,
        word: u32,
    ) -> Result<()> {
        self.check_owner()?;
        let Some(file) = self.file.get() else {
            let inbox = self.map_shard_inbox(shard, rank)?;
            inbox.write(at as usize, &word.to_ne_bytes());
            return Ok(());
        };
        let at = self.shape.shard_inbox_offset(shard, rank) + at;
        rustix::io::pwrite(file, &word.to_ne_bytes(), at).map_err(|error| {
            Error::system(codes::G0301, "cannot write to the shared memory", error)
        })?;
        Ok(())
    }

    /// Returns whether this is the process that registered (a plain load; false in a forked child).
    pub fn is_owner(&self) -> bool {
        self.guard.is_owner()
    }

    fn check_owner(&self) -> Result<()> {
        if self.is_owner() {
            return Ok(());
        }
        let text = format!(
            "a forked child of rank {} used MPI; its parent's communication is not the child's",
            self.rank
        );
        Err(Error::misuse(codes::G0109, text))
    }

    fn control(&self) -> Result<MutexGuard<'_, GuardedFd>> {
        self.check_owner()?;
        Ok(lock(&self.control))
    }

    /// Returns whether the program has left open what leads to the agent.
    fn can_tell(&self) -> Result<bool> {
        Ok(self.control()?.get().is_some())
    }

    fn tell(&self, message: &ToAgent) -> Result<()> {
        let control = self.control()?;
        send((&control, self.protocol), message)
    }

    fn ask(&self, message: &ToAgent) -> Result<ToRank> {
        let control = self.control()?;
        send((&control, self.protocol), message)?;
        loop {
            match receive(&control)? {
                ToRank::Decided(decision) => lock(&self.decisions).arrived.push(decision),
                answer => return Ok(answer),
            }
        }
    }

    /// Returns whether the job survives the deaths of ranks.
    pub fn survives(&self) -> bool {
        layout::faults(&self.world_memory).load(Ordering::Relaxed) & layout::SURVIVES != 0
    }

    /// Returns a number that changes when a rank dies.
    pub fn deaths(&self) -> u32 {
        // SYNC(faults): Acquire the states of ranks.
        layout::faults(&self.world_memory).load(Ordering::Acquire) / layout::ONE_DEATH
    }

    /// Returns the ranks of the world that have died.
    pub fn dead(&self) -> Vec<u32> {
        let is_dead = |rank: &u32| self.state_of(*rank) == RankState::Gone;
        (0..self.shape.size).filter(is_dead).collect()
    }

    /// Gives the agent what this rank brings to an agreement.
    ///
    /// # Errors
    /// The agent cannot be told.
    pub fn agree(&self, given: Contribution) -> Result<()> {
        let message = ToAgent::Agree(given);
        if message.encode().len() > limits::MESSAGE_BYTES_MAX {
            let text = "the members of this communicator are too scattered to agree";
            return Err(Error::resource(codes::G0304, text));
        }
        self.tell(&message)
    }

    /// Takes the decision of an agreement to which this rank has contributed, once it is there.
    pub fn take_decision(&self, key: &AgreementKey) -> Option<Decision> {
        self.read_decisions();
        let mut decisions = lock(&self.decisions);
        let place = decisions.arrived.iter().position(|one| one.key == *key)?;
        Some(decisions.arrived.swap_remove(place))
    }

    fn read_decisions(&self) {
        // SYNC(decisions): the agent counts a decision after it has sent it.
        let counter = self.rank_block(self.rank);
        let told = counter.decisions().load(Ordering::Acquire);
        if lock(&self.decisions).counted == told || !self.is_owner() {
            return;
        }
        // Whoever holds it asks the agent for something, and keeps decisions that come.
        let Ok(control) = self.control.try_lock() else {
            return;
        };
        let Some(socket) = control.get() else {
            return;
        };
        while let Ok(message) = sys::recv(socket, RecvFlags::DONTWAIT) {
            if message.bytes.is_empty() {
                break;
            }
            if let Ok(ToRank::Decided(decision)) = decode(&message) {
                lock(&self.decisions).arrived.push(decision);
            }
        }
        lock(&self.decisions).counted = told;
    }

    /// Tells the agent that MPI_Finalize has completed: from now on this process may end as it
    /// likes.
    pub fn finalized(&self) -> Result<()> {
        self.check_owner()?;
        self.rank_block(self.rank).set_state(RankState::Finalized);
        // Where the program has closed what leads to the agent, the agent reads it from the card.
        if self.can_tell()? {
            self.tell(&ToAgent::Finalized)?;
        }
        if let Some(mut exchange) = self.take_exchange() {
            exchange.finish();
        }
        Ok(())
    }

    /// Tells the agent that this process uses MPI again after [`AgentClient::finalized`]: it owes
    /// an MPI_Finalize once more.
    pub fn resumed(&self) -> Result<()> {
        self.check_owner()?;
        self.rank_block(self.rank).set_state(RankState::Running);
        match self.can_tell()? {
            true => self.tell(&ToAgent::Resumed),
            false => Ok(()),
        }
    }

    /// Ends the job with this exit code; the agent prints `text` (or a line of its own if it is
    /// empty). Returns when the agent is gone, which also ends this process; the caller exits with
    /// the code should it return.
    pub fn abort(&self, code: i32, text: &str) -> Result<()> {
        let control = self.control()?;
        send(
            (&control, self.protocol),
            &ToAgent::Abort {
                code,
                text: truncate(text),
            },
        )?;
        match self.take_exchange() {
            // Another launcher ends its ranks, and wants to hear the code from the one that asked.
            Some(mut exchange) => {
                receive_remaining(&control);
                exchange.abort(code);
            }
            // Nothing answers: the read ends with the agent.
            None => {
                while !sys::recv(open(&control)?, RecvFlags::empty())
                    .map_or(true, |message| message.bytes.is_empty())
                {}
            }
        }
        Ok(())
    }

    fn take_exchange(&self) -> Option<Box<dyn LauncherExchange>> {
        lock(&self.exchange).take()
    }

    /// Leaves the text to print as this rank's last words should it end before MPI_Finalize.
    pub fn report(&self, text: &str) -> Result<()> {
        self.tell(&ToAgent::Report {
            text: truncate(text),
        })
    }

    /// Has a rank of another host call this one: for bulk data, or for packets. Does not wait; what
    /// gets lost is asked for again.
    pub(crate) fn request_reverse_connect(&self, peer: u32, bulk: bool) {
        self.report_error(&ToAgent::ReverseConnect { peer, bulk });
    }

    /// Tells the agent that this rank and that one do not reach each other, which ends the job.
    pub(crate) fn report_unreachable(&self, peer: u32) {
        self.report_error(&ToAgent::Unreachable { peer });
    }

    /// Tells the agent why this rank cannot have a connection to that one, which ends the job.
    pub(crate) fn report_refused(&self, peer: u32, code: &str, text: &str) {
        let (code, text) = (code.to_owned(), truncate(text));
        self.report_error(&ToAgent::ConnectionRefused { peer, code, text });
    }

    /// Hands the agent the file in which this rank records for readers after its death.
    pub(crate) fn send_flight_recorder(&self, file: BorrowedFd<'_>) {
        self.try_send(&ToAgent::FlightRecorder.encode_in(self.protocol), &[file]);
    }

    /// Tells the agent of a signal that ends this process; returns whether it could be told. May be
    /// called from a signal handler.
    pub(crate) fn report_crash(&self, crash: &CrashReport) -> bool {
        self.try_send(&crash.message(self.protocol), &[])
    }

    /// Says something that may be lost, and never waits: for an agent that is busy, or for another
    /// thread that speaks to it.
    fn report_error(&self, message: &ToAgent) {
        if !self.is_owner() {
            return;
        }
        self.try_send(&message.encode_in(self.protocol), &[]);
    }

    /// Sends bytes to the agent if that goes at once; asks for no memory.
    fn try_send(&self, message: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
        let control = self.control.try_lock();
        let open = control.as_ref().ok().and_then(|control| control.get());
        open.is_some_and(|control| sys::send(control, message, fds, SendFlags::DONTWAIT).is_ok())
    }

    /// Waits until all ranks of the world have called it.
    pub fn fence(&self) -> Result<()> {
        match self.ask(&ToAgent::Fence)? {
            ToRank::Fenced => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// Stores a value under a key that all ranks can read. A key is written once.
    pub fn put(&self, key: &str, value: &[u8]) -> Result<()> {
        if key.len() > limits::KEY_BYTES_MAX || value.len() > limits::VALUE_BYTES_MAX {
            let text = format!(
                "key of {} bytes or value of {} bytes is too long to exchange",
                key.len(),
                value.len()
            );
            return Err(Error::resource(codes::G0304, text));
        }
        self.tell(&ToAgent::Put {
            key: key.to_owned(),
            value: value.to_owned(),
        })
    }

    /// The value of a key; waits until a rank has stored it.
    pub fn get(&self, key: &str) -> Result<Vec<u8>> {
        match self.ask(&ToAgent::Get {
            key: key.to_owned(),
        })? {
            ToRank::Value { value } => Ok(value),
            other => Err(unexpected(&other)),
        }
    }
}

/// Waits until the agent has said what it has to say of an abort, or is gone; not for ever.
fn receive_remaining(control: &GuardedFd) {
    let limit = sys::timespec(limits::ABORT_WAIT);
    if let Some(control) = control.get() {
        let _ = rustix::event::poll(&mut [PollFd::new(&control, PollFlags::IN)], Some(&limit));
    }
}

/// The socket to the agent.
///
/// # Errors
/// The program has closed its descriptor.
fn open(control: &GuardedFd) -> Result<BorrowedFd<'_>> {
    let closed = "the program has closed the descriptor over which this rank talks to its agent";
    control
        .get()
        .ok_or_else(|| Error::misuse(codes::G0209, closed))
}

fn send((control, protocol): (&GuardedFd, u16), message: &ToAgent) -> Result<()> {
    sys::send(
        open(control)?,
        &message.encode_in(protocol),
        &[],
        SendFlags::empty(),
    )
    .map_err(|error| Error::system(codes::G0209, "cannot talk to the agent of this job", error))
}

fn receive(control: &GuardedFd) -> Result<ToRank> {
    let message = sys::recv(open(control)?, RecvFlags::empty())
        .map_err(|error| Error::system(codes::G0209, "cannot hear the agent of this job", error))?;
    decode(&message)
}
