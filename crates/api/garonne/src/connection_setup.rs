//! Connections that come to be: callers at listeners, and calls of this process.
//!
//! Two endpoints meet over a sealed channel that proves the key. The caller sends a
//! [`Hello`](crate::card::Hello), the other side a [`Reply`](crate::card::Reply), and the caller
//! confirms it with an empty message. Then both have what they need for an engine between them.

use crate::attributes::{Attributes, Delivery};
use crate::card::{Hello, Reply};
use crate::error::of_engine;
use crate::limits::{AGREE_LIMIT, CALL_PAUSE, CALLS_AGAIN, REQUESTS_MAX};
use crate::pair::{Key, Pair, own_address};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_tcp::agent_channel::{
    self, AgentChannel, ChannelConnect, ConnectOutcome, PendingChannels,
};
use garonne_tcp::{LocalIdentity, Secret};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Name in the handshake. What tells endpoints apart is their key.
const HANDSHAKE: [u8; 16] = *b"garonne's events";
/// Number of the side that accepts, and of the one that connects.
const ACCEPTS: u32 = 0;
const CONNECTS: u32 = 1;

fn identity(key: &Key, side: u32) -> LocalIdentity {
    agent_channel::identity(key.secret(), HANDSHAKE, side)
}

/// A port of this endpoint, and the callers who have not said what they want.
#[derive(Debug)]
pub(crate) struct Port {
    calls: PendingChannels,
    address: SocketAddr,
    /// Places of callers that have not proved the key.
    places: Vec<usize>,
    /// Callers that have, until their HELLO is there.
    silent: Vec<(AgentChannel, Instant)>,
}

/// A caller that waits for the program's answer.
#[derive(Debug)]
pub(crate) struct Request {
    channel: AgentChannel,
    pub(crate) hello: Hello,
}

/// What became of a connection that comes to be.
#[derive(Debug)]
pub(crate) enum SetupOutcome {
    /// Nothing yet.
    Waits,
    /// The connection stands: its engine, the longest message of the other side, and the bytes that
    /// came along.
    Agreed(Box<Pair>, u64, Vec<u8>),
    Failed(Error),
}

impl Port {
    pub(crate) fn open(address: SocketAddr, key: &Key) -> Result<Self> {
        let failed = |error| of_engine("listen", error);
        let socket = garonne_tcp::listen(address).map_err(failed)?;
        let unknown = |error| Error::system(codes::G0304, "listen: the address is unknown", error);
        let address = socket.local_addr().map_err(unknown)?;
        socket.set_nonblocking(true).map_err(unknown)?;
        Ok(Self {
            calls: PendingChannels::new(identity(key, ACCEPTS), socket),
            address,
            places: Vec::new(),
            silent: Vec::new(),
        })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.calls.fd()
    }

    /// Lets callers in, and returns those that have said what they want. `watch` gets the sockets
    /// of callers. `room`: callers that may wait for an answer.
    pub(crate) fn look(
        &mut self,
        room: usize,
        watch: &mut dyn FnMut(BorrowedFd<'_>) -> bool,
    ) -> Vec<Request> {
        let places = &mut self.places;
        self.calls.open(&mut |place, socket| {
            places.push(place);
            watch(socket)
        });
        self.places.sort_unstable();
        self.places.dedup();
        let now = Instant::now();
        let (calls, silent) = (&mut self.calls, &mut self.silent);
        self.places.retain(|place| {
            let Some((_, channel)) = calls.look(*place, |side| side == CONNECTS) else {
                return true;
            };
            if silent.len() < REQUESTS_MAX {
                silent.push((channel, now + AGREE_LIMIT));
            }
            false
        });
        if self.calls.keep_time().is_none() {
            // All who were inside have proved the key or were sent away.
            self.places.clear();
        }
        let mut requests = Vec::new();
        for (mut channel, until) in std::mem::take(&mut self.silent) {
            match channel.receive() {
                // Who says too much, or nothing that is understood, is sent away.
                Ok(Some(message)) => {
                    if let Some(hello) = Hello::decode(&message)
                        && requests.len() < room
                    {
                        requests.push(Request { channel, hello });
                    }
                }
                Ok(None) if now < until => self.silent.push((channel, until)),
                Ok(None) | Err(_) => {}
            }
        }
        requests
    }

    /// Returns whether somebody is inside whose time is running.
    pub(crate) fn is_busy(&self) -> bool {
        !self.silent.is_empty() || !self.places.is_empty()
    }
}

impl Request {
    /// Accepts the caller: opens a port for the connection and answers.
    pub(crate) fn accept(mut self, attributes: Attributes, data: Vec<u8>) -> Result<Accepting> {
        let what = "accept";
        let gone = || Error::peer(codes::G0404, "accept: the caller is gone");
        let (own, _) = self.channel.ends().ok_or_else(gone)?;
        let failed = |error| of_engine(what, error);
        let socket = garonne_tcp::listen(SocketAddr::new(own.ip(), 0)).map_err(failed)?;
        let unknown = |error| Error::system(codes::G0304, "accept: its own address", error);
        let place = socket.local_addr().map_err(unknown)?;
        let secret = Secret::generate().map_err(failed)?;
        let reply = Reply::Accepted {
            secret: *secret.bytes(),
            message_max: attributes.message_max,
            place,
            data,
        };
        self.channel.send(&reply.encode()).map_err(|_| gone())?;
        Ok(Accepting {
            channel: self.channel,
            agreed: Some((socket, secret)),
            place: self.hello.place,
            peer_max: self.hello.message_max,
            until: Instant::now() + AGREE_LIMIT,
        })
    }

