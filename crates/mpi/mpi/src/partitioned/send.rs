//! The sending side of partitioned communication.

use super::matching::{Answer, CONTEXT, Matching};
use super::{PartitionedArgs, bad_partition};
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Completion, Outcome, Request, Status};
use garonne_engine::api::{self, Peer, SendCompletion};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation of `MPI_Psend_init`, shared by its request and the threads that mark partitions.
pub struct PartitionedSend {
    comm: Comm,
    args: PartitionedArgs,
    /// The receiver; `None` for `MPI_PROC_NULL`.
    peer: Option<Peer>,
    /// Number of the operation in the records of [`Matching`].
    id: u32,
    state: Mutex<SendState>,
}

#[derive(Default)]
struct SendState {
    /// A round was started and is not completed.
    active: bool,
    /// There was a round.
    was_started: bool,
    /// Partitions of this round that are ready.
    ready: Vec<bool>,
    /// Number of partitions that are not ready.
    unready: u32,
    /// Pieces as the receiver wants them; `None` while it has not answered.
    pieces: Option<Result<Pieces>>,
    /// Partitions of each piece that are not ready.
    missing: Vec<u32>,
    /// Pieces that a thread is about to send.
    starting: u32,
    in_flight: Vec<Request>,
    error: Option<Error>,
}

#[derive(Clone, Copy)]
struct Pieces {
    number: u32,
    first_tag: i32,
}

impl PartitionedSend {
    pub(super) fn new(comm: &Comm, args: PartitionedArgs) -> Result<Arc<Self>> {
        let peer = comm.peer(args.rank)?;
        let announced = (args.tag, args.partitions, args.bytes());
        let rank = args.rank;
        let new = |id| {
            Arc::new(Self {
                comm: comm.clone(),
                args,
                peer,
                id,
                state: Mutex::default(),
            })
        };
        if peer.is_none() {
            return Ok(new(0));
        }
        Ok(comm.matching().announce(rank as u32, announced, new))
    }

    pub(super) fn comm(&self) -> &Comm {
        &self.comm
    }

    fn lock(&self) -> MutexGuard<'_, SendState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `MPI_Start`: begins a round.
    pub(super) fn start(self: &Arc<Self>) -> Request {
        let mut state = self.lock();
        state.active = true;
        state.was_started = true;
        state.unready = self.args.partitions;
        state.ready.clear();
        state.ready.resize(self.args.partitions as usize, false);
        if let Some(Ok(Pieces { number, .. })) = state.pieces {
            state.missing.clear();
            let each = self.args.partitions.checked_div(number).unwrap_or(0);
            state.missing.resize(number as usize, each);
        }
        drop(state);
        Request::new(&self.comm, self.clone())
    }

    /// Marks partitions as ready, and sends the pieces that are complete with them.
    pub(super) fn ready(&self, partitions: impl Iterator<Item = i32>) -> Result<()> {
        let mut state = self.lock();
        if !state.active {
            let text = "carries this request, which is not active: start it before partitions are marked as ready";
            return Err(self.comm.error(Class::Request, text));
        }
        let mut marked = Vec::new();
        for partition in partitions {
            let index = partition as usize;
            let fault = match state.ready.get_mut(index) {
                Some(ready) if partition >= 0 && !*ready => {
                    *ready = true;
                    marked.push(index);
                    continue;
                }
                Some(_) if partition >= 0 => self.comm.error(
                    Class::Arg,
                    format!("carries partition {partition}, which is ready already"),
                ),
                _ => bad_partition(&self.comm, partition, self.args.partitions),
            };
            for index in marked {
                state.ready[index] = false;
            }
            return Err(fault);
        }
        state.unready -= marked.len() as u32;
        let mut due = Vec::new();
        if let Some(Ok(pieces)) = state.pieces {
            let each = self.args.partitions as usize / pieces.number.max(1) as usize;
            for index in marked {
                let piece = index / each;
                state.missing[piece] -= 1;
                if state.missing[piece] == 0 {
                    due.push(piece as u32);
                }
            }
            state.starting += due.len() as u32;
            drop(state);
            self.send_pieces(pieces, &due);
        }
        Ok(())
    }

    /// No answer will come.
    pub(super) fn end(&self, error: Error) {
        self.lock().pieces = Some(Err(error));
    }

