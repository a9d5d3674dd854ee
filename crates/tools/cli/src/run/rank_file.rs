//! Rank files of Open MPI: `rank 0=host slot=1:0-2` in a line, `#` begins a comment. Pure.

use std::ffi::OsStr;

use garonne_agent::rank_slots::{self, is_place};
use garonne_job::job::Job;
use garonne_job::node_map::HostSpec;

use super::host_list;
use super::launch_request::SystemFacts;

/// The host and place of each rank, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankFile {
    /// Names of hosts, by rank.
    pub hosts: Vec<String>,
    /// Places, by rank, as [`is_place`] knows them; empty: anywhere.
    pub places: Vec<String>,
}

/// Reads a rank file.
///
/// # Errors
/// It cannot be read, has a line that is not understood, or not every rank once: a line for the
/// user.
pub fn of_file(path: &OsStr, facts: &SystemFacts) -> Result<RankFile, String> {
    let shown = path.to_string_lossy();
    let text = (facts.read)(path)
        .map_err(|error| format!("cannot read the rank file '{shown}': {error}"))?;
    of_text(&text).map_err(|fault| format!("rank file '{shown}'{fault}"))
}

fn of_text(text: &str) -> Result<RankFile, String> {
    let mut ranks: Vec<Option<(String, String)>> = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        let (rank, host, place) = of_line(line).ok_or_else(|| {
            format!(
                ", line {number}: '{line}' is not understood; a line is `rank 0=host slot=1:0-2`"
            )
        })?;
        if rank >= garonne_job::limits::RANKS_MAX as usize {
            return Err(format!(", line {number}: there is no rank {rank}"));
        }
        ranks.resize(ranks.len().max(rank + 1), None);
        if ranks[rank].replace((host, place)).is_some() {
            return Err(format!(", line {number}: rank {rank} is there twice"));
        }
    }
    match ranks.iter().position(Option::is_none) {
        Some(missing) => return Err(format!(" has no line for rank {missing}")),
        None if ranks.is_empty() => return Err(" names no rank".to_owned()),
        None => {}
    }
    let (hosts, places) = ranks.into_iter().flatten().unzip();
    Ok(RankFile { hosts, places })
}

/// `rank 0=host slot=1:0-2`; also `rank 0 = host`, without a place.
fn of_line(line: &str) -> Option<(usize, String, String)> {
    let rest = line
        .strip_prefix("rank")
        .filter(|rest| rest.starts_with([' ', '\t', '=']))?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let rest = rest.split('=').map(str::trim).collect::<Vec<_>>().join("=");
    let (rank, rest) = rest.split_once('=')?;
    let mut words = rest.split_whitespace();
    let host = words.next()?;
    let place = match words.next() {
        None => "",
        Some(word) => {
            let place = word.strip_prefix("slots=").or(word.strip_prefix("slot="))?;
            is_place(place).then_some(place)?
        }
    };
    (words.next().is_none() && !host.contains('=')).then_some(())?;
    Some((rank.parse().ok()?, host.to_owned(), place.to_owned()))
}

impl RankFile {
    /// Gives a job's ranks their places.
    ///
    /// # Errors
    /// The job has more or fewer ranks, or hosts that are not known yet: a line for the user.
    pub fn give(&self, job: &mut Job, hosts_join: bool) -> Result<(), String> {
        if hosts_join {
            return Err(
                "a rank file names hosts, and those that join are not known before".to_owned(),
            );
        }
        let (named, ranks) = (self.hosts.len(), job.size());
        if named != ranks as usize {
            return Err(format!(
                "the rank file names {named} ranks, and the job has {ranks}"
            ));
        }
        rank_slots::give(job, &self.places);
        Ok(())
    }

    /// The node of each rank, by the names of nodes, of which the first is this host.
    pub fn nodes(&self, hosts: &[HostSpec], names: &[String]) -> Vec<u32> {
        let node = |name: &String| {
            let is_own = hosts.iter().any(|host| host.own && host.name == *name);
            let found = names.iter().position(|known| known == name);
            if is_own { 0 } else { found.unwrap_or(0) as u32 }
        };
        self.hosts.iter().map(node).collect()
    }

    /// Returns the hosts that the file names, each once with the number of its ranks, where the
    /// command line names none. Otherwise returns those of the command line, of which `+n1` means
    /// the second.
    ///
    /// # Errors
    /// A host is none of those: a line for the user.
    pub fn settle(&mut self, given: &[HostSpec], own: &[String]) -> Result<Vec<HostSpec>, String> {
        for name in &mut self.hosts {
            if let Some(number) = name.strip_prefix("+n") {
                let host = number
                    .parse::<usize>()
                    .ok()
                    .and_then(|number| given.get(number));
                let host = host.ok_or_else(|| {
                    format!(
                        "'{name}' of the rank file: {} hosts are named by --host or --hostfile",
                        given.len()
                    )
                })?;
                *name = host.name.clone();
            }
        }
        let mut hosts: Vec<HostSpec> = given.to_vec();
        hosts.iter_mut().for_each(|host| host.slots = 0);
        for name in &self.hosts {
            match hosts.iter_mut().find(|host| host.name == *name) {
                Some(host) => host.slots += 1,
                None if given.is_empty() => hosts.extend(host_list::of_list(name, own)?),
                None => {
                    return Err(format!(
                        "host '{name}' of the rank file is none of those named by --host or --hostfile"
                    ));
                }
            }
        }
        Ok(hosts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_give_each_rank_a_host_and_a_place() {
        let text =
            "# two\nrank 1=b slot=0:0,1\nrank 0 = a  slot = 1:0-2\n\nrank 2=a\nrank 3=+n1 slot=3";
        let mut file = of_text(text).unwrap();
        assert_eq!(file.places, ["1:0-2", "0:0,1", "", "3"]);
        let host = |name: &str| HostSpec {
            name: name.into(),
            slots: 1,
            own: false,
        };
        let hosts = file.settle(&[host("a"), host("b")], &[]).unwrap();
        let shown: Vec<_> = hosts
            .iter()
            .map(|host| (host.name.as_str(), host.slots))
            .collect();
        assert_eq!(shown, [("a", 2), ("b", 2)]);
        assert!(file.settle(&[host("a")], &[]).unwrap_err().contains("'b'"));
        let alone = of_text("rank 0=a\nrank 1=a")
            .unwrap()
            .settle(&[], &[])
            .unwrap();
        assert_eq!((alone.len(), alone[0].slots), (1, 2));
    }

    #[test]
    fn what_is_not_understood_is_told_by_its_line() {
        for (text, words) in [
            ("rank 0=a\nrank x=b", "line 2: 'rank x=b'"),
            ("rank 0=a slot=x", "line 1"),
            ("rank 0=a slots=0 more", "line 1"),
            ("rank 0=a\nrank 0=b", "line 2: rank 0 is there twice"),
            ("rank 1=a", "no line for rank 0"),
            ("rank 9999999=a", "there is no rank 9999999"),
            ("# none", "names no rank"),
        ] {
            let fault = of_text(text).unwrap_err();
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }
}
