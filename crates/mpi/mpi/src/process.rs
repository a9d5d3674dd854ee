//! One MPI process as a value: the engine it sends through, its life cycle, and the tables of
//! objects that belong to it.
//!
//! The C edge makes one [`Process`] when the first of `MPI_Init` and `MPI_Session_init` is called.
//! The edge keeps it while [`Process::users`] is above zero; then it may drop the engine. All
//! methods are callable from any thread.

use crate::attr::Keyvals;
use crate::coll::SegmentAllocator;
use crate::comm::context_ids::{self, ContextIds};
use crate::comm::faults::AgreementMail;
use crate::comm::other_worlds::{BridgeLease, Bridges};
use crate::comm::{Comm, CommParts};
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::file::datarep::DatarepRegistry;
use crate::group::Group;
use crate::info::Info;
use crate::limits::{RETIRED_SWEEP_MIN, TAG_UB};
use crate::p2p::bsend_buffer::BsendBuffer;
use crate::request::Request;
use crate::unmatched_sends;
use garonne_coll::switch_tree::SwitchTree;
use garonne_engine::api::{self, CallOrigin};
use garonne_engine::observe::contexts_in_use::ContextsInUse;
use garonne_progress::messaging::Messaging;
use garonne_progress::world_connector::WorldConnector;
use garonne_sync::agreement_board::MemberState;
// No user code runs under these locks; each update leaves a consistent value.
use garonne_sync::mutex::lock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// A type of hardware resource, for `MPI_Get_hw_resource_info` and `MPI_Comm_split_type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HwResource {
    /// Name in info objects: a URI.
    pub name: String,
    /// The one instance on the node that the process is restricted to; `None`: to none in
    /// particular.
    pub instance: Option<HwInstance>,
}

/// One instance of a hardware resource. Two resources of a node with the same numbers have the same
/// extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HwInstance {
    /// The first CPU that it has.
    pub first: u32,
    /// Number of its CPUs; not 0.
    pub cpus: u32,
}

/// The properties of a rank and its environment at its start.
pub struct ProcessConfig {
    /// The engine of this rank.
    pub host: Arc<dyn Messaging>,
    /// The processes that share this rank's node, itself included.
    pub node: Group,
    /// A number for the node of each process of the world, the same on all of them.
    pub node_of: Arc<dyn Fn(api::Peer) -> u32 + Send + Sync>,
    /// Which of those nodes share a switch, if somebody knows: the same on all processes.
    pub switches: Option<Arc<SwitchTree>>,
    /// Index of the program within a job of several programs (`MPI_APPNUM`).
    pub appnum: Option<i32>,
    /// Processes that the job could have (`MPI_UNIVERSE_SIZE`).
    pub universe_size: Option<i32>,
    /// `MPI_Get_processor_name`.
    pub processor_name: String,
    /// The pairs of `MPI_INFO_ENV` (`command`, `argv`, `maxprocs`, `host`, `arch`, `wdir` …).
    pub env: Vec<(String, String)>,
    /// Names of the edge's functions by [`CallOrigin::call`].
    pub call_name: fn(u16) -> &'static str,
    /// A readable place for [`CallOrigin::site`] in this process (`None`) or the one of this id;
    /// the empty string when there is none.
    pub site_name: fn(Option<u32>, u64) -> String,
    /// The types of hardware resources of this node at this moment, the largest first.
    pub resources: fn() -> Vec<HwResource>,
    /// Why a process will receive nothing more, as words that follow its rank; `None`: it may.
    pub receives_no_more: Arc<dyn Fn(api::Peer) -> Option<&'static str> + Send + Sync>,
    /// Says something to who started the program, beside the program's own output.
    pub say: fn(&str),
    /// Allocator of this rank's heap for collectives. It lives as long as the engine.
    pub segments: Arc<SegmentAllocator>,
    /// Connections to processes of other worlds; `None`: this process has none.
    pub connector: Option<Arc<dyn WorldConnector>>,
    /// The error handler that the predefined communicators have at first.
    pub initial_errhandler: Errhandler,
    /// Detector of deaths; `None`: nobody tells.
    pub faults: Option<Arc<dyn FaultDetector>>,
}

/// Name of an agreement: first context of the communicator, its first member, and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgreementKey {
    /// First context of the communicator.
    pub context: u32,
    /// First member of the communicator.
    pub first: api::Peer,
    /// Number of the agreement on it.
    pub number: u32,
}

