//! `garonne why`: why something is as it is. Each thing that can be asked about is a function here.

use super::{job_lookup, remote_command};
use clap_complete::engine::ArgValueCandidates;
use comfy_table::{Table, presets};
use garonne_agent::cpu_claims;
use garonne_agent::needs::need_machine::NeedMachine;
use garonne_agent::needs::need_text::Need;
use garonne_agent::needs::resolver::{self, RankPlace};
use garonne_inspect::query_client::QueryClient;
use garonne_job::layout::{AsyncProgressState, RankBlock, WorldShape, rank_endpoint};
use garonne_job::query::RemoteCommand;
use garonne_job::settings::ENV_BACKGROUND;
use garonne_job::settings::SETTINGS;
use garonne_links::process_memory::memory_of;
use garonne_shm::{TunerReport, protocol_tuner::WAYS, protocol_tuners};
use garonne_sync::shm::Segment;
use garonne_topology::binding::Policy;
use garonne_topology::{Machine, quota};
use serde_json::json;

#[derive(Debug, clap::Args)]
pub struct WhyArgs {
    #[command(subcommand)]
    thing: WhyTopic,
}

#[derive(Debug, clap::Subcommand)]
enum WhyTopic {
    /// Why ranks would be bound as they are, were a job started now
    Binding {
        /// Number of ranks
        #[arg(short, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
        n: u32,
        /// What groups of ranks need, as for garonne run
        #[arg(long, value_name = "TEXT")]
        need: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// How data is copied and fetched, from what was measured here
    Costs {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Which way each rank of a running job fetches large messages from each peer, and what it has
    /// measured
    Paces {
        /// The job, by its name or its launcher's process id (garonne ps); not needed if one job
        /// runs
        #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
        job: Option<job_lookup::JobSelector>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Which way the messages of a rank of a running job go to each peer: rail, addresses,
    /// connections
    Gate {
        /// The rank, on whichever host of the job
        rank: u32,
        /// The job, by its name or its launcher's process id (garonne ps); not needed if one job
        /// runs
        #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
        job: Option<job_lookup::JobSelector>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Whether the communication of each rank of a running job advances while the rank computes,
    /// and if not, why not
    Background {
        /// The job, by its name or its launcher's process id (garonne ps); not needed if one job
        /// runs
        #[arg(add = ArgValueCandidates::new(job_lookup::candidates))]
        job: Option<job_lookup::JobSelector>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// The settings, their values, and where these come from
    Settings {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: &WhyArgs) -> i32 {
    match &args.thing {
        WhyTopic::Binding { n, need, json } => match need {
            Some(text) => binding_by_need(*n, text, *json).unwrap_or_else(|why| super::fail(&why)),
            None => binding(*n, *json),
        },
        WhyTopic::Costs { json } => super::tune::show_kept(*json),
        WhyTopic::Paces { job, json } => {
            let here = |_: &QueryClient, shape: &WorldShape, world_memory: &Segment| {
                paces_of(shape, world_memory, *json)
            };
            of_world(
                (job.as_ref(), "garonne why paces JOB"),
                (RemoteCommand::Paces, *json),
                here,
            )
        }
        WhyTopic::Gate { rank, job, json } => {
            let line = format!("garonne why gate {rank} JOB");
            let here = |client: &QueryClient, shape: &WorldShape, world_memory: &Segment| {
                super::why_peer::show(client, (shape, world_memory), *rank, *json)
            };
            of_world(
                (job.as_ref(), &line),
                (RemoteCommand::Gate(*rank), *json),
                here,
            )
        }
        WhyTopic::Background { job, json } => {
            let here = |_: &QueryClient, shape: &WorldShape, world_memory: &Segment| {
                background_of(shape, world_memory, *json)
            };
            of_world(
                (job.as_ref(), "garonne why background JOB"),
                (RemoteCommand::Background, *json),
                here,
            )
        }
        WhyTopic::Settings { json } => settings(*json),
    }
}

/// Returns what `here` says of the newest world of a running job, or what other hosts say if their
/// ranks are asked for. [`job_lookup::choose`] selects the job.
fn of_world(
    (job, line): (Option<&job_lookup::JobSelector>, &str),
    (page, as_json): (RemoteCommand, bool),
    here: impl FnOnce(&QueryClient, &WorldShape, &Segment) -> i32,
) -> i32 {
    let said = job_lookup::choose(job, line).and_then(|client| {
        let is_here = match page {
            RemoteCommand::Gate(rank) => client.runs_here(rank),
            RemoteCommand::Paces
            | RemoteCommand::Background
            | RemoteCommand::Network
            | RemoteCommand::Map => client.has_ranks_here(),
        };
        match &client.world {
            Some((shape, world_memory)) if is_here => Ok(here(&client, shape, world_memory)),
            Some(_) => remote_command::show(&client, page, as_json),
            None => Err(job_lookup::not_begun(&client)),
        }
    });
    said.unwrap_or_else(|text| super::fail(&text))
}

/// Prints how fast each rank of this host fetches from its peers, by each way (`garonne why
/// paces`).
pub fn paces_of(shape: &WorldShape, world_memory: &Segment, as_json: bool) -> i32 {
    let mut rows = Vec::new();
    for to in 0..shape.size {
        let card = RankBlock::of(world_memory, to);
        let table = (card.protocol_tuner() != 0 && card.pid() != 0)
            .then(|| {
                memory_of(
                    card.pid(),
                    card.protocol_tuner(),
                    protocol_tuners::SHOWN_BYTES,
                )
            })
            .flatten();
        for (from, lengths) in protocol_tuners::read_shown(&table.unwrap_or_default()) {
            rows.extend(
                lengths
                    .into_iter()
                    .map(|(len, known)| (to, from, len, known)),
            );
        }
    }
    if as_json {
        let row = |(to, from, len, known): &(u32, u32, u64, TunerReport)| {
            json!({ "rank": to, "from": from, "bytes": len,
            "ns_per_kb": { "read": known.costs[0], "push": known.costs[1], "share": known.costs[2], "packets": known.costs[3] },
            "best": format!("{:?}", known.preferred).to_lowercase() })
        };
        return super::print_json(&rows.iter().map(row).collect::<Vec<_>>());
    }
    if rows.is_empty() {
        under_way(shape, world_memory)
            .iter()
            .for_each(|line| outln!("{line}"));
        outln!(
            "no rank has received to its end a message from its own host that its sender announced (those are longer than about 16 KB).\nWhat goes by a network, from other hosts or within one (GARONNE_RAILS=shm,tcp), has one way, with no choice to show: garonne why gate N"
        );
        return 0;
    }
    outln!(
        "nanoseconds per kilobyte of messages from this length up to twice as long, as measured by their receivers"
    );
    let mut table = Table::new();
    let ways = WAYS.map(|way| format!("{way:?}").to_lowercase());
    let mut header = vec!["rank".to_owned(), "from".into(), "bytes".into()];
    header.extend(ways);
    header.push("best".into());
    table.load_preset(presets::NOTHING).set_header(header);
    for (to, from, len, known) in rows {
        let mut cells = vec![to.to_string(), from.to_string(), len.to_string()];
        let costs = known.costs.iter();
        cells.extend(costs.map(|pace| pace.map_or("-".into(), |pace| format!("{pace:.1}"))));
        cells.push(format!("{:?}", known.preferred).to_lowercase());
        table.add_row(cells);
    }
    outln!("{}", table.trim_fmt());
    outln!(
        "read: the receiver reads the sender's memory; push: the sender writes; share: both; packets: through a ring, both copying"
    );
    0
}

/// Length from which on senders announce messages, about.
const ANNOUNCED_BYTES: u64 = 16 << 10;

/// The large messages that ranks of this host wait for, a line for each: their rates are known when
/// they have come.
fn under_way(shape: &WorldShape, world_memory: &Segment) -> Vec<String> {
    let line = |rank: u32| {
        let wait = RankBlock::of(world_memory, rank).wait()?;
        let call =
            garonne_job::call_names::name(wait.call).filter(|_| wait.bytes > ANNOUNCED_BYTES)?;
        let peer = match wait.peer {
            0.. => format!(" with rank {} of its communicator", wait.peer),
            _ => String::new(),
        };
        Some(format!(
            "rank {rank} waits in {call} for a message of {} bytes{peer}, which has not come yet: its pace is not known",
            wait.bytes
        ))
    };
    rank_endpoint::local_ranks(world_memory, shape)
        .filter_map(line)
        .collect()
}

/// Prints who advances the communication of the ranks of this host.
pub fn background_of(shape: &WorldShape, world_memory: &Segment, as_json: bool) -> i32 {
    let ranks: Vec<_> = rank_endpoint::local_ranks(world_memory, shape)
        .map(|rank| (rank, RankBlock::of(world_memory, rank).async_progress()))
        .collect();
    if as_json {
        let row = |(rank, (state, turns)): &(u32, (AsyncProgressState, u32))| json!({ "rank": rank, "advances": !matches!(state, AsyncProgressState::Off | AsyncProgressState::Refused(_)), "because": because(*state), "turns": turns });
        return super::print_json(&ranks.iter().map(row).collect::<Vec<_>>());
    }
    for (rank, (state, turns)) in &ranks {
        outln!("rank {rank}: {}; called {turns} times", because(*state));
    }
    0
}

fn because(state: AsyncProgressState) -> String {
    match state {
        AsyncProgressState::Unneeded => {
            "nothing was left open so far that needs hands (a large message or a collective, nonblocking)"
                .into()
        }
        AsyncProgressState::Helper => {
            "a thread of the library advances what is open while the program computes".into()
        }
        AsyncProgressState::Late => {
            "a thread of the library advances what is open once the program has computed for some milliseconds: the ranks leave no core to it"
                .into()
        }
        AsyncProgressState::Off => {
            format!(
                "only calls advance communication: {}=0 switches the rest off",
                ENV_BACKGROUND
            )
        }
        AsyncProgressState::Refused(errno) => format!(
            "only calls advance communication: the system gave no thread ({}); see ulimit -u and the pids limit of the control group",
            std::io::Error::from_raw_os_error(errno)
        ),
    }
}

fn binding(ranks: u32, as_json: bool) -> i32 {
    let machine = Machine::discover();
    let quota = quota::cpu_milli().map(|milli| f64::from(milli) / 1000.0);
    let taken = cpu_claims::claimed(None);
    let placed = cpu_claims::place_ranks(ranks, &Policy::default());
    let sets: Vec<String> = placed.sets.iter().map(ToString::to_string).collect();
    if as_json {
        return super::print_json(&json!({
            "ranks": ranks, "usable_cpus": machine.cpus().to_string(), "cores": machine.cores().len(), "quota_cores": quota,
            "taken_cpus": taken.to_string(), "bound_to": sets, "reason": placed.reason,
        }));
    }
    outln!(
        "usable CPUs        {} ({})",
        machine.cpus(),
        counted(machine.cores().len() as f64, "core")
    );
    outln!(
        "quota              {}",
        quota.map_or("none".into(), |cores| counted(cores, "core"))
    );
    outln!(
        "taken by others    {}",
        if taken.is_empty() {
            "none".into()
        } else {
            taken.to_string()
        }
    );
    let ranks = counted(f64::from(ranks), "rank");
    match sets.is_empty() {
        true => outln!("{ranks:<18} not bound: {}", placed.reason),
        false => outln!(
            "{ranks:<18} bound to CPU {}: {}",
            sets.join(" | "),
            placed.reason
        ),
    }
    0
}

/// Prints where the groups of a job on this host would run that need this, and why there.
fn binding_by_need(ranks: u32, text: &str, as_json: bool) -> Result<i32, String> {
    let need = Need::parse(text).map_err(|why| format!("--need: {why}"))?;
    let groups = need.groups(ranks).map_err(|why| format!("--need: {why}"))?;
    let taken = cpu_claims::claimed(None);
    let machine = NeedMachine::discover(&taken);
    let size = groups.first().map_or(0, ExactSizeIterator::len) as u32;
    let places = resolver::resolve(&need, (groups.len() as u32, size), &machine)
        .map_err(|why| format!("--need: {why}"))?;
    if as_json {
        let row = |(rank, place): (usize, &RankPlace)| json!({ "rank": rank, "group": place.group, "cpus": place.cpus.to_string(), "shares": place.area, "near": place.near });
        let rows: Vec<_> = places.iter().enumerate().map(row).collect();
        return Ok(super::print_json(&rows));
    }
    let mut table = Table::new();
    let header = ["rank", "group", "CPUs", "the group shares", "and is near"];
    table.load_preset(presets::NOTHING).set_header(header);
    for (rank, place) in places.iter().enumerate() {
        table.add_row([
            rank.to_string(),
            place.group.to_string(),
            place.cpus.to_string(),
            place.area.clone(),
            place.near.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    outln!("{}", table.trim_fmt());
    outln!(
        "each group got the smallest part of this host that has what it needs and enough free cores"
    );
    Ok(0)
}

/// A number with its noun.
fn counted(number: f64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1.0 { "" } else { "s" })
}

fn settings(as_json: bool) -> i32 {
    let rows = SETTINGS.map(|(name, default, help)| match std::env::var(name) {
        Ok(value) => (name, value, "environment", help),
        Err(_) => (name, default.to_owned(), "default", help),
    });
    if as_json {
        let rows = rows.map(|(name, value, origin, help)| json!({ "name": name, "value": value, "origin": origin, "help": help }));
        return super::print_json(&rows);
    }
    for (name, value, origin, help) in rows {
        outln!("{name} = {value}  ({origin})  {help}");
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::settings::INTERNAL;

    /// The variables that a source file names as a whole literal.
    fn named(source: &str) -> impl Iterator<Item = &str> {
        source.split('"').filter(|word| {
            word.strip_prefix("GARONNE_").is_some_and(|rest| {
                !rest.is_empty()
                    && rest
                        .bytes()
                        .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
            })
        })
    }

    fn sources(dir: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(dir).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => sources(&path, found),
                path if path.extension().is_some_and(|ending| ending == "rs") => found.push(path),
                _ => {}
            }
        }
    }

    #[test]
    fn every_variable_that_the_code_reads_is_a_setting_or_internal() {
        let crates = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = Vec::new();
        for folder in std::fs::read_dir(crates).unwrap().flatten() {
            for part in std::fs::read_dir(folder.path()).unwrap().flatten() {
                let src = part.path().join("src");
                if src.is_dir() {
                    sources(&src, &mut files);
                }
            }
        }
        let mut seen = 0;
        for file in files {
            let source = std::fs::read_to_string(&file).unwrap();
            for name in named(&source) {
                let known = SETTINGS.iter().any(|(setting, ..)| *setting == name)
                    || INTERNAL.contains(&name)
                    || name.starts_with("GARONNE_TEST_");
                assert!(
                    known,
                    "{name}, which {} names, is neither a setting nor internal",
                    file.display()
                );
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    #[test]
    fn the_defaults_shown_are_those_that_hold() {
        let default = |name: &str| {
            SETTINGS
                .iter()
                .find(|(setting, ..)| *setting == name)
                .unwrap()
                .1
        };
        assert_eq!(default(ENV_BACKGROUND), "1");
        assert_eq!(default(garonne_job::settings::ENV_OFI), "off");
        assert_eq!(default(garonne_job::settings::ENV_RAILS), "shm");
        assert_eq!(
            default(garonne_job::agent_tree::ENV_FAN_OUT),
            garonne_job::limits::FAN_OUT.to_string()
        );
    }
}
