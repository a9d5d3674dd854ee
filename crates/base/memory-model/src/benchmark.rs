//! Benchmarks of accesses: two threads, each on a CPU of its own, bring blocks into states of the
//! caches, and one of them times what it does then.
//!
//! All benchmarks run in rounds, one sample of each in a round: a program that disturbs for a
//! second disturbs one sample of each. Of all samples of one benchmark a low one counts.

use std::hint::black_box;
use std::io::{Error, ErrorKind, Result};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering, fence};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::curve::{CostCurve, CostPoint};
use crate::kernel::Kernel;
use crate::limits::{BLOCK_LIMIT, BLOCK_MIN, KERNEL_MIN, QUICKER_ONE_IN, ROUNDS_MIN, SAMPLE_NS};
use crate::loops::{self, LINE_BYTES, Line};
use crate::model::{Access, CacheState, DistanceModel, MeasuredAccess, Operation};
use crate::sys;

/// What is measured, and where.
#[derive(Clone, Debug)]
pub struct BenchmarkPlan {
    /// The CPU that accesses, and the other.
    pub cpus: [u32; 2],
    /// Name of their distance.
    pub distance: String,
    /// Largest block, in bytes.
    pub block_max: u64,
    /// Rounds at most.
    pub rounds: usize,
    /// No round is begun after this time, but for the first [`ROUNDS_MIN`].
    pub time: Duration,
}

/// A kernel's time, predicted and measured in the same rounds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct KernelTime {
    /// The kernel.
    pub kernel: Kernel,
    /// State of the first array that is read.
    pub source: CacheState,
    /// Bytes of each array.
    pub bytes: u64,
    /// Nanoseconds as measured.
    pub measured_ns: f64,
    /// Nanoseconds as the model says.
    pub predicted_ns: f64,
}

/// One benchmark: an access or a kernel, with a size.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Job {
    Access(Access, u64),
    Kernel(Kernel, CacheState, u64),
}

impl BenchmarkPlan {
    /// Sizes of blocks: powers of two.
    fn sizes(&self) -> impl Iterator<Item = u64> + Clone + use<> {
        let most = self.block_max.clamp(BLOCK_MIN, BLOCK_LIMIT);
        std::iter::successors(Some(BLOCK_MIN), |size| size.checked_mul(2))
            .take_while(move |size| *size <= most)
    }

    /// Sizes of kernels' arrays: between those of blocks, so that the model has to interpolate.
    fn kernel_sizes(&self) -> impl Iterator<Item = u64> + use<> {
        // Three arrays stay within the largest block.
        let most = self.block_max;
        let sizes = self.sizes().map(|size| size * 3 / 2);
        sizes.filter(move |size| *size >= KERNEL_MIN && size * 3 <= most)
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        for size in self.sizes() {
            for operation in Operation::ALL {
                for state in states(operation) {
                    jobs.push(Job::Access(Access::new(operation, *state), size));
                }
            }
        }
        for size in self.kernel_sizes() {
            let wide = |kernel: &Kernel| kernel.pass_bytes(size) > 0;
            for kernel in Kernel::ALL.into_iter().filter(wide) {
                jobs.push(Job::Kernel(kernel, CacheState::OwnModified, size));
                jobs.push(Job::Kernel(kernel, CacheState::OtherModified, size));
            }
        }
        jobs
    }

