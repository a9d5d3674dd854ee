//! Variables that are known by their addresses: `MPI_BOTTOM`, `MPI_IN_PLACE` and others.
//!
//! `mpif.h` has them in common blocks, under the names and in the order of MPICH's. The modules
//! have them as variables with a name of the linker. The loader gives program and library one copy
//! of each, so addresses are read through the table of the loader (the GOT), never directly: the
//! copy is that of the program.
//!
//! Libraries that are loaded by `dlopen` may have common blocks of their own. All blocks of all
//! loaded objects are known here ([`KNOWN`]). A search for new ones is due when the loader has
//! bound a routine for some object: then [`FILTER`] has all its bits set. An object that has blocks
//! stays loaded, so that no buffer gets the address of a block.
//!
//! Common blocks are found under the names that compilers give them with other options: with and
//! without an underscore at the end, in lower and in upper case.

use garonne_fortran::address;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

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

/// Something that is known by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sentinel {
    Bottom,
    InPlace,
    BufferAutomatic,
    /// A status or an array of statuses.
    Status,
    ErrorCodes,
    Unweighted,
    WeightsEmpty,
    ArgvNull,
    ArgvsNull,
}

/// The common blocks of `mpif.h` by their names with different options of compilers, and what lies
/// where in them.
const BLOCKS: [([&CStr; 3], &[(usize, Sentinel)]); 6] = [
    (
        [c"mpipriv1_", c"mpipriv1", c"MPIPRIV1"],
        &[
            (0, Sentinel::Bottom),
            (INTEGER, Sentinel::InPlace),
            (2 * INTEGER, Sentinel::Status),
        ],
    ),
    (
        [c"mpipriv2_", c"mpipriv2", c"MPIPRIV2"],
        &[
            (0, Sentinel::Status),
            (STATUS * INTEGER, Sentinel::ErrorCodes),
        ],
    ),
    (
        [c"mpiprivc_", c"mpiprivc", c"MPIPRIVC"],
        &[(0, Sentinel::ArgvsNull), (1, Sentinel::ArgvNull)],
    ),
    (
        [c"mpifcmb5_", c"mpifcmb5", c"MPIFCMB5"],
        &[(0, Sentinel::Unweighted)],
    ),
    (
        [c"mpifcmb9_", c"mpifcmb9", c"MPIFCMB9"],
        &[(0, Sentinel::WeightsEmpty)],
    ),
    (
        [c"mpifcmba_", c"mpifcmba", c"MPIFCMBA"],
        &[(0, Sentinel::BufferAutomatic)],
    ),
];

/// Returns the variables of the modules, of which there is one for all objects.
fn variables() -> [(usize, Sentinel); 12] {
    [
        (address!(garonne_fortran_bottom), Sentinel::Bottom),
        (address!(garonne_fortran_in_place), Sentinel::InPlace),
        (
            address!(garonne_fortran_buffer_automatic),
            Sentinel::BufferAutomatic,
        ),
        (
            address!(garonne_fortran_errcodes_ignore),
            Sentinel::ErrorCodes,
        ),
        (address!(garonne_fortran_unweighted), Sentinel::Unweighted),
        (
            address!(garonne_fortran_weights_empty),
            Sentinel::WeightsEmpty,
        ),
        (address!(garonne_fortran_argv_null), Sentinel::ArgvNull),
        (address!(garonne_fortran_argvs_null), Sentinel::ArgvsNull),
        (address!(garonne_fortran_status_ignore), Sentinel::Status),
        (address!(garonne_fortran_statuses_ignore), Sentinel::Status),
        (
            address!(garonne_fortran_f08_status_ignore),
            Sentinel::Status,
        ),
        (
            address!(garonne_fortran_f08_statuses_ignore),
            Sentinel::Status,
        ),
    ]
}

/// The known sentinels in the order of their addresses. Replaced when there are more; never freed,
/// since others may read it.
static KNOWN: AtomicPtr<Vec<(usize, Sentinel)>> = AtomicPtr::new(null_mut());

/// Tells most addresses apart from sentinels: the bit [`bit_of`] is set for each known sentinel, in
/// the lower half. All bits are set by the loader when it binds a routine. While a thread searches,
/// the lower half is full and the upper half names the search.
pub(crate) static FILTER: AtomicU64 = AtomicU64::new(u64::MAX);

/// Numbers the searches.
static SEARCHES: AtomicU64 = AtomicU64::new(0);

/// Lower half of [`FILTER`]: any address may be a sentinel.
const ANY: u64 = 0xffff_ffff;

/// Returns the bit of [`FILTER`] that stands for an address: those of one cache line have one.
#[inline(always)]
fn bit_of(place: usize) -> u32 {
    (place >> 6) as u32 & 31
}

