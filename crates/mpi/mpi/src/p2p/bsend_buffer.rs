//! Buffered sends and the buffers behind them (MPI 5.0 section 3.6).
//!
//! A process, session or communicator owns one [`BsendBuffer`]. A buffered send copies its data
//! into the first of the communicator's, the session's and the process's that is attached, starts a
//! standard send from there, and returns. Room is what the program attached, or unbounded heap for
//! `MPI_BUFFER_AUTOMATIC`.

use super::{Data, SendArgs, SendMode};
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::limits::{BSEND_POLLS, RETIRED_SWEEP_MIN};
use crate::process::Process;
use crate::request::{Completion, Outcome, Request, Status};
use crate::unmatched_sends::EndingSend;
use garonne_engine::api::Peer;
use garonne_progress::messaging::WaitTarget;
use garonne_sync::user::{Scratch, UserMem};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory that a program attaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BsendMemory {
    /// The program's memory. It stays valid and untouched until detached.
    User {
        /// Where.
        mem: UserMem,
        /// Size in bytes.
        len: u64,
    },
    /// `MPI_BUFFER_AUTOMATIC`: the library finds memory.
    Automatic,
}

/// The buffer of one process, session or communicator.
#[derive(Clone, Default)]
pub struct BsendBuffer(Arc<Mutex<Option<AttachedMemory>>>);

struct AttachedMemory {
    buffer: BsendMemory,
    /// Messages under way, by offset where the buffer is the program's.
    messages: Vec<BufferedMessage>,
    /// Number of messages at which finished ones are sorted out next.
    sweep_at: usize,
}

struct BufferedMessage {
    offset: u64,
    len: u64,
    send: Request,
    /// Memory of an automatic buffer.
    copy: Option<Scratch>,
}

impl AttachedMemory {
    /// Forgets messages that are over.
    fn sweep(&mut self) {
        self.messages.retain(|message| !message.send.over());
    }

    /// Returns whether all messages are over. One that goes on answers for all: those before are
    /// asked when it is over.
    fn is_empty(&mut self) -> bool {
        while self
            .messages
            .pop_if(|message| message.send.over())
            .is_some()
        {}
        self.messages.is_empty()
    }

    /// Sweeps when the number of messages has doubled since the last time.
    fn sweep_sometimes(&mut self) {
        if self.messages.len() >= self.sweep_at {
            self.sweep();
            self.sweep_at = (2 * self.messages.len()).max(RETIRED_SWEEP_MIN);
        }
    }

    /// Room for `len` bytes and the index at which its message belongs: behind the last message, or
    /// else, finished ones swept, the first gap that fits.
    fn find_room(&mut self, room: u64, len: u64) -> Option<(usize, u64)> {
        let end = self
            .messages
            .last()
            .map_or(0, |last| last.offset + last.len);
        if room - end >= len {
            return Some((self.messages.len(), end));
        }
        self.sweep();
        self.gap(room, len)
    }

    fn gap(&self, room: u64, len: u64) -> Option<(usize, u64)> {
        let mut start = 0;
        for (index, message) in self.messages.iter().enumerate() {
            if message.offset - start >= len {
                return Some((index, start));
            }
            start = message.offset + message.len;
        }
        (room - start >= len).then_some((self.messages.len(), start))
    }
}

impl BsendBuffer {
    fn lock(&self) -> MutexGuard<'_, Option<AttachedMemory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `MPI_Buffer_attach`, `MPI_Comm_attach_buffer`, `MPI_Session_attach_buffer`.
    pub fn attach(&self, buffer: BsendMemory) -> Result<()> {
        let mut attached = self.lock();
        if attached.is_some() {
            return Err(Error::new(
                Class::Buffer,
                "a buffer for buffered sends is attached already; detach it first",
            ));
        }
        *attached = Some(AttachedMemory {
            buffer,
            messages: Vec::new(),
            sweep_at: 0,
        });
        Ok(())
    }

    /// `MPI_Buffer_detach` and its kin: waits until all messages in the buffer are on their way,
    /// and gives it back. `None` if nothing was attached: null address and size 0, as MPI 5.0 wants
    /// it.
    pub fn detach(&self, process: &Process) -> Option<BsendMemory> {
        self.flush(process);
        self.lock().take().map(|attached| attached.buffer)
    }

    /// `MPI_Buffer_flush` and its kin.
    pub fn flush(&self, process: &Process) {
        if !self.empty() {
            process
                .host
                .wait_for(&|| self.awaits(), &mut || self.empty());
        }
    }

