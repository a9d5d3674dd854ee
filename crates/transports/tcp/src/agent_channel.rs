//! Connections between the agents of a job's hosts: the transport's openings and seals, with whole
//! messages instead of packets.
//!
//! Used by `node`, never by an engine. A [`PendingChannels`] takes calls in and a
//! [`ChannelConnect`] makes one; what either gives is a [`AgentChannel`], both of whose ends have
//! proved the job's secret and which node they are. All of it is sealed. Never blocks; bounded by
//! [`AGENT_MESSAGE_MAX`], and by what its user lets wait in [`AgentChannel::waiting`].
//!
//! Messages are numbered, and kept until the other side has said that it has them: when the way
//! fails, both go on over another connection ([`AgentChannel::renew`]), and nothing is lost or
//! comes twice. So what is kept is bounded by what its users let be under way without an answer.

use crate::connection::{AfterRead, CloseReason, Connection, IoResult};
use crate::connector::{ConnectFailure, ConnectStep, Connector};
use crate::frame::{ASKED, ProcessId, RejectReason, StreamNumber};
use crate::handshake::{HandshakeError, LocalIdentity};
use crate::listener::Listener;
use garonne_transport::limits::AGENT_MESSAGE_MAX;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// The number of the world that agents are, which no world of ranks has.
pub const AGENTS: u32 = u32::MAX;

/// Returns the identity that one agent brings to its openings. `node` is its index among the job's.
pub fn identity(secret: crate::Secret, job: [u8; 16], node: u32) -> LocalIdentity {
    LocalIdentity::new(secret, agent(job, AGENTS, node), true)
}

/// An agent, in the world in which it speaks.
fn agent(job: [u8; 16], world: u32, rank: u32) -> ProcessId {
    ProcessId {
        job,
        world,
        rank,
        incarnation: 0,
    }
}

/// Returns the identity to go on with a line by another connection, the `turn`th of them: who has
/// taken a later one takes no earlier one any more.
pub fn identity_again(mut identity: LocalIdentity, turn: u32) -> LocalIdentity {
    identity.me.incarnation = turn;
    identity
}

/// Returns the identity that an agent brings to a call to a rank of its node, on behalf of rank
/// `from`, which does not reach that one and wants to be called.
pub fn identity_of_asking(secret: crate::Secret, job: [u8; 16], from: u32) -> LocalIdentity {
    // As between ranks.
    LocalIdentity::new(secret, agent(job, ASKED, from), false)
}

/// Bytes before a message: its length, its number, and how many the sender has received.
const HEAD: usize = 12;

/// A line to another agent of the job.
#[derive(Debug)]
pub struct AgentChannel {
    channel: Connection,
    out: Vec<u8>,
    out_at: usize,
    came: Vec<u8>,
    came_at: usize,
    /// Messages of which the other side has not said that it has them, the first of them number
    /// `kept_from`.
    kept: VecDeque<Vec<u8>>,
    kept_from: u32,
    received: u32,
    /// How many bytes have come, whole messages or not.
    bytes: u64,
    /// Number of messages that the other side had received when this connection was made.
    theirs: u32,
    over: Option<ChannelLoss>,
    /// The connection before, until something comes by this one: its end is none of the line as
    /// long as the other side may not know of this one.
    before: Option<Connection>,
}

/// A line has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelLoss {
    /// The other end is gone, or broke the rules.
    Over,
    /// The way there failed; the line may go on over another connection.
    Broke,
}

impl AgentChannel {
    fn new(channel: Connection, theirs: u32) -> Self {
        Self {
            channel,
            out: Vec::new(),
            out_at: 0,
            came: Vec::new(),
            came_at: 0,
            kept: VecDeque::new(),
            kept_from: 0,
            received: 0,
            bytes: 0,
            theirs,
            over: None,
            before: None,
        }
    }

    /// Returns the socket: readable when something came; to be watched for room while
    /// [`AgentChannel::waiting`] is above 0.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// The version of the format that both ends use.
    pub fn version(&self) -> u16 {
        self.channel.version()
    }

