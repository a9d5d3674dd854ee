//! How callbacks of other languages than C are called.
//!
//! The Fortran and C++ libraries of other MPIs stand on the C functions. Where C expects a function
//! they pass one of their own language, and then tell the C library, by a function that only they
//! know, how to call it. An object keeps the first convention that it is told.

use crate::abi::{Abi, Callback, HandleCell, HandleKind};
use crate::callback::{AttributeCallbacks, ErrhandlerFunction, GeneralizedCallbacks, UserFn, code};
use crate::cpp_exceptions::{catch_exception, set_pending};
use crate::handle::{MPI_Errhandler, MPI_Op, MPI_Request};
use crate::request::request_entry;
use crate::{init_state, objects, op};
use garonne_mpi::errhandler::Errhandler;
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Converts a handle for a callback that gets its address.
pub type CellConversion = fn(HandleKind, usize) -> HandleCell;

/// Calls a reduction function of C++: vectors, count, datatype, the program's function.
type ReductionByValue =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, c_int, c_int, *const c_void);
/// Calls a reduction function of C++ with count and datatype by address.
type ReductionByAddress = unsafe extern "C-unwind" fn(
    *mut c_void,
    *mut c_void,
    *mut c_int,
    *mut HandleCell,
    *const c_void,
);

/// A function of another MPI's C++ library that calls reduction functions of programs.
#[derive(Clone, Copy)]
pub enum ReductionCaller {
    /// MPICH's: a handle is an `int`.
    ByValue(ReductionByValue),
    /// Open MPI's.
    ByAddress(ReductionByAddress),
}

impl ReductionCaller {
    /// The caller that MPICH's library names; `None` for a null pointer.
    pub fn by_value<A: Abi>(caller: Callback<A>) -> Option<Self> {
        // SAFETY: MPICH's library names a function of this type.
        unsafe { caller.function() }.map(Self::ByValue)
    }

    /// The caller that was given as the function of an operation.
    pub(crate) fn of(function: UserFn) -> Self {
        // SAFETY: both are functions, and Open MPI's library says that this one takes a further
        // argument.
        Self::ByAddress(unsafe { std::mem::transmute::<UserFn, ReductionByAddress>(function) })
    }

    /// Calls the program's function.
    pub(crate) fn call(
        self,
        (left, right): (*mut c_void, *mut c_void),
        len: *mut c_int,
        datatype: *mut HandleCell,
        function: usize,
    ) {
        let function = function as *const c_void;
        // SAFETY: the caller was given for functions of this kind, and the vectors are those of the
        // reduction.
        unsafe {
            match self {
                Self::ByValue(call) => {
                    call(left, right, *len, *datatype.cast::<c_int>(), function);
                }
                Self::ByAddress(call) => call(left, right, len, datatype, function),
            }
        }
    }
}

/// Way in which the function of a reduction operation is called.
#[derive(Clone, Copy)]
pub enum ReductionConvention {
    /// Called like a function of C, with other handles.
    Handles(CellConversion),
    /// By another function.
    Through(ReductionCaller),
    /// The function with which the operation was made calls the one at this address.
    Calls(usize),
}

/// Calls an error handler of C++: kind of object, its handle, the code, the program's function.
type ErrhandlerByKind =
    unsafe extern "C-unwind" fn(c_int, *mut HandleCell, *mut c_int, *const c_void);
/// Calls an error handler of C++: the object's handle, the code, a text, the program's function.
type ErrhandlerOfOneKind =
    unsafe extern "C-unwind" fn(*mut HandleCell, *mut c_int, *const c_void, *const c_void);

