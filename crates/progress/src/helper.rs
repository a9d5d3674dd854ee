//! The thread that lends a rank its hands while the program's threads compute, sleep or sit in system calls.
//!
//! Started by `engine_host` when the program leaves something open that needs hands, asleep on a word in shared memory until a peer calls, ended when nothing was lent for a while,
//! and when the rank leaves; who needs one again starts another.
//! It is of the ordinary class, other than the workers of `tasks`: it holds the engine's lock while it works, and a thread of the idle class may be put aside
//! for a second at any instruction, with every thread of the rank waiting for the lock. It costs nothing while nobody calls.

use crate::limits::{REST_TIMES, STACK, STOP_LIMIT};
use crate::sys;
use garonne_sync::futex::{self, Wake};
use garonne_sync::hands::Call;
use garonne_sync::shm::Word;
use garonne_topology::CpuSet;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The words by which a helper is called: see `garonne_sync::hands`.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    pub word: Word,
    pub all: Word,
}

impl Words {
    pub(crate) fn call(&self) -> Call<'_> {
        Call::new(&self.word, &self.all)
    }
}

type Turn = Box<dyn Fn(Because) -> Next + Send + Sync>;

/// See the module's paragraph.
pub(crate) struct Helper {
    words: Words,
    cpus: Option<CpuSet>,
    rest: Duration,
    turn: Turn,
    checker: Option<sys::Checker>,
    over: AtomicBool,
    /// Not zero: its work is over.
    left: AtomicU32,
    thread: Mutex<Option<sys::Started>>,
}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Helper")
            .field("words", &self.words)
            .field("thread", &self.thread)
            .finish_non_exhaustive()
    }
}

/// Why a helper takes a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Because {
    /// It has begun, was called, or its nap is over.
    Called,
    /// Nobody called for a long time.
    Idle,
}

/// What a helper does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Sleep until called.
    Sleep,
    /// Look again after this time even if nobody calls.
    Nap(Duration),
    /// Its rank is gone, or needs no helper.
    Leave,
}

impl Helper {
    /// Starts the thread, on `cpus` if the system permits, which takes a turn whenever it is called, and when it was not for as long as `rest`.
    pub(crate) fn start(
        words: Words,
        cpus: Option<CpuSet>,
        rest: Duration,
        turn: impl Fn(Because) -> Next + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let helper = Arc::new(Self {
            words,
            cpus,
            rest,
            turn: Box::new(turn),
            checker: sys::Checker::find(),
            over: AtomicBool::new(false),
            left: AtomicU32::new(0),
            thread: Mutex::new(None),
        });
        // Held until it is known which thread it is: one that leaves at once waits for that.
        let mut thread = helper.thread();
        *thread = Some(sys::start(&helper, STACK)?);
        drop(thread);
        Ok(helper)
    }

    fn thread(&self) -> std::sync::MutexGuard<'_, Option<sys::Started>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_turns(&self) {
        let word = self.words.call().word();
        let (mut before, mut rest) = (None, self.rest);
        loop {
            // Before the turn: whoever calls or arms during it changes the word, and there is another.
            let seen = word.load(Ordering::SeqCst);
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            // Who was called while it woke from a long sleep is not idle.
            let because = match before == Some(seen) {
                true => Because::Idle,
                false => Because::Called,
            };
            rest = match because {
                Because::Idle => rest.saturating_mul(2).min(self.rest * REST_TIMES),
                Because::Called => self.rest,
            };
            let next = sys::while_nobody_forks(|| (self.turn)(because));
            let limit = match next {
                Next::Sleep => rest,
                Next::Nap(limit) => limit,
                Next::Leave => return,
            };
            let slept = futex::wait(word, seen, Some(limit));
            before = (next == Next::Sleep && slept == Wake::Timeout).then_some(seen);
        }
    }

    /// Ends the thread; waits for it a moment only.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.words.call().rouse();
        let deadline = Instant::now() + STOP_LIMIT;
        // Acquire: its work is done. SYNC(helper-left).
        while self.left.load(Ordering::Acquire) == 0 {
            let Some(limit) = deadline.checked_duration_since(Instant::now()) else {
                break;
            };
            futex::wait(&self.left, 0, Some(limit));
        }
        if let Some(thread) = self.thread().take() {
            match self.left.load(Ordering::Acquire) {
                0 => thread.detach(),
                _ => thread.join(),
            }
        }
    }
}

impl sys::Work for Helper {
    fn work(self: Arc<Self>) {
        sys::name_thread(c"garonne-hands");
        if let Some(cpus) = &self.cpus {
            // Elsewhere it is as right, only slower.
            let _ = sys::bind(cpus);
        }
        sys::Checker::looks_away(self.checker, || self.take_turns());
        if !self.over.load(Ordering::SeqCst)
            && let Some(thread) = self.thread().take()
        {
            thread.detach();
        }
        // Release: SYNC(helper-left).
        self.left.store(1, Ordering::Release);
        futex::wake(&self.left, u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_sync::hands::For;
    use garonne_sync::shm::Segment;
    use std::sync::mpsc;

    const REST: Duration = Duration::from_millis(100);

    fn words() -> Words {
        let memory = Segment::anonymous(8).unwrap();
        Words {
            word: memory.word(0),
            all: memory.word(4),
        }
    }

    #[test]
    fn a_helper_takes_a_turn_when_it_starts_and_one_for_each_call_and_ends_when_told() {
        let (words, (sender, turns)) = (words(), mpsc::channel());
        let helper = Helper::start(words.clone(), None, REST, move |_| {
            sender.send(()).unwrap();
            Next::Sleep
        })
        .unwrap();
        turns.recv().unwrap();
        for _ in 0..3 {
            words.call().arm(For::Answers);
            words.call().ring(For::Answers);
            turns.recv().unwrap();
        }
        helper.stop();
        drop(helper);
        assert!(turns.iter().count() < 8, "it only looks when something changed");
    }

    #[test]
    fn a_helper_whose_rank_is_gone_leaves() {
        let helper = Helper::start(words(), None, REST, |_| Next::Leave).unwrap();
        while helper.left.load(Ordering::Acquire) == 0 {
            futex::wait(&helper.left, 0, None);
        }
        assert!(helper.thread().is_none(), "nobody needs to join it");
        helper.stop();
    }

    #[test]
    fn a_helper_that_nobody_calls_is_asked_whether_it_may_go_and_one_that_naps_is_not() {
        let naps = AtomicU32::new(3);
        let helper = Helper::start(words(), None, REST, move |because| match because {
            Because::Idle => Next::Leave,
            Because::Called if naps.fetch_sub(1, Ordering::Relaxed) > 1 => {
                Next::Nap(Duration::from_millis(1))
            }
            Because::Called => Next::Sleep,
        })
        .unwrap();
        while helper.left.load(Ordering::Acquire) == 0 {
            futex::wait(&helper.left, 0, None);
        }
    }
}
