//! Connections of this process to processes of other worlds: of jobs that it starts, that started
//! it, or that meet it at a port.
//!
//! [`WorldConnections`] implements the MPI layer's [`WorldConnector`]. Each connection of two
//! groups is a bridge: a TCP transport of its own whose world is the union of both groups. Its
//! remote processes have numbers after all that the engine knows. The roots exchange the cards of
//! their groups over a sealed channel, whose secret stands in the name of the port. Dropping a
//! bridge closes all of its sockets.

use crate::published_names::{self, PublishedNames};
use crate::rank::RankHost;
use garonne_engine::api::Peer;
use garonne_job::limits;
use garonne_links::addresses;
use garonne_multi::Bridge;
use garonne_progress::world_connector::{
    BRIDGE_SECRET, BridgePlan, BridgedPeers, ConnectError, ConnectFault, ConnectResult,
    SpawnProgram, SpawnedJob, WorldConnector,
};
use garonne_sync::mutex::lock;
use garonne_tcp::agent_channel::{
    self, AgentChannel, ChannelConnect, ConnectOutcome, PendingChannels,
};
use garonne_tcp::{LocalIdentity, PeerDirectory, ProcessId, Secret, TcpTransport};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

/// Environment variable of a started job's agent: the port that its processes connect to.
pub const ENV_SPAWN: &str = garonne_job::settings::ENV_SPAWN;
/// Environment variable of a started process: the same.
pub const ENV_PARENT: &str = garonne_job::settings::ENV_PARENT;

/// First word of every port's name: library and version of the format.
const PORT_MAGIC: &str = "garonne1";
/// Longest name of a port, so that it fits the buffers of all ABIs.
const PORT_NAME_MAX: usize = 250;

fn other(text: impl Into<String>) -> ConnectError {
    ConnectError::new(ConnectFault::Other, text)
}

fn bad_port(name: &str) -> ConnectError {
    let text = format!("{name:?} is not the name of a port that MPI_Open_port gave");
    ConnectError::new(ConnectFault::Port, text)
}

/// Place where a process listens: its network, its port, its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Endpoint {
    home: u64,
    port: u16,
    addresses: Vec<IpAddr>,
}

impl Endpoint {
    fn of(listener: &TcpListener) -> ConnectResult<Self> {
        let address = listener.local_addr();
        let address = address.map_err(|error| other(format!("cannot tell a port: {error}")))?;
        Ok(Self {
            home: addresses::home().unwrap_or(0),
            port: address.port(),
            addresses: addresses::own(),
        })
    }

    /// Returns the addresses to call from this process, the best first.
    fn to_call(&self) -> Vec<SocketAddr> {
        let near = addresses::home().is_ok_and(|home| home == self.home);
        let of = |address: &&IpAddr| address.is_loopback() == near;
        let mut all: Vec<_> = self.addresses.iter().filter(of).collect();
        if all.is_empty() && near {
            // Only then: an address that is gone meanwhile answers nothing, where this host refuses
            // calls to a process that has died.
            all.extend(&self.addresses);
        }
        let all = all.into_iter();
        all.map(|address| SocketAddr::new(*address, self.port))
            .collect()
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.home.to_le_bytes());
        bytes.extend(self.port.to_le_bytes());
        bytes.push(self.addresses.len().min(255) as u8);
        for address in self.addresses.iter().take(255) {
            let six = match address {
                IpAddr::V4(four) => four.to_ipv6_mapped(),
                IpAddr::V6(six) => *six,
            };
            bytes.extend(six.octets());
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (home, rest) = bytes.split_first_chunk()?;
        let (port, rest) = rest.split_first_chunk()?;
        let (count, rest) = rest.split_first()?;
        if rest.len() != usize::from(*count) * 16 {
            return None;
        }
        let addresses = rest.chunks_exact(16).filter_map(|bytes| {
            let six: [u8; 16] = bytes.try_into().ok()?;
            Some(IpAddr::from(six).to_canonical())
        });
        Some(Self {
            home: u64::from_le_bytes(*home),
            port: u16::from_le_bytes(*port),
            addresses: addresses.collect(),
        })
    }
}

/// Identity of a process: job, world, rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct WorldProcess {
    job: [u8; 16],
    world: u32,
    rank: u32,
}

const IDENTITY: usize = 24;

