//! Stacks of fibers: parts of slabs, each with a guard below it, kept for the next fiber.
//!
//! A stack that is given back keeps its pages, so that the next fiber costs no fault. The monitor
//! gives pages back that nobody has needed for a while.
//!
//! Sizes are powers of two. A slab holds many stacks of a size and is one mapping, so that 100,000
//! stacks need few. Owned by the process; bounded by what its fibers need at once.

mod sys;

pub(crate) use sys::StackMemory;

use crate::SpawnError;
use crate::limits::{
    GUARD_BYTES, SLAB_BYTES, SLAB_STACKS, STACK_MAX, STACK_MIN, TRIMMED_STACKS, WARM_STACKS,
};
use garonne_sync::mutex::lock;
use std::collections::VecDeque;
use std::sync::Mutex;

/// Number of sizes.
const SIZES: usize = (STACK_MAX / STACK_MIN).ilog2() as usize + 1;

/// Stacks of one size.
#[derive(Debug, Default)]
struct SizeClass {
    /// Free stacks with the pages that they had, the last one to be given back last.
    warm: VecDeque<StackMemory>,
    /// Free stacks without pages.
    cold: Vec<StackMemory>,
    /// Least number of warm ones since the last trim: nobody has needed those.
    unneeded: usize,
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
                    warm: VecDeque::new(),
                    cold: Vec::new(),
                    unneeded: 0,
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
        let free = match class.warm.pop_back() {
            Some(warm) => {
                class.unneeded = class.unneeded.min(class.warm.len());
                Some(warm)
            }
            None => class.cold.pop(),
        };
        if let Some(free) = free {
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
        class.warm.push_back(stack);
    }

    /// Tells whether no more stacks have pages than may keep them for ever.
    pub(crate) fn is_trimmed(&self) -> bool {
        let mut classes = self.0.iter();
        classes.all(|class| lock(class).warm.len() <= WARM_STACKS)
    }

    /// Gives pages of stacks back to the kernel that nobody has needed since the last call, but for
    /// some. At most so many of each size, so that a call is short. Returns whether there are more.
    pub(crate) fn trim(&self) -> bool {
        let mut has_more = false;
        for class in &self.0 {
            let released: Vec<StackMemory> = {
                let mut class = lock(class);
                let spare = class.unneeded.saturating_sub(WARM_STACKS);
                let count = spare.min(TRIMMED_STACKS);
                class.unneeded = class.warm.len() - count;
                has_more |= spare > count;
                class.warm.drain(..count).collect()
            };
            released.iter().for_each(StackMemory::release_pages);
            lock(class).cold.extend(released);
        }
        has_more
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

    #[test]
    fn stacks_that_nobody_needs_lose_their_pages_but_are_not_lost() {
        let pool = StackPool::new();
        let count = WARM_STACKS + TRIMMED_STACKS + 7;
        let stacks: Vec<_> = (0..count).map(|_| pool.take(0).unwrap()).collect();
        let mut places: Vec<_> = stacks.iter().map(StackMemory::guard).collect();
        stacks.into_iter().for_each(|stack| pool.give_back(stack));
        // The first call sees that they were needed just now.
        assert!(!pool.trim() && !pool.is_trimmed());
        assert!(pool.trim() && !pool.is_trimmed());
        assert!(!pool.trim() && pool.is_trimmed());
        assert_eq!(lock(&pool.0[0]).cold.len(), TRIMMED_STACKS + 7);
        let mut again: Vec<_> = (0..count).map(|_| pool.take(0).unwrap().guard()).collect();
        places.sort_unstable();
        again.sort_unstable();
        assert_eq!(places, again);
    }
}
