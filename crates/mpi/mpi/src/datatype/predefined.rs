//! The predefined datatypes: one immutable table for the whole process.
//!
//! Owns the codes of the standard ABI, the standard's names, and the sizes of Fortran's default
//! kinds, which the program may say once before the first Fortran type is used
//! (`MPI_Abi_set_fortran_info`); until then they are those of common compilers. Looking up a type
//! is an index into the table.

use super::basic_type::{BasicType, LONG_DOUBLE, LONG_DOUBLE_COMPLEX};
use super::constructors::Constructor;
use super::contents::ContentsForm;
use super::dataloop::{self, Dataloop};
use super::typemap::{LeafType, TypemapSummary, UniformLeaf};
use super::{Datatype, DatatypeParts};
use crate::error::{Class, Error, Result};
use std::sync::{LazyLock, OnceLock};

/// The data of a predefined type.
#[derive(Clone, Copy)]
enum PredefinedKind {
    One(BasicType),
    /// A value and an `int` index.
    Pair(BasicType),
    Fortran(FortranKind),
}

/// Types whose size is the Fortran compiler's choice.
#[derive(Clone, Copy)]
enum FortranKind {
    Logical,
    Integer,
    Real,
    Double,
    Complex,
    DoubleComplex,
    Character,
    TwoReal,
    TwoDouble,
    TwoInteger,
}

struct PredefinedEntry {
    code: u16,
    name: &'static str,
    kind: PredefinedKind,
}

macro_rules! predefined {
    ($($ident:ident = $code:literal, $name:literal, $kind:expr;)*) => {
        /// Codes of the predefined datatypes in the standard ABI; `MPI_2INT` and its like begin
        /// with `TWO`.
        #[allow(missing_docs, reason = "the standard documents the names")]
        pub mod codes {
            $(pub const $ident: u16 = $code;)*
        }

        const ENTRIES: &[PredefinedEntry] = &[$(PredefinedEntry { code: $code, name: $name, kind: $kind },)*];
    };
}

