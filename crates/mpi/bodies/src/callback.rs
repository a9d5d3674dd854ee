//! Calls into the program: attribute, error-handler, reduction and generalised-request functions.
//!
//! A callback runs on the thread of the MPI call that needed it, with no lock of the library held.
//! The callback may call MPI. Any callback of a C++ program may throw (see `cpp_exceptions`). An
//! error handler may also `longjmp` or `exit`, so nothing here keeps state across a call.

use crate::abi::{Abi, HandleCell, HandleKind, StatusLayout};
use crate::c_args::{Buf, Callback};
use crate::callback_conventions::{
    ErrhandlerConvention, KeyConvention, ReductionCaller, ReductionConvention,
};
use crate::constants::MPI_ERR_OTHER;
use crate::cpp_exceptions::{self, Exception, catch_exception, set_pending};
use crate::datatype_refs::TypeRef;
use crate::objects;
use garonne_mpi::attr::AttrCallbacks;
use garonne_mpi::coll::Elements;
use garonne_mpi::datatype::Datatype;
use garonne_mpi::errhandler::ErrhandlerCallback;
use garonne_mpi::file::datarep::{ConvertedElements, DatarepFunctions};
use garonne_mpi::op::UserOp;
use garonne_mpi::request::Status;
use garonne_mpi::request::generalized::GeneralizedFunctions;
use garonne_sync::user::UserMem;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// `MPI_*_copy_attr_function`.
type CopyFn<H> = unsafe extern "C-unwind" fn(
    H,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_int,
) -> c_int;
/// `MPI_*_delete_attr_function`.
type DeleteFn<H> = unsafe extern "C-unwind" fn(H, c_int, *mut c_void, *mut c_void) -> c_int;
/// `MPI_*_errhandler_function`.
type ErrhandlerFn = unsafe extern "C-unwind" fn(*mut HandleCell, *mut c_int, ...);

/// Calls a function that returns an error code. An exception counts as failure; the enclosing MPI
/// call throws it again.
pub(crate) fn code<A: Abi>(call: impl FnOnce() -> c_int + Copy) -> Result<(), i32> {
    match catch_exception(call) {
        Ok(0) => Ok(()),
        Ok(error) => Err(A::native_error(error)),
        Err(exception) => {
            set_pending(exception);
            Err(MPI_ERR_OTHER)
        }
    }
}

/// The functions of an attribute key.
pub(crate) struct AttributeCallbacks<A> {
    /// Kind of the objects that have the attribute.
    pub kind: HandleKind,
    /// Copy function; may be one of the codes of the predefined null and dup functions.
    pub copy: Callback<A>,
    /// Delete function; may be the code of the predefined null function.
    pub delete: Callback<A>,
    /// Passed along.
    pub extra: Buf,
    /// Way in which functions of another language are called.
    pub convention: OnceLock<KeyConvention>,
}

impl<A: Abi> AttributeCallbacks<A> {
    /// Returns the object and the key as the program's functions get them.
    fn arguments(&self, owner: usize, keyval: i32) -> (A::Handle, c_int) {
        (A::handle(self.kind, owner), A::keyval(keyval))
    }
}

impl<A: Abi> AttrCallbacks for AttributeCallbacks<A> {
    fn copy(&self, owner: usize, keyval: i32, value: usize) -> Result<Option<usize>, i32> {
        if self.copy.is_dup() {
            return Ok(Some(value));
        }
        // SAFETY: the program gave this callback as a copy function of an attribute key.
        let Some(copy) = (unsafe { self.copy.function::<CopyFn<A::Handle>>() }) else {
            return Ok(None);
        };
        if let Some(convention) = self.convention.get() {
            let function = copy as usize;
            let arguments = self.arguments(owner, keyval);
            return convention.copy::<A>(function, arguments, self.extra.raw(), value);
        }
        let mut copied: usize = 0;
        let mut flag: c_int = 0;
        let value = Buf::from_addr(value).raw();
        let (to, flag_at) = ((&raw mut copied).cast(), &raw mut flag);
        let (owner, keyval) = self.arguments(owner, keyval);
        // SAFETY: the program's function, called as its prototype says; both places outlive the
        // call.
        code::<A>(|| unsafe { copy(owner, keyval, self.extra.raw(), value, to, flag_at) })?;
        Ok((flag != 0).then_some(copied))
    }

