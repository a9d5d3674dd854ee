//! The network as measurements show it: latencies and bandwidths between hosts, clustered.
//!
//! Hosts below one switch are near each other. So the hosts are joined in the order of their
//! distances, and where the next distance is much larger than the last, what has been joined is a
//! group. Each group becomes a switch of the graph. A measurement sees neither a switch with one
//! host nor two switches that cost nothing.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::graph::{GraphError, Link, LinkEnd, NetworkGraph, VertexKind};
use crate::limits::MEASURED_MAX;

/// Bytes of the message whose time is the distance of two hosts.
const MESSAGE: f64 = 256.0 * 1024.0;
/// A distance that is so many times the last one ends a group.
const GAP: f64 = 1.6;

/// Reason why measurements are refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MatrixError {
    /// A matrix that does not belong to the hosts.
    #[error("{hosts} hosts need {hosts} rows of {hosts} figures; row {row} of '{what}' is not so")]
    Shape {
        /// Number of hosts.
        hosts: usize,
        /// Name of the matrix.
        what: &'static str,
        /// The row that is too long, too short or missing, from 0.
        row: usize,
    },
    /// A figure that cannot be.
    #[error("'{what}' from {from} to {to} is {value}; it must be a positive number")]
    Figure {
        /// Name of the matrix.
        what: &'static str,
        /// Host that sends.
        from: String,
        /// Host that receives.
        to: String,
        /// The figure, as text.
        value: String,
    },
    /// Too few or too many hosts.
    #[error("{0} hosts: between 2 and {MEASURED_MAX} can be grouped")]
    Hosts(usize),
    /// Names that cannot be.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No such matrix.
    #[error("it is no matrix of measurements: {0}")]
    Json(String),
}

/// Measurements between each two hosts; a row for each host that sends. The diagonal counts for
/// nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredMatrix {
    /// Names of the hosts.
    pub hosts: Vec<String>,
    /// Microseconds of a small message, one way.
    pub latency_us: Vec<Vec<f64>>,
    /// Megabytes in a second.
    pub mb_per_s: Vec<Vec<f64>>,
}

impl MeasuredMatrix {
    /// Reads JSON of these fields. `NaN`, `null` and the like are refused.
    ///
    /// # Errors
    /// Why it is none.
    pub fn read(bytes: &[u8]) -> Result<Self, MatrixError> {
        serde_json::from_slice(bytes).map_err(|error| MatrixError::Json(error.to_string()))
    }