    /// Measures. `step` is told how many rounds are over. The calling thread is bound to a CPU
    /// meanwhile.
    ///
    /// # Errors
    /// What the system says: a CPU may not be used, or there is no memory.
    pub fn measure(&self, mut step: impl FnMut(usize)) -> Result<(DistanceModel, Vec<KernelTime>)> {
        let before = sched_getaffinity(None)?;
        let stage = Stage::new(self.block_max.clamp(BLOCK_MIN, BLOCK_LIMIT))?;
        let jobs = self.jobs();
        let result = std::thread::scope(|scope| {
            let helper = scope.spawn(|| {
                let bound = bind(self.cpus[1]);
                stage.serve();
                bound
            });
            let measured = bind(self.cpus[0]).map(|()| {
                let mut samples = vec![Vec::with_capacity(self.rounds); jobs.len()];
                let mut hand_offs = Vec::new();
                let begun = Instant::now();
                for round in 0..self.rounds.max(1) {
                    if round >= ROUNDS_MIN && begun.elapsed() > self.time {
                        break;
                    }
                    for (job, samples) in jobs.iter().zip(&mut samples) {
                        samples.push(stage.sample(*job));
                    }
                    hand_offs.extend((0..BALL_SAMPLES).map(|_| stage.hand_off()));
                    step(round + 1);
                }
                (
                    samples.into_iter().map(low).collect::<Vec<f64>>(),
                    low(hand_offs),
                )
            });
            stage.tell(Order::End, 0, 0);
            match helper.join() {
                Ok(bound) => bound.and(measured),
                Err(_) => Err(Error::other("the second thread of the benchmark failed")),
            }
        });
        sched_setaffinity(None, &before)?;
        let (times, hand_off_ns) = result?;
        self.combine(&jobs, &times, hand_off_ns)
            .ok_or_else(|| Error::other("a benchmark measured no time at all"))
    }

    fn combine(
        &self,
        jobs: &[Job],
        times: &[f64],
        hand_off_ns: f64,
    ) -> Option<(DistanceModel, Vec<KernelTime>)> {
        let mut model = DistanceModel {
            distance: self.distance.clone(),
            cpus: self.cpus,
            hand_off_ns,
            accesses: Vec::new(),
        };
        for operation in Operation::ALL {
            for state in states(operation) {
                let access = Access::new(operation, *state);
                let points = jobs.iter().zip(times).filter_map(|(job, ns)| match job {
                    Job::Access(of, bytes) if *of == access => Some(CostPoint {
                        bytes: *bytes,
                        ns: ns.max(0.5),
                    }),
                    _ => None,
                });
                let curve = CostCurve::new(points.collect())?;
                model.accesses.push(MeasuredAccess { access, curve });
            }
        }
        let kernels = jobs.iter().zip(times).filter_map(|(job, ns)| match *job {
            Job::Kernel(kernel, source, bytes) => Some(KernelTime {
                kernel,
                source,
                bytes,
                measured_ns: *ns,
                predicted_ns: kernel.predict(&model, bytes, source)?,
            }),
            Job::Access(..) => None,
        });
        let kernels = kernels.collect();
        Some((model, kernels))
    }
}

/// States in which an operation is measured. An update is measured where both of its accesses meet
/// the own cache: elsewhere it is a load that is followed by such an update.
fn states(operation: Operation) -> &'static [CacheState] {
    match operation {
        Operation::Update => &[CacheState::OwnModified],
        _ => &CacheState::ALL,
    }
}

/// The sample that counts.
fn low(mut samples: Vec<f64>) -> f64 {
    samples.sort_unstable_by(f64::total_cmp);
    samples
        .get(samples.len() / QUICKER_ONE_IN)
        .copied()
        .unwrap_or(0.0)
}

fn bind(cpu: u32) -> Result<()> {
    let cpu = cpu as usize;
    if cpu >= CpuSet::MAX_CPU {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!("CPU {cpu} has too high a number"),
        ));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Orders to the second thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Order {
    None,
    Write,
    Read,
    Ball,
    End,
}

/// Lines by which the second and third block begin later than the first within a page: a load waits
/// for an earlier store whose address ends in the same twelve bits.
const SKEW: usize = 21;

/// The lines of a block that are used.
fn of_block(block: usize, lines: usize) -> std::ops::Range<usize> {
    block * SKEW..block * SKEW + lines
}

/// Hand-offs of a sample.
const BALLS: u32 = 64;

