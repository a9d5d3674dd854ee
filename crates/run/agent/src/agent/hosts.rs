//! Hosts of the job as this agent knows them: names, addresses, the ports of their ranks, and the
//! networks that are to be left alone.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use garonne_ethernet::packet_socket::Sockets;
use garonne_job::agent_messages::HostEndpoint;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::host_table;
use garonne_job::job::Job;
use garonne_job::layout::{RankEndpoint, WorldShape};
use garonne_job::limits::{ADDED_MAX, ADDRESSES_MAX, HOST_NAMES_MAX};
use garonne_job::new_networks::{self, NewAddress};
use garonne_job::settings::ENV_NETWORKS;
use garonne_links::addresses;
use garonne_links::allowed_networks::AllowedNetworks;
use garonne_sync::shm::Segment;
use garonne_tcp::listen;
use ipnet::IpNet;

use super::host_exchange::own_endpoint;
use super::parent_link::ParentLink;

/// Addresses of all hosts and ports of all ranks, as the agents exchanged them.
#[derive(Debug)]
struct ExchangedHosts {
    /// By node; addresses in the order in which to try them from here.
    endpoints: Vec<HostEndpoint>,
    /// By rank.
    ports: Vec<u16>,
    /// Listeners of this node's ranks that have not been started.
    listeners: HashMap<u32, TcpListener>,
}

/// Hosts of the job, and the networks between them.
///
/// Owned by the agent's [`Context`](super::context::Context). Names of the job's own are known from
/// the beginning; [`set_exchanged`](Self::set_exchanged) or
/// [`listen_on_one_host`](Self::listen_on_one_host) adds addresses and ports, once, before ranks
/// start. Networks change later, as the first agent says.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    exchanged: Option<ExchangedHosts>,
    /// Sockets by which this node's ranks take Ethernet frames, by rank.
    packet_sockets: HashMap<u32, Sockets>,
    /// Address of those sockets' interface.
    ethernet: Option<[u8; 6]>,
    /// Addresses that hosts have got since the job began. Only grows.
    new_addresses: Vec<NewAddress>,
    /// Networks that ranks are not to use.
    disabled: Vec<IpNet>,
}

impl Hosts {
    /// Takes what agents have exchanged: hosts by node, ports by rank, and the listeners of this
    /// node's ranks. What has answered once is tried first.
    pub fn set_exchanged(
        &mut self,
        (mut endpoints, ports): (Vec<HostEndpoint>, Vec<u16>),
        listeners: HashMap<u32, TcpListener>,
        parent: Option<&ParentLink>,
    ) {
        addresses::order_all(&mut endpoints);
        if let Some(up) = parent
            && let Some(above) = endpoints.get_mut(up.node() as usize)
        {
            // It may be one that the first host does not know of, where somebody translates.
            if up.has_joined() && !above.addresses.contains(&up.address()) {
                above.addresses.truncate(ADDRESSES_MAX - 1);
                above.addresses.push(up.address());
            }
            above
                .addresses
                .sort_by_key(|address| *address != up.address());
        }
        self.exchanged = Some(ExchangedHosts {
            endpoints,
            ports,
            listeners,
        });
    }

    /// Opens ports of this host's own for the `ranks` ranks of a job on one host, which are to use
    /// TCP as well.
    ///
    /// # Errors
    /// A port cannot be opened.
    pub fn listen_on_one_host(&mut self, ranks: u32) -> Result<()> {
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        let failed = |error| {
            Error::resource(
                codes::G0209,
                format!("cannot listen at {own} for ranks: {error:?}"),
            )
        };
        let (mut ports, mut listeners) = (Vec::new(), HashMap::new());
        for rank in 0..ranks {
            let listener = listen((own, 0).into()).map_err(failed)?;
            let address = listener.local_addr();
            let address = address.map_err(|error| {
                Error::system(codes::G0209, "cannot tell which port was opened", error)
            })?;
            ports.push(address.port());
            listeners.insert(rank, listener);
        }
        let endpoint = HostEndpoint {
            addresses: vec![own],
            ..own_endpoint()?
        };
        self.exchanged = Some(ExchangedHosts {
            endpoints: vec![endpoint],
            ports,
            listeners,
        });
        Ok(())
    }

