//! A network as boxes within boxes: a switch around the switches and hosts below it.

use garonne_network_graph::graph::rate;
use garonne_network_graph::tree::{self, TreeVertex};
use garonne_network_graph::{NetworkGraph, VertexKind};

use crate::commands::map::machine::{MachineMap, MachineObject, ObjectClass};

/// Switches above each other that are drawn: boxes of more would be frames without a middle.
const DEPTH_MAX: usize = 32;

/// The network as an object for drawing.
///
/// # Errors
/// A line for the user: it is too deep to be drawn.
pub fn drawn(graph: &NetworkGraph) -> Result<MachineMap, String> {
    let all = tree::trees(graph);
    if let Some(deep) = all.iter().find(|vertex| vertex.depth > DEPTH_MAX) {
        return Err(format!(
            "'{}' is below {} switches; at most {DEPTH_MAX} are drawn",
            deep.name, deep.depth
        ));
    }
    let mut objects: Vec<MachineObject> = all.iter().map(object).collect();
    let mut roots = Vec::new();
    // From the last on: what is below a vertex stands behind it.
    for (at, vertex) in all.iter().enumerate().rev() {
        let mut done = std::mem::take(&mut objects[at]);
        done.children.reverse();
        match vertex.above {
            Some(above) => objects[above].children.push(done),
            None => roots.push(done),
        }
    }
    roots.reverse();
    let root = match roots.len() {
        1 => roots.remove(0),
        _ => MachineObject {
            kind: "Network".into(),
            class: ObjectClass::Switch,
            title: "network".into(),
            label: "network, in parts that no known link joins".into(),
            children: roots,
            ..MachineObject::default()
        },
    };
    Ok(MachineMap {
        root,
        ..MachineMap::default()
    })
}

fn object(vertex: &TreeVertex<'_>) -> MachineObject {
    let class = match vertex.kind {
        VertexKind::Host => ObjectClass::Group,
        VertexKind::Switch => ObjectClass::Switch,
    };
    let up = vertex.mb_per_s.map(|value| format!(", {}", rate(value)));
    let label = format!(
        "{} {}{}",
        vertex.kind.word(),
        vertex.name,
        up.unwrap_or_default()
    );
    MachineObject {
        kind: vertex.kind.word().into(),
        class,
        title: label.clone(),
        label,
        ..MachineObject::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_network_graph::slurm;

    #[test]
    fn hosts_are_in_the_boxes_of_their_switches() {
        let text = "SwitchName=top Switches=s[1-2] LinkSpeed=10G\nSwitchName=s1 Nodes=n[1-2]\nSwitchName=s2 Nodes=n3\n";
        let root = drawn(&slurm::read(text).unwrap()).unwrap().root;
        assert_eq!(root.label, "switch top");
        let inside = |object: &MachineObject| {
            let labels = object.children.iter().map(|child| child.label.clone());
            labels.collect::<Vec<_>>()
        };
        assert_eq!(
            inside(&root),
            ["switch s1, 10 Gbit/s", "switch s2, 10 Gbit/s"]
        );
        assert_eq!(inside(&root.children[0]), ["host n1", "host n2"]);
    }

    #[test]
    fn chains_without_end_are_refused() {
        let line = |at: usize| format!("SwitchName=s{at} Switches=s{}\n", at + 1);
        let chain: String = (0..200).map(line).collect();
        let graph = slurm::read(&(chain + "SwitchName=s200 Nodes=n1\n")).unwrap();
        assert!(drawn(&graph).unwrap_err().contains("at most"));
    }
}