    /// Bytes that have not left.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.out_at + usize::from(self.channel.holds_back())
    }

    /// Ends the connection for all who have it: what waits here to leave does not leave any more.
    pub fn end(&self) {
        let _ = rustix::net::shutdown(self.fd(), rustix::net::Shutdown::Both);
    }

    /// Returns whether the connection was reset: the process at the other end is gone, or what is
    /// on the way has forgotten the connection.
    pub fn is_reset(&self) -> bool {
        self.channel.end() == Some(CloseReason::Reset)
    }

    /// Returns how many messages have been received: what [`ChannelConnect::begin_again`] and
    /// [`PendingChannels::look`] tell the other side.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Returns how many bytes have come: a long message may take its time.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The addresses of both ends, this one's first.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let own = rustix::net::getsockname(self.fd()).ok()?;
        let other = rustix::net::getpeername(self.fd()).ok()??;
        Some((own.try_into().ok()?, other.try_into().ok()?))
    }

    /// Goes on over a new connection, on which nothing has been sent or received, with what the
    /// other side has not got.
    ///
    /// # Errors
    /// The other side says that it has received what was never sent.
    pub fn renew(&mut self, by: AgentChannel) -> Result<(), ChannelLoss> {
        // It may have said more since, by the connection before.
        let has = by.theirs.wrapping_sub(self.kept_from) as i32;
        if has > self.kept.len() as i32 {
            self.over = Some(ChannelLoss::Over);
            return Err(ChannelLoss::Over);
        }
        self.forget(by.theirs);
        self.before = Some(std::mem::replace(&mut self.channel, by.channel));
        self.over = None;
        self.came.clear();
        self.came_at = 0;
        self.out.clear();
        self.out_at = 0;
        for number in 0..self.kept.len() {
            self.frame(number);
        }
        self.push()
    }

    /// The other side has received the messages before this one.
    fn forget(&mut self, received: u32) {
        let known = received.wrapping_sub(self.kept_from) as usize;
        if known <= self.kept.len() {
            self.kept.drain(..known);
            self.kept_from = received;
        }
    }

    /// Has a message leave that is kept.
    fn frame(&mut self, at: usize) {
        let message = &self.kept[at];
        let number = self.kept_from.wrapping_add(at as u32);
        for word in [message.len() as u32, number, self.received] {
            self.out.extend_from_slice(&word.to_le_bytes());
        }
        self.out.extend_from_slice(message);
    }

    /// Sends a message, now or when there is room, or over the next connection. That this one is
    /// over, [`AgentChannel::receive`] tells behind what still came.
    ///
    /// # Errors
    /// It is longer than [`AGENT_MESSAGE_MAX`].
    pub fn send(&mut self, message: &[u8]) -> Result<(), ChannelLoss> {
        if message.len() > AGENT_MESSAGE_MAX {
            return Err(ChannelLoss::Over);
        }
        self.kept.push_back(message.to_vec());
        if self.over.is_none() {
            self.frame(self.kept.len() - 1);
            let _ = self.push();
        }
        Ok(())
    }

    /// Has what waits leave, as far as there is room.
    ///
    /// # Errors
    /// The connection is over.
    pub fn push(&mut self) -> Result<(), ChannelLoss> {
        if let Some(lost) = self.over {
            return Err(lost);
        }
        while self.out_at < self.out.len() {
            match self
                .channel
                .send(&self.out[self.out_at..], AfterRead::Nothing)
            {
                IoResult::Moved(moved) => self.out_at += moved,
                IoResult::Later => return Ok(()),
                IoResult::Over => return Err(self.broke()),
            }
        }
        self.out.clear();
        self.out_at = 0;
        match self.channel.push() {
            IoResult::Over => Err(self.broke()),
            _ => Ok(()),
        }
    }

    /// The connection is over: by the other side, as far as it has said so.
    fn broke(&mut self) -> ChannelLoss {
        // Who cannot send any more may still be told why.
        while let IoResult::Moved(_) = self.read() {}
        let lost = match self.channel.end() {
            Some(CloseReason::Broke | CloseReason::Reset) => ChannelLoss::Broke,
            _ => ChannelLoss::Over,
        };
        *self.over.insert(lost)
    }

    /// The next message that is here whole. `None`: there is none yet.
    ///
    /// # Errors
    /// The connection is over and everything that came was given, or the other end broke the rules.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, ChannelLoss> {
        loop {
            if let Some(message) = self.whole().inspect_err(|lost| self.over = Some(*lost))? {
                return Ok(Some(message));
            }
            if let Some(lost) = self.over {
                return Err(lost);
            }
            match self.read() {
                IoResult::Moved(_) => {}
                IoResult::Later => return Ok(None),
                IoResult::Over => {
                    self.broke();
                }
            }
        }
    }

    fn read(&mut self) -> IoResult {
        let mut bytes = [0; 16 * 1024];
        let got = self.channel.recv(&mut bytes);
        if let IoResult::Moved(moved) = got {
            self.before = None;
            self.bytes += moved as u64;
            self.came.drain(..std::mem::take(&mut self.came_at));
            self.came.extend_from_slice(&bytes[..moved]);
        }
        got
    }

    fn whole(&mut self) -> Result<Option<Vec<u8>>, ChannelLoss> {
        loop {
            let rest = &self.came[self.came_at..];
            let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else {
                return Ok(None);
            };
            let word = |at: usize| {
                u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let (len, number, received) = (word(0) as usize, word(4), word(8));
            if len > AGENT_MESSAGE_MAX {
                return Err(ChannelLoss::Over);
            }
            let Some(message) = rest.get(..len) else {
                return Ok(None);
            };
            let message = message.to_vec();
            self.came_at += HEAD + len;
            self.forget(received);
            // What came by an earlier connection while this one was made comes again.
            match number.wrapping_sub(self.received) as i32 {
                0 => {
                    self.received = self.received.wrapping_add(1);
                    return Ok(Some(message));
                }
                ..0 => {}
                1.. => return Err(ChannelLoss::Over),
            }
        }
    }
}