    fn delete(&self, owner: usize, keyval: i32, value: usize) -> Result<(), i32> {
        // SAFETY: the program gave this callback as a delete function of an attribute key.
        let Some(delete) = (unsafe { self.delete.function::<DeleteFn<A::Handle>>() }) else {
            return Ok(());
        };
        if let Some(convention) = self.convention.get() {
            let function = delete as usize;
            let arguments = self.arguments(owner, keyval);
            return convention.delete::<A>(function, arguments, self.extra.raw(), value);
        }
        let value = Buf::from_addr(value).raw();
        let (owner, keyval) = self.arguments(owner, keyval);
        // SAFETY: the program's function, called as its prototype says.
        code::<A>(|| unsafe { delete(owner, keyval, value, self.extra.raw()) })
    }
}

/// The function of a program's error handler.
pub(crate) struct ErrhandlerFunction<A> {
    /// Kind of the objects that have the handler.
    kind: HandleKind,
    function: Callback<A>,
    /// Way in which a function of another language is called.
    pub convention: OnceLock<ErrhandlerConvention>,
}

impl<A: Abi> ErrhandlerFunction<A> {
    pub fn new(kind: HandleKind, function: Callback<A>) -> Self {
        Self {
            kind,
            function,
            convention: OnceLock::new(),
        }
    }
}

impl<A: Abi> ErrhandlerCallback for ErrhandlerFunction<A> {
    fn call(&self, object: usize, code: i32) {
        let convention = self.convention.get();
        let cell = match convention {
            Some(ErrhandlerConvention::Handles(handle_cell)) => *handle_cell,
            _ => A::handle_cell,
        };
        let (mut object, mut code) = (cell(self.kind, object), A::error(code));
        // SAFETY: the program gave this callback as an error handler.
        let Some(handler) = (unsafe { self.function.function::<ErrhandlerFn>() }) else {
            return;
        };
        let (object, code) = (&raw mut object, &raw mut code);
        let called = match convention {
            Some(ErrhandlerConvention::Through(through)) => {
                catch_exception(|| through.call(self.kind, object, code, handler as usize))
            }
            // SAFETY: the program's function, called as its prototype says; both places outlive the
            // call.
            _ => catch_exception(|| unsafe { handler(object, code) }),
        };
        if let Err(exception) = called {
            set_pending(exception);
        }
    }
}

/// `MPI_Grequest_query_function`.
type QueryFn<S> = unsafe extern "C-unwind" fn(*mut c_void, *mut S) -> c_int;
/// `MPI_Grequest_free_function`.
type FreeFn = unsafe extern "C-unwind" fn(*mut c_void) -> c_int;
/// `MPI_Grequest_cancel_function`.
type CancelFn = unsafe extern "C-unwind" fn(*mut c_void, c_int) -> c_int;

/// The functions of a generalised request.
pub(crate) struct GeneralizedCallbacks<A> {
    /// Fills in the status.
    pub query: Callback<A>,
    /// Ends the request's use.
    pub free: Callback<A>,
    /// Function that `MPI_Cancel` calls.
    pub cancel: Callback<A>,
    /// Passed along.
    pub extra: Buf,
    /// The functions are Fortran's: they return the error code by a last argument.
    pub is_fortran: AtomicBool,
}

/// Query function of Fortran.
type FortranQueryFn<S> = unsafe extern "C-unwind" fn(*mut c_void, *mut S, *mut c_int);
/// Free function of Fortran.
type FortranFreeFn = unsafe extern "C-unwind" fn(*mut c_void, *mut c_int);
/// Cancel function of Fortran, with a `LOGICAL`.
type FortranCancelFn = unsafe extern "C-unwind" fn(*mut c_void, *mut c_int, *mut c_int);

impl<A: Abi> GeneralizedCallbacks<A> {
    /// Calls a function of Fortran, which gets a place for the error code.
    fn fortran(call: impl FnOnce(*mut c_int) + Copy) -> Result<(), i32> {
        code::<A>(|| {
            let mut code = 0;
            call(&raw mut code);
            code
        })
    }

    fn is_fortran(&self) -> bool {
        self.is_fortran.load(Ordering::Relaxed)
    }
}

