//! One agent's link to another: messages, signs of life, and the agent's epoll told what to watch.
//!
//! It outlives its connection: when the way there fails, the child agent makes another
//! (`parent_link`), and both sides go on where they were.

use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use garonne_tcp::agent_channel::{AgentChannel, ChannelLoss};
use rustix::event::epoll;

use super::EpollToken;
use super::heartbeat::Heartbeat;
use garonne_job::agent_messages::shows_ranks;
use garonne_job::limits::{AGENT_SILENCE_MAX, LINE_DOWN_MAX, LOOK_WAITING_MAX};

/// Way in which a line was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkLoss {
    /// The other side has ended the connection, as the system does for an agent that is killed.
    Ended,
    /// Nothing was heard for [`AGENT_SILENCE_MAX`].
    Silent,
    /// The connection failed, and no other was made within [`LINE_DOWN_MAX`].
    NotRenewed,
}

impl std::fmt::Display for LinkLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LinkLoss::Ended => f.write_str("its agent was killed, or the host went down"),
            LinkLoss::Silent => write!(
                f,
                "nothing was heard from there for {} s; the host or the network is gone",
                AGENT_SILENCE_MAX.as_secs()
            ),
            LinkLoss::NotRenewed => write!(
                f,
                "it failed and could not be made again within {} s; the agent was killed, or the host or the network is gone",
                LINE_DOWN_MAX.as_secs()
            ),
        }
    }
}

/// A link to another agent: survives its connection, and checks that the other side lives.
#[derive(Debug)]
pub(super) struct AgentLink {
    connection: AgentChannel,
    token: EpollToken,
    awaits_writable: bool,
    heartbeat: Heartbeat,
    /// Since when there is no connection.
    down_since: Option<Instant>,
    /// How many connections came before this one.
    turn: u32,
    /// Way in which it is lost, should it be.
    loss: LinkLoss,
}

impl AgentLink {
    /// Has the epoll watch a line; its socket may be watched already, under another token.
    pub fn new(line: AgentChannel, token: EpollToken, epoll: &OwnedFd) -> Self {
        let mut link = Self {
            connection: line,
            token,
            awaits_writable: false,
            heartbeat: Heartbeat::new(Instant::now()),
            down_since: None,
            turn: 0,
            loss: LinkLoss::Ended,
        };
        link.watch(epoll);
        link
    }

    fn watch(&mut self, epoll: &OwnedFd) {
        let room = match self.awaits_writable {
            true => epoll::EventFlags::OUT,
            false => epoll::EventFlags::empty(),
        };
        let flags = epoll::EventFlags::IN | room;
        if epoll::modify(epoll, self.connection.fd(), self.token.pack(), flags).is_err() {
            let _ = epoll::add(epoll, self.connection.fd(), self.token.pack(), flags);
        }
    }

    /// Goes on over another connection, the `turn`th.
    pub fn replace_connection(
        &mut self,
        epoll: &OwnedFd,
        (by, turn): (AgentChannel, u32),
    ) -> Result<(), ChannelLoss> {
        let _ = epoll::delete(epoll, self.connection.fd());
        self.connection.renew(by)?;
        (self.down_since, self.turn) = (None, turn);
        self.awaits_writable = self.connection.waiting() > 0;
        self.heartbeat.received(Instant::now());
        self.watch(epoll);
        Ok(())
    }

    /// Ends the line: the launcher has its connection, too, so that forgetting it would not.
    pub fn end(self, epoll: &OwnedFd) {
        let _ = epoll::delete(epoll, self.connection.fd());
        self.connection.end();
    }

    /// Tells the other side that nothing more comes from here, while this process ends.
    pub fn say_end(&self) {
        self.connection.end();
    }

