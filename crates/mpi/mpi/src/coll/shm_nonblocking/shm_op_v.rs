//! Exchanges, gathers and scatters of blocks whose lengths not all members know, in a slot.
//!
//! Sender and receiver of a block know its length alike, and so whether it fits the sender's cells:
//! the room of the cells divided by the most blocks that a member sends. Longer blocks go by
//! messages in the same call. A sender writes a table with length and place of each of its blocks,
//! so that a receiver that expected another length detects it. The cells of a member bound the
//! memory.

use super::shm_op::{Dependency, SlotView};
use crate::error::Result;
use crate::limits::coll as limit;
use garonne_coll::algo::alltoall;
use garonne_coll::blocks::Blocks;
use garonne_coll::plan::{PlanRecorder, Schedule};
use garonne_coll::typed_buffer;
use garonne_sync::shm_barrier::CELL_BYTES;
use garonne_sync::user::{Data, UserMem};

/// Which members send blocks to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangePattern {
    /// All to all. `true`: what a member gives lies where it takes, and its own block is there
    /// already.
    Exchange(bool),
    /// All to one member.
    Gather(u32),
    /// One member to all.
    Scatter(u32),
}

/// The blocks that a member gives and takes; empty where there is none.
#[derive(Clone)]
pub struct ShmOpV {
    pattern: ExchangePattern,
    /// Data for each rank; empty if this rank sends nothing.
    give: Vec<Data>,
    /// Places for the data from each rank; empty if this rank receives nothing.
    take: Vec<Data>,
    /// True if all that this member puts down lies in its small cell.
    is_small: bool,
}

/// A block that is longer than the taker has room for, or that it waits for elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LengthMismatch {
    /// The giver.
    pub from: u32,
    /// Bytes that the sender gives.
    pub sent: u64,
    /// Bytes that the receiver expects.
    pub room: u64,
}

/// Bytes of an entry of the table: length and place.
const ENTRY: usize = 8;

/// The place of what goes by message.
const ELSEWHERE: u32 = u32::MAX;

/// Alignment of blocks in cells.
const ALIGN: usize = 8;

/// A member's cells: bytes of the small one come first.
struct MemberCells {
    small: UserMem,
    wide: UserMem,
    wide_len: usize,
}

impl MemberCells {
    fn of(view: &SlotView<'_>, member: u32) -> Self {
        Self {
            small: (view.cell)(member),
            wide: (view.wide)(member),
            wide_len: view.wide_len,
        }
    }

    /// `len` bytes that lie in one cell.
    fn at(&self, place: usize, len: usize) -> Option<UserMem> {
        let end = place.checked_add(len)?;
        match place.checked_sub(CELL_BYTES) {
            None => (end <= CELL_BYTES).then(|| self.small.offset(place as isize)),
            Some(place) => {
                (end - CELL_BYTES <= self.wide_len).then(|| self.wide.offset(place as isize))
            }
        }
    }
}

/// Way in which a member's cells are used.
#[derive(Clone, Copy)]
struct CellLayout {
    /// Place where the table begins.
    table: usize,
    /// The longest block for cells; 0: none.
    longest: u64,
}

impl CellLayout {
    /// Layout for members that give at most `blocks` blocks.
    fn of(blocks: u32, wide_len: usize) -> Self {
        let (blocks, table_len) = (blocks as usize, blocks as usize * ENTRY);
        let within = table_len <= CELL_BYTES;
        let (table, room) = match (wide_len, within) {
            (0, true) => (0, CELL_BYTES - table_len),
            (0, false) => (0, 0),
            (_, true) => (0, wide_len),
            (_, false) => (CELL_BYTES, wide_len.saturating_sub(table_len)),
        };
        Self {
            table,
            longest: ((room / blocks.max(1) / ALIGN * ALIGN) as u64).min(limit::SLOT_BYTES_MAX),
        }
    }
}

