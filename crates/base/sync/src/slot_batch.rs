//! A batch of consecutive free slots of a lane, which a sender fills without checking each one.
//!
//! A small record costs one line to write, and a check whether it may be sent: is there room in the
//! ring, and credit at the peer? A batch makes that check once for many records. The lane's
//! [`crate::mailbox::Producer`] opens a batch over slots that are free and consecutive and for
//! which the caller has credit. Each record takes the next slot. Whatever else the producer does
//! closes the batch first and continues behind its last record, so the lane has one order.
//!
//! The producer owns the batch and shares it with threads that fill it, one at a time. If that rule
//! were broken, records could be lost, but nothing outside the lane would be written. Bounded by
//! the lane. On the reader's side [`NextRecord`] holds the address and the expected stamp of the
//! next record, so that finding one is one comparison.

#[cfg(not(loom))]
mod segment;

#[cfg(not(loom))]
pub use segment::{FreeSlot, HeaderWords, SlotBatch, StartedSlot};

use crate::facade::{AtomicPtr, AtomicU64, Ordering};
use crate::ring::{Claim, RingMemory, RingReader, RingWriter, UNIT};

/// A ring whose slots lie one behind the other.
pub(crate) trait ContiguousSlots: RingMemory {
    /// The address of a slot, looked up by its position.
    fn address(&self, slot: u32) -> *mut u8;
    /// The slot behind one. Behind the last of the ring this leads nowhere: it must not be used
    /// then.
    fn behind(at: Self::At) -> Self::At;
}

/// Progress of a slot batch. Every word is written by one thread at a time, so none needs an order
/// of its own.
#[derive(Debug)]
pub(crate) struct BatchCursor {
    /// The next slot.
    at: AtomicPtr<u8>,
    /// Place where the run ends. Both are addresses of slots of the lane, or the end of its slots.
    end: AtomicPtr<u8>,
    /// The next slot's stamp.
    stamp: AtomicU64,
    /// Payload of this run.
    bytes: AtomicU64,
    /// The first slot of this run.
    began: AtomicPtr<u8>,
}

impl BatchCursor {
    /// The cursor of a closed batch in a lane that contains `slot`. Even a read of its position
    /// before the first opening finds a slot.
    pub(crate) fn new(slot: *mut u8) -> Self {
        let nothing_from = || AtomicPtr::new(slot);
        Self {
            at: nothing_from(),
            end: nothing_from(),
            stamp: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            began: nothing_from(),
        }
    }

    /// Opens it, closed before, at the tail of a lane over as many slots as are free there and lie
    /// in a row, at most `records`: how many.
    pub(crate) fn open<M: ContiguousSlots>(&self, writer: &mut RingWriter<M>, records: u32) -> u32 {
        let (slot, row) = writer.row();
        let records = row.min(records);
        if records > 0 {
            let claim = Claim {
                slot,
                start: 0,
                units: 0,
            };
            let first = writer.memory.address(slot);
            self.at.store(first, Ordering::Relaxed);
            self.began.store(first, Ordering::Relaxed);
            self.stamp
                .store(writer.stamp_word(claim, 0), Ordering::Relaxed);
            self.bytes.store(0, Ordering::Relaxed);
            self.end.store(
                first.wrapping_add(records as usize * UNIT),
                Ordering::Relaxed,
            );
        }
        records
    }

    /// No more records until it is opened again.
    pub(crate) fn close(&self) {
        // Never farther than it was, whatever its place is: two that fill at once may both have
        // taken the last slot, and both have counted it.
        let (at, end) = (
            self.at.load(Ordering::Relaxed),
            self.end.load(Ordering::Relaxed),
        );
        self.end.store(at.min(end), Ordering::Relaxed);
    }

    /// Closes it; its lane goes on behind what it took.
    pub(crate) fn end<M: ContiguousSlots>(&self, writer: &mut RingWriter<M>) {
        self.close();
        writer.filled(self.used().0);
    }

