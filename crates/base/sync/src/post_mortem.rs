//! Memory of a process that can be read after its death, and values that lie in it.
//!
//! A [`PostMortemArea`] is a memory file with slots of fixed sizes, made and mapped by one process.
//! Whoever gets its descriptor can read what the process wrote last, however it ended. Nobody else
//! can write, because the file is sealed against new writable mappings before its descriptor is
//! handed out. So references to values in it are sound. A [`PostMortemArc`] counts its owners like
//! an `Arc`, at the same cost. Its value lies in a slot of the area, or on the heap if no slot is
//! free or large enough. Bounded by the slots.

use crate::shm::{MapAccess, Segment};
use std::fmt;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, compiler_fence, fence};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes before the first slot, for what the process says of the whole.
pub const HEADER_BYTES: usize = 4096;

/// Place where the value lies in its slot. At the slot's beginning is the number of its owners: 0,
/// and there is no value.
pub const VALUE_AT: usize = offset_of!(Inner<u64>, value);

/// Slots begin at lines.
const ALIGN: usize = 64;

/// Seals against new writable mappings (Linux 5.1), growing, shrinking and more seals.
const SEALS: i32 = 0x10 | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;

/// Bytes of a slot for a value of so many.
pub const fn slot_bytes(value: usize) -> usize {
    (VALUE_AT + value).next_multiple_of(ALIGN)
}

/// One slot.
#[derive(Clone, Copy, Debug)]
struct AreaSlot {
    offset: usize,
    bytes: usize,
}

/// A sealed memory file with slots for values, and the list of free slots.
#[derive(Debug)]
pub struct PostMortemArea {
    memory: Segment,
    free: Mutex<Vec<AreaSlot>>,
}

impl PostMortemArea {
    /// An area that begins with `header`, of at most [`HEADER_BYTES`], and has slots of these
    /// sizes; and its file, for readers.
    ///
    /// # Errors
    /// The system has no such memory, or no such seal.
    pub fn new(header: &[u8], slots: &[usize]) -> io::Result<(Arc<Self>, OwnedFd)> {
        let mut end = HEADER_BYTES;
        let mut free = Vec::with_capacity(slots.len());
        for &bytes in slots {
            let bytes = bytes.next_multiple_of(ALIGN);
            free.push(AreaSlot { offset: end, bytes });
            end += bytes;
        }
        let header = header
            .get(..HEADER_BYTES.min(header.len()))
            .unwrap_or_default();
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: a system call with a name that ends.
        let fd = unsafe { libc::memfd_create(c"garonne-events".as_ptr(), flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(end as u64)?;
        let memory = Segment::map(file.as_fd(), 0, end, MapAccess::ReadWrite)?;
        memory.write(0, header);
        // SAFETY: a system call on a descriptor that is open.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        free.reverse();
        let free = Mutex::new(free);
        Ok((Arc::new(Self { memory, free }), file.into()))
    }

    fn slots(&self) -> std::sync::MutexGuard<'_, Vec<AreaSlot>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A free slot of so many bytes, the smallest that is large enough.
    fn take(&self, bytes: usize) -> Option<AreaSlot> {
        let mut slots = self.slots();
        let fits = slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| slot.bytes >= bytes);
        let (index, _) = fits.min_by_key(|(_, slot)| (slot.bytes, slot.offset))?;
        Some(slots.swap_remove(index))
    }
}

/// A value with what counts its owners.
#[repr(C)]
struct Inner<T> {
    owners: AtomicUsize,
    /// Place where it lies, if that is not the heap.
    home: Option<AreaHome>,
    value: T,
}

struct AreaHome {
    area: Arc<PostMortemArea>,
    slot: AreaSlot,
}

/// A value that lies in an [`PostMortemArea`], or on the heap, shared by its owners.
pub struct PostMortemArc<T> {
    at: NonNull<Inner<T>>,
}

// SAFETY: as an `Arc`: owners share the value, and the last of them drops it, whatever their
// threads.
unsafe impl<T: Send + Sync> Send for PostMortemArc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for PostMortemArc<T> {}

impl<T> PostMortemArc<T> {
    const FITS: () = assert!(
        align_of::<T>() <= align_of::<u64>() && offset_of!(Inner<T>, value) == VALUE_AT,
        "a slot has its value where readers expect it"
    );

