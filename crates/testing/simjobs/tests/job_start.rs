//! Start of a job of many hosts, in a world without hosts: its agents are what they are in `node`
//! (the tree of who reports to whom, what each knows until all have met, the bytes of what they
//! say), and only lines and time are made up. Counts are asserted, and no times.
//!
//! A message takes [`HOP`] of time on its way, and [`WORK`] of its sender and of its receiver, who
//! do one thing at a time. So a start in which one agent does something for each host shows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;

use garonne_job::agent_checkin::{AgentCheckin, in_parts};
use garonne_job::agent_messages::{AgentCommand, AgentReport, HostEndpoint, NodeEndpoints};
use garonne_job::agent_tree::AgentTree;
use garonne_job::limits::{FAN_OUT, HOSTS_PER_MESSAGE};

const HOP: u64 = 10;
const WORK: u64 = 1;

/// Starter of the agents.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// Another launcher, all at once; where the one above is stands in its exchange.
    Launcher,
    /// The first agent, those of a level when the one above them has said where it takes calls.
    First,
}

enum Message {
    /// The command that starts an agent, with its errand.
    Start,
    /// A child's proof, and its parent's.
    Call,
    Answer,
    Job,
    /// A node takes calls; on its way to the first.
    Opened(u32),
    Ready(Vec<NodeEndpoints>),
    /// Some hosts, as bytes: passed on as they came.
    Hosts(Rc<Vec<u8>>),
    Go,
}

struct Agent {
    gathering: AgentCheckin,
    busy_until: u64,
    /// The longest chain of messages of which each had to wait for the one before.
    hops: u32,
    lines: u32,
    messages: u64,
    bytes: u64,
    /// Hosts known before all have met, at most.
    held: usize,
    table: u64,
    starts_at: Option<u64>,
}

