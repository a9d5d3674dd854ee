//! The cost model: what moving bytes between two cores of this machine costs, measured, and what
//! follows from it.
//!
//! Copies are measured here, between two threads; the ways of fetching large messages by two ranks,
//! which the command starts. Made by `garonne tune`, kept in the user's cache directory, read once
//! by each rank as a starting point (transports correct it by what they see), printed by
//! `garonne why costs`. A missing, foreign or damaged file means: start without. Measuring takes
//! about a second and two cores; nothing here runs unless asked to.

use crate::protocol_tuner::WAYS;
use garonne_engine::transport::RendezvousMode;
use garonne_sync::copy::{self, Routine, copy_mem_by};
use garonne_sync::shm::Segment;
use garonne_transport::limits::PACKET_MAX;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Version of the file's format.
const FORMAT: u32 = 3;
/// Lengths at which copies are measured.
const LENGTHS: [usize; 7] = [
    1 << 10,
    4 << 10,
    16 << 10,
    64 << 10,
    256 << 10,
    1 << 20,
    4 << 20,
];
/// Samples of each; the median counts, so that preemptions do not.
const SAMPLES: usize = 15;

/// Cost of one copy of data that another core has just written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopyCost {
    /// Bytes.
    pub bytes: usize,
    /// By the C library.
    pub library_ns: f64,
    /// By vector moves; equal to the library's where there are none.
    pub vector_ns: f64,
    /// By stores that bypass the caches.
    pub streaming_ns: f64,
    /// By the processor's own string copy; equal to the library's where there is none.
    pub string_ns: f64,
}

impl CopyCost {
    /// By a routine.
    fn by(&self, routine: Routine) -> f64 {
        match routine {
            Routine::Library => self.library_ns,
            Routine::Vector => self.vector_ns,
            Routine::Streaming => self.streaming_ns,
            Routine::String => self.string_ns,
        }
    }
}

/// Cost of fetching a message from another process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProtocolCosts {
    /// Bytes.
    pub bytes: usize,
    /// Nanoseconds by each way, in the order of [`WAYS`]; `None`: it cannot be gone here.
    pub ns: [Option<f64>; WAYS.len()],
}

/// Measured costs of copies on this machine: by routine, length and way. Loaded when a rank starts,
/// and written by `garonne tune`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostModel {
    format: u32,
    /// Processor and number of CPUs: a model of another machine is not used.
    pub machine: String,
    /// One way of a bare cache-line hand-off while it was measured: tells near cores from far ones.
    pub hand_off_ns: f64,
    /// Copies between two cores.
    pub copies: Vec<CopyCost>,
    /// Large messages between two ranks.
    pub ways: Vec<ProtocolCosts>,
}

/// Writes what is kept between jobs to its place, whole or not at all.
///
/// # Errors
/// `None`: there is no home. What the file system says.
pub fn keep(path: Option<PathBuf>, bytes: &[u8]) -> Result<PathBuf> {
    let path = path.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "neither XDG_CACHE_HOME nor HOME is set",
        )
    })?;
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(&fresh, &path).inspect_err(|_| drop(std::fs::remove_file(&fresh)))?;
    Ok(path)
}

impl CostModel {
    /// The kept model, if it is of this machine.
    pub fn load() -> Option<Self> {
        Self::parse(&std::fs::read(Self::path()?).ok()?, &machine())
    }

    fn parse(bytes: &[u8], machine: &str) -> Option<Self> {
        let model: Self = serde_json::from_slice(bytes).ok()?;
        (model.format == FORMAT && model.machine == machine).then_some(model)
    }

    /// Returns where it is kept: `$XDG_CACHE_HOME/garonne`, or `~/.cache/garonne`. `None`: there is
    /// no home.
    pub fn path() -> Option<PathBuf> {
        let absolute = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let cache = absolute("XDG_CACHE_HOME")
            .or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
        Some(cache.join("garonne").join(format!("costs-{FORMAT}.json")))
    }

    /// Keeps it, whole or not at all.
    ///
    /// # Errors
    /// No home, or what the file system says (a read-only home is no reason not to run).
    pub fn save(&self) -> Result<PathBuf> {
        keep(Self::path(), &serde_json::to_vec_pretty(self)?)
    }