impl<A: Abi> GeneralizedFunctions for GeneralizedCallbacks<A> {
    fn query(&self) -> Result<Status, i32> {
        let mut status = A::Status::encode(&Status::EMPTY);
        if self.is_fortran() {
            let at = &raw mut status;
            // SAFETY: the program gave this callback as a query function of Fortran.
            if let Some(query) = unsafe { self.query.function::<FortranQueryFn<A::Status>>() } {
                // SAFETY: the program's function; the status outlives the call.
                Self::fortran(|code| unsafe { query(self.extra.raw(), at, code) })?;
            }
            return Ok(status.decode());
        }
        // SAFETY: the program gave this callback as a query function.
        if let Some(query) = unsafe { self.query.function::<QueryFn<A::Status>>() } {
            let at = &raw mut status;
            // SAFETY: the program's function, called as its prototype says; the status outlives the
            // call.
            code::<A>(|| unsafe { query(self.extra.raw(), at) })?;
        }
        Ok(status.decode())
    }

    fn free(&self) -> Result<(), i32> {
        if self.is_fortran() {
            // SAFETY: the program gave this callback as a free function of Fortran.
            let free = unsafe { self.free.function::<FortranFreeFn>() };
            return free.map_or(Ok(()), |free| {
                // SAFETY: the program's function, called as its prototype says.
                Self::fortran(|code| unsafe { free(self.extra.raw(), code) })
            });
        }
        // SAFETY: the program gave this callback as a free function.
        let Some(free) = (unsafe { self.free.function::<FreeFn>() }) else {
            return Ok(());
        };
        // SAFETY: the program's function, called as its prototype says.
        code::<A>(|| unsafe { free(self.extra.raw()) })
    }

    fn cancel(&self, complete: bool) -> Result<(), i32> {
        if self.is_fortran() {
            let mut complete = c_int::from(complete);
            let complete = &raw mut complete;
            // SAFETY: the program gave this callback as a cancel function of Fortran.
            let cancel = unsafe { self.cancel.function::<FortranCancelFn>() };
            return cancel.map_or(Ok(()), |cancel| {
                // SAFETY: the program's function, called as its prototype says.
                Self::fortran(|code| unsafe { cancel(self.extra.raw(), complete, code) })
            });
        }
        // SAFETY: the program gave this callback as a cancel function.
        let Some(cancel) = (unsafe { self.cancel.function::<CancelFn>() }) else {
            return Ok(());
        };
        // SAFETY: the program's function, called as its prototype says.
        code::<A>(|| unsafe { cancel(self.extra.raw(), complete.into()) })
    }
}

/// `MPI_User_function`.
pub(crate) type UserFn =
    unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut c_int, *mut HandleCell);
/// `MPI_User_function_c`.
type UserFnLarge = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, *mut i64, *mut HandleCell);

/// A reduction function of the program's.
#[derive(Clone, Copy)]
pub(crate) struct UserFunction {
    function: CountedFunction,
    /// Converts the handle of the datatype for the function.
    handle_cell: fn(HandleKind, usize) -> HandleCell,
}

/// A reduction function with the width of its counts.
#[derive(Clone, Copy)]
enum CountedFunction {
    /// A function that takes `int` counts.
    Int(UserFn),
    /// A function that takes `MPI_Count` counts.
    Large(UserFnLarge),
    /// A function of another language, which this one calls.
    Through(ReductionCaller, usize),
}

impl UserFunction {
    /// Wraps a function that takes `int` counts; `None` for a null pointer.
    pub fn new<A: Abi>(function: Callback<A>) -> Option<Self> {
        // SAFETY: the program gave this callback as a reduction function.
        let function = CountedFunction::Int(unsafe { function.function::<UserFn>() }?);
        Some(Self {
            function,
            handle_cell: A::handle_cell,
        })
    }

    /// Wraps a function that takes `MPI_Count` counts; `None` for a null pointer.
    pub fn new_large<A: Abi>(function: Callback<A>) -> Option<Self> {
        // SAFETY: the program gave this callback as a reduction function with large counts.
        let function = CountedFunction::Large(unsafe { function.function::<UserFnLarge>() }?);
        Some(Self {
            function,
            handle_cell: A::handle_cell,
        })
    }

