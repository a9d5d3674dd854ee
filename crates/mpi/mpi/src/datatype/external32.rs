//! The canonical representation `external32` (MPI 5.0, section 14.5.2): big-endian, unpadded, fixed
//! sizes.
//!
//! Owns the conversion of every elementary kind. Most are byte swaps; `long` narrows to 4 bytes and
//! `wchar_t` to 2 where the value fits, x87 extended precision becomes IEEE quadruple precision.

use super::basic_type::BasicType;
use super::pack::PackElements;
use super::predefined::fortran_booleans;
use super::signature::LeafRun;
use super::typemap::LeafType;
use crate::error::{Class, Error, Result};
use garonne_sync::user::UserMem;
use rustc_apfloat::ieee::{Quad, X87DoubleExtended};
use rustc_apfloat::{Float, FloatConvert};
use std::ops::ControlFlow;

/// Largest element in memory.
const ELEMENT_MAX: usize = 32;

/// Bytes of data of one element in memory.
pub(super) fn native_size(leaf: LeafType) -> u64 {
    match leaf {
        LeafType::Basic(basic) => basic.size(),
        LeafType::Pair { value, index } => value.size() + index.size(),
    }
}

/// Bytes of one element in the canonical form.
pub(super) fn external_size(leaf: LeafType) -> u64 {
    match leaf {
        LeafType::Basic(basic) => basic.external_size(),
        LeafType::Pair { value, index } => value.external_size() + index.external_size(),
    }
}

/// Converts elements from memory into `out`, which is exactly as long as their canonical form.
pub(super) fn encode(from: PackElements<'_>, mut out: &mut [u8]) -> Result<()> {
    each_basic(from, |at, basic| {
        let (here, rest) = std::mem::take(&mut out).split_at_mut(basic.external_size() as usize);
        out = rest;
        let mut native = [0; ELEMENT_MAX];
        let native = &mut native[..basic.size() as usize];
        from.mem.read(at, native);
        encode_basic(basic, native, here)
    })
}

/// Converts elements from `input`, which is exactly as long as their canonical form, to memory.
pub(super) fn decode(to: PackElements<'_>, mut input: &[u8]) -> Result<()> {
    each_basic(to, |at, basic| {
        let (here, rest) = input.split_at(basic.external_size() as usize);
        input = rest;
        let mut native = [0; ELEMENT_MAX];
        let native = &mut native[..basic.size() as usize];
        decode_basic(basic, here, native);
        write_value(to.mem, at, basic, native);
        Ok(())
    })
}

/// Converts as many elements from `input` as lie in it wholly. Returns their bytes in memory.
pub(super) fn decode_some(to: PackElements<'_>, mut input: &[u8]) -> Result<u64> {
    let (mut bytes, mut is_over) = (0, false);
    each_basic(to, |at, basic| {
        let len = basic.external_size() as usize;
        is_over |= input.len() < len;
        if is_over {
            return Ok(());
        }
        let (here, rest) = input.split_at(len);
        input = rest;
        let mut native = [0; ELEMENT_MAX];
        let native = &mut native[..basic.size() as usize];
        decode_basic(basic, here, native);
        write_value(to.mem, at, basic, native);
        bytes += basic.size();
        Ok(())
    })?;
    Ok(bytes)
}

/// Writes a value without the padding of its memory form, which belongs to the program.
fn write_value(mem: UserMem, at: isize, basic: BasicType, native: &[u8]) {
    match basic {
        BasicType::X87 => mem.write(at, &native[..X87_BYTES]),
        BasicType::CX87 => {
            mem.write(at, &native[..X87_BYTES]);
            mem.write(at + 16, &native[16..16 + X87_BYTES]);
        }
        _ => mem.write(at, native),
    }
}

/// Bytes of value in an x87 number.
const X87_BYTES: usize = 10;