impl WorldProcess {
    fn encode(&self) -> Vec<u8> {
        let words = [self.world.to_le_bytes(), self.rank.to_le_bytes()].concat();
        [&self.job[..], &words].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (job, rest) = bytes.split_first_chunk()?;
        let (world, rest) = rest.split_first_chunk()?;
        Some(Self {
            job: *job,
            world: u32::from_le_bytes(*world),
            rank: u32::from_le_bytes(*rest.first_chunk()?),
        })
    }
}

/// Name of a port in its parts.
#[derive(Debug)]
struct PortName {
    place: Endpoint,
    key: [u8; BRIDGE_SECRET],
}

impl PortName {
    fn encode(&self) -> String {
        let key: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        let Endpoint { home, port, .. } = self.place;
        let mut name = format!("{PORT_MAGIC}:{home:x}:{port}:{key}:");
        // The host's own address comes last, and is needed.
        let mut best: Vec<_> = self.place.addresses.iter().rev().take(1).collect();
        best.extend(self.place.addresses.iter().rev().skip(1).rev());
        for address in best {
            let word = format!("{address},");
            if name.len() + word.len() <= PORT_NAME_MAX {
                name += &word;
            }
        }
        name.truncate(name.trim_end_matches(',').len());
        name
    }

    fn decode(name: &str) -> Option<Self> {
        let mut words = name.splitn(5, ':');
        if words.next()? != PORT_MAGIC {
            return None;
        }
        let home = u64::from_str_radix(words.next()?, 16).ok()?;
        let port = words.next()?.parse().ok()?;
        let hex = words.next()?;
        let mut key = [0; BRIDGE_SECRET];
        if hex.len() != 2 * key.len() || !hex.is_ascii() {
            return None;
        }
        for (byte, at) in key.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&hex[at..at + 2], 16).ok()?;
        }
        let addresses = words.next()?.split(',');
        let addresses: Option<Vec<IpAddr>> = addresses.map(|word| word.parse().ok()).collect();
        let place = Endpoint {
            home,
            port,
            addresses: addresses?,
        };
        Some(Self { place, key })
    }

    /// Identity that a root brings to a meeting at this port.
    fn identity(&self, side: u32) -> LocalIdentity {
        let secret = Secret::from_bytes(&self.key);
        let mut job = [0; 16];
        job.copy_from_slice(&self.key[..16]);
        // The first half would tell of the key in clear.
        job.iter_mut()
            .zip(&self.key[16..])
            .for_each(|(a, b)| *a ^= b);
        agent_channel::identity(secret, job, side)
    }
}

/// A port of this process: those who called and were not accepted yet.
struct OpenPort {
    calls: PendingChannels,
    /// Places of callers that have not proved who they are.
    places: Vec<usize>,
}

/// Processes of a bridge.
struct BridgeDirectory {
    places: Vec<Endpoint>,
}

impl PeerDirectory for BridgeDirectory {
    fn size(&self) -> u32 {
        self.places.len() as u32
    }

    fn incarnation(&self, _: Peer) -> u32 {
        0
    }

    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        let place = self.places.get(peer as usize);
        place.map_or_else(Vec::new, Endpoint::to_call)
    }

    fn is_gone(&self, _: Peer) -> bool {
        // A process that is gone refuses calls.
        false
    }
}

/// Side of a root that accepts, and of one that connects.
const ACCEPTS: u32 = 0;
const CONNECTS: u32 = 1;

/// Connections of one process to other worlds.
///
/// Owned by the rank, and shared with the MPI layer. See [`WorldConnector`] for the order of calls.
pub struct WorldConnections {
    host: Arc<RankHost>,
    me: WorldProcess,
    world_size: u32,
    /// A launcher started this process.
    is_launched: bool,
    /// The job survives the deaths of its processes, and those that it starts do, too.
    survives: bool,
    ports: Mutex<HashMap<String, OpenPort>>,
    prepared: Mutex<Preparations>,
    names: PublishedNames,
}

/// Listeners of bridges that are being made.
#[derive(Default)]
struct Preparations {
    next: u64,
    listeners: HashMap<u64, TcpListener>,
}