    /// Sends the caller away with an answer.
    pub(crate) fn reject(mut self) -> Rejecting {
        // Who is gone needs none.
        let _ = self.channel.send(&Reply::Rejected.encode());
        Rejecting {
            channel: self.channel,
            until: Instant::now() + AGREE_LIMIT,
        }
    }

    /// What the program learns of the request.
    pub(crate) fn wish(&self) -> (Delivery, Vec<u8>) {
        (self.hello.delivery, self.hello.data.clone())
    }

    /// Returns whether the caller still waits.
    pub(crate) fn is_there(&mut self) -> bool {
        matches!(self.channel.receive(), Ok(None))
    }
}

/// An accepted caller until it confirms.
#[derive(Debug)]
pub(crate) struct Accepting {
    channel: AgentChannel,
    /// Taken when the connection stands.
    agreed: Option<(TcpListener, Secret)>,
    place: SocketAddr,
    peer_max: u64,
    until: Instant,
}

impl Accepting {
    /// Goes on, and says what became of it.
    pub(crate) fn look(&mut self) -> SetupOutcome {
        let gone = || SetupOutcome::Failed(Error::peer(codes::G0404, "accept: the caller is gone"));
        let _ = self.channel.push();
        match self.channel.receive() {
            Ok(Some(confirmed)) if confirmed.is_empty() => {}
            Ok(Some(_)) | Err(_) => return gone(),
            Ok(None) if Instant::now() < self.until => return SetupOutcome::Waits,
            Ok(None) => return gone(),
        }
        let Some((socket, secret)) = self.agreed.take() else {
            return gone();
        };
        match Pair::agreed(ACCEPTS, secret.bytes(), socket, self.place) {
            Ok(pair) => SetupOutcome::Agreed(Box::new(pair), self.peer_max, Vec::new()),
            Err(error) => SetupOutcome::Failed(of_engine("accept", error)),
        }
    }
}

/// A caller that was sent away, until it has heard so.
#[derive(Debug)]
pub(crate) struct Rejecting {
    channel: AgentChannel,
    until: Instant,
}

impl Rejecting {
    /// Returns whether it is over.
    pub(crate) fn is_over(&mut self) -> bool {
        let _ = self.channel.push();
        !matches!(self.channel.receive(), Ok(None)) || Instant::now() >= self.until
    }
}

/// How far a call is.
#[derive(Debug)]
enum CallState {
    /// Begins at this time with the next address.
    Next(Instant),
    Calling(Box<ChannelConnect>),
    Asked {
        channel: Box<AgentChannel>,
        socket: TcpListener,
    },
    Over,
}

/// A call of this endpoint to a listener.
#[derive(Debug)]
pub(crate) struct Call {
    identity: LocalIdentity,
    uri: String,
    /// Addresses that were not tried yet, the next one last.
    addresses: Vec<SocketAddr>,
    attributes: Attributes,
    data: Vec<u8>,
    until: Instant,
    /// Calls that were cut off.
    cut: u32,
    state: CallState,
    /// What went wrong last.
    last: String,
}

impl Call {
    pub(crate) fn new(
        (uri, mut addresses): (&str, Vec<SocketAddr>),
        key: &Key,
        (attributes, data): (Attributes, Vec<u8>),
        until: Instant,
    ) -> Self {
        addresses.reverse();
        Self {
            identity: identity(key, CONNECTS),
            uri: uri.to_string(),
            addresses,
            attributes,
            data,
            until,
            cut: 0,
            state: CallState::Next(Instant::now()),
            last: "it has no address".into(),
        }
    }

