//! Variables that are known by their addresses: `MPI_BOTTOM`, `MPI_IN_PLACE` and others.
//!
//! `mpif.h` has them in common blocks, under the names and in the order of MPICH's. The modules
//! have them as variables with a name of the linker. The loader gives program and library one copy
//! of each, so addresses are read through the table of the loader (the GOT), never directly: the
//! copy is that of the program.
//!
//! Libraries that are loaded by `dlopen` may have common blocks of their own. All blocks of all
//! loaded objects are known here ([`Table`]). A search for new ones is due when the loader has
//! bound a routine for some object: then [`CURRENT`] says so. An object that has blocks stays
//! loaded, so that no buffer gets the address of a block.
//!
//! Common blocks are found under the names that compilers give them with other options: with and
//! without an underscore at the end, in lower and in upper case.

use garonne_fortran::address;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Size of a status in `INTEGER`s.
const STATUS: usize = 8;

/// Defines variables that Fortran programs refer to.
macro_rules! variables {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $value:expr;)*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals, reason = "the name is that of the linker")]
            pub static mut $name: $type = $value;
        )*
    };
}

variables! {
    /// `mpif.h`: bottom, in place, status to ignore.
    mpipriv1_: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpif.h`: statuses to ignore, error codes to ignore.
    mpipriv2_: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpif.h`: no arguments for many commands, no arguments for one.
    mpiprivc_: [u8; 2] = [0; 2];
    /// `mpif.h`: no weights.
    mpifcmb5_: [c_int; 1] = [0];
    /// `mpif.h`: weights that are empty.
    mpifcmb9_: [c_int; 1] = [0];
    /// `mpif.h`: a buffer that the library makes.
    mpifcmba_: [c_int; 1] = [0];
    /// `mpipriv1_` by another name.
    mpipriv1: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpipriv1_` by another name.
    MPIPRIV1: [c_int; 2 + STATUS] = [0; 2 + STATUS];
    /// `mpipriv2_` by another name.
    mpipriv2: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpipriv2_` by another name.
    MPIPRIV2: [c_int; STATUS + 1] = [0; STATUS + 1];
    /// `mpiprivc_` by another name.
    mpiprivc: [u8; 2] = [0; 2];
    /// `mpiprivc_` by another name.
    MPIPRIVC: [u8; 2] = [0; 2];
    /// `mpifcmb5_` by another name.
    mpifcmb5: [c_int; 1] = [0];
    /// `mpifcmb5_` by another name.
    MPIFCMB5: [c_int; 1] = [0];
    /// `mpifcmb9_` by another name.
    mpifcmb9: [c_int; 1] = [0];
    /// `mpifcmb9_` by another name.
    MPIFCMB9: [c_int; 1] = [0];
    /// `mpifcmba_` by another name.
    mpifcmba: [c_int; 1] = [0];
    /// `mpifcmba_` by another name.
    MPIFCMBA: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_bottom: c_int = 0;
    /// Modules.
    garonne_fortran_in_place: c_int = 0;
    /// Modules.
    garonne_fortran_buffer_automatic: c_int = 0;
    /// Modules.
    garonne_fortran_errcodes_ignore: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_unweighted: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_weights_empty: [c_int; 1] = [0];
    /// Modules.
    garonne_fortran_argv_null: [u8; 1] = [0];
    /// Modules.
    garonne_fortran_argvs_null: [u8; 1] = [0];
    /// Module `mpi`.
    garonne_fortran_status_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi`.
    garonne_fortran_statuses_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi_f08`.
    garonne_fortran_f08_status_ignore: [c_int; STATUS] = [0; STATUS];
    /// Module `mpi_f08`.
    garonne_fortran_f08_statuses_ignore: [c_int; STATUS] = [0; STATUS];
}

/// Bytes of an `INTEGER`.
const INTEGER: usize = size_of::<c_int>();