impl WorldConnections {
    /// Connections of the process with this engine. `job`: identity of its job, number of its
    /// world; `None`: nobody started it. `survives`: the job survives deaths.
    pub fn new(
        host: Arc<RankHost>,
        job: Option<([u8; 16], u32)>,
        survives: bool,
    ) -> ConnectResult<Self> {
        use garonne_progress::messaging::Messaging;
        let is_launched = job.is_some();
        let (job, world) = match job {
            Some(job) => job,
            None => {
                let drawn = draw()?;
                let mut job = [0; 16];
                job.copy_from_slice(&drawn[..16]);
                (job, 0)
            }
        };
        let me = WorldProcess {
            job,
            world,
            rank: host.me(),
        };
        Ok(Self {
            world_size: host.world_size(),
            host,
            me,
            is_launched,
            survives,
            ports: Mutex::default(),
            prepared: Mutex::default(),
            names: PublishedNames::default(),
        })
    }
}

fn draw() -> ConnectResult<[u8; BRIDGE_SECRET]> {
    let secret = Secret::generate();
    let secret = secret.map_err(|error| other(format!("no random bytes: {error:?}")))?;
    Ok(*secret.bytes())
}

fn listen() -> ConnectResult<TcpListener> {
    let any = [
        SocketAddr::from(([0u16; 8], 0)),
        SocketAddr::from(([0u8; 4], 0)),
    ];
    let listener = garonne_tcp::listen(any[0]).or_else(|_| garonne_tcp::listen(any[1]));
    listener.map_err(|error| other(format!("cannot listen for other processes: {error:?}")))
}

/// Exchanges one message with the other root.
fn swap(
    mut channel: AgentChannel,
    message: &[u8],
    wait: &mut dyn FnMut() -> ConnectResult<()>,
) -> ConnectResult<Vec<u8>> {
    let lost = |_| {
        ConnectError::new(
            ConnectFault::Port,
            "the other root ended while both sides connected",
        )
    };
    channel.send(message).map_err(lost)?;
    let mut came = None;
    // Both say that they have the other's message: who leaves first must not cut the other off.
    let mut confirmed = false;
    loop {
        let _ = channel.push();
        match channel.receive() {
            Ok(Some(message)) if came.is_none() => {
                came = Some(message);
                channel.send(&[]).map_err(lost)?;
            }
            Ok(Some(_)) => confirmed = true,
            Ok(None) => {}
            // The other side has all of this side's message, or it would not have answered.
            Err(_) if came.is_some() => confirmed = true,
            Err(error) => return Err(lost(error)),
        }
        if confirmed && let Some(came) = came.take_if(|_| channel.waiting() == 0 || confirmed) {
            let _ = channel.push();
            return Ok(came);
        }
        wait()?;
    }
}

impl WorldConnector for WorldConnections {
    fn open_port(&self) -> ConnectResult<String> {
        let listener = listen()?;
        let port = PortName {
            place: Endpoint::of(&listener)?,
            key: draw()?,
        };
        let name = port.encode();
        let calls = PendingChannels::new(port.identity(ACCEPTS), listener);
        let places = Vec::new();
        lock(&self.ports).insert(name.clone(), OpenPort { calls, places });
        Ok(name)
    }

    fn close_port(&self, name: &str) -> ConnectResult<()> {
        let closed = lock(&self.ports).remove(name);
        closed.map(drop).ok_or_else(|| bad_port(name))
    }

    fn accept(
        &self,
        name: &str,
        message: &[u8],
        wait: &mut dyn FnMut() -> ConnectResult<()>,
    ) -> ConnectResult<Vec<u8>> {
        let caller = loop {
            // The lock is not held while it waits: several threads may accept at once.
            let mut ports = lock(&self.ports);
            let port = ports.get_mut(name).ok_or_else(|| bad_port(name))?;
            let places = &mut port.places;
            port.calls.open(&mut |place, _| {
                places.push(place);
                true
            });
            port.places.sort_unstable();
            port.places.dedup();
            let calls = &mut port.calls;
            let mut places = port.places.iter();
            let found = places.find_map(|place| {
                let (_, channel) = calls.look(*place, |side| side == CONNECTS)?;
                Some((*place, channel))
            });
            calls.keep_time();
            if let Some((place, channel)) = found {
                port.places.retain(|other| *other != place);
                break channel;
            }
            drop(ports);
            wait()?;
        };
        swap(caller, message, wait)
    }