/// What a member brings to an agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreementInput {
    /// Name of the agreement.
    pub key: AgreementKey,
    /// Members, in order.
    pub members: Vec<api::Peer>,
    /// Dead members that this one has acknowledged.
    pub acknowledged: Vec<api::Peer>,
    /// Bits of which the conjunction is decided.
    pub flags: u32,
    /// Number of which the greatest is decided.
    pub number: u32,
}

/// What was decided, alike for all members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Dead members, in order.
    pub dead: Vec<api::Peer>,
    /// Whether all members have acknowledged these deaths.
    pub acknowledged: bool,
    /// Conjunction of bits.
    pub flags: u32,
    /// Greatest number.
    pub number: u32,
}

/// Tells of the deaths of processes, and decides what the members of a communicator agree on.
pub trait FaultDetector: Send + Sync {
    /// Returns whether the job survives the deaths of its processes.
    fn survives(&self) -> bool;
    /// Returns whether a process has died, which may be told a little after the death itself.
    fn has_deaths(&self) -> bool;
    /// Returns the processes that have died: all of whom operations have said so. Looks at each
    /// process of the world.
    fn dead(&self) -> Vec<api::Peer>;
    /// Returns a number that changes with each death. States of processes are read after it.
    fn deaths(&self) -> u32;
    /// Returns the state of a process of the own world. Who is gone writes to no memory any more.
    fn state(&self, peer: api::Peer) -> MemberState;
    /// Brings what this process gives to an agreement.
    ///
    /// # Errors
    /// Nobody hears it: why.
    fn contribute(&self, given: AgreementInput) -> Result<(), String>;
    /// Takes the decision of an agreement, once it is there.
    fn take_decision(&self, key: &AgreementKey) -> Option<Decision>;
}

impl ProcessConfig {
    /// The least a rank must know: used by simulated jobs and tests. All ranks share one node.
    pub fn plain(host: Arc<dyn Messaging>) -> Self {
        let node = Group::world(host.world_size());
        Self {
            host,
            node,
            node_of: Arc::new(|_| 0),
            switches: None,
            appnum: None,
            universe_size: None,
            processor_name: "localhost".into(),
            env: Vec::new(),
            call_name: |_| "an MPI call",
            site_name: |_, _| String::new(),
            resources: Vec::new,
            receives_no_more: Arc::new(|_| None),
            say: |_| {},
            segments: Arc::default(),
            connector: None,
            initial_errhandler: Errhandler::Fatal,
            faults: None,
        }
    }
}

/// Thread support levels with their numbers in the ABI, in rising order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum ThreadLevel {
    Single = 0,
    Funneled = 1024,
    Serialized = 2048,
    Multiple = 4096,
}

impl TryFrom<i32> for ThreadLevel {
    type Error = Error;

    fn try_from(level: i32) -> Result<Self> {
        [
            Self::Single,
            Self::Funneled,
            Self::Serialized,
            Self::Multiple,
        ]
        .into_iter()
        .find(|known| *known as i32 == level)
        .ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("{level} is not a level of thread support"),
            )
        })
    }
}

/// One MPI process: what a communicator needs from its rank.
///
/// The C edge owns it, and every communicator and request holds a count. Order of calls:
/// [`Process::new`]; then [`Process::init`] or a [`Session`](crate::session::Session);
/// communication; then [`Process::begin_finalize`] and [`Process::finalize`], and the end of all
/// sessions. After that [`Process::users`] is zero.
pub struct Process {
    /// The engine of this rank.
    pub host: Arc<dyn Messaging>,
    /// Properties of this rank from its start.
    pub config: ProcessConfig,
    /// Attribute keys of all kinds.
    pub keyvals: Keyvals,
    /// Buffer of `MPI_Buffer_attach`.
    pub buffers: BsendBuffer,
    /// Data representations of `MPI_Register_datarep`.
    pub datareps: DatarepRegistry,
    pub(crate) contexts: Arc<ContextIds>,
    pub(crate) bridges: Bridges,
    /// Messages of agreements across worlds.
    pub(crate) mail: AgreementMail,
    life: Mutex<LifeCycle>,
    /// World model (at most once) and open sessions.
    users: AtomicU32,
    /// The job survives deaths.
    survives: bool,
    /// Requests freed while active: kept so that their communicators and engine slots live until
    /// they are over.
    retired: Mutex<RetiredRequests>,
}

