//! The transport that is shared memory to some peers and TCP to others: the suite over both ways,
//! and traffic of two nodes with two ranks each.

use crate::support;
use crate::traffic::{self, Plan};
use garonne_engine::api::Peer;
use garonne_engine::schedule::coalesce::CoalescePolicy;
use garonne_engine::transport::{AsyncProgress, PacketClass, Transport};
use garonne_multi::MultiTransport;
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sync::futex::{self, Wake};
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_transport::conformance::one_sided::check_one_sided;
use garonne_transport::conformance::{RecordedEvents, World, check_all, send};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Ranks of nodes with `per_node` ranks each.
pub fn ranks(count: u32, per_node: u32, leaving: CoalescePolicy) -> Vec<MultiTransport> {
    let threads = ThreadPeers::new(count).unwrap();
    threads
        .into_iter()
        .zip(support::ranks(count, false))
        .zip(0..)
        .map(|((threads, mut tcp), me)| {
            tcp.gather(leaving);
            let near = (0..count)
                .map(|peer| peer / per_node == me / per_node)
                .collect();
            MultiTransport::new(ShmTransport::new(Arc::new(threads)).unwrap(), tcp, near)
        })
        .collect()
}

struct Two {
    transports: Vec<Option<MultiTransport>>,
    per_node: u32,
}

impl Two {
    fn new(per_node: u32) -> Self {
        let transports = ranks(2, per_node, CoalescePolicy::Hold)
            .into_iter()
            .map(Some)
            .collect();
        Self {
            transports,
            per_node,
        }
    }
}

impl World for Two {
    type Tested = MultiTransport;
    fn transport(&mut self, peer: Peer) -> &mut MultiTransport {
        self.transports[peer as usize].as_mut().unwrap()
    }
    fn settle(&mut self) {
        self.transports
            .iter_mut()
            .flatten()
            .for_each(|transport| transport.tcp().unwrap().drive());
        if self.per_node == 1 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    fn kill_second(&mut self) {
        if self.per_node == 2 {
            return self.transport(0).shm().peer_gone(1);
        }
        while !self.transport(1).tcp().unwrap().has_left() {
            self.settle();
        }
        // Its proof and its packet lie in the kernel of rank 0, which takes the connection in
        // before it hears of the death.
        (0..3).for_each(|_| self.settle());
        self.transports[1] = None;
        self.transport(0).tcp().unwrap().peer_gone(1);
    }
}

#[test]
fn the_suite_holds_towards_peers_of_the_node() {
    check_all(|| Two::new(2));
}

#[test]
fn the_suite_holds_towards_peers_of_other_nodes() {
    check_all(|| Two::new(1));
}

#[test]
fn one_sided_communication_holds_towards_peers_of_the_node_and_of_others() {
    for per_node in [1, 2] {
        check_one_sided(
            || {
                let two = ranks(2, per_node, CoalescePolicy::Hold);
                two.try_into().unwrap_or_else(|_| panic!("two ranks"))
            },
            |transport: &mut MultiTransport| {
                transport.tcp().unwrap().drive();
                std::thread::yield_now();
            },
        );
    }
}

#[test]
fn traffic_of_two_nodes_with_two_ranks_each_arrives_whole() {
    let plan = Plan {
        packets: 300,
        packet_max: 30_000,
        bulks: 6,
        bulk_max: 500_000,
    };
    let done = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (me, mut transport) in (0..).zip(ranks(4, 2, CoalescePolicy::Adaptive)) {
            let done = &done;
            scope.spawn(move || {
                traffic::run(&mut transport, (me, 4), plan, done, std::thread::yield_now)
            });
        }
    });
}

/// Longer than any delay of an overloaded machine: whoever sleeps that long was not woken.
const SURELY_LOST: Duration = Duration::from_secs(30);

