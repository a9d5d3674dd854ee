//! `MPI_MINLOC` and `MPI_MAXLOC` over contiguous pairs of a value and an index.

use super::Predefined;
use super::kernels::integer_value;
use super::number::Number;
use crate::datatype::Leaf;
use crate::datatype::basic_type::Basic;
use rustc_apfloat::ieee::{Half, Quad, X87DoubleExtended};
use std::cmp::Ordering;

/// Keeps, element by element, the pair with the better value, and of equal values the one with the
/// smaller index. The last element need not have its padding.
pub(super) fn combine(op: Predefined, pair: (Basic, Basic), src: &[u8], dst: &mut [u8]) {
    match pair.0 {
        Basic::I8 => of::<i8>(op, pair, src, dst),
        Basic::I16 => of::<i16>(op, pair, src, dst),
        Basic::I32 => of::<i32>(op, pair, src, dst),
        Basic::I64 | Basic::Long => of::<i64>(op, pair, src, dst),
        Basic::I128 => of::<i128>(op, pair, src, dst),
        Basic::U8 => of::<u8>(op, pair, src, dst),
        Basic::U16 => of::<u16>(op, pair, src, dst),
        Basic::U32 => of::<u32>(op, pair, src, dst),
        Basic::U64 | Basic::ULong => of::<u64>(op, pair, src, dst),
        Basic::F16 => of::<Half>(op, pair, src, dst),
        Basic::F32 => of::<f32>(op, pair, src, dst),
        Basic::F64 => of::<f64>(op, pair, src, dst),
        Basic::X87 => of::<X87DoubleExtended>(op, pair, src, dst),
        Basic::F128 => of::<Quad>(op, pair, src, dst),
        _ => {}
    }
}

fn of<T: Number>(op: Predefined, (value, index): (Basic, Basic), src: &[u8], dst: &mut [u8]) {
    let leaf = Leaf::Pair { value, index };
    let (at, extent) = (leaf.index_offset() as usize, leaf.extent() as usize);
    let index_size = index.size() as usize;
    for (a, b) in src.chunks(extent).zip(dst.chunks_mut(extent)) {
        let (x, y) = (T::load(a), T::load(b));
        let wins = if op == Predefined::Maxloc {
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
fn compare<T: Number>(index: Basic, a: &[u8], b: &[u8]) -> Ordering {
    match (integer_value(index, a), integer_value(index, b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ if T::load(b).above(T::load(a)) => Ordering::Less,
        _ => Ordering::Greater,
    }
}
