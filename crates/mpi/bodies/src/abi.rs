//! What the bodies need to know of an ABI.
//!
//! Wrappers and bodies speak the standard ABI. The library of another ABI converts scalars and
//! handles before it calls a wrapper and after. Two things cannot be converted so: a status, which
//! is written into the caller's memory in the caller's layout, and the arguments of callbacks,
//! which run later. Code for these is generic over [`Abi`].

pub use crate::status::StatusLayout;
use std::ffi::c_int;
use std::fmt::Debug;

pub mod convert;
pub mod fast;

pub use crate::c_args::{Callback, ConstPtr, Ptr, StrIn, StrOut};
pub use crate::entry::CallSite;
pub use crate::handle::{
    Handle, MPI_Comm, MPI_Datatype, MPI_Errhandler, MPI_File, MPI_Group, MPI_Info, MPI_Message,
    MPI_Op, MPI_Request, MPI_Session, MPI_Status, MPI_Win,
};
pub use garonne_mpi::request::Status;

/// ABIs beside the standard one that a library of ours has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OtherAbi {
    /// The MPICH family's, `libmpi.so.12`.
    Mpich,
    /// Open MPI's, `libmpi.so.40`.
    OpenMpi,
}

impl OtherAbi {
    /// Number of these ABIs.
    pub(crate) const COUNT: usize = 2;
}

/// Bit of a word of the standard ABI that stands for a handle of another ABI which is an `int` and
/// names nothing; the `int` is in the lower half.
pub const UNKNOWN_INT_HANDLE: usize = 1 << 32;

/// Bit of a word of the standard ABI that stands for a handle of another ABI which is a pointer and
/// names nothing; the other bits are the pointer.
pub const UNKNOWN_POINTER_HANDLE: usize = 1 << 62;

/// Bit in handles of files of MPICH's ABI, which are pointers: so nobody takes them for another's.
pub const FILE_MARK: usize = 1 << 61;

/// Word of `MPI::ERRORS_THROW_EXCEPTIONS` in MPICH's ABI, whose C++ library throws by itself.
pub const MPICH_THROWS: usize = UNKNOWN_POINTER_HANDLE | 1 << 61 | 0x100;

/// Word of `MPI::ERRORS_THROW_EXCEPTIONS` in Open MPI's ABI, which has functions that throw.
pub const OPENMPI_THROWS: usize = UNKNOWN_POINTER_HANDLE | 1 << 61 | 0x101;

/// Words of `MPI_LB` and `MPI_UB`, types of MPI 1 that the standard ABI has not, in the order of
/// the ABIs: MPICH's handles, and the first words of Open MPI's objects.
pub(crate) const BOUND_MARKERS: [[usize; 2]; OtherAbi::COUNT] = [
    [
        UNKNOWN_INT_HANDLE | 0x4c00_0010,
        UNKNOWN_INT_HANDLE | 0x4c00_0011,
    ],
    [
        UNKNOWN_POINTER_HANDLE | 1 << 61,
        (UNKNOWN_POINTER_HANDLE | 1 << 61) + 1,
    ],
];

/// Kinds of handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleKind {
    /// `MPI_Comm`.
    Comm,
    /// `MPI_Datatype`.
    Datatype,
    /// `MPI_Errhandler`.
    Errhandler,
    /// `MPI_File`.
    File,
    /// `MPI_Group`.
    Group,
    /// `MPI_Info`.
    Info,
    /// `MPI_Message`.
    Message,
    /// `MPI_Op`.
    Op,
    /// `MPI_Request`.
    Request,
    /// `MPI_Session`.
    Session,
    /// `MPI_Win`.
    Win,
}

/// Memory for a handle that a callback gets by address. The handle is at its beginning, whatever
/// the handle's size.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub struct HandleCell([u8; 8]);

impl HandleCell {
    /// Returns the cell of a handle that is a C `int`.
    pub fn of_int(handle: c_int) -> Self {
        let mut cell = [0; 8];
        cell[..4].copy_from_slice(&handle.to_ne_bytes());
        Self(cell)
    }

    /// Returns the cell of a handle that is a pointer or a word.
    pub fn of_word(handle: usize) -> Self {
        Self((handle as u64).to_ne_bytes())
    }
}

/// An ABI, as a type: its status, its handles in callbacks and its numbers.
///
/// A callback has the ABI of the call that registered it, whichever ABI the call has that runs it.
pub trait Abi: Copy + Eq + Debug + 'static {
    /// Status in this ABI's layout.
    type Status: StatusLayout;
    /// Handle as C passes it by value, of every kind but `MPI_File`.
    type Handle: Copy + PartialEq;
    /// Address that stands for the predefined function that copies an attribute. `None` if that is
    /// a function like any.
    const DUP_FN: Option<usize>;

    /// Converts a handle of the standard ABI.
    fn handle(kind: HandleKind, word: usize) -> Self::Handle;
    /// Converts a handle of the standard ABI for a callback that gets its address.
    fn handle_cell(kind: HandleKind, word: usize) -> HandleCell;
    /// Converts an attribute key of the standard ABI.
    fn keyval(native: c_int) -> c_int;
    /// Converts an error code of the standard ABI.
    fn error(native: c_int) -> c_int;
    /// Returns the error code of the standard ABI for one of this ABI.
    fn native_error(code: c_int) -> c_int;
}

/// The standard ABI of MPI 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StandardAbi;

impl Abi for StandardAbi {
    type Status = MPI_Status;
    type Handle = usize;
    const DUP_FN: Option<usize> = Some(1);

    fn handle(_: HandleKind, word: usize) -> usize {
        word
    }

    fn handle_cell(_: HandleKind, word: usize) -> HandleCell {
        HandleCell::of_word(word)
    }

    fn keyval(native: c_int) -> c_int {
        native
    }

    fn error(native: c_int) -> c_int {
        native
    }

    fn native_error(code: c_int) -> c_int {
        code
    }
}
