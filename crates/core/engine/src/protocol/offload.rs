//! Long copies without the engine: taken out under its lock, carried out by any thread, and
//! finished under the lock again.
//!
//! For hosts whose engine several threads share. A [`CopyJob`] is one copy of one message.
//! Meanwhile the engine may do whatever else it likes, also end the operation (its peer died, data
//! packets take over). The operation is then complete only after its last copy has finished: until
//! then somebody may touch its memory. A message that both sides fill may have several jobs at a
//! time, each of a part that nobody else took. Bounded by the threads that copy.

use crate::api::{Error, Peer, Request};
use crate::core::Core;
use crate::engine::Engine;
use crate::limits::{OFFLOAD_MAX, SHARED_POLL_BUDGET};
use crate::observe::tracer::TransferTimer;
use crate::progress::CopyPolicy;
use crate::protocol::early_rtr::EarlyWrite;
use crate::protocol::rendezvous::NextTransfer;
use crate::protocol::wire::EarlyRtr;
use crate::requests::{OpFlag, OpSide, OpState, to_wire};
use crate::transport::{PartWritten, RendezvousMode, Transport};

/// For what a copy is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadKind {
    /// A copy of [`crate::transport::RemoteMemory::read`].
    Read,
    /// A copy of [`crate::transport::SharedCopy::write_part`].
    Part,
    /// A copy of [`crate::transport::SharedCopy::write_early`].
    Ahead,
}

/// A copy between local memory and a peer's region, for any thread to carry out without the
/// transport. It holds what it needs (a lease); dropped, it lets go of it.
pub trait DetachedCopy: Send {
    /// Moves the bytes, and makes sure that they were the region's. Called once at most.
    ///
    /// # Errors
    /// As the operation of the transport that it stands for.
    fn run(&mut self) -> Result<(), Error>;
}

/// Outcome of offloading a copy.
pub enum OffloadResult {
    /// This transport does it itself: the operation that it stands for is to be called.
    Unable,
    /// Nothing is left that nobody took, or it was withdrawn.
    Nothing,
    /// This is to be carried, and does so much.
    Copy(PartWritten, Box<dyn DetachedCopy>),
}

/// A copy that was taken out of an engine, to be carried out and given back to it.
pub struct CopyJob {
    operation: Request,
    what: OffloadKind,
    step: PartWritten,
    copy: Box<dyn DetachedCopy>,
    result: Result<(), Error>,
    /// A message that was begun to be written ahead waits for the rest.
    more: bool,
    peer: Peer,
    watch: TransferTimer,
}

impl CopyJob {
    /// The operation that it is for.
    pub fn operation(&self) -> Request {
        self.operation
    }

    /// Moves the bytes, and tells who watches. Without the engine.
    pub fn run(&mut self) {
        self.result = self.copy.run();
        let bytes = if self.result.is_ok() {
            self.step.bytes
        } else {
            0
        };
        self.watch.moved(to_wire(self.operation), self.peer, bytes);
    }

    /// Returns whether the thread must go on until no such copy is left: a peer waits for it and
    /// cannot take over.
    pub fn must_continue(&self) -> bool {
        self.more
    }
}

impl Core {
    /// Ends an operation; one whose memory is in use ends after its last copy, and when its exposed
    /// region is revoked.
    pub(crate) fn end_operation(&mut self, index: u32, error: Option<Error>) {
        // Nor is it fetched any more: the next receive in its slot would be taken for it.
        if !self.transfers.reads.is_empty() {
            self.transfers.reads.remove(index);
        }
        let operation = self.requests.at(index);
        if operation.exposed || operation.copies > 0 {
            if !operation.has(OpFlag::Ending) {
                // Of an operation that ended by an error, the peer may still say that it is over.
                operation.error = operation.error.take().or(error);
            }
            // A receive that was posted is not any more.
            operation.state = OpState::Active;
            if operation.copies > 0 {
                operation.set(OpFlag::Ending);
            } else {
                self.transfers.push_revoke(index);
                self.has_work = true;
            }
        } else {
            self.complete(index, error);
        }
    }

    /// A copy of an operation is over. `false`: so is the operation, when the last of them is, and
    /// what this one brought does not matter any more.
    pub(crate) fn copy_is_over(&mut self, index: u32) -> bool {
        let operation = self.requests.at(index);
        operation.copies = operation.copies.saturating_sub(1);
        if !operation.has(OpFlag::Ending) {
            return true;
        }
        if operation.copies == 0 {
            operation.clear(OpFlag::Ending);
            let error = operation.error.take();
            self.end_operation(index, error);
        }
        false
    }

