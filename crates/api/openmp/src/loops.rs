//! Worksharing: how the iterations of a loop are dealt out to the threads of a team.
//!
//! An iteration is named by its position, from 0, whatever bounds and step the loop has.

use crate::icv::{Kind, Schedule};
use crate::parker;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Iterations of a loop. Signed loops have their bits in the same words.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    start: u64,
    step: u64,
    end: u64,
    count: u64,
}

impl Space {
    /// A loop over signed numbers.
    pub fn signed(start: i64, end: i64, step: i64) -> Self {
        let distance = match step > 0 {
            true if start < end => end.wrapping_sub(start) as u64,
            false if start > end => start.wrapping_sub(end) as u64,
            _ => 0,
        };
        Self::new(
            start as u64,
            step as u64,
            end as u64,
            distance,
            step.unsigned_abs(),
        )
    }

    /// A loop over unsigned numbers; downwards `step` is negative in two's complement.
    pub fn unsigned(up: bool, start: u64, end: u64, step: u64) -> Self {
        let (distance, size) = match up {
            true => (end.saturating_sub(start), step),
            false => (start.saturating_sub(end), step.wrapping_neg()),
        };
        Self::new(start, step, end, distance, size)
    }

    fn new(start: u64, step: u64, end: u64, distance: u64, size: u64) -> Self {
        let count = match distance {
            0 => 0,
            _ => (distance - 1) / size.max(1) + 1,
        };
        Self {
            start,
            step,
            end,
            count,
        }
    }

    /// Number of iterations.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// First value of these positions, and the one behind the last.
    fn values(&self, positions: &Range<u64>) -> (u64, u64) {
        let value = |position: u64| self.start.wrapping_add(position.wrapping_mul(self.step));
        let end = if positions.end == self.count {
            self.end
        } else {
            value(positions.end)
        };
        (value(positions.start), end)
    }
}

/// What a thread asks for that meets a loop or sections.
#[derive(Debug)]
pub struct LoopRequest {
    /// The iterations.
    pub space: Space,
    /// How they are dealt out.
    pub schedule: Schedule,
    /// Trip counts of the loops of a doacross nest.
    pub doacross: Option<Vec<u64>>,
}

/// How far the iterations of a doacross loop are, by chunk of the outermost loop.
#[derive(Debug)]
struct Doacross {
    counts: Vec<u64>,
    /// Per chunk: number of the last iteration that was posted in it, plus 1.
    posted: Vec<AtomicU64>,
}

/// A worksharing construct that a team is in.
#[derive(Debug)]
pub struct Share {
    space: Space,
    kind: Kind,
    chunk: u64,
    threads: u64,
    next: AtomicU64,
    /// Position whose `ordered` region is next.
    turn: AtomicU64,
    doacross: Option<Doacross>,
    /// Threads that have left it.
    pub(crate) left: AtomicUsize,
    /// Address of the task reductions that its first thread registered.
    pub reductions: AtomicUsize,
    /// Memory that all threads share in it.
    memory: OnceLock<Box<[AtomicU64]>>,
}

/// Where one thread is in its share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cursor {
    trips: u64,
    chunk: Range<u64>,
    has_chunk: bool,
}

impl Share {
    pub(crate) fn new(request: LoopRequest, threads: usize) -> Self {
        let threads = threads.max(1) as u64;
        let Schedule { kind, chunk, .. } = request.schedule;
        let (kind, chunk) = match kind {
            Kind::Auto => (Kind::Static, 0),
            Kind::Static => (kind, chunk),
            _ => (kind, chunk.max(1)),
        };
        let count = request.space.count;
        let doacross = request.doacross.map(|counts| {
            let entries = match kind {
                Kind::Guided => count,
                _ if chunk == 0 => threads,
                _ => count.div_ceil(chunk),
            };
            Doacross {
                counts,
                posted: (0..entries).map(|_| AtomicU64::new(0)).collect(),
            }
        });
        Self {
            space: request.space,
            kind,
            chunk,
            threads,
            next: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            doacross,
            left: AtomicUsize::new(0),
            reductions: AtomicUsize::new(0),
            memory: OnceLock::new(),
        }
    }

