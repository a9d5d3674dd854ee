//! Functions that Open MPI's libraries for Fortran and C++ call: how callbacks of these
//! languages are called.

#![allow(non_snake_case, reason = "the names are those of Open MPI")]

use crate::handles::{OBJECT_WORDS, OpenMpi, fortran_cell, make_object};
use crate::wrappers::{
    native_errhandler, native_keyval, native_op, own_error, wrap_MPI_Comm_create_errhandler,
    wrap_MPI_Comm_create_keyval, wrap_MPI_File_create_errhandler, wrap_MPI_Type_create_keyval,
    wrap_MPI_Win_create_errhandler, wrap_MPI_Win_create_keyval,
};
use garonne_bodies::abi::convert::{Buf, CallSite, HandleConversion, NumberPlace, Ptr};
use garonne_bodies::abi::{Abi, Callback, HandleKind, MPI_Comm};
use garonne_bodies::callback_conventions::{
    ErrhandlerCaller, ErrhandlerConvention, ReductionConvention, set_errhandler, set_key,
    set_reduction, set_throw_openmpi,
};
use garonne_bodies::cxx_attributes;
use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;

/// Says that the function of an operation takes integers for handles.
pub extern "C-unwind" fn wrap_garonne_openmpi_op_takes_fortran_handles(op: usize, _: CallSite) {
    set_reduction(native_op(op), ReductionConvention::Handles(fortran_cell));
}

/// Says that the function of an error handler takes integers for handles.
pub extern "C-unwind" fn wrap_garonne_openmpi_errhandler_takes_fortran_handles(
    errhandler: usize,
    _: CallSite,
) {
    let convention = ErrhandlerConvention::Handles(fortran_cell);
    set_errhandler::<OpenMpi>(native_errhandler(errhandler), convention);
}

/// Says that the function with which an operation was made calls this function of C++.
pub extern "C-unwind" fn wrap_ompi_op_set_cxx_callback(op: usize, function: Buf, _: CallSite) {
    set_reduction(native_op(op), ReductionConvention::Calls(function.addr()));
}

/// Kinds of objects with error handlers.
const COMM: c_int = 1;
const WIN: c_int = 2;
const FILE: c_int = 3;
/// Language of an error handler: C++.
const CXX: c_int = 1;
/// Word of an error handler's object where the C++ library stores the function that calls the
/// program's.
const CALLER: usize = 0x78 / size_of::<usize>();
/// `MPI_ERR_ARG` of the standard ABI.
const MPI_ERR_ARG: c_int = 13;
/// `MPI_COMM_WORLD` of the standard ABI.
const WORLD: MPI_Comm = MPI_Comm(0x101);

/// Creates an error handler; null if that fails. The handler of C++ is an object, in which the C++
/// library then stores what calls it.
pub extern "C-unwind" fn wrap_ompi_errhandler_create(
    kind: c_int,
    function: Callback<OpenMpi>,
    language: c_int,
    site: CallSite,
) -> usize {
    let place = NumberPlace::<usize>::default();
    let create = match kind {
        COMM => wrap_MPI_Comm_create_errhandler,
        WIN => wrap_MPI_Win_create_errhandler,
        FILE => wrap_MPI_File_create_errhandler,
        _ => return 0,
    };
    if create(function, place.native(), site) != 0 {
        return 0;
    }
    let handle = place.get();
    if language != CXX {
        return handle;
    }
    let word = OpenMpi::to_native(HandleKind::Errhandler, handle);
    let Some(object) = make_object(word) else {
        return 0;
    };
    let caller = ErrhandlerCaller::StoredAt(&object[CALLER]);
    let convention = ErrhandlerConvention::Through(caller);
    set_errhandler::<OpenMpi>(native_errhandler(handle), convention);
    object.as_ptr().expose_provenance()
}

/// Object of `MPI::ERRORS_THROW_EXCEPTIONS`.
static EXCEPTIONS: OnceLock<&'static [AtomicUsize; OBJECT_WORDS]> = OnceLock::new();
/// Word of that object where the C++ library stores its function for communicators; those for
/// files and for windows follow.
const THROWERS: usize = 0x58 / size_of::<usize>();

/// Keeps the object of `MPI::ERRORS_THROW_EXCEPTIONS`.
pub(crate) fn set_exceptions(object: &'static [AtomicUsize; OBJECT_WORDS]) {
    let _ = EXCEPTIONS.set(object);
    set_throw_openmpi(throw);
}

/// Calls the function that the C++ library stored for a kind of objects, if it stored one.
fn throw(kind: HandleKind, object: usize, code: c_int) {
    let at = match kind {
        HandleKind::File => THROWERS + 1,
        HandleKind::Win => THROWERS + 2,
        _ => THROWERS,
    };
    if let Some(words) = EXCEPTIONS.get() {
        let object = OpenMpi::handle_cell(kind, object);
        ErrhandlerCaller::call_stored(&words[at], kind, object, own_error(code));
    }
}

/// Kinds of attribute keys.
const COMM_ATTR: c_int = 1;
const TYPE_ATTR: c_int = 2;
const WIN_ATTR: c_int = 3;

/// Creates an attribute key for the C++ library. Its functions for communicators find out a
/// communicator's class in Open MPI's memory behind the handle, so the program's functions, which
/// `data` names, are called without them.
pub extern "C-unwind" fn wrap_ompi_attr_create_keyval(
    kind: c_int,
    copy: Callback<OpenMpi>,
    delete: Callback<OpenMpi>,
    keyval: Ptr<c_int>,
    extra: Buf,
    _flags: c_int,
    data: Buf,
    site: CallSite,
) -> c_int {
    let create = match kind {
        COMM_ATTR => wrap_MPI_Comm_create_keyval,
        TYPE_ATTR => wrap_MPI_Type_create_keyval,
        WIN_ATTR => wrap_MPI_Win_create_keyval,
        _ => return own_error(MPI_ERR_ARG),
    };
    let code = create(copy, delete, keyval, extra, site);
    if code == 0
        && kind == COMM_ATTR
        && data.addr() != 0
        && let Ok(key) = keyval.get()
    {
        set_key::<OpenMpi>(native_keyval(key), cxx_attributes::convention::<OpenMpi>());
    }
    code
}

/// Raises an error of the C++ library on `MPI_COMM_WORLD`.
pub extern "C-unwind" fn wrap_ompi_errhandler_invoke(
    _errhandler: usize,
    _object: usize,
    _kind: c_int,
    code: c_int,
    _text: Buf,
    site: CallSite,
) -> c_int {
    let native = crate::wrappers::native_error(code);
    garonne_bodies::wrappers::wrap_MPI_Comm_call_errhandler(WORLD, native, site);
    code
}
