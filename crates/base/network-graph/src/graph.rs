//! A graph of hosts and switches.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::limits::{LINKS_MAX, NAME_MAX, VERTICES_MAX};

/// What a vertex of the graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VertexKind {
    /// A machine that runs ranks.
    Host,
    /// A switch, a bridge or a router; also a group of hosts that was found by measuring.
    Switch,
}

impl VertexKind {
    /// The word for the user.
    pub fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Switch => "switch",
        }
    }
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LinkEnd {
    /// Name of the host or switch.
    pub name: String,
    /// Port or interface there, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
}

impl LinkEnd {
    /// An end with its port, where that is known.
    pub fn new(name: impl Into<String>, port: Option<String>) -> Self {
        Self {
            name: name.into(),
            port,
        }
    }
}

impl std::fmt::Display for LinkEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.port {
            None => f.write_str(&self.name),
            Some(port) => write!(f, "{} ({port})", self.name),
        }
    }
}

/// A link between two vertices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The end whose name comes first in the alphabet.
    pub one: LinkEnd,
    /// The other end.
    pub other: LinkEnd,
    /// Megabytes in a second and direction, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mb_per_s: Option<f64>,
    /// Microseconds one way, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// The figures were measured, and are no nominal ones.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
}

impl Link {
    /// A link of which only the ends are known, in the order of their names.
    pub fn between(one: LinkEnd, other: LinkEnd) -> Self {
        let (one, other) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        Self {
            one,
            other,
            mb_per_s: None,
            latency_us: None,
            measured: false,
        }
    }

    /// Sets the rate.
    pub fn at_rate(mut self, mb_per_s: Option<f64>) -> Self {
        self.mb_per_s = mb_per_s;
        self
    }

    /// The vertex at the other end than `name`.
    pub fn opposite(&self, name: &str) -> &str {
        match self.one.name == name {
            true => &self.other.name,
            false => &self.one.name,
        }
    }

    /// Whether this may be the same cable as another one: same vertices, and no port that differs.
    pub(crate) fn may_be(&self, other: &Self) -> bool {
        let end = |a: &LinkEnd, b: &LinkEnd| {
            a.name == b.name && (a.port.is_none() || b.port.is_none() || a.port == b.port)
        };
        end(&self.one, &other.one) && end(&self.other, &other.other)
    }

    /// Takes from another description of the same cable what is not known here.
    fn complete(&mut self, other: Self) {
        let fill = |own: &mut LinkEnd, port| own.port = own.port.take().or(port);
        fill(&mut self.one, other.one.port);
        fill(&mut self.other, other.other.port);
        if self.mb_per_s.is_none() {
            self.measured = other.measured;
        }
        self.mb_per_s = self.mb_per_s.or(other.mb_per_s);
        self.latency_us = self.latency_us.or(other.latency_us);
    }
}

/// Reason why a graph is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum GraphError {
    /// A name that is empty, too long, or has characters that no terminal should see.
    #[error("{0:?} is no name of a host or switch")]
    Name(String),
    /// One name stands for two things.
    #[error("'{0}' is a host in one place and a switch in another")]
    Kinds(String),
    /// A link from a vertex to itself.
    #[error("a link leads from '{0}' to itself")]
    Loop(String),
    /// A link to what is not in the graph.
    #[error("a link leads to '{0}', which is neither a host nor a switch of the graph")]
    Unknown(String),
    /// A rate or latency that cannot be.
    #[error("the link between '{one}' and '{other}' has the {what} {value}")]
    Figure {
        /// One end.
        one: String,
        /// The other end.
        other: String,
        /// Name of the figure.
        what: &'static str,
        /// The figure, as text.
        value: String,
    },
    /// More than anybody has.
    #[error("more than {0} {1}")]
    TooMany(usize, &'static str),
}

/// Hosts, switches and the links between them.
///
/// Names are unique. Every link joins two vertices of the graph, and every figure of it is finite
/// and positive. Links are in the order of their ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkGraph {
    vertices: BTreeMap<String, VertexKind>,
    links: Vec<Link>,
}

