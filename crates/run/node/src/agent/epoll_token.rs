//! What the descriptors in the agent's epoll are.

use rustix::event::epoll;

use super::output::StreamKind;

/// Which descriptor an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpollToken {
    Hello,
    Link,
    Signals,
    Output(StreamKind, u32),
    Control(u32),
    Process(u32),
    Sink(StreamKind),
    /// Somebody calls from another host.
    Porch,
    /// A caller that has not proved who it is.
    Stranger(u32),
    /// Another node's agent.
    Trunk(u32),
    /// The command that starts it.
    Words(u32),
    /// The launcher's standard input.
    Input,
    /// The pipe to the rank that reads it.
    Feed,
    /// The launcher's process above adopted ranks.
    Above,
    /// Somebody calls at the port where hosts have joined.
    Gate,
    /// A caller there.
    Late(u32),
    /// A call to a rank of this node.
    Callback(u32),
    /// A call that is to renew the line to the agent above.
    Renewal(u32),
    /// A try whether this node reaches a rank of another.
    Probe(u32),
    /// What this host's ranks show, from the program that looks.
    Look(u32),
    /// One who has asked what the ranks of all hosts show takes more of it.
    Asker(u32),
    /// What the job hangs on, from the program that looks.
    Verdict,
    /// Where a rank has crashed, from the program that examines it.
    Crash,
}

impl EpollToken {
    pub fn pack(self) -> epoll::EventData {
        let (kind, index) = match self {
            EpollToken::Hello => (0, 0),
            EpollToken::Link => (1, 0),
            EpollToken::Signals => (2, 0),
            EpollToken::Output(StreamKind::Out, rank) => (3, rank),
            EpollToken::Output(StreamKind::Err, rank) => (4, rank),
            EpollToken::Control(conn) => (5, conn),
            EpollToken::Process(conn) => (6, conn),
            EpollToken::Sink(StreamKind::Out) => (7, 0),
            EpollToken::Sink(StreamKind::Err) => (8, 0),
            EpollToken::Porch => (9, 0),
            EpollToken::Stranger(place) => (10, place),
            EpollToken::Trunk(node) => (11, node),
            EpollToken::Words(node) => (12, node),
            EpollToken::Input => (13, 0),
            EpollToken::Feed => (14, 0),
            EpollToken::Above => (15, 0),
            EpollToken::Gate => (16, 0),
            EpollToken::Late(place) => (17, place),
            EpollToken::Callback(place) => (18, place),
            EpollToken::Renewal(place) => (19, place),
            EpollToken::Probe(place) => (20, place),
            EpollToken::Look(number) => (21, number),
            EpollToken::Asker(number) => (22, number),
            EpollToken::Verdict => (23, 0),
            EpollToken::Crash => (24, 0),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(index))
    }

    pub fn unpack(data: epoll::EventData) -> Self {
        let index = data.u64() as u32;
        match data.u64() >> 32 {
            0 => EpollToken::Hello,
            1 => EpollToken::Link,
            2 => EpollToken::Signals,
            3 => EpollToken::Output(StreamKind::Out, index),
            4 => EpollToken::Output(StreamKind::Err, index),
            5 => EpollToken::Control(index),
            6 => EpollToken::Process(index),
            7 => EpollToken::Sink(StreamKind::Out),
            8 => EpollToken::Sink(StreamKind::Err),
            9 => EpollToken::Porch,
            10 => EpollToken::Stranger(index),
            11 => EpollToken::Trunk(index),
            12 => EpollToken::Words(index),
            13 => EpollToken::Input,
            15 => EpollToken::Above,
            16 => EpollToken::Gate,
            17 => EpollToken::Late(index),
            18 => EpollToken::Callback(index),
            19 => EpollToken::Renewal(index),
            20 => EpollToken::Probe(index),
            21 => EpollToken::Look(index),
            22 => EpollToken::Asker(index),
            23 => EpollToken::Verdict,
            24 => EpollToken::Crash,
            _ => EpollToken::Feed,
        }
    }
}
