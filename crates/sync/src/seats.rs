//! Seats: where the threads of a rank sleep while one of them polls for all, each on a word of its own.
//!
//! A thread that waits asks whether what it waits for has come, takes the poller's role if it is free, and otherwise waits in its seat, which says what it waits for.
//! Whoever brings something about tells the seats, and wakes those alone for whom it is news. A poller that leaves hands its role over to one that waits, if there is one: never to
//! more, never to none. No wake-up is lost, because who tells counts the news before it looks at the seats, and who waits sits down before it compares the count with what it was before
//! it asked: one of both sees the other, SYNC(seats-news). Likewise a role that is given back and who sits down at that moment: SYNC(seats-role).
//! Used by the engine's host. Bounded by `SEATS_MAX` seats, which are made by rows when first needed; who finds none has to do without.

use crate::facade::{AtomicU32, AtomicU64, AtomicUsize, Ordering, total_order};
use crate::pad::CachePadded;
use std::sync::OnceLock;

/// Seats of a row: what one word of a bitmap names.
#[cfg(not(loom))]
const ROW: usize = 64;
#[cfg(loom)]
const ROW: usize = 2;

/// Rows at most: more threads than that wait in no program that has room for their stacks.
#[cfg(not(loom))]
const ROWS: usize = 64;
#[cfg(loom)]
const ROWS: usize = 1;

/// Threads that can have a seat at once.
pub const SEATS_MAX: usize = ROW * ROWS;

/// A seat's word: its owner sleeps or is about to.
const SITS: u32 = 0;
/// There is news for its owner.
const NEWS: u32 = 1;
/// Its owner is the poller from now on.
const ROLE: u32 = 2;
/// Nobody waits here.
const AWAKE: u32 = 3;

/// No thread is the poller.
const NOBODY: usize = 0;
/// The role was handed over, and whoever has it now is waking up.
const HANDED: usize = 1;

/// A thread that waits, by a number of its own above 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who(usize);

impl Who {
    /// The thread of this number, which no other thread that waits at the same seats has.
    ///
    /// # Panics
    /// If it is 0 or 1.
    pub fn new(number: usize) -> Self {
        assert!(number > HANDED, "these numbers are taken");
        Self(number)
    }
}

/// Why a wait in a seat is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Called {
    /// Something happened, or nobody polls: ask again.
    Ask,
    /// The caller is the poller now. It hands the role over when it leaves.
    Poll,
}

#[derive(Debug)]
struct Row {
    /// Seats that threads have.
    taken: AtomicU64,
    /// What their owners wait for. Valid where the word says that somebody sits.
    awaited: [AtomicU64; ROW],
    /// When they sat down, by a count.
    since: [AtomicU32; ROW],
    words: [CachePadded<AtomicU32>; ROW],
    /// What stands for the kernel's sleep.
    #[cfg(loom)]
    bells: [crate::facade::Notify; ROW],
}

impl Row {
    fn new() -> Self {
        Self {
            taken: AtomicU64::new(0),
            awaited: std::array::from_fn(|_| AtomicU64::new(0)),
            since: std::array::from_fn(|_| AtomicU32::new(0)),
            words: std::array::from_fn(|_| CachePadded(AtomicU32::new(AWAKE))),
            #[cfg(loom)]
            bells: std::array::from_fn(|_| crate::facade::Notify::new()),
        }
    }

    /// Seats in which somebody waits.
    fn sitting(&self) -> impl Iterator<Item = usize> {
        let mut taken = self.taken.load(Ordering::SeqCst);
        std::iter::from_fn(move || {
            while taken != 0 {
                let index = taken.trailing_zeros() as usize;
                taken &= taken - 1;
                // SeqCst: what it waits for is seen.
                if self.words[index].load(Ordering::SeqCst) == SITS {
                    return Some(index);
                }
            }
            None
        })
    }

