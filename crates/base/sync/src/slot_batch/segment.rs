//! A slot batch in a shared segment: the words of a slot and the doorbell of its reader.

use super::BatchCursor;
use crate::doorbell::Doorbell;
use crate::facade::AtomicU64;
use crate::ring::{INLINE_MAX, UNIT};
use crate::shm::{Segment, SharedWord};
use crate::user::UserMem;
use std::marker::PhantomData;

/// The words of a record's header, in the halves that its writers have at hand. The low half of a
/// word comes first.
#[derive(Clone, Copy, Debug)]
pub struct HeaderWords {
    /// Halves of the first word.
    pub first: [u32; 2],
    /// The second word.
    pub second: u64,
    /// Halves of the third word.
    pub third: [u32; 2],
}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "halves lie in memory as `Words` says"
);

/// See the paragraph of [`crate::slot_batch`].
#[derive(Debug)]
pub struct SlotBatch {
    pub(crate) cursor: BatchCursor,
    /// The bell of the reader.
    bell: SharedWord,
    _keep: Segment,
}

/// A slot of a run, free for one record. It borrows the run, so the lane is there.
#[derive(Debug)]
pub struct FreeSlot<'a>(*mut u8, PhantomData<&'a SlotBatch>);

/// A slot of a run that has its record's header.
#[derive(Debug)]
pub struct StartedSlot<'a>(*mut u8, PhantomData<&'a SlotBatch>);

impl<'a> FreeSlot<'a> {
    /// Writes the header of its record.
    #[inline(always)]
    pub fn begin(self, words: HeaderWords) -> StartedSlot<'a> {
        let halves = self.0.cast::<u32>();
        // SAFETY: a place is a slot of the lane (see `BatchCursor`), aligned, mapped as long as its
        // run lives, and this writer's until its stamp. Volatile because a mad peer may write there
        // meanwhile.
        unsafe {
            halves.add(2).write_volatile(words.first[0]);
            halves.add(3).write_volatile(words.first[1]);
            self.0.cast::<u64>().add(2).write_volatile(words.second);
            halves.add(6).write_volatile(words.third[0]);
            halves.add(7).write_volatile(words.third[1]);
        }
        StartedSlot(self.0, PhantomData)
    }
}

impl SlotBatch {
    /// A run that is closed, over slots in `keep`, of which this is one.
    pub(crate) fn new(bell: SharedWord, slot: *mut u8, keep: Segment) -> Self {
        Self {
            cursor: BatchCursor::new(slot),
            bell,
            _keep: keep,
        }
    }

    /// No more records until it is opened again.
    pub fn close(&self) {
        self.cursor.close();
    }

    /// Records and payload bytes since it was opened.
    pub fn used(&self) -> (u32, u64) {
        self.cursor.used()
    }

    /// Addresses of the words of which [`SlotBatch::used`] is made: the next slot, the first one,
    /// and the payload. A slot has [`crate::ring::UNIT`] bytes.
    pub fn words_at(&self) -> [usize; 3] {
        self.cursor.words_at()
    }

    /// The slot of the next record, if there is one; to be begun and put there at once.
    #[inline(always)]
    pub fn next(&self) -> Option<FreeSlot<'_>> {
        self.cursor.next().map(|at| FreeSlot(at, PhantomData))
    }

    /// Publishes a record of `len` bytes at `payload`, at most [`INLINE_MAX`], begun in the slot
    /// that [`SlotBatch::next`] just gave. The reader is to be rung then.
    #[inline(always)]
    pub fn put(&self, begun: StartedSlot<'_>, payload: UserMem, len: usize) {
        let at = begun.0;
        let len = len.min(INLINE_MAX);
        // SAFETY: what was begun is a slot (see `FreeSlot::begin`); its first word is only used as
        // an atomic.
        let stamp = unsafe { AtomicU64::from_ptr(at.cast()) };
        // SAFETY: as above. `len` bytes fit behind the header, and the payload is valid by
        // `UserMem`'s promise and no part of the lane.
        self.cursor.fill(stamp, len, || unsafe {
            copy_few(at.add(UNIT - INLINE_MAX), payload, len)
        });
    }

    /// Wakes the reader if it sleeps. After each record.
    #[inline(always)]
    pub fn ring(&self) {
        Doorbell::new(&self.bell).ring();
    }
}

/// Copies at most [`INLINE_MAX`] bytes, without a call.
///
/// # Safety
/// `room` writable for `len` bytes, which do not overlap the payload.
#[inline(always)]
unsafe fn copy_few(room: *mut u8, payload: UserMem, len: usize) {
    let from: *const u8 = std::ptr::with_exposed_provenance(payload.addr(0));
    // SAFETY: by the function's contract and `UserMem`'s promise.
    unsafe {
        if len == 8 {
            // One number is what most small messages are.
            room.cast::<u64>()
                .write_unaligned(from.cast::<u64>().read_unaligned());
        } else {
            crate::copy::copy(from, room, len);
        }
    }
}