    /// Takes the sockets by which ranks of this node take Ethernet frames, and the address of their
    /// interface.
    pub fn set_packet_sockets(&mut self, sockets: HashMap<u32, Sockets>, address: [u8; 6]) {
        (self.packet_sockets, self.ethernet) = (sockets, Some(address));
    }

    /// Returns the address of the interface by which this node's ranks take Ethernet frames.
    pub fn ethernet(&self) -> Option<[u8; 6]> {
        self.ethernet
    }

    /// Returns the sockets by which a rank takes Ethernet frames.
    pub fn packet_sockets(&self, rank: u32) -> Option<&Sockets> {
        self.packet_sockets.get(&rank)
    }

    /// Returns whether addresses and ports are known.
    pub fn are_known(&self) -> bool {
        self.exchanged.is_some()
    }

    /// Hosts as they were exchanged, by node.
    fn endpoints(&self) -> &[HostEndpoint] {
        self.exchanged
            .as_ref()
            .map_or(&[], |hosts| &hosts.endpoints)
    }

    /// Returns the addresses of a node, in the order in which to try them from here.
    pub fn addresses_of(&self, node: u32) -> &[IpAddr] {
        let endpoint = self.endpoints().get(node as usize);
        endpoint.map_or(&[], |endpoint| &endpoint.addresses)
    }

    /// Returns the addresses of a node, followed by those that it got since the job began. None of
    /// these leads back to the node `own`.
    pub fn addresses_now(&self, node: u32, own: u32) -> Vec<IpAddr> {
        let mut all = self.addresses_of(node).to_vec();
        let leads_back = |address: &IpAddr| {
            self.addresses_of(own).contains(address)
                || self.new_addresses.contains(&(own, *address))
        };
        for (_, address) in self.new_addresses.iter().filter(|(of, _)| *of == node) {
            if !all.contains(address) && !leads_back(address) {
                all.push(*address);
            }
        }
        all
    }

    /// Returns all hosts, with the addresses that they got since the job began.
    pub fn endpoints_now(&self) -> Vec<HostEndpoint> {
        let mut endpoints = self.endpoints().to_vec();
        new_networks::complete(&mut endpoints, &self.new_addresses);
        endpoints
    }

    /// Returns the name by which a host was exchanged.
    pub fn exchanged_name(&self, node: u32) -> Option<&str> {
        let endpoint = self.endpoints().get(node as usize)?;
        Some(&endpoint.name)
    }

    /// Returns the names of the hosts, a line each; nothing where they are too many for a message.
    pub fn names(&self) -> String {
        let names: Vec<&str> = self
            .endpoints()
            .iter()
            .map(|endpoint| endpoint.name.as_str())
            .collect();
        Some(names.join("\n"))
            .filter(|names| names.len() <= HOST_NAMES_MAX)
            .unwrap_or_default()
    }

    /// Returns the port of a rank.
    pub fn port_of(&self, rank: u32) -> Option<u16> {
        let ports = self.exchanged.as_ref().map(|hosts| &hosts.ports)?;
        ports.get(rank as usize).copied().filter(|port| *port != 0)
    }

    /// Takes the port of a rank that is about to be started.
    pub fn take_listener(&mut self, rank: u32) -> Option<TcpListener> {
        self.exchanged.as_mut()?.listeners.remove(&rank)
    }

    /// Returns the table of hosts as ranks read it; nothing where there is one host.
    pub fn table(&self) -> Vec<u8> {
        let hosts = self.exchanged.as_ref();
        hosts.map_or(Vec::new(), |hosts| host_table::encode(&hosts.endpoints))
    }

