//! Calls into the program: attribute, error-handler, reduction and generalised-request functions.
//!
//! A callback runs on the thread of the MPI call that needed it, with no lock of the library held. It may call MPI.
//! Any callback of a C++ program may throw; the exception passes through the library to the program's own call of MPI.
//! An error handler may also `longjmp` or `exit`. So nothing here keeps state across a call.

use crate::edge::{Buf, Callback};
use crate::handle::{MPI_Datatype, MPI_Status};
use crate::status;
use crate::type_refs::TypeRef;
use garonne_mpi::attr::Callbacks;
use garonne_mpi::datatype::Datatype;
use garonne_mpi::op::UserOp;
use garonne_mpi::request::Status;
use garonne_mpi::request::general::Operations;
use garonne_sync::user::UserMem;
use std::ffi::{c_int, c_void};

/// `MPI_*_copy_attr_function`: the object's handle is a word for every kind.
type CopyFn = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void, *mut c_void, *mut c_int) -> c_int;
/// `MPI_*_delete_attr_function`.
type DeleteFn = unsafe extern "C" fn(usize, c_int, *mut c_void, *mut c_void) -> c_int;
/// `MPI_*_errhandler_function`.
type ErrhandlerFn = unsafe extern "C" fn(*mut usize, *mut c_int, ...);

/// The functions of an attribute key.
pub(crate) struct Attribute {
    /// May be the code of a null or dup function.
    pub copy: Callback,
    /// May be the code of a null function.
    pub delete: Callback,
    /// Passed along.
    pub extra: Buf,
}

impl Callbacks for Attribute {
    fn copy(&self, owner: usize, keyval: i32, value: usize) -> Result<Option<usize>, i32> {
        if self.copy.is_dup() {
            return Ok(Some(value));
        }
        // SAFETY: the program gave this callback as a copy function of an attribute key.
        let Some(copy) = (unsafe { self.copy.function::<CopyFn>() }) else {
            return Ok(None);
        };
        let mut copied: usize = 0;
        let mut flag: c_int = 0;
        let value = Buf::from_addr(value).raw();
        // SAFETY: the program's function, called as its prototype says; both places outlive the call.
        let error = unsafe {
            copy(
                owner,
                keyval,
                self.extra.raw(),
                value,
                (&raw mut copied).cast(),
                &mut flag,
            )
        };
        if error != 0 {
            Err(error)
        } else {
            Ok((flag != 0).then_some(copied))
        }
    }

    fn delete(&self, owner: usize, keyval: i32, value: usize) -> Result<(), i32> {
        // SAFETY: the program gave this callback as a delete function of an attribute key.
        let Some(delete) = (unsafe { self.delete.function::<DeleteFn>() }) else {
            return Ok(());
        };
        // SAFETY: the program's function, called as its prototype says.
        let error = unsafe { delete(owner, keyval, Buf::from_addr(value).raw(), self.extra.raw()) };
        if error != 0 { Err(error) } else { Ok(()) }
    }
}

/// Wraps a program's error handler.
pub(crate) fn errhandler(function: Callback) -> garonne_mpi::errhandler::Callback {
    Box::new(move |object, code| {
        let (mut object, mut code) = (object, code);
        // SAFETY: the program gave this callback as an error handler.
        if let Some(handler) = unsafe { function.function::<ErrhandlerFn>() } {
            // SAFETY: the program's function, called as its prototype says; both places outlive the call.
            unsafe { handler(&mut object, &mut code) }
        }
    })
}

/// `MPI_Grequest_query_function`.
type QueryFn = unsafe extern "C" fn(*mut c_void, *mut MPI_Status) -> c_int;
/// `MPI_Grequest_free_function`.
type FreeFn = unsafe extern "C" fn(*mut c_void) -> c_int;
/// `MPI_Grequest_cancel_function`.
type CancelFn = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

/// The functions of a generalised request.
pub(crate) struct General {
    /// Fills in the status.
    pub query: Callback,
    /// Ends the request's use.
    pub free: Callback,
    /// Hears of `MPI_Cancel`.
    pub cancel: Callback,
    /// Passed along.
    pub extra: Buf,
}

fn code(error: c_int) -> Result<(), i32> {
    if error != 0 { Err(error) } else { Ok(()) }
}

impl Operations for General {
    fn query(&self) -> Result<Status, i32> {
        let mut status = status::encode(&Status::EMPTY);
        // SAFETY: the program gave this callback as a query function.
        if let Some(query) = unsafe { self.query.function::<QueryFn>() } {
            // SAFETY: the program's function, called as its prototype says; the status outlives the call.
            code(unsafe { query(self.extra.raw(), &mut status) })?;
        }
        Ok(status::decode(&status))
    }

    fn free(&self) -> Result<(), i32> {
        // SAFETY: the program gave this callback as a free function.
        let Some(free) = (unsafe { self.free.function::<FreeFn>() }) else {
            return Ok(());
        };
        // SAFETY: the program's function, called as its prototype says.
        code(unsafe { free(self.extra.raw()) })
    }

    fn cancel(&self, complete: bool) -> Result<(), i32> {
        // SAFETY: the program gave this callback as a cancel function.
        let Some(cancel) = (unsafe { self.cancel.function::<CancelFn>() }) else {
            return Ok(());
        };
        // SAFETY: the program's function, called as its prototype says.
        code(unsafe { cancel(self.extra.raw(), complete.into()) })
    }
}

/// `MPI_User_function`.
type UserFn = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype);
/// `MPI_User_function_c`.
type UserFnLarge = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut i64, *mut MPI_Datatype);

/// A reduction function of the program's.
#[derive(Clone, Copy)]
pub(crate) enum Function {
    /// With `int` counts.
    Int(Callback),
    /// With large counts.
    Large(Callback),
}

/// A reduction function of the program's in one reduction.
pub(crate) struct Bound {
    /// What to call.
    pub function: Function,
    /// The datatype that the program passed to the reduction.
    pub datatype: TypeRef,
}

impl UserOp for Bound {
    fn call(&self, invec: UserMem, inoutvec: UserMem, count: u64, datatype: &Datatype) {
        let mut handle = self.datatype.handle();
        match self.function {
            Function::Int(function) => {
                // SAFETY: the program gave this callback as a reduction function.
                let Some(function) = (unsafe { function.function::<UserFn>() }) else {
                    return;
                };
                let mut done = 0;
                while done < count {
                    let mut len = (count - done).min(c_int::MAX as u64) as c_int;
                    let offset = (done as i64 * datatype.extent()) as isize;
                    let (left, right) = (at(invec, offset), at(inoutvec, offset));
                    let part = len as u64;
                    // SAFETY: the program's function, called as its prototype says on memory the reduction owns.
                    unsafe { function(left, right, &mut len, &mut handle) };
                    done += part;
                }
            }
            Function::Large(function) => {
                // SAFETY: the program gave this callback as a reduction function with large counts.
                let Some(function) = (unsafe { function.function::<UserFnLarge>() }) else {
                    return;
                };
                let mut len = count as i64;
                // SAFETY: the program's function, called as its prototype says on memory the reduction owns.
                unsafe { function(at(invec, 0), at(inoutvec, 0), &mut len, &mut handle) };
            }
        }
    }
}

fn at(mem: UserMem, offset: isize) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(mem.addr(offset))
}
