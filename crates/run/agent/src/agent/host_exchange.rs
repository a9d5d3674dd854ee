//! What the agents of a job on several hosts learn of each other before the first rank starts, and
//! pass on to their ranks; and what the ranks of one host learn of it that use TCP among
//! themselves.

use garonne_links::allowed_networks::AllowedNetworks;
use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use garonne_sync::shm::Segment;
use garonne_tcp::{Secret, listen};

use super::child_agents::ChildAgents;
use super::exit_log::start_error_code;
use super::parent_link::ParentLink;
use super::root_role::no_secret;
use super::{Agent, AgentStart};
use garonne_job::agent_messages::{AgentReport, HostEndpoint, NodeEndpoints};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::host_table;
use garonne_job::layout::RankBlock;
use garonne_job::limits::HOST_NAMES_MAX;
use garonne_job::new_networks;
use garonne_links::addresses;

/// Addresses of all hosts and ports of all ranks, as the agents exchanged them.
pub(super) struct HostExchange {
    /// By node; addresses in the order in which to try them from here.
    endpoints: Vec<HostEndpoint>,
    /// By rank.
    ports: Vec<u16>,
    /// Listeners of this node's ranks that have not been started.
    listeners: HashMap<u32, TcpListener>,
    /// Secret of a job on one host. Jobs on several have one before they exchange addresses.
    secret: Option<Secret>,
}

/// A port on all addresses of this host, IPv6 as well where there is any; 0: any port.
pub(crate) fn listen_at(port: u16) -> Result<(TcpListener, u16)> {
    let any = [
        SocketAddr::from(([0u16; 8], port)),
        SocketAddr::from(([0u8; 4], port)),
    ];
    let listener = listen(any[0]).or_else(|_| listen(any[1]));
    let listener = listener.map_err(|error| {
        let at = if port == 0 {
            String::new()
        } else {
            format!(" at port {port}")
        };
        Error::resource(
            codes::G0209,
            format!("cannot listen for other hosts{at}: {error:?}"),
        )
    })?;
    let address = listener
        .local_addr()
        .map_err(|error| Error::system(codes::G0209, "cannot tell which port was opened", error))?;
    Ok((listener, address.port()))
}

/// This host as others see it.
pub(crate) fn own_endpoint() -> Result<HostEndpoint> {
    Ok(HostEndpoint {
        name: rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned(),
        network_id: addresses::home()?,
        addresses: addresses::own(),
        joined: false,
    })
}