    /// Writes what is known of hosts to the board of a new world: node and port of each rank,
    /// networks to be left alone, and new addresses.
    pub fn publish(
        &self,
        (world_memory, shape): (&Segment, &WorldShape),
        node_of: impl Iterator<Item = u32>,
    ) {
        if let Some(hosts) = &self.exchanged {
            for (node, rank) in node_of.zip(0..) {
                let port = hosts.ports.get(rank as usize).copied().unwrap_or(0);
                RankEndpoint::of(world_memory, shape, rank).set(node, port);
            }
        }
        garonne_job::disabled_networks::write(world_memory, &self.disabled);
        new_networks::show(world_memory, &self.new_addresses);
    }

    /// Returns the networks that are to be left alone.
    pub fn disabled(&self) -> &[IpNet] {
        &self.disabled
    }

    /// Replaces the networks that are to be left alone.
    pub fn set_disabled(&mut self, networks: Vec<IpNet>) {
        self.disabled = networks;
    }

    /// Returns the addresses that hosts have got since the job began.
    pub fn new_addresses(&self) -> &[NewAddress] {
        &self.new_addresses
    }

    /// Replaces the addresses that hosts have got since the job began.
    pub fn set_new_addresses(&mut self, list: Vec<NewAddress>) {
        self.new_addresses = list;
    }

    /// Adds addresses that a node has got. Returns whether the list has grown.
    pub fn add_new_addresses(&mut self, node: u32, found: &[IpAddr]) -> bool {
        let before = self.new_addresses.len();
        for address in found {
            let entry = (node, *address);
            if self.new_addresses.len() < ADDED_MAX && !self.new_addresses.contains(&entry) {
                self.new_addresses.push(entry);
            }
        }
        self.new_addresses.len() > before
    }
}

/// Returns the value of `GARONNE_NETWORKS` for the ranks of a node, as far as the job knows it:
/// those of another launcher's have it from where the agent has its own.
pub(super) fn ranks_networks(job: &Job, node: u32) -> Option<String> {
    let first = job.ranks_of(node).first().copied().unwrap_or(0);
    let program = job.program_of_rank().get(first as usize).copied();
    let program = program.and_then(|program| job.programs.get(program));
    let changed =
        program.and_then(|program| program.env.iter().rfind(|(name, _)| name == ENV_NETWORKS));
    let said = match (changed, &job.env) {
        (Some((_, said)), _) => said.clone(),
        (None, Some(all)) => all
            .iter()
            .rfind(|(name, _)| name == ENV_NETWORKS)
            .map(|(_, said)| said.clone()),
        (None, None) => std::env::var_os(ENV_NETWORKS),
    };
    said.map(|said| said.to_string_lossy().into_owned())
}

/// Returns the networks that the ranks of a node may use, as far as the job knows. Ranks would
/// report an error themselves, once all run.
///
/// # Errors
/// The setting names no networks of this host.
pub(super) fn allowed_networks(job: &Job, node: u32) -> Result<AllowedNetworks> {
    match ranks_networks(job, node).filter(|_| !job.ranks_of(node).is_empty()) {
        Some(said) => AllowedNetworks::on_this_host(&said),
        None => Ok(AllowedNetworks::default()),
    }
}

/// Checks that the ranks of a node have a way to each other host with ranks: the launcher's may
/// have none, and agents use any network.
///
/// # Errors
/// The networks that they may use leave them no way; to which host.
pub(super) fn check_ways(
    networks: AllowedNetworks,
    (job, node): (&Job, u32),
    endpoints: &[HostEndpoint],
) -> Result<()> {
    if !networks.limits() {
        return Ok(());
    }
    let own = endpoints.get(node as usize);
    let networks = networks.of_host(own.map_or("", |own| &own.name));
    let with_ranks: BTreeSet<u32> = job.nodes.of_rank.iter().copied().collect();
    endpoints
        .iter()
        .zip(0..)
        .filter(|(_, other)| *other != node && with_ranks.contains(other))
        .try_for_each(|(endpoint, _)| networks.limit(&mut endpoint.clone()))
}
