//! The machine's processing units and what they share, read from sysfs.

use std::fs;
use std::path::Path;

use crate::cpuset::CpuSet;

/// A processing unit (hardware thread), the thing a CPU number names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pu {
    /// CPU number of the operating system.
    pub cpu: u32,
    /// Core, numbered through the machine in the order of first CPUs.
    pub core: u32,
    /// Last-level cache, numbered alike.
    pub cache: u32,
    /// Package (socket), numbered alike.
    pub package: u32,
    /// NUMA node as the system numbers it.
    pub numa: u32,
}

/// Part of the machine that may be used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Processing units that this process may use, by CPU number.
    pub pus: Vec<Pu>,
}

impl Machine {
    /// This machine, as far as this process may use it.
    pub fn discover() -> Self {
        Self::read(Path::new("/sys/devices/system"), &allowed())
    }

    /// The machine described below `root` (laid out as `/sys/devices/system`), restricted to
    /// `allowed`. What is not told is assumed simple: a core of its own for each CPU, one package,
    /// one node.
    pub fn read(root: &Path, allowed: &CpuSet) -> Self {
        let nodes = nodes(root);
        let (mut cores, mut caches, mut packages) = (Vec::new(), Vec::new(), Vec::new());
        let pus = allowed.iter().map(|cpu| {
            let dir = root.join(format!("cpu/cpu{cpu}"));
            let numa = nodes
                .iter()
                .find(|(_, cpus)| cpus.contains(cpu))
                .map_or(0, |(node, _)| *node);
            let package = text(&dir.join("topology/physical_package_id")).unwrap_or_default();
            let siblings = text(&dir.join("topology/core_cpus_list"))
                .or_else(|| text(&dir.join("topology/thread_siblings_list")))
                .unwrap_or_else(|| cpu.to_string());
            let cache = last_cache(&dir).unwrap_or_else(|| format!("package {package}"));
            Pu {
                cpu,
                core: number(&mut cores, siblings),
                cache: number(&mut caches, cache),
                package: number(&mut packages, package),
                numa,
            }
        });
        Self { pus: pus.collect() }
    }

    /// The CPUs.
    pub fn cpus(&self) -> CpuSet {
        self.pus.iter().map(|pu| pu.cpu).collect()
    }

    /// CPU sets of the cores, in order.
    pub fn cores(&self) -> Vec<CpuSet> {
        self.grouped(|pu| pu.core)
    }

    /// CPU sets of the parts of the machine that `key` tells apart, in order of their keys.
    pub fn grouped(&self, key: impl Fn(&Pu) -> u32) -> Vec<CpuSet> {
        let mut keys: Vec<u32> = self.pus.iter().map(&key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys.iter()
            .map(|part| {
                self.pus
                    .iter()
                    .filter(|pu| key(pu) == *part)
                    .map(|pu| pu.cpu)
                    .collect()
            })
            .collect()
    }
}

/// CPUs that the system runs; those that this process may run on where it does not say.
pub fn online() -> CpuSet {
    let list = text(Path::new("/sys/devices/system/cpu/online"));
    list.and_then(|list| CpuSet::parse(&list))
        .unwrap_or_else(allowed)
}

/// CPUs that the calling thread may run on.
pub fn allowed() -> CpuSet {
    allowed_to(None).unwrap_or_else(|| [0].into_iter().collect())
}

/// CPUs that any thread of the program in this process may run on. Threads of this library do not
/// count.
pub fn allowed_to_program() -> CpuSet {
    let threads = fs::read_dir("/proc/self/task")
        .into_iter()
        .flatten()
        .flatten();
    let of_program = threads.filter_map(|thread| {
        let name = fs::read_to_string(thread.path().join("comm")).ok()?;
        let id = thread.file_name().to_str()?.parse().ok()?;
        let id = rustix::thread::Pid::from_raw(id)?;
        allowed_to(Some(id)).filter(|_| !name.starts_with(OWN_THREADS))
    });
    of_program.fold(allowed(), |sum, cpus| sum.union(&cpus))
}

/// What the names of this library's threads begin with.
const OWN_THREADS: &str = "garonne-";

fn allowed_to(thread: Option<rustix::thread::Pid>) -> Option<CpuSet> {
    let set = rustix::thread::sched_getaffinity(thread).ok()?;
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    Some(cpus.map(|cpu| cpu as u32).collect())
}

pub(crate) fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    // Recorded copies of sysfs may end in the zeros of a page.
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    Some(text.to_owned()).filter(|text| !text.is_empty() && text != "-1")
}