#[derive(Default)]
struct LifeCycle {
    world: Option<Comm>,
    this: Option<Comm>,
    stage: WorldStage,
    level: Option<ThreadLevel>,
}

/// Freed requests that may not be over yet. Swept when their number has doubled, so that freeing
/// costs constant time.
#[derive(Default)]
struct RetiredRequests {
    requests: Vec<Request>,
    sweep_at: usize,
}

/// Place where the world model is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorldStage {
    /// Before `MPI_Init`.
    #[default]
    Before,
    /// Between `MPI_Init` and `MPI_Finalize`.
    Running,
    /// After `MPI_Finalize`.
    Finalized,
}

/// Predefined attribute keys of communicators, with their numbers in the ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum PredefinedKey {
    TagUb = 501,
    Io = 502,
    Host = 503,
    WtimeIsGlobal = 504,
    Appnum = 505,
    LastUsedCode = 506,
    UniverseSize = 507,
}

impl PredefinedKey {
    /// The key of this number, if it is one.
    pub fn from_number(keyval: i32) -> Option<Self> {
        use PredefinedKey::*;
        [
            TagUb,
            Io,
            Host,
            WtimeIsGlobal,
            Appnum,
            LastUsedCode,
            UniverseSize,
        ]
        .into_iter()
        .find(|key| *key as i32 == keyval)
    }
}

/// The system's number for an address that is not there, the same on all architectures of Linux.
const EFAULT: i32 = 14;
const ENOMEM: i32 = 12;

/// Returns the error for a living process that this one cannot reach.
fn unreached(shortage: &api::UnreachableCause) -> Error {
    let api::UnreachableCause { peer, bytes, .. } = shortage;
    let system = std::io::Error::from_raw_os_error(shortage.errno);
    let text = match (shortage.side, shortage.limit) {
        (api::LackingSide::This, None) => {
            format!("cannot map {bytes} B of shared memory, the inbox of process {peer}: {system}")
        }
        (api::LackingSide::This, Some(limit)) => format!(
            "cannot map {bytes} B of shared memory, the inbox of process {peer}: {system}; this process may have {limit} B of addresses, which `ulimit -v` shows and sets in KiB"
        ),
        (api::LackingSide::Peer, _) => format!(
            "nothing can come from process {peer}, which cannot map {bytes} B of shared memory, the inbox of this process: {system}"
        ),
    };
    let class = match shortage.errno {
        ENOMEM => Class::NoMem,
        _ => Class::Other,
    };
    Error::new(class, text)
}

impl Process {
    /// A rank whose engine is up. Nothing is initialised in the sense of MPI yet.
    pub fn new(config: ProcessConfig) -> Arc<Self> {
        Arc::new(Self {
            survives: config
                .faults
                .as_ref()
                .is_some_and(|faults| faults.survives()),
            host: config.host.clone(),
            config,
            keyvals: Keyvals::default(),
            buffers: BsendBuffer::default(),
            datareps: DatarepRegistry::default(),
            contexts: ContextIds::new(),
            bridges: Bridges::default(),
            mail: AgreementMail::default(),
            life: Mutex::default(),
            users: AtomicU32::new(0),
            retired: Mutex::default(),
        })
    }

    /// `MPI_Init_thread`: gives the level provided. All levels are supported.
    pub fn init(self: &Arc<Self>, required: ThreadLevel) -> Result<ThreadLevel> {
        let mut life = lock(&self.life);
        match life.stage {
            WorldStage::Before => {}
            WorldStage::Running => {
                return Err(Error::new(Class::Other, "MPI_Init was called twice"));
            }
            WorldStage::Finalized => {
                return Err(Error::new(
                    Class::Other,
                    "MPI_Init was called after MPI_Finalize",
                ));
            }
        }
        let world = self.predefined(
            context_ids::WORLD,
            Group::world(self.host.world_size()),
            "MPI_COMM_WORLD",
        )?;
        let this = self.predefined(
            context_ids::SELF,
            Group::single(self.host.me()),
            "MPI_COMM_SELF",
        )?;
        (life.world, life.this) = (Some(world), Some(this));
        life.stage = WorldStage::Running;
        life.level = Some(required);
        self.enter();
        Ok(required)
    }

