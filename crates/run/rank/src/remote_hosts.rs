//! A rank's way to the other hosts of its job: made from what its agent handed over, where there
//! are any.

use garonne_job::settings::ENV_ENCRYPT;
use garonne_job::settings::bulk_transports::BulkTransports;
use garonne_links::allowed_networks::AllowedNetworks;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use garonne_engine::api::Peer;
use garonne_engine::schedule::builtin::BuiltinStrategy;
use garonne_ethernet::EthernetTransport;
use garonne_sync::shm::Segment;
use garonne_tcp::{
    self, HandshakeError, LocalIdentity, OfiSetting, ProcessId, RejectReason, TcpTransport,
};
use garonne_topology::device::{self, DeviceLocality};
use garonne_topology::nuioa;

use crate::client::{AgentClient, WorldInfo};
use crate::ethernet_ranks;
use crate::measured_networks::MeasuredNetworks as Tuned;
use crate::rank::JobHosts;
use garonne_job::agent_messages::HostEndpoint;
use garonne_job::codes;
use garonne_job::disabled_networks;
use garonne_job::error::{Error, Result};
use garonne_job::host_table::HostTable;
use garonne_job::layout::{self, RankState};
use garonne_job::new_networks::{self, NewAddress};
use garonne_job::relay_routes;
use garonne_job::settings::ranks::{fabrics, sealed};
use garonne_links::addresses::{self, WhichHost};

/// The transports of a rank to the other hosts of its job, as [`RemoteHosts::new`] makes them.
pub(crate) struct RemoteHosts {
    pub transport: TcpTransport,
    /// To the hosts that take Ethernet frames, where the job asks for that.
    pub ethernet: Option<EthernetTransport>,
    /// By rank: it is on this node.
    pub local_ranks: Vec<bool>,
    /// By rank: it is on this node, is not this one, and large data go by TCP as well; empty: to
    /// none.
    pub local_tcp: Vec<bool>,
    pub hosts: JobHosts,
}

impl RemoteHosts {
    /// `None` in a job on one host, unless its ranks are to use TCP as well.
    pub fn new(client: &Arc<AgentClient>, built_in: BuiltinStrategy) -> Result<Option<Self>> {
        let world = client.world();
        let transports = BulkTransports::from_environment()?;
        let joint = transports == BulkTransports::Both;
        let begin = client.take_network_handover();
        let said = client.world_memory();
        transports.agree(said.atomic_u32(layout::RAILS), world.rank, begin.is_some())?;
        let Some(begin) = begin else {
            return Ok(None);
        };
        let map = ReachableHosts {
            host_table: client.host_table()?,
            networks: AllowedNetworks::from_environment()?,
            node: world.node,
            home: addresses::home().ok(),
            interfaces: addresses::interfaces().unwrap_or_default(),
            world_memory: client.world_memory(),
            since: Mutex::default(),
        };
        let node_of = |rank: u32| client.endpoint(rank).node();
        map.check(&(0..world.size).map(node_of).collect())?;
        let here: Vec<u32> = (0..world.size)
            .filter(|rank| node_of(*rank) == world.node)
            .collect();
        // Zeros that were never written cost no memory: others are many.
        let mut near = vec![false; world.size as usize];
        here.iter().for_each(|rank| near[*rank as usize] = true);
        let mut beside = if joint { near.clone() } else { Vec::new() };
        beside
            .get_mut(world.rank as usize)
            .into_iter()
            .for_each(|own| *own = false);
        let hosts = JobHosts {
            local_ranks: here.clone(),
            name: map.host_table.endpoint(world.node)?.name,
        };
        let sealed = sealed()?;
        let me = ProcessId {
            job: world.job.0.to_ne_bytes(),
            world: world.epoch,
            rank: world.rank,
            incarnation: 0,
        };
        let ethernet = begin.packet_sockets.map(|sockets| {
            let secret = (*begin.secret.bytes(), sealed);
            ethernet_ranks::transport(client, &map.host_table, secret, sockets)
        });
        let ethernet = ethernet.transpose()?;
        let identity = LocalIdentity::new(begin.secret, me, sealed);
        let here = here.len() as u64;
        // Each has a core of its own, and none is left.
        let all_send = world.bound && here * 1000 >= u64::from(world.cpus_milli);
        let others = RemoteRanks {
            client: client.clone(),
            world_memory: client.world_memory(),
            shares: OnceLock::new(),
            tuned: OnceLock::new(),
            all_send,
            world,
            map,
            fabrics: fabrics()?,
            joint,
            sealed,
        };
        let transport = TcpTransport::new(identity, Arc::new(others), begin.listener);
        let mut transport = transport.map_err(|error| {
            Error::resource(
                codes::G0304,
                format!("cannot set up the transport between hosts: {error:?}"),
            )
        })?;
        transport.gather(built_in.coalescing());
        transport.split_by(built_in.striping());
        Ok(Some(Self {
            transport,
            ethernet,
            local_ranks: near,
            local_tcp: beside,
            hosts,
        }))
    }
}

