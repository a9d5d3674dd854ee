//! The elementary kinds of data that predefined datatypes are made of.
//!
//! Owns what a kind is: its size and alignment in memory, its arithmetic family, its canonical
//! form. Bounded by the standard's list of predefined types; the sizes follow the C ABI of the
//! target and the configured Fortran compiler.

/// An elementary kind. Several predefined datatypes share one: `MPI_INT` and `MPI_INT32_T` are both
/// [`BasicType::I32`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "the names say it: kind and width in bits, or the standard's name"
)]
pub enum BasicType {
    I8,
    I16,
    I32,
    I64,
    I128,
    U8,
    U16,
    U32,
    U64,
    /// C `long`: 8 bytes in memory, 4 in `external32`.
    Long,
    /// C `unsigned long`, likewise.
    ULong,
    /// IEEE half precision (`MPI_REAL2`).
    F16,
    F32,
    F64,
    /// x87 extended precision in 16 bytes: `long double` of x86-64.
    X87,
    /// IEEE quadruple precision: `MPI_REAL16`, and `long double` of AArch64.
    F128,
    C16,
    C32,
    C64,
    CX87,
    C128,
    /// C `_Bool` and C++ `bool`.
    Bool,
    /// A Fortran `LOGICAL` of 1, 2, 4, 8 or 16 bytes.
    Logical(u8),
    /// Printable characters: `MPI_CHAR`, `MPI_CHARACTER`; integers only for reductions.
    Char,
    /// C `wchar_t`.
    WideChar,
    /// Uninterpreted: `MPI_BYTE`, and `MPI_PACKED`.
    Byte,
}

/// `long double` of the C ABI of this target.
pub const LONG_DOUBLE: BasicType = if cfg!(target_arch = "x86_64") {
    BasicType::X87
} else {
    BasicType::F128
};

/// `long double _Complex` of the C ABI of this target.
pub const LONG_DOUBLE_COMPLEX: BasicType = if cfg!(target_arch = "x86_64") {
    BasicType::CX87
} else {
    BasicType::C128
};

impl BasicType {
    /// Bytes in memory, padding included (`long double` of x86-64: 16).
    pub const fn size(self) -> u64 {
        match self {
            BasicType::I8 | BasicType::U8 | BasicType::Bool | BasicType::Char | BasicType::Byte => {
                1
            }
            BasicType::I16 | BasicType::U16 | BasicType::F16 => 2,
            BasicType::I32
            | BasicType::U32
            | BasicType::F32
            | BasicType::C16
            | BasicType::WideChar => 4,
            BasicType::I64
            | BasicType::U64
            | BasicType::Long
            | BasicType::ULong
            | BasicType::F64
            | BasicType::C32 => 8,
            BasicType::I128 | BasicType::X87 | BasicType::F128 | BasicType::C64 => 16,
            BasicType::CX87 | BasicType::C128 => 32,
            BasicType::Logical(bytes) => bytes as u64,
        }
    }

    /// Alignment in memory: that of one part for complex kinds.
    pub const fn align(self) -> u64 {
        match self.real_part() {
            Some(part) => part.size(),
            None => self.size(),
        }
    }

    /// The kind of each of the two parts, for complex kinds.
    pub const fn real_part(self) -> Option<BasicType> {
        match self {
            BasicType::C16 => Some(BasicType::F16),
            BasicType::C32 => Some(BasicType::F32),
            BasicType::C64 => Some(BasicType::F64),
            BasicType::CX87 => Some(BasicType::X87),
            BasicType::C128 => Some(BasicType::F128),
            _ => None,
        }
    }

    /// Bytes of one element in `external32` (MPI 5.0, section 14.5.2).
    pub const fn external_size(self) -> u64 {
        match self {
            BasicType::WideChar => 2,
            BasicType::Long | BasicType::ULong => 4,
            other => other.size(),
        }
    }

    /// The signed integer kind of `size` bytes.
    pub const fn signed(size: u64) -> Option<BasicType> {
        match size {
            1 => Some(BasicType::I8),
            2 => Some(BasicType::I16),
            4 => Some(BasicType::I32),
            8 => Some(BasicType::I64),
            16 => Some(BasicType::I128),
            _ => None,
        }
    }

    /// The IEEE binary floating-point kind of `size` bytes, as Fortran's `REAL*size`.
    pub const fn real(size: u64) -> Option<BasicType> {
        match size {
            2 => Some(BasicType::F16),
            4 => Some(BasicType::F32),
            8 => Some(BasicType::F64),
            16 => Some(BasicType::F128),
            _ => None,
        }
    }

    /// The complex kind of `size` bytes in all.
    pub const fn complex(size: u64) -> Option<BasicType> {
        match size {
            4 => Some(BasicType::C16),
            8 => Some(BasicType::C32),
            16 => Some(BasicType::C64),
            32 => Some(BasicType::C128),
            _ => None,
        }
    }

    /// Returns whether it is a signed or unsigned integer.
    pub const fn is_integer(self) -> bool {
        use BasicType::*;
        matches!(
            self,
            I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | Long | ULong
        )
    }

    /// Returns whether it is a real floating-point number.
    pub const fn is_real(self) -> bool {
        matches!(
            self,
            BasicType::F16 | BasicType::F32 | BasicType::F64 | BasicType::X87 | BasicType::F128
        )
    }

    /// Returns whether it is a truth value of C, C++ or Fortran.
    pub const fn is_logical(self) -> bool {
        matches!(self, BasicType::Bool | BasicType::Logical(_))
    }
}
