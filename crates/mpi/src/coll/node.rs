//! Blocking collectives through a board in shared memory, for communicators whose processes share a node.
//!
//! Owns the boards that this process lends to communicators it leads ([`Boards`]), each communicator's use of one ([`Meeting`]) and
//! the meetings of a collective ([`Table`]). A communicator gets its board in its first blocking collective, whatever each rank calls
//! there; rank 0 lends it, by messages. Every blocking collective begins with a meeting, also one whose data goes by messages, so
//! that ranks which disagree hear of it instead of waiting for each other. Bounded by the commons (`Host::commons`):
//! without room there, messages serve.

use super::algo;
use super::algo::Reduction;
use super::plan::scratch;
use super::run::{COLLECTIVE, Immediate, Wire};
use super::statement::{STATEMENT_BYTES, Statement};
use super::tag::{Call, Inside, Kind, Series};
use super::typed::{Fold, Shape};
use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::limits::coll as limit;
use garonne_engine::api::Origin;
use garonne_engine::event;
use garonne_sync::board::{Arrival, Board, CELL_BYTES, Words};
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

    /// Whether all members can read what any of them lends.
    pub fn reads(&self) -> bool {
        let place = self.place.get().and_then(Option::as_ref);
        place.is_some_and(|place| place.reads.get() == Some(&true))
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
    place: OnceLock<Option<Place>>,
}

#[derive(Debug)]
pub(crate) struct Place {
    pub(super) board: Arc<Board>,
    pub(super) me: u32,
    /// Number of the last meeting.
    epoch: AtomicU32,
    /// Doorbells of the other members.
    bells: Vec<Segment>,
    pub(super) style: Style,
    /// Whether all members can read what any of them lends, once they have agreed on it.
    reads: OnceLock<bool>,
    /// Looks before giving way to others.
    spins: u32,
    /// For combining: shared memory is only copied.
    pub(super) private: Scratch,
    /// At the lender.
    lender: Option<Arc<Boards>>,
}

/// How members learn that all have come; the lender decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// The last to come opens for all: waiters look at one word, and only one rings sleepers.
    Gate,
    /// Everybody looks at everybody's flag: for few members with a core each.
    Flags,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.board.leave(self.me);
        if let Some(lender) = &self.lender {
            lender.give_back(&self.board);
        }
    }
}

/// This process's place at the board of `comm`, which is made when it is asked for first: all processes ask alike, at
/// each blocking collective.
pub(super) fn place(comm: &Comm, call: Call, origin: Origin) -> Result<Option<&Place>> {
    if comm.is_inter() || comm.size() < 2 {
        return Ok(None);
    }
    let meeting = &comm.0.meeting;
    if let Some(place) = meeting.place.get() {
        return Ok(place.as_ref());
    }
    let place = take_place(comm, (call.number, origin))?;
    Ok(meeting.place.get_or_init(|| place).as_ref())
}

/// The name of the board for messages: offset in the lender's commons, plus one (0: none), length of lanes, and style.
const NAME_BYTES: u64 = 24;

/// What the lender of a board says of it.
#[derive(Clone, Copy)]
struct Name {
    offset: u64,
    lane: u64,
    style: Style,
}