impl Agent<'_> {
    /// Whether a rank runs, or is to run, on this host.
    pub(super) fn is_here(&self, rank: u32) -> bool {
        self.slots
            .get(rank as usize)
            .is_some_and(|slot| slot.node == self.ctx.node)
    }

    /// Opens the ports of this node's ranks, and the lines between agents. Returns the listeners by
    /// rank.
    pub(super) fn connect_agents(
        &mut self,
        beginning: AgentStart,
    ) -> Result<HashMap<u32, TcpListener>> {
        let mut listeners = HashMap::new();
        let mut ports = Vec::new();
        for rank in self.ctx.job.ranks_of(self.ctx.node) {
            let (listener, port) = listen_at(0)?;
            listeners.insert(rank, listener);
            ports.push(port);
        }
        match beginning {
            AgentStart::Plain if self.ctx.is_adopted => {}
            AgentStart::Plain => self.start_agents(None)?,
            AgentStart::Joined(company) => self.start_agents(Some(*company))?,
            AgentStart::Outer(outer) => {
                let (secret, parent, joined) = (outer.secret.clone(), outer.parent, outer.guest);
                let mut outer = *outer;
                let porch = outer.porch.take();
                let link = ParentLink::new(outer, self.ctx.node, &self.ctx.epoll);
                self.ctx.links.set_parent(link);
                self.ctx.share_connection(parent);
                let place = HostEndpoint {
                    joined,
                    ..own_endpoint()?
                };
                self.await_children(&secret, porch)?;
                // Before this host counts as ready, so that nothing starts anywhere.
                self.networks()?;
                let node = self.ctx.node;
                self.ctx.check_in_self(NodeEndpoints { node, place, ports });
                // Orders may have come together with the job, of which the socket tells nothing
                // more.
                self.read_parent();
            }
        }
        Ok(listeners)
    }

    /// Opens the port at which those call that report to this node. They are waited for from now
    /// on.
    pub(super) fn listen_for_children(
        &mut self,
        secret: &Secret,
        listener: TcpListener,
    ) -> Result<()> {
        let children = ChildAgents::listen(&self.ctx, secret, listener)?;
        self.ctx.links.set_children(children);
        Ok(())
    }

    /// Waits for those that report to this node, if any do: at a port that they know already, or
    /// are told of by the first agent, which starts them.
    fn await_children(&mut self, secret: &Secret, porch: Option<TcpListener>) -> Result<()> {
        match porch {
            Some(listener) => self.listen_for_children(secret, listener),
            None if self.ctx.job.tree().has_children(self.ctx.node) => {
                let (listener, port) = listen_at(0)?;
                self.listen_for_children(secret, listener)?;
                self.ctx
                    .report(&AgentReport::Listening(port, addresses::to_call()));
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// The agents have met: tells the others, if this is the first, and keeps what ranks need to
    /// know.
    pub(super) fn exchange_hosts(&mut self, listeners: HashMap<u32, TcpListener>) -> Result<()> {
        let port = |rank: &u32| {
            listeners
                .get(rank)
                .and_then(|listener| listener.local_addr().ok())
        };
        let ports = self.ctx.job.ranks_of(self.ctx.node);
        let ports = ports
            .iter()
            .map(|rank| port(rank).map_or(0, |address| address.port()))
            .collect();
        let (mut places, ports) = match self.ctx.links.parent_mut().and_then(|up| up.take_start()) {
            Some(told) => {
                self.check_ways(&told.0)?;
                told
            }
            None => self.send_start(NodeEndpoints {
                node: self.ctx.node,
                place: own_endpoint()?,
                ports,
            })?,
        };
        addresses::order_all(&mut places);
        // What has answered once is tried first.
        if let Some(up) = self.ctx.links.parent()
            && let Some(above) = places.get_mut(up.node() as usize)
        {
            // It may be one that the first host does not know of, where somebody translates.
            if up.has_joined() && !above.addresses.contains(&up.address()) {
                above
                    .addresses
                    .truncate(garonne_job::limits::ADDRESSES_MAX - 1);
                above.addresses.push(up.address());
            }
            above
                .addresses
                .sort_by_key(|address| *address != up.address());
        }
        self.host_exchange = Some(HostExchange {
            endpoints: places,
            ports,
            listeners,
            secret: None,
        });
        Ok(())
    }

    /// Returns the networks that the ranks of this host may use, as far as the job knows. Ranks
    /// would report an error themselves, once all run.
    fn networks(&self) -> Result<AllowedNetworks> {
        let is_asked = !self.ctx.is_adopted && !self.ctx.job.ranks_of(self.ctx.node).is_empty();
        match self.ranks_networks().filter(|_| is_asked) {
            Some(said) => AllowedNetworks::on_this_host(&said),
            None => Ok(AllowedNetworks::default()),
        }
    }

    /// An error where that leaves them no way to another host with ranks: the launcher's may have
    /// none, and agents use any network.
    pub(super) fn check_ways(&self, places: &[HostEndpoint]) -> Result<()> {
        let networks = self.networks()?;
        if !networks.limits() {
            return Ok(());
        }
        let own = places.get(self.ctx.node as usize);
        let networks = networks.of_host(own.map_or("", |own| &own.name));
        let with_ranks: BTreeSet<u32> = self.ctx.job.nodes.of_rank.iter().copied().collect();
        places
            .iter()
            .zip(0..)
            .filter(|(_, node)| *node != self.ctx.node && with_ranks.contains(node))
            .try_for_each(|(place, _)| networks.limit(&mut place.clone()))
    }

    /// Opens ports of this host's own for the ranks of a job on one host, which are to use TCP as
    /// well.
    pub(super) fn exchange_on_one_host(&mut self) -> Result<()> {
        let own = IpAddr::from(Ipv4Addr::LOCALHOST);
        let failed = |error| {
            Error::resource(
                codes::G0209,
                format!("cannot listen at {own} for ranks: {error:?}"),
            )
        };
        let (mut ports, mut listeners) = (Vec::new(), HashMap::new());
        for rank in 0..self.ctx.job.size() {
            let listener = listen((own, 0).into()).map_err(failed)?;
            let address = listener.local_addr();
            let address = address.map_err(|error| {
                Error::system(codes::G0209, "cannot tell which port was opened", error)
            })?;
            ports.push(address.port());
            listeners.insert(rank, listener);
        }
        let place = HostEndpoint {
            addresses: vec![own],
            ..own_endpoint()?
        };
        self.host_exchange = Some(HostExchange {
            endpoints: vec![place],
            ports,
            listeners,
            secret: Some(Secret::generate().map_err(no_secret)?),
        });
        Ok(())
    }

    /// Addresses of a node, in the order in which to try them from here.
    pub(super) fn addresses_of(&self, node: u32) -> &[IpAddr] {
        let place = self
            .host_exchange
            .as_ref()
            .and_then(|hosts| hosts.endpoints.get(node as usize));
        place.map_or(&[], |place| &place.addresses)
    }

    /// Returns the addresses of a node, followed by those that it got since the job began. None of
    /// these leads back to this host.
    pub(super) fn addresses_now(&self, node: u32) -> Vec<IpAddr> {
        let mut all = self.addresses_of(node).to_vec();
        let leads_back = |address: &IpAddr| {
            self.addresses_of(self.ctx.node).contains(address)
                || self.new_addresses.contains(&(self.ctx.node, *address))
        };
        for (_, address) in self.new_addresses.iter().filter(|(of, _)| *of == node) {
            if !all.contains(address) && !leads_back(address) {
                all.push(*address);
            }
        }
        all
    }

    /// Returns the addresses of this node.
    pub(super) fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses_of(self.ctx.node).to_vec()
    }

    /// Returns the addresses of all hosts, with those that they got since the job began.
    pub(super) fn endpoints_now(&self) -> Vec<HostEndpoint> {
        let mut places = self
            .host_exchange
            .as_ref()
            .map_or(Vec::new(), |hosts| hosts.endpoints.clone());
        new_networks::complete(&mut places, &self.new_addresses);
        places
    }

    /// The port of a rank.
    pub(super) fn port_of(&self, rank: u32) -> Option<u16> {
        let ports = self.host_exchange.as_ref().map(|hosts| &hosts.ports)?;
        ports.get(rank as usize).copied().filter(|port| *port != 0)
    }

    /// The port of a rank that is about to be started.
    pub(super) fn take_listener(&mut self, rank: u32) -> Option<TcpListener> {
        self.host_exchange.as_mut()?.listeners.remove(&rank)
    }

    /// The table of hosts as ranks read it; nothing where there is one.
    pub(super) fn host_table(&self) -> Vec<u8> {
        let hosts = self.host_exchange.as_ref();
        hosts.map_or(Vec::new(), |hosts| host_table::encode(&hosts.endpoints))
    }

    /// Writes the node of each rank into the rank blocks of a new world.
    pub(super) fn publish_hosts(&self, board: &Segment) {
        let Some(hosts) = &self.host_exchange else {
            return;
        };
        for (slot, rank) in self.slots.iter().zip(0..) {
            let port = hosts.ports.get(rank as usize).copied().unwrap_or(0);
            RankBlock::of(board, rank).set_host(slot.node, port);
        }
    }

    /// Returns the name of a host for messages. The user who started the job has named it; in jobs
    /// of other launchers each host says its own name, once all agents are connected.
    pub(super) fn host_name(&self, node: u32) -> &str {
        let places = self.host_exchange.as_ref().filter(|_| self.ctx.is_adopted);
        match places.and_then(|hosts| hosts.endpoints.get(node as usize)) {
            Some(place) => &place.name,
            None => self.ctx.job.nodes.name(node),
        }
    }

    /// Names of the hosts, a line each; nothing where there is one, or where they are too many for
    /// a message.
    pub(super) fn host_names(&self) -> String {
        let names = self.host_exchange.iter().flat_map(|hosts| &hosts.endpoints);
        let names = names
            .map(|place| place.name.as_str())
            .collect::<Vec<_>>()
            .join("\n");
        match self.ctx.job.nodes.several() && names.len() <= HOST_NAMES_MAX {
            true => names,
            false => String::new(),
        }
    }

    /// The secret of a job whose ranks use TCP.
    pub(super) fn secret(&self) -> Option<&Secret> {
        match (&self.root_role, self.ctx.links.parent()) {
            (Some(far), _) => Some(far.secret()),
            (_, Some(up)) => Some(up.secret()),
            _ => self.host_exchange.as_ref()?.secret.as_ref(),
        }
    }

    /// Shows that a rank of another host has ended well.
    pub(super) fn mark_ended_elsewhere(&mut self, rank: u32) {
        if self
            .slots
            .get(rank as usize)
            .is_some_and(|slot| slot.node != self.ctx.node)
        {
            for world in &self.worlds {
                RankBlock::of(&world.board, rank)
                    .set_state(garonne_job::layout::RankState::Finalized);
            }
        }
    }

    /// A person, or the system, ends this host's part of the job.
    pub(super) fn say_ended_by(&mut self, signal: i32) {
        if self.ctx.is_child() && self.shutdown.is_none() && super::shutdown::ends_jobs(signal) {
            let name = self.host_name(self.ctx.node).to_owned();
            let code = codes::G0217;
            let signal_name = garonne_links::process_tree::signal_name(signal);
            let who = match self.has_joined() {
                true => format!("host '{name}', which had joined, was asked there to end its part"),
                false => format!("the agent on host '{name}' was asked to end"),
            };
            self.ctx.report(&AgentReport::Failed {
                rank: None,
                code: 128 + signal,
                finalized: false,
                report: String::new(),
                line: format!("error[{code}]: {who} by {signal_name}"),
            });
        }
    }

    /// This host's part cannot go on: tells the first agent, and waits for its orders no longer
    /// than for their end.
    pub(super) fn failed_here(&mut self, error: &Error) -> i32 {
        let name = self.host_name(self.ctx.node).to_owned();
        let code = start_error_code(error);
        let text = error.to_string();
        let line = match text.split_once("]: ") {
            Some((head, rest)) => format!("{head}]: host '{name}': {rest}"),
            None => text,
        };
        self.report_to_joiner(&line);
        self.ctx.report(&AgentReport::Failed {
            rank: None,
            code,
            finalized: false,
            report: String::new(),
            line,
        });
        self.report_done();
        code
    }
}