    /// Addresses of the words of which [`BatchCursor::used`] is made: the next slot, the first one,
    /// and the payload.
    #[cfg(not(loom))]
    pub(crate) fn words_at(&self) -> [usize; 3] {
        [
            std::ptr::from_ref(&self.at).addr(),
            std::ptr::from_ref(&self.began).addr(),
            std::ptr::from_ref(&self.bytes).addr(),
        ]
    }

    /// Records and payload bytes since it was opened.
    pub(crate) fn used(&self) -> (u32, u64) {
        let bytes = (self.at.load(Ordering::Relaxed) as usize)
            .wrapping_sub(self.began.load(Ordering::Relaxed) as usize);
        ((bytes / UNIT) as u32, self.bytes.load(Ordering::Relaxed))
    }

    /// The slot of the next record, if there is one; to be filled at once.
    #[inline(always)]
    pub(crate) fn next(&self) -> Option<*mut u8> {
        let at = self.at.load(Ordering::Relaxed);
        (at < self.end.load(Ordering::Relaxed)).then_some(at)
    }

    /// Has `write` write a record of `len` bytes into the slot that [`BatchCursor::next`] just
    /// gave, whose stamp is given, and publishes it.
    #[inline(always)]
    pub(crate) fn fill(&self, stamp: &AtomicU64, len: usize, write: impl FnOnce()) {
        write();
        // Release: header and payload are seen by whoever sees the stamp. SYNC(ring-stamp).
        stamp.store(self.stamp.load(Ordering::Relaxed), Ordering::Release);
        // Each word is read again right before it is written, which lets the processor count in
        // memory.
        let step = |word: &AtomicU64, by: u64| {
            word.store(
                word.load(Ordering::Relaxed).wrapping_add(by),
                Ordering::Relaxed,
            )
        };
        step(&self.stamp, 1);
        step(&self.bytes, len as u64);
        self.at.store(
            self.at.load(Ordering::Relaxed).wrapping_add(UNIT),
            Ordering::Relaxed,
        );
    }
}

/// Place where the next record of a lane is to lie, in the form in which it is looked for: follows
/// the reader.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextRecord<At> {
    slot: At,
    /// What its stamp will be if its payload shares its slot.
    stamp: u64,
    /// Records until the slots begin anew, the head is worth telling, or stamps do.
    left: u32,
}

impl<At: Copy> NextRecord<At> {
    /// The next record of a lane, from the reader's position and the lane's only writer.
    #[inline]
    pub(crate) fn of<M: ContiguousSlots<At = At>>(reader: &RingReader<M>, writer: u16) -> Self {
        let slot = reader.head_slot();
        Self {
            slot: reader.memory.at(slot),
            stamp: u64::from(slot.wrapping_add(1)) | u64::from(writer) << 32,
            left: reader.row(),
        }
    }

    /// The slot of the next record, if that is there and its payload shares its slot.
    #[inline(always)]
    pub(crate) fn peek<M: ContiguousSlots<At = At>>(&self, memory: &M) -> Option<At> {
        // Acquire: the record behind the stamp. SYNC(ring-stamp).
        (memory.stamp(self.slot).load(Ordering::Acquire) == self.stamp).then_some(self.slot)
    }

    /// The next slot. `true`: what this then says is to be looked up anew before it is used.
    #[inline(always)]
    pub(crate) fn step<M: ContiguousSlots<At = At>>(&mut self) -> bool {
        self.slot = M::behind(self.slot);
        self.stamp += 1;
        self.left -= 1;
        self.left == 0
    }

    /// The reader is done with the record that [`NextRecord::peek`] just showed. `true`: writers
    /// wait for room and are to be rung.
    #[inline(always)]
    pub(crate) fn pass<M: ContiguousSlots<At = At>>(
        &mut self,
        reader: &mut RingReader<M>,
        writer: u16,
    ) -> bool {
        reader.pass_inline();
        self.step::<M>() && self.end_row(reader, writer)
    }

    #[cold]
    #[inline(never)]
    fn end_row<M: ContiguousSlots<At = At>>(
        &mut self,
        reader: &mut RingReader<M>,
        writer: u16,
    ) -> bool {
        let starving = reader.publish_worthwhile();
        *self = Self::of(reader, writer);
        starving
    }
}

#[cfg(all(test, loom))]
mod loom_tests;