    fn connect(
        &self,
        name: &str,
        message: &[u8],
        wait: &mut dyn FnMut() -> ConnectResult<()>,
    ) -> ConnectResult<Vec<u8>> {
        let port = PortName::decode(name).ok_or_else(|| bad_port(name))?;
        let identity = port.identity(CONNECTS);
        let addresses = port.place.to_call();
        let closed = |text: &str| {
            let text = format!("no process accepts at the port {name:?}: {text}");
            ConnectError::new(ConnectFault::Port, text)
        };
        let mut last = String::from("it has no address that leads there from here");
        for address in addresses {
            loop {
                let call = ChannelConnect::begin(&identity, address, ACCEPTS);
                let mut call = match call {
                    Ok(call) => call,
                    Err(text) => {
                        last = text;
                        break;
                    }
                };
                let outcome = loop {
                    match call.look() {
                        ConnectOutcome::Waits => wait()?,
                        over => break over,
                    }
                };
                match outcome {
                    ConnectOutcome::Open(channel) => return swap(*channel, message, wait),
                    // It has many callers, or this one waited long. It calls again.
                    ConnectOutcome::Cut(_) | ConnectOutcome::Waits => {
                        (0..limits::PORT_RECALL).try_for_each(|_| wait())?;
                    }
                    ConnectOutcome::Refused(fault) => {
                        last = fault.to_string();
                        break;
                    }
                    ConnectOutcome::Failed(text) => {
                        last = text;
                        break;
                    }
                }
            }
        }
        Err(closed(&last))
    }

    fn draw_secret(&self) -> ConnectResult<[u8; BRIDGE_SECRET]> {
        draw()
    }

    fn prepare(&self) -> ConnectResult<(u64, Vec<u8>)> {
        let listener = listen()?;
        let mut card = self.me.encode();
        Endpoint::of(&listener)?.encode(&mut card);
        let mut prepared = lock(&self.prepared);
        prepared.next += 1;
        let name = prepared.next;
        prepared.listeners.insert(name, listener);
        Ok((name, card))
    }

    fn discard(&self, preparation: u64) {
        lock(&self.prepared).listeners.remove(&preparation);
    }

    fn bridge(&self, preparation: u64, plan: BridgePlan) -> ConnectResult<BridgedPeers> {
        let listener = lock(&self.prepared).listeners.remove(&preparation);
        let listener = listener.ok_or_else(|| other("a bridge was made twice"))?;
        let damaged = || other("the other side sent a damaged card");
        let mut places = Vec::with_capacity(plan.cards.len());
        let mut processes = Vec::with_capacity(plan.cards.len());
        for card in &plan.cards {
            let (identity, place) = card.split_at_checked(IDENTITY).ok_or_else(damaged)?;
            processes.push(WorldProcess::decode(identity).ok_or_else(damaged)?);
            places.push(Endpoint::decode(place).ok_or_else(damaged)?);
        }
        let remote = processes.get(plan.remote.start as usize..plan.remote.end as usize);
        let remote = remote.ok_or_else(damaged)?;
        let own = |process: &WorldProcess| {
            let same = (process.job, process.world) == (self.me.job, self.me.world);
            (same && process.rank < self.world_size).then_some(process.rank)
        };
        if let Some(peers) = remote.iter().map(own).collect::<Option<Vec<_>>>() {
            return Ok(BridgedPeers {
                peers,
                bridge: None,
            });
        }
        let mut job = [0; 16];
        job.copy_from_slice(&plan.secret[..16]);
        job.iter_mut()
            .zip(&plan.secret[16..])
            .for_each(|(a, b)| *a ^= b);
        let me = ProcessId {
            job,
            world: 0,
            rank: plan.me,
            incarnation: 0,
        };
        let sealed = garonne_job::settings::ranks::sealed().unwrap_or(true);
        let identity = LocalIdentity::new(Secret::from_bytes(&plan.secret), me, sealed);
        let count = remote.len() as u32;
        let tcp = TcpTransport::new(identity, Arc::new(BridgeDirectory { places }), listener);
        let tcp = tcp.map_err(|error| other(format!("cannot set up a bridge: {error:?}")))?;
        let world = self.world_size;
        let first = self.host.inspect(|engine| {
            let numbers = engine.add_peers(count)?;
            let bridge = Bridge {
                first: numbers.start,
                count,
                offset: plan.remote.start,
                tcp,
            };
            engine.transport().add_bridge(world, bridge)?;
            Ok::<_, garonne_engine::api::Error>(numbers.start)
        });
        let first = first.map_err(|error| other(format!("cannot add a bridge: {error:?}")))?;
        let peers = remote.iter().zip(first..);
        Ok(BridgedPeers {
            peers: peers
                .map(|(process, number)| own(process).unwrap_or(number))
                .collect(),
            bridge: Some(first),
        })
    }

