//! Several ways between two ranks, of which any is cut, held or slow at any time: large data use
//! all of them, and nothing is lost or comes twice.

use crate::proxy::{self, Ends, Weather};
use crate::support::{Book, identity, port};
use crate::traffic::{self, Plan};
use garonne_tcp::{Secret, TcpTransport};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Proxies between two ranks.
#[derive(Clone, Copy)]
struct Through {
    /// Further ways.
    further: u8,
    /// A connection is cut or held after at most so many bytes.
    bytes: u64,
    hold: Duration,
    /// True if that happens to the first way, too.
    first: bool,
}

/// Runs the plan, and returns the weather and what each way brought to rank 0, in bytes.
fn run(plan: Plan, through: Through) -> (Arc<Weather>, Vec<u64>) {
    let weather = Arc::new(Weather::default());
    let brought = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let _ends = Ends(weather.clone());
        let secret = Secret::generate().unwrap();
        let (listeners, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| port()).unzip();
        let transports = (0..2u32).zip(listeners).map(|(me, listener)| {
            let other = addresses[1 - me as usize];
            let way = |n: u8| {
                let seed = traffic::mix(u64::from(me) << 32 | u64::from(n) << 8 | 3 << 51);
                let on = Ipv4Addr::new(127, 0, 0, 1 + n);
                proxy::start_on(
                    scope,
                    (on, other),
                    weather.clone(),
                    (seed, through.bytes, through.hold),
                )
            };
            let first = if through.first { way(0) } else { other };
            let further: Vec<_> = (1..=through.further).map(way).collect();
            // The first network is one of those in common, as between hosts.
            let networks = std::iter::once(first).chain(further).collect();
            let (mut firsts, mut all) = (vec![vec![first]; 2], vec![networks, Vec::new()]);
            if me == 0 {
                firsts.swap(0, 1);
                all.swap(0, 1);
            }
            TcpTransport::new(
                identity(&secret, me, false),
                Arc::new(Book(firsts, all)),
                listener,
            )
            .unwrap()
        });
        let transports: Vec<_> = transports.collect();
        let done = AtomicU32::new(0);
        std::thread::scope(|inner| {
            for (me, mut transport) in (0..).zip(transports) {
                let (done, weather, brought) = (&done, &weather, &brought);
                inner.spawn(move || {
                    traffic::run(&mut transport, (me, 2), plan, done, || {
                        std::thread::sleep(Duration::from_micros(50));
                    });
                    if me == 0 {
                        *brought.lock().unwrap() = transport.brought_by(1);
                    }
                    weather.calm.store(true, Ordering::Release);
                    TcpTransport::sever(transport);
                });
            }
        });
    });
    (weather, brought.into_inner().unwrap())
}

const PLAN: Plan = Plan {
    packets: 300,
    packet_max: 60_000,
    bulks: 16,
    bulk_max: 6_000_000,
};

#[test]
fn large_data_take_all_ways_and_arrive_whole_whichever_is_cut_or_held() {
    let (weather, brought) = run(
        PLAN,
        Through {
            further: 2,
            bytes: 5_000_000,
            hold: Duration::from_millis(700),
            first: true,
        },
    );
    let (cuts, holds) = (
        weather.cuts.load(Ordering::Acquire),
        weather.holds.load(Ordering::Acquire),
    );
    assert!(cuts > 2 && holds > 2, "{cuts} cut, {holds} held");
    assert!(brought.len() == 4 && brought[0] > 0, "{brought:?}");
    assert!(brought[2..].iter().all(|bytes| *bytes > 0), "{brought:?}");
    // The first network's address stands among those in common, and is no way of its own.
    assert_eq!(brought[1], 0);
}

#[test]
fn a_way_that_stands_still_for_good_keeps_nothing_back() {
    // The further way brings little and then nothing more, without an end.
    let (weather, brought) = run(
        PLAN,
        Through {
            further: 1,
            bytes: 400_000,
            hold: Duration::from_secs(600),
            first: false,
        },
    );
    assert!(weather.holds.load(Ordering::Acquire) > 0);
    let all: u64 = brought.iter().sum();
    assert!(brought[0] > all / 2, "{brought:?}");
}
