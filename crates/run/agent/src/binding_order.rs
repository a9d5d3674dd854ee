//! Order in which ranks take the places of their host, where a mapping by traffic has decided one:
//! ranks that follow each other there get places near each other.
//!
//! The agent of each host finds the order in a variable of the job's programs, which ranks do not
//! get. Without it ranks take places in the order of their numbers.

use std::ffi::OsStr;

use garonne_job::job::Job;

/// The ranks of the whole job in their order, with commas between.
pub(crate) const ENV_ORDER: &str = "GARONNE_BINDING_ORDER";

/// Puts the order into a job. `order` has each rank once.
pub fn give(job: &mut Job, order: &[u32]) {
    let all: Vec<String> = order.iter().map(u32::to_string).collect();
    let all = all.join(",");
    for program in &mut job.programs {
        let variable = (ENV_ORDER.into(), Some(all.clone().into()));
        program.env.push(variable);
    }
}

/// The ranks of a node in the order in which they take its places. What is no order of all of the
/// node's ranks is ignored.
pub fn ranks(job: &Job, node: u32) -> Vec<u32> {
    let in_turn = job.ranks_of(node);
    let env = job.programs.first().map(|program| program.env.as_slice());
    let given = env.unwrap_or_default().iter().rev();
    let given = given
        .filter(|(name, _)| name == OsStr::new(ENV_ORDER))
        .find_map(|(_, value)| value.as_ref()?.to_str());
    let Some(given) = given else {
        return in_turn;
    };
    let is_here = |rank: &u32| in_turn.binary_search(rank).is_ok();
    let order: Vec<u32> = given
        .split(',')
        .filter_map(|rank| rank.parse().ok())
        .filter(is_here)
        .collect();
    let mut sorted = order.clone();
    sorted.sort_unstable();
    if sorted == in_turn { order } else { in_turn }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::job::Program;
    use garonne_job::node_map::NodeMap;

    fn program(ranks: u32) -> Program {
        Program {
            argv: vec!["true".into()],
            ranks,
            env: Vec::new(),
            dir: None,
        }
    }

    fn job() -> Job {
        let mut job = Job::new(vec![program(5)]);
        job.nodes = NodeMap {
            names: vec!["a".into(), "b".into()],
            of_rank: vec![0, 1, 0, 0, 1],
        };
        job
    }

    #[test]
    fn each_host_takes_its_ranks_in_the_given_order() {
        let mut job = job();
        assert_eq!(ranks(&job, 0), [0, 2, 3]);
        give(&mut job, &[3, 4, 0, 2, 1]);
        assert_eq!(ranks(&job, 0), [3, 0, 2]);
        assert_eq!(ranks(&job, 1), [4, 1]);
    }

    #[test]
    fn an_order_that_is_none_is_ignored() {
        for order in [&[3, 0][..], &[3, 3, 0, 2], &[]] {
            let mut job = job();
            give(&mut job, order);
            assert_eq!(ranks(&job, 0), [0, 2, 3], "{order:?}");
        }
    }
}
