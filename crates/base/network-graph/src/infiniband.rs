//! The fabric that `ibnetdiscover` prints: switches and channel adapters, each with its ports.

use std::collections::{BTreeMap, HashMap};

use thiserror::Error;

use crate::graph::{GraphError, Link, LinkEnd, NetworkGraph, VertexKind};

/// Reason why text is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InfinibandError {
    /// A line that cannot be read.
    #[error("line {line}: {what}")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A port leads to what is described nowhere.
    #[error("line {line}: no part of the text describes '{id}'")]
    Unknown {
        /// Number of the line, from 1.
        line: usize,
        /// Identifier at the other end.
        id: String,
    },
    /// No switch and no adapter.
    #[error("it describes no fabric of ibnetdiscover")]
    Empty,
    /// What it says cannot be.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

struct Node<'a> {
    kind: VertexKind,
    id: &'a str,
    description: &'a str,
}

struct Port<'a> {
    line: usize,
    from: (&'a str, &'a str),
    to: (&'a str, &'a str),
    mb_per_s: Option<f64>,
}

/// Reads what `ibnetdiscover` printed.
///
/// A host may have several adapters: its name is the first word of their descriptions.
///
/// # Errors
/// What is wrong with it, and in which line.
pub fn read(text: &str) -> Result<NetworkGraph, InfinibandError> {
    let (mut nodes, mut ports): (Vec<Node<'_>>, Vec<Port<'_>>) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate() {
        let wrong = |what| InfinibandError::Line { line: at + 1, what };
        let line = line.trim();
        let kind = match line.split_whitespace().next() {
            Some("Switch") => Some(VertexKind::Switch),
            Some("Ca" | "Rt") => Some(VertexKind::Host),
            _ => None,
        };
        if let Some(kind) = kind {
            let (id, rest) = quoted(line).ok_or_else(|| wrong("a node without an identifier"))?;
            let description = quoted(rest).map_or("", |(text, _)| text);
            nodes.push(Node {
                kind,
                id,
                description,
            });
        } else if line.starts_with('[') {
            let own = nodes
                .last()
                .ok_or_else(|| wrong("a port before any node"))?;
            let (port, rest) = bracketed(line).ok_or_else(|| wrong("a port without a number"))?;
            let (id, rest) = quoted(rest).ok_or_else(|| wrong("a port that leads nowhere"))?;
            let (other, rest) = bracketed(rest).ok_or_else(|| wrong("no port at the other end"))?;
            ports.push(Port {
                line: at + 1,
                from: (own.id, port),
                to: (id, other),
                mb_per_s: rest.split_whitespace().next_back().and_then(rate),
            });
        }
    }
    if nodes.is_empty() {
        return Err(InfinibandError::Empty);
    }
    graph(&nodes, ports)
}

