//! What a host has that groups may need: its tree of areas, the cores that nobody has taken, and
//! which CPUs are near its devices.

use std::fs;
use std::path::Path;

use garonne_topology::CpuSet;
use garonne_topology::device::{self, DeviceLocality};
use garonne_topology::tree::Tree;

use super::need_text::NearDevice;

/// Devices of a kind that are looked at: more than any host has of them.
const DEVICES_MAX: usize = 256;

/// A device, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownDevice {
    /// The system's name.
    pub name: String,
    /// CPUs near it; `None`: all are, as far as the system says.
    pub cpus: Option<CpuSet>,
}

/// A host.
#[derive(Clone, Debug)]
pub struct NeedMachine {
    /// Areas of the host, from the whole to single cores.
    pub tree: Tree,
    /// CPUs that other jobs have.
    pub taken: CpuSet,
    /// Network cards, GPUs and disks.
    pub devices: [Vec<KnownDevice>; 3],
}

impl NeedMachine {
    /// This host, as far as this process may use it.
    pub fn discover(taken: &CpuSet) -> Self {
        Self {
            tree: Tree::discover(),
            taken: taken.clone(),
            devices: [
                of_classes(Path::new("/sys"), &["class/infiniband", "class/net"]),
                of_classes(Path::new("/sys"), &["class/drm", "class/accel"]),
                of_classes(Path::new("/sys"), &["class/nvme", "class/block"]),
            ],
        }
    }

    /// Devices of a kind.
    pub fn devices(&self, kind: NearDevice) -> &[KnownDevice] {
        &self.devices[kind as usize]
    }

    /// Free cores within an area.
    pub fn free_cores(&self, area: usize) -> impl Iterator<Item = usize> + '_ {
        let cpus = &self.tree.areas()[area].cpus;
        (0..self.tree.cores()).filter(move |core| {
            let own = &self.tree.areas()[*core].cpus;
            cpus.covers(own) && !own.meets(&self.taken)
        })
    }
}

/// Pieces of hardware of these classes: what has no device behind it, as `lo`, is none.
fn of_classes(root: &Path, classes: &[&str]) -> Vec<KnownDevice> {
    let mut found: Vec<KnownDevice> = Vec::new();
    for class in classes {
        let entries = fs::read_dir(root.join(class))
            .into_iter()
            .flatten()
            .flatten();
        let mut names: Vec<String> = entries
            .filter(|entry| entry.path().join("device").exists())
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        for name in names.into_iter().take(DEVICES_MAX) {
            let cpus = match device::read(root, &name) {
                Some(DeviceLocality::Cpus(cpus)) => Some(cpus),
                Some(DeviceLocality::Anywhere) => None,
                None => continue,
            };
            found.push(KnownDevice { name, cpus });
        }
    }
    found
}
