//! What a job is: the programs, their ranks, and how they are run. Filled in by the command line,
//! obeyed by the agent.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use garonne_topology::binding::Policy;

use crate::agent_tree::AgentTree;
use crate::codes;
use crate::error::{Error, Result};
use crate::job_name;
use crate::limits;
use crate::node_map::NodeMap;
use crate::outcome::OutcomeFile;
use crate::output_files::OutputFiles;

/// A program of the job (programs are separated by `:` on the command line).
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

/// The tag before each line of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputTags {
    /// Nothing.
    #[default]
    None,
    /// `[3] `
    Rank,
    /// `[1,3]<stdout>: `, the habit of Open MPI.
    Stream,
}

/// Choice whether lines of output begin with the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputTimes {
    /// Lines begin without the time.
    #[default]
    None,
    /// `2026-11-21T21:27:57.123Z `
    Time,
}

/// Destination of a rank's standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StderrMode {
    /// Standard error goes to the launcher's.
    #[default]
    Apart,
    /// Standard error is merged with the rank's standard output.
    Merged,
}

/// Choice whether ranks' tags are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TagColour {
    /// Plain.
    #[default]
    Never,
    /// Tags have a colour per rank.
    Always,
}

/// The ranks that read the launcher's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StdinReaders {
    /// This rank, directly.
    Rank(u32),
    /// All ranks, each a copy of it.
    All,
    /// Nobody.
    Nobody,
}

impl StdinReaders {
    /// Returns whether this rank reads standard input.
    pub fn is_read_by(self, rank: u32) -> bool {
        match self {
            Self::Rank(reader) => reader == rank,
            Self::All => true,
            Self::Nobody => false,
        }
    }
}

/// The CPUs on which ranks of a host run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlacementOptions {
    /// Per rank the CPUs it is bound to, as words of a mask; empty: not bound. No entries: nobody
    /// is bound.
    pub masks: Vec<Vec<u64>>,
    /// Per rank, if ranks are bound, the CPUs on which its progress thread may run, as a list: the
    /// cores of its NUMA node that nobody has; if there is none, those of the job's ranks and those
    /// that nobody has anywhere. Empty: where its rank may.
    pub helpers: Vec<String>,
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
    /// Name, the same on all the job's hosts ([`crate::job_name`]); empty: none was decided.
    pub name: String,
    /// When it was started, in seconds since 1970; 0: not known.
    pub started_s: u64,
    /// Tag before each line of output.
    pub tags: OutputTags,
    /// Whether lines begin with the time.
    pub stamps: OutputTimes,
    /// Destination of standard error.
    pub streams: StderrMode,
    /// Whether tags are coloured.
    pub colour: TagColour,
    /// Ranks that read standard input.
    pub stdin: StdinReaders,
    /// Files of the launcher's host that take what ranks write.
    pub files: OutputFiles,
    /// File into which the agent writes how the job ended, if somebody wants to know.
    pub sheet: Option<OutcomeFile>,
    /// Why this host cannot run its ranks, found before its agent has a line by which to say so.
    pub fault: Option<String>,
    /// What ranks of this host lack of the requested binding, where the launcher has not said it.
    pub shortfall: Option<String>,
    /// Ends the job after this long.
    pub timeout: Option<Duration>,
    /// CPUs of the ranks.
    pub placement: PlacementOptions,
    /// Bytes of the collective area.
    pub coll_bytes: u64,
    /// True if the ranks record what they do from the start, for the launcher to read.
    pub traced: bool,
    /// The hosts, and which ranks are where.
    pub nodes: NodeMap,
    /// How many agents report to one, at most.
    pub fan_out: u32,
    /// How many of the hosts, the last ones, have joined.
    pub guests: u32,
    /// Command that starts the agent of another host, with the host's name and a command behind it;
    /// empty: ssh.
    pub starter: Vec<OsString>,
    /// Way in which each host places its ranks; already obeyed in `cpu_claims` for this one.
    pub policy: Policy,
    /// The CPUs that the job may use on each host, as a list; empty: all.
    pub cpus: String,
    /// The environment that programs begin with, on another host than the launcher's; `None`: this
    /// process's.
    pub env: Option<Vec<(OsString, OsString)>>,
}

