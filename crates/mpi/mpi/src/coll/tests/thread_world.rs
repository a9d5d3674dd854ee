//! Worlds whose ranks are threads over the shared-memory transport, and buffers of words of which
//! each says whose it is.

use crate::coll::*;
use crate::process::{Process, ProcessConfig, ThreadLevel};
use garonne_engine::CreditQuotas;
use garonne_engine::engine::Engine;
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver};
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sync::user::Scratch;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering as Memory};

/// Looks so often, gives way a little, then sleeps: so that being woken by a doorbell is tried as
/// well.
struct Impatient {
    spins: u32,
    /// What is left open has a progress thread at once, always.
    lends: bool,
}

/// No looks before giving way: ranks meet at a gate. A few: a small number of ranks meets by flags.
pub(super) const STYLES: [u32; 2] = [0, 3];

impl WaitObserver for Impatient {}

impl Environment for Impatient {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: self.spins,
            yields: 2,
            spinners: 1,
        }
    }

    fn releases_always(&self) -> bool {
        self.lends
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("the rank aborted the job with code {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

pub(super) fn world(n: u32, program: impl Fn(&Comm) + Send + Sync) {
    for spins in STYLES {
        world_of(n, spins, &program);
    }
}

pub(in crate::coll) fn world_of(n: u32, spins: u32, program: &(impl Fn(&Comm) + Send + Sync)) {
    ranks_of(n, (spins, false), &|host| one_world(host, program));
}

/// Runs a world of threads in which a progress thread advances what a rank leaves open.
pub(super) fn world_that_lends(n: u32, program: impl Fn(&Comm) + Send + Sync) {
    for spins in STYLES {
        ranks_of(n, (spins, true), &|host| one_world(host, &program));
    }
}

fn one_world(host: Arc<dyn Messaging>, program: &impl Fn(&Comm)) {
    let process = Process::new(ProcessConfig::plain(host));
    process.init(ThreadLevel::Multiple).unwrap();
    program(&process.world().unwrap());
    process.finalize().unwrap();
}

type ImpatientHost = LockedEngine<ShmTransport, Impatient>;

fn host(
    neighbours: ThreadPeers,
    (me, n): (u32, u32),
    quotas: CreditQuotas,
    impatient: Impatient,
) -> Arc<ImpatientHost> {
    let transport = ShmTransport::new(Arc::new(neighbours)).unwrap();
    Arc::new(LockedEngine::new(
        Engine::new(transport, me, n, quotas),
        me,
        n,
        impatient,
    ))
}

/// Ranks that do nothing more once they have finalized, as processes that compute then; a peer may
/// have so many envelopes on its way to one.
pub(super) fn world_that_ends(n: u32, envelopes: u32, program: impl Fn(&Comm) + Send + Sync) {
    let quotas = CreditQuotas {
        envelopes,
        ..CreditQuotas::for_world(n)
    };
    let neighbours = ThreadPeers::new(n).unwrap().into_iter();
    let host = |(me, neighbours)| {
        let impatient = Impatient {
            spins: 3,
            lends: false,
        };
        host(neighbours, (me, n), quotas, impatient)
    };
    let hosts: Vec<_> = (0..n).zip(neighbours).map(host).collect();
    std::thread::scope(|scope| {
        for host in &hosts {
            let program = &program;
            scope.spawn(move || one_world(host.clone(), program));
        }
    });
}

pub(super) fn ranks_of(
    n: u32,
    (spins, lends): (u32, bool),
    rank: &(impl Fn(Arc<dyn Messaging>) + Send + Sync),
) {
    let neighbours = ThreadPeers::new(n).unwrap();
    let leaving = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for (me, neighbours) in (0..n).zip(neighbours) {
            let leaving = &leaving;
            scope.spawn(move || {
                let host = host(
                    neighbours,
                    (me, n),
                    CreditQuotas::for_world(n),
                    Impatient { spins, lends },
                );
                if lends {
                    host.enable_async_progress(None);
                }
                rank(host.clone());
                leaving.fetch_add(1, Memory::SeqCst);
                while leaving.load(Memory::SeqCst) < n {
                    host.progress();
                    std::thread::yield_now();
                }
                host.stop_async_progress();
            });
        }
    });
}

/// Element `index` of what `from` sends to `to`.
pub(super) fn word(from: u32, to: u32, index: u64) -> u32 {
    (from * 1009 + to * 31).wrapping_add(index as u32 * 7)
}

pub(super) struct WordBuffer(pub(super) Scratch);

impl WordBuffer {
    pub(super) fn new(count: u64, value: impl Fn(u64) -> u32) -> Self {
        let words = Self(Scratch::new(4 * count as usize).unwrap());
        words.fill(count, value);
        words
    }

    pub(super) fn fill(&self, count: u64, value: impl Fn(u64) -> u32) {
        let bytes: Vec<u8> = (0..count)
            .flat_map(|index| value(index).to_ne_bytes())
            .collect();
        self.0.mem().write(0, &bytes);
    }

    pub(super) fn check(&self, count: u64, value: impl Fn(u64) -> u32) {
        let mut bytes = vec![0; 4 * count as usize];
        self.0.mem().read(0, &mut bytes);
        for (index, word) in bytes.chunks_exact(4).enumerate() {
            assert_eq!(
                u32::from_ne_bytes(word.try_into().unwrap()),
                value(index as u64),
                "word {index}"
            );
        }
    }
}
