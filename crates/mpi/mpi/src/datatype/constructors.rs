//! Constructors of derived datatypes: what the program asked for, checked and lowered to a type
//! map.
//!
//! A [`Constructor`] keeps the arguments as given, because `MPI_Type_get_contents` must return
//! them. The methods on [`Datatype`] are the short way to the common ones.

use super::Datatype;
use super::array;
use super::contents::{Combiner, ContentsForm};
use super::typemap::{Typemap, TypemapBlock};
use crate::error::{Class, Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// How a datatype was made. Counts and displacements are as the program gave them; displacements
/// and strides of the `H` forms, of [`Constructor::Struct`] and [`Constructor::Resized`] are in
/// bytes, the others in extents of `old`.
#[derive(Clone, Debug)]
#[allow(
    missing_docs,
    reason = "the standard documents constructors and their arguments under these names"
)]
pub enum Constructor {
    Named,
    Dup {
        old: Datatype,
    },
    Contiguous {
        count: i64,
        old: Datatype,
    },
    Vector {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Datatype,
    },
    Hvector {
        count: i64,
        blocklength: i64,
        stride: i64,
        old: Datatype,
    },
    Indexed {
        blocklengths: Vec<i64>,
        displacements: Vec<i64>,
        old: Datatype,
    },
    Hindexed {
        blocklengths: Vec<i64>,
        displacements: Vec<i64>,
        old: Datatype,
    },
    IndexedBlock {
        blocklength: i64,
        displacements: Vec<i64>,
        old: Datatype,
    },
    HindexedBlock {
        blocklength: i64,
        displacements: Vec<i64>,
        old: Datatype,
    },
    Struct {
        blocklengths: Vec<i64>,
        displacements: Vec<i64>,
        types: Vec<Datatype>,
    },
    Subarray {
        sizes: Vec<i64>,
        subsizes: Vec<i64>,
        starts: Vec<i64>,
        order: ArrayOrder,
        old: Datatype,
    },
    Darray {
        size: i32,
        rank: i32,
        dims: Vec<DarrayDim>,
        order: ArrayOrder,
        old: Datatype,
    },
    Resized {
        lb: i64,
        extent: i64,
        old: Datatype,
    },
    F90Real {
        precision: i32,
        range: i32,
    },
    F90Complex {
        precision: i32,
        range: i32,
    },
    F90Integer {
        range: i32,
    },
}

/// One dimension of a distributed array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DarrayDim {
    /// Elements of the global array.
    pub gsize: i64,
    /// Way in which they are distributed.
    pub distribution: Distribution,
    /// Elements per block; `None` for the default (`MPI_DISTRIBUTE_DFLT_DARG`).
    pub darg: Option<i32>,
    /// Processes of the grid.
    pub psize: i32,
}

/// Order in which an array's dimensions lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ArrayOrder {
    /// The last dimension is contiguous.
    C = 12,
    /// The first dimension is contiguous.
    Fortran = 15,
}

impl ArrayOrder {
    /// From the standard ABI's `MPI_ORDER_*`.
    pub fn from_abi(value: i32) -> Option<Self> {
        [ArrayOrder::C, ArrayOrder::Fortran]
            .into_iter()
            .find(|order| *order as i32 == value)
    }
}

/// Distribution of one dimension of an array over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum Distribution {
    None = 16,
    Block = 17,
    Cyclic = 18,
}

impl Distribution {
    /// `MPI_DISTRIBUTE_DFLT_DARG` of the standard ABI.
    pub const DEFAULT_DARG: i32 = 19;

    /// From the standard ABI's `MPI_DISTRIBUTE_*`.
    pub fn from_abi(value: i32) -> Option<Self> {
        [Self::None, Self::Block, Self::Cyclic]
            .into_iter()
            .find(|kind| *kind as i32 == value)
    }
}

impl Datatype {
    /// `MPI_Type_dup`: an equal type, committed if this one is. Attributes are the caller's
    /// business.
    pub fn dup(&self) -> Result<Datatype> {
        Self::construct(Constructor::Dup { old: self.clone() }, ContentsForm::Int)
    }

