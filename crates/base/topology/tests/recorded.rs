//! Trees and placement on real machines, recorded from their sysfs (`examples/describe.rs`).

use garonne_topology::binding::{BindingInput, Policy, plan};
use garonne_topology::machine::{Machine, Pu};
use garonne_topology::placement::place;
use garonne_topology::{CpuSet, Kind, Tree};

/// Name, description, and how many cores, L2 and L3 caches, NUMA nodes and packages its own tools
/// count.
const MACHINES: [(&str, &str, [usize; 5]); 5] = [
    (
        "AArch64 server, 2 packages",
        include_str!("machines/128arm-2pa2n8cluster4co.txt"),
        [128, 128, 4, 4, 2],
    ),
    (
        "4 packages with CPUs offline",
        include_str!("machines/16em64t-4s2c2t-offlines.txt"),
        [7, 7, 4, 1, 4],
    ),
    (
        "4 packages of 2 dies",
        include_str!("machines/48amd64-4d2n6c-sparse.txt"),
        [48, 48, 8, 8, 4],
    ),
    (
        "4 packages, cores in pairs",
        include_str!("machines/64amd64-4s2n4ca2co.txt"),
        [32, 0, 8, 8, 4],
    ),
    (
        "4 nodes of 4 packages",
        include_str!("machines/96em64t-4n4d3ca2co.txt"),
        [96, 48, 16, 4, 16],
    ),
];

#[test]
fn a_recorded_machine_has_the_areas_that_its_own_tools_count() {
    for (name, description, counts) in MACHINES {
        let tree = Tree::parse(description).expect(name);
        let kinds = [
            Kind::Core,
            Kind::Cache(2),
            Kind::Cache(3),
            Kind::Numa,
            Kind::Package,
        ];
        let found = kinds.map(|kind| {
            let areas = tree.areas().iter();
            areas.filter(|area| area.kinds.contains(&kind)).count()
        });
        assert_eq!(found, counts, "{name}");
        assert_eq!(
            Tree::parse(&tree.to_string()).as_ref(),
            Some(&tree),
            "{name} reads back"
        );
    }
}

#[test]
fn every_path_leads_upwards_through_growing_areas_to_the_machine() {
    for (name, description, _) in MACHINES {
        let tree = Tree::parse(description).expect(name);
        for core in 0..tree.cores() {
            let path: Vec<usize> = tree.path(core).collect();
            assert_eq!(path.last(), Some(&tree.root()), "{name}");
            for pair in path.windows(2) {
                let (inner, outer) = (&tree.areas()[pair[0]].cpus, &tree.areas()[pair[1]].cpus);
                assert!(
                    outer.covers(inner) && outer.len() > inner.len() && pair[0] < pair[1],
                    "{name}"
                );
            }
        }
    }
}

#[test]
fn ranks_get_cores_of_their_own_and_workers_spare_ones_of_the_same_node() {
    for (name, description, _) in MACHINES {
        let tree = Tree::parse(description).expect(name);
        for ranks in 1..=tree.cores() as u32 + 3 {
            let pairs = place(&tree, ranks);
            assert_eq!(pairs.len(), ranks as usize, "{name}");
            let all = pairs
                .iter()
                .fold(CpuSet::new(), |sum, pair| sum.union(&pair.rank));
            let shared: usize = pairs.iter().map(|pair| pair.rank.len()).sum::<usize>() - all.len();
            assert!(
                ranks as usize > tree.cores() || shared == 0,
                "{name}: {ranks} ranks share cores"
            );
            for pair in &pairs {
                let node =
                    |cpus: &CpuSet| tree.around(tree.covering(cpus).expect("a core"), Kind::Numa);
                assert_eq!(
                    node(&pair.rank),
                    node(&pair.worker),
                    "{name}: {ranks} ranks"
                );
                assert_eq!(
                    pair.spare,
                    !all.meets(&pair.worker),
                    "{name}: {ranks} ranks"
                );
            }
        }
    }
}

/// Converts a tree to the machine that binding works on.
fn machine(tree: &Tree) -> Machine {
    let mut pus: Vec<Pu> = (0..tree.cores())
        .flat_map(|core| {
            let near = |kind| tree.around(core, kind) as u32;
            let (cache, package, numa) =
                (near(Kind::Cache(3)), near(Kind::Package), near(Kind::Numa));
            tree.areas()[core].cpus.iter().map(move |cpu| Pu {
                cpu,
                core: core as u32,
                cache,
                package,
                numa,
            })
        })
        .collect();
    pus.sort_by_key(|pu| pu.cpu);
    Machine { pus }
}

#[test]
fn ranks_are_bound_by_default_as_placement_says_and_helpers_get_the_spare_cores_of_their_node() {
    for (name, description, _) in MACHINES {
        let tree = Tree::parse(description).expect(name);
        let machine = machine(&tree);
        for ranks in 1..=tree.cores() as u32 {
            let available = BindingInput {
                machine: &machine,
                taken: &CpuSet::new(),
                cpus_milli: u32::MAX,
            };
            let plan = plan(&available, ranks, &Policy::default());
            let pairs = place(&tree, ranks);
            let sets: Vec<&CpuSet> = pairs.iter().map(|pair| &pair.rank).collect();
            assert_eq!(
                plan.sets.iter().collect::<Vec<_>>(),
                sets,
                "{name}: {ranks} ranks"
            );
            for (pair, spare) in pairs.iter().zip(&plan.spare) {
                assert_eq!(pair.spare, !spare.is_empty(), "{name}: {ranks} ranks");
                assert!(
                    !pair.spare || spare.covers(&pair.worker),
                    "{name}: {ranks} ranks"
                );
            }
        }
    }
}