/// A function of another MPI's C++ library that calls error handlers of programs.
#[derive(Clone, Copy)]
pub enum ErrhandlerCaller {
    /// MPICH's, for all kinds of objects.
    ByKind(ErrhandlerByKind),
    /// Open MPI's, which its library stores at a place when the handler was made.
    StoredAt(&'static AtomicUsize),
}

impl ErrhandlerCaller {
    /// The caller that MPICH's library names; `None` for a null pointer.
    pub fn by_kind<A: Abi>(caller: Callback<A>) -> Option<Self> {
        // SAFETY: MPICH's library names a function of this type.
        unsafe { caller.function() }.map(Self::ByKind)
    }

    /// Calls the function that Open MPI's library stored at a place, if it stored one.
    pub fn call_stored(
        place: &'static AtomicUsize,
        kind: HandleKind,
        mut object: HandleCell,
        mut code: c_int,
    ) {
        Self::StoredAt(place).call(kind, &raw mut object, &raw mut code, 0);
    }

    /// Calls the program's function.
    pub(crate) fn call(
        self,
        kind: HandleKind,
        object: *mut HandleCell,
        code: *mut c_int,
        function: usize,
    ) {
        let kind = match kind {
            HandleKind::File => 1,
            HandleKind::Win => 2,
            _ => 0,
        };
        let function = function as *const c_void;
        // SAFETY: the caller was given for functions of this kind; both places outlive the call.
        unsafe {
            match self {
                Self::ByKind(call) => call(kind, object, code, function),
                Self::StoredAt(place) => {
                    let stored = place.load(Ordering::Relaxed);
                    if stored != 0 {
                        let call = std::mem::transmute::<usize, ErrhandlerOfOneKind>(stored);
                        call(object, code, std::ptr::null(), function);
                    }
                }
            }
        }
    }
}

/// Calls what `MPI::ERRORS_THROW_EXCEPTIONS` holds in Open MPI's ABI: kind of object, its word, the
/// error code.
pub type ThrowOpenMpi = fn(HandleKind, usize, c_int);

static THROW_OPENMPI: OnceLock<ThrowOpenMpi> = OnceLock::new();

/// Says what calls the functions of `MPI::ERRORS_THROW_EXCEPTIONS` in Open MPI's ABI.
pub fn set_throw_openmpi(throw: ThrowOpenMpi) {
    let _ = THROW_OPENMPI.set(throw);
}

/// Calls the function of `MPI::ERRORS_THROW_EXCEPTIONS` in Open MPI's ABI.
pub(crate) fn throw_openmpi(kind: HandleKind, object: usize, code: c_int) {
    let Some(throw) = THROW_OPENMPI.get() else {
        return;
    };
    if let Err(exception) = catch_exception(|| throw(kind, object, code)) {
        set_pending(exception);
    }
}

/// Way in which the function of an error handler is called.
#[derive(Clone, Copy)]
pub enum ErrhandlerConvention {
    /// Called like a function of C, with other handles.
    Handles(CellConversion),
    /// By another function.
    Through(ErrhandlerCaller),
}

/// Calls a copy function: the program's function, object, key, extra state, kind of the value, the
/// value, places for the copy and for whether there is one.
type CopyCaller<H> = unsafe extern "C-unwind" fn(
    *const c_void,
    H,
    c_int,
    *mut c_void,
    c_int,
    *mut c_void,
    *mut *mut c_void,
    *mut c_int,
) -> c_int;
/// Calls a delete function: the program's function, object, key, kind of the value, the value,
/// extra state.
type DeleteCaller<H> =
    unsafe extern "C-unwind" fn(*const c_void, H, c_int, c_int, *mut c_void, *mut c_void) -> c_int;

/// Kinds of attribute values in MPICH: an address that C has set, and a number that Fortran has
/// set.
const POINTER: c_int = 0;
const NUMBER: c_int = 1;

/// Way in which MPICH's libraries want the functions of an attribute key called. The handle is that
/// of the ABI in which the key was made.
#[derive(Clone, Copy)]
pub struct KeyConvention {
    /// Address of the function that calls copy functions.
    pub copy: usize,
    /// Address of the function that calls delete functions.
    pub delete: usize,
    /// Returns the number that Fortran has set, if the value is one.
    pub number: fn(usize) -> Option<isize>,
    /// Returns the value for a number of Fortran.
    pub value: fn(isize) -> usize,
}

impl KeyConvention {
    /// Returns kind and value for a caller, and whether it is a number.
    fn passed(&self, value: usize) -> (c_int, *mut c_void) {
        match (self.number)(value) {
            Some(number) => (NUMBER, number as *mut c_void),
            None => (POINTER, value as *mut c_void),
        }
    }

