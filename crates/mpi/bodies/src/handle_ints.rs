//! Conversion of handles to C integers and back. A handle's word always fits into an `int` (see
//! `handle`), so these are plain conversions. An integer that names no object becomes a handle that
//! every call refuses.

#![allow(unused_variables, reason = "the call number, which every body takes")]

use crate::call::CallId;
use crate::handle::*;
use std::ffi::c_int;

macro_rules! conversions {
    ($($to:ident $from:ident $handle:ident;)*) => {$(
        pub(crate) fn $to(call: CallId, handle: $handle) -> c_int {
            handle.word() as c_int
        }
        pub(crate) fn $from(call: CallId, int: c_int) -> $handle {
            $handle::from_word(int as u32 as usize)
        }
    )*};
}

conversions! {
    comm_toint comm_fromint MPI_Comm;
    errhandler_toint errhandler_fromint MPI_Errhandler;
    file_toint file_fromint MPI_File;
    group_toint group_fromint MPI_Group;
    info_toint info_fromint MPI_Info;
    message_toint message_fromint MPI_Message;
    op_toint op_fromint MPI_Op;
    request_toint request_fromint MPI_Request;
    session_toint session_fromint MPI_Session;
    type_toint type_fromint MPI_Datatype;
    win_toint win_fromint MPI_Win;
}
