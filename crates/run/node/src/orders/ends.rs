//! How ranks of other hosts have ended, as their agents tell the first (docs/formats-job.md, D5:
//! 347).

use super::count;
use crate::error::Result;
use crate::limits;
use crate::processes::Ended;
use crate::wire::{Reader, Writer, damaged};

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankEnd {
    /// Its number.
    pub rank: u32,
    /// Its process on its host.
    pub process: i32,
    /// How it ended.
    pub ended: Ended,
    /// For how long it ran.
    pub ran_ms: u64,
}

const EXIT: u8 = 0;
const SIGNAL: u8 = 1;
/// Bytes of one.
const BYTES: usize = 21;

pub(super) fn put_ends(writer: Writer, all: &[RankEnd]) -> Writer {
    let writer = writer.raw((all.len() as u32).to_le_bytes());
    all.iter().fold(writer, |writer, end| {
        let (kind, value) = match end.ended {
            Ended::Exit(code) => (EXIT, code),
            Ended::Signal(signal) => (SIGNAL, signal),
        };
        writer
            .raw(end.rank.to_le_bytes())
            .raw(end.process.to_le_bytes())
            .raw([kind])
            .raw(value.to_le_bytes())
            .raw(end.ran_ms.to_le_bytes())
    })
}

pub(super) fn ends(r: &mut Reader<'_>) -> Result<Vec<RankEnd>> {
    let count = count(r, BYTES, limits::RANKS_MAX as usize)?;
    let end = |r: &mut Reader<'_>| {
        let (rank, process) = (r.u32()?, r.u32()? as i32);
        let (kind, value) = (r.raw()?, r.u32()? as i32);
        let ended = match kind {
            [EXIT] => Ended::Exit(value),
            [SIGNAL] => Ended::Signal(value),
            _ => return Err(damaged("a rank ended in no known way")),
        };
        let ran_ms = u64::from_le_bytes(r.raw()?);
        Ok(RankEnd {
            rank,
            process,
            ended,
            ran_ms,
        })
    };
    (0..count).map(|_| end(r)).collect()
}
