//! A graph as a tree: for the eye, and for collectives, which want to know who shares a switch.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use crate::graph::{NetworkGraph, VertexKind, rate};

/// Steps of indentation at most: a chain of switches must not fill lines with blanks.
const DEPTH_MAX: usize = 24;
/// Hosts that are named in a line.
const NAMED_MAX: usize = 16;

/// A vertex of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct TreeVertex<'a> {
    /// Name.
    pub name: &'a str,
    /// What it is.
    pub kind: VertexKind,
    /// Vertex above, by its place among all; `None`: a root.
    pub above: Option<usize>,
    /// Rate of the link upwards, in megabytes in a second.
    pub mb_per_s: Option<f64>,
    /// Number of vertices above.
    pub depth: usize,
}

type Neighbours<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Option<f64>>>;

/// The trees of a graph, one for each part that hangs together: each in breadth, from the switch in
/// its middle. A vertex stands behind the one above it. Links beside the trees are left out.
pub fn trees(graph: &NetworkGraph) -> Vec<TreeVertex<'_>> {
    let neighbours = graph.neighbours();
    let mut all: Vec<TreeVertex<'_>> = Vec::new();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for start in neighbours.keys() {
        if seen.contains(start) {
            continue;
        }
        let root = middle(start, &neighbours, graph);
        seen.insert(root);
        let mut at = all.len();
        all.push(TreeVertex {
            name: root,
            kind: graph.kind(root).unwrap_or(VertexKind::Host),
            above: None,
            mb_per_s: None,
            depth: 0,
        });
        while let Some(vertex) = all.get(at).cloned() {
            for (name, mb_per_s) in &neighbours[vertex.name] {
                if seen.insert(name) {
                    all.push(TreeVertex {
                        name,
                        kind: graph.kind(name).unwrap_or(VertexKind::Host),
                        above: Some(at),
                        mb_per_s: *mb_per_s,
                        depth: vertex.depth + 1,
                    });
                }
            }
            at += 1;
        }
    }
    all
}

/// The switch in the middle of the longest way that two sweeps find; a host where there is none.
fn middle<'a>(start: &'a str, neighbours: &Neighbours<'a>, graph: &NetworkGraph) -> &'a str {
    let (far, _) = sweep(start, neighbours);
    let (end, before) = sweep(far, neighbours);
    let mut way = vec![end];
    while let Some(next) = way.last().and_then(|at| before.get(at)) {
        way.push(next);
    }
    let is_switch = |name: &&&str| graph.kind(name) == Some(VertexKind::Switch);
    let half = way.len() / 2;
    let near = way[half..].iter().find(is_switch);
    near.or_else(|| way[..half].iter().rfind(is_switch))
        .unwrap_or(&way[half])
}

/// A vertex farthest from `start`, and the vertex before each on its way.
fn sweep<'a>(start: &'a str, neighbours: &Neighbours<'a>) -> (&'a str, HashMap<&'a str, &'a str>) {
    let mut before = HashMap::new();
    let mut open = VecDeque::from([start]);
    let mut last = start;
    while let Some(at) = open.pop_front() {
        last = at;
        for name in neighbours[at].keys() {
            if *name != start && !before.contains_key(name) {
                before.insert(*name, at);
                open.push_back(name);
            }
        }
    }
    (last, before)
}

/// A graph as text: a line for each switch, and one for its hosts of one rate.
pub fn text(graph: &NetworkGraph) -> String {
    let all = trees(graph);
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (at, vertex) in all.iter().enumerate() {
        if let Some(above) = vertex.above {
            below[above].push(at);
        }
    }
    let mut text = String::new();
    let roots = (0..all.len()).filter(|at| all[*at].above.is_none());
    let mut open: Vec<usize> = roots.collect();
    open.reverse();
    while let Some(at) = open.pop() {
        let vertex = &all[at];
        let indent = |depth: usize| "  ".repeat(depth.min(DEPTH_MAX));
        let told = |mb_per_s: Option<f64>| {
            mb_per_s.map_or(String::new(), |value| format!(", {}", rate(value)))
        };
        text += &format!(
            "{}{} {}{}\n",
            indent(vertex.depth),
            vertex.kind.word(),
            vertex.name,
            told(vertex.mb_per_s)
        );
        let is_leaf = |at: &usize| all[*at].kind == VertexKind::Host && below[*at].is_empty();
        let (hosts, others): (Vec<usize>, Vec<usize>) =
            below[at].iter().copied().partition(is_leaf);
        let mut by_rate: Vec<(Option<f64>, Vec<&str>)> = Vec::new();
        for host in hosts {
            let (mb_per_s, name) = (all[host].mb_per_s, all[host].name);
            match by_rate
                .iter_mut()
                .find(|(known, _)| told(*known) == told(mb_per_s))
            {
                Some((_, names)) => names.push(name),
                None => by_rate.push((mb_per_s, vec![name])),
            }
        }
        for (mb_per_s, names) in by_rate {
            let indent = indent(vertex.depth + 1);
            let word = if names.len() == 1 { "host" } else { "hosts" };
            let shown = names[..names.len().min(NAMED_MAX)].join(" ");
            let more = match names.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            let each = if names.len() > 1 && mb_per_s.is_some() {
                " each"
            } else {
                ""
            };
            text += &format!("{indent}{word} {shown}{more}{}{each}\n", told(mb_per_s));
        }
        open.extend(others.into_iter().rev());
    }
    let in_trees = all.iter().filter(|vertex| vertex.above.is_some()).count();
    let pairs: usize = graph
        .neighbours()
        .values()
        .map(BTreeMap::len)
        .sum::<usize>()
        / 2;
    match pairs - in_trees {
        0 => {}
        1 => text += "1 further link between them\n",
        more => text += &format!("{more} further links between them\n"),
    }
    text
}

