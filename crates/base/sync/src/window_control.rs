//! Control block of one member of a window: what the other members of its host read and change
//! without the member's help.
//!
//! A block has the member's lock, the word that locks all members, the locks of its memory for
//! accumulates (its stripes), the counters of post, complete and notified access, and the place of
//! its list of attached memory. Contents are written by peers; no value of them leads to a panic.

use crate::lock_all_word::LockAllWord;
use crate::shm::Segment;
use crate::user::UserMem;
use crate::window_lock::{WindowLock, WindowLockSlot, WindowLockState};
use crate::window_stripes::{STRIPES, Stripe};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// Bytes of a line of cache, so that stripes do not disturb each other.
const LINE: usize = 64;
/// Bytes of memory that one stripe protects.
const STRIPE_BYTES: u64 = 4096;

const _: () = assert!(size_of::<Stripe>() == LINE);

const LOCK: usize = 0;
const TICKETS: usize = LINE;
const COMPLETED: usize = 2 * LINE;
const ATTACHED: usize = 3 * LINE;
const LOCK_ALL: usize = 5 * LINE;
const HOLDS_ALL: usize = 6 * LINE;
const STRIPE: usize = 7 * LINE;
const NOTIFIED: usize = STRIPE + STRIPES * LINE;
const POSTED: usize = NOTIFIED + NOTIFY_COUNTERS * LINE;

/// Counters of notified access of a member, numbered from 0.
pub const NOTIFY_COUNTERS: usize = 16;

/// Words of a lock that members on several hosts take: all change it by adding, and look.
///
/// A member draws a ticket from `Drawn`. A writer has the lock when `Written` has reached its
/// ticket, a reader when `Read` has. A reader that begins adds to `Read`, so that the next reader
/// begins; when it ends it adds to `Written`. A writer that ends adds to both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketWord {
    /// Tickets drawn.
    Drawn,
    /// Tickets that are over.
    Written,
    /// Tickets that are over or of readers that began.
    Read,
}

impl TicketWord {
    /// Offset of the word, of 64 bits, in a control block.
    pub fn offset(self) -> usize {
        TICKETS + 8 * self as usize
    }
}

/// Words by which members on other hosts find a list of attached memory: the key of its region.
pub const LIST_KEY_WORDS: usize = 10;
const _: () = assert!(ATTACHED + 8 * (3 + LIST_KEY_WORDS) <= LOCK_ALL);

/// Place of a member's list of attached memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachedList {
    /// Number of changes of the list.
    pub version: u64,
    /// Address of the list in the member's process.
    pub address: u64,
    /// Entries of the list.
    pub entries: u64,
}

/// Control block of one member.
#[derive(Clone, Debug)]
pub struct WindowControl {
    memory: Segment,
    members: usize,
}

impl WindowControl {
    /// Returns the bytes of a block in a window of `members`.
    pub fn bytes(members: usize) -> usize {
        (slots_at(members) + members * size_of::<WindowLockSlot>()).next_multiple_of(4096)
    }

    /// Returns the block in this memory, which begins on a line of cache. `None`: the memory is
    /// too short or begins elsewhere.
    pub fn new(memory: Segment, members: usize) -> Option<Self> {
        let fits = memory.len() >= Self::bytes(members);
        let aligned = memory.ptr(0, 0).addr().is_multiple_of(LINE);
        (fits && aligned).then_some(Self { memory, members })
    }

