//! Slurm's `topology.conf` of the plugin `topology/tree`: switches, and what is below each.

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use crate::graph::{GraphError, Link, LinkEnd, NetworkGraph, VertexKind};
use crate::slurm_hostlist::expanded;

/// Reason why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SlurmError {
    /// A line that is none of such a file.
    #[error("line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A switch has itself below it.
    #[error("switch '{0}' is below itself")]
    Cycle(String),
    /// No switch at all.
    #[error("it names no switch")]
    Empty,
    /// Names that contradict each other.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

/// A switch and the lists below it.
#[derive(Default)]
struct SwitchLine {
    name: String,
    hosts: Vec<String>,
    switches: Vec<String>,
    mb_per_s: Option<f64>,
}

/// Reads such a file.
///
/// # Errors
/// What is wrong with it, and in which line.
pub fn read(text: &str) -> Result<NetworkGraph, SlurmError> {
    let mut known: BTreeMap<String, usize> = BTreeMap::new();
    let mut lines = Vec::new();
    for (number, line) in logical_lines(text) {
        let wrong = |what: String| SlurmError::Line { line: number, what };
        let Some(switch) = switch_line(&line).map_err(wrong)? else {
            continue;
        };
        if let Some(first) = known.insert(switch.name.clone(), number) {
            let what = format!("switch '{}' was in line {first}, too", switch.name);
            return Err(wrong(what));
        }
        lines.push((number, switch));
    }
    if lines.is_empty() {
        return Err(SlurmError::Empty);
    }
    let mut graph = NetworkGraph::new();
    for (_, switch) in &lines {
        graph.add(&switch.name, VertexKind::Switch)?;
    }
    // Thing -> the switch above it.
    let mut above: HashMap<&str, (&str, usize)> = HashMap::new();
    let mut links = Vec::new();
    for (number, switch) in &lines {
        let wrong = |what: String| SlurmError::Line {
            line: *number,
            what,
        };
        for host in &switch.hosts {
            if known.contains_key(host) {
                return Err(wrong(format!(
                    "node '{host}' is a switch in line {}",
                    known[host]
                )));
            }
            graph.add(host, VertexKind::Host)?;
        }
        for below in switch.hosts.iter().chain(&switch.switches) {
            if switch.switches.contains(below) && !known.contains_key(below) {
                return Err(wrong(format!("no line describes the switch '{below}'")));
            }
            if let Some((other, first)) = above.insert(below, (&switch.name, *number)) {
                let what = format!("'{below}' is below '{other}' in line {first} already");
                return Err(wrong(what));
            }
            let ends = |name: &str| LinkEnd::new(name, None);
            links.push(Link::between(ends(below), ends(&switch.name)).at_rate(switch.mb_per_s));
        }
    }
    for (_, switch) in &lines {
        let mut at = switch.name.as_str();
        // Above so many switches there is one for the second time.
        for _ in 0..=lines.len() {
            match above.get(at) {
                Some((next, _)) => at = next,
                None => break,
            }
            if at == switch.name {
                return Err(SlurmError::Cycle(switch.name.clone()));
            }
        }
    }
    graph.connect_all(links)?;
    Ok(graph)
}

/// Lines without comments, with those joined that end in a backslash, and the number of the first.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (at, line) in text.lines().enumerate() {
        let line = line
            .split_once('#')
            .map_or(line, |(before, _)| before)
            .trim();
        let (part, more) = match line.strip_suffix('\\') {
            Some(part) => (part, true),
            None => (line, false),
        };
        match lines.last_mut().filter(|_| goes_on) {
            Some((_, whole)) => whole.push_str(part),
            None => lines.push((at + 1, part.to_owned())),
        }
        goes_on = more;
    }
    lines.retain(|(_, line)| !line.trim().is_empty());
    lines
}

