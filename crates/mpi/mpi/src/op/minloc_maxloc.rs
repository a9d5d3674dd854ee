//! `MPI_MINLOC` and `MPI_MAXLOC` over contiguous pairs of a value and an index.

use super::PredefinedOp;
use super::kernels::integer_value;
use super::number::Number;
use crate::datatype::LeafType;
use crate::datatype::basic_type::BasicType;
use rustc_apfloat::ieee::{Half, Quad, X87DoubleExtended};
use std::cmp::Ordering;

/// Keeps, element by element, the pair with the better value, and of equal values the one with the
/// smaller index. The last element need not have its padding.
pub(super) fn combine(op: PredefinedOp, pair: (BasicType, BasicType), src: &[u8], dst: &mut [u8]) {
    match pair.0 {
        BasicType::I8 => of::<i8>(op, pair, src, dst),
        BasicType::I16 => of::<i16>(op, pair, src, dst),
        BasicType::I32 => of::<i32>(op, pair, src, dst),
        BasicType::I64 | BasicType::Long => of::<i64>(op, pair, src, dst),
        BasicType::I128 => of::<i128>(op, pair, src, dst),
        BasicType::U8 => of::<u8>(op, pair, src, dst),
        BasicType::U16 => of::<u16>(op, pair, src, dst),
        BasicType::U32 => of::<u32>(op, pair, src, dst),
        BasicType::U64 | BasicType::ULong => of::<u64>(op, pair, src, dst),
        BasicType::F16 => of::<Half>(op, pair, src, dst),
        BasicType::F32 => of::<f32>(op, pair, src, dst),
        BasicType::F64 => of::<f64>(op, pair, src, dst),
        BasicType::X87 => of::<X87DoubleExtended>(op, pair, src, dst),
        BasicType::F128 => of::<Quad>(op, pair, src, dst),
        _ => {}
    }
}

fn of<T: Number>(
    op: PredefinedOp,
    (value, index): (BasicType, BasicType),
    src: &[u8],
    dst: &mut [u8],
) {
    let leaf = LeafType::Pair { value, index };
    let (at, extent) = (leaf.index_offset() as usize, leaf.extent() as usize);
    let index_size = index.size() as usize;
    for (a, b) in src.chunks(extent).zip(dst.chunks_mut(extent)) {
        let (x, y) = (T::load(a), T::load(b));
        let wins = if op == PredefinedOp::Maxloc {
            x.above(y)
        } else {
            y.above(x)
        };
        if wins || (x.same(y) && compare::<T>(index, &a[at..], &b[at..]) == Ordering::Less) {
            x.store(b);
            b[at..at + index_size].copy_from_slice(&a[at..at + index_size]);
        }
    }
}

/// Compares two indices. Fortran's pairs have an index of the value's own kind.
fn compare<T: Number>(index: BasicType, a: &[u8], b: &[u8]) -> Ordering {
    match (integer_value(index, a), integer_value(index, b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ if T::load(b).above(T::load(a)) => Ordering::Less,
        _ => Ordering::Greater,
    }
}