/// Which hosts of a job share a switch, and how data go from switch to switch.
///
/// A group has the hosts below one switch. Groups form a tree that follows the links, so that data
/// handed on along the tree cross each link between switches once in each direction. Where several
/// groups hang on a switch without hosts, they form a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGroups {
    /// The group of each host.
    pub group_of: Vec<u32>,
    /// The group above each group; `None`: the first.
    pub above: Vec<Option<u32>>,
}

/// The groups of these hosts. `None`: a host is not in the graph, hosts do not hang together, or
/// the network makes no difference between them.
///
/// A switch whose way up carries all that its hosts can send belongs to the group above: what stays
/// below such a switch is no quicker. Ways of unknown rates count as narrow.
pub fn host_groups(graph: &NetworkGraph, hosts: &[&str]) -> Option<HostGroups> {
    let all = trees(graph);
    let place: HashMap<&str, usize> = all
        .iter()
        .enumerate()
        .map(|(at, vertex)| (vertex.name, at))
        .collect();
    let spots: Vec<usize> = hosts
        .iter()
        .map(|host| {
            place
                .get(host)
                .copied()
                .filter(|at| all[*at].kind == VertexKind::Host)
        })
        .collect::<Option<_>>()?;
    let merged = merged_switches(&all);
    let root_of = |mut at: usize| {
        while let Some(above) = all[at].above {
            at = above;
        }
        at
    };
    let first = root_of(*spots.first()?);
    if spots.iter().any(|at| root_of(*at) != first) {
        return None;
    }
    // Group of each switch with hosts of the job, by its place in the tree.
    let mut numbers: HashMap<usize, u32> = HashMap::new();
    let group_of: Vec<u32> = spots
        .iter()
        .map(|at| {
            let switch = merged[all[*at].above.unwrap_or(*at)];
            let next = numbers.len() as u32;
            *numbers.entry(switch).or_insert(next)
        })
        .collect();
    if numbers.len() < 2 {
        return None;
    }
    let mut above = vec![None; numbers.len()];
    // For each switch the group through which its part of the tree is reached, from below.
    let mut entry: Vec<Option<u32>> = vec![None; all.len()];
    // Last group of the chain below a switch without hosts.
    let mut chain: Vec<Option<u32>> = vec![None; all.len()];
    for (at, vertex) in all.iter().enumerate().rev() {
        if merged[at] != at {
            continue;
        }
        let own = numbers.get(&at).copied();
        if own.is_some() {
            entry[at] = own;
        }
        let (Some(group), Some(up)) = (entry[at], vertex.above) else {
            continue;
        };
        let up = merged[up];
        match numbers.get(&up) {
            Some(hub) => above[group as usize] = Some(*hub),
            None => {
                match chain[up] {
                    Some(last) => above[group as usize] = Some(last),
                    None => entry[up] = Some(group),
                }
                chain[up] = Some(group);
            }
        }
    }
    Some(HostGroups { group_of, above })
}

