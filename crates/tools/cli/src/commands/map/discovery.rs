//! The machine as hwloc sees it, as values.
//!
//! The only user of hwloc, so that starting a job does not wait for it. `HWLOC_SYNTHETIC` and
//! `HWLOC_XMLFILE` show other machines.

use hwlocality::Topology;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::{ObjectAttributes, PCIDeviceAttributes};
use hwlocality::object::types::{OSDeviceType, ObjectType};
use hwlocality::topology::builder::{TopologyBuilder, TypeFilter};

use super::machine::{DistanceMatrix, MachineObject, ObjectClass, size};

/// The machine, with devices and distances.
pub struct Discovered {
    /// Tree of its parts.
    pub root: MachineObject,
    /// Distances between NUMA nodes, GPUs and others, as far as they are told.
    pub distances: Vec<DistanceMatrix>,
    /// Whether it is this machine, and not a described one.
    pub is_this_system: bool,
}

/// Discovers this machine, or loads the one that hwloc's environment variables describe.
///
/// # Errors
/// A line for the user.
pub fn discover() -> Result<Discovered, String> {
    described_file()?;
    let topology = load().map_err(|error| format!("hwloc cannot tell the machine: {error}"))?;
    if std::env::var_os("HWLOC_SYNTHETIC").is_some() && topology.is_this_system() {
        return Err(
            "hwloc does not understand HWLOC_SYNTHETIC; an example: 'package:2 numa:2 core:8 pu:2'"
                .into(),
        );
    }
    let kinds = cpu_kinds(&topology);
    Ok(Discovered {
        root: object(topology.root_object(), &kinds),
        distances: distances(&topology),
        is_this_system: topology.is_this_system(),
    })
}

/// hwloc falls back to the machine at hand where a file is missing or broken; this says so instead.
fn described_file() -> Result<(), String> {
    let Some(path) = std::env::var_os("HWLOC_XMLFILE") else {
        return Ok(());
    };
    let shown = std::path::Path::new(&path).display();
    let text = std::fs::read(&path)
        .map_err(|error| format!("cannot read HWLOC_XMLFILE '{shown}': {error}"))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    let broken = |why: String| format!("HWLOC_XMLFILE '{shown}' describes no machine: {why}");
    let built = TopologyBuilder::new()
        .from_xml(&text)
        .map_err(|error| broken(error.to_string()))?;
    built
        .build()
        .map(drop)
        .map_err(|error| broken(error.to_string()))
}

fn load() -> Result<Topology, String> {
    TopologyBuilder::new()
        .with_io_type_filter(TypeFilter::KeepImportant)
        .map_err(|error| error.to_string())?
        .build()
        .map_err(|error| error.to_string())
}

/// Sets of CPUs of hybrid processors, with the name of their kind.
type CpuKinds = Vec<(hwlocality::cpu::cpuset::CpuSet, String)>;

fn cpu_kinds(topology: &Topology) -> CpuKinds {
    let Ok(kinds) = topology.cpu_kinds() else {
        return Vec::new();
    };
    let all: CpuKinds = kinds
        .enumerate()
        .map(|(number, kind)| {
            let named = kind
                .infos
                .iter()
                .find(|info| info.name().to_bytes() == b"CoreType");
            let name = named.map_or_else(
                || format!("kind {number}"),
                |info| info.value().to_string_lossy().into_owned(),
            );
            (kind.cpuset, name)
        })
        .collect();
    if all.len() > 1 { all } else { Vec::new() }
}

/// Kind of a core or CPU of a hybrid processor.
fn kind_of(object: &TopologyObject, kinds: &CpuKinds) -> Option<String> {
    let is_inside = |cpus: &hwlocality::cpu::cpuset::CpuSet| object.is_inside_cpuset(cpus);
    let found = kinds.iter().find(|(cpus, _)| is_inside(cpus));
    found.map(|(_, name)| name.clone())
}

