//! How the ranks of another launcher's job find each other: one agent per host, started by the
//! first rank there; where it is, where the job's first agent is, and where each agent is to which
//! others report, goes through the launcher's exchange: nobody has to be asked who is above whom.
//!
//! One fence of all ranks. The first rank of each node starts its agent and puts where that is;
//! rank 0 puts the job's identity, and the secret if there are several nodes: the exchange is the
//! launcher's own, which gave each rank its place and is trusted with as much. Who cannot start an
//! agent puts why, so that the others say it too instead of waiting.

use garonne_job::adoption_messages::{AdoptionRequest, AgentLocation, ChildListener, RootAgent};
use std::fmt::Write;
use std::os::fd::OwnedFd;

use super::{LauncherExchange, RankAndSize};
use crate::agent_start::{self, StartedAgent};
use garonne_job::agent_tree::{AgentTree, ENV_FAN_OUT, fan_out_from_environment};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{EXCHANGE_ADDRESSES_MAX, EXCHANGE_VALUE_MIN, RANKS_MAX};
use garonne_job::rank_messages::LIBRARY_VERSION;
use garonne_links::addresses;
use garonne_links::agent_discovery::JobEnvironment;

const FIRST: &str = "garonne-first";

fn key_of_node(node: u32) -> String {
    format!("garonne-node-{node}")
}

fn key_of_listener(node: u32) -> String {
    format!("garonne-porch-{node}")
}

/// A rank that knows where its agent is.
#[derive(Debug)]
pub struct LocatedAgent {
    /// Way in which the rank finds its agent.
    pub invitation: JobEnvironment,
    /// The line to the agent that this rank has started; to be kept until it has registered.
    pub line: Option<OwnedFd>,
}

/// Brings this rank to its agent. All ranks of the job must call it.
///
/// # Errors
/// A rank could not start its agent, or ranks do not fit together.
pub fn exchange_agents(exchange: &mut dyn LauncherExchange) -> Result<LocatedAgent> {
    let RankAndSize { rank, size } = exchange.rank_and_size();
    if size > RANKS_MAX {
        let text = format!("{size} ranks: a job has 1 to {RANKS_MAX}");
        return Err(Error::misuse(codes::G0211, text));
    }
    let home = addresses::home()?;
    let nodes = nodes(exchange, home)?;
    let count = nodes.iter().max().map_or(1, |last| last + 1);
    let (node, tree) = (
        nodes[rank as usize],
        AgentTree::new(count, 0, fan_out_from_environment()?),
    );
    let leader = nodes.iter().position(|other| *other == node).unwrap_or(0) as u32;
    let started = (leader == rank)
        .then(|| start_agent(exchange, &nodes, &tree))
        .transpose();
    if let Err(error) = &started {
        let told = format!(
            "!{}",
            hex(error.to_string().as_bytes(), EXCHANGE_VALUE_MIN - 1)
        );
        exchange.put(&key_of_node(node), &told)?;
        if node != 0 && tree.has_children(node) {
            exchange.put(&key_of_listener(node), &told)?;
        }
        if rank == 0 {
            exchange.put(FIRST, &told)?;
        }
    }
    exchange.fence()?;
    let started = started?;
    let mut first = RootAgent::decode(&read_root_agent(exchange, FIRST, 0)?)?;
    if first.version != LIBRARY_VERSION {
        let text = format!(
            "rank {rank} loaded Garonne {LIBRARY_VERSION}, rank 0 loaded {}",
            first.version
        );
        return Err(Error::peer(codes::G0203, text));
    }
    if first.fan_out != tree.fan_out() {
        let (here, there) = (tree.fan_out(), first.fan_out);
        let text = format!(
            "{ENV_FAN_OUT} is {here} for rank {rank} and {there} for rank 0: it must be one for all"
        );
        return Err(Error::misuse(codes::G0225, text));
    }
    let settled = AgentLocation::decode(&read_root_agent(exchange, &key_of_node(node), leader)?)?;
    if settled.network_id != home {
        let text = format!(
            "{} says that ranks {rank} and {leader} share a host, but they do not share its network: they run in containers or namespaces of their own",
            exchange.launcher()
        );
        return Err(Error::peer(codes::G0221, text));
    }
    let line = match started {
        Some(started) => {
            // Where its own agent is to call.
            if let Some(above) = tree.parent(node).filter(|above| *above != 0) {
                let its = nodes.iter().position(|other| *other == above).unwrap_or(0) as u32;
                let pending = ChildListener::decode(&read_root_agent(
                    exchange,
                    &key_of_listener(above),
                    its,
                )?)?;
                (first.port, first.addresses) = (pending.port, pending.addresses);
            }
            Some(started.send_parent(&first)?)
        }
        None => None,
    };
    exchange.wired_up();
    Ok(LocatedAgent {
        invitation: JobEnvironment {
            admission: settled.secret,
            rank,
            agent: settled.name,
            inherited: None,
        },
        line,
    })
}

