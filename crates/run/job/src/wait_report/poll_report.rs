//! Part of a rank's wait report: threads that poll, that is, ask again and again without waiting
//! (`MPI_Test`, `MPI_Iprobe`).
//!
//! A thread that has asked in vain for a while has a place here until it is answered. It tells what
//! it asks for now and then, and counts its looks at each of them: a reader that sees the count
//! grow knows that the thread still asks. Bounded: [`POLL_PLACES`] threads, [`ASKS_SHOWN`] calls of
//! each, [`PENDING_SHOWN`] operations of these together.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use garonne_engine::observe::events::{PENDING_SHOWN, PendingOperation};

use super::{
    OPERATION_WORDS, SeqlockWords, WaitReport, WaitReportCopy, operation, operation_words,
};

/// Threads of a rank that are shown.
pub const POLL_PLACES: usize = 8;
/// Calls of one thread that are shown.
pub const ASKS_SHOWN: usize = 4;
/// Words of a place: who has it, the count, the part. The counts of two threads lie in cache lines
/// of their own.
const PLACE_WORDS: usize = 96;
const PART_WORDS: usize = 5 + ASKS_SHOWN * 2 + PENDING_SHOWN * OPERATION_WORDS;
const TAKEN: usize = 0;
const LOOKS: usize = 1;
const PART: usize = 16;
pub(super) const WORDS: usize = POLL_PLACES * PLACE_WORDS;

const _: () = assert!(PART + PART_WORDS <= PLACE_WORDS && PLACE_WORDS.is_multiple_of(16));

/// A call of the program by which a thread polls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolledCall {
    /// Number of the MPI call (index in the table of the ABI's functions).
    pub call: u16,
    /// Return address of the call in the program.
    pub site: u64,
    /// Operations that the call polls and that are not over.
    pub operations: Vec<PendingOperation>,
}

/// The calls by which a thread polls, as the rank shows them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollReport {
    /// Calls that ask.
    pub asks: Vec<PolledCall>,
    /// When it began, CLOCK_MONOTONIC in nanoseconds.
    pub since_ns: u64,
    /// When it told this, likewise.
    pub told_ns: u64,
    /// Number of times that it had looked in vain by then.
    pub told_looks: u64,
}

impl PollReport {
    /// Adds what a call asks for to what is known of it, as far as there is room.
    pub fn add(&mut self, ask: PolledCall) {
        let mut room = PENDING_SHOWN
            - self
                .asks
                .iter()
                .map(|known| known.operations.len())
                .sum::<usize>();
        let known = |known: &PolledCall| (known.call, known.site) == (ask.call, ask.site);
        let index = self.asks.iter().position(known).unwrap_or_else(|| {
            if self.asks.len() < ASKS_SHOWN {
                self.asks.push(PolledCall {
                    operations: Vec::new(),
                    ..ask
                });
            }
            self.asks.len() - 1
        });
        let Some(known) = self
            .asks
            .get_mut(index)
            .filter(|known| known.site == ask.site)
        else {
            return;
        };
        for operation in ask.operations {
            if room > 0 && !known.operations.contains(&operation) {
                known.operations.push(operation);
                room -= 1;
            }
        }
    }
}

/// A thread's place in the book of its rank, which it gives back when it is dropped.
#[derive(Debug)]
pub struct PollSlot {
    words: &'static [AtomicU64],
}

impl PollSlot {
    /// Takes a slot that no other thread has, if there is any.
    pub fn take(wait_report: &'static WaitReport) -> Option<Self> {
        let mut places = wait_report
            .0
            .get(super::POLLS_FROM..)?
            .chunks_exact(PLACE_WORDS);
        // SYNC(poll-place): who gives a place back has withdrawn what stood there before.
        let is_free = |words: &&[AtomicU64]| words[TAKEN].swap(1, Acquire) == 0;
        places.find(is_free).map(|words| Self { words })
    }

    /// The count of the thread's looks, for it alone to store.
    pub fn looks(&self) -> &'static AtomicU64 {
        &self.words[LOOKS]
    }

    /// Shows what the thread asks for.
    pub fn show(&self, polls: &PollReport) {
        let counts = polls
            .asks
            .iter()
            .enumerate()
            .fold(polls.asks.len() as u64, |counts, (index, ask)| {
                counts | (ask.operations.len() as u64) << (8 * (index + 1))
            });
        let asks = (0..ASKS_SHOWN).flat_map(|index| {
            let ask = polls.asks.get(index);
            ask.map_or([0; 2], |ask| [ask.call.into(), ask.site])
        });
        let operations = polls.asks.iter().flat_map(|ask| &ask.operations);
        let operations = operations.take(PENDING_SHOWN).flat_map(operation_words);
        let head = [polls.since_ns, polls.told_ns, polls.told_looks, counts];
        SeqlockWords(&self.words[PART..PART + PART_WORDS])
            .write(head.into_iter().chain(asks).chain(operations));
    }

    /// The thread has been answered.
    pub fn withdraw(&self) {
        SeqlockWords(&self.words[PART..PART + PART_WORDS]).write([0]);
        self.looks().store(0, Relaxed);
    }
}