impl ShmOpV {
    /// All exchange blocks with all.
    pub(crate) fn exchange(
        ranks: u32,
        me: u32,
        send: Option<Blocks<'_>>,
        recv: &Blocks<'_>,
    ) -> Self {
        let list = |blocks: &Blocks<'_>| (0..ranks).map(|rank| blocks.one(rank)).collect();
        let mut take: Vec<_> = list(recv);
        let mut give = send.map_or_else(|| take.clone(), |send| list(&send));
        if send.is_none() {
            (take[me as usize], give[me as usize]) = (Data::empty(), Data::empty());
        }
        Self::new(ExchangePattern::Exchange(send.is_none()), ranks, give, take)
    }

    fn new(way: ExchangePattern, ranks: u32, give: Vec<Data>, take: Vec<Data>) -> Self {
        let mut parcels = Self {
            pattern: way,
            give,
            take,
            is_small: true,
        };
        if parcels.has_table() {
            let end = |end: u64, block: &Data| {
                end + block
                    .len
                    .min(CELL_BYTES as u64)
                    .next_multiple_of(ALIGN as u64)
            };
            let table_end = parcels.table_end(ranks) as u64;
            parcels.is_small = parcels.give.iter().fold(table_end, end) <= CELL_BYTES as u64;
        }
        parcels
    }

