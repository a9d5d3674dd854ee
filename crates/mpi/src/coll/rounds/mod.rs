//! Nonblocking collectives that meet in shared memory: short ones, where all members share a node and have a board.
//!
//! Used by [`Comm::start_collective`](crate::comm::Comm::start_collective). What a member brings it puts down when it starts the call, unless the round is not free yet
//! ([`garonne_sync::round`]); whoever comes last combines for all, so who computes meanwhile is waited for by nobody. Then nothing is left to do but to look, and to take:
//! who waits or tests does so itself, and whoever brings about what others wait for rings once for those who sleep. Only who came too early for its round is a
//! stepper, from the beginning; and where several threads wait, one that polls looks for all, so there a call becomes a stepper when it is first waited for.
//!
//! Which number meets in which round is a count of the communicator's nonblocking collectives, which all members make in the same order, and whether the data of a call goes this way follows from what
//! must be the same on all ranks. Members that disagree find different words, as in [`super::table`], and get G0112; calls whose data goes by messages come to a
//! round only to show what they are, so that of ranks of which only some meet somebody is told. Bounded by the rounds of a board, and by one object for each call that is open.

pub(super) mod errand;

use super::Collective;
use super::node::{self, Place};
use super::run::Wire;
use super::statement::{STATEMENT_BYTES, Statement};
use super::table::disagreement;
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::request::{Completion, Outcome, Request, Status};
use errand::{Course, Errand, Private, View};
use garonne_engine::event::{Awaited, Meeting};
use garonne_progress::host::{Host, Stepper};
use garonne_sync::board::{Arrival, NOTE_BYTES, Words};
use garonne_sync::round::ROUNDS;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// A member's use of its board's rounds.
#[derive(Default)]
pub(super) struct Visits {
    /// Number of the last call that met there.
    last: AtomicU32,
    /// The calls that were not over when they returned, by round.
    open: Mutex<[Weak<Open>; ROUNDS as usize]>,
    /// For combining; made at first use.
    private: Private,
}

impl std::fmt::Debug for Visits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Visits({})", self.last.load(Ordering::Relaxed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `call` in a round; `None`: messages are to serve, and at most those who disagree will hear of it.
pub(super) fn start(call: &impl Collective, wire: &Wire<'static>) -> Option<Result<Request>> {
    let comm = wire.comm();
    let place = node::known(comm)?;
    let errand = call.errand(comm);
    let fits = errand.filter(|errand| errand.len(comm.size()) <= place.rounds.room() as u64);
    let by_messages = fits.is_none();
    let started = start_at(place, fits.unwrap_or(Errand::Show), call.statement(comm), wire);
    match started {
        Ok(_) if by_messages => None,
        started => Some(started),
    }
}

fn start_at(place: &Place, errand: Errand<'_>, said: Statement, wire: &Wire<'static>) -> Result<Request> {
    let (comm, visits) = (wire.comm(), &place.visits);
    let number = visits.last.load(Ordering::Relaxed).wrapping_add(1);
    visits.last.store(number, Ordering::Relaxed);
    let said = errand.said(said, place.me, comm.size());
    let visit = Visit {
        place,
        errand: &errand,
        number,
        said,
        wire,
    };
    let mut before = Weak::new();
    let mut free = place.rounds.round(number).is_free(number);
    if !free {
        before = lock(&visits.open)[(number % ROUNDS) as usize].clone();
        before.upgrade().iter().for_each(|open| open.look());
        free = place.rounds.round(number).is_free(number);
    }
    let state = match free {
        true => {
            let last = visit.come();
            if let Some(words) = visit.has_come(last) {
                visit.end(words)?;
                return Ok(Request::done(comm.process(), Status::EMPTY));
            }
            State::Come(last)
        }
        false => State::Early(before),
    };
    let open = Open::new(errand.keep(), (number, said), state, wire);
    lock(&visits.open)[(number % ROUNDS) as usize] = Arc::downgrade(&open);
    if !free {
        open.kept.store(true, Ordering::Relaxed);
        comm.process().host.attach(open.clone());
    }
    Ok(Request::new(comm.process(), open))
}

