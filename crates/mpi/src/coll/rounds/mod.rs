//! Nonblocking collectives that meet in shared memory: short ones, where all members share a node and have a board.
//!
//! Used by [`Comm::start_collective`](crate::comm::Comm::start_collective). What a member brings it puts down when it starts the call, unless the round is not free yet
//! ([`garonne_sync::round`]); whoever comes last combines for all (where members are few and have a core each, every one for itself), so who computes meanwhile is waited for by nobody. Then nothing is left
//! to do but to look, and to take: who waits or tests does so itself, and whoever brings about what others wait for rings once for those who sleep. Only who came too early for its round is a
//! stepper, from the beginning, and so is who comes before it is known whether there are rounds ([`super::founding`]); and where several threads wait, one that polls looks for all, so there a call becomes a stepper when it is first waited for.
//!
//! Which number meets in which round is a count of the communicator's nonblocking collectives, which all members make in the same order, and whether the data of a call goes this way follows from what
//! must be the same on all ranks. Members that disagree find different words, as in [`super::table`], and get G0112; calls whose data goes by messages come to a
//! round only to show what they are, so that of ranks of which only some meet somebody is told. Bounded by the rounds of a board, and by one object for each call that is open.

pub(super) mod errand;

use super::Collective;
use super::node::{self, Found, Place, Style};
use super::run::{Afloat, Running, Wire};
use super::start::Starting;
use super::statement::{STATEMENT_BYTES, Statement};
use super::table::disagreement;
use crate::comm::Comm;
use crate::error::{Error, Result};
use crate::limits::coll as limit;
use crate::request::{Completion, Outcome, Request, Status};
use errand::{Course, Errand, Private, View};
use garonne_engine::event::{Awaited, Meeting};
use garonne_progress::host::{Host, Stepper};
use garonne_sync::board::{Arrival, NOTE_BYTES, Words};
use garonne_sync::round::{Left, ROUNDS, is_free};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

/// A member's use of its board's rounds.
#[derive(Default)]
pub(crate) struct Visits {
    /// Number of the last call that met there.
    last: AtomicU32,
    /// All members are known to have left all calls up to this one.
    through: AtomicU32,
    /// What this member has left.
    left: Mutex<Left>,
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

impl Visits {
    /// The number of the next call.
    fn next(&self) -> u32 {
        let number = self.last.load(Ordering::Relaxed).wrapping_add(1);
        self.last.store(number, Ordering::Relaxed);
        number
    }

    /// The call in the round of this number that was not over when it returned.
    fn in_round_of(&self, number: u32) -> Weak<Open> {
        lock(&self.open)[(number % ROUNDS) as usize].clone()
    }

