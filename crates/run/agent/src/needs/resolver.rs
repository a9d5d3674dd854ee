//! Finds the areas of a machine that have what groups need. Pure.
//!
//! All groups of a level are equal, and areas of one kind do not meet. So the number of groups that
//! fit into an area is a sum over the areas inside, and filling areas one after the other never
//! strands a group that another order would have placed. Areas near a wanted device come first; of
//! those alike, the one that is filled most.

use garonne_topology::CpuSet;
use garonne_topology::tree::Kind;

use super::need_machine::NeedMachine;
use super::need_text::{Need, Shared};

/// Place of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPlace {
    /// Group of the outermost level.
    pub group: u32,
    /// CPUs of the rank's cores.
    pub cpus: CpuSet,
    /// What the innermost group that shares something has in common: "L3 0-3".
    pub area: String,
    /// Device that the group is near, with its CPUs if they are known.
    pub near: Option<String>,
}

/// Cores that are still free, by core.
type FreeCores = Vec<bool>;

/// Places for `count` groups of `size` ranks, rank by rank.
///
/// # Errors
/// What this machine lacks.
pub fn resolve(
    need: &Need,
    (count, size): (u32, u32),
    machine: &NeedMachine,
) -> Result<Vec<RankPlace>, String> {
    let root = machine.tree.root();
    let mut free: FreeCores = vec![false; machine.tree.cores()];
    machine.free_cores(root).for_each(|core| free[core] = true);
    let mut resolver = Resolver {
        machine,
        cores: need.cores_of_rank() as usize,
        free,
        places: Vec::new(),
    };
    resolver.level(need, root, (count, size), None)?;
    Ok(resolver.places)
}

struct Resolver<'a> {
    machine: &'a NeedMachine,
    /// Cores of each rank.
    cores: usize,
    free: FreeCores,
    places: Vec<RankPlace>,
}

/// What is known of the groups around.
#[derive(Clone)]
struct Around {
    group: u32,
    area: String,
    near: Option<String>,
}

