//! Connections between the agents of a job's hosts: the rail's openings and seals, with whole messages instead of packets.
//!
//! Used by `node`, never by an engine. A [`Porch`] takes calls in and a [`Call`] makes one; what either gives is a [`Trusted`], both of whose ends have proved the
//! job's secret and which node they are. All of it is sealed. Never blocks; bounded by [`TRUSTED_MESSAGE_MAX`], and by what its user lets wait in [`Trusted::waiting`].

use crate::limits::TRUSTED_MESSAGE_MAX;
use crate::tcp::channel::{Channel, Io, Then};
use crate::tcp::door::Door;
use crate::tcp::frame::{ASKED, Process, Reason, Stream};
use crate::tcp::handshake::House;
use crate::tcp::line::{Failure, Line, Step};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

/// The number of the world that agents are, which no world of ranks has.
pub const AGENTS: u32 = u32::MAX;

/// What one agent brings to its openings. `node` is its index among the job's.
pub fn house(secret: crate::tcp::Secret, job: [u8; 16], node: u32) -> House {
    House {
        secret,
        me: Process {
            job,
            world: AGENTS,
            rank: node,
            incarnation: 0,
        },
        sealed: true,
    }
}

/// What an agent brings to a call to a rank of its node, on behalf of rank `from`, which does not reach that one and wants to be called.
pub fn house_of_asking(secret: crate::tcp::Secret, job: [u8; 16], from: u32) -> House {
    House {
        secret,
        me: Process {
            job,
            world: ASKED,
            rank: from,
            incarnation: 0,
        },
        // As between ranks.
        sealed: false,
    }
}

/// Bytes before a message: its length.
const LENGTH: usize = 4;

/// A connection to another agent of the job.
#[derive(Debug)]
pub struct Trusted {
    channel: Channel,
    out: Vec<u8>,
    out_at: usize,
    came: Vec<u8>,
    came_at: usize,
}

/// The other end is gone, or broke the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

impl Trusted {
    fn new(channel: Channel) -> Self {
        Self {
            channel,
            out: Vec::new(),
            out_at: 0,
            came: Vec::new(),
            came_at: 0,
        }
    }

    /// Its socket: readable when something came; to be watched for room while [`Trusted::waiting`] is above 0.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// Bytes that have not left.
    pub fn waiting(&self) -> usize {
        self.out.len() - self.out_at + usize::from(self.channel.holds_back())
    }

    /// Sends a message, now or when there is room.
    ///
    /// # Errors
    /// It is longer than [`TRUSTED_MESSAGE_MAX`], or the connection is over.
    pub fn send(&mut self, message: &[u8]) -> Result<(), Lost> {
        if message.len() > TRUSTED_MESSAGE_MAX {
            return Err(Lost);
        }
        self.out.extend_from_slice(&(message.len() as u32).to_le_bytes());
        self.out.extend_from_slice(message);
        self.push()
    }

    /// Has what waits leave, as far as there is room.
    ///
    /// # Errors
    /// The connection is over.
    pub fn push(&mut self) -> Result<(), Lost> {
        while self.out_at < self.out.len() {
            match self.channel.send(&self.out[self.out_at..], Then::Nothing) {
                Io::Moved(moved) => self.out_at += moved,
                Io::Later => return Ok(()),
                Io::Over => return Err(Lost),
            }
        }
        self.out.clear();
        self.out_at = 0;
        match self.channel.push() {
            Io::Over => Err(Lost),
            _ => Ok(()),
        }
    }

    /// The next message that is here whole. `None`: there is none yet.
    ///
    /// # Errors
    /// The connection is over and everything that came was given, or the other end broke the rules.
    pub fn receive(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        loop {
            if let Some(message) = self.whole()? {
                return Ok(Some(message));
            }
            let mut bytes = [0; 16 * 1024];
            match self.channel.recv(&mut bytes) {
                Io::Moved(moved) => {
                    self.came.drain(..std::mem::take(&mut self.came_at));
                    self.came.extend_from_slice(&bytes[..moved]);
                }
                Io::Later => return Ok(None),
                Io::Over => return Err(Lost),
            }
        }
    }

    fn whole(&mut self) -> Result<Option<Vec<u8>>, Lost> {
        let rest = &self.came[self.came_at..];
        let Some(head) = rest.first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let len = u32::from_le_bytes(*head) as usize;
        if len > TRUSTED_MESSAGE_MAX {
            return Err(Lost);
        }
        let Some(message) = rest.get(LENGTH..LENGTH + len) else {
            return Ok(None);
        };
        let message = message.to_vec();
        self.came_at += LENGTH + len;
        Ok(Some(message))
    }
}

/// Where agents call: a listening port, and those who have not proved who they are.
#[derive(Debug)]
pub struct Porch {
    door: Door,
    house: House,
}

