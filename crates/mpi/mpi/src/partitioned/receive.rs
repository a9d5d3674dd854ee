//! The receiving side of partitioned communication.

use super::matching::{Announcement, CONTEXT};
use super::tag_space::TagRange;
use super::{PartitionedArgs, bad_partition, pieces};
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Completion, Outcome, Request, Status};
use garonne_engine::api::{self, Pattern, Peer, Source};
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// An operation of `MPI_Precv_init`, shared by its request and the threads that ask what arrived.
pub struct PartitionedReceive {
    comm: Comm,
    args: PartitionedArgs,
    /// The sender; `None` for `MPI_PROC_NULL`.
    peer: Option<Peer>,
    state: Mutex<ReceiveState>,
}

#[derive(Default)]
struct ReceiveState {
    /// A round was started and is not completed.
    active: bool,
    /// There was a round.
    was_started: bool,
    /// PostedPieces of each round; `None` while no send is matched.
    pieces: Option<Result<PostedPieces>>,
    /// PostedPieces of this round that arrived.
    arrived: Vec<bool>,
    /// Pieces whose receives a thread is about to post.
    starting: u32,
    /// Receives of pieces that are not over.
    open: Vec<(u32, Request)>,
    error: Option<Error>,
}

struct PostedPieces {
    number: u32,
    tags: TagRange,
}

impl ReceiveState {
    /// Looks which pieces arrived.
    fn advance(&mut self) {
        let Self {
            arrived,
            open,
            error,
            ..
        } = self;
        open.retain(|(piece, request)| match request.take() {
            None => true,
            Some(outcome) => {
                // A withdrawn send has left no pieces.
                if let Some(arrived) = arrived.get_mut(*piece as usize) {
                    *arrived = true;
                }
                if let Err(fault) = outcome {
                    error.get_or_insert(fault);
                }
                false
            }
        });
    }
}

impl PartitionedReceive {
    pub(super) fn new(comm: &Comm, args: PartitionedArgs) -> Result<Arc<Self>> {
        let peer = comm.peer(args.rank)?;
        let (rank, tag) = (args.rank, args.tag);
        let receive = Arc::new(Self {
            comm: comm.clone(),
            args,
            peer,
            state: Mutex::default(),
        });
        if peer.is_some() {
            comm.matching().enter((rank as u32, tag), &receive);
        }
        Ok(receive)
    }

    pub(super) fn comm(&self) -> &Comm {
        &self.comm
    }

    fn lock(&self) -> MutexGuard<'_, ReceiveState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of pieces for a sender of so many partitions, and the bytes of all.
    pub(super) fn offer(&self, partitions: u32) -> (u32, u64) {
        (pieces(partitions, self.args.elements()), self.args.bytes())
    }

    /// A send is matched.
    pub(super) fn matched(&self, announcement: Announcement, number: u32, tags: Option<TagRange>) {
        let mut state = self.lock();
        let (rank, tag, bytes) = (self.args.rank, self.args.tag, self.args.bytes());
        state.pieces = Some(match tags {
            _ if announcement.bytes != bytes => Err(self.comm.error(
                Class::Truncate,
                format!(
                    "carries a partitioned receive of {bytes} B from rank {rank} with tag {tag}, which sends {} B: both must be equal",
                    announcement.bytes
                ),
            )),
            Some(tags) => Ok(PostedPieces { number, tags }),
            None => Err(self.comm.error(
                Class::Other,
                format!("has no {number} tags left for partitions from rank {rank}"),
            )),
        });
        if state.active {
            self.receive_pieces(state);
        }
    }

    /// No send will be matched.
    pub(super) fn end(&self, error: Error) {
        self.lock().pieces = Some(Err(error));
    }

    /// The matched send was freed before its first start: the receive takes the next one. Returns
    /// the tag.
    pub(super) fn withdrawn(&self) -> i32 {
        let mut state = self.lock();
        state.pieces = None;
        state.arrived.clear();
        for (_, request) in state.open.drain(..) {
            // Nobody has sent or will send these pieces.
            let _ = request.cancel();
            let _ = request.free();
        }
        self.args.tag
    }

