//! What the agents of a job on several hosts learn of each other before the first rank starts, and
//! what the ranks of one host learn of it that use TCP among themselves.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener};

use garonne_job::agent_messages::{AgentReport, HostEndpoint, NodeEndpoints};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_links::addresses;
use garonne_tcp::{Secret, listen};

use super::child_agents::ChildAgents;
use super::exit_log::start_error_code;
use super::parent_link::ParentLink;
use super::root_role::no_secret;
use super::{Agent, AgentStart};

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
        ethernet: None,
    })
}

impl Agent<'_> {
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
        // Where this is the first agent a refusal comes before others are started.
        if !matches!(beginning, AgentStart::Outer(_)) {
            self.ctx.open_packet_sockets()?;
        }
        match beginning {
            AgentStart::Plain if self.ctx.is_adopted => {}
            AgentStart::Plain => self.start_agents(None)?,
            AgentStart::Joined(company) => self.start_agents(Some(*company))?,
            AgentStart::Outer(outer) => {
                let (secret, parent, joined) = (outer.secret.clone(), outer.parent, outer.guest);
                let mut outer = *outer;
                let child_listener = outer.child_listener.take();
                let link = ParentLink::new(outer, self.ctx.node, &self.ctx.epoll);
                self.ctx.links.set_parent(link);
                self.ctx.secret = Some(secret.clone());
                self.ctx.share_connection(parent);
                self.await_children(&secret, child_listener)?;
                // Before this host counts as ready, so that nothing starts anywhere.
                self.ctx.allowed_networks()?;
                self.ctx.open_packet_sockets()?;
                let place = HostEndpoint {
                    joined,
                    ethernet: self.ctx.hosts.ethernet(),
                    ..own_endpoint()?
                };
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
    fn await_children(
        &mut self,
        secret: &Secret,
        child_listener: Option<TcpListener>,
    ) -> Result<()> {
        match child_listener {
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
        let (places, ports) = match self.ctx.links.parent_mut().and_then(|up| up.take_start()) {
            Some(told) => {
                self.ctx.check_ways(&told.0)?;
                told
            }
            None => self.send_start(NodeEndpoints {
                node: self.ctx.node,
                place: HostEndpoint {
                    ethernet: self.ctx.hosts.ethernet(),
                    ..own_endpoint()?
                },
                ports,
            })?,
        };
        let up = self.ctx.links.parent();
        self.ctx.hosts.set_exchanged((places, ports), listeners, up);
        Ok(())
    }

    /// Opens ports of this host's own for the ranks of a job on one host, which are to use TCP as
    /// well.
    pub(super) fn exchange_on_one_host(&mut self) -> Result<()> {
        self.ctx.hosts.listen_on_one_host(self.ctx.job.size())?;
        self.ctx.secret = Some(Secret::generate().map_err(no_secret)?);
        Ok(())
    }

    /// A person, or the system, ends this host's part of the job.
    pub(super) fn say_ended_by(&mut self, signal: i32) {
        if self.ctx.is_child() && !self.ctx.is_ending && super::shutdown::ends_jobs(signal) {
            let name = self.ctx.host_name(self.ctx.node).to_owned();
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
        let name = self.ctx.host_name(self.ctx.node).to_owned();
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
