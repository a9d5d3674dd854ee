//! The file in the user's cache directory that has the graph which was found last.

use std::path::PathBuf;

use garonne_job::bounded_read;
use garonne_network_graph::{NetworkGraph, graph_file};
use garonne_shm::cost_model::{self, CostModel};

/// The path of the file. `None`: there is no home directory.
fn path() -> Option<PathBuf> {
    Some(CostModel::path()?.with_file_name("network-graph.json"))
}

/// The kept graph. `None`: there is none.
///
/// # Errors
/// A line for the user: the file is there and cannot be read, or is damaged.
pub fn load() -> Result<Option<NetworkGraph>, String> {
    let Some(path) = path() else { return Ok(None) };
    let bytes = match bounded_read::read(&path, bounded_read::LIST_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    graph_file::read(&bytes).map(Some).map_err(|error| {
        format!(
            "the kept network {} cannot be used: {error}; remove it",
            path.display()
        )
    })
}

/// Keeps a graph in the place of the last one, whole or not at all.
///
/// # Errors
/// A line for the user.
pub fn keep(graph: &NetworkGraph) -> Result<PathBuf, String> {
    cost_model::keep(path(), graph_file::write(graph).as_bytes())
        .map_err(|error| format!("cannot keep the network: {error}"))
}
