//! Collects what the ranks of all hosts of a job show.
//!
//! Hosts are read one after the other, so a rank that was seen to wait may have gone on before
//! another was read. Therefore all are read twice, the second time only when all that answer have
//! answered the first time. What a rank has waited for both times, it waited for in the moment
//! between, as all others did. Bounded by the time that a host has to answer
//! ([`garonne_job::limits::LOOK_WAIT`]), which it has once: a host that did not answer is not asked
//! again. Memory: what each rank shows, some hundred bytes, twice.

use garonne_job::agent_socket_name::AgentSocketName;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::rc::Rc;

use garonne_inspect::query_client::{self, QueryClient};
use garonne_job::node_map::listed;
use garonne_job::query::Query;
use garonne_job::snapshot::DetailedSnapshot;

use super::rank_usage;
use super::rank_waits::{self, RankView, monotonic_ns};
use crate::commands::remote_command;
use crate::recording::remote_recording;

/// Every rank of the job, in order, and the hosts of which nothing is known.
pub struct JobSnapshot {
    pub ranks: Vec<RankView>,
    pub silent_hosts: Vec<SilentHost>,
}

/// A host that has not said what its ranks show.
#[derive(Debug, PartialEq, Eq)]
pub struct SilentHost {
    pub name: String,
    pub ranks: Vec<u32>,
    pub why: String,
}

/// Answer of one host, or the reason why there is none.
type HostAnswer = Result<Vec<DetailedSnapshot>, String>;

/// Looks at all ranks.
pub fn gather(client: &QueryClient) -> JobSnapshot {
    if client.hosts.len() < 2 {
        return single_host(rank_waits::read_local_ranks(client));
    }
    let see = || rank_waits::read_local_ranks(client);
    let (of_rank, own, first) = match query_round(client, None, (Query::State, see)) {
        Ok(round) => round,
        // The agent of this host is of another version, or stopped meanwhile.
        Err(why) => return local_ranks_only(client, &why),
    };
    let answered = first.iter().filter(|(_, answer)| answer.is_ok());
    let answered: BTreeSet<u32> = answered.map(|(node, _)| *node).collect();
    let (own_again, mut second) = match query_round(client, Some(&answered), (Query::State, see)) {
        Ok((_, (_, own_again), second)) => (own_again, second),
        Err(why) => return local_ranks_only(client, &why),
    };
    let mut answers: BTreeMap<u32, HostAnswer> = first
        .into_iter()
        .map(|(node, first)| match second.remove(&node) {
            Some(again) => (node, merge_twice(first, again)),
            None => (node, first),
        })
        .collect();
    answers.insert(own.0, merge_twice(Ok(own.1), Ok(own_again)));
    merge(&of_rank, &client.hosts, answers)
}

/// A job on one host.
fn single_host(all: Vec<DetailedSnapshot>) -> JobSnapshot {
    let shown = |seen| RankView {
        snapshot: seen,
        host: None,
        silent: false,
    };
    JobSnapshot {
        ranks: all.into_iter().map(shown).collect(),
        silent_hosts: Vec::new(),
    }
}

/// Where other hosts cannot be asked.
fn local_ranks_only(client: &QueryClient, why: &str) -> JobSnapshot {
    let Some((shape, world_memory)) = &client.world else {
        return single_host(Vec::new());
    };
    let of_rank: Vec<u32> = (0..shape.size)
        .map(|rank| garonne_job::layout::RankEndpoint::of(world_memory, shape, rank).node())
        .collect();
    let mut answers: BTreeMap<u32, HostAnswer> = of_rank
        .iter()
        .map(|node| (*node, Err(why.to_owned())))
        .collect();
    answers.insert(shape.node, Ok(rank_waits::read_local_ranks(client)));
    merge(&of_rank, &client.hosts, answers)
}

type QueryRound = (
    Vec<u32>,
    (u32, Vec<DetailedSnapshot>),
    BTreeMap<u32, HostAnswer>,
);

