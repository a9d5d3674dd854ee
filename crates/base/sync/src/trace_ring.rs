//! A trace ring: the last records of several writers, readable while they write and after they
//! died.
//!
//! The writing rank owns the ring. Its words lie in shared memory and are read by other processes.
//! A writer never waits and never fails: it takes the next number and overwrites the oldest record.
//! Each reader keeps a position of its own, so any number of them may read. Records that were
//! overwritten before they were read are counted as lost.
//!
//! A record carries its number plus one, stored last, so a reader can tell a complete record from
//! one that is being written. A writer that is overtaken by a whole lap while it writes can leave a
//! mixture of two records. Readers must validate what they read, as with all memory of other
//! processes. Bounded: [`TraceRingLayout::slots`] records of [`RECORD_WORDS`] words.

use crate::facade::{AtomicU64, Ordering, fence};

/// Words of a record, without its stamp. Loom, which tries all orders, has two: enough for a
/// mixture.
pub const RECORD_WORDS: usize = if cfg!(loom) { 2 } else { 7 };
const SLOT_WORDS: usize = RECORD_WORDS + 1;
/// Words before the first record: the next number, and room so that it has a cache line of its own.
const HEAD_WORDS: usize = 8;

/// A record as it lies there.
pub type RecordWords = [u64; RECORD_WORDS];

/// Memory made of atomic words.
pub trait AtomicWords {
    /// The word of this index, below the length that the journal's shape asks for.
    fn word(&self, index: usize) -> &AtomicU64;
}

#[cfg(not(loom))]
impl AtomicWords for crate::shm::Segment {
    #[inline(always)]
    fn word(&self, index: usize) -> &AtomicU64 {
        self.atomic_u64(index * 8)
    }
}

#[cfg(any(test, loom))]
impl AtomicWords for Vec<AtomicU64> {
    fn word(&self, index: usize) -> &AtomicU64 {
        &self[index]
    }
}

/// Sizes of a trace ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRingLayout {
    slots: u64,
}

impl TraceRingLayout {
    /// A journal of `slots` records, at least one.
    pub const fn new(slots: u64) -> Self {
        Self {
            slots: if slots == 0 { 1 } else { slots },
        }
    }

    /// The most that fit into `bytes`; `None` if none does.
    pub const fn within(bytes: usize) -> Option<Self> {
        let slots = (bytes / 8).saturating_sub(HEAD_WORDS) / SLOT_WORDS;
        if slots == 0 {
            return None;
        }
        Some(Self {
            slots: slots as u64,
        })
    }

    /// Records that it holds.
    pub const fn slots(self) -> u64 {
        self.slots
    }

    /// Bytes that it needs.
    pub const fn bytes(self) -> usize {
        (HEAD_WORDS + self.slots as usize * SLOT_WORDS) * 8
    }

    fn at(self, number: u64) -> usize {
        HEAD_WORDS + (number % self.slots) as usize * SLOT_WORDS
    }
}

/// Writes a record over the oldest.
pub fn write(memory: &impl AtomicWords, shape: TraceRingLayout, record: &RecordWords) {
    let number = memory.word(0).fetch_add(1, Ordering::Relaxed);
    let at = shape.at(number);
    let stamp = memory.word(at);
    stamp.store(0, Ordering::Relaxed);
    // SYNC(journal-record): whoever reads a word of this record sees that the old stamp is gone.
    fence(Ordering::Release);
    for (index, word) in record.iter().enumerate() {
        memory.word(at + 1 + index).store(*word, Ordering::Relaxed);
    }
    // Release: whoever sees the stamp sees the record. SYNC(journal-record).
    stamp.store(number.wrapping_add(1), Ordering::Release);
}

/// Result of reading a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The record.
    Record(RecordWords),
    /// Nothing was written there yet, or it is just being written.
    NotYet,
    /// The record was overwritten.
    Gone,
}

/// A reader's place in a journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceRingReader {
    next: u64,
    /// Records that were overwritten, or never finished, before they could be read.
    pub lost: u64,
}

