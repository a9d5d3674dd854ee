//! Handles of Open MPI: a pointer in C, an integer in Fortran.
//!
//! The pointer of an object that a program makes is the core's word with the highest bit set, and
//! its integer is the word. Integers of predefined handles are small. The C library converts these
//! (`MPI_X_f2c`, `MPI_X_c2f`); what it said is kept.

use garonne_fortran::calls::symbol;
use garonne_fortran::family::HandleKind;
use std::ffi::{CStr, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bit of a C handle whose other bits are the word of an object that is not predefined.
const DYNAMIC: usize = 1 << 63;
/// Predefined handles of one kind, at most: the datatypes are most.
const PREDEFINED: usize = 73;
/// Kinds of handles.
const KINDS: usize = HandleKind::Win as usize + 1;

/// C handles by kind and integer; 0 where the C library was not asked yet.
static KNOWN: [[AtomicUsize; PREDEFINED]; KINDS] =
    [const { [const { AtomicUsize::new(0) }; PREDEFINED] }; KINDS];

/// Returns the C handle of a Fortran handle.
#[inline(always)]
pub(crate) fn to_c(kind: HandleKind, handle: c_int) -> usize {
    let word = handle as u32 as usize;
    let Some(place) = KNOWN[kind as usize].get(word) else {
        return DYNAMIC | word;
    };
    match place.load(Ordering::Relaxed) {
        0 => ask(kind, handle, place),
        known => known,
    }
}

/// Returns the Fortran handle of a C handle.
#[inline(always)]
pub(crate) fn from_c(kind: HandleKind, handle: usize) -> c_int {
    if handle & DYNAMIC != 0 {
        return handle as u32 as c_int;
    }
    predefined_from_c(kind, handle)
}

/// Asks the C library for the handle of an integer, and keeps it. Null for an integer that is none:
/// C refuses that.
#[cold]
#[inline(never)]
fn ask(kind: HandleKind, handle: c_int, place: &AtomicUsize) -> usize {
    type FromFortran = unsafe extern "C" fn(c_int) -> usize;
    let function = symbol(names(kind).0);
    if function.is_null() {
        return 0;
    }
    // SAFETY: the functions of these names have this type.
    let found = unsafe { transmute::<*mut c_void, FromFortran>(function)(handle) };
    place.store(found, Ordering::Relaxed);
    found
}

/// Returns the integer of a predefined handle.
fn predefined_from_c(kind: HandleKind, handle: usize) -> c_int {
    type ToFortran = unsafe extern "C" fn(usize) -> c_int;
    let mut known = KNOWN[kind as usize].iter();
    let found = known.position(|place| place.load(Ordering::Relaxed) == handle);
    if let Some(found) = found.filter(|_| handle != 0) {
        return found as c_int;
    }
    let function = symbol(names(kind).1);
    if function.is_null() {
        return -1;
    }
    // SAFETY: the functions of these names have this type, and take a handle that C returned.
    unsafe { transmute::<*mut c_void, ToFortran>(function)(handle) }
}

/// Names of the C functions that convert an integer to a handle, and a handle to an integer.
fn names(kind: HandleKind) -> (&'static CStr, &'static CStr) {
    match kind {
        HandleKind::Comm => (c"PMPI_Comm_f2c", c"PMPI_Comm_c2f"),
        HandleKind::Datatype => (c"PMPI_Type_f2c", c"PMPI_Type_c2f"),
        HandleKind::Errhandler => (c"PMPI_Errhandler_f2c", c"PMPI_Errhandler_c2f"),
        HandleKind::File => (c"PMPI_File_f2c", c"PMPI_File_c2f"),
        HandleKind::Group => (c"PMPI_Group_f2c", c"PMPI_Group_c2f"),
        HandleKind::Info => (c"PMPI_Info_f2c", c"PMPI_Info_c2f"),
        HandleKind::Message => (c"PMPI_Message_f2c", c"PMPI_Message_c2f"),
        HandleKind::Op => (c"PMPI_Op_f2c", c"PMPI_Op_c2f"),
        HandleKind::Request => (c"PMPI_Request_f2c", c"PMPI_Request_c2f"),
        HandleKind::Session => (c"PMPI_Session_f2c", c"PMPI_Session_c2f"),
        HandleKind::Win => (c"PMPI_Win_f2c", c"PMPI_Win_c2f"),
    }
}
