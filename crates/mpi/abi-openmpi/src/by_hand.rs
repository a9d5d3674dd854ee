//! Wrappers that no rule of the generator describes.

#![allow(non_snake_case, reason = "the names are those of the standard")]

use crate::handles::{OpenMpi, from_fortran, to_fortran};
use crate::status::Status;
use crate::wrappers::{
    ERROR, STATUSES, native_comm, native_datatype, native_errhandler, native_error, native_file,
    native_group, native_info, native_keyval, native_message, native_op, native_request,
    native_session, native_win, own_error, own_rank,
};
use garonne_bodies::abi::convert::{
    Buf, CallSite, ConstPtr, HandleConversion, IntPlace, MPI_Aint, MPI_T_pvar_handle,
    MPI_T_pvar_session, NumberPlace, Ptr, ShorterString, StrIn, StrOut, convert_attribute,
    convert_window_attribute,
};
use garonne_bodies::abi::{HandleKind, OtherAbi};
use garonne_bodies::attribute_getters;
use garonne_bodies::info::set_key_within;
use garonne_bodies::wrappers as native;
use std::ffi::c_int;

/// Attribute keys whose values are ranks or error codes.
const HOST: c_int = 1;
const IO: c_int = 2;
const LASTUSEDCODE: c_int = 5;
/// `MPI_ERR_ARG` of the standard ABI.
const MPI_ERR_ARG: c_int = 13;

/// `MPI_WIN_UNIFIED`.
const UNIFIED: c_int = 0;

attribute_getters! { OtherAbi::OpenMpi, handle: usize, ranks: HOST | IO, error: LASTUSEDCODE, unified: UNIFIED }

/// `MPI_Abi_get_version`. The library has not the standard ABI, and says so as that of MPICH does.
pub extern "C-unwind" fn wrap_MPI_Abi_get_version(
    major: Ptr<c_int>,
    minor: Ptr<c_int>,
    _: CallSite,
) -> c_int {
    major.set_if(-1);
    minor.set_if(-1);
    0
}

/// `MPI_ERR_UNKNOWN`.
const MPI_ERR_UNKNOWN: c_int = 14;
/// `MPI_ERR_LASTCODE`.
const MPI_ERR_LASTCODE: c_int = 92;
/// `MPI_MAX_ERROR_STRING`.
const ERROR_MAX: usize = 256;
/// `MPI_MAX_ERROR_STRING` of the standard ABI.
const NATIVE_ERROR_MAX: usize = 512;

/// Returns the class of an error that Open MPI has and the core has not, such as those of its fault
/// tolerance: programs may ask about every number up to `MPI_ERR_LASTCODE`.
fn known(code: c_int) -> c_int {
    let is_class = (0..=MPI_ERR_LASTCODE).contains(&code);
    match is_class && ERROR.iter().all(|(_, own)| *own != code) {
        true => MPI_ERR_UNKNOWN,
        false => code,
    }
}

/// `MPI_Error_class`.
pub extern "C-unwind" fn wrap_MPI_Error_class(
    code: c_int,
    class: Ptr<c_int>,
    site: CallSite,
) -> c_int {
    let class = IntPlace::returned(class, native_error, own_error);
    let code = native_error(known(code));
    own_error(native::then_MPI_Error_class(
        code,
        class.native(),
        site,
        || class.finish(),
    ))
}

/// `MPI_Error_string`.
pub extern "C-unwind" fn wrap_MPI_Error_string(
    code: c_int,
    string: StrOut,
    length: Ptr<c_int>,
    site: CallSite,
) -> c_int {
    let text = ShorterString::<NATIVE_ERROR_MAX>::new(string, ERROR_MAX);
    let code = native_error(known(code));
    own_error(native::then_MPI_Error_string(
        code,
        text.native(),
        length,
        site,
        || text.finish(Some(length)),
    ))
}

/// `MPI_MAX_INFO_KEY`.
const INFO_KEY_MAX: usize = 36;

/// `MPI_Info_set`.
pub extern "C-unwind" fn wrap_MPI_Info_set(
    info: usize,
    key: StrIn,
    value: StrIn,
    site: CallSite,
) -> c_int {
    let info = native_info(info);
    own_error(set_key_within(INFO_KEY_MAX, info, key, value, site))
}

