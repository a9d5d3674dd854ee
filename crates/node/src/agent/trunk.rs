//! One agent's line to another: messages, signs of life, and the agent's epoll told what to watch.

use std::os::fd::OwnedFd;
use std::time::Instant;

use garonne_rails::tcp::trusted::{Lost, Trusted};
use rustix::event::epoll;

use super::Token;
use super::vigil::Vigil;

/// See the module's paragraph.
#[derive(Debug)]
pub(super) struct Trunk {
    line: Trusted,
    token: Token,
    wants_room: bool,
    vigil: Vigil,
}

impl Trunk {
    /// Has the epoll watch a line; its socket may be watched already, under another token.
    pub fn new(line: Trusted, token: Token, epoll: &OwnedFd) -> Self {
        let mut trunk = Self {
            line,
            token,
            wants_room: false,
            vigil: Vigil::new(Instant::now()),
        };
        trunk.watch(epoll);
        trunk
    }

    fn watch(&mut self, epoll: &OwnedFd) {
        let room = match self.wants_room {
            true => epoll::EventFlags::OUT,
            false => epoll::EventFlags::empty(),
        };
        let flags = epoll::EventFlags::IN | room;
        if epoll::modify(epoll, self.line.fd(), self.token.pack(), flags).is_err() {
            let _ = epoll::add(epoll, self.line.fd(), self.token.pack(), flags);
        }
    }

    /// Sends a message, now or when there is room.
    pub fn send(&mut self, epoll: &OwnedFd, message: &[u8]) -> Result<(), Lost> {
        self.vigil.say(Instant::now());
        self.line.send(message)?;
        self.watch_room(epoll);
        Ok(())
    }

    fn watch_room(&mut self, epoll: &OwnedFd) {
        let wants_room = self.line.waiting() > 0;
        if wants_room != self.wants_room {
            self.wants_room = wants_room;
            self.watch(epoll);
        }
    }

    /// Has what waits leave; whether all has.
    pub fn push(&mut self, epoll: &OwnedFd) -> Result<bool, Lost> {
        self.line.push()?;
        self.watch_room(epoll);
        Ok(!self.wants_room)
    }

    /// The next message that is here.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        let message = self.line.receive()?;
        if message.is_some() {
            self.vigil.hear(Instant::now());
        }
        Ok(message)
    }

    /// When the other side was last heard, in time in which this side could hear.
    pub fn heard(&self) -> Instant {
        self.vigil.heard()
    }

    /// When a sign of life is due, from either side.
    pub fn due(&self) -> Instant {
        self.vigil.due()
    }

    /// Says that this side lives, if it is time.
    pub fn keep_alive(&mut self, epoll: &OwnedFd, ping: &[u8], now: Instant) -> Result<(), Lost> {
        if self.vigil.is_over(now) {
            return Err(Lost);
        }
        if self.vigil.must_speak(now) {
            // Behind what waits already it would say nothing new.
            self.vigil.say(now);
            if !self.wants_room {
                return self.send(epoll, ping);
            }
        }
        Ok(())
    }
}
