//! Large data by libfabric beside TCP: what of them goes that way, and that nothing is lost or
//! comes twice where that way, or its connection, fails.

use crate::proxy::{self, Ends, Weather};
use crate::support::{Book, WithFabrics, identity, port};
use crate::traffic::{self, Plan};
use garonne_ofi::library::Library;
use garonne_tcp::connection_table::{self, ConnectionEntry};
use garonne_tcp::{NotUsedReason, OfiSetting, Secret, StreamNumber, TcpTransport};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

/// A run that has not seen what it waits for by then ends.
const LIMIT: Duration = Duration::from_secs(90);

/// The way's place among those of a pair.
const WAY: usize = 4;

fn is_there(provider: &str) -> bool {
    let address = (provider != "shm").then_some("127.0.0.1");
    let found = Library::load().and_then(|library| library.offers(Some(provider), address));
    if let Err(error) = &found {
        eprintln!("skipped: no {provider} here: {error}");
    }
    found.is_ok()
}

fn of(provider: &str) -> OfiSetting {
    OfiSetting::Of(provider.to_owned())
}

struct Outcome {
    /// Bytes that each way brought to rank 0.
    brought: Vec<u64>,
    cuts: u32,
    /// The way as rank 0 shows it, if it does.
    seen: Option<ConnectionEntry>,
    /// Why rank 0 uses none, if there is a reason for all.
    unused: Option<NotUsedReason>,
}

/// Settings that two ranks are given.
struct Given {
    fabrics: [OfiSetting; 2],
    sealed: bool,
    /// Connections are cut after at most so many bytes.
    cut_after: Option<u64>,
}

impl Given {
    fn fabrics(one: OfiSetting, other: OfiSetting) -> Self {
        Self {
            fabrics: [one, other],
            sealed: false,
            cut_after: None,
        }
    }
}

/// Runs the plan between two ranks, again and again until rank 0 has seen what it waits for: nobody
/// knows how long it takes to open an endpoint.
fn run(plan: Plan, given: Given, is_enough: impl Fn(&Outcome) -> bool + Sync) -> Outcome {
    let Given {
        fabrics,
        sealed,
        cut_after,
    } = given;
    let (begun, round, over) = (Instant::now(), Barrier::new(2), AtomicBool::new(false));
    let weather = Arc::new(Weather::default());
    let outcome = Mutex::new(None);
    std::thread::scope(|scope| {
        let _ends = Ends(weather.clone());
        let secret = Secret::generate().unwrap();
        let (listeners, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| port()).unzip();
        let ranks: Vec<_> = (0..2u32)
            .zip(listeners.into_iter().zip(fabrics))
            .map(|(me, (listener, fabrics))| {
                let other = addresses[1 - me as usize];
                let seed = traffic::mix(u64::from(me) << 32 | 5 << 50);
                let other = cut_after.map_or(other, |bytes| {
                    let on = (Ipv4Addr::LOCALHOST, other);
                    proxy::start_on(scope, on, weather.clone(), (seed, bytes, Duration::ZERO))
                });
                let directory = Book(vec![vec![other]; 2], Vec::new());
                let hosts = Arc::new(WithFabrics(directory, fabrics));
                TcpTransport::new(identity(&secret, me, sealed), hosts, listener).unwrap()
            })
            .collect();
        let done = [AtomicU32::new(0), AtomicU32::new(0)];
        std::thread::scope(|inner| {
            for (me, mut transport) in (0..).zip(ranks) {
                let (done, weather, outcome, is_enough) = (&done, &weather, &outcome, &is_enough);
                let (round, over) = (&round, &over);
                inner.spawn(move || {
                    for at in 0.. {
                        traffic::run(&mut transport, (me, 2), plan, &done[at % 2], || {
                            std::thread::sleep(Duration::from_micros(50));
                        });
                        round.wait();
                        if me == 0 {
                            let table = transport.shown_table();
                            let is_way = |seen: &ConnectionEntry| {
                                seen.stream == StreamNumber::Bulk(WAY as u8)
                            };
                            let seen = Outcome {
                                brought: transport.brought_by(1),
                                cuts: weather.cuts.load(Ordering::Acquire),
                                seen: connection_table::read_shown(&table)
                                    .into_iter()
                                    .find(is_way),
                                unused: connection_table::read_unused(&table),
                            };
                            let late = begun.elapsed() > LIMIT;
                            over.store(is_enough(&seen) || late, Ordering::Release);
                            *outcome.lock().unwrap() = Some(seen);
                            done[at % 2].store(0, Ordering::Release);
                        }
                        round.wait();
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                    }
                    weather.calm.store(true, Ordering::Release);
                    TcpTransport::sever(transport);
                });
            }
        });
    });
    outcome.into_inner().unwrap().unwrap()
}