/// A line of a switch. `None`: it is about something else.
fn switch_line(line: &str) -> Result<Option<SwitchLine>, String> {
    let mut switch = SwitchLine::default();
    for word in line.split_whitespace() {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| format!("'{}' is not KEY=VALUE", shortened(word)))?;
        let list =
            || expanded(value).ok_or_else(|| format!("'{}' is no list of names", shortened(value)));
        match key.to_ascii_lowercase().as_str() {
            "switchname" => switch.name = value.to_owned(),
            "nodes" => switch.hosts = list()?,
            "switches" => switch.switches = list()?,
            "linkspeed" => switch.mb_per_s = link_speed(value),
            "blockname" | "blocksizes" => {
                return Err("blocks of nodes have no switches; only topology/tree is read".into());
            }
            _ => return Err(format!("'{}' is no key of topology/tree", shortened(key))),
        }
    }
    match (
        switch.name.is_empty(),
        switch.hosts.len() + switch.switches.len(),
    ) {
        (true, _) => Err("it has no SwitchName".into()),
        (false, 0) => Err(format!(
            "switch '{}' has neither Nodes nor Switches",
            switch.name
        )),
        (false, _) => Ok(Some(switch)),
    }
}

/// Slurm keeps the speed and uses it for nothing. Sites write gigabits, or what they like.
fn link_speed(value: &str) -> Option<f64> {
    let digits =
        value.trim_end_matches(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let unit = value[digits.len()..].to_ascii_lowercase();
    let number: f64 = digits
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite() && *number > 0.0)?;
    match unit.as_str() {
        "g" | "gb" | "gbit" | "gb/s" | "gbit/s" | "gbps" => Some(number * 125.0),
        "m" | "mb" | "mbit" | "mbit/s" | "mbps" => Some(number / 8.0),
        _ => None,
    }
}

fn shortened(word: &str) -> String {
    word.chars()
        .take(60)
        .flat_map(char::escape_default)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TREE: &str = "# A tree of three switches\nSwitchName=s0 Nodes=tux[0-2] LinkSpeed=10G\n\
        SwitchName=s1 \\\n  Nodes=tux[3-5],login\nswitchname=s2 switches=s[0-1]\n";

    #[test]
    fn switches_and_nodes_are_read() {
        let graph = read(TREE).unwrap();
        assert_eq!(graph.hosts().count(), 7);
        assert_eq!(graph.switches().collect::<Vec<_>>(), ["s0", "s1", "s2"]);
        assert_eq!(graph.links().len(), 9);
        assert_eq!(graph.neighbours()["tux0"]["s0"], Some(1250.0));
        assert_eq!(graph.neighbours()["s2"]["s1"], None);
    }

    #[test]
    fn a_file_that_lies_is_refused_with_line_and_reason() {
        let told = |text: &str| read(text).unwrap_err().to_string();
        for (text, word) in [
            ("", "names no switch"),
            (
                "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n1",
                "line 2: 'n1' is below 'a'",
            ),
            (
                "SwitchName=a Switches=b\nSwitchName=b Switches=a",
                "is below itself",
            ),
            ("SwitchName=a Switches=a", "is below itself"),
            (
                "SwitchName=a Switches=b",
                "line 1: no line describes the switch 'b'",
            ),
            (
                "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2",
                "line 2: switch 'a' was in line 1",
            ),
            ("SwitchName=a", "neither Nodes nor Switches"),
            ("Nodes=n1", "no SwitchName"),
            ("SwitchName=a Nodes=n[1-", "no list of names"),
            ("SwitchName=a Nodes=n[1-99999999]", "no list of names"),
            (
                "SwitchName=a Nodes=b\nSwitchName=b Nodes=n1",
                "node 'b' is a switch in line 2",
            ),
            ("BlockName=b1 Nodes=n1", "only topology/tree"),
            ("hello", "not KEY=VALUE"),
            ("SwitchName=a Leaves=n1", "no key"),
        ] {
            assert!(told(text).contains(word), "{text}: {}", told(text));
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "(SwitchName=[ab] |Nodes=[ab]|Switches=[ab]|\n|\\\\|#|[a-c=\\[\\],]){0,24}") {
            let _ = read(&text);
        }
    }
}
