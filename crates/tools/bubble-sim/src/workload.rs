//! Workloads: bubbles of threads, and what each thread does.

use garonne_bubbles::{Access, AffinityKind, Machine};

use crate::random::SplitMix;

/// Names of the stock workloads.
pub const WORKLOADS: [&str; 4] = ["regular", "irregular", "nested", "producer-consumer"];

/// No stock workload has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no workload '{0}'; there are: {names}", names = WORKLOADS.join(", "))]
pub struct UnknownWorkload(pub String);

/// What a thread does next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Computes for so many nanoseconds, if all its memory is near and its caches are warm.
    Compute(u64),
    /// Waits until all threads of a barrier have come, by the barrier's number.
    Barrier(usize),
    /// Puts an item into a channel, and waits while that is full.
    Send(usize),
    /// Takes an item from a channel, and waits while that is empty.
    Receive(usize),
    /// Makes a bubble inside its own.
    Spawn(Box<BubblePlan>),
    /// Waits until all threads of all bubbles that it made have ended.
    Join,
}

/// An area of memory of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// Length of the area.
    pub bytes: u64,
    /// The n-th NUMA node, if its pages are there before the threads start.
    pub node: Option<usize>,
}

/// A thread of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct ThreadPlan {
    /// Name for people.
    pub name: String,
    /// What it does, one after the other.
    pub steps: Vec<Step>,
    /// Areas of memory that it uses, by number. It uses those of the bubbles around it, too.
    pub memory: Vec<(usize, Access)>,
    /// Part of its computing during which it waits for memory of its own node, in percent.
    pub traffic_percent: u64,
}

/// A bubble of a workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BubblePlan {
    /// Name for people.
    pub name: String,
    /// Relation between its threads.
    pub affinity: AffinityKind,
    /// Areas of memory that all its threads use, by number.
    pub memory: Vec<(usize, Access)>,
    /// What is in it.
    pub parts: Vec<Part>,
}

/// A part of a bubble.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// A bubble.
    Bubble(BubblePlan),
    /// A thread.
    Thread(ThreadPlan),
}

/// Threads in nested bubbles with what they share.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Workload {
    /// The outermost bubble.
    pub root: BubblePlan,
    /// Areas of memory.
    pub memory: Vec<MemoryPlan>,
    /// Number of threads that meet in each barrier.
    pub barriers: Vec<usize>,
    /// Number of items that each channel holds.
    pub channels: Vec<usize>,
}

impl Workload {
    /// Makes the stock workload of a name, of a size that fits a machine.
    ///
    /// # Errors
    /// There is none of this name; the error lists the names.
    pub fn by_name(name: &str, machine: &Machine, seed: u64) -> Result<Self, UnknownWorkload> {
        let processors = machine.processors().count();
        let nodes = machine.nodes().len();
        let random = SplitMix::new(seed);
        match name {
            "regular" => Ok(Self::regular(processors, nodes)),
            "irregular" => Ok(Self::irregular(processors, nodes, random)),
            "nested" => Ok(Self::nested(processors, random)),
            "producer-consumer" => Ok(Self::producer_consumer(processors)),
            _ => Err(UnknownWorkload(name.to_owned())),
        }
    }

    /// Two subdomains for each NUMA node, each of threads that share its data and meet after each
    /// iteration.
    fn regular(processors: usize, nodes: usize) -> Self {
        let mut made = Self::named("regular");
        let threads = (processors / nodes).max(1);
        for subdomain in 0..2 * nodes {
            let memory = made.add_memory(1 << 20, None);
            let barrier = made.add_barrier(threads);
            let iteration = [Step::Compute(400_000), Step::Barrier(barrier)];
            let steps: Vec<Step> = iteration.iter().cycle().take(20).cloned().collect();
            made.add_bubble(
                format!("subdomain {subdomain}"),
                memory,
                (0..threads).map(|at| thread(format!("t{at}"), steps.clone(), 40)),
            );
        }
        made
    }

