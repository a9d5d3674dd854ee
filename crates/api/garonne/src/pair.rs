//! Two processes that are connected by address, without a launcher.
//!
//! The one that listens is rank 0, the one that connects is rank 1. Each has an engine over the TCP
//! transport, which proves that both know the key, encrypts, and makes a broken connection again.
//! Three messages go by the control context:
//! - GREETING: rank 1 says where it listens itself, so that either side can make a broken
//!   connection again.
//! - WELCOME: rank 0 has accepted.
//! - GOODBYE: its sender leaves; everything that it sent before has arrived.

use crate::endpoint::{CONTROL, Endpoint, Host};
use crate::error::{misuse, of_engine};
use crate::limits::{CONNECT_LIMIT, CONNECT_LOOK, GREETING_MAX, LEAVE_LIMIT, SPINS};
use crate::link::LinkEngine;
use crate::sys::OwnedOperation;
use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    self, CallOrigin, Pattern, Peer, RecvArgs, SendArgs, SendCompletion, Source, Status,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver};
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_tcp::{
    LocalIdentity, PeerDirectory, ProcessId, SECRET_BYTES, Secret, SocketSet, TcpTransport,
};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const LISTENING: Peer = 0;
const CONNECTING: Peer = 1;
const SIZE: u32 = 2;

const GREETING: i32 = 1;
const WELCOME: i32 = 2;
pub(crate) const GOODBYE: i32 = 3;

/// Name of the job in the handshake. What tells pairs apart is their key.
const PAIR: [u8; 16] = *b"garonne's pairs\0";

/// Secret that the two ends of a connection share. Wiped when dropped, never printed.
#[derive(Clone, Debug)]
pub struct Key(Secret);

impl Key {
    /// Bytes of a key.
    pub const BYTES: usize = SECRET_BYTES;

    /// Draws a new key.
    ///
    /// # Errors
    /// `System`: the system gives no random bytes.
    pub fn generate() -> Result<Self> {
        let secret = Secret::generate();
        Ok(Self(
            secret.map_err(|error| of_engine("Key::generate", error))?,
        ))
    }

    /// The key that the other side gave, by a way that nobody else reads.
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(Secret::from_bytes(&bytes))
    }

    /// The key that was written as 64 hexadecimal digits.
    ///
    /// # Errors
    /// `Misuse`: the text is no such key. The error does not repeat it.
    pub fn from_text(text: &str) -> Result<Self> {
        let wrong = || misuse("a key is 64 hexadecimal digits");
        let text = text.trim();
        if text.len() != 2 * Self::BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; Self::BYTES];
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self::from_bytes(bytes))
    }

    /// The key as 64 hexadecimal digits, for a file that nobody else reads.
    pub fn to_text(&self) -> String {
        let digits = self.as_bytes().iter().map(|byte| format!("{byte:02x}"));
        digits.collect()
    }

    /// Writes the key as text to a new file that its owner alone may read.
    ///
    /// # Errors
    /// There is such a file already, or it cannot be written.
    pub fn write_new_file(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)?;
        file.write_all(self.to_text().as_bytes())
    }

    pub(crate) fn secret(&self) -> Secret {
        self.0.clone()
    }

    /// The bytes for the other side. Not for arguments or the environment, which others may read.
    pub fn as_bytes(&self) -> &[u8; Self::BYTES] {
        self.0.bytes()
    }
}

/// An address at which another process may connect.
#[derive(Debug)]
pub struct Listener {
    pair: Pair,
    greeting: OwnedOperation,
    address: SocketAddr,
}

