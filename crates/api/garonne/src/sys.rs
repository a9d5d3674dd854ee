#![allow(
    unsafe_code,
    reason = "callers' memory becomes a view for the engine here, with the proof that it outlives the operation"
)]
//! Memory of this crate's callers on its way to the engine.
//!
//! The engine reads and writes through an address, without a borrow. So this module gives an
//! address away only together with the operation that uses it, and ends the operation before the
//! memory. [`run`] borrows memory for a call that waits. [`OwnedOperation`] owns memory for an
//! operation that goes on, and [`ExposedMemory`] memory that peers read. Both leak memory rather
//! than free what somebody may still use.

use crate::limits::SMALL_MAX;
use garonne_engine::api::{Error, Request, SendArgs, StartOutcome, Status};
use garonne_engine::fast::send::FastSend;
use garonne_engine::one_sided::{AccessRights, RegionKey, RegionMemory};
use garonne_progress::messaging::Messaging;
use garonne_sync::user::{Data, UserMem};

/// Memory that a call borrows from its caller.
pub(crate) enum Lent<'a> {
    /// The engine reads it.
    Read(&'a [u8]),
    /// The engine writes it.
    Write(&'a mut [u8]),
}

impl Lent<'_> {
    fn data(&mut self) -> Data {
        let (base, len) = match self {
            Lent::Read(bytes) => (bytes.as_ptr().cast_mut(), bytes.len()),
            Lent::Write(bytes) => (bytes.as_mut_ptr(), bytes.len()),
        };
        // SAFETY: `run` keeps the borrow until the operation is over. What is lent to be read goes
        // to sends only, which the callers of `run` in this crate see to.
        Data::contiguous(unsafe { UserMem::new(base) }, len as u64)
    }
}

/// Ends the process if it is dropped: memory would be given back that the engine still uses.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Starts an operation on borrowed memory, and returns when it is over. `wait` waits until its
/// argument says so.
pub(crate) fn run(
    host: &dyn Messaging,
    mut lent: Lent<'_>,
    start: impl FnOnce(Data) -> Result<StartOutcome, Error>,
    wait: impl Fn(Request, &mut dyn FnMut() -> bool),
) -> Result<Status, Error> {
    let guard = AbortOnUnwind;
    let ended = match start(lent.data()) {
        Ok(StartOutcome::Done(status)) => Ok(status),
        Ok(StartOutcome::Pending(request)) => end_of(host, request, wait),
        Err(error) => Err(error),
    };
    std::mem::forget(guard);
    ended.and_then(without_error)
}

/// Waits for an operation, whatever `wait` does.
fn end_of(
    host: &dyn Messaging,
    request: Request,
    wait: impl Fn(Request, &mut dyn FnMut() -> bool),
) -> Result<Status, Error> {
    let mut ended = None;
    loop {
        wait(request, &mut || take_into(host, request, &mut ended));
        if let Some(ended) = ended {
            return ended;
        }
    }
}

/// Returns whether an operation is over; then how it ended is in `ended`.
fn take_into(
    host: &dyn Messaging,
    request: Request,
    ended: &mut Option<Result<Status, Error>>,
) -> bool {
    if ended.is_none() {
        *ended = match host.take(request) {
            Ok(None) => None,
            Ok(Some(status)) => Some(Ok(status)),
            Err(error) => Some(Err(error)),
        };
    }
    ended.is_some()
}

fn without_error(mut status: Status) -> Result<Status, Error> {
    match status.error.take() {
        Some(error) => Err(error),
        None => Ok(status),
    }
}

/// Outcome of a send that ended well.
const SENT: Status = Status {
    source: 0,
    tag: 0,
    len: 0,
    cancelled: false,
    error: None,
};

/// An operation that owns its memory. Order of calls: [`OwnedOperation::start`],
/// [`OwnedOperation::is_over`] or [`OwnedOperation::wait`], [`OwnedOperation::into_bytes`].
///
/// Dropped before it is over, it leaks its memory: the engine may still use it.
#[derive(Debug)]
pub(crate) struct OwnedOperation {
    /// Never touched between the start of the operation and its end.
    bytes: Vec<u8>,
    /// `None`: the operation was over when it was started.
    request: Option<Request>,
    ended: Option<Result<Status, Error>>,
}

impl OwnedOperation {
    /// Starts an operation on these bytes.
    pub(crate) fn start(
        bytes: Vec<u8>,
        start: impl FnOnce(Data) -> Result<StartOutcome, Error>,
    ) -> Result<Self, Error> {
        let len = bytes.len() as u64;
        Self::start_at(bytes, |mem| start(Data::contiguous(mem, len)))
    }

