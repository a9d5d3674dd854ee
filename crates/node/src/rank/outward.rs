//! A rank's way to the other hosts of its job: made from what its agent handed over, where there are any.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use garonne_engine::api::Peer;
use garonne_engine::strategy::leave::Leaving;
use garonne_rails::tcp::{self, Fabrics, House, Process, TcpRail};
use garonne_sync::shm::Segment;
use garonne_topology::device::{self, Near};
use garonne_topology::nuioa;
use ipnet::IpNet;

use super::Hosts;
use super::networks::Networks;
use crate::addresses;
use crate::client::{Client, WorldInfo};
use crate::codes;
use crate::drained;
use crate::error::{Error, Result};
use crate::layout::State;
use crate::orders::Place;
use crate::sys;
use crate::ways;

/// See the module's paragraph.
pub(super) struct Outward {
    pub rail: TcpRail,
    /// By rank: it is on this node.
    pub near: Vec<bool>,
    pub hosts: Hosts,
}

impl Outward {
    /// `None` in a job on one host.
    pub fn new(client: &Arc<Client>, leaving: Leaving) -> Result<Option<Self>> {
        let world = client.world();
        let Some(begin) = client.take_outward() else {
            return Ok(None);
        };
        let mut places = client.places()?;
        Networks::from_environment()?.limit(&mut places, world.node)?;
        let node_of = |rank: u32| client.card(rank).host().0;
        let here: Vec<u32> = (0..world.size)
            .filter(|rank| node_of(*rank) == world.node)
            .collect();
        // Zeros that were never written cost no memory: others are many.
        let mut near = vec![false; world.size as usize];
        here.iter().for_each(|rank| near[*rank as usize] = true);
        let name = places.get(world.node as usize).map(|place| place.name.clone());
        let hosts = Hosts {
            near: here.clone(),
            name: name.unwrap_or_default(),
        };
        let house = House {
            secret: begin.secret,
            me: Process {
                job: world.job.0.to_ne_bytes(),
                world: world.epoch,
                rank: world.rank,
                incarnation: 0,
            },
            sealed: sealed()?,
        };
        let here = here.len() as u64;
        // Each has a core of its own, and none is left.
        let all_send = world.bound && here * 1000 >= u64::from(world.cpus_milli);
        let common = addresses::common_of(&places);
        let others = Others {
            client: client.clone(),
            board: client.board(),
            shares: match common.iter().any(|networks| networks.len() > 1) {
                true => shares(all_send),
                false => Vec::new(),
            },
            world,
            common,
            places,
            fabrics: fabrics()?,
        };
        let rail = TcpRail::new(house, Arc::new(others), begin.listener);
        let mut rail = rail.map_err(|error| {
            Error::resource(
                codes::G0304,
                format!("cannot set up the rail between hosts: {error:?}"),
            )
        })?;
        rail.gather(leaving);
        Ok(Some(Self { rail, near, hosts }))
    }
}

/// Whether what ranks of different hosts say to each other is encrypted: the same for all ranks of a job.
pub const ENV_ENCRYPT: &str = "GARONNE_ENCRYPT";

fn sealed() -> Result<bool> {
    match std::env::var(ENV_ENCRYPT).as_deref().map(str::trim) {
        Ok("1" | "on" | "yes") => Ok(true),
        Err(_) | Ok("" | "0" | "off" | "no") => Ok(false),
        Ok(said) => Err(Error::misuse(
            codes::G0225,
            format!("{ENV_ENCRYPT}={said:?}; there are: 0, 1"),
        )),
    }
}

/// Which networks of libfabric large data may use between hosts.
pub const ENV_OFI: &str = "GARONNE_OFI";

fn fabrics() -> Result<Fabrics> {
    match std::env::var(ENV_OFI).as_deref().map(str::trim) {
        Ok("auto") => Ok(Fabrics::Fast),
        // Nobody has tried it on a network that is faster than TCP, and what the library does there ends the rank if it goes wrong.
        Err(_) | Ok("" | "0" | "off" | "no") => Ok(Fabrics::Off),
        Ok(said)
            if said
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-;".contains(&byte)) =>
        {
            Ok(Fabrics::Of(said.to_owned()))
        }
        Ok(said) => Err(Error::misuse(
            codes::G0225,
            format!(
                "{ENV_OFI}={said:?}; there are: auto, off, and names of libfabric's providers, such as verbs or tcp"
            ),
        )),
    }
}

