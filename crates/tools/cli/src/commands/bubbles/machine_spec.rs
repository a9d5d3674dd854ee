//! Machines by a word or a file: sizes, hwloc's synthetic descriptions and XML, recorded areas.

use std::path::Path;

use garonne_topology::{CpuSet, Kind, Tree};
use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::types::ObjectType;

/// Cores that a machine given by sizes may have: more than any machine has.
const CORES_MAX: u32 = 4096;

/// Reads the machine that a word names.
///
/// # Errors
/// One line for the user.
pub fn read(spec: &str) -> Result<Tree, String> {
    if spec == "here" {
        return Ok(Tree::discover());
    }
    if let Some((nodes, cores)) = sizes(spec) {
        let total = nodes.checked_mul(cores).filter(|total| *total > 0);
        return match total {
            Some(total) if total <= CORES_MAX => Ok(Tree::regular(nodes, 1, 1, cores)),
            _ => Err(format!(
                "machine '{spec}': 1 to {CORES_MAX} cores are possible"
            )),
        };
    }
    let path = Path::new(spec);
    if path.is_dir() {
        return recorded_sysfs(path);
    }
    if path.is_file() {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {spec}: {error}"))?;
        return match text.trim_start().starts_with('<') {
            true => of_hwloc(
                Topology::builder()
                    .from_xml_file(path)
                    .map_err(|error| format!("{spec}: hwloc cannot read it: {error}"))?
                    .build()
                    .map_err(|error| format!("{spec}: hwloc cannot read it: {error}"))?,
            ),
            false => Tree::parse(&text)
                .ok_or_else(|| format!("{spec}: neither XML of hwloc nor lines such as 'L3 0-7'")),
        };
    }
    let wrong = |error: &dyn std::fmt::Display| {
        format!(
            "machine '{spec}': no file, no sizes such as 4x4, and hwloc does not take it as a \
             description such as 'pack:4 [numa] l3:1 core:4 pu:1': {error}"
        )
    };
    let builder = Topology::builder().from_synthetic(spec);
    let built = builder.map_err(|error| wrong(&error))?.build();
    of_hwloc(built.map_err(|error| wrong(&error))?)
}

/// "4x8": NUMA nodes and the cores of each.
fn sizes(spec: &str) -> Option<(u32, u32)> {
    let (nodes, cores) = spec.split_once('x')?;
    Some((nodes.parse().ok()?, cores.parse().ok()?))
}

/// A copy of `/sys/devices/system`, or of a root that has one.
fn recorded_sysfs(path: &Path) -> Result<Tree, String> {
    let inside = path.join("sys/devices/system");
    let root = if inside.is_dir() {
        inside
    } else {
        path.to_owned()
    };
    let online = std::fs::read_to_string(root.join("cpu/online")).ok();
    let online = online.and_then(|list| CpuSet::parse(list.trim_matches(['\0', '\n', ' '])));
    match online.filter(|cpus| !cpus.is_empty()) {
        Some(cpus) => Ok(Tree::read(&root, &cpus)),
        None => Err(format!("{}: has no cpu/online", path.display())),
    }
}

fn of_hwloc(topology: Topology) -> Result<Tree, String> {
    let all = cpus(topology.root_object()).filter(|cpus| !cpus.is_empty());
    let all = all.ok_or("hwloc knows no processor of this machine")?;
    let objects = topology.normal_objects().chain(topology.memory_objects());
    let sets = objects.filter_map(|object| {
        let kind = kind(object.object_type())?;
        Some((kind, cpus(object)?))
    });
    Ok(Tree::new(&all, sets))
}

fn kind(of: ObjectType) -> Option<Kind> {
    match of {
        ObjectType::Core => Some(Kind::Core),
        ObjectType::L1Cache => Some(Kind::Cache(1)),
        ObjectType::L2Cache => Some(Kind::Cache(2)),
        ObjectType::L3Cache => Some(Kind::Cache(3)),
        ObjectType::L4Cache => Some(Kind::Cache(4)),
        ObjectType::L5Cache => Some(Kind::Cache(5)),
        ObjectType::NUMANode => Some(Kind::Numa),
        ObjectType::Package => Some(Kind::Package),
        _ => None,
    }
}

fn cpus(object: &TopologyObject) -> Option<CpuSet> {
    let set = object.cpuset()?;
    let cpus = set
        .iter_set()
        .filter_map(|cpu| u32::try_from(usize::from(cpu)).ok());
    Some(cpus.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(spec: &str) -> [usize; 3] {
        let tree = read(spec).unwrap();
        let areas = tree.areas().iter();
        let of = |kind| {
            areas
                .clone()
                .filter(|area| area.kinds.contains(&kind))
                .count()
        };
        [tree.cores(), of(Kind::Numa), of(Kind::Cache(3))]
    }

    #[test]
    fn machines_are_read_from_sizes_descriptions_and_files() {
        assert_eq!(counts("4x4"), [16, 4, 4]);
        assert_eq!(counts("pack:4 [numa] l3:1 core:4 pu:1"), [16, 4, 4]);
        assert_eq!(counts("pack:2 [numa] l3:2 core:3 pu:2"), [12, 2, 4]);
        let machines = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../base/topology/tests/machines"
        );
        assert_eq!(
            counts(&format!("{machines}/48amd64-4d2n6c-sparse.txt")),
            [48, 8, 8]
        );
    }

    #[test]
    fn hwlocs_xml_is_read() {
        use hwlocality::topology::export::xml::XMLExportFlags;
        let built = Topology::builder().from_synthetic("pack:2 [numa] l3:1 core:2 pu:2");
        let built = built.unwrap().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("machine.xml");
        built
            .export_xml_file(Some(&path), XMLExportFlags::empty())
            .unwrap();
        assert_eq!(counts(path.to_str().unwrap()), [4, 2, 2]);
    }

    #[test]
    fn what_is_no_machine_is_refused_with_what_would_be_one() {
        for spec in ["0x4", "100000x100000", "no such machine", "", "/dev/null"] {
            let why = read(spec).unwrap_err();
            assert!(!why.is_empty() && !why.contains('\n'), "{spec}: {why}");
        }
        assert!(read("nothing").unwrap_err().contains("4x4"));
    }
}
