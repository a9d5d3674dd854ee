//! The bare switch between two stacks, without a scheduler: what costs of fibers are compared with.

use crate::context::STACKS;
use crate::limits::STACK_DEFAULT;
use corosensei::Coroutine;
use std::time::{Duration, Instant};

/// Goes to another stack and back so many times. Returns how long that takes; `None` if there is no
/// memory for the stack.
pub fn bare_switches(round_trips: u32) -> Option<Duration> {
    let stack = STACKS.take(STACK_DEFAULT).ok()?;
    let mut other = Coroutine::with_stack(stack, move |yielder, ()| {
        for _ in 0..=round_trips {
            yielder.suspend(());
        }
    });
    other.resume(());
    let start = Instant::now();
    for _ in 0..round_trips {
        other.resume(());
    }
    let time = start.elapsed();
    other.resume(());
    STACKS.give_back(other.into_stack());
    Some(time)
}
