//! Functions that MPICH's libraries for Fortran and C++ call: attributes whose values are
//! numbers, and callbacks in other languages.

#![allow(non_snake_case, reason = "the names are those of MPICH")]

use crate::by_hand::{wrap_MPI_Comm_get_attr, wrap_MPI_Win_get_attr};
use crate::handles::Mpich;
use crate::wrappers::{
    native_errhandler, native_keyval, native_op, native_request, wrap_MPI_Comm_set_attr,
    wrap_MPI_Type_get_attr, wrap_MPI_Type_set_attr, wrap_MPI_Win_set_attr,
};
use garonne_bodies::abi::Callback;
use garonne_bodies::abi::convert::{Buf, CallSite, Ptr};
use garonne_bodies::callback_conventions::{
    ErrhandlerCaller, ErrhandlerConvention, KeyConvention, ReductionCaller, ReductionConvention,
    set_errhandler, set_fortran_request, set_key, set_reduction,
};
use garonne_fortran::attributes::{number_at, stored};
use std::ffi::c_int;

/// Bit of a kind of attribute values: the value is a number, not an address.
const IS_NUMBER: c_int = 1;

/// Predefined keys of communicators, whose values C gives as addresses of ints.
const COMM_KEYS: std::ops::RangeInclusive<c_int> = 0x6440_0001..=0x6440_000f;
/// Predefined keys of windows.
const WIN_BASE: c_int = 0x6600_0001;
const WIN_SIZE: c_int = 0x6600_0003;
const WIN_KEYS: std::ops::RangeInclusive<c_int> = WIN_BASE..=0x6600_000f;

/// Returns the key of C for a key of Fortran: those of predefined attributes are higher by one.
fn key_of_c(keyval: c_int) -> c_int {
    let is_predefined = COMM_KEYS.contains(&keyval) || WIN_KEYS.contains(&keyval);
    if is_predefined && keyval & 1 == 0 {
        keyval - 1
    } else {
        keyval
    }
}

/// Returns what Fortran gets for a value: the number at the address that C keeps for a predefined
/// key, the number that Fortran has set, or the address that C has set.
fn number(keyval: c_int, value: usize) -> usize {
    let int = || Buf::from_addr(value).typed::<c_int>().get();
    let found = match keyval {
        _ if value == 0 || keyval == WIN_BASE => None,
        WIN_SIZE => Buf::from_addr(value).typed::<isize>().get().ok(),
        _ if COMM_KEYS.contains(&keyval) || WIN_KEYS.contains(&keyval) => {
            int().ok().map(|int| int as isize)
        }
        _ => number_at(value),
    };
    found.map_or(value, |number| number as usize)
}

/// Defines functions that set and get attributes of one kind of objects.
macro_rules! attributes {
    ($($set:ident $plain_set:ident $get:ident $plain_get:ident;)*) => {
        $(
            /// Sets an attribute. For Fortran, `value` is a number.
            pub extern "C-unwind" fn $set(
                object: c_int,
                keyval: c_int,
                value: Buf,
                kind: c_int,
                site: CallSite,
            ) -> c_int {
                let kept = match kind & IS_NUMBER {
                    0 => value,
                    _ => Buf::from_addr(stored(value.addr() as isize).expose_provenance()),
                };
                $plain_set(object, keyval, kept, site)
            }

            /// Gets an attribute. Fortran gets a number.
            pub extern "C-unwind" fn $get(
                object: c_int,
                keyval: c_int,
                value: Buf,
                flag: Ptr<c_int>,
                kind: c_int,
                site: CallSite,
            ) -> c_int {
                let keyval = match kind & IS_NUMBER {
                    0 => keyval,
                    _ => key_of_c(keyval),
                };
                let code = $plain_get(object, keyval, value, flag, site);
                let place = value.typed::<usize>();
                if code == 0
                    && kind & IS_NUMBER != 0
                    && flag.get().is_ok_and(|found| found != 0)
                    && let Ok(kept) = place.get()
                {
                    place.set_if(number(keyval, kept));
                }
                code
            }
        )*
    };
}

attributes! {
    wrap_MPII_Comm_set_attr wrap_MPI_Comm_set_attr
    wrap_MPII_Comm_get_attr wrap_MPI_Comm_get_attr;
    wrap_MPII_Type_set_attr wrap_MPI_Type_set_attr
    wrap_MPII_Type_get_attr wrap_MPI_Type_get_attr;
    wrap_MPII_Win_set_attr wrap_MPI_Win_set_attr
    wrap_MPII_Win_get_attr wrap_MPI_Win_get_attr;
}

/// Names the functions that call the copy and delete functions of a key.
pub extern "C-unwind" fn wrap_MPII_Keyval_set_proxy(
    keyval: c_int,
    copy: Buf,
    delete: Buf,
    _: CallSite,
) {
    let convention = KeyConvention {
        copy: copy.addr(),
        delete: delete.addr(),
        number: number_at,
        value: |number| stored(number).expose_provenance(),
    };
    set_key::<Mpich>(native_keyval(keyval), convention);
}

/// Says that the functions of a generalized request are Fortran's.
pub extern "C-unwind" fn wrap_MPII_Grequest_set_lang_f77(request: c_int, _: CallSite) {
    set_fortran_request::<Mpich>(native_request(request));
}

/// Names the function that calls the function of an operation.
pub extern "C-unwind" fn wrap_MPII_Op_set_cxx(op: c_int, caller: Callback<Mpich>, _: CallSite) {
    if let Some(caller) = ReductionCaller::by_value(caller) {
        set_reduction(native_op(op), ReductionConvention::Through(caller));
    }
}

/// Names the function that calls the function of an error handler.
pub extern "C-unwind" fn wrap_MPII_Errhandler_set_cxx(
    errhandler: c_int,
    caller: Callback<Mpich>,
    _: CallSite,
) {
    if let Some(caller) = ErrhandlerCaller::by_kind(caller) {
        let convention = ErrhandlerConvention::Through(caller);
        set_errhandler::<Mpich>(native_errhandler(errhandler), convention);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predefined_keys_of_fortran_are_those_of_c_and_one_more() {
        assert_eq!(key_of_c(0x6440_0002), 0x6440_0001, "MPI_TAG_UB");
        assert_eq!(key_of_c(0x6440_000c), 0x6440_000b, "MPI_LASTUSEDCODE");
        assert_eq!(key_of_c(0x6600_0004), WIN_SIZE);
        assert_eq!(key_of_c(0x6440_0001), 0x6440_0001, "a key of C");
        assert_eq!(key_of_c(0x1000), 0x1000, "a key of the program");
    }

    #[test]
    fn fortran_gets_the_numbers_that_it_set_and_the_addresses_that_c_set() {
        let kept = stored(-5).expose_provenance();
        assert_eq!(number(0x1000, kept) as isize, -5);
        assert_eq!(number(0x1000, 0x1234_5678), 0x1234_5678);
        let (flag, size) = (1_i32, 1_isize << 40);
        let address = (&raw const flag).expose_provenance();
        assert_eq!(number(0x6440_0001, address), 1);
        let address = (&raw const size).expose_provenance();
        assert_eq!(number(WIN_SIZE, address), 1 << 40);
        assert_eq!(number(WIN_BASE, address), address);
    }
}
