//! In which order a window's messages leave: those of a higher priority first, and small ones
//! before large ones unless they are to leave as they were sent; as far as envelopes allow.
//!
//! A window fills while its transport has no room or its peer grants no credit. What is planned
//! here is a pure function of a bounded part of the window; progress checks the plan before it
//! carries it out. Envelopes of one communicator keep their order, since their receiver would only
//! put them aside.

use crate::limits::{ORDER_FAIR, ORDER_LOOK_AHEAD, ORDER_SMALL_MAX};
use crate::schedule::priority::Priority;
use std::collections::VecDeque;

/// Which decisions are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrderPolicy {
    /// Messages leave in the order of their sends, but for priorities.
    AsSent,
    /// Small messages leave before large ones.
    #[default]
    SmallFirst,
}

impl OrderPolicy {
    /// All variants.
    #[cfg(test)]
    const ALL: [Self; 2] = [Self::AsSent, Self::SmallFirst];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::AsSent => "as sent",
            Self::SmallFirst => "small before large",
        }
    }

    /// Returns the class of a message; class 0 leaves first.
    fn class(self, chunk: &WindowEntry) -> usize {
        let small = self == Self::AsSent || is_small(chunk.len);
        match chunk.priority {
            Priority::High => 0,
            Priority::Normal if small => 1,
            Priority::Normal => 2,
            Priority::Low => 3,
        }
    }

    /// Returns whether every plan begins with the oldest message if it has this length and
    /// priority. `usual`: every message of the window has the usual priority.
    pub fn leads(self, len: u64, priority: Priority, usual: bool) -> bool {
        priority == Priority::High || (usual && (self == Self::AsSent || is_small(len)))
    }
}

/// A message that waits in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowEntry {
    /// The context that its envelope belongs to.
    pub context: u32,
    /// Tag of the message.
    pub tag: i32,
    /// Length of the message in bytes.
    pub len: u64,
    /// Priority of the communicator.
    pub priority: Priority,
}

/// Returns whether a message of this length goes before large ones.
pub fn is_small(len: u64) -> bool {
    len <= ORDER_SMALL_MAX as u64
}

const CLASSES: usize = 4;

/// Places in the window, in the order in which they leave: class by class, but every
/// [`ORDER_FAIR`]th place goes to the oldest that is left, so that a large one moves on however
/// many small ones come. At most [`ORDER_LOOK_AHEAD`] chunks are looked at.
pub fn plan(ordering: OrderPolicy, window: &[WindowEntry]) -> Vec<usize> {
    let window = &window[..window.len().min(ORDER_LOOK_AHEAD)];
    // Nothing of a communicator overtakes what is before it there: what is behind is in its class
    // at best.
    let mut last: Vec<(u32, usize)> = Vec::new();
    let mut queues: [VecDeque<usize>; CLASSES] = Default::default();
    for (at, chunk) in window.iter().enumerate() {
        let mut class = ordering.class(chunk);
        match last
            .iter_mut()
            .find(|(context, _)| *context == chunk.context)
        {
            Some((_, before)) => {
                class = class.max(*before);
                *before = class;
            }
            None => last.push((chunk.context, class)),
        }
        queues[class].push_back(at);
    }
    let mut order = Vec::with_capacity(window.len());
    while order.len() < window.len() {
        let fair = order.len() % ORDER_FAIR == ORDER_FAIR - 1;
        let waiting = queues.iter_mut().filter(|queue| !queue.is_empty());
        let queue = match fair {
            true => waiting.min_by_key(|queue| queue[0]),
            false => waiting.into_iter().next(),
        };
        order.extend(queue.and_then(VecDeque::pop_front));
    }
    order
}

