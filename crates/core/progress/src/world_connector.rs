//! What the MPI layer needs of its process to reach processes of other worlds: ports, meetings of
//! two roots, bridges, and the start of further jobs.
//!
//! A process in the operating system implements [`WorldConnector`]; simulated ranks have none. The
//! order of a connection is: every process calls [`WorldConnector::prepare`]; the roots of both
//! sides [`accept`](WorldConnector::accept) and [`connect`](WorldConnector::connect); every process
//! calls [`WorldConnector::bridge`] with what the roots exchanged, and later
//! [`WorldConnector::close`].

use garonne_engine::api::Peer;
use std::ops::Range;

/// Bytes of the secret of a bridge.
pub const BRIDGE_SECRET: usize = 32;

/// Why a connection to another world failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectFault {
    /// The port is closed, or nobody is behind it.
    Port,
    /// Processes could not be started.
    Spawn,
    /// No such service is published.
    Name,
    /// The service is published already, or was not by this process.
    Service,
    /// Anything else.
    Other,
}

/// Error of a connection to another world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// What failed.
    pub fault: ConnectFault,
    /// In words.
    pub text: String,
}

impl ConnectError {
    /// An error of this kind.
    pub fn new(fault: ConnectFault, text: impl Into<String>) -> Self {
        Self {
            fault,
            text: text.into(),
        }
    }
}

/// Result of a connector's method.
pub type ConnectResult<T> = Result<T, ConnectError>;

/// Union of two groups that a bridge connects.
#[derive(Clone, Debug)]
pub struct BridgePlan {
    /// Cards of all processes ([`WorldConnector::prepare`]): those of the accepting side first.
    pub cards: Vec<Vec<u8>>,
    /// Place of this process among them.
    pub me: u32,
    /// Places of the other side.
    pub remote: Range<u32>,
    /// Secret that proves the bridge's connections.
    pub secret: [u8; BRIDGE_SECRET],
}

/// Peers that a bridge reaches.
#[derive(Clone, Debug)]
pub struct BridgedPeers {
    /// Number of each remote process, in the plan's order.
    pub peers: Vec<Peer>,
    /// Name for [`WorldConnector::close`]; `None`: all are of the own world.
    pub bridge: Option<Peer>,
}

/// Program of a job that a process starts.
#[derive(Clone, Debug, Default)]
pub struct SpawnProgram {
    /// Program to execute.
    pub command: String,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Number of processes.
    pub processes: u32,
    /// Directory to run in.
    pub wdir: Option<String>,
    /// Directories in which the program is looked for, separated by colons.
    pub path: Option<String>,
    /// Hosts that the processes run on, separated by commas.
    pub hosts: Option<String>,
}

/// A job that a process has started, until its processes have connected.
pub trait SpawnedJob: Send {
    /// Returns whether the job has ended; then none of its processes connects any more.
    fn has_ended(&mut self) -> bool;
}

/// Connections of a process to processes of other worlds.
pub trait WorldConnector: Send + Sync {
    /// Opens a port at which others may connect, and returns its name.
    fn open_port(&self) -> ConnectResult<String>;

    /// Closes a port of this process.
    fn close_port(&self, name: &str) -> ConnectResult<()>;

    /// Waits at a port of this process for another root, and exchanges messages with it. `wait` is
    /// called again and again, and may end the wait with an error.
    fn accept(
        &self,
        port: &str,
        message: &[u8],
        wait: &mut dyn FnMut() -> ConnectResult<()>,
    ) -> ConnectResult<Vec<u8>>;

    /// Calls the root behind a port, and exchanges messages with it.
    fn connect(
        &self,
        port: &str,
        message: &[u8],
        wait: &mut dyn FnMut() -> ConnectResult<()>,
    ) -> ConnectResult<Vec<u8>>;

    /// Draws the secret of a bridge.
    fn draw_secret(&self) -> ConnectResult<[u8; BRIDGE_SECRET]>;

    /// Opens this process to connections of a bridge that is to be made, and returns its card and
    /// the name of the preparation.
    fn prepare(&self) -> ConnectResult<(u64, Vec<u8>)>;

    /// Gives a preparation up.
    fn discard(&self, preparation: u64);

    /// Makes the bridge.
    fn bridge(&self, preparation: u64, plan: BridgePlan) -> ConnectResult<BridgedPeers>;

    /// Closes a bridge: waits until what is under way has reached the other hosts.
    fn close(&self, bridge: Peer);

    /// Starts a job whose processes connect to `port` when they initialise MPI.
    fn spawn(&self, programs: &[SpawnProgram], port: &str) -> ConnectResult<Box<dyn SpawnedJob>>;

    /// Name of the port of the job that started this one; `None`: no job did.
    fn parent_port(&self) -> Option<String>;

    /// Publishes a port under a name.
    fn publish(&self, service: &str, port: &str) -> ConnectResult<()>;

    /// Withdraws a name that this process published.
    fn unpublish(&self, service: &str) -> ConnectResult<()>;

    /// Returns the port that is published under a name.
    fn lookup(&self, service: &str) -> ConnectResult<String>;

    /// Identity of a process that differs from those of all others, also of other worlds.
    fn identity(&self) -> Vec<u8>;
}
