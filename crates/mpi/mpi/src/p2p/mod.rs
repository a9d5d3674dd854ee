//! Point-to-point communication: checks of arguments, then one call into the engine (MPI 5.0
//! chapter 3).
//!
//! Blocking calls allocate nothing and make no request when the engine completes at once. A
//! nonblocking call's [`Request`] holds its communicator. The memory behind a [`Data`] belongs to
//! the operation until it completes.

pub mod bsend_buffer;
mod probe;
mod sendrecv;
#[cfg(test)]
mod tests;

pub use probe::MatchedMessage;
pub use sendrecv::ReplaceArgs;

use crate::comm::Comm;
use crate::datatype::amount;
use crate::error::{Class, Error, Result};
use crate::limits::{CALLERS_NAMED, SENDER_LOOK_INTERVAL, SENDER_LOOKS, SMALL_LEN_MAX};
use crate::request::{Request, Status};
use garonne_engine::api::{self, CallOrigin, Pattern, Peer, SendCompletion, Source, StartOutcome};
use garonne_engine::fast::recv::{ANY_PEER, FastRecv};
use garonne_engine::fast::send::FastSend;
use garonne_engine::limits::EARLY_RTR_FROM;
use garonne_engine::observe::events::SentMessage;
use garonne_progress::environment::PossibleSenders;
use garonne_progress::limits::ASYNC_RECV_MIN;
use garonne_progress::messaging::WaitTarget;
use garonne_sync::user::{Data, UserMem};

/// The four send modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendMode {
    /// `MPI_Send`.
    Standard,
    /// `MPI_Rsend`: treated as standard, as the standard permits.
    Ready,
    /// `MPI_Ssend`.
    Synchronous,
    /// `MPI_Bsend`.
    Buffered,
}

/// Arguments of a send.
#[derive(Clone, Debug)]
pub struct SendArgs {
    /// The data.
    pub data: Data,
    /// Destination, or `MPI_PROC_NULL`.
    pub dest: i32,
    /// Tag.
    pub tag: i32,
    /// Mode.
    pub mode: SendMode,
    /// The program's call.
    pub origin: CallOrigin,
}

/// Arguments of a receive.
#[derive(Clone, Debug)]
pub struct RecvArgs {
    /// Place where the data goes.
    pub data: Data,
    /// Source, `MPI_ANY_SOURCE` or `MPI_PROC_NULL`.
    pub source: i32,
    /// Tag or `MPI_ANY_TAG`.
    pub tag: i32,
    /// The program's call.
    pub origin: CallOrigin,
}

/// A few contiguous bytes of a standard-mode send or of a receive.
#[derive(Clone, Copy, Debug)]
pub struct SmallBuffer {
    /// The bytes.
    pub mem: UserMem,
    /// How many, or how many there is room for.
    pub len: u32,
    /// The other side's rank.
    pub rank: i32,
    /// Tag.
    pub tag: i32,
    /// The program's call.
    pub origin: CallOrigin,
}

impl Comm {
    /// The engine's words for a standard-mode send; `None`: not everything is plain, [`Comm::send`]
    /// does it or says what is wrong.
    #[inline(always)]
    pub fn small(&self, few: &SmallBuffer) -> Option<FastSend> {
        let peer = self.target_of(few.rank as u32)?;
        (few.tag >= 0).then_some(FastSend {
            context: self.context_of(few.tag),
            peer,
            source: self.0.rank,
            tag: few.tag,
            mem: few.mem,
            len: few.len as usize,
            origin: few.origin,
        })
    }

    /// The engine's words for a receive; `None`: not everything is plain, [`Comm::recv`] does it or
    /// says what is wrong.
    #[inline(always)]
    pub fn catch(&self, few: &SmallBuffer) -> Option<FastRecv> {
        let peer = match self.target_of(few.rank as u32) {
            Some(peer) => peer,
            None if few.rank == crate::ANY_SOURCE => ANY_PEER,
            None => return None,
        };
        (few.tag >= 0 || few.tag == crate::ANY_TAG && self.takes_any_tag()).then_some(FastRecv {
            context: self.context_of(few.tag),
            peer,
            rank: few.rank as u32,
            tag: few.tag,
            mem: few.mem,
            room: few.len,
            origin: few.origin,
        })
    }