    /// Bubbles of one to many threads whose work differs a hundredfold, with data that an earlier
    /// phase left on any node.
    fn irregular(processors: usize, nodes: usize, mut random: SplitMix) -> Self {
        let mut made = Self::named("irregular");
        let most = (processors / nodes).max(1) as u64 + 2;
        for patch in 0..3 * nodes {
            let node = random.between(0, nodes as u64 - 1) as usize;
            let memory = made.add_memory(random.between(1, 16) << 18, Some(node));
            let traffic = random.between(20, 60);
            let threads: Vec<ThreadPlan> = (0..random.between(1, most))
                .map(|at| {
                    let steps = (0..random.between(1, 6))
                        .map(|_| Step::Compute(50_000 << random.between(0, 6)));
                    thread(format!("t{at}"), steps.collect(), traffic)
                })
                .collect();
            made.add_bubble(format!("patch {patch}"), memory, threads);
        }
        made
    }

    /// Threads that each make a bubble of four again and again, and wait for it, as nested parallel
    /// regions do.
    fn nested(processors: usize, mut random: SplitMix) -> Self {
        let mut made = Self::named("nested");
        for outer in 0..(processors / 2).max(1) {
            let memory = made.add_memory(512 << 10, None);
            let mut steps = Vec::new();
            for region in 0..5 {
                let inner = |at| {
                    let work = random.between(100_000, 300_000);
                    Part::Thread(thread(format!("t{at}"), vec![Step::Compute(work)], 40))
                };
                let team = BubblePlan {
                    name: format!("team {outer}.{region}"),
                    affinity: AffinityKind::Share,
                    memory: vec![(memory, Access::ReadWrite)],
                    parts: (0..4).map(inner).collect(),
                };
                steps.extend([
                    Step::Compute(100_000),
                    Step::Spawn(Box::new(team)),
                    Step::Join,
                ]);
            }
            let mut outer = thread(format!("outer {outer}"), steps, 40);
            outer.memory.push((memory, Access::ReadWrite));
            made.root.parts.push(Part::Thread(outer));
        }
        made
    }

    /// Pairs of threads of which one fills a buffer that the other empties.
    fn producer_consumer(processors: usize) -> Self {
        let mut made = Self::named("producer-consumer");
        for pair in 0..(processors * 3 / 4).max(1) {
            let memory = made.add_memory(256 << 10, None);
            let channel = made.add_channel(4);
            let produce = [Step::Compute(30_000), Step::Send(channel)];
            let consume = [Step::Receive(channel), Step::Compute(30_000)];
            let often = |steps: [Step; 2]| steps.iter().cycle().take(120).cloned().collect();
            made.add_bubble(
                format!("pair {pair}"),
                memory,
                [
                    thread("producer".into(), often(produce), 50),
                    thread("consumer".into(), often(consume), 50),
                ],
            );
        }
        made
    }

    fn named(name: &str) -> Self {
        Self {
            root: BubblePlan {
                name: name.to_owned(),
                ..BubblePlan::default()
            },
            ..Self::default()
        }
    }

    /// Adds an area of memory and returns its number.
    pub fn add_memory(&mut self, bytes: u64, node: Option<usize>) -> usize {
        self.memory.push(MemoryPlan { bytes, node });
        self.memory.len() - 1
    }

    /// Adds a barrier for so many threads and returns its number.
    pub fn add_barrier(&mut self, threads: usize) -> usize {
        self.barriers.push(threads);
        self.barriers.len() - 1
    }

    /// Adds a channel that holds so many items and returns its number.
    pub fn add_channel(&mut self, items: usize) -> usize {
        self.channels.push(items);
        self.channels.len() - 1
    }

    /// Adds a bubble of threads that share an area of memory.
    fn add_bubble(
        &mut self,
        name: String,
        memory: usize,
        threads: impl IntoIterator<Item = ThreadPlan>,
    ) {
        self.root.parts.push(Part::Bubble(BubblePlan {
            name,
            affinity: AffinityKind::Share,
            memory: vec![(memory, Access::ReadWrite)],
            parts: threads.into_iter().map(Part::Thread).collect(),
        }));
    }
}

fn thread(name: String, steps: Vec<Step>, traffic_percent: u64) -> ThreadPlan {
    ThreadPlan {
        name,
        steps,
        memory: Vec::new(),
        traffic_percent,
    }
}