struct Event {
    at: u64,
    number: u64,
    to: u32,
    from: u32,
    hops: u32,
    message: Message,
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.number) == (other.at, other.number)
    }
}
impl Eq for Event {}
impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Event {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

struct World {
    tree: AgentTree,
    by: By,
    ranks: u32,
    agents: Vec<Agent>,
    events: BinaryHeap<Reverse<Event>>,
    sent: u64,
}

/// Outcome of a start.
#[derive(Debug)]
struct Outcome {
    depth: u32,
    hops: u32,
    time: u64,
    /// Connections of any agent but the first, and of the first.
    lines: (u32, u32),
    messages: (u64, u64),
    bytes: (u64, u64),
    held: usize,
    table: u64,
}

fn seat(node: u32, ranks: u32) -> NodeEndpoints {
    let [a, b, c, d] = (0x0a00_0000 + node).to_be_bytes();
    NodeEndpoints {
        node,
        place: HostEndpoint {
            name: format!("node{node:05}"),
            network_id: u64::from(node),
            addresses: vec![[a, b, c, d].into(), [192, b, c, d].into()],
            joined: false,
        },
        ports: (0..ranks).map(|rank| 40_000 + rank as u16).collect(),
    }
}

impl World {
    fn new(nodes: u32, ranks: u32, fan_out: u32, by: By) -> Self {
        let tree = AgentTree::new(nodes, 0, fan_out);
        let agent = |node| Agent {
            gathering: AgentCheckin::new(tree, node),
            busy_until: 0,
            hops: 0,
            lines: u32::from(node != 0) + tree.children(node).len() as u32,
            messages: 0,
            bytes: 0,
            held: 0,
            table: 0,
            starts_at: None,
        };
        Self {
            tree,
            by,
            ranks,
            agents: (0..nodes).map(agent).collect(),
            events: BinaryHeap::new(),
            sent: 0,
        }
    }

    fn send(&mut self, from: u32, to: u32, message: Message) {
        let bytes = match &message {
            // Noise's handshakes, and an errand: some hundred bytes.
            Message::Start | Message::Call | Message::Answer => 200,
            // What is to be run; an environment of some kilobytes, and a node for each rank.
            Message::Job => 4096 + u64::from(self.tree.nodes()) * (13 + 4 * u64::from(self.ranks)),
            Message::Opened(node) => AgentReport::Listening(1, seat(*node, 0).place.addresses)
                .encode()
                .len() as u64,
            Message::Ready(seats) => AgentReport::Ready(seats.clone()).encode().len() as u64,
            Message::Hosts(bytes) => bytes.len() as u64,
            Message::Go => AgentCommand::StartRanks.encode().len() as u64,
        };
        let agent = &mut self.agents[from as usize];
        agent.busy_until += WORK;
        agent.messages += 1;
        agent.bytes += bytes;
        self.sent += 1;
        self.events.push(Reverse(Event {
            at: agent.busy_until + HOP,
            number: self.sent,
            to,
            from,
            hops: agent.hops + 1,
            message,
        }));
    }

    fn start_children_of(&mut self, node: u32) {
        self.tree
            .children(node)
            .for_each(|child| self.send(0, child, Message::Start));
    }

    /// This node has its line, if it needs one, and knows the job.
    fn is_there(&mut self, node: u32) {
        if self.by == By::First && node != 0 && self.tree.has_children(node) {
            let above = self.tree.parent(node).expect("not the first");
            self.send(node, above, Message::Opened(node));
        }
        let own = seat(node, self.ranks);
        self.take(node, node, vec![own]);
    }

    fn take(&mut self, node: u32, from: u32, seats: Vec<NodeEndpoints>) {
        let agent = &mut self.agents[node as usize];
        agent.gathering.check_in(from, seats).expect("its own");
        agent.held = agent.held.max(agent.gathering.held());
        let parts = agent.gathering.unreported();
        match self.tree.parent(node) {
            Some(above) => {
                for seats in parts {
                    self.send(node, above, Message::Ready(seats));
                }
            }
            None if parts.is_empty() => {}
            None => {
                let all = in_parts(parts.concat());
                assert_eq!(
                    all.iter().map(Vec::len).sum::<usize>(),
                    self.tree.nodes() as usize
                );
                for seats in all {
                    self.pass(
                        0,
                        Message::Hosts(Rc::new(AgentCommand::Hosts(seats).encode())),
                    );
                }
                self.pass(0, Message::Go);
            }
        }
    }

    /// Obeys an order for all, and has it pass on to those below.
    fn pass(&mut self, node: u32, message: Message) {
        for child in self.tree.children(node) {
            let message = match &message {
                Message::Hosts(bytes) => Message::Hosts(bytes.clone()),
                _ => Message::Go,
            };
            self.send(node, child, message);
        }
        let agent = &mut self.agents[node as usize];
        match message {
            Message::Hosts(bytes) => agent.table += bytes.len() as u64,
            _ => agent.starts_at = Some(agent.busy_until),
        }
    }

    fn run(mut self) -> Outcome {
        match self.by {
            By::First => self.start_children_of(0),
            By::Launcher => {
                for node in 1..self.tree.nodes() {
                    let above = self.tree.parent(node).expect("not the first");
                    self.send(node, above, Message::Call);
                }
            }
        }
        self.is_there(0);
        while let Some(Reverse(event)) = self.events.pop() {
            let agent = &mut self.agents[event.to as usize];
            agent.busy_until = agent.busy_until.max(event.at) + WORK;
            agent.hops = agent.hops.max(event.hops);
            agent.messages += 1;
            let (node, from) = (event.to, event.from);
            match event.message {
                Message::Start => {
                    let above = self.tree.parent(node).expect("not the first");
                    self.send(node, above, Message::Call);
                }
                Message::Call => match self.by {
                    By::Launcher => self.send(node, from, Message::Answer),
                    By::First => self.send(node, from, Message::Job),
                },
                Message::Answer | Message::Job => self.is_there(node),
                Message::Opened(of) => match self.tree.parent(node) {
                    Some(above) => self.send(node, above, Message::Opened(of)),
                    None => self.start_children_of(of),
                },
                Message::Ready(seats) => self.take(node, from, seats),
                order => self.pass(node, order),
            }
        }
        let others = || self.agents.iter().skip(1);
        let first = &self.agents[0];
        assert!(
            self.agents.iter().all(|agent| agent.table == first.table),
            "all know all hosts"
        );
        let starts = self
            .agents
            .iter()
            .map(|agent| agent.starts_at.expect("all start"));
        Outcome {
            depth: self.tree.depth(self.tree.nodes() - 1),
            hops: self
                .agents
                .iter()
                .map(|agent| agent.hops)
                .max()
                .unwrap_or(0),
            time: starts.max().unwrap_or(0) / HOP,
            lines: (
                others().map(|agent| agent.lines).max().unwrap_or(0),
                first.lines,
            ),
            messages: (
                others().map(|agent| agent.messages).max().unwrap_or(0),
                first.messages,
            ),
            bytes: (
                others().map(|agent| agent.bytes).max().unwrap_or(0),
                first.bytes,
            ),
            held: others().map(|agent| agent.held).max().unwrap_or(0),
            table: first.table,
        }
    }
}

/// Starts so many ranks, some on each node, and shows what came of it.
fn start(ranks: u32, each: u32, fan_out: u32, by: By) -> Outcome {
    let nodes = ranks.div_ceil(each);
    let outcome = World::new(nodes, each, fan_out, by).run();
    println!(
        "| {} | {ranks} | {nodes} | {} | {} | {} | {} | {} | {} / {} | {} / {} | {} |",
        match by {
            By::Launcher => "a launcher",
            By::First => "`garonne run`",
        },
        if fan_out == FAN_OUT { "tree" } else { "flat" },
        outcome.depth,
        outcome.hops,
        outcome.time,
        outcome.lines.1.max(outcome.lines.0),
        outcome.messages.1,
        outcome.messages.0,
        outcome.bytes.1 / 1000,
        outcome.bytes.0 / 1000,
        outcome.table / 1000,
    );
    outcome
}

#[test]
fn a_start_takes_steps_that_grow_with_the_logarithm_of_the_nodes() {
    println!(
        "| started by | ranks | nodes | | levels | hops | time in hops | lines of an agent | messages of the first / another | KB sent | KB of table |"
    );
    for by in [By::Launcher, By::First] {
        for (ranks, each) in [
            (1_000, 64),
            (1_000, 8),
            (10_000, 8),
            (100_000, 64),
            (100_000, 8),
        ] {
            let outcome = start(ranks, each, FAN_OUT, by);
            let nodes = ranks.div_ceil(each);
            let levels =
                (1..).find(|levels| AgentTree::new(nodes, 0, FAN_OUT).depth(nodes - 1) <= *levels);
            let levels = levels.expect("a number");
            // Node numbers of L levels begin at (32^L - 1) / 31: so many levels are below the
            // logarithm and one more.
            assert!(
                f64::from(levels) < f64::from(nodes).log(f64::from(FAN_OUT)) + 1.0,
                "{outcome:?}"
            );
            assert_eq!(outcome.depth, levels);
            match by {
                // The call and its answer, then up and down; reports of a level come while its
                // calls are still answered.
                By::Launcher => assert_eq!(outcome.hops, 2 + 2 * levels, "{outcome:?}"),
                // For each level besides: its parents' word on its way to the first, and a start.
                By::First => assert!(
                    outcome.hops <= 3 + 2 * levels + (levels - 1) * (levels + 4),
                    "{outcome:?}"
                ),
            }
            // What any agent but the first handles: with each child a call, an answer, reports of
            // its hosts and orders; the reports and the orders in as many messages as hosts go in
            // one.
            let parts = u64::from(nodes.div_ceil(HOSTS_PER_MESSAGE as u32)) + 1;
            let children = u64::from(FAN_OUT);
            let bound = (children + 1) * (2 * parts + 4)
                + u64::from(AgentTree::new(nodes, 0, FAN_OUT).count(1));
            assert!(outcome.messages.0 <= bound, "{outcome:?}");
            // Nobody but the first knows of hosts that are not below it before all have met.
            assert_eq!(
                outcome.held as u32,
                AgentTree::new(nodes, 0, FAN_OUT).count(1),
                "{outcome:?}"
            );
            assert!(
                outcome.lines.0.max(outcome.lines.1) <= FAN_OUT + 1,
                "{outcome:?}"
            );
            if by == By::Launcher {
                assert!(outcome.messages.1 <= bound, "{outcome:?}");
            }
            // Whole tables go to children alone; who starts all agents has an errand for each.
            assert!(
                outcome.bytes.1
                    <= (children + 1) * (outcome.table + 8192 + job_bytes(nodes, each))
                        + 200 * u64::from(nodes),
                "{outcome:?}"
            );
        }
    }
}

fn job_bytes(nodes: u32, each: u32) -> u64 {
    u64::from(nodes) * (13 + 4 * u64::from(each))
}

/// What the tree is for: with all agents below the first, that one has a line for each, and sends
/// the whole table to each.
#[test]
fn the_same_without_levels_loads_the_first_with_all() {
    for (ranks, each) in [(1_000u32, 8), (10_000, 8), (100_000, 64)] {
        let nodes = ranks.div_ceil(each);
        let (flat, tree) = (
            start(ranks, each, nodes, By::Launcher),
            start(ranks, each, FAN_OUT, By::Launcher),
        );
        assert_eq!((flat.depth, flat.lines.1), (1, nodes - 1));
        assert!(
            flat.bytes.1 > 3 * tree.bytes.1 && flat.time > tree.time,
            "{flat:?} {tree:?}"
        );
    }
}