/// Rank 0 lends a board and tells all; it is used if all could reach it.
#[cold]
fn take_place(comm: &Comm, wire: (u32, Origin)) -> Result<Option<Place>> {
    let process = comm.process();
    // All processes of the world know alike whether they share a node.
    if process.config.node.size() != process.host.world_size() {
        return Ok(None);
    }
    let lender = comm.group().peer(0);
    let commons = lender.and_then(|lender| process.host.commons(lender));
    let lent = match (&commons, comm.rank()) {
        (Some(commons), 0) => process.boards.lend(commons, comm.size()),
        _ => None,
    };
    let words = scratch(NAME_BYTES)?;
    let name = lent.as_ref().map_or(0, |(offset, _)| *offset as u64 + 1);
    let lane = lent.as_ref().map_or(0, |(_, board)| board.lane_len() as u64);
    let flags = comm.size() <= limit::FLAG_RANKS && process.host.spins() > 0;
    words.mem().write(0, &name.to_ne_bytes());
    words.mem().write(8, &lane.to_ne_bytes());
    words.mem().write(16, &u64::from(flags).to_ne_bytes());
    internal(comm, wire, |p| {
        algo::bcast::binomial(p, 0, &Data::contiguous(words.mem(), NAME_BYTES))
    })?;
    let word = |offset| {
        let mut bytes = [0; 8];
        words.mem().read(offset, &mut bytes);
        u64::from_ne_bytes(bytes)
    };
    let name = Name {
        offset: word(0),
        lane: word(8),
        style: if word(16) == 0 { Style::Gate } else { Style::Flags },
    };
    let place = reach(comm, commons, name, lent);
    // All must have got there if anybody is to use it: the least of all answers.
    words.mem().write(0, &[u8::from(place.is_some())]);
    let r = Reduction {
        fold: &Both,
        input: words.mem(),
        output: words.mem(),
        count: 1,
    };
    internal(comm, wire, |p| algo::allreduce::recursive_doubling(p, &r))?;
    let mut all = [0];
    words.mem().read(0, &mut all);
    Ok(place.filter(|_| all == [1]))
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

/// Exchanges messages on behalf of a program's call, whose number they bear. Their kind keeps them apart from its own, and
/// the series from what `garonne who` compares: a rank may be ahead of another, in the call itself, without a mistake.
fn internal(
    comm: &Comm,
    (number, origin): (u32, Origin),
    plan: impl FnOnce(&mut Immediate<'_>) -> Result<()>,
) -> Result<()> {
    let call = Call::new(number, Series::Nonblocking, Kind::Internal);
    let mut immediate = Immediate::new(Wire::of(comm, call, origin));
    plan(&mut immediate)?;
    immediate.finish()
}

fn reach(
    comm: &Comm,
    commons: Option<Segment>,
    name: Name,
    lent: Option<(usize, Arc<Board>)>,
) -> Option<Place> {
    let (process, members, me) = (comm.process(), comm.size(), comm.rank());
    let is_lender = lent.is_some();
    let board = match lent {
        Some((_, board)) => board,
        None => {
            let commons = commons?;
            let offset = usize::try_from(name.offset.checked_sub(1)?).ok()?;
            let lane = usize::try_from(name.lane).ok()?;
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
        style: name.style,
        reads: OnceLock::new(),
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

    /// The other members, beginning after this one.
    pub(super) fn others(&self) -> impl Iterator<Item = u32> + use<> {
        let (me, n) = (self.me, self.board.members());
        (1..n).map(move |distance| algo::plus(me, distance, n))
    }
}

/// One collective on a board, as one of its members takes part.
pub struct Table<'a> {
    pub(super) comm: &'a Comm,
    pub(super) place: &'a Place,
    call: Call,
    origin: Origin,
    said: Statement,
    word: u32,
}

impl<'a> Table<'a> {
    pub(super) fn new(comm: &'a Comm, place: &'a Place, call: Call, origin: Origin, said: Statement) -> Self {
        Self {
            comm,
            place,
            call,
            origin,
            said,
            word: said.word(),
        }
    }

    /// Whether all members can read what any of them lends. They agree on it when the first of their collectives asks, all in
    /// the same one: before the first meeting a peer may not have started, and could not be read from yet.
    ///
    /// # Errors
    /// As [`Self::pass`].
    pub(super) fn reads(&self) -> Result<bool> {
        let Place { board, me, reads, .. } = self.place;
        if let Some(&reads) = reads.get() {
            return Ok(reads);
        }
        let process = self.comm.process();
        let readable = |rank| match self.comm.group().peer(rank) {
            Some(peer) => peer == process.host.me() || process.host.can_fetch(peer),
            None => false,
        };
        // The members' words are compared before: only those who mean the same come to the second meeting.
        self.agree()?;
        let epoch = self.place.next();
        let all = (0..board.members()).all(readable);
        board.cell(*me, epoch).write(0, &[u8::from(all)]);
        self.pass(epoch, || {})?;
        let says = |member| {
            let mut answer = [0];
            board.cell(member, epoch).read(0, &mut answer);
            answer == [1]
        };
        let all = (0..board.members()).all(says);
        Ok(*reads.get_or_init(|| all))
    }

    /// Meets the others only to learn whether they mean the same.
    pub(super) fn agree(&self) -> Result<()> {
        self.pass(self.place.next(), || {})
    }

    /// Meets the others; at a gate the last to arrive does `last` first.
    ///
    /// # Errors
    /// `NotSame` if ranks called different things; all of them get it, in the same meeting.
    #[inline]
    pub(super) fn pass(&self, epoch: u32, last: impl FnOnce()) -> Result<()> {
        self.pass_doing(epoch, last, || {})
    }

    /// As [`Self::pass`], with something to do between coming and waiting.
    ///
    /// # Errors
    /// As [`Self::pass`].
    #[inline]
    pub(super) fn pass_doing(&self, epoch: u32, last: impl FnOnce(), meanwhile: impl FnOnce()) -> Result<()> {
        match self.meet(epoch, self.word, (last, meanwhile)) {
            Words::Same => Ok(()),
            Words::Different => Err(self.disagreement()),
        }
    }

    #[inline]
    fn meet(&self, epoch: u32, word: u32, (last, meanwhile): (impl FnOnce(), impl FnOnce())) -> Words {
        match self.place.style {
            Style::Gate => self.meet_at_gate(epoch, word, (last, meanwhile)),
            Style::Flags => self.meet_by_flags(epoch, word, meanwhile),
        }
    }

    fn meet_at_gate(
        &self,
        epoch: u32,
        word: u32,
        (last, meanwhile): (impl FnOnce(), impl FnOnce()),
    ) -> Words {
        let gate = self.place.board.gate();
        if let Arrival::Last(words) = gate.arrive(word) {
            if words == Words::Same {
                last();
            }
            gate.open(epoch, words);
            // The fence inside orders the opening before the look at the first bell; sleepers look at the gate once more after arming.
            for (index, bell) in self.place.bells.iter().enumerate() {
                let bell = Doorbell::new(bell.atomic_u32(0));
                if index == 0 {
                    bell.ring_fenced()
                } else {
                    bell.ring()
                }
            }
            meanwhile();
            return words;
        }
        meanwhile();
        self.wait(&mut || gate.passed(epoch));
        gate.words(epoch)
    }

    fn meet_by_flags(&self, epoch: u32, word: u32, meanwhile: impl FnOnce()) -> Words {
        let Place { board, me, bells, .. } = self.place;
        board.flag(*me, epoch).raise(epoch, word);
        // As after a message: a waiter that missed this looks again before it sleeps for long.
        bells
            .iter()
            .for_each(|bell| Doorbell::new(bell.atomic_u32(0)).ring());
        meanwhile();
        let mut words = Words::Same;
        let mut others = self.place.others();
        let mut awaited = others.next();
        self.wait(&mut || {
            while let Some(member) = awaited {
                match board.flag(member, epoch).raised(epoch) {
                    None => return false,
                    Some(theirs) if theirs != word => words = Words::Different,
                    Some(_) => {}
                }
                awaited = others.next();
            }
            true
        });
        words
    }

    #[inline]
    fn wait(&self, come: &mut dyn FnMut() -> bool) {
        for _ in 0..=self.place.spins {
            if come() {
                return;
            }
            std::hint::spin_loop();
        }
        let host = &self.comm.process().host;
        host.meets(Some(event::Meeting {
            awaited: event::Awaited::Members,
            context: self.comm.context() + COLLECTIVE,
            tag: self.call.tag(Inside::Whole),
            origin: self.origin,
        }));
        host.wait_until(come);
        host.meets(None);
    }

    /// Words differed: all show what they meant in one more meeting, and each names itself and one who meant something else.
    #[cold]
    fn disagreement(&self) -> Error {
        let Place { board, me, .. } = self.place;
        let epoch = self.place.next();
        board.cell(*me, epoch).write(0, &self.said.to_bytes());
        self.meet(epoch, 0, (|| {}, || {}));
        let shown = |member: u32| {
            let mut bytes = [0; STATEMENT_BYTES];
            board.cell(member, epoch).read(0, &mut bytes);
            Statement::from_bytes(&bytes)
        };
        let all = || (0..board.members()).filter(|member| member != me);
        let other = all().find(|&member| shown(member) != Some(self.said));
        let theirs = match other.map(|member| (member, shown(member))) {
            Some((member, Some(said))) => format!("rank {member}  {said}"),
            Some((member, None)) => {
                format!("rank {member}  something this version of the library does not know")
            }
            None => "another rank  something else".into(),
        };
        let (number, comm) = (self.call.number, self.comm.label());
        Error::new(
            Class::NotSame,
            format!(
                "error[G0112]: ranks disagree about collective {number} of {comm}\n  rank {me}  {}\n  {theirs}\n  \
                 help: all ranks of a communicator call the same collectives in the same order, with the same root and matching sizes",
                self.said
            ),
        )
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
