//! Words of memory as event sources: a thread sleeps on all of them (`futex_waitv`) and wakes a
//! task when one has changed.
//!
//! There is one thread per [`Tasks`](crate::tasks::Tasks), started with the first word and ended
//! when none is left. A word that nobody wakes with a futex call, or one beyond what the kernel
//! accepts at once, is read every [`WORD_CHECK_EVERY`].

use crate::facade::{AtomicU32, AtomicU64, Mutex, Ordering, lock};
use crate::limits::{STACK, WORD_CHECK_EVERY, WORDS};
use crate::sys;
use crate::tasks::{AnyTask, Error, Scheduler, spawn_ordinary};
use garonne_sync::futex::{self, WAIT_ANY_MAX};
use std::sync::{Arc, Weak};

/// A word that can be slept on, and that stays where it is.
pub trait FutexWord: Send + Sync + 'static {
    /// The word.
    fn word(&self) -> &AtomicU32;
}

impl FutexWord for AtomicU32 {
    fn word(&self) -> &AtomicU32 {
        self
    }
}

pub(crate) struct WordWatcher {
    state: Mutex<WatcherState>,
    /// Changes when the list has: the thread looks again.
    bell: AtomicU32,
    /// Odd while the thread sleeps on words.
    naps: AtomicU32,
}

impl std::fmt::Debug for WordWatcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WordWatcher").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct WatcherState {
    watched: Vec<WatchedWord>,
    next: u64,
    running: bool,
    over: bool,
}

struct WatchedWord {
    id: u64,
    word: Arc<dyn FutexWord>,
    /// Fires when the word is not this; `None` while its task has the news.
    expected: Option<u32>,
    task: Arc<AnyTask>,
}

impl WordWatcher {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::default(),
            bell: AtomicU32::new(0),
            naps: AtomicU32::new(0),
        }
    }

    /// Has `task` poked when `word` is no longer `expected`.
    pub(crate) fn watch(
        self: &Arc<Self>,
        scheduler: &Arc<Scheduler>,
        (word, expected): (Arc<dyn FutexWord>, u32),
        task: Arc<AnyTask>,
        number: &AtomicU64,
    ) -> Result<u64, Error> {
        let mut state = lock(&self.state);
        if state.over {
            return Err(Error::Misuse("these tasks were ended"));
        }
        if state.watched.len() >= WORDS {
            return Err(Error::Resource("too many words are watched"));
        }
        state.next += 1;
        let id = state.next;
        // Before the first event.
        number.store(id, Ordering::Release);
        if !state.running {
            self.start(scheduler)?;
            state.running = true;
        }
        state.watched.push(WatchedWord {
            id,
            word,
            expected: Some(expected),
            task,
        });
        drop(state);
        self.ring();
        Ok(id)
    }

    fn start(self: &Arc<Self>, scheduler: &Arc<Scheduler>) -> Result<(), Error> {
        let (its, scheduler) = (self.clone(), Arc::downgrade(scheduler));
        let thread = spawn_ordinary(|| {
            sys::without_signals(|| {
                std::thread::Builder::new()
                    .name(String::from("garonne-words"))
                    .stack_size(STACK)
                    .spawn(move || its.work(&scheduler))
            })
        });
        // As the other events say it.
        let refused = Error::Resource("the system gives no thread for words of memory");
        thread.map(drop).map_err(|_| refused)
    }

    fn ring(&self) {
        self.bell.fetch_add(1, Ordering::SeqCst);
        futex::wake(&self.bell, u32::MAX);
    }

    /// The task has seen the news: from now on it fires when the word is not `expected`.
    pub(crate) fn rearm(&self, id: u64, expected: u32) {
        let mut state = lock(&self.state);
        if let Some(watched) = state.watched.iter_mut().find(|watched| watched.id == id) {
            watched.expected = Some(expected);
            drop(state);
            self.ring();
        }
    }

    /// The word is not touched any more when this returns.
    pub(crate) fn forget(&self, id: u64) {
        let (gone, nap) = {
            let mut state = lock(&self.state);
            let at = state.watched.iter().position(|watched| watched.id == id);
            let gone = at.map(|at| state.watched.swap_remove(at));
            (gone, self.naps.load(Ordering::Acquire))
        };
        let Some(gone) = gone else { return };
        self.ring();
        // Its word may be among those that it sleeps on; the bell ends that at once.
        while nap % 2 == 1 && self.naps.load(Ordering::Acquire) == nap {
            futex::wait(&self.naps, nap, None);
        }
        // Outside the lock: a task may own watches.
        drop(gone);
    }

    pub(crate) fn stop(&self) {
        let watched = {
            let mut state = lock(&self.state);
            state.over = true;
            std::mem::take(&mut state.watched)
        };
        drop(watched);
        self.ring();
    }

    fn work(&self, scheduler: &Weak<Scheduler>) {
        loop {
            let bell = self.bell.load(Ordering::SeqCst);
            let (mut fired, mut sleeping) = (Vec::new(), Vec::new());
            {
                let mut state = lock(&self.state);
                if state.over || state.watched.is_empty() {
                    state.running = false;
                    return;
                }
                for watched in &mut state.watched {
                    let Some(expected) = watched.expected else {
                        continue;
                    };
                    if watched.word.word().load(Ordering::Acquire) != expected {
                        watched.expected = None;
                        fired.push(watched.task.clone());
                    } else {
                        sleeping.push((watched.word.clone(), expected));
                    }
                }
                if fired.is_empty() {
                    self.naps.fetch_add(1, Ordering::AcqRel);
                }
            }
            if !fired.is_empty() {
                let Some(scheduler) = scheduler.upgrade() else {
                    return;
                };
                fired
                    .iter()
                    .for_each(|task| super::deliver(&scheduler, task));
                continue;
            }
            // The kernel compares all words again before it sleeps.
            let words: Vec<(&AtomicU32, u32)> = std::iter::once((&self.bell, bell))
                .chain(
                    sleeping
                        .iter()
                        .map(|(word, expected)| (word.word(), *expected)),
                )
                .take(WAIT_ANY_MAX)
                .collect();
            futex::wait_any(&words, (!sleeping.is_empty()).then_some(WORD_CHECK_EVERY));
            self.naps.fetch_add(1, Ordering::AcqRel);
            futex::wake(&self.naps, u32::MAX);
        }
    }
}
