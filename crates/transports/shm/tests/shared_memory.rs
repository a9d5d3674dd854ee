//! The conformance suite over the shared-memory transport, between threads' memory and through the
//! system calls that processes use, and what only this transport promises.

use garonne_engine::api::Peer;
use garonne_engine::transport::{PacketClass, Transport};
use garonne_shm::{NodePeers, PeerProcess, ShmTransport, ThreadPeers};
use garonne_transport::conformance::one_sided::check_one_sided;
use garonne_transport::conformance::{RecordedEvents, World, check_all, send};
use std::sync::Arc;
use support::ReachedAs;

mod support;

struct Two(Vec<ShmTransport>);

impl Two {
    fn new<N: NodePeers + 'static>(wrap: impl Fn(ThreadPeers) -> N) -> Self {
        let threads = ThreadPeers::new(2).unwrap();
        Self(
            threads
                .into_iter()
                .map(|threads| ShmTransport::new(Arc::new(wrap(threads))).unwrap())
                .collect(),
        )
    }
}

impl World for Two {
    type Tested = ShmTransport;
    fn transport(&mut self, peer: Peer) -> &mut ShmTransport {
        &mut self.0[peer as usize]
    }
    fn kill_second(&mut self) {
        self.0[0].peer_gone(1);
    }
}

#[test]
fn the_suite_holds_between_ranks_that_are_threads() {
    check_all(|| Two::new(|threads| threads));
}

#[test]
fn the_suite_holds_with_the_system_calls_that_processes_use() {
    let process = PeerProcess::Other {
        pid: std::process::id(),
        kept: true,
    };
    check_all(|| Two::new(|threads| ReachedAs(threads, process)));
}

#[test]
fn the_suite_holds_where_no_memory_can_be_reached() {
    check_all(|| Two::new(|threads| ReachedAs(threads, PeerProcess::Unreachable)));
}

#[test]
fn one_sided_communication_holds_with_every_access_to_memory() {
    let process = PeerProcess::Other {
        pid: std::process::id(),
        kept: true,
    };
    for reached in [PeerProcess::Same, process, PeerProcess::Unreachable] {
        let two = || Two::new(|threads| ReachedAs(threads, reached)).0;
        check_one_sided(
            || two().try_into().unwrap_or_else(|_| panic!("two ranks")),
            |_| {},
        );
    }
}

#[test]
fn eight_ranks_at_once_lose_nothing_and_keep_each_pair_in_order() {
    let ranks = ThreadPeers::new(8).unwrap();
    std::thread::scope(|scope| {
        for threads in ranks {
            scope.spawn(move || {
                let me = threads.me();
                let mut transport = ShmTransport::new(Arc::new(threads)).unwrap();
                let (mut sent, mut got) = ([0usize; 8], [0usize; 8]);
                while sent
                    .iter()
                    .chain(&got)
                    .enumerate()
                    .any(|(i, n)| i % 8 != me as usize && *n < 1500)
                {
                    for peer in (0..8).filter(|peer| *peer != me) {
                        let n = &mut sent[peer as usize];
                        if *n < 1500
                            && send(
                                &mut transport,
                                peer,
                                &vec![*n as u8; *n % 300],
                                *n,
                                PacketClass::Data,
                            )
                            .is_ok()
                        {
                            *n += 1;
                        }
                    }
                    let mut told = RecordedEvents::default();
                    transport.poll(64, &mut told);
                    if told.packets.is_empty() {
                        std::thread::yield_now();
                    }
                    assert!(told.gone.is_empty());
                    for (peer, header, bytes) in told.packets {
                        let n = &mut got[peer as usize];
                        assert_eq!(
                            (header.sequence as usize, bytes),
                            (*n, vec![*n as u8; *n % 300])
                        );
                        *n += 1;
                    }
                }
            });
        }
    });
}
