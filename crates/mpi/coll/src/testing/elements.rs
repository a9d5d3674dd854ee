//! Datatypes, operations and buffers for the tests, and the running of one collective on all ranks.

use crate::plan::{PlanRecorder, Schedule};
use crate::temp_buffer::NoMemory;
use crate::testing::schedule_sim::{SimWorld, packed};
use crate::typed_buffer::{ElementLayout, ReduceOp, TypedBuffer};
use garonne_sync::user::{Data, Layout, Packed, Scratch, UserMem};
use std::sync::Arc;

/// Elements of 8 bytes, either back to back or as two words of 4 bytes at 4 and 16 within an extent
/// of 24, the lower bound being at -4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestElements {
    /// Back to back.
    Dense,
    /// With gaps inside, between and at the ends.
    Gappy,
}

impl ElementLayout for TestElements {
    fn size(&self) -> u64 {
        8
    }

    fn extent(&self) -> i64 {
        if *self == TestElements::Dense { 8 } else { 24 }
    }

    fn true_bounds(&self) -> (i64, i64) {
        if *self == TestElements::Dense {
            (0, 8)
        } else {
            (4, 20)
        }
    }

    fn data(&self, mem: UserMem, count: u64) -> Data {
        match self {
            TestElements::Dense => Data::contiguous(mem, 8 * count),
            TestElements::Gappy => Data::shaped(mem, Arc::new(GappyLayout { count })),
        }
    }
}

#[derive(Debug)]
struct GappyLayout {
    count: u64,
}

fn gappy_offset(byte: u64) -> isize {
    let (element, byte) = (byte / 8, byte % 8);
    (element * 24 + if byte < 4 { 4 + byte } else { 16 + byte - 4 }) as isize
}

impl Layout for GappyLayout {
    fn packed_len(&self) -> u64 {
        8 * self.count
    }

    fn pack(&self, mem: UserMem, from: u64, dst: Packed) {
        for index in 0..dst.len() {
            let there = gappy_offset(from + index as u64);
            dst.mem().copy_from(index as isize, mem, there, 1);
        }
    }

    fn unpack(&self, mem: UserMem, from: u64, src: Packed) {
        for index in 0..src.len() {
            let there = gappy_offset(from + index as u64);
            mem.copy_from(there, src.mem(), index as isize, 1);
        }
    }

    fn blocks(&self, from: u64, len: u64, max_blocks: usize, out: &mut Vec<(isize, usize)>) -> u64 {
        let mut covered = 0;
        while covered < len && out.len() < max_blocks {
            out.push((gappy_offset(from + covered), 1));
            covered += 1;
        }
        covered
    }
}

/// Operations on elements of two 32-bit words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOp {
    /// Adds words: commutes.
    Add(TestElements),
    /// Composes the maps x -> a x + b, the left operand applied last: does not commute.
    Compose(TestElements),
}

/// Returns what an operation does to two elements.
pub fn combine(op: TestOp, left: [u32; 2], right: [u32; 2]) -> [u32; 2] {
    match op {
        TestOp::Add(_) => [
            left[0].wrapping_add(right[0]),
            left[1].wrapping_add(right[1]),
        ],
        TestOp::Compose(_) => [
            left[0].wrapping_mul(right[0]),
            left[0].wrapping_mul(right[1]).wrapping_add(left[1]),
        ],
    }
}

impl ReduceOp for TestOp {
    fn fold(&self, left: UserMem, into: UserMem, count: u64) {
        let (left, into) = (
            TypedBuffer::new(left, self.shape()),
            TypedBuffer::new(into, self.shape()),
        );
        for index in 0..count as i64 {
            let right = words(&packed(&into.data(index, 1)))[0];
            let result = combine(*self, words(&packed(&left.data(index, 1)))[0], right);
            into.data(index, 1).unpack(0, &bytes(&[result]));
        }
    }

    fn commutative(&self) -> bool {
        matches!(self, TestOp::Add(_))
    }

    fn user(&self) -> bool {
        !self.commutative()
    }

    fn shape(&self) -> &dyn ElementLayout {
        match self {
            TestOp::Add(shape) | TestOp::Compose(shape) => shape,
        }
    }

    fn keep(&self) -> Arc<dyn ReduceOp> {
        Arc::new(*self)
    }
}

/// The elements in packed bytes.
pub fn words(bytes: &[u8]) -> Vec<[u32; 2]> {
    let word = |b: &[u8]| u32::from_le_bytes(b.try_into().unwrap());
    bytes
        .chunks(8)
        .map(|b| [word(&b[..4]), word(&b[4..])])
        .collect()
}

/// The packed bytes of elements.
pub fn bytes(words: &[[u32; 2]]) -> Vec<u8> {
    words
        .iter()
        .flatten()
        .flat_map(|word| word.to_le_bytes())
        .collect()
}

