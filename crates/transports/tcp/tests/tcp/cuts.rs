//! Connections of the TCP transport that break at random while checksummed traffic runs: nothing is
//! lost, nothing comes twice.

use crate::proxy::{self, Ends, Weather};
use crate::support;
use crate::traffic::{self, Plan};
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_tcp::TcpTransport;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Runs the plan between `ranks` whose connections are cut after at most `bytes` bytes each.
/// Returns the cuts.
pub fn through_cuts(
    (ranks, sealed): (u32, bool),
    plan: Plan,
    bytes: u64,
    leaving: CoalescePolicy,
) -> u32 {
    let weather = Arc::new(Weather::default());
    std::thread::scope(|scope| {
        let _ends = Ends(weather.clone());
        let transports = support::ranks_with(ranks, sealed, |from, to, address| {
            if from == to {
                return address;
            }
            let seed = traffic::mix(u64::from(from) << 32 | u64::from(to) | 7 << 50);
            proxy::start(scope, address, weather.clone(), (seed, bytes))
        });
        let transports = transports.into_iter().map(|mut transport| {
            transport.gather(leaving);
            transport
        });
        talk(transports.collect(), plan, &weather);
    });
    weather.cuts.load(Ordering::Acquire)
}

/// Runs the plan among these transports, of all ranks, each in a thread, and severs them; once one
/// is through, the weather is calm.
pub fn talk(transports: Vec<TcpTransport>, plan: Plan, weather: &Weather) {
    let (ranks, done) = (transports.len() as u32, AtomicU32::new(0));
    std::thread::scope(|scope| {
        for (me, mut transport) in (0..).zip(transports) {
            let done = &done;
            scope.spawn(move || {
                traffic::run(&mut transport, (me, ranks), plan, done, || {
                    std::thread::sleep(Duration::from_micros(50));
                });
                weather.calm.store(true, Ordering::Release);
                TcpTransport::sever(transport);
            });
        }
    });
}

#[test]
fn packets_and_bulk_data_survive_connections_that_break_anywhere() {
    let plan = Plan {
        packets: 1500,
        packet_max: 60_000,
        bulks: 12,
        bulk_max: 1_500_000,
    };
    let cuts = through_cuts((2, false), plan, 1_500_000, CoalescePolicy::Immediate);
    assert!(cuts > 5, "only {cuts} connections were cut");
}

#[test]
fn sealed_traffic_of_three_ranks_survives_connections_that_break_anywhere() {
    let plan = Plan {
        packets: 200,
        packet_max: 20_000,
        bulks: 2,
        bulk_max: 150_000,
    };
    let cuts = through_cuts((3, true), plan, 300_000, CoalescePolicy::Immediate);
    assert!(cuts > 5, "only {cuts} connections were cut");
}