impl Resolver<'_> {
    /// Places `count` groups of `size` ranks within an area.
    fn level(
        &mut self,
        need: &Need,
        within: usize,
        (count, size): (u32, u32),
        around: Option<&Around>,
    ) -> Result<(), String> {
        let near = self.near(need)?;
        let mut used: Vec<usize> = Vec::new();
        for group in 0..count {
            let area = self
                .best(need, within, size, &used, near.as_ref())
                .ok_or_else(|| self.lacks(need, within, (group, count, size)))?;
            used.push(area);
            let named = match need.shared {
                None | Some(Shared::Host) => None,
                Some(shared) => Some(self.name(area, shared)),
            };
            let own = Around {
                group: around.map_or(group, |around| around.group),
                area: named
                    .or_else(|| Some(around?.area.clone()))
                    .unwrap_or_else(|| "host".into()),
                near: near
                    .as_ref()
                    .map(|(name, _)| name.clone())
                    .or_else(|| around.and_then(|around| around.near.clone())),
            };
            match &need.inside {
                Some(inside) => {
                    let (inner, count) = inside.shape(size)?;
                    self.level(inside, area, (count, inner), Some(&own))?;
                }
                None => self.ranks(area, size, &own),
            }
        }
        Ok(())
    }

    /// Gives free cores of an area to a group's ranks.
    fn ranks(&mut self, area: usize, size: u32, own: &Around) {
        for _ in 0..size {
            let cores: Vec<usize> = self.free_within(area).take(self.cores).collect();
            let mut cpus = CpuSet::new();
            for core in cores {
                self.free[core] = false;
                cpus = cpus.union(&self.machine.tree.areas()[core].cpus);
            }
            self.places.push(RankPlace {
                group: own.group,
                cpus,
                area: own.area.clone(),
                near: own.near.clone(),
            });
        }
    }

    fn free_within(&self, area: usize) -> impl Iterator<Item = usize> + '_ {
        self.machine
            .free_cores(area)
            .filter(|core| self.free[*core])
    }

    /// Areas in which a group that shares this could be, smaller ones before those around them.
    fn areas(&self, shared: Option<Shared>, within: usize) -> Vec<usize> {
        let areas = self.machine.tree.areas();
        let inside = |area: &usize| areas[within].cpus.covers(&areas[*area].cpus);
        let is = |area: &usize| match shared {
            None | Some(Shared::Host) => *area == within,
            Some(Shared::Memory) => areas[*area].kinds.contains(&Kind::Numa),
            // Caches of all levels: the smallest one with room is the nearest.
            Some(Shared::Cache) => areas[*area]
                .kinds
                .iter()
                .any(|kind| matches!(kind, Kind::Cache(_))),
        };
        (0..areas.len()).filter(inside).filter(is).collect()
    }

    /// Groups of a level that fit into an area with the cores that are free.
    fn room(&self, need: &Need, area: usize, size: u32) -> usize {
        let cores = size as usize * self.cores;
        let Some(inside) = &need.inside else {
            return self.free_within(area).count() / cores.max(1);
        };
        let Ok((inner, count)) = inside.shape(size) else {
            return 0;
        };
        let parts = self.disjoint(inside.shared, area);
        let fit: usize = parts
            .iter()
            .map(|part| self.room(inside, *part, inner))
            .sum();
        fit / (count as usize).max(1)
    }

    /// Areas that a group could share and that do not meet: the largest of each nest.
    fn disjoint(&self, shared: Option<Shared>, within: usize) -> Vec<usize> {
        let areas = self.machine.tree.areas();
        let found = self.areas(shared, within);
        let outermost = |area: &&usize| {
            found
                .iter()
                .all(|other| other == *area || !areas[*other].cpus.covers(&areas[**area].cpus))
        };
        found.iter().filter(outermost).copied().collect()
    }

    /// The area for the next group. Small areas first, of which those that are filled most; areas
    /// of groups that each need a memory of their own are not used twice.
    fn best(
        &self,
        need: &Need,
        within: usize,
        size: u32,
        used: &[usize],
        near: Option<&(String, CpuSet)>,
    ) -> Option<usize> {
        let areas = self.machine.tree.areas();
        let memories = |area: usize| -> Vec<usize> {
            let meets = |other: &usize| {
                areas[*other].kinds.contains(&Kind::Numa)
                    && areas[*other].cpus.meets(&areas[area].cpus)
            };
            (0..areas.len()).filter(meets).collect()
        };
        let is_apart = |area: &usize| {
            !need.memory_bound || {
                let taken: Vec<usize> = used.iter().flat_map(|used| memories(*used)).collect();
                memories(*area).iter().all(|memory| !taken.contains(memory))
            }
        };
        let candidates = match need.memory_bound && need.shared.is_none() {
            true => self.areas(Some(Shared::Memory), within),
            false => self.areas(need.shared, within),
        };
        candidates
            .into_iter()
            .filter(|area| near.is_none_or(|(_, cpus)| areas[*area].cpus.meets(cpus)))
            .filter(|area| self.room(need, *area, size) > 0)
            .filter(is_apart)
            .min_by_key(|area| {
                (
                    areas[*area].cpus.len(),
                    self.free_within(*area).count(),
                    *area,
                )
            })
    }

    /// The device that a level is near, and its CPUs. `None`: no wish.
    fn near(&self, need: &Need) -> Result<Option<(String, CpuSet)>, String> {
        let Some(kind) = need.near else {
            return Ok(None);
        };
        let devices = self.machine.devices(kind);
        if devices.is_empty() {
            return Err(format!("this host has no {}", kind.name()));
        }
        let names: Vec<&str> = devices.iter().map(|device| device.name.as_str()).collect();
        let everywhere = devices.iter().find(|device| device.cpus.is_none());
        if let Some(device) = everywhere {
            let all = self.machine.tree.areas()[self.machine.tree.root()]
                .cpus
                .clone();
            return Ok(Some((
                format!("{} {}, as near to all CPUs", kind.name(), device.name),
                all,
            )));
        }
        let cpus = devices.iter().filter_map(|device| device.cpus.as_ref());
        let cpus = cpus.fold(CpuSet::new(), |all, cpus| all.union(cpus));
        Ok(Some((
            format!("{} {}, near CPUs {cpus}", kind.name(), names.join(", ")),
            cpus,
        )))
    }

    /// Name of an area that a group shares, by the kind that was asked for.
    fn name(&self, area: usize, shared: Shared) -> String {
        let area = &self.machine.tree.areas()[area];
        let is_meant = |kind: &&Kind| match shared {
            Shared::Cache => matches!(kind, Kind::Cache(_)),
            _ => **kind == Kind::Numa,
        };
        let kind = area.kinds.iter().find(is_meant).or(area.kinds.first());
        format!(
            "{} {}",
            kind.map_or_else(String::new, ToString::to_string),
            area.cpus
        )
    }

    /// Why the next group has no place.
    fn lacks(&self, need: &Need, within: usize, (placed, count, size): (u32, u32, u32)) -> String {
        let what = match (need.shared, need.memory_bound) {
            (Some(Shared::Cache), _) => "a cache",
            (Some(Shared::Memory), _) | (_, true) => "the memory of a NUMA node",
            _ => "the host",
        };
        let parts = self.disjoint(need.shared, within);
        let largest = parts
            .iter()
            .map(|part| self.machine.free_cores(*part).count())
            .max();
        let cores = size as usize * self.cores;
        let near = need
            .near
            .map_or(String::new(), |kind| format!(" near a {}", kind.name()));
        let alone = if need.memory_bound {
            ", each alone in its memory"
        } else {
            ""
        };
        format!(
            "{count} groups of {cores} free cores that have {what} in common{near}{alone} are needed, and {placed} are there; {} such parts have at most {} free cores each",
            parts.len(),
            largest.unwrap_or(0)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::need_machine::KnownDevice;
    use super::*;
    use garonne_topology::tree::Tree;
    use proptest::prelude::*;

    /// Two packages of two NUMA nodes of two L3 caches of four cores; a network card at the second
    /// NUMA node.
    fn machine() -> NeedMachine {
        let card = KnownDevice {
            name: "eth0".into(),
            cpus: CpuSet::parse("8-15"),
        };
        NeedMachine {
            tree: Tree::regular(2, 2, 2, 4),
            taken: CpuSet::new(),
            devices: [vec![card], Vec::new(), Vec::new()],
        }
    }

    fn places(text: &str, ranks: u32, machine: &NeedMachine) -> Result<Vec<RankPlace>, String> {
        let need = Need::parse(text)?;
        let groups = need.groups(ranks)?;
        resolve(
            &need,
            (groups.len() as u32, groups[0].len() as u32),
            machine,
        )
    }

    fn texts(places: &[RankPlace]) -> Vec<String> {
        places.iter().map(|place| place.cpus.to_string()).collect()
    }

    #[test]
    fn groups_that_share_a_cache_have_one_each() {
        let found = places("4 groups sharing cache", 8, &machine()).unwrap();
        let areas: Vec<&str> = found.iter().map(|place| place.area.as_str()).collect();
        assert_eq!(
            areas,
            ["L3 0-3"; 4]
                .iter()
                .chain(&["L3 4-7"; 4])
                .copied()
                .collect::<Vec<_>>()
        );
        let found = places("2 groups sharing cache with 2 cores each", 4, &machine()).unwrap();
        assert_eq!(texts(&found), ["0-1", "2-3", "4-5", "6-7"]);
    }

    #[test]
    fn groups_near_the_network_are_where_the_card_is() {
        let found = places("2 groups sharing cache, each near network", 8, &machine()).unwrap();
        assert_eq!(
            (texts(&found)[0].as_str(), texts(&found)[7].as_str()),
            ("8", "15")
        );
        assert!(
            found[0]
                .near
                .as_ref()
                .unwrap()
                .contains("eth0, near CPUs 8-15")
        );
        let fault = places("4 groups sharing cache near network", 16, &machine()).unwrap_err();
        assert!(
            fault.contains("near a network card") && fault.contains("2 are there"),
            "{fault}"
        );
        let fault = places("near gpu", 2, &machine()).unwrap_err();
        assert_eq!(fault, "this host has no GPU");
    }

    #[test]
    fn groups_that_are_bound_by_memory_have_a_node_each() {
        let found = places("4 groups, memory-bound", 8, &machine()).unwrap();
        assert_eq!(texts(&found), ["0", "1", "8", "9", "16", "17", "24", "25"]);
        let fault = places("5 groups, memory-bound", 5, &machine()).unwrap_err();
        assert!(fault.contains("each alone in its memory"), "{fault}");
    }

    #[test]
    fn groups_within_groups_are_within_their_areas() {
        let found = places(
            "2 groups sharing memory: 2 groups sharing cache",
            12,
            &machine(),
        )
        .unwrap();
        assert_eq!(
            texts(&found),
            [
                "0", "1", "2", "4", "5", "6", "8", "9", "10", "12", "13", "14"
            ]
        );
        assert_eq!(found[3].area, "L3 4-7");
        // Six ranks of a group share no cache of four cores.
        let fault = places("2 groups sharing cache", 12, &machine()).unwrap_err();
        assert!(fault.contains("at most 4 free cores"), "{fault}");
    }

    #[test]
    fn cores_that_other_jobs_have_are_not_given_away() {
        let mut machine = machine();
        machine.taken = CpuSet::parse("0-2,12").unwrap();
        let found = places("2 groups sharing cache", 8, &machine).unwrap();
        assert_eq!(texts(&found), ["4", "5", "6", "7", "8", "9", "10", "11"]);
    }

    proptest! {
        #[test]
        fn places_never_meet_and_groups_share_what_they_need(
            shape in (1u32..3, 1u32..3, 1u32..4, 1u32..6), taken in prop::collection::vec(0u32..60, 0..10),
            count in 1u32..6, size in 1u32..6, cores in 1u32..3,
        ) {
            let machine = NeedMachine {
                tree: Tree::regular(shape.0, shape.1, shape.2, shape.3),
                taken: taken.into_iter().collect(),
                devices: [Vec::new(), Vec::new(), Vec::new()],
            };
            let text = format!("{count} groups of {size} sharing cache with {cores} cores each");
            let caches = shape.0 * shape.1 * shape.2;
            let room: u32 = (0..caches).map(|cache| {
                let free = (cache * shape.3..(cache + 1) * shape.3).filter(|cpu| !machine.taken.contains(*cpu)).count() as u32;
                free / (size * cores)
            }).sum();
            match places(&text, count * size, &machine) {
                Ok(found) => {
                    prop_assert!(count <= room);
                    let mut all = CpuSet::new();
                    for (rank, place) in found.iter().enumerate() {
                        prop_assert_eq!(place.cpus.len() as u32, cores);
                        prop_assert!(!place.cpus.meets(&all) && !place.cpus.meets(&machine.taken));
                        all = all.union(&place.cpus);
                        let first = &found[rank - rank % size as usize];
                        let cache = |place: &RankPlace| place.cpus.first().unwrap() / shape.3;
                        prop_assert_eq!(cache(place), cache(first));
                    }
                }
                Err(_) => prop_assert!(count > room),
            }
        }
    }
}
