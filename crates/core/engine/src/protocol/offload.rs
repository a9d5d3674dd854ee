//! Long copies without the engine: taken out under its lock, carried out by any thread, their ends
//! told under the lock again.
//!
//! For hosts whose engine several threads share. A [`CopyJob`] is one copy of one message; while it
//! is under way the engine may do whatever else it likes, also end the operation (its peer died,
//! packets take over), which then is complete only after its last flight has landed: until then
//! somebody may touch its memory. A message that both sides fill may have several flights at a
//! time, each of a part that nobody else took. Bounded by the threads that carry.

use crate::api::{Error, Peer, Request};
use crate::core::Core;
use crate::engine::Engine;
use crate::limits::{BRIEF_BUDGET, LIFT_MAX};
use crate::observe::tracer::TransferTimer;
use crate::progress::CopyPolicy;
use crate::protocol::early_rtr::EarlyWrite;
use crate::protocol::rendezvous::NextTransfer;
use crate::protocol::wire::EarlyRtr;
use crate::requests::{OpFlag, OpSide, OpState, to_wire};
use crate::transport::{PartWritten, RendezvousMode, Transport};

/// For what a copy is lifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadKind {
    /// As [`Transport::read`].
    Read,
    /// As [`Transport::push_part`].
    Part,
    /// As [`Transport::write_ahead`].
    Ahead,
}

/// A copy between local memory and a peer's region, for any thread to carry out without the rail.
/// It holds what it needs (a lease); dropped, it lets go of it.
pub trait DetachedCopy: Send {
    /// Moves the bytes, and makes sure that they were the region's. Called once at most.
    ///
    /// # Errors
    /// As the operation of the rail that it stands for.
    fn carry(&mut self) -> Result<(), Error>;
}

/// What became of a copy that was to be lifted.
pub enum OffloadResult {
    /// This rail does it itself: the operation that it stands for is to be called.
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
    pub fn carry(&mut self) {
        self.result = self.copy.carry();
        let bytes = if self.result.is_ok() {
            self.step.bytes
        } else {
            0
        };
        self.watch.moved(to_wire(self.operation), self.peer, bytes);
    }

    /// Whoever carried this goes on until nothing of the kind is left: a peer waits for it without
    /// a way to take over.
    pub fn goes_on(&self) -> bool {
        self.more
    }
}

impl Core {
    /// Ends an operation; one whose memory is in use ends after its last copy, and when its exposed
    /// region is revoked.
    pub(crate) fn end(&mut self, index: u32, error: Option<Error>) {
        // Nor is it fetched any more: the next receive in its slot would be taken for it.
        if !self.pulls.is_empty() {
            self.pulls.retain(|&pull| pull != index);
        }
        let operation = self.requests.at(index);
        if operation.exposed || operation.flights > 0 {
            if !operation.marked(OpFlag::Ending) {
                operation.error = error;
            }
            // A receive that was posted is not any more.
            operation.state = OpState::Active;
            if operation.flights > 0 {
                operation.mark(OpFlag::Ending);
            } else {
                self.revokes.push(index);
                self.pending = true;
            }
        } else {
            self.complete(index, error);
        }
    }

    /// A copy of an operation is over. `false`: so is the operation, when the last of them is, and
    /// what this one brought does not matter any more.
    pub(crate) fn copy_is_over(&mut self, index: u32) -> bool {
        let operation = self.requests.at(index);
        operation.flights = operation.flights.saturating_sub(1);
        if !operation.marked(OpFlag::Ending) {
            return true;
        }
        if operation.flights == 0 {
            operation.unmark(OpFlag::Ending);
            let error = operation.error.take();
            self.end(index, error);
        }
        false
    }

    /// Nobody touches an operation's exposed memory any more.
    pub(crate) fn unexposed(&mut self, index: u32) {
        let operation = self.requests.at(index);
        operation.exposed = false;
        let error = operation.error.take();
        self.end(index, error);
    }

    /// Copies wait that are to be lifted.
    pub(crate) fn has_copies(&self) -> bool {
        !self.pulls.is_empty() || !self.pushes.is_empty() || self.ahead.has_writes()
    }
}

impl<R: Transport> Engine<R> {
    /// As [`Engine::progress`] for hosts whose other threads wait meanwhile: long copies are left
    /// to [`Engine::lift`].
    pub fn progress_briefly(&mut self) -> bool {
        let told = self.rail.poll(BRIEF_BUDGET, &mut self.core);
        if self.core.pending {
            return self.pass(CopyPolicy::Lifted) || told != 0;
        }
        told != 0
    }

    /// Takes out the next long copy. What cannot be carried out without the engine is done here.
    pub fn lift(&mut self) -> Option<CopyJob> {
        if !self.core.has_copies() {
            return None;
        }
        self.lift_push()
            .or_else(|| self.lift_pull())
            .or_else(|| self.lift_write())
    }