    /// Ends the wait in a seat; `false`: somebody else did.
    fn call(&self, index: usize, why: u32) -> bool {
        let word = &self.words[index];
        let called = word
            .compare_exchange(SITS, why, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        #[cfg(not(loom))]
        if called {
            crate::postponed::wake_all(word);
        }
        #[cfg(loom)]
        if called {
            self.bells[index].notify();
        }
        called
    }
}

/// See the module's paragraph.
#[derive(Debug)]
pub struct Seats {
    /// Who polls: `NOBODY`, `HANDED`, or a thread's number.
    poller: AtomicUsize,
    /// Counts what happened.
    news: AtomicU64,
    /// Counts who sat down.
    sat: AtomicU32,
    /// Counts who was called because of news.
    called: AtomicU32,
    rows: [OnceLock<Box<Row>>; ROWS],
}

impl Default for Seats {
    fn default() -> Self {
        Self {
            poller: AtomicUsize::new(NOBODY),
            news: AtomicU64::new(0),
            sat: AtomicU32::new(0),
            called: AtomicU32::new(0),
            rows: [const { OnceLock::new() }; ROWS],
        }
    }
}

impl Seats {
    /// With the first row made already: loom does not know that a `OnceLock` orders anything.
    #[cfg(all(test, loom))]
    fn modelled() -> Self {
        let seats = Self::default();
        seats.rows[0].set(Box::new(Row::new())).unwrap();
        seats
    }

    fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().map_while(|row| row.get().map(|row| &**row))
    }