/// Returns the share of each interface of this host that this process gets, by where the device is.
fn shares(all_send: bool) -> Vec<(IpAddr, f64)> {
    let interfaces = addresses::interfaces().unwrap_or_default();
    let outer: Vec<_> = interfaces
        .iter()
        .filter(|interface| !interface.loopback)
        .collect();
    let mut names: Vec<&str> = outer
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    let devices: Vec<DeviceLocality> = names
        .iter()
        .map(|name| device::find(name).unwrap_or(DeviceLocality::Anywhere))
        .collect();
    let shares = nuioa::shares(&garonne_topology::machine::allowed(), &devices, all_send);
    let share_of = |name: &str| {
        names
            .iter()
            .position(|known| *known == name)
            .map_or(1.0, |at| shares[at])
    };
    let share = |interface: &&addresses::Interface| (interface.address, share_of(&interface.name));
    outer.iter().map(share).collect()
}

/// Addresses of hosts, as this rank may reach them. A host is looked up when it is wanted: a rank
/// speaks with few of those of a large job.
struct ReachableHosts {
    host_table: HostTable,
    networks: AllowedNetworks,
    /// This rank's own.
    node: u32,
    home: Option<u64>,
    /// When the job began.
    interfaces: Vec<addresses::Interface>,
    world_memory: Segment,
    since: Mutex<NetworkChanges>,
}

/// Addresses that hosts got since the job began, as this rank knew them last.
#[derive(Clone, Debug, Default)]
struct NetworkChanges {
    added: Vec<NewAddress>,
    /// This host's interfaces, those that it had before among them.
    interfaces: Vec<addresses::Interface>,
}

impl ReachableHosts {
    /// Returns the current addresses. Interfaces are looked at when some host has got another.
    fn since(&self) -> MutexGuard<'_, NetworkChanges> {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        if new_networks::len(&self.world_memory) != since.added.len() {
            since.added = new_networks::read(&self.world_memory);
            let had = self.interfaces.iter().cloned();
            let mut now = addresses::interfaces().unwrap_or_default();
            now.retain(|new| !self.interfaces.iter().any(|old| old.address == new.address));
            since.interfaces = had.chain(now).collect();
        }
        since
    }

    /// A host with the addresses that may be used: those of the beginning, and behind them those
    /// that it has got.
    fn place(&self, node: u32) -> Option<HostEndpoint> {
        let added = new_networks::len(&self.world_memory) > 0;
        let now = added.then(|| self.since());
        self.place_with(node, now.as_deref().map_or(&[], |since| &since.added))
    }

    /// Returns the addresses of a node, with those `added` since the job began.
    fn place_with(&self, node: u32, added: &[NewAddress]) -> Option<HostEndpoint> {
        let mut place = self.host_table.endpoint(node).ok()?;
        let of_it = added.iter().filter(|(of, _)| *of == node);
        for (_, address) in of_it {
            if !place.addresses.contains(address) {
                place.addresses.push(*address);
            }
        }
        // No network leads to one's own.
        if node != self.node {
            self.networks.limit(&mut place).ok()?;
        }
        Some(place)
    }

    /// An error where somebody has forbidden all networks of a host with ranks.
    fn check(&self, with_ranks: &BTreeSet<u32>) -> Result<()> {
        if !self.networks.limits() {
            return Ok(());
        }
        for node in with_ranks.iter().filter(|node| **node != self.node) {
            self.networks.limit(&mut self.host_table.endpoint(*node)?)?;
        }
        Ok(())
    }

    /// A host's addresses on networks in common.
    fn common(&self, node: u32) -> Vec<IpAddr> {
        let Some(before) = self.place_with(node, &[]) else {
            return Vec::new();
        };
        if new_networks::len(&self.world_memory) == 0 {
            return addresses::common(&before, self.home, &self.interfaces);
        }
        let since = self.since();
        let Some(now) = self.place_with(node, &since.added) else {
            return Vec::new();
        };
        let found = |side, address| {
            let node = if side == WhichHost::Own {
                self.node
            } else {
                node
            };
            since
                .added
                .iter()
                .position(|known| *known == (node, address))
        };
        let own = (&self.interfaces[..], &since.interfaces[..]);
        addresses::common_since((&before, &now), self.home, own, found)
    }

    /// Returns whether there is a host with which this one has several networks in common.
    fn has_several(&self) -> bool {
        let mut outer = self
            .interfaces
            .iter()
            .filter(|interface| !interface.loopback);
        let first = outer.next();
        let more = outer.any(|other| first.is_some_and(|first| first.name != other.name));
        more && (0..self.host_table.nodes()).any(|node| self.common(node).len() > 1)
    }
}