impl Listener {
    /// Listens at an address; port 0 lets the system choose one.
    ///
    /// # Errors
    /// `System`: the address cannot be listened at.
    pub fn bind(address: SocketAddr, key: &Key) -> Result<Self> {
        let failed = |error| of_engine("Listener::bind", error);
        let socket = garonne_tcp::listen(address).map_err(failed)?;
        let address = socket.local_addr().map_err(|error| {
            Error::system(
                codes::G0304,
                "Listener::bind: the address is unknown",
                error,
            )
        })?;
        let pair = Pair::new(LISTENING, key, socket, None).map_err(failed)?;
        let greeting = pair.expect(GREETING, GREETING_MAX).map_err(failed)?;
        Ok(Self {
            pair,
            greeting,
            address,
        })
    }

    /// The address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits until a process with the same key connects. Who has another key is sent away unheard.
    ///
    /// # Errors
    /// `Peer`: the connection broke before the two had greeted each other.
    pub fn accept(self) -> Result<Endpoint> {
        self.accept_until(None)
    }

    /// Waits for a process with the same key, but no longer than this.
    ///
    /// # Errors
    /// As [`Listener::accept`]. `Timeout`: nobody connected.
    pub fn accept_within(self, limit: Duration) -> Result<Endpoint> {
        self.accept_until(Some(Instant::now() + limit))
    }

    fn accept_until(mut self, until: Option<Instant>) -> Result<Endpoint> {
        let what = "Listener::accept";
        self.pair.look_until_over(&mut self.greeting, until, what)?;
        let greeting = self.greeting.into_bytes();
        let text = String::from_utf8_lossy(&greeting);
        let address = text.trim_end_matches('\0').parse().map_err(|_| {
            Error::peer(
                codes::G0404,
                format!("{what}: the other side's greeting is not understood"),
            )
        })?;
        self.pair.directory.learn(address);
        let welcomed = self.pair.say(WELCOME, Vec::new());
        welcomed.map_err(|error| of_engine(what, error))?;
        Ok(Endpoint::over(Host::Pair(self.pair)))
    }
}

/// One end of a connection.
pub(crate) struct Pair {
    host: Arc<LockedEngine<TcpTransport, PairEnvironment>>,
    directory: Arc<PairDirectory>,
    /// The receive of the other side's goodbye; `None`: it has come.
    goodbye: Mutex<Option<OwnedOperation>>,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair")
            .field("me", &self.host.me())
            .finish_non_exhaustive()
    }
}

/// How the other side of a pair ended.
#[derive(Debug)]
pub(crate) enum PairEnd {
    /// The other side said goodbye: all that it sent before has arrived.
    Left,
    /// The other side is gone without a word.
    Lost(api::Error),
}

impl Pair {
    /// One end of a connection that two processes have agreed on, with a secret of its own. `me`: 0
    /// for the side that accepted, 1 for the other one.
    pub(crate) fn agreed(
        me: Peer,
        secret: &[u8; SECRET_BYTES],
        socket: TcpListener,
        other: SocketAddr,
    ) -> std::result::Result<Self, api::Error> {
        let pair = Self::new(me, &Key::from_bytes(*secret), socket, Some(other))?;
        // Either side calls the other one with it, whichever can be reached.
        pair.say(GREETING, Vec::new())?;
        Ok(pair)
    }

    fn new(
        me: Peer,
        key: &Key,
        socket: TcpListener,
        other: Option<SocketAddr>,
    ) -> std::result::Result<Self, api::Error> {
        let process = ProcessId {
            job: PAIR,
            world: 0,
            rank: me,
            incarnation: 0,
        };
        let directory = Arc::new(PairDirectory {
            other: Mutex::new(other),
        });
        let identity = LocalIdentity::new(key.0.clone(), process, true);
        let transport = TcpTransport::new(identity, directory.clone(), socket)?;
        let engine = Engine::new(transport, me, SIZE, CreditQuotas::for_world(SIZE));
        let mut pair = Self {
            host: Arc::new(LockedEngine::new(engine, me, SIZE, PairEnvironment)),
            directory,
            goodbye: Mutex::new(None),
        };
        let goodbye = pair.expect(GOODBYE, 0)?;
        pair.goodbye = Mutex::new(Some(goodbye));
        Ok(pair)
    }

