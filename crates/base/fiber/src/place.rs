//! Places of the machine by name: `core:3`, `L3:0`, `numa:1`, `package:0`, `machine`, `cpus:0-3`.

use crate::context::ANYWHERE;
use garonne_topology::{CpuSet, Kind, Tree};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// A place inside which a fiber runs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Place {
    /// Any worker.
    #[default]
    Machine,
    /// The area of this kind and number, in the order of their first CPUs.
    Area(Kind, usize),
    /// The smallest area that has these CPUs.
    Cpus(CpuSet),
}

impl FromStr for Place {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        if name == "machine" {
            return Ok(Self::Machine);
        }
        let (kind, number) = name.split_once(':').ok_or(())?;
        if kind == "cpus" {
            return CpuSet::parse(number)
                .filter(|cpus| !cpus.is_empty())
                .map(Self::Cpus)
                .ok_or(());
        }
        Ok(Self::Area(
            Kind::parse(kind).ok_or(())?,
            number.parse().map_err(|_| ())?,
        ))
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Machine => f.write_str("machine"),
            Self::Area(kind, number) => write!(f, "{kind}:{number}"),
            Self::Cpus(cpus) => write!(f, "cpus:{cpus:?}"),
        }
    }
}

impl Place {
    /// The area of a tree, by number; `None`: it has none, or it is the machine.
    pub fn area(&self, tree: &Tree) -> Option<usize> {
        self.on(tree).filter(|area| *area != ANYWHERE)
    }

    /// The area of the tree.
    pub(crate) fn on(&self, tree: &Tree) -> Option<usize> {
        match self {
            Self::Machine => Some(ANYWHERE),
            Self::Area(kind, number) => {
                let areas = tree.areas().iter().enumerate();
                let mut found: Vec<_> = areas
                    .filter(|(_, area)| area.kinds.contains(kind))
                    .collect();
                found.sort_by_key(|(_, area)| area.cpus.first());
                found.get(*number).map(|(area, _)| *area)
            }
            Self::Cpus(cpus) => tree.covering(cpus),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_name() {
        let tree = Tree::regular(2, 1, 2, 2);
        let area = |name: &str| name.parse::<Place>().unwrap().on(&tree);
        assert_eq!(area("machine"), Some(ANYWHERE));
        assert_eq!(area("core:3"), Some(3));
        let cpus = |name| {
            tree.areas()[area(name).unwrap()]
                .cpus
                .iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (cpus("package:1"), cpus("L3:1")),
            (vec![4, 5, 6, 7], vec![2, 3])
        );
        assert_eq!(cpus("cpus:4-5"), [4, 5]);
        assert_eq!(area("numa:7"), None);
        for wrong in ["", "core", "core:", "core:x", "sofa:1", "cpus:"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
