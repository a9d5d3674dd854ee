//! What the descriptors in the agent's epoll are.

use rustix::event::epoll;

use super::output::StreamKind;

/// The descriptor that an event of the agent's epoll is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpollToken {
    Registration,
    Launcher,
    Signals,
    Output(StreamKind, u32),
    Control(u32),
    Process(u32),
    Sink(StreamKind),
    /// Somebody calls from another host.
    AgentListener,
    /// A caller that has not proved who it is.
    Unauthenticated(u32),
    /// Another node's agent.
    AgentLink(u32),
    /// The command that starts it.
    StarterOutput(u32),
    /// The launcher's standard input.
    Stdin,
    /// The pipe to the rank that reads it.
    StdinPipe,
    /// The launcher's process above adopted ranks.
    LauncherProcess,
    /// Somebody calls at the port where hosts have joined.
    LateJoin,
    /// A caller there.
    LateJoiner(u32),
    /// A call to a rank of this node.
    ReverseConnect(u32),
    /// A call that is to renew the line to the agent above.
    Reconnect(u32),
    /// A try whether this node reaches a rank of another.
    Probe(u32),
    /// Output of the program that takes a snapshot of this host's ranks.
    SnapshotProcess(u32),
    /// Socket of a tool that takes more of the answers to its query.
    QueryClient(u32),
    /// Output of the program that finds what the job hangs on.
    HangReport,
    /// Output of the program that examines a crashed rank.
    CrashExaminer,
}

impl EpollToken {
    pub fn pack(self) -> epoll::EventData {
        let (kind, index) = match self {
            EpollToken::Registration => (0, 0),
            EpollToken::Launcher => (1, 0),
            EpollToken::Signals => (2, 0),
            EpollToken::Output(StreamKind::Out, rank) => (3, rank),
            EpollToken::Output(StreamKind::Err, rank) => (4, rank),
            EpollToken::Control(conn) => (5, conn),
            EpollToken::Process(conn) => (6, conn),
            EpollToken::Sink(StreamKind::Out) => (7, 0),
            EpollToken::Sink(StreamKind::Err) => (8, 0),
            EpollToken::AgentListener => (9, 0),
            EpollToken::Unauthenticated(place) => (10, place),
            EpollToken::AgentLink(node) => (11, node),
            EpollToken::StarterOutput(node) => (12, node),
            EpollToken::Stdin => (13, 0),
            EpollToken::StdinPipe => (14, 0),
            EpollToken::LauncherProcess => (15, 0),
            EpollToken::LateJoin => (16, 0),
            EpollToken::LateJoiner(place) => (17, place),
            EpollToken::ReverseConnect(place) => (18, place),
            EpollToken::Reconnect(place) => (19, place),
            EpollToken::Probe(place) => (20, place),
            EpollToken::SnapshotProcess(number) => (21, number),
            EpollToken::QueryClient(number) => (22, number),
            EpollToken::HangReport => (23, 0),
            EpollToken::CrashExaminer => (24, 0),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(index))
    }

    pub fn unpack(data: epoll::EventData) -> Self {
        let index = data.u64() as u32;
        match data.u64() >> 32 {
            0 => EpollToken::Registration,
            1 => EpollToken::Launcher,
            2 => EpollToken::Signals,
            3 => EpollToken::Output(StreamKind::Out, index),
            4 => EpollToken::Output(StreamKind::Err, index),
            5 => EpollToken::Control(index),
            6 => EpollToken::Process(index),
            7 => EpollToken::Sink(StreamKind::Out),
            8 => EpollToken::Sink(StreamKind::Err),
            9 => EpollToken::AgentListener,
            10 => EpollToken::Unauthenticated(index),
            11 => EpollToken::AgentLink(index),
            12 => EpollToken::StarterOutput(index),
            13 => EpollToken::Stdin,
            15 => EpollToken::LauncherProcess,
            16 => EpollToken::LateJoin,
            17 => EpollToken::LateJoiner(index),
            18 => EpollToken::ReverseConnect(index),
            19 => EpollToken::Reconnect(index),
            20 => EpollToken::Probe(index),
            21 => EpollToken::SnapshotProcess(index),
            22 => EpollToken::QueryClient(index),
            23 => EpollToken::HangReport,
            24 => EpollToken::CrashExaminer,
            _ => EpollToken::StdinPipe,
        }
    }
}