    /// Takes the receiver's answer, and sends what is ready.
    pub(super) fn answered(&self, answer: &Answer) {
        let mut state = self.lock();
        let pieces = self.accept(answer);
        state.pieces = Some(pieces.clone());
        let Ok(pieces) = pieces else { return };
        if !state.active {
            return;
        }
        let mut missing = Vec::new();
        let mut due = Vec::new();
        if pieces.number > 0 {
            let each = self.args.partitions as usize / pieces.number as usize;
            for (index, ready) in state.ready.chunks(each).enumerate() {
                let unready = ready.iter().filter(|ready| !**ready).count() as u32;
                missing.push(unready);
                if unready == 0 {
                    due.push(index as u32);
                }
            }
        }
        state.missing = missing;
        state.starting += due.len() as u32;
        drop(state);
        self.send_pieces(pieces, &due);
    }

    fn accept(&self, answer: &Answer) -> Result<Pieces> {
        let Answer {
            first_tag, pieces, ..
        } = *answer;
        let (partitions, bytes) = (self.args.partitions, self.args.bytes());
        let (rank, tag) = (self.args.rank, self.args.tag);
        if answer.bytes != bytes {
            let text = format!(
                "carries a partitioned send of {bytes} B to rank {rank} with tag {tag}, which receives {} B: both must be equal",
                answer.bytes
            );
            return Err(self.comm.error(Class::Truncate, text));
        }
        let is_even = pieces == 0 && partitions == 0
            || pieces > 0 && partitions % pieces == 0 && first_tag > 0;
        if !is_even || first_tag.checked_add_unsigned(pieces).is_none() {
            let text = format!("got no tags for {partitions} partitions from rank {rank}");
            return Err(self.comm.error(Class::Other, text));
        }
        Ok(Pieces {
            number: pieces,
            first_tag,
        })
    }

    /// Sends pieces that `starting` counts.
    fn send_pieces(&self, pieces: Pieces, due: &[u32]) {
        for &index in due {
            let sent = self.send_piece(pieces, index);
            let mut state = self.lock();
            state.starting -= 1;
            match sent {
                Ok(request) if request.is_nothing() => {}
                Ok(request) => state.in_flight.push(request),
                Err(error) => _ = state.error.get_or_insert(error),
            }
        }
    }

    fn send_piece(&self, pieces: Pieces, index: u32) -> Result<Request> {
        let Some(peer) = self.peer else {
            return Ok(Request::done(&self.comm, Status::EMPTY));
        };
        let send = api::SendArgs {
            context: self.comm.context() + CONTEXT,
            peer,
            source: self.comm.rank(),
            tag: pieces.first_tag + index as i32,
            data: self.args.piece(pieces.number, index)?,
            mode: SendCompletion::Standard,
            origin: self.args.origin,
        };
        let started = self.comm.process().host.send(send);
        let started = started.map_err(|error| self.comm.convert(error))?;
        Ok(Request::of_send(&self.comm, started)?.left_open())
    }
}

impl Completion for PartitionedSend {
    fn advance(&self) {
        let mut state = self.lock();
        let SendState {
            in_flight, error, ..
        } = &mut *state;
        in_flight.retain(|request| match request.take() {
            None => true,
            Some(Ok(_)) => false,
            Some(Err(fault)) => {
                error.get_or_insert(fault);
                false
            }
        });
    }

    fn is_done(&self) -> bool {
        let state = self.lock();
        let is_sent = state.unready == 0 && state.starting == 0 && state.in_flight.is_empty();
        match &state.pieces {
            _ if self.peer.is_none() => true,
            None => false,
            Some(Ok(_)) => is_sent,
            Some(Err(_)) => true,
        }
    }

    fn peek(&self) -> Outcome {
        let state = self.lock();
        match (&state.error, &state.pieces) {
            (Some(error), _) | (None, Some(Err(error))) => Err(error.clone()),
            _ => Ok(Status::EMPTY),
        }
    }

    fn finish(&self) -> Outcome {
        let outcome = self.peek();
        let mut state = self.lock();
        state.active = false;
        state.error = None;
        outcome
    }

    fn must_finish(&self) -> bool {
        true
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.comm.clone())
    }
}

impl Drop for PartitionedSend {
    fn drop(&mut self) {
        if self.peer.is_some() && !self.lock().was_started {
            let matching: &Arc<Matching> = self.comm.matching();
            matching.withdraw(self.args.rank as u32, self.id);
        }
    }
}
