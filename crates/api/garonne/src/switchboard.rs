//! The inside of an endpoint with an event queue: its ports, calls and connections, and the events
//! that they cause.

use crate::attributes::Attributes;
use crate::connection_setup::{Accepting, Call, Port, Rejecting, Request, SetupOutcome};
use crate::error::misuse;
use crate::event::{ConnectionId, Event};
use crate::job_peer::JobRank;
use crate::limits::{
    AGREE_LOOK, EVENTS_MAX, HELD_MAX, JOB_LOOK, MESSAGE_MAX, POLLED_ALL_MAX, POLLS_PER_LOOK,
    REQUESTS_MAX,
};
use crate::link::{EventRoom, Link, LinkEngine};
use crate::poll_set::{PollSet, SETUPS};
use crate::remote_memory::RegionId;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_sync::shm::Segment;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

/// A connection that comes to be.
#[derive(Debug)]
enum PendingConnection {
    Calls(Box<Call>),
    Accepts(Box<Accepting>),
}

/// Owned by one endpoint, behind its lock. Order of calls: `add_…`, then [`Switchboard::step`] and
/// [`Switchboard::take_event`] again and again; [`Switchboard::before_sleep`] before a sleep.
#[derive(Debug)]
pub(crate) struct Switchboard {
    polled: Arc<PollSet>,
    next: u64,
    ports: Vec<Port>,
    requests: BTreeMap<ConnectionId, Request>,
    pending: BTreeMap<ConnectionId, (PendingConnection, Attributes)>,
    rejected: Vec<Rejecting>,
    links: BTreeMap<ConnectionId, Link>,
    /// Connections that are over, of which the program does not know it yet.
    ended: BTreeSet<ConnectionId>,
    regions: BTreeMap<RegionId, Segment>,
    /// The job that the endpoint has joined. Left after the connections have ended.
    job: Option<JobRank>,
    events: VecDeque<Event>,
    /// Bytes of messages in `events`.
    held: usize,
    /// Steps so far.
    steps: u32,
    /// The program polls the descriptor itself.
    is_watched: bool,
}

impl Switchboard {
    pub(crate) fn new(polled: Arc<PollSet>) -> Self {
        Self {
            polled,
            next: 1,
            ports: Vec::new(),
            requests: BTreeMap::new(),
            pending: BTreeMap::new(),
            rejected: Vec::new(),
            links: BTreeMap::new(),
            ended: BTreeSet::new(),
            regions: BTreeMap::new(),
            job: None,
            events: VecDeque::new(),
            held: 0,
            steps: 0,
            is_watched: false,
        }
    }

    fn name(&mut self) -> ConnectionId {
        self.next += 1;
        ConnectionId(self.next - 1)
    }

    pub(crate) fn add_port(&mut self, port: Port) -> Result<()> {
        let watched = self.polled.add(port.fd(), SETUPS);
        watched.map_err(|error| Error::system(codes::G0304, "listen", error))?;
        self.ports.push(port);
        self.touch();
        Ok(())
    }

    pub(crate) fn add_call(&mut self, call: Call, attributes: Attributes) -> ConnectionId {
        let name = self.name();
        let connection = PendingConnection::Calls(Box::new(call));
        self.pending.insert(name, (connection, attributes));
        self.touch();
        name
    }

    pub(crate) fn add_accepted(
        &mut self,
        name: ConnectionId,
        accepting: Accepting,
        attributes: Attributes,
    ) {
        let connection = PendingConnection::Accepts(Box::new(accepting));
        self.pending.insert(name, (connection, attributes));
        self.touch();
    }

    pub(crate) fn add_rejected(&mut self, rejected: Rejecting) {
        self.rejected.push(rejected);
        self.touch();
    }

    pub(crate) fn take_request(&mut self, name: ConnectionId) -> Option<Request> {
        self.requests.remove(&name)
    }

    pub(crate) fn link(&mut self, name: ConnectionId) -> Result<&mut Link> {
        if self.has_ended(name) {
            let text = format!(
                "connection {} is over, as its next events say",
                name.number()
            );
            return Err(Error::peer(codes::G0403, text));
        }
        let known = self.links.get_mut(&name);
        known.ok_or_else(|| misuse(format!("there is no connection {}", name.number())))
    }

