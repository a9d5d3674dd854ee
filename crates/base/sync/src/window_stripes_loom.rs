//! Stripes under every order of memory operations that loom can think of: holders exclude each
//! other, and members whose stripes overlap do not wait for each other.

use super::*;
use crate::facade::Cell;
use loom::sync::Arc;

struct Striped {
    stripes: [Stripe; 2],
    values: [Cell<u32>; 2],
}

// SAFETY: each stripe guards its cell; loom checks that accesses do not race.
unsafe impl Sync for Striped {}
// SAFETY: as above.
unsafe impl Send for Striped {}

/// Members that want the same stripes, so that a wrong order would be a deadlock.
#[test]
fn holders_exclude_each_other_and_nobody_waits_for_ever() {
    const SETS: [u64; 2] = [0b11, 0b11];
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let striped = Arc::new(Striped {
            stripes: Default::default(),
            values: std::array::from_fn(|_| Cell::new(0)),
        });
        let member = |me: u32, striped: &Striped| {
            let set = SETS[me as usize];
            let guard = lock_stripes(&striped.stripes, me, set, |_| true).unwrap();
            for index in (0..2).filter(|index| set & 1 << index != 0) {
                assert_eq!(striped.stripes[index].holder(), Some(me));
                // SAFETY: the stripe is held.
                striped.values[index].with_mut(|value| unsafe { *value += 1 });
            }
            drop(guard);
        };
        let others: Vec<_> = (1..2)
            .map(|me| {
                let striped = striped.clone();
                loom::thread::spawn(move || member(me, &striped))
            })
            .collect();
        member(0, &striped);
        others.into_iter().for_each(|other| other.join().unwrap());
        for (stripe, value) in striped.stripes.iter().zip(&striped.values) {
            assert_eq!(stripe.holder(), None);
            // SAFETY: all members have ended.
            assert_eq!(value.with(|value| unsafe { *value }), 2);
        }
    });
}
