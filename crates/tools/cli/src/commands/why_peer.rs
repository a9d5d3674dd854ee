//! `garonne why gate N`: which way the messages of one rank go to each peer, and what decides it.

use comfy_table::{Table, presets};
use garonne_engine::schedule::plugin::{DecisionCounts, DecisionKind, counts_bytes, read_counts};
use garonne_ethernet::shown::{self as ethernet, PeerEntry};
use garonne_ethernet::{Carrier, FrameCounts};
use garonne_inspect::query_client::{self, QueryClient};
use garonne_job::agent_messages::HostEndpoint;
use garonne_job::disabled_networks;
use garonne_job::layout::ActiveStrategy;
use garonne_job::layout::{RankBlock, RankEndpoint, WorldShape, rank_endpoint};
use garonne_job::relay_routes;
use garonne_job::settings::ENV_NETWORKS;
use garonne_job::settings::ENV_OFI;
use garonne_job::settings::ENV_RAILS;
use garonne_job::settings::ENV_STRATEGY;
use garonne_job::settings::{ENV_ENCRYPT, ENV_ETHERNET};
use garonne_links::addresses;
use garonne_links::process_memory::memory_of;
use garonne_shm::protocol_tuners;
use garonne_sync::shm::Segment;
use garonne_tcp::connection_table::{self, ConnectionEntry};
use garonne_tcp::{MEMORY, NotUsedReason, StreamNumber};
use garonne_transport::limits::{TCP_EAGER_MAX, TCP_FRAGMENTED_MAX, TCP_MULTIPATH_MIN};
use ipnet::IpNet;
use serde_json::json;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::strategy;
use crate::module_checker::FUNCTIONS;

/// Bandwidth found for the longest messages from a peer of this host: bytes, megabytes per second,
/// and the way.
struct BulkBandwidth {
    bytes: u64,
    mb_per_s: f64,
    way: String,
}

/// Path from the rank to one peer.
struct PeerPath {
    peer: u32,
    node: u32,
    transport: PathTransport,
    /// For a peer of this host, what each of both paths brings, if both are in use.
    both_paths: Vec<ConnectionEntry>,
    /// Number of times that a strategy that was loaded was asked about it.
    answers: Option<[DecisionCounts; 3]>,
}

enum PathTransport {
    Memory(Option<BulkBandwidth>),
    /// Each connection with its way.
    Tcp(Vec<(ConnectionEntry, ConnectionRoute)>),
    Ethernet(EthernetPath),
}

/// Ethernet between two hosts.
struct EthernetPath {
    /// Addresses of the own interface and of the peer's.
    interfaces: ([u8; 6], [u8; 6]),
    /// `None`: nothing was sent there yet, or it is not shown.
    seen: Option<PeerEntry>,
}

impl EthernetPath {
    /// Returns why TCP carries what should go in frames, if it does.
    fn reason(&self) -> Option<String> {
        let seen = self.seen.as_ref()?;
        match seen.carrier {
            Carrier::Tcp => Some("no frames arrive, so TCP carries them".to_owned()),
            Carrier::Frames if seen.receives == 0 => {
                Some("the peer sends by TCP, since it gets no frames through".to_owned())
            }
            Carrier::Frames => None,
        }
    }
}

/// Route of a connection between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionRoute {
    /// No host.
    Straight,
    /// This node passes it on.
    Through(u32),
    /// The other end has none of the addresses that the peer's host has named.
    Unknown,
}

/// Paths from one rank to its peers, why none of them uses libfabric, if there is one reason, and
/// whether what goes to other hosts is encrypted.
struct PeerPaths {
    peers: Vec<PeerPath>,
    no_fabric: Option<NotUsedReason>,
    encrypted: bool,
    /// Counts of Ethernet frames, where the rank uses them.
    frames: Option<FrameCounts>,
    /// Which strategy the rank follows, if it says so.
    followed: Option<ActiveStrategy>,
}

/// Time that a connection whose rate the transport does not measure, since there is no other to
/// compare with, is watched for it.
const WATCHED_FOR: Duration = Duration::from_millis(250);

/// Why there is nothing to show of a rank here.
pub fn refusal((shape, world_memory): (&WorldShape, &Segment), rank: u32) -> Option<String> {
    match () {
        () if rank >= shape.size => Some(format!("no rank {rank}: the job has {}", shape.size)),
        () if !rank_endpoint::is_local(world_memory, shape, rank) => {
            Some(format!("no rank {rank} runs here"))
        }
        () if RankBlock::of(world_memory, rank).pid() == 0 => {
            Some(format!("rank {rank} has not called MPI_Init yet"))
        }
        () => None,
    }
}

