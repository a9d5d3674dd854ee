//! What was seen of a rank, in words that need no memory of it: what timelines are made of and shares computed from, live or from a file.

use crate::limits::SITES;
use crate::record::{Kind, Record, Side};
use std::collections::HashMap;
use std::sync::Arc;

/// A name that many events share.
pub type Name = Arc<str>;

/// Contexts that each communicator has; the first is that of the program's own messages.
pub const CONTEXTS_PER_COMM: u32 = 8;

/// Whether an operation's tag is the program's: what a collective sends bears a number of its own.
pub fn has_tag(side: Side, context: u32) -> bool {
    side != Side::Collective && context.is_multiple_of(CONTEXTS_PER_COMM)
}

/// A message, equally named by both of its sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Message {
    /// Context of its communicator.
    pub context: u32,
    /// Process that sent it.
    pub from: u32,
    /// Process that it is for.
    pub to: u32,
    /// Its number in that stream.
    pub sequence: u32,
}

/// Whether a rank's communication advances while it computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// It is not known.
    #[default]
    Unknown,
    /// By a helper, or it would if anything needed it.
    On,
    /// It is not switched on.
    Off,
    /// The system gave no thread.
    Refused,
}

impl Background {
    /// As a file says it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::On => "on",
            Self::Off => "off",
            Self::Refused => "refused",
        }
    }

    /// What a file says.
    pub fn from_name(name: &str) -> Self {
        [Self::On, Self::Off, Self::Refused]
            .into_iter()
            .find(|state| state.name() == name)
            .unwrap_or_default()
    }
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A thread entered an MPI call.
    Enter {
        /// Its name.
        call: Name,
        /// Where it stands.
        site: Name,
    },
    /// It left it.
    Leave {
        /// Its name.
        call: Name,
    },
    /// An operation was started.
    Start {
        /// The rank's name for it.
        operation: u64,
        /// What it is.
        side: Side,
        /// Who started it.
        call: Name,
        /// Where.
        site: Name,
        /// Context of its message or collective.
        context: u32,
        /// The tag, -1 for any. Whose it is tells [`has_tag`].
        tag: i32,
        /// The other process, `None` for any or several.
        peer: Option<u32>,
        /// Bytes of a send, room of a receive.
        bytes: u64,
    },
    /// It is over.
    Done {
        /// The rank's name for it.
        operation: u64,
        /// Its message, if it is one that has another side.
        message: Option<Message>,
        /// Bytes of the message.
        bytes: u64,
    },
    /// Bytes were moved, until the event's time.
    Work {
        /// For this operation of the rank.
        operation: u64,
        /// The other process.
        peer: Option<u32>,
        /// When it began.
        since_ns: u64,
        /// How many.
        bytes: u64,
    },
    /// A task of the process was run, until the event's time.
    Run {
        /// When it began.
        since_ns: u64,
        /// It is finished; otherwise it is to run again.
        finished: bool,
    },
    /// The rank's helper begins a turn.
    TurnBegin,
    /// It ends it.
    TurnEnd,
    /// A waiter goes to sleep.
    SleepBegin,
    /// It is awake.
    SleepEnd,
    /// The call that the thread is in is this collective.
    Collective {
        /// Its kind and number, and its communicator.
        name: Name,
    },
    /// What advances the rank's communication while it computes.
    State(Background),
    /// So many records were overwritten before they were read.
    Lost(u64),
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The rank.
    pub rank: u32,
    /// The thread.
    pub thread: u32,
    /// The core.
    pub cpu: u16,
    /// When, in nanoseconds.
    pub at_ns: u64,
    /// What.
    pub what: What,
}

impl Seen {
    /// Moves all ranks on by `base`: those of a later world of the same job.
    pub fn shift(&mut self, base: u32) {
        let on = |rank: &mut u32| *rank = rank.saturating_add(base);
        on(&mut self.rank);
        match &mut self.what {
            What::Start { peer, .. } | What::Work { peer, .. } => peer.iter_mut().for_each(on),
            What::Done { message, .. } => message.iter_mut().for_each(|message| {
                on(&mut message.from);
                on(&mut message.to);
            }),
            _ => {}
        }
    }
}

/// Gives names to numbers of calls and to places in programs.
pub trait Names {
    /// A function by its number.
    fn call(&mut self, number: u16) -> String;
    /// A return address of a rank's process.
    fn site(&mut self, rank: u32, address: u64) -> String;
    /// A collective by the context and the tag of its messages.
    fn collective(&mut self, context: u32, tag: i32) -> String;
}

/// Turns records into what was seen; asks for each name once.
pub struct Decoder<N> {
    names: N,
    calls: HashMap<u16, Name>,
    sites: HashMap<(u32, u64), Name>,
    unknown: Name,
}

impl<N: Names> Decoder<N> {
    /// A decoder with these names.
    pub fn new(names: N) -> Self {
        Self {
            names,
            calls: HashMap::new(),
            sites: HashMap::new(),
            unknown: "an unknown place".into(),
        }
    }

    /// What gives the names.
    pub fn names(&mut self) -> &mut N {
        &mut self.names
    }

