//! Calls into the program: attribute, error-handler, reduction and generalised-request functions.
//!
//! A callback runs on the thread of the MPI call that needed it, with no lock of the library held. It may call MPI, and
//! an error handler need not return (it may `longjmp` or `exit`), so nothing here keeps state across a call.

use crate::edge::{Buf, Callback};
use crate::handle::MPI_Status;
use crate::status;
use garonne_mpi::attr::Callbacks;
use garonne_mpi::request::Status;
use garonne_mpi::request::general::Operations;
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