    /// Returns the function as another language wants it called.
    pub fn with(self, convention: ReductionConvention) -> Self {
        match (convention, self.function) {
            (ReductionConvention::Handles(handle_cell), function) => Self {
                function,
                handle_cell,
            },
            (ReductionConvention::Through(caller), CountedFunction::Int(function)) => Self {
                function: CountedFunction::Through(caller, function as usize),
                ..self
            },
            (ReductionConvention::Calls(other), CountedFunction::Int(function)) => Self {
                function: CountedFunction::Through(ReductionCaller::of(function), other),
                ..self
            },
            _ => self,
        }
    }
}

/// A reduction function of the program's in one reduction.
pub(crate) struct UserReduction {
    function: UserFunction,
    /// The datatype that the program passed to the reduction.
    datatype: TypeRef,
    /// True once the function threw. The function is not called again before the program received
    /// the exception.
    has_thrown: AtomicBool,
    thrown: Mutex<Option<Exception>>,
}

impl UserReduction {
    pub fn new(function: UserFunction, datatype: TypeRef) -> Self {
        Self {
            function,
            datatype,
            has_thrown: AtomicBool::new(false),
            thrown: Mutex::new(None),
        }
    }

    /// Returns whether the function threw an exception that the program has not received.
    pub fn has_thrown(&self) -> bool {
        self.has_thrown.load(Ordering::Acquire)
    }

    /// Calls the function. Should it throw, the reduction goes on without it, as the other ranks
    /// expect; its result is not defined.
    fn run(&self, call: impl FnOnce() + Copy) {
        if self.has_thrown() {
            return;
        }
        if let Err(exception) = catch_exception(call) {
            *self.thrown.lock().unwrap_or_else(PoisonError::into_inner) = Some(exception);
            self.has_thrown.store(true, Ordering::Release);
        }
    }

    /// Ends the reduction for the calling thread.
    ///
    /// # Errors
    /// Fails if the function threw; the current MPI call then throws the exception.
    pub fn end(&self) -> crate::call::Result<()> {
        if !self.has_thrown() {
            return Ok(());
        }
        let thrown = self
            .thrown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        self.has_thrown.store(false, Ordering::Release);
        thrown.into_iter().for_each(set_pending);
        cpp_exceptions::check_pending()
    }
}

impl UserOp for UserReduction {
    fn call(&self, invec: UserMem, inoutvec: UserMem, count: u64, datatype: &Datatype) {
        let mut handle =
            (self.function.handle_cell)(HandleKind::Datatype, self.datatype.handle().0);
        let handle = &raw mut handle;
        let in_parts = |call: &dyn Fn(*mut c_void, *mut c_void, *mut c_int)| {
            let mut done = 0;
            while done < count {
                let mut len = (count - done).min(c_int::MAX as u64) as c_int;
                let offset = (done as i64 * datatype.extent()) as isize;
                let (left, right) = (at(invec, offset), at(inoutvec, offset));
                done += len as u64;
                let len = &raw mut len;
                self.run(|| call(left, right, len));
            }
        };
        match self.function.function {
            // SAFETY: the program's function, called as its prototype says on memory the reduction
            // owns.
            CountedFunction::Int(function) => in_parts(&|left, right, len| unsafe {
                function(left, right, len, handle);
            }),
            CountedFunction::Through(caller, function) => {
                in_parts(&|left, right, len| caller.call((left, right), len, handle, function));
            }
            CountedFunction::Large(function) => {
                let mut len = count as i64;
                let (left, right, len) = (at(invec, 0), at(inoutvec, 0), &raw mut len);
                // SAFETY: the program's function, called as its prototype says on memory the
                // reduction owns.
                self.run(|| unsafe { function(left, right, len, handle) });
            }
        }
    }
}

fn at(mem: UserMem, offset: isize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(mem.addr(offset))
}

/// `MPI_Datarep_extent_function`.
type DatarepExtentFn<H> = unsafe extern "C-unwind" fn(H, *mut isize, *mut c_void) -> c_int;
/// `MPI_Datarep_conversion_function` and its form with large counts.
type DatarepConversionFn<H, N> =
    unsafe extern "C-unwind" fn(*mut c_void, H, N, *mut c_void, i64, *mut c_void) -> c_int;