    /// `MPI_Start`: begins a round.
    pub(super) fn start(self: &Arc<Self>) -> Request {
        let mut state = self.lock();
        let is_first = !std::mem::replace(&mut state.was_started, true);
        state.active = true;
        state.arrived.clear();
        self.receive_pieces(state);
        if is_first && self.peer.is_some() {
            let key = (self.args.rank as u32, self.args.tag);
            self.comm.matching().await_match(key, self);
        }
        Request::new(&self.comm, self.clone())
    }

    /// Posts the receives of a round, if a send is matched; without the lock, since that may make
    /// progress.
    fn receive_pieces(&self, mut state: MutexGuard<'_, ReceiveState>) {
        let Some(Ok(pieces)) = &state.pieces else {
            return;
        };
        let (number, first_tag) = (pieces.number, pieces.tags.first);
        state.arrived.resize(number as usize, false);
        state.starting = number;
        drop(state);
        for index in 0..number {
            let posted = self.receive_piece((number, index), first_tag + index as i32);
            let mut state = self.lock();
            state.starting -= 1;
            match posted {
                Ok(request) => state.open.push((index, request)),
                Err(error) => {
                    if let Some(arrived) = state.arrived.get_mut(index as usize) {
                        *arrived = true;
                    }
                    state.error.get_or_insert(error);
                }
            }
        }
    }

    fn receive_piece(&self, (number, index): (u32, u32), tag: i32) -> Result<Request> {
        let rank = self.args.rank as u32;
        let receive = api::RecvArgs {
            pattern: Pattern {
                context: self.comm.context() + CONTEXT,
                source: self.peer.map(|peer| Source { rank, peer }),
                tag: Some(tag),
            },
            data: self.args.piece(number, index)?,
            origin: self.args.origin,
        };
        let started = self.comm.process().host.recv(receive);
        let started = started.map_err(|error| self.comm.convert(error))?;
        Ok(Request::of_recv(&self.comm, started)?.left_open())
    }

    /// Returns whether the buffer has this partition, or the request is inactive.
    pub(super) fn arrived(&self, partition: i32) -> Result<bool> {
        let partitions = self.args.partitions;
        let of = u32::try_from(partition).ok().filter(|&p| p < partitions);
        let Some(partition) = of else {
            return Err(bad_partition(&self.comm, partition, partitions));
        };
        if self.has_arrived(partition) {
            return Ok(true);
        }
        self.comm.process().host.progress_for_test();
        Ok(self.has_arrived(partition))
    }

    fn has_arrived(&self, partition: u32) -> bool {
        let mut state = self.lock();
        if !state.active || self.peer.is_none() {
            return true;
        }
        state.advance();
        match &state.pieces {
            None => false,
            // The completion of the request tells the error.
            Some(Err(_)) => true,
            Some(Ok(pieces)) => {
                // The pieces of which the partition has a part.
                let (number, partition) = (u64::from(pieces.number), u64::from(partition));
                let partitions = u64::from(self.args.partitions);
                let first = partition * number / partitions;
                let end = ((partition + 1) * number).div_ceil(partitions);
                (first..end).all(|piece| state.arrived.get(piece as usize) == Some(&true))
            }
        }
    }
}

impl Completion for PartitionedReceive {
    fn advance(&self) {
        self.lock().advance();
    }

    fn is_done(&self) -> bool {
        let state = self.lock();
        match &state.pieces {
            _ if self.peer.is_none() => true,
            None => false,
            Some(Ok(_)) => state.starting == 0 && state.open.is_empty(),
            Some(Err(_)) => true,
        }
    }

    fn peek(&self) -> Outcome {
        let state = self.lock();
        match (&state.error, &state.pieces) {
            (Some(error), _) | (None, Some(Err(error))) => Err(error.clone()),
            _ if self.peer.is_none() => Ok(Status::PROC_NULL),
            _ => Ok(Status {
                source: self.args.rank,
                tag: self.args.tag,
                len: self.args.bytes(),
                cancelled: false,
            }),
        }
    }

    fn finish(&self) -> Outcome {
        let outcome = self.peek();
        let mut state = self.lock();
        state.active = false;
        state.error = None;
        outcome
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.comm.clone())
    }

    fn meeting(&self) -> Option<ExternalWait> {
        (!self.is_done()).then(|| ExternalWait {
            awaited: AwaitedRanks::Sender(self.peer),
            context: self.comm.context() + CONTEXT,
            tag: self.args.tag,
            origin: self.args.origin,
        })
    }
}