/// The ranks of other hosts, as the agent knows them.
struct RemoteRanks {
    client: Arc<AgentClient>,
    world_memory: Segment,
    world: WorldInfo,
    map: ReachableHosts,
    /// By address of this host; none where it does not matter. Found out when the first large data
    /// leave.
    shares: OnceLock<Vec<(IpAddr, f64)>>,
    /// Speeds of networks as `garonne tune` measured them, read when first used.
    tuned: OnceLock<Tuned>,
    /// Each rank of this host has a core of its own, and none is left.
    all_send: bool,
    fabrics: OfiSetting,
    /// Ranks of this host are reached, too.
    joint: bool,
    /// True if connections to other hosts are encrypted.
    sealed: bool,
}

impl garonne_tcp::PeerDirectory for RemoteRanks {
    fn size(&self) -> u32 {
        self.world.size
    }

    fn incarnation(&self, _peer: Peer) -> u32 {
        // A job on several hosts has one world, and a rank of it one life.
        0
    }

    fn fabrics(&self) -> OfiSetting {
        self.fabrics.clone()
    }

    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        let (node, port) = self.client.host_of(peer);
        let known = port != 0 && (self.joint || node != self.world.node);
        let place = known.then(|| self.map.place(node)).flatten();
        let addresses = place.map_or(Vec::new(), |place| place.addresses);
        let mut addresses: Vec<_> = addresses
            .into_iter()
            .map(|address| SocketAddr::new(address, port))
            .collect();
        // There are ways only where neither side reached the other.
        for way in relay_routes::read(&self.world_memory)
            .iter()
            .filter(|way| way.to == node)
        {
            let via = self.map.place(way.via);
            let via = via.map_or(Vec::new(), |place| place.addresses);
            let via = via.into_iter();
            addresses.splice(0..0, via.map(|address| SocketAddr::new(address, way.port)));
        }
        let drained = disabled_networks::read(&self.world_memory);
        addresses.sort_by_key(|address| addresses::is_of(&drained, address.ip()));
        addresses
    }

    fn networks(&self, peer: Peer) -> Vec<SocketAddr> {
        let (node, port) = self.client.host_of(peer);
        if port == 0 {
            return Vec::new();
        }
        let common = self.map.common(node).into_iter();
        common
            .map(|address| SocketAddr::new(address, port))
            .collect()
    }

    fn drained(&self) -> u32 {
        // A table that only grows: the sum changes with either.
        let added = new_networks::len(&self.world_memory) as u32;
        disabled_networks::number(&self.world_memory)
            .load(Relaxed)
            .wrapping_add(added)
    }

    fn is_drained(&self, address: IpAddr) -> bool {
        addresses::is_of(&disabled_networks::read(&self.world_memory), address)
    }

    fn share(&self, own: IpAddr) -> f64 {
        let shares = self.shares.get_or_init(|| match self.map.has_several() {
            true => shares(self.all_send),
            false => Vec::new(),
        });
        let known = shares
            .iter()
            .find(|(address, _)| *address == own.to_canonical());
        known.map_or(1.0, |(_, share)| *share)
    }

    fn tuned(&self, own: IpAddr, other: IpAddr) -> Option<(f64, f64)> {
        let known = self.tuned.get_or_init(Tuned::load).find(own, other)?;
        Some((known.mb_per_s, known.round_trip_us))
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.client.state_of(peer) == RankState::Gone
    }

    fn ask(&self, peer: Peer, bulk: bool) {
        self.client.request_reverse_connect(peer, bulk);
    }

    fn may_be_hidden(&self, peer: Peer) -> bool {
        // Who has joined may call from where nobody calls in, and may have joined a host where that
        // is so, too.
        let node = self.client.endpoint(peer).node();
        let guest = |node: u32| {
            self.map
                .host_table
                .endpoint(node)
                .is_ok_and(|place| place.joined)
        };
        guest(node) || guest(self.world.node)
    }

    fn may_be_led(&self, _peer: Peer) -> bool {
        self.map.host_table.nodes() > 2
    }

    fn cannot_reach(&self, peer: Peer) {
        self.client.report_unreachable(peer);
    }

    fn refused(&self, peer: Peer, fault: &HandshakeError) {
        let code = match fault {
            HandshakeError::Versions { .. } | HandshakeError::Library(_) => codes::G0203,
            HandshakeError::Refused(RejectReason::Sealing) => codes::G0231,
            _ => codes::G0229,
        };
        let text = match fault {
            HandshakeError::Refused(RejectReason::Sealing) => {
                let (own, other) = if self.sealed {
                    ("encrypts", "does not")
                } else {
                    ("does not encrypt", "does")
                };
                format!(
                    "rank {} {own} and rank {peer} {other} ({ENV_ENCRYPT})",
                    self.world.rank
                )
            }
            fault => fault.to_string(),
        };
        self.client.report_refused(peer, code, &text);
    }
}
