//! A machine as a tree of values: what `garonne map` prints, draws and sends between hosts as JSON.
//!
//! Knows neither hwloc nor jobs. [`super::discovery`] makes it, `text` and `drawing` show it.

use serde::{Deserialize, Serialize};

/// What an object is, as far as showing it goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ObjectClass {
    /// A machine, package, die or group.
    #[default]
    Group,
    /// A switch of the network, or the network itself.
    Switch,
    /// Memory of a NUMA node, or a cache beside memory.
    Memory,
    /// A cache of processors.
    Cache,
    /// A core.
    Core,
    /// A hardware thread, which Linux calls a CPU.
    Cpu,
    /// A network interface or adapter.
    Network,
    /// A graphics processor or another accelerator.
    Gpu,
    /// A disk, NVMe or other storage.
    Storage,
    /// Any other device.
    Device,
    /// Ranks that are bound to no CPU.
    Unbound,
}

impl ObjectClass {
    /// Returns whether objects of this class compute, or contain what computes.
    pub fn is_structure(self) -> bool {
        matches!(
            self,
            Self::Group | Self::Switch | Self::Cache | Self::Core | Self::Cpu
        )
    }

    /// Name of the class in pages and drawings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Switch => "switch",
            Self::Memory => "memory",
            Self::Cache => "cache",
            Self::Core => "core",
            Self::Cpu => "cpu",
            Self::Network => "network",
            Self::Gpu => "gpu",
            Self::Storage => "storage",
            Self::Device => "device",
            Self::Unbound => "unbound",
        }
    }
}

/// A part of a machine, with the parts inside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineObject {
    /// hwloc's name of the kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// Kind as far as showing goes.
    pub class: ObjectClass,
    /// Name without a number: "L3, 32 MiB".
    pub title: String,
    /// Name with its logical number: "package 1". Of a CPU the system's number.
    pub label: String,
    /// More about the object, a line each.
    pub details: Vec<String>,
    /// CPUs of the object, as a list of ranges.
    pub cpus: String,
    /// Number of a CPU.
    pub cpu: Option<u32>,
    /// Whether this process may use a CPU.
    pub usable: Option<bool>,
    /// Ranks that are bound to a CPU.
    pub ranks: Option<Vec<u32>>,
    /// Memory first, then what computes, then devices.
    pub children: Vec<MachineObject>,
}

impl MachineObject {
    /// Children that compute, or contain what computes.
    pub fn structure(&self) -> impl Iterator<Item = &MachineObject> {
        let children = self.children.iter();
        children.filter(|child| child.class.is_structure())
    }

    /// Children that are memory or devices.
    pub fn attached(&self) -> impl Iterator<Item = &MachineObject> {
        let children = self.children.iter();
        children.filter(|child| !child.class.is_structure())
    }

    /// This object and those inside, where each contains exactly the next: a core with caches of
    /// its own is shown as one thing.
    pub fn chain(&self) -> Vec<&MachineObject> {
        let is_part =
            |object: &MachineObject| matches!(object.class, ObjectClass::Cache | ObjectClass::Core);
        let mut all = vec![self];
        let mut last = self;
        while let [only] = &last.children[..]
            && is_part(last)
            && is_part(only)
        {
            all.push(only);
            last = only;
        }
        all
    }

    /// CPUs inside, in the order of the tree.
    pub fn processors(&self) -> Vec<&MachineObject> {
        if self.class == ObjectClass::Cpu {
            return vec![self];
        }
        let children = self.children.iter();
        children.flat_map(MachineObject::processors).collect()
    }

    /// Kinds and sizes without numbers: equal for objects that differ only in which they are.
    pub fn shape(&self) -> String {
        let inside: Vec<String> = self.children.iter().map(MachineObject::shape).collect();
        format!("{}({})", self.title, inside.join(","))
    }
}

/// Distances between objects of one machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DistanceMatrix {
    /// What is told: "NUMALatency".
    pub name: String,
    /// Names of the objects.
    pub labels: Vec<String>,
    /// Row by row.
    pub values: Vec<u64>,
}