/// Visits every elementary value with its offset.
fn each_basic(
    of: PackElements<'_>,
    mut visit: impl FnMut(isize, BasicType) -> Result<()>,
) -> Result<()> {
    let mut outcome = Ok(());
    let mut visit_run = |run: LeafRun| -> Result<()> {
        for i in 0..run.count {
            let at = run.at as isize + (i * run.leaf.extent()) as isize;
            match run.leaf {
                LeafType::Basic(basic) => visit(at, basic)?,
                LeafType::Pair { value, index } => {
                    visit(at, value)?;
                    visit(at + run.leaf.index_offset() as isize, index)?;
                }
            }
        }
        Ok(())
    };
    let _ = of.datatype.visit_leaves(of.count, &mut |run| {
        outcome = visit_run(run);
        if outcome.is_ok() {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    outcome
}

fn encode_basic(basic: BasicType, native: &[u8], out: &mut [u8]) -> Result<()> {
    match basic {
        BasicType::Long => narrow(
            i32::try_from(i64::from_ne_bytes(fixed(native))).map(i32::to_be_bytes),
            basic,
            out,
        ),
        BasicType::ULong => narrow(
            u32::try_from(u64::from_ne_bytes(fixed(native))).map(u32::to_be_bytes),
            basic,
            out,
        ),
        BasicType::WideChar => narrow(
            u16::try_from(u32::from_ne_bytes(fixed(native))).map(u16::to_be_bytes),
            basic,
            out,
        ),
        BasicType::X87 => {
            let quad: Quad = x87(native).convert(&mut false).value;
            out.copy_from_slice(&quad.to_bits().to_be_bytes());
            Ok(())
        }
        BasicType::Bool | BasicType::Logical(_) => {
            out.fill(0);
            if let Some(last) = out.last_mut() {
                *last = u8::from(is_true(basic, native));
            }
            Ok(())
        }
        _ => match basic.real_part() {
            Some(part) => {
                let (native_half, out_half) = (native.len() / 2, out.len() / 2);
                encode_basic(part, &native[..native_half], &mut out[..out_half])?;
                encode_basic(part, &native[native_half..], &mut out[out_half..])
            }
            None => {
                swap(native, out);
                Ok(())
            }
        },
    }
}

fn decode_basic(basic: BasicType, input: &[u8], native: &mut [u8]) {
    match basic {
        BasicType::Long => {
            native.copy_from_slice(&i64::from(i32::from_be_bytes(fixed(input))).to_ne_bytes())
        }
        BasicType::ULong => {
            native.copy_from_slice(&u64::from(u32::from_be_bytes(fixed(input))).to_ne_bytes())
        }
        BasicType::WideChar => {
            native.copy_from_slice(&u32::from(u16::from_be_bytes(fixed(input))).to_ne_bytes())
        }
        BasicType::X87 => {
            let quad = Quad::from_bits(u128::from_be_bytes(fixed(input)));
            let value: X87DoubleExtended = quad.convert(&mut false).value;
            native.copy_from_slice(&value.to_bits().to_le_bytes());
        }
        BasicType::Bool => native[0] = u8::from(input.iter().any(|byte| *byte != 0)),
        BasicType::Logical(_) => {
            let values = fortran_booleans();
            let value = if input.iter().any(|byte| *byte != 0) {
                values.yes
            } else {
                values.no
            };
            let wide = i128::from(value).to_le_bytes();
            native.copy_from_slice(&wide[..native.len()]);
            if cfg!(target_endian = "big") {
                native.reverse();
            }
        }
        _ => match basic.real_part() {
            Some(part) => {
                let (input_half, native_half) = (input.len() / 2, native.len() / 2);
                decode_basic(part, &input[..input_half], &mut native[..native_half]);
                decode_basic(part, &input[input_half..], &mut native[native_half..]);
            }
            None => swap(input, native),
        },
    }
}

/// Copies a value in big-endian byte order.
fn swap(from: &[u8], to: &mut [u8]) {
    to.copy_from_slice(from);
    if cfg!(target_endian = "little") {
        to.reverse();
    }
}

/// An x87 number from its 16 bytes in memory.
fn x87(native: &[u8]) -> X87DoubleExtended {
    let mut bits = [0; 16];
    bits[..X87_BYTES].copy_from_slice(&native[..X87_BYTES]);
    X87DoubleExtended::from_bits(u128::from_le_bytes(bits))
}

fn is_true(basic: BasicType, native: &[u8]) -> bool {
    let no = match basic {
        BasicType::Logical(_) => i128::from(fortran_booleans().no).to_le_bytes(),
        _ => [0; 16],
    };
    match cfg!(target_endian = "little") {
        true => native.iter().ne(&no[..native.len()]),
        false => native.iter().ne(no[..native.len()].iter().rev()),
    }
}

fn narrow<const N: usize, E>(
    value: Result<[u8; N], E>,
    basic: BasicType,
    out: &mut [u8],
) -> Result<()> {
    match value {
        Ok(bytes) => {
            out.copy_from_slice(&bytes);
            Ok(())
        }
        Err(_) => {
            let text = format!(
                "a value of kind {basic:?} does not fit the {N} bytes it has in external32"
            );
            Err(Error::new(Class::Conversion, text))
        }
    }
}

/// A slice of known length as an array; zeros if the caller's table of sizes were wrong.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    debug_assert_eq!(bytes.len(), N);
    bytes.first_chunk::<N>().copied().unwrap_or([0; N])
}