/// C's address for what C has no variable for: statuses and error codes to ignore, the bottom, no
/// arguments.
const NULL: usize = 0;
/// `MPI_IN_PLACE` of C.
pub(crate) const IN_PLACE: usize = 1;
/// `MPI_BUFFER_AUTOMATIC` of C.
const BUFFER_AUTOMATIC: usize = 2;
/// `MPI_UNWEIGHTED` of C.
const UNWEIGHTED: usize = 10;
/// `MPI_WEIGHTS_EMPTY` of C.
const WEIGHTS_EMPTY: usize = 11;

/// A value that is known by its address: the address in Fortran, and that in C.
type Sentinel = (usize, usize);

/// The common blocks of `mpif.h` by their names with different options of compilers, and what lies
/// where in them.
const BLOCKS: [([&CStr; 3], &[Sentinel]); 6] = [
    (
        [c"mpipriv1_", c"mpipriv1", c"MPIPRIV1"],
        &[(0, NULL), (INTEGER, IN_PLACE), (2 * INTEGER, NULL)],
    ),
    (
        [c"mpipriv2_", c"mpipriv2", c"MPIPRIV2"],
        &[(0, NULL), (STATUS * INTEGER, NULL)],
    ),
    (
        [c"mpiprivc_", c"mpiprivc", c"MPIPRIVC"],
        &[(0, NULL), (1, NULL)],
    ),
    ([c"mpifcmb5_", c"mpifcmb5", c"MPIFCMB5"], &[(0, UNWEIGHTED)]),
    (
        [c"mpifcmb9_", c"mpifcmb9", c"MPIFCMB9"],
        &[(0, WEIGHTS_EMPTY)],
    ),
    (
        [c"mpifcmba_", c"mpifcmba", c"MPIFCMBA"],
        &[(0, BUFFER_AUTOMATIC)],
    ),
];

/// Returns the variables of the modules, of which there is one for all objects.
fn variables() -> [Sentinel; 12] {
    [
        (address!(garonne_fortran_bottom), NULL),
        (address!(garonne_fortran_in_place), IN_PLACE),
        (address!(garonne_fortran_buffer_automatic), BUFFER_AUTOMATIC),
        (address!(garonne_fortran_errcodes_ignore), NULL),
        (address!(garonne_fortran_unweighted), UNWEIGHTED),
        (address!(garonne_fortran_weights_empty), WEIGHTS_EMPTY),
        (address!(garonne_fortran_argv_null), NULL),
        (address!(garonne_fortran_argvs_null), NULL),
        (address!(garonne_fortran_status_ignore), NULL),
        (address!(garonne_fortran_statuses_ignore), NULL),
        (address!(garonne_fortran_f08_status_ignore), NULL),
        (address!(garonne_fortran_f08_statuses_ignore), NULL),
    ]
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

/// The table, or an odd number where a search is due. The loader stores an odd number when it binds
/// a routine; a thread that searches stores one that names the search.
pub(crate) static CURRENT: AtomicUsize = AtomicUsize::new(SEARCH_DUE);

/// Value of [`CURRENT`] that the loader stores. Entry points have it as a number.
const SEARCH_DUE: usize = 1;

/// The latest table. Replaced when there are more sentinels; never freed, since others may read it.
static KNOWN: AtomicPtr<Table> = AtomicPtr::new(null_mut());

/// Numbers the searches.
static SEARCHES: AtomicUsize = AtomicUsize::new(1);

/// Returns C's address for an address of Fortran: another one for a sentinel.
#[inline(always)]
pub(crate) fn c_address(at: *mut c_void) -> *mut c_void {
    known(at).unwrap_or_else(|| {
        let found = search_and_lookup(at as usize);
        match found == at as usize {
            true => at,
            false => std::ptr::without_provenance_mut(found),
        }
    })
}

/// Returns C's address for an address of Fortran. `None`: a search is due.
#[inline(always)]
pub(crate) fn known(at: *mut c_void) -> Option<*mut c_void> {
    let place = at as usize;
    let current = CURRENT.load(Ordering::Acquire);
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
            return Some(std::ptr::without_provenance_mut(address));
        }
        at_slot = (at_slot + 1) % SLOTS;
    }
}