fn graph(nodes: &[Node<'_>], ports: Vec<Port<'_>>) -> Result<NetworkGraph, InfinibandError> {
    let mut uses: HashMap<&str, u32> = HashMap::new();
    for node in nodes.iter().filter(|node| node.kind == VertexKind::Switch) {
        *uses.entry(node.description).or_default() += 1;
    }
    let mut graph = NetworkGraph::new();
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for node in nodes {
        let name = match node.kind {
            VertexKind::Switch if node.description.is_empty() => node.id.to_owned(),
            VertexKind::Switch if uses[node.description] == 1 => node.description.to_owned(),
            VertexKind::Switch => format!("{} {}", node.description, node.id),
            VertexKind::Host => {
                let mut words = node.description.split_whitespace();
                words.next().unwrap_or(node.id).to_owned()
            }
        };
        let name = name.trim().to_owned();
        graph.add(&name, node.kind)?;
        names.insert(node.id, name);
    }
    let mut links = Vec::new();
    for port in ports {
        let unknown = |id: &str| InfinibandError::Unknown {
            line: port.line,
            id: id.chars().take(60).collect(),
        };
        let end = |(id, number): (&str, &str)| {
            let name = names.get(id).ok_or_else(|| unknown(id))?;
            // Ports of several adapters of one host may have one number.
            let number = match graph.kind(name) {
                Some(VertexKind::Host) => format!("{id} {number}"),
                _ => number.to_owned(),
            };
            Ok::<_, InfinibandError>(LinkEnd::new(name.clone(), Some(number)))
        };
        links.push(Link::between(end(port.from)?, end(port.to)?).at_rate(port.mb_per_s));
    }
    graph.connect_all(links)?;
    Ok(graph)
}

/// The next text in quotation marks, and what follows it.
fn quoted(line: &str) -> Option<(&str, &str)> {
    line.split_once('"')?.1.split_once('"')
}

/// What the line has in brackets, and what follows.
fn bracketed(line: &str) -> Option<(&str, &str)> {
    line.trim_start().strip_prefix('[')?.split_once(']')
}

/// Megabytes in a second of a width and speed such as 4xEDR: what is left of them for data.
fn rate(word: &str) -> Option<f64> {
    let (lanes, speed) = word.split_once('x')?;
    let lanes: u32 = lanes
        .parse()
        .ok()
        .filter(|lanes| (1..=12).contains(lanes))?;
    let gbit = match speed {
        "SDR" => 2.0,
        "DDR" => 4.0,
        "QDR" => 8.0,
        "FDR10" => 10.0,
        "FDR" => 13.64,
        "EDR" => 25.0,
        "HDR" => 50.0,
        "NDR" => 100.0,
        "XDR" => 200.0,
        _ => return None,
    };
    Some(f64::from(lanes) * gbit * 125.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FABRIC: &str = r#"
# Topology file: generated on Tue Jun  5 14:15:10 2007
vendid=0x8f1
switchguid=0x8f10400410015(8f10400410015)
Switch	8 "S-0008f10400410015"		# "leaf1" base port 0 lid 3 lmc 0
[6]	"S-0008f10400410016"[2]		# "leaf2" lid 6 4xSDR
[4]	"H-0008f10403961984"[1](8f10403961985) 		# "node2 mlx5_0" lid 16 4xEDR

Switch	8 "S-0008f10400410016"		# "leaf2" base port 0 lid 6 lmc 0
[2]	"S-0008f10400410015"[6]		# "leaf1" lid 3 4xSDR

vendid=0x8f1
caguid=0x8f10403961984
Ca	2 "H-0008f10403961984"		# "node2 mlx5_0"
[1](8f10403961985) 	"S-0008f10400410015"[4]		# lid 16 lmc 1 "leaf1" lid 3 4xEDR
"#;

    #[test]
    fn a_fabric_is_read_and_each_cable_is_there_once() {
        let graph = read(FABRIC).unwrap();
        assert_eq!(graph.hosts().collect::<Vec<_>>(), ["node2"]);
        assert_eq!(graph.switches().collect::<Vec<_>>(), ["leaf1", "leaf2"]);
        assert_eq!(graph.links().len(), 2);
        assert_eq!(graph.neighbours()["leaf1"]["leaf2"], Some(1000.0));
        assert_eq!(graph.neighbours()["node2"]["leaf1"], Some(12_500.0));
    }

    #[test]
    fn broken_text_is_refused_with_line_and_reason() {
        let told = |text: &str| read(text).unwrap_err().to_string();
        for (text, word) in [
            ("", "describes no fabric"),
            ("<xml>", "describes no fabric"),
            ("[1] \"S-1\"[2]", "line 1: a port before any node"),
            ("Switch 8 S-1", "line 1: a node without an identifier"),
            (
                "Switch 8 \"S-1\"\n[1 \"S-1\"",
                "line 2: a port without a number",
            ),
            (
                "Switch 8 \"S-1\"\n[1] S-2",
                "line 2: a port that leads nowhere",
            ),
            (
                "Switch 8 \"S-1\"\n[1] \"S-2\"",
                "line 2: no port at the other end",
            ),
            (
                "Switch 8 \"S-1\"\n[1] \"S-2\"[3]",
                "line 2: no part of the text describes 'S-2'",
            ),
            ("Switch 8 \"S-1\"\n[1] \"S-1\"[3]", "to itself"),
        ] {
            assert!(told(text).contains(word), "{text}: {}", told(text));
        }
    }

    proptest! {
        #[test]
        fn no_text_does_harm(text in "(Switch|Ca|\"[ab]\"|\\[1\\]|\n| |\\[|\\]|#|4xEDR){0,24}") {
            let _ = read(&text);
        }
    }
}