    /// The copy routine that is quickest over the lengths of packets, and from where on streaming
    /// is clearly quicker.
    pub fn routine(&self) -> (Routine, usize) {
        let packets = || {
            self.copies
                .iter()
                .filter(|cost| cost.bytes <= PACKET_MAX * 2)
        };
        // Lengths count alike: each ratio says how much a routine saves there. No logarithms, for
        // which alone every rank would load the library of mathematics.
        let ratio = |routine| {
            packets()
                .map(|cost| cost.by(routine) / cost.vector_ns)
                .product::<f64>()
        };
        let routine = [Routine::Vector, Routine::Library, Routine::String]
            .into_iter()
            .min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)))
            .unwrap_or(Routine::Vector);
        // A fifth: what is streamed to memory must be fetched again by whoever uses it.
        let slower = self
            .copies
            .iter()
            .rposition(|cost| cost.streaming_ns > 0.8 * cost.by(routine));
        let from = self
            .copies
            .get(slower.map_or(0, |last| last + 1))
            .map_or(usize::MAX, |cost| cost.bytes);
        (routine, from)
    }

    /// Returns the model's times of fetches, with which a transport starts: way, length in bytes
    /// and nanoseconds.
    pub fn fetch_times(&self) -> impl Iterator<Item = (RendezvousMode, u64, f64)> {
        self.ways.iter().flat_map(|cost| {
            let len = cost.bytes as u64;
            WAYS.into_iter()
                .zip(cost.ns)
                .filter_map(move |(way, ns)| Some((way, len, ns?)))
        })
    }

    /// Returns the model with what two ranks found of the ways of fetching.
    pub fn with_ways(self, ways: Vec<ProtocolCosts>) -> Self {
        Self { ways, ..self }
    }

    /// From now on this process copies as the model says.
    pub fn apply(&self) {
        let (routine, stream_from) = self.routine();
        copy::choose(routine, stream_from);
    }

    /// Measures copies between the first two CPUs this process may use. Leaves the calling thread
    /// where it was.
    ///
    /// # Errors
    /// `Unsupported` with fewer than two CPUs; what the system says.
    pub fn measure() -> Result<Self> {
        let allowed = sched_getaffinity(None)?;
        let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
        let (Some(here), Some(there)) = (cpus.next(), cpus.next()) else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "measuring needs two CPUs",
            ));
        };
        let stage = Stage::new()?;
        let model = std::thread::scope(|scope| {
            let helper = scope.spawn(|| pin(there).map(|()| stage.serve()));
            let measured = pin(here).and_then(|()| stage.measure());
            stage.tell(ORDER_END);
            match helper.join() {
                Ok(served) => served.and(measured),
                Err(_) => Err(Error::other("the second thread of the measurement failed")),
            }
        });
        sched_setaffinity(None, &allowed)?;
        model
    }
}

/// Returns the name that the processor gives itself, and the number of CPUs.
fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let named = info
        .lines()
        .find(|line| line.starts_with("model name") || line.starts_with("CPU part"));
    let name = named
        .and_then(|line| line.split(':').nth(1))
        .unwrap_or("unknown")
        .trim()
        .to_owned();
    // Not the CPUs that this process may use: a rank bound to one core reads the same model.
    let cpus = info
        .lines()
        .filter(|line| line.starts_with("processor"))
        .count();
    format!("{name}, {cpus} CPUs")
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

const ORDER_NONE: u32 = 0;
/// Dirty the source.
const ORDER_WRITE: u32 = 1;
/// Answer each change of the ball.
const ORDER_BALL: u32 = 2;
const ORDER_END: u32 = 3;

const ORDER: usize = 0;
const LENGTH: usize = 128;
const BALL: usize = 256;
const BALLS: u32 = 2000;
const WORDS_BYTES: usize = 4096;

/// State that the two threads of a measurement share.
struct Stage {
    words: Segment,
    source: Segment,
    target: Segment,
}

fn until(done: impl Fn() -> bool) {
    let mut looks = 0u32;
    while !done() {
        looks += 1;
        if looks.is_multiple_of(1 << 14) {
            std::thread::yield_now();
        }
        std::hint::spin_loop();
    }
}

