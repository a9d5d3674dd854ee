//! What has changed between two graphs of one network.

use std::collections::BTreeMap;
use std::fmt;

use crate::graph::{Link, NetworkGraph, VertexKind, rate};

/// Share of an earlier nominal rate below which a link is slower. Nominal rates are exact.
const NOMINAL: f64 = 0.99;
/// Share of an earlier measured figure below which a link is slower: one run differs from the next.
const MEASURED: f64 = 0.67;

/// A change.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A host or switch is not there any more.
    Gone(VertexKind, String),
    /// A host or switch was not there.
    New(VertexKind, String),
    /// A link is not there any more, between two that are.
    LinkGone(Link),
    /// A link was not there, between two that were.
    LinkNew(Link),
    /// A link has another rate; the earlier one, in megabytes in a second, stands first.
    Rate(Link, f64, f64),
    /// A link has another latency; the earlier one, in microseconds, stands first.
    Latency(Link, f64, f64),
}

impl Change {
    /// Whether something is worse than before.
    pub fn is_worse(&self) -> bool {
        match self {
            Self::Gone(..) | Self::LinkGone(_) => true,
            Self::New(..) | Self::LinkNew(_) => false,
            Self::Rate(_, before, now) => now < before,
            Self::Latency(_, before, now) => now > before,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ends = |link: &Link| format!("link {} - {}", link.one, link.other);
        match self {
            Self::Gone(kind, name) => write!(f, "{} {name} has disappeared", kind.word()),
            Self::New(kind, name) => write!(f, "{} {name} is new", kind.word()),
            Self::LinkGone(link) => write!(f, "{} has disappeared", ends(link)),
            Self::LinkNew(link) => write!(f, "{} is new", ends(link)),
            Self::Rate(link, before, now) => {
                let verb = if now < before { "fell" } else { "rose" };
                let (before, now) = (rate(*before), rate(*now));
                write!(f, "{} {verb} from {before} to {now}", ends(link))
            }
            Self::Latency(link, before, now) => {
                let verb = if now > before { "rose" } else { "fell" };
                write!(
                    f,
                    "{}: latency {verb} from {before:.1} to {now:.1} us",
                    ends(link)
                )
            }
        }
    }
}

/// Compares two graphs; what disappeared or became slower stands first.
pub fn between(before: &NetworkGraph, now: &NetworkGraph) -> Vec<Change> {
    let mut changes = Vec::new();
    for (name, kind) in before.vertices() {
        if now.kind(name) != Some(kind) {
            changes.push(Change::Gone(kind, name.to_owned()));
        }
    }
    for (name, kind) in now.vertices() {
        if before.kind(name) != Some(kind) {
            changes.push(Change::New(kind, name.to_owned()));
        }
    }
    let stays = |link: &Link| {
        let same = |name: &str| before.kind(name).is_some() && before.kind(name) == now.kind(name);
        same(&link.one.name) && same(&link.other.name)
    };
    let (mut old, new) = (by_ends(before), by_ends(now));
    for (ends, cables) in new {
        let mut earlier = old.remove(&ends).unwrap_or_default();
        let mut unknown = Vec::new();
        // Cables of the same ports first: those without ports take what is left.
        for cable in cables {
            let same = |old: &&Link| old.one == cable.one && old.other == cable.other;
            match earlier.iter().position(same) {
                Some(at) => compare(earlier.remove(at), cable, &mut changes),
                None => unknown.push(cable),
            }
        }
        for cable in unknown {
            match earlier.iter().position(|old| old.may_be(cable)) {
                Some(at) => compare(earlier.remove(at), cable, &mut changes),
                None if stays(cable) => changes.push(Change::LinkNew(cable.clone())),
                None => {}
            }
        }
        let gone = earlier.into_iter().filter(|link| stays(link));
        changes.extend(gone.cloned().map(Change::LinkGone));
    }
    let gone = old.into_values().flatten().filter(|link| stays(link));
    changes.extend(gone.cloned().map(Change::LinkGone));
    changes.sort_by_key(|change| !change.is_worse());
    changes
}

/// The cables between each two vertices.
fn by_ends(graph: &NetworkGraph) -> BTreeMap<(&str, &str), Vec<&Link>> {
    let mut all: BTreeMap<(&str, &str), Vec<&Link>> = BTreeMap::new();
    for link in graph.links() {
        let ends = (link.one.name.as_str(), link.other.name.as_str());
        all.entry(ends).or_default().push(link);
    }
    all
}

fn compare(before: &Link, now: &Link, changes: &mut Vec<Change>) {
    let least = match before.measured || now.measured {
        true => MEASURED,
        false => NOMINAL,
    };
    let differs = |(before, now): &(f64, f64)| before.min(*now) < before.max(*now) * least;
    // A nominal rate says nothing about a measured one.
    if before.measured != now.measured {
        return;
    }
    if let Some((old, new)) = before.mb_per_s.zip(now.mb_per_s).filter(differs) {
        changes.push(Change::Rate(now.clone(), old, new));
    }
    if let Some((old, new)) = before.latency_us.zip(now.latency_us).filter(differs) {
        changes.push(Change::Latency(now.clone(), old, new));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::LinkEnd;

    fn graph(links: &[(&str, &str, Option<&str>, f64)]) -> NetworkGraph {
        let mut graph = NetworkGraph::new();
        for (one, other, port, rate) in links {
            for name in [one, other] {
                let kind = match name.starts_with('s') {
                    true => VertexKind::Switch,
                    false => VertexKind::Host,
                };
                graph.add(name, kind).unwrap();
            }
            let ends = (
                LinkEnd::new(*one, None),
                LinkEnd::new(*other, port.map(str::to_owned)),
            );
            let link = Link::between(ends.0, ends.1).at_rate(Some(*rate));
            graph.connect(link).unwrap();
        }
        graph
    }

    fn told(before: &NetworkGraph, now: &NetworkGraph) -> Vec<String> {
        between(before, now).iter().map(Change::to_string).collect()
    }

    #[test]
    fn what_disappeared_and_what_became_slower_is_told_first() {
        let before = graph(&[
            ("a", "s1", Some("1"), 1250.0),
            ("b", "s1", Some("2"), 1250.0),
            ("c", "s1", Some("3"), 125.0),
        ]);
        let now = graph(&[
            ("a", "s1", Some("1"), 125.0),
            ("c", "s1", Some("3"), 1250.0),
            ("d", "s1", Some("2"), 1250.0),
        ]);
        assert_eq!(told(&before, &before), Vec::<String>::new());
        assert_eq!(
            told(&before, &now),
            [
                "host b has disappeared",
                "link a - s1 (1) fell from 10 Gbit/s to 1.0 Gbit/s",
                "host d is new",
                "link c - s1 (3) rose from 1.0 Gbit/s to 10 Gbit/s",
            ]
        );
    }

    #[test]
    fn one_of_two_cables_that_is_pulled_is_told() {
        let both = graph(&[("s1", "s2", Some("1"), 1.0), ("s1", "s2", Some("2"), 1.0)]);
        let one = graph(&[("s1", "s2", Some("2"), 1.0)]);
        assert_eq!(told(&both, &one), ["link s1 - s2 (1) has disappeared"]);
        assert_eq!(told(&one, &both), ["link s1 - s2 (1) is new"]);
        let portless = graph(&[("s1", "s2", None, 1.0)]);
        assert_eq!(told(&portless, &one), Vec::<String>::new());
    }
}
