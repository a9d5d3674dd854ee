//! The place of this process among others: sending, receiving, leaving.

use crate::error::{self, misuse};
use crate::limits::{LEAVE_LIMIT, TAG_MAX};
use crate::link::LinkEngine;
use crate::pair::{Key, Pair};
use crate::peer::{Peer, Received, Source};
use crate::region::{Region, RegionKey};
use crate::request::{RecvRequest, SendRequest};
use crate::sys::{self, Lent, OwnedOperation};
use garonne_engine::api::{
    self, CallOrigin, ContextId, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Status,
};
use garonne_job::error::{Error, Result};
use garonne_progress::messaging::{Messaging, WaitTarget, Waiting};
use garonne_rank::Rank;
use garonne_sync::user::Data;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Context of the program's messages: above those that MPI gives to communicators.
pub(crate) const MESSAGES: ContextId = 1 << 24;

/// Context in which the two of a pair greet and part.
pub(crate) const CONTROL: ContextId = MESSAGES + 1;

/// Becomes the rank that the environment names.
pub(crate) fn enter_job() -> Result<Rank> {
    static JOINED: AtomicBool = AtomicBool::new(false);
    if JOINED.swap(true, Ordering::SeqCst) {
        return Err(misuse("a process joins its job once"));
    }
    Rank::enter()
}

/// This process's place in a job, or at one end of a connection.
///
/// Order of calls: [`Endpoint::join`], [`Endpoint::connect`] or
/// [`Listener::accept`](crate::Listener::accept); any number of messages, from any threads;
/// [`Endpoint::leave`]. Dropping it leaves, too, and says nothing of what went wrong then.
#[derive(Debug)]
pub struct Endpoint {
    /// `None` once it has left.
    host: Option<Host>,
    /// Operations whose requests were dropped before they were over.
    dropped: Mutex<Vec<OwnedOperation>>,
}

/// Engine of an endpoint, by which its messages go.
pub(crate) enum Host {
    /// A rank of a job. As large as it is, since there is one in a process.
    Job(Box<Rank>),
    /// One end of a connection.
    Pair(Pair),
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (me, size) = (self.messaging().me(), self.messaging().world_size());
        write!(f, "rank {me} of {size}")
    }
}

impl Host {
    pub(crate) fn messaging(&self) -> &dyn Messaging {
        match self {
            Host::Job(rank) => &*rank.host,
            Host::Pair(pair) => pair.messaging(),
        }
    }

    /// Waits for an operation until `is_over` says that it is.
    fn wait(&self, request: Request, is_over: &mut dyn FnMut() -> bool) {
        match self {
            Host::Job(rank) => rank
                .host
                .wait_for(&|| WaitTarget::Operation(request), is_over),
            Host::Pair(pair) => pair.wait(is_over),
        }
    }
}

impl Endpoint {
    /// Joins the job in which `garonne run` started this process. A process that nobody launched is
    /// a job of one, without peers.
    ///
    /// # Errors
    /// `Misuse`: this process has joined before, or its settings are wrong. `Peer`: the agent does
    /// not answer, or has another version. `Resource`, `System`: the system lacks what it needs.
    pub fn join() -> Result<Self> {
        Ok(Self::over(Host::Job(Box::new(enter_job()?))))
    }

    /// Connects to the process that listens at `address` ([`Listener`](crate::Listener)) with the
    /// same key, and waits until that one accepts.
    ///
    /// # Errors
    /// `Peer`: nobody listens there, or not with this key. `Timeout`: nobody accepted within half a
    /// minute. `Resource`, `System`: the system lacks what it needs.
    pub fn connect(address: SocketAddr, key: &Key) -> Result<Self> {
        Ok(Self::over(Host::Pair(Pair::connect(address, key)?)))
    }

    pub(crate) fn over(host: Host) -> Self {
        Self {
            host: Some(host),
            dropped: Mutex::default(),
        }
    }

    pub(crate) fn host(&self) -> &Host {
        // Emptied by `leave` and `drop` alone, which end it.
        self.host
            .as_ref()
            .expect("an endpoint that is there has a host")
    }

    fn messaging(&self) -> &dyn Messaging {
        self.host().messaging()
    }

    /// This process's rank. In a job it counts the processes; of a connection the one that
    /// listened has 0, the other one 1.
    pub fn rank(&self) -> u32 {
        self.messaging().me()
    }

    /// Number of processes, this one included.
    pub fn size(&self) -> u32 {
        self.messaging().world_size()
    }