/// Place where agents call: a listening port, and those who have not proved who they are.
#[derive(Debug)]
pub struct PendingChannels {
    door: Listener,
    identity: LocalIdentity,
}

impl PendingChannels {
    /// Takes calls at `listener`, which does not block.
    pub fn new(identity: LocalIdentity, listener: TcpListener) -> Self {
        Self {
            door: Listener::new(OwnedFd::from(listener)),
            identity,
        }
    }

    /// Readable when somebody calls.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.door.fd()
    }

    /// Lets callers in; each takes a place, whose socket is handed to `watch`.
    pub fn open(&mut self, watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool) {
        self.door.open(Instant::now(), watch);
    }

    /// Hands the sockets of all who are inside to `watch`, as [`PendingChannels::open`] has done:
    /// for a set of pending channels whose owner is another from now on.
    pub fn hand_over(&mut self, watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool) {
        self.door.hand_over(watch);
    }

    /// Goes on with the caller of a place. Gives it with the index of its node once it has proved
    /// who it is; `expected` says of a node whether it may come.
    pub fn look(
        &mut self,
        place: usize,
        expected: impl FnOnce(u32) -> bool,
    ) -> Option<(u32, AgentChannel)> {
        let first = |node: u32, turn: u32| (turn == 0 && expected(node)).then_some(0);
        let ((node, _), line) = self.look_again(place, first)?;
        Some((node, line))
    }

    /// Looks for calls, also of those that go on with a line by a further connection: `expected`
    /// says, of a node and the turn that it names ([`identity_again`]), how many messages of it
    /// were received, if it may come.
    pub fn look_again(
        &mut self,
        place: usize,
        expected: impl FnOnce(u32, u32) -> Option<u32>,
    ) -> Option<((u32, u32), AgentChannel)> {
        let admit = |from: &ProcessId, stream: StreamNumber| match stream {
            StreamNumber::Small => expected(from.rank, from.incarnation).ok_or(RejectReason::Other),
            _ => Err(RejectReason::Other),
        };
        let newcomer = self.door.look(place, &self.identity, admit)?;
        let line = AgentChannel::new(newcomer.channel, newcomer.expected);
        Some(((newcomer.from.rank, newcomer.from.incarnation), line))
    }

    /// Returns the address that was sent away last since this was last asked, and why: for messages
    /// to people.
    pub fn turned_away(&mut self) -> Option<(IpAddr, HandshakeError)> {
        self.door.turned_away()
    }

    /// Sends those away who take too long; when to ask again.
    pub fn keep_time(&mut self) -> Option<Instant> {
        self.door.keep_time(Instant::now())
    }
}