    /// A flight of the operation in slot `index`.
    fn depart(
        &mut self,
        index: u32,
        what: OffloadKind,
        (step, load): (PartWritten, Box<dyn DetachedCopy>),
    ) -> CopyJob {
        let watch = self.core.stopwatch();
        let operation = self.core.requests.at(index);
        operation.flights += 1;
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

    fn lift_pull(&mut self) -> Option<CopyJob> {
        for _ in 0..self.core.pulls.len() {
            let index = self.core.pulls.pop_front()?;
            let NextTransfer::Read(from, len) = self.pull_turn(index) else {
                continue;
            };
            let token = self.core.wire_name(index);
            let operation = self.core.requests.peek(index);
            let shared = operation.fetching == Some(RendezvousMode::Share);
            // A part that was taken is to be read as a whole.
            let brief = if shared { len } else { len.min(LIFT_MAX) };
            let Some(region) = operation
                .region
                .as_deref()
                .filter(|_| operation.flights < u8::MAX)
            else {
                self.pull(index, from, len);
                continue;
            };
            match self.rail.lift(
                operation.bulk(token, region, from, brief),
                OffloadKind::Read,
            ) {
                Ok(OffloadResult::Copy(step, load)) => {
                    if shared {
                        // The next part is anybody's.
                        self.core.pull_on(index);
                    }
                    return Some(self.depart(index, OffloadKind::Read, (step, load)));
                }
                // What the rail does by itself it is asked for at once: it may have several ways
                // for much.
                Ok(OffloadResult::Unable | OffloadResult::Nothing) => {
                    drop(self.pull(index, from, len))
                }
                Err(error) => self.core.bulk_moved(index, Err(error)),
            }
        }
        None
    }

    fn lift_push(&mut self) -> Option<CopyJob> {
        for _ in 0..self.core.pushes.len() {
            let index = *self.core.pushes.front()?;
            let operation = self.core.requests.peek(index);
            let goes_on = operation.state == OpState::Active
                && operation.side == OpSide::Send
                && operation.region.is_some()
                && !operation.marked(OpFlag::Ending);
            if !goes_on {
                self.core.pushes.pop_front();
                continue;
            }
            let ahead = operation.marked(OpFlag::Ahead);
            match self.lift_part(index, OffloadKind::Part, None) {
                Ok(OffloadResult::Copy(step, load)) => {
                    // Others' turn, but for one that was begun unasked.
                    self.core.pushes.pop_front();
                    match (step.last, ahead) {
                        (true, _) => {}
                        (false, true) => self.core.pushes.push_front(index),
                        (false, false) => self.core.pushes.push_back(index),
                    }
                    let mut flight = self.depart(index, OffloadKind::Part, (step, load));
                    flight.more = ahead && !step.last;
                    return Some(flight);
                }
                Ok(OffloadResult::Unable) => {
                    self.pump_pushes();
                    return None;
                }
                Ok(OffloadResult::Nothing) => {
                    self.core.pushes.pop_front();
                    if self.core.requests.peek(index).flights == 0 {
                        self.end_push(index, true);
                    }
                }
                Err(_) => {
                    self.core.pushes.pop_front();
                    self.end_push(index, false);
                }
            }
        }
        None
    }

    /// A part of a send, to its receiver's memory: where that is said, or where the operation says.
    fn lift_part(
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
        let Some(descriptor) = region.filter(|_| operation.flights < u8::MAX) else {
            return Ok(OffloadResult::Unable);
        };
        let bulk = operation.bulk(token, descriptor, 0, operation.data.len);
        self.rail.lift(bulk, what)
    }

    fn lift_write(&mut self) -> Option<CopyJob> {
        while let Some((index, expect)) = self.next_write() {
            match self.lift_part(index, OffloadKind::Ahead, Some(&expect)) {
                Ok(OffloadResult::Copy(step, load)) => {
                    let operation = self.core.requests.at(index);
                    operation.mark(OpFlag::Ahead);
                    operation.remote = expect.recv;
                    operation.moved = 0;
                    operation.region = Some(Box::new(expect.region));
                    if !step.last {
                        self.core.pushes.push_front(index);
                        self.core.pending = true;
                    }
                    let mut flight = self.depart(index, OffloadKind::Ahead, (step, load));
                    flight.more = !step.last;
                    return Some(flight);
                }
                Ok(OffloadResult::Unable) => {
                    let send = self.core.requests.name(index);
                    self.core.ahead.write_again(EarlyWrite { send, expect });
                    self.pump_writes();
                    return None;
                }
                Ok(OffloadResult::Nothing) | Err(_) => {}
            }
        }
        None
    }

    /// A copy is over: its bytes count now, if they still matter, and whoever waits for them is
    /// told.
    pub fn land(&mut self, flight: CopyJob) {
        self.landed(flight);
        if self.core.pending {
            self.pass(CopyPolicy::Lifted);
        }
    }

    fn landed(&mut self, flight: CopyJob) {
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
            OffloadKind::Read => self.landed_read(index, step, result),
            OffloadKind::Part | OffloadKind::Ahead => self.landed_part(index, step, result),
        }
    }

    fn landed_read(&mut self, index: u32, step: PartWritten, result: Result<(), Error>) {
        let operation = self.core.requests.at(index);
        match (operation.fetching, result) {
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

    fn landed_part(&mut self, index: u32, step: PartWritten, result: Result<(), Error>) {
        let operation = self.core.requests.at(index);
        if operation.region.is_none() {
            // Packets are asked for instead, or another part failed.
            return;
        }
        if result.is_err() {
            self.core.pushes.retain(|&push| push != index);
            return self.end_push(index, false);
        }
        operation.moved += step.bytes;
        if operation.flights == 0 && !self.core.pushes.contains(&index) {
            self.end_push(index, true);
        }
    }
}
