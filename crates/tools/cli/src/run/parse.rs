//! From the words of the command line to a job. Pure: everything it needs of the system is passed
//! in.

use garonne_job::settings::{ENV_KILL_AFTER, ENV_LAUNCHER, ENV_RANKS_PER_PROCESS, ENV_SURVIVE};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use garonne_job::job::{Job, OutputTags, OutputTimes, Program, StderrMode, StdinReaders};
use garonne_job::job_name;
use garonne_job::node_map::{HostOrder, HostSpec};
use garonne_job::output_files::OutputFiles;
use garonne_job::settings;
use garonne_job::settings::record;
use garonne_job::settings::transport_modules::{self, ENV_TRANSPORT_MODULES};
use garonne_job::settings::{abi, kill_after};
use garonne_topology::binding::{MapBy, Policy};
use garonne_topology::cpuset::CpuSet;

use super::batch_allocation::BatchAllocation;
use super::forwarded_signals::forwarded;
use super::join_hosts::JoinSettings;
use super::launch_request::{ColorWhen, JobOrder, LaunchRequest, SystemFacts};
use super::option_values::{
    attached_number, bind_to, map_by, pattern, positive, split, without_qualifiers,
};
use super::options::{self, OptionAction, OptionSpec};
use super::rank_file::{self, RankFile};
use super::trace_option::TraceOptions;
use super::traffic_mapping::TrafficFile;
use super::{
    batch_allocation, host_list, local_aliases, metrics, option_values, stdin_ranks, timeout,
};

/// On which hosts the ranks run, as far as options have said.
#[derive(Default)]
struct HostOptions {
    hosts: Vec<HostSpec>,
    mapping: HostOrder,
    /// Ranks per host.
    per_node: Option<u32>,
    /// Command that starts agents on other hosts.
    launcher: Option<String>,
}

/// Parser of one command line. It takes words from the front, collects options for the job and for
/// one program after the other, and becomes a [`LaunchRequest`] at the end.
struct CommandLineParser<'a> {
    facts: &'a SystemFacts,
    words: VecDeque<OsString>,
    programs: Vec<Program>,
    env: Vec<(OsString, Option<OsString>)>,
    policy: Policy,
    tags: OutputTags,
    files: OutputFiles,
    rank_file: Option<RankFile>,
    traffic: Option<TrafficFile>,
    need: Option<String>,
    json: Option<PathBuf>,
    colour: ColorWhen,
    stdin: StdinReaders,
    timeout: Option<Duration>,
    report_bindings: bool,
    report_pid: Option<PathBuf>,
    cpus: Option<CpuSet>,
    name: Option<String>,
    metrics: Option<SocketAddr>,
    tracing: TraceOptions,
    stamps: OutputTimes,
    streams: StderrMode,
    on: HostOptions,
    joining: JoinSettings,
    /// The option that took the word before the next one as its value, and that value.
    taken: Option<(String, String)>,
}

/// One program while it is read.
#[derive(Default)]
struct ProgramDraft {
    ranks: Option<u32>,
    env: Vec<(OsString, Option<OsString>)>,
    dir: Option<PathBuf>,
}

type UsageError = String;

/// Understands the words after `garonne run` (or `mpirun`). An error is one line for the user.
pub fn parse(words: Vec<OsString>, facts: &SystemFacts) -> Result<LaunchRequest, UsageError> {
    let parser = CommandLineParser {
        facts,
        words: words.into(),
        programs: Vec::new(),
        env: Vec::new(),
        policy: Policy::default(),
        tags: OutputTags::None,
        files: OutputFiles::default(),
        rank_file: None,
        traffic: None,
        need: None,
        json: None,
        colour: ColorWhen::Auto,
        stdin: StdinReaders::Rank(0),
        timeout: None,
        report_bindings: false,
        report_pid: None,
        cpus: None,
        name: None,
        metrics: None,
        tracing: TraceOptions::default(),
        stamps: OutputTimes::None,
        streams: StderrMode::Apart,
        on: HostOptions::default(),
        joining: JoinSettings::default(),
        taken: None,
    };
    parser.run()
}