    fn opened(&self, open: &Arc<Open>) {
        lock(&self.open)[(open.number % ROUNDS) as usize] = Arc::downgrade(open);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `call` in a round; `None`: messages are to serve, and at most those who disagree will hear of it.
pub(super) fn start(call: &impl Collective, wire: &Wire<'static>) -> Option<Result<Request>> {
    let comm = wire.comm();
    let place = match node::look_for(comm, wire.call(), wire.origin()) {
        Found::Place(place) => place,
        Found::Nothing => return None,
        Found::NotYet => return start_early(call, wire),
    };
    let errand = call.errand(comm);
    let fits = errand.filter(|errand| errand.len(comm.size()) <= place.rounds.room() as u64);
    let by_messages = fits.is_none();
    let started = start_at(place, fits.unwrap_or(Errand::Show), call.statement(comm), wire);
    match started {
        Ok(_) if by_messages => None,
        started => Some(started),
    }
}

/// Starts `call` before it is known whether there are rounds: what may meet there waits for that in its request, with what it would do by messages.
#[cold]
fn start_early(call: &impl Collective, wire: &Wire<'static>) -> Option<Result<Request>> {
    let comm = wire.comm();
    let fits = call.errand(comm);
    let fits = fits.filter(|errand| errand.len(comm.size()) <= node::most_room(comm.size()));
    let by_messages = fits.is_none();
    let otherwise = match by_messages {
        true => None,
        false => match Starting::plan_of(call, wire) {
            Ok(schedule) => Some(Running::new(wire.clone(), schedule, Afloat::default())),
            Err(error) => return Some(Err(error)),
        },
    };
    let number = visits(comm).next();
    let before = visits(comm).in_round_of(number);
    let errand = fits.unwrap_or(Errand::Show);
    let said = errand.said(call.statement(comm), comm.rank(), comm.size());
    let open = Open::new(
        errand.keep(),
        (number, said),
        State::Unplaced(before, otherwise),
        wire,
    );
    visits(comm).opened(&open);
    open.kept.store(true, Ordering::Relaxed);
    comm.process().host.attach(open.clone());
    (!by_messages).then(|| Ok(Request::new(comm.process(), open)))
}

fn visits(comm: &Comm) -> &Visits {
    &comm.0.meeting.visits
}

fn start_at(place: &Place, errand: Errand<'_>, said: Statement, wire: &Wire<'static>) -> Result<Request> {
    let comm = wire.comm();
    let visits = visits(comm);
    let number = visits.next();
    let said = errand.said(said, place.me, comm.size());
    let visit = Visit {
        place,
        visits,
        errand: &errand,
        number,
        said,
        wire,
    };
    let mut before = Weak::new();
    let mut free = visit.is_free();
    if !free {
        before = visits.in_round_of(number);
        before.upgrade().iter().for_each(|open| open.look());
        free = visit.is_free();
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
    visits.opened(&open);
    if !free {
        // Before it is looked at again: who leaves from now on wakes this process if it sleeps.
        place.rounds.ask(true);
        open.kept.store(true, Ordering::Relaxed);
        comm.process().host.attach(open.clone());
    }
    Ok(Request::new(comm.process(), open))
}

/// One call in its round.
struct Visit<'a> {
    place: &'a Place,
    visits: &'a Visits,
    errand: &'a Errand<'a>,
    number: u32,
    said: Statement,
    wire: &'a Wire<'static>,
}

impl Visit<'_> {
    fn view<T>(&self, f: impl FnOnce(&View<'_>) -> T) -> T {
        let Place { rounds, me, .. } = self.place;
        let members = rounds.members();
        let len = self.errand.len(members) as usize;
        f(&View {
            me: *me,
            members,
            room: rounds.room() as u64,
            cell: &|member| rounds.cell(member, self.number, len),
            result: (self.place.style == Style::Gate).then(|| rounds.result(self.number, len)),
            private: &self.visits.private,
        })
    }

    /// Whether all have left the call that was in this one's round before.
    fn is_free(&self) -> bool {
        let known = &self.visits.through;
        if is_free(self.number, known.load(Ordering::Relaxed)) {
            return true;
        }
        let through = self.place.rounds.through();
        known.store(through, Ordering::Relaxed);
        is_free(self.number, through)
    }

    /// Puts down what this member brings, comes, and wakes those who waited for that. What the words of those are like whom it saw: at a gate the last to
    /// come sees all.
    fn come(&self) -> Option<Words> {
        let Place {
            rounds, me, style, ..
        } = self.place;
        let word = self.said.word();
        let mut note = [0; NOTE_BYTES];
        note[..STATEMENT_BYTES].copy_from_slice(&self.said.to_bytes());
        rounds.note(*me, self.number).write(0, &note);
        self.view(|view| {
            self.errand.put(view);
            rounds.flag(*me, self.number).raise(self.number, word);
            match style {
                Style::Gate => self.arrive(view, word),
                Style::Flags => self.show(),
            }
        })
    }

    fn arrive(&self, view: &View<'_>, word: u32) -> Option<Words> {
        let (place, gate) = (self.place, self.place.rounds.gate(self.number));
        let last = match gate.arrive(word) {
            Arrival::Early => None,
            Arrival::Last(words) => {
                if words == Words::Same {
                    self.errand.combine(view);
                }
                gate.open(self.number, words);
                Some(words)
            }
        };
        match (self.errand.course(), last) {
            (_, Some(Words::Different)) | (Course::Among, Some(Words::Same)) => place.ring(),
            (Course::From(root), _) if root == place.me => place.ring(),
            (Course::To(root), Some(Words::Same)) if root != place.me => place.ring_one(root),
            _ => {}
        }
        last
    }

    /// With flags everybody looks at everybody's, so each may be the one that a sleeper waits for.
    fn show(&self) -> Option<Words> {
        let place = self.place;
        match self.errand.course() {
            // Others wait for all, or for this one.
            Course::Among | Course::Alone => place.ring(),
            Course::From(root) if root == place.me => place.ring(),
            Course::To(root) if root != place.me => place.ring_one(root),
            Course::From(_) | Course::To(_) => {}
        }
        let differs = |member| self.word_of(member).is_some_and(|word| word != self.said.word());
        place.others().any(differs).then_some(Words::Different)
    }

    /// What `member` came with, if it has.
    fn word_of(&self, member: u32) -> Option<u32> {
        self.place.rounds.flag(member, self.number).raised(self.number)
    }

    /// Whether what this member waits for has come, and what the words were like; `seen` is what [`Self::come`] said.
    fn has_come(&self, seen: Option<Words>) -> Option<Words> {
        let place = self.place;
        let own = self.said.word();
        let words = |same| if same { Words::Same } else { Words::Different };
        let alone = Some(seen.unwrap_or(Words::Same));
        match (self.errand.course(), place.style) {
            (Course::From(root), _) if root != place.me => {
                let theirs = self.word_of(root)?;
                Some(words(theirs == own && seen != Some(Words::Different)))
            }
            (Course::To(root), _) if root != place.me => alone,
            (Course::From(_) | Course::Alone, _) => alone,
            (Course::Among | Course::To(_), Style::Gate) => {
                let gate = place.rounds.gate(self.number);
                gate.passed(self.number).then(|| gate.words(self.number))
            }
            (Course::Among | Course::To(_), Style::Flags) => {
                let mut same = true;
                for member in place.others() {
                    same &= self.word_of(member)? == own;
                }
                Some(words(same))
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
        let Place { rounds, me, .. } = self.place;
        let mut left = lock(&self.visits.left);
        // Under the lock: what another thread leaves later is said later.
        let asked = left
            .add(self.number)
            .is_some_and(|through| rounds.exit(*me).leave(through));
        drop(left);
        if asked {
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
            self.word_of(member)?;
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
    /// Whether there are rounds is not known yet. The call that was in this one's round before, and this one by messages, if its data waits for that.
    Unplaced(Weak<Open>, Option<Arc<Running>>),
    /// There is no room in rounds: by messages.
    Sent(Arc<Running>),
    /// The round was not free. This call may still have to leave it first.
    Early(Weak<Open>),
    /// It arrived, and found this.
    Come(Option<Words>),
    /// It has left.
    Over(Option<Error>),
}

impl State {
    fn instead(running: Option<Arc<Running>>) -> Self {
        running.map_or(State::Over(None), State::Sent)
    }
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
            State::Early(before) | State::Unplaced(before, _) => before.upgrade(),
            _ => None,
        };
        let runs_user_code = errand.runs_user_code()
            || before.is_some_and(|before| before.runs_user_code)
            || matches!(&state, State::Unplaced(_, Some(running)) if running.has_user_code());
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
        if let State::Unplaced(before, otherwise) = &mut *state {
            *state = match node::found(self.wire.comm()) {
                Found::NotYet => return,
                Found::Place(place) => self.go_to(place, std::mem::take(before), otherwise.take()),
                Found::Nothing => State::instead(otherwise.take()),
            };
        }
        if let State::Sent(running) = &*state
            && running.carry()
        {
            *state = State::Over(running.error());
            self.wire.tell_over();
        }
        if let State::Over(_) = *state {
            // SYNC(collective): Release the result and the program's buffers.
            self.over.store(true, Ordering::Release);
        }
        // Who has come to a round, or is to come to one, has its place.
        let Some(place) = node::known(self.wire.comm()) else {
            return;
        };
        let visit = Visit {
            place,
            visits: visits(self.wire.comm()),
            errand: &self.errand,
            number: self.number,
            said: self.said,
            wire: &self.wire,
        };
        if let State::Early(before) = &*state {
            before.upgrade().iter().for_each(|before| before.look());
            if !visit.is_free() {
                return;
            }
            place.rounds.ask(false);
            *state = State::Come(visit.come());
        }
        let State::Come(last) = *state else { return };
        if let Some(words) = visit.has_come(last) {
            *state = State::Over(visit.end(words).err());
            // SYNC(collective): Release the result and the program's buffers.
            self.over.store(true, Ordering::Release);
        }
    }

    /// There are rounds: this call comes to its own, if that has room for it. Else it only shows there what it is.
    fn go_to(&self, place: &Place, before: Weak<Open>, otherwise: Option<Arc<Running>>) -> State {
        let comm = self.wire.comm();
        place.rounds.ask(true);
        if self.errand.len(comm.size()) <= place.rounds.room() as u64 {
            return State::Early(before);
        }
        let shown = Open::new(
            Errand::Show,
            (self.number, self.said),
            State::Early(before),
            &self.wire,
        );
        visits(comm).opened(&shown);
        shown.kept.store(true, Ordering::Relaxed);
        comm.process().host.attach(shown);
        State::instead(otherwise)
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

    fn linger(&self) {
        let Some(place) = node::known(self.wire.comm()) else {
            return;
        };
        if place.spins == 0 || !self.wire.comm().process().host.waits_alone() {
            return;
        }
        for _ in 0..limit::ROUND_SPINS {
            self.look();
            if self.is_over() {
                return;
            }
            std::hint::spin_loop();
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