impl Drop for PollSlot {
    fn drop(&mut self) {
        self.withdraw();
        // SYNC(poll-place)
        self.words[TAKEN].store(0, Release);
    }
}

impl WaitReportCopy {
    /// Returns how often each thread has looked in vain, by its place; 0: it shows nothing.
    pub fn looks(&self) -> [u64; POLL_PLACES] {
        std::array::from_fn(|place| {
            let at = super::POLLS_FROM + place * PLACE_WORDS + LOOKS;
            self.again.get(at).copied().unwrap_or(0)
        })
    }

    /// Returns what threads poll for, by their slots.
    pub fn polls(&self) -> [Option<PollReport>; POLL_PLACES] {
        std::array::from_fn(|place| self.polls_at(super::POLLS_FROM + place * PLACE_WORDS + PART))
    }

    fn polls_at(&self, from: usize) -> Option<PollReport> {
        let ([since_ns, told_ns, told_looks, counts], rest) =
            self.part(from, PART_WORDS)?.split_first_chunk()?;
        if *since_ns == 0 {
            return None;
        }
        let (asks, operations) = rest.split_at_checked(ASKS_SHOWN * 2)?;
        let mut operations = operations.as_chunks().0.iter().map(operation);
        let count = |index: usize| (counts >> (8 * index)) as u8 as usize;
        let ask = |(index, [call, site]): (usize, &[u64; 2])| PolledCall {
            call: *call as u16,
            site: *site,
            operations: operations.by_ref().take(count(index + 1)).collect(),
        };
        let asks = asks.as_chunks().0.iter().take(count(0).min(ASKS_SHOWN));
        Some(PollReport {
            asks: asks.enumerate().map(ask).collect(),
            since_ns: *since_ns,
            told_ns: *told_ns,
            told_looks: *told_looks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(wait_report: &WaitReport) -> WaitReportCopy {
        let bytes: Vec<u8> = wait_report
            .0
            .iter()
            .flat_map(|word| word.load(Relaxed).to_ne_bytes())
            .collect();
        WaitReportCopy::new(&bytes, &bytes)
    }

    fn ask(site: u64, tags: &[i32]) -> PolledCall {
        let operation = |tag: &i32| PendingOperation {
            tag: Some(*tag),
            peer: Some(1),
            ..PendingOperation::default()
        };
        PolledCall {
            call: 7,
            site,
            operations: tags.iter().map(operation).collect(),
        }
    }

    #[test]
    fn what_threads_ask_for_reads_back_until_it_is_withdrawn_and_places_come_back() {
        let wait_report: &'static WaitReport = Box::leak(Box::default());
        let places: Vec<_> = (0..POLL_PLACES)
            .map(|_| PollSlot::take(wait_report).unwrap())
            .collect();
        assert!(PollSlot::take(wait_report).is_none());
        let mut polls = PollReport {
            since_ns: 5,
            told_ns: 9,
            told_looks: 16,
            ..PollReport::default()
        };
        polls.add(ask(0x10, &[1]));
        polls.add(ask(0x20, &[3, 4]));
        polls.add(ask(0x10, &[1, 2]));
        assert_eq!(polls.asks, [ask(0x10, &[1, 2]), ask(0x20, &[3, 4])]);
        places[3].show(&polls);
        places[3].looks().store(21, Relaxed);
        let mut shown = copied(wait_report).polls();
        assert_eq!(copied(wait_report).looks()[3], 21);
        assert_eq!(shown[3].take(), Some(polls));
        assert!(shown.iter().all(Option::is_none));
        places[3].withdraw();
        assert_eq!(
            (
                copied(wait_report).polls()[3].clone(),
                copied(wait_report).looks()[3]
            ),
            (None, 0)
        );
        drop(places);
        assert!(PollSlot::take(wait_report).is_some());
    }

    #[test]
    fn of_many_calls_and_operations_the_first_are_shown() {
        let mut polls = PollReport::default();
        let tags: Vec<i32> = (0..100).collect();
        (0..9).for_each(|site| polls.add(ask(site, &tags[..7])));
        let shown: Vec<_> = polls.asks.iter().map(|ask| ask.operations.len()).collect();
        assert_eq!(shown, [7, 7, 2, 0]);
    }
}
