//! What holds under any scheduler, also one that answers at random: no thread is lost or runs
//! twice, and all work ends.

use std::collections::BTreeMap;

use garonne_bubbles::{
    AffinityKind, Attributes, BubbleId, BubbleScheduler, BubbleState, Entity, Event, Framework,
    Machine, Move, NAMES, PlaceId, ProcessorId, ThreadId, ThreadState, View, by_name,
};
use garonne_topology::Tree;
use proptest::prelude::*;

/// SplitMix64.
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    }
}

/// Answers each event with moves that mean nothing, of things that may not be there.
struct HostileScheduler(Random);

impl BubbleScheduler for HostileScheduler {
    fn name(&self) -> &str {
        "hostile"
    }

    fn decide(&mut self, _: Event, view: &View) -> Vec<Move> {
        let random = &mut self.0;
        let places = view.machine().places().count() + 2;
        let count = random.below(6);
        let wanted = (0..count).map(|_| {
            let place = PlaceId(random.below(places) as u32);
            let bubble = BubbleId(random.below(view.bubbles().count() + 1) as u32);
            let thread = ThreadId(random.below(view.threads().count() + 1) as u32);
            match random.below(4) {
                0 => Move::Burst { bubble, place },
                1 => Move::Regenerate { bubble, place },
                2 => Move::Queue {
                    entity: Entity::Bubble(bubble),
                    place,
                },
                _ => Move::Queue {
                    entity: Entity::Thread(thread),
                    place,
                },
            }
        });
        wanted.collect()
    }
}

fn scheduler(name: &str, seed: u64) -> Box<dyn BubbleScheduler> {
    match name {
        "hostile" => Box::new(HostileScheduler(Random(seed))),
        name => by_name(name).unwrap(),
    }
}

/// Puts bubbles and threads into a bubble, down to a depth.
fn grow(framework: &mut Framework, parent: BubbleId, depth: usize, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let kinds = [AffinityKind::Group, AffinityKind::Share, AffinityKind::Gang];
        let area = framework.view().area(Entity::Bubble(parent));
        let machine = framework.view().machine();
        let inner: Vec<PlaceId> = machine.within(area).collect();
        let attributes = Attributes {
            affinity: kinds[random.below(3)],
            priority: random.below(3) as i32,
            work_left: random.below(1000) as u64,
            allowed: (random.below(5) == 0).then(|| inner[random.below(inner.len())]),
            ..Attributes::default()
        };
        match depth > 0 && random.below(2) == 0 {
            true => {
                let bubble = framework.add_bubble(Some(parent), attributes).unwrap();
                grow(framework, bubble, depth - 1, random);
            }
            false => {
                framework.add_thread(Some(parent), attributes).unwrap();
            }
        }
    }
}

/// Each thread and bubble is where its state says, once, and nowhere else.
fn check(framework: &Framework) {
    let view = framework.view();
    let mut queued: BTreeMap<Entity, Vec<PlaceId>> = BTreeMap::new();
    for place in view.machine().places() {
        for entity in view.queue(place) {
            queued.entry(*entity).or_default().push(place);
            assert!(view.is_allowed(*entity, place), "{entity:?} at {place:?}");
        }
    }
    let mut running: BTreeMap<ThreadId, Vec<ProcessorId>> = BTreeMap::new();
    for processor in view.machine().processors() {
        if let Some(thread) = view.runs(processor) {
            running.entry(thread).or_default().push(processor);
            let leaf = view.machine().leaf(processor);
            assert!(view.is_allowed(Entity::Thread(thread), leaf));
        }
    }
    for (thread, found) in view.threads() {
        let (places, processors) = match found.state {
            ThreadState::Queued(place) => (vec![place], vec![]),
            ThreadState::Running(processor) => (vec![], vec![processor]),
            _ => (vec![], vec![]),
        };
        let entity = Entity::Thread(thread);
        assert_eq!(queued.remove(&entity).unwrap_or_default(), places);
        assert_eq!(running.remove(&thread).unwrap_or_default(), processors);
        let parent = found.parent.and_then(|parent| view.bubble(parent));
        if found.state == ThreadState::Held {
            let is_burst = matches!(
                parent.map(|parent| parent.state),
                Some(BubbleState::Burst(_))
            );
            assert!(!is_burst, "{thread:?} is held in a burst bubble");
        }
    }
    for (bubble, found) in view.bubbles() {
        let places = match found.state {
            BubbleState::Queued(place) => vec![place],
            _ => vec![],
        };
        assert_eq!(
            queued.remove(&Entity::Bubble(bubble)).unwrap_or_default(),
            places
        );
    }
    assert!(queued.is_empty() && running.is_empty());
}

