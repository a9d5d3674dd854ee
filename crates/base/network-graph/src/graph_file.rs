//! The file in which a graph is kept, in JSON: this crate's own format, and one that may be written
//! by hand.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::graph::{GraphError, Link, NetworkGraph, VertexKind};

/// Version of the format.
const FORMAT: u32 = 1;

/// Reason why a file is refused.
#[derive(Debug, Error)]
pub enum GraphFileError {
    /// No JSON, or with other fields.
    #[error("it is no graph of a network: {0}")]
    Json(#[from] serde_json::Error),
    /// A later or earlier version of this program wrote it.
    #[error("it has format {0}; this program reads format {FORMAT}")]
    Format(u32),
    /// What it says cannot be.
    #[error(transparent)]
    Graph(#[from] GraphError),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphFields {
    format: u32,
    hosts: Vec<String>,
    switches: Vec<String>,
    links: Vec<Link>,
}

/// A graph as the text of a file.
///
/// # Panics
/// Never: such a value is always text.
pub fn write(graph: &NetworkGraph) -> String {
    let kept = GraphFields {
        format: FORMAT,
        hosts: graph.hosts().map(str::to_owned).collect(),
        switches: graph.switches().map(str::to_owned).collect(),
        links: graph.links().to_vec(),
    };
    serde_json::to_string_pretty(&kept).unwrap_or_default() + "\n"
}

/// The graph of a file.
///
/// # Errors
/// Why the file is none.
pub fn read(bytes: &[u8]) -> Result<NetworkGraph, GraphFileError> {
    let kept: GraphFields = serde_json::from_slice(bytes)?;
    if kept.format != FORMAT {
        return Err(GraphFileError::Format(kept.format));
    }
    let mut graph = NetworkGraph::new();
    for name in &kept.hosts {
        graph.add(name, VertexKind::Host)?;
    }
    for name in &kept.switches {
        graph.add(name, VertexKind::Switch)?;
    }
    let links = kept.links.into_iter().map(|link| {
        let ends = Link::between(link.one, link.other);
        Link {
            one: ends.one,
            other: ends.other,
            ..link
        }
    });
    graph.connect_all(links.collect())?;
    Ok(graph)
}