    /// A value in a slot of the area, or on the heap.
    pub fn new(area: Option<&Arc<PostMortemArea>>, value: T) -> Self {
        Self::make(
            area,
            // SAFETY: the memory is free, large enough and aligned.
            |at| unsafe { at.write(value) },
        )
    }

    /// A value whose bytes are all zero, in a slot of the area or on the heap. The value is made
    /// where it stays, so it may be larger than a thread's stack.
    pub fn zeroed(area: Option<&Arc<PostMortemArea>>) -> Self
    where
        T: bytemuck::Zeroable,
    {
        Self::make(
            area,
            // SAFETY: the memory is free, large enough and aligned; zeros are a value of the type.
            |at| unsafe { at.write_bytes(0, 1) },
        )
    }

    /// Takes memory for a value, and has it filled by `fill`, which must write the whole value.
    fn make(area: Option<&Arc<PostMortemArea>>, fill: impl FnOnce(*mut T)) -> Self {
        const { Self::FITS };
        let slot = area.and_then(|area| {
            let slot = area.take(size_of::<Inner<T>>())?;
            Some((area, slot))
        });
        let Some((area, slot)) = slot else {
            let at = Box::into_raw(Box::<Inner<T>>::new_uninit()).cast::<Inner<T>>();
            // SAFETY: the box's memory is for such a value, and nobody else's.
            unsafe { Self::fill(at, None, 1, fill) };
            return Self { at: at_of(at) };
        };
        let at = area.memory.ptr(slot.offset, slot.bytes).cast::<Inner<T>>();
        let home = Some(AreaHome {
            area: area.clone(),
            slot,
        });
        // SAFETY: the slot is free, large enough and aligned, and mapped as long as `home` keeps
        // its area.
        unsafe { Self::fill(at, home, 0, fill) };
        // A reader that comes after this process's death, wherever that was, and finds an owner
        // finds the value.
        compiler_fence(Ordering::Release);
        // SAFETY: as above; the value was written.
        unsafe { &(*at).owners }.store(1, Ordering::Relaxed);
        Self { at: at_of(at) }
    }

    /// Fills memory for a value part by part.
    ///
    /// # Safety
    /// `at` is aligned, large enough, and nobody else's.
    unsafe fn fill(
        at: *mut Inner<T>,
        home: Option<AreaHome>,
        owners: usize,
        fill: impl FnOnce(*mut T),
    ) {
        // SAFETY: as the caller says.
        unsafe {
            (&raw mut (*at).owners).write(AtomicUsize::new(owners));
            (&raw mut (*at).home).write(home);
            fill(&raw mut (*at).value);
        }
    }

    /// Returns where the value lies; it stays there as long as it has an owner.
    pub fn as_ptr(this: &Self) -> *const T {
        std::ptr::from_ref::<T>(this)
    }

    /// Returns how many owners the value has.
    pub fn owners(this: &Self) -> usize {
        this.inner().owners.load(Ordering::Relaxed)
    }

    fn inner(&self) -> &Inner<T> {
        // SAFETY: this owner keeps it.
        unsafe { self.at.as_ref() }
    }
}

fn at_of<T>(at: *mut T) -> NonNull<T> {
    match NonNull::new(at) {
        Some(at) => at,
        None => unreachable!("memory lies elsewhere"),
    }
}

impl<T> Deref for PostMortemArc<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T> Clone for PostMortemArc<T> {
    fn clone(&self) -> Self {
        let before = self.inner().owners.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "no process has so many owners");
        Self { at: self.at }
    }
}

impl<T> Drop for PostMortemArc<T> {
    fn drop(&mut self) {
        if self.inner().owners.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: the last owner takes out where the value lies; nobody looks there again.
        let home = unsafe { std::ptr::replace(&raw mut (*self.at.as_ptr()).home, None) };
        let Some(AreaHome { area, slot }) = home else {
            // SAFETY: without a home it came from a box, and this was the last owner.
            drop(unsafe { Box::from_raw(self.at.as_ptr()) });
            return;
        };
        // SAFETY: it is in its slot still, and this was the last owner.
        unsafe { self.at.as_ptr().drop_in_place() };
        area.slots().push(slot);
    }
}

