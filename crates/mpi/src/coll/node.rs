//! Blocking collectives through a board in shared memory, for communicators whose processes share a node.
//!
//! Owns the boards that this process lends to communicators it leads ([`Boards`]) and each communicator's use of one ([`Meeting`]).
//! Called at the start of blocking collectives; says `false` where messages must serve. A communicator gets a board once it
//! has shown that it uses collectives; rank 0 lends it, by messages. Everything that decides here is equal on all
//! processes. Bounded by the commons (`Host::commons`): without room there, messages serve.

use super::algo;
use super::algo::Reduction;
use super::plan::scratch;
use super::run::{COLLECTIVE, Immediate, Wire};
use super::tag::{Call, Inside, Kind, Series};
use super::typed::{self, Fold, Shape};
use crate::comm::Comm;
use crate::error::Result;
use crate::limits::coll as limit;
use garonne_engine::api::Origin;
use garonne_engine::event;
use garonne_sync::board::{Board, CELL_BYTES};
use garonne_sync::doorbell::Doorbell;
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Boards that this process has lent: by place in its commons.
#[derive(Debug, Default)]
pub(crate) struct Boards(Mutex<Vec<Lot>>);

/// A piece of the commons.
#[derive(Debug)]
struct Lot {
    offset: usize,
    len: usize,
    board: Arc<Board>,
    /// Still the board of a communicator here.
    in_use: bool,
}

impl Boards {
    fn lots(&self) -> std::sync::MutexGuard<'_, Vec<Lot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A cleared board for `members` and its place, with lanes if there is room; `None`: no room even without.
    fn lend(&self, commons: &Segment, members: u32) -> Option<(usize, Arc<Board>)> {
        self.lend_with(commons, members, super::lanes::lane_len(members))
            .or_else(|| self.lend_with(commons, members, 0))
    }

    fn lend_with(&self, commons: &Segment, members: u32, lane: usize) -> Option<(usize, Arc<Board>)> {
        let mut lots = self.lots();
        let len = Board::bytes(members, lane);
        let old = lots
            .iter()
            .find(|lot| !lot.in_use && lot.len >= len && lot.board.is_deserted());
        let (offset, room) = match old {
            Some(lot) => (lot.offset, lot.len),
            None => (lots.last().map_or(0, |lot| lot.offset + lot.len), len),
        };
        if offset + len > commons.len() {
            return None;
        }
        let board = Arc::new(Board::new(commons.part(offset, len), members, lane)?);
        board.clear();
        let lot = Lot {
            offset,
            len: room,
            board: board.clone(),
            in_use: true,
        };
        match lots.iter_mut().find(|lot| lot.offset == offset) {
            Some(old) => *old = lot,
            None => lots.push(lot),
        }
        Some((offset, board))
    }

    /// The communicator of this board is gone here; others may still look at it.
    fn give_back(&self, board: &Arc<Board>) {
        for lot in self
            .lots()
            .iter_mut()
            .filter(|lot| Arc::ptr_eq(&lot.board, board))
        {
            lot.in_use = false;
        }
    }
}

#[cfg(test)]
impl Boards {
    /// How many places of the commons have ever been used.
    pub fn places(&self) -> usize {
        self.lots().len()
    }
}

#[cfg(test)]
impl Meeting {
    /// Whether small collectives go over a board.
    pub fn has_board(&self) -> bool {
        matches!(self.place.get(), Some(Some(_)))
    }

    /// Bytes of the board's lanes; 0: none.
    pub fn lane_len(&self) -> usize {
        let place = self.place.get().and_then(Option::as_ref);
        place.map_or(0, |place| place.board.lane_len())
    }
}

/// A communicator's way to its board.
#[derive(Debug, Default)]
pub(crate) struct Meeting {
    /// Collectives that a board would serve so far, until there is a board.
    seen: AtomicU32,
    place: OnceLock<Option<Place>>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) board: Arc<Board>,
    pub(super) me: u32,
    /// Number of the last meeting.
    epoch: AtomicU32,
    /// Doorbells of the other members.
    bells: Vec<Segment>,
    /// Looks before giving way to others.
    spins: u32,
    /// For combining: shared memory is only copied.
    pub(super) private: Scratch,
    /// At the lender.
    lender: Option<Arc<Boards>>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.board.leave(self.me);
        if let Some(lender) = &self.lender {
            lender.give_back(&self.board);
        }
    }
}