    fn predefined(
        self: &Arc<Self>,
        block: context_ids::ContextBlock,
        local: Group,
        name: &str,
    ) -> Result<Comm> {
        let lease = self.contexts.reserve_exactly(block);
        let lease = lease
            .ok_or_else(|| Error::new(Class::Intern, format!("the context of {name} is in use")))?;
        let parts = CommParts {
            errhandler: self.config.initial_errhandler.clone(),
            ..CommParts::intra(self.clone(), local)
        };
        let comm = Comm::build(lease, parts);
        comm.set_name(name);
        Ok(comm)
    }

    /// The first part of `MPI_Finalize`: deletes the attributes of `MPI_COMM_SELF`, while
    /// everything still works.
    pub fn begin_finalize(self: &Arc<Self>) -> Result<()> {
        let (_, this) = self.running()?;
        this.0.attrs.delete_all(this.handle())
    }

    /// `MPI_Finalize`, from its first part on; completes what was buffered or freed; drops the
    /// predefined communicators. `MPI_Init` is over for good.
    pub fn finalize(self: &Arc<Self>) -> Result<()> {
        self.begin_finalize()?;
        let (world, _) = self.running()?;
        unmatched_sends::wait_for(self, self.buffers.take_messages());
        world.free()?;
        // No meeting of all ranks: what this rank has sent is on its way, and a rank that ends
        // because of an error must not wait here for others that wait for it (the agent sees its
        // exit status and ends the job).
        self.drain();
        drop(self.bridges.take_parent());
        let mut life = lock(&self.life);
        (life.world, life.this, life.stage) = (None, None, WorldStage::Finalized);
        drop(life);
        self.leave();
        Ok(())
    }

    /// The predefined communicators, in order that `MPI_Finalize` may end them.
    fn running(&self) -> Result<(Comm, Comm)> {
        match &*lock(&self.life) {
            LifeCycle {
                stage: WorldStage::Running,
                world: Some(world),
                this: Some(this),
                ..
            } => Ok((world.clone(), this.clone())),
            LifeCycle {
                stage: WorldStage::Finalized,
                ..
            } => Err(Error::new(Class::Other, "MPI_Finalize was called twice")),
            _ => Err(Error::new(
                Class::Other,
                "MPI_Finalize was called before MPI_Init",
            )),
        }
    }

    /// Returns where the world model is (`MPI_Initialized`, `MPI_Finalized`).
    pub fn stage(&self) -> WorldStage {
        lock(&self.life).stage
    }

    /// `MPI_Query_thread`: the level provided, once there is one.
    pub fn thread_level(&self) -> Option<ThreadLevel> {
        lock(&self.life).level
    }

    /// `MPI_COMM_WORLD`, between init and finalize. The edge keeps the value while it lasts: this
    /// takes a lock.
    pub fn world(&self) -> Option<Comm> {
        lock(&self.life).world.clone()
    }

    /// `MPI_COMM_SELF`, between init and finalize; kept by the edge likewise.
    pub fn self_comm(&self) -> Option<Comm> {
        lock(&self.life).this.clone()
    }

    /// Counts a user of the engine: the world model or a session.
    pub(crate) fn enter(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.users.fetch_sub(1, Ordering::Relaxed);
    }

    /// Open sessions plus one while the world model runs. At zero the edge may shut the engine
    /// down.
    pub fn users(&self) -> u32 {
        self.users.load(Ordering::Relaxed)
    }

    /// The value of a predefined attribute; `None` where it is not set (`MPI_APPNUM` of a lone
    /// program …).
    pub fn predefined_attr(&self, key: PredefinedKey) -> Option<i32> {
        match key {
            PredefinedKey::TagUb => Some(TAG_UB),
            // Every process can do language-standard input and output.
            PredefinedKey::Io => Some(crate::ANY_SOURCE),
            PredefinedKey::Host => Some(crate::PROC_NULL),
            // Ranks of one node read one monotonic clock; between nodes it is not synchronised.
            PredefinedKey::WtimeIsGlobal => {
                Some((self.config.node.size() == self.host.world_size()) as i32)
            }
            PredefinedKey::Appnum => self.config.appnum,
            // Codes exist apart from any rank: the edge knows them.
            PredefinedKey::LastUsedCode => None,
            PredefinedKey::UniverseSize => self.config.universe_size,
        }
    }