    /// `MPI_Type_contiguous`.
    pub fn contiguous(&self, count: i64) -> Result<Datatype> {
        Self::construct(
            Constructor::Contiguous {
                count,
                old: self.clone(),
            },
            ContentsForm::Int,
        )
    }

    /// `MPI_Type_vector`: the stride in extents.
    pub fn vector(&self, count: i64, blocklength: i64, stride: i64) -> Result<Datatype> {
        Self::construct(
            Constructor::Vector {
                count,
                blocklength,
                stride,
                old: self.clone(),
            },
            ContentsForm::Int,
        )
    }

    /// `MPI_Type_create_hvector`: the stride in bytes.
    pub fn hvector(&self, count: i64, blocklength: i64, stride: i64) -> Result<Datatype> {
        Self::construct(
            Constructor::Hvector {
                count,
                blocklength,
                stride,
                old: self.clone(),
            },
            ContentsForm::Int,
        )
    }

    /// `MPI_Type_indexed`: displacements in extents.
    pub fn indexed(&self, blocklengths: &[i64], displacements: &[i64]) -> Result<Datatype> {
        let (blocklengths, displacements) = (blocklengths.to_vec(), displacements.to_vec());
        Self::construct(
            Constructor::Indexed {
                blocklengths,
                displacements,
                old: self.clone(),
            },
            ContentsForm::Int,
        )
    }

    /// `MPI_Type_create_hindexed`: displacements in bytes.
    pub fn hindexed(&self, blocklengths: &[i64], displacements: &[i64]) -> Result<Datatype> {
        let (blocklengths, displacements) = (blocklengths.to_vec(), displacements.to_vec());
        Self::construct(
            Constructor::Hindexed {
                blocklengths,
                displacements,
                old: self.clone(),
            },
            ContentsForm::Int,
        )
    }

    /// `MPI_Type_create_struct`: displacements in bytes.
    pub fn structure(
        blocklengths: &[i64],
        displacements: &[i64],
        types: &[Datatype],
    ) -> Result<Datatype> {
        let (blocklengths, displacements) = (blocklengths.to_vec(), displacements.to_vec());
        Self::construct(
            Constructor::Struct {
                blocklengths,
                displacements,
                types: types.to_vec(),
            },
            ContentsForm::Int,
        )
    }

    /// `MPI_Type_create_resized`.
    pub fn resized(&self, lb: i64, extent: i64) -> Result<Datatype> {
        Self::construct(
            Constructor::Resized {
                lb,
                extent,
                old: self.clone(),
            },
            ContentsForm::Int,
        )
    }

    /// Adds markers of bounds as entries of the types `MPI_LB` and `MPI_UB` did, which MPI 3.0
    /// removed. `lower` is the least displacement of such entries, `upper` the greatest. A marker
    /// wins over data, and stands beside markers of the type's parts.
    pub fn with_markers(
        &self,
        lower: Option<i64>,
        upper: Option<i64>,
        form: ContentsForm,
    ) -> Result<Datatype> {
        let marks = self.summary().marks;
        let lb = match (lower, marks) {
            (Some(lower), Some(_)) => lower.min(self.lb()),
            (lower, _) => lower.unwrap_or(self.lb()),
        };
        let ub = match (upper, marks) {
            (Some(upper), Some(_)) => upper.max(self.ub()),
            (upper, _) => upper.unwrap_or(self.ub()),
        };
        let extent = ub.checked_sub(lb).ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("the extent from {lb} to {ub} is more than 64 bits can say"),
            )
        })?;
        Self::construct(
            Constructor::Resized {
                lb,
                extent,
                old: self.clone(),
            },
            form,
        )
    }
}