/// What a collective is to a board.
pub(super) enum Small<'a> {
    /// Only meet.
    Barrier,
    /// The bytes of this rank to all.
    Bcast(u32, Data),
    /// The bytes of every rank to all, given by their length: `put` puts the own ones down, `get` takes those of a rank.
    Allgather(u64, &'a dyn Fn(&Data), &'a dyn Fn(u32, &Data)),
    /// Everybody's elements combined, to all or to one rank.
    Reduce(&'a Reduction<'a>, Option<u32>),
}

/// One meeting on a board, as one of its members takes part.
pub(super) struct Turn<'a> {
    pub comm: &'a Comm,
    pub epoch: u32,
    pub call: Call,
    pub origin: Origin,
}

/// Counts a collective on the board as those by messages are, so that those who watch can compare. One thread at a time calls
/// collectives of a communicator.
pub(super) fn number(comm: &Comm, kind: Kind) -> Call {
    let number = comm.0.collectives.load(Ordering::Relaxed);
    comm.0
        .collectives
        .store(number.wrapping_add(1), Ordering::Relaxed);
    Call::new(number, Series::Blocking, kind)
}

impl Turn<'_> {
    fn meeting(&self) -> event::Meeting {
        event::Meeting {
            context: self.comm.context() + COLLECTIVE,
            tag: self.call.tag(Inside::Whole),
            origin: self.origin,
        }
    }
}

impl Small<'_> {
    fn kind(&self) -> Kind {
        match self {
            Small::Barrier => Kind::Barrier,
            Small::Bcast(..) => Kind::Bcast,
            Small::Allgather(..) => Kind::Allgather,
            Small::Reduce(_, None) => Kind::Allreduce,
            Small::Reduce(_, Some(_)) => Kind::Reduce,
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Small::Barrier => 0,
            Small::Bcast(_, data) => data.len,
            Small::Allgather(len, ..) => *len,
            Small::Reduce(r, _) => {
                let (low, len) = typed::span(r.shape(), r.count);
                if low < 0 { u64::MAX } else { low as u64 + len }
            }
        }
    }

    /// Whether messages would be as quick: without the meeting of all, few processes need fewer steps.
    fn suits(&self, members: u32) -> bool {
        match self {
            Small::Barrier | Small::Allgather(..) | Small::Reduce(_, None) => true,
            Small::Bcast(..) | Small::Reduce(_, Some(_)) => members >= limit::BOARD_ROOTED_RANKS,
        }
    }
}

/// Carries out a small collective on the board of `comm`; `false`: messages must serve.
pub(super) fn meet(comm: &Comm, small: &Small<'_>, origin: Origin) -> Result<bool> {
    let members = comm.size();
    if comm.is_inter() || members < 2 || small.bytes() > CELL_BYTES as u64 || !small.suits(members) {
        return Ok(false);
    }
    let Some(place) = place(comm)? else {
        return Ok(false);
    };
    place.take_part(comm, small, origin);
    Ok(true)
}

/// This process's place at the board of `comm`, which is made once it was asked for often enough: all processes ask alike.
pub(super) fn place(comm: &Comm) -> Result<Option<&Place>> {
    let meeting = &comm.0.meeting;
    if let Some(place) = meeting.place.get() {
        return Ok(place.as_ref());
    }
    if meeting.seen.fetch_add(1, Ordering::Relaxed) + 1 < limit::BOARD_AFTER {
        return Ok(None);
    }
    let place = take_place(comm)?;
    Ok(meeting.place.get_or_init(|| place).as_ref())
}

/// The name of the board for messages: offset in the lender's commons, plus one (0: none), and length of lanes.
const NAME_BYTES: u64 = 16;