    /// All other processes, by rank.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + use<> {
        let (me, size) = (self.rank(), self.size());
        (0..size).filter(move |rank| *rank != me).map(Peer::new)
    }

    /// The peer with this rank.
    ///
    /// # Errors
    /// `Misuse`: there is none, or it is this process.
    pub fn peer(&self, rank: u32) -> Result<Peer> {
        let peer = Peer::new(rank);
        self.check(peer).map(|()| peer)
    }

    fn check(&self, peer: Peer) -> Result<()> {
        let (rank, me, size) = (peer.rank(), self.rank(), self.size());
        if rank == me {
            return Err(misuse(format!("rank {rank} is this process itself")));
        }
        match rank < size {
            true => Ok(()),
            false => Err(misuse(format!("there is no rank {rank} among {size}"))),
        }
    }

    /// Sends a message, and returns when `bytes` may be used again. The peer may not have received
    /// the message by then.
    ///
    /// # Errors
    /// `Misuse`: no such peer or tag. `Peer`: the peer has left or died.
    pub fn send(&self, peer: Peer, tag: u32, bytes: &[u8]) -> Result<()> {
        let envelope = self.envelope(peer, tag)?;
        let host = self.messaging();
        let sent = sys::run(
            host,
            Lent::Read(bytes),
            |data| host.send(SendArgs { data, ..envelope }),
            |request, is_over| self.host().wait(request, is_over),
        );
        self.reap();
        sent.map(drop).map_err(|error| self.failed("send", error))
    }

    /// Receives the oldest message with this tag from `source` into `buffer`, and waits for it. In
    /// a job, a receive from a peer that has left waits until somebody ends the job.
    ///
    /// # Errors
    /// `Misuse`: no such peer or tag, or the message is longer than the buffer. `Peer`: the peer
    /// died, or at one end of a connection has left.
    pub fn recv(&self, source: impl Into<Source>, tag: u32, buffer: &mut [u8]) -> Result<Received> {
        let pattern = self.pattern(source.into(), tag)?;
        let host = self.messaging();
        let received = sys::run(
            host,
            Lent::Write(buffer),
            |data| host.recv(receive(pattern, data)),
            |request, is_over| self.host().wait(request, is_over),
        );
        self.reap();
        received
            .map(received_of)
            .map_err(|error| self.failed("recv", error))
    }

    /// Starts a send that owns its bytes until [`SendRequest::wait`] gives them back.
    ///
    /// # Errors
    /// As [`Endpoint::send`]; what goes wrong later is told by the request.
    pub fn start_send(&self, peer: Peer, tag: u32, bytes: Vec<u8>) -> Result<SendRequest<'_>> {
        let envelope = self.envelope(peer, tag)?;
        let host = self.messaging();
        let start = |data| host.send(SendArgs { data, ..envelope });
        let operation = OwnedOperation::start(bytes, start);
        let operation = operation.map_err(|error| self.failed("start_send", error))?;
        Ok(SendRequest::new(self, self.left_open(operation)))
    }

    /// Starts a receive into a buffer that it owns until [`RecvRequest::wait`] gives it back. The
    /// message may be as long as the buffer is.
    ///
    /// # Errors
    /// As [`Endpoint::recv`]; what goes wrong later is told by the request.
    pub fn start_recv(
        &self,
        source: impl Into<Source>,
        tag: u32,
        buffer: Vec<u8>,
    ) -> Result<RecvRequest<'_>> {
        let pattern = self.pattern(source.into(), tag)?;
        let host = self.messaging();
        let operation = OwnedOperation::start(buffer, |data| host.recv(receive(pattern, data)));
        let operation = operation.map_err(|error| self.failed("start_recv", error))?;
        Ok(RecvRequest::new(self, self.left_open(operation)))
    }

    /// Exposes memory to all peers, who may read it as long as the region is there. Send them its
    /// key.
    ///
    /// # Errors
    /// `Resource`: more regions than can be numbered were exposed.
    pub fn expose(&self, bytes: impl Into<Box<[u8]>>) -> Result<Region<'_>> {
        Region::new(self, bytes.into())
    }

    /// Fills `buffer` from a peer's region, from `offset` on, and waits for it. Where the system
    /// lets this process read the peer's memory, the peer may compute meanwhile; else it has to be
    /// inside some call of this crate.
    ///
    /// # Errors
    /// `Misuse`: no such peer, the region was withdrawn, or the range is not in it. `Peer`: the
    /// peer has left or died.
    pub fn read(&self, peer: Peer, key: &RegionKey, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check(peer)?;
        let read = sys::run(
            self.messaging(),
            Lent::Write(buffer),
            |data| self.host().get((peer.rank(), key), offset, data),
            |request, is_over| self.host().wait(request, is_over),
        );
        self.reap();
        read.map(drop).map_err(|error| self.failed("read", error))
    }

    /// The call that started an operation is about to return.
    fn left_open(&self, operation: OwnedOperation) -> OwnedOperation {
        if let Some(request) = operation.request() {
            self.messaging().leave_pending(request);
        }
        self.reap();
        operation
    }

    /// Makes progress once, and says whether an operation is over.
    pub(crate) fn test(&self, operation: &mut OwnedOperation) -> bool {
        let host = self.messaging();
        operation.is_over(host) || (host.progress_for_test() && operation.is_over(host))
    }

    /// The error of an operation of the engine. `what` names the call.
    pub(crate) fn failed(&self, what: &str, error: api::Error) -> Error {
        match (error, self.host()) {
            (api::Error::Peer { peer, .. }, Host::Pair(pair)) if pair.has_left() => {
                error::left(what, Peer::new(peer))
            }
            (error, _) => error::of_engine(what, error),
        }
    }

    /// Waits for an operation. `what` names the call that started it.
    pub(crate) fn finish(&self, operation: &mut OwnedOperation, what: &str) -> Result<Status> {
        let ended = operation.wait(self.messaging(), |request, is_over| {
            self.host().wait(request, is_over);
        });
        self.reap();
        ended.map_err(|error| self.failed(what, error))
    }

    /// Takes an operation whose request was dropped. A receive is cancelled.
    pub(crate) fn give_up(&self, mut operation: OwnedOperation, is_receive: bool) {
        let host = self.messaging();
        if let (true, Some(request)) = (is_receive, operation.request()) {
            // A receive that has a message already cannot be cancelled, and ends by itself.
            let _ = host.cancel(request);
        }
        if !operation.is_over(host) {
            self.dropped().push(operation);
        }
    }

    fn dropped(&self) -> MutexGuard<'_, Vec<OwnedOperation>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the memory of dropped operations that are over.
    fn reap(&self) {
        let host = self.messaging();
        self.dropped()
            .retain_mut(|operation| !operation.is_over(host));
    }

    fn envelope(&self, peer: Peer, tag: u32) -> Result<SendArgs> {
        self.check(peer)?;
        Ok(SendArgs {
            context: MESSAGES,
            peer: peer.rank(),
            source: self.rank(),
            tag: checked(tag)?,
            data: Data::empty(),
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        })
    }

    fn pattern(&self, source: Source, tag: u32) -> Result<Pattern> {
        let source = match (source, self.host()) {
            (Source::Peer(peer), _) => {
                self.check(peer)?;
                Some(peer)
            }
            // Only of one peer the engine knows that nothing can come any more.
            (Source::Any, Host::Pair(_)) => self.peers().next(),
            (Source::Any, Host::Job(_)) => None,
        };
        Ok(Pattern {
            context: MESSAGES,
            source: source.map(|peer| api::Source {
                rank: peer.rank(),
                peer: peer.rank(),
            }),
            tag: Some(checked(tag)?),
        })
    }

    /// Leaves the job or the connection: sends what is still on its way, and tells the others. A
    /// process of a job that ends without leaving counts as failed.
    ///
    /// # Errors
    /// `Peer`, `System`: the agent or the peer could not be told.
    pub fn leave(mut self) -> Result<()> {
        self.leave_now()
    }

    fn leave_now(&mut self) -> Result<()> {
        let until = Instant::now() + LEAVE_LIMIT;
        self.reap();
        while !self.dropped().is_empty() && Instant::now() < until {
            self.messaging().progress();
            std::thread::yield_now();
            self.reap();
        }
        match self.host.take() {
            Some(Host::Job(rank)) => {
                let left = rank.leave();
                // Others look at its memory as long as the process is there.
                std::mem::forget(rank);
                left
            }
            Some(Host::Pair(pair)) => pair.leave(),
            None => Ok(()),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if self.host.is_some() && !std::thread::panicking() {
            // Who wants to know calls `leave`.
            let _ = self.leave_now();
        } else if let Some(Host::Job(rank)) = self.host.take() {
            std::mem::forget(rank);
        }
    }
}

pub(crate) fn checked(tag: u32) -> Result<i32> {
    i32::try_from(tag).map_err(|_| misuse(format!("tag {tag} is above {TAG_MAX}")))
}

fn receive(pattern: Pattern, data: Data) -> RecvArgs {
    RecvArgs {
        pattern,
        data,
        origin: CallOrigin::default(),
    }
}

/// Returns what a receive that ended well got.
pub(crate) fn received_of(status: Status) -> Received {
    Received {
        peer: Peer::new(status.source),
        // Both fit: a tag is never negative, and a message is not longer than its buffer.
        tag: status.tag.unsigned_abs(),
        len: status.len as usize,
    }
}