    /// Calls a copy function.
    pub(crate) fn copy<A: Abi>(
        &self,
        function: usize,
        (object, keyval): (A::Handle, c_int),
        extra: *mut c_void,
        value: usize,
    ) -> Result<Option<usize>, i32> {
        let (kind, passed) = self.passed(value);
        let (mut copied, mut flag) = (std::ptr::null_mut(), 0);
        let (to, flag_at) = (&raw mut copied, &raw mut flag);
        let function = function as *const c_void;
        // SAFETY: the address was given as that of a function of this type.
        let caller = unsafe { std::mem::transmute::<usize, CopyCaller<A::Handle>>(self.copy) };
        // SAFETY: as above; both places outlive the call.
        code::<A>(|| unsafe {
            caller(function, object, keyval, extra, kind, passed, to, flag_at)
        })?;
        let copied = match kind {
            NUMBER => (self.value)(copied as isize),
            _ => copied as usize,
        };
        Ok((flag != 0).then_some(copied))
    }

    /// Calls a delete function.
    pub(crate) fn delete<A: Abi>(
        &self,
        function: usize,
        (object, keyval): (A::Handle, c_int),
        extra: *mut c_void,
        value: usize,
    ) -> Result<(), i32> {
        let (kind, passed) = self.passed(value);
        let function = function as *const c_void;
        // SAFETY: the address was given as that of a function of this type.
        let caller = unsafe { std::mem::transmute::<usize, DeleteCaller<A::Handle>>(self.delete) };
        // SAFETY: as above.
        code::<A>(|| unsafe { caller(function, object, keyval, kind, passed, extra) })
    }
}

/// Says how the function of an operation is called.
pub fn set_reduction(handle: MPI_Op, convention: ReductionConvention) {
    op::set_convention(handle, convention);
}

/// Says how the function of an error handler is called, which was made in the ABI `A`.
pub fn set_errhandler<A: Abi>(handle: MPI_Errhandler, convention: ErrhandlerConvention) {
    if let Ok(Errhandler::User(user)) = objects::errhandler(handle) {
        let callback: &dyn Any = &*user.callback;
        if let Some(function) = callback.downcast_ref::<ErrhandlerFunction<A>>() {
            let _ = function.convention.set(convention);
        }
    }
}

/// Says how the functions of an attribute key are called, which was made in the ABI `A`.
/// `keyval` is a key of the standard ABI.
pub fn set_key<A: Abi>(keyval: c_int, convention: KeyConvention) {
    let Ok(process) = init_state::process() else {
        return;
    };
    if let Some(callbacks) = process.keyvals.callbacks(keyval) {
        let callbacks: &dyn Any = &*callbacks;
        if let Some(functions) = callbacks.downcast_ref::<AttributeCallbacks<A>>() {
            let _ = functions.convention.set(convention);
        }
    }
}

/// Says that the functions of a generalized request are Fortran's. The request was made in the ABI
/// `A`.
pub fn set_fortran_request<A: Abi>(handle: MPI_Request) {
    let general = request_entry(handle)
        .ok()
        .and_then(|entry| entry.general.as_ref());
    if let Some(general) = general {
        let functions: &dyn Any = general.functions();
        if let Some(functions) = functions.downcast_ref::<GeneralizedCallbacks<A>>() {
            functions.is_fortran.store(true, Ordering::Relaxed);
        }
    }
}
