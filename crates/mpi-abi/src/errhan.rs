//! Error handlers: raising a fault, classes and codes that the program adds, error strings.

use crate::call::{Call, Fault, Holder, Result};
use crate::constants::*;
use crate::edge::{Ptr, StrOut};
use garonne_mpi::error::Class;
use std::ffi::c_int;

/// Raises `fault` on the error handler that `holder` has, and returns what the call returns.
#[cold]
#[inline(never)]
pub(crate) fn raise(call: Call, holder: Holder, fault: &Fault) -> c_int {
    let _ = holder;
    die(call, fault)
}

/// `MPI_ERRORS_ARE_FATAL` before there is a job: says what happened and ends this process.
fn die(call: Call, fault: &Fault) -> ! {
    eprintln!(
        "error[MPI {}]: {}\n  in {}",
        fault.value(),
        fault.detail(),
        call.name()
    );
    // SAFETY: flushes and ends the process; exit handlers of a program in an unknown state do not run.
    unsafe {
        libc::fflush(std::ptr::null_mut());
        libc::_exit(1)
    }
}

pub(crate) fn error_class(call: Call, code: c_int, class: Ptr<c_int>) -> Result<()> {
    let _ = call;
    if string_of(code).is_none() {
        return Err(Fault::new(Class::Arg, format!("{code} is no error code")));
    }
    class.set(code)
}

pub(crate) fn error_string(call: Call, code: c_int, text: StrOut, len: Ptr<c_int>) -> Result<()> {
    let _ = call;
    let string = string_of(code).ok_or_else(|| Fault::new(Class::Arg, format!("{code} is no error code")))?;
    let written = text.write(string, MPI_MAX_ERROR_STRING as usize)?;
    len.set(written as c_int)
}

