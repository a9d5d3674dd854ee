//! Wrappers that no rule of the generator describes.

#![allow(non_snake_case, reason = "the names are those of the standard")]

use crate::wrappers::{native_comm, native_keyval, own_error, own_rank};
use garonne_bodies::abi::convert::{Buf, CallSite, Ptr};
use garonne_bodies::wrappers as native;
use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

/// Attribute keys whose values are ranks or error codes.
const HOST: c_int = 0x6440_0003;
const IO: c_int = 0x6440_0005;
const LASTUSEDCODE: c_int = 0x6440_000b;

/// `MPI_Comm_get_attr`.
pub(crate) extern "C-unwind" fn wrap_MPI_Comm_get_attr(
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
pub(crate) extern "C-unwind" fn wrap_MPI_Attr_get(
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

/// Replaces the address of a predefined attribute's value by that of the converted value.
fn convert_predefined(keyval: c_int, value: Buf, flag: Ptr<c_int>, code: c_int) -> c_int {
    static CONVERTED: [AtomicI32; 3] = [const { AtomicI32::new(0) }; 3];
    let (at, convert): (usize, fn(c_int) -> c_int) = match keyval {
        HOST => (0, own_rank),
        IO => (1, own_rank),
        LASTUSEDCODE => (2, own_error),
        _ => return own_error(code),
    };
    if code == 0
        && flag.get().is_ok_and(|found| found != 0)
        && let Ok(address) = value.typed::<usize>().get()
        && let Ok(number) = Buf::from_addr(address).typed::<c_int>().get()
    {
        CONVERTED[at].store(convert(number), Ordering::Relaxed);
        value
            .typed::<usize>()
            .set_if(CONVERTED[at].as_ptr().expose_provenance());
    }
    own_error(code)
}

/// `MPI_Abi_get_version`. The library has not the standard ABI, and says so as MPICH's does.
pub(crate) extern "C-unwind" fn wrap_MPI_Abi_get_version(
    major: Ptr<c_int>,
    minor: Ptr<c_int>,
    _: CallSite,
) -> c_int {
    major.set_if(-1);
    minor.set_if(-1);
    0
}

/// The function that `MPI_COMM_DUP_FN` and such name.
#[unsafe(no_mangle)]
extern "C-unwind" fn MPIR_Dup_fn(
    _object: c_int,
    _keyval: c_int,
    _extra: Buf,
    value: Buf,
    copy: Buf,
    flag: Ptr<c_int>,
) -> c_int {
    copy.typed::<usize>().set_if(value.addr());
    flag.set_if(1);
    0
}

/// `MPI_UNWEIGHTED`.
#[unsafe(no_mangle)]
static MPI_UNWEIGHTED: usize = 10;
/// `MPI_WEIGHTS_EMPTY`.
#[unsafe(no_mangle)]
static MPI_WEIGHTS_EMPTY: usize = 11;