/// Prints the paths from a rank of this host to its peers.
pub fn show(
    client: &QueryClient,
    (shape, world_memory): (&WorldShape, &Segment),
    rank: u32,
    as_json: bool,
) -> i32 {
    if let Some(text) = refusal((shape, world_memory), rank) {
        return super::fail(&text);
    }
    // Without them all look as if they came straight from their hosts.
    let places = query_client::host_endpoints(client).unwrap_or_default();
    let gates = gates((shape, world_memory), &places, rank);
    match as_json {
        true => super::print_json(
            &gates
                .peers
                .iter()
                .map(|gate| peer_json(gate, &gates))
                .collect::<Vec<_>>(),
        ),
        false => print(shape, world_memory, rank, &gates),
    }
}

/// Finds the route by which a connection with a rank of node `peer` has come to this host. The
/// address at its other end tells: what is relayed comes from the relay.
fn way_by_address(
    places: &[HostEndpoint],
    (own, peer): (u32, u32),
    other: IpAddr,
) -> ConnectionRoute {
    let Some(place) = places.get(peer as usize) else {
        return ConnectionRoute::Straight;
    };
    if place.addresses.contains(&other) {
        return ConnectionRoute::Straight;
    }
    let is_between = |(node, place): &(u32, &HostEndpoint)| {
        *node != own && *node != peer && !other.is_loopback() && place.addresses.contains(&other)
    };
    let mut between = (0..).zip(places).filter(is_between);
    match (between.next(), between.next()) {
        (Some((node, _)), None) => ConnectionRoute::Through(node),
        _ => ConnectionRoute::Unknown,
    }
}

fn gates(
    (shape, world_memory): (&WorldShape, &Segment),
    places: &[HostEndpoint],
    rank: u32,
) -> PeerPaths {
    let card = RankBlock::of(world_memory, rank);
    let followed = card.strategy();
    let table = |address: u64, len: usize| {
        let table = (address != 0).then(|| memory_of(card.pid(), address, len));
        table.flatten().unwrap_or_default()
    };
    let links = table(card.remote_links(), connection_table::SHOWN_BYTES);
    let (no_fabric, sealed) = (
        connection_table::read_unused(&links),
        connection_table::read_sealed(&links),
    );
    let links = with_rates(connection_table::read_shown(&links), || {
        connection_table::read_shown(&table(card.remote_links(), connection_table::SHOWN_BYTES))
    });
    let ways = relay_routes::read(world_memory);
    let passage = |seen: &ConnectionEntry, node: u32| {
        let way = ways
            .iter()
            .find(|way| way.to == node && way.port == seen.ends.1.port());
        match way {
            Some(way) => ConnectionRoute::Through(way.via),
            // It has not been opened yet.
            None if seen.opened == 0 => ConnectionRoute::Straight,
            None => way_by_address(places, (shape.node, node), seen.ends.1.ip()),
        }
    };
    let answers = table(
        followed.map_or(0, ActiveStrategy::answers),
        counts_bytes(shape.size),
    );
    let costs =
        protocol_tuners::read_shown(&table(card.protocol_tuner(), protocol_tuners::SHOWN_BYTES));
    let ethernet = ethernet::read_shown(&table(card.ethernet_peers(), ethernet::SHOWN_BYTES));
    let frames = (card.ethernet_peers() != 0).then_some(ethernet.0);
    let interface = |node: u32| places.get(node as usize)?.ethernet;
    let of = |peer: u32| {
        let node = RankEndpoint::of(world_memory, shape, peer).node();
        let over = match node == shape.node {
            true => PathTransport::Memory(costs.iter().find(|(from, _)| *from == peer).and_then(
                |(_, known)| {
                    let (bytes, known) = known.last()?;
                    let pace = known
                        .costs
                        .iter()
                        .flatten()
                        .copied()
                        .min_by(f64::total_cmp)?;
                    Some(BulkBandwidth {
                        bytes: *bytes,
                        // Rates are nanoseconds for 1024 bytes.
                        mb_per_s: 1024.0 * 1000.0 / pace,
                        way: format!("{:?}", known.preferred).to_lowercase(),
                    })
                },
            )),
            false if let (Some(own), Some(other)) = (interface(shape.node), interface(node)) => {
                PathTransport::Ethernet(EthernetPath {
                    interfaces: (own, other),
                    seen: ethernet.1.iter().find(|seen| seen.peer == peer).copied(),
                })
            }
            false => {
                let of_peer = links.iter().filter(|seen| seen.peer == peer);
                PathTransport::Tcp(
                    of_peer
                        .map(|seen| (seen.clone(), passage(seen, node)))
                        .collect(),
                )
            }
        };
        let near = node == shape.node;
        PeerPath {
            peer,
            node,
            transport: over,
            both_paths: links
                .iter()
                .filter(|seen| near && seen.peer == peer)
                .cloned()
                .collect(),
            answers: read_counts(&answers, peer),
        }
    };
    PeerPaths {
        peers: (0..shape.size)
            .filter(|peer| *peer != rank)
            .map(of)
            .collect(),
        no_fabric,
        encrypted: sealed,
        frames,
        followed,
    }
}