    /// Address of zeroed memory of so many bytes that all threads share. It lives as the share.
    pub fn memory(&self, bytes: usize) -> usize {
        let zeroed = || (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect();
        self.memory.get_or_init(zeroed).as_ptr() as usize
    }

    /// Positions that a thread has under a static schedule without a chunk.
    fn block(&self, thread: u64) -> Range<u64> {
        let (each, rest) = (
            self.space.count / self.threads,
            self.space.count % self.threads,
        );
        let start = thread * each + thread.min(rest);
        start..start + each + u64::from(thread < rest)
    }

    /// Takes the thread's next chunk.
    pub(crate) fn next(&self, thread: u64, cursor: &mut Cursor) -> Option<(u64, u64)> {
        let count = self.space.count;
        let taken = match self.kind {
            Kind::Static | Kind::Auto => {
                let trip = cursor.trips;
                cursor.trips += 1;
                if self.chunk == 0 {
                    let block = self.block(thread);
                    (trip == 0 && !block.is_empty()).then_some(block)
                } else {
                    let number = trip.checked_mul(self.threads)?.checked_add(thread)?;
                    let start = number
                        .checked_mul(self.chunk)
                        .filter(|start| *start < count)?;
                    Some(start..start.saturating_add(self.chunk).min(count))
                }
            }
            Kind::Dynamic => {
                let take =
                    |next: u64| (next < count).then(|| next.saturating_add(self.chunk).min(count));
                let overshoot = (self.threads + 1).checked_mul(self.chunk);
                let fits = overshoot.and_then(|more| count.checked_add(more));
                let taken = if fits.is_some() {
                    // Threads that come too late overshoot once each, and that does not wrap.
                    match self.next.load(Ordering::Relaxed) < count {
                        true => Ok(self.next.fetch_add(self.chunk, Ordering::Relaxed)),
                        false => Err(count),
                    }
                } else {
                    self.next
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                };
                let start = taken.ok()?;
                take(start).map(|end| start..end)
            }
            Kind::Guided => {
                let size = |next: u64| {
                    let left = count - next;
                    left.div_ceil(self.threads).max(self.chunk).min(left)
                };
                let start = self
                    .next
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                        (next < count).then(|| next + size(next))
                    });
                let start = start.ok()?;
                Some(start..start + size(start))
            }
        };
        cursor.has_chunk = taken.is_some();
        let taken = taken?;
        cursor.chunk = taken.clone();
        Some(self.space.values(&taken))
    }

    /// Waits until all iterations before the thread's chunk have left their `ordered` regions.
    pub(crate) fn await_turn(&self, cursor: &Cursor) {
        if cursor.has_chunk && self.turn.load(Ordering::Acquire) < cursor.chunk.start {
            let address = std::ptr::from_ref(&self.turn) as usize;
            let mine = cursor.chunk.start;
            while self.turn.load(Ordering::Acquire) < mine {
                parker::wait_at(address, || self.turn.load(Ordering::SeqCst) < mine);
            }
        }
    }

    /// The thread has done its chunk: the next one has its turn.
    pub(crate) fn pass_turn(&self, cursor: &Cursor) {
        if cursor.has_chunk {
            self.await_turn(cursor);
            self.turn.store(cursor.chunk.end, Ordering::SeqCst);
            parker::wake_at(std::ptr::from_ref(&self.turn) as usize, usize::MAX);
        }
    }

    /// Chunk of an outermost iteration, and the first iteration in it.
    fn doacross_chunk(&self, outer: u64) -> (u64, u64) {
        if self.kind == Kind::Guided {
            return (outer, outer);
        }
        if let Some(chunk) = outer.checked_div(self.chunk) {
            return (chunk, chunk * self.chunk);
        }
        let (each, rest) = (
            self.space.count / self.threads,
            self.space.count % self.threads,
        );
        let large = rest * (each + 1);
        let thread = if outer < large {
            outer / (each + 1)
        } else {
            rest + (outer - large) / each.max(1)
        };
        (thread, self.block(thread).start)
    }

    /// Word of an iteration's chunk, and the value that it has from the iteration on.
    fn doacross_word(&self, iteration: &[u64]) -> Option<(&AtomicU64, u64)> {
        let doacross = self.doacross.as_ref()?;
        let (outer, inner) = iteration.split_first()?;
        let (chunk, start) = self.doacross_chunk(*outer);
        let word = doacross.posted.get(usize::try_from(chunk).ok()?)?;
        let pairs = inner.iter().zip(doacross.counts.get(1..)?);
        let number = pairs.fold(outer.wrapping_sub(start), |number, (at, count)| {
            number.wrapping_mul(*count).wrapping_add(*at)
        });
        Some((word, number.wrapping_add(1)))
    }

    /// Number of loops of a doacross nest.
    pub fn doacross_depth(&self) -> usize {
        self.doacross
            .as_ref()
            .map_or(0, |doacross| doacross.counts.len())
    }

    /// An iteration of a doacross nest is done.
    pub fn doacross_post(&self, iteration: &[u64]) {
        if let Some((word, value)) = self.doacross_word(iteration) {
            word.store(value, Ordering::SeqCst);
            parker::wake_at(std::ptr::from_ref(word) as usize, usize::MAX);
        }
    }

    /// Waits until an iteration of a doacross nest is done.
    pub fn doacross_wait(&self, iteration: &[u64]) {
        if let Some((word, value)) = self.doacross_word(iteration) {
            while word.load(Ordering::Acquire) < value {
                let address = std::ptr::from_ref(word) as usize;
                parker::wait_at(address, || word.load(Ordering::SeqCst) < value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(space: Space, kind: Kind, chunk: u64, threads: usize) -> Vec<(u64, u64)> {
        let schedule = Schedule {
            kind,
            chunk,
            monotonic: true,
        };
        let request = LoopRequest {
            space,
            schedule,
            doacross: None,
        };
        let share = Share::new(request, threads);
        let mut cursors = vec![Cursor::default(); threads];
        let mut chunks = Vec::new();
        loop {
            let before = chunks.len();
            for (thread, cursor) in cursors.iter_mut().enumerate() {
                chunks.extend(share.next(thread as u64, cursor));
            }
            if chunks.len() == before {
                return chunks;
            }
        }
    }

    #[test]
    fn every_schedule_deals_out_each_iteration_once() {
        for kind in [Kind::Static, Kind::Dynamic, Kind::Guided, Kind::Auto] {
            for (chunk, threads) in [(0, 1), (1, 3), (4, 3), (100, 7)] {
                for (start, end, step) in [(0, 10, 1), (5, -6, -2), (3, 3, 1), (-7, 40, 5)] {
                    let chunks = all(Space::signed(start, end, step), kind, chunk, threads);
                    let mut seen = Vec::new();
                    for (from, to) in chunks {
                        let (mut at, to) = (from as i64, to as i64);
                        while (step > 0 && at < to) || (step < 0 && at > to) {
                            seen.push(at);
                            at += step;
                        }
                    }
                    let mut expected = Vec::new();
                    let mut at = start;
                    while (step > 0 && at < end) || (step < 0 && at > end) {
                        expected.push(at);
                        at += step;
                    }
                    seen.sort_by_key(|at| at * step.signum());
                    assert_eq!(
                        seen, expected,
                        "{kind:?} {chunk} {threads} {start} {end} {step}"
                    );
                }
            }
        }
    }

    #[test]
    fn loops_over_the_whole_range_do_not_overflow() {
        let whole = Space::unsigned(true, 0, u64::MAX, 1);
        assert_eq!(whole.count(), u64::MAX);
        let chunks = all(
            Space::unsigned(true, 0, u64::MAX, u64::MAX / 4),
            Kind::Dynamic,
            u64::MAX / 2,
            3,
        );
        assert_eq!(chunks.len(), 1);
        let down = Space::unsigned(false, u64::MAX, 0, (u64::MAX / 4).wrapping_neg());
        assert_eq!(all(down, Kind::Dynamic, 1, 2).len(), 5);
        assert_eq!(Space::signed(i64::MIN, i64::MAX, 1).count(), u64::MAX);
    }
}
