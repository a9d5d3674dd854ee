//! Which hosts of a job share a switch: decided by the launcher from the graph of the network, for
//! the collectives of all ranks.
//!
//! Ranks find it in a variable. A number takes two to six characters, so that jobs of more hosts
//! than some thousand go without.

use std::ffi::OsString;

use crate::job::Job;
use crate::limits::VALUE_BYTES_MAX;

/// The group of each host with commas between, a semicolon, and the group above each group; `-`:
/// none.
pub const ENV_SWITCHES: &str = "GARONNE_SWITCHES";

/// Gives the groups to all programs of a job. `None`, or groups that take too much room: there are
/// none, also if this process has some of its own job.
pub fn give(job: &mut Job, groups: Option<(&[u32], &[Option<u32>])>) {
    let text = groups.map(|(group_of, above)| {
        let numbers: Vec<String> = group_of.iter().map(u32::to_string).collect();
        let uppers = above
            .iter()
            .map(|above| above.map_or("-".into(), |above| above.to_string()));
        format!(
            "{};{}",
            numbers.join(","),
            uppers.collect::<Vec<_>>().join(",")
        )
    });
    let value = text
        .filter(|text| text.len() < VALUE_BYTES_MAX / 2)
        .map(OsString::from);
    if value.is_none() && std::env::var_os(ENV_SWITCHES).is_none() {
        return;
    }
    for program in &mut job.programs {
        program.env.push((ENV_SWITCHES.into(), value.clone()));
    }
}

/// The groups that this process was given for so many hosts. `None`: there are none, or of another
/// job.
pub fn from_environment(hosts: u32) -> Option<(Vec<u32>, Vec<Option<u32>>)> {
    parse(&std::env::var(ENV_SWITCHES).ok()?, hosts)
}

fn parse(text: &str, hosts: u32) -> Option<(Vec<u32>, Vec<Option<u32>>)> {
    let (numbers, uppers) = text.split_once(';')?;
    let numbers: Vec<u32> = numbers
        .split(',')
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let upper = |word: &str| match word {
        "-" => Some(None),
        word => word.parse().ok().map(Some),
    };
    let uppers: Vec<Option<u32>> = uppers.split(',').map(upper).collect::<Option<_>>()?;
    (numbers.len() == hosts as usize).then_some((numbers, uppers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Program;

    fn job() -> Job {
        Job::new(vec![Program {
            argv: vec!["true".into()],
            ranks: 4,
            env: Vec::new(),
            dir: None,
        }])
    }

    #[test]
    fn groups_reach_the_programs_and_come_back() {
        let mut job = job();
        give(&mut job, Some((&[0, 0, 1, 2], &[None, Some(0), Some(0)])));
        let (name, value) = &job.programs[0].env[0];
        assert_eq!(name, ENV_SWITCHES);
        let text = value.as_ref().unwrap().to_str().unwrap();
        assert_eq!(text, "0,0,1,2;-,0,0");
        let read = Some((vec![0, 0, 1, 2], vec![None, Some(0), Some(0)]));
        assert_eq!(parse(text, 4), read);
        for (text, hosts) in [(text, 3), ("", 0), ("0,0", 2), ("0,x;-", 2), ("0,1;-,x", 2)] {
            assert_eq!(parse(text, hosts), None, "{text}");
        }
    }

    #[test]
    fn too_many_hosts_go_without() {
        let mut job = job();
        give(&mut job, Some((&vec![12_345; 9000], &[None])));
        assert!(job.programs[0].env.is_empty());
    }
}