fn object(from: &TopologyObject, kinds: &CpuKinds) -> MachineObject {
    let kind = from.object_type();
    let class = class(from);
    let (title, label) = names(from, kinds);
    let os_index = from
        .os_index()
        .and_then(|index| u32::try_from(index).ok())
        .filter(|_| class == ObjectClass::Cpu);
    let memory = from
        .memory_children()
        .flat_map(|child| memory(child, kinds));
    let inside = from.normal_children().map(|child| object(child, kinds));
    let devices = from.io_children().flat_map(devices);
    let mut details = details(from);
    if class == ObjectClass::Cpu {
        details.extend(kind_of(from, kinds).map(|kind| format!("kind {kind}")));
    }
    MachineObject {
        kind: kind.to_string(),
        class,
        title,
        label,
        details,
        cpus: from
            .cpuset()
            .map(|cpus| cpus.to_string())
            .unwrap_or_default(),
        cpu: os_index,
        usable: os_index.map(|_| true),
        ranks: os_index.map(|_| Vec::new()),
        children: memory.chain(inside).chain(devices).collect(),
    }
}

/// A NUMA node, also one that lies behind a cache of memory.
fn memory(from: &TopologyObject, kinds: &CpuKinds) -> Vec<MachineObject> {
    let behind = from
        .memory_children()
        .flat_map(|child| memory(child, kinds));
    let mut own = object(from, kinds);
    own.children.clear();
    std::iter::once(own).chain(behind).collect()
}

fn class(object: &TopologyObject) -> ObjectClass {
    match object.object_type() {
        ObjectType::NUMANode | ObjectType::MemCache => ObjectClass::Memory,
        ObjectType::Core => ObjectClass::Core,
        ObjectType::PU => ObjectClass::Cpu,
        kind if kind.is_cpu_cache() => ObjectClass::Cache,
        kind if kind.is_io() || kind == ObjectType::Misc => ObjectClass::Device,
        _ => ObjectClass::Group,
    }
}

/// Name of an object without its number, and with it.
fn names(object: &TopologyObject, kinds: &CpuKinds) -> (String, String) {
    let number = object.logical_index();
    let subtype = object
        .subtype()
        .map(|subtype| subtype.to_string_lossy().into_owned());
    let cache_size = match object.attributes() {
        Some(ObjectAttributes::Cache(cache)) => cache.size().map(|bytes| size(bytes.get())),
        _ => None,
    };
    let sized = |name: &str, size: Option<String>| match size {
        Some(size) => format!("{name}, {size}"),
        None => name.to_owned(),
    };
    match object.object_type() {
        ObjectType::Machine => {
            let memory = Some(object.total_memory()).filter(|bytes| *bytes > 0);
            let title = sized("Machine", memory.map(size));
            (title.clone(), title)
        }
        ObjectType::NUMANode => {
            let local = match object.attributes() {
                Some(ObjectAttributes::NUMANode(node)) => node.local_memory(),
                _ => None,
            };
            let kind =
                subtype.map_or_else(|| "NUMA node".to_owned(), |kind| format!("{kind} node"));
            let bytes = local.map(|bytes| size(bytes.get()));
            (
                sized(&kind, bytes.clone()),
                sized(&format!("{kind} {number}"), bytes),
            )
        }
        ObjectType::MemCache => ("cache of memory".into(), "cache of memory".into()),
        ObjectType::PU => {
            let number = object.os_index().unwrap_or(number);
            ("CPU".into(), format!("CPU {number}"))
        }
        ObjectType::Core => {
            let kind = kind_of(object, kinds);
            (
                sized("core", kind.clone()),
                sized(&format!("core {number}"), kind),
            )
        }
        kind if kind.is_cpu_cache() => {
            let name = kind.to_string().replace("Cache", "");
            let name = name.strip_suffix('d').unwrap_or(&name).to_owned();
            let title = sized(&name, cache_size);
            (title.clone(), title)
        }
        kind => {
            let name = subtype.unwrap_or_else(|| kind.to_string().to_lowercase());
            (name.clone(), format!("{name} {number}"))
        }
    }
}