    /// Starts to send these bytes, the shortest way if it is free.
    pub(crate) fn start_send(
        bytes: Vec<u8>,
        host: &dyn Messaging,
        envelope: SendArgs,
    ) -> Result<Self, Error> {
        let len = bytes.len();
        Self::start_at(bytes, |mem| {
            if len <= SMALL_MAX {
                let small = FastSend {
                    context: envelope.context,
                    peer: envelope.peer,
                    source: envelope.source,
                    tag: envelope.tag,
                    mem,
                    len,
                    origin: envelope.origin,
                };
                if host.send_small(&small) {
                    return Ok(StartOutcome::Done(SENT));
                }
            }
            let data = Data::contiguous(mem, len as u64);
            host.send(SendArgs { data, ..envelope })
        })
    }

    /// Starts an operation that uses these bytes, and none around them, as it likes.
    pub(crate) fn start_at(
        mut bytes: Vec<u8>,
        start: impl FnOnce(UserMem) -> Result<StartOutcome, Error>,
    ) -> Result<Self, Error> {
        // SAFETY: the bytes lie where they are, and are not touched, until the operation is over or
        // for ever: `into_bytes` gives them back only then, and `drop` leaks them otherwise.
        let mem = unsafe { UserMem::new(bytes.as_mut_ptr()) };
        let guard = AbortOnUnwind;
        let started = start(mem);
        std::mem::forget(guard);
        Ok(Self::started(bytes, started?))
    }

    /// An operation that was started on these bytes.
    fn started(bytes: Vec<u8>, started: StartOutcome) -> Self {
        let (request, ended) = match started {
            StartOutcome::Done(status) => (None, Some(Ok(status))),
            StartOutcome::Pending(request) => (Some(request), None),
        };
        Self {
            bytes,
            request,
            ended,
        }
    }

    /// The operation's name, unless it was over when it was started.
    pub(crate) fn request(&self) -> Option<Request> {
        self.request
    }

    /// Returns whether it is over. Makes no progress.
    pub(crate) fn is_over(&mut self, host: &dyn Messaging) -> bool {
        match self.request {
            Some(request) => take_into(host, request, &mut self.ended),
            None => true,
        }
    }

    /// Waits until it is over, as [`run`] does.
    pub(crate) fn wait(
        &mut self,
        host: &dyn Messaging,
        wait: impl Fn(Request, &mut dyn FnMut() -> bool),
    ) -> Result<Status, Error> {
        let ended = match (self.request, &self.ended) {
            (Some(request), None) => end_of(host, request, wait),
            (_, Some(ended)) => ended.clone(),
            (None, None) => Err(Error::Misuse("an operation without a name goes on")),
        };
        self.ended = Some(ended.clone());
        ended.and_then(without_error)
    }

    /// Gives the memory of an operation that is over back.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        match self.ended {
            Some(_) => std::mem::take(&mut self.bytes),
            None => Vec::new(),
        }
    }
}

impl Drop for OwnedOperation {
    fn drop(&mut self) {
        if self.ended.is_none() {
            std::mem::forget(std::mem::take(&mut self.bytes));
        }
    }
}

/// Memory that peers may read, and nobody writes. Order of calls: [`ExposedMemory::open`],
/// [`ExposedMemory::close`].
///
/// Dropped before it is closed, it leaks its memory: peers may still read it.
#[derive(Debug)]
pub(crate) struct ExposedMemory(Vec<u8>);

impl ExposedMemory {
    /// Exposes these bytes by `register`.
    pub(crate) fn open(
        mut bytes: Vec<u8>,
        register: impl FnOnce(RegionMemory) -> Result<RegionKey, Error>,
    ) -> Result<(Self, RegionKey), Error> {
        let region = RegionMemory {
            // SAFETY: the bytes lie where they are until `close` has ended the region, or for ever:
            // `drop` leaks them. Peers get the right to read and no other.
            mem: unsafe { UserMem::new(bytes.as_mut_ptr()) },
            len: bytes.len() as u64,
            rights: AccessRights::READ,
        };
        let guard = AbortOnUnwind;
        let registered = register(region);
        std::mem::forget(guard);
        Ok((Self(bytes), registered?))
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Closes the region by `deregister`. The operation owns the bytes, and is over when no peer
    /// reads them any more.
    pub(crate) fn close(
        mut self,
        deregister: impl FnOnce() -> Result<StartOutcome, Error>,
    ) -> Result<OwnedOperation, Error> {
        let closed = deregister()?;
        Ok(OwnedOperation::started(std::mem::take(&mut self.0), closed))
    }
}

impl Drop for ExposedMemory {
    fn drop(&mut self) {
        std::mem::forget(std::mem::take(&mut self.0));
    }
}