/// Adds rates to connections. Those that the transport does not measure get the rate at which they
/// bring data until `again` looks at them once more.
fn with_rates(
    mut links: Vec<ConnectionEntry>,
    again: impl FnOnce() -> Vec<ConnectionEntry>,
) -> Vec<ConnectionEntry> {
    let unknown = |seen: &ConnectionEntry| seen.open && seen.rate == 0 && seen.moved > 0;
    if !links.iter().any(unknown) {
        return links;
    }
    let begun = Instant::now();
    std::thread::sleep(WATCHED_FOR);
    let later = again();
    let took = begun.elapsed().as_secs_f64();
    for seen in links.iter_mut().filter(|seen| unknown(seen)) {
        let same =
            |other: &&ConnectionEntry| (other.peer, other.stream) == (seen.peer, seen.stream);
        if let Some(now) = later.iter().find(same) {
            seen.rate = (f64::from(now.moved.saturating_sub(seen.moved)) / took) as u32;
            seen.moved = now.moved;
        }
    }
    links
}

/// The networks of this host on which a rank has no connection, and why not.
fn idle(gates: &[PeerPath], world_memory: &Segment) -> Vec<String> {
    let drained = disabled_networks::read(world_memory);
    let links = || {
        gates.iter().flat_map(|gate| match &gate.transport {
            PathTransport::Tcp(links) => &links[..],
            PathTransport::Memory(_) | PathTransport::Ethernet(_) => &[],
        })
    };
    let is_used =
        |network: &IpNet| links().any(|(seen, _)| seen.open && network.contains(&seen.ends.0.ip()));
    let all = addresses::networks();
    let beside = |name: &str| {
        all.iter()
            .find(|(other, network)| other == name && is_used(network))
    };
    all.iter()
        .filter(|(_, network)| !is_used(network))
        .map(|(name, network)| {
            let why = match () {
                () if disabled_networks::is_within(&drained, network) => "left alone (garonne network add uses it again)".to_owned(),
                () if !links().any(|(seen, _)| seen.open) => "nothing was sent to other hosts yet".to_owned(),
                () if let Some((_, used)) = beside(name) => {
                    format!("its interface is used already, by the address in {used}")
                }
                () => format!(
                    "no peer on another host has an address there, or none has sent a message of {} KB or more ({ENV_NETWORKS} may forbid it, too)",
                    TCP_MULTIPATH_MIN / 1024
                ),
            };
            format!("{network} ({name}): no connection: {why}")
        })
        .collect()
}

/// Why a connection that stands beside an endpoint of libfabric has none: for people.
fn reasons((here, there): (Option<NotUsedReason>, Option<NotUsedReason>)) -> Option<String> {
    match (here, there) {
        (Some(here), _) => Some(here.name().to_owned()),
        (None, Some(there)) => Some(format!("on the other side: {}", there.name())),
        (None, None) => None,
    }
}

/// Names the path to a peer of this host that the connection belongs to.
fn rail_of(seen: &ConnectionEntry) -> &'static str {
    match seen.stream {
        StreamNumber::Bulk(MEMORY) => "shared memory",
        _ => "TCP",
    }
}

/// Names in a word what the connection is for.
fn purpose(seen: &ConnectionEntry) -> &'static str {
    match seen.stream {
        StreamNumber::Small => "packets",
        stream if stream.is_fabric() => "libfabric",
        StreamNumber::Bulk(_) => "bulk",
    }
}