    /// Returns the member's lock.
    #[inline]
    pub fn lock(&self) -> WindowLock<'_> {
        let state = self.memory.ptr(LOCK, size_of::<WindowLockState>());
        let bytes = self.members * size_of::<WindowLockSlot>();
        let slots = self.memory.ptr(slots_at(self.members), bytes);
        // SAFETY: both lie in the mapping, which lives as long as this does, and are aligned, since
        // the block begins on a line. They consist of atomics, which tolerate other writers.
        unsafe {
            WindowLock::new(
                &*state.cast::<WindowLockState>(),
                std::slice::from_raw_parts(slots.cast::<WindowLockSlot>(), self.members),
            )
        }
    }

    /// Returns the word that locks all members of a window on one host. Of those in the members'
    /// blocks, that of the first member counts.
    #[inline]
    pub fn lock_all(&self) -> LockAllWord<'_> {
        LockAllWord::new(self.memory.atomic_u32(LOCK_ALL))
    }

    /// Returns the word that is not 0 while this member is counted in [`Self::lock_all`], so that
    /// one that died is found. The member sets it before, and clears it afterwards.
    pub fn holds_all(&self) -> &AtomicU32 {
        self.memory.atomic_u32(HOLDS_ALL)
    }

    /// Returns a word of the lock for members on several hosts.
    pub fn ticket(&self, word: TicketWord) -> &AtomicU64 {
        self.memory.atomic_u64(word.offset())
    }

    /// Returns a counter of notified access; a number beyond the last one is the last one.
    #[inline]
    pub fn notified(&self, counter: u32) -> &AtomicU64 {
        self.memory.atomic_u64(Self::notified_offset(counter))
    }

    /// Offset of [`Self::notified`] in a block, of 64 bits.
    pub fn notified_offset(counter: u32) -> usize {
        NOTIFIED + (counter as usize).min(NOTIFY_COUNTERS - 1) * LINE
    }

    /// Returns the memory of the block, to be registered. The view does not keep it alive.
    pub fn mem(&self) -> UserMem {
        self.memory.mem(0, self.memory.len())
    }

    /// Offset of [`Self::posted`] in a block, of 32 bits.
    pub fn posted_offset(target: u32) -> usize {
        POSTED + 4 * target as usize
    }

    /// Offset of [`Self::completed`] in a block, of 32 bits.
    pub fn completed_offset() -> usize {
        COMPLETED
    }

    /// Offset of a stripe in a block, of 32 bits. A free stripe is 0, a taken one 1 plus the rank
    /// of its holder.
    pub fn stripe_offset(index: u32) -> usize {
        STRIPE + index as usize * LINE
    }

    /// Returns the stripes of `len` bytes from `at` on, as bits.
    #[inline]
    pub fn stripes_of(at: u64, len: u64) -> u64 {
        let first = at / STRIPE_BYTES;
        let last = (at.saturating_add(len.max(1)) - 1) / STRIPE_BYTES;
        match last - first {
            more if more >= STRIPES as u64 - 1 => u64::MAX,
            more => (u64::MAX >> (63 - more)).rotate_left((first % STRIPES as u64) as u32),
        }
    }

    /// Returns the count of posts by which member `target` opened its memory to this one.
    pub fn posted(&self, target: u32) -> &AtomicU32 {
        let index = (target as usize).min(self.members.saturating_sub(1));
        self.memory.atomic_u32(POSTED + 4 * index)
    }

    /// Returns the count of accesses to this member's memory that others completed.
    pub fn completed(&self) -> &AtomicU32 {
        self.memory.atomic_u32(COMPLETED)
    }

    /// Returns the stripes of the member's memory.
    #[inline]
    pub fn stripes(&self) -> &[Stripe] {
        let stripes = self.memory.ptr(STRIPE, STRIPES * size_of::<Stripe>());
        // SAFETY: they lie in the mapping, which lives as long as this does, and are aligned, since
        // the block begins on a line. They consist of atomics, which tolerate other writers.
        unsafe { std::slice::from_raw_parts(stripes.cast::<Stripe>(), STRIPES) }
    }

    /// Publishes where the list of attached memory is. By its member alone, between
    /// [`Self::begin_attached`] and the next.
    pub fn publish_attached(&self, address: u64, entries: u64, key: &[u64; LIST_KEY_WORDS]) {
        for (index, word) in key.iter().enumerate() {
            self.attached_word(3 + index)
                .store(*word, Ordering::Relaxed);
        }
        self.attached_word(1).store(address, Ordering::Relaxed);
        self.attached_word(2).store(entries, Ordering::Relaxed);
        // Release: the list. SYNC(window-attached).
        self.attached_word(0).fetch_add(1, Ordering::Release);
    }

    /// Says that the list of attached memory changes until [`Self::publish_attached`].
    pub fn begin_attached(&self) {
        self.attached_word(0).fetch_add(1, Ordering::Relaxed);
        // Orders the number before the change. SYNC(window-attached).
        fence(Ordering::SeqCst);
    }

    /// Returns the place of the list of attached memory. `None`: the list changes right now.
    pub fn attached(&self) -> Option<AttachedList> {
        // Acquire: the list. SYNC(window-attached).
        let version = self.attached_word(0).load(Ordering::Acquire);
        let list = AttachedList {
            version,
            address: self.attached_word(1).load(Ordering::Relaxed),
            entries: self.attached_word(2).load(Ordering::Relaxed),
        };
        (version.is_multiple_of(2) && self.is_attached(version)).then_some(list)
    }

    /// Returns whether the list of attached memory still has this version. After the list was read.
    pub fn is_attached(&self, version: u64) -> bool {
        // Orders the reads of the list before this one. SYNC(window-attached).
        fence(Ordering::SeqCst);
        self.attached_word(0).load(Ordering::Relaxed) == version
    }

    /// Offset of the place of the list in a block, in words of 64 bits: number of changes, address,
    /// entries, key.
    pub fn attached_offset() -> usize {
        ATTACHED
    }

    fn attached_word(&self, index: usize) -> &AtomicU64 {
        self.memory.atomic_u64(ATTACHED + 8 * index)
    }
}