    /// The object behind `MPI_INFO_ENV` (a fresh copy).
    pub fn env_info(&self) -> Info {
        Info::from_pairs(self.config.env.iter().cloned())
    }

    /// Returns whether the job survives the deaths of its processes.
    pub(crate) fn survives(&self) -> bool {
        self.survives
    }

    /// `MPI_Abort`: ends the job with `code`.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        self.host.abort(code, message)
    }

    /// Returns where a call came from, for people.
    pub(crate) fn describe(&self, origin: CallOrigin) -> (&'static str, String) {
        self.describe_in(None, origin)
    }

    /// Describes the place of a call in the process of this id.
    pub(crate) fn describe_in(
        &self,
        process: Option<u32>,
        origin: CallOrigin,
    ) -> (&'static str, String) {
        let site = (self.config.site_name)(process, origin.site);
        (
            (self.config.call_name)(origin.call),
            if site.is_empty() {
                site
            } else {
                format!("   at {site}")
            },
        )
    }

    /// Turns an error of the engine into one of MPI.
    #[cold]
    pub(crate) fn convert(&self, error: api::Error) -> Error {
        match error {
            api::Error::Truncated(both) => {
                let text = format!(
                    "the receive has room for {} B, the message {} B",
                    both.room, both.sent
                );
                Error::new(Class::Truncate, text)
            }
            api::Error::Mistyped(_) => {
                Error::new(Class::Type, "the types of message and receive differ")
            }
            api::Error::Misuse(what) => Error::new(Class::Other, what),
            api::Error::Peer { peer, what } => {
                let class = match self.survives() {
                    true => Class::ProcFailed,
                    false => Class::ProcAborted,
                };
                Error::new(class, format!("process {peer}: {what}"))
            }
            api::Error::Revoked => Error::new(Class::Revoked, "a member has revoked it"),
            api::Error::Pending { peer } => Error::new(
                Class::ProcFailedPending,
                format!(
                    "process {peer}, a possible sender, is dead, which the program has not acknowledged"
                ),
            ),
            api::Error::PeerMemory { peer } => Error::new(
                Class::Buffer,
                format!(
                    "the memory that process {peer} named in its call is not there (freed too early, or a device's)"
                ),
            ),
            api::Error::Unreached(shortage) => unreached(&shortage),
            api::Error::Resource(what) => Error::new(Class::NoMem, what),
            api::Error::System {
                what,
                errno: EFAULT,
            } => Error::new(Class::Buffer, format!("{what} failed")),
            api::Error::System { what, errno } => {
                Error::new(Class::Other, format!("{what} failed with errno {errno}"))
            }
        }
    }

    /// Returns the bridges to members of these groups that are of other worlds.
    pub(crate) fn bridges_of(&self, groups: &[&Group]) -> Vec<Arc<BridgeLease>> {
        self.bridges.of(groups, self.host.world_size())
    }

    /// Keeps a request that the program freed until it is over (`MPI_Request_free`).
    pub(crate) fn retire(&self, request: Request) {
        if request.over() {
            return;
        }
        let mut retired = lock(&self.retired);
        if retired.requests.len() >= retired.sweep_at {
            retired.requests.retain(|old| !old.over());
            retired.sweep_at = (2 * retired.requests.len()).max(RETIRED_SWEEP_MIN);
        }
        retired.requests.push(request);
    }

    /// The contexts in which operations are alive.
    pub fn contexts_in_use(&self) -> ContextsInUse {
        self.host.contexts_in_use()
    }

    /// Waits for freed sends and collectives. Freed receives may never match; they end with the
    /// engine.
    fn drain(self: &Arc<Self>) {
        let retired = std::mem::take(&mut lock(&self.retired).requests);
        let needed = retired.into_iter().filter(Request::must_finish);
        unmatched_sends::wait_for(self, needed.map(|request| (request, None)).collect());
    }

    /// Why a process will receive nothing more; `None`: it may.
    pub(crate) fn receives_no_more(&self, peer: api::Peer) -> Option<&'static str> {
        (self.config.receives_no_more)(peer)
    }

    /// Says something to who started the program.
    pub(crate) fn say(&self, text: &str) {
        (self.config.say)(text);
    }
}
