//! What a job is: the programs, their ranks, and how they are run. Filled in by the command line, obeyed by the agent.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::limits;

/// One program of the job (they are separated by `:` on the command line).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Number of ranks.
    pub ranks: u32,
    /// Variables to set, or to remove.
    pub env: Vec<(OsString, Option<OsString>)>,
    /// Working directory.
    pub dir: Option<PathBuf>,
}

/// What stands before each line of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tags {
    /// Nothing.
    #[default]
    None,
    /// `[3] `
    Rank,
    /// `[1,3]<stdout>: `, the habit of Open MPI.
    Stream,
}

/// Whether lines of output begin with the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    /// They do not.
    #[default]
    None,
    /// `2026-11-21T21:27:57.123Z `
    Time,
}

/// What becomes of a rank's standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// It goes to the launcher's.
    #[default]
    Apart,
    /// It is one with the rank's standard output.
    Merged,
}

/// Whether ranks' tags are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain.
    #[default]
    Never,
    /// One colour per rank.
    Always,
}

/// Who reads the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdin {
    /// This rank, directly.
    Rank(u32),
    /// Nobody.
    Nobody,
}

/// Where the ranks run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Per rank the CPUs it is bound to, as words of a mask; empty: not bound. No entries: nobody is bound.
    pub masks: Vec<Vec<u64>>,
    /// The CPUs on which helpers of bound ranks may run, as a list: those of the job's ranks, and those that nobody has. Empty: where their ranks may.
    pub helpers: String,
    /// Processor time that the job may use, in thousandths of a core.
    pub cpus_milli: u32,
}

/// A job.
#[derive(Clone, Debug)]
pub struct Job {
    /// Programs in the order of their ranks.
    pub programs: Vec<Program>,
    /// Command line, for tools that list jobs.
    pub command: String,
    /// What stands before each line of output.
    pub tags: Tags,
    /// Whether lines begin with the time.
    pub stamps: Stamps,
    /// What becomes of standard error.
    pub streams: Streams,
    /// Whether tags are coloured.
    pub colour: Colour,
    /// Who reads standard input.
    pub stdin: Stdin,
    /// Ends the job after this long.
    pub timeout: Option<Duration>,
    /// Where the ranks run.
    pub placement: Placement,
    /// Bytes of each inbox.
    pub inbox_bytes: u64,
    /// Bytes of the collective area.
    pub coll_bytes: u64,
    /// Whether the ranks record what they do from the start, for the launcher to read.
    pub traced: bool,
}

impl Job {
    /// A job with default settings.
    pub fn new(programs: Vec<Program>) -> Self {
        let words = programs
            .iter()
            .flat_map(|program| &program.argv)
            .map(|word| word.to_string_lossy());
        let command = words.collect::<Vec<_>>().join(" ");
        let ranks = total(&programs).min(limits::RANKS_MAX);
        Self {
            programs,
            command,
            tags: Tags::None,
            stamps: Stamps::None,
            streams: Streams::Apart,
            colour: Colour::Never,
            stdin: Stdin::Rank(0),
            timeout: None,
            placement: Placement::default(),
            inbox_bytes: garonne_rails::shm::inbox_bytes(ranks) as u64,
            coll_bytes: (u64::from(ranks) * limits::COLL_BYTES_PER_RANK).min(limits::PART_BYTES_MAX),
            traced: false,
        }
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        total(&self.programs)
    }

    /// The program of each rank, as an index.
    pub fn program_of_rank(&self) -> Vec<usize> {
        self.programs
            .iter()
            .enumerate()
            .flat_map(|(i, program)| std::iter::repeat_n(i, program.ranks as usize))
            .collect()
    }
}

/// Ranks of all programs; absurd numbers stay absurd instead of wrapping around.
fn total(programs: &[Program]) -> u32 {
    programs
        .iter()
        .fold(0, |sum, program| sum.saturating_add(program.ranks))
}
