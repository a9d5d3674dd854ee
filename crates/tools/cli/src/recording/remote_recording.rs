//! Ranks of other hosts: each host records its own, and what was seen of all comes together where
//! it was asked for.
//!
//! A host's agent starts this program anew to record ([`record_for_agent`]). That program tells in
//! frames ([`garonne_trace::event_stream`]) what it reads of its ranks' trace rings; agents pass
//! the frames on as they come. [`RemoteRecordings`] reads them, moves their times to this host's
//! clock, and hands the events on. Hosts that say nothing for a while, or nonsense, are given up
//! and named. Bounded by what one frame holds: nothing is kept here but the names that a host has
//! told.
//!
//! Clocks are compared by questions to all agents, which answer with their times. Of each host the
//! quickest answer counts, and half the time that it took is the possible error.

use garonne_job::agent_socket_name::AgentSocketName;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use garonne_inspect::query_client::{self, JobAnswers, QueryClient};
use garonne_inspect::trace_reader::{ReadFrom, now_ns};
use garonne_job::limits::{CLOCK_ROUNDS, LOOK_WAIT};
use garonne_job::node_map::listed;
use garonne_job::query::Query;
use garonne_trace::event::{EventKind, TraceEvent};
use garonne_trace::event_stream::EventReader;
use garonne_trace::timeline::Timeline;
use serde_json::{Value, json};

use super::RecordingOutputs;
use crate::commands::record;

/// Time by which a host's clock is ahead of this one's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    /// Nanoseconds; negative: behind.
    ahead_ns: i64,
    /// By so much more or less at most.
    within_ns: u64,
}

impl ClockOffset {
    /// From a host's time, asked for and answered at these moments of this host's clock.
    fn of(host_ns: u64, asked_ns: u64, answered_ns: u64) -> Self {
        let within_ns = answered_ns.saturating_sub(asked_ns) / 2;
        let middle = asked_ns.saturating_add(within_ns);
        Self {
            ahead_ns: host_ns.wrapping_sub(middle).cast_signed(),
            within_ns,
        }
    }

    /// A time of that host's as one of this.
    fn here(self, at_ns: u64) -> u64 {
        at_ns.saturating_add_signed(self.ahead_ns.saturating_neg())
    }
}

/// Number of times that clocks are compared again: quartz of two hosts goes some ten microseconds
/// apart in a second.
const CLOCK_EVERY: Duration = Duration::from_secs(5);

/// Time that hosts have to say what their clocks show, each time.
const CLOCK_WAIT: Duration = Duration::from_millis(500);

/// Compares the clocks of other hosts, of these nodes, with this one's, so many times.
fn clocks(
    job: &AgentSocketName,
    rounds: usize,
    of: impl Fn(&u32) -> bool,
) -> BTreeMap<u32, ClockOffset> {
    let mut best: BTreeMap<u32, ClockOffset> = BTreeMap::new();
    let mut slow = 0;
    for _ in 0..rounds {
        let asked_ns = now_ns();
        let Ok(around) = query_client::query_all_hosts(job, Query::Clock) else {
            break;
        };
        let mut left = around.others();
        left.retain(&of);
        let until = Instant::now() + CLOCK_WAIT;
        while !left.is_empty()
            && let Ok(Some((node, told))) =
                around.next(until.saturating_duration_since(Instant::now()))
        {
            let answered_ns = now_ns();
            let told = <[u8; 8]>::try_from(told.as_slice());
            if let (true, Ok(told)) = (left.remove(&node), told) {
                let clock = ClockOffset::of(u64::from_le_bytes(told), asked_ns, answered_ns);
                let known = best.entry(node).or_insert(clock);
                if clock.within_ns < known.within_ns {
                    *known = clock;
                }
            }
        }
        slow += u32::from(!left.is_empty());
        // Somebody may have stopped a host: it is not waited for in each round.
        if slow > 1 {
            break;
        }
    }
    best
}

