//! Who asks what the ranks of other hosts show, and what of it: part of what agents say to each
//! other (docs/reference/job.md, D13 and D14).

use crate::error::Result;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};

/// The tool that asked, named by node and number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueryId {
    /// The node where it was asked.
    pub node: u32,
    /// Number of the tool among those that ask there.
    pub number: u32,
}

/// A question about the ranks of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Query {
    /// State of each rank, and what it waits for.
    #[default]
    State,
    /// Processor time and traffic of each rank.
    Load,
    /// The host's clock: its agent answers itself.
    Clock,
    /// All that they record from now on, for so many milliseconds; 0: until they end.
    Records {
        /// How long.
        ms: u32,
    },
    /// All that they record, from the beginning to their end, in a job that is traced as a whole.
    All,
    /// Nothing any more: who asked has gone.
    Cancel,
    /// Output of a command about them.
    Command(RemoteCommand, OutputFormat),
}

/// A command that can be asked for on another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteCommand {
    /// `garonne why gate` of this rank: on its host alone.
    Gate(u32),
    /// `garonne network`.
    Network,
    /// `garonne why paces`.
    Paces,
    /// `garonne why background`.
    Background,
    /// `garonne map`.
    Map,
}

/// In which form it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl OutputFormat {
    /// JSON, if that is asked for.
    pub fn json_if(asked: bool) -> Self {
        if asked {
            OutputFormat::Json
        } else {
            OutputFormat::Text
        }
    }
}

impl Query {
    fn code(self) -> (u8, u32) {
        match self {
            Query::State => (0, 0),
            Query::Load => (1, 0),
            Query::Clock => (2, 0),
            Query::Records { ms } => (3, ms),
            Query::Cancel => (4, 0),
            Query::All => (5, 0),
            Query::Command(RemoteCommand::Gate(rank), OutputFormat::Text) => (6, rank),
            Query::Command(RemoteCommand::Gate(rank), OutputFormat::Json) => (7, rank),
            Query::Command(RemoteCommand::Network, form) => (8, form as u32),
            Query::Command(RemoteCommand::Paces, form) => (9, form as u32),
            Query::Command(RemoteCommand::Background, form) => (10, form as u32),
            Query::Command(RemoteCommand::Map, form) => (11, form as u32),
        }
    }

    fn of_code(kind: u8, ms: u32) -> Option<Self> {
        let wish = match kind {
            0 => Query::State,
            1 => Query::Load,
            2 => Query::Clock,
            3 => Query::Records { ms },
            4 => Query::Cancel,
            5 => Query::All,
            6 => Query::Command(RemoteCommand::Gate(ms), OutputFormat::Text),
            7 => Query::Command(RemoteCommand::Gate(ms), OutputFormat::Json),
            8 => Query::Command(RemoteCommand::Network, OutputFormat::json_if(ms == 1)),
            9 => Query::Command(RemoteCommand::Paces, OutputFormat::json_if(ms == 1)),
            10 => Query::Command(RemoteCommand::Background, OutputFormat::json_if(ms == 1)),
            11 => Query::Command(RemoteCommand::Map, OutputFormat::json_if(ms == 1)),
            _ => return None,
        };
        (wish.code().1 == ms).then_some(wish)
    }

    /// Formats the query as an argument of the program that answers for an agent.
    pub fn word(self) -> String {
        let (kind, ms) = self.code();
        format!("{kind}:{ms}")
    }

    /// Reads a query from an argument.
    pub fn of_word(word: &str) -> Option<Self> {
        let (kind, ms) = word.split_once(':')?;
        Self::of_code(kind.parse().ok()?, ms.parse().ok()?)
    }

    /// Returns whether a host says many things of it, one after the other, until one that is empty.
    pub fn is_stream(self) -> bool {
        matches!(self, Query::Records { .. } | Query::All)
    }
}

/// Appends the number of a query.
pub fn put_query_id(writer: MessageWriter, asked: &QueryId) -> MessageWriter {
    writer
        .raw(asked.node.to_le_bytes())
        .raw(asked.number.to_le_bytes())
}

/// Reads the number of a query.
pub fn read_query_id(r: &mut MessageReader<'_>) -> Result<QueryId> {
    Ok(QueryId {
        node: r.u32()?,
        number: r.u32()?,
    })
}

/// Appends a query.
pub fn put_query(writer: MessageWriter, wish: Query) -> MessageWriter {
    let (kind, ms) = wish.code();
    writer.raw([kind]).raw(ms.to_le_bytes())
}

/// Reads a query.
pub fn read_query(r: &mut MessageReader<'_>) -> Result<Query> {
    let ([kind], ms) = (r.raw()?, r.u32()?);
    Query::of_code(kind, ms).ok_or_else(|| malformed("nobody can look for that"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_is_read_as_it_was_told_and_what_is_none_is_refused() {
        for wish in [
            Query::State,
            Query::Load,
            Query::Clock,
            Query::Records { ms: 5000 },
            Query::Records { ms: 0 },
            Query::Cancel,
            Query::All,
            Query::Command(RemoteCommand::Gate(7), OutputFormat::Text),
            Query::Command(RemoteCommand::Gate(0), OutputFormat::Json),
            Query::Command(RemoteCommand::Network, OutputFormat::Json),
            Query::Command(RemoteCommand::Paces, OutputFormat::Text),
            Query::Command(RemoteCommand::Background, OutputFormat::Json),
            Query::Command(RemoteCommand::Map, OutputFormat::Text),
            Query::Command(RemoteCommand::Map, OutputFormat::Json),
        ] {
            assert_eq!(Query::of_word(&wish.word()), Some(wish));
        }
        for wrong in [
            "",
            "1",
            "1:1",
            "9:2",
            "11:2",
            "12:0",
            "3:-1",
            "3:99999999999",
            "x:0",
        ] {
            assert_eq!(Query::of_word(wrong), None, "{wrong}");
        }
    }
}