    fn close(&self, bridge: Peer) {
        // Dropped without the engine's lock: it may wait for the other side.
        let closed = self
            .host
            .inspect(|engine| engine.transport().remove_bridge(bridge));
        drop(closed);
    }

    fn spawn(&self, programs: &[SpawnProgram], port: &str) -> ConnectResult<Box<dyn SpawnedJob>> {
        crate::spawned_job::start(programs, port, self.survives)
    }

    fn publish(&self, service: &str, port: &str) -> ConnectResult<()> {
        self.names.publish(service, port)
    }

    fn unpublish(&self, service: &str) -> ConnectResult<()> {
        self.names.unpublish(service)
    }

    fn lookup(&self, service: &str) -> ConnectResult<String> {
        published_names::lookup(service)
    }

    fn parent_port(&self) -> Option<String> {
        self.is_launched
            .then(|| std::env::var(ENV_PARENT).ok())
            .flatten()
    }

    fn identity(&self) -> Vec<u8> {
        self.me.encode()
    }
}

/// Reads any bytes as the name of a port, a card and an identity: other processes send them. What
/// is understood is written as something that means the same.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    if let Some(port) = PortName::decode(&String::from_utf8_lossy(bytes)) {
        let again = PortName::decode(&port.encode()).expect("a name that was read");
        let PortName { place, key } = again;
        assert_eq!(
            (place.home, place.port, key),
            (port.place.home, port.place.port, port.key)
        );
        let _ = (place.to_call(), port.identity(CONNECTS));
    }
    if let Some(process) = WorldProcess::decode(bytes) {
        assert_eq!(process.encode(), bytes[..IDENTITY]);
    }
    if let Some(place) = Endpoint::decode(bytes) {
        let mut again = Vec::new();
        place.encode(&mut again);
        assert_eq!(Endpoint::decode(&again), Some(place));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_inputs_are_read_again() {
        garonne_transport::fuzz_seeds::replay("world_connections", read_anything);
    }

    fn endpoint() -> Endpoint {
        Endpoint {
            home: 0xfeed,
            port: 4711,
            addresses: vec![
                "10.1.2.3".parse().unwrap(),
                "fd00::7".parse().unwrap(),
                "127.0.0.1".parse().unwrap(),
            ],
        }
    }

    #[test]
    fn names_of_ports_hold_all_that_a_caller_needs_and_fit_every_abi() {
        let mut place = endpoint();
        let key = [0xa7; BRIDGE_SECRET];
        let name = PortName {
            place: place.clone(),
            key,
        }
        .encode();
        let read = PortName::decode(&name).unwrap();
        assert_eq!(
            (read.place.home, read.place.port, read.key),
            (0xfeed, 4711, key)
        );
        assert_eq!(read.place.addresses.len(), 3);
        place.addresses = vec!["fd00:1111:2222:3333:4444:5555:6666:7777".parse().unwrap(); 30];
        place.addresses.push("127.0.0.1".parse().unwrap());
        let name = PortName { place, key }.encode();
        assert!(name.len() <= PORT_NAME_MAX);
        let read = PortName::decode(&name).unwrap();
        assert!(read.place.addresses.contains(&"127.0.0.1".parse().unwrap()));
    }

    #[test]
    fn damaged_names_and_cards_are_refused() {
        let key = [1; BRIDGE_SECRET];
        let name = PortName {
            place: endpoint(),
            key,
        }
        .encode();
        for end in 0..name.len() - 1 {
            // Some cuts leave a shorter list of addresses; none may panic.
            let _ = PortName::decode(&name[..end]);
        }
        for bad in ["", "garonne1", "garonne1:::::", "garonne1:1:1:é:1.1.1.1"] {
            assert!(PortName::decode(bad).is_none());
        }
        let mut card = Vec::new();
        endpoint().encode(&mut card);
        assert_eq!(Endpoint::decode(&card), Some(endpoint()));
        for end in 0..card.len() {
            assert_eq!(Endpoint::decode(&card[..end]), None);
        }
    }
}