predefined! {
    AINT = 0x201, "MPI_AINT", PredefinedKind::One(BasicType::I64);
    COUNT = 0x202, "MPI_COUNT", PredefinedKind::One(BasicType::I64);
    OFFSET = 0x203, "MPI_OFFSET", PredefinedKind::One(BasicType::I64);
    PACKED = 0x207, "MPI_PACKED", PredefinedKind::One(BasicType::Byte);
    SHORT = 0x208, "MPI_SHORT", PredefinedKind::One(BasicType::I16);
    INT = 0x209, "MPI_INT", PredefinedKind::One(BasicType::I32);
    LONG = 0x20a, "MPI_LONG", PredefinedKind::One(BasicType::Long);
    LONG_LONG = 0x20b, "MPI_LONG_LONG", PredefinedKind::One(BasicType::I64);
    UNSIGNED_SHORT = 0x20c, "MPI_UNSIGNED_SHORT", PredefinedKind::One(BasicType::U16);
    UNSIGNED = 0x20d, "MPI_UNSIGNED", PredefinedKind::One(BasicType::U32);
    UNSIGNED_LONG = 0x20e, "MPI_UNSIGNED_LONG", PredefinedKind::One(BasicType::ULong);
    UNSIGNED_LONG_LONG = 0x20f, "MPI_UNSIGNED_LONG_LONG", PredefinedKind::One(BasicType::U64);
    FLOAT = 0x210, "MPI_FLOAT", PredefinedKind::One(BasicType::F32);
    C_FLOAT_COMPLEX = 0x212, "MPI_C_FLOAT_COMPLEX", PredefinedKind::One(BasicType::C32);
    CXX_FLOAT_COMPLEX = 0x213, "MPI_CXX_FLOAT_COMPLEX", PredefinedKind::One(BasicType::C32);
    DOUBLE = 0x214, "MPI_DOUBLE", PredefinedKind::One(BasicType::F64);
    C_DOUBLE_COMPLEX = 0x216, "MPI_C_DOUBLE_COMPLEX", PredefinedKind::One(BasicType::C64);
    CXX_DOUBLE_COMPLEX = 0x217, "MPI_CXX_DOUBLE_COMPLEX", PredefinedKind::One(BasicType::C64);
    LOGICAL = 0x218, "MPI_LOGICAL", PredefinedKind::Fortran(FortranKind::Logical);
    INTEGER = 0x219, "MPI_INTEGER", PredefinedKind::Fortran(FortranKind::Integer);
    REAL = 0x21a, "MPI_REAL", PredefinedKind::Fortran(FortranKind::Real);
    COMPLEX = 0x21b, "MPI_COMPLEX", PredefinedKind::Fortran(FortranKind::Complex);
    DOUBLE_PRECISION = 0x21c, "MPI_DOUBLE_PRECISION", PredefinedKind::Fortran(FortranKind::Double);
    DOUBLE_COMPLEX = 0x21d, "MPI_DOUBLE_COMPLEX", PredefinedKind::Fortran(FortranKind::DoubleComplex);
    CHARACTER = 0x21e, "MPI_CHARACTER", PredefinedKind::Fortran(FortranKind::Character);
    LONG_DOUBLE = 0x220, "MPI_LONG_DOUBLE", PredefinedKind::One(LONG_DOUBLE);
    C_LONG_DOUBLE_COMPLEX = 0x224, "MPI_C_LONG_DOUBLE_COMPLEX", PredefinedKind::One(LONG_DOUBLE_COMPLEX);
    CXX_LONG_DOUBLE_COMPLEX = 0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", PredefinedKind::One(LONG_DOUBLE_COMPLEX);
    FLOAT_INT = 0x228, "MPI_FLOAT_INT", PredefinedKind::Pair(BasicType::F32);
    DOUBLE_INT = 0x229, "MPI_DOUBLE_INT", PredefinedKind::Pair(BasicType::F64);
    LONG_INT = 0x22a, "MPI_LONG_INT", PredefinedKind::Pair(BasicType::Long);
    TWOINT = 0x22b, "MPI_2INT", PredefinedKind::Pair(BasicType::I32);
    SHORT_INT = 0x22c, "MPI_SHORT_INT", PredefinedKind::Pair(BasicType::I16);
    LONG_DOUBLE_INT = 0x22d, "MPI_LONG_DOUBLE_INT", PredefinedKind::Pair(LONG_DOUBLE);
    TWOREAL = 0x230, "MPI_2REAL", PredefinedKind::Fortran(FortranKind::TwoReal);
    TWODOUBLE_PRECISION = 0x231, "MPI_2DOUBLE_PRECISION", PredefinedKind::Fortran(FortranKind::TwoDouble);
    TWOINTEGER = 0x232, "MPI_2INTEGER", PredefinedKind::Fortran(FortranKind::TwoInteger);
    C_BOOL = 0x238, "MPI_C_BOOL", PredefinedKind::One(BasicType::Bool);
    CXX_BOOL = 0x239, "MPI_CXX_BOOL", PredefinedKind::One(BasicType::Bool);
    WCHAR = 0x23c, "MPI_WCHAR", PredefinedKind::One(BasicType::WideChar);
    INT8_T = 0x240, "MPI_INT8_T", PredefinedKind::One(BasicType::I8);
    UINT8_T = 0x241, "MPI_UINT8_T", PredefinedKind::One(BasicType::U8);
    CHAR = 0x243, "MPI_CHAR", PredefinedKind::One(BasicType::Char);
    SIGNED_CHAR = 0x244, "MPI_SIGNED_CHAR", PredefinedKind::One(BasicType::I8);
    UNSIGNED_CHAR = 0x245, "MPI_UNSIGNED_CHAR", PredefinedKind::One(BasicType::U8);
    BYTE = 0x247, "MPI_BYTE", PredefinedKind::One(BasicType::Byte);
    INT16_T = 0x248, "MPI_INT16_T", PredefinedKind::One(BasicType::I16);
    UINT16_T = 0x249, "MPI_UINT16_T", PredefinedKind::One(BasicType::U16);
    INT32_T = 0x250, "MPI_INT32_T", PredefinedKind::One(BasicType::I32);
    UINT32_T = 0x251, "MPI_UINT32_T", PredefinedKind::One(BasicType::U32);
    INT64_T = 0x258, "MPI_INT64_T", PredefinedKind::One(BasicType::I64);
    UINT64_T = 0x259, "MPI_UINT64_T", PredefinedKind::One(BasicType::U64);
    LOGICAL1 = 0x2c0, "MPI_LOGICAL1", PredefinedKind::One(BasicType::Logical(1));
    INTEGER1 = 0x2c1, "MPI_INTEGER1", PredefinedKind::One(BasicType::I8);
    LOGICAL2 = 0x2c8, "MPI_LOGICAL2", PredefinedKind::One(BasicType::Logical(2));
    INTEGER2 = 0x2c9, "MPI_INTEGER2", PredefinedKind::One(BasicType::I16);
    REAL2 = 0x2ca, "MPI_REAL2", PredefinedKind::One(BasicType::F16);
    LOGICAL4 = 0x2d0, "MPI_LOGICAL4", PredefinedKind::One(BasicType::Logical(4));
    INTEGER4 = 0x2d1, "MPI_INTEGER4", PredefinedKind::One(BasicType::I32);
    REAL4 = 0x2d2, "MPI_REAL4", PredefinedKind::One(BasicType::F32);
    COMPLEX4 = 0x2d3, "MPI_COMPLEX4", PredefinedKind::One(BasicType::C16);
    LOGICAL8 = 0x2d8, "MPI_LOGICAL8", PredefinedKind::One(BasicType::Logical(8));
    INTEGER8 = 0x2d9, "MPI_INTEGER8", PredefinedKind::One(BasicType::I64);
    REAL8 = 0x2da, "MPI_REAL8", PredefinedKind::One(BasicType::F64);
    COMPLEX8 = 0x2db, "MPI_COMPLEX8", PredefinedKind::One(BasicType::C32);
    LOGICAL16 = 0x2e0, "MPI_LOGICAL16", PredefinedKind::One(BasicType::Logical(16));
    INTEGER16 = 0x2e1, "MPI_INTEGER16", PredefinedKind::One(BasicType::I128);
    REAL16 = 0x2e2, "MPI_REAL16", PredefinedKind::One(BasicType::F128);
    COMPLEX16 = 0x2e3, "MPI_COMPLEX16", PredefinedKind::One(BasicType::C64);
    COMPLEX32 = 0x2eb, "MPI_COMPLEX32", PredefinedKind::One(BasicType::C128);
    C_FLOAT16 = 0x2cf, "MPIX_C_FLOAT16", PredefinedKind::One(BasicType::F16);
}

