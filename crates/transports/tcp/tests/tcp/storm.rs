//! Worlds of two or three ranks whose connections are cut, reset, stalled, slowed and half closed
//! at random, and whose lines are dark, taken out of use and back, and new, while messages of all
//! sizes go both ways: none is lost, doubled, changed or out of order, and no memory is touched
//! that is not theirs any more.
//!
//! All is drawn from a seed, which is printed with the command that repeats it. `./x soak rails`
//! goes on with new ones.

mod lines;
mod ranks;

use crate::storm::lines::{Climate, Ends, Line, Sky, address_of};
use crate::storm::ranks::{Plan, Rank};
use crate::support::identity;
use crate::traffic::{self, mix};
use garonne_engine::api::Peer;
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_sim::random::Random;
use garonne_sim::seeds::run_seeds;
use garonne_tcp::{PeerDirectory, Secret, TcpTransport, listen};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Place where one rank finds the others.
struct Map {
    /// By peer and line.
    addresses: Vec<Vec<SocketAddr>>,
    sky: Arc<Sky>,
}

impl Map {
    fn present(&self, peer: Peer) -> Vec<SocketAddr> {
        let present = self.sky.present.load(Ordering::Acquire);
        let lines = self.addresses[peer as usize].iter().enumerate();
        lines
            .filter(|(line, _)| present & 1 << line != 0)
            .map(|(_, address)| *address)
            .collect()
    }
}

impl PeerDirectory for Map {
    fn size(&self) -> u32 {
        self.addresses.len() as u32
    }
    fn incarnation(&self, peer: Peer) -> u32 {
        1000 + peer
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        let mut addresses = self.present(peer);
        addresses.sort_by_key(|address| self.is_drained(address.ip()));
        addresses
    }
    fn networks(&self, peer: Peer) -> Vec<SocketAddr> {
        self.present(peer)
    }
    fn drained(&self) -> u32 {
        self.sky.turns.load(Ordering::Acquire)
    }
    fn is_drained(&self, address: IpAddr) -> bool {
        let drained = self.sky.drained.load(Ordering::Acquire);
        (0..8).any(|line| drained & 1 << line != 0 && address == IpAddr::V4(address_of(line)))
    }
    fn is_gone(&self, _peer: Peer) -> bool {
        false
    }
}

/// Ends all when a rank fails, since the others would wait for it.
struct Fails<'a>(&'a Sky);

impl Drop for Fails<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.stop.store(true, Ordering::Release);
        }
    }
}

/// Meaning of a seed.
#[derive(Debug)]
struct World {
    ranks: u32,
    lines: u8,
    sealed: bool,
    leaving: Option<CoalescePolicy>,
    climate: Climate,
    messages: u32,
    window: usize,
}

impl World {
    fn draw(dice: &mut Random) -> Self {
        let ranks = if dice.one_in(4) { 3 } else { 2 };
        // One way alone has large data leave unasked.
        let lines = 1 + dice.below(3) as u8;
        let leaving = [
            None,
            Some(CoalescePolicy::Immediate),
            Some(CoalescePolicy::Aggregate),
            Some(CoalescePolicy::Hold),
            Some(CoalescePolicy::Adaptive),
        ];
        let bytes = 100_000 << dice.below(6);
        let sealed = dice.one_in(5);
        // As many as make it within seconds, also where ciphers are not optimised.
        let messages = (bytes / 8000).min(if sealed { 20 } else { 100 }) as u32;
        let all = ranks * (ranks - 1) * u32::from(lines);
        Self {
            ranks,
            lines,
            sealed,
            leaving: leaving[dice.below(5) as usize],
            climate: Climate {
                bytes,
                lasts: Duration::from_millis(10 << dice.below(9)),
                every: Duration::from_millis(40 << dice.below(5)) * all,
                lines,
                ails: if dice.one_in(3) {
                    u32::MAX
                } else {
                    1 + dice.below(100) as u32
                },
            },
            messages: 1 + messages / (ranks - 1),
            window: 1 + dice.below(8) as usize,
        }
    }
}

