//! The words of a stream of bytes in shared memory, whose readiness a socket of the kernel shows.
//!
//! One direction of a connection has a writer and a reader in different processes. The bytes lie
//! in a ring. Beside the ring is a pair of connected sockets: the writer sends a *bell byte* there,
//! so that the reader's socket is readable. Whoever polls the reader's socket learns from the
//! kernel alone whether there are bytes in the ring.
//!
//! What holds while nobody is inside a call of the library: the bell is `RUNG`, and exactly one
//! bell byte is in the reader's socket or is about to come, if and only if the ring is not empty. A
//! reader that spins sets the bell to `SPIN` with the most bytes that it will take. A writer rings
//! then only for bytes beyond them.
//!
//! Used in this order: the reader calls [`StreamWords::plan`], copies so many bytes out, consumes
//! one bell byte if the plan says so, calls [`StreamWords::release`], and consumes another one if
//! [`StreamWords::leaves_bell`] says so. The writer asks for
//! [`StreamWords::room`], copies bytes in, and calls [`StreamWords::publish`]. Each side is one
//! thread at a time: the caller has a lock per side. A peer may write anything into the words; the
//! lengths that these functions return are bounded by the capacity in any case.

use crate::facade::{AtomicU32, AtomicU64, Ordering, fence};
use crate::pad::CachePadded;

/// The ring is empty: whoever publishes rings.
const ARMED: u32 = 0;
/// One bell byte is in the reader's socket, or about to come.
const RUNG: u32 = 1;
/// The reader looks at the tail and takes as much as it wants: nobody rings for that.
const SPIN: u32 = 2;

/// Words that the writer stores.
#[derive(Debug, Default)]
#[repr(C)]
struct WriterWords {
    tail: AtomicU64,
    /// Bytes sent only to make the writer's socket unwritable.
    fillers: AtomicU32,
}

/// Words that the reader stores.
#[derive(Debug, Default)]
struct ReaderWords {
    head: AtomicU64,
    /// Bytes that a reader takes that spins.
    want: AtomicU64,
    /// Fillers that the reader has consumed.
    fillers: AtomicU32,
}

/// Words that both store.
#[derive(Debug, Default)]
struct SharedWords {
    bell: AtomicU32,
    /// The writer found no room and waits.
    writer_waits: AtomicU32,
}

/// The words of one direction. All zero: an empty stream.
#[derive(Debug, Default)]
#[repr(C)]
pub struct StreamWords {
    writer: CachePadded<WriterWords>,
    reader: CachePadded<ReaderWords>,
    shared: CachePadded<SharedWords>,
}

/// What a reader does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes to take; 0: there are none.
    pub bytes: usize,
    /// One bell byte is to be consumed; it may still be on its way.
    pub consumes_bell: bool,
}

impl StreamWords {
    /// Position behind the last byte published. The ring's offset is this modulo the capacity.
    pub fn tail(&self) -> u64 {
        // Acquire: the bytes below were written before. SYNC(stream-tail).
        self.writer.tail.load(Ordering::Acquire)
    }

    /// Position of the next byte to take.
    pub fn head(&self) -> u64 {
        // Acquire: the reader is done with the bytes below. SYNC(stream-head).
        self.reader.head.load(Ordering::Acquire)
    }

    /// Bytes that wait in the ring, at most `capacity`.
    pub fn available(&self, capacity: usize) -> usize {
        let bytes = self.tail().wrapping_sub(self.head());
        usize::try_from(bytes).map_or(capacity, |bytes| bytes.min(capacity))
    }

    /// Bytes that a writer may put into a ring of which it fills at most `limit` bytes. A ring that
    /// holds more, since the limit was another one, has no room.
    pub fn room(&self, limit: usize) -> usize {
        limit - self.available(limit)
    }

