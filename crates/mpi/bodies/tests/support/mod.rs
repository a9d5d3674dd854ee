//! The wrappers of MPI functions with their C prototypes, as a C program of the standard ABI calls
//! them.

use garonne_bodies::abi::{MPI_Status, StandardAbi};
use garonne_bodies::wrappers;
use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;

/// Handle of an object.
pub type Handle = usize;

pub const COMM_NULL: Handle = 0x100;
pub const COMM_WORLD: Handle = 0x101;
pub const ERRORS_RETURN: Handle = 0x143;
pub const REQUEST_NULL: Handle = 0x180;
pub const INT: Handle = 0x209;
pub const SUM: Handle = 0x021;
pub const ERR_COMM: c_int = 5;
pub const ERR_TYPE: c_int = 3;
pub const ERR_OP: c_int = 10;

/// `MPI_STATUS_IGNORE`.
pub const STATUS_IGNORE: *mut MPI_Status = std::ptr::null_mut();

macro_rules! mpi {
    ($($(#[$doc:meta])* $name:ident = $wrapper:path, ($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        #[allow(clippy::too_many_arguments, reason = "those of the standard")]
        pub fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the wrapper has this C prototype, with one more argument for the call site.
            let function = unsafe {
                transmute::<*const (), unsafe extern "C-unwind" fn($($ty,)* f64) -> c_int>($wrapper as *const ())
            };
            // SAFETY: the tests pass what the prototype says.
            unsafe { function($($arg,)* 0.0) }
        }
    )*};
}