    fn call(&mut self, number: u16) -> Name {
        let names = &mut self.names;
        self.calls
            .entry(number)
            .or_insert_with(|| names.call(number).into())
            .clone()
    }

    fn site(&mut self, rank: u32, address: u64) -> Name {
        if let Some(known) = self.sites.get(&(rank, address)) {
            return known.clone();
        }
        if address == 0 || self.sites.len() >= SITES {
            return self.unknown.clone();
        }
        let name: Name = self.names.site(rank, address).into();
        self.sites.insert((rank, address), name.clone());
        name
    }

    /// What a record of `rank` tells.
    pub fn decode(&mut self, rank: u32, record: &Record) -> Seen {
        let peer = (record.peer != u32::MAX).then_some(record.peer);
        let what = match record.kind {
            Kind::Enter => What::Enter {
                call: self.call(record.call),
                site: self.site(rank, record.site),
            },
            Kind::Leave => What::Leave {
                call: self.call(record.call),
            },
            Kind::Start => What::Start {
                operation: record.operation,
                side: record.side,
                call: self.call(record.call),
                site: self.site(rank, record.site),
                context: record.context,
                tag: record.tag,
                peer,
                bytes: record.len,
            },
            Kind::Done => What::Done {
                operation: record.operation,
                message: message(rank, record),
                bytes: record.len,
            },
            Kind::Work => What::Work {
                operation: record.operation,
                peer,
                since_ns: record.at_ns.saturating_sub(record.site),
                bytes: record.len,
            },
            Kind::Run => What::Run {
                since_ns: record.at_ns.saturating_sub(record.site),
                finished: record.len != 0,
            },
            Kind::TurnBegin => What::TurnBegin,
            Kind::TurnEnd => What::TurnEnd,
            Kind::SleepBegin => What::SleepBegin,
            Kind::SleepEnd => What::SleepEnd,
            Kind::Collective => What::Collective {
                name: self.names.collective(record.context, record.tag).into(),
            },
        };
        Seen {
            rank,
            thread: record.thread,
            cpu: record.cpu,
            at_ns: record.at_ns,
            what,
        }
    }
}

/// The message of an operation that is over. A rank's messages to itself have no other side to wait for.
fn message(rank: u32, record: &Record) -> Option<Message> {
    if record.peer == u32::MAX || record.peer == rank {
        return None;
    }
    let (from, to) = match record.side {
        Side::Send => (rank, record.peer),
        Side::Receive => (record.peer, rank),
        Side::Collective => return None,
    };
    Some(Message {
        context: record.context,
        from,
        to,
        sequence: record.sequence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told(u32);

    impl Names for Told {
        fn call(&mut self, number: u16) -> String {
            format!("MPI_{number}")
        }

        fn site(&mut self, rank: u32, address: u64) -> String {
            self.0 += 1;
            format!("{rank}.c:{address}")
        }

        fn collective(&mut self, context: u32, tag: i32) -> String {
            format!("{context}: {tag}")
        }
    }

    #[test]
    fn both_sides_name_a_message_alike() {
        let mut decoder = Decoder::new(Told(0));
        let done = |side, peer| Record {
            side,
            peer,
            context: 4,
            sequence: 9,
            ..Record::new(Kind::Done)
        };
        let of = |seen: Seen| match seen.what {
            What::Done { message, .. } => message,
            other => panic!("{other:?}"),
        };
        let sent = of(decoder.decode(1, &done(Side::Send, 2)));
        let received = of(decoder.decode(2, &done(Side::Receive, 1)));
        assert!(sent.is_some());
        assert_eq!(sent, received);
        assert_eq!(of(decoder.decode(1, &done(Side::Send, 1))), None);
    }

    #[test]
    fn only_messages_of_the_program_have_tags() {
        assert!(has_tag(Side::Send, 0) && has_tag(Side::Receive, 3 << 28 | 16));
        assert!(!has_tag(Side::Send, 1) && !has_tag(Side::Receive, 18));
        assert!(!has_tag(Side::Collective, 8));
    }

    #[test]
    fn a_run_has_its_beginning_and_what_it_said() {
        let run = Record {
            at_ns: 900,
            site: 300,
            len: 1,
            cpu: 5,
            ..Record::new(Kind::Run)
        };
        let seen = Decoder::new(Told(0)).decode(3, &run);
        assert_eq!((seen.rank, seen.cpu, seen.at_ns), (3, 5, 900));
        assert_eq!(
            seen.what,
            What::Run {
                since_ns: 600,
                finished: true
            }
        );
    }

    #[test]
    fn a_place_is_asked_for_once_per_rank() {
        let mut decoder = Decoder::new(Told(0));
        let record = Record {
            site: 58,
            call: 3,
            ..Record::new(Kind::Enter)
        };
        for rank in [0, 0, 1, 0, 1] {
            let What::Enter { call, site } = decoder.decode(rank, &record).what else {
                panic!("an entry");
            };
            assert_eq!((&*call, &*site), ("MPI_3", format!("{rank}.c:58").as_str()));
        }
        assert_eq!(decoder.names.0, 2);
    }
}