    /// Publishes bytes that were written behind the tail. `true`: the writer sends a bell byte now.
    pub fn publish(&self, bytes: usize) -> bool {
        let tail = self.writer.tail.load(Ordering::Relaxed);
        let tail = tail.wrapping_add(bytes as u64);
        // Release: whoever sees the tail sees the bytes. SYNC(stream-tail).
        self.writer.tail.store(tail, Ordering::Release);
        // Either this side sees what the reader set the bell to, or the reader sees the tail.
        // SYNC(stream-bell).
        fence(Ordering::SeqCst);
        loop {
            // Before the bell: a head that is newer than the bell would hide bytes that nobody
            // rings for.
            let head = self.head();
            // Acquire: the wish was stored before. SYNC(stream-want).
            let bell = self.shared.bell.load(Ordering::Acquire);
            if bell == RUNG {
                return false;
            }
            let wanted = self.reader.want.load(Ordering::Relaxed);
            if bell == SPIN && tail.wrapping_sub(head) <= wanted {
                return false;
            }
            if self.exchange_bell(bell, RUNG) {
                break;
            }
        }
        // The reader may have taken the bytes already. Either it sees this bell after it gave the
        // room back, or this side sees that the ring is empty. SYNC(stream-late-bell).
        fence(Ordering::SeqCst);
        let is_empty = self.head() == tail;
        !(is_empty && self.exchange_bell(RUNG, ARMED))
    }

    /// Tells whether a bell byte came for bytes that are taken already, and is to be consumed.
    /// Called by the reader after its last release.
    pub fn leaves_bell(&self, capacity: usize) -> bool {
        // SYNC(stream-late-bell).
        fence(Ordering::SeqCst);
        self.available(capacity) == 0 && self.is_rung() && self.plan(0, capacity).consumes_bell
    }

