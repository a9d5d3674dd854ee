//! The loops of the predefined operations over contiguous elements.
//!
//! Called with slices of equal length after legality was checked; a combination that is not legal
//! does nothing. The operation is inlined into the loop over the elements ([`each`]), which the
//! compiler vectorises.

use super::number::{Complex, Number, each};
use super::{PredefinedOp, minloc_maxloc};
use crate::datatype::basic_type::BasicType;
use crate::datatype::{LeafType, fortran_booleans};
use rustc_apfloat::ieee::{Half, Quad, X87DoubleExtended};

/// `dst = src OP dst`, element by element.
pub(super) fn combine(op: PredefinedOp, leaf: LeafType, src: &[u8], dst: &mut [u8]) {
    match (op, leaf) {
        (PredefinedOp::NoOp, _) => {}
        (PredefinedOp::Replace, _) => dst.copy_from_slice(src),
        (PredefinedOp::Minloc | PredefinedOp::Maxloc, LeafType::Pair { value, index }) => {
            minloc_maxloc::combine(op, (value, index), src, dst);
        }
        (_, LeafType::Pair { .. }) => {}
        (_, LeafType::Basic(basic)) => basic_elements(op, basic, src, dst),
    }
}

fn basic_elements(op: PredefinedOp, basic: BasicType, src: &[u8], dst: &mut [u8]) {
    match basic {
        BasicType::I8 => integers::<i8>(op, src, dst),
        BasicType::I16 => integers::<i16>(op, src, dst),
        BasicType::I32 => integers::<i32>(op, src, dst),
        BasicType::I64 | BasicType::Long => integers::<i64>(op, src, dst),
        BasicType::I128 => integers::<i128>(op, src, dst),
        BasicType::U8 => integers::<u8>(op, src, dst),
        BasicType::U16 => integers::<u16>(op, src, dst),
        BasicType::U32 => integers::<u32>(op, src, dst),
        BasicType::U64 | BasicType::ULong => integers::<u64>(op, src, dst),
        BasicType::F16 => reals::<Half>(op, src, dst),
        BasicType::F32 => reals::<f32>(op, src, dst),
        BasicType::F64 => reals::<f64>(op, src, dst),
        BasicType::X87 => reals::<X87DoubleExtended>(op, src, dst),
        BasicType::F128 => reals::<Quad>(op, src, dst),
        BasicType::C16 => sums::<Complex<Half>>(op, src, dst),
        BasicType::C32 => sums::<Complex<f32>>(op, src, dst),
        BasicType::C64 => sums::<Complex<f64>>(op, src, dst),
        BasicType::CX87 => sums::<Complex<X87DoubleExtended>>(op, src, dst),
        BasicType::C128 => sums::<Complex<Quad>>(op, src, dst),
        BasicType::Bool => logicals::<u8>(op, (0, 1), src, dst),
        BasicType::Logical(bytes) => fortran_logicals(op, bytes, src, dst),
        BasicType::Byte => bits(op, src, dst),
        BasicType::Char => integers::<std::ffi::c_char>(op, src, dst),
        BasicType::WideChar => {}
    }
}

fn sums<T: Number>(op: PredefinedOp, src: &[u8], dst: &mut [u8]) {
    match op {
        PredefinedOp::Sum => each::<T>(src, dst, T::add),
        PredefinedOp::Prod => each::<T>(src, dst, T::mul),
        _ => {}
    }
}

fn reals<T: Number>(op: PredefinedOp, src: &[u8], dst: &mut [u8]) {
    match op {
        PredefinedOp::Max => each::<T>(src, dst, |a, b| if a.above(b) { a } else { b }),
        PredefinedOp::Min => each::<T>(src, dst, |a, b| if b.above(a) { a } else { b }),
        _ => sums::<T>(op, src, dst),
    }
}

/// Integers: numbers that are truth values as well.
trait Integer: Number {
    fn is_true(self) -> bool;
    fn from_truth(truth: bool) -> Self;
}

macro_rules! integer {
    ($($t:ty)*) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn is_true(self) -> bool {
                self != 0
            }

            #[inline(always)]
            fn from_truth(truth: bool) -> Self {
                truth as $t
            }
        }
    )*};
}

integer! { i8 i16 i32 i64 i128 u8 u16 u32 u64 }

fn integers<T: Integer>(op: PredefinedOp, src: &[u8], dst: &mut [u8]) {
    match op {
        PredefinedOp::Land => each::<T>(src, dst, |a, b| T::from_truth(a.is_true() & b.is_true())),
        PredefinedOp::Lor => each::<T>(src, dst, |a, b| T::from_truth(a.is_true() | b.is_true())),
        PredefinedOp::Lxor => each::<T>(src, dst, |a, b| T::from_truth(a.is_true() ^ b.is_true())),
        PredefinedOp::Band | PredefinedOp::Bor | PredefinedOp::Bxor => bits(op, src, dst),
        _ => reals::<T>(op, src, dst),
    }
}

/// Bitwise operations do not care how wide the elements are.
fn bits(op: PredefinedOp, src: &[u8], dst: &mut [u8]) {
    match op {
        PredefinedOp::Band => each::<u8>(src, dst, |a, b| a & b),
        PredefinedOp::Bor => each::<u8>(src, dst, |a, b| a | b),
        PredefinedOp::Bxor => each::<u8>(src, dst, |a, b| a ^ b),
        _ => {}
    }
}

/// Truth values: anything but the false value is true.
fn logicals<T: Number>(op: PredefinedOp, (no, yes): (T, T), src: &[u8], dst: &mut [u8]) {
    let is_true = |value: T| !value.same(no);
    let of = |truth: bool| if truth { yes } else { no };
    match op {
        PredefinedOp::Land => each::<T>(src, dst, |a, b| of(is_true(a) & is_true(b))),
        PredefinedOp::Lor => each::<T>(src, dst, |a, b| of(is_true(a) | is_true(b))),
        PredefinedOp::Lxor => each::<T>(src, dst, |a, b| of(is_true(a) ^ is_true(b))),
        _ => {}
    }
}

fn fortran_logicals(op: PredefinedOp, bytes: u8, src: &[u8], dst: &mut [u8]) {
    let values = fortran_booleans();
    let (no, yes) = (values.no, values.yes);
    match bytes {
        1 => logicals::<i8>(op, (no as i8, yes as i8), src, dst),
        2 => logicals::<i16>(op, (no as i16, yes as i16), src, dst),
        4 => logicals::<i32>(op, (no as i32, yes as i32), src, dst),
        8 => logicals::<i64>(op, (no, yes), src, dst),
        16 => logicals::<i128>(op, (no.into(), yes.into()), src, dst),
        _ => {}
    }
}

/// An integer of any kind as a 128-bit number, for comparing the indices of pairs.
pub(super) fn integer_value(basic: BasicType, bytes: &[u8]) -> Option<i128> {
    Some(match basic {
        BasicType::I8 => i8::load(bytes).into(),
        BasicType::I16 => i16::load(bytes).into(),
        BasicType::I32 => i32::load(bytes).into(),
        BasicType::I64 | BasicType::Long => i64::load(bytes).into(),
        BasicType::I128 => i128::load(bytes),
        BasicType::U8 => u8::load(bytes).into(),
        BasicType::U16 => u16::load(bytes).into(),
        BasicType::U32 => u32::load(bytes).into(),
        BasicType::U64 | BasicType::ULong => u64::load(bytes).into(),
        _ => return None,
    })
}
