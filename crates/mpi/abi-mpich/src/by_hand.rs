//! Wrappers that no rule of the generator describes.

#![allow(non_snake_case, reason = "the names are those of the standard")]

use crate::status::Status;
use crate::wrappers::{
    STATUSES, native_comm, native_datatype, native_info, native_keyval, native_win, own_error,
    own_rank,
};
use garonne_bodies::abi::OtherAbi;
use garonne_bodies::abi::convert::{
    Buf, CallSite, ConstPtr, MPI_Aint, NumberPlace, Ptr, ShorterString, StrIn, StrOut,
    convert_attribute, convert_window_attribute,
};
use garonne_bodies::attribute_getters;
use garonne_bodies::info::set_key_within;
use garonne_bodies::wrappers as native;
use std::ffi::c_int;

/// Attribute keys whose values are ranks or error codes.
const HOST: c_int = 0x6440_0003;
const IO: c_int = 0x6440_0005;
const LASTUSEDCODE: c_int = 0x6440_000b;
/// `MPI_ERR_ARG` of the standard ABI.
const MPI_ERR_ARG: c_int = 13;

/// `MPI_WIN_UNIFIED`.
const UNIFIED: c_int = 2;

attribute_getters! { OtherAbi::Mpich, handle: c_int, ranks: HOST | IO, error: LASTUSEDCODE, unified: UNIFIED }

/// `MPI_Abi_get_version`. The library has not the standard ABI, and says so as MPICH's does.
pub extern "C-unwind" fn wrap_MPI_Abi_get_version(
    major: Ptr<c_int>,
    minor: Ptr<c_int>,
    _: CallSite,
) -> c_int {
    major.set_if(-1);
    minor.set_if(-1);
    0
}

/// `MPIX_GPU_SUPPORT_CUDA` to `MPIX_GPU_SUPPORT_HIP`.
const GPU_KINDS: std::ops::RangeInclusive<c_int> = 0..=2;

/// `MPIX_GPU_query_support`. The library refuses buffers in the memory of any GPU.
pub extern "C-unwind" fn wrap_MPIX_GPU_query_support(
    kind: c_int,
    is_supported: Ptr<c_int>,
    _: CallSite,
) -> c_int {
    if !GPU_KINDS.contains(&kind) || is_supported.is_null() {
        return own_error(MPI_ERR_ARG);
    }
    is_supported.set_if(0);
    0
}

/// Defines functions that say whether the library takes buffers in the memory of a GPU.
macro_rules! gpus {
    ($($name:ident)*) => {
        $(
            /// Returns 0: the library refuses buffers in the memory of this kind of GPU.
            pub extern "C-unwind" fn $name(_: CallSite) -> c_int {
                0
            }
        )*
    };
}

gpus! { wrap_MPIX_Query_cuda_support wrap_MPIX_Query_hip_support wrap_MPIX_Query_ze_support }

/// `MPI_MAX_INFO_KEY`.
const INFO_KEY_MAX: usize = 255;

/// `MPI_Info_set`.
pub extern "C-unwind" fn wrap_MPI_Info_set(
    info: c_int,
    key: StrIn,
    value: StrIn,
    site: CallSite,
) -> c_int {
    let info = native_info(info);
    own_error(set_key_within(INFO_KEY_MAX, info, key, value, site))
}

/// Begins the text of the library's version, as programs expect that tell MPIs apart by it. The
/// number is that of the oldest MPICH whose programs are tested.
const VERSION: &str = "MPICH Version:      4.0.2\n";
/// `MPI_MAX_LIBRARY_VERSION_STRING`.
const VERSION_MAX: usize = 8192;

/// `MPI_Get_library_version`.
pub extern "C-unwind" fn wrap_MPI_Get_library_version(
    version: StrOut,
    length: Ptr<c_int>,
    site: CallSite,
) -> c_int {
    let text = ShorterString::<VERSION_MAX>::new(version, VERSION_MAX);
    own_error(native::then_MPI_Get_library_version(
        text.native(),
        length,
        site,
        || text.finish_after(VERSION, Some(length)),
    ))
}

/// `MPI_Type_extent`.
pub extern "C-unwind" fn wrap_MPI_Type_extent(
    datatype: c_int,
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
    datatype: c_int,
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
    datatype: c_int,
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

/// `MPIR_Dup_fn`, which `MPI_COMM_DUP_FN` and such name.
pub extern "C-unwind" fn wrap_MPIR_Dup_fn(
    _object: c_int,
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