    /// Returns the descriptor of the connection, for the launcher.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.connection.fd()
    }

    /// Returns whether there is no connection at the moment.
    pub fn is_down(&self) -> bool {
        self.down_since.is_some()
    }

    /// Since when there is no connection because the other side, or something on the way, has reset
    /// it.
    pub fn reset_since(&self) -> Option<Instant> {
        self.down_since.filter(|_| self.connection.is_reset())
    }

    /// Returns how many connections came before this one.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Returns whether a message is not to be sent: what can be left out, where so much waits to
    /// leave already, or nothing can leave.
    pub fn leaves_out(&self, message: &[u8]) -> bool {
        (self.is_down() || self.connection.waiting() > LOOK_WAITING_MAX) && shows_ranks(message)
    }

    /// Bytes that wait to leave.
    pub fn waiting(&self) -> usize {
        self.connection.waiting()
    }

    /// Returns how many messages have come.
    pub fn received(&self) -> u32 {
        self.connection.received()
    }

    /// The addresses of both ends, this one's first.
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        self.connection.ends()
    }

    /// Sends a message, now or when there is room. An error: it is too long.
    pub fn send(&mut self, epoll: &OwnedFd, message: &[u8]) -> Result<(), ChannelLoss> {
        self.heartbeat.sent(Instant::now());
        self.connection.send(message)?;
        self.watch_room(epoll);
        Ok(())
    }

    fn watch_room(&mut self, epoll: &OwnedFd) {
        let wants_room = self.connection.waiting() > 0;
        if wants_room != self.awaits_writable && self.down_since.is_none() {
            self.awaits_writable = wants_room;
            self.watch(epoll);
        }
    }

    /// Has what waits leave; whether all has.
    pub fn push(&mut self, epoll: &OwnedFd) -> Result<bool, ChannelLoss> {
        self.connection.push()?;
        self.watch_room(epoll);
        Ok(!self.awaits_writable)
    }

    /// The next message that is here. An error: the other side has ended the line; a connection
    /// that fails only leaves it without one for a while.
    pub fn receive(&mut self, epoll: &OwnedFd) -> Result<Option<Vec<u8>>, ChannelLoss> {
        let before = self.connection.bytes();
        let received = self.connection.receive();
        // Also in the middle of a message: on a slow line it may take longer than the patience with
        // silence.
        if self.connection.bytes() != before {
            self.heartbeat.received(Instant::now());
        }
        match received {
            Ok(message) => Ok(message),
            Err(ChannelLoss::Broke) => {
                if self.down_since.is_none() {
                    self.down_since = Some(Instant::now());
                    let _ = epoll::delete(epoll, self.connection.fd());
                }
                Ok(None)
            }
            Err(ChannelLoss::Over) => Err(ChannelLoss::Over),
        }
    }

    /// Returns how it was lost, once it is.
    pub fn how_lost(&self) -> LinkLoss {
        self.loss
    }

    /// When the other side was last heard, in time in which this side could hear.
    pub fn heard(&self) -> Instant {
        self.heartbeat.heard()
    }

    /// When a sign of life is due, from either side.
    pub fn due(&self) -> Instant {
        let patience = self.down_since.map(|since| since + LINE_DOWN_MAX);
        patience.map_or(self.heartbeat.due(), |patience| {
            patience.min(self.heartbeat.due())
        })
    }

    /// Says that this side lives, if it is time.
    pub fn keep_alive(
        &mut self,
        epoll: &OwnedFd,
        ping: &[u8],
        now: Instant,
    ) -> Result<(), ChannelLoss> {
        let is_gone = self
            .down_since
            .is_some_and(|since| now >= since + LINE_DOWN_MAX);
        if self.heartbeat.is_over(now) {
            self.loss = LinkLoss::Silent;
            return Err(ChannelLoss::Over);
        }
        if is_gone {
            self.loss = LinkLoss::NotRenewed;
            return Err(ChannelLoss::Over);
        }
        if self.heartbeat.must_speak(now) {
            // Behind what waits already it would say nothing new.
            self.heartbeat.sent(now);
            if !self.awaits_writable && self.down_since.is_none() {
                return self.send(epoll, ping);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_tcp::agent_channel::{ChannelConnect, ConnectOutcome, PendingChannels, identity};
    use garonne_tcp::{Secret, listen};
    use std::time::Duration;

    /// Both ends of a line.
    fn line() -> (AgentChannel, AgentChannel) {
        let identity = |node| identity(Secret::from_bytes(&[3; 32]), [1; 16], node);
        let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let mut pending = PendingChannels::new(identity(0), listener);
        let mut call = ChannelConnect::begin(&identity(1), address, 0).unwrap();
        let (mut below, mut above) = (None, None);
        let until = Instant::now() + Duration::from_secs(10);
        while below.is_none() || above.is_none() {
            assert!(Instant::now() < until, "they do not meet");
            pending.open(&mut |_, _| true);
            above = above.or_else(|| (0..4).find_map(|place| pending.look(place, |_| true)));
            if below.is_none()
                && let ConnectOutcome::Open(line) = call.look()
            {
                below = Some(*line);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        (below.unwrap(), above.unwrap().1)
    }

    #[test]
    fn who_is_in_the_middle_of_a_long_message_is_not_silent() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (mut below, above) = line();
        let mut link = AgentLink::new(above, EpollToken::AgentLink(1), &epoll);
        let before = link.heard();
        // More than sockets take.
        below.send(&vec![7; 8 << 20]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(link.receive(&epoll), Ok(None));
        assert!(link.heard() > before);
    }
}