impl<T: fmt::Debug> fmt::Debug for PostMortemArc<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicU64;

    fn read(file: &File, at: usize) -> u64 {
        let mut word = [0; 8];
        file.read_exact_at(&mut word, at as u64).unwrap();
        u64::from_ne_bytes(word)
    }

    #[test]
    fn values_lie_in_slots_as_long_as_they_have_owners_and_else_on_the_heap() {
        let slots = [slot_bytes(8), slot_bytes(1000)];
        let (area, file) = PostMortemArea::new(b"head", &slots).unwrap();
        let file = File::from(file);
        assert_eq!(read(&file, 0).to_ne_bytes()[..4], *b"head");
        let first = HEADER_BYTES;
        let one = PostMortemArc::new(Some(&area), AtomicU64::new(5));
        let same = one.clone();
        same.store(6, Ordering::Relaxed);
        assert_eq!((read(&file, first), read(&file, first + VALUE_AT)), (2, 6));
        drop(one);
        assert_eq!((read(&file, first), same.load(Ordering::Relaxed)), (1, 6));
        // The next small one gets the larger slot, and the one after that none.
        let others = [7, 8].map(|value| PostMortemArc::new(Some(&area), AtomicU64::new(value)));
        assert_eq!(read(&file, first + slots[0] + VALUE_AT), 7);
        assert_eq!(others[1].load(Ordering::Relaxed), 8);
        drop(same);
        assert_eq!(read(&file, first), 0, "no owner");
        let again = PostMortemArc::new(Some(&area), AtomicU64::new(9));
        drop(area);
        assert_eq!(read(&file, first + VALUE_AT), 9);
        drop((again, others));
    }

    #[test]
    fn a_value_is_dropped_by_its_last_owner_once() {
        let (area, _file) = PostMortemArea::new(&[], &[slot_bytes(64)]).unwrap();
        for area in [Some(&area), None] {
            let alive = Arc::new(());
            let one = PostMortemArc::new(area, alive.clone());
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let mine = one.clone();
                    std::thread::spawn(move || drop(mine))
                })
                .collect();
            threads
                .into_iter()
                .for_each(|thread| thread.join().unwrap());
            assert_eq!(Arc::strong_count(&alive), 2);
            drop(one);
            assert_eq!(Arc::strong_count(&alive), 1);
        }
    }

    #[test]
    fn a_value_of_zeros_may_be_larger_than_the_stack() {
        const WORDS: usize = 1 << 17;
        let (area, _file) =
            PostMortemArea::new(b"", &[size_of::<[u64; WORDS]>() + VALUE_AT]).unwrap();
        let make = move || {
            for area in [Some(&area), None] {
                let value = PostMortemArc::<[AtomicU64; WORDS]>::zeroed(area);
                assert!(value.iter().all(|word| word.load(Ordering::Relaxed) == 0));
                value[WORDS - 1].store(1, Ordering::Relaxed);
            }
            let again = PostMortemArc::<[AtomicU64; WORDS]>::zeroed(Some(&area));
            assert_eq!(again[WORDS - 1].load(Ordering::Relaxed), 0, "a used slot");
        };
        let small = std::thread::Builder::new().stack_size(128 << 10);
        small.spawn(make).unwrap().join().unwrap();
    }

    #[test]
    fn nobody_else_can_write_there() {
        let (_area, file) = PostMortemArea::new(&[], &[64]).unwrap();
        assert!(Segment::map(file.as_fd(), 0, 4096, MapAccess::ReadWrite).is_err());
        assert!(Segment::map(file.as_fd(), 0, 4096, MapAccess::Read).is_ok());
        let file = File::from(file);
        assert!(file.write_all_at(b"x", 0).is_err());
        assert!(file.set_len(0).is_err());
    }
}
