//! Temporary memory of collectives, kept for the next collective.
//!
//! A long allocation comes from the kernel page by page, is cleared twice and given back at the
//! end. That takes as long as moving as much data between two ranks. So the pool keeps long buffers
//! for the next collective that needs about as much; short buffers are left to the allocator. The
//! process has one pool, bounded by [`limit::TEMP_BUFFERS_KEPT`]. A thread that finds the pool
//! locked allocates.

use crate::limits as limit;
use garonne_sync::user::{Scratch, UserMem};
use std::fmt;
use std::sync::{Mutex, TryLockError};

/// No temporary memory for a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory {
    /// Bytes that were asked for.
    pub len: u64,
}

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no memory for {} bytes of temporary space of a collective",
            self.len
        )
    }
}

impl std::error::Error for NoMemory {}

/// Allocates `len` bytes of scratch memory.
///
/// # Errors
/// [`NoMemory`].
pub fn scratch(len: u64) -> Result<Scratch, NoMemory> {
    let scratch = usize::try_from(len).ok().and_then(Scratch::new);
    scratch.ok_or(NoMemory { len })
}

/// Buffers that are kept, the oldest first.
static KEPT: Mutex<Vec<Scratch>> = Mutex::new(Vec::new());

/// Temporary memory. What is in it when it comes is unknown.
#[derive(Debug)]
pub struct TempBuffer(Option<Scratch>);

/// Calls `f` on what is kept, unless another thread does so just now.
fn with_kept<T>(f: impl FnOnce(&mut Vec<Scratch>) -> Option<T>) -> Option<T> {
    match KEPT.try_lock() {
        Ok(mut kept) => f(&mut kept),
        Err(TryLockError::Poisoned(poisoned)) => f(&mut poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Takes the shortest that is long enough, and not much longer.
fn take(kept: &mut Vec<Scratch>, len: usize) -> Option<Scratch> {
    let fits = |scratch: &Scratch| (len..=len.saturating_mul(2)).contains(&scratch.len());
    let all = kept.iter().enumerate().filter(|(_, scratch)| fits(scratch));
    let (at, _) = all.min_by_key(|(_, scratch)| scratch.len())?;
    Some(kept.remove(at))
}

/// Keeps it in the place of the oldest.
fn keep(kept: &mut Vec<Scratch>, scratch: Scratch, most: usize) {
    if scratch.len() > most {
        return;
    }
    kept.push(scratch);
    while kept.iter().map(Scratch::len).sum::<usize>() > most {
        kept.remove(0);
    }
}

impl TempBuffer {
    /// At least `len` bytes.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(len: u64) -> Result<Self, NoMemory> {
        let long = usize::try_from(len).ok().filter(|len| is_long(*len));
        let known = long.and_then(|len| with_kept(|kept| take(kept, len)));
        let scratch = known.map_or_else(|| scratch(len), Ok)?;
        Ok(Self(Some(scratch)))
    }

    /// A view of it, as [`Scratch::mem`].
    pub fn mem(&self) -> UserMem {
        self.0.as_ref().map_or(UserMem::null(), Scratch::mem)
    }
}

fn is_long(len: usize) -> bool {
    len >= limit::TEMP_BUFFER_KEPT_FROM
}

impl Drop for TempBuffer {
    fn drop(&mut self) {
        if let Some(scratch) = self.0.take().filter(|scratch| is_long(scratch.len())) {
            with_kept(|kept| {
                keep(kept, scratch, limit::TEMP_BUFFERS_KEPT);
                None::<()>
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn lengths(kept: &[Scratch]) -> Vec<usize> {
        kept.iter().map(Scratch::len).collect()
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_oldest_goes_first() {
        let mut kept = Vec::new();
        for len in [100, 300, 500, 200] {
            keep(&mut kept, Scratch::new(len).unwrap(), 1000);
        }
        assert_eq!(lengths(&kept), [300, 500, 200]);
        keep(&mut kept, Scratch::new(1001).unwrap(), 1000);
        assert_eq!(
            lengths(&kept),
            [300, 500, 200],
            "what is longer than all is not kept"
        );
    }

    #[test]
    fn the_shortest_that_is_long_enough_is_taken_and_none_that_is_far_too_long() {
        let mut kept: Vec<_> = [900, 300, 500].map(|len| Scratch::new(len).unwrap()).into();
        assert_eq!(take(&mut kept, 250).map(|scratch| scratch.len()), Some(300));
        assert_eq!(take(&mut kept, 250).map(|scratch| scratch.len()), Some(500));
        assert!(take(&mut kept, 250).is_none() && take(&mut kept, 901).is_none());
        assert_eq!(lengths(&kept), [900]);
    }

    #[test]
    fn a_long_piece_is_at_least_as_long_as_it_was_asked_for() {
        for _ in 0..3 {
            let pieces: Vec<_> = [MIB, MIB - 16, 64]
                .map(|len| TempBuffer::new(len as u64).unwrap())
                .into();
            for (piece, len) in pieces.iter().zip([MIB, MIB - 16, 64]) {
                assert!(piece.0.as_ref().is_some_and(|scratch| scratch.len() >= len));
            }
        }
        assert!(TempBuffer::new(u64::MAX).is_err());
    }
}