/// The ranks' transports, and the lines between them.
fn transports(world: &World, sky: &Arc<Sky>) -> (Vec<TcpTransport>, Vec<Line>) {
    let secret = Secret::generate().unwrap();
    let listeners: Vec<TcpListener> = (0..world.ranks)
        .map(|_| listen((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap())
        .collect();
    let ports: Vec<u16> = listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap().port())
        .collect();
    let mut lines = Vec::new();
    let transports = (0..).zip(listeners).map(|(me, listener)| {
        let mut to = |peer: usize| -> Vec<SocketAddr> {
            let between = (0..world.lines).map(|line| Line::new(line, ports[peer]));
            let between: Vec<Line> = between.collect();
            let addresses = between.iter().map(Line::address).collect();
            lines.extend(between);
            addresses
        };
        let map = Map {
            addresses: (0..world.ranks as usize).map(&mut to).collect(),
            sky: sky.clone(),
        };
        let mut transport =
            TcpTransport::new(identity(&secret, me, world.sealed), Arc::new(map), listener)
                .unwrap();
        if let Some(leaving) = world.leaving {
            transport.gather(leaving);
        }
        transport
    });
    (transports.collect(), lines)
}

/// Runs the world of a seed: `exchange` is what a rank does.
fn storm(seed: u64, exchange: impl Fn(&World, Peer, TcpTransport, &Sky, &AtomicU32) + Sync) {
    let mut dice = Random::new(mix(seed));
    let world = World::draw(&mut dice);
    println!("{world:?}");
    let sky = Arc::new(Sky::default());
    let all = (1 << world.lines) - 1;
    // Sometimes the last line comes later.
    let absent = if world.lines > 1 && dice.one_in(2) {
        1 << (world.lines - 1)
    } else {
        0
    };
    sky.present.store(all & !absent, Ordering::Release);
    let (transports, lines) = transports(&world, &sky);
    let through = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let (sky, world, through, exchange) = (&*sky, &world, &through, &exchange);
        let _ends = Ends(sky);
        scope.spawn(move || lines::serve(lines, sky, world.climate, dice));
        std::thread::scope(|inner| {
            for (me, transport) in (0..).zip(transports) {
                inner.spawn(move || {
                    let _fails = Fails(sky);
                    exchange(world, me, transport, sky, through);
                });
            }
        });
    });
    println!("{} things went wrong", sky.ails.load(Ordering::Relaxed));
}

#[test]
fn messages_of_all_sizes_come_once_and_whole_in_all_weathers() {
    let which =
        "-p garonne-tcp --test tcp messages_of_all_sizes_come_once_and_whole_in_all_weathers";
    run_seeds(which, 0..6, |seed| {
        storm(seed, |world, me, transport, sky, through| {
            let plan = Plan {
                seed,
                ranks: world.ranks,
                messages: world.messages,
                window: world.window,
                // Some breaks for each.
                longest: 8 * world.climate.bytes,
            };
            Rank::new(transport, me, plan, sky).run(through);
        });
    });
}

#[test]
fn packets_and_shaped_bulk_data_come_once_and_whole_in_all_weathers() {
    let which = "-p garonne-tcp --test tcp packets_and_shaped_bulk_data_come_once_and_whole_in_all_weathers";
    run_seeds(which, 0..4, |seed| {
        storm(seed, |world, me, mut transport, sky, through| {
            let plan = traffic::Plan {
                packets: 4 * world.messages,
                packet_max: 60_000,
                bulks: 1 + world.messages / 30,
                bulk_max: 1_000_000,
            };
            traffic::run(&mut transport, (me, world.ranks), plan, through, || {
                assert!(!sky.stop.load(Ordering::Acquire), "another rank has failed");
                std::thread::sleep(Duration::from_micros(50));
            });
            sky.calm.store(true, Ordering::Release);
            TcpTransport::sever(transport);
        });
    });
}
