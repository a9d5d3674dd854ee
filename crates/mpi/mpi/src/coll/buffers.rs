//! The buffers of collective calls as the C edge describes them: one run of elements, or a block
//! for every rank.
//!
//! Used by [`super::calls`]. They borrow the program's arrays; nothing here allocates.

use super::datatype_layout::check_count;
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use garonne_coll::blocks::{Blocks, CountArray, EachBlock};
use garonne_coll::typed_buffer::TypedBuffer;
use garonne_sync::user::{Data, UserMem};

/// Elements of one datatype in the program's memory. In a buffer of one block per rank, `count` is
/// that of one block.
#[derive(Clone, Copy)]
pub struct Elements<'a> {
    /// Address.
    pub mem: UserMem,
    /// Number of elements.
    pub count: u64,
    /// Datatype of the elements.
    pub datatype: &'a Datatype,
}

impl<'a> Elements<'a> {
    pub(super) fn typed(&self) -> TypedBuffer<'a> {
        TypedBuffer::new(self.mem, self.datatype)
    }

    pub(super) fn data(&self) -> Data {
        self.typed().data(0, self.count)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.datatype.size().saturating_mul(self.count)
    }

    pub(super) fn blocks(&self) -> Blocks<'a> {
        Blocks::Even {
            typed: self.typed(),
            count: self.count,
        }
    }

    /// Checks `ranks` blocks.
    pub(super) fn check(&self, ranks: u32) -> Result<()> {
        match self.count.checked_mul(u64::from(ranks)) {
            Some(all) => check_count(self.datatype, all),
            None => Err(Error::new(
                Class::Count,
                format!(
                    "{} elements for each of {ranks} ranks exceed 64 bits",
                    self.count
                ),
            )),
        }
    }
}

/// A buffer with a block of its own length and place for every rank, all of one datatype.
#[derive(Clone, Copy)]
pub struct ElementsV<'a> {
    /// Address from which displacements count.
    pub mem: UserMem,
    /// Elements of each rank's block.
    pub counts: CountArray<'a>,
    /// Place of each rank's block, in extents of the datatype.
    pub displs: CountArray<'a>,
    /// The datatype.
    pub datatype: &'a Datatype,
}

impl<'a> ElementsV<'a> {
    pub(super) fn blocks(&self) -> Blocks<'a> {
        Blocks::Uneven {
            typed: TypedBuffer::new(self.mem, self.datatype),
            counts: self.counts,
            displs: self.displs,
        }
    }

    pub(super) fn check(&self, ranks: u32) -> Result<()> {
        check_numbers(&self.counts, &self.displs, ranks)?;
        (0..ranks)
            .try_for_each(|rank| check_count(self.datatype, self.counts.get(rank).max(0) as u64))
    }
}

/// A buffer with a block of its own length, place and datatype for every rank.
#[derive(Clone, Copy)]
pub struct ElementsW<'a> {
    /// Address from which displacements count.
    pub mem: UserMem,
    /// Elements of each rank's block.
    pub counts: CountArray<'a>,
    /// Place of each rank's block in bytes.
    pub displs: CountArray<'a>,
    /// Datatype of each rank's block.
    pub datatypes: &'a [Datatype],
}

impl<'a> ElementsW<'a> {
    pub(super) fn blocks(&self) -> Blocks<'_> {
        Blocks::Each(self)
    }

    pub(super) fn check(&self, ranks: u32) -> Result<()> {
        check_numbers(&self.counts, &self.displs, ranks)?;
        if self.datatypes.len() < ranks as usize {
            return Err(Error::new(
                Class::Arg,
                format!("{} datatypes for {ranks} ranks", self.datatypes.len()),
            ));
        }
        let mut blocks = (0..ranks).zip(self.datatypes);
        blocks.try_for_each(|(rank, datatype)| {
            check_count(datatype, self.counts.get(rank).max(0) as u64)
        })
    }
}

impl EachBlock for ElementsW<'_> {
    fn one(&self, rank: u32) -> Data {
        let Some(datatype) = self.datatypes.get(rank as usize) else {
            return Data::empty();
        };
        let origin = self.mem.offset(self.displs.get(rank) as isize);
        TypedBuffer::new(origin, datatype).data(0, self.counts.count(rank))
    }

    fn len(&self, rank: u32) -> u64 {
        let datatype = self.datatypes.get(rank as usize);
        datatype.map_or(0, |datatype| datatype.size() * self.counts.count(rank))
    }
}

fn check_numbers(counts: &CountArray<'_>, displs: &CountArray<'_>, ranks: u32) -> Result<()> {
    for (name, numbers) in [("counts", counts), ("displacements", displs)] {
        if numbers.len().is_some_and(|len| len < ranks as usize) {
            return Err(Error::new(
                Class::Arg,
                format!("fewer {name} than {ranks} ranks"),
            ));
        }
    }
    let negative = (0..ranks).find(|&rank| counts.get(rank) < 0);
    negative.map_or(Ok(()), |rank| {
        Err(Error::new(
            Class::Count,
            format!("the count for rank {rank} is negative"),
        ))
    })
}