/// Codes lie in `[FIRST, FIRST + SPAN)`.
const FIRST: u16 = 0x200;
const SPAN: usize = 0x100;

/// See [`run_bytes`].
const RUNS: [u8; SPAN] = {
    let mut runs = [0; SPAN];
    let mut at = 0;
    while at < ENTRIES.len() {
        if let PredefinedKind::One(basic) = ENTRIES[at].kind {
            runs[(ENTRIES[at].code - FIRST) as usize] = basic.size() as u8;
        }
        at += 1;
    }
    runs
};

/// Bytes of one element of a predefined type whose elements lie back to back and whose size nobody
/// configures; 0 for any other word. No table is touched and nothing counted: this is on the way of
/// every small message.
#[inline(always)]
pub const fn run_bytes(code: usize) -> usize {
    match code.wrapping_sub(FIRST as usize) {
        within if within < SPAN => RUNS[within] as usize,
        _ => 0,
    }
}

/// Returns the `kind` under which the engine remembers a type: its code within the span, or that it
/// has none.
#[inline(always)]
pub const fn kind_of(code: usize) -> u8 {
    match code.wrapping_sub(FIRST as usize) {
        within if within < SPAN => within as u8,
        _ => DERIVED,
    }
}

/// The kind of a type that a program made. No predefined type has this code.
const DERIVED: u8 = 0xff;

/// Formats a number of bytes of a kind: `12 MPI_DOUBLE = 96 B`.
pub(crate) fn amount(bytes: u64, kind: u8) -> String {
    let code = FIRST + u16::from(kind);
    match (kind, lookup(code).zip(name(code))) {
        (DERIVED, _) => format!("{bytes} B of a derived datatype"),
        (_, Some((datatype, name))) => match bytes.checked_rem(datatype.size()) {
            Some(0) => format!("{} {name} = {bytes} B", bytes / datatype.size()),
            _ => format!("{bytes} B of {name}"),
        },
        (_, None) => format!("{bytes} B"),
    }
}

type PredefinedTable = Box<[Option<Datatype>]>;