    /// `MPI_Send`, `MPI_Ssend`, `MPI_Rsend`, `MPI_Bsend`.
    #[inline]
    pub fn send(&self, args: SendArgs) -> Result<()> {
        self.check_tag(args.tag)?;
        let Some(peer) = self.peer(args.dest)? else {
            return Ok(());
        };
        if args.mode == SendMode::Buffered {
            return self.buffered(args, peer);
        }
        if self.send_small(&args, peer) {
            return Ok(());
        }
        match self.start_send(args, peer) {
            Ok(StartOutcome::Done(api::Status { error: None, .. })) => Ok(()),
            other => self.finish_send(other),
        }
    }

    /// The shortest way of a small contiguous message; `false` when it is not free or not for this
    /// message.
    #[inline]
    fn send_small(&self, args: &SendArgs, peer: Peer) -> bool {
        if args.data.layout.is_some()
            || args.data.len > SMALL_LEN_MAX
            || args.mode == SendMode::Synchronous
        {
            return false;
        }
        self.0.process.host.send_small(&FastSend {
            context: self.context_of(args.tag),
            peer,
            source: self.0.rank,
            tag: args.tag,
            mem: args.data.mem,
            len: args.data.len as usize,
            origin: args.origin,
        })
    }

    #[inline]
    fn start_send(&self, args: SendArgs, peer: Peer) -> Result<StartOutcome, api::Error> {
        let mode = if args.mode == SendMode::Synchronous {
            SendCompletion::Synchronous
        } else {
            SendCompletion::Standard
        };
        self.0.process.host.send(api::SendArgs {
            context: self.context_of(args.tag),
            peer,
            source: self.0.rank,
            tag: args.tag,
            data: args.data,
            mode,
            origin: args.origin,
        })
    }

    /// The slow end of a blocking send: waits, or says what went wrong.
    fn finish_send(&self, started: Result<StartOutcome, api::Error>) -> Result<()> {
        match started.map_err(|error| self.convert(error))? {
            StartOutcome::Done(status) => self.sent(status).map(drop),
            StartOutcome::Pending(name) => self
                .sent(self.wait_for(name, &|| WaitTarget::Operation(name))?)
                .map(drop),
        }
    }

    /// `MPI_Isend` and its modes.
    pub fn isend(&self, args: SendArgs) -> Result<Request> {
        Ok(self.begin_send(args)?.left_open())
    }

    /// Starts a send for a caller that waits for it itself.
    pub(crate) fn begin_send(&self, args: SendArgs) -> Result<Request> {
        self.check_tag(args.tag)?;
        let Some(peer) = self.peer(args.dest)? else {
            return Ok(Request::done(self, Status::EMPTY));
        };
        if args.mode == SendMode::Buffered {
            self.buffered(args, peer)?;
            return Ok(Request::done(self, Status::EMPTY));
        }
        if self.send_small(&args, peer) {
            return Ok(Request::done(self, Status::EMPTY));
        }
        let started = self
            .start_send(args, peer)
            .map_err(|error| self.convert(error))?;
        Request::of_send(self, started)
    }

    /// `MPI_Send_init` and its modes: an inactive persistent request.
    pub fn send_init(&self, args: SendArgs) -> Result<Request> {
        self.check_tag(args.tag)?;
        self.peer(args.dest)?;
        let comm = self.clone();
        Ok(Request::persistent(
            self,
            Box::new(move || comm.isend(args.clone())),
        ))
    }

