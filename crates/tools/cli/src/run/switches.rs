//! Switches between the hosts of a job, where `garonne net discover` has found them: collectives
//! hand data on from switch to switch, and a mapping by traffic keeps ranks below one.

use garonne_job::job::Job;
use garonne_job::switch_groups;
use garonne_network_graph::NetworkGraph;
use garonne_network_graph::tree::{HostGroups, host_groups};

use crate::commands::net::kept_graph;

/// The groups of the job's hosts that share a switch. `None`: nobody knows, or there is but one.
pub fn of(job: &Job) -> Option<HostGroups> {
    // Two hosts have nothing to choose from.
    if job.nodes.names.len() <= 2 {
        return None;
    }
    let kept = kept_graph::load().unwrap_or_else(|why| {
        errln!("warning: {why}");
        None
    });
    groups(&kept?, job)
}

/// Gives the groups to the ranks.
pub fn give(job: &mut Job, groups: Option<&HostGroups>) {
    let parts = groups.map(|groups| (&groups.group_of[..], &groups.above[..]));
    switch_groups::give(job, parts);
}

/// The group of each host. One without ranks, as the launcher's may be, counts to the first group.
fn groups(graph: &NetworkGraph, job: &Job) -> Option<HostGroups> {
    let own = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned();
    let mut used = vec![false; job.nodes.names.len()];
    for node in &job.nodes.of_rank {
        *used.get_mut(*node as usize)? = true;
    }
    let name = |(node, name): (usize, &String)| match node == 0 && graph.kind(name).is_none() {
        true => own.clone(),
        false => name.clone(),
    };
    let names: Vec<String> = job.nodes.names.iter().enumerate().map(name).collect();
    let with_ranks: Vec<&str> = names
        .iter()
        .zip(&used)
        .filter_map(|(name, used)| used.then_some(name.as_str()))
        .collect();
    let found = host_groups(graph, &with_ranks)?;
    let mut next = found.group_of.iter();
    let of_node = |used: &bool| match used {
        true => next.next().copied(),
        false => Some(0),
    };
    Some(HostGroups {
        group_of: used.iter().map(of_node).collect::<Option<_>>()?,
        above: found.above,
    })
}
