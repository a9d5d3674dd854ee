//! What a thread does before it sits down: it gives its core away some times and asks again.
//!
//! Part of `engine_host`. Where a few threads of a rank share a core whoever polls gets to run so, and nobody has to sleep and be woken. Of many each waits for its turn, and giving way
//! only goes round among them: then they sit down at once, as they do where it was in vain too often.

use crate::backoff::Backoff;
use crate::limits::{LINGERERS, LINGERS};
use std::sync::atomic::{AtomicU32, Ordering};

/// Of one host.
#[derive(Debug, Default)]
pub(super) struct Porch {
    /// Threads that found another polling and wait still. Relaxed everywhere: it only says about how many.
    waiting: AtomicU32,
    /// Whether giving way pays.
    bet: Backoff,
    /// How often it helped since a poller left.
    helped: AtomicU32,
}

impl Porch {
    /// The poller leaves: what it waited for has come.
    #[inline]
    pub(super) fn poller_left(&self) {
        self.helped.store(0, Ordering::Relaxed);
    }

    /// What a lingering thread waited for has come. Of a poller whose own does not come it is better served if that one steps aside, which it does for those that sit.
    fn helps(&self) {
        if self.helped.fetch_add(1, Ordering::Relaxed) < LINGERERS {
            self.bet.eased();
        } else {
            self.bet.failed();
        }
    }

    /// A thread begins to wait.
    pub(super) fn arrive(&self) -> Lingering<'_> {
        Lingering {
            porch: self,
            here: false,
            lingers: false,
            times: 0,
        }
    }
}

/// One thread's wait.
#[derive(Debug)]
pub(super) struct Lingering<'a> {
    porch: &'a Porch,
    /// It is among those that wait.
    here: bool,
    lingers: bool,
    times: u32,
}

impl Lingering<'_> {
    /// Whether the core is given away once more before the thread sits down. Asked when another polls.
    #[inline]
    pub(super) fn goes_on(&mut self) -> bool {
        if !std::mem::replace(&mut self.here, true) {
            let others = self.porch.waiting.fetch_add(1, Ordering::Relaxed);
            self.lingers = others < LINGERERS && self.porch.bet.begin().is_some();
        }
        if self.lingers && self.times == LINGERS {
            self.lingers = false;
            self.porch.bet.failed();
        }
        self.times += 1;
        self.lingers
    }

    /// What it waits for has come: if it lingers still, it need not sit down.
    #[inline]
    pub(super) fn paid(&mut self) {
        if std::mem::take(&mut self.lingers) {
            self.porch.helps();
        }
    }

    /// It polls itself, which says nothing of the bet.
    #[inline]
    pub(super) fn ends(&mut self) {
        self.lingers = false;
    }
}

impl Drop for Lingering<'_> {
    fn drop(&mut self) {
        if self.here {
            self.porch.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often one gives way that waits in vain.
    fn in_vain(wait: &mut Lingering<'_>) -> u32 {
        std::iter::from_fn(|| wait.goes_on().then_some(())).count() as u32
    }

    #[test]
    fn few_linger_and_what_was_in_vain_is_left_out() {
        let porch = Porch::default();
        let (mut first, mut second) = (porch.arrive(), porch.arrive());
        assert_eq!(in_vain(&mut first), LINGERS);
        assert_eq!(in_vain(&mut second), 0, "the first was in vain");
        drop((first, second));
        let helped = |porch: &Porch| {
            let mut wait = porch.arrive();
            let lingers = wait.goes_on();
            wait.paid();
            lingers
        };
        (0..2 * LINGERERS).for_each(|_| {
            porch.poller_left();
            assert!(helped(&porch), "it pays");
        });
        assert!((1..LINGERERS).all(|_| helped(&porch)));
        assert!(
            helped(&porch) && !helped(&porch),
            "the same thread polled all the while"
        );
        porch.poller_left();
        assert!(helped(&porch));
        let mut crowd: Vec<_> = (0..LINGERERS).map(|_| porch.arrive()).collect();
        crowd.iter_mut().for_each(|wait| {
            wait.goes_on();
        });
        assert!(!porch.arrive().goes_on(), "many wait");
        drop(crowd);
        assert_eq!(porch.waiting.load(Ordering::Relaxed), 0);
        let mut polls = porch.arrive();
        polls.ends();
        polls.paid();
        assert_eq!(polls.times, 0);
    }
}