/// State of one host's recording.
#[derive(Debug, PartialEq, Eq)]
enum HostRecordingState {
    /// The host is recording.
    Running,
    /// The host has sent everything.
    Complete,
    /// The host has not sent everything, and why.
    Broken(&'static str),
}

#[derive(Debug)]
struct RecordingHost {
    name: String,
    ranks: Vec<u32>,
    reader: EventReader,
    clock: ClockOffset,
    /// Way in which its clock was last found.
    last_clock: ClockOffset,
    heard: Instant,
    state: HostRecordingState,
}

impl RecordingHost {
    /// The program that records there has ended.
    fn end(&self) -> HostRecordingState {
        match self.reader.is_over() {
            true => HostRecordingState::Complete,
            false => HostRecordingState::Broken("what records there has ended before its time"),
        }
    }

    /// Reads a frame of this host's; whether it is one.
    fn read(&mut self, frame: &[u8], tell: &mut dyn FnMut(TraceEvent)) -> bool {
        let (clock, ranks) = (self.clock, &self.ranks);
        let (mut own, mut seen) = (true, Vec::new());
        let lost = self.reader.read(frame, &mut |event| {
            own &= ranks.binary_search(&event.rank).is_ok();
            seen.push(event);
        });
        let Ok(lost) = lost else { return false };
        if !own {
            return false;
        }
        // Whose they were is not known: nothing that any of its ranks had begun is concluded from.
        if lost > 0 {
            let each = lost.div_ceil(self.ranks.len().max(1) as u64);
            for &rank in &self.ranks {
                tell(TraceEvent {
                    rank,
                    thread: 0,
                    cpu: 0,
                    at_ns: 0,
                    kind: EventKind::Lost(each),
                });
            }
        }
        for mut event in seen {
            event.at_ns = clock.here(event.at_ns);
            if let EventKind::Work { since_ns, .. } = &mut event.kind {
                *since_ns = clock.here(*since_ns);
            }
            tell(event);
        }
        true
    }
}

/// Recordings of other hosts. Owned by [`super::Recording`], which calls `hear` until `is_over`,
/// and `missing` last. Moves the events' times to this host's clock.
#[derive(Debug)]
pub struct RemoteRecordings {
    job: AgentSocketName,
    answers: JobAnswers,
    hosts: BTreeMap<u32, RecordingHost>,
    own: String,
    /// When clocks were last compared.
    compared: Instant,
}

impl RemoteRecordings {
    /// Has all other hosts of a job record for this long, or until their ranks end.
    ///
    /// # Errors
    /// A line for the user: nobody can be asked.
    pub fn of(client: &QueryClient, time: Option<Duration>) -> Result<Self, String> {
        let ms = time.map_or(0, |time| {
            u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)
        });
        Self::wishing(client, Query::Records { ms })
    }

    /// Has all other hosts of a job that is traced as a whole tell what their ranks record.
    ///
    /// # Errors
    /// A line for the user: nobody can be asked.
    pub fn of_all(client: &QueryClient) -> Result<Self, String> {
        Self::wishing(client, Query::All)
    }

    fn wishing(client: &QueryClient, wish: Query) -> Result<Self, String> {
        let job = client.name.clone();
        let clocks = clocks(&job, CLOCK_ROUNDS, |_| true);
        let around =
            query_client::query_all_hosts(&job, wish).map_err(|error| error.to_string())?;
        let name = |node: u32| {
            let name = client.hosts.get(node as usize).cloned();
            name.unwrap_or_else(|| format!("host {node}"))
        };
        let host = |node: u32| {
            let ranks = (0..).zip(&around.of_rank).filter(|(_, of)| **of == node);
            let found = clocks.get(&node).copied();
            let clock = found.unwrap_or(ClockOffset {
                ahead_ns: 0,
                within_ns: u64::MAX,
            });
            RecordingHost {
                name: name(node),
                ranks: ranks.map(|(rank, _)| rank).collect(),
                reader: EventReader::default(),
                clock,
                last_clock: clock,
                heard: Instant::now(),
                state: match found {
                    Some(_) => HostRecordingState::Running,
                    None => HostRecordingState::Broken("its agent does not answer"),
                },
            }
        };
        let hosts = around
            .others()
            .into_iter()
            .map(|node| (node, host(node)))
            .collect();
        Ok(Self {
            own: name(around.own),
            compared: Instant::now(),
            job,
            answers: around,
            hosts,
        })
    }