/// Samples of the hand-off in a round: each is short, so that one of them meets no other program.
const BALL_SAMPLES: usize = 8;

/// Words and blocks that the two threads share. Blocks are behind locks that are never contended:
/// a thread takes one only when the other is not at work.
struct Stage {
    order: Padded<AtomicU32>,
    block: Padded<AtomicUsize>,
    lines: Padded<AtomicUsize>,
    ball: Padded<AtomicU32>,
    blocks: [RwLock<Vec<Line>>; 3],
    clock_ns: f64,
}

#[repr(align(128))]
#[derive(Default)]
struct Padded<T>(T);

fn until(done: impl Fn() -> bool) {
    let mut looks = 0u32;
    while !done() {
        looks = looks.wrapping_add(1);
        if looks.is_multiple_of(1 << 12) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

impl Stage {
    fn new(block_max: u64) -> Result<Self> {
        // Kernels have arrays of half as much again as the block that is next smaller.
        let lines = block_max as usize / LINE_BYTES + 3 * SKEW;
        let block = || -> Result<RwLock<Vec<Line>>> {
            let mut block = Vec::new();
            block
                .try_reserve_exact(lines)
                .map_err(|_| Error::from(ErrorKind::OutOfMemory))?;
            block.resize(lines, Line([1.0; 8]));
            Ok(RwLock::new(block))
        };
        let blocks = [block()?, block()?, block()?];
        let clock_ns = (0..64).map(|_| timed(|| ())).fold(f64::INFINITY, f64::min);
        Ok(Self {
            order: Padded::default(),
            block: Padded::default(),
            lines: Padded::default(),
            ball: Padded::default(),
            blocks,
            clock_ns,
        })
    }

    fn tell(&self, order: Order, block: usize, lines: usize) {
        self.block.0.store(block, Ordering::Relaxed);
        self.lines.0.store(lines, Ordering::Relaxed);
        // Release: which block. SYNC(model-order).
        self.order.0.store(order as u32, Ordering::Release);
    }

    fn wait(&self) {
        // SYNC(model-done).
        until(|| self.order.0.load(Ordering::Acquire) == Order::None as u32);
    }

    fn other(&self, order: Order, block: usize, lines: usize) {
        self.tell(order, block, lines);
        self.wait();
    }

    /// The second thread: does what it is told.
    fn serve(&self) {
        loop {
            // SYNC(model-order).
            until(|| self.order.0.load(Ordering::Acquire) != Order::None as u32);
            let (block, lines) = (
                self.block.0.load(Ordering::Relaxed),
                self.lines.0.load(Ordering::Relaxed),
            );
            let used = of_block(block, lines);
            match self.order.0.load(Ordering::Relaxed) {
                order if order == Order::Write as u32 => {
                    let mut block = self.blocks[block]
                        .write()
                        .unwrap_or_else(PoisonError::into_inner);
                    loops::store(&mut block[used], black_box(1.0));
                    fence(Ordering::SeqCst);
                }
                order if order == Order::Read as u32 => {
                    let block = self.blocks[block]
                        .read()
                        .unwrap_or_else(PoisonError::into_inner);
                    black_box(loops::load(&block[used]));
                }
                order if order == Order::Ball as u32 => (0..BALLS).for_each(|turn| {
                    until(|| self.ball.0.load(Ordering::Acquire) == 2 * turn + 1);
                    self.ball.0.store(2 * turn + 2, Ordering::Release);
                }),
                _ => return,
            }
            // Release: what was done. SYNC(model-done).
            self.order.0.store(Order::None as u32, Ordering::Release);
        }
    }

    /// One way of a line between the two, in nanoseconds.
    fn hand_off(&self) -> f64 {
        self.ball.0.store(0, Ordering::Relaxed);
        self.tell(Order::Ball, 0, 0);
        let took = timed(|| {
            (0..BALLS).for_each(|turn| {
                self.ball.0.store(2 * turn + 1, Ordering::Release);
                until(|| self.ball.0.load(Ordering::Acquire) == 2 * turn + 2);
            });
        });
        self.wait();
        took / f64::from(2 * BALLS)
    }

    /// Brings the first lines of a block into a state.
    fn prepare(&self, state: CacheState, block: usize, lines: usize) {
        let used = || of_block(block, lines);
        let own = || {
            self.blocks[block]
                .write()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let read = || {
            let block = self.blocks[block]
                .read()
                .unwrap_or_else(PoisonError::into_inner);
            black_box(loops::load(&block[used()]));
        };
        let flush = || sys::flush(&own()[used()]);
        match state {
            CacheState::OwnModified => loops::store(&mut own()[used()], black_box(1.0)),
            CacheState::OwnExclusive => {
                flush();
                read();
            }
            CacheState::Shared => {
                flush();
                self.other(Order::Read, block, lines);
                read();
            }
            CacheState::OtherModified => self.other(Order::Write, block, lines),
            CacheState::OtherExclusive => {
                flush();
                self.other(Order::Read, block, lines);
            }
            CacheState::Invalid => {
                flush();
            }
        }
    }

    fn sample(&self, job: Job) -> f64 {
        let (bytes, state) = match job {
            Job::Access(access, bytes) => (bytes, access.state),
            Job::Kernel(_, source, bytes) => (bytes, source),
        };
        let lines = bytes as usize / LINE_BYTES;
        let writes_source = matches!(
            job,
            Job::Access(
                Access {
                    operation: Operation::Store | Operation::Update,
                    ..
                },
                _
            )
        );
        // Arrays besides the first are the own core's.
        let others = match job {
            Job::Access(access, _) => u64::from(access.operation == Operation::Copy),
            Job::Kernel(kernel, ..) => kernel.arrays() - 1,
        };
        for other in 1..=others as usize {
            self.prepare(CacheState::OwnModified, other, lines);
        }
        self.prepare(state, 0, lines);
        let is_own = match state {
            CacheState::OwnModified => true,
            CacheState::OwnExclusive | CacheState::Shared => !writes_source,
            _ => false,
        };
        let mut blocks = self
            .blocks
            .each_ref()
            .map(|block| block.write().unwrap_or_else(PoisonError::into_inner));
        let [first, second, third] = &mut blocks;
        let (first, second, third) = (
            &mut first[of_block(0, lines)],
            &mut second[of_block(1, lines)],
            &mut third[of_block(2, lines)],
        );
        let mut pass = || match job {
            Job::Access(access, _) => match access.operation {
                Operation::Load => {
                    black_box(loops::load(first));
                }
                Operation::Store => loops::store(first, black_box(1.0)),
                Operation::Update => loops::update(first, black_box(1.0)),
                Operation::Copy => loops::copy(second, first, black_box(0)),
            },
            Job::Kernel(kernel, ..) => match kernel {
                Kernel::Copy => loops::copy(second, first, black_box(0)),
                Kernel::Triad => loops::triad(second, (first, third), black_box(1.0)),
                Kernel::Daxpy => loops::daxpy(second, first, black_box(0.0)),
                Kernel::Stencil => loops::stencil(second, first, black_box(0.2)),
            },
        };
        if !is_own {
            return timed(|| {
                pass();
                // Stores are done when a message that follows them is seen.
                fence(Ordering::SeqCst);
            }) - self.clock_ns;
        }
        // The first pass brings all arrays where later ones find them.
        pass();
        let once = timed(&mut pass);
        let passes = (SAMPLE_NS / once.max(1.0)).ceil().clamp(1.0, 1000.0) as u32;
        let took = timed(|| (0..passes).for_each(|_| pass())) - self.clock_ns;
        took / f64::from(passes)
    }
}

fn timed(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_nanos() as f64
}