    fn failed(&self, why: &str) -> SetupOutcome {
        let text = format!("connect {}: {why}", self.uri);
        SetupOutcome::Failed(Error::peer(codes::G0404, text))
    }

    /// Goes on, and says what became of it.
    pub(crate) fn look(&mut self) -> SetupOutcome {
        let now = Instant::now();
        if now >= self.until {
            let text = format!("connect {}: nobody accepted in time", self.uri);
            return SetupOutcome::Failed(Error::Timeout {
                code: codes::G0404,
                text,
            });
        }
        match std::mem::replace(&mut self.state, CallState::Over) {
            CallState::Next(at) if now < at => self.state = CallState::Next(at),
            CallState::Next(_) => {
                let Some(address) = self.addresses.last() else {
                    return self.failed(&self.last);
                };
                match ChannelConnect::begin(&self.identity, *address, ACCEPTS) {
                    Ok(call) => self.state = CallState::Calling(Box::new(call)),
                    Err(why) => self.next_address(why),
                }
            }
            CallState::Calling(mut call) => match call.look() {
                ConnectOutcome::Waits => self.state = CallState::Calling(call),
                ConnectOutcome::Open(channel) => return self.ask(channel),
                ConnectOutcome::Cut(why) if self.cut < CALLS_AGAIN => {
                    self.cut += 1;
                    self.last = why;
                    self.state = CallState::Next(now + CALL_PAUSE);
                }
                ConnectOutcome::Refused(fault) => self.next_address(fault.to_string()),
                ConnectOutcome::Cut(why) | ConnectOutcome::Failed(why) => self.next_address(why),
            },
            CallState::Asked {
                mut channel,
                socket,
            } => {
                let _ = channel.push();
                match channel.receive() {
                    Ok(None) => self.state = CallState::Asked { channel, socket },
                    Ok(Some(message)) => return self.answered(*channel, socket, &message),
                    Err(_) => return self.failed("the other side ended before it had answered"),
                }
            }
            CallState::Over => return self.failed(&self.last),
        }
        SetupOutcome::Waits
    }

    fn next_address(&mut self, why: String) {
        self.last = why;
        self.addresses.pop();
        self.state = CallState::Next(Instant::now());
    }

    /// The key is proved: says what is wanted.
    fn ask(&mut self, mut channel: Box<AgentChannel>) -> SetupOutcome {
        let Some((own, other)) = channel.ends() else {
            return self.failed("the connection broke");
        };
        // The channel's own address is one at which the other side has just outcome this one.
        let own = match own.ip().is_unspecified() {
            true => own_address(other).unwrap_or(own.ip()),
            false => own.ip(),
        };
        let socket = match garonne_tcp::listen(SocketAddr::new(own, 0)) {
            Ok(socket) => socket,
            Err(error) => return SetupOutcome::Failed(of_engine("connect", error)),
        };
        let place = match socket.local_addr() {
            Ok(place) => place,
            Err(error) => {
                let text = "connect: its own address";
                return SetupOutcome::Failed(Error::system(codes::G0304, text, error));
            }
        };
        let hello = Hello {
            delivery: self.attributes.delivery,
            message_max: self.attributes.message_max,
            place,
            data: std::mem::take(&mut self.data),
        };
        if channel.send(&hello.encode()).is_err() {
            return self.failed("the connection broke");
        }
        self.state = CallState::Asked { channel, socket };
        SetupOutcome::Waits
    }

    fn answered(
        &mut self,
        mut channel: AgentChannel,
        socket: TcpListener,
        message: &[u8],
    ) -> SetupOutcome {
        match Reply::decode(message) {
            Some(Reply::Accepted {
                secret,
                message_max,
                place,
                data,
            }) => {
                if channel.send(&[]).is_err() || channel.waiting() > 0 {
                    return self.failed("the connection broke");
                }
                match Pair::agreed(CONNECTS, &secret, socket, place) {
                    Ok(pair) => SetupOutcome::Agreed(Box::new(pair), message_max, data),
                    Err(error) => SetupOutcome::Failed(of_engine("connect", error)),
                }
            }
            Some(Reply::Rejected) => self.failed("the other side rejected the connection"),
            None => self.failed("the other side's answer is not understood"),
        }
    }
}
