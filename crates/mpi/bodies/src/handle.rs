//! Handles and the tables that map them to objects.
//!
//! A handle is a word. Values below [`FIRST_DYNAMIC`] are the standard's 10-bit codes. Larger
//! values name a slot of the table for their kind: the slot's index in the low bits, and some bits
//! of the slot's generation above. The generation reveals a handle that is used after its object
//! was freed. All values fit into a C `int`, on which `MPI_*_toint` relies.
//!
//! A table grows by chunks that double in size and never move. A lookup therefore takes no lock:
//! two loads and a compare. Allocating and freeing handles takes the table's lock.

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

/// `MPI_Aint`.
pub type MPI_Aint = isize;
/// `MPI_Count`.
pub type MPI_Count = i64;
/// `MPI_Offset`.
pub type MPI_Offset = i64;

/// The first value that is a live object's handle.
pub(crate) const FIRST_DYNAMIC: usize = 4096;

/// The first value above all table handles: light requests, which have no table entry (see
/// `light_request`).
pub(crate) const FIRST_LIGHT: usize = FIRST_DYNAMIC + ((GENERATIONS as usize) << INDEX_BITS);

/// A handle of some kind.
pub trait Handle: Copy {
    /// Wraps a word.
    fn from_word(word: usize) -> Self;
    /// The word.
    fn word(self) -> usize;
}

macro_rules! handles {
    ($($name:ident)*) => {$(
        #[doc = concat!("`", stringify!($name), "` as C passes it.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub struct $name(pub usize);

        impl Handle for $name {
            fn from_word(word: usize) -> Self {
                Self(word)
            }
            fn word(self) -> usize {
                self.0
            }
        }
    )*};
}

handles! {
    MPI_Comm MPI_Datatype MPI_Errhandler MPI_File MPI_Group MPI_Info MPI_Message MPI_Op MPI_Request MPI_Session MPI_Win
    MPI_T_enum MPI_T_cvar_handle MPI_T_pvar_handle MPI_T_pvar_session MPI_T_event_registration MPI_T_event_instance
}

/// `MPI_Status` as C sees it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MPI_Status {
    /// `MPI_SOURCE`.
    pub source: c_int,
    /// `MPI_TAG`.
    pub tag: c_int,
    /// `MPI_ERROR`.
    pub error: c_int,
    /// Internal fields: the count of bytes in two words, then the cancelled flag.
    internal: [c_int; 5],
}

impl MPI_Status {
    /// A status with these fields and no error.
    pub fn new(source: c_int, tag: c_int, bytes: u64, cancelled: bool) -> Self {
        let mut status = Self {
            source,
            tag,
            error: 0,
            internal: [0; 5],
        };
        status.set_bytes(bytes);
        status.set_cancelled(cancelled);
        status
    }

    /// Bytes received.
    pub fn bytes(&self) -> u64 {
        u64::from(self.internal[0] as u32) | u64::from(self.internal[1] as u32) << 32
    }

    /// Says how many bytes were received.
    pub fn set_bytes(&mut self, bytes: u64) {
        self.internal[0] = bytes as u32 as c_int;
        self.internal[1] = (bytes >> 32) as u32 as c_int;
    }

    /// Returns whether the operation was cancelled.
    pub fn cancelled(&self) -> bool {
        self.internal[2] != 0
    }

    /// Says whether the operation was cancelled.
    pub fn set_cancelled(&mut self, cancelled: bool) {
        self.internal[2] = cancelled.into();
    }
}

const INDEX_BITS: u32 = 24;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
const GENERATIONS: u32 = 1 << 6;
/// Slots of the first chunk; each further chunk has as many as all before it.
const FIRST_CHUNK: usize = 64;
const CHUNKS: usize = (INDEX_BITS - FIRST_CHUNK.ilog2()) as usize + 1;

/// The most live objects of one kind. With fewer than the index has room for, no handle is less
/// than [`FIRST_DYNAMIC`] above a multiple of the generation's bit. Another ABI has predefined
/// handles there.
pub(crate) const OBJECTS_MAX: usize = (1 << INDEX_BITS) - FIRST_DYNAMIC;

struct TableSlot<T> {
    /// 0 while vacant, else 1 + the generation that a handle must bear.
    tag: AtomicU32,
    value: UnsafeCell<MaybeUninit<T>>,
}

struct FreeList {
    /// Vacated slots with the generation their next handle gets.
    vacated: Vec<(u32, u32)>,
    /// Slots below this index were used at least once.
    fresh: usize,
}

/// The live objects of one kind.
pub(crate) struct HandleTable<T> {
    chunks: [AtomicPtr<TableSlot<T>>; CHUNKS],
    /// Generation of the first handle of each slot.
    first_generation: u32,
    free: Mutex<FreeList>,
}

// SAFETY: values move between threads (inserted by one, removed by another) and are shared by
// lookups.
unsafe impl<T: Send + Sync> Sync for HandleTable<T> {}

