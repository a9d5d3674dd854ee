//! Parsed command line of `garonne run`, and the facts about the system that parsing needs.

use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;

use garonne_job::job::Job;
use garonne_job::node_map::{HostOrder, HostSpec};
use garonne_topology::binding::Policy;
use garonne_topology::cpuset::CpuSet;

use super::join_hosts::JoinSettings;
use super::rank_file::RankFile;
use super::trace_option::TraceOptions;
use super::traffic_mapping::TrafficFile;

/// When to colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ColorWhen {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Facts about the system.
#[derive(Clone, Debug)]
pub struct SystemFacts {
    /// Number of ranks when nobody says.
    pub cores: u32,
    /// Names that mean this host.
    pub host_names: Vec<String>,
    /// Variables of the environment.
    pub env: Vec<(OsString, OsString)>,
    /// Reads a file of hosts.
    pub read: fn(&OsStr) -> std::io::Result<String>,
    /// Which of these names are this host's, where it is not known by them; whether the system is
    /// to be asked.
    pub are_own: fn(&[&str], bool) -> Vec<bool>,
}

/// Request of the user, as the command line says it.
#[derive(Debug)]
pub enum LaunchRequest {
    /// Run a job.
    Run(Box<JobOrder>),
    /// Print the version.
    Version,
    /// Print help.
    Help,
    /// Print help, and what is accepted without effect or refused.
    HelpAll,
}

/// A job and how to treat it. The parser fills it from the command line; [`super::run`] decides the
/// placement and hands it to the launcher.
#[derive(Debug)]
pub struct JobOrder {
    /// The job, its placement not yet decided.
    pub job: Job,
    /// The hosts named, if any.
    pub hosts: Vec<HostSpec>,
    /// In which order they take ranks.
    pub mapping: HostOrder,
    /// Place where to put the ranks.
    pub policy: Policy,
    /// When to colour.
    pub colour: ColorWhen,
    /// Print where the ranks run.
    pub report_bindings: bool,
    /// Place where to write the launcher's process id: `-`, `+` (standard error), or a file.
    pub report_pid: Option<PathBuf>,
    /// The CPUs that the job may use, of those that we may.
    pub cpus: Option<CpuSet>,
    /// Name of the job.
    pub name: Option<String>,
    /// Place where metrics are served.
    pub metrics: Option<SocketAddr>,
    /// The host of each rank, where a rank file names them.
    pub rank_file: Option<RankFile>,
    /// What the ranks send each other, where they are mapped by that.
    pub traffic: Option<TrafficFile>,
    /// What groups of ranks need of their hosts.
    pub need: Option<String>,
    /// Place where to write how the job ended.
    pub json: Option<PathBuf>,
    /// Traces to record.
    pub tracing: TraceOptions,
    /// Hosts that are to join.
    pub joining: JoinSettings,
}
