//! Long copies within the memory of one process, by the routine that is faster here.
//!
//! No other core caches these lines, so the rules for copies between cores do not apply. Some
//! processors have a `rep movsb` that need not fetch what it overwrites. There the C library's copy
//! takes half to nine tenths of the time of a vector loop; on others it takes several times as
//! long. Both routines are measured on real copies, for each doubling of length. Racing threads may
//! lose each other's measurements, but no bytes.

use crate::copy::{Routine, copy_mem, copy_mem_by};
use crate::user::UserMem;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Shorter copies take less than what reading the clock twice is worth.
const FROM_LOG2: u32 = 15;
/// The last class is that of 64 MB and more, which no cache holds.
const CLASSES: usize = 12;
/// The first copies alternate: the very first of each touches pages for the first time.
const FIRST: u32 = 6;
/// One copy of so many goes the other way: where that takes four times as long it costs a
/// twentieth.
const RETRY_EVERY: u32 = 64;

const ROUTINES: [Routine; 2] = [Routine::Vector, Routine::Library];

/// Measured times of copies of one class. Relaxed everywhere: any routine is right, the choice is
/// only about speed.
#[derive(Debug)]
struct SizeClass {
    acquisitions: AtomicU32,
    /// Picoseconds per kilobyte of each of [`ROUTINES`]; 0: nothing known.
    costs: [AtomicU32; 2],
}

impl SizeClass {
    const fn new() -> Self {
        Self {
            acquisitions: AtomicU32::new(0),
            costs: [const { AtomicU32::new(0) }; 2],
        }
    }

    fn next(&self) -> usize {
        let turn = self.acquisitions.fetch_add(1, Ordering::Relaxed);
        if turn < FIRST {
            return (turn % 2) as usize;
        }
        let [vector, library] = &self.costs;
        let best = usize::from(library.load(Ordering::Relaxed) < vector.load(Ordering::Relaxed));
        match turn.is_multiple_of(RETRY_EVERY) {
            true => 1 - best,
            false => best,
        }
    }

    fn took(&self, which: usize, len: usize, took: Duration) {
        let now = (took.as_nanos() * 1_024_000 / len.max(1) as u128).clamp(1, u128::from(u32::MAX))
            as u32;
        let cost = &self.costs[which];
        let old = cost.load(Ordering::Relaxed);
        let new = match old {
            0 => now,
            // Quick ones count more: what slows a copy down is a preemption or a cold cache as a
            // rule, which says nothing of the routine.
            _ if now <= old => old - (old - now) / 2,
            _ => old.saturating_add((now - old).min(old / 2).div_ceil(8)),
        };
        cost.store(new.max(1), Ordering::Relaxed);
    }
}

static CLASSES_OF: [SizeClass; CLASSES] = [const { SizeClass::new() }; CLASSES];

/// Copies `len` bytes between two places of this process's own memory, which must not overlap.
pub fn copy_local(dst: UserMem, src: UserMem, len: usize) {
    let Some(class) = len
        .checked_ilog2()
        .and_then(|log2| log2.checked_sub(FROM_LOG2))
    else {
        return copy_mem(dst, src, len);
    };
    let class = &CLASSES_OF[(class as usize).min(CLASSES - 1)];
    let which = class.next();
    let start = Instant::now();
    copy_mem_by(ROUTINES[which], dst, src, len);
    class.took(which, len, start.elapsed());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::Scratch;

    /// Copies whose routines take so many microseconds: how many of the last hundred went by the
    /// library.
    fn by_library(class: &SizeClass, us: [u64; 2]) -> usize {
        let gone: Vec<usize> = (0..500)
            .map(|_| {
                let which = class.next();
                class.took(which, 1 << 18, Duration::from_micros(us[which]));
                which
            })
            .collect();
        gone[400..].iter().sum()
    }

    #[test]
    fn the_quicker_routine_is_kept_to_and_changes_when_it_is_not_any_more() {
        let class = SizeClass::new();
        assert!(by_library(&class, [13, 7]) >= 98);
        assert!(by_library(&class, [10, 142]) <= 2);
        assert!(by_library(&class, [13, 7]) >= 98);
    }

    #[test]
    fn one_preemption_changes_nothing() {
        let class = SizeClass::new();
        by_library(&class, [13, 7]);
        class.took(1, 1 << 18, Duration::from_millis(10));
        assert_eq!(class.next(), 1);
    }

    #[test]
    fn every_length_arrives_whole_by_either_routine() {
        const MOST: usize = (1 << 17) + 77;
        let (from, to) = (Scratch::new(MOST).unwrap(), Scratch::new(MOST).unwrap());
        let bytes: Vec<u8> = (0..MOST).map(|at| (at * 31 % 251) as u8).collect();
        from.mem().write(0, &bytes);
        for len in [
            0,
            1,
            77,
            (1 << 15) - 1,
            1 << 15,
            (1 << 15) + 1,
            100_001,
            MOST - 1,
        ] {
            for turn in 0..4 {
                to.mem().write(0, &vec![turn; MOST]);
                copy_local(to.mem(), from.mem(), len);
                let mut copied = vec![0; MOST];
                to.mem().read(0, &mut copied);
                assert!(copied[..len] == bytes[..len], "{len} in turn {turn}");
                assert!(
                    copied[len..].iter().all(|byte| *byte == turn),
                    "{len} in turn {turn}"
                );
            }
        }
    }
}
