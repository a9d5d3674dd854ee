//! How ranks of other hosts have ended, as their agents tell the first (docs/reference/job.md, D5:
//! 347).

use super::count;
use crate::error::Result;
use crate::limits;
use crate::process_exit::ProcessExit;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankExit {
    /// Number of the rank.
    pub rank: u32,
    /// Process of the rank on its host.
    pub process: i32,
    /// Way in which it ended.
    pub ended: ProcessExit,
    /// For how long it ran.
    pub ran_ms: u64,
}

const EXIT: u8 = 0;
const SIGNAL: u8 = 1;
/// Bytes of one.
const BYTES: usize = 21;

pub(super) fn put_rank_exits(writer: MessageWriter, all: &[RankExit]) -> MessageWriter {
    let writer = writer.raw((all.len() as u32).to_le_bytes());
    all.iter().fold(writer, |writer, end| {
        let (kind, value) = match end.ended {
            ProcessExit::Exit(code) => (EXIT, code),
            ProcessExit::Signal(signal) => (SIGNAL, signal),
        };
        writer
            .raw(end.rank.to_le_bytes())
            .raw(end.process.to_le_bytes())
            .raw([kind])
            .raw(value.to_le_bytes())
            .raw(end.ran_ms.to_le_bytes())
    })
}

pub(super) fn read_rank_exits(r: &mut MessageReader<'_>) -> Result<Vec<RankExit>> {
    let count = count(r, BYTES, limits::RANKS_MAX as usize)?;
    let end = |r: &mut MessageReader<'_>| {
        let (rank, process) = (r.u32()?, r.u32()? as i32);
        let (kind, value) = (r.raw()?, r.u32()? as i32);
        let ended = match kind {
            [EXIT] => ProcessExit::Exit(value),
            [SIGNAL] => ProcessExit::Signal(value),
            _ => return Err(malformed("a rank ended in no known way")),
        };
        let ran_ms = u64::from_le_bytes(r.raw()?);
        Ok(RankExit {
            rank,
            process,
            ended,
            ran_ms,
        })
    };
    (0..count).map(|_| end(r)).collect()
}