/// Returns whether a plan is valid: every place is in the window and named at most once, and the
/// oldest messages of each context come first, without a gap.
pub fn check(window: &[WindowEntry], order: &[usize]) -> bool {
    let mut named = vec![false; window.len()];
    order.iter().all(|&at| {
        let fresh = at < window.len() && !named[at];
        let in_order = fresh
            && (0..at).all(|before| named[before] || window[before].context != window[at].context);
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

    /// Priorities belong to communicators.
    fn of(context: u32) -> Priority {
        match context {
            4 => Priority::High,
            5 => Priority::Low,
            _ => Priority::Normal,
        }
    }

    fn chunks() -> impl Strategy<Value = Vec<WindowEntry>> {
        let len = prop_oneof![0u64..=ORDER_SMALL_MAX as u64, 5_000u64..100_000];
        prop::collection::vec(
            (0u32..6, len).prop_map(|(context, len)| WindowEntry {
                context,
                tag: 0,
                len,
                priority: of(context),
            }),
            0..200,
        )
    }

    /// The order of each context's places.
    fn by_context(window: &[WindowEntry], order: &[usize]) -> HashMap<u32, Vec<usize>> {
        let mut found: HashMap<u32, Vec<usize>> = HashMap::new();
        for &at in order {
            found.entry(window[at].context).or_default().push(at);
        }
        found
    }

    proptest! {
        #[test]
        fn plans_hold_every_chunk_that_is_looked_at_once_and_every_communicator_in_order(window in chunks(), ordering in prop::sample::select(OrderPolicy::ALL.to_vec())) {
            let order = plan(ordering, &window);
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
            window.retain(|chunk| chunk.priority != Priority::High);
            window.push(WindowEntry { context, len: 8, ..WindowEntry::default() });
            let order = plan(OrderPolicy::SmallFirst, &window);
            let at = order.iter().position(|at| *at == window.len() - 1).unwrap();
            let large = order[..at].iter().filter(|at| !is_small(window[**at].len)).count();
            prop_assert!(large <= at / ORDER_FAIR + 1, "{large} large ones among {at} before it");
        }

        #[test]
        fn a_large_message_is_not_put_off_for_ever(context in 0u32..6, smalls in 1usize..1000) {
            // Small ones of other communicators join as fast as they leave.
            let small = |number: usize| WindowEntry { context: 10 + number as u32, len: 8, ..WindowEntry::default() };
            let mut window = vec![WindowEntry { context, len: 100_000, priority: of(context), ..WindowEntry::default() }];
            window.extend((0..ORDER_LOOK_AHEAD).map(small));
            for number in 0..smalls {
                let first = plan(OrderPolicy::SmallFirst, &window);
                let leave: Vec<usize> = first.into_iter().take(ORDER_FAIR).collect();
                if leave.contains(&0) {
                    return Ok(());
                }
                prop_assert!(number == 0, "it left with the first plan");
            }
        }

        #[test]
        fn a_message_of_high_priority_is_behind_its_like_and_few_others(
            window in chunks(), len in 1u64..1_000_000, ordering in prop::sample::select(OrderPolicy::ALL.to_vec()),
        ) {
            let mut window = window;
            window.truncate(ORDER_LOOK_AHEAD - 1);
            window.push(WindowEntry { context: 100, len, priority: Priority::High, ..WindowEntry::default() });
            let order = plan(ordering, &window);
            let at = order.iter().position(|at| *at == window.len() - 1).unwrap();
            let others = order[..at].iter().filter(|at| window[**at].priority != Priority::High).count();
            prop_assert!(others <= at / ORDER_FAIR + 1, "{others} others among {at} before it");
        }

        #[test]
        fn low_ones_leave_last_but_for_the_oldest_now_and_then(window in chunks(), ordering in prop::sample::select(OrderPolicy::ALL.to_vec())) {
            let order = plan(ordering, &window);
            let early = order.iter().enumerate().filter(|(place, at)| {
                let others_wait = order[*place..].iter().any(|at| window[*at].priority != Priority::Low);
                window[**at].priority == Priority::Low && others_wait
            });
            for (place, _) in early {
                prop_assert_eq!(place % ORDER_FAIR, ORDER_FAIR - 1);
            }
        }

        #[test]
        fn what_leads_is_first_in_the_plan(window in chunks(), ordering in prop::sample::select(OrderPolicy::ALL.to_vec())) {
            let usual = window.iter().all(|chunk| chunk.priority == Priority::Normal);
            if let Some(head) = window.first() && ordering.leads(head.len, head.priority, usual) {
                prop_assert_eq!(plan(ordering, &window)[0], 0);
            }
        }

        #[test]
        fn what_is_to_leave_as_it_was_sent_does(window in chunks()) {
            let mut window = window;
            window.iter_mut().for_each(|chunk| chunk.priority = Priority::Normal);
            let order = plan(OrderPolicy::AsSent, &window);
            prop_assert_eq!(order, (0..window.len().min(ORDER_LOOK_AHEAD)).collect::<Vec<_>>());
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
