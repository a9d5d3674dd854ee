//! Run queues that mirror the machine: one for each area of the tree, from cores to the machine.
//!
//! A fiber that waits in the queue of an area may be run by any worker inside. A worker looks at
//! the queues of the areas around it, its core's first, and then takes from others by distance.
//! Items move between queues one by one, so that a bubble scheduler may place them.

use crate::facade::{AtomicUsize, Mutex, Ordering, lock};
use crate::limits::STEAL_LOOKS;
use crate::priority::Priority;
use garonne_topology::Tree;
use std::collections::VecDeque;

/// Number of priorities.
const LEVELS: usize = 3;

/// Items of an area that are ready, by priority.
#[derive(Debug)]
struct RunQueue<T> {
    /// How many there are of each priority; changed under the lock.
    lengths: [AtomicUsize; LEVELS],
    ready: Mutex<[VecDeque<T>; LEVELS]>,
}

impl<T> RunQueue<T> {
    fn new() -> Self {
        Self {
            lengths: std::array::from_fn(|_| AtomicUsize::new(0)),
            ready: Mutex::new(std::array::from_fn(|_| VecDeque::new())),
        }
    }

    /// Takes the first of so many items that may run.
    fn pop(&self, level: usize, looks: usize, may_run: &impl Fn(&T) -> bool) -> Option<T> {
        if self.lengths[level].load(Ordering::SeqCst) == 0 {
            return None;
        }
        let mut ready = lock(&self.ready);
        let queue = &mut ready[level];
        let found = match queue.front() {
            Some(first) if may_run(first) => queue.pop_front(),
            _ => {
                let at = queue.iter().take(looks).position(may_run)?;
                queue.remove(at)
            }
        };
        self.lengths[level].store(queue.len(), Ordering::SeqCst);
        found
    }
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct RunQueues<T> {
    queues: Box<[RunQueue<T>]>,
    /// For each core the areas around it, its own first.
    paths: Box<[Box<[usize]>]>,
    /// For each core the other areas, by distance.
    others: Box<[Box<[usize]>]>,
}

impl<T> RunQueues<T> {
    pub(crate) fn new(tree: &Tree) -> Self {
        let paths: Box<[Box<[usize]>]> = (0..tree.cores())
            .map(|core| tree.path(core).collect())
            .collect();
        let others = paths.iter().map(|path| by_distance(tree, path)).collect();
        Self {
            queues: tree.areas().iter().map(|_| RunQueue::new()).collect(),
            paths,
            others,
        }
    }

    /// Queues an item at an area, as the last of its priority.
    pub(crate) fn push(&self, area: usize, priority: Priority, item: T) {
        let (queue, level) = (&self.queues[area], priority as usize);
        let mut ready = lock(&queue.ready);
        ready[level].push_back(item);
        queue.lengths[level].store(ready[level].len(), Ordering::SeqCst);
    }

    /// Queues an item at a core and takes the first one there of at least its priority: a switch
    /// between fibers of a core, under one lock.
    pub(crate) fn rotate(&self, core: usize, priority: Priority, item: T) -> T {
        let (queue, level) = (&self.queues[core], priority as usize);
        let higher = (0..level).find(|level| queue.lengths[*level].load(Ordering::Relaxed) != 0);
        if higher.is_none() && queue.lengths[level].load(Ordering::Relaxed) == 0 {
            return item;
        }
        let mut ready = lock(&queue.ready);
        ready[level].push_back(item);
        let first = (0..=level).find_map(|level| Some((level, ready[level].pop_front()?)));
        let (from, first) = first.expect("the item was queued just now");
        if from != level {
            queue.lengths[from].store(ready[from].len(), Ordering::SeqCst);
            queue.lengths[level].store(ready[level].len(), Ordering::SeqCst);
        }
        first
    }

    /// Takes an item that a worker of this core may run: the highest priority first, within it the
    /// nearest queue, or the widest if `wide`.
    pub(crate) fn pop(&self, core: usize, wide: bool, may_run: impl Fn(&T) -> bool) -> Option<T> {
        let path = &self.paths[core];
        (0..LEVELS).find_map(|level| {
            let pop = |area: &usize| self.queues[*area].pop(level, usize::MAX, &may_run);
            let steal = |area: &usize| self.queues[*area].pop(level, STEAL_LOOKS, &may_run);
            let around = if wide {
                path.iter().rev().find_map(pop)
            } else {
                path.iter().find_map(pop)
            };
            around.or_else(|| self.others[core].iter().find_map(steal))
        })
    }

    /// Tells whether anything is queued.
    pub(crate) fn has_any(&self) -> bool {
        let lengths = self.queues.iter().flat_map(|queue| &queue.lengths);
        lengths
            .into_iter()
            .any(|length| length.load(Ordering::SeqCst) != 0)
    }

