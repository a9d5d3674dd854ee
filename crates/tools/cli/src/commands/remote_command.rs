//! Runs a command on other hosts of a job. This happens where ranks of another host are asked for,
//! or on a host that has none, such as the login node that the job was started from.
//!
//! The agents of those hosts run the same command there, and its words come back
//! (`Query::RemoteCommand`). One of them that does not answer within [`LOOK_WAIT`] is named.

use std::collections::{BTreeMap, BTreeSet};

use garonne_inspect::query_client::{self, QueryClient};
use garonne_job::limits::LOOK_WAIT;
use garonne_job::query::{OutputFormat, Query, RemoteCommand};
use garonne_job::snapshot::PAGE_MARKS;
use serde_json::{Value, json};

use super::{map, network, why, why_peer};

/// Output of the command by host name, in the order of nodes.
pub type HostReplies = Vec<(String, Result<String, String>)>;

/// `garonne agent --look JOB WISH`: says it for the agent that runs this.
pub fn say_for_agent(client: &QueryClient, page: RemoteCommand, form: OutputFormat) -> i32 {
    let as_json = form == OutputFormat::Json;
    let refuse = |why: &str| {
        out!("{}{why}", char::from(PAGE_MARKS[1]));
        0
    };
    let Some((shape, world_memory)) = client.world.as_ref() else {
        return refuse("none of its ranks has called MPI_Init yet");
    };
    let why_not = match page {
        RemoteCommand::Gate(rank) => why_peer::refusal((shape, world_memory), rank),
        RemoteCommand::Network
        | RemoteCommand::Paces
        | RemoteCommand::Background
        | RemoteCommand::Map => None,
    };
    if let Some(why) = why_not {
        return refuse(&why);
    }
    out!("{}", char::from(PAGE_MARKS[0]));
    match page {
        RemoteCommand::Gate(rank) => why_peer::show(client, (shape, world_memory), rank, as_json),
        RemoteCommand::Network => network::show(shape, world_memory, as_json),
        RemoteCommand::Paces => why::paces_of(shape, world_memory, as_json),
        RemoteCommand::Background => why::background_of(shape, world_memory, as_json),
        RemoteCommand::Map => map::say_for_agent(client, as_json),
    }
}

/// Shows what other hosts say: those of all ranks, or that of one. Errors are a line for the user.
pub fn show(client: &QueryClient, page: RemoteCommand, as_json: bool) -> Result<i32, String> {
    let said = ask(client, page, as_json)?;
    match page {
        RemoteCommand::Gate(rank) => one(rank, said, as_json),
        RemoteCommand::Network
        | RemoteCommand::Paces
        | RemoteCommand::Background
        | RemoteCommand::Map => all(said, as_json),
    }
}

/// Asks them.
///
/// # Errors
/// The agent of this host does not answer: a line for the user.
pub fn ask(
    client: &QueryClient,
    page: RemoteCommand,
    as_json: bool,
) -> Result<HostReplies, String> {
    let around = query_client::query_all_hosts(
        &client.name,
        Query::Command(page, OutputFormat::json_if(as_json)),
    );
    let around = around.map_err(|error| error.to_string())?;
    let asked: BTreeSet<u32> = match page {
        RemoteCommand::Gate(rank) => {
            let node = around.of_rank.get(rank as usize).copied();
            let ranks = around.of_rank.len();
            BTreeSet::from([node.ok_or_else(|| format!("no rank {rank}: the job has {ranks}"))?])
        }
        RemoteCommand::Network
        | RemoteCommand::Paces
        | RemoteCommand::Background
        | RemoteCommand::Map => around.others(),
    };
    let mut pages: BTreeMap<u32, _> = around.pages(asked.clone());
    let name = |node: u32| {
        let name = client.hosts.get(node as usize).cloned();
        name.unwrap_or_else(|| format!("host {node}"))
    };
    let silent = || {
        format!(
            "its agent has not answered within {} s",
            LOOK_WAIT.as_secs()
        )
    };
    let said = |node| {
        (
            name(node),
            pages.remove(&node).unwrap_or_else(|| Err(silent())),
        )
    };
    Ok(asked.into_iter().map(said).collect())
}

/// Prints the answer of the one host on which a rank runs.
fn one(rank: u32, said: HostReplies, as_json: bool) -> Result<i32, String> {
    let Some((host, page)) = said.into_iter().next() else {
        return Err(format!("no host has rank {rank}"));
    };
    let words = page.map_err(|why| format!("rank {rank} runs on host '{host}': {why}"))?;
    if !as_json {
        outln!("on host '{host}':");
    }
    out!("{words}");
    Ok(0)
}

/// Prints the answers of all hosts that have ranks; this one has none.
fn all(said: HostReplies, as_json: bool) -> Result<i32, String> {
    let missing: Vec<String> = said
        .iter()
        .filter_map(|(host, page)| Some(format!("host '{host}': {}", page.as_ref().err()?)))
        .collect();
    let told = said
        .into_iter()
        .filter_map(|(host, page)| Some((host, page.ok()?)));
    match as_json {
        true => drop(super::print_json(&told.flat_map(rows).collect::<Vec<_>>())),
        false => told.for_each(|(host, words)| out!("on host '{host}':\n{words}")),
    }
    match missing.is_empty() {
        true => Ok(0),
        false => Err(missing.join("\n")),
    }
}

/// The rows that a host gives in JSON, each with its name.
fn rows((host, words): (String, String)) -> Vec<Value> {
    let rows: Vec<Value> = serde_json::from_str(&words).unwrap_or_default();
    let named = |mut row: Value| {
        if let Some(row) = row.as_object_mut() {
            row.insert("host".to_owned(), json!(host));
        }
        row
    };
    rows.into_iter().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_several_hosts_bear_their_names_and_what_is_no_list_gives_none() {
        let words = r#"[{ "network": "10.0.0.0/24" }]"#.to_owned();
        assert_eq!(
            rows(("b".into(), words)),
            [json!({ "network": "10.0.0.0/24", "host": "b" })]
        );
        assert!(rows(("b".into(), "nonsense".into())).is_empty());
    }

    #[test]
    fn a_host_that_says_nothing_is_named_beside_those_that_do() {
        let said = vec![
            ("b".to_owned(), Ok(String::new())),
            ("c".to_owned(), Err("late".to_owned())),
        ];
        assert_eq!(all(said, false), Err("host 'c': late".to_owned()));
    }
}