    /// Nobody touches an operation's exposed memory any more.
    pub(crate) fn unexposed(&mut self, index: u32) {
        let operation = self.requests.at(index);
        operation.exposed = false;
        let error = operation.error.take();
        self.end_operation(index, error);
    }

    /// Copies wait that are to be lifted.
    pub(crate) fn has_copies(&self) -> bool {
        !self.transfers.reads.is_empty()
            || !self.transfers.writes.is_empty()
            || self.early_rtr.has_writes()
    }
}

impl<R: Transport> Engine<R> {
    /// Makes progress like [`Engine::progress`], but leaves long copies to
    /// [`Engine::take_copy_job`], for hosts whose other threads wait meanwhile.
    pub fn progress_briefly(&mut self) -> bool {
        let told = self.transport.poll(SHARED_POLL_BUDGET, &mut self.core);
        if self.core.has_work {
            return self.progress_pass(CopyPolicy::Offloaded) || told != 0;
        }
        told != 0
    }

    /// Takes out the next long copy. What cannot be carried out without the engine is done here.
    pub fn take_copy_job(&mut self) -> Option<CopyJob> {
        if !self.core.has_copies() {
            return None;
        }
        self.offload_rtr_send()
            .or_else(|| self.offload_read())
            .or_else(|| self.offload_early_write())
    }

    /// A flight of the operation in slot `index`.
    fn detach(
        &mut self,
        index: u32,
        what: OffloadKind,
        (step, load): (PartWritten, Box<dyn DetachedCopy>),
    ) -> CopyJob {
        let watch = self.core.stopwatch();
        let operation = self.core.requests.at(index);
        operation.copies += 1;
        let peer = operation.peer;
        CopyJob {
            operation: self.core.requests.name(index),
            what,
            step,
            copy: load,
            result: Ok(()),
            more: false,
            peer,
            watch,
        }
    }

    fn offload_read(&mut self) -> Option<CopyJob> {
        for _ in 0..self.core.transfers.reads.len() {
            let index = self.core.transfers.reads.pop()?;
            let NextTransfer::Read(from, len) = self.next_transfer(index) else {
                continue;
            };
            let token = self.core.wire_name(index);
            let operation = self.core.requests.peek(index);
            let shared = operation.mode == Some(RendezvousMode::Share);
            // A part that was taken is to be read as a whole.
            let brief = if shared { len } else { len.min(OFFLOAD_MAX) };
            let Some(region) = operation
                .region
                .as_deref()
                .filter(|_| operation.copies < u8::MAX)
            else {
                self.read_region(index, from, len);
                continue;
            };
            match self.transport.offload(
                operation.bulk(token, region, from, brief),
                OffloadKind::Read,
            ) {
                Ok(OffloadResult::Copy(step, load)) => {
                    if shared {
                        // The next part is anybody's.
                        self.core.queue_read(index);
                    }
                    return Some(self.detach(index, OffloadKind::Read, (step, load)));
                }
                // What the transport does by itself it is asked for at once: it may have several
                // ways for much.
                Ok(OffloadResult::Unable | OffloadResult::Nothing) => {
                    self.read_region(index, from, len);
                }
                Err(error) => self.core.bulk_moved(index, Err(error)),
            }
        }
        None
    }

    fn offload_rtr_send(&mut self) -> Option<CopyJob> {
        for _ in 0..self.core.transfers.writes.len() {
            let index = self.core.transfers.writes.first()?;
            let operation = self.core.requests.peek(index);
            let goes_on = operation.state == OpState::Active
                && operation.side == OpSide::Send
                && operation.region.is_some()
                && !operation.has(OpFlag::Ending);
            if !goes_on {
                self.core.transfers.writes.pop();
                continue;
            }
            let ahead = operation.has(OpFlag::EarlyWrite);
            match self.offload_part(index, OffloadKind::Part, None) {
                Ok(OffloadResult::Copy(step, load)) => {
                    // Others' turn, but for one that was begun unasked.
                    self.core.transfers.writes.pop();
                    match (step.last, ahead) {
                        (true, _) => {}
                        (false, true) => self.core.transfers.writes.push_first(index),
                        (false, false) => self.core.transfers.writes.push(index),
                    }
                    let mut flight = self.detach(index, OffloadKind::Part, (step, load));
                    flight.more = ahead && !step.last;
                    return Some(flight);
                }
                Ok(OffloadResult::Unable) => {
                    self.progress_rtr_sends();
                    return None;
                }
                Ok(OffloadResult::Nothing) => {
                    self.core.transfers.writes.pop();
                    if self.core.requests.peek(index).copies == 0 {
                        self.end_rtr_send(index, true);
                    }
                }
                Err(_) => {
                    self.core.transfers.writes.pop();
                    self.end_rtr_send(index, false);
                }
            }
        }
        None
    }