impl TraceRingReader {
    /// The next record in order; `None`: there is none yet. `last` says that nobody writes any
    /// more: what is not finished is passed over.
    pub fn next(
        &mut self,
        memory: &impl AtomicWords,
        shape: TraceRingLayout,
        last: bool,
    ) -> Option<RecordWords> {
        loop {
            let head = memory.word(0).load(Ordering::Acquire);
            let ahead = head.wrapping_sub(self.next);
            // Also a number that cannot be true: this is another's memory.
            if ahead == 0 || ahead > u64::MAX / 2 {
                return None;
            }
            if ahead > shape.slots {
                self.skip(ahead - shape.slots);
            }
            match look(memory, shape, self.next) {
                ReadOutcome::Record(words) => {
                    self.next = self.next.wrapping_add(1);
                    return Some(words);
                }
                ReadOutcome::Gone => self.skip(1),
                // A writer that died there, or was put aside, must not keep the others' records
                // back for ever.
                ReadOutcome::NotYet if last || head.wrapping_sub(self.next) > shape.slots / 2 => {
                    self.skip(1)
                }
                ReadOutcome::NotYet => return None,
            }
        }
    }

    /// Begins with what is written from now on.
    pub fn skip_to_end(&mut self, memory: &impl AtomicWords) {
        self.next = memory.word(0).load(Ordering::Acquire);
    }

    fn skip(&mut self, records: u64) {
        self.next = self.next.wrapping_add(records);
        self.lost = self.lost.saturating_add(records);
    }
}

fn look(memory: &impl AtomicWords, shape: TraceRingLayout, number: u64) -> ReadOutcome {
    let at = shape.at(number);
    let stamp = memory.word(at);
    // SYNC(journal-record)
    let before = stamp.load(Ordering::Acquire);
    let wanted = number.wrapping_add(1);
    if before != wanted {
        return if before > wanted {
            ReadOutcome::Gone
        } else {
            ReadOutcome::NotYet
        };
    }
    let mut record = [0; RECORD_WORDS];
    for (index, word) in record.iter_mut().enumerate() {
        *word = memory.word(at + 1 + index).load(Ordering::Relaxed);
    }
    // SYNC(journal-record)
    fence(Ordering::Acquire);
    match stamp.load(Ordering::Relaxed) == wanted {
        true => ReadOutcome::Record(record),
        false => ReadOutcome::Gone,
    }
}