/// What a gap between elements holds, before and after.
const GAP: u8 = 0xa5;

/// Memory for elements of one shape, whose gaps hold a known byte.
pub struct TestBuffer {
    scratch: Scratch,
    /// Way in which its elements lie.
    pub shape: TestElements,
    /// How many elements it has.
    pub count: u64,
}

impl TestBuffer {
    /// Room for `count` elements.
    pub fn new(shape: TestElements, count: u64) -> Self {
        let scratch = Scratch::new(count as usize * 24 + 48).unwrap();
        scratch.mem().write(0, &vec![GAP; scratch.len()]);
        Self {
            scratch,
            shape,
            count,
        }
    }

    /// Holding these elements.
    pub fn of(shape: TestElements, elements: &[[u32; 2]]) -> Self {
        let buffer = Self::new(shape, elements.len() as u64);
        buffer
            .typed()
            .data(0, buffer.count)
            .unpack(0, &bytes(elements));
        buffer
    }

    /// Address of element 0.
    pub fn mem(&self) -> UserMem {
        self.scratch.mem().offset(16)
    }

    /// The elements, as algorithms see them.
    pub fn typed(&self) -> TypedBuffer<'_> {
        TypedBuffer::new(self.mem(), &self.shape)
    }

    /// Returns what they hold. Checks that nothing was written between or around them.
    pub fn elements(&self) -> Vec<[u32; 2]> {
        let data = self.typed().data(0, self.count);
        let elements = packed(&data);
        data.unpack(0, &vec![GAP; elements.len()]);
        let mut all = vec![0; self.scratch.len()];
        self.scratch.mem().read(0, &mut all);
        assert!(
            all.iter().all(|&byte| byte == GAP),
            "something was written outside the elements"
        );
        data.unpack(0, &elements);
        words(&elements)
    }
}

/// Element `index` of the contribution of `rank`.
pub fn element(rank: u32, index: u64) -> [u32; 2] {
    let mixed = (u64::from(rank) + 1)
        .wrapping_mul(0x9e37_79b9)
        .wrapping_add(index.wrapping_mul(0x85eb_ca6b));
    [(mixed as u32) | 1, (mixed >> 7) as u32]
}

/// The contribution of `rank`.
pub fn contribution(rank: u32, count: u64) -> Vec<[u32; 2]> {
    (0..count).map(|index| element(rank, index)).collect()
}

/// The contributions of `ranks` combined in order.
pub fn model(op: TestOp, ranks: std::ops::Range<u32>, count: u64) -> Vec<[u32; 2]> {
    ranks
        .map(|rank| contribution(rank, count))
        .reduce(|left, right| {
            left.iter()
                .zip(&right)
                .map(|(&l, &r)| combine(op, l, r))
                .collect()
        })
        .unwrap_or_default()
}

/// Plans one collective on every rank of one group and carries it out.
pub fn run(n: u32, seed: u64, plan: impl Fn(&mut PlanRecorder, u32) -> Result<(), NoMemory>) {
    run_groups(n, 0, seed, |recorder, _, rank| plan(recorder, rank));
}

/// Plans one collective on every rank of two groups (the second may be empty) and carries it out.
pub fn run_groups(
    a: u32,
    b: u32,
    seed: u64,
    plan: impl Fn(&mut PlanRecorder, usize, u32) -> Result<(), NoMemory>,
) {
    if let Err(what) = world(a, b, seed, plan).run() {
        panic!("{a} + {b} ranks, seed {seed}: {what}");
    }
}

/// Plans one collective and checks that nobody finishes it before everybody has taken a first step.
pub fn run_barrier(
    a: u32,
    b: u32,
    seed: u64,
    plan: impl Fn(&mut PlanRecorder) -> Result<(), NoMemory>,
) {
    let watch = |taken: &[Option<usize>]| match taken.contains(&None) && taken.contains(&Some(0)) {
        true => Err("one process left before another came".into()),
        false => Ok(()),
    };
    if let Err(what) = world(a, b, seed, |p, _, _| plan(p)).run_watched(watch) {
        panic!("{a} + {b} ranks, seed {seed}: {what}");
    }
}

fn world(
    a: u32,
    b: u32,
    seed: u64,
    plan: impl Fn(&mut PlanRecorder, usize, u32) -> Result<(), NoMemory>,
) -> SimWorld {
    let mut schedules: Vec<Schedule> = Vec::new();
    for (group, size, across) in [(0, a, b), (1, b, a)] {
        for rank in 0..size {
            let mut recorder = PlanRecorder::new(rank, size, across);
            plan(&mut recorder, group, rank).unwrap();
            schedules.push(recorder.finish());
        }
    }
    SimWorld::new(schedules, a as usize, seed)
}
