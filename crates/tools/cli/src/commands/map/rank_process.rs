//! Threads and memory of a rank's process, as the kernel tells the same user.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::machine::HelperThread;

/// Threads of one rank that are shown.
const THREADS_MAX: usize = 64;

/// Threads besides the first one, each with the CPU where it ran last.
pub fn threads(pid: u32) -> Vec<HelperThread> {
    threads_below(Path::new("/proc"), pid)
}

fn threads_below(proc: &Path, pid: u32) -> Vec<HelperThread> {
    let Ok(tasks) = fs::read_dir(proc.join(format!("{pid}/task"))) else {
        return Vec::new();
    };
    let first = pid.to_string();
    let mut numbers: Vec<u32> = tasks
        .filter_map(|task| task.ok()?.file_name().into_string().ok())
        .filter(|name| *name != first)
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    let of = |number: &u32| {
        let stat = fs::read_to_string(proc.join(format!("{pid}/task/{number}/stat"))).ok()?;
        thread(&stat)
    };
    numbers.iter().filter_map(of).take(THREADS_MAX).collect()
}

/// Reads a thread's line: the name stands in parentheses and may contain some itself.
fn thread(stat: &str) -> Option<HelperThread> {
    let (before, after) = stat.rsplit_once(')')?;
    let (_, name) = before.split_once('(')?;
    // The state is the third field; the processor is the thirty-ninth.
    let cpu = after.split_whitespace().nth(36)?.parse().ok()?;
    Some(HelperThread {
        name: name.to_owned(),
        cpu,
    })
}

/// Resident memory by NUMA node. Where there is one node it is node 0, read from less.
pub fn memory(pid: u32, nodes: usize) -> Vec<(u32, u64)> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let by_node = match nodes > 1 {
        true => read("numa_maps").map(|text| numa_memory(&text)),
        false => None,
    };
    by_node
        .filter(|nodes| !nodes.is_empty())
        .unwrap_or_else(|| {
            let resident = read("status").and_then(|text| resident(&text));
            resident.map(|bytes| (0, bytes)).into_iter().collect()
        })
}

fn resident(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn numa_memory(maps: &str) -> Vec<(u32, u64)> {
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for line in maps.lines() {
        let words = || line.split_whitespace();
        let page = words().find_map(|word| word.strip_prefix("kernelpagesize_kB="));
        let page: u64 = page.and_then(|kib| kib.parse().ok()).unwrap_or(4);
        for word in words() {
            let Some((node, pages)) = word.strip_prefix('N').and_then(|word| word.split_once('='))
            else {
                continue;
            };
            if let (Ok(node), Ok(pages)) = (node.parse(), pages.parse::<u64>()) {
                let bytes = pages.saturating_mul(page).saturating_mul(1024);
                let sum = sums.entry(node).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
    }
    sums.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_read_whatever_its_name() {
        let fields: Vec<String> = (4..60).map(|field| field.to_string()).collect();
        let stat = format!("17 (a) b (c) S {}", fields.join(" "));
        let expected = HelperThread {
            name: "a) b (c".into(),
            cpu: 39,
        };
        assert_eq!(thread(&stat), Some(expected));
        assert_eq!(thread("17 (a"), None);
        assert_eq!(thread("17 (a) S 1 2"), None);
    }

    #[test]
    fn a_started_thread_of_this_process_is_found() {
        let (begin, begun) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let helper = std::thread::Builder::new()
            .name("map-helper".into())
            .spawn(move || {
                begin.send(()).unwrap();
                let _ = ended.recv();
            })
            .unwrap();
        begun.recv().unwrap();
        let found = threads(std::process::id());
        assert!(found.iter().any(|thread| thread.name == "map-helper"));
        drop(end);
        helper.join().unwrap();
        assert!(!memory(std::process::id(), 1).is_empty());
    }

    #[test]
    fn memory_is_summed_by_node() {
        let maps = "7f00 default anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n\
            7f10 bind:1 huge anon=1 N1=1 kernelpagesize_kB=2048\nbroken N=3 Nx=1 N2=y\n";
        assert_eq!(numa_memory(maps), [(0, 4096), (1, 2 * 4096 + 2048 * 1024)]);
        assert_eq!(resident("Name: x\nVmRSS:\t  12 kB\n"), Some(12 * 1024));
        assert_eq!(resident("VmRSS: many"), None);
    }
}