impl Porch {
    /// Takes calls at `listener`, which does not block.
    pub fn new(house: House, listener: TcpListener) -> Self {
        Self {
            door: Door::new(OwnedFd::from(listener)),
            house,
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

    /// Goes on with the caller of a place. Gives it with the index of its node once it has proved who it is; `expected` says of a node whether it may come.
    pub fn look(&mut self, place: usize, expected: impl FnOnce(u32) -> bool) -> Option<(u32, Trusted)> {
        let admit = |from: &Process, stream: Stream| match stream {
            Stream::Small if expected(from.rank) => Ok(0),
            _ => Err(Reason::Other),
        };
        let newcomer = self.door.look(place, &self.house, admit)?;
        Some((newcomer.from.rank, Trusted::new(newcomer.channel)))
    }

    /// Sends those away who take too long; when to ask again.
    pub fn keep_time(&mut self) -> Option<Instant> {
        self.door.keep_time(Instant::now())
    }
}

/// A call to another agent under way.
#[derive(Debug)]
pub struct Call {
    line: Option<Line>,
}

/// What became of a call.
#[derive(Debug)]
pub enum Called {
    /// Nothing yet.
    Waits,
    /// It is answered.
    Open(Trusted),
    /// It came to nothing; why.
    Failed(String),
}

impl Call {
    /// Calls the agent of node `to` at an address.
    ///
    /// # Errors
    /// It cannot even be tried; why.
    pub fn begin(house: &House, address: SocketAddr, to: u32) -> Result<Self, String> {
        Self::begin_on(house, (address, to, Stream::Small))
    }

    /// Asks rank `to` at an address to call the one that `house` names; for bulk data, or for packets.
    ///
    /// # Errors
    /// It cannot even be tried; why.
    pub fn ask(house: &House, (address, to): (SocketAddr, u32), bulk: bool) -> Result<Self, String> {
        let stream = if bulk { Stream::Bulk(0) } else { Stream::Small };
        Self::begin_on(house, (address, to, stream))
    }

    fn begin_on(house: &House, (address, to, stream): (SocketAddr, u32, Stream)) -> Result<Self, String> {
        let line = Line::begin(house, (address, (to, 0), stream), Instant::now());
        line.map(|line| Self { line: Some(line) })
            .map_err(|failure| tell(&failure))
    }

    /// To be watched for reading, and for room until [`Call::has_called`].
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.line.as_ref().map(Line::fd)
    }

    /// The connection stands and the call has left.
    pub fn has_called(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.called().is_some())
    }

    /// Goes on after its socket became ready.
    pub fn look(&mut self) -> Called {
        match self.line.take().map(|line| line.step(0, Instant::now())) {
            Some(Step::Wait(line)) => {
                self.line = Some(line);
                Called::Waits
            }
            Some(Step::Open(channel, _)) => Called::Open(Trusted::new(channel)),
            Some(Step::Failed(failure)) => Called::Failed(tell(&failure)),
            None => Called::Failed("it is over".into()),
        }
    }
}

fn tell(failure: &Failure) -> String {
    match failure {
        Failure::Refused => "nobody listens there".into(),
        Failure::Unreachable => "it cannot be reached".into(),
        Failure::Cut => "it cut the call off, as who does not know this secret does".into(),
        Failure::Fault(fault) => fault.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::Secret;

    fn pair(theirs: &Secret, mine: &Secret) -> Option<(Trusted, Trusted)> {
        let listener = crate::tcp::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let mut porch = Porch::new(house(theirs.clone(), [7; 16], 0), listener);
        let mut call = Call::begin(&house(mine.clone(), [7; 16], 3), address, 0).unwrap();
        let mut place = None;
        let mut far = None;
        for _ in 0..2000 {
            porch.open(&mut |at, _| {
                place = Some(at);
                true
            });
            if let Some(at) = place
                && let Some(come) = porch.look(at, |node| node == 3)
            {
                assert_eq!(come.0, 3);
                far = Some(come.1);
            }
            match call.look() {
                Called::Waits => {}
                Called::Failed(_) => return None,
                Called::Open(near) => {
                    while far.is_none() {
                        far = porch.look(place.unwrap(), |node| node == 3).map(|(_, far)| far);
                    }
                    return far.map(|far| (near, far));
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        None
    }

    #[test]
    fn messages_of_any_length_arrive_in_order_and_the_end_after_them() {
        let secret = Secret::generate().unwrap();
        let (mut near, mut far) = pair(&secret, &secret).unwrap();
        let messages = [vec![], vec![1], vec![2; 300_000], vec![3; 5]];
        for message in &messages {
            near.send(message).unwrap();
        }
        let mut got = Vec::new();
        while got.len() < messages.len() {
            near.push().unwrap();
            got.extend(far.receive().unwrap());
        }
        assert_eq!(got, messages);
        assert_eq!(near.waiting(), 0);
        drop(near);
        while far.receive() != Err(Lost) {}
    }

    #[test]
    fn who_does_not_know_the_secret_gets_no_connection() {
        assert!(pair(&Secret::generate().unwrap(), &Secret::generate().unwrap()).is_none());
    }

    #[test]
    fn a_message_longer_than_agreed_is_not_sent() {
        let secret = Secret::generate().unwrap();
        let (mut near, _far) = pair(&secret, &secret).unwrap();
        assert_eq!(near.send(&vec![0; TRUSTED_MESSAGE_MAX + 1]), Err(Lost));
    }
}
