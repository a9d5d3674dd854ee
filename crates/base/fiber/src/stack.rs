//! Stacks of fibers: parts of slabs, each with a guard below it, kept for the next fiber.
//!
//! Sizes are powers of two. A slab holds many stacks of a size and is one mapping, so that 100,000
//! stacks need few. Owned by the process; bounded by what its fibers need at once.

mod sys;

pub(crate) use sys::StackMemory;

use crate::SpawnError;
use crate::limits::{GUARD_BYTES, SLAB_BYTES, SLAB_STACKS, STACK_MAX, STACK_MIN, WARM_STACKS};
use garonne_sync::mutex::lock;
use std::sync::Mutex;

/// Number of sizes.
const SIZES: usize = (STACK_MAX / STACK_MIN).ilog2() as usize + 1;

/// Stacks of one size.
#[derive(Debug, Default)]
struct SizeClass {
    free: Vec<StackMemory>,
    /// The part of the newest slab that no stack was made of yet.
    unused: std::ops::Range<usize>,
}

/// Free stacks, by size.
#[derive(Debug)]
pub(crate) struct StackPool([Mutex<SizeClass>; SIZES]);

impl StackPool {
    pub(crate) const fn new() -> Self {
        Self(
            [const {
                Mutex::new(SizeClass {
                    free: Vec::new(),
                    unused: 0..0,
                })
            }; SIZES],
        )
    }

    /// Takes a stack with room for `bytes`.
    pub(crate) fn take(&self, bytes: usize) -> Result<StackMemory, SpawnError> {
        if bytes > STACK_MAX {
            return Err(SpawnError::StackTooLarge(bytes));
        }
        let usable = bytes.max(STACK_MIN).next_power_of_two();
        let mut class = lock(&self.0[index(usable)]);
        if let Some(free) = class.free.pop() {
            return Ok(free);
        }
        let each = usable + GUARD_BYTES;
        if class.unused.is_empty() {
            let stacks = (SLAB_BYTES / each).clamp(1, SLAB_STACKS);
            let slab = sys::map_slab(stacks * each).map_err(SpawnError::Stack)?;
            class.unused = slab..slab + stacks * each;
        }
        let limit = class.unused.start;
        sys::install_guard(limit).map_err(SpawnError::Stack)?;
        class.unused.start += each;
        StackMemory::new(limit, each).ok_or(SpawnError::StackTooLarge(bytes))
    }

    /// Keeps a stack on which no code runs any more.
    pub(crate) fn give_back(&self, stack: StackMemory) {
        let mut class = lock(&self.0[index(stack.bytes() - GUARD_BYTES)]);
        if class.free.len() >= WARM_STACKS {
            stack.release_pages();
        }
        class.free.push(stack);
    }
}

fn index(usable: usize) -> usize {
    (usable / STACK_MIN).ilog2() as usize
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_and_stacks_come_back() {
        let pool = StackPool::new();
        let stack = pool.take(STACK_MIN + 1).unwrap();
        assert_eq!(stack.bytes(), 2 * STACK_MIN + GUARD_BYTES);
        let at = stack.guard();
        pool.give_back(stack);
        assert_eq!(pool.take(2 * STACK_MIN).unwrap().guard(), at);
        assert_ne!(pool.take(2 * STACK_MIN).unwrap().guard(), at);
        assert!(matches!(
            pool.take(STACK_MAX + 1),
            Err(SpawnError::StackTooLarge(_))
        ));
        assert!(pool.take(STACK_MAX).is_ok() && pool.take(0).is_ok());
    }
}