/// Checks the arguments and lowers them to a type map.
pub(super) fn lower(constructor: &Constructor) -> Result<Typemap> {
    use Constructor::*;
    match constructor {
        Dup { old } => Ok(Typemap::Type(old.clone())),
        Contiguous { count, old } => Ok(repeat(
            counted("count", *count)?,
            old.extent(),
            Typemap::Type(old.clone()),
        )),
        Vector {
            count,
            blocklength,
            stride,
            old,
        } => {
            let stride = in_bytes(*stride, old)?;
            vector(*count, *blocklength, stride, old)
        }
        Hvector {
            count,
            blocklength,
            stride,
            old,
        } => vector(*count, *blocklength, *stride, old),
        Indexed {
            blocklengths,
            displacements,
            old,
        } => blocks(blocklengths, displacements, DisplacementUnit::Extents(old)),
        Hindexed {
            blocklengths,
            displacements,
            old,
        } => blocks(blocklengths, displacements, DisplacementUnit::Bytes(old)),
        IndexedBlock {
            blocklength,
            displacements,
            old,
        } => blocks(
            &vec![*blocklength; displacements.len()],
            displacements,
            DisplacementUnit::Extents(old),
        ),
        HindexedBlock {
            blocklength,
            displacements,
            old,
        } => blocks(
            &vec![*blocklength; displacements.len()],
            displacements,
            DisplacementUnit::Bytes(old),
        ),
        Struct {
            blocklengths,
            displacements,
            types,
        } => structure(blocklengths, displacements, types),
        Subarray {
            sizes,
            subsizes,
            starts,
            order,
            old,
        } => {
            let dims = array::subarray_dims(sizes, subsizes, starts)?;
            array::subarray(&dims, *order, old)
        }
        Darray {
            size,
            rank,
            dims,
            order,
            old,
        } => array::darray(*size, *rank, dims, (*order, old)),
        Resized { lb, extent, old } => {
            let ub = lb.checked_add(*extent).ok_or_else(|| {
                Error::new(
                    Class::Arg,
                    format!("lower bound {lb} and extent {extent} do not fit 64 bits together"),
                )
            })?;
            Ok(Typemap::Bounded {
                lb: *lb,
                ub,
                body: Arc::new(Typemap::Type(old.clone())),
            })
        }
        Named | F90Real { .. } | F90Complex { .. } | F90Integer { .. } => Err(Error::new(
            Class::Type,
            "predefined datatypes are looked up, not constructed",
        )),
    }
}

/// A count that must not be negative.
pub(super) fn counted(what: &str, value: i64) -> Result<u64> {
    u64::try_from(value).map_err(|_| {
        let class = if what == "count" {
            Class::Count
        } else {
            Class::Arg
        };
        Error::new(class, format!("{what} is {value}; it must not be negative"))
    })
}

pub(super) fn repeat(count: u64, stride: i64, body: Typemap) -> Typemap {
    Typemap::Repeat {
        count,
        stride,
        body: Arc::new(body),
    }
}

/// A number of extents of `old` in bytes.
fn in_bytes(extents: i64, old: &Datatype) -> Result<i64> {
    extents.checked_mul(old.extent()).ok_or_else(|| {
        let text = format!(
            "{extents} extents of {} bytes do not fit 64 bits",
            old.extent()
        );
        Error::new(Class::Arg, text)
    })
}

fn vector(count: i64, blocklength: i64, stride: i64, old: &Datatype) -> Result<Typemap> {
    let block = repeat(
        counted("blocklength", blocklength)?,
        old.extent(),
        Typemap::Type(old.clone()),
    );
    Ok(repeat(counted("count", count)?, stride, block))
}