impl Stage {
    fn new() -> Result<Self> {
        let most = LENGTHS[LENGTHS.len() - 1];
        let words = Segment::anonymous(WORDS_BYTES)?;
        Ok(Self {
            words,
            source: Segment::anonymous(most)?,
            target: Segment::anonymous(most)?,
        })
    }

    fn order(&self) -> &AtomicU32 {
        self.words.atomic_u32(ORDER)
    }

    fn tell(&self, order: u32) {
        // Release: the order's length. SYNC(cost-order).
        self.order().store(order, Ordering::Release);
    }

    fn tell_and_wait(&self, order: u32, len: usize) {
        self.words
            .atomic_u32(LENGTH)
            .store(len as u32, Ordering::Relaxed);
        self.tell(order);
        self.wait_done();
    }

    fn wait_done(&self) {
        // SYNC(cost-order).
        until(|| self.order().load(Ordering::Acquire) == ORDER_NONE);
    }

    /// The helper: does what it is told.
    fn serve(&self) {
        let mut round = 0u8;
        loop {
            until(|| self.order().load(Ordering::Acquire) != ORDER_NONE);
            let len = self.words.atomic_u32(LENGTH).load(Ordering::Relaxed) as usize;
            match self.order().load(Ordering::Acquire) {
                ORDER_WRITE => {
                    round = round.wrapping_add(1);
                    let line = [round; 4096];
                    (0..len)
                        .step_by(4096)
                        .for_each(|at| self.source.write(at, &line[..(len - at).min(4096)]));
                }
                ORDER_BALL => {
                    let ball = self.words.atomic_u32(BALL);
                    (0..BALLS).for_each(|n| {
                        until(|| ball.load(Ordering::Acquire) == 2 * n + 1);
                        ball.store(2 * n + 2, Ordering::Release);
                    });
                }
                _ => return,
            }
            self.tell(ORDER_NONE);
        }
    }

    fn measure(&self) -> Result<CostModel> {
        let copies = LENGTHS.iter().map(|len| self.copy_cost(*len)).collect();
        Ok(CostModel {
            format: FORMAT,
            machine: machine(),
            hand_off_ns: self.hand_off(),
            copies,
            ways: Vec::new(),
        })
    }

    fn hand_off(&self) -> f64 {
        let ball = self.words.atomic_u32(BALL);
        median(|| {
            ball.store(0, Ordering::Relaxed);
            self.tell(ORDER_BALL);
            let start = Instant::now();
            (0..BALLS).for_each(|n| {
                ball.store(2 * n + 1, Ordering::Release);
                until(|| ball.load(Ordering::Acquire) == 2 * n + 2);
            });
            let took = start.elapsed().as_nanos() as f64 / f64::from(2 * BALLS);
            self.wait_done();
            took
        })
    }

    fn copy_cost(&self, bytes: usize) -> CopyCost {
        let by = |routine| {
            median(|| {
                self.tell_and_wait(ORDER_WRITE, bytes);
                let start = Instant::now();
                copy_mem_by(
                    routine,
                    self.target.mem(0, bytes),
                    self.source.mem(0, bytes),
                    bytes,
                );
                start.elapsed().as_nanos() as f64
            })
        };
        CopyCost {
            bytes,
            library_ns: by(Routine::Library),
            vector_ns: by(Routine::Vector),
            streaming_ns: by(Routine::Streaming),
            string_ns: by(Routine::String),
        }
    }
}

fn median(mut sample: impl FnMut() -> f64) -> f64 {
    let mut samples: [f64; SAMPLES] = std::array::from_fn(|_| sample());
    samples.sort_unstable_by(f64::total_cmp);
    samples[SAMPLES / 2]
}

