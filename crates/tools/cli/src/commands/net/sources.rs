//! Sources of a graph of the network: files, and what switches say on the wire.

use std::fmt::Display;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use garonne_job::bounded_read;
use garonne_links::lldp_listener::{self, ReceivedFrame};
use garonne_network_graph::lldp::{self, LldpNeighbour};
use garonne_network_graph::measured::{self, MeasuredMatrix};
use garonne_network_graph::{
    GraphError, Link, LinkEnd, NetworkGraph, VertexKind, graph_file, infiniband, slurm,
};
use serde::{Deserialize, Serialize};

use super::{DiscoverArgs, measuring, non_empty};

/// Place of Slurm's file where no SLURM_CONF says another.
const SLURM_DIRECTORY: &str = "/etc/slurm";

/// Link that an interface of a host has, as the neighbour told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct HeardLink {
    interface: String,
    neighbour: String,
    port: String,
    is_host: bool,
    mb_per_s: Option<f64>,
}

/// What a rank that listened prints, in one line.
#[derive(Debug, Serialize, Deserialize)]
struct HostReport {
    rank: usize,
    heard: Vec<HeardLink>,
    failed: Option<String>,
}

/// The graph that all sources together give.
///
/// # Errors
/// A line for the user.
pub fn graph(args: &DiscoverArgs) -> Result<NetworkGraph, String> {
    if args.measure {
        return grouped(&measuring::measure(&args.host, args.launcher.as_deref())?);
    }
    if let Some(path) = &args.matrix {
        let matrix = MeasuredMatrix::read(&bytes(path)?).map_err(wrong(path))?;
        return measured::graph(&matrix).map_err(wrong(path));
    }
    let mut graph = NetworkGraph::new();
    let own_slurm = (!is_any_named(args)).then(slurm_file).flatten();
    if let Some(path) = args.slurm.as_ref().or(own_slurm.as_ref()) {
        let read = slurm::read(&text(path)?).map_err(wrong(path))?;
        merge(&mut graph, read, path.display())?;
    }
    if let Some(path) = &args.ibnetdiscover {
        let read = infiniband::read(&text(path)?).map_err(wrong(path))?;
        merge(&mut graph, read, path.display())?;
    }
    for path in &args.files {
        let read = graph_file::read(&bytes(path)?).map_err(wrong(path))?;
        merge(&mut graph, read, path.display())?;
    }
    if args.lldp {
        merge(&mut graph, heard(args)?, "LLDP")?;
    }
    let missing = "no source of a network is named, and Slurm has no topology.conf here: name --lldp, --slurm, --ibnetdiscover, --file, --matrix or --measure";
    let nothing = match is_any_named(args) || own_slurm.is_some() {
        true => "the sources name no link",
        false => missing,
    };
    non_empty(graph, nothing)
}

fn is_any_named(args: &DiscoverArgs) -> bool {
    args.lldp || args.slurm.is_some() || args.ibnetdiscover.is_some() || !args.files.is_empty()
}

fn grouped(matrix: &MeasuredMatrix) -> Result<NetworkGraph, String> {
    measured::graph(matrix).map_err(|error| error.to_string())
}

/// Slurm's file, if there is one.
fn slurm_file() -> Option<PathBuf> {
    let conf = std::env::var_os("SLURM_CONF").map(PathBuf::from);
    let directory = conf.as_deref().and_then(Path::parent);
    let path = directory
        .unwrap_or(Path::new(SLURM_DIRECTORY))
        .join("topology.conf");
    path.is_file().then_some(path)
}

fn merge(graph: &mut NetworkGraph, more: NetworkGraph, source: impl Display) -> Result<(), String> {
    graph
        .merge(more)
        .map_err(|error| format!("{source} contradicts the other sources: {error}"))
}

