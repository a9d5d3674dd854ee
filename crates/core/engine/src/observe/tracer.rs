//! Tracing: tells a host what happens to operations, and who moves their bytes.
//!
//! The host gives an [`OperationTracer`], which has the clock that the engine lacks. Without one
//! nothing here is on any message's path. Operations that were started under a tracer bear a flag,
//! which keeps them off the fast paths and has their ends reported. The engine decides nothing by
//! what is traced.

use crate::api::{CallOrigin, ContextId, Error, Peer};
use crate::core::Core;
use crate::engine::Engine;
use crate::requests::{NewOperation, OpFlag, OpSide, to_wire};
use crate::transport::Transport;
use std::fmt::Debug;
use std::sync::Arc;

/// Kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedKind {
    /// A send.
    Send,
    /// A receive.
    Receive,
    /// A nonblocking collective.
    Collective,
}

/// An operation that was started, or that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedOperation {
    /// Name, unique among open operations.
    pub name: u64,
    /// Kind of the operation.
    pub does: TracedKind,
    /// The other process; `None` for any or several.
    pub peer: Option<Peer>,
    /// Context of its envelope.
    pub context: ContextId,
    /// Tag; -1 for any.
    pub tag: i32,
    /// Number of its envelope in the sequence, known when it is over.
    pub sequence: u32,
    /// Bytes.
    pub bytes: u64,
    /// Call that started the operation.
    pub origin: CallOrigin,
}

/// Hears what happens, with a clock at hand. Called under the engine's lock and without it: it
/// neither blocks nor calls back.
pub trait OperationTracer: Debug + Send + Sync {
    /// Nanoseconds since a fixed point.
    fn now(&self) -> u64;
    /// An operation was started.
    fn started(&self, operation: &TracedOperation);
    /// An operation ended.
    fn over(&self, operation: &TracedOperation);
    /// The calling thread moved bytes of an operation, whose other side is `peer` (`None`: several
    /// have to do with them), since `since`.
    fn moved(&self, name: u64, peer: Option<Peer>, bytes: u64, since: u64);
    /// The calling thread's call is this collective.
    fn collective(&self, context: ContextId, tag: i32);
}

/// The beginning of moving bytes; nothing if nobody watches.
#[derive(Clone, Debug)]
pub(crate) struct TransferTimer(Option<(Arc<dyn OperationTracer>, u64)>);

impl TransferTimer {
    /// Some bytes of an operation were moved.
    pub(crate) fn moved(&self, name: u64, peer: Peer, bytes: u64) {
        if let Some((watcher, since)) = &self.0
            && bytes > 0
        {
            watcher.moved(name, Some(peer), bytes, *since);
        }
    }
}

impl Core {
    /// Begins to move bytes.
    #[inline]
    pub(crate) fn stopwatch(&self) -> TransferTimer {
        TransferTimer(
            self.tracer
                .as_ref()
                .map(|watcher| (watcher.clone(), watcher.now())),
        )
    }

    /// Opens an operation; a receive is told at once, a send when all about it is known
    /// ([`Core::watch_send`]).
    #[inline]
    pub(crate) fn open(&mut self, fresh: NewOperation) -> Result<u32, Error> {
        if self.tracer.is_some() && fresh.side == OpSide::Recv {
            return self.open_watched(fresh);
        }
        self.requests.open(fresh)
    }

    #[cold]
    fn open_watched(&mut self, fresh: NewOperation) -> Result<u32, Error> {
        let pattern = fresh.pattern;
        let (bytes, origin) = (fresh.data.len, fresh.origin);
        let index = self.requests.open(fresh)?;
        self.requests.at(index).set(OpFlag::Traced);
        let receive = TracedOperation {
            name: to_wire(self.requests.name(index)),
            does: TracedKind::Receive,
            peer: pattern.source.map(|source| source.peer),
            context: pattern.context,
            tag: pattern.tag.unwrap_or(-1),
            sequence: 0,
            bytes,
            origin,
        };
        self.tracer
            .iter()
            .for_each(|watcher| watcher.started(&receive));
        Ok(index)
    }

    /// A send is about to get its number.
    #[inline]
    pub(crate) fn watch_send(&mut self, index: u32) {
        if self.tracer.is_some() {
            self.requests.at(index).set(OpFlag::Traced);
            let send = self.watched(index);
            self.tracer
                .iter()
                .for_each(|watcher| watcher.started(&send));
        }
    }

    /// An operation with marks is over.
    #[cold]
    pub(crate) fn marked_over(&mut self, index: u32) {
        self.offer_withdrawn(index);
        // A plain receive leaves its slot without a look at its marks.
        let operation = self.requests.at(index);
        operation.clear(OpFlag::DataRequested);
        if operation.has(OpFlag::WaitedFor) {
            operation.clear(OpFlag::WaitedFor);
            self.completion_events.operation_ended(operation.waiter);
        }
        if !self.requests.peek(index).has(OpFlag::Traced) {
            return;
        }
        let over = self.watched(index);
        self.tracer.iter().for_each(|watcher| watcher.over(&over));
    }

    fn watched(&self, index: u32) -> TracedOperation {
        let operation = self.requests.peek(index);
        // A receive that never met a message has no peer.
        let met = operation.error.is_none() && !operation.cancelled;
        TracedOperation {
            name: to_wire(self.requests.name(index)),
            does: match operation.side {
                // Accesses are not traced.
                OpSide::Send | OpSide::Access => TracedKind::Send,
                OpSide::Recv => TracedKind::Receive,
            },
            peer: met.then_some(operation.peer),
            context: operation.context,
            tag: operation.tag,
            sequence: operation.sequence,
            bytes: operation.total,
            origin: operation.origin,
        }
    }
}

impl<R: Transport> Engine<R> {
    /// Sets the tracer that hears of operations from now on; `None`: nobody.
    pub fn set_tracer(&mut self, watcher: Option<Arc<dyn OperationTracer>>) {
        self.core.tracer = watcher;
    }
}
