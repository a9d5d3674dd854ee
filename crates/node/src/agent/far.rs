//! The first agent's side of a job on several hosts: starts the agents of the others, hears them, and has them do what it decides.
//!
//! The first agent is the launcher's; it decides alone how the job ends, so that one failure is the first everywhere. It knows the ranks of other hosts by their
//! slots, whose output comes in messages (`source`) within a window, and whose end is reported. Each other host has a [`Branch`]: the command that starts its agent,
//! which is told on its standard input where to call and by which secret, and then the line over which it has called back.

use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use garonne_rails::tcp::trusted::{self, Porch};
use garonne_rails::tcp::{House, Secret};
use rustix::event::epoll;

use super::output::Kind;
use super::trunk::Trunk;
use super::{Agent, Token, listen_at};
use crate::addresses;
use crate::codes;
use crate::error::{Error, Result};
use crate::joining::gate::Gate;
use crate::joining::room::Company;
use crate::leaf::Manner;
use crate::limits;
use crate::nodes::listed;
use crate::orders::{Errand, Order, Place, Report, Side};
use crate::processes::{self, Ended};
use crate::sys;

/// What the first agent has beyond others.
pub(super) struct Far {
    porch: Porch,
    secret: Secret,
    pub(super) branches: Vec<Branch>,
    gather_until: Instant,
    /// Where hosts have joined, if any have.
    pub(super) gate: Option<Gate>,
    /// Ranks that have ended well, to be told.
    pub(super) ended: Vec<u32>,
    pub(super) input: super::input::Input,
}

/// Another host.
pub(super) struct Branch {
    node: u32,
    /// The command that starts its agent, until it has ended.
    pid: i32,
    /// Our end of that command's standard input: an agent that has not called yet ends with it.
    _errand: Option<OwnedFd>,
    /// What the command says.
    words: Option<OwnedFd>,
    said: Vec<u8>,
    trunk: Option<Trunk>,
    ready: Option<(Place, Vec<u16>)>,
    /// It has said that nothing runs there any more, or its line is gone.
    done: bool,
}

impl Branch {
    /// Of a command that was started; our ends of its standard input and of what it says.
    pub fn new(node: u32, pid: i32, (errand, words): (OwnedFd, OwnedFd)) -> Self {
        Self {
            node,
            pid,
            _errand: Some(errand),
            words: Some(words),
            ..Self::awaited(node)
        }
    }

    /// Of a host that has joined.
    pub fn joined(node: u32, trunk: Trunk) -> Self {
        Self {
            trunk: Some(trunk),
            ..Self::awaited(node)
        }
    }

    /// Of one that somebody else starts.
    fn awaited(node: u32) -> Self {
        Self {
            node,
            pid: 0,
            _errand: None,
            words: None,
            said: Vec::new(),
            trunk: None,
            ready: None,
            done: false,
        }
    }
}

pub(super) fn side(kind: Kind) -> Side {
    match kind {
        Kind::Out => Side::Out,
        Kind::Err => Side::Err,
    }
}

pub(super) fn kind(side: Side) -> Kind {
    match side {
        Side::Out => Kind::Out,
        Side::Err => Kind::Err,
    }
}

impl Far {
    /// The secret that ranks of several hosts prove to each other.
    pub fn secret(&self) -> &Secret {
        &self.secret
    }

    pub(super) fn branch(&mut self, node: u32) -> Option<&mut Branch> {
        self.branches.get_mut((node as usize).checked_sub(1)?)
    }

    /// All agents have called and know the job.
    pub fn is_ready(&self) -> bool {
        self.branches.iter().all(|branch| branch.ready.is_some())
    }

    /// Nothing runs on the other hosts, as far as can be known.
    pub fn is_done(&self) -> bool {
        self.branches.iter().all(|branch| branch.done)
    }

    /// Nothing more is to be expected of those where something may still run.
    pub fn is_hopeless(&self, now: Instant) -> bool {
        let open = self.branches.iter().filter(|branch| !branch.done);
        let mut lines = open.filter_map(|branch| branch.trunk.as_ref());
        lines.all(|trunk| trunk.heard() + limits::FAR_GRACE <= now)
    }