    /// Describes the hosts, as the file says it.
    pub fn about(&self) -> Value {
        let own = json!({ "host": self.own, "clock_ahead_ns": 0, "clock_within_ns": 0 });
        let known = self
            .hosts
            .values()
            .filter(|host| host.clock.within_ns != u64::MAX);
        let others = known.map(|host| {
            json!({ "host": host.name, "ranks": host.ranks, "clock_ahead_ns": host.clock.ahead_ns, "clock_within_ns": host.clock.within_ns })
        });
        Value::Array(std::iter::once(own).chain(others).collect())
    }

    /// Says in a timeline on which hosts ranks are.
    pub fn label(&self, timeline: &mut Timeline) {
        for (rank, node) in (0..).zip(&self.answers.of_rank) {
            let host = self.hosts.get(node).map_or(&self.own, |host| &host.name);
            timeline.label(rank, host);
        }
    }

    /// Takes the next that has come; whether there was anything.
    pub fn hear(&mut self, tell: &mut dyn FnMut(TraceEvent)) -> bool {
        match self.answers.next(Duration::ZERO) {
            Ok(None) => {
                self.compare();
                self.give_up(
                    |host| host.heard.elapsed() > LOOK_WAIT,
                    "it says nothing any more",
                );
                false
            }
            Ok(Some((node, said))) => {
                let Some(host) = self.hosts.get_mut(&node) else {
                    return true;
                };
                host.heard = Instant::now();
                if host.state == HostRecordingState::Running {
                    if said.is_empty() {
                        host.state = host.end();
                    } else if !host.read(&said, tell) {
                        host.state = HostRecordingState::Broken("what it says cannot be read");
                    }
                }
                true
            }
            Err(_) => {
                self.give_up(
                    |_| true,
                    "the job's agent has ended, or passes nothing on any more",
                );
                false
            }
        }
    }

    /// Looks from time to time how far the clocks have gone apart.
    fn compare(&mut self) {
        if self.compared.elapsed() < CLOCK_EVERY {
            return;
        }
        // Those that say nothing any more are not waited for.
        let hosts = &self.hosts;
        let goes = |node: &u32| {
            hosts
                .get(node)
                .is_some_and(|host| host.state == HostRecordingState::Running)
        };
        let found = clocks(&self.job, CLOCK_ROUNDS / 4, goes);
        for (node, clock) in found {
            if let Some(host) = self.hosts.get_mut(&node) {
                host.last_clock = clock;
            }
        }
        self.compared = Instant::now();
    }

    fn give_up(&mut self, of: impl Fn(&RecordingHost) -> bool, why: &'static str) {
        let hosts = self.hosts.values_mut();
        for host in hosts.filter(|host| host.state == HostRecordingState::Running && of(host)) {
            host.state = HostRecordingState::Broken(why);
        }
    }

    /// Returns whether all hosts have told all that they will.
    pub fn is_over(&self) -> bool {
        self.hosts
            .values()
            .all(|host| host.state != HostRecordingState::Running)
    }

    /// Says in lines what is missing, and how far clocks went apart meanwhile.
    pub fn missing(self) -> Vec<String> {
        let lines = self.hosts.values().flat_map(|host| {
            let broken = match host.state {
                HostRecordingState::Broken(why) => Some(format!(
                    "not seen to the end: ranks {} on {}: {why}",
                    listed(&host.ranks),
                    host.name
                )),
                _ => None,
            };
            let apart = host.last_clock.ahead_ns.abs_diff(host.clock.ahead_ns);
            let known = host.clock.within_ns.saturating_add(host.last_clock.within_ns);
            let drifted = (apart > known).then(|| {
                let us = apart / 1000;
                format!("the clock of {} went {us} µs apart from this host's: its later times are off by up to that", host.name)
            });
            [broken, drifted]
        });
        lines.flatten().collect()
    }
}

/// Writes a frame for the agent that started this, its length before it.
pub fn write_frame(out: &mut impl Write, frame: &[u8]) -> std::io::Result<()> {
    out.write_all(&(frame.len() as u32).to_le_bytes())?;
    out.write_all(frame)?;
    out.flush()
}

