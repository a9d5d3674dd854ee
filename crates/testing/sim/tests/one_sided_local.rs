//! One-sided communication between threads of one process: by packets, and in memory that all of
//! them map.

use garonne_sim::local::{Fabric, LocalTransport};
use garonne_transport::conformance::one_sided::check_one_sided;

#[test]
fn the_suite_holds_by_packets_and_in_mapped_memory() {
    for fabric in [Fabric::new, Fabric::mapped] {
        check_one_sided(
            || {
                let fabric = fabric(2);
                [fabric.transport(0), fabric.transport(1)]
            },
            |_: &mut LocalTransport| {},
        );
    }
}
