//! Start of a job of many hosts, in a world without hosts: its agents are what they are in `node`
//! (the tree of who reports to whom, what each knows until all have met, the bytes of what they
//! say), and only lines and time are made up. Counts are asserted, and no times.
//!
//! A message takes [`HOP`] of time on its way, and [`WORK`] of its sender and of its receiver, who
//! do one thing at a time. So a start in which one agent does something for each host shows.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use garonne_job::agent_checkin::{AgentCheckin, in_parts};
use garonne_job::agent_messages::{AgentCommand, AgentReport, HostEndpoint, NodeEndpoints};
use garonne_job::agent_tree::AgentTree;
use garonne_job::layout::rank_endpoint;
use garonne_job::layout::{JobId, RankBlock, RankEndpoint, RankState, WorldShape};
use garonne_job::limits::{COLL_BYTES_PER_RANK, FAN_OUT, HOSTS_PER_MESSAGE, RANKS_MAX};
use garonne_links::memory_file;
use garonne_sync::shm::MapAccess;

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

fn endpoints(node: u32, ranks: u32) -> NodeEndpoints {
    let [a, b, c, d] = (0x0a00_0000 + node).to_be_bytes();
    NodeEndpoints {
        node,
        place: HostEndpoint {
            name: format!("node{node:05}"),
            network_id: u64::from(node),
            addresses: vec![[a, b, c, d].into(), [192, b, c, d].into()],
            joined: false,
            ethernet: None,
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
            Message::Opened(node) => AgentReport::Listening(1, endpoints(*node, 0).place.addresses)
                .encode()
                .len() as u64,
            Message::Ready(hosts) => AgentReport::Ready(hosts.clone()).encode().len() as u64,
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
        let own = endpoints(node, self.ranks);
        self.take(node, node, vec![own]);
    }

    fn take(&mut self, node: u32, from: u32, hosts: Vec<NodeEndpoints>) {
        let agent = &mut self.agents[node as usize];
        agent.gathering.check_in(from, hosts).expect("its own");
        agent.held = agent.held.max(agent.gathering.held());
        let parts = agent.gathering.unreported();
        match self.tree.parent(node) {
            Some(above) => {
                for hosts in parts {
                    self.send(node, above, Message::Ready(hosts));
                }
            }
            None if parts.is_empty() => {}
            None => {
                let all = in_parts(parts.concat());
                assert_eq!(
                    all.iter().map(Vec::len).sum::<usize>(),
                    self.tree.nodes() as usize
                );
                for hosts in all {
                    self.pass(
                        0,
                        Message::Hosts(Rc::new(AgentCommand::Hosts(hosts).encode())),
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
                Message::Ready(hosts) => self.take(node, from, hosts),
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
            (1 << 20, 64),
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

/// Ranks of a host in the jobs whose growth is looked at.
const EACH: u32 = 64;

/// Jobs whose growth is looked at: up to as many ranks as the formats name.
const SIZES: [u32; 3] = [1 << 10, 1 << 15, RANKS_MAX];

/// What agents send, receive and keep per rank of the job, from a thousand ranks to a million.
/// Messages grow with the parts in which hosts are told, 1,024 hosts each, and with nothing else.
#[test]
fn agents_of_a_million_ranks_say_and_keep_what_those_of_a_thousand_do() {
    println!("| ranks | hosts | messages of an agent | table: KB of an agent | bytes per rank |");
    let outcomes = SIZES.map(|ranks| (ranks, start(ranks, EACH, FAN_OUT, By::Launcher)));
    for (ranks, outcome) in &outcomes {
        println!(
            "| {ranks} | {} | {} | {} | {:.2} |",
            ranks / EACH,
            outcome.messages.0.max(outcome.messages.1),
            outcome.table / 1000,
            outcome.table as f64 / f64::from(*ranks),
        );
    }
    let (_, small) = &outcomes[1];
    let (_, large) = &outcomes[2];
    // Bytes per rank: the same within a tenth.
    let per_rank = |ranks: u32, outcome: &Outcome| outcome.table as f64 / f64::from(ranks);
    assert!(
        per_rank(SIZES[2], large) < 1.1 * per_rank(SIZES[0], &outcomes[0].1),
        "{large:?}"
    );
    // 32 times the hosts come in 16 parts instead of one, up and down: below 16 times the messages.
    let most = |outcome: &Outcome| outcome.messages.0.max(outcome.messages.1);
    let parts = u64::from((SIZES[2] / EACH).div_ceil(HOSTS_PER_MESSAGE as u32));
    assert!(most(large) <= parts * most(small), "{small:?} {large:?}");
    assert_eq!(large.lines.1.max(large.lines.0), FAN_OUT + 1);
}

/// What a host's memory file holds of a job, in the real format: eight bytes for each rank of the
/// job, and what its own ranks touch.
#[test]
fn the_memory_of_a_host_holds_eight_bytes_for_each_rank_of_the_job() {
    println!(
        "| ranks | hosts | bytes of a host | of each of its {EACH} ranks | beside the table |"
    );
    let touched = SIZES.map(|ranks| {
        let (nodes, node) = (ranks / EACH, ranks / EACH / 2);
        let shape = WorldShape {
            job: JobId(7),
            epoch: 0,
            size: ranks,
            coll_bytes: u64::from(EACH) * COLL_BYTES_PER_RANK,
            inbox_bytes: garonne_shm::inbox_bytes(EACH) as u64,
            shards: 1,
            cpus_milli: 64_000,
            bound: false,
            nodes,
            node,
            hosts_bytes: 0,
        };
        let (file, world_memory) = memory_file::create(&shape).expect("a memory file");
        for rank in 0..ranks {
            RankEndpoint::of(&world_memory, &shape, rank).set(rank / EACH, 40_000);
        }
        let local: Vec<u32> = rank_endpoint::local_ranks(&world_memory, &shape).collect();
        assert_eq!(local, (node * EACH..(node + 1) * EACH).collect::<Vec<_>>());
        for rank in local {
            RankBlock::of(&world_memory, rank).set_state(RankState::Running);
            let inbox = memory_file::map(
                file.as_fd(),
                shape.inbox_offset(rank),
                shape.inbox_bytes,
                MapAccess::ReadWrite,
            );
            inbox.expect("an inbox").atomic_u64(8).store(1, Relaxed);
        }
        // All others end well, which their host says.
        let elsewhere = (0..ranks).filter(|rank| rank / EACH != node);
        elsewhere.for_each(|rank| RankEndpoint::of(&world_memory, &shape, rank).set_ended());
        let stat = rustix::fs::fstat(&file).expect("the file's state");
        let (held, table) = (stat.st_blocks as u64 * 512, 8 * u64::from(ranks));
        println!(
            "| {ranks} | {nodes} | {held} | {} | {} |",
            held / u64::from(EACH),
            held - table
        );
        held - table
    });
    // A page of header, pages of blocks and a page of each inbox, wherever the host's ranks lie.
    assert!(
        touched
            .iter()
            .all(|held| *held <= (EACH as u64 + 16) * 4096),
        "{touched:?}"
    );
}