/// Begins the text of the library's version, as programs expect that tell MPIs apart by it. The
/// number is that of the oldest Open MPI whose programs are tested.
const VERSION: &str = "Open MPI v4.1.4, ";
/// `MPI_MAX_LIBRARY_VERSION_STRING`.
const VERSION_MAX: usize = 256;
/// `MPI_MAX_LIBRARY_VERSION_STRING` of the standard ABI.
const NATIVE_VERSION_MAX: usize = 8192;

/// `MPI_Get_library_version`.
pub extern "C-unwind" fn wrap_MPI_Get_library_version(
    version: StrOut,
    length: Ptr<c_int>,
    site: CallSite,
) -> c_int {
    let text = ShorterString::<NATIVE_VERSION_MAX>::new(version, VERSION_MAX);
    own_error(native::then_MPI_Get_library_version(
        text.native(),
        length,
        site,
        || text.finish_after(VERSION, Some(length)),
    ))
}

/// `MPI_Type_extent`.
pub extern "C-unwind" fn wrap_MPI_Type_extent(
    datatype: usize,
    extent: Ptr<MPI_Aint>,
    site: CallSite,
) -> c_int {
    let (datatype, lower) = (native_datatype(datatype), NumberPlace::default());
    own_error(native::wrap_MPI_Type_get_extent(
        datatype,
        lower.native(),
        extent,
        site,
    ))
}

/// `MPI_Type_lb`.
pub extern "C-unwind" fn wrap_MPI_Type_lb(
    datatype: usize,
    lower: Ptr<MPI_Aint>,
    site: CallSite,
) -> c_int {
    let (datatype, extent) = (native_datatype(datatype), NumberPlace::default());
    own_error(native::wrap_MPI_Type_get_extent(
        datatype,
        lower,
        extent.native(),
        site,
    ))
}

/// `MPI_Type_ub`.
pub extern "C-unwind" fn wrap_MPI_Type_ub(
    datatype: usize,
    upper: Ptr<MPI_Aint>,
    site: CallSite,
) -> c_int {
    let (datatype, extent) = (native_datatype(datatype), NumberPlace::default());
    own_error(native::then_MPI_Type_get_extent(
        datatype,
        upper,
        extent.native(),
        site,
        // The lower bound lies at the program's place by now.
        || upper.set_if(upper.get().unwrap_or(0).wrapping_add(extent.get())),
    ))
}

/// `MPI_Status_c2f` and all functions like it: the layouts are equal.
pub extern "C-unwind" fn wrap_MPI_Status_c2f(
    from: ConstPtr<Status>,
    to: Ptr<Status>,
    _: CallSite,
) -> c_int {
    // `MPI_STATUS_IGNORE` is no status.
    let copied = match STATUSES.iter().any(|(_, ignore)| *ignore == from.addr()) {
        true => None,
        false => from.get().ok(),
    };
    match copied {
        Some(status) if !to.is_null() => {
            to.set_if(status);
            0
        }
        _ => own_error(MPI_ERR_ARG),
    }
}

/// Defines the conversions between handles of one kind and integers of Fortran.
macro_rules! integers {
    ($($to:ident $from:ident $kind:ident $native:ident;)*) => {
        $(
            /// Returns the integer of a handle in Fortran.
            pub extern "C-unwind" fn $to(handle: usize, _: CallSite) -> c_int {
                to_fortran(HandleKind::$kind, $native(handle).0)
            }

            /// Returns the handle of an integer of Fortran; null for an integer that is none.
            pub extern "C-unwind" fn $from(integer: c_int, _: CallSite) -> usize {
                let word = from_fortran(HandleKind::$kind, integer);
                word.map_or(0, |word| OpenMpi::from_native(HandleKind::$kind, word))
            }
        )*
    };
}

integers! {
    wrap_MPI_Comm_toint wrap_MPI_Comm_fromint Comm native_comm;
    wrap_MPI_Errhandler_toint wrap_MPI_Errhandler_fromint Errhandler native_errhandler;
    wrap_MPI_File_toint wrap_MPI_File_fromint File native_file;
    wrap_MPI_Group_toint wrap_MPI_Group_fromint Group native_group;
    wrap_MPI_Info_toint wrap_MPI_Info_fromint Info native_info;
    wrap_MPI_Message_toint wrap_MPI_Message_fromint Message native_message;
    wrap_MPI_Op_toint wrap_MPI_Op_fromint Op native_op;
    wrap_MPI_Request_toint wrap_MPI_Request_fromint Request native_request;
    wrap_MPI_Session_toint wrap_MPI_Session_fromint Session native_session;
    wrap_MPI_Type_toint wrap_MPI_Type_fromint Datatype native_datatype;
    wrap_MPI_Win_toint wrap_MPI_Win_fromint Win native_win;
}