    /// `MPI_Recv`.
    #[inline]
    pub fn recv(&self, args: RecvArgs) -> Result<Status> {
        let Some(pattern) = self.pattern(args.source, args.tag)? else {
            return Ok(Status::PROC_NULL);
        };
        let host = &self.0.process.host;
        let status = match host.recv(api::RecvArgs {
            pattern,
            data: args.data,
            origin: args.origin,
        }) {
            Ok(StartOutcome::Done(status)) => status,
            Ok(StartOutcome::Pending(name)) => {
                self.wait_for(name, &|| WaitTarget::Receive(name, pattern))?
            }
            Err(error) => return Err(self.convert(error)),
        };
        self.received(status)
    }

    /// Returns how a receive ended.
    #[inline]
    pub(crate) fn received(&self, status: api::Status) -> Result<Status> {
        match &status.error {
            None => Ok(Status::of_receive(&status)),
            Some(_) => Err(Error {
                status: Some(Status::of_receive(&status)),
                ..self.receive_error(status)
            }),
        }
    }

    /// Returns how a send ended.
    pub(crate) fn sent(&self, status: api::Status) -> Result<Status> {
        match status.error {
            None => Ok(Status::EMPTY),
            Some(error) => Err(self.convert(error)),
        }
    }

    /// `MPI_Irecv`.
    pub fn irecv(&self, args: RecvArgs) -> Result<Request> {
        let short = args.data.len <= ASYNC_RECV_MIN.into();
        let request = self.begin_recv(args)?;
        Ok(if short { request } else { request.left_open() })
    }

    /// Starts a receive for a caller that waits for it itself.
    pub(crate) fn begin_recv(&self, args: RecvArgs) -> Result<Request> {
        let Some(pattern) = self.pattern(args.source, args.tag)? else {
            return Ok(Request::done(self, Status::PROC_NULL));
        };
        let recv = api::RecvArgs {
            pattern,
            data: args.data,
            origin: args.origin,
        };
        let room = recv.data.len;
        let host = &self.0.process.host;
        let started = host.recv(recv).map_err(|error| self.convert(error))?;
        if let StartOutcome::Pending(name) = started
            && room > EARLY_RTR_FROM.into()
        {
            host.offer_early_rtr(name);
        }
        Request::of_recv(self, started)
    }

    /// `MPI_Recv_init`.
    pub fn recv_init(&self, args: RecvArgs) -> Result<Request> {
        self.pattern(args.source, args.tag)?;
        let comm = self.clone();
        Ok(Request::persistent(
            self,
            Box::new(move || comm.irecv(args.clone())),
        ))
    }

    /// Returns the pattern that a receive or probe accepts; `None` for `MPI_PROC_NULL`.
    #[inline]
    pub(crate) fn pattern(&self, source: i32, tag: i32) -> Result<Option<Pattern>> {
        let context = self.context_of(tag);
        let tag = if tag == crate::ANY_TAG {
            None
        } else {
            Some(tag)
        };
        match tag {
            Some(tag) => self.check_tag(tag)?,
            None if self.takes_any_tag() => {}
            None => return Err(self.any_tag()),
        }
        let source = if source == crate::ANY_SOURCE {
            None
        } else {
            match self.peer(source)? {
                Some(peer) => Some(Source {
                    rank: source as u32,
                    peer,
                }),
                None => return Ok(None),
            }
        };
        Ok(Some(Pattern {
            context,
            source,
            tag,
        }))
    }

    /// Waits for an operation of the engine, as `awaits` says, and gives its status.
    fn wait_for(&self, name: api::Request, awaits: &dyn Fn() -> WaitTarget) -> Result<api::Status> {
        let host = &self.0.process.host;
        let mut answer = host.take(name);
        if let Ok(None) = answer {
            host.wait_for(awaits, &mut || {
                answer = host.take(name);
                !matches!(answer, Ok(None))
            });
        }
        match answer {
            Ok(Some(status)) => self.not_pending(name, status),
            Err(error) => Err(self.convert(error)),
            Ok(None) => Err(self.error(Class::Intern, "waited, but the operation is not over")),
        }
    }