/// A conversion function with the width of its counts; may be null.
#[derive(Clone, Copy)]
pub(crate) enum DatarepFunction<A> {
    /// A function that takes `int` counts.
    Int(Callback<A>),
    /// A function that takes `MPI_Count` counts.
    Large(Callback<A>),
}

/// The functions of a data representation.
pub(crate) struct DatarepCallbacks<A> {
    /// Converts what was read.
    pub read: DatarepFunction<A>,
    /// Converts what is written.
    pub write: DatarepFunction<A>,
    /// Returns sizes in the file.
    pub extent: Callback<A>,
    /// Passed along.
    pub extra: Buf,
}

/// Lends a handle for a datatype to a function of the program.
fn with_handle<T>(
    datatype: &Datatype,
    call: impl FnOnce(usize) -> Result<T, i32>,
) -> Result<T, i32> {
    if let Some(code) = datatype.code() {
        return call(code.into());
    }
    let handle = objects::publish_type(datatype.clone()).map_err(|_| MPI_ERR_OTHER)?;
    let outcome = call(handle.0);
    objects::types().remove(handle);
    outcome
}

impl<A: Abi> DatarepFunction<A> {
    fn is_null(self) -> bool {
        match self {
            Self::Int(function) | Self::Large(function) => function.is_null(),
        }
    }

    fn call(self, call: ConvertedElements<'_>, extra: Buf) -> Result<(), i32> {
        let Elements {
            mem,
            count,
            datatype,
        } = call.elements;
        let (user, stored) = (at(mem, 0), at(call.stored, 0));
        with_handle(datatype, |word| {
            let handle = || A::handle(HandleKind::Datatype, word);
            match self {
                Self::Int(function) => {
                    // SAFETY: the program gave this callback as a conversion function.
                    let convert =
                        unsafe { function.function::<DatarepConversionFn<A::Handle, c_int>>() };
                    let Some(convert) = convert else {
                        return Ok(());
                    };
                    let mut done = 0;
                    while done < count {
                        // The function is told where to go on, and the buffer is that of the rest.
                        let len = (count - done).min(c_int::MAX as u64);
                        let offset = stored_offset(&call, done);
                        let rest = at(call.stored, offset);
                        // SAFETY: the program's function, called as its prototype says; both
                        // buffers outlive the call.
                        code::<A>(|| unsafe {
                            convert(user, handle(), len as c_int, rest, done as i64, extra.raw())
                        })?;
                        done += len;
                    }
                    Ok(())
                }
                Self::Large(function) => {
                    // SAFETY: the program gave this callback as a conversion function.
                    let convert =
                        unsafe { function.function::<DatarepConversionFn<A::Handle, i64>>() };
                    let Some(convert) = convert else {
                        return Ok(());
                    };
                    // SAFETY: as above.
                    code::<A>(|| unsafe {
                        convert(user, handle(), count as i64, stored, 0, extra.raw())
                    })
                }
            }
        })
    }
}

/// Offset in the file's bytes of an element.
fn stored_offset(call: &ConvertedElements<'_>, element: u64) -> isize {
    (element * call.stored_size) as isize
}

impl<A: Abi> DatarepFunctions for DatarepCallbacks<A> {
    fn converts_reads(&self) -> bool {
        !self.read.is_null()
    }

    fn converts_writes(&self) -> bool {
        !self.write.is_null()
    }

    fn extent(&self, datatype: &Datatype) -> Result<i64, i32> {
        // SAFETY: the program gave this callback as an extent function.
        let function = unsafe { self.extent.function::<DatarepExtentFn<A::Handle>>() };
        let Some(function) = function else {
            return Ok(datatype.extent());
        };
        with_handle(datatype, |word| {
            let mut extent = 0;
            let place = &raw mut extent;
            // SAFETY: the program's function, called as its prototype says; the place outlives the
            // call.
            code::<A>(|| unsafe {
                function(
                    A::handle(HandleKind::Datatype, word),
                    place,
                    self.extra.raw(),
                )
            })?;
            Ok(extent as i64)
        })
    }

    fn read(&self, call: ConvertedElements<'_>) -> Result<(), i32> {
        self.read.call(call, self.extra)
    }

    fn write(&self, call: ConvertedElements<'_>) -> Result<(), i32> {
        self.write.call(call, self.extra)
    }
}