static TABLE: LazyLock<PredefinedTable> = LazyLock::new(|| {
    fill(|kind| match kind {
        PredefinedKind::One(basic) => Some(LeafType::Basic(basic)),
        PredefinedKind::Pair(value) => Some(LeafType::Pair {
            value,
            index: BasicType::I32,
        }),
        PredefinedKind::Fortran(_) => None,
    })
});

static FORTRAN: OnceLock<(FortranSizes, PredefinedTable)> = OnceLock::new();

/// Sizes in bytes of Fortran's default kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as Fortran's types")]
pub struct FortranSizes {
    pub logical: u8,
    pub integer: u8,
    pub real: u8,
    pub double_precision: u8,
}

impl Default for FortranSizes {
    fn default() -> Self {
        Self {
            logical: 4,
            integer: 4,
            real: 4,
            double_precision: 8,
        }
    }
}

/// Says how large Fortran's default kinds are. Must come before the first use of a type that
/// depends on them.
///
/// # Errors
/// `Arg` for sizes that no kind has; `AbiVersion` if other sizes are in use already.
pub fn configure_fortran(sizes: FortranSizes) -> Result<()> {
    if ![1, 2, 4, 8, 16].contains(&sizes.logical)
        || BasicType::signed(u64::from(sizes.integer)).is_none()
        || BasicType::real(u64::from(sizes.real)).is_none()
        || BasicType::real(u64::from(sizes.double_precision)).is_none()
    {
        return Err(Error::new(
            Class::Arg,
            format!("no Fortran compiler has kinds of these sizes: {sizes:?}"),
        ));
    }
    let (used, _) = FORTRAN.get_or_init(|| (sizes, fortran_table(sizes)));
    if *used != sizes {
        let text = format!("Fortran types are in use already with {used:?}, not {sizes:?}");
        return Err(Error::new(Class::AbiVersion, text));
    }
    Ok(())
}

/// The sizes in use, or those that will be unless others are set before. Fixes nothing.
pub fn fortran_sizes() -> FortranSizes {
    FORTRAN
        .get()
        .map_or_else(FortranSizes::default, |(sizes, _)| *sizes)
}

/// Returns whether there is a predefined type of this code where Fortran's default kinds have these
/// sizes. Fixes nothing.
pub fn is_predefined_with(sizes: FortranSizes, code: u16) -> bool {
    let index = usize::from(code.wrapping_sub(FIRST));
    let is_there = |table: &PredefinedTable| table.get(index).is_some_and(Option::is_some);
    is_there(&TABLE) || is_there(&fortran_table(sizes))
}

/// The values that Fortran's `LOGICAL` has in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FortranBooleans {
    /// `.FALSE.`; everything else counts as true.
    pub no: i64,
    /// `.TRUE.`
    pub yes: i64,
}

static BOOLEANS: OnceLock<FortranBooleans> = OnceLock::new();

/// Says how Fortran's truth values look (`MPI_Abi_set_fortran_booleans`). Must come before they are
/// used.
///
/// # Errors
/// `AbiVersion` if others are in use already.
pub fn configure_booleans(booleans: FortranBooleans) -> Result<()> {
    let used = *BOOLEANS.get_or_init(|| booleans);
    if used == booleans {
        return Ok(());
    }
    let text = format!("Fortran's truth values are in use already as {used:?}, not {booleans:?}");
    Err(Error::new(Class::AbiVersion, text))
}

/// The truth values in use; `None`: they were neither set nor used. Fixes nothing.
pub fn known_fortran_booleans() -> Option<FortranBooleans> {
    BOOLEANS.get().copied()
}

/// The truth values in use, which this call fixes.
pub fn fortran_booleans() -> FortranBooleans {
    *BOOLEANS.get_or_init(|| FortranBooleans { no: 0, yes: 1 })
}

fn fortran() -> &'static (FortranSizes, PredefinedTable) {
    FORTRAN.get_or_init(|| {
        (
            FortranSizes::default(),
            fortran_table(FortranSizes::default()),
        )
    })
}

