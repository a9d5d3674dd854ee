//! The thread that lends a rank its hands while the program's threads compute, sleep or sit in system calls.
//!
//! Started by `engine_host` when the program first leaves something open that needs hands, asleep on a word in shared memory until a peer calls, ended when the rank leaves.
//! It is of the ordinary class, other than the workers of `tasks`: it holds the engine's lock while it works, and a thread of the idle class may be put aside
//! for a second at any instruction, with every thread of the rank waiting for the lock. It costs nothing while nobody calls.

use crate::limits::{STACK, STOP_LIMIT};
use crate::sys;
use garonne_sync::hands::Call;
use garonne_sync::shm::Word;
use garonne_topology::CpuSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

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

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Helper {
    words: Words,
    over: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What a helper does after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Sleep until called.
    Sleep,
    /// Look again after this time even if nobody calls.
    Nap(Duration),
    /// Its rank is gone.
    Leave,
}

impl Helper {
    /// Starts the thread, on `cpus` if the system permits, which takes a turn whenever it is called.
    pub(crate) fn start(
        words: Words,
        cpus: Option<CpuSet>,
        turn: impl Fn() -> Next + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let helper = Arc::new(Self {
            words,
            over: AtomicBool::new(false),
            thread: Mutex::new(None),
        });
        let its = helper.clone();
        let thread = sys::without_signals(|| {
            std::thread::Builder::new()
                .name(String::from("garonne-hands"))
                .stack_size(STACK)
                .spawn(move || {
                    if let Some(cpus) = cpus {
                        // Elsewhere it is as right, only slower.
                        let _ = sys::bind(&cpus);
                    }
                    its.work(&turn);
                })
        })?;
        *helper.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(helper)
    }

    fn work(&self, turn: &dyn Fn() -> Next) {
        let word = self.words.call().word();
        loop {
            // Before the turn: whoever calls or arms during it changes the word, and there is another.
            let seen = word.load(Ordering::SeqCst);
            if self.over.load(Ordering::SeqCst) {
                return;
            }
            let limit = match turn() {
                Next::Sleep => None,
                Next::Nap(limit) => Some(limit),
                Next::Leave => return,
            };
            garonne_sync::futex::wait(word, seen, limit);
        }
    }

    /// Ends the thread; waits for it a moment only.
    pub(crate) fn stop(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.words.call().rouse();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        crate::tasks::leave(thread.into_iter().collect(), STOP_LIMIT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_sync::hands::For;
    use garonne_sync::shm::Segment;
    use std::sync::mpsc;

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
        let helper = Helper::start(words.clone(), None, move || {
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
        assert!(turns.iter().count() < 8, "it only looks when something changed");
    }

    #[test]
    fn a_helper_whose_rank_is_gone_leaves() {
        let helper = Helper::start(words(), None, || Next::Leave).unwrap();
        let thread = helper.thread.lock().unwrap().take().unwrap();
        thread.join().unwrap();
    }
}