/// Reads any bytes as a kept model, and uses it if it is one: the file is in a directory that
/// others may write.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    if let Ok(model) = serde_json::from_slice::<CostModel>(bytes)
        && let Some(model) = CostModel::parse(bytes, &model.machine)
    {
        let _ = (model.routine(), model.fetch_times().count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_file_is_a_model_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read_anything(&bytes);
        }

        #[test]
        fn a_model_with_any_numbers_is_used_without_harm(
            costs in prop::collection::vec((any::<u64>(), any::<f64>(), any::<f64>(), prop::option::of(any::<f64>())), 0..6),
            at: prop::sample::Index,
            byte: u8,
        ) {
            let copies = costs.iter().map(|&(bytes, a, b, c)| CopyCost { bytes: bytes as _, library_ns: a, vector_ns: b, streaming_ns: c.unwrap_or(a), string_ns: a });
            let ways = costs.iter().map(|&(bytes, a, b, c)| ProtocolCosts { bytes: bytes as _, ns: std::array::from_fn(|way| [c, Some(a), Some(b)][way % 3]) });
            let (copies, ways) = (copies.collect(), ways.collect());
            let model = CostModel { format: FORMAT, machine: "a machine".into(), hand_off_ns: 60.0, copies, ways };
            let _ = (model.routine(), model.fetch_times().count());
            let mut bytes = serde_json::to_vec(&model).unwrap();
            read_anything(&bytes);
            let at = at.index(bytes.len());
            bytes[at] = byte;
            read_anything(&bytes);
        }
    }

    fn model((vector, string): (f64, f64), streaming: [f64; 3]) -> CostModel {
        let cost = |(bytes, streaming_ns)| CopyCost {
            bytes,
            library_ns: 100.0,
            vector_ns: vector,
            streaming_ns,
            string_ns: string,
        };
        let copies = [4096, 1 << 20, 4 << 20]
            .into_iter()
            .zip(streaming)
            .map(cost)
            .collect();
        let ways = vec![ProtocolCosts {
            bytes: 1 << 20,
            ns: [Some(81_920.0); WAYS.len()],
        }];
        CostModel {
            format: FORMAT,
            machine: "a machine".into(),
            hand_off_ns: 60.0,
            copies,
            ways,
        }
    }

    #[test]
    fn the_quicker_routine_is_chosen_and_streaming_only_where_it_clearly_wins() {
        assert_eq!(
            model((40.0, 41.0), [200.0, 50.0, 20.0]).routine(),
            (Routine::Vector, 4 << 20)
        );
        assert_eq!(
            model((120.0, 110.0), [200.0, 50.0, 20.0]).routine(),
            (Routine::Library, 1 << 20)
        );
        assert_eq!(
            model((40.0, 40.0), [200.0, 39.0, 39.0]).routine(),
            (Routine::Vector, usize::MAX)
        );
        assert_eq!(
            model((40.0, 39.0), [200.0, 39.0, 39.0]).routine(),
            (Routine::String, usize::MAX)
        );
    }

    #[test]
    fn a_model_reads_back_and_one_of_another_machine_or_format_does_not() {
        let model = model((40.0, 41.0), [200.0, 50.0, 20.0]);
        let bytes = serde_json::to_vec(&model).unwrap();
        assert_eq!(CostModel::parse(&bytes, "a machine"), Some(model));
        assert_eq!(CostModel::parse(&bytes, "another"), None);
        assert_eq!(CostModel::parse(&bytes[1..], "a machine"), None);
        assert_eq!(
            CostModel::parse(
                String::from_utf8(bytes)
                    .unwrap()
                    .replace("\"format\":3", "\"format\":2")
                    .as_bytes(),
                "a machine"
            ),
            None
        );
    }

    #[test]
    fn every_fetch_that_was_measured_counts_and_a_denied_one_does_not() {
        let mut model = model((1.0, 1.0), [1.0; 3]);
        let all = model.fetch_times().count();
        assert_eq!(all, WAYS.len() * model.ways.len());
        model.ways[0].ns[0] = None;
        assert_eq!(model.fetch_times().count(), all - 1);
    }

    #[test]
    fn a_measurement_fills_every_field() {
        let Ok(model) = CostModel::measure() else {
            return;
        };
        assert!(
            model.hand_off_ns > 0.0 && model.copies.len() == LENGTHS.len() && model.ways.is_empty()
        );
        assert!(
            model
                .copies
                .iter()
                .all(|cost| cost.library_ns > 0.0 && cost.vector_ns > 0.0)
        );
    }
}