    /// Connects to who listens at `address`.
    pub(crate) fn connect(address: SocketAddr, key: &Key) -> Result<Self> {
        let what = "Endpoint::connect";
        let failed = |error| of_engine(what, error);
        let own = own_address(address)
            .map_err(|error| Error::system(codes::G0404, format!("{what}: {address}"), error))?;
        let socket = garonne_tcp::listen(SocketAddr::new(own, 0)).map_err(failed)?;
        let listening = socket.local_addr().map_err(|error| {
            Error::system(codes::G0404, format!("{what}: its own address"), error)
        })?;
        let pair = Self::new(CONNECTING, key, socket, Some(address)).map_err(failed)?;
        let mut welcome = pair.expect(WELCOME, 0).map_err(failed)?;
        let greeting = listening.to_string().into_bytes();
        let mut greeted = pair.say(GREETING, greeting).map_err(failed)?;
        let until = Some(Instant::now() + CONNECT_LIMIT);
        pair.look_until_over(&mut greeted, until, what)?;
        pair.look_until_over(&mut welcome, until, what)?;
        Ok(pair)
    }

    /// Calls `f` on the engine.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Engine<TcpTransport>) -> T) -> T {
        self.host.inspect(f)
    }

    /// Starts the receive of a control message of at most so many bytes.
    fn expect(&self, tag: i32, len: usize) -> std::result::Result<OwnedOperation, api::Error> {
        let source = Source {
            rank: self.other(),
            peer: self.other(),
        };
        let pattern = Pattern {
            context: CONTROL,
            source: Some(source),
            tag: Some(tag),
        };
        OwnedOperation::start(vec![0; len], |data| {
            self.host.recv(RecvArgs {
                pattern,
                data,
                origin: CallOrigin::default(),
            })
        })
    }

    /// Starts to send a control message.
    fn say(&self, tag: i32, bytes: Vec<u8>) -> std::result::Result<OwnedOperation, api::Error> {
        OwnedOperation::start(bytes, |data| {
            self.host.send(SendArgs {
                context: CONTROL,
                peer: self.other(),
                source: self.host.me(),
                tag,
                data,
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            })
        })
    }

    /// Looks at the sockets until an operation is over, with pauses: nobody is in a hurry while a
    /// connection comes to be, and a deadline passes without an event.
    fn look_until_over(
        &self,
        operation: &mut OwnedOperation,
        until: Option<Instant>,
        what: &str,
    ) -> Result<Status> {
        while !operation.is_over(&*self.host) {
            if until.is_some_and(|until| Instant::now() >= until) {
                let text = format!("{what}: the other side did not come in time");
                return Err(Error::Timeout {
                    code: codes::G0404,
                    text,
                });
            }
            if !self.host.progress() {
                std::thread::sleep(CONNECT_LOOK);
            }
        }
        operation
            .wait(&*self.host, |_, _| {})
            .map_err(|error| of_engine(what, error))
    }

    /// Waits until `is_over` says so. When the other side has left, the engine is told that it is
    /// gone, which ends all operations with it.
    pub(crate) fn wait(&self, is_over: &mut dyn FnMut() -> bool) {
        self.host.wait_until(&mut || {
            is_over() || {
                self.look_for_goodbye();
                is_over()
            }
        });
    }

    /// Returns whether the other side has said that it leaves.
    pub(crate) fn has_left(&self) -> bool {
        self.goodbye().is_none()
    }

    fn goodbye(&self) -> MutexGuard<'_, Option<OwnedOperation>> {
        self.goodbye.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_for_goodbye(&self) {
        let mut goodbye = self.goodbye();
        let has_come = |goodbye: &mut OwnedOperation| goodbye.is_over(&*self.host);
        if goodbye.as_mut().is_some_and(has_come) {
            *goodbye = None;
            let other = self.other();
            self.host
                .inspect(|engine| engine.transport().peer_gone(other));
        }
    }

    /// Says goodbye, and ends when what was said has arrived or the transport's patience is over.
    pub(crate) fn leave(self) -> Result<()> {
        let until = Instant::now() + LEAVE_LIMIT;
        self.send_all(until);
        match self.say(GOODBYE, Vec::new()) {
            // Who has left already, or died, needs no goodbye.
            Ok(_) | Err(api::Error::Peer { .. }) => {}
            Err(error) => return Err(of_engine("leave", error)),
        }
        self.send_all(until);
        Ok(())
    }

    /// Has what is queued leave, as far as there is room for it in time.
    fn send_all(&self, until: Instant) {
        while self.host.has_work() && Instant::now() < until {
            if !self.host.progress() {
                std::thread::sleep(CONNECT_LOOK);
            }
        }
    }
}