#[cold]
#[inline(never)]
fn search_and_lookup(place: usize) -> usize {
    loop {
        let current = CURRENT.load(Ordering::Acquire);
        if current & 1 == 0 {
            // SAFETY: as above.
            return unsafe { &*(current as *const Table) }.get(place);
        }
        // Unless the loader binds another routine meanwhile, what is found is all there is.
        let search = SEARCHES.fetch_add(1, Ordering::Relaxed) * 2 + 1;
        CURRENT.store(search, Ordering::SeqCst);
        let table = know(&find_all());
        let _ = CURRENT.compare_exchange(search, table, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// Adds sentinels to those that are known. Returns the address of the table of all of them.
fn know(found: &[Sentinel]) -> usize {
    loop {
        let before = KNOWN.load(Ordering::Acquire);
        // SAFETY: a table that was known is never freed.
        let known = unsafe { before.as_ref() };
        let mut all = Box::new(Table {
            slots: known.map_or([(0, NULL); SLOTS], |known| known.slots),
            len: known.map_or(0, |known| known.len),
        });
        for sentinel in found {
            all.insert(*sentinel);
        }
        if known.is_some_and(|known| known.len == all.len) {
            return before as usize;
        }
        let all = Box::into_raw(all);
        let exchanged = KNOWN.compare_exchange(before, all, Ordering::AcqRel, Ordering::Acquire);
        if exchanged.is_ok() {
            return all as usize;
        }
        // SAFETY: the table was made above, and nobody saw it.
        drop(unsafe { Box::from_raw(all) });
    }
}

/// Returns the sentinels of all loaded objects.
fn find_all() -> Vec<Sentinel> {
    let mut found = variables().to_vec();
    let blocks = [
        address!(mpipriv1_),
        address!(mpipriv2_),
        address!(mpiprivc_),
        address!(mpifcmb5_),
        address!(mpifcmb9_),
        address!(mpifcmba_),
    ];
    for (block, (_, parts)) in blocks.into_iter().zip(&BLOCKS) {
        found.extend(parts.iter().map(|(offset, what)| (block + offset, *what)));
    }
    let mut objects: Vec<CString> = Vec::new();
    // SAFETY: the function gets a list of names.
    unsafe { libc::dl_iterate_phdr(Some(add_name), (&raw mut objects).cast()) };
    for name in &objects {
        add_blocks_of(name, &mut found);
    }
    found
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

/// Adds the blocks of the object of this name, and keeps the object if it has some. The program has
/// an empty name.
fn add_blocks_of(name: &CStr, found: &mut Vec<Sentinel>) {
    let path: *const c_char = match name.is_empty() {
        true => std::ptr::null(),
        false => name.as_ptr(),
    };
    // SAFETY: the name of an object, or none for the program. Nothing is loaded.
    let handle = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if handle.is_null() {
        return;
    }
    let before = found.len();
    for (names, parts) in &BLOCKS {
        for name in names {
            // SAFETY: an open object, and a string that ends with a zero.
            let block = unsafe { libc::dlsym(handle, name.as_ptr()) };
            let is_known = || {
                found
                    .iter()
                    .any(|(at, _)| *at == block as usize + parts[0].0)
            };
            if block.is_null() || is_known() {
                continue;
            }
            found.extend(parts.iter().map(|(at, what)| (block as usize + at, *what)));
        }
    }
    if found.len() == before {
        // SAFETY: the handle was opened above.
        unsafe { libc::dlclose(handle) };
    }
}

/// Returns whether an argument stands for no arguments of a command, or of many commands.
pub(crate) fn is_argv_null(at: *const u8) -> bool {
    c_address(at.cast_mut().cast()).is_null()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_finds_what_shares_slots_and_never_gets_full() {
        let mut table = Table {
            slots: [(0, NULL); SLOTS],
            len: 0,
        };
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
            table.insert((0x10000 + 4 * place, IN_PLACE));
        }
        assert_eq!(table.len, SLOTS - 1);
        assert_eq!(table.get(12), 12);
    }
}