mpi! {
    init_raw = wrappers::wrap_MPI_Init, (argc: *mut c_int, argv: *mut *mut *mut c_char);
    finalize = wrappers::wrap_MPI_Finalize, ();
    initialized_raw = wrappers::wrap_MPI_Initialized, (flag: *mut c_int);
    comm_rank = wrappers::wrap_MPI_Comm_rank, (comm: Handle, rank: *mut c_int);
    comm_size = wrappers::wrap_MPI_Comm_size, (comm: Handle, size: *mut c_int);
    send = wrappers::wrap_MPI_Send, (buf: *const c_void, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle);
    recv = wrappers::wrap_MPI_Recv::<MPI_Status>, (buf: *mut c_void, count: c_int, datatype: Handle, source: c_int, tag: c_int, comm: Handle, status: *mut MPI_Status);
    isend = wrappers::wrap_MPI_Isend, (buf: *const c_void, count: c_int, datatype: Handle, dest: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    irecv = wrappers::wrap_MPI_Irecv, (buf: *mut c_void, count: c_int, datatype: Handle, source: c_int, tag: c_int, comm: Handle, request: *mut Handle);
    waitall = wrappers::wrap_MPI_Waitall::<MPI_Status>, (count: c_int, requests: *mut Handle, statuses: *mut MPI_Status);
    sendrecv = wrappers::wrap_MPI_Sendrecv::<MPI_Status>, (sendbuf: *const c_void, sendcount: c_int, sendtype: Handle, dest: c_int, sendtag: c_int, recvbuf: *mut c_void, recvcount: c_int, recvtype: Handle, source: c_int, recvtag: c_int, comm: Handle, status: *mut MPI_Status);
    allreduce = wrappers::wrap_MPI_Allreduce, (sendbuf: *const c_void, recvbuf: *mut c_void, count: c_int, datatype: Handle, op: Handle, comm: Handle);
    barrier = wrappers::wrap_MPI_Barrier, (comm: Handle);
    comm_dup = wrappers::wrap_MPI_Comm_dup, (comm: Handle, new: *mut Handle);
    comm_split = wrappers::wrap_MPI_Comm_split, (comm: Handle, color: c_int, key: c_int, new: *mut Handle);
    comm_free = wrappers::wrap_MPI_Comm_free, (comm: *mut Handle);
    comm_create_keyval = wrappers::wrap_MPI_Comm_create_keyval::<StandardAbi>, (copy: *const c_void, delete: *const c_void, keyval: *mut c_int, extra: *mut c_void);
    comm_set_attr = wrappers::wrap_MPI_Comm_set_attr, (comm: Handle, keyval: c_int, value: *mut c_void);
    comm_get_attr = wrappers::wrap_MPI_Comm_get_attr, (comm: Handle, keyval: c_int, value: *mut c_void, flag: *mut c_int);
    type_set_attr = wrappers::wrap_MPI_Type_set_attr, (datatype: Handle, keyval: c_int, value: *mut c_void);
    type_get_attr = wrappers::wrap_MPI_Type_get_attr, (datatype: Handle, keyval: c_int, value: *mut c_void, flag: *mut c_int);
    type_create_keyval = wrappers::wrap_MPI_Type_create_keyval::<StandardAbi>, (copy: *const c_void, delete: *const c_void, keyval: *mut c_int, extra: *mut c_void);
    type_set_name = wrappers::wrap_MPI_Type_set_name, (datatype: Handle, name: *const c_char);
    type_get_name = wrappers::wrap_MPI_Type_get_name, (datatype: Handle, name: *mut c_char, len: *mut c_int);
    comm_create_errhandler = wrappers::wrap_MPI_Comm_create_errhandler::<StandardAbi>, (function: *const c_void, errhandler: *mut Handle);
    comm_set_errhandler = wrappers::wrap_MPI_Comm_set_errhandler, (comm: Handle, errhandler: Handle);
    error_class = wrappers::wrap_MPI_Error_class, (code: c_int, class: *mut c_int);
    error_string = wrappers::wrap_MPI_Error_string, (code: c_int, text: *mut c_char, len: *mut c_int);
    add_error_class = wrappers::wrap_MPI_Add_error_class, (class: *mut c_int);
    type_contiguous = wrappers::wrap_MPI_Type_contiguous, (count: c_int, old: Handle, new: *mut Handle);
    type_dup = wrappers::wrap_MPI_Type_dup, (old: Handle, new: *mut Handle);
    type_size = wrappers::wrap_MPI_Type_size, (datatype: Handle, size: *mut c_int);
    type_free = wrappers::wrap_MPI_Type_free, (datatype: *mut Handle);
    op_create = wrappers::wrap_MPI_Op_create::<StandardAbi>, (function: *const c_void, commute: c_int, op: *mut Handle);
    op_free = wrappers::wrap_MPI_Op_free, (op: *mut Handle);
}

/// `MPI_Init` without arguments.
pub fn init() -> c_int {
    init_raw(std::ptr::null_mut(), std::ptr::null_mut())
}

/// Returns what `MPI_Initialized` says.
pub fn initialized() -> bool {
    let mut flag = -1;
    ok(initialized_raw(&mut flag));
    flag != 0
}

/// Asserts that a call succeeded.
#[track_caller]
pub fn ok(code: c_int) {
    assert_eq!(code, 0, "{}", text(code));
}

/// Returns the result of a call that stores one value.
#[track_caller]
pub fn value<T: Default>(call: impl FnOnce(*mut T) -> c_int) -> T {
    let mut value = T::default();
    ok(call(&raw mut value));
    value
}

/// Returns the text of an error code.
pub fn text(code: c_int) -> String {
    let mut text = [0_u8; 1024];
    let mut len = 0;
    if error_string(code, text.as_mut_ptr().cast(), &mut len) != 0 {
        return format!("{code} is no error code");
    }
    String::from_utf8_lossy(&text[..len as usize]).into_owned()
}

/// Returns the error class of a code.
pub fn class(code: c_int) -> c_int {
    value(|class| error_class(code, class))
}

/// Returns the address of a value that a call reads.
pub fn at<T>(value: &T) -> *const c_void {
    std::ptr::from_ref(value).cast()
}

/// Returns the address of a value that a call writes.
pub fn at_mut<T>(value: &mut T) -> *mut c_void {
    std::ptr::from_mut(value).cast()
}
