//! What threads of a rank ask for again and again without waiting, and its bytes in a look.

use garonne_engine::observe::events::{PENDING_SHOWN, PendingOperation};

use super::{count, put_text, text, u64_of};
use crate::error::Result;
use crate::rank_messages::{MessageReader, MessageWriter};
use crate::wait_report::{ASKS_SHOWN, OPERATION_WORDS, POLL_PLACES, operation, operation_words};

/// A thread that polls, and the calls by which it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollingThread {
    /// Number of times that it has looked in vain.
    pub looks: u64,
    /// For how long, in nanoseconds.
    pub for_ns: u64,
    /// The calls by which it asks.
    pub asks: Vec<PolledOperation>,
}

/// The operations that a thread polls by one call of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolledOperation {
    /// Number of the MPI call.
    pub call: u32,
    /// Place of the call in the program; empty: not known.
    pub place: String,
    /// Operations, each with the place where it was started; empty: not known, or the call itself.
    pub operations: Vec<(PendingOperation, String)>,
}

pub(super) fn put(writer: MessageWriter, polls: &[PollingThread]) -> MessageWriter {
    let polls = &polls[..polls.len().min(POLL_PLACES)];
    let writer = writer.raw((polls.len() as u32).to_le_bytes());
    polls.iter().fold(writer, |writer, polled| {
        let asks = &polled.asks[..polled.asks.len().min(ASKS_SHOWN)];
        let writer = writer
            .raw(polled.looks.to_le_bytes())
            .raw(polled.for_ns.to_le_bytes())
            .raw((asks.len() as u32).to_le_bytes());
        asks.iter().fold(writer, put_asked)
    })
}

fn put_asked(writer: MessageWriter, asked: &PolledOperation) -> MessageWriter {
    let operations = &asked.operations[..asked.operations.len().min(PENDING_SHOWN)];
    let writer = put_text(writer.raw(asked.call.to_le_bytes()), &asked.place);
    let writer = writer.raw((operations.len() as u32).to_le_bytes());
    operations
        .iter()
        .fold(writer, |writer, (operation, place)| {
            let words = operation_words(operation).into_iter();
            let writer = words.fold(writer, |writer, word| writer.raw(word.to_le_bytes()));
            put_text(writer, place)
        })
}

pub(super) fn read(r: &mut MessageReader<'_>) -> Result<Vec<PollingThread>> {
    let polls = count(r, 20, POLL_PLACES)?;
    let polled = |_| {
        let (looks, for_ns) = (u64_of(r)?, u64_of(r)?);
        let asks = count(r, 9, ASKS_SHOWN)?;
        let asks = (0..asks).map(|_| read_asked(r)).collect::<Result<_>>()?;
        Ok(PollingThread {
            looks,
            for_ns,
            asks,
        })
    };
    (0..polls).map(polled).collect()
}

fn read_asked(r: &mut MessageReader<'_>) -> Result<PolledOperation> {
    let (call, place) = (r.u32()?, text(r)?);
    let operations = count(r, OPERATION_WORDS * 8, PENDING_SHOWN)?;
    let read = |_| {
        let mut words = [0; OPERATION_WORDS];
        for word in &mut words {
            *word = u64_of(r)?;
        }
        Ok((operation(&words), text(r)?))
    };
    Ok(PolledOperation {
        call,
        place,
        operations: (0..operations).map(read).collect::<Result<_>>()?,
    })
}