/// More about an object, as far as hwloc knows what people ask for.
fn details(object: &TopologyObject) -> Vec<String> {
    const KNOWN: [&str; 15] = [
        "CPUModel",
        "HostName",
        "OSName",
        "OSRelease",
        "Architecture",
        "DMIProductName",
        "PCIVendor",
        "PCIDevice",
        "GPUVendor",
        "GPUModel",
        "Address",
        "Port1LID",
        "CUDAGlobalMemorySize",
        "CUDAMultiProcessors",
        "Size",
    ];
    let known = KNOWN.iter().filter_map(|name| {
        let value = object.info(name)?.to_string_lossy();
        Some(match *name {
            "CPUModel" => value.split_whitespace().collect::<Vec<_>>().join(" "),
            "CUDAGlobalMemorySize" | "Size" => match value.parse::<u64>() {
                Ok(kib) => size(kib.saturating_mul(1024)),
                Err(_) => format!("{name} {value}"),
            },
            _ => format!("{name} {value}"),
        })
    });
    known.collect()
}

/// Devices behind a bridge, flat: each PCI device with the names that the system gives it.
fn devices(from: &TopologyObject) -> Vec<MachineObject> {
    let inside = from.io_children();
    match from.attributes() {
        Some(ObjectAttributes::PCIDevice(pci)) => {
            let named: Vec<MachineObject> = inside.flat_map(devices).collect();
            if named.is_empty() {
                return vec![unnamed_device(from, pci)];
            }
            let mut all = named;
            for device in &mut all {
                device.details.push(address(pci));
                device.details.extend(details(from));
            }
            all
        }
        Some(ObjectAttributes::OSDevice(device)) => {
            let (class, kind) = match device.device_type() {
                OSDeviceType::Network => (ObjectClass::Network, "network"),
                OSDeviceType::OpenFabrics => (ObjectClass::Network, "InfiniBand"),
                OSDeviceType::GPU => (ObjectClass::Gpu, "GPU"),
                OSDeviceType::CoProcessor => (ObjectClass::Gpu, "accelerator"),
                OSDeviceType::Storage => (ObjectClass::Storage, "storage"),
                _ => (ObjectClass::Device, "device"),
            };
            let name = from
                .name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            vec![MachineObject {
                kind: "OSDevice".into(),
                class,
                title: kind.into(),
                label: format!("{kind} {name}"),
                details: details(from),
                ..MachineObject::default()
            }]
        }
        _ => inside.flat_map(devices).collect(),
    }
}

/// Where a device is on the bus, and how fast its link is.
fn address(pci: &PCIDeviceAttributes) -> String {
    let link = match pci.link_speed() {
        speed if speed > 0.0 => format!(", {speed:.1} GB/s"),
        _ => String::new(),
    };
    format!(
        "PCI {:04x}:{:02x}:{:02x}.{:x}{link}",
        pci.domain(),
        pci.bus_id(),
        pci.bus_device(),
        pci.function()
    )
}

/// A PCI device for which the system has no driver with a name.
fn unnamed_device(object: &TopologyObject, pci: &PCIDeviceAttributes) -> MachineObject {
    let (class, kind) = match pci.class_id() >> 8 {
        0x01 => (ObjectClass::Storage, "storage"),
        0x02 => (ObjectClass::Network, "network"),
        0x03 | 0x0b | 0x12 => (ObjectClass::Gpu, "GPU"),
        _ => (ObjectClass::Device, "device"),
    };
    let mut details = details(object);
    details.push(address(pci));
    MachineObject {
        kind: "PCIDevice".into(),
        class,
        title: kind.into(),
        label: format!("{kind} {:04x}:{:04x}", pci.vendor_id(), pci.device_id()),
        details,
        ..MachineObject::default()
    }
}

fn distances(topology: &Topology) -> Vec<DistanceMatrix> {
    let Ok(all) = topology.distances(None) else {
        return Vec::new();
    };
    all.iter()
        .map(|matrix| {
            let label = |object: Option<&TopologyObject>| match object {
                None => "?".to_owned(),
                Some(object) if object.object_type() == ObjectType::OSDevice => object
                    .name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_default(),
                Some(object) => {
                    let (_, label) = names(object, &Vec::new());
                    label.split(',').next().unwrap_or_default().to_owned()
                }
            };
            DistanceMatrix {
                name: matrix
                    .name()
                    .map(|name| name.to_string_lossy().into_owned())
                    .unwrap_or_else(|| "distances".into()),
                labels: matrix.objects().map(label).collect(),
                values: matrix.distances().to_vec(),
            }
        })
        .collect()
}