/// Asks for each idle processor what it runs, until none gets anything.
fn fill(framework: &mut Framework, is_strict: bool) {
    loop {
        let mut changed = false;
        for processor in framework.to_preempt() {
            framework.yield_now(processor).unwrap();
            changed = true;
        }
        for processor in framework.view().machine().processors() {
            if framework.view().runs(processor).is_none() {
                changed |= framework.next(processor).unwrap().is_some();
            }
        }
        if !changed {
            break;
        }
    }
    let view = framework.view();
    for processor in view.machine().processors() {
        if is_strict && view.runs(processor).is_none() {
            let leaf = view.machine().leaf(processor);
            let in_reach = view.threads().find(|(thread, found)| {
                let is_ready = matches!(found.state, ThreadState::Queued(_) | ThreadState::Held);
                is_ready && view.is_allowed(Entity::Thread(*thread), leaf)
            });
            assert!(
                in_reach.is_none(),
                "{processor:?} is idle beside {in_reach:?}"
            );
        }
    }
}

fn run(name: &str, seed: u64, machine: (u32, u32, u32, u32)) {
    let mut random = Random(seed);
    let tree = Tree::regular(machine.0, machine.1, machine.2, machine.3);
    let mut framework = Framework::new(Machine::new(&tree), scheduler(name, seed));
    let root = framework.add_bubble(None, Attributes::default()).unwrap();
    grow(&mut framework, root, 3, &mut random);
    framework.submit(Entity::Bubble(root)).unwrap();
    check(&framework);
    let is_strict = ["steal", "spread"].contains(&name);
    let mut blocked: Vec<ThreadId> = Vec::new();
    let mut steps = 0;
    loop {
        fill(&mut framework, is_strict);
        check(&framework);
        let busy: Vec<ProcessorId> = framework
            .view()
            .machine()
            .processors()
            .filter(|processor| framework.view().runs(*processor).is_some())
            .collect();
        if busy.is_empty() && blocked.is_empty() {
            break;
        }
        steps += 1;
        assert!(steps < 5000, "no end under {name}");
        let what = random.below(10);
        if busy.is_empty() || !blocked.is_empty() && what == 0 {
            let thread = blocked.swap_remove(random.below(blocked.len()));
            framework.wake(thread).unwrap();
            continue;
        }
        let processor = busy[random.below(busy.len())];
        match what {
            1 => framework.tick(),
            2 => drop(framework.yield_now(processor).unwrap()),
            3 => blocked.push(framework.block(processor).unwrap()),
            4 if steps < 50 => {
                let thread = framework.view().runs(processor).unwrap();
                let parent = framework.view().parent(Entity::Thread(thread)).unwrap();
                let made = framework
                    .add_bubble(Some(parent), Attributes::default())
                    .unwrap();
                grow(&mut framework, made, 1, &mut random);
                framework.submit(Entity::Bubble(made)).unwrap();
            }
            5 if steps < 50 => {
                let other = NAMES[random.below(NAMES.len())];
                let before = framework.swap(scheduler(other, seed));
                check(&framework);
                framework.swap(before);
            }
            _ => drop(framework.end(processor).unwrap()),
        }
        check(&framework);
    }
    let view = framework.view();
    for (thread, found) in view.threads() {
        assert_eq!(found.state, ThreadState::Ended, "{thread:?} under {name}");
    }
    assert_eq!(view.bubble(root).unwrap().state, BubbleState::Ended);
    if name != "hostile" {
        assert_eq!(
            framework.counts().refused,
            0,
            "{name}: {:?}",
            framework.last_refusal()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_thread_is_lost_and_all_work_ends_under_any_scheduler(
        seed in any::<u64>(), machine in (1u32..3, 1u32..3, 1u32..3, 1u32..4),
    ) {
        for name in NAMES.iter().chain(&["hostile"]) {
            run(name, seed, machine);
        }
    }
}

#[test]
fn an_unknown_name_is_answered_with_all_names() {
    let why = by_name("sometimes").err().unwrap().to_string();
    for name in NAMES {
        assert!(by_name(name).is_ok() && why.contains(name), "{why}");
        assert_eq!(by_name(name).unwrap().name(), name);
    }
}

#[test]
fn statistics_are_gathered_from_threads_upwards() {
    let mut framework = Framework::new(
        Machine::new(&Tree::regular(2, 1, 1, 2)),
        by_name("flat").unwrap(),
    );
    let node = framework.view().machine().nodes()[1];
    let memory = framework.add_memory(1000, Some(node)).unwrap();
    let untouched = framework.add_memory(10, None).unwrap();
    let root = framework.add_bubble(None, Attributes::default()).unwrap();
    let inner = framework
        .add_bubble(Some(root), Attributes::default())
        .unwrap();
    for work_left in [5, 7] {
        let attributes = Attributes {
            work_left,
            memory: vec![(memory, garonne_bubbles::Access::Read)],
            measures: [("misses".to_owned(), 2.5)].into(),
            ..Attributes::default()
        };
        framework.add_thread(Some(inner), attributes).unwrap();
    }
    framework
        .attach(
            Entity::Bubble(root),
            untouched,
            garonne_bubbles::Access::Write,
        )
        .unwrap();
    let sum = framework.view().statistics(Entity::Bubble(root));
    assert_eq!(
        (sum.threads, sum.ready, sum.bubbles, sum.work_left),
        (2, 2, 1, 12)
    );
    assert_eq!((sum.main_node(), sum.untouched), (Some((node, 2000)), 10));
    assert_eq!(sum.measures["misses"], 5.0);
    framework.submit(Entity::Bubble(root)).unwrap();
    framework.next(ProcessorId(0)).unwrap().unwrap();
    framework.end(ProcessorId(0)).unwrap();
    let sum = framework.view().statistics(Entity::Bubble(root));
    assert_eq!((sum.threads, sum.ended, sum.work_left), (1, 1, 7));
}

/// Threads and bubbles that come and go take numbers of those that were released, and bubbles
/// around them still count what has ended.
#[test]
fn numbers_of_released_threads_and_bubbles_are_used_again() {
    let machine = Machine::new(&Tree::regular(1, 1, 1, 2));
    let mut framework = Framework::new(machine, by_name("steal").unwrap());
    let outer = framework.add_bubble(None, Attributes::default()).unwrap();
    framework.keep_open(outer).unwrap();
    framework.submit(Entity::Bubble(outer)).unwrap();
    for round in 0..100 {
        let inner = framework
            .add_bubble(Some(outer), Attributes::default())
            .unwrap();
        let thread = framework
            .add_thread(Some(inner), Attributes::default())
            .unwrap();
        assert!(
            framework.release(Entity::Thread(thread)).is_err(),
            "it has not ended"
        );
        framework.submit(Entity::Bubble(inner)).unwrap();
        let processor = ProcessorId(round % 2);
        assert_eq!(framework.next(processor).unwrap(), Some(thread));
        framework.end(processor).unwrap();
        framework.release(Entity::Thread(thread)).unwrap();
        framework.release(Entity::Bubble(inner)).unwrap();
        let statistics = framework.view().statistics(Entity::Bubble(outer));
        assert_eq!(
            (statistics.ended, statistics.threads),
            (round as usize + 1, 0)
        );
    }
    assert!(framework.view().bubbles().count() < 6 && framework.view().threads().count() < 6);
    framework.let_end(outer).unwrap();
    assert!(framework.view().has_ended(Entity::Bubble(outer)));
    framework.release(Entity::Bubble(outer)).unwrap();
    assert_eq!(
        framework.add_bubble(None, Attributes::default()).unwrap(),
        outer
    );
}

/// Panics at the third event.
struct PanickingScheduler(u32);

impl BubbleScheduler for PanickingScheduler {
    fn name(&self) -> &str {
        "panicking"
    }

    fn decide(&mut self, _: Event, _: &View) -> Vec<Move> {
        self.0 += 1;
        assert!(self.0 < 3, "event {}", self.0);
        Vec::new()
    }
}

#[test]
fn a_scheduler_that_panics_is_replaced_and_threads_go_on() {
    let machine = Machine::new(&Tree::regular(1, 1, 1, 2));
    let mut framework = Framework::new(machine, Box::new(PanickingScheduler(0)));
    let bubble = framework.add_bubble(None, Attributes::default()).unwrap();
    let thread = framework
        .add_thread(Some(bubble), Attributes::default())
        .unwrap();
    framework.submit(Entity::Bubble(bubble)).unwrap();
    framework.tick();
    framework.tick();
    let fault = framework.last_fault().unwrap().to_string();
    assert_eq!(
        fault,
        "bubble scheduler panicking failed, flat goes on: event 3"
    );
    assert_eq!(framework.scheduler(), "flat");
    assert_eq!(framework.next(ProcessorId(0)).unwrap(), Some(thread));
}
