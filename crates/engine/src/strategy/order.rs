//! In which order a window's messages leave: small ones before large ones, as far as envelopes allow.
//!
//! A window fills while its rail has no room or its peer grants no credit. What is planned here is a pure function of a bounded part of the window; the pump
//! checks the plan before it carries it out. Envelopes of one communicator keep their order, since their receiver would only put them aside.

use crate::limits::{GATHER_EACH_MAX, ORDER_FAIR, ORDER_LOOK_AHEAD};

/// A message that waits in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The context that its envelope belongs to.
    pub context: u32,
    /// Its tag.
    pub tag: i32,
    /// Its bytes.
    pub len: u64,
}

/// Whether a message of this length goes before large ones.
pub fn is_small(len: u64) -> bool {
    len <= GATHER_EACH_MAX as u64
}

/// Places in the window, in the order in which they leave: small messages first, but every [`ORDER_FAIR`]th place goes to the oldest that is left, so that
/// a large one moves on however many small ones come. At most [`ORDER_LOOK_AHEAD`] chunks are looked at.
pub fn plan(window: &[Chunk]) -> Vec<usize> {
    let window = &window[..window.len().min(ORDER_LOOK_AHEAD)];
    // Behind a large message nothing of its communicator may overtake it.
    let mut blocked: Vec<u32> = Vec::new();
    let (mut quick, mut rest) = (Vec::new(), Vec::new());
    for (at, chunk) in window.iter().enumerate() {
        if is_small(chunk.len) && !blocked.contains(&chunk.context) {
            quick.push(at);
        } else {
            rest.push(at);
            if !blocked.contains(&chunk.context) {
                blocked.push(chunk.context);
            }
        }
    }
    let (mut quick, mut rest) = (quick.into_iter().peekable(), rest.into_iter().peekable());
    let mut order = Vec::with_capacity(window.len());
    while order.len() < window.len() {
        let fair = order.len() % ORDER_FAIR == ORDER_FAIR - 1;
        let oldest_is_quick = match (quick.peek(), rest.peek()) {
            (Some(quick), Some(rest)) => quick < rest,
            (quick, _) => quick.is_some(),
        };
        let take_quick = oldest_is_quick || (!fair && quick.peek().is_some());
        order.extend(if take_quick { quick.next() } else { rest.next() });
    }
    order
}

/// Whether a plan may be carried out: every place is in the window and named once at most, and of each context the oldest come first, without a gap.
pub fn check(window: &[Chunk], order: &[usize]) -> bool {
    let mut named = vec![false; window.len()];
    order.iter().all(|&at| {
        let fresh = at < window.len() && !named[at];
        let in_order =
            fresh && (0..at).all(|before| named[before] || window[before].context != window[at].context);
        if fresh {
            named[at] = true;
        }
        in_order
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn chunks() -> impl Strategy<Value = Vec<Chunk>> {
        let len = prop_oneof![0u64..=GATHER_EACH_MAX as u64, 5_000u64..100_000];
        prop::collection::vec(
            (0u32..6, len).prop_map(|(context, len)| Chunk { context, tag: 0, len }),
            0..200,
        )
    }

    /// The order of each context's places.
    fn by_context(window: &[Chunk], order: &[usize]) -> HashMap<u32, Vec<usize>> {
        let mut found: HashMap<u32, Vec<usize>> = HashMap::new();
        for &at in order {
            found.entry(window[at].context).or_default().push(at);
        }
        found
    }

    proptest! {
        #[test]
        fn plans_hold_every_chunk_that_is_looked_at_once_and_every_communicator_in_order(window in chunks()) {
            let order = plan(&window);
            prop_assert!(check(&window, &order));
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..window.len().min(ORDER_LOOK_AHEAD)).collect::<Vec<_>>());
            for places in by_context(&window, &order).values() {
                prop_assert!(places.is_sorted());
            }
        }

        #[test]
        fn a_small_message_is_behind_small_ones_and_few_others(window in chunks(), context in 100u32..110) {
            let mut window = window;
            window.truncate(ORDER_LOOK_AHEAD - 1);
            window.push(Chunk { context, tag: 0, len: 8 });
            let order = plan(&window);
            let at = order.iter().position(|at| *at == window.len() - 1).unwrap();
            let large = order[..at].iter().filter(|at| !is_small(window[**at].len)).count();
            prop_assert!(large <= at / ORDER_FAIR + 1, "{large} large ones among {at} before it");
        }

        #[test]
        fn a_large_message_is_not_put_off_for_ever(context in 0u32..6, smalls in 1usize..1000) {
            // Small ones of other communicators join as fast as they leave.
            let small = |number: usize| Chunk { context: 10 + number as u32, tag: 0, len: 8 };
            let mut window = vec![Chunk { context, tag: 0, len: 100_000 }];
            window.extend((0..ORDER_LOOK_AHEAD).map(small));
            for number in 0..smalls {
                let first = plan(&window);
                let leave: Vec<usize> = first.into_iter().take(ORDER_FAIR).collect();
                if leave.contains(&0) {
                    return Ok(());
                }
                prop_assert!(number == 0, "it left with the first plan");
            }
        }

        #[test]
        fn other_plans_are_refused(window in chunks(), order in prop::collection::vec(0usize..220, 0..80)) {
            let naive = {
                let inside = order.iter().all(|at| *at < window.len());
                let mut once = order.clone();
                once.sort_unstable();
                once.dedup();
                inside && once.len() == order.len() && by_context(&window, &order).iter().all(|(context, places)| {
                    let all = (0..window.len()).filter(|at| window[*at].context == *context);
                    all.take(places.len()).eq(places.iter().copied())
                })
            };
            prop_assert_eq!(check(&window, &order), naive);
        }
    }
}