/// The next packet, with sleep until it comes.
fn await_packet(transport: &mut MultiTransport) -> Peer {
    let source = transport.wake_source();
    loop {
        let mut told = RecordedEvents::default();
        transport.poll(1, &mut told);
        let ticket = transport.arm();
        // As a host does: poll once more after arming.
        if told.packets.is_empty() {
            transport.poll(1, &mut told);
        }
        if let Some((peer, ..)) = told.packets.first() {
            transport.disarm();
            return *peer;
        }
        let begun = Instant::now();
        source.sleep(ticket, Some(SURELY_LOST));
        assert!(begun.elapsed() < SURELY_LOST, "nobody woke it");
        transport.disarm();
    }
}

#[test]
fn a_rank_asleep_is_woken_by_peers_of_its_node_and_of_others() {
    const ROUNDS: usize = 300;
    std::thread::scope(|scope| {
        for (me, mut transport) in (0..).zip(ranks(3, 2, CoalescePolicy::Adaptive)) {
            scope.spawn(move || {
                // Rank 0 answers; 1 is on its node and 2 is not.
                for n in 0..if me == 0 { 2 * ROUNDS } else { ROUNDS } {
                    let to = if me == 0 {
                        await_packet(&mut transport)
                    } else {
                        0
                    };
                    while send(&mut transport, to, &[n as u8; 20], n, PacketClass::Data).is_err() {
                        transport.poll(0, &mut RecordedEvents::default());
                    }
                    if me != 0 {
                        assert_eq!(await_packet(&mut transport), 0);
                    }
                }
            });
        }
    });
}

/// Waits as a progress thread does: it is called for what came, whether that came before it armed
/// or after.
fn await_call(transport: &mut MultiTransport, me: Peer) -> Peer {
    let words = transport.progress_words(me).unwrap();
    let (word, all) = (words.word(0), words.word(4));
    let call = ProgressWakeup::new(&word, &all);
    loop {
        let mut told = RecordedEvents::default();
        transport.poll(1, &mut told);
        if let Some((peer, ..)) = told.packets.first() {
            call.disarm();
            return *peer;
        }
        call.arm(WakeupScope::Everything);
        let seen = word.load(Ordering::SeqCst);
        transport.arm_progress();
        let slept = call
            .is_armed()
            .then(|| futex::wait(&word, seen, Some(SURELY_LOST)));
        assert_ne!(slept, Some(Wake::Timeout), "nobody called it");
    }
}

#[test]
fn what_comes_from_another_node_calls_the_helper_of_a_rank_that_does_not_look() {
    const ROUNDS: usize = 300;
    const PACKETS: usize = 3;
    std::thread::scope(|scope| {
        for (me, mut transport) in (0..).zip(ranks(2, 1, CoalescePolicy::Immediate)) {
            scope.spawn(move || {
                for n in 0..ROUNDS {
                    // Of several that come at once the transport tells one at a time.
                    for part in 0..if me == 0 { 1 } else { PACKETS } {
                        if me == 0 {
                            (0..PACKETS)
                                .for_each(|_| assert_eq!(await_call(&mut transport, me), 1));
                        }
                        while send(
                            &mut transport,
                            1 - me,
                            &[n as u8; 20],
                            n * PACKETS + part,
                            PacketClass::Data,
                        )
                        .is_err()
                        {
                            transport.poll(0, &mut RecordedEvents::default());
                        }
                    }
                    if me == 1 {
                        // Now and then it has come before the other arms.
                        std::thread::sleep(Duration::from_micros(n as u64 % 3 * 100));
                        assert_eq!(await_packet(&mut transport), 0);
                    }
                }
            });
        }
    });
}

#[test]
fn calls_are_wanted_for_long_messages_with_other_nodes_alone() {
    let transport = &ranks(3, 2, CoalescePolicy::Immediate)[0];
    let long = 1 << 30;
    assert!(transport.needs_polling(Some(2), long) && transport.needs_polling(None, long));
    assert!(
        !transport.needs_polling(Some(1), long) && !transport.needs_polling(Some(2), 64 * 1024)
    );
}