impl NetworkGraph {
    /// An empty graph.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names and kinds, in the order of names.
    pub fn vertices(&self) -> impl Iterator<Item = (&str, VertexKind)> {
        self.vertices
            .iter()
            .map(|(name, kind)| (name.as_str(), *kind))
    }

    /// The names of all hosts.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.of_kind(VertexKind::Host)
    }

    /// The names of all switches.
    pub fn switches(&self) -> impl Iterator<Item = &str> {
        self.of_kind(VertexKind::Switch)
    }

    fn of_kind(&self, wanted: VertexKind) -> impl Iterator<Item = &str> {
        let all = self.vertices();
        all.filter_map(move |(name, kind)| (kind == wanted).then_some(name))
    }

    /// What a name stands for.
    pub fn kind(&self, name: &str) -> Option<VertexKind> {
        self.vertices.get(name).copied()
    }

    /// All links.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    /// Adds a host or switch, unless it is there.
    ///
    /// # Errors
    /// A bad name, or one that stands for something else.
    pub fn add(&mut self, name: &str, kind: VertexKind) -> Result<(), GraphError> {
        let printable = name.chars().all(|letter| !letter.is_control());
        if name.trim() != name || name.is_empty() || name.len() > NAME_MAX || !printable {
            return Err(GraphError::Name(name.chars().take(NAME_MAX).collect()));
        }
        match self.vertices.get(name) {
            Some(known) if *known == kind => Ok(()),
            Some(_) => Err(GraphError::Kinds(name.to_owned())),
            None if self.vertices.len() == VERTICES_MAX => {
                Err(GraphError::TooMany(VERTICES_MAX, "hosts and switches"))
            }
            None => {
                self.vertices.insert(name.to_owned(), kind);
                Ok(())
            }
        }
    }

    /// Adds a link. What is known of a link that may be the same cable is completed.
    ///
    /// # Errors
    /// Ends that are not in the graph or equal; figures that cannot be.
    pub fn connect(&mut self, link: Link) -> Result<(), GraphError> {
        self.connect_all(vec![link])
    }

    /// Adds many links, as [`connect`](Self::connect) does one.
    ///
    /// # Errors
    /// Of the first link that is refused; no link is added then.
    pub fn connect_all(&mut self, links: Vec<Link>) -> Result<(), GraphError> {
        for link in &links {
            self.check(link)?;
        }
        if self.links.len() + links.len() > LINKS_MAX {
            return Err(GraphError::TooMany(LINKS_MAX, "links"));
        }
        // Cables between the same two vertices, which are few.
        let mut between: BTreeMap<(String, String), Vec<Link>> = BTreeMap::new();
        for link in self.links.drain(..).chain(links) {
            let ends = (link.one.name.clone(), link.other.name.clone());
            let cables = between.entry(ends).or_default();
            match cables.iter_mut().find(|cable| cable.may_be(&link)) {
                Some(cable) => cable.complete(link),
                None => cables.push(link),
            }
        }
        self.links = between.into_values().flatten().collect();
        let ends = |link: &Link| (link.one.clone(), link.other.clone());
        self.links.sort_by_key(ends);
        Ok(())
    }

    fn check(&self, link: &Link) -> Result<(), GraphError> {
        let (one, other) = (&link.one.name, &link.other.name);
        for name in [one, other] {
            if !self.vertices.contains_key(name) {
                return Err(GraphError::Unknown(name.clone()));
            }
        }
        if one == other {
            return Err(GraphError::Loop(one.clone()));
        }
        for (what, value) in [("rate", link.mb_per_s), ("latency", link.latency_us)] {
            if let Some(value) = value.filter(|value| !value.is_finite() || *value <= 0.0) {
                return Err(GraphError::Figure {
                    one: one.clone(),
                    other: other.clone(),
                    what,
                    value: value.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Adds all of another graph, as another source of the same network tells.
    ///
    /// # Errors
    /// The graphs contradict each other.
    pub fn merge(&mut self, other: Self) -> Result<(), GraphError> {
        for (name, kind) in &other.vertices {
            self.add(name, *kind)?;
        }
        self.connect_all(other.links)
    }

    /// The neighbours of each vertex, with the sum of the rates that lead there. A rate is unknown
    /// if that of one cable is.
    pub fn neighbours(&self) -> BTreeMap<&str, BTreeMap<&str, Option<f64>>> {
        let mut all: BTreeMap<&str, BTreeMap<&str, Option<f64>>> = self
            .vertices
            .keys()
            .map(|name| (name.as_str(), BTreeMap::new()))
            .collect();
        for link in &self.links {
            let (one, other) = (link.one.name.as_str(), link.other.name.as_str());
            for (from, to) in [(one, other), (other, one)] {
                let rate = all.entry(from).or_default().entry(to).or_insert(Some(0.0));
                *rate = rate.zip(link.mb_per_s).map(|(sum, more)| sum + more);
            }
        }
        all
    }
}

/// A rate in the words of network engineers.
pub fn rate(mb_per_s: f64) -> String {
    let gbit = mb_per_s * 8.0 / 1000.0;
    match gbit {
        _ if gbit >= 9.95 => format!("{gbit:.0} Gbit/s"),
        _ if gbit >= 0.995 => format!("{gbit:.1} Gbit/s"),
        _ => format!("{:.0} Mbit/s", gbit * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(name: &str, port: Option<&str>) -> LinkEnd {
        LinkEnd::new(name, port.map(str::to_owned))
    }

    fn pair() -> NetworkGraph {
        let mut graph = NetworkGraph::new();
        graph.add("node1", VertexKind::Host).unwrap();
        graph.add("leaf1", VertexKind::Switch).unwrap();
        graph
    }

    #[test]
    fn one_cable_that_two_sources_tell_of_is_one_link() {
        let mut graph = pair();
        let seen =
            |host, port, rate| Link::between(end("node1", host), end("leaf1", port)).at_rate(rate);
        graph.connect(seen(None, None, None)).unwrap();
        graph
            .connect(seen(Some("eth0"), None, Some(1250.0)))
            .unwrap();
        graph.connect(seen(None, Some("7"), None)).unwrap();
        assert_eq!(graph.links().len(), 1);
        assert_eq!(
            graph.links()[0],
            seen(Some("eth0"), Some("7"), Some(1250.0))
        );
        graph.connect(seen(Some("eth1"), Some("8"), None)).unwrap();
        assert_eq!(graph.links().len(), 2);
        assert_eq!(graph.neighbours()["node1"]["leaf1"], None);
    }

    #[test]
    fn contradictions_and_figures_that_cannot_be_are_refused() {
        let mut graph = pair();
        let kinds = graph.add("node1", VertexKind::Switch);
        assert_eq!(kinds, Err(GraphError::Kinds("node1".into())));
        for name in ["", " a", "a\nb", &"x".repeat(300)] {
            assert!(matches!(
                graph.add(name, VertexKind::Host),
                Err(GraphError::Name(_))
            ));
        }
        let link = Link::between(end("node1", None), end("leaf1", None));
        for value in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            let refused = graph.connect(link.clone().at_rate(Some(value)));
            assert!(matches!(refused, Err(GraphError::Figure { .. })), "{value}");
        }
        let unknown = Link::between(end("node1", None), end("leaf9", None));
        assert_eq!(
            graph.connect(unknown),
            Err(GraphError::Unknown("leaf9".into()))
        );
        let turned = Link::between(end("node1", None), end("node1", None));
        assert_eq!(graph.connect(turned), Err(GraphError::Loop("node1".into())));
        assert!(graph.links().is_empty());
    }

    #[test]
    fn rates_are_told_as_engineers_do() {
        assert_eq!(rate(125.0), "1.0 Gbit/s");
        assert_eq!(rate(12_500.0), "100 Gbit/s");
        assert_eq!(rate(12.5), "100 Mbit/s");
    }
}