fn peer_json(gate: &PeerPath, gates: &PeerPaths) -> serde_json::Value {
    let mut told = route_json(gate, gates);
    told["strategy"] = json!(gate.answers.map(|answers| {
        let of = |question: DecisionKind| {
            let DecisionCounts { asked, accepted, refused } = answers[question as usize];
            json!({ "asked": asked, "accepted": accepted, "refused": refused })
        };
        json!({ "may_wait": of(DecisionKind::Waiting), "order": of(DecisionKind::Order), "piece": of(DecisionKind::Piece) })
    }));
    told["built_in"] = gates.followed.map_or(serde_json::Value::Null, |followed| {
        strategy::json_of(followed.built_in())
    });
    told
}

/// Returns an interface's address as people write it.
fn mac(address: &[u8; 6]) -> String {
    address.map(|byte| format!("{byte:02x}")).join(":")
}

fn route_json(gate: &PeerPath, gates: &PeerPaths) -> serde_json::Value {
    match &gate.transport {
        PathTransport::Memory(fetched) => json!({
            "peer": gate.peer, "node": gate.node, "over": "shared memory",
            "large_data": gate.both_paths.iter().map(|seen| json!({
                "over": rail_of(seen), "open": seen.open, "opened": seen.opened, "mb_per_s": seen.rate, "mb": seen.moved,
            })).collect::<Vec<_>>(),
            "fetched": fetched.as_ref().map(|one| json!({ "bytes": one.bytes, "mb_per_s": one.mb_per_s, "way": one.way })),
        }),
        PathTransport::Ethernet(path) => json!({
            "peer": gate.peer, "node": gate.node, "over": "Ethernet", "driver": "AF_PACKET",
            "from": mac(&path.interfaces.0), "to": mac(&path.interfaces.1),
            "carried_by": path.seen.map(|seen| match seen.carrier { Carrier::Frames => "frames", Carrier::Tcp => "TCP" }), "why": path.reason(),
            "frame_bytes": path.seen.map(|seen| seen.sends), "peer_frame_bytes": path.seen.map(|seen| seen.receives), "sent_again": path.seen.map(|seen| seen.repeated),
            "frames": gates.frames.map(|counts| json!({
                "sent": counts.sent, "received": counts.received, "malformed": counts.malformed, "forged": counts.forged, "came_again": counts.again, "no_room": counts.no_room,
                "dropped": counts.dropped, "blocks_asked": counts.asks, "blocks_asked_again": counts.asks_again, "given_to_tcp": counts.by_tcp, "sleeps": counts.sleeps, "waking": counts.waking,
            })),
        }),
        PathTransport::Tcp(links) => json!({
            "peer": gate.peer, "node": gate.node, "over": "TCP", "no_libfabric": gates.no_fabric.map(NotUsedReason::name), "encrypted": gates.encrypted,
            "announced_above_bytes": TCP_FRAGMENTED_MAX, "split_from_bytes": TCP_MULTIPATH_MIN,
            "connections": links.iter().map(|(seen, passage)| json!({
                "for": purpose(seen), "provider": (!seen.provider.is_empty()).then_some(&seen.provider), "unused": reasons(seen.unused),
                "from": seen.ends.0.to_string(), "to": seen.ends.1.to_string(),
                "straight": *passage == ConnectionRoute::Straight, "through_node": match passage { ConnectionRoute::Through(node) => Some(node), _ => None }, "open": seen.open, "opened": seen.opened, "small_segments": seen.brief, "mb_per_s": seen.rate, "mb": seen.moved,
                "tuned_mb_per_s": (seen.tuned > 0).then_some(seen.tuned), "round_trip_us": (seen.round_trip_us > 0).then_some(seen.round_trip_us), "format": (seen.version > 0).then_some(seen.version),
            })).collect::<Vec<_>>(),
        }),
    }
}