/// Reads what all ranks have used and sent so far, in the order of ranks, and names the hosts of
/// which nothing is known.
pub fn usage(client: &QueryClient) -> JobSnapshot {
    usage_by(client, rank_usage::usage)
}

/// Reads what all ranks have used and sent so far, and what each waits for.
pub fn usage_with_waits(client: &QueryClient) -> JobSnapshot {
    usage_by(client, rank_usage::with_waits)
}

fn usage_by(client: &QueryClient, own: fn(&QueryClient) -> Vec<DetailedSnapshot>) -> JobSnapshot {
    if client.hosts.len() < 2 {
        return single_host(own(client));
    }
    match query_round(client, None, (Query::Load, || own(client))) {
        Ok((of_rank, own, mut answers)) => {
            answers.insert(own.0, Ok(own.1));
            merge(&of_rank, &client.hosts, answers)
        }
        Err(why) => local_ranks_only(client, &why),
    }
}

/// Asks the hosts of these nodes, or all others, and reads this one meanwhile. Returns the node of
/// each rank, what is seen here, and what the others say.
fn query_round(
    client: &QueryClient,
    only: Option<&BTreeSet<u32>>,
    (wish, look): (Query, impl Fn() -> Vec<DetailedSnapshot>),
) -> Result<QueryRound, String> {
    let around =
        query_client::query_all_hosts(&client.name, wish).map_err(|error| error.to_string())?;
    let of_rank = around.of_rank.clone();
    let own = around.own;
    let asked = match only {
        Some(only) => only.clone(),
        None => around.others(),
    };
    let (seen, answers) = std::thread::scope(|scope| {
        let answers = scope.spawn(|| around.answers(asked.clone()));
        (look(), answers.join())
    });
    let mut answers: BTreeMap<u32, HostAnswer> = answers
        .unwrap_or_default()
        .into_iter()
        .map(|(node, answer)| (node, answer.map_err(|error| error.to_string())))
        .collect();
    for node in asked {
        let none = || {
            let wait = garonne_job::limits::LOOK_WAIT.as_secs();
            Err(format!("its agent has not answered within {wait} s"))
        };
        answers.entry(node).or_insert_with(none);
    }
    Ok((of_rank, (own, seen), answers))
}

/// Merges two answers of one host: keeps the waits that were the same both times.
fn merge_twice(first: HostAnswer, again: HostAnswer) -> HostAnswer {
    let (first, mut again) = (first?, again?);
    let before: BTreeMap<u32, DetailedSnapshot> = first
        .into_iter()
        .map(|seen| (seen.rank.rank, seen))
        .collect();
    for seen in &mut again {
        let before = before.get(&seen.rank.rank);
        if before.is_none_or(|before| before.rank.wait != seen.rank.wait) {
            seen.rank.wait = None;
        }
        // What was on its way may have come since, or what came may have sent something on its way.
        seen.moves |= before.is_some_and(|before| before.moves);
    }
    Ok(again)
}

/// All ranks of the job in order. Those that an answering host says nothing of have not come to MPI
/// yet.
fn merge(of_rank: &[u32], names: &[String], answers: BTreeMap<u32, HostAnswer>) -> JobSnapshot {
    let name = |node: u32| {
        names
            .get(node as usize)
            .cloned()
            .unwrap_or_else(|| format!("host {node}"))
    };
    let mut hosts: BTreeMap<u32, Rc<str>> = BTreeMap::new();
    let now = monotonic_ns();
    let mut known: BTreeMap<u32, DetailedSnapshot> = BTreeMap::new();
    let mut silent: BTreeMap<u32, SilentHost> = BTreeMap::new();
    for (node, answer) in answers {
        match answer {
            Ok(all) => {
                for mut seen in all {
                    // By this host's clock, as the others.
                    if let Some(wait) = &mut seen.rank.wait {
                        wait.since_ns = now.saturating_sub(seen.waited_ns);
                    }
                    known.insert(seen.rank.rank, seen);
                }
            }
            Err(why) => {
                let (name, ranks) = (name(node), Vec::new());
                silent.insert(node, SilentHost { name, ranks, why });
            }
        }
    }
    let mut all = Vec::new();
    for (rank, node) in (0..).zip(of_rank) {
        let host = hosts.entry(*node).or_insert_with(|| name(*node).into());
        let silent = silent
            .get_mut(node)
            .map(|host| host.ranks.push(rank))
            .is_some();
        all.push(RankView {
            snapshot: known
                .remove(&rank)
                .unwrap_or_else(|| DetailedSnapshot::unavailable(rank)),
            host: Some(Rc::clone(host)),
            silent,
        });
    }
    JobSnapshot {
        ranks: all,
        silent_hosts: silent
            .into_values()
            .filter(|host| !host.ranks.is_empty())
            .collect(),
    }
}