impl Job {
    /// Returns the value of a variable for the job: from its command line, or in the environment
    /// that it begins with; empty if it is not set.
    pub fn setting(&self, name: &str) -> OsString {
        let of_programs = self
            .programs
            .iter()
            .flat_map(|program| program.env.iter().rev());
        let mut given = of_programs.filter(|(known, _)| known == name);
        let base = || match &self.env {
            Some(env) => env
                .iter()
                .find(|(known, _)| known == name)
                .map(|(_, value)| value.clone()),
            None => std::env::var_os(name),
        };
        let given = given.find_map(|(_, value)| value.clone());
        given.or_else(base).unwrap_or_default()
    }

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
            name: String::new(),
            started_s: 0,
            tags: OutputTags::None,
            stamps: OutputTimes::None,
            streams: StderrMode::Apart,
            colour: TagColour::Never,
            stdin: StdinReaders::Rank(0),
            files: OutputFiles::default(),
            sheet: None,
            fault: None,
            shortfall: None,
            timeout: None,
            placement: PlacementOptions::default(),
            coll_bytes: coll_bytes(ranks),
            traced: false,
            nodes: NodeMap::default(),
            fan_out: limits::FAN_OUT,
            guests: 0,
            starter: Vec::new(),
            policy: Policy::default(),
            cpus: String::new(),
            env: None,
        }
    }

    /// Gives a job of one program so many ranks, and the memory that they need.
    pub fn set_ranks(&mut self, ranks: u32) {
        if let [program] = &mut self.programs[..] {
            program.ranks = ranks;
        }
        let ranks = self.size().min(limits::RANKS_MAX);
        self.coll_bytes = coll_bytes(ranks);
    }

    /// Decides its name, which is the user's if there is one, and that it starts now.
    pub fn start_as(&mut self, name: Option<String>) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        self.started_s = now.as_secs();
        self.name = name.unwrap_or_else(|| {
            let start = now.as_nanos() as u64 ^ u64::from(std::process::id());
            job_name::derived(&self.command, start)
        });
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        total(&self.programs)
    }

    /// Checks the number of ranks of the job and of each of its hosts.
    ///
    /// # Errors
    /// No ranks or more than [`limits::RANKS_MAX`]; a host with more than
    /// [`limits::LOCAL_RANKS_MAX`].
    pub fn check_size(&self) -> Result<()> {
        let size = self.size();
        if size == 0 || size > limits::RANKS_MAX {
            let text = format!("{size} ranks: a job has 1 to {}", limits::RANKS_MAX);
            return Err(Error::misuse(codes::G0211, text));
        }
        let mut counts = vec![0u32; self.nodes.names.len().max(1)];
        for rank in 0..size {
            if let Some(count) = counts.get_mut(self.nodes.of(rank) as usize) {
                *count += 1;
            }
        }
        let crowded = (0..)
            .zip(&counts)
            .find(|(_, count)| **count > limits::LOCAL_RANKS_MAX);
        match crowded {
            Some((node, count)) => Err(Error::misuse(
                codes::G0211,
                format!(
                    "{count} ranks on {}: a host has at most {}",
                    self.nodes.name(node),
                    limits::LOCAL_RANKS_MAX
                ),
            )),
            None => Ok(()),
        }
    }

    /// The ranks of a node, in order.
    pub fn ranks_of(&self, node: u32) -> Vec<u32> {
        self.nodes.ranks_of(node, self.size())
    }

    /// Returns the tree of the job's agents.
    pub fn tree(&self) -> AgentTree {
        AgentTree::new(self.nodes.names.len() as u32, self.guests, self.fan_out)
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

fn coll_bytes(ranks: u32) -> u64 {
    (u64::from(ranks) * limits::COLL_BYTES_PER_RANK).min(limits::PART_BYTES_MAX)
}

/// Ranks of all programs; absurd numbers stay absurd instead of wrapping around.
fn total(programs: &[Program]) -> u32 {
    programs
        .iter()
        .fold(0, |sum, program| sum.saturating_add(program.ranks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(ranks: u32, hosts: usize) -> Job {
        let mut job = Job::new(vec![Program {
            ranks,
            ..Program::default()
        }]);
        job.nodes.names = (0..hosts).map(|host| format!("h{host}")).collect();
        let each = ranks.div_ceil(hosts as u32);
        job.nodes.of_rank = (0..ranks).map(|rank| rank / each).collect();
        job
    }

    #[test]
    fn a_job_has_a_million_ranks_and_one_more_is_refused() {
        assert!(job(1 << 20, 16_384).check_size().is_ok());
        assert!(job(1 << 20, 1 << 17).check_size().is_ok());
        for ranks in [0, (1 << 20) + 1] {
            let error = job(ranks, 16_384).check_size().unwrap_err();
            assert_eq!(error.code(), codes::G0211);
            assert!(error.to_string().contains("1048576"), "{error}");
        }
    }

    #[test]
    fn a_host_has_65535_ranks_and_one_more_is_refused_by_name() {
        assert!(job(65_535, 1).check_size().is_ok());
        assert!(job(2 * 65_535, 2).check_size().is_ok());
        let error = job(2 * 65_535 + 2, 2).check_size().unwrap_err();
        assert_eq!(error.code(), codes::G0211);
        assert!(error.to_string().contains("65536 ranks on h0"), "{error}");
    }
}
