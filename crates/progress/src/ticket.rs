//! What a thread that finds the engine busy leaves for whoever holds it, and how that is carried out.
//!
//! Owned by `engine_host`; bounded by its submission ring.

use crate::limits::DOUBLINGS_BEFORE_YIELD;
use garonne_engine::api::{Error, Recv, Send, Started};
use garonne_engine::rail::Rail;
use garonne_engine::shard::Shard;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// What a thread leaves in the submission ring.
pub(crate) enum Operation {
    Send(Send),
    Recv(Recv),
}

/// A submitted operation on its way to the engine, and its result on its way back.
pub(crate) struct Ticket {
    pub operation: Mutex<Option<Operation>>,
    pub result: Mutex<Option<Result<Started, Error>>>,
    pub done: AtomicBool,
}

/// Starts an operation on the engine.
#[inline]
pub(crate) fn perform<R: Rail>(shard: &mut Shard<R>, operation: Operation) -> Result<Started, Error> {
    match operation {
        Operation::Send(send) => shard.send(send),
        Operation::Recv(recv) => shard.recv(recv),
    }
}

/// Between two tries for a busy engine: twice as long each time, so that its holder can do several things in a row, with what they need in its own cache; and then its core is given away, since the holder
/// may be on this very one.
pub(crate) fn pause(tries: &mut u32) {
    let doublings = *tries % (DOUBLINGS_BEFORE_YIELD + 1);
    *tries = tries.wrapping_add(1);
    if doublings == DOUBLINGS_BEFORE_YIELD {
        std::thread::yield_now();
    } else {
        (0..1 << doublings).for_each(|_| std::hint::spin_loop());
    }
}
