//! Decoding: what `MPI_Type_get_envelope` and `MPI_Type_get_contents` answer (MPI 5.0, section
//! 5.1.13).

use super::Datatype;
use super::constructors::{Constructor, DarrayDim, Distribution};

/// Which kind of call made a datatype, and so in which arrays its counts are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentsForm {
    /// The call with `int` counts.
    Int,
    /// The `_c` call with `MPI_Count`.
    Large,
}

/// `MPI_COMBINER_*` with the numbers of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the standard documents the names")]
pub enum Combiner {
    Named = 101,
    Dup = 102,
    Contiguous = 103,
    Vector = 104,
    Hvector = 105,
    Indexed = 106,
    Hindexed = 107,
    IndexedBlock = 108,
    HindexedBlock = 109,
    Struct = 110,
    Subarray = 111,
    Darray = 112,
    F90Real = 113,
    F90Complex = 114,
    F90Integer = 115,
    Resized = 116,
}

impl Combiner {
    /// A word for messages.
    pub fn name(self) -> &'static str {
        match self {
            Combiner::Named => "predefined",
            Combiner::Dup => "duplicated",
            Combiner::Contiguous => "contiguous",
            Combiner::Vector => "vector",
            Combiner::Hvector => "hvector",
            Combiner::Indexed => "indexed",
            Combiner::Hindexed => "hindexed",
            Combiner::IndexedBlock => "indexed-block",
            Combiner::HindexedBlock => "hindexed-block",
            Combiner::Struct => "struct",
            Combiner::Subarray => "subarray",
            Combiner::Darray => "darray",
            Combiner::F90Real => "Fortran real",
            Combiner::F90Complex => "Fortran complex",
            Combiner::F90Integer => "Fortran integer",
            Combiner::Resized => "resized",
        }
    }
}

/// The arguments a datatype was made with, sorted into the arrays of `MPI_Type_get_contents_c`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Plain integers.
    pub integers: Vec<i32>,
    /// Addresses.
    pub addresses: Vec<i64>,
    /// Counts and displacements of `_c` constructors.
    pub large_counts: Vec<i64>,
    /// Datatypes.
    pub types: Vec<Datatype>,
}

/// Numbers of the values that `MPI_Type_get_contents_c` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the standard")]
pub struct Envelope {
    pub integers: u64,
    pub addresses: u64,
    pub large_counts: u64,
    pub types: u64,
    pub combiner: Combiner,
}

impl Datatype {
    /// Returns the result of `MPI_Type_get_envelope_c`; the call without `_c` is an error where
    /// `large_counts` is not 0.
    pub fn envelope(&self) -> Envelope {
        let contents = self.contents();
        Envelope {
            integers: contents.integers.len() as u64,
            addresses: contents.addresses.len() as u64,
            large_counts: contents.large_counts.len() as u64,
            types: contents.types.len() as u64,
            combiner: self.0.constructor.combiner(),
        }
    }

    /// Returns the result of `MPI_Type_get_contents_c`. Empty for named types, for which the call
    /// is an error.
    pub fn contents(&self) -> Contents {
        ContentsSorter {
            form: self.0.form,
            contents: Contents::default(),
        }
        .sort(&self.0.constructor)
    }
}

struct ContentsSorter {
    form: ContentsForm,
    contents: Contents,
}

impl ContentsSorter {
    fn sort(mut self, constructor: &Constructor) -> Contents {
        use Constructor::*;
        match constructor {
            Named | Dup { .. } => {}
            Contiguous { count, .. } => self.counts(&[*count]),
            Vector {
                count,
                blocklength,
                stride,
                ..
            } => self.counts(&[*count, *blocklength, *stride]),
            Hvector {
                count,
                blocklength,
                stride,
                ..
            } => {
                self.counts(&[*count, *blocklength]);
                self.addresses(&[*stride]);
            }
            Indexed {
                blocklengths,
                displacements,
                ..
            } => {
                self.list(blocklengths);
                self.counts(displacements);
            }
            Hindexed {
                blocklengths,
                displacements,
                ..
            }
            | Struct {
                blocklengths,
                displacements,
                ..
            } => {
                self.list(blocklengths);
                self.addresses(displacements);
            }
            IndexedBlock {
                blocklength,
                displacements,
                ..
            } => {
                self.counts(&[displacements.len() as i64, *blocklength]);
                self.counts(displacements);
            }
            HindexedBlock {
                blocklength,
                displacements,
                ..
            } => {
                self.counts(&[displacements.len() as i64, *blocklength]);
                self.addresses(displacements);
            }
            Subarray {
                sizes,
                subsizes,
                starts,
                order,
                ..
            } => {
                self.integers([sizes.len() as i32]);
                [sizes, subsizes, starts]
                    .into_iter()
                    .for_each(|list| self.counts(list));
                self.integers([*order as i32]);
            }
            Darray {
                size,
                rank,
                dims,
                order,
                ..
            } => {
                self.darray([*size, *rank, dims.len() as i32], dims);
                self.integers([*order as i32]);
            }
            Resized { lb, extent, .. } => self.addresses(&[*lb, *extent]),
            F90Real { precision, range } | F90Complex { precision, range } => {
                self.integers([*precision, *range]);
            }
            F90Integer { range } => self.integers([*range]),
        }
        self.contents
            .types
            .extend(constructor.types().iter().cloned());
        self.contents
    }

    fn darray(&mut self, head: [i32; 3], dims: &[DarrayDim]) {
        self.integers(head);
        self.counts(&dims.iter().map(|dim| dim.gsize).collect::<Vec<_>>());
        self.integers(dims.iter().map(|dim| dim.distribution as i32));
        self.integers(
            dims.iter()
                .map(|dim| dim.darg.unwrap_or(Distribution::DEFAULT_DARG)),
        );
        self.integers(dims.iter().map(|dim| dim.psize));
    }

    /// A list preceded by its length.
    fn list(&mut self, values: &[i64]) {
        self.counts(&[values.len() as i64]);
        self.counts(values);
    }

    /// Values that the `_c` call takes as `MPI_Count` and the other as `int`.
    fn counts(&mut self, values: &[i64]) {
        match self.form {
            ContentsForm::Large => self.contents.large_counts.extend_from_slice(values),
            // The `int` call passed values that fit; what our own code made in this form is
            // clamped, not wrapped.
            ContentsForm::Int => {
                let ints = values
                    .iter()
                    .map(|&v| v.clamp(i32::MIN.into(), i32::MAX.into()) as i32);
                self.contents.integers.extend(ints);
            }
        }
    }

    /// Values that the `_c` call takes as `MPI_Count` and the other as `MPI_Aint`.
    fn addresses(&mut self, values: &[i64]) {
        match self.form {
            ContentsForm::Large => self.contents.large_counts.extend_from_slice(values),
            ContentsForm::Int => self.contents.addresses.extend_from_slice(values),
        }
    }

    fn integers(&mut self, values: impl IntoIterator<Item = i32>) {
        self.contents.integers.extend(values);
    }
}