/// For each vertex the switch to which its hosts count: itself, or one above it.
fn merged_switches(all: &[TreeVertex<'_>]) -> Vec<usize> {
    // What the hosts below can send at once; `None`: not known.
    let mut below = vec![Some(0.0); all.len()];
    for (at, vertex) in all.iter().enumerate().rev() {
        let Some(above) = vertex.above else { continue };
        let sends = match vertex.kind {
            VertexKind::Host => vertex.mb_per_s,
            VertexKind::Switch => below[at],
        };
        below[above] = below[above]
            .zip(sends)
            .map(|(sum, more): (f64, f64)| sum + more);
    }
    let mut merged: Vec<usize> = (0..all.len()).collect();
    for (at, vertex) in all.iter().enumerate() {
        let Some(above) = vertex.above else { continue };
        let is_wide = vertex
            .mb_per_s
            .zip(below[at])
            .is_some_and(|(up, sum)| up >= sum);
        if vertex.kind == VertexKind::Switch && is_wide {
            merged[at] = merged[above];
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slurm;
    use proptest::prelude::*;

    const FOUR: &str = "SwitchName=top Switches=s[1-3] Nodes=n[1-2] LinkSpeed=10G\n\
        SwitchName=s1 Nodes=n[3-4] LinkSpeed=10G\nSwitchName=s2 Nodes=n[5-6]\nSwitchName=s3 Nodes=n[7-8]\n";

    fn groups(text: &str, hosts: &[&str]) -> Option<(Vec<u32>, Vec<Option<u32>>)> {
        host_groups(&slurm::read(text).unwrap(), hosts)
            .map(|groups| (groups.group_of, groups.above))
    }

    #[test]
    fn the_middle_is_on_top_and_equal_hosts_share_a_line() {
        let text = text(&slurm::read(FOUR).unwrap());
        assert_eq!(
            text,
            "switch top\n  hosts n1 n2, 10 Gbit/s each\n  switch s1, 10 Gbit/s\n    hosts n3 n4, 10 Gbit/s each\n  \
             switch s2, 10 Gbit/s\n    hosts n5 n6\n  switch s3, 10 Gbit/s\n    hosts n7 n8\n"
        );
    }

    #[test]
    fn groups_hang_on_the_group_of_the_switch_above() {
        let hosts = ["n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"];
        let expected = (
            vec![0, 0, 1, 1, 2, 2, 3, 3],
            vec![None, Some(0), Some(0), Some(0)],
        );
        assert_eq!(groups(FOUR, &hosts), Some(expected));
        // In any order, and in a chain without hosts at the top.
        let (group_of, above) = groups(FOUR, &["n8", "n3", "n6", "n7"]).unwrap();
        assert_eq!(group_of, [0, 1, 2, 0]);
        let mut uppers: Vec<Option<u32>> = above.clone();
        uppers.sort_unstable();
        uppers.dedup();
        assert_eq!(uppers.len(), 3, "{above:?}");
    }

    #[test]
    fn who_shares_a_switch_or_is_unknown_has_no_groups() {
        assert_eq!(groups(FOUR, &["n3", "n4"]), None);
        assert_eq!(groups(FOUR, &["n3", "n5", "n9"]), None);
        assert_eq!(groups(FOUR, &["n3", "s2"]), None);
        assert_eq!(groups(FOUR, &[]), None);
        let apart = "SwitchName=a Nodes=n1\nSwitchName=b Nodes=n2";
        assert_eq!(groups(apart, &["n1", "n2"]), None);
    }

    #[test]
    fn a_wide_way_up_makes_no_group() {
        let fat = "SwitchName=top Switches=s[1-2] LinkSpeed=40G\nSwitchName=s1 Nodes=n[1-4] LinkSpeed=10G\n\
            SwitchName=s2 Nodes=n[5-8] LinkSpeed=10G\n";
        assert_eq!(groups(fat, &["n1", "n5"]), None);
        let narrow = fat.replace("40G", "20G");
        assert!(groups(&narrow, &["n1", "n5"]).is_some());
    }

    #[test]
    fn links_beside_the_tree_are_counted() {
        let mut graph = slurm::read(FOUR).unwrap();
        let end = |name: &str| crate::graph::LinkEnd::new(name, None);
        graph
            .connect(crate::graph::Link::between(end("s1"), end("s2")))
            .unwrap();
        assert!(text(&graph).ends_with("1 further link between them\n"));
    }

    proptest! {
        #[test]
        fn groups_are_one_tree(uppers in proptest::collection::vec(0usize..8, 1..12), hosts in proptest::collection::vec(0usize..12, 1..12)) {
            use crate::graph::{Link, LinkEnd};
            let mut graph = NetworkGraph::new();
            graph.add("s0", VertexKind::Switch).unwrap();
            let end = |name: String| LinkEnd::new(name, None);
            for (at, upper) in uppers.iter().enumerate() {
                graph.add(&format!("s{}", at + 1), VertexKind::Switch).unwrap();
                let link = Link::between(end(format!("s{}", at + 1)), end(format!("s{}", upper % (at + 1))));
                graph.connect(link).unwrap();
            }
            let names: Vec<String> = (0..hosts.len()).map(|at| format!("n{at}")).collect();
            for (name, switch) in names.iter().zip(&hosts) {
                graph.add(name, VertexKind::Host).unwrap();
                let link = Link::between(end(name.clone()), end(format!("s{}", switch % (uppers.len() + 1))));
                graph.connect(link).unwrap();
            }
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            if let Some(groups) = host_groups(&graph, &names) {
                let roots = groups.above.iter().filter(|above| above.is_none()).count();
                prop_assert_eq!(roots, 1);
                for group in 0..groups.above.len() {
                    let (mut at, mut steps) = (group as u32, 0);
                    while let Some(above) = groups.above[at as usize] {
                        at = above;
                        steps += 1;
                        prop_assert!(steps <= groups.above.len());
                    }
                }
            }
            prop_assert!(!text(&graph).is_empty());
        }
    }
}
