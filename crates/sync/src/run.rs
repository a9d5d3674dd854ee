//! A run: slots in a row of a lane that its writer fills without asking anything for each.
//!
//! What a small record costs beyond writing its line is looking whether it may be sent at all: room in the ring, credit at the peer.
//! Both are asked for once for many records: the lane's [`crate::mailbox::Outlet`] opens a run over slots that are free, lie in a row and
//! that the caller vouches for; each record then takes the next of them. Whatever else the outlet does closes the run first and goes on behind what
//! it took, so the lane has one order. Owned by the outlet, shared with those who fill it, by one thread at a time; were that broken, records could
//! be lost, but nothing outside the lane be written. Bounded by the lane.

use crate::doorbell::Doorbell;
use crate::facade::{AtomicPtr, AtomicU64, Ordering};
use crate::ring::{INLINE_MAX, UNIT};
use crate::shm::{Segment, Word};
use crate::user::UserMem;
use std::marker::PhantomData;

/// The words of a record's header, in the halves that its writers have at hand. The low half of a word comes first.
#[derive(Clone, Copy, Debug)]
pub struct Words {
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

/// See the module's paragraph. Every word is written by one thread at a time, so none needs an order of its own.
#[derive(Debug)]
pub struct Run {
    /// The next slot.
    at: AtomicPtr<u8>,
    /// Where the run ends. Both are addresses of slots of the lane, or the end of its slots.
    end: AtomicPtr<u8>,
    /// The next slot's stamp.
    stamp: AtomicU64,
    /// Payload of this run.
    bytes: AtomicU64,
    /// The first slot of this run.
    began: AtomicPtr<u8>,
    /// The bell of the reader.
    bell: Word,
    _keep: Segment,
}

/// A slot of a run, free for one record. It borrows the run, so the lane is there.
#[derive(Debug)]
pub struct Place<'a>(*mut u8, PhantomData<&'a Run>);

impl Run {
    /// A run that is closed, over slots in `keep`, of which this is one: so even what reads its place before it is first opened, and its end after, finds a slot.
    pub(crate) fn new(bell: Word, slot: *mut u8, keep: Segment) -> Self {
        let nothing_from = || AtomicPtr::new(slot);
        Self {
            at: nothing_from(),
            end: nothing_from(),
            stamp: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            began: nothing_from(),
            bell,
            _keep: keep,
        }
    }

    /// Opens it over `records` slots from `first` on, which lie in a row within the lane; `stamp` is that of the first.
    pub(crate) fn open(&self, first: *mut u8, stamp: u64, records: u32) {
        self.at.store(first, Ordering::Relaxed);
        self.began.store(first, Ordering::Relaxed);
        self.stamp.store(stamp, Ordering::Relaxed);
        self.bytes.store(0, Ordering::Relaxed);
        self.end
            .store(first.wrapping_add(records as usize * UNIT), Ordering::Relaxed);
    }

    /// No more records until it is opened again.
    pub fn close(&self) {
        self.end.store(self.at.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Records and payload bytes since it was opened.
    pub fn used(&self) -> (u32, u64) {
        let bytes =
            (self.at.load(Ordering::Relaxed) as usize) - (self.began.load(Ordering::Relaxed) as usize);
        ((bytes / UNIT) as u32, self.bytes.load(Ordering::Relaxed))
    }

    /// The slot of the next record, if there is one; to be put there at once.
    #[inline(always)]
    pub fn next(&self) -> Option<Place<'_>> {
        let at = self.at.load(Ordering::Relaxed);
        (at < self.end.load(Ordering::Relaxed)).then_some(Place(at, PhantomData))
    }

    /// Publishes a record of `len` bytes at `payload`, at most [`INLINE_MAX`], in the slot that [`Run::next`] just gave. The reader is to be rung then.
    #[inline(always)]
    pub fn put(&self, place: Place<'_>, words: Words, payload: UserMem, len: usize) {
        let at = place.0;
        let len = len.min(INLINE_MAX);
        // SAFETY: a place below the end is a slot of the lane (see `open`), aligned and mapped as long as its run lives, and this writer's until
        // its stamp. Volatile because a mad peer may write there meanwhile. `len` bytes fit behind the header, and the payload is
        // valid by `UserMem`'s promise and no part of the lane.
        unsafe {
            let halves = at.cast::<u32>();
            halves.add(2).write_volatile(words.first[0]);
            halves.add(3).write_volatile(words.first[1]);
            at.cast::<u64>().add(2).write_volatile(words.second);
            halves.add(6).write_volatile(words.third[0]);
            halves.add(7).write_volatile(words.third[1]);
            copy_few(at.add(UNIT - INLINE_MAX), payload, len);
            // Release: header and payload are seen by whoever sees the stamp. SYNC(ring-stamp).
            AtomicU64::from_ptr(at.cast()).store(self.stamp.load(Ordering::Relaxed), Ordering::Release);
        }
        // Each word is read again right before it is written, which lets the processor count in memory.
        let step = |word: &AtomicU64, by: u64| {
            word.store(word.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed)
        };
        step(&self.stamp, 1);
        step(&self.bytes, len as u64);
        self.at.store(
            self.at.load(Ordering::Relaxed).wrapping_add(UNIT),
            Ordering::Relaxed,
        );
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