    /// A part of a send, to its receiver's memory: where that is said, or where the operation says.
    fn offload_part(
        &mut self,
        index: u32,
        what: OffloadKind,
        expect: Option<&EarlyRtr>,
    ) -> Result<OffloadResult, Error> {
        let token = self.core.wire_name(index);
        let operation = self.core.requests.peek(index);
        let region = expect
            .map(|expect| &expect.region)
            .or(operation.region.as_deref());
        let Some(descriptor) = region.filter(|_| operation.copies < u8::MAX) else {
            return Ok(OffloadResult::Unable);
        };
        let bulk = operation.bulk(token, descriptor, 0, operation.data.len);
        self.transport.offload(bulk, what)
    }

    fn offload_early_write(&mut self) -> Option<CopyJob> {
        while let Some((index, expect)) = self.next_write() {
            match self.offload_part(index, OffloadKind::Ahead, Some(&expect)) {
                Ok(OffloadResult::Copy(step, load)) => {
                    let operation = self.core.requests.at(index);
                    operation.set(OpFlag::EarlyWrite);
                    operation.remote = expect.recv;
                    operation.moved = 0;
                    operation.region = Some(Box::new(expect.region));
                    if !step.last {
                        self.core.transfers.writes.push_first(index);
                        self.core.has_work = true;
                    }
                    let mut flight = self.detach(index, OffloadKind::Ahead, (step, load));
                    flight.more = !step.last;
                    return Some(flight);
                }
                Ok(OffloadResult::Unable) => {
                    let send = self.core.requests.name(index);
                    self.core
                        .early_rtr
                        .requeue_write(EarlyWrite { send, expect });
                    self.progress_early_writes();
                    return None;
                }
                Ok(OffloadResult::Nothing) | Err(_) => {}
            }
        }
        None
    }

    /// A copy is over: its bytes count now, if they still matter, and whoever waits for them is
    /// told.
    pub fn finish_copy_job(&mut self, flight: CopyJob) {
        self.copy_job_done(flight);
        if self.core.has_work {
            self.progress_pass(CopyPolicy::Offloaded);
        }
    }

    fn copy_job_done(&mut self, flight: CopyJob) {
        let CopyJob {
            operation,
            what,
            step,
            copy: load,
            result,
            ..
        } = flight;
        // What it held is let go of before anything of its end is told.
        drop(load);
        let Some(index) = self.core.requests.find(operation) else {
            return;
        };
        if !self.core.copy_is_over(index) {
            return;
        }
        match what {
            OffloadKind::Read => self.read_done(index, step, result),
            OffloadKind::Part | OffloadKind::Ahead => self.part_done(index, step, result),
        }
    }

    fn read_done(&mut self, index: u32, step: PartWritten, result: Result<(), Error>) {
        let operation = self.core.requests.at(index);
        match (operation.mode, result) {
            (Some(RendezvousMode::Read), Ok(())) => {
                operation.moved += step.bytes;
                self.core.bulk_moved(index, Ok(()));
            }
            (Some(RendezvousMode::Share), Ok(())) => {
                operation.moved += step.bytes;
                if operation.moved >= operation.total {
                    self.core.bulk_moved(index, Ok(()));
                }
            }
            (Some(_), Err(error)) => self.core.bulk_moved(index, Err(error)),
            // It took to packets meanwhile, which bring these bytes again.
            (_, _) => {}
        }
    }

    fn part_done(&mut self, index: u32, step: PartWritten, result: Result<(), Error>) {
        let operation = self.core.requests.at(index);
        if operation.region.is_none() {
            // Packets are asked for instead, or another part failed.
            return;
        }
        if result.is_err() {
            self.core.transfers.writes.remove(index);
            return self.end_rtr_send(index, false);
        }
        operation.moved += step.bytes;
        if operation.copies == 0 && !self.core.transfers.writes.contains(index) {
            self.end_rtr_send(index, true);
        }
    }
}
