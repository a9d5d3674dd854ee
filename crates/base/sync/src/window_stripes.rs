//! Stripes of a member's memory in a window: locks that all accumulates on their bytes hold, in
//! memory that several processes map.
//!
//! A stripe is one word: 0, or 1 plus the number of the member that holds it. Whoever needs several
//! takes them in ascending order, so that nobody waits for each other. A holder may die: the stripe
//! still names it, and whoever waits decides by that name whether to go on.

use crate::facade::{AtomicU32, Ordering, relax};

/// Stripes of one member's memory.
pub const STRIPES: usize = 64;
/// Looks at a taken stripe before the core is given away.
const SPINS: u32 = if cfg!(loom) { 1 } else { 200 };

/// Lock of a part of a member's memory, alone in its line of cache. All zeros is a free one.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Stripe {
    holder: AtomicU32,
}

impl Stripe {
    /// Returns the member that holds the stripe.
    pub fn holder(&self) -> Option<u32> {
        self.holder.load(Ordering::Relaxed).checked_sub(1)
    }

    fn try_lock(&self, me: u32) -> bool {
        // Acquire: what holders before wrote. SYNC(window-stripe).
        self.holder
            .compare_exchange(0, me + 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn unlock(&self) {
        // Release: what this holder wrote. SYNC(window-stripe).
        self.holder.store(0, Ordering::Release);
    }
}

/// Takes stripes, given as bits, for member `me`. Calls `goes_on` again and again with the member
/// that holds one of them, and gives up when that answers `false`.
///
/// # Errors
/// The member whose stripe this one waited for when it gave up.
#[inline]
pub fn lock_stripes(
    stripes: &[Stripe],
    me: u32,
    wanted: u64,
    mut goes_on: impl FnMut(u32) -> bool,
) -> Result<StripeGuard<'_>, u32> {
    let mut guard = StripeGuard { stripes, held: 0 };
    let mut rest = wanted;
    while rest != 0 {
        let index = rest.trailing_zeros();
        if let Some(stripe) = stripes.get(index as usize)
            && !stripe.try_lock(me)
        {
            wait(stripe, me, &mut goes_on)?;
        }
        guard.held |= 1 << index;
        rest &= rest - 1;
    }
    Ok(guard)
}

#[cold]
fn wait(stripe: &Stripe, me: u32, goes_on: &mut impl FnMut(u32) -> bool) -> Result<(), u32> {
    let mut looks = 0u32;
    while !stripe.try_lock(me) {
        looks = looks.saturating_add(1);
        relax();
        if looks < SPINS {
            continue;
        }
        if let Some(holder) = stripe.holder()
            && !goes_on(holder)
        {
            return Err(holder);
        }
        // Its holder may need this core.
        #[cfg(not(loom))]
        std::thread::yield_now();
    }
    Ok(())
}

/// Stripes that are held. Given back when this is dropped.
#[derive(Debug)]
#[must_use = "the stripes are given back when this is dropped"]
pub struct StripeGuard<'a> {
    stripes: &'a [Stripe],
    held: u64,
}

impl Drop for StripeGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut rest = self.held;
        while rest != 0 {
            if let Some(stripe) = self.stripes.get(rest.trailing_zeros() as usize) {
                stripe.unlock();
            }
            rest &= rest - 1;
        }
    }
}

#[cfg(all(test, loom))]
#[path = "window_stripes_loom.rs"]
mod loom_tests;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_gives_up_names_the_holder_and_holds_nothing() {
        let stripes: [Stripe; 4] = Default::default();
        let dead = lock_stripes(&stripes, 7, 0b100, |_| true).unwrap();
        let mut asked = 0;
        let refused = lock_stripes(&stripes, 1, 0b111, |holder| {
            asked += 1;
            assert_eq!(holder, 7);
            asked < 3
        });
        assert_eq!(refused.err(), Some(7));
        let holders = || stripes.iter().map(Stripe::holder).collect::<Vec<_>>();
        assert_eq!(holders(), [None, None, Some(7), None]);
        drop(dead);
        assert_eq!(holders(), [None; 4]);
    }
}