impl CommandLineParser<'_> {
    fn run(mut self) -> Result<LaunchRequest, UsageError> {
        loop {
            let mut draft = ProgramDraft::default();
            let program = loop {
                let Some(word) = self.words.pop_front() else {
                    break None;
                };
                let Some(text) = word
                    .to_str()
                    .filter(|text| text.starts_with('-') && text.len() > 1)
                else {
                    break Some(word);
                };
                if text == "--" {
                    break self.words.pop_front();
                }
                match self.option(text, &mut draft)? {
                    None => {}
                    Some(request) => return Ok(request),
                }
            };
            let Some(program) = program else {
                return Err(self.no_program());
            };
            if program == ":" {
                return Err(
                    "no program before ':' (usage: garonne run -n N PROGRAM [ARGS] : -n N PROGRAM [ARGS])"
                        .into(),
                );
            }
            let mut argv = vec![program];
            let mut more = false;
            while let Some(word) = self.words.pop_front() {
                if word == ":" {
                    more = true;
                    break;
                }
                argv.push(word);
            }
            let ranks = draft.ranks.unwrap_or(0);
            self.programs.push(Program {
                argv,
                ranks,
                env: draft.env,
                dir: draft.dir,
            });
            if !more {
                return self.finish();
            }
        }
    }

    /// Returns where the words end: what took the last of them, if it was an option that has a
    /// value.
    fn no_program(&self) -> UsageError {
        let usage = "(usage: garonne run -n N PROGRAM [ARGS])";
        match &self.taken {
            // A number is what its option wants.
            Some((option, value)) if positive(value).is_none() => {
                format!(
                    "no program to run: '{value}' was taken as the value of option '{option}' {usage}"
                )
            }
            _ => format!("no program to run {usage}"),
        }
    }

    fn finish(mut self) -> Result<LaunchRequest, UsageError> {
        let several = self.programs.len() > 1;
        let named = self.cpus.as_ref().map(|cpus| cpus.len() as u32);
        let cores = named.map_or(self.facts.cores, |named| self.facts.cores.min(named));
        let allocation = batch_allocation::of(self.facts)?;
        self.settle_launcher();
        if let (true, Some(given)) = (self.on.hosts.is_empty(), &allocation) {
            self.on.hosts.clone_from(&given.hosts);
        }
        if let Some(file) = &mut self.rank_file {
            self.on.hosts = file.settle(&self.on.hosts, &self.facts.host_names)?;
            // Each host has as many slots as the file gives it ranks.
            self.on.per_node = None;
        }
        local_aliases::mark(&mut self.on.hosts, self.on.launcher.as_deref(), self.facts);
        if let Some(per_node) = self.on.per_node {
            self.on
                .hosts
                .iter_mut()
                .for_each(|host| host.slots = per_node);
        }
        self.joining.settle(
            self.on.per_node,
            self.programs.iter().all(|program| program.ranks == 0) && !several,
        );
        if self.joining.is_wanted() && !self.on.hosts.iter().any(|host| host.own) {
            let name = self.facts.host_names.last().cloned().unwrap_or_default();
            let slots = self.on.per_node.unwrap_or(cores);
            self.on.hosts.insert(
                0,
                HostSpec {
                    name,
                    slots,
                    own: true,
                },
            );
        }
        let slots = self
            .on
            .hosts
            .iter()
            .fold(0u32, |sum, host| sum.saturating_add(host.slots));
        let ranks = match (slots, self.on.per_node) {
            (0, Some(per_node)) => per_node,
            (0, None) => cores,
            (slots, _) => slots,
        };
        for program in &mut self.programs {
            if program.ranks == 0 {
                program.ranks = match self.on.per_node.filter(|_| several) {
                    Some(per_node) => per_node,
                    None if several => 1,
                    None => ranks,
                };
            }
            let own = std::mem::take(&mut program.env);
            program.env = self.env.iter().cloned().chain(own).collect();
        }
        let mut job = Job::new(std::mem::take(&mut self.programs));
        if self.rank_file.is_some() && self.traffic.is_some() {
            return Err("a rank file gives each rank its place; --map-by traffic: decides them by itself: give one of them".to_owned());
        }
        if self.need.is_some() && (self.rank_file.is_some() || self.traffic.is_some()) {
            return Err("a rank file and --map-by traffic: give ranks their places; --need decides them by itself: give one of them".to_owned());
        }
        if let Some(file) = &self.rank_file {
            file.give(&mut job, self.joining.is_wanted())?;
        }
        job.tags = self.tags;
        job.stamps = self.stamps;
        job.streams = self.streams;
        job.files = std::mem::take(&mut self.files);
        job.stdin = self.stdin;
        job.starter = self
            .starter(allocation)?
            .into_iter()
            .map(OsString::from)
            .collect();
        job.timeout = match self.timeout {
            None => timeout::from_env(&self.facts.env)?,
            given => given,
        };
        if let StdinReaders::Rank(rank) = job.stdin
            && rank >= job.size()
            && !self.joining.is_open()
        {
            return Err(format!("--stdin {rank}: there are {} ranks", job.size()));
        }
        let Self {
            policy,
            colour,
            report_bindings,
            report_pid,
            cpus,
            name,
            metrics,
            tracing,
            rank_file,
            traffic,
            need,
            json,
            on: HostOptions { hosts, mapping, .. },
            joining,
            ..
        } = self;
        Ok(LaunchRequest::Run(Box::new(JobOrder {
            job,
            hosts,
            mapping,
            policy,
            colour,
            report_bindings,
            report_pid,
            cpus,
            name,
            metrics,
            tracing,
            rank_file,
            traffic,
            need,
            json,
            joining,
        })))
    }

    /// What starts agents is said by the option or the environment. Jobs that ranks start have it
    /// from there.
    fn settle_launcher(&mut self) {
        match &self.on.launcher {
            Some(said) => self
                .env
                .push((ENV_LAUNCHER.into(), Some(OsString::from(said)))),
            None => {
                let mut known = self.facts.env.iter();
                let said = known.find(|(name, value)| name == ENV_LAUNCHER && !value.is_empty());
                self.on.launcher = said.map(|(_, value)| value.to_string_lossy().into_owned());
            }
        }
    }

    /// Returns the command that starts agents on other hosts; empty: ssh.
    fn starter(&self, allocation: Option<BatchAllocation>) -> Result<Vec<String>, UsageError> {
        let mut others = self.on.hosts.iter().filter(|host| !host.own).peekable();
        match (&self.on.launcher, allocation) {
            _ if others.peek().is_none() => Ok(Vec::new()),
            (Some(launcher), _) => host_list::launcher(launcher),
            // A batch system starts processes on its hosts only.
            (None, Some(given))
                if others.all(|host| given.hosts.iter().any(|known| known.name == host.name)) =>
            {
                Ok(given.starter)
            }
            (None, _) => Ok(Vec::new()),
        }
    }

    /// One option and its values.
    fn option(
        &mut self,
        word: &str,
        draft: &mut ProgramDraft,
    ) -> Result<Option<LaunchRequest>, UsageError> {
        self.taken = None;
        let name = word.trim_start_matches('-');
        let (name, attached) = match name.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => attached_number(name)
                .map_or((name, None), |(name, value)| (name, Some(value.into()))),
        };
        let Some(entry) = options::find(word, name) else {
            return Err(options::unknown(word, name));
        };
        let mut attached = attached;
        if entry.takes_nothing()
            && let Some(value) = &attached
        {
            let value = value.to_string_lossy();
            return Err(format!(
                "option '{word}' takes no value, and '{value}' is one"
            ));
        }
        let mut value = |parser: &mut Self| {
            if attached.is_none() {
                entry.may_take(parser.words.front().map(OsString::as_os_str), word)?;
            }
            let next = attached.take().or_else(|| {
                let next = parser.words.pop_front()?;
                parser.taken = Some((word.to_owned(), next.to_string_lossy().into_owned()));
                Some(next)
            });
            next.ok_or_else(|| format!("option '{word}' needs a value{}", options::shape(entry)))
        };
        match entry.action {
            OptionAction::Version => return Ok(Some(LaunchRequest::Version)),
            OptionAction::Help => {
                let next = attached.or_else(|| self.words.pop_front());
                let all = next.is_some_and(|word| word == "all");
                return Ok(Some(if all {
                    LaunchRequest::HelpAll
                } else {
                    LaunchRequest::Help
                }));
            }
            OptionAction::Refuse(advice) => {
                return Err(format!("option '{word}' is not supported; {advice}"));
            }
            OptionAction::Means(words) => words
                .iter()
                .rev()
                .for_each(|word| self.words.push_front(word.into())),
            OptionAction::Stamp => self.stamps = OutputTimes::Time,
            OptionAction::Merge => self.streams = StderrMode::Merged,
            OptionAction::Survive => self.survive(),
            OptionAction::Accept(values, _) => {
                (0..values).try_for_each(|_| value(self).map(drop))?
            }
            OptionAction::TagRank => self.tags = OutputTags::Rank,
            OptionAction::TagStream => self.tags = OutputTags::Stream,
            OptionAction::ReportBindings => self.report_bindings = true,
            OptionAction::Overlap => self.tracing.overlap = true,
            // Its value, if there is one, is never the next word.
            OptionAction::JoinKey => self.joining.key(attached.take())?,
            OptionAction::EnvNone => self.keep_only(&[]),
            OptionAction::LocalEnv => draft.env.push(self.assignment(value)?),
            OptionAction::GlobalEnv => {
                let assignment = self.assignment(value)?;
                self.env.push(assignment);
            }
            _ => {
                let value = value(self)?;
                self.valued(entry, word, value, draft)?;
            }
        }
        Ok(None)
    }

    fn survive(&mut self) {
        self.env.push((ENV_SURVIVE.into(), Some("1".into())));
    }

    fn valued(
        &mut self,
        entry: &OptionSpec,
        word: &str,
        value: OsString,
        draft: &mut ProgramDraft,
    ) -> Result<(), UsageError> {
        let text = value.to_string_lossy().into_owned();
        let bad = |wanted: &str| format!("option '{word}': '{text}' is not {wanted}");
        match entry.action {
            OptionAction::Ranks => {
                draft.ranks = Some(positive(&text).ok_or_else(|| bad("a number of ranks"))?)
            }
            OptionAction::PerNode => {
                self.on.per_node = Some(positive(&text).ok_or_else(|| bad("a number of ranks"))?);
            }
            OptionAction::CoresPerRank => {
                self.policy.cores_per_rank =
                    positive(&text).ok_or_else(|| bad("a number of cores"))?
            }
            OptionAction::Export => self.export(&value),
            OptionAction::EnvList => {
                let names: Vec<&str> = text.split(',').map(str::trim).collect();
                self.keep_only(&names);
            }
            OptionAction::EnvExcept => {
                let names = text
                    .split(',')
                    .map(|name| (OsString::from(name.trim()), None));
                self.env.extend(names);
            }
            OptionAction::Programs => self.programs_of(&value)?,
            OptionAction::Display => {
                self.report_bindings |= text.contains("bind") || text.contains("map")
            }
            OptionAction::ReportPid => self.report_pid = Some(value.into()),
            OptionAction::Name => {
                job_name::check(&text).map_err(|wanted| bad(&wanted))?;
                self.name = Some(text);
            }
            OptionAction::Metrics => {
                let address = metrics::address(&text);
                self.metrics =
                    Some(address.ok_or_else(|| bad("a port, or an address and a port"))?);
            }
            OptionAction::Json => self.json = Some(value.into()),
            OptionAction::Trace => self.tracing.timeline = Some(value.into()),
            OptionAction::Cpus => {
                let cpus = CpuSet::parse(&text).filter(|cpus| !cpus.is_empty());
                self.cpus = Some(cpus.ok_or_else(|| bad("a list of CPUs such as 0-3,8"))?);
            }
            OptionAction::Signals => forwarded(&text)?,
            OptionAction::Directory => draft.dir = Some(value.into()),
            OptionAction::InitialErrhandler => {
                settings::initial_errhandler(&value)
                    .map_err(|_| bad(&settings::INITIAL_ERRHANDLERS.join(", ")))?;
                draft
                    .env
                    .push((settings::ENV_INITIAL_ERRHANDLER.into(), Some(value)));
            }
            OptionAction::Abi => {
                abi::read(&value).map_err(|_| bad(&abi::ABIS.join(", ")))?;
                draft.env.push((abi::ENV_ABI.into(), Some(value)));
            }
            OptionAction::BindTo => {
                self.policy.bind = bind_to(&text)
                    .ok_or_else(|| bad("core, numa, socket, l3cache, hwthread or none"))?
            }
            OptionAction::RankFile => {
                self.rank_file = Some(rank_file::of_file(&value, self.facts)?)
            }
            OptionAction::Need => self.need = Some(text.to_string()),
            OptionAction::MapBy if text.to_ascii_lowercase().starts_with("rankfile") => {
                let path = text.split_once('=').map(|(_, path)| OsStr::new(path));
                let path = path.ok_or_else(|| bad("a rank file: rankfile:FILE=PATH"))?;
                self.rank_file = Some(rank_file::of_file(path, self.facts)?);
            }
            OptionAction::MapBy if text.starts_with("traffic:") => {
                let path = OsStr::new(&text["traffic:".len()..]);
                self.traffic = Some(TrafficFile::of_file(path, self.facts)?);
                self.policy.map = MapBy::Core;
            }
            OptionAction::MapBy => map_by(
                &text,
                &mut self.policy,
                (&mut self.on.mapping, &mut self.on.per_node),
            )
            .ok_or_else(|| bad("core, numa, socket, l3cache, slot or node"))?,
            OptionAction::Timeout => {
                self.timeout =
                    Some(timeout::seconds(&text).ok_or_else(|| bad("a number of seconds"))?);
            }
            OptionAction::OutFile => self.files.out = Some(pattern(value)?),
            OptionAction::ErrFile => self.files.err = Some(pattern(value)?),
            OptionAction::OutputName => {
                self.files = OutputFiles::of_ranks(without_qualifiers(&value))
            }
            OptionAction::OutputDirectory => {
                self.files = OutputFiles::in_directory(without_qualifiers(&value))
            }
            OptionAction::Record => {
                record::is_wanted(&value).map_err(|_| bad(&record::RECORD.join(" or ")))?;
                self.env.push((record::ENV_RECORD.into(), Some(value)));
            }
            OptionAction::TransportModule => self.transport_module(&value).map_err(bad)?,
            OptionAction::RanksPerProcess => {
                text.parse::<u32>()
                    .map_err(|_| bad("a number of ranks, or 0"))?;
                self.env.push((ENV_RANKS_PER_PROCESS.into(), Some(value)));
            }
            OptionAction::KillAfter => {
                kill_after::read(&value).map_err(|_| bad("a number of seconds from 0 to 3600"))?;
                self.env.push((ENV_KILL_AFTER.into(), Some(value)));
            }
            OptionAction::WithFaultTolerance => match text.as_str() {
                "ulfm" | "mpi" | "1" | "yes" => self.survive(),
                "none" | "no" | "0" => {}
                _ => return Err(bad("ulfm or none")),
            },
            OptionAction::Colour => {
                self.colour = match text.as_str() {
                    "auto" => ColorWhen::Auto,
                    "always" => ColorWhen::Always,
                    "never" => ColorWhen::Never,
                    _ => return Err(bad("auto, always or never")),
                }
            }
            OptionAction::Stdin => {
                self.stdin = stdin_ranks::read(&text).ok_or_else(|| bad("a rank, all or none"))?;
            }
            OptionAction::Output => text.split(',').try_for_each(|kind| self.output(kind))?,
            OptionAction::Hosts => self
                .on
                .hosts
                .extend(host_list::of_list(&text, &self.facts.host_names)?),
            OptionAction::Launcher => self.on.launcher = Some(text),
            OptionAction::Hostfile => self.hostfile(&value)?,
            OptionAction::Join(part) => self.joining.option(part, &text).map_err(bad)?,
            _ => {}
        }
        Ok(())
    }

    /// One word of `--output`.
    fn output(&mut self, kind: &str) -> Result<(), UsageError> {
        let lower = kind.trim().to_ascii_lowercase();
        match lower.as_str() {
            "tag" | "tag-detailed" | "tag-fullname" => self.tags = OutputTags::Stream,
            "rank" => self.tags = OutputTags::Rank,
            "timestamp" => self.stamps = OutputTimes::Time,
            "merge" | "merge-stderr-to-stdout" => self.streams = StderrMode::Merged,
            _ if lower.starts_with("file=") => {
                self.files = OutputFiles::of_ranks(without_qualifiers(OsStr::new(
                    &kind.trim()["file=".len()..],
                )));
            }
            _ if lower.starts_with("dir=") => {
                self.files = OutputFiles::in_directory(without_qualifiers(OsStr::new(
                    &kind.trim()["dir=".len()..],
                )));
            }
            _ => {
                return Err(format!(
                    "'--output {kind}' is not supported; known are tag, rank, timestamp, merge, file=NAME and dir=DIR"
                ));
            }
        }
        Ok(())
    }

    /// `-x VAR` passes a variable on, which happens anyway; `-x VAR=VALUE` sets it; several may be
    /// joined by commas.
    fn export(&mut self, value: &OsStr) {
        let (name, value) = match split(value) {
            Some((name, value)) => (name, Some(value)),
            // Hosts that join have an environment of their own.
            None => {
                let known = self.facts.env.iter().find(|(name, _)| name == value);
                let Some((name, value)) = known.cloned() else {
                    return;
                };
                (name, Some(value))
            }
        };
        self.env.push((name, value));
    }

    /// Adds a module to those that options have named for all programs, else to those that the
    /// environment names.
    ///
    /// # Errors
    /// What is wanted instead of the value.
    fn transport_module(&mut self, value: &OsStr) -> Result<(), &'static str> {
        let mut options = self.env.iter().rev();
        let mut environment = self.facts.env.iter();
        let named = options.find(|(name, _)| name == ENV_TRANSPORT_MODULES);
        let known = match named {
            Some((_, value)) => value.clone(),
            None => environment
                .find(|(name, _)| name == ENV_TRANSPORT_MODULES)
                .map(|(_, value)| value.clone()),
        };
        let known = known.filter(|known| !known.is_empty());
        let mut all = known.map_or_else(OsString::new, |mut known| {
            known.push(";");
            known
        });
        match transport_modules::read(value) {
            Ok(modules) if !modules.is_empty() => all.push(value),
            Ok(_) | Err(_) => return Err("a module: FILE or FILE,OPTIONS"),
        }
        self.env.push((ENV_TRANSPORT_MODULES.into(), Some(all)));
        Ok(())
    }

    /// `VAR=VALUE`, or `VAR` and `VALUE` as two words.
    fn assignment(
        &mut self,
        mut value: impl FnMut(&mut Self) -> Result<OsString, UsageError>,
    ) -> Result<(OsString, Option<OsString>), UsageError> {
        let first = value(self)?;
        match split(&first) {
            Some((name, value)) => Ok((name, Some(value))),
            None => Ok((first, Some(value(self)?))),
        }
    }

    fn keep_only(&mut self, names: &[&str]) {
        // Without these nothing is found, by anybody.
        let kept = |name: &OsStr| {
            name == "PATH" || name == "LD_LIBRARY_PATH" || names.iter().any(|known| name == *known)
        };
        let gone = self
            .facts
            .env
            .iter()
            .filter(|(name, _)| !kept(name))
            .map(|(name, _)| (name.clone(), None));
        self.env.extend(gone);
    }

    /// The words of a file of programs, as if they stood on the command line with `:` between the
    /// lines.
    fn programs_of(&mut self, path: &OsStr) -> Result<(), UsageError> {
        let shown = path.to_string_lossy();
        let text = (self.facts.read)(path)
            .map_err(|error| format!("cannot read the programs in '{shown}': {error}"))?;
        if !self.words.is_empty() {
            return Err(format!("nothing may follow the file of programs '{shown}'"));
        }
        self.words = option_values::programs(&text, &shown)?.into();
        Ok(())
    }

    fn hostfile(&mut self, path: &OsStr) -> Result<(), UsageError> {
        self.on.hosts.extend(host_list::of_file(path, self.facts)?);
        Ok(())
    }
}
