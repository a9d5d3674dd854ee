//! Predefined datatypes that are asked for by properties instead of by name: Fortran's kinds by
//! precision and range, types by class and size, and pairs by value and index (MPI 5.0, sections
//! 19.1.5 and 6.9.4).
//!
//! Each call for one of Fortran's kinds makes an object. The C edge keeps those that a rank got,
//! since the standard wants the same handle for the same question.

use super::Datatype;
use super::basic_type::BasicType;
use super::constructors::Constructor;
use super::predefined::{codes, of_leaf};
use super::typemap::LeafType;
use crate::error::{Class, Error, Result};

/// `MPI_UNDEFINED` of the standard ABI: a property that does not matter.
const UNDEFINED: i32 = -32766;

/// `MPI_TYPECLASS_*` with the numbers of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum TypeClass {
    Integer = 192,
    Real = 193,
    Complex = 194,
}

impl TypeClass {
    /// From the standard ABI's number.
    pub fn from_abi(value: i32) -> Option<Self> {
        [Self::Integer, Self::Real, Self::Complex]
            .into_iter()
            .find(|class| *class as i32 == value)
    }
}

/// Decimal precision and exponent range of Fortran's real kinds, smallest first.
const REALS: [(i32, i32, BasicType); 3] = [
    (6, 37, BasicType::F32),
    (15, 307, BasicType::F64),
    (33, 4931, BasicType::F128),
];

/// Decimal range of Fortran's integer kinds, smallest first.
const INTEGERS: [(i32, BasicType); 5] = [
    (2, BasicType::I8),
    (4, BasicType::I16),
    (9, BasicType::I32),
    (18, BasicType::I64),
    (38, BasicType::I128),
];

fn real_kind(precision: i32, range: i32) -> Result<BasicType> {
    if precision == UNDEFINED && range == UNDEFINED {
        return Err(Error::new(
            Class::Arg,
            "neither a precision nor a range was given",
        ));
    }
    let enough = |have: i32, wanted: i32| wanted == UNDEFINED || have >= wanted;
    let found = REALS
        .iter()
        .find(|(p, r, _)| enough(*p, precision) && enough(*r, range));
    found.map(|kind| kind.2).ok_or_else(|| {
        Error::new(
            Class::Arg,
            format!("there is no real kind of precision {precision} and range {range}"),
        )
    })
}

impl Datatype {
    /// `MPI_Type_create_f90_real`: the type of `selected_real_kind(precision, range)`; either may
    /// be `MPI_UNDEFINED`.
    ///
    /// # Errors
    /// `Arg` if there is no such kind.
    pub fn f90_real(precision: i32, range: i32) -> Result<Datatype> {
        let basic = real_kind(precision, range)?;
        let constructor = Constructor::F90Real { precision, range };
        Ok(of_leaf(LeafType::Basic(basic), None, constructor))
    }

    /// `MPI_Type_create_f90_complex`, likewise.
    ///
    /// # Errors
    /// `Arg` if there is no such kind.
    pub fn f90_complex(precision: i32, range: i32) -> Result<Datatype> {
        let part = real_kind(precision, range)?;
        let Some(basic) = BasicType::complex(2 * part.size()) else {
            return Err(Error::new(
                Class::Arg,
                format!("there is no complex type of two {part:?}"),
            ));
        };
        let constructor = Constructor::F90Complex { precision, range };
        Ok(of_leaf(LeafType::Basic(basic), None, constructor))
    }

    /// `MPI_Type_create_f90_integer`: the type of `selected_int_kind(range)`.
    ///
    /// # Errors
    /// `Arg` if there is no such kind.
    pub fn f90_integer(range: i32) -> Result<Datatype> {
        let Some((_, basic)) = INTEGERS.iter().find(|(have, _)| *have >= range) else {
            return Err(Error::new(
                Class::Arg,
                format!("there is no integer kind of range {range}"),
            ));
        };
        let constructor = Constructor::F90Integer { range };
        Ok(of_leaf(LeafType::Basic(*basic), None, constructor))
    }

    /// `MPI_Type_match_size`: the named type of a class and size in bytes.
    ///
    /// # Errors
    /// `Arg` if there is none.
    pub fn match_size(class: TypeClass, size: i32) -> Result<Datatype> {
        use codes::*;
        let sized: &[(i32, u16)] = match class {
            TypeClass::Integer => &[
                (1, INTEGER1),
                (2, INTEGER2),
                (4, INTEGER4),
                (8, INTEGER8),
                (16, INTEGER16),
            ],
            TypeClass::Real => &[(2, REAL2), (4, REAL4), (8, REAL8), (16, REAL16)],
            TypeClass::Complex => &[
                (4, COMPLEX4),
                (8, COMPLEX8),
                (16, COMPLEX16),
                (32, COMPLEX32),
            ],
        };
        let found = sized
            .iter()
            .find(|entry| entry.0 == size)
            .and_then(|entry| Self::predefined(entry.1));
        found.ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("there is no {class:?} type of {size} bytes"),
            )
        })
    }

    /// `MPI_Type_get_value_index`: the named pair type of a value and an index, or `None`
    /// (`MPI_DATATYPE_NULL`) where there is none. The standard would allow unnamed ones; clients
    /// expect of a pair that it has a name.
    pub fn value_index(value: &Datatype, index: &Datatype) -> Option<Datatype> {
        use codes::*;
        let named = match (value.code()?, index.code()?) {
            (FLOAT, INT) => Some(FLOAT_INT),
            (DOUBLE, INT) => Some(DOUBLE_INT),
            (LONG, INT) => Some(LONG_INT),
            (INT, INT) => Some(TWOINT),
            (SHORT, INT) => Some(SHORT_INT),
            (LONG_DOUBLE, INT) => Some(LONG_DOUBLE_INT),
            (REAL, REAL) => Some(TWOREAL),
            (DOUBLE_PRECISION, DOUBLE_PRECISION) => Some(TWODOUBLE_PRECISION),
            (INTEGER, INTEGER) => Some(TWOINTEGER),
            _ => None,
        };
        named.and_then(Self::predefined)
    }
}