fn fortran_table(sizes: FortranSizes) -> PredefinedTable {
    let integer = BasicType::signed(u64::from(sizes.integer));
    let real = BasicType::real(u64::from(sizes.real));
    let double = BasicType::real(u64::from(sizes.double_precision));
    let twice = |basic: Option<BasicType>| {
        basic.map(|part| LeafType::Pair {
            value: part,
            index: part,
        })
    };
    let complex = |basic: Option<BasicType>| {
        basic
            .and_then(|part| BasicType::complex(2 * part.size()))
            .map(LeafType::Basic)
    };
    fill(|kind| match kind {
        PredefinedKind::One(_) | PredefinedKind::Pair(_) => None,
        PredefinedKind::Fortran(kind) => match kind {
            FortranKind::Logical => Some(LeafType::Basic(BasicType::Logical(sizes.logical))),
            FortranKind::Integer => integer.map(LeafType::Basic),
            FortranKind::Real => real.map(LeafType::Basic),
            FortranKind::Double => double.map(LeafType::Basic),
            FortranKind::Complex => complex(real),
            FortranKind::DoubleComplex => complex(double),
            FortranKind::Character => Some(LeafType::Basic(BasicType::Char)),
            FortranKind::TwoReal => twice(real),
            FortranKind::TwoDouble => twice(double),
            FortranKind::TwoInteger => twice(integer),
        },
    })
}

fn fill(leaf: impl Fn(PredefinedKind) -> Option<LeafType>) -> PredefinedTable {
    let mut table: PredefinedTable = vec![None; SPAN].into_boxed_slice();
    for entry in ENTRIES {
        if let Some(leaf) = leaf(entry.kind) {
            let slot = &mut table[usize::from(entry.code - FIRST)];
            *slot = Some(of_leaf(leaf, Some(entry.code), Constructor::Named));
        }
    }
    table
}

/// Codes of predefined datatypes; some numbers among them name none.
pub(super) fn codes() -> std::ops::Range<u16> {
    FIRST..0x400
}

/// The predefined type of a code.
#[inline]
pub(super) fn lookup(code: u16) -> Option<&'static Datatype> {
    let index = usize::from(code.wrapping_sub(FIRST));
    match TABLE.get(index)? {
        Some(found) => Some(found),
        None => lookup_fortran(index),
    }
}

fn lookup_fortran(index: usize) -> Option<&'static Datatype> {
    let code = FIRST + index as u16;
    let known = ENTRIES.iter().any(|entry| entry.code == code);
    if known {
        fortran().1.get(index)?.as_ref()
    } else {
        None
    }
}

/// The standard's name for a code.
pub(super) fn name(code: u16) -> Option<&'static str> {
    ENTRIES
        .iter()
        .find(|entry| entry.code == code)
        .map(|entry| entry.name)
}

/// A predefined datatype object, named or not.
pub(super) fn of_leaf(leaf: LeafType, code: Option<u16>, constructor: Constructor) -> Datatype {
    let (shape, elements, align) = match leaf {
        LeafType::Basic(basic) => (Dataloop::run(basic.size()), 1, basic.align()),
        LeafType::Pair { value, index } => {
            let parts = [
                Dataloop::run(value.size()),
                Dataloop::run(index.size()).moved(leaf.index_offset() as i64),
            ];
            (dataloop::concat(parts), 2, value.align().max(index.align()))
        }
    };
    let summary = TypemapSummary {
        size: i128::from(shape.len),
        elements,
        data: Some((0, i128::from(leaf.end()))),
        natural: Some((0, i128::from(leaf.extent()))),
        marks: None,
        align,
        leaf: UniformLeaf::One(leaf),
    };
    Datatype::assemble(DatatypeParts {
        code,
        summary,
        shape,
        constructor,
        form: ContentsForm::Int,
        committed: true,
    })
}

impl LeafType {
    /// Returns where the index of a pair lies; 0 for others.
    pub(crate) fn index_offset(self) -> u64 {
        match self {
            LeafType::Basic(_) => 0,
            LeafType::Pair { value, index } => value.size().next_multiple_of(index.align()),
        }
    }

    /// Distance from one element to the next in memory.
    pub(crate) fn extent(self) -> u64 {
        match self {
            LeafType::Basic(basic) => basic.size(),
            LeafType::Pair { value, index } => (self.index_offset() + index.size())
                .next_multiple_of(value.align().max(index.align())),
        }
    }

    /// The byte after the last one of data in one element.
    pub(crate) fn end(self) -> u64 {
        match self {
            LeafType::Basic(basic) => basic.size(),
            LeafType::Pair { index, .. } => self.index_offset() + index.size(),
        }
    }
}
