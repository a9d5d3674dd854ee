//! Ranks of which none can be called, and which meet at a host between: the conformance suite, and
//! traffic whose connections break anywhere.

use crate::cuts;
use crate::proxy::{self, Ends, Weather};
use crate::support::{JOB, identity, port};
use crate::traffic::{self, Plan};
use garonne_engine::api::Peer;
use garonne_tcp::agent_channel::{self, ChannelConnect, ConnectOutcome};
use garonne_tcp::relay::{Relay, RelayDirection};
use garonne_tcp::{PeerDirectory, Secret, TcpTransport};
use garonne_transport::conformance::{World, check_all};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Between two turns of the host between.
const PAUSE: Duration = Duration::from_micros(50);

/// Pairs of which one asks the other for its call.
type Asks = Arc<Mutex<Vec<(Peer, Peer, bool)>>>;

/// All others are at the host between.
struct Book {
    me: Peer,
    /// By peer, the host between as this rank reaches it.
    between: Vec<SocketAddr>,
    asks: Asks,
}

impl PeerDirectory for Book {
    fn size(&self) -> u32 {
        self.between.len() as u32
    }
    fn incarnation(&self, _peer: Peer) -> u32 {
        0
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        vec![self.between[peer as usize]]
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
    fn may_be_hidden(&self, _peer: Peer) -> bool {
        true
    }
    fn ask(&self, peer: Peer, bulk: bool) {
        self.asks.lock().unwrap().push((self.me, peer, bulk));
    }
}

/// The host between, and the agents of all, which have ranks called.
struct Between {
    relay: Relay,
    secret: Secret,
    /// Place where ranks listen, for their agents alone.
    at: Vec<SocketAddr>,
    asks: Asks,
    calls: Vec<ChannelConnect>,
}

impl Between {
    fn turn(&mut self) {
        self.relay
            .turn(Instant::now(), &|_, _| RelayDirection::Meeting);
        for (from, to, bulk) in self.asks.lock().unwrap().drain(..) {
            let asking = agent_channel::identity_of_asking(self.secret.clone(), JOB, from);
            self.calls.extend(ChannelConnect::ask(
                &asking,
                (self.at[to as usize], to),
                bulk,
            ));
        }
        self.calls
            .retain_mut(|call| matches!(call.look(), ConnectOutcome::Waits));
    }
}

/// Ranks and the host between; `way(from, to, address)` may put something before it.
fn ranks_with(
    count: u32,
    sealed: bool,
    mut way: impl FnMut(Peer, Peer, SocketAddr) -> SocketAddr,
) -> (Vec<TcpTransport>, Between) {
    let secret = Secret::generate().unwrap();
    let (relay_port, between) = port();
    let (listeners, at): (Vec<_>, Vec<_>) = (0..count).map(|_| port()).unzip();
    let asks = Asks::default();
    let transports = (0..count).zip(listeners).map(|(me, listener)| {
        let directory = Book {
            me,
            between: (0..count).map(|to| way(me, to, between)).collect(),
            asks: Arc::clone(&asks),
        };
        let mut identity = identity(&secret, me, sealed);
        identity.me.incarnation = 0;
        TcpTransport::new(identity, Arc::new(directory), listener).unwrap()
    });
    let transports = transports.collect();
    let relay = Relay::new(relay_port, secret.clone(), JOB).unwrap();
    let between = Between {
        relay,
        secret,
        at,
        asks,
        calls: Vec::new(),
    };
    (transports, between)
}

struct Two {
    transports: Vec<Option<TcpTransport>>,
    stop: Arc<AtomicBool>,
    between: Option<JoinHandle<()>>,
}

impl Two {
    fn new(sealed: bool) -> Self {
        let (transports, mut between) = ranks_with(2, sealed, |_, _, address| address);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let between = std::thread::spawn(move || {
            while !stopped.load(Ordering::Acquire) {
                between.turn();
                std::thread::sleep(PAUSE);
            }
        });
        Self {
            transports: transports.into_iter().map(Some).collect(),
            stop,
            between: Some(between),
        }
    }
}

impl World for Two {
    type Tested = TcpTransport;
    fn transport(&mut self, peer: Peer) -> &mut TcpTransport {
        self.transports[peer as usize].as_mut().unwrap()
    }
    fn settle(&mut self) {
        self.transports
            .iter_mut()
            .flatten()
            .for_each(TcpTransport::drive);
        std::thread::sleep(2 * PAUSE);
    }
    fn kill_second(&mut self) {
        while !self.transport(1).has_left() {
            self.settle();
        }
        self.transports[1].take().unwrap().sever();
        // What it has sent is still under way through the host between, and that it is dead nobody
        // but the agents knows.
        for _ in 0..1000 {
            self.settle();
        }
        self.transport(0).peer_gone(1);
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        self.transports
            .drain(..)
            .flatten()
            .for_each(TcpTransport::sever);
        self.stop.store(true, Ordering::Release);
        self.between.take().map(JoinHandle::join);
    }
}

#[test]
fn the_suite_holds_between_two_that_meet_at_a_host_between() {
    check_all(|| Two::new(false));
}

#[test]
fn the_suite_holds_there_where_traffic_is_sealed() {
    check_all(|| Two::new(true));
}

/// Runs the plan between ranks whose connections to the host between are cut after at most `bytes`
/// bytes each. Returns the cuts.
fn through_cuts((ranks, sealed): (u32, bool), plan: Plan, bytes: u64) -> u32 {
    let weather = Arc::new(Weather::default());
    std::thread::scope(|scope| {
        let _ends = Ends(weather.clone());
        let (transports, mut between) = ranks_with(ranks, sealed, |from, to, address| {
            let seed = traffic::mix(u64::from(from) << 32 | u64::from(to) | 7 << 50);
            match from == to {
                true => address,
                false => proxy::start(scope, address, weather.clone(), (seed, bytes)),
            }
        });
        let stop = weather.clone();
        scope.spawn(move || {
            while !stop.stop.load(Ordering::Acquire) {
                between.turn();
                std::thread::sleep(PAUSE);
            }
        });
        cuts::talk(transports, plan, &weather);
    });
    weather.cuts.load(Ordering::Acquire)
}

#[test]
fn packets_and_bulk_data_survive_ways_to_the_host_between_that_break_anywhere() {
    let plan = Plan {
        packets: 1500,
        packet_max: 60_000,
        bulks: 12,
        bulk_max: 1_500_000,
    };
    let cuts = through_cuts((2, false), plan, 1_500_000);
    assert!(cuts > 5, "only {cuts} connections were cut");
}

#[test]
fn sealed_traffic_of_three_survives_ways_to_the_host_between_that_break_anywhere() {
    let plan = Plan {
        packets: 200,
        packet_max: 20_000,
        bulks: 2,
        bulk_max: 150_000,
    };
    let cuts = through_cuts((3, true), plan, 300_000);
    assert!(cuts > 5, "only {cuts} connections were cut");
}