    fn check(&self) -> Result<(), MatrixError> {
        let hosts = self.hosts.len();
        if !(2..=MEASURED_MAX).contains(&hosts) {
            return Err(MatrixError::Hosts(hosts));
        }
        for (what, matrix) in [
            ("latency_us", &self.latency_us),
            ("mb_per_s", &self.mb_per_s),
        ] {
            let odd = (0..hosts.max(matrix.len()))
                .find(|row| *row >= hosts || matrix.get(*row).is_none_or(|row| row.len() != hosts));
            if let Some(row) = odd {
                return Err(MatrixError::Shape { hosts, what, row });
            }
            for (from, to) in pairs(hosts).flat_map(|(a, b)| [(a, b), (b, a)]) {
                let value = matrix[from][to];
                if !value.is_finite() || value <= 0.0 {
                    return Err(MatrixError::Figure {
                        what,
                        from: self.hosts[from].clone(),
                        to: self.hosts[to].clone(),
                        value: value.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    /// The better latency of the two directions: disturbances only make it worse.
    fn latency(&self, a: usize, b: usize) -> f64 {
        self.latency_us[a][b].min(self.latency_us[b][a])
    }

    fn rate(&self, a: usize, b: usize) -> f64 {
        self.mb_per_s[a][b].max(self.mb_per_s[b][a])
    }

    /// Microseconds of a message of some size.
    fn distance(&self, a: usize, b: usize) -> f64 {
        self.latency(a, b) + MESSAGE / self.rate(a, b)
    }
}

fn pairs(hosts: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..hosts).flat_map(move |a| (a + 1..hosts).map(move |b| (a, b)))
}

/// The graph that measurements show: a switch for each group of hosts that are nearer to each other
/// than to others, and one for all.
///
/// # Errors
/// Why the measurements are none.
pub fn graph(matrix: &MeasuredMatrix) -> Result<NetworkGraph, MatrixError> {
    matrix.check()?;
    let mut graph = NetworkGraph::new();
    for name in &matrix.hosts {
        graph.add(name, VertexKind::Host)?;
        if matrix.hosts.iter().filter(|other| *other == name).count() > 1 {
            return Err(GraphError::Kinds(name.clone()).into());
        }
    }
    let joins = spanning_tree(matrix);
    let mut links = Vec::new();
    let all: Vec<usize> = (0..matrix.hosts.len()).collect();
    let mut open = vec![(String::from("group"), all)];
    while let Some((name, members)) = open.pop() {
        graph.add(&name, VertexKind::Switch)?;
        let parts = split(&joins, &members);
        let mut number = 0;
        for part in parts {
            let below = match part[..] {
                [host] => matrix.hosts[host].clone(),
                _ => {
                    number += 1;
                    format!("{name}{}{number}", if name == "group" { " " } else { "." })
                }
            };
            if let Some(link) = up_link(matrix, (&below, &part), (&name, &members)) {
                if part.len() > 1 {
                    graph.add(&below, VertexKind::Switch)?;
                }
                links.push(link);
            }
            if part.len() > 1 {
                open.push((below, part));
            }
        }
    }
    graph.connect_all(links)?;
    Ok(graph)
}

/// The link from a part of a group to the group: as quick as the best pair across it.
fn up_link(
    matrix: &MeasuredMatrix,
    (below, part): (&str, &[usize]),
    (above, members): (&str, &[usize]),
) -> Option<Link> {
    let outside = members.iter().filter(|host| !part.contains(host));
    let across = outside.flat_map(|a| part.iter().map(move |b| (*a, *b)));
    let figures = across.map(|(a, b)| (matrix.rate(a, b), matrix.latency(a, b)));
    let best = figures.reduce(|(rate, latency), (other_rate, other_latency)| {
        (rate.max(other_rate), latency.min(other_latency))
    });
    let (rate, latency) = best?;
    let ends = (LinkEnd::new(below, None), LinkEnd::new(above, None));
    let mut link = Link::between(ends.0, ends.1).at_rate(Some(rate));
    // A way between two members has two links of the group.
    link.latency_us = Some(latency / 2.0);
    link.measured = true;
    Some(link)
}

/// The joins of nearest hosts (Prim's minimum spanning tree), by rising distance.
fn spanning_tree(matrix: &MeasuredMatrix) -> Vec<(f64, usize, usize)> {
    let hosts = matrix.hosts.len();
    let mut nearest: Vec<(f64, usize)> = (0..hosts)
        .map(|host| (matrix.distance(0, host), 0))
        .collect();
    let mut joined = vec![false; hosts];
    joined[0] = true;
    let mut joins = Vec::new();
    for _ in 1..hosts {
        let free = (0..hosts).filter(|host| !joined[*host]);
        let Some(next) = free.min_by(|a, b| nearest[*a].0.total_cmp(&nearest[*b].0)) else {
            break;
        };
        joined[next] = true;
        joins.push((nearest[next].0, nearest[next].1, next));
        for host in 0..hosts {
            let distance = matrix.distance(next, host);
            if !joined[host] && distance < nearest[host].0 {
                nearest[host] = (distance, next);
            }
        }
    }
    joins.sort_by(|a, b| a.0.total_cmp(&b.0));
    joins
}

/// Parts of a group: what the joins below its largest gap have joined. All hosts alone where there
/// is no gap.
fn split(joins: &[(f64, usize, usize)], members: &[usize]) -> Vec<Vec<usize>> {
    let inside: Vec<_> = joins
        .iter()
        .filter(|(_, a, b)| members.contains(a) && members.contains(b))
        .collect();
    // The gap nearest to the top: those below it belong to the parts.
    let gap = (1..inside.len())
        .rev()
        .find(|at| inside[*at].0 >= inside[*at - 1].0 * GAP);
    let Some(gap) = gap else {
        return members.iter().map(|host| vec![*host]).collect();
    };
    let mut parts: Vec<Vec<usize>> = members.iter().map(|host| vec![*host]).collect();
    for (_, a, b) in &inside[..gap] {
        let find = |parts: &[Vec<usize>], host| parts.iter().position(|part| part.contains(host));
        if let (Some(one), Some(other)) = (find(&parts, a), find(&parts, b)) {
            let moved = parts.remove(one.max(other));
            parts[one.min(other)].extend(moved);
        }
    }
    for part in &mut parts {
        part.sort_unstable();
    }
    parts.sort_by_key(|part| part[0]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Rates by the deepest common part of the names; `noise` makes some pairs worse.
    fn matrix(
        hosts: &[&str],
        rates: &[f64],
        noise: impl Fn(usize, usize) -> f64,
    ) -> MeasuredMatrix {
        let rate = |a: usize, b: usize| {
            let same = hosts[a]
                .bytes()
                .zip(hosts[b].bytes())
                .take_while(|(a, b)| a == b);
            rates[same.count()] / noise(a, b)
        };
        let rows = |value: &dyn Fn(usize, usize) -> f64| {
            let row = |a| {
                (0..hosts.len())
                    .map(|b| if a == b { 0.0 } else { value(a, b) })
                    .collect()
            };
            (0..hosts.len()).map(row).collect()
        };
        MeasuredMatrix {
            hosts: hosts.iter().map(|name| (*name).to_owned()).collect(),
            latency_us: rows(&|a, b| 10.0 * noise(a, b)),
            mb_per_s: rows(&rate),
        }
    }

    const EIGHT: [&str; 8] = ["aa1", "aa2", "ab1", "ab2", "b1", "b2", "b3", "c"];

    fn neighbours(graph: &NetworkGraph, name: &str) -> Vec<String> {
        graph.neighbours()[name]
            .keys()
            .map(|name| (*name).to_owned())
            .collect()
    }

    #[test]
    fn groups_of_groups_are_found() {
        let graph = graph(&matrix(&EIGHT, &[10.0, 100.0, 1000.0, 1000.0], |_, _| 1.0)).unwrap();
        assert_eq!(neighbours(&graph, "group"), ["c", "group 1", "group 2"]);
        assert_eq!(
            neighbours(&graph, "group 1"),
            ["group", "group 1.1", "group 1.2"]
        );
        assert_eq!(neighbours(&graph, "group 1.2"), ["ab1", "ab2", "group 1"]);
        assert_eq!(neighbours(&graph, "group 2"), ["b1", "b2", "b3", "group"]);
        assert_eq!(graph.neighbours()["group 2"]["group"], Some(10.0));
        assert_eq!(graph.neighbours()["b1"]["group 2"], Some(100.0));
    }

    #[test]
    fn equal_hosts_are_one_group() {
        let graph = graph(&matrix(&EIGHT, &[100.0; 4], |a, b| {
            1.0 + 0.1 * ((a + b) % 3) as f64
        }))
        .unwrap();
        assert_eq!(graph.switches().collect::<Vec<_>>(), ["group"]);
        assert_eq!(graph.links().len(), 8);
    }

    #[test]
    fn figures_that_cannot_be_are_refused() {
        let good = matrix(&EIGHT, &[10.0, 100.0, 1000.0, 1000.0], |_, _| 1.0);
        for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let mut bad = good.clone();
            bad.mb_per_s[2][5] = value;
            let told = graph(&bad).unwrap_err().to_string();
            assert!(told.contains("'mb_per_s' from ab1 to b2 is"), "{told}");
        }
        let mut short = good.clone();
        short.latency_us[3].pop();
        assert!(matches!(
            graph(&short),
            Err(MatrixError::Shape { row: 3, .. })
        ));
        let mut long = good.clone();
        long.latency_us.push(Vec::new());
        assert!(matches!(
            graph(&long),
            Err(MatrixError::Shape { row: 8, .. })
        ));
        let mut twice = good;
        twice.hosts[1] = "aa1".into();
        assert!(matches!(graph(&twice), Err(MatrixError::Graph(_))));
        assert!(matches!(
            graph(&MeasuredMatrix::default()),
            Err(MatrixError::Hosts(0))
        ));
        let nan = br#"{"hosts": ["a", "b"], "latency_us": [[0, NaN], [1, 0]], "mb_per_s": [[0, 1], [1, 0]]}"#;
        assert!(matches!(
            MeasuredMatrix::read(nan),
            Err(MatrixError::Json(_))
        ));
    }

    proptest! {
        #[test]
        fn disturbed_pairs_do_not_hide_groups(bad in proptest::collection::vec((0usize..8, 0usize..8), 0..2)) {
            // One direction of a pair, or a pair whose group has others.
            let noise = |a, b| if bad.contains(&(a, b)) { 8.0 } else { 1.0 };
            let graph = graph(&matrix(&EIGHT, &[1.0, 100.0, 100.0, 100.0], noise)).unwrap();
            prop_assert!(graph.hosts().count() == 8 && graph.kind("group 1").is_some());
        }

        #[test]
        fn every_host_has_one_link(rates in proptest::collection::vec(1.0f64..1000.0, 64)) {
            let rate = |a: usize, b: usize| rates[a * 8 + b];
            let graph = graph(&matrix(&EIGHT, &[1000.0; 4], rate)).unwrap();
            for host in EIGHT {
                prop_assert_eq!(graph.neighbours()[host].len(), 1);
            }
            prop_assert_eq!(graph.links().len() + 1, graph.vertices().count());
        }
    }
}
