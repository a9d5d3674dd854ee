//! What the descriptors in the agent's epoll are.

use rustix::event::epoll;

use super::output::Kind;

/// Which descriptor an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Hello,
    Link,
    Signals,
    Output(Kind, u32),
    Control(u32),
    Process(u32),
    Sink(Kind),
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

impl Token {
    pub fn pack(self) -> epoll::EventData {
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
            Token::Porch => (9, 0),
            Token::Stranger(place) => (10, place),
            Token::Trunk(node) => (11, node),
            Token::Words(node) => (12, node),
            Token::Input => (13, 0),
            Token::Feed => (14, 0),
            Token::Above => (15, 0),
            Token::Gate => (16, 0),
            Token::Late(place) => (17, place),
            Token::Callback(place) => (18, place),
            Token::Renewal(place) => (19, place),
            Token::Probe(place) => (20, place),
            Token::Look(number) => (21, number),
            Token::Asker(number) => (22, number),
            Token::Verdict => (23, 0),
            Token::Crash => (24, 0),
        };
        epoll::EventData::new_u64(kind << 32 | u64::from(index))
    }

    pub fn unpack(data: epoll::EventData) -> Self {
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
            8 => Token::Sink(Kind::Err),
            9 => Token::Porch,
            10 => Token::Stranger(index),
            11 => Token::Trunk(index),
            12 => Token::Words(index),
            13 => Token::Input,
            15 => Token::Above,
            16 => Token::Gate,
            17 => Token::Late(index),
            18 => Token::Callback(index),
            19 => Token::Renewal(index),
            20 => Token::Probe(index),
            21 => Token::Look(index),
            22 => Token::Asker(index),
            23 => Token::Verdict,
            24 => Token::Crash,
            _ => Token::Feed,
        }
    }
}