    /// Takes an item out, wherever it is queued.
    pub(crate) fn remove(&self, is_meant: impl Fn(&T) -> bool) -> Option<T> {
        let levels =
            (0..LEVELS).flat_map(|level| self.queues.iter().map(move |queue| (queue, level)));
        levels
            .into_iter()
            .find_map(|(queue, level)| queue.pop(level, usize::MAX, &is_meant))
    }

    /// Number of items that are queued at an area.
    pub(crate) fn len(&self, area: usize) -> usize {
        let Some(queue) = self.queues.get(area) else {
            return 0;
        };
        queue
            .lengths
            .iter()
            .map(|length| length.load(Ordering::SeqCst))
            .sum()
    }
}

/// Areas that are not on a path: first those below its second area, and so on.
fn by_distance(tree: &Tree, path: &[usize]) -> Box<[usize]> {
    let distance = |area: usize| {
        tree.path(area)
            .find_map(|outer| path.iter().position(|own| *own == outer))
    };
    let mut others: Vec<usize> = (0..tree.areas().len())
        .filter(|area| !path.contains(area))
        .collect();
    others.sort_by_key(|area| distance(*area));
    others.into()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_core_takes_from_near_queues_first_and_the_highest_priority_before_all() {
        let tree = Tree::regular(1, 2, 1, 2);
        let queues = RunQueues::new(&tree);
        let root = tree.root();
        let push = |area, priority, item| queues.push(area, priority, item);
        push(root, Priority::Normal, "machine");
        push(3, Priority::Normal, "far");
        push(1, Priority::Normal, "neighbour");
        push(0, Priority::Normal, "own");
        push(root, Priority::High, "urgent");
        push(0, Priority::Low, "later");
        let taken: Vec<_> = std::iter::from_fn(|| queues.pop(0, false, |_| true)).collect();
        assert_eq!(
            taken,
            ["urgent", "own", "machine", "neighbour", "far", "later"]
        );
        assert!(!queues.has_any());
    }

    #[test]
    fn rotation_keeps_the_order_and_what_may_not_run_stays() {
        let queues = RunQueues::new(&Tree::regular(1, 1, 1, 2));
        assert_eq!(queues.rotate(0, Priority::Normal, 1), 1, "alone");
        queues.push(0, Priority::Normal, 2);
        queues.push(0, Priority::Normal, 3);
        assert_eq!(queues.rotate(0, Priority::Normal, 1), 2);
        assert_eq!(queues.pop(1, false, |item| *item == 1), Some(1));
        assert_eq!(queues.pop(1, false, |item| *item == 1), None);
        assert_eq!((queues.len(0), queues.pop(0, true, |_| true)), (1, Some(3)));
        queues.push(0, Priority::High, 4);
        assert_eq!(queues.rotate(0, Priority::Normal, 5), 4);
        assert_eq!(queues.pop(0, false, |_| true), Some(5));
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    fn model(body: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(body);
    }

    /// One thread queues at two areas and rotates, another takes from its own core and from afar.
    /// Nothing is lost or taken twice, and a queue that is not empty says so.
    #[test]
    fn each_item_is_taken_once() {
        model(|| {
            let tree = Tree::regular(1, 1, 1, 2);
            let queues = Arc::new(RunQueues::new(&tree));
            let taker = {
                let queues = queues.clone();
                loom::thread::spawn(move || {
                    let first = queues.pop(1, false, |_| true);
                    let second = queues.pop(1, true, |item| *item != 2);
                    first.into_iter().chain(second).collect::<Vec<u32>>()
                })
            };
            queues.push(tree.root(), Priority::Normal, 1);
            queues.push(0, Priority::High, 2);
            assert!(!queues.has_any() || queues.len(0) <= 1);
            let mut taken = vec![queues.rotate(0, Priority::Normal, 3)];
            taken.extend(taker.join().unwrap());
            while queues.has_any() {
                taken.push(queues.pop(0, false, |_| true).unwrap());
            }
            taken.sort_unstable();
            assert_eq!(taken, [1, 2, 3]);
        });
    }

    /// An item is moved to another queue, as for a bubble scheduler, while a worker looks for it.
    /// Either of the two gets it.
    #[test]
    fn an_item_that_moves_is_not_lost() {
        model(|| {
            let tree = Tree::regular(1, 1, 1, 2);
            let queues = Arc::new(RunQueues::new(&tree));
            queues.push(0, Priority::Normal, 7);
            let mover = {
                let queues = queues.clone();
                loom::thread::spawn(move || {
                    if let Some(item) = queues.remove(|item| *item == 7) {
                        queues.push(1, Priority::Normal, item);
                    }
                })
            };
            let taken = queues.pop(0, false, |_| true);
            mover.join().unwrap();
            assert_ne!(taken.is_some(), queues.has_any());
        });
    }
}