/// Rank 0 lends a board and tells all; it is used if all could reach it.
fn take_place(comm: &Comm) -> Result<Option<Place>> {
    let process = comm.process();
    let together = process.config.node.size() == process.host.world_size();
    let lender = comm.group().peer(0).filter(|_| together);
    let commons = lender.and_then(|lender| process.host.commons(lender));
    let lent = match (&commons, comm.rank()) {
        (Some(commons), 0) => process.boards.lend(commons, comm.size()),
        _ => None,
    };
    let words = scratch(2 * NAME_BYTES)?;
    let name = lent.as_ref().map_or(0, |(offset, _)| *offset as u64 + 1);
    let lane = lent.as_ref().map_or(0, |(_, board)| board.lane_len() as u64);
    words.mem().write(0, &name.to_ne_bytes());
    words.mem().write(8, &lane.to_ne_bytes());
    internal(comm, |p| {
        algo::bcast::binomial(p, 0, &Data::contiguous(words.mem(), NAME_BYTES))
    })?;
    let word = |offset| {
        let mut bytes = [0; 8];
        words.mem().read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    let place = reach(comm, commons, (word(0), word(8)), lent);
    // All must have got there: the least of all answers.
    words.mem().write(0, &[u8::from(place.is_some()); 8]);
    let r = Reduction {
        fold: &Both,
        input: words.mem(),
        output: words.mem(),
        count: 1,
    };
    internal(comm, |p| algo::allreduce::recursive_doubling(p, &r))?;
    let mut bytes = [0];
    words.mem().read(0, &mut bytes);
    Ok(place.filter(|_| bytes[0] == 1))
}

/// Whether both operands are 1: bytes, one to an element.
#[derive(Debug)]
struct Both;

impl Shape for Both {
    fn size(&self) -> u64 {
        1
    }

    fn extent(&self) -> i64 {
        1
    }

    fn true_bounds(&self) -> (i64, i64) {
        (0, 1)
    }

    fn data(&self, mem: UserMem, count: u64) -> Data {
        Data::contiguous(mem, count)
    }
}

impl Fold for Both {
    fn fold(&self, left: UserMem, into: UserMem, count: u64) {
        for index in 0..count as isize {
            let mut bytes = [0; 2];
            left.read(index, &mut bytes[..1]);
            into.read(index, &mut bytes[1..]);
            into.write(index, &[bytes[0] & bytes[1]]);
        }
    }

    fn commutative(&self) -> bool {
        true
    }

    fn user(&self) -> bool {
        false
    }

    fn shape(&self) -> &dyn Shape {
        self
    }

    fn keep(&self) -> Arc<dyn Fold> {
        Arc::new(Both)
    }
}

fn internal(comm: &Comm, plan: impl FnOnce(&mut Immediate<'_>) -> Result<()>) -> Result<()> {
    let number = comm.0.collectives.fetch_add(1, Ordering::Relaxed);
    let mut immediate = Immediate::new(Wire::of(
        comm,
        Call::new(number, Series::Blocking, Kind::Internal),
        Origin::default(),
    ));
    plan(&mut immediate)?;
    immediate.finish()
}

fn reach(
    comm: &Comm,
    commons: Option<Segment>,
    (name, lane): (u64, u64),
    lent: Option<(usize, Arc<Board>)>,
) -> Option<Place> {
    let (process, members, me) = (comm.process(), comm.size(), comm.rank());
    let is_lender = lent.is_some();
    let board = match lent {
        Some((_, board)) => board,
        None => {
            let commons = commons?;
            let offset = usize::try_from(name.checked_sub(1)?).ok()?;
            let lane = usize::try_from(lane).ok()?;
            let len = Board::bytes(members, lane);
            let fits = offset.checked_add(len).is_some_and(|end| end <= commons.len());
            // A mad lender's place must not lie askew.
            if !fits || !offset.is_multiple_of(CELL_BYTES) || !lane.is_multiple_of(CELL_BYTES) {
                return None;
            }
            Arc::new(Board::new(commons.part(offset, len), members, lane)?)
        }
    };
    let others = (0..members).filter(|&rank| rank != me);
    let bells: Option<Vec<_>> = others
        .map(|rank| process.host.doorbell(comm.group().peer(rank)?))
        .collect();
    let place = Place {
        board,
        me,
        epoch: AtomicU32::new(0),
        bells: bells?,
        spins: process.host.spins().min(limit::BOARD_SPINS),
        private: Scratch::new(2 * limit::COMBINE_BYTES)?,
        lender: is_lender.then(|| process.boards.clone()),
    };
    Some(place)
}

impl Place {
    /// The number of the next meeting, in which this process must take part.
    pub(super) fn next(&self) -> u32 {
        let epoch = self.epoch.load(Ordering::Relaxed).wrapping_add(1);
        self.epoch.store(epoch, Ordering::Relaxed);
        epoch
    }

    fn take_part(&self, comm: &Comm, small: &Small<'_>, origin: Origin) {
        let epoch = self.next();
        let at = Turn {
            comm,
            epoch,
            call: number(comm, small.kind()),
            origin,
        };
        match small {
            Small::Barrier => self.pass(&at, || {}),
            Small::Bcast(root, data) => {
                let cell = Data::contiguous(self.board.cell(*root, epoch), data.len);
                if *root == self.me {
                    typed::copy(data, &cell);
                }
                self.pass(&at, || {});
                if *root != self.me {
                    typed::copy(&cell, data);
                }
            }
            Small::Allgather(len, put, get) => {
                let cell = |member: u32| Data::contiguous(self.board.cell(member, epoch), *len);
                put(&cell(self.me));
                self.pass(&at, || {});
                (0..self.board.members()).for_each(|member| get(member, &cell(member)));
            }
            Small::Reduce(r, root) => {
                typed::copy(&r.whole(r.input), &r.whole(self.board.cell(self.me, epoch)));
                self.pass(&at, || self.combine(r, epoch));
                if root.is_none_or(|root| root == self.me) {
                    typed::copy(&r.whole(self.board.result()), &r.whole(r.output));
                }
            }
        }
    }

    /// Combines all cells in the order of ranks. They are copied out first: peers may write them at any time.
    fn combine(&self, r: &Reduction<'_>, epoch: u32) {
        let mut sum = self.private.mem();
        let mut next = sum.offset(CELL_BYTES as isize);
        typed::copy(&r.whole(self.board.cell(0, epoch)), &r.whole(sum));
        for member in 1..self.board.members() {
            typed::copy(&r.whole(self.board.cell(member, epoch)), &r.whole(next));
            r.fold.fold(sum, next, r.count);
            (sum, next) = (next, sum);
        }
        typed::copy(&r.whole(sum), &r.whole(self.board.result()));
    }

    /// Meets the others; the last to arrive does `last` first.
    pub(super) fn pass(&self, at: &Turn<'_>, last: impl FnOnce()) {
        let epoch = at.epoch;
        let gate = self.board.gate();
        if gate.arrive() {
            last();
            gate.open(epoch);
            // The fence inside orders the opening before the look at the first bell; sleepers look at the gate once more after arming.
            for (index, bell) in self.bells.iter().enumerate() {
                let bell = Doorbell::new(bell.atomic_u32(0));
                if index == 0 {
                    bell.ring_fenced()
                } else {
                    bell.ring()
                }
            }
            return;
        }
        for _ in 0..self.spins {
            if gate.passed(epoch) {
                return;
            }
            std::hint::spin_loop();
        }
        let host = &at.comm.process().host;
        host.meets(Some(at.meeting()));
        host.wait_until(&mut || gate.passed(epoch));
        host.meets(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_is_lent_again_only_when_all_have_left_it() {
        let commons = Segment::anonymous(Board::bytes(2, 0) * 2).unwrap();
        let boards = Boards::default();
        let (first, board) = boards.lend(&commons, 2).unwrap();
        let (second, _other) = boards.lend(&commons, 2).unwrap();
        assert_ne!(first, second);
        assert!(boards.lend(&commons, 2).is_none());
        boards.give_back(&board);
        board.leave(0);
        assert!(boards.lend(&commons, 2).is_none());
        board.leave(1);
        assert_eq!(boards.lend(&commons, 2).unwrap().0, first);
    }
}