    /// The messages that have not left, which the buffer forgets: for whoever waits for them, at
    /// the end of all.
    pub(crate) fn take_messages(&self) -> Vec<EndingSend> {
        let mut attached = self.lock();
        let messages = attached
            .as_mut()
            .map(|attached| std::mem::take(&mut attached.messages));
        let messages = messages.into_iter().flatten();
        messages
            .map(|message| (message.send, message.copy))
            .collect()
    }

    /// `MPI_Buffer_iflush` and its kin.
    pub fn iflush(&self, process: &Arc<Process>) -> Request {
        Request::new(process, Arc::new(BufferFlush(self.clone())))
    }

    fn empty(&self) -> bool {
        self.lock().as_mut().is_none_or(AttachedMemory::is_empty)
    }

    /// Returns the wait target of a thread that waits until all messages have left: the end of the
    /// last that has not, and then of the one before. What another thread of those sweeps away is
    /// over, and whoever waited for it was told so.
    fn awaits(&self) -> WaitTarget {
        let attached = self.lock();
        let last = attached
            .as_ref()
            .and_then(|attached| attached.messages.last());
        last.map_or(WaitTarget::Anything, |message| message.send.awaits())
    }

    fn is_attached(&self) -> bool {
        self.lock().is_some()
    }
}

struct BufferFlush(BsendBuffer);

impl Completion for BufferFlush {
    fn is_done(&self) -> bool {
        self.0.empty()
    }

    fn awaits(&self) -> WaitTarget {
        self.0.awaits()
    }

    // Among others it waits for anything: its messages are those of other flushes, too, and one
    // thread at a time is noted for each.

    fn peek(&self) -> Outcome {
        Ok(Status::EMPTY)
    }
}

impl Comm {
    /// The buffer that buffered sends on this communicator use.
    fn bsend_buffers(&self) -> &BsendBuffer {
        if self.0.buffers.is_attached() {
            return &self.0.buffers;
        }
        match &self.0.session {
            Some(session) if session.buffers().is_attached() => session.buffers(),
            _ => &self.0.process.buffers,
        }
    }

    /// Copies the data aside and starts the send.
    pub(crate) fn buffered(&self, args: SendArgs, peer: Peer) -> Result<()> {
        let buffers = self.bsend_buffers();
        if let Some(done) = self.try_buffered(buffers, &args, peer) {
            return done;
        }
        // Messages may have left meanwhile, or other threads may be about to end their copies.
        let found = (0..BSEND_POLLS).find_map(|look| {
            if look > 0 {
                std::thread::yield_now();
            }
            self.0.process.host.progress();
            self.try_buffered(buffers, &args, peer)
        });
        found.unwrap_or_else(|| {
            let text = format!(
                "has no room for a buffered send of {} bytes to rank {}: attach a larger buffer (each message needs \
                 MPI_BSEND_OVERHEAD beside its data), or MPI_BUFFER_AUTOMATIC",
                args.data.len, args.dest
            );
            Err(self.error(Class::Buffer, text))
        })
    }

    fn try_buffered(
        &self,
        buffers: &BsendBuffer,
        args: &SendArgs,
        peer: Peer,
    ) -> Option<Result<()>> {
        let mut attached = buffers.lock();
        let Some(attached) = attached.as_mut() else {
            return Some(Err(self.error(
                Class::Buffer,
                "got a buffered send, but no buffer is attached",
            )));
        };
        let len = args.data.len;
        let (index, offset, mem, copy) = match attached.buffer {
            BsendMemory::User { mem, len: room } => {
                let (index, offset) = attached.find_room(room, len)?;
                (index, offset, mem.offset(offset as isize), None)
            }
            BsendMemory::Automatic => {
                attached.sweep_sometimes();
                let Some(copy) = usize::try_from(len).ok().and_then(Scratch::new) else {
                    return Some(Err(self.error(
                        Class::NoMem,
                        format!("has no memory to buffer {len} bytes"),
                    )));
                };
                (attached.messages.len(), 0, copy.mem(), Some(copy))
            }
        };
        mem.with_mut(0, len as usize, |bytes| args.data.pack(0, bytes));
        let send = SendArgs {
            data: Data::contiguous(mem, len),
            mode: SendMode::Standard,
            ..args.clone()
        };
        let started = self
            .start_send(send, peer)
            .map_err(|error| self.convert(error));
        match started.and_then(|started| Request::of_send(self, started)) {
            Ok(send) if send.over_at_birth() => Some(Ok(())),
            Ok(send) => {
                let send = send.left_open();
                attached.messages.insert(
                    index,
                    BufferedMessage {
                        offset,
                        len,
                        send,
                        copy,
                    },
                );
                Some(Ok(()))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