/// Defines predefined functions of attributes.
macro_rules! attribute_functions {
    ($($dup:ident $null_copy:ident $null_delete:ident;)*) => {
        $(
            /// Copy function that copies the value.
            pub extern "C-unwind" fn $dup(
                _object: usize,
                _keyval: c_int,
                _extra: Buf,
                value: Buf,
                copy: Buf,
                flag: Ptr<c_int>,
                _: CallSite,
            ) -> c_int {
                copy.typed::<usize>().set_if(value.addr());
                flag.set_if(1);
                0
            }

            /// Copy function that copies nothing.
            pub extern "C-unwind" fn $null_copy(
                _object: usize,
                _keyval: c_int,
                _extra: Buf,
                _value: Buf,
                _copy: Buf,
                flag: Ptr<c_int>,
                _: CallSite,
            ) -> c_int {
                flag.set_if(0);
                0
            }

            /// Delete function that does nothing.
            pub extern "C-unwind" fn $null_delete(
                _object: usize,
                _keyval: c_int,
                _value: Buf,
                _extra: Buf,
                _: CallSite,
            ) -> c_int {
                0
            }
        )*
    };
}

attribute_functions! {
    wrap_OMPI_C_MPI_COMM_DUP_FN wrap_OMPI_C_MPI_COMM_NULL_COPY_FN wrap_OMPI_C_MPI_COMM_NULL_DELETE_FN;
    wrap_OMPI_C_MPI_TYPE_DUP_FN wrap_OMPI_C_MPI_TYPE_NULL_COPY_FN wrap_OMPI_C_MPI_TYPE_NULL_DELETE_FN;
    wrap_OMPI_C_MPI_WIN_DUP_FN wrap_OMPI_C_MPI_WIN_NULL_COPY_FN wrap_OMPI_C_MPI_WIN_NULL_DELETE_FN;
    wrap_OMPI_C_MPI_DUP_FN wrap_OMPI_C_MPI_NULL_COPY_FN wrap_OMPI_C_MPI_NULL_DELETE_FN;
}

/// `MPI_T_PVAR_ALL_HANDLES` of this ABI and of the standard one.
const ALL_HANDLES: (usize, usize) = (usize::MAX, 1);

/// Defines functions that take one handle of a performance variable or all handles.
macro_rules! variables {
    ($($name:ident)*) => {
        $(
            /// Function on one handle of a performance variable, or on all of a session.
            pub extern "C-unwind" fn $name(
                session: MPI_T_pvar_session,
                handle: MPI_T_pvar_handle,
                site: CallSite,
            ) -> c_int {
                let handle = match handle.0 == ALL_HANDLES.0 {
                    true => MPI_T_pvar_handle(ALL_HANDLES.1),
                    false => handle,
                };
                own_error(native::$name(session, handle, site))
            }
        )*
    };
}

variables! { wrap_MPI_T_pvar_start wrap_MPI_T_pvar_stop wrap_MPI_T_pvar_reset }

/// `MPIX_Query_cuda_support`. Returns 0: the library refuses buffers in the memory of a GPU.
pub extern "C-unwind" fn wrap_MPIX_Query_cuda_support(_: CallSite) -> c_int {
    0
}

/// `MPIX_Query_rocm_support`. Returns 0: the library refuses buffers in the memory of a GPU.
pub extern "C-unwind" fn wrap_MPIX_Query_rocm_support(_: CallSite) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_up_to_the_last_code_has_a_class() {
        assert_eq!(known(0), 0);
        assert_eq!(known(6), 6, "MPI_ERR_RANK");
        assert_eq!(known(75), 75, "MPIX_ERR_PROC_FAILED");
        assert_eq!(known(93), 93, "a code of the program");
        let classes = (1..MPI_ERR_LASTCODE).map(known).map(native_error);
        assert!(classes.into_iter().all(|native| native > 0));
    }
}