/// Records the ranks of this host for another, as an agent wants it; the exit code.
pub fn record_for_agent(client: &QueryClient, ms: u32) -> i32 {
    let time = (ms > 0).then(|| Duration::from_millis(ms.into()));
    i32::from(record(client, (ReadFrom::Now, time), STREAM, None).is_err())
}

/// Records the ranks of this host for another from beginning to end. Where none of its ranks has
/// come yet, the stream says that it waits.
pub fn record_all_for_agent(mut client: QueryClient) -> i32 {
    for looks in 0u32.. {
        if client.file.is_some() {
            break;
        }
        // An empty frame, before which nothing came, is as good a word as any.
        if looks.is_multiple_of(WORDS_EVERY)
            && write_frame(&mut std::io::stdout(), &0u64.to_le_bytes()).is_err()
        {
            return 1;
        }
        std::thread::sleep(WORLD_LOOK);
        client = match query_client::attach(&client.name) {
            Ok(client) => client,
            Err(_) => return 1,
        };
    }
    i32::from(record(&client, (ReadFrom::Beginning, None), STREAM, None).is_err())
}

const STREAM: RecordingOutputs<'static> = RecordingOutputs {
    timeline: None,
    shares: false,
    traffic: false,
    stream: true,
};

/// Looks from one word that it waits to the next.
const WORDS_EVERY: u32 = 25;

/// Between two looks whether a host's first rank has come: its trace ring holds what it records
/// meanwhile.
const WORLD_LOOK: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_trace::event_stream::EventWriter;

    const CLOCK: ClockOffset = ClockOffset {
        ahead_ns: 1000,
        within_ns: 5,
    };

    fn host(ranks: &[u32]) -> RecordingHost {
        RecordingHost {
            name: "b".into(),
            ranks: ranks.to_vec(),
            reader: EventReader::default(),
            clock: CLOCK,
            last_clock: CLOCK,
            heard: Instant::now(),
            state: HostRecordingState::Running,
        }
    }

    fn work(rank: u32) -> TraceEvent {
        TraceEvent {
            rank,
            thread: 1,
            cpu: 0,
            at_ns: 5000,
            kind: EventKind::Work {
                operation: 1,
                peer: None,
                since_ns: 4000,
                bytes: 9,
            },
        }
    }

    #[test]
    fn a_clock_is_known_within_half_of_what_its_answer_took() {
        let clock = ClockOffset::of(1_000_000, 400, 600);
        assert_eq!((clock.ahead_ns, clock.within_ns), (999_500, 100));
        assert_eq!(clock.here(1_000_000), 500);
        let behind = ClockOffset::of(100, 1000, 1000);
        assert_eq!((behind.ahead_ns, behind.here(100)), (-900, 1000));
        assert_eq!(clock.here(0), 0);
    }

    #[test]
    fn what_another_host_saw_is_told_in_the_time_of_this_one() {
        let (mut host, mut writer, mut told) = (host(&[2, 3]), EventWriter::default(), Vec::new());
        writer.see(&work(3));
        assert!(host.read(&writer.close(), &mut |seen| told.push(seen)));
        let EventKind::Work { since_ns, .. } = told[0].kind else {
            panic!("{told:?}");
        };
        assert_eq!((told[0].at_ns, since_ns), (4000, 3000));
        assert!(host.read(&writer.finish(), &mut |_| panic!("there was nothing more")));
        assert_eq!(host.end(), HostRecordingState::Complete);
    }

    #[test]
    fn a_host_speaks_for_its_own_ranks_and_what_did_not_come_is_lost_to_all_of_them() {
        let (mut host, mut writer, mut told) = (host(&[2, 3]), EventWriter::default(), Vec::new());
        writer.see(&work(3));
        let _ = writer.close();
        assert!(host.read(&writer.close(), &mut |seen| told.push(seen)));
        let lost: Vec<_> = told
            .iter()
            .map(|seen| (seen.rank, seen.kind.clone()))
            .collect();
        assert_eq!(lost, [(2, EventKind::Lost(1)), (3, EventKind::Lost(1))]);
        assert_ne!(host.end(), HostRecordingState::Complete);
        writer.see(&work(4));
        assert!(!host.read(&writer.close(), &mut |_| panic!(
            "of a rank of another host"
        )));
    }
}