/// One call in its round.
struct Visit<'a> {
    place: &'a Place,
    errand: &'a Errand<'a>,
    number: u32,
    said: Statement,
    wire: &'a Wire<'static>,
}

impl Visit<'_> {
    fn view<T>(&self, f: impl FnOnce(&View<'_>) -> T) -> T {
        let Place {
            rounds, me, visits, ..
        } = self.place;
        let members = rounds.members();
        let len = self.errand.len(members) as usize;
        f(&View {
            me: *me,
            members,
            room: rounds.room() as u64,
            cell: &|member| rounds.cell(member, self.number, len),
            result: rounds.result(self.number, len),
            private: &visits.private,
        })
    }

    /// Puts down what this member brings, arrives, and wakes those who waited for that. Of the last to arrive: what the words of all were like.
    fn come(&self) -> Option<Words> {
        let Place { rounds, me, .. } = self.place;
        let (round, word) = (rounds.round(self.number), self.said.word());
        let mut note = [0; NOTE_BYTES];
        note[..STATEMENT_BYTES].copy_from_slice(&self.said.to_bytes());
        rounds.note(*me, self.number).write(0, &note);
        let last = self.view(|view| {
            self.errand.put(view);
            rounds.flag(*me, self.number).raise(self.number, word);
            let Arrival::Last(words) = round.arrive(word) else {
                return None;
            };
            if words == Words::Same {
                self.errand.combine(view);
            }
            round.open(self.number, words);
            Some(words)
        });
        match (self.errand.course(), last) {
            (_, Some(Words::Different)) | (Course::Among, Some(Words::Same)) => self.place.ring(),
            (Course::From(root), _) if root == *me => self.place.ring(),
            (Course::To(root), Some(Words::Same)) if root != *me => self.place.ring_one(root),
            _ => {}
        }
        last
    }

    /// Whether what this member waits for has come, and what the words were like; `last` is what [`Self::come`] said.
    fn has_come(&self, last: Option<Words>) -> Option<Words> {
        let Place { rounds, me, .. } = self.place;
        match self.errand.course() {
            Course::From(root) if root != *me => {
                let theirs = rounds.flag(root, self.number).raised(self.number)?;
                let same = theirs == self.said.word() && last != Some(Words::Different);
                Some(if same { Words::Same } else { Words::Different })
            }
            Course::To(root) if root != *me => Some(last.unwrap_or(Words::Same)),
            Course::From(_) | Course::Alone => Some(last.unwrap_or(Words::Same)),
            Course::Among | Course::To(_) => {
                let round = rounds.round(self.number);
                round.is_open(self.number).then(|| round.words(self.number))
            }
        }
    }

    /// Takes what this member came for, and leaves.
    ///
    /// # Errors
    /// `NotSame` if words differed.
    fn end(&self, words: Words) -> Result<()> {
        let outcome = match words {
            Words::Same => {
                self.view(|view| self.errand.take(view));
                Ok(())
            }
            Words::Different => Err(self.disagreement()),
        };
        if self.place.rounds.round(self.number).leave(self.number) {
            self.place.ring();
        }
        if self.errand.course() != Course::Alone {
            self.wire.tell_over();
        }
        outcome
    }

    #[cold]
    fn disagreement(&self) -> Error {
        let Place { rounds, me, .. } = self.place;
        let other = self.place.others().find_map(|member| {
            rounds.flag(member, self.number).raised(self.number)?;
            let mut note = [0; NOTE_BYTES];
            rounds.note(member, self.number).read(0, &mut note);
            let theirs = note.first_chunk().and_then(Statement::from_bytes);
            (theirs != Some(self.said)).then_some((member, theirs))
        });
        let number = self.wire.call().number;
        disagreement(
            self.wire.comm(),
            ("nonblocking collective", number),
            (*me, self.said),
            other,
        )
    }
}