/// Numbers of the entries of `dir` that are called `prefix` and a number.
fn listed(dir: &Path, prefix: &str) -> CpuSet {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let number = |name: std::ffi::OsString| name.to_str()?.strip_prefix(prefix)?.parse().ok();
    entries
        .filter_map(|entry| number(entry.file_name()))
        .collect()
}

/// A set of CPUs, from the file that has it as a list, or on old kernels only as a mask.
pub(crate) fn cpus_of(list: &Path, mask: &Path) -> Option<CpuSet> {
    text(list)
        .and_then(|list| CpuSet::parse(&list))
        .or_else(|| CpuSet::parse_mask(&text(mask)?))
}

/// Number of `name` among those seen, in order of appearance.
fn number(seen: &mut Vec<String>, name: String) -> u32 {
    let known = seen.iter().position(|other| *other == name);
    known.unwrap_or_else(|| {
        seen.push(name);
        seen.len() - 1
    }) as u32
}

/// CPUs that share the last level of unified or data cache, as text that names it.
fn last_cache(dir: &Path) -> Option<String> {
    (0..8)
        .rev()
        .find_map(|index| text(&dir.join(format!("cache/index{index}/shared_cpu_list"))))
}

pub(crate) fn nodes(root: &Path) -> Vec<(u32, CpuSet)> {
    let online = text(&root.join("node/online"))
        .and_then(|list| CpuSet::parse(&list))
        .unwrap_or_else(|| listed(&root.join("node"), "node"));
    let cpus = |node: u32| {
        let dir = root.join(format!("node/node{node}"));
        cpus_of(&dir.join("cpulist"), &dir.join("cpumap"))
    };
    online
        .iter()
        .filter_map(|node| Some((node, cpus(node)?)))
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A regular machine: packages with one NUMA node and one cache each.
    pub(crate) fn regular(packages: u32, cores: u32, threads: u32) -> Machine {
        let pus = (0..packages * cores * threads).map(|i| {
            // As Linux usually numbers: first threads of all cores, then second ones.
            let core = i % (packages * cores);
            let package = core / cores;
            Pu {
                cpu: i,
                core,
                cache: package,
                package,
                numa: package,
            }
        });
        Machine { pus: pus.collect() }
    }

    #[test]
    fn this_machine_has_at_least_one_core_within_what_is_allowed() {
        let machine = Machine::discover();
        assert!(!machine.cores().is_empty());
        assert_eq!(machine.cpus(), allowed());
    }

    #[test]
    fn a_described_machine_is_read_with_its_sharing() {
        let root = std::env::temp_dir().join(format!("garonne-topology-{}", std::process::id()));
        for (cpu, core, package) in [(0, "0,2", 0), (1, "1,3", 1), (2, "0,2", 0), (3, "1,3", 1)] {
            let dir = root.join(format!("cpu/cpu{cpu}"));
            fs::create_dir_all(dir.join("topology")).unwrap();
            fs::create_dir_all(dir.join("cache/index3")).unwrap();
            fs::write(dir.join("topology/core_cpus_list"), core).unwrap();
            fs::write(
                dir.join("topology/physical_package_id"),
                package.to_string(),
            )
            .unwrap();
            fs::write(dir.join("cache/index3/shared_cpu_list"), core).unwrap();
        }
        for node in 0..2 {
            fs::create_dir_all(root.join(format!("node/node{node}"))).unwrap();
            fs::write(
                root.join(format!("node/node{node}/cpulist")),
                format!("{node},{}", node + 2),
            )
            .unwrap();
        }
        fs::write(root.join("node/online"), "0-1").unwrap();
        let machine = Machine::read(&root, &CpuSet::parse("0-2").unwrap());
        fs::remove_dir_all(&root).unwrap();
        let pu = |cpu, core| Pu {
            cpu,
            core,
            cache: core,
            package: core,
            numa: core,
        };
        assert_eq!(machine.pus, [pu(0, 0), pu(1, 1), pu(2, 0)]);
    }

    #[test]
    fn a_machine_that_tells_nothing_is_flat() {
        let machine = Machine::read(Path::new("/nowhere"), &CpuSet::parse("0-3").unwrap());
        assert_eq!(machine.cores().len(), 4);
        assert_eq!(machine.grouped(|pu| pu.numa).len(), 1);
    }
}