fn print(shape: &WorldShape, world_memory: &Segment, rank: u32, all: &PeerPaths) -> i32 {
    let PeerPaths {
        peers: gates,
        no_fabric,
        encrypted: sealed,
        frames,
        followed,
    } = all;
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_header(["peer", "node", "over", ""]);
    let (mut far, mut by_ethernet, mut strangers) = (false, false, 0);
    for gate in gates {
        let (over, what) = match &gate.transport {
            PathTransport::Memory(Some(one)) => (
                "shared memory",
                format!(
                    "fetches messages of {} KB at {:.0} MB/s ({})",
                    one.bytes / 1024,
                    one.mb_per_s,
                    one.way
                ),
            ),
            PathTransport::Memory(None) if !gate.both_paths.is_empty() => (
                "shared memory",
                format!("from half a megabyte on together with TCP ({ENV_RAILS})"),
            ),
            PathTransport::Memory(None) => {
                ("shared memory", "no large message fetched yet".to_owned())
            }
            PathTransport::Ethernet(path) => {
                by_ethernet = true;
                ("Ethernet", ethernet_text(path))
            }
            PathTransport::Tcp(links) => {
                far = true;
                strangers += usize::from(links.is_empty());
                for (seen, passage) in links {
                    table.add_row([
                        gate.peer.to_string(),
                        gate.node.to_string(),
                        "TCP".to_owned(),
                        connection(seen, *passage),
                    ]);
                }
                continue;
            }
        };
        table.add_row([
            gate.peer.to_string(),
            gate.node.to_string(),
            over.to_owned(),
            what,
        ]);
        for seen in &gate.both_paths {
            table.add_row([
                gate.peer.to_string(),
                gate.node.to_string(),
                rail_of(seen).to_owned(),
                brought_text(seen),
            ]);
        }
    }
    outln!("rank {rank}, on node {} of {}", shape.node, shape.nodes);
    outln!("{}", table.trim_fmt());
    print_answers(gates);
    print_strategy(*followed);
    if strangers > 0 {
        outln!(
            "{strangers} more on other hosts, not spoken to yet or not shown (a rank shows {} connections)",
            garonne_transport::limits::TCP_SHOWN
        );
    }
    outln!(
        "why: peers of one host share its memory, which no network is quicker than; others are reached by TCP, large data also by the fast networks that libfabric finds"
    );
    if let Some(counts) = frames {
        outln!("Ethernet: {}", counts_text(counts));
    }
    if by_ethernet {
        outln!(
            "Ethernet: asked for ({ENV_ETHERNET}), by packet sockets; messages of more than {} KB are announced, and their receivers ask for blocks",
            TCP_EAGER_MAX / 1024
        );
    }
    outln!("shared memory: which way long messages are fetched is measured (garonne why paces)");
    if far {
        match no_fabric {
            Some(why) => outln!(
                "libfabric: not used: {} ({ENV_OFI}, garonne doctor)",
                why.name()
            ),
            None => outln!(
                "libfabric: asked for ways when large data come; each takes what it was measured to give ({ENV_OFI})"
            ),
        }
        for line in idle(gates, world_memory) {
            outln!("{line}");
        }
        outln!(
            "TCP: messages of more than {} KB (shorter ones, too, where the receiver has no room) are announced, and fetched by their receivers; from {} KB on they take every network that both hosts are on",
            TCP_FRAGMENTED_MAX / 1024,
            TCP_MULTIPATH_MIN / 1024
        );
        outln!(
            "TCP: connections are {} ({ENV_ENCRYPT})",
            if *sealed {
                "encrypted"
            } else {
                "not encrypted"
            }
        );
        outln!("TCP: how long messages take, garonne ping measures");
    }
    0
}

/// Says what is known of a path by Ethernet.
fn ethernet_text(path: &EthernetPath) -> String {
    let (own, other) = &path.interfaces;
    let ends = format!("frames from {} to {}", mac(own), mac(other));
    let Some(seen) = &path.seen else {
        return format!("{ends}, none sent yet");
    };
    let lengths = format!("up to {} bytes", seen.sends);
    let again = match seen.repeated {
        0 => String::new(),
        times => format!("; {times} sent again"),
    };
    match path.reason() {
        Some(why) => format!("{ends}: {why}{again}"),
        None => format!("{ends}, {lengths}{again}"),
    }
}

/// Says how many frames came and went, and what became of those that were not taken.
fn counts_text(counts: &FrameCounts) -> String {
    let mut text = format!("{} frames sent, {} taken", counts.sent, counts.received);
    for (count, what) in [
        (counts.malformed, "of no such format dropped"),
        (counts.forged, "without a right tag dropped"),
        (counts.again, "had come before"),
        (counts.dropped, "found no room here"),
        (counts.no_room, "found no room to leave"),
        (counts.by_tcp, "given to TCP"),
    ] {
        if count > 0 {
            text += &format!(", {count} {what}");
        }
    }
    text
}

/// Says what one of both paths to a peer of this host has brought.
fn brought_text(seen: &ConnectionEntry) -> String {
    let state = if seen.open { "" } else { ", closed" };
    let again = match seen.opened.saturating_sub(1) {
        0 => String::new(),
        times => format!("; opened again {times} times"),
    };
    let rate = match seen.rate {
        0 => String::new(),
        rate => format!(", at {rate} MB/s last"),
    };
    format!("large data{state}{again}; brought {} MB{rate}", seen.moved)
}

