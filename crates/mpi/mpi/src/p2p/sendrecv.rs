//! A send and a receive as one operation (MPI 5.0 section 3.10).

use super::{RecvArgs, SendArgs, SendMode};
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Completion, Outcome, Request, Status, wait, wait_all};
use garonne_engine::api::CallOrigin;
use garonne_progress::messaging::WaitTarget;
use garonne_sync::user::{Data, Packed, Scratch};
use std::sync::{Arc, Mutex, PoisonError};

/// Arguments of `MPI_Sendrecv_replace`.
#[derive(Clone, Debug)]
pub struct ReplaceArgs {
    /// Data that is sent, then overwritten.
    pub data: Data,
    /// Destination and tag of the send.
    pub to: (i32, i32),
    /// Source and tag of the receive.
    pub from: (i32, i32),
    /// The program's call.
    pub origin: CallOrigin,
}

impl Comm {
    /// `MPI_Sendrecv`.
    pub fn sendrecv(&self, send: SendArgs, recv: RecvArgs) -> Result<Status> {
        // Checked before anything starts, so that a failed call leaves nothing behind.
        self.check_send(&send)?;
        let receive = self.begin_recv(recv)?;
        let sending = self.begin_send(send)?;
        let mut outcomes = [Ok(Status::EMPTY), Ok(Status::EMPTY)];
        wait_all(&[Some(&receive), Some(&sending)], &mut |index, outcome| {
            outcomes[index] = outcome
        });
        let [received, sent] = outcomes;
        if let Err(error) = &received
            && error.class == Class::ProcFailedPending
        {
            receive.cancel()?;
            drop(wait(&receive));
            return Err(Error {
                class: Class::ProcFailed,
                ..error.clone()
            });
        }
        sent?;
        received
    }

    /// `MPI_Sendrecv_replace`.
    pub fn sendrecv_replace(&self, args: ReplaceArgs) -> Result<Status> {
        let (copy, send, recv) = self.split_replace(args)?;
        let outcome = self.sendrecv(send, recv);
        drop(copy);
        outcome
    }

    /// `MPI_Isendrecv`.
    pub fn isendrecv(&self, send: SendArgs, recv: RecvArgs) -> Result<Request> {
        self.start_pair(send, recv, None)
    }

    /// `MPI_Isendrecv_replace`.
    pub fn isendrecv_replace(&self, args: ReplaceArgs) -> Result<Request> {
        let (copy, send, recv) = self.split_replace(args)?;
        self.start_pair(send, recv, Some(copy))
    }

    fn check_send(&self, send: &SendArgs) -> Result<()> {
        self.check_tag(send.tag)?;
        self.peer(send.dest).map(drop)
    }

    /// Copies the outgoing data aside.
    fn split_replace(&self, args: ReplaceArgs) -> Result<(Scratch, SendArgs, RecvArgs)> {
        let len = args.data.len;
        let copy = usize::try_from(len).ok().and_then(Scratch::new);
        let copy = copy.ok_or_else(|| {
            self.error(
                Class::NoMem,
                format!("has no memory for a copy of {len} bytes"),
            )
        })?;
        args.data.pack_to(0, Packed::new(copy.mem(), len as usize));
        let data = Data::contiguous(copy.mem(), len);
        let send = SendArgs {
            data,
            dest: args.to.0,
            tag: args.to.1,
            mode: SendMode::Standard,
            origin: args.origin,
        };
        let recv = RecvArgs {
            data: args.data,
            source: args.from.0,
            tag: args.from.1,
            origin: args.origin,
        };
        Ok((copy, send, recv))
    }

    fn start_pair(&self, send: SendArgs, recv: RecvArgs, copy: Option<Scratch>) -> Result<Request> {
        self.check_send(&send)?;
        let recv = self.irecv(recv)?;
        let send = match self.isend(send) {
            Ok(send) => send,
            Err(error) => {
                // The receive must not outlive the caller's buffer.
                recv.cancel()?;
                wait(&recv)?;
                return Err(error);
            }
        };
        let halves = Mutex::new(SendrecvHalves {
            send: SendrecvHalf::Running(send),
            recv: SendrecvHalf::Running(recv),
        });
        Ok(Request::new(
            self,
            Arc::new(Sendrecv {
                comm: self.clone(),
                halves,
                copy,
            }),
        ))
    }
}

/// Both directions in flight.
struct Sendrecv {
    comm: Comm,
    halves: Mutex<SendrecvHalves>,
    /// Outgoing data of the replacing form.
    copy: Option<Scratch>,
}

struct SendrecvHalves {
    send: SendrecvHalf,
    recv: SendrecvHalf,
}

enum SendrecvHalf {
    Running(Request),
    Over(Outcome),
}

impl SendrecvHalf {
    fn advance(&mut self) -> Option<&Outcome> {
        if let SendrecvHalf::Running(request) = self {
            *self = SendrecvHalf::Over(request.take()?);
        }
        match self {
            SendrecvHalf::Over(outcome) => Some(outcome),
            SendrecvHalf::Running(_) => None,
        }
    }
}

impl Drop for Sendrecv {
    fn drop(&mut self) {
        if !self.is_done() {
            // Freed by the program and never matched: the engine may still read the copy.
            std::mem::forget(self.copy.take());
        }
    }
}

impl Completion for Sendrecv {
    fn is_done(&self) -> bool {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        halves.send.advance().is_some() & halves.recv.advance().is_some()
    }

    fn awaits(&self) -> WaitTarget {
        let halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        match (&halves.recv, &halves.send) {
            (SendrecvHalf::Running(request), _) | (_, SendrecvHalf::Running(request)) => {
                request.awaits()
            }
            _ => WaitTarget::Anything,
        }
    }

    fn awaits_among(&self) -> WaitTarget {
        self.awaits()
    }

    fn peek(&self) -> Outcome {
        let mut halves = self.halves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Err(error)) = halves.send.advance() {
            return Err(error.clone());
        }
        halves.recv.advance().cloned().unwrap_or(Ok(Status::EMPTY))
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.comm.clone())
    }
}