impl LinkEngine for Pair {
    fn messaging(&self) -> &dyn Messaging {
        &*self.host
    }

    fn other(&self) -> Peer {
        LISTENING + CONNECTING - self.host.me()
    }

    fn end(&self) -> Option<PairEnd> {
        let mut goodbye = self.goodbye();
        let Some(operation) = goodbye.as_mut() else {
            return Some(PairEnd::Left);
        };
        if !operation.is_over(&*self.host) {
            return None;
        }
        match operation.wait(&*self.host, |_, _| {}) {
            Ok(_) => {
                *goodbye = None;
                drop(goodbye);
                let other = self.other();
                self.with(|engine| {
                    // It waits for the word that its goodbye has come.
                    engine.transport().before_sleep();
                    engine.transport().peer_gone(other);
                });
                Some(PairEnd::Left)
            }
            Err(error) => Some(PairEnd::Lost(error)),
        }
    }

    fn say_goodbye(&self) -> std::result::Result<(), api::Error> {
        self.say(GOODBYE, Vec::new()).map(drop)
    }

    fn has_nothing_to_send(&self) -> bool {
        !self.host.has_work() && self.with(|engine| engine.transport().has_left())
    }

    fn before_sleep(&self) -> Option<Duration> {
        self.with(|engine| {
            engine.transport().arm();
            engine.transport().sockets().limit_if(true)
        })
    }

    fn sockets(&self) -> Option<SocketSet> {
        Some(self.with(|engine| engine.transport().sockets()))
    }
}

/// This host's address towards another one.
pub(crate) fn own_address(to: SocketAddr) -> std::io::Result<IpAddr> {
    let any: IpAddr = match to.is_ipv4() {
        true => Ipv4Addr::UNSPECIFIED.into(),
        false => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Nothing is sent: the system only says which way it would go.
    let probe = UdpSocket::bind((any, 0))?;
    probe.connect(to)?;
    Ok(probe.local_addr()?.ip())
}

/// Place where the other side listens, as far as it is known.
struct PairDirectory {
    other: Mutex<Option<SocketAddr>>,
}

impl PairDirectory {
    fn learn(&self, address: SocketAddr) {
        *self.other.lock().unwrap_or_else(PoisonError::into_inner) = Some(address);
    }
}

impl PeerDirectory for PairDirectory {
    fn size(&self) -> u32 {
        SIZE
    }

    fn incarnation(&self, _peer: Peer) -> u32 {
        0
    }

    fn addresses(&self, _peer: Peer) -> Vec<SocketAddr> {
        let other = self.other.lock().unwrap_or_else(PoisonError::into_inner);
        other.iter().copied().collect()
    }

    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
}

/// The surroundings of a pair's engine: nobody watches it, and it shares its cores with others.
struct PairEnvironment;

impl WaitObserver for PairEnvironment {}

impl Environment for PairEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: SPINS,
            yields: 0,
            spinners: 1,
        }
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        // A stream that is closed hears nothing.
        let _ = writeln!(std::io::stderr(), "{message}");
        std::process::exit(code)
    }

    fn wtime(&self) -> f64 {
        static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGIN.elapsed().as_secs_f64()
    }
}