    /// Returns whether a connection is over and the program has not been told yet.
    pub(crate) fn has_ended(&self, name: ConnectionId) -> bool {
        self.ended.contains(&name)
    }

    pub(crate) fn join(&mut self, job: JobRank) {
        self.job = Some(job);
    }

    /// The job that the endpoint has joined.
    pub(crate) fn job(&self) -> Result<&JobRank> {
        let job = self.job.as_ref();
        job.ok_or_else(|| misuse("the endpoint has joined no job (EventEndpoint::join)"))
    }

    /// The connection to a rank, which stands at once.
    pub(crate) fn connect_rank(&mut self, rank: u32) -> Result<ConnectionId> {
        if let Some(known) = self.job()?.known(rank) {
            return Ok(known);
        }
        let name = self.name();
        let Some(job) = &mut self.job else {
            return Err(misuse("the endpoint has joined no job"));
        };
        let engine = Box::new(job.engine_to(rank, name)?);
        let limits = (MESSAGE_MAX, MESSAGE_MAX);
        match self.add_link(name, engine, limits, Vec::new()) {
            Some(error) => Err(error),
            None => Ok(name),
        }
    }

    /// Takes in a rank that speaks for the first time.
    fn look_at_job(&mut self) {
        if let Some(peer) = self.job.as_mut().and_then(JobRank::new_speaker) {
            // One that cannot be connected with is asked for again by the next look.
            let _ = self.connect_rank(peer);
        }
    }

    pub(crate) fn add_region(&mut self, memory: Segment) -> RegionId {
        let name = RegionId(self.name().0);
        self.regions.insert(name, memory);
        name
    }

    pub(crate) fn region(&self, name: RegionId) -> Result<&Segment> {
        let known = self.regions.get(&name);
        known.ok_or_else(|| misuse(format!("there is no region {}", name.number())))
    }

    /// Ends a region that no peer can access.
    pub(crate) fn remove_region(&mut self, name: RegionId) -> Result<()> {
        self.region(name)?;
        if self.links.values().any(|link| link.uses(name)) {
            return Err(misuse("a peer has a key of the region; withdraw it first"));
        }
        self.regions.remove(&name);
        Ok(())
    }

