//! The elementary kinds of data that predefined datatypes are made of.
//!
//! Owns what a kind is: its size and alignment in memory, its arithmetic family, its canonical
//! form. Bounded by the standard's list of predefined types; the sizes follow the C ABI of the
//! target and the configured Fortran compiler.

/// An elementary kind. Several predefined datatypes share one: `MPI_INT` and `MPI_INT32_T` are both
/// [`Basic::I32`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(
    missing_docs,
    reason = "the names say it: kind and width in bits, or the standard's name"
)]
pub enum Basic {
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
pub const LONG_DOUBLE: Basic = if cfg!(target_arch = "x86_64") {
    Basic::X87
} else {
    Basic::F128
};

/// `long double _Complex` of the C ABI of this target.
pub const LONG_DOUBLE_COMPLEX: Basic = if cfg!(target_arch = "x86_64") {
    Basic::CX87
} else {
    Basic::C128
};

impl Basic {
    /// Bytes in memory, padding included (`long double` of x86-64: 16).
    pub const fn size(self) -> u64 {
        match self {
            Basic::I8 | Basic::U8 | Basic::Bool | Basic::Char | Basic::Byte => 1,
            Basic::I16 | Basic::U16 | Basic::F16 => 2,
            Basic::I32 | Basic::U32 | Basic::F32 | Basic::C16 | Basic::WideChar => 4,
            Basic::I64 | Basic::U64 | Basic::Long | Basic::ULong | Basic::F64 | Basic::C32 => 8,
            Basic::I128 | Basic::X87 | Basic::F128 | Basic::C64 => 16,
            Basic::CX87 | Basic::C128 => 32,
            Basic::Logical(bytes) => bytes as u64,
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
    pub const fn real_part(self) -> Option<Basic> {
        match self {
            Basic::C16 => Some(Basic::F16),
            Basic::C32 => Some(Basic::F32),
            Basic::C64 => Some(Basic::F64),
            Basic::CX87 => Some(Basic::X87),
            Basic::C128 => Some(Basic::F128),
            _ => None,
        }
    }

    /// Bytes of one element in `external32` (MPI 5.0, section 14.5.2).
    pub const fn external_size(self) -> u64 {
        match self {
            Basic::WideChar => 2,
            Basic::Long | Basic::ULong => 4,
            other => other.size(),
        }
    }

    /// The signed integer kind of `size` bytes.
    pub const fn signed(size: u64) -> Option<Basic> {
        match size {
            1 => Some(Basic::I8),
            2 => Some(Basic::I16),
            4 => Some(Basic::I32),
            8 => Some(Basic::I64),
            16 => Some(Basic::I128),
            _ => None,
        }
    }

    /// The IEEE binary floating-point kind of `size` bytes, as Fortran's `REAL*size`.
    pub const fn real(size: u64) -> Option<Basic> {
        match size {
            2 => Some(Basic::F16),
            4 => Some(Basic::F32),
            8 => Some(Basic::F64),
            16 => Some(Basic::F128),
            _ => None,
        }
    }

    /// The complex kind of `size` bytes in all.
    pub const fn complex(size: u64) -> Option<Basic> {
        match size {
            4 => Some(Basic::C16),
            8 => Some(Basic::C32),
            16 => Some(Basic::C64),
            32 => Some(Basic::C128),
            _ => None,
        }
    }

    /// Whether it is a signed or unsigned integer.
    pub const fn is_integer(self) -> bool {
        use Basic::*;
        matches!(
            self,
            I8 | I16 | I32 | I64 | I128 | U8 | U16 | U32 | U64 | Long | ULong
        )
    }

    /// Whether it is a real floating-point number.
    pub const fn is_real(self) -> bool {
        matches!(
            self,
            Basic::F16 | Basic::F32 | Basic::F64 | Basic::X87 | Basic::F128
        )
    }

    /// Whether it is a truth value of C, C++ or Fortran.
    pub const fn is_logical(self) -> bool {
        matches!(self, Basic::Bool | Basic::Logical(_))
    }
}