fn wrong<E: Display>(path: &Path) -> impl Fn(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    bounded_read::read(path, bounded_read::LIST_BYTES_MAX)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn text(path: &Path) -> Result<String, String> {
    String::from_utf8(bytes(path)?).map_err(|_| format!("{}: it is no text", path.display()))
}

/// What the interfaces of this host, or of all those named, hear.
fn heard(args: &DiscoverArgs) -> Result<NetworkGraph, String> {
    let mut graph = NetworkGraph::new();
    let add = |graph: &mut NetworkGraph, host: &str, kind, links: &[HeardLink]| {
        add_heard(graph, (host, kind), links).map_err(|error| format!("LLDP on {host}: {error}"))
    };
    if args.host.is_empty() {
        let own = || {
            rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned()
        };
        let name = args.name.clone().unwrap_or_else(own);
        let kind = match args.switch {
            true => VertexKind::Switch,
            false => VertexKind::Host,
        };
        add(&mut graph, &name, kind, &listen(args.time)?)?;
        return non_empty(
            graph,
            "no neighbour spoke LLDP on the interfaces of this host",
        );
    }
    for (host, report) in args.host.iter().zip(reports(args)?) {
        if let Some(why) = report.failed {
            return Err(format!("{host}: {why}"));
        }
        add(&mut graph, host, VertexKind::Host, &report.heard)?;
    }
    non_empty(
        graph,
        "no neighbour spoke LLDP on the interfaces of these hosts",
    )
}

/// Adds a host and the links that it heard of.
fn add_heard(
    graph: &mut NetworkGraph,
    (host, kind): (&str, VertexKind),
    links: &[HeardLink],
) -> Result<(), GraphError> {
    graph.add(host, kind)?;
    for heard in links {
        let other = match heard.is_host {
            true => VertexKind::Host,
            false => VertexKind::Switch,
        };
        graph.add(&heard.neighbour, other)?;
        let own = LinkEnd::new(host, Some(heard.interface.clone()));
        let far = LinkEnd::new(&heard.neighbour, Some(heard.port.clone()));
        graph.connect(Link::between(own, far).at_rate(heard.mb_per_s))?;
    }
    Ok(())
}

/// Listens on the interfaces of this host. Who says that it leaves is forgotten.
fn listen(time: Duration) -> Result<Vec<HeardLink>, String> {
    let mut known: Vec<(String, LldpNeighbour)> = Vec::new();
    let mut refused = None;
    let hear = |frame: ReceivedFrame| {
        match lldp::frame(&frame.bytes) {
            Ok(told) => {
                let same = |(interface, other): &(String, LldpNeighbour)| {
                    *interface == frame.interface
                        && (&other.chassis, &other.port) == (&told.chassis, &told.port)
                };
                known.retain(|other| !same(other));
                if told.seconds > 0 {
                    known.push((frame.interface, told));
                }
            }
            Err(why) => refused = Some(format!("a frame on {}: {why}", frame.interface)),
        }
        false
    };
    lldp_listener::listen(&lldp::GROUPS, lldp::ETHERTYPE, time, hear).map_err(|error| {
        match error.kind() {
            ErrorKind::PermissionDenied => "listening to LLDP needs the right to open packet sockets (CAP_NET_RAW): try as root".to_owned(),
            _ => format!("cannot listen to LLDP: {error}"),
        }
    })?;
    if let Some(why) = refused {
        errln!("warning: ignored {why}");
    }
    let link = |(interface, told): (String, LldpNeighbour)| HeardLink {
        mb_per_s: lldp_listener::interface_rate(&interface),
        neighbour: told.name().to_owned(),
        is_host: told.is_host(),
        port: told.port,
        interface,
    };
    Ok(known.into_iter().map(link).collect())
}

/// One of the processes that listen: prints what it heard.
///
/// # Errors
/// A line for the user.
pub fn as_rank(time: Duration) -> Result<i32, String> {
    let rank = std::env::var("GARONNE_RANK").ok();
    let rank = rank.and_then(|rank| rank.parse().ok());
    let rank = rank.ok_or("garonne net starts this by itself")?;
    let (heard, failed) = match listen(time) {
        Ok(heard) => (heard, None),
        Err(why) => (Vec::new(), Some(why)),
    };
    let report = HostReport {
        rank,
        heard,
        failed,
    };
    outln!(
        "{}",
        serde_json::to_string(&report).map_err(|error| error.to_string())?
    );
    Ok(0)
}

/// Starts a process on each host that listens, and collects what they print, in the order of hosts.
fn reports(args: &DiscoverArgs) -> Result<Vec<HostReport>, String> {
    let seconds = format!("{}", args.time.as_secs_f64());
    let words = ["--lldp", "--listening-rank", "--for", &seconds];
    let output = on_each_host(&args.host, args.launcher.as_deref(), &words)?;
    let line = |line: &str| serde_json::from_str(line);
    let all: Result<Vec<HostReport>, _> = output.lines().map(line).collect();
    let mut all = all.map_err(|error| format!("the ranks said something else: {error}"))?;
    all.sort_by_key(|report| report.rank);
    match all.len() == args.host.len() {
        true => Ok(all),
        false => Err(format!(
            "{} of {} hosts answered",
            all.len(),
            args.host.len()
        )),
    }
}

/// Starts this program once on each host, with these words, and returns what was printed.
///
/// # Errors
/// A line for the user.
pub fn on_each_host(
    hosts: &[String],
    launcher: Option<&str>,
    words: &[&str],
) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
    let mut command = Command::new(&program);
    command.args(["run", "--map-by", "node", "-n"]);
    command.arg(hosts.len().to_string());
    // One rank each, also where a host has more cores.
    let each: Vec<String> = hosts.iter().map(|host| format!("{host}:1")).collect();
    command.args(["--host", &each.join(",")]);
    if let Some(launcher) = launcher {
        command.args(["--launcher", launcher]);
    }
    command.arg(&program).args(["net", "discover"]).args(words);
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start a job: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err("the job failed, as it says above".to_owned()),
    }
}
