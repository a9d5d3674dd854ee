//! Variables that are known by their addresses: `MPI_BOTTOM`, `MPI_IN_PLACE` and others.
//!
//! `mpif.h` has them in common blocks, of which each loaded object may have its own. The loader
//! gives objects one copy of each block if they are loaded together. Libraries that are loaded by
//! `dlopen` may keep theirs. So the blocks of all loaded objects are known here ([`Table`]).
//!
//! A search for new blocks is due when the loader has bound a routine for some object:
//! [`Sentinels::current`] then says so. An object that has blocks stays loaded, so that no buffer
//! gets the address of a block.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A value that is known by its address: the address in Fortran, and that in C.
pub type Sentinel = (usize, usize);

/// A common block of `mpif.h`.
#[derive(Debug)]
pub struct Block {
    /// Symbols, by the options of the compiler: with and without underscores at the end, in lower
    /// and in upper case.
    pub names: &'static [&'static CStr],
    /// What lies where in the block: offsets, and addresses in C.
    pub parts: &'static [Sentinel],
}

/// Slots of a [`Table`], a power of two that is much greater than the number of sentinels of
/// several objects.
const SLOTS: usize = 512;

/// The known sentinels by their addresses. An entry lies in the slot of its address or in one of
/// the next ones; an address of 0 ends the search.
struct Table {
    slots: [Sentinel; SLOTS],
    /// Number of entries.
    len: usize,
}

/// Returns the first slot of an address. Sentinels lie at least a word apart, but for characters.
#[inline(always)]
fn slot_of(place: usize) -> usize {
    (place >> 2) % SLOTS
}

impl Table {
    /// Returns a table without entries.
    fn empty() -> Self {
        Self {
            slots: [(0, 0); SLOTS],
            len: 0,
        }
    }

    /// Returns C's address for an address of Fortran.
    fn get(&self, place: usize) -> usize {
        let mut at = slot_of(place);
        loop {
            match self.slots[at] {
                (0, _) => return place,
                (known, address) if known == place => return address,
                _ => at = (at + 1) % SLOTS,
            }
        }
    }

    /// Adds an entry. A table never gets full: what would fill it up is left out.
    fn insert(&mut self, (place, address): Sentinel) {
        if self.get(place) != place || self.len + 1 == SLOTS {
            return;
        }
        let mut at = slot_of(place);
        while self.slots[at].0 != 0 {
            at = (at + 1) % SLOTS;
        }
        self.slots[at] = (place, address);
        self.len += 1;
    }
}

/// Value of [`Sentinels::current`] that the loader stores. Entry points have it as a number.
const SEARCH_DUE: usize = 1;

/// The sentinels of one library of Fortran routines, which has one value of this type.
#[repr(C)]
#[derive(Debug)]
pub struct Sentinels {
    /// The address of the table, or an odd number where a search is due. The loader stores an odd
    /// number when it binds a routine; a thread that searches stores one that names the search.
    /// Comes first: entry points know the address of the whole.
    current: AtomicUsize,
    /// The latest table. Replaced when there are more sentinels; never freed, since others may read
    /// it.
    latest: AtomicPtr<Table>,
    /// Numbers the searches.
    searches: AtomicUsize,
    /// Common blocks that objects may have.
    blocks: &'static [Block],
    /// Returns the sentinels that the library itself refers to, through the loader's table.
    own: fn() -> Vec<Sentinel>,
}

impl std::fmt::Debug for Table {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} sentinels", self.len)
    }
}

impl Sentinels {
    /// Returns the sentinels of a library, before any search.
    pub const fn new(blocks: &'static [Block], own: fn() -> Vec<Sentinel>) -> Self {
        Self {
            current: AtomicUsize::new(SEARCH_DUE),
            latest: AtomicPtr::new(null_mut()),
            searches: AtomicUsize::new(1),
            blocks,
            own,
        }
    }

    /// Returns C's address for an address of Fortran: another one for a sentinel.
    #[inline(always)]
    pub fn c_address(&self, at: *mut c_void) -> *mut c_void {
        self.known(at).unwrap_or_else(|| {
            let found = self.search_and_lookup(at as usize);
            match found == at as usize {
                true => at,
                false => without_provenance_mut(found),
            }
        })
    }

    /// Returns C's address for an address of Fortran. `None`: a search is due.
    #[inline(always)]
    pub fn known(&self, at: *mut c_void) -> Option<*mut c_void> {
        let place = at as usize;
        let current = self.current.load(Ordering::Acquire);
        if current & 1 != 0 {
            return None;
        }
        let mut at_slot = slot_of(place);
        loop {
            // SAFETY: an even number is the address of a table that is never freed.
            let (known, address) = unsafe { (*(current as *const Table)).slots[at_slot] };
            if known == 0 {
                return Some(at);
            }
            if known == place {
                return Some(without_provenance_mut(address));
            }
            at_slot = (at_slot + 1) % SLOTS;
        }
    }