/// Starts the agent of this rank's node and puts where it is.
fn start_agent(
    exchange: &mut dyn LauncherExchange,
    nodes: &[u32],
    tree: &AgentTree,
) -> Result<StartedAgent> {
    let RankAndSize { rank, .. } = exchange.rank_and_size();
    let program = std::env::args_os().next().unwrap_or_default();
    let started = agent_start::start(&AdoptionRequest {
        launcher: exchange.launcher().to_owned(),
        program: program.to_string_lossy().chars().take(1024).collect(),
        parent: std::os::unix::process::parent_id(),
        leader: rank,
        fan_out: tree.fan_out(),
        of_rank: nodes.to_vec(),
    })?;
    if let Some(first) = &started.root_agent {
        let mut first = first.clone();
        first.addresses.truncate(EXCHANGE_ADDRESSES_MAX);
        exchange.put(FIRST, &hex(&first.encode(), EXCHANGE_VALUE_MIN))?;
    }
    if let Some(pending) = &started.child_listener {
        let mut pending = pending.clone();
        pending.addresses.truncate(EXCHANGE_ADDRESSES_MAX);
        exchange.put(
            &key_of_listener(nodes[rank as usize]),
            &hex(&pending.encode(), EXCHANGE_VALUE_MIN),
        )?;
    }
    let settled = hex(&started.location.encode(), EXCHANGE_VALUE_MIN);
    exchange.put(&key_of_node(nodes[rank as usize]), &settled)?;
    Ok(started)
}

/// The node of each rank, counted in the order of their first ranks.
fn nodes(exchange: &mut dyn LauncherExchange, home: u64) -> Result<Vec<u32>> {
    let RankAndSize { rank, size } = exchange.rank_and_size();
    if let Some(nodes) = exchange
        .nodes()?
        .filter(|nodes| nodes.len() == size as usize)
    {
        return Ok(renumbered(&nodes));
    }
    // The launcher does not say: each tells all of its home.
    exchange.put(&format!("garonne-home-{rank}"), &format!("{home:016x}"))?;
    exchange.fence()?;
    let homes = (0..size).map(|of| exchange.get(&format!("garonne-home-{of}"), of));
    Ok(renumbered(&homes.collect::<Result<Vec<_>>>()?))
}

pub(super) fn renumbered<T: PartialEq + Clone>(nodes: &[T]) -> Vec<u32> {
    let mut known: Vec<T> = Vec::new();
    let number = |node: &T| {
        let at = known.iter().position(|other| other == node);
        at.unwrap_or_else(|| {
            known.push(node.clone());
            known.len() - 1
        }) as u32
    };
    nodes.iter().map(number).collect()
}

/// Returns what rank `of` has put under a key; an error if that is why it failed.
fn read_root_agent(exchange: &mut dyn LauncherExchange, key: &str, of: u32) -> Result<Vec<u8>> {
    read(&exchange.get(key, of)?, key, of)
}

/// Decodes a value that rank `of` has put under a key.
fn read(value: &str, key: &str, of: u32) -> Result<Vec<u8>> {
    let damaged = || {
        let shown: String = value.chars().take(80).collect();
        let text = format!("rank {of} has put '{shown}' under '{key}', which says nothing");
        Error::peer(codes::G0219, text)
    };
    if let Some(why) = value.strip_prefix('!') {
        let why = unhex(why).ok_or_else(damaged)?;
        let why = String::from_utf8_lossy(&why).into_owned();
        let why = why.split_once("]: ").map_or(why.as_str(), |(_, why)| why);
        return Err(Error::peer(
            codes::G0220,
            format!("rank {of} on its host: {why}"),
        ));
    }
    unhex(value).ok_or_else(damaged)
}

/// Reads any text as each value that ranks put.
#[cfg(any(test, fuzzing))]
pub(super) fn read_anything(value: &str) {
    if let Ok(bytes) = read(value, FIRST, 0) {
        assert_eq!(hex(&bytes, usize::MAX), value.to_ascii_lowercase());
        let _ = (
            RootAgent::decode(&bytes),
            AgentLocation::decode(&bytes),
            ChildListener::decode(&bytes),
        );
    }
}

/// In hexadecimal digits, `most` of them at most.
fn hex(bytes: &[u8], most: usize) -> String {
    let shown = &bytes[..bytes.len().min(most / 2)];
    shown.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_tcp::{SECRET_BYTES, Secret};

    #[test]
    fn nodes_are_counted_as_ranks_meet_them() {
        assert_eq!(renumbered(&[7, 7, 3, 7, 9]), [0, 0, 1, 0, 2]);
        assert_eq!(renumbered(&["b", "a", "b"]), [0, 1, 0]);
    }

    #[test]
    fn the_first_agent_fits_the_smallest_value_that_launchers_exchange() {
        let first = RootAgent {
            version: "100.100.100".into(),
            job: u128::MAX,
            secret: Some(Secret::from_bytes(&[255; SECRET_BYTES])),
            fan_out: u32::MAX,
            port: 65535,
            addresses: vec!["fd00::1".parse().unwrap(); EXCHANGE_ADDRESSES_MAX],
        };
        let value = hex(&first.encode(), usize::MAX);
        assert!(value.len() <= EXCHANGE_VALUE_MIN, "{}", value.len());
        assert_eq!(
            RootAgent::decode(&unhex(&value).unwrap()).unwrap().port,
            65535
        );
    }

    #[test]
    fn digits_read_back_and_nonsense_is_none() {
        assert_eq!(unhex(&hex(b"\0abc\xff", 100)).unwrap(), b"\0abc\xff");
        for text in ["abc", "zz", "+1"] {
            assert_eq!(unhex(text), None, "{text}");
        }
    }
}
