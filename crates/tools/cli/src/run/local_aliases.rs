//! Which of the hosts that a user names are this one, by other names than it knows itself by.

use std::path::Path;

use garonne_job::limits;
use garonne_job::node_map::HostSpec;

use super::launch_request::SystemFacts;

/// Launchers that reach hosts by the names that the system knows them by. To another command a name
/// may mean anything: a container, a network namespace.
const BY_NAME: [&str; 4] = ["ssh", "slurm", "srun", "prterun"];

/// Marks those that are. `launcher`: what starts agents, if the user says.
pub fn mark(hosts: &mut [HostSpec], launcher: Option<&str>, facts: &SystemFacts) {
    let is_known = hosts.iter().any(|host| host.own);
    let by_name =
        launcher.is_none_or(starts_by_name) && (!is_known || hosts.len() <= limits::NAMES_ASKED);
    // With another user's name it is another place, as far as files and rights go.
    let open = |host: &&mut HostSpec| !host.own && !host.name.contains('@');
    let mut open: Vec<&mut HostSpec> = hosts.iter_mut().filter(open).collect();
    let names: Vec<&str> = open.iter().map(|host| host.name.as_str()).collect();
    if names.is_empty() {
        return;
    }
    let own = (facts.are_own)(&names, by_name);
    open.iter_mut()
        .zip(own)
        .for_each(|(host, own)| host.own = own);
}

fn starts_by_name(launcher: &str) -> bool {
    let words = shlex::split(launcher).unwrap_or_default();
    let program = words
        .first()
        .and_then(|word| Path::new(word).file_name()?.to_str());
    program.is_some_and(|program| BY_NAME.contains(&program))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_mean_hosts_to_those_who_start_processes_by_them() {
        for launcher in ["ssh", "/usr/bin/ssh -p 22", "slurm", "prterun -n 1 --host"] {
            assert!(starts_by_name(launcher), "{launcher}");
        }
        for launcher in ["ip netns exec", "docker exec -i", "/opt/ssh.sh", ""] {
            assert!(!starts_by_name(launcher), "{launcher}");
        }
    }
}