    #[cold]
    #[inline(never)]
    fn search_and_lookup(&self, place: usize) -> usize {
        loop {
            let current = self.current.load(Ordering::Acquire);
            if current & 1 == 0 {
                // SAFETY: as above.
                return unsafe { &*(current as *const Table) }.get(place);
            }
            // Unless the loader binds another routine meanwhile, what is found is all there is.
            let search = self.searches.fetch_add(1, Ordering::Relaxed) * 2 + 1;
            self.current.store(search, Ordering::SeqCst);
            let table = self.know(&self.find_all());
            let found =
                self.current
                    .compare_exchange(search, table, Ordering::SeqCst, Ordering::SeqCst);
            let _ = found;
        }
    }

    /// Adds sentinels to those that are known. Returns the address of the table of all of them.
    fn know(&self, found: &[Sentinel]) -> usize {
        loop {
            let before = self.latest.load(Ordering::Acquire);
            // SAFETY: a table that was known is never freed.
            let known = unsafe { before.as_ref() };
            let mut all = Box::new(Table::empty());
            if let Some(known) = known {
                all.slots = known.slots;
                all.len = known.len;
            }
            for sentinel in found {
                all.insert(*sentinel);
            }
            if known.is_some_and(|known| known.len == all.len) {
                return before as usize;
            }
            let all = Box::into_raw(all);
            let exchanged =
                self.latest
                    .compare_exchange(before, all, Ordering::AcqRel, Ordering::Acquire);
            if exchanged.is_ok() {
                return all as usize;
            }
            // SAFETY: the table was made above, and nobody saw it.
            drop(unsafe { Box::from_raw(all) });
        }
    }

    /// Returns the sentinels of all loaded objects.
    fn find_all(&self) -> Vec<Sentinel> {
        let mut found = (self.own)();
        let mut objects: Vec<CString> = Vec::new();
        // SAFETY: the function gets a list of names.
        unsafe { libc::dl_iterate_phdr(Some(add_name), (&raw mut objects).cast()) };
        for name in &objects {
            self.add_blocks_of(name, &mut found);
        }
        found
    }

    /// Adds the blocks of the object of this name, and keeps the object if it has some. The program
    /// has an empty name.
    fn add_blocks_of(&self, name: &CStr, found: &mut Vec<Sentinel>) {
        let path: *const c_char = match name.is_empty() {
            true => null(),
            false => name.as_ptr(),
        };
        // SAFETY: the name of an object, or none for the program. Nothing is loaded.
        let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            return;
        }
        let before = found.len();
        for Block { names, parts } in self.blocks {
            for name in *names {
                // SAFETY: an open object, and a string that ends with a zero.
                let block = unsafe { libc::dlsym(handle, name.as_ptr()) } as usize;
                let first = block + parts.first().map_or(0, |(offset, _)| *offset);
                if block != 0 && !found.iter().any(|(at, _)| *at == first) {
                    found.extend(parts.iter().map(|(offset, what)| (block + offset, *what)));
                }
            }
        }
        if found.len() == before {
            // SAFETY: the handle was opened above.
            unsafe { libc::dlclose(handle) };
        }
    }
}

/// Adds the name of a loaded object to a list.
unsafe extern "C" fn add_name(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    objects: *mut c_void,
) -> c_int {
    // SAFETY: the loader's description of an object, and the list that was given with the function.
    unsafe {
        let name = (*info).dlpi_name;
        let name = if name.is_null() {
            c""
        } else {
            CStr::from_ptr(name)
        };
        (*objects.cast::<Vec<CString>>()).push(name.to_owned());
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_what_shares_slots_and_never_gets_full() {
        let mut table = Table::empty();
        // All in one slot, by the table's length, and characters within a word.
        let places: Vec<usize> = (1..20).map(|at| at * 4 * SLOTS + at % 3).collect();
        for (at, place) in places.iter().enumerate() {
            table.insert((*place, at));
            table.insert((*place, at + 100));
        }
        assert_eq!(table.len, places.len());
        for (at, place) in places.iter().enumerate() {
            assert_eq!(table.get(*place), at);
            assert_eq!(table.get(place + 64), place + 64);
        }
        for place in 0..4 * SLOTS {
            table.insert((0x10000 + 4 * place, 1));
        }
        assert_eq!(table.len, SLOTS - 1);
        assert_eq!(table.get(12), 12);
    }

    #[test]
    fn a_search_is_due_until_a_sentinel_was_asked_for() {
        static SENTINELS: Sentinels = Sentinels::new(&[], || vec![(4096, 1), (8192, 0)]);
        let at = |place: usize| without_provenance_mut::<c_void>(place);
        assert_eq!(SENTINELS.known(at(4096)), None);
        assert_eq!(SENTINELS.c_address(at(4096)), at(1));
        assert_eq!(SENTINELS.known(at(8192)), Some(at(0)));
        assert_eq!(SENTINELS.c_address(at(4100)), at(4100));
        // The loader binds a routine.
        SENTINELS.current.store(SEARCH_DUE, Ordering::Relaxed);
        assert_eq!(SENTINELS.known(at(4100)), None);
        assert_eq!(SENTINELS.c_address(at(8192)), at(0));
        assert_eq!(SENTINELS.known(at(4100)), Some(at(4100)));
    }
}