/// The unit of displacements.
enum DisplacementUnit<'a> {
    Extents(&'a Datatype),
    Bytes(&'a Datatype),
}

fn blocks(
    blocklengths: &[i64],
    displacements: &[i64],
    unit: DisplacementUnit<'_>,
) -> Result<Typemap> {
    same_length(blocklengths.len(), displacements.len())?;
    let one = |(&length, &displacement): (&i64, &i64)| {
        let displacement = match unit {
            DisplacementUnit::Extents(old) => in_bytes(displacement, old)?,
            DisplacementUnit::Bytes(_) => displacement,
        };
        Ok(TypemapBlock {
            displacement,
            count: counted("blocklength", length)?,
            index: 0,
        })
    };
    let blocks = blocklengths
        .iter()
        .zip(displacements)
        .map(one)
        .collect::<Result<_>>()?;
    let (DisplacementUnit::Extents(old) | DisplacementUnit::Bytes(old)) = unit;
    Ok(Typemap::Blocks {
        blocks,
        types: vec![old.clone()],
    })
}

fn structure(blocklengths: &[i64], displacements: &[i64], types: &[Datatype]) -> Result<Typemap> {
    same_length(blocklengths.len(), displacements.len())?;
    same_length(blocklengths.len(), types.len())?;
    let mut distinct = Vec::new();
    let mut places: HashMap<usize, u32> = HashMap::new();
    let mut blocks = Vec::with_capacity(types.len());
    for ((&length, &displacement), old) in blocklengths.iter().zip(displacements).zip(types) {
        let index = *places.entry(old.id()).or_insert_with(|| {
            distinct.push(old.clone());
            (distinct.len() - 1) as u32
        });
        blocks.push(TypemapBlock {
            displacement,
            count: counted("blocklength", length)?,
            index,
        });
    }
    Ok(Typemap::Padded(Arc::new(Typemap::Blocks {
        blocks,
        types: distinct,
    })))
}

fn same_length(a: usize, b: usize) -> Result<()> {
    if a == b {
        return Ok(());
    }
    Err(Error::new(
        Class::Arg,
        format!("argument arrays of different lengths: {a} and {b}"),
    ))
}

impl Constructor {
    /// The datatypes it holds, in the order of the standard's `array_of_datatypes`.
    pub fn types(&self) -> &[Datatype] {
        use Constructor::*;
        match self {
            Named | F90Real { .. } | F90Complex { .. } | F90Integer { .. } => &[],
            Struct { types, .. } => types,
            Dup { old }
            | Contiguous { old, .. }
            | Vector { old, .. }
            | Hvector { old, .. }
            | Indexed { old, .. }
            | Hindexed { old, .. }
            | IndexedBlock { old, .. }
            | HindexedBlock { old, .. }
            | Subarray { old, .. }
            | Darray { old, .. }
            | Resized { old, .. } => std::slice::from_ref(old),
        }
    }

    /// The datatypes of [`Constructor::types`], to be replaced by others.
    pub(crate) fn types_mut(&mut self) -> &mut [Datatype] {
        use Constructor::*;
        match self {
            Named | F90Real { .. } | F90Complex { .. } | F90Integer { .. } => &mut [],
            Struct { types, .. } => types,
            Dup { old }
            | Contiguous { old, .. }
            | Vector { old, .. }
            | Hvector { old, .. }
            | Indexed { old, .. }
            | Hindexed { old, .. }
            | IndexedBlock { old, .. }
            | HindexedBlock { old, .. }
            | Subarray { old, .. }
            | Darray { old, .. }
            | Resized { old, .. } => std::slice::from_mut(old),
        }
    }

    /// Takes the datatypes out, so that they can be dropped without recursion.
    pub(super) fn take_types(&mut self) -> Vec<Datatype> {
        use Constructor::*;
        match std::mem::replace(self, Named) {
            Named | F90Real { .. } | F90Complex { .. } | F90Integer { .. } => Vec::new(),
            Struct { types, .. } => types,
            Dup { old }
            | Contiguous { old, .. }
            | Vector { old, .. }
            | Hvector { old, .. }
            | Indexed { old, .. }
            | Hindexed { old, .. }
            | IndexedBlock { old, .. }
            | HindexedBlock { old, .. }
            | Subarray { old, .. }
            | Darray { old, .. }
            | Resized { old, .. } => vec![old],
        }
    }

    /// The standard's name for this way of making a datatype.
    pub fn combiner(&self) -> Combiner {
        use Constructor::*;
        match self {
            Named => Combiner::Named,
            Dup { .. } => Combiner::Dup,
            Contiguous { .. } => Combiner::Contiguous,
            Vector { .. } => Combiner::Vector,
            Hvector { .. } => Combiner::Hvector,
            Indexed { .. } => Combiner::Indexed,
            Hindexed { .. } => Combiner::Hindexed,
            IndexedBlock { .. } => Combiner::IndexedBlock,
            HindexedBlock { .. } => Combiner::HindexedBlock,
            Struct { .. } => Combiner::Struct,
            Subarray { .. } => Combiner::Subarray,
            Darray { .. } => Combiner::Darray,
            Resized { .. } => Combiner::Resized,
            F90Real { .. } => Combiner::F90Real,
            F90Complex { .. } => Combiner::F90Complex,
            F90Integer { .. } => Combiner::F90Integer,
        }
    }
}