impl<T> HandleTable<T> {
    /// An empty table. Tables of one process that begin with different generations tell handles of
    /// each other from their own, as they tell stale handles.
    pub const fn new(first_generation: u32) -> Self {
        Self {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            first_generation: first_generation % GENERATIONS,
            free: Mutex::new(FreeList {
                vacated: Vec::new(),
                fresh: 0,
            }),
        }
    }

    /// Returns the chunk of a slot and the slot's index in the chunk. Chunk 0 holds `FIRST_CHUNK`
    /// slots, chunk k `FIRST_CHUNK << (k - 1)`.
    fn place(index: usize) -> (usize, usize) {
        let chunk = (index / FIRST_CHUNK)
            .checked_ilog2()
            .map_or(0, |log| log as usize + 1);
        if chunk == 0 {
            (0, index)
        } else {
            (chunk, index - (FIRST_CHUNK << (chunk - 1)))
        }
    }

    fn chunk_len(chunk: usize) -> usize {
        if chunk == 0 {
            FIRST_CHUNK
        } else {
            FIRST_CHUNK << (chunk - 1)
        }
    }

    fn slot(&self, index: usize) -> Option<&TableSlot<T>> {
        let (chunk, at) = Self::place(index);
        // SYNC(handle-chunk): pairs with the Release in `grow`; the chunk's slots are initialised.
        let base = self.chunks[chunk].load(Ordering::Acquire);
        // SAFETY: a chunk, once there, stays for the life of the process, and `at` is within it by
        // `place`.
        (!base.is_null()).then(|| unsafe { &*base.add(at) })
    }

    /// The object of a live handle; `None` for codes, freed handles and garbage.
    ///
    /// The standard forbids to free an object while another thread's call uses it; the reference
    /// lives by that rule.
    #[inline]
    pub fn get(&self, handle: impl Handle) -> Option<&T> {
        let word = handle.word().wrapping_sub(FIRST_DYNAMIC);
        let generation = word >> INDEX_BITS;
        if generation >= GENERATIONS as usize {
            return None;
        }
        let slot = self.slot(word & INDEX_MASK)?;
        // SYNC(handle-slot): pairs with the Release in `insert`; the value is there.
        let live = slot.tag.load(Ordering::Acquire) == generation as u32 + 1;
        // SAFETY: the tag says that the slot holds a value; nobody removes it meanwhile (see
        // above).
        live.then(|| unsafe { (*slot.value.get()).assume_init_ref() })
    }

    /// Stores an object; `None` when [`OBJECTS_MAX`] are live already.
    pub fn insert<H: Handle>(&self, value: T) -> Option<H> {
        let handle = self.reserve()?;
        self.fill(handle, value);
        Some(handle)
    }

    /// Reserves a handle that names no object until [`HandleTable::fill`].
    fn reserve<H: Handle>(&self) -> Option<H> {
        let (index, generation) = {
            let mut free = self
                .free
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            match free.vacated.pop() {
                Some(slot) => slot,
                None if free.fresh == OBJECTS_MAX => return None,
                None => {
                    let index = free.fresh;
                    self.grow(index);
                    free.fresh += 1;
                    (index as u32, self.first_generation)
                }
            }
        };
        Some(H::from_word(
            FIRST_DYNAMIC + ((generation as usize) << INDEX_BITS | index as usize),
        ))
    }

    fn parts(handle: impl Handle) -> (usize, u32) {
        let word = handle.word() - FIRST_DYNAMIC;
        (word & INDEX_MASK, (word >> INDEX_BITS) as u32)
    }

    /// Puts the object behind a reserved handle, or behind one whose object was withdrawn, by whom
    /// has it.
    pub fn fill(&self, handle: impl Handle, value: T) {
        let (index, generation) = Self::parts(handle);
        let Some(slot) = self.slot(index) else { return };
        assert_eq!(
            slot.tag.load(Ordering::Relaxed),
            0,
            "a reserved handle is filled once"
        );
        // SAFETY: the slot is vacant and ours alone since it left the free list.
        unsafe { (*slot.value.get()).write(value) };
        // SYNC(handle-slot): publishes the value.
        slot.tag.store(generation + 1, Ordering::Release);
    }

    /// Makes the chunk of `index`, the lowest index never used, if it is not there. Called with the
    /// lock held.
    fn grow(&self, index: usize) {
        let (chunk, at) = Self::place(index);
        if at != 0 {
            return;
        }
        let slots: Vec<TableSlot<T>> = (0..Self::chunk_len(chunk))
            .map(|_| TableSlot {
                tag: AtomicU32::new(0),
                value: UnsafeCell::new(MaybeUninit::uninit()),
            })
            .collect();
        let base = Box::leak(slots.into_boxed_slice()).as_mut_ptr();
        // SYNC(handle-chunk): publishes the slots.
        self.chunks[chunk].store(base, Ordering::Release);
    }

    /// Takes an object out; its handle is stale from then on.
    pub fn remove(&self, handle: impl Handle) -> Option<T> {
        let value = self.withdraw(handle)?;
        self.release(handle);
        Some(value)
    }