const PLAN: Plan = Plan {
    packets: 300,
    packet_max: 60_000,
    bulks: 16,
    bulk_max: 6_000_000,
};

fn large_data_take_it(provider: &str) {
    if !is_there(provider) {
        return;
    }
    let has_brought = |outcome: &Outcome| {
        outcome
            .brought
            .get(WAY)
            .is_some_and(|bytes| *bytes > 1_000_000)
    };
    let outcome = run(
        PLAN,
        Given::fabrics(of(provider), of(provider)),
        has_brought,
    );
    let brought = &outcome.brought;
    assert!(
        brought.len() > WAY && brought[WAY] > 0 && brought[0] > 0,
        "{brought:?}"
    );
    let seen = outcome.seen.unwrap();
    assert!(
        seen.moved > 0 && (!seen.open || seen.provider.starts_with(provider)),
        "{seen:?}"
    );
    assert_eq!((seen.unused, outcome.unused), ((None, None), None));
}

#[test]
fn large_data_take_it_beside_a_socket_by_tcp() {
    large_data_take_it("tcp");
}

#[test]
fn large_data_take_it_beside_a_socket_by_shared_memory() {
    large_data_take_it("shm");
}

#[test]
fn nothing_is_lost_or_doubled_whichever_connection_is_cut() {
    if !is_there("tcp") {
        return;
    }
    let given = Given {
        cut_after: Some(60_000),
        ..Given::fabrics(of("tcp"), of("tcp"))
    };
    let has_brought = |outcome: &Outcome| outcome.brought.get(WAY).is_some_and(|bytes| *bytes > 0);
    let outcome = run(LITTLE, given, |outcome| {
        outcome.cuts > 10 && has_brought(outcome)
    });
    assert!(
        outcome.cuts > 10 && has_brought(&outcome),
        "{} cuts, {:?}",
        outcome.cuts,
        outcome.brought
    );
}

/// Enough that such a way is asked for.
const LITTLE: Plan = Plan {
    packets: 30,
    packet_max: 1000,
    bulks: 5,
    bulk_max: 1_500_000,
};

#[test]
fn sockets_carry_all_where_one_side_has_no_such_way_and_both_say_why() {
    if !is_there("tcp") || !is_there("shm") {
        return;
    }
    for (other, why) in [
        (OfiSetting::Off, (None, Some(NotUsedReason::Off))),
        (of("shm"), (Some(NotUsedReason::OtherProvider), None)),
        (
            of("no-such-provider"),
            (None, Some(NotUsedReason::NoProvider)),
        ),
    ] {
        let knows = |outcome: &Outcome| {
            outcome
                .seen
                .as_ref()
                .is_some_and(|seen| !seen.open && seen.unused == why)
        };
        let outcome = run(LITTLE, Given::fabrics(of("tcp"), other.clone()), knows);
        assert_eq!(outcome.brought.get(WAY), Some(&0), "{other:?}");
        let seen = outcome.seen.unwrap();
        assert!(!seen.open && seen.unused == why, "{other:?}: {seen:?}");
    }
    let given = Given::fabrics(of("no-such-provider"), of("tcp"));
    let knows = |outcome: &Outcome| {
        outcome
            .seen
            .as_ref()
            .is_some_and(|seen| seen.unused.0.is_some())
    };
    let outcome = run(LITTLE, given, knows);
    assert_eq!(
        outcome.seen.unwrap().unused.0,
        Some(NotUsedReason::NoProvider)
    );
}

#[test]
fn what_is_to_be_encrypted_does_not_go_that_way() {
    let given = Given {
        sealed: true,
        ..Given::fabrics(of("tcp"), of("tcp"))
    };
    let outcome = run(LITTLE, given, |_| true);
    assert_eq!(
        (outcome.brought.len(), outcome.seen, outcome.unused),
        (1, None, Some(NotUsedReason::Sealed))
    );
}