/// Returns which sentinel lies at an address.
#[inline(always)]
fn lookup(place: usize) -> Option<Sentinel> {
    let filter = FILTER.load(Ordering::Relaxed) as u32;
    match (filter >> bit_of(place)) & 1 {
        0 => None,
        _ => lookup_known(place),
    }
}

#[cold]
#[inline(never)]
fn lookup_known(place: usize) -> Option<Sentinel> {
    loop {
        let filter = FILTER.load(Ordering::Acquire);
        if filter as u32 != u32::MAX {
            break;
        }
        // Unless the loader binds another routine meanwhile, what is found is all there is.
        let search = SEARCHES.fetch_add(1, Ordering::Relaxed) << 32 | ANY;
        FILTER.store(search, Ordering::SeqCst);
        let bits = know(find_all());
        let _ = FILTER.compare_exchange(search, bits, Ordering::SeqCst, Ordering::SeqCst);
    }
    // SAFETY: the list that was known is never freed.
    let known = unsafe { &*KNOWN.load(Ordering::Acquire) };
    let at = known.binary_search_by_key(&place, |(address, _)| *address);
    at.ok().map(|at| known[at].1)
}

/// Adds sentinels to those that are known. Returns the bits of all of them.
fn know(found: Vec<(usize, Sentinel)>) -> u64 {
    loop {
        let before = KNOWN.load(Ordering::Acquire);
        // SAFETY: a list that was known is never freed.
        let mut all = unsafe { before.as_ref() }.cloned().unwrap_or_default();
        let known = all.len();
        for entry in &found {
            if !all.contains(entry) {
                all.push(*entry);
            }
        }
        all.sort_unstable_by_key(|(address, _)| *address);
        let bits = all.iter().fold(0, |bits, (at, _)| bits | 1 << bit_of(*at));
        if all.len() == known && !before.is_null() {
            return bits;
        }
        let all = Box::into_raw(Box::new(all));
        if KNOWN
            .compare_exchange(before, all, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return bits;
        }
        // SAFETY: the list was made above, and nobody saw it.
        drop(unsafe { Box::from_raw(all) });
    }
}

/// Returns the sentinels of all loaded objects.
fn find_all() -> Vec<(usize, Sentinel)> {
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
fn add_blocks_of(name: &CStr, found: &mut Vec<(usize, Sentinel)>) {
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

/// `MPI_IN_PLACE` of C.
pub(crate) const IN_PLACE: usize = 1;
/// `MPI_BUFFER_AUTOMATIC` of C.
const BUFFER_AUTOMATIC: *mut c_void = std::ptr::without_provenance_mut(2);
/// `MPI_UNWEIGHTED` of C.
const UNWEIGHTED: *mut c_void = std::ptr::without_provenance_mut(10);
/// `MPI_WEIGHTS_EMPTY` of C.
const WEIGHTS_EMPTY: *mut c_void = std::ptr::without_provenance_mut(11);

/// Returns C's address of a buffer.
#[inline(always)]
pub(crate) fn buffer(at: *mut c_void) -> *mut c_void {
    match lookup(at as usize) {
        None => at,
        Some(Sentinel::Bottom) => null_mut(),
        Some(Sentinel::InPlace) => std::ptr::without_provenance_mut(IN_PLACE),
        Some(Sentinel::BufferAutomatic) => BUFFER_AUTOMATIC,
        Some(_) => at,
    }
}

/// Returns C's address of a status or of an array of statuses.
#[inline(always)]
pub(crate) fn status(at: *mut c_void) -> *mut c_void {
    match lookup(at as usize) {
        Some(Sentinel::Status) => null_mut(),
        _ => at,
    }
}

/// Returns C's address of error codes.
pub(crate) fn error_codes(at: *mut c_void) -> *mut c_void {
    match lookup(at as usize) {
        Some(Sentinel::ErrorCodes) => null_mut(),
        _ => at,
    }
}

/// Returns C's address of weights.
pub(crate) fn weights(at: *mut c_void) -> *mut c_void {
    match lookup(at as usize) {
        Some(Sentinel::Unweighted) => UNWEIGHTED,
        Some(Sentinel::WeightsEmpty) => WEIGHTS_EMPTY,
        _ => at,
    }
}

/// Returns whether an argument stands for no arguments of a command.
pub(crate) fn is_argv_null(at: *const u8) -> bool {
    lookup(at as usize) == Some(Sentinel::ArgvNull)
}

/// Returns whether an argument stands for no arguments of many commands.
pub(crate) fn is_argvs_null(at: *const u8) -> bool {
    lookup(at as usize) == Some(Sentinel::ArgvsNull)
}
