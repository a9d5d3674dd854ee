//! Which CPUs are near a device, as the kernel tells it in sysfs. Reads a few small files, keeps
//! nothing.

use std::path::Path;

use crate::cpuset::CpuSet;
use crate::machine::{nodes, text};

/// Place where sysfs lists devices by the names that people use.
const CLASSES: [&str; 7] = [
    "class/net",
    "class/infiniband",
    "class/drm",
    "class/nvme",
    "class/block",
    "class/accel",
    "bus/pci/devices",
];

/// Place where a device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceLocality {
    /// Near these CPUs.
    Cpus(CpuSet),
    /// Nowhere in particular: it is no piece of hardware (`lo`, a bridge, an interface of a virtual
    /// machine), or the kernel does not say.
    Anywhere,
}

/// Returns where `device` (`eth0`, `mlx5_0`, `card0`, `nvme0n1`, a PCI address such as
/// `0000:3b:00.0`) is on this machine. `None`: there is no such device.
pub fn find(device: &str) -> Option<DeviceLocality> {
    read(Path::new("/sys"), device)
}

/// Finds a device below another root, laid out as `/sys`.
pub fn read(root: &Path, device: &str) -> Option<DeviceLocality> {
    if device.is_empty() || device.contains('/') || device.starts_with('.') {
        return None;
    }
    let found = CLASSES
        .iter()
        .map(|class| root.join(class).join(device))
        .find(|dir| dir.exists())?;
    // A class's entry links to the device that it stands for; a PCI address is the device itself.
    let told = [found.join("device"), found]
        .iter()
        .find_map(|dir| near(root, dir));
    Some(told.map_or(DeviceLocality::Anywhere, DeviceLocality::Cpus))
}

fn near(root: &Path, dir: &Path) -> Option<CpuSet> {
    let told = text(&dir.join("local_cpulist")).and_then(|list| CpuSet::parse(&list));
    told.filter(|cpus| !cpus.is_empty()).or_else(|| {
        let node: u32 = text(&dir.join("numa_node"))?.parse().ok()?;
        let nodes = nodes(&root.join("devices/system"));
        nodes
            .into_iter()
            .find(|(id, _)| *id == node)
            .map(|(_, cpus)| cpus)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_device_is_found_by_its_name_and_told_by_list_or_node() {
        let root = std::env::temp_dir().join(format!("garonne-device-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("class/net/eth7/device/local_cpulist", "4-7\n");
        write("class/nvme/nvme3/device/numa_node", "1\n");
        write("class/net/lo/address", "00\n");
        write("bus/pci/devices/0000:3b:00.0/local_cpulist", "0-3\n");
        write("devices/system/node/online", "0-1");
        write("devices/system/node/node0/cpulist", "0-3");
        write("devices/system/node/node1/cpulist", "4-7");
        let near = |name: &str| {
            read(&root, name).map(|near| match near {
                DeviceLocality::Cpus(cpus) => cpus.to_string(),
                DeviceLocality::Anywhere => String::from("anywhere"),
            })
        };
        assert_eq!(near("eth7").as_deref(), Some("4-7"));
        assert_eq!(near("nvme3").as_deref(), Some("4-7"));
        assert_eq!(near("0000:3b:00.0").as_deref(), Some("0-3"));
        assert_eq!(near("lo").as_deref(), Some("anywhere"));
        for unknown in ["eth8", "", "../net/eth7", ".", "net/eth7"] {
            assert_eq!(near(unknown), None, "{unknown}");
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