/// Orders all accesses of this thread before against all after, as `fence(SeqCst)` does: a flush.
/// By an instruction that takes half as long on x86-64.
#[inline(always)]
pub fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the word on the stack keeps its value, and memory counts as changed.
    unsafe {
        std::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// Offset of the slots of the lock.
fn slots_at(members: usize) -> usize {
    (POSTED + 4 * members).next_multiple_of(LINE)
}

/// Returns `len` bytes of a list of attached memory in a peer's process, as data to be copied by
/// [`crate::peer_memory::copy`].
pub fn list_memory(list: &AttachedList) -> UserMem {
    UserMem::null().offset(list.address as isize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::window_stripes::lock_stripes;

    fn block(members: usize) -> WindowControl {
        let memory = Segment::anonymous(WindowControl::bytes(members)).unwrap();
        WindowControl::new(memory, members).unwrap()
    }

    #[test]
    fn stripes_of_a_range_are_those_of_its_pages_and_are_given_back() {
        let control = block(3);
        let taken = |control: &WindowControl| -> Vec<usize> {
            let held = |index: &usize| control.stripes()[*index].holder().is_some();
            (0..STRIPES).filter(held).collect()
        };
        let cases = [
            ((0, 0), vec![0]),
            ((4095, 1), vec![0]),
            ((4095, 2), vec![0, 1]),
            ((63 * 4096, 8192), vec![0, 63]),
            ((u64::MAX - 8, 100), vec![63]),
        ];
        for ((at, len), want) in cases {
            let guard = lock_stripes(
                control.stripes(),
                1,
                WindowControl::stripes_of(at, len),
                |_| true,
            );
            assert_eq!(taken(&control), want, "{len} bytes at {at}");
            drop(guard);
            assert_eq!(taken(&control), []);
        }
        let all = WindowControl::stripes_of(4096, 1 << 30);
        let guard = lock_stripes(control.stripes(), 1, all, |_| true);
        assert_eq!(taken(&control).len(), STRIPES);
        drop(guard);
    }

    #[test]
    fn parts_of_a_block_do_not_overlap() {
        let control = block(5);
        for target in 0..5 {
            control.posted(target).store(7, Ordering::Relaxed);
        }
        control.completed().store(9, Ordering::Relaxed);
        for counter in 0..NOTIFY_COUNTERS as u32 {
            control.notified(counter).store(11, Ordering::Relaxed);
        }
        assert!(control.lock_all().enter());
        control.holds_all().store(1, Ordering::Relaxed);
        control.begin_attached();
        assert_eq!(control.attached(), None);
        control.publish_attached(5, 6, &[7; LIST_KEY_WORDS]);
        assert!(
            control
                .lock()
                .try_acquire(4, crate::window_lock::LockMode::Exclusive)
        );
        assert_eq!(control.lock().holders().collect::<Vec<_>>(), [4]);
        let list = control.attached().unwrap();
        assert_eq!((list.version, list.address, list.entries), (2, 5, 6));
        assert_eq!(control.posted(4).load(Ordering::Relaxed), 7);
        assert_eq!(control.stripes()[0].holder(), None);
        assert!(!control.lock_all().leave());
        assert_eq!(control.holds_all().load(Ordering::Relaxed), 1);
    }
}
