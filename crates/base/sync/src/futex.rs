//! Sleeping on words of shared memory: `FUTEX_WAIT`, `FUTEX_WAKE` and `futex_waitv` without the
//! private flag, so that sleeper and waker may be different processes. The module also offers the
//! memory barrier across processes that a sleeper needs.
//!
//! Callers own the protocol on the word; nothing here retries. Bounded by the timeouts given.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Why a wait came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Woken, or the word had changed already, or a signal: look again.
    Maybe,
    /// The time was over.
    Timeout,
}

fn timespec(timeout: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: timeout.as_secs().min(i64::MAX as u64) as libc::time_t,
        tv_nsec: timeout.subsec_nanos() as libc::c_long,
    }
}

fn outcome(rc: libc::c_long) -> Wake {
    if rc < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT) {
        Wake::Timeout
    } else {
        Wake::Maybe
    }
}

/// Sleeps while `word` is `expected`, at most `timeout` (`None`: until woken).
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Wake {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word is a live atomic and the timespec outlives the call; FUTEX_WAIT takes a
    // relative time.
    outcome(unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            time,
            std::ptr::null::<u32>(),
            0u32,
        )
    })
}

/// Wakes up to `count` sleepers on `word`; returns how many there were.
pub fn wake(word: &AtomicU32, count: u32) -> usize {
    wake_at(word.as_ptr(), count)
}

/// Wakes sleepers on a word that may be gone by now, because its owner saw what it waited for
/// without sleeping. Threads that sleep on other data at that address look again, as after any
/// wake-up.
pub(crate) fn wake_at(address: *const u32, count: u32) -> usize {
    let count = count.min(i32::MAX as u32);
    // SAFETY: the kernel only uses the word's address.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            address,
            libc::FUTEX_WAKE,
            count,
            std::ptr::null::<u32>(),
            std::ptr::null::<u32>(),
            0u32,
        )
    };
    usize::try_from(woken).unwrap_or(0)
}

/// `struct futex_waitv` of the kernel.
#[repr(C)]
struct FutexWaitV {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// `FUTEX2_SIZE_U32`: a 32-bit word, not private to the process.
const FUTEX2_SIZE_U32: u32 = 0x02;

/// Words one call of [`wait_any`] can sleep on; the kernel's own limit is 128, ours the most any
/// waiter here needs.
pub const WAIT_ANY_MAX: usize = 64;

/// Sleeps while every word has its expected value, at most `timeout`. On kernels without
/// `futex_waitv` it sleeps on the first word only, never longer than `FALLBACK_NAP`, so the
/// caller's loop still sees the others.
pub fn wait_any(words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> Wake {
    let Some(&(first, expected)) = words.first() else {
        return Wake::Maybe;
    };
    if words.len() == 1 {
        return wait(first, expected, timeout);
    }
    let mut waiters: [FutexWaitV; WAIT_ANY_MAX] = std::array::from_fn(|_| FutexWaitV {
        value: 0,
        address: 0,
        flags: FUTEX2_SIZE_U32,
        reserved: 0,
    });
    let count = words.len().min(WAIT_ANY_MAX);
    for (waiter, (word, value)) in waiters.iter_mut().zip(words) {
        waiter.value = u64::from(*value);
        waiter.address = word.as_ptr() as u64;
    }
    // futex_waitv takes an absolute time on the clock named in the call.
    let deadline = timeout.map(|timeout| {
        let mut now = timespec(Duration::ZERO);
        // SAFETY: the kernel writes the timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
        let nanos = now.tv_nsec as u64 + u64::from(timeout.subsec_nanos());
        libc::timespec {
            tv_sec: now.tv_sec
                + timeout.as_secs().min(u64::from(u32::MAX)) as libc::time_t
                + (nanos / 1_000_000_000) as libc::time_t,
            tv_nsec: (nanos % 1_000_000_000) as libc::c_long,
        }
    });
    let time = deadline
        .as_ref()
        .map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the waiters and the timespec outlive the call; the addresses are of live atomics.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            count as u32,
            0u32,
            time,
            libc::CLOCK_MONOTONIC,
        )
    };
    if rc < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
        return wait(
            first,
            expected,
            Some(timeout.unwrap_or(FALLBACK_NAP).min(FALLBACK_NAP)),
        );
    }
    outcome(rc)
}

/// The longest sleep where a wake-up could be missed for want of a kernel feature: short enough to
/// go unnoticed by users, long enough that a hundred idle ranks stay below one per cent of a core.
pub const FALLBACK_NAP: Duration = Duration::from_millis(10);

/// A full memory barrier on every running thread of every process that called [`barrier_register`].
/// `false` where the kernel does not offer it (then sleep no longer than [`FALLBACK_NAP`]).
pub fn barrier_everywhere() -> bool {
    // SAFETY: membarrier has no memory arguments.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_GLOBAL_EXPEDITED,
            0u32,
            0i32,
        ) == 0
    }
}

/// Lets [`barrier_everywhere`] of other processes reach this one. Once per process, before it first
/// rings a doorbell.
pub fn barrier_register() -> bool {
    // SAFETY: as above.
    unsafe {
        libc::syscall(
            libc::SYS_membarrier,
            libc::MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
            0u32,
            0i32,
        ) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_changed_word_does_not_sleep() {
        let word = AtomicU32::new(1);
        assert_eq!(wait(&word, 0, None), Wake::Maybe);
        assert_eq!(wait_any(&[(&word, 0), (&word, 1)], None), Wake::Maybe);
    }

    #[test]
    fn a_wake_on_the_second_of_two_words_is_noticed() {
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while words[1].load(Ordering::Acquire) == 0 {
                    wait_any(&[(&words[0], 0), (&words[1], 0)], None);
                }
            });
            words[1].store(1, Ordering::Release);
            wake(&words[1], u32::MAX);
        });
    }

    #[test]
    fn an_unchanged_word_times_out() {
        let word = AtomicU32::new(0);
        assert_eq!(
            wait(&word, 0, Some(Duration::from_millis(1))),
            Wake::Timeout
        );
        assert_eq!(
            wait_any(&[(&word, 0), (&word, 0)], Some(Duration::from_millis(1))),
            Wake::Timeout
        );
    }
}