    /// A blocking receive from any source does not go on where a possible sender is dead.
    #[inline]
    fn not_pending(&self, name: api::Request, mut status: api::Status) -> Result<api::Status> {
        if let Some(api::Error::Pending { peer }) = status.error {
            let host = &self.0.process.host;
            let ended = host.cancel(name).and_then(|()| host.take(name));
            ended.map_err(|error| self.convert(error))?;
            let what = "a possible sender is dead, which the program has not acknowledged";
            status.error = Some(api::Error::Peer { peer, what });
        }
        Ok(status)
    }

    /// An engine's error with the communicator's name in front.
    #[cold]
    pub(crate) fn convert(&self, error: api::Error) -> Error {
        let error = self.0.process.convert(error);
        Error {
            detail: format!("{}: {}", self.label(), error.detail),
            ..error
        }
    }

    /// Returns the error of a receive. A mismatch names both sides.
    #[cold]
    fn receive_error(&self, status: api::Status) -> Error {
        let (class, what, both) = match status.error {
            Some(api::Error::Truncated(both)) => (Class::Truncate, "message truncated", both),
            Some(api::Error::Mistyped(both)) => {
                let what = "error[G0115]: the types of message and receive differ";
                (Class::Type, what, both)
            }
            Some(api::Error::PeerMemory { peer }) => return self.lost_memory(peer, &status),
            Some(error) => return self.convert(error),
            None => return self.error(Class::Intern, "reported an error without one"),
        };
        let (call, at) = self.0.process.describe(both.origin);
        let (source, tag, label) = (status.source, status.tag, self.label());
        let text = format!(
            "{what}\n  rank {}  {call}({}, source {source}, tag {tag}, {label}){at}\n  \
             {}",
            self.rank(),
            amount(both.room, both.origin.datatype),
            self.other_side((both.peer, both.sent), source, tag)
        );
        Error::new(class, text)
    }

    /// A message whose sender has taken its buffer away before it was received.
    fn lost_memory(&self, peer: Peer, status: &api::Status) -> Error {
        let (source, tag, len) = (status.source, status.tag, status.len);
        let text = format!(
            "error[G0113]: the sender's buffer is not there any more\n  {}\n  which rank {} was about to read on {}\n  \
             help: rank {source} must keep the buffer, in host memory, until the send is complete (MPI_Wait)",
            self.other_side((peer, len), source, tag),
            self.rank(),
            self.label(),
        );
        Error::new(Class::Buffer, text)
    }

    /// Describes the call that sent a message of `len` bytes, and its place, as far as they can be
    /// found out.
    fn other_side(&self, (from, len): (Peer, u64), source: u32, tag: i32) -> String {
        let process = &self.0.process;
        let host = &process.host;
        let to = host.me();
        let sent = SentMessage {
            from,
            to,
            context: self.context_of(tag),
            tag,
            len,
        };
        let found = if from == to {
            None
        } else {
            look_again(|| host.possible_senders(&sent))
        };
        let callers = found.map_or(Vec::new(), |found| {
            let described = found.origins.iter().take(CALLERS_NAMED);
            described
                .map(|&origin| {
                    let (call, at) = process.describe_in(Some(found.process), origin);
                    let sent = amount(len, origin.datatype);
                    format!("rank {source}  {call}({sent}, tag {tag}){at}")
                })
                .collect()
        });
        if callers.is_empty() {
            return format!("rank {source}  sent {len} B with tag {tag}");
        }
        callers.join("\n  or    ")
    }
}

/// Looks for the senders of a message. A sender notes a small message after it has left, and may be
/// interrupted between the two, so that who finds nobody looks again.
fn look_again(mut look: impl FnMut() -> Option<PossibleSenders>) -> Option<PossibleSenders> {
    let mut found = look();
    for _ in 0..SENDER_LOOKS {
        if found.as_ref().is_none_or(|found| !found.origins.is_empty()) {
            break;
        }
        std::thread::sleep(SENDER_LOOK_INTERVAL);
        found = look();
    }
    found
}
