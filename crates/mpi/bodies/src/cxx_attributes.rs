//! Attribute functions of C++ programs over Open MPI's C++ library.
//!
//! The library's own functions, which a key is made with, look into Open MPI's memory behind a
//! communicator to learn its class. They are passed over: the core makes the object of that class
//! and calls the program's function. Types and classes are those of Open MPI 4, the last one with
//! C++.

use crate::abi::HandleKind;
use crate::abi::convert::HandleConversion;
use crate::callback_conventions::KeyConvention;
use crate::constants::{MPI_CART, MPI_ERR_OTHER, MPI_GRAPH};
use crate::cpp_exceptions::find_symbol;
use crate::handle::MPI_Comm;
use crate::objects::find_comm;
use std::ffi::{CStr, c_int, c_void};

/// Copy function of C++: communicator, key, extra state, value, place for the copy, whether there
/// is one.
type CxxCopy = unsafe extern "C-unwind" fn(
    *const CommObject,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
    *mut bool,
) -> c_int;
/// Delete function of C++: communicator, key, value, extra state.
type CxxDelete =
    unsafe extern "C-unwind" fn(*mut CommObject, c_int, *mut c_void, *mut c_void) -> c_int;
/// Copy function of C.
type Copy = unsafe extern "C-unwind" fn(
    usize,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut *mut c_void,
    *mut c_int,
) -> c_int;
/// Delete function of C.
type Delete = unsafe extern "C-unwind" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;

/// What the library keeps of a key, and passes as its extra state.
#[repr(C)]
struct KeyData {
    copy: Option<Copy>,
    delete: Option<Delete>,
    cxx_copy: Option<CxxCopy>,
    cxx_delete: Option<CxxDelete>,
    extra: *mut c_void,
}

/// An object of `MPI::Intracomm` or of another class of communicators.
#[repr(C)]
struct CommObject {
    functions: *const c_void,
    handle: usize,
}

/// Bytes before the first function in a table of virtual functions.
const HEAD_OF_TABLE: usize = 16;

impl CommObject {
    /// Makes the object for a communicator. `function` is one of the library's, which has the
    /// tables of the classes. `None` if it has not.
    fn new<A: HandleConversion<usize>>(function: *const c_void, handle: usize) -> Option<Self> {
        let comm = find_comm(MPI_Comm(A::to_native(HandleKind::Comm, handle)));
        let topology = comm.and_then(|comm| comm.topology().map(|topology| topology.number()));
        let table: &CStr = match topology {
            Some(MPI_CART) => c"_ZTVN3MPI8CartcommE",
            Some(MPI_GRAPH) => c"_ZTVN3MPI9GraphcommE",
            _ if comm.is_some_and(|comm| comm.is_inter()) => c"_ZTVN3MPI9IntercommE",
            _ => c"_ZTVN3MPI9IntracommE",
        };
        let table = find_symbol(function.expose_provenance(), table)?;
        Some(Self {
            functions: table.wrapping_byte_add(HEAD_OF_TABLE),
            handle,
        })
    }
}

/// Calls the program's copy function. The parameters are those of MPICH's callers.
unsafe extern "C-unwind" fn copy<A: HandleConversion<usize>>(
    function: *const c_void,
    handle: usize,
    keyval: c_int,
    data: *mut c_void,
    _kind: c_int,
    value: *mut c_void,
    copied: *mut *mut c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: the library gave this as the extra state of the key. The functions are the program's,
    // called as their prototypes say, and both places outlive the call.
    unsafe {
        let data = &*data.cast::<KeyData>();
        if let Some(copy) = data.copy {
            return copy(handle, keyval, data.extra, value, copied, flag);
        }
        let object = CommObject::new::<A>(function, handle);
        let (Some(copy), Some(object)) = (data.cxx_copy, object) else {
            return MPI_ERR_OTHER;
        };
        let mut is_copied = *flag != 0;
        let to = &raw mut is_copied;
        let code = copy(&raw const object, keyval, data.extra, value, copied, to);
        *flag = is_copied.into();
        code
    }
}

/// Calls the program's delete function. The parameters are those of MPICH's callers.
unsafe extern "C-unwind" fn delete<A: HandleConversion<usize>>(
    function: *const c_void,
    handle: usize,
    keyval: c_int,
    _kind: c_int,
    value: *mut c_void,
    data: *mut c_void,
) -> c_int {
    // SAFETY: as in `copy`.
    unsafe {
        let data = &*data.cast::<KeyData>();
        if let Some(delete) = data.delete {
            return delete(handle, keyval, value, data.extra);
        }
        let object = CommObject::new::<A>(function, handle);
        let (Some(delete), Some(mut object)) = (data.cxx_delete, object) else {
            return MPI_ERR_OTHER;
        };
        delete(&raw mut object, keyval, value, data.extra)
    }
}

/// Returns how the functions of a key of communicators are called that the C++ library made in the
/// ABI `A`.
pub fn convention<A: HandleConversion<usize>>() -> KeyConvention {
    KeyConvention {
        copy: copy::<A> as *const () as usize,
        delete: delete::<A> as *const () as usize,
        number: |_| None,
        value: |number| number as usize,
    }
}