    /// Takes an object out, and keeps its handle from others: it names nothing until
    /// [`HandleTable::fill`] puts an object behind it, or for ever after [`HandleTable::release`].
    pub fn withdraw(&self, handle: impl Handle) -> Option<T> {
        self.get(handle)?;
        let (index, generation) = Self::parts(handle);
        let slot = self.slot(index)?;
        // One of two threads that free the same handle wins; the other sees a stale handle.
        slot.tag
            .compare_exchange(generation + 1, 0, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        // SAFETY: the exchange made the value ours alone.
        Some(unsafe { (*slot.value.get()).assume_init_read() })
    }

    /// Lets others have the slot of a handle whose object was withdrawn. Once for each handle, by
    /// whom withdrew it.
    pub fn release(&self, handle: impl Handle) {
        let (index, generation) = Self::parts(handle);
        let mut free = self
            .free
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        free.vacated
            .push((index as u32, (generation + 1) % GENERATIONS));
    }

    /// Number of live objects.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        let free = self
            .free
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        free.fresh - free.vacated.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_has_its_own_place_within_its_chunk() {
        let mut expected = (0, 0);
        for index in 0..FIRST_CHUNK << 6 {
            assert_eq!(HandleTable::<u8>::place(index), expected, "index {index}");
            expected.1 += 1;
            if expected.1 == HandleTable::<u8>::chunk_len(expected.0) {
                expected = (expected.0 + 1, 0);
            }
        }
        let (chunk, at) = HandleTable::<u8>::place(OBJECTS_MAX - 1);
        assert_eq!(chunk, CHUNKS - 1);
        assert!(at < HandleTable::<u8>::chunk_len(chunk));
    }

    #[test]
    fn a_handle_finds_its_object_until_it_is_freed_and_never_again() {
        let table = HandleTable::new(0);
        let handles: Vec<MPI_Comm> = (0..1000).map(|i| table.insert(i).unwrap()).collect();
        for (i, handle) in handles.iter().enumerate() {
            assert_eq!(table.get(*handle), Some(&i));
            assert!(handle.0 >= FIRST_DYNAMIC && i32::try_from(handle.0).is_ok());
        }
        assert_eq!(table.remove(handles[7]), Some(7));
        assert_eq!(table.get(handles[7]), None);
        assert_eq!(table.remove(handles[7]), None);
        let again: MPI_Comm = table.insert(77).unwrap();
        assert_ne!(
            again, handles[7],
            "the slot is used again under another name"
        );
        assert_eq!(table.get(again), Some(&77));
        assert_eq!(table.get(handles[7]), None);
        assert_eq!(table.len(), 1000);
    }

    #[test]
    fn tables_that_begin_with_other_generations_refuse_each_others_handles() {
        let (one, other) = (HandleTable::new(1), HandleTable::new(GENERATIONS + 2));
        let (mine, yours): (MPI_Comm, MPI_Comm) =
            (one.insert(1).unwrap(), other.insert(2).unwrap());
        assert_eq!((one.get(mine), other.get(yours)), (Some(&1), Some(&2)));
        assert_eq!((one.get(yours), other.remove(mine)), (None, None));
    }

    #[test]
    fn a_withdrawn_handle_names_nothing_and_is_nobody_elses() {
        let table = HandleTable::new(0);
        let handle: MPI_Comm = table.insert(1).unwrap();
        assert_eq!(table.withdraw(handle), Some(1));
        assert_eq!(
            (
                table.get(handle),
                table.withdraw(handle),
                table.remove(handle)
            ),
            (None, None, None)
        );
        let other: MPI_Comm = table.insert(2).unwrap();
        table.fill(handle, 3);
        assert_eq!((table.get(handle), table.get(other)), (Some(&3), Some(&2)));
        assert_eq!(table.withdraw(handle), Some(3));
        table.release(handle);
        let again: MPI_Comm = table.insert(4).unwrap();
        assert_eq!((table.get(handle), table.get(again)), (None, Some(&4)));
    }

    #[test]
    fn codes_and_garbage_name_no_object() {
        let table = HandleTable::new(0);
        let _: MPI_Comm = table.insert(1).unwrap();
        for word in [
            0,
            1,
            0x101,
            FIRST_DYNAMIC - 1,
            FIRST_DYNAMIC + 1,
            FIRST_DYNAMIC + (1 << INDEX_BITS),
            1 << 40,
            usize::MAX,
        ] {
            assert_eq!(table.get(MPI_Comm(word)), None, "word {word:#x}");
        }
    }

    #[test]
    fn a_status_keeps_sixty_four_bit_counts_in_its_eight_ints() {
        assert_eq!((size_of::<MPI_Status>(), align_of::<MPI_Status>()), (32, 4));
        let status = MPI_Status::new(3, 7, 0x1_2345_6789_abcd, true);
        assert_eq!(
            (status.bytes(), status.cancelled()),
            (0x1_2345_6789_abcd, true)
        );
    }
}