/// How far a call is that was not over when it returned.
enum State {
    /// The round was not free. This call may still have to leave it first.
    Early(Weak<Open>),
    /// It arrived, and found this.
    Come(Option<Words>),
    /// It has left.
    Over(Option<Error>),
}

/// Such a call: its request, and where that is needed a stepper.
struct Open {
    wire: Wire<'static>,
    errand: Errand<'static>,
    number: u32,
    said: Statement,
    state: Mutex<State>,
    over: AtomicBool,
    /// It is a stepper.
    kept: AtomicBool,
    runs_user_code: bool,
    own: Weak<Open>,
}

impl Open {
    fn new(
        errand: Errand<'static>,
        (number, said): (u32, Statement),
        state: State,
        wire: &Wire<'static>,
    ) -> Arc<Self> {
        // The one before is looked at, too.
        let before = match &state {
            State::Early(before) => before.upgrade(),
            _ => None,
        };
        let runs_user_code = errand.runs_user_code() || before.is_some_and(|before| before.runs_user_code);
        Arc::new_cyclic(|own| Self {
            wire: wire.clone(),
            errand,
            number,
            said,
            state: Mutex::new(state),
            over: AtomicBool::new(false),
            kept: AtomicBool::new(false),
            runs_user_code,
            own: own.clone(),
        })
    }

    fn is_over(&self) -> bool {
        // SYNC(collective): Acquire the result and the program's buffers.
        self.over.load(Ordering::Acquire)
    }

    /// Goes as far as it can. A thread that finds another at it leaves it to that one.
    fn look(&self) {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        // A communicator that has a request of this kind has its place.
        let Some(place) = node::known(self.wire.comm()) else {
            return;
        };
        let visit = Visit {
            place,
            errand: &self.errand,
            number: self.number,
            said: self.said,
            wire: &self.wire,
        };
        if let State::Early(before) = &*state {
            before.upgrade().iter().for_each(|before| before.look());
            if !place.rounds.round(self.number).ask(self.number) {
                return;
            }
            *state = State::Come(visit.come());
        }
        let State::Come(last) = *state else { return };
        if let Some(words) = visit.has_come(last) {
            *state = State::Over(visit.end(words).err());
            // SYNC(collective): Release the result and the program's buffers.
            self.over.store(true, Ordering::Release);
        }
    }

    fn keep(&self) {
        if !self.kept.swap(true, Ordering::Relaxed)
            && let Some(own) = self.own.upgrade()
        {
            self.wire.comm().process().host.drive(own);
        }
    }
}

impl Stepper for Open {
    fn step(&self, _host: &dyn Host) -> bool {
        if !self.is_over() {
            self.look();
        }
        self.is_over()
    }

    fn runs_user_code(&self) -> bool {
        self.runs_user_code
    }

    fn looks_at_memory(&self) -> bool {
        true
    }

    fn site(&self) -> u64 {
        self.wire.site()
    }
}

impl Completion for Open {
    fn is_done(&self) -> bool {
        self.is_over()
    }

    fn advance(&self) {
        if self.is_over() {
            return;
        }
        self.look();
        // Where another thread may be the one that polls, it has to look at this as well.
        if !self.is_over() && !self.wire.comm().process().host.waits_alone() {
            self.keep();
        }
    }

    fn peek(&self) -> Outcome {
        match &*lock(&self.state) {
            State::Over(Some(error)) => Err(error.clone()),
            _ => Ok(Status::EMPTY),
        }
    }

    fn free(&self) -> Result<()> {
        // Nobody waits for it any more, and its buffers are still to be filled.
        self.keep();
        Ok(())
    }

    fn comm(&self) -> Option<Comm> {
        Some(self.wire.comm().clone())
    }

    fn meeting(&self) -> Option<Meeting> {
        let comm = self.wire.comm();
        let awaited = match self.errand.course() {
            Course::From(root) => comm.group().peer(root).map_or(Awaited::Members, Awaited::Leader),
            _ => Awaited::Members,
        };
        (!self.is_over()).then(|| self.wire.meeting(awaited))
    }
}
