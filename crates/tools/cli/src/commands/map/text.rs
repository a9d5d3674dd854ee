//! A machine as text: one line for a core with its caches, one for equal cores without ranks.

use super::machine::{MachineMap, MachineObject, ObjectClass, size};

/// Cores that differ only in their numbers share a line from so many on.
const FOLDED_FROM: usize = 3;
/// Objects of a matrix of distances that are printed as a table; a page shows more.
const COLUMNS_MAX: usize = 32;

/// Writes a machine and what is on it, indented by so many steps.
pub fn text(map: &MachineMap, depth: usize) -> String {
    let mut lines = Vec::new();
    write(&map.root, depth, &mut lines);
    let indent = "  ".repeat(depth + 1);
    if !map.unbound_ranks.is_empty() {
        let line = format!("{indent}{}: not bound", ranges(&map.unbound_ranks));
        lines.insert(1.min(lines.len()), line);
    }
    for placed in &map.ranks_here {
        let mut parts = Vec::new();
        if !placed.memory.is_empty() {
            let nodes = placed.memory.iter().map(|(node, bytes)| {
                let of_node = format!("{} on NUMA node {node}", size(*bytes));
                if placed.memory.len() == 1 {
                    size(*bytes)
                } else {
                    of_node
                }
            });
            parts.push(format!("memory {}", nodes.collect::<Vec<_>>().join(", ")));
        }
        if !placed.threads.is_empty() {
            let threads = placed
                .threads
                .iter()
                .map(|thread| format!("{} last on CPU {}", thread.name, thread.cpu));
            parts.push(format!(
                "threads {}",
                threads.collect::<Vec<_>>().join(", ")
            ));
        }
        if !parts.is_empty() {
            lines.push(format!(
                "{indent}rank {}: {}",
                placed.rank,
                parts.join("; ")
            ));
        }
    }
    for matrix in &map.distances {
        write_distances(matrix, &indent, &mut lines);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn write(object: &MachineObject, depth: usize, lines: &mut Vec<String>) {
    let indent = "  ".repeat(depth);
    let chain = object.chain();
    let last = chain[chain.len() - 1];
    let name = chain
        .iter()
        .map(|part| part.label.as_str())
        .collect::<Vec<_>>()
        .join(" + ");
    let details = match object.class {
        ObjectClass::Cache | ObjectClass::Core | ObjectClass::Cpu => String::new(),
        _ if object.details.is_empty() => String::new(),
        _ => format!(": {}", object.details.join(", ")),
    };
    if holds_only_cpus(last) {
        lines.push(format!("{indent}{name}: {}", cpus(&last.processors())));
        return;
    }
    if object.class == ObjectClass::Cpu {
        lines.push(format!("{indent}{}", cpus(&[object])));
        return;
    }
    lines.push(format!("{indent}{name}{details}"));
    let mut rest = &last.children[..];
    while let Some(first) = rest.first() {
        let count = match foldable(first) {
            true => {
                let shape = first.shape();
                let alike = rest
                    .iter()
                    .take_while(|other| foldable(other) && other.shape() == shape);
                alike.count()
            }
            false => 1,
        };
        if count >= FOLDED_FROM {
            let titles = first.chain();
            let titles = titles.iter().map(|part| part.title.as_str());
            let titles = titles.collect::<Vec<_>>().join(" + ");
            let numbers = rest[..count]
                .iter()
                .flat_map(MachineObject::processors)
                .filter_map(|cpu| cpu.cpu);
            lines.push(format!(
                "{indent}  {count} x ({titles}): {}",
                numbered("CPU", numbers.collect())
            ));
        } else {
            for child in &rest[..count] {
                write(child, depth + 1, lines);
            }
        }
        rest = &rest[count.max(1)..];
    }
}

fn holds_only_cpus(object: &MachineObject) -> bool {
    let mut children = object.children.iter();
    !object.children.is_empty() && children.all(|child| child.class == ObjectClass::Cpu)
}

/// Whether an object is a core, with caches of its own, whose CPUs are all usable and free.
fn foldable(object: &MachineObject) -> bool {
    let last = object.chain().last().copied();
    let is_quiet = |cpu: &MachineObject| {
        cpu.usable != Some(false) && cpu.ranks.as_ref().is_none_or(Vec::is_empty)
    };
    last.is_some_and(|last| holds_only_cpus(last) && last.processors().into_iter().all(is_quiet))
}

/// The CPUs of a core, with the ranks on them.
fn cpus(all: &[&MachineObject]) -> String {
    let shown = all.iter().map(|cpu| {
        let mut text = cpu.label.clone();
        if cpu.usable == Some(false) {
            text += " not usable";
        }
        match cpu.ranks.as_deref() {
            None | Some([]) => {}
            Some(ranks) => text += &format!(" <- {}", ranges(ranks)),
        }
        text
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn write_distances(matrix: &super::machine::DistanceMatrix, indent: &str, lines: &mut Vec<String>) {
    let count = matrix.labels.len();
    if count > COLUMNS_MAX {
        lines.push(format!(
            "{indent}{}: between {count} objects (--html FILE and --json show them)",
            matrix.name
        ));
        return;
    }
    let widest = matrix
        .labels
        .iter()
        .map(|label| label.chars().count())
        .max();
    let widest = widest.unwrap_or(0);
    let largest = matrix.values.iter().max().copied().unwrap_or(0);
    let cell = largest.to_string().len() + 1;
    lines.push(format!("{indent}{}:", matrix.name));
    for (label, row) in matrix.rows() {
        let cells: String = row.iter().map(|value| format!("{value:>cell$}")).collect();
        lines.push(format!("{indent}  {label:<widest$}{cells}"));
    }
}

/// "rank 3", "ranks 0-2, 5": of ascending numbers.
pub fn ranges(ranks: &[u32]) -> String {
    numbered("rank", ranks.to_vec())
}

fn numbered(noun: &str, mut numbers: Vec<u32>) -> String {
    numbers.sort_unstable();
    let mut parts: Vec<(u32, u32)> = Vec::new();
    for &number in &numbers {
        match parts.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => parts.push((number, number)),
        }
    }
    let shown = parts.iter().map(|&(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("{noun}{plural} {}", shown.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::machine::tests::{core, object};
    use super::super::machine::{DistanceMatrix, PlacedRank};
    use super::*;

    #[test]
    fn neighbouring_ranks_are_shown_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 3]), "ranks 0-3");
        assert_eq!(ranges(&[2]), "rank 2");
        assert_eq!(ranges(&[0, 2, 3, 7]), "ranks 0, 2-3, 7");
    }

    fn machine() -> MachineMap {
        let cores = (0..4).map(|cpu| core(&[cpu, cpu + 4])).collect();
        let mut package = object(ObjectClass::Group, "package 0", cores);
        let memory = object(ObjectClass::Memory, "NUMA node 0, 4 GiB", Vec::new());
        package.children.insert(0, memory);
        MachineMap {
            root: object(ObjectClass::Group, "Machine", vec![package]),
            ..MachineMap::default()
        }
    }

    #[test]
    fn equal_cores_share_a_line_and_those_with_ranks_have_their_own() {
        let mut map = machine();
        let expected =
            "Machine\n  package 0\n    NUMA node 0, 4 GiB\n    4 x (L2, 1 MiB + core): CPUs 0-7\n";
        assert_eq!(text(&map, 0), expected);
        let package = &mut map.root.children[0];
        package.children[1].children[0].children[1].ranks = Some(vec![7, 8]);
        package.children[4].children[0].children[0].usable = Some(false);
        map.unbound_ranks = vec![1, 2];
        let expected = "  Machine\n    ranks 1-2: not bound\n    package 0\n      NUMA node 0, 4 GiB\n      \
            L2, 1 MiB + core: CPU 0, CPU 4 <- ranks 7-8\n      L2, 1 MiB + core: CPU 1, CPU 5\n      \
            L2, 1 MiB + core: CPU 2, CPU 6\n      L2, 1 MiB + core: CPU 3 not usable, CPU 7\n";
        assert_eq!(text(&map, 1), expected);
    }

    #[test]
    fn memory_of_ranks_and_distances_follow_the_machine() {
        let mut map = machine();
        map.ranks_here = vec![PlacedRank {
            rank: 3,
            memory: vec![(0, 1 << 20), (1, 4096)],
            ..PlacedRank::default()
        }];
        map.distances = vec![DistanceMatrix {
            name: "NUMALatency".into(),
            labels: vec!["node 0".into(), "node 1".into()],
            values: vec![10, 121, 121, 10],
        }];
        let shown = text(&map, 0);
        let tail = "  rank 3: memory 1 MiB on NUMA node 0, 4 KiB on NUMA node 1\n  NUMALatency:\n    node 0  10 121\n    node 1 121  10\n";
        assert!(shown.ends_with(tail), "{shown}");
    }
}