/// Which strategy makes which decision.
fn print_strategy(followed: Option<ActiveStrategy>) {
    let Some(followed) = followed else { return };
    let who = match followed {
        ActiveStrategy::BuiltIn(_) => "",
        ActiveStrategy::Module(_) => "a module is asked first, what it leaves decides ",
    };
    outln!(
        "strategy: {who}{} ({ENV_STRATEGY}): {}",
        followed.built_in().name(),
        strategy::summary(followed.built_in())
    );
}

/// Prints how often a loaded strategy was asked about each peer.
fn print_answers(gates: &[PeerPath]) {
    for gate in gates {
        let answers = gate.answers.iter().flatten().zip(FUNCTIONS);
        let asked: Vec<String> = answers
            .filter(|(counts, _)| counts.asked > 0)
            .map(|(counts, name)| {
                let left = counts
                    .asked
                    .saturating_sub(counts.accepted + counts.refused);
                format!(
                    "{name} {} asked, {} accepted, {} refused, {left} left to the built-in one",
                    counts.asked, counts.accepted, counts.refused
                )
            })
            .collect();
        if !asked.is_empty() {
            outln!("strategy for {}: {}", gate.peer, asked.join("; "));
        }
    }
}

fn connection(seen: &ConnectionEntry, passage: ConnectionRoute) -> String {
    if seen.stream.is_fabric() && seen.opened == 0 {
        return match reasons(seen.unused) {
            Some(why) => format!("no bulk data by libfabric: {why}"),
            None => "bulk data by libfabric: it is being opened".to_owned(),
        };
    }
    let what = match purpose(seen) {
        "bulk" => "bulk data".to_owned(),
        "libfabric" => match reasons(seen.unused) {
            Some(why) => format!("no bulk data by libfabric: {why}"),
            None => format!("keys of bulk data by libfabric {}", seen.provider),
        },
        other => other.to_owned(),
    };
    let state = if seen.open { "" } else { ", closed" };
    let again = match seen.opened.saturating_sub(1) {
        0 => String::new(),
        times => format!("; opened again {times} times"),
    };
    let mut brought = match (seen.rate, seen.moved) {
        (0, 0) => String::new(),
        (0, moved) => format!("; brought {moved} MB"),
        (rate, moved) => format!("; brought {moved} MB, at {rate} MB/s last"),
    };
    if seen.tuned > 0 {
        let since = if seen.rate == 0 {
            ", not measured since"
        } else {
            ""
        };
        brought += &format!("; began with {} MB/s from garonne tune{since}", seen.tuned);
    }
    if seen.brief {
        brought += "; with small segments: longer ones do not arrive";
    }
    let through = match passage {
        ConnectionRoute::Straight => String::new(),
        ConnectionRoute::Through(node) => format!(" (node {node} passes it on)"),
        ConnectionRoute::Unknown => {
            " (no address that the peer's host has named: passed on, or translated)".to_owned()
        }
    };
    let format = match seen.version {
        0 => String::new(),
        version => format!("; format {version}"),
    };
    let round_trip = match seen.round_trip_us {
        0 => String::new(),
        us => format!("; round trip {us} µs when it was opened"),
    };
    format!(
        "{} to {}{through}: {what}{state}{again}{brought}{format}{round_trip}",
        seen.ends.0, seen.ends.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_passes_a_connection_on_is_known_by_its_address_where_one_host_alone_has_that() {
        let place = |addresses: &[&str]| HostEndpoint {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ..HostEndpoint::default()
        };
        // As the second host sees them: its own for itself alone, and those of the others.
        let places = [
            place(&["10.0.0.1", "10.0.1.1", "192.168.0.1"]),
            place(&["10.0.0.2", "127.0.0.1"]),
            place(&["10.0.1.2"]),
            place(&["10.0.0.4", "192.168.0.1"]),
        ];
        let way = |peer, other: &str| way_by_address(&places, (1, peer), other.parse().unwrap());
        assert_eq!(way(2, "10.0.0.1"), ConnectionRoute::Through(0));
        assert_eq!(way(0, "10.0.0.1"), ConnectionRoute::Straight);
        assert_eq!(way(3, "192.168.0.1"), ConnectionRoute::Straight);
        for unknown in ["10.0.0.9", "192.168.0.1", "10.0.0.2", "127.0.0.1"] {
            assert_eq!(way(2, unknown), ConnectionRoute::Unknown, "{unknown}");
        }
        assert_eq!(way(9, "10.0.0.1"), ConnectionRoute::Straight);
    }
}