    fn exchange_bell(&self, from: u32, to: u32) -> bool {
        self.shared
            .bell
            .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Decides how many of at most `most` bytes a reader takes, and what happens to the bell.
    pub fn plan(&self, most: usize, capacity: usize) -> Plan {
        let take_most = |consumes_bell| Plan {
            bytes: most,
            consumes_bell,
        };
        if self.available(capacity) > most {
            // What stays behind needs a bell byte. After a spin there may be none yet: a writer
            // that looks at the bell after this rings.
            if self.shared.bell.load(Ordering::Relaxed) == SPIN {
                self.exchange_bell(SPIN, ARMED);
            }
            return take_most(false);
        }
        let was_rung = self.shared.bell.swap(ARMED, Ordering::AcqRel) == RUNG;
        // The tail is read after the bell is armed: what is published later rings.
        // SYNC(stream-bell).
        fence(Ordering::SeqCst);
        let bytes = self.available(capacity);
        if bytes <= most {
            return Plan {
                bytes,
                consumes_bell: was_rung,
            };
        }
        // More came meanwhile than fits. Its writer rings if it saw the bell armed. If it saw the
        // old bell byte, that one stays.
        take_most(was_rung && !self.exchange_bell(ARMED, RUNG))
    }

    /// Gives room back to the writer.
    pub fn release(&self, bytes: usize) {
        let head = self.reader.head.load(Ordering::Relaxed);
        // Release: the bytes below were copied out. SYNC(stream-head).
        self.reader
            .head
            .store(head.wrapping_add(bytes as u64), Ordering::Release);
    }

    /// Tells whether the writer waits and has so much room now that it shall go on: at least half
    /// of what it fills. Called by the reader after a release; the wish is over with `true`.
    pub fn wakes_writer(&self, limit: usize) -> bool {
        // Either this side sees the wish, or the writer sees the head. SYNC(stream-room).
        fence(Ordering::SeqCst);
        if self.shared.writer_waits.load(Ordering::Relaxed) == 0 || self.room(limit) < limit / 2 {
            return false;
        }
        self.shared.writer_waits.store(0, Ordering::Relaxed);
        true
    }

    /// Says that the writer waits for room. It looks for room once more after this call.
    pub fn wish_room(&self) {
        self.shared.writer_waits.store(1, Ordering::Relaxed);
        // SYNC(stream-room).
        fence(Ordering::SeqCst);
    }

    /// Begins to look at the tail without bell bytes for up to `want` bytes. `false`: there is
    /// something to take, or a bell byte.
    pub fn begin_spin(&self, want: usize) -> bool {
        self.reader.want.store(want as u64, Ordering::Relaxed);
        // Release: the wish goes with it. SYNC(stream-want).
        self.exchange_bell(ARMED, SPIN)
    }

    /// Ends looking at the tail: from now on writers ring. The caller looks at the tail again.
    pub fn end_spin(&self) {
        self.exchange_bell(SPIN, ARMED);
        // SYNC(stream-bell).
        fence(Ordering::SeqCst);
    }

    /// Tells whether a bell byte is in the reader's socket, or about to come.
    pub fn is_rung(&self) -> bool {
        self.shared.bell.load(Ordering::Acquire) == RUNG
    }

    /// Counts a byte that the writer sent only to make its socket unwritable.
    pub fn count_filler(&self) {
        self.writer.fillers.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes a filler for a bell byte: the socket had no room for one more.
    pub fn filler_is_bell(&self) {
        self.writer.fillers.fetch_sub(1, Ordering::AcqRel);
    }

    /// Fillers that the reader has still to consume.
    pub fn fillers(&self) -> u32 {
        let sent = self.writer.fillers.load(Ordering::Acquire);
        sent.wrapping_sub(self.reader.fillers.load(Ordering::Relaxed))
    }

    /// Counts all fillers that were sent as consumed.
    pub fn consume_fillers(&self, count: u32) {
        self.reader.fillers.fetch_add(count, Ordering::Relaxed);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    const CAPACITY: usize = 4;

    struct Model {
        words: StreamWords,
        /// Bell bytes in the reader's socket.
        bells: AtomicU32,
    }

    impl Model {
        fn new() -> Arc<Self> {
            Arc::new(Self {
                words: StreamWords::default(),
                bells: AtomicU32::new(0),
            })
        }

        fn write(&self, bytes: usize) {
            if self.words.publish(bytes) {
                self.bells.fetch_add(1, Ordering::SeqCst);
            }
        }

        fn read(&self, most: usize) -> usize {
            let plan = self.words.plan(most, CAPACITY);
            if plan.consumes_bell {
                self.consume_bell();
            }
            self.words.release(plan.bytes);
            if self.words.leaves_bell(CAPACITY) {
                self.consume_bell();
            }
            plan.bytes
        }

        fn consume_bell(&self) {
            while self.bells.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            self.bells.fetch_sub(1, Ordering::SeqCst);
        }

        /// The socket tells the truth once both sides are at rest.
        fn require_truth(&self) {
            let is_empty = self.words.available(CAPACITY) == 0;
            assert_eq!(self.bells.load(Ordering::SeqCst), u32::from(!is_empty));
            assert_eq!(self.words.is_rung(), !is_empty);
        }
    }

    /// A bell byte is in the socket if and only if bytes wait, whatever the order.
    fn check(writes: &'static [usize], reads: &'static [usize], spins: bool) {
        let mut orders = loom::model::Builder::new();
        // More preemptions take minutes.
        orders.preemption_bound = Some(3);
        orders.check(move || {
            let model = Model::new();
            let writer = {
                let model = Arc::clone(&model);
                thread::spawn(move || writes.iter().for_each(|&bytes| model.write(bytes)))
            };
            let mut taken = 0;
            for &most in reads {
                if spins && model.words.begin_spin(most) && model.words.available(CAPACITY) == 0 {
                    model.words.end_spin();
                }
                taken += model.read(most);
            }
            writer.join().unwrap();
            model.require_truth();
            taken += model.read(CAPACITY);
            assert_eq!(taken, writes.iter().sum::<usize>());
            model.require_truth();
        });
    }

    #[test]
    fn the_bell_tells_whether_bytes_wait() {
        check(&[1, 1], &[2, 2], false);
    }

    #[test]
    fn the_bell_stays_for_bytes_that_do_not_fit() {
        check(&[1, 2], &[1, 1], false);
    }

    #[test]
    fn a_reader_that_spins_gets_a_bell_for_what_it_does_not_take() {
        check(&[1, 2], &[1, 1], true);
    }

    #[test]
    fn a_reader_that_spins_leaves_no_bell_behind() {
        check(&[1, 1], &[2, 2], true);
    }

    #[test]
    fn a_writer_without_room_is_woken() {
        loom::model(|| {
            let model = Model::new();
            model.write(CAPACITY);
            let reader = {
                let model = Arc::clone(&model);
                thread::spawn(move || {
                    model.read(CAPACITY);
                    model.words.wakes_writer(CAPACITY)
                })
            };
            model.words.wish_room();
            let sees_room = model.words.room(CAPACITY) > 0;
            assert!(reader.join().unwrap() || sees_room);
        });
    }
}