#[cfg(test)]
fn memory(shape: TraceRingLayout) -> Vec<AtomicU64> {
    (0..shape.bytes() / 8).map(|_| AtomicU64::new(0)).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn record(value: u64) -> RecordWords {
        [value; RECORD_WORDS]
    }

    fn read(
        memory: &Vec<AtomicU64>,
        shape: TraceRingLayout,
        place: &mut TraceRingReader,
        last: bool,
    ) -> Vec<u64> {
        std::iter::from_fn(|| place.next(memory, shape, last).map(|words| words[0])).collect()
    }

    #[test]
    fn records_are_read_in_order_by_every_reader() {
        let shape = TraceRingLayout::new(8);
        let memory = memory(shape);
        let (mut one, mut other) = (TraceRingReader::default(), TraceRingReader::default());
        (0..5).for_each(|value| write(&memory, shape, &record(value)));
        assert_eq!(read(&memory, shape, &mut one, false), [0, 1, 2, 3, 4]);
        (5..8).for_each(|value| write(&memory, shape, &record(value)));
        assert_eq!(read(&memory, shape, &mut one, false), [5, 6, 7]);
        assert_eq!(
            read(&memory, shape, &mut other, false),
            [0, 1, 2, 3, 4, 5, 6, 7]
        );
        assert_eq!((one.lost, other.lost), (0, 0));
    }

    #[test]
    fn what_was_overwritten_is_counted_and_the_last_are_still_there() {
        let shape = TraceRingLayout::new(4);
        let memory = memory(shape);
        let mut place = TraceRingReader::default();
        (0..11).for_each(|value| write(&memory, shape, &record(value)));
        assert_eq!(read(&memory, shape, &mut place, true), [7, 8, 9, 10]);
        assert_eq!(place.lost, 7);
    }

    #[test]
    fn a_record_that_its_writer_never_finished_is_awaited_while_it_may_come_and_passed_over_afterwards()
     {
        let shape = TraceRingLayout::new(8);
        let memory = memory(shape);
        let mut place = TraceRingReader::default();
        write(&memory, shape, &record(1));
        memory[0].fetch_add(1, Ordering::Relaxed);
        write(&memory, shape, &record(3));
        assert_eq!(read(&memory, shape, &mut place, false), [1]);
        assert_eq!(read(&memory, shape, &mut place, true), [3]);
        assert_eq!(place.lost, 1);
    }

    #[test]
    fn a_writer_that_is_put_aside_does_not_keep_a_quick_one_back() {
        let shape = TraceRingLayout::new(8);
        let memory = memory(shape);
        let mut place = TraceRingReader::default();
        memory[0].fetch_add(1, Ordering::Relaxed);
        (1..6).for_each(|value| write(&memory, shape, &record(value)));
        assert_eq!(read(&memory, shape, &mut place, false), [1, 2, 3, 4, 5]);
        assert_eq!(place.lost, 1);
    }

    #[test]
    fn any_words_are_read_to_an_end() {
        let shape = TraceRingLayout::new(4);
        for head in [0, 3, 4, 1 << 40, u64::MAX / 2 + 1, u64::MAX] {
            for stamp in [0, 1, 4, 1 << 40, u64::MAX] {
                let memory = memory(shape);
                memory
                    .iter()
                    .for_each(|word| word.store(stamp, Ordering::Relaxed));
                memory[0].store(head, Ordering::Relaxed);
                let mut place = TraceRingReader::default();
                assert!(read(&memory, shape, &mut place, true).len() <= 4);
            }
        }
    }

    #[test]
    fn a_journal_fills_its_memory() {
        let shape = TraceRingLayout::within(1 << 16).unwrap();
        assert!(
            shape.bytes() <= 1 << 16 && TraceRingLayout::new(shape.slots() + 1).bytes() > 1 << 16
        );
        assert_eq!(TraceRingLayout::within(64), None);
        let segment = crate::shm::Segment::anonymous(shape.bytes()).unwrap();
        let mut place = TraceRingReader::default();
        (0..shape.slots()).for_each(|value| write(&segment, shape, &record(value)));
        assert_eq!(place.next(&segment, shape, false), Some(record(0)));
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    fn writer(
        memory: &Arc<Vec<AtomicU64>>,
        shape: TraceRingLayout,
        values: &'static [u64],
    ) -> loom::thread::JoinHandle<()> {
        let memory = memory.clone();
        loom::thread::spawn(move || {
            for value in values {
                write(&*memory, shape, &[*value; RECORD_WORDS]);
            }
        })
    }

    fn read_all(memory: &Vec<AtomicU64>, shape: TraceRingLayout) -> (Vec<u64>, u64) {
        let mut place = TraceRingReader::default();
        let mut seen = Vec::new();
        while let Some(words) = place.next(memory, shape, true) {
            assert!(
                words.iter().all(|word| *word == words[0]),
                "a mixture: {words:?}"
            );
            seen.push(words[0]);
        }
        (seen, place.lost)
    }

    #[test]
    fn a_reader_gets_whole_records_while_the_oldest_are_overwritten() {
        loom::model(|| {
            let shape = TraceRingLayout::new(1);
            let memory = Arc::new(memory(shape));
            let writer = writer(&memory, shape, &[1, 2]);
            let seen = TraceRingReader::default().next(&*memory, shape, true);
            assert!(
                seen.is_none_or(|words| words.iter().all(|word| *word == words[0])),
                "a mixture: {seen:?}"
            );
            writer.join().unwrap();
            assert_eq!(read_all(&memory, shape), (vec![2], 1));
        });
    }

    #[test]
    fn two_writers_lose_nothing_of_each_other() {
        loom::model(|| {
            let shape = TraceRingLayout::new(2);
            let memory = Arc::new(memory(shape));
            let (one, other) = (writer(&memory, shape, &[1]), writer(&memory, shape, &[2]));
            one.join().unwrap();
            other.join().unwrap();
            let (mut seen, lost) = read_all(&memory, shape);
            seen.sort_unstable();
            assert_eq!((seen, lost), (vec![1, 2], 0));
        });
    }
}
