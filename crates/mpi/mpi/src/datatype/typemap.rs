//! The typemap of a derived datatype in closed form: repetition is kept as repetition.
//!
//! Every constructor lowers to a [`Typemap`] over the types it was given. Size, bounds, dataloop
//! and signature all derive from the typemap by one recursion each. No function iterates over
//! repetitions, so huge counts cost nothing.

use super::Datatype;
use super::basic_type::BasicType;
use super::dataloop::{self, Dataloop};
use crate::error::{Class, Error, Result};
use std::sync::Arc;

/// A type map over existing datatypes. Displacements and strides in bytes.
#[derive(Clone, Debug)]
pub(crate) enum Typemap {
    /// One element of a type.
    Type(Datatype),
    /// `count` copies, `stride` apart.
    Repeat {
        count: u64,
        stride: i64,
        body: Arc<Typemap>,
    },
    /// Blocks of consecutive elements of types, at displacements.
    Blocks {
        blocks: Vec<TypemapBlock>,
        types: Vec<Datatype>,
    },
    /// Trees at displacements.
    List(Vec<(i64, Arc<Typemap>)>),
    /// The body, its extent rounded up to its alignment as a C compiler does for structures.
    Padded(Arc<Typemap>),
    /// The body with its lower and upper bound set.
    Bounded {
        lb: i64,
        ub: i64,
        body: Arc<Typemap>,
    },
}

/// `count` consecutive elements of `types[index]` at `displacement`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TypemapBlock {
    pub displacement: i64,
    pub count: u64,
    pub index: u32,
}

/// Sizes and bounds of a whole typemap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TypemapSummary {
    /// Bytes of data.
    pub size: i128,
    /// Basic elements.
    pub elements: i128,
    /// First byte of data and the byte after the last, where there is data.
    pub data: Option<(i128, i128)>,
    /// Lower and upper bound as they follow from those of the parts, where there is data.
    pub natural: Option<(i128, i128)>,
    /// Bounds that were set explicitly; they win over the natural ones.
    pub marks: Option<(i128, i128)>,
    /// Strictest alignment of the basic elements.
    pub align: u64,
    /// The one leaf that all data consists of.
    pub leaf: UniformLeaf,
}

/// Predefined kind of all data of a type, if there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum UniformLeaf {
    /// There is no data.
    #[default]
    Nothing,
    /// All of this kind.
    One(LeafType),
    /// Data of several kinds.
    Mixed,
}

/// A predefined kind of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeafType {
    /// A single basic element.
    Basic(BasicType),
    /// A value and an index, as `MPI_MAXLOC` and `MPI_MINLOC` reduce them.
    Pair {
        /// Kind of the value, at displacement 0.
        value: BasicType,
        /// Kind of the index, after the value at its own alignment.
        index: BasicType,
    },
}

impl UniformLeaf {
    fn join(self, other: UniformLeaf) -> UniformLeaf {
        match (self, other) {
            (UniformLeaf::Nothing, only) | (only, UniformLeaf::Nothing) => only,
            (a, b) if a == b => a,
            _ => UniformLeaf::Mixed,
        }
    }
}

impl TypemapSummary {
    /// Adds `other` moved by `by` and repeated so that its last copy lies `span` further.
    fn add(&mut self, other: &TypemapSummary, times: u64, by: i128, span: i128) {
        if times == 0 {
            return;
        }
        let spread = |range: (i128, i128)| (range.0 + by + span.min(0), range.1 + by + span.max(0));
        let join = |a: Option<(i128, i128)>, b: Option<(i128, i128)>| match (a, b) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        self.size += other.size * i128::from(times);
        self.elements += other.elements * i128::from(times);
        self.data = join(self.data, other.data.map(spread));
        self.natural = join(self.natural, other.natural.map(spread));
        self.marks = join(self.marks, other.marks.map(spread));
        self.align = self.align.max(other.align);
        self.leaf = self.leaf.join(other.leaf);
    }

    /// Lower and upper bound.
    pub fn bounds(&self) -> (i128, i128) {
        self.marks.or(self.natural).unwrap_or((0, 0))
    }

    /// Rounds the extent up to the alignment. Only structures do so, as in the other MPI libraries:
    /// vectors and indexed types end where their last element ends, even if that is not aligned.
    fn pad(&mut self) {
        if let Some((lb, ub)) = &mut self.natural {
            let align = i128::from(self.align.max(1));
            *ub = *lb + (*ub - *lb + align - 1) / align * align;
        }
    }

    /// Refuses what does not fit 64 bits. Afterwards every size and offset in the type fits an
    /// `i64`.
    pub fn check(&self) -> Result<()> {
        let (lb, ub) = self.bounds();
        let (lo, hi) = self.data.unwrap_or((0, 0));
        let fits = |value: i128| i64::try_from(value).is_ok();
        if [self.size, self.elements, lb, ub, ub - lb, lo, hi, hi - lo]
            .into_iter()
            .all(fits)
        {
            return Ok(());
        }
        let text = format!(
            "the datatype would hold {} bytes between offsets {lo} and {hi}: more than 64 bits can say",
            self.size
        );
        Err(Error::new(Class::Arg, text))
    }
}

/// The largest intermediate value may be a product of two 63-bit numbers, added up over a list: 128
/// bits hold the product, and a running sum is refused as soon as it leaves 64 bits, so no later
/// step can overflow.
pub(crate) fn summarise(tree: &Typemap) -> Result<TypemapSummary> {
    let mut sum = TypemapSummary::default();
    match tree {
        Typemap::Type(datatype) => return Ok(datatype.summary()),
        Typemap::Repeat {
            count,
            stride,
            body,
        } => {
            let body = summarise(body)?;
            sum.add(&body, *count, 0, span(*count, *stride));
        }
        Typemap::Blocks { blocks, types } => {
            let old: Vec<TypemapSummary> = types.iter().map(Datatype::summary).collect();
            for block in blocks {
                let index = block.index as usize;
                let span = span(block.count, types[index].extent());
                sum.add(
                    &old[index],
                    block.count,
                    i128::from(block.displacement),
                    span,
                );
                sum.check()?;
            }
        }
        Typemap::List(list) => {
            for (displacement, body) in list {
                sum.add(&summarise(body)?, 1, i128::from(*displacement), 0);
                sum.check()?;
            }
        }
        Typemap::Padded(body) => {
            sum = summarise(body)?;
            sum.pad();
        }
        Typemap::Bounded { lb, ub, body } => {
            sum = summarise(body)?;
            sum.marks = Some((i128::from(*lb), i128::from(*ub)));
        }
    }
    sum.check()?;
    Ok(sum)
}

/// Returns how far the last of `count` copies lies from the first.
fn span(count: u64, stride: i64) -> i128 {
    i128::from(count.saturating_sub(1)) * i128::from(stride)
}

/// The layout of a tree whose summary was checked.
pub(crate) fn shape(tree: &Typemap) -> Dataloop {
    match tree {
        Typemap::Type(datatype) => datatype.shape().clone(),
        Typemap::Repeat {
            count,
            stride,
            body,
        } => shape(body).repeat(*count, *stride),
        Typemap::Blocks { blocks, types } => dataloop::concat(blocks.iter().map(|block| {
            let old = &types[block.index as usize];
            old.shape()
                .clone()
                .repeat(block.count, old.extent())
                .moved(block.displacement)
        })),
        Typemap::List(list) => {
            dataloop::concat(list.iter().map(|(by, body)| shape(body).moved(*by)))
        }
        Typemap::Bounded { body, .. } | Typemap::Padded(body) => shape(body),
    }
}
