//! Replacement of [`futex`](self) under shuttle (`--cfg shuttle`), for the threads of one random
//! schedule.
//!
//! A sleep with a short limit ends whenever the schedule says so. A sleep with a long limit ends
//! only by a wake-up, because that limit only guards against a lost one. So a lost wake-up ends the
//! schedule with all threads blocked.

use crate::facade::AtomicU32;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Why a wait came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Woken, or the word had changed already, or a signal: look again.
    Maybe,
    /// The time was over.
    Timeout,
}

/// Words one call of [`wait_any`] can sleep on.
pub const WAIT_ANY_MAX: usize = 64;

/// Limits from this on are taken for none.
const FOR_EVER: Duration = Duration::from_millis(100);

struct Sleeper {
    address: usize,
    thread: shuttle::thread::Thread,
    number: usize,
}

shuttle::lazy_static! {
    /// Who sleeps where, in the order in which they came.
    static ref SLEEPERS: Mutex<Vec<Sleeper>> = Mutex::new(Vec::new());
}

fn sleepers() -> shuttle::sync::MutexGuard<'static, Vec<Sleeper>> {
    SLEEPERS
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sleeps while `word` is `expected`, at most `timeout` (`None`: until woken).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wake {
    let (address, number) = (
        std::ptr::from_ref(word) as usize,
        usize::from(shuttle::current::me()),
    );
    {
        // The kernel compares and enrols as one.
        let mut sleepers = sleepers();
        if word.load(Ordering::SeqCst) != expected {
            return Wake::Maybe;
        }
        sleepers.push(Sleeper {
            address,
            thread: shuttle::thread::current(),
            number,
        });
    }
    let limited = timeout.is_some_and(|timeout| timeout < FOR_EVER);
    let is_asleep = |sleepers: &[Sleeper]| sleepers.iter().any(|sleeper| sleeper.number == number);
    loop {
        if limited {
            shuttle::thread::yield_now();
        } else {
            shuttle::thread::park();
        }
        let mut sleepers = sleepers();
        if !is_asleep(&sleepers) {
            return Wake::Maybe;
        }
        if limited && thread_rng().gen_bool(0.1) {
            sleepers.retain(|sleeper| sleeper.number != number);
            return Wake::Timeout;
        }
    }
}

/// Wakes up to `count` sleepers on `word`; returns how many there were.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    wake_at(std::ptr::from_ref(word).cast(), count)
}

pub(crate) fn wake_at(address: *const u32, count: u32) -> usize {
    let mut woken = Vec::new();
    sleepers().retain(|sleeper| {
        let wakes = sleeper.address == address as usize && woken.len() < count as usize;
        if wakes {
            woken.push(sleeper.thread.clone());
        }
        !wakes
    });
    woken.iter().for_each(|thread| thread.unpark());
    woken.len()
}

/// Sleeps on the first word, never for long: the caller's loop sees the others.
pub fn wait_any(words: &[(&AtomicU32, u32)], _: Option<Duration>) -> Wake {
    match words.first() {
        Some((word, expected)) => wait(word, *expected, Some(Duration::from_millis(1))),
        None => Wake::Maybe,
    }
}