    /// Makes the caller the poller, unless there is one. It hands the role over when it leaves.
    #[inline]
    pub fn begin(&self, who: Who) -> bool {
        self.poller
            .compare_exchange(NOBODY, who.0, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Whether somebody polls, or was told to.
    #[inline]
    pub fn is_polled(&self) -> bool {
        self.poller.load(Ordering::SeqCst) != NOBODY
    }

    /// Whether this thread is the poller.
    #[inline]
    pub fn is_polled_by(&self, who: Who) -> bool {
        self.poller.load(Ordering::Relaxed) == who.0
    }

    /// How much has happened. Read before asking whether what is awaited has come.
    #[inline]
    pub fn news(&self) -> u64 {
        self.news.load(Ordering::SeqCst)
    }

    /// How many were called because of news, ever (modulo 2^32).
    #[inline]
    pub fn called(&self) -> u32 {
        self.called.load(Ordering::Relaxed)
    }

    /// Something happened that nobody in a seat waits for.
    #[inline]
    pub fn note(&self) {
        self.news.fetch_add(1, Ordering::SeqCst);
    }

    /// Something happened: whoever waits for what `is_due` says yes to is called. Everything that `is_due` and those who are called look at was written before.
    #[inline]
    pub fn tell(&self, mut is_due: impl FnMut(u64) -> bool) {
        // Before the look at the seats: SYNC(seats-news).
        self.news.fetch_add(1, Ordering::SeqCst);
        total_order();
        for row in self.rows() {
            for index in row.sitting() {
                if is_due(row.awaited[index].load(Ordering::Relaxed)) && row.call(index, NEWS) {
                    self.called.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// The poller leaves: one that waits has its role now (the one that sat down last, whose turn is likely to come last), or nobody has, and nobody waits. `true`: somebody has.
    pub fn hand_over(&self) -> bool {
        loop {
            // Before somebody is called, who says so in turn.
            self.poller.store(HANDED, Ordering::SeqCst);
            while let Some((row, index)) = self.last_to_sit() {
                if row.call(index, ROLE) {
                    return true;
                }
            }
            // Before another look at the seats: SYNC(seats-role).
            self.poller.store(NOBODY, Ordering::SeqCst);
            total_order();
            let waits = self.rows().any(|row| row.sitting().next().is_some());
            let again = waits
                && self
                    .poller
                    .compare_exchange(NOBODY, HANDED, Ordering::SeqCst, Ordering::SeqCst)
                    .is_ok();
            if !again {
                return waits;
            }
        }
    }

    fn last_to_sit(&self) -> Option<(&Row, usize)> {
        let now = self.sat.load(Ordering::Relaxed);
        self.rows()
            .flat_map(|row| row.sitting().map(move |index| (row, index)))
            .min_by_key(|(row, index)| now.wrapping_sub(row.since[*index].load(Ordering::Relaxed)))
    }

    /// A seat of the caller's own, until it is dropped. `None`: there are no more.
    pub fn take(&self, who: Who) -> Option<Seat<'_>> {
        for row in &self.rows {
            let row = row.get_or_init(|| Box::new(Row::new()));
            loop {
                let index = (!row.taken.load(Ordering::Relaxed)).trailing_zeros() as usize;
                if index >= ROW {
                    break;
                }
                if row.taken.fetch_or(1 << index, Ordering::SeqCst) >> index & 1 == 0 {
                    let seats = self;
                    return Some(Seat {
                        seats,
                        row,
                        index,
                        who,
                    });
                }
            }
        }
        None
    }
}

/// A thread's seat.
#[derive(Debug)]
pub struct Seat<'a> {
    seats: &'a Seats,
    row: &'a Row,
    index: usize,
    who: Who,
}

impl Seat<'_> {
    /// Sleeps until there is news of `awaited`, or the role of the poller is handed over to the caller. At once `Ask` if something happened since `seen`, which was read before what is
    /// awaited was found not to have come, or if nobody polls.
    pub fn wait(&mut self, awaited: u64, seen: u64) -> Called {
        let (seats, word) = (self.seats, &*self.row.words[self.index]);
        let stamp = seats.sat.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.row.since[self.index].store(stamp, Ordering::Relaxed);
        self.row.awaited[self.index].store(awaited, Ordering::Relaxed);
        word.store(SITS, Ordering::SeqCst);
        // Before these looks: SYNC(seats-news), SYNC(seats-role).
        total_order();
        if seats.news() == seen && seats.is_polled() {
            while word.load(Ordering::SeqCst) == SITS {
                #[cfg(not(loom))]
                crate::futex::wait(word, SITS, None);
                #[cfg(loom)]
                self.row.bells[self.index].wait();
            }
        }
        if word.swap(AWAKE, Ordering::SeqCst) == ROLE {
            seats.poller.store(self.who.0, Ordering::SeqCst);
            return Called::Poll;
        }
        Called::Ask
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.row.taken.fetch_and(!(1 << self.index), Ordering::SeqCst);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::AtomicBool;
    use loom::sync::Arc;

    fn model(body: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(body);
    }

    /// Waits for a flag that others raise. Returns whether it was the poller at the end.
    fn await_flag(seats: &Seats, who: usize, flag: &AtomicBool) -> bool {
        let who = Who::new(who);
        let mut seat = seats.take(who).unwrap();
        loop {
            let seen = seats.news();
            if flag.load(Ordering::Acquire) {
                return false;
            }
            if seats.begin(who) || seat.wait(7, seen) == Called::Poll {
                assert!(seats.is_polled_by(who));
                while !flag.load(Ordering::Acquire) {
                    loom::thread::yield_now();
                }
                return true;
            }
        }
    }

    #[test]
    fn news_told_while_somebody_sits_down_reach_it() {
        model(|| {
            let shared = Arc::new((Seats::modelled(), AtomicBool::new(false)));
            assert!(shared.0.begin(Who::new(2)));
            let other = shared.clone();
            let waiter = loom::thread::spawn(move || await_flag(&other.0, 3, &other.1));
            shared.1.store(true, Ordering::Release);
            shared.0.tell(|awaited| awaited == 7);
            // The poller stays: only the news can end the wait.
            assert!(!waiter.join().unwrap());
        });
    }

    #[test]
    fn a_role_given_back_while_somebody_sits_down_finds_somebody() {
        model(|| {
            let shared = Arc::new((Seats::modelled(), AtomicBool::new(false)));
            assert!(shared.0.begin(Who::new(2)));
            let other = shared.clone();
            let waiter = loom::thread::spawn(move || {
                let (who, mut asked) = (Who::new(3), 0);
                let mut seat = other.0.take(who).unwrap();
                let seen = other.0.news();
                while !other.0.begin(who) && seat.wait(7, seen) != Called::Poll {
                    asked += 1;
                    assert!(asked < 3, "it is told to ask again and finds that somebody polls");
                }
                assert!(other.0.is_polled_by(who) && !other.0.hand_over());
            });
            shared.0.hand_over();
            waiter.join().unwrap();
            assert!(!shared.0.is_polled());
        });
    }

    #[test]
    fn the_role_is_one_threads_at_a_time_and_comes_to_all_who_wait() {
        model(|| {
            let shared = Arc::new((Seats::modelled(), AtomicU32::new(0)));
            assert!(shared.0.begin(Who::new(2)));
            let waiters = [3, 4].map(|number| {
                let other = shared.clone();
                loom::thread::spawn(move || {
                    let who = Who::new(number);
                    let mut seat = other.0.take(who).unwrap();
                    let seen = other.0.news();
                    while !other.0.begin(who) && seat.wait(7, seen) != Called::Poll {}
                    assert_eq!(other.1.fetch_add(1, Ordering::SeqCst), 0, "two poll at once");
                    other.1.fetch_sub(1, Ordering::SeqCst);
                    other.0.hand_over();
                })
            });
            shared.0.hand_over();
            for waiter in waiters {
                waiter.join().unwrap();
            }
            assert!(!shared.0.is_polled());
        });
    }

    #[test]
    fn news_and_a_role_that_come_together_both_count() {
        model(|| {
            let shared = Arc::new((Seats::modelled(), AtomicBool::new(false)));
            assert!(shared.0.begin(Who::new(2)));
            let other = shared.clone();
            let waiter = loom::thread::spawn(move || {
                if await_flag(&other.0, 3, &other.1) {
                    other.0.hand_over();
                }
            });
            let other = shared.clone();
            let teller = loom::thread::spawn(move || {
                other.1.store(true, Ordering::Release);
                other.0.tell(|_| true);
            });
            shared.0.hand_over();
            teller.join().unwrap();
            waiter.join().unwrap();
            assert!(!shared.0.is_polled(), "the role is lost with who left");
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    #[test]
    fn only_who_waits_for_the_news_is_called() {
        const WAITERS: usize = 100;
        let seats = Seats::default();
        let (turn, over) = (AtomicUsize::new(usize::MAX), AtomicUsize::new(0));
        assert!(seats.begin(Who::new(2)));
        std::thread::scope(|scope| {
            for waiter in 0..WAITERS {
                let (seats, turn, over) = (&seats, &turn, &over);
                scope.spawn(move || {
                    let mut seat = seats.take(Who::new(waiter + 3)).unwrap();
                    loop {
                        let seen = seats.news();
                        if turn.load(Ordering::SeqCst) == waiter {
                            break;
                        }
                        assert_eq!(seat.wait(waiter as u64, seen), Called::Ask);
                    }
                    over.fetch_add(1, Ordering::SeqCst);
                });
            }
            for waiter in (0..WAITERS).rev() {
                let before = over.load(Ordering::SeqCst);
                turn.store(waiter, Ordering::SeqCst);
                seats.tell(|awaited| awaited == waiter as u64);
                while over.load(Ordering::SeqCst) == before {
                    std::thread::yield_now();
                }
            }
        });
        assert!(seats.called() as usize <= WAITERS, "somebody was called in vain");
    }

    #[test]
    fn a_role_handed_over_goes_to_the_last_to_sit_down() {
        let seats = Seats::default();
        let (first_sits, over) = (AtomicBool::new(false), AtomicBool::new(false));
        assert!(seats.begin(Who::new(2)));
        let sitting = || seats.rows().map(|row| row.sitting().count()).sum::<usize>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut seat = seats.take(Who::new(3)).unwrap();
                while !over.load(Ordering::SeqCst) {
                    assert_eq!(seat.wait(1, seats.news()), Called::Ask);
                }
            });
            while sitting() < 1 {
                std::thread::yield_now();
            }
            first_sits.store(true, Ordering::SeqCst);
            let last = scope.spawn(|| {
                let mut seat = seats.take(Who::new(4)).unwrap();
                assert_eq!(seat.wait(2, seats.news()), Called::Poll);
                assert!(seats.is_polled_by(Who::new(4)));
            });
            while sitting() < 2 {
                std::thread::yield_now();
            }
            assert!(seats.hand_over());
            last.join().unwrap();
            over.store(true, Ordering::SeqCst);
            seats.tell(|_| true);
        });
    }

    #[test]
    fn nobody_sits_down_where_nobody_polls_or_something_happened_meanwhile() {
        let seats = Seats::default();
        let mut seat = seats.take(Who::new(2)).unwrap();
        assert_eq!(seat.wait(1, seats.news()), Called::Ask);
        assert!(seats.begin(Who::new(3)));
        let seen = seats.news();
        seats.note();
        assert_eq!(seat.wait(1, seen), Called::Ask);
    }

    #[test]
    fn there_are_seats_up_to_the_limit_and_again_when_they_are_left() {
        let seats = Seats::default();
        let mut taken: Vec<_> = (0..SEATS_MAX).map(|_| seats.take(Who::new(2)).unwrap()).collect();
        assert!(seats.take(Who::new(2)).is_none());
        taken.pop();
        assert!(seats.take(Who::new(2)).is_some());
    }
}