impl DistanceMatrix {
    /// Rows of the matrix; none where it is not square.
    pub fn rows(&self) -> impl Iterator<Item = (&str, &[u64])> {
        let size = self.labels.len();
        let is_square = size > 0 && self.values.len() == size * size;
        let rows = self.values.chunks(size.max(1)).filter(move |_| is_square);
        self.labels.iter().map(String::as_str).zip(rows)
    }
}

/// A thread of a rank beside the program's own: what it is for, and the CPU where it ran last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HelperThread {
    /// Name of the thread.
    pub name: String,
    /// CPU where it ran last.
    pub cpu: u32,
}

/// A rank on its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlacedRank {
    /// Number in the world.
    pub rank: u32,
    /// Process.
    pub pid: u32,
    /// CPU to which it is bound.
    pub cpu: Option<u32>,
    /// Messages that it has sent.
    pub sent_messages: u64,
    /// Bytes that it has sent.
    pub sent_bytes: u64,
    /// Resident memory by NUMA node; one entry where the system does not tell nodes apart.
    pub memory: Vec<(u32, u64)>,
    /// Threads that the library or the program has started.
    pub threads: Vec<HelperThread>,
}

/// The machine of one host and the ranks on it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineMap {
    /// The machine.
    #[serde(flatten)]
    pub root: MachineObject,
    /// Name of the host in a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Why nothing is known of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Ranks that may run anywhere.
    pub unbound_ranks: Vec<u32>,
    /// Ranks of this host.
    pub ranks_here: Vec<PlacedRank>,
    /// Distances between objects.
    pub distances: Vec<DistanceMatrix>,
}

/// A number of bytes in binary units.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = (0..UNITS.len() - 1).find(|&unit| bytes < 1 << (10 * (unit + 1)));
    let unit = unit.unwrap_or(UNITS.len() - 1);
    let value = bytes as f64 / (1u64 << (10 * unit)) as f64;
    match value < 10.0 && value.fract() >= 0.05 {
        true => format!("{value:.1} {}", UNITS[unit]),
        false => format!("{value:.0} {}", UNITS[unit]),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// An object with what is inside.
    pub fn object(class: ObjectClass, title: &str, children: Vec<MachineObject>) -> MachineObject {
        MachineObject {
            class,
            title: title.into(),
            label: title.into(),
            children,
            ..MachineObject::default()
        }
    }

    /// A core with its cache and CPUs.
    pub fn core(cpus: &[u32]) -> MachineObject {
        let threads = cpus.iter().map(|&cpu| MachineObject {
            cpu: Some(cpu),
            label: format!("CPU {cpu}"),
            usable: Some(true),
            ranks: Some(Vec::new()),
            ..object(ObjectClass::Cpu, "CPU", Vec::new())
        });
        let core = object(ObjectClass::Core, "core", threads.collect());
        object(ObjectClass::Cache, "L2, 1 MiB", vec![core])
    }

    #[test]
    fn sizes_are_short() {
        let shown = [0, 512, 32 << 10, 1 << 20, 3 << 19, 48 << 30, 2 << 40].map(size);
        let expected = [
            "0 B", "512 B", "32 KiB", "1 MiB", "1.5 MiB", "48 GiB", "2 TiB",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_core_and_its_own_caches_are_one_chain() {
        let core = core(&[0, 4]);
        let titles: Vec<_> = core.chain().iter().map(|part| part.title.clone()).collect();
        assert_eq!(titles, ["L2, 1 MiB", "core"]);
        let shared = object(ObjectClass::Cache, "L3", vec![core.clone(), core]);
        assert_eq!(shared.chain().len(), 1);
    }

    #[test]
    fn a_matrix_that_is_not_square_has_no_rows() {
        let mut matrix = DistanceMatrix {
            name: "NUMALatency".into(),
            labels: vec!["a".into(), "b".into()],
            values: vec![10, 21, 21, 10],
        };
        let rows: Vec<_> = matrix.rows().collect();
        assert_eq!(rows, [("a", &[10, 21][..]), ("b", &[21, 10][..])]);
        matrix.values.pop();
        assert_eq!(matrix.rows().count(), 0);
    }
}