/// Describes the hosts that have not answered; `None` where all have.
pub fn silent_hosts_text(silent: &[SilentHost]) -> Option<String> {
    let line = |host: &SilentHost| {
        format!(
            "not seen: ranks {} on {}: {}",
            listed(&host.ranks),
            host.name,
            host.why
        )
    };
    let lines: Vec<_> = silent.iter().map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// One of them as JSON.
pub fn silent_as_json(host: &SilentHost) -> serde_json::Value {
    serde_json::json!({ "host": host.name, "ranks": host.ranks, "why": host.why })
}

/// `garonne agent --look JOB WISH`: what the ranks of this host show, for the agent that runs this.
pub fn look_for_agent(job: &str, wish: &str) -> i32 {
    let (Ok(client), Some(wish)) = (
        query_client::attach(&AgentSocketName(job.to_owned())),
        Query::of_word(wish),
    ) else {
        return 1;
    };
    let seen = match wish {
        Query::State => rank_waits::read_local_ranks(&client),
        Query::Load => rank_usage::with_waits(&client),
        Query::Records { ms } => return remote_recording::record_for_agent(&client, ms),
        Query::All => return remote_recording::record_all_for_agent(client),
        Query::Command(page, form) => return remote_command::say_for_agent(&client, page, form),
        // These no program looks for.
        Query::Clock | Query::Cancel => return 1,
    };
    let bytes = garonne_job::snapshot::encode(&seen);
    i32::from(std::io::stdout().write_all(&bytes).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnosis::deadlock::{HangVerdict, find_deadlock};
    use crate::diagnosis::rank_waits::wait_states;
    use garonne_engine::api::{CallOrigin, TypeDigest};
    use garonne_engine::observe::events::PendingOperation;
    use garonne_job::call_names;
    use garonne_job::layout::RankState;
    use garonne_job::layout::WaitInfo;
    use garonne_job::wait_report::PendingOperations;

    /// A rank that waits in MPI_Recv for another since some time of its host's.
    fn receives(rank: u32, from: u32, since_ns: u64) -> DetailedSnapshot {
        let call = (1..).find(|number| call_names::name(*number) == Some("MPI_Recv"));
        let call = call.expect("there is such a call");
        let mut seen = DetailedSnapshot::unavailable(rank);
        seen.rank.state = RankState::Running;
        seen.rank.process = Some('S');
        seen.rank.wait = Some(WaitInfo {
            call,
            peer: from as i32,
            since_ns,
            ..WaitInfo::default()
        });
        seen.waited_ns = 5;
        seen.operations = Some(PendingOperations {
            list: vec![PendingOperation {
                peer: Some(from),
                origin: CallOrigin {
                    call: call as u16,
                    datatype: 0,
                    digest: TypeDigest::NONE,
                    site: 0,
                },
                ..PendingOperation::default()
            }],
            ..PendingOperations::default()
        });
        seen
    }

    fn names() -> Vec<String> {
        vec!["a".into(), "b".into()]
    }

    fn says(gathered: &JobSnapshot) -> HangVerdict {
        find_deadlock(&wait_states(&gathered.ranks))
    }

    #[test]
    fn a_cycle_over_two_hosts_is_one_if_both_waited_in_the_moment_between_the_looks() {
        let looks = |since| {
            BTreeMap::from([
                (
                    0,
                    merge_twice(Ok(vec![receives(0, 1, 7)]), Ok(vec![receives(0, 1, 7)])),
                ),
                (
                    1,
                    merge_twice(Ok(vec![receives(1, 0, 9)]), Ok(vec![receives(1, 0, since)])),
                ),
            ])
        };
        let cycle = merge(&[0, 1], &names(), looks(9));
        assert_eq!(
            says(&cycle),
            HangVerdict::Cycle {
                ranks: vec![0, 1],
                others: 0
            }
        );
        assert_eq!(cycle.ranks[1].host.as_deref(), Some("b"));
        assert_eq!(cycle.silent_hosts, []);
        // It has begun to wait anew: the message of the other may be what it had waited for.
        let moved = merge(&[0, 1], &names(), looks(10));
        assert_eq!(says(&moved), HangVerdict::Awaited(vec![(1, 1)]));
    }

    #[test]
    fn who_waits_while_bytes_are_on_their_way_may_go_on() {
        let mut moves = receives(1, 0, 9);
        moves.moves = true;
        for (first, again) in [
            (moves.clone(), receives(1, 0, 9)),
            (receives(1, 0, 9), moves.clone()),
        ] {
            let answers = BTreeMap::from([
                (0, Ok(vec![receives(0, 1, 7)])),
                (1, merge_twice(Ok(vec![first]), Ok(vec![again]))),
            ]);
            assert_eq!(
                says(&merge(&[0, 1], &names(), answers)),
                HangVerdict::Awaited(vec![(1, 1)])
            );
        }
    }

    #[test]
    fn of_a_host_that_does_not_answer_nothing_is_concluded_but_what_the_others_know() {
        let answers = BTreeMap::from([
            (
                0,
                Ok(vec![
                    receives(0, 1, 7),
                    receives(1, 0, 7),
                    receives(2, 3, 7),
                ]),
            ),
            (1, Err("gone".to_owned())),
        ]);
        let gathered = merge(&[0, 0, 0, 1], &names(), answers);
        let silent = SilentHost {
            name: "b".into(),
            ranks: vec![3],
            why: "gone".into(),
        };
        assert_eq!(gathered.silent_hosts, [silent]);
        assert_eq!(
            silent_hosts_text(&gathered.silent_hosts).unwrap(),
            "not seen: ranks 3 on b: gone"
        );
        assert_eq!(
            says(&gathered),
            HangVerdict::Cycle {
                ranks: vec![0, 1],
                others: 0
            }
        );
        let unsure = BTreeMap::from([
            (0, Ok(vec![receives(0, 1, 7)])),
            (1, Err("gone".to_owned())),
        ]);
        assert_eq!(
            says(&merge(&[0, 1], &names(), unsure)),
            HangVerdict::Awaited(vec![(1, 1)])
        );
    }

    #[test]
    fn ranks_that_an_answering_host_does_not_name_have_not_come_yet() {
        let answers = BTreeMap::from([(0, Ok(vec![receives(0, 1, 7)])), (1, Ok(Vec::new()))]);
        let gathered = merge(&[0, 1], &names(), answers);
        assert!(!gathered.ranks[1].silent);
        assert_eq!(gathered.ranks[1].snapshot.rank.state, RankState::Absent);
        assert_eq!(says(&gathered), HangVerdict::Awaited(vec![(1, 1)]));
    }

    #[test]
    fn a_host_that_answers_once_and_then_no_more_is_silent() {
        let again = merge_twice(Ok(vec![receives(0, 1, 7)]), Err("late".to_owned()));
        assert_eq!(again, Err("late".to_owned()));
    }
}