    /// Those that have not called are not waited for: they will find nobody.
    pub fn forget_absent(&mut self) {
        for branch in self.branches.iter_mut().filter(|branch| branch.trunk.is_none()) {
            branch.done = true;
            sys::kill(branch.pid, libc::SIGTERM);
        }
    }

    /// Their nodes, where something may still run.
    pub fn not_done(&self) -> Vec<u32> {
        let open = self.branches.iter().filter(|branch| !branch.done);
        open.map(|branch| branch.node).collect()
    }

    fn next_due(&self) -> Option<Instant> {
        let gather = (!self.is_ready()).then_some(self.gather_until);
        let open = self.branches.iter().filter(|branch| !branch.done);
        let lines = open.filter_map(|branch| branch.trunk.as_ref()).map(Trunk::due);
        lines.chain(gather).min()
    }
}

impl Agent<'_> {
    /// Opens the port at which agents of other hosts call. Returns it, and the secret that they are to prove.
    fn open_far(&mut self) -> Result<(u16, Secret)> {
        let secret = Secret::generate().map_err(no_secret)?;
        let (listener, port) = listen_at(0)?;
        let house: House = trusted::house(secret.clone(), self.id.0.to_ne_bytes(), 0);
        let porch = Porch::new(house, listener);
        self.listen(porch.fd(), Token::Porch)?;
        self.far = Some(Box::new(Far {
            porch,
            secret: secret.clone(),
            branches: Vec::new(),
            gather_until: Instant::now() + limits::GATHER_WAIT,
            gate: None,
            ended: Vec::new(),
            input: super::input::Input::default(),
        }));
        Ok((port, secret))
    }

    /// The same, where others start the agents that will call.
    pub(super) fn await_branches(&mut self) -> Result<(u16, Secret)> {
        let opened = self.open_far()?;
        let nodes = 1..self.job.nodes.names.len() as u32;
        if let Some(far) = &mut self.far {
            far.branches.extend(nodes.map(Branch::awaited));
        }
        Ok(opened)
    }

    /// The others have been told where to call: from now on they are waited for.
    pub(super) fn gather_from_now(&mut self) {
        if let Some(far) = &mut self.far {
            far.gather_until = Instant::now() + limits::GATHER_WAIT;
        }
    }

    /// What the agent of a node is told first: where this one takes calls, if it is to call.
    pub(super) fn errand_for(
        &self,
        node: u32,
        (port, secret): (u16, &Secret),
        addresses: Vec<IpAddr>,
    ) -> Errand {
        Errand {
            job: self.id.0,
            secret: secret.clone(),
            node,
            name: self.job.nodes.name(node).to_owned(),
            port,
            addresses,
        }
    }

    /// Starts the agents of the job's other hosts. Those of hosts that have joined run already, and are the last.
    pub(super) fn start_branches(&mut self, company: Option<Company>) -> Result<()> {
        let (port, secret) = self.open_far()?;
        let addresses = addresses::own();
        let joined = company.as_ref().map_or(0, |company| company.guests.len());
        for node in 1..(self.job.nodes.names.len() - joined) as u32 {
            let errand = self.errand_for(node, (port, &secret), addresses.clone());
            let branch = self.start_branch(&errand)?;
            if let Some(far) = &mut self.far {
                far.branches.push(branch);
            }
        }
        company.map_or(Ok(()), |company| self.seat(company, (port, &secret)))
    }

    /// Somebody calls.
    pub(super) fn open_porch(&mut self) {
        let Some(far) = &mut self.far else { return };
        let epoll = &self.epoll;
        far.porch.open(&mut |place, socket| {
            epoll::add(
                epoll,
                socket,
                Token::Stranger(place as u32).pack(),
                epoll::EventFlags::IN,
            )
            .is_ok()
        });
    }

    /// One who calls goes on proving who it is.
    pub(super) fn stranger_speaks(&mut self, place: u32) {
        let Some(far) = &mut self.far else { return };
        let branches = &far.branches;
        let expected = |node: u32, turn: u32| {
            let branch = branches
                .iter()
                .find(|branch| branch.node == node && !branch.done)?;
            match &branch.trunk {
                None => (turn == 0).then_some(0),
                Some(trunk) => (turn > trunk.turn()).then(|| trunk.received()),
            }
        };
        let Some(((node, turn), line)) = far.porch.look_again(place as usize, expected) else {
            return;
        };
        if let Some(trunk) = far.branch(node).and_then(|branch| branch.trunk.as_mut()) {
            return match turn > trunk.turn() {
                true if trunk.renew(&self.epoll, (line, turn)).is_err() => self.branch_lost(node),
                true => self.branch_speaks(node),
                false => {}
            };
        }
        let mut trunk = Trunk::new(line, Token::Trunk(node), &self.epoll);
        let sent = match self.adopted {
            // Its ranks run already, and have told it of the job.
            Some(_) => Ok(()),
            None => {
                let order = Order::Job(Box::new(self.job_for(Manner::Started)));
                trunk.send(&self.epoll, &order.encode())
            }
        };
        let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) else {
            return;
        };
        branch.trunk = Some(trunk);
        match sent {
            Ok(()) => self.branch_speaks(node),
            Err(_) => self.branch_lost(node),
        }
    }

    /// What the command that starts an agent says is kept, for the case that it fails.
    pub(super) fn branch_words(&mut self, node: u32) {
        let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) else {
            return;
        };
        let Some(words) = &branch.words else { return };
        let mut buffer = [0; 1024];
        loop {
            match rustix::io::read(words, &mut buffer) {
                Ok(n) if n > 0 => {
                    let room = limits::STARTER_WORDS_MAX.saturating_sub(branch.said.len());
                    branch.said.extend_from_slice(&buffer[..n.min(room)]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                _ => {
                    let _ = epoll::delete(&self.epoll, words);
                    branch.words = None;
                    return;
                }
            }
        }
    }

    /// Looks whether commands that start agents have ended: before their agent has called, that is a failure.
    pub(super) fn look_at_starters(&mut self) {
        let Some(far) = &mut self.far else { return };
        let ended = far.branches.iter_mut().filter(|branch| branch.pid > 0);
        let ended: Vec<_> = ended
            .filter_map(|branch| {
                let how = processes::ended(branch.pid)?;
                processes::reap(std::mem::take(&mut branch.pid));
                (branch.trunk.is_none() && !branch.done).then_some((branch.node, how))
            })
            .collect();
        for (node, how) in ended {
            self.branch_words(node);
            let how = match how {
                Ended::Exit(status) => format!("ended with exit status {status}"),
                Ended::Signal(signal) => format!("was killed by signal {signal}"),
            };
            self.not_started(node, &format!("the command that starts its agent {how}"));
        }
    }

    /// Whether this process is such a command.
    pub(super) fn is_starter(&self, pid: i32) -> bool {
        self.far
            .as_ref()
            .is_some_and(|far| far.branches.iter().any(|branch| branch.pid == pid))
    }

    fn not_started(&mut self, node: u32, why: &str) {
        let name = self.job.nodes.name(node).to_owned();
        let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) else {
            return;
        };
        branch.done = true;
        let said = String::from_utf8_lossy(&branch.said).trim_end().to_owned();
        let said = match said.is_empty() {
            true => String::new(),
            false => format!("; it said:\n  {}", said.replace('\n', "\n  ")),
        };
        self.fail_without_rank(
            1,
            &format!("error[{}]: no agent on host '{name}': {why}{said}", codes::G0216),
        );
    }

    /// A message of another host's agent.
    pub(super) fn branch_speaks(&mut self, node: u32) {
        loop {
            let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) else {
                return;
            };
            let Some(trunk) = branch.trunk.as_mut() else {
                return;
            };
            let _ = trunk.push(&self.epoll);
            let message = trunk.receive(&self.epoll);
            let report = match message {
                Ok(Some(message)) => Report::decode(&message),
                Ok(None) => return,
                Err(_) => return self.branch_lost(node),
            };
            match report {
                Ok(report) => self.serve_report(node, report),
                Err(_) => return self.branch_lost(node),
            }
        }
    }

    fn serve_report(&mut self, node: u32, report: Report) {
        match report {
            Report::Ready { place, ports } => {
                if let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) {
                    branch.ready = Some((place, ports));
                }
            }
            Report::Output(rank, side, bytes) => {
                if self.is_of(rank, node) {
                    let kind = kind(side);
                    let stream = self.slots[rank as usize].stream_mut(kind);
                    if let Some(source) = &mut stream.source {
                        source.feed(&bytes);
                    }
                    if stream.reading {
                        self.pump(kind, rank);
                    }
                }
            }
            Report::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            } => self.failed_elsewhere(rank, (code, finalized), &report, &line),
            Report::Over(rank) => {
                if self.is_of(rank, node) {
                    self.slots[rank as usize].ended.get_or_insert(Ended::Exit(0));
                    self.mark_ended_elsewhere(rank);
                    if let Some(far) = &mut self.far {
                        far.ended.push(rank);
                    }
                }
            }
            Report::Taken(bytes) => self.input_taken(bytes),
            Report::Say(line) => self.say(&line),
            Report::Done => {
                if let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) {
                    branch.done = true;
                }
                self.no_more_of(node);
            }
            Report::Call(call) => self.have_called(call),
            Report::Drain(network, drained) => self.set_drained(network, drained),
            Report::Passes(call, port) => self.passes(call, (node, port)),
            Report::Ping => {}
        }
    }

    /// Whether a started rank is on that node.
    fn is_of(&self, rank: u32, node: u32) -> bool {
        self.slots
            .get(rank as usize)
            .is_some_and(|slot| slot.node == node)
    }

    /// Nothing more comes from the ranks of a node.
    fn no_more_of(&mut self, node: u32) {
        for rank in 0..self.slots.len() as u32 {
            if !self.is_of(rank, node) {
                continue;
            }
            self.slots[rank as usize]
                .ended
                .get_or_insert(Ended::Signal(libc::SIGKILL));
            for kind in [Kind::Out, Kind::Err] {
                let stream = self.slots[rank as usize].stream_mut(kind);
                if let Some(source) = &mut stream.source {
                    source.feed(&[]);
                }
                if stream.reading {
                    self.pump(kind, rank);
                }
            }
        }
    }

    /// The line to a host's agent is gone.
    pub(super) fn branch_lost(&mut self, node: u32) {
        let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) else {
            return;
        };
        branch.trunk = None;
        if std::mem::replace(&mut branch.done, true) {
            return;
        }
        let was_ready = branch.ready.is_some();
        self.branch_words(node);
        self.no_more_of(node);
        if !was_ready {
            return self.not_started(node, "the connection to its agent broke at once");
        }
        let ranks = self.job.ranks_of(node);
        let ranks = match ranks.len() {
            1 => format!("rank {}", ranks[0]),
            _ => format!("ranks {}", listed(&ranks)),
        };
        let name = self.job.nodes.name(node);
        let line = format!(
            "error[{}]: the connection to host '{name}' ({ranks}) broke: its agent was killed, or the host or the network is gone",
            codes::G0217
        );
        self.fail_without_rank(1, &line);
    }

    /// Sends an order to all other agents.
    pub(super) fn order_all(&mut self, order: &Order) {
        let Some(far) = &mut self.far else { return };
        let bytes = order.encode();
        let mut lost = Vec::new();
        for branch in far.branches.iter_mut().filter(|branch| !branch.done) {
            if let Some(trunk) = &mut branch.trunk
                && trunk.send(&self.epoll, &bytes).is_err()
            {
                lost.push(branch.node);
            }
        }
        lost.into_iter().for_each(|node| self.branch_lost(node));
    }

    /// Sends an order to the agent of a node.
    pub(super) fn order(&mut self, node: u32, order: &Order) {
        let Some(branch) = self.far.as_mut().and_then(|far| far.branch(node)) else {
            return;
        };
        let sent = branch
            .trunk
            .as_mut()
            .map(|trunk| trunk.send(&self.epoll, &order.encode()));
        if sent.is_some_and(|sent| sent.is_err()) {
            self.branch_lost(node);
        }
    }

    /// All agents are there: tells them where everybody is. Called once.
    pub(super) fn go(&mut self, own: (Place, Vec<u16>)) -> (Vec<Place>, Vec<u16>) {
        let Some(far) = &mut self.far else {
            return (vec![own.0], own.1);
        };
        let of_node: Vec<_> = std::iter::once(own)
            .chain(far.branches.iter_mut().filter_map(|branch| branch.ready.clone()))
            .collect();
        let (mut places, ports): (Vec<Place>, Vec<Vec<u16>>) = of_node.into_iter().unzip();
        // Hosts of one name (machines that nobody named, containers) are told apart by what the user calls them.
        let names: Vec<String> = places.iter().map(|place| place.name.clone()).collect();
        for (node, place) in places.iter_mut().enumerate() {
            if names.iter().filter(|name| **name == place.name).count() > 1 {
                place.name = self.job.nodes.name(node as u32).to_owned();
            }
        }
        let mut ports: Vec<_> = ports.into_iter().map(Vec::into_iter).collect();
        let of_rank = |rank| {
            ports
                .get_mut(self.job.nodes.of(rank) as usize)
                .and_then(Iterator::next)
                .unwrap_or(0)
        };
        let ports: Vec<u16> = (0..self.job.size()).map(of_rank).collect();
        let order = Order::Go {
            places: places.clone(),
            ports: ports.clone(),
        };
        self.order_all(&order);
        (places, ports)
    }

    /// Tells the other agents which ranks have ended.
    pub(super) fn order_ended(&mut self) {
        let ended = self
            .far
            .as_mut()
            .map(|far| std::mem::take(&mut far.ended))
            .unwrap_or_default();
        if !ended.is_empty() {
            self.order_all(&Order::Ended(ended));
        }
    }

    pub(super) fn far_due(&self) -> Option<Instant> {
        self.far.as_ref().and_then(|far| far.next_due())
    }

    /// Signs of life, and the end of patience.
    pub(super) fn far_keep_time(&mut self, now: Instant) {
        let Some(far) = &mut self.far else { return };
        far.porch.keep_time();
        far.gate.iter_mut().for_each(|gate| gate.keep_time(now));
        let (late, ping) = (!far.is_ready() && now >= far.gather_until, Order::Ping.encode());
        let mut lost = Vec::new();
        let mut absent = Vec::new();
        for branch in far.branches.iter_mut().filter(|branch| !branch.done) {
            let alive = branch
                .trunk
                .as_mut()
                .map(|trunk| trunk.keep_alive(&self.epoll, &ping, now));
            match alive {
                Some(Err(_)) => lost.push(branch.node),
                None if late => absent.push(branch.node),
                _ => {}
            }
        }
        lost.into_iter().for_each(|node| self.branch_lost(node));
        for node in absent {
            let after = limits::GATHER_WAIT.as_secs();
            self.not_started(node, &format!("it has not called back within {after} s"));
        }
    }

    /// Names the hosts of which nobody knows whether something still runs there.
    pub(super) fn name_the_silent(&mut self) {
        let silent = self.far.as_ref().map(|far| far.not_done()).unwrap_or_default();
        for node in silent {
            let name = self.job.nodes.name(node).to_owned();
            self.say(&format!(
                "error[{}]: host '{name}' does not answer; its agent ends what runs there when it finds itself cut off ({} s at most)",
                codes::G0217,
                limits::AGENT_SILENCE_MAX.as_secs()
            ));
        }
    }
}

pub(super) fn no_secret(error: garonne_engine::api::Error) -> Error {
    Error::resource(codes::G0304, format!("cannot handle the job's secret: {error:?}"))
}