    /// A block of each (at the root `None`: in place) to or from the root, which has those of all.
    pub(crate) fn rooted(
        way: ExchangePattern,
        (ranks, me): (u32, u32),
        mine: Option<Data>,
        all: Option<Blocks<'_>>,
    ) -> Self {
        let (ExchangePattern::Gather(root) | ExchangePattern::Scatter(root)) = way else {
            unreachable!("an exchange has no root")
        };
        let own = me == root;
        let at_root = |all: &Blocks<'_>| {
            let one = |rank| match rank == me && mine.is_none() {
                true => Data::empty(),
                false => all.one(rank),
            };
            (0..ranks).map(one).collect()
        };
        let all: Vec<Data> = all.filter(|_| own).as_ref().map_or_else(Vec::new, at_root);
        let mine: Vec<Data> = (0..=root)
            .map(|rank| match &mine {
                Some(mine) if rank == root => mine.clone(),
                _ => Data::empty(),
            })
            .collect();
        let (give, take) = match way {
            ExchangePattern::Gather(_) => (mine, all),
            _ => (all, mine),
        };
        Self::new(way, ranks, give, take)
    }

    pub fn dependency(&self) -> Dependency {
        match self.pattern {
            ExchangePattern::Exchange(_) => Dependency::AllOnAll,
            ExchangePattern::Gather(root) => Dependency::OneOnAll(root),
            ExchangePattern::Scatter(root) => Dependency::AllOnOne(root),
        }
    }

    fn layout(&self, members: u32, wide_len: usize) -> CellLayout {
        // What the root of a gather or scatter has to do it would do alone.
        let short = wide_len.min(limit::SLOT_SHORT as usize);
        match self.pattern {
            ExchangePattern::Gather(_) => CellLayout::of(1, short),
            ExchangePattern::Scatter(_) => CellLayout::of(members, short),
            ExchangePattern::Exchange(_) => CellLayout::of(members, wide_len),
        }
    }

    /// Returns where the entry of a block stands in its giver's table.
    fn entry(&self, to: u32) -> usize {
        match self.pattern {
            ExchangePattern::Gather(_) => 0,
            ExchangePattern::Exchange(_) | ExchangePattern::Scatter(_) => to as usize * ENTRY,
        }
    }

    /// Returns where a table that begins with the cell ends.
    fn table_end(&self, members: u32) -> usize {
        self.entry(members.saturating_sub(1)) + ENTRY
    }

    /// Returns whether this member puts down a table.
    fn has_table(&self) -> bool {
        matches!(self.pattern, ExchangePattern::Exchange(_)) || !self.give.is_empty()
    }

    /// Returns whether all that this member puts down lies in its small cell.
    pub fn uses_small_cells(&self) -> bool {
        self.is_small
    }

    /// Returns whether any block may lie in a cell there.
    pub fn fits(&self, members: u32, wide_len: usize) -> bool {
        self.layout(members, wide_len).longest > 0
    }

    /// Returns whether it is more than little that this member gives or takes.
    pub fn wants_async_progress(&self) -> bool {
        let all = |blocks: &[Data]| {
            blocks
                .iter()
                .fold(0u64, |sum, block| sum.saturating_add(block.len))
        };
        all(&self.give).max(all(&self.take)) > limit::SLOT_SHORT
            && matches!(self.pattern, ExchangePattern::Exchange(_))
    }

    /// Bytes that this member may put down for others.
    pub fn bytes_given(&self, me: u32) -> u64 {
        let others = (0..).zip(&self.give).filter(|&(rank, _)| rank != me);
        let lens = others
            .map(|(_, block)| block.len)
            .filter(|&len| len <= limit::SLOT_BYTES_MAX);
        lens.fold(0, u64::saturating_add)
    }

    /// Bytes that this member puts down (`true`), or takes out of others' cells.
    pub fn bytes_in_cells(&self, gives: bool, me: u32, members: u32, wide_len: usize) -> u64 {
        let longest = self.layout(members, wide_len).longest;
        let blocks = if gives { &self.give } else { &self.take };
        let others = (0..).zip(blocks).filter(|&(rank, _)| rank != me);
        let lens = others
            .map(|(_, block)| block.len)
            .filter(|&len| len <= longest);
        lens.fold(0, u64::saturating_add)
    }

    /// Returns whether this member takes anything out of others' cells.
    pub fn takes_any(&self, me: u32, members: u32, wide_len: usize) -> bool {
        let longest = self.layout(members, wide_len).longest;
        let mut others = (0..).zip(&self.take).filter(|&(rank, _)| rank != me);
        others.any(|(_, block)| (1..=longest).contains(&block.len))
    }

    /// Returns the schedule of the blocks that go by messages; `None`: there are none.
    ///
    /// # Errors
    /// `NoMem`.
    pub fn message_schedule(
        &self,
        me: u32,
        members: u32,
        wide_len: usize,
    ) -> Result<Option<Schedule>> {
        let longest = self.layout(members, wide_len).longest;
        let long = |list: &[Data]| -> Option<Vec<Data>> {
            let is_long = |&(rank, block): &(u32, &Data)| rank != me && block.len > longest;
            (0..).zip(list).find(is_long)?;
            let pick = |entry: (u32, &Data)| match is_long(&entry) {
                true => entry.1.clone(),
                false => Data::empty(),
            };
            Some((0..).zip(list).map(pick).collect())
        };
        let (give, take) = match (long(&self.give), long(&self.take)) {
            (None, None) => return Ok(None),
            (give, take) => (give.unwrap_or_default(), take.unwrap_or_default()),
        };
        let mut p = PlanRecorder::new(me, members, 0);
        let (give, take) = (Blocks::List(&give), Blocks::List(&take));
        match self.pattern {
            ExchangePattern::Exchange(true) => alltoall::in_place(&mut p, &take)?,
            _ => alltoall::linear(&mut p, &give, &take, limit::ALLTOALL_PARTNERS)?,
        }
        Ok(Some(p.finish()))
    }

    /// Puts down the table and what is short.
    pub fn put(&self, view: &SlotView<'_>) {
        let plot = self.layout(view.members, view.wide_len);
        let cells = MemberCells::of(view, view.me);
        // Small blocks lie behind a short table, on lines that whoever looks for it fetches.
        let table_end = plot.table + self.table_end(view.members);
        let (mut small, mut wide) = match plot.table {
            0 => (table_end, CELL_BYTES),
            _ => (CELL_BYTES, table_end),
        };
        for to in (0..view.members).filter(|_| self.has_table()) {
            if matches!(self.pattern, ExchangePattern::Gather(root) if root != to) {
                continue;
            }
            let block = self.give.get(to as usize);
            let len = block.map_or(0, |block| block.len);
            let mut place = ELSEWHERE;
            if len <= plot.longest {
                let room = (len as usize).next_multiple_of(ALIGN);
                let next = match small + room <= CELL_BYTES {
                    true => &mut small,
                    false => &mut wide,
                };
                if let Some(at) = cells.at(*next, len as usize) {
                    place = *next as u32;
                    *next += room;
                    if let Some(block) = block.filter(|_| to != view.me) {
                        typed_buffer::copy_by(view.copy, block, &Data::contiguous(at, len));
                    }
                }
            }
            let entry = u64::from(place) << 32 | len.min(u32::MAX.into());
            if let Some(at) = cells.at(plot.table + self.entry(to), ENTRY) {
                at.write(0, &entry.to_ne_bytes());
            }
        }
    }

    /// Returns the member's block for itself: source and destination.
    fn own(&self, me: u32) -> Option<(&Data, &Data)> {
        self.give.get(me as usize).zip(self.take.get(me as usize))
    }

    /// Copies the member's block for itself.
    pub fn keep_own(&self, view: &SlotView<'_>) {
        if let Some((own, place)) = self.own(view.me) {
            typed_buffer::copy(own, place);
        }
    }

    /// Takes what is short, and finds what does not fit.
    pub fn take(&self, view: &SlotView<'_>) -> Option<LengthMismatch> {
        let (me, plot) = (view.me, self.layout(view.members, view.wide_len));
        let own = self.own(me).filter(|(own, place)| own.len > place.len);
        let mut misfit = own.map(|(own, place)| (me, own.len, place.len));
        // Who needs nothing of others did not wait for them, either.
        let others = match self.takes_any(me, view.members, view.wide_len) {
            true => &*self.take,
            false => &[],
        };
        for (from, block) in (0..view.members)
            .zip(others)
            .filter(|&(from, _)| from != me)
        {
            // Only the root of a scatter gives; in a gather only its root gets here.
            if matches!(self.pattern, ExchangePattern::Scatter(root) if root != from) {
                continue;
            }
            let cells = MemberCells::of(view, from);
            let mut entry = [0; ENTRY];
            if let Some(at) = cells.at(plot.table + self.entry(view.me), ENTRY) {
                at.read(0, &mut entry);
            }
            let entry = u64::from_ne_bytes(entry);
            let (place, sent) = ((entry >> 32) as u32, entry & u64::from(u32::MAX));
            let there = (place != ELSEWHERE)
                .then(|| cells.at(place as usize, sent as usize))
                .flatten();
            let short = block.len <= plot.longest;
            if let (true, Some(there)) = (short, there) {
                view.copy_in(Some(from), &Data::contiguous(there, sent), block);
            }
            let fits = short == there.is_some() && (!short || sent <= block.len);
            if !fits {
                misfit.get_or_insert((from, sent, block.len));
            }
        }
        misfit.map(|(from, sent, room)| LengthMismatch { from, sent, room })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_member_gives_at_most_has_room_in_its_cells() {
        for wide_len in [0, 256, 1024, 4096] {
            for blocks in 1..200 {
                let plot = CellLayout::of(blocks, wide_len);
                let (table, all) = (
                    blocks as usize * ENTRY,
                    blocks as usize * plot.longest as usize,
                );
                if plot.longest == 0 {
                    continue;
                }
                match (plot.table, wide_len) {
                    (0, 0) => assert!(table + all <= CELL_BYTES),
                    (0, _) => assert!(table <= CELL_BYTES && all <= wide_len),
                    _ => assert!(plot.table == CELL_BYTES && table + all <= wide_len),
                }
            }
        }
        assert_eq!(CellLayout::of(4, 4096).longest, 1024);
        assert_eq!(CellLayout::of(1, 4096).longest, 4096);
    }
}
