//! Prints a machine in the form that `Tree::parse` reads: this one, or the one recorded below a
//! copy of `/sys/devices/system`. The machines in `tests/machines` were recorded with it.

use garonne_topology::{CpuSet, Tree};
use std::path::Path;

fn main() {
    let tree = match std::env::args().nth(1) {
        None => Tree::discover(),
        Some(root) => {
            let root = Path::new(&root);
            let online = std::fs::read_to_string(root.join("cpu/online")).unwrap_or_else(|_| {
                let cpus =
                    (0..4096).filter(|cpu| root.join(format!("cpu/cpu{cpu}/topology")).exists());
                cpus.collect::<CpuSet>().to_string()
            });
            Tree::read(root, &CpuSet::parse(&online).unwrap_or_default())
        }
    };
    print!("{tree}");
}