    /// The oldest event.
    pub(crate) fn take_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front()?;
        self.held -= event.held();
        if let Event::Closed { connection, .. } = &event {
            self.ended.remove(connection);
        }
        Some(event)
    }

    pub(crate) fn has_event(&self) -> bool {
        !self.events.is_empty()
    }

    pub(crate) fn has_connections(&self) -> bool {
        !(self.links.is_empty() && self.pending.is_empty() && self.rejected.is_empty())
    }

    /// Closes all connections, and ends what is not one yet.
    pub(crate) fn close_all(&mut self) {
        self.ports.clear();
        self.requests.clear();
        self.pending.clear();
        self.links.values_mut().for_each(Link::close);
    }

    /// Makes progress on everything that may have something.
    pub(crate) fn step(&mut self) {
        self.steps = self.steps.wrapping_add(1);
        self.look_at_job();
        let few = self.links.len() <= POLLED_ALL_MAX;
        if few && !self.steps.is_multiple_of(POLLS_PER_LOOK) && self.has_only_links() {
            self.advance_all();
            return;
        }
        let (mut ready, mut sets_up) = (Vec::new(), false);
        self.polled.ready(|name| match name {
            SETUPS => sets_up = true,
            name => ready.push(ConnectionId(name)),
        });
        if sets_up || !self.has_only_links() {
            self.look_at_ports();
            self.look_at_pending();
        }
        if few {
            self.advance_all();
            return;
        }
        // Those first that no socket tells of.
        let behind = self.links.iter().filter(|(_, link)| link.needs_looks());
        ready.extend(behind.map(|(name, _)| *name));
        ready.sort_unstable();
        ready.dedup();
        for name in ready {
            self.advance(name);
        }
    }

    /// Nothing comes to be just now.
    fn has_only_links(&self) -> bool {
        self.pending.is_empty() && self.rejected.is_empty() && !self.ports.iter().any(Port::is_busy)
    }

    fn advance_all(&mut self) {
        let mut at = ConnectionId(0);
        while let Some((&name, _)) = self.links.range(at..).next() {
            self.advance(name);
            at = ConnectionId(name.0 + 1);
        }
    }

    fn advance(&mut self, name: ConnectionId) {
        let Some(link) = self.links.get_mut(&name) else {
            return;
        };
        let room = EventRoom {
            events: EVENTS_MAX.saturating_sub(self.events.len()),
            bytes: HELD_MAX.saturating_sub(self.held),
        };
        let before = self.events.len();
        let is_over = link.advance(room, &mut self.events);
        let new = self.events.range(before..);
        self.held += new.map(Event::held).sum::<usize>();
        if is_over {
            let over = self.links.remove(&name);
            if let Some(link) = over.filter(Link::may_linger) {
                // Others need not wait for a peer that does not answer. Without a thread it is
                // dropped here.
                let _ = std::thread::Builder::new().spawn(move || drop(link));
            }
            if let Some(job) = &mut self.job {
                job.ended(name);
            }
            self.ended.insert(name);
        }
    }

    fn look_at_ports(&mut self) {
        let gone =
            |(name, request): (&ConnectionId, &mut Request)| (!request.is_there()).then_some(*name);
        let gone: Vec<_> = self.requests.iter_mut().filter_map(gone).collect();
        for name in gone {
            self.requests.remove(&name);
        }
        let polled = self.polled.clone();
        let mut came = Vec::new();
        for port in &mut self.ports {
            let room = REQUESTS_MAX.saturating_sub(self.requests.len() + came.len());
            came.extend(port.look(room, &mut |socket| polled.add(socket, SETUPS).is_ok()));
        }
        for request in came {
            let name = self.name();
            let (delivery, data) = request.wish();
            // Watched since it called; a socket whose watch ended is found by the next look.
            self.requests.insert(name, request);
            self.events.push_back(Event::ConnectRequest {
                connection: name,
                delivery,
                data,
            });
        }
    }

    fn look_at_pending(&mut self) {
        self.rejected.retain_mut(|rejected| !rejected.is_over());
        let mut over = Vec::new();
        for (name, (connection, attributes)) in &mut self.pending {
            let outcome = match connection {
                PendingConnection::Calls(call) => call.look(),
                PendingConnection::Accepts(accepting) => accepting.look(),
            };
            if !matches!(outcome, SetupOutcome::Waits) {
                over.push((*name, outcome, *attributes));
            }
        }
        for (name, outcome, attributes) in over {
            self.pending.remove(&name);
            let failed = match outcome {
                SetupOutcome::Waits => continue,
                SetupOutcome::Failed(error) => Some(error),
                SetupOutcome::Agreed(pair, peer_max, data) => {
                    self.add_link(name, pair, (attributes.message_max, peer_max), data)
                }
            };
            if let Some(error) = failed {
                self.events.push_back(Event::ConnectFailed {
                    connection: name,
                    error,
                });
            }
        }
    }

    /// Takes a connection in that stands; why that failed.
    fn add_link(
        &mut self,
        name: ConnectionId,
        engine: Box<dyn LinkEngine>,
        limits: (u64, u64),
        data: Vec<u8>,
    ) -> Option<Error> {
        if let Some(sockets) = engine.sockets()
            && let Err(error) = self.polled.add(sockets.epoll().as_fd(), name.0)
        {
            return Some(Error::system(codes::G0304, "a new connection", error));
        }
        match Link::new(name, engine, limits) {
            Ok(link) => self.links.insert(name, link),
            Err(error) => return Some(error),
        };
        self.events.push_back(Event::Connected {
            connection: name,
            data,
        });
        None
    }

    /// Prepares for a sleep, and returns how long it may last.
    pub(crate) fn before_sleep(&mut self) -> Option<Duration> {
        let links = self.links.values().filter_map(Link::limit).min();
        let pending = (!self.has_only_links()).then_some(AGREE_LOOK);
        let job = self.job.is_some().then_some(JOB_LOOK);
        links.into_iter().chain(pending).chain(job).min()
    }

    /// From now on the program may poll the descriptor.
    pub(crate) fn watch_from_outside(&mut self) {
        self.is_watched = true;
        self.touch();
    }

    /// A call is about to return: the descriptor is to say whether there is something.
    pub(crate) fn touch(&mut self) {
        if !self.is_watched {
            return;
        }
        if self.events.is_empty() {
            let limit = self.before_sleep();
            self.step();
            self.polled.set_timer(limit);
        }
        let behind = self.links.values().any(Link::is_behind);
        self.polled.ring(!self.events.is_empty() || behind);
    }
}
