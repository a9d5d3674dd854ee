//! Wrappers that no rule of the generator describes.

#![allow(non_snake_case, reason = "the names are those of the standard")]

use crate::wrappers::{native_comm, native_keyval, own_error, own_rank};
use garonne_bodies::abi::OtherAbi;
use garonne_bodies::abi::convert::{Buf, CallSite, Ptr, convert_attribute};
use garonne_bodies::wrappers as native;
use std::ffi::c_int;

/// Attribute keys whose values are ranks or error codes.
const HOST: c_int = 0x6440_0003;
const IO: c_int = 0x6440_0005;
const LASTUSEDCODE: c_int = 0x6440_000b;

/// `MPI_Comm_get_attr`.
pub extern "C-unwind" fn wrap_MPI_Comm_get_attr(
    comm: c_int,
    keyval: c_int,
    value: Buf,
    flag: Ptr<c_int>,
    site: CallSite,
) -> c_int {
    let (comm, key) = (native_comm(comm), native_keyval(keyval));
    let code = native::wrap_MPI_Comm_get_attr(comm, key, value, flag, site);
    convert_predefined(keyval, value, flag, code)
}

/// `MPI_Attr_get`.
pub extern "C-unwind" fn wrap_MPI_Attr_get(
    comm: c_int,
    keyval: c_int,
    value: Buf,
    flag: Ptr<c_int>,
    site: CallSite,
) -> c_int {
    let (comm, key) = (native_comm(comm), native_keyval(keyval));
    let code = native::wrap_MPI_Attr_get(comm, key, value, flag, site);
    convert_predefined(keyval, value, flag, code)
}

/// Converts what a call returned for a predefined attribute.
fn convert_predefined(keyval: c_int, value: Buf, flag: Ptr<c_int>, code: c_int) -> c_int {
    let convert: fn(c_int) -> c_int = match keyval {
        HOST | IO => own_rank,
        LASTUSEDCODE => own_error,
        _ => return own_error(code),
    };
    if code == 0 {
        convert_attribute(
            OtherAbi::Mpich,
            native_keyval(keyval),
            (value, flag),
            convert,
        );
    }
    own_error(code)
}

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