/// The sentence of an error class of the standard.
fn string_of(code: c_int) -> Option<&'static str> {
    Some(match code {
        MPI_SUCCESS => "MPI_SUCCESS: no error",
        MPI_ERR_BUFFER => "MPI_ERR_BUFFER: invalid buffer pointer",
        MPI_ERR_COUNT => "MPI_ERR_COUNT: invalid count argument",
        MPI_ERR_TYPE => "MPI_ERR_TYPE: invalid datatype argument",
        MPI_ERR_TAG => "MPI_ERR_TAG: invalid tag argument",
        MPI_ERR_COMM => "MPI_ERR_COMM: invalid communicator",
        MPI_ERR_RANK => "MPI_ERR_RANK: invalid rank",
        MPI_ERR_REQUEST => "MPI_ERR_REQUEST: invalid request",
        MPI_ERR_ROOT => "MPI_ERR_ROOT: invalid root",
        MPI_ERR_GROUP => "MPI_ERR_GROUP: invalid group",
        MPI_ERR_OP => "MPI_ERR_OP: invalid operation, or one that does not take this datatype",
        MPI_ERR_TOPOLOGY => "MPI_ERR_TOPOLOGY: the communicator has no such topology",
        MPI_ERR_DIMS => "MPI_ERR_DIMS: invalid dimension argument",
        MPI_ERR_ARG => "MPI_ERR_ARG: invalid argument",
        MPI_ERR_UNKNOWN => "MPI_ERR_UNKNOWN: unknown error",
        MPI_ERR_TRUNCATE => "MPI_ERR_TRUNCATE: the message is longer than the receive",
        MPI_ERR_OTHER => "MPI_ERR_OTHER: an error outside the other classes",
        MPI_ERR_INTERN => "MPI_ERR_INTERN: internal error of the library",
        MPI_ERR_PENDING => "MPI_ERR_PENDING: the request is neither complete nor failed",
        MPI_ERR_IN_STATUS => "MPI_ERR_IN_STATUS: the error codes are in the statuses",
        MPI_ERR_ACCESS => "MPI_ERR_ACCESS: permission denied",
        MPI_ERR_AMODE => "MPI_ERR_AMODE: invalid access mode",
        MPI_ERR_ASSERT => "MPI_ERR_ASSERT: invalid assertion argument",
        MPI_ERR_BAD_FILE => "MPI_ERR_BAD_FILE: invalid file name",
        MPI_ERR_BASE => "MPI_ERR_BASE: invalid base address",
        MPI_ERR_CONVERSION => "MPI_ERR_CONVERSION: a data conversion function failed",
        MPI_ERR_DISP => "MPI_ERR_DISP: invalid displacement",
        MPI_ERR_DUP_DATAREP => "MPI_ERR_DUP_DATAREP: the data representation is registered already",
        MPI_ERR_FILE_EXISTS => "MPI_ERR_FILE_EXISTS: the file exists",
        MPI_ERR_FILE_IN_USE => "MPI_ERR_FILE_IN_USE: the file is open elsewhere",
        MPI_ERR_FILE => "MPI_ERR_FILE: invalid file handle",
        MPI_ERR_INFO_KEY => "MPI_ERR_INFO_KEY: the info key is empty or too long",
        MPI_ERR_INFO_NOKEY => "MPI_ERR_INFO_NOKEY: no such key in the info object",
        MPI_ERR_INFO_VALUE => "MPI_ERR_INFO_VALUE: the info value is null or too long",
        MPI_ERR_INFO => "MPI_ERR_INFO: invalid info object",
        MPI_ERR_IO => "MPI_ERR_IO: input or output failed",
        MPI_ERR_KEYVAL => "MPI_ERR_KEYVAL: invalid attribute key",
        MPI_ERR_LOCKTYPE => "MPI_ERR_LOCKTYPE: invalid lock type",
        MPI_ERR_NAME => "MPI_ERR_NAME: the service name is not published",
        MPI_ERR_NO_MEM => "MPI_ERR_NO_MEM: out of memory",
        MPI_ERR_NOT_SAME => "MPI_ERR_NOT_SAME: a collective argument differs among the processes",
        MPI_ERR_NO_SPACE => "MPI_ERR_NO_SPACE: not enough space",
        MPI_ERR_NO_SUCH_FILE => "MPI_ERR_NO_SUCH_FILE: no such file",
        MPI_ERR_PORT => "MPI_ERR_PORT: invalid port name",
        MPI_ERR_QUOTA => "MPI_ERR_QUOTA: quota exceeded",
        MPI_ERR_READ_ONLY => "MPI_ERR_READ_ONLY: read-only file or file system",
        MPI_ERR_RMA_ATTACH => "MPI_ERR_RMA_ATTACH: memory cannot be attached",
        MPI_ERR_RMA_CONFLICT => "MPI_ERR_RMA_CONFLICT: conflicting accesses to a window",
        MPI_ERR_RMA_RANGE => "MPI_ERR_RMA_RANGE: the target memory is not part of the window",
        MPI_ERR_RMA_SHARED => "MPI_ERR_RMA_SHARED: memory cannot be shared",
        MPI_ERR_RMA_SYNC => "MPI_ERR_RMA_SYNC: wrong synchronisation of a window",
        MPI_ERR_SERVICE => "MPI_ERR_SERVICE: invalid service name",
        MPI_ERR_SIZE => "MPI_ERR_SIZE: invalid size",
        MPI_ERR_SPAWN => "MPI_ERR_SPAWN: processes could not be started",
        MPI_ERR_UNSUPPORTED_DATAREP => "MPI_ERR_UNSUPPORTED_DATAREP: unknown data representation",
        MPI_ERR_UNSUPPORTED_OPERATION => "MPI_ERR_UNSUPPORTED_OPERATION: the operation is not supported",
        MPI_ERR_WIN => "MPI_ERR_WIN: invalid window",
        MPI_ERR_RMA_FLAVOR => "MPI_ERR_RMA_FLAVOR: the window is of another flavour",
        MPI_ERR_PROC_ABORTED => "MPI_ERR_PROC_ABORTED: a peer process has aborted",
        MPI_ERR_VALUE_TOO_LARGE => "MPI_ERR_VALUE_TOO_LARGE: a value does not fit",
        MPI_ERR_SESSION => "MPI_ERR_SESSION: invalid session",
        MPI_ERR_ERRHANDLER => "MPI_ERR_ERRHANDLER: invalid error handler",
        MPI_ERR_ABI => "MPI_ERR_ABI: ABI versions do not match",
        MPI_T_ERR_CANNOT_INIT => "MPI_T_ERR_CANNOT_INIT: the tool interface cannot be initialised",
        MPI_T_ERR_NOT_ACCESSIBLE => "MPI_T_ERR_NOT_ACCESSIBLE: not accessible",
        MPI_T_ERR_NOT_INITIALIZED => "MPI_T_ERR_NOT_INITIALIZED: the tool interface is not initialised",
        MPI_T_ERR_NOT_SUPPORTED => "MPI_T_ERR_NOT_SUPPORTED: not supported",
        MPI_T_ERR_MEMORY => "MPI_T_ERR_MEMORY: out of memory",
        MPI_T_ERR_INVALID => "MPI_T_ERR_INVALID: invalid argument",
        MPI_T_ERR_INVALID_INDEX => "MPI_T_ERR_INVALID_INDEX: no such index",
        MPI_T_ERR_INVALID_ITEM => "MPI_T_ERR_INVALID_ITEM: no such item",
        MPI_T_ERR_INVALID_SESSION => "MPI_T_ERR_INVALID_SESSION: invalid session",
        MPI_T_ERR_INVALID_HANDLE => "MPI_T_ERR_INVALID_HANDLE: invalid handle",
        MPI_T_ERR_INVALID_NAME => "MPI_T_ERR_INVALID_NAME: no such name",
        MPI_T_ERR_OUT_OF_HANDLES => "MPI_T_ERR_OUT_OF_HANDLES: no more handles",
        MPI_T_ERR_OUT_OF_SESSIONS => "MPI_T_ERR_OUT_OF_SESSIONS: no more sessions",
        MPI_T_ERR_CVAR_SET_NOT_NOW => "MPI_T_ERR_CVAR_SET_NOT_NOW: the variable cannot be set now",
        MPI_T_ERR_CVAR_SET_NEVER => "MPI_T_ERR_CVAR_SET_NEVER: the variable cannot be set any more",
        MPI_T_ERR_PVAR_NO_WRITE => "MPI_T_ERR_PVAR_NO_WRITE: the variable cannot be written",
        MPI_T_ERR_PVAR_NO_STARTSTOP => {
            "MPI_T_ERR_PVAR_NO_STARTSTOP: the variable cannot be started or stopped"
        }
        MPI_T_ERR_PVAR_NO_ATOMIC => "MPI_T_ERR_PVAR_NO_ATOMIC: the variable cannot be read atomically",
        _ => return None,
    })
}