/// What each of this host's interfaces gives to this process, by where the device is.
fn shares(all_send: bool) -> Vec<(IpAddr, f64)> {
    let interfaces = sys::interfaces().unwrap_or_default();
    let outer: Vec<_> = interfaces
        .iter()
        .filter(|interface| !interface.loopback)
        .collect();
    let mut names: Vec<&str> = outer.iter().map(|interface| interface.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let devices: Vec<Near> = names
        .iter()
        .map(|name| device::find(name).unwrap_or(Near::Anywhere))
        .collect();
    let shares = nuioa::shares(&garonne_topology::machine::allowed(), &devices, all_send);
    let share_of = |name: &str| {
        names
            .iter()
            .position(|known| *known == name)
            .map_or(1.0, |at| shares[at])
    };
    let share = |interface: &&sys::Interface| (interface.address, share_of(&interface.name));
    outer.iter().map(share).collect()
}

fn has(networks: &[IpNet], address: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&address))
}

/// The ranks of other hosts, as the agent knows them.
struct Others {
    client: Arc<Client>,
    board: Segment,
    world: WorldInfo,
    places: Vec<Place>,
    /// By node: its addresses on networks in common.
    common: Vec<Vec<IpAddr>>,
    /// By address of this host; none where it does not matter.
    shares: Vec<(IpAddr, f64)>,
    fabrics: Fabrics,
}

impl tcp::Hosts for Others {
    fn size(&self) -> u32 {
        self.world.size
    }

    fn incarnation(&self, _peer: Peer) -> u32 {
        // A job on several hosts has one world, and a rank of it one life.
        0
    }

    fn fabrics(&self) -> Fabrics {
        self.fabrics.clone()
    }

    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        let (node, port) = self.client.card(peer).host();
        let place = self
            .places
            .get(node as usize)
            .filter(|_| port != 0 && node != self.world.node);
        let addresses = place.map_or(&[][..], |place| &place.addresses);
        let mut addresses: Vec<_> = addresses
            .iter()
            .map(|address| SocketAddr::new(*address, port))
            .collect();
        // There are ways only where neither side reached the other.
        for way in ways::read(&self.board).iter().filter(|way| way.to == node) {
            let via = self.places.get(way.via as usize);
            let via = via.map_or(&[][..], |place| &place.addresses);
            addresses.splice(
                0..0,
                via.iter().map(|address| SocketAddr::new(*address, way.port)),
            );
        }
        let drained = drained::read(&self.board);
        addresses.sort_by_key(|address| has(&drained, address.ip()));
        addresses
    }

    fn networks(&self, peer: Peer) -> Vec<SocketAddr> {
        let (node, port) = self.client.card(peer).host();
        let common = self.common.get(node as usize).filter(|_| port != 0);
        let addresses = common.map_or(&[][..], |common| common);
        addresses
            .iter()
            .map(|address| SocketAddr::new(*address, port))
            .collect()
    }

    fn drained(&self) -> u32 {
        drained::number(&self.board).load(Relaxed)
    }

    fn is_drained(&self, address: IpAddr) -> bool {
        has(&drained::read(&self.board), address)
    }

    fn share(&self, own: IpAddr) -> f64 {
        let known = self
            .shares
            .iter()
            .find(|(address, _)| *address == own.to_canonical());
        known.map_or(1.0, |(_, share)| *share)
    }

    fn is_gone(&self, peer: Peer) -> bool {
        self.client.card(peer).state() == State::Gone
    }

    fn ask(&self, peer: Peer, bulk: bool) {
        self.client.have_called_by(peer, bulk);
    }

    fn may_be_hidden(&self, peer: Peer) -> bool {
        // Who has joined may call from where nobody calls in, and may have joined a host where that is so, too.
        let node = self.client.card(peer).host().0;
        let guest = |node: u32| self.places.get(node as usize).is_some_and(|place| place.guest);
        guest(node) || guest(self.world.node)
    }

    fn cannot_reach(&self, peer: Peer) {
        self.client.tell_apart(peer);
    }
}