/// A call to another agent under way.
#[derive(Debug)]
pub struct ChannelConnect {
    line: Option<Connector>,
    /// Messages that were received before.
    received: u32,
}

/// Result of a call.
#[derive(Debug)]
pub enum ConnectOutcome {
    /// Nothing yet.
    Waits,
    /// The call is answered.
    Open(Box<AgentChannel>),
    /// The call was cut off without a word; what that may mean. Who calls while many others do may
    /// call again.
    Cut(String),
    /// The answering side says why not.
    Refused(HandshakeError),
    /// The call came to nothing; why.
    Failed(String),
}

impl ChannelConnect {
    /// Calls the agent of node `to` at an address.
    ///
    /// # Errors
    /// It cannot even be tried; why.
    pub fn begin(identity: &LocalIdentity, address: SocketAddr, to: u32) -> Result<Self, String> {
        Self::begin_on(identity, (address, to, StreamNumber::Small), 0)
    }

    /// Calls it to go on with a line on which so many messages were received.
    ///
    /// # Errors
    /// It cannot even be tried; why.
    pub fn begin_again(
        identity: &LocalIdentity,
        (address, to): (SocketAddr, u32),
        received: u32,
    ) -> Result<Self, String> {
        Self::begin_on(identity, (address, to, StreamNumber::Small), received)
    }

    /// Asks rank `to` at an address to call the one that `identity` names; for bulk data, or for
    /// packets.
    ///
    /// # Errors
    /// It cannot even be tried; why.
    pub fn ask(
        identity: &LocalIdentity,
        (address, to): (SocketAddr, u32),
        bulk: bool,
    ) -> Result<Self, String> {
        let stream = if bulk {
            StreamNumber::Bulk(0)
        } else {
            StreamNumber::Small
        };
        Self::begin_on(identity, (address, to, stream), 0)
    }

    fn begin_on(
        identity: &LocalIdentity,
        (address, to, stream): (SocketAddr, u32, StreamNumber),
        received: u32,
    ) -> Result<Self, String> {
        let line = Connector::begin(identity, (address, (to, 0), stream), Instant::now());
        let call = |line| Self {
            line: Some(line),
            received,
        };
        line.map(call).map_err(|failure| tell(&failure))
    }

    /// To be watched for reading, and for room until [`ChannelConnect::has_called`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(Connector::fd)
    }

    /// The connection stands and the call has left.
    pub fn has_called(&self) -> bool {
        self.line
            .as_ref()
            .is_some_and(|line| line.called().is_some())
    }

    /// Goes on after its socket became ready.
    pub fn look(&mut self) -> ConnectOutcome {
        let received = self.received;
        match self
            .line
            .take()
            .map(|line| line.step(received, Instant::now()))
        {
            Some(ConnectStep::Wait(line)) => {
                self.line = Some(line);
                ConnectOutcome::Waits
            }
            Some(ConnectStep::Open(channel, theirs)) => {
                ConnectOutcome::Open(Box::new(AgentChannel::new(channel, theirs)))
            }
            Some(ConnectStep::Failed(
                failure @ (ConnectFailure::Cut | ConnectFailure::Unheard),
            )) => ConnectOutcome::Cut(tell(&failure)),
            Some(ConnectStep::Failed(ConnectFailure::Fault(fault))) => {
                ConnectOutcome::Refused(fault)
            }
            Some(ConnectStep::Failed(failure)) => ConnectOutcome::Failed(tell(&failure)),
            None => ConnectOutcome::Failed("it is over".into()),
        }
    }
}

fn tell(failure: &ConnectFailure) -> String {
    match failure {
        ConnectFailure::Refused => "nobody listens there".into(),
        ConnectFailure::Unreachable => "it cannot be reached".into(),
        ConnectFailure::Alone => "it does not come where both can be met".into(),
        ConnectFailure::Unheard => {
            "it closed the connection at once, as who has too many callers does".into()
        }
        ConnectFailure::Cut => "it cut the call off, as who does not know this secret does".into(),
        ConnectFailure::Fault(fault) => fault.to_string(),
    }
}

#[cfg(test)]
mod tests;
