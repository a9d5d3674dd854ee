//! The topology of a network: hosts, switches and links between them, as a graph.
//!
//! [`graph`] has the values. Each source of a graph has a module: [`lldp`] decodes frames of
//! IEEE 802.1AB, [`slurm`] reads Slurm's `topology.conf`, [`infiniband`] reads what `ibnetdiscover`
//! prints, and [`measured`] clusters a matrix of latencies and bandwidths. [`graph_file`] is the
//! file in which a graph is stored, [`changes`] compares two graphs, and [`tree`] shows a graph as
//! a tree and says which hosts share a switch.
//!
//! Everything is a pure function. Input is text or bytes that anybody may have written: it is
//! refused with the reason, and never trusted.

#![forbid(unsafe_code)]

pub mod changes;
pub mod graph;
pub mod graph_file;
pub mod infiniband;
pub mod limits;
pub mod lldp;
pub mod measured;
pub mod slurm;
pub mod slurm_hostlist;
pub mod tree;

pub use graph::{GraphError, Link, LinkEnd, NetworkGraph, VertexKind};

/// Reads any bytes as each kind of input, and shows what was understood: neighbours and files are
/// not trusted.
pub fn read_anything(bytes: &[u8]) {
    let told = lldp::frame(bytes).into_iter().chain(lldp::data_unit(bytes));
    told.for_each(|neighbour| assert!(!neighbour.name().contains(char::is_control)));
    let text = String::from_utf8_lossy(bytes);
    let of_matrix = || measured::graph(&measured::MeasuredMatrix::read(bytes).ok()?).ok();
    let graphs = [
        slurm::read(&text).ok(),
        infiniband::read(&text).ok(),
        graph_file::read(bytes).ok(),
        of_matrix(),
    ];
    for graph in graphs.into_iter().flatten() {
        let hosts: Vec<&str> = graph.hosts().collect();
        let groups = tree::host_groups(&graph, &hosts);
        assert!(groups.is_none_or(|groups| groups.group_of.len() == hosts.len()));
        assert!(!tree::text(&graph).is_empty() || graph.vertices().next().is_none());
        let again = graph_file::read(graph_file::write(&graph).as_bytes());
        assert!(again.is_ok_and(|again| changes::between(&graph, &again).is_empty()));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn kept_inputs_of_the_fuzz_target_do_no_harm() {
        let seeds = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../fuzz/seeds/network_graph"
        );
        let mut count = 0;
        for entry in std::fs::read_dir(seeds).unwrap() {
            super::read_anything(&std::fs::read(entry.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count >= 5, "{count} inputs");
    }
}
