//! Partitioned sends and receives against what a sequential program would leave in the buffers.

use super::{PartitionedArgs, PartitionedOperation};
use crate::coll::Barrier;
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::request::{Request, wait};
use crate::testing::{TestBytes, engine_job, job};
use garonne_engine::api::CallOrigin;

fn args(memory: &TestBytes, partitions: u32, count: u64, rank: i32, tag: i32) -> PartitionedArgs {
    PartitionedArgs {
        mem: memory.mem(),
        partitions,
        count,
        datatype: Datatype::predefined(BYTE).unwrap(),
        rank,
        tag,
        origin: CallOrigin::default(),
    }
}

/// `MPI_BYTE`.
const BYTE: u16 = crate::datatype::codes::BYTE;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn order(&mut self, len: usize) -> Vec<i32> {
        let mut order: Vec<i32> = (0..len as i32).collect();
        (1..len).for_each(|i| order.swap(i, self.below(i + 1)));
        order
    }
}

fn message(len: usize, round: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + round * 7 + i / 251) as u8)
        .collect()
}

fn send_rounds(
    (send, operation): (&Request, &PartitionedOperation),
    memory: &TestBytes,
    len: usize,
    random: &mut Random,
    parts: usize,
) {
    for round in 0..3 {
        memory.mem().write(0, &message(len, round));
        send.start().unwrap();
        let order = random.order(parts);
        std::thread::scope(|scope| {
            for half in order.chunks(parts.div_ceil(2)) {
                scope.spawn(move || operation.ready(half.iter().copied()).unwrap());
            }
        });
        wait(send).unwrap();
    }
}

fn receive_rounds(
    (recv, operation): (&Request, &PartitionedOperation),
    memory: &TestBytes,
    len: usize,
    random: &mut Random,
    parts: usize,
) {
    for round in 0..3 {
        recv.start().unwrap();
        let expected = message(len, round);
        for part in random.order(parts) {
            while !operation.arrived(part).unwrap() {
                std::thread::yield_now();
            }
            let size = len / parts;
            let (from, to) = (part as usize * size, (part as usize + 1) * size);
            assert_eq!(memory.get()[from..to], expected[from..to]);
        }
        assert!(recv.is_active());
        let status = wait(recv).unwrap();
        assert_eq!(status.len, len as u64);
        assert_eq!(memory.get(), expected);
        assert!(operation.arrived(0).unwrap());
    }
}

fn random_rounds(comm: &Comm) {
    for seed in 0..6 {
        let mut random = Random(seed);
        let counts = [1, 2, 3, 4, 6, 12, 24];
        let unit = [1, 700, 4096][random.below(3)];
        let len = 24 * unit;
        let (sent, received) = (counts[random.below(7)], counts[random.below(7)]);
        let memory = TestBytes::new(len);
        let per = |parts: usize| (len / parts) as u64;
        if comm.rank() == 0 {
            let (send, operation) = comm
                .psend_init(args(&memory, sent as u32, per(sent), 1, 5))
                .unwrap();
            send_rounds((&send, &operation), &memory, len, &mut random, sent);
            send.free().unwrap();
        } else {
            let recv = comm.precv_init(args(&memory, received as u32, per(received), 0, 5));
            let (recv, operation) = recv.unwrap();
            receive_rounds((&recv, &operation), &memory, len, &mut random, received);
            recv.free().unwrap();
        }
    }
}

#[test]
fn random_partitions_arrive_as_in_a_sequential_program() {
    engine_job(2, |comm| random_rounds(&comm));
}

#[test]
fn requests_match_in_the_order_of_initialisation_and_what_is_freed_is_skipped() {
    job(2, |comm| {
        let memory = [TestBytes::new(8), TestBytes::new(8)];
        if comm.rank() == 0 {
            let unused = comm.psend_init(args(&memory[0], 3, 1, 1, 0)).unwrap();
            unused.0.free().unwrap();
            drop(unused.1);
            let [one, two] = [0, 1].map(|i| comm.psend_init(args(&memory[i], 2, 4, 1, 0)).unwrap());
            memory[0].mem().write(0, b"firstone");
            memory[1].mem().write(0, b"secondly");
            for (send, operation) in [&two, &one] {
                send.start().unwrap();
                operation.ready(0..2).unwrap();
            }
            wait(&one.0).unwrap();
            wait(&two.0).unwrap();
        } else {
            let unused = comm.precv_init(args(&memory[0], 2, 4, 0, 0)).unwrap();
            unused.0.free().unwrap();
            drop(unused.1);
            let [one, two] = [0, 1].map(|i| comm.precv_init(args(&memory[i], 1, 8, 0, 0)).unwrap());
            one.0.start().unwrap();
            two.0.start().unwrap();
            wait(&two.0).unwrap();
            wait(&one.0).unwrap();
            assert_eq!(memory[0].get(), b"firstone");
            assert_eq!(memory[1].get(), b"secondly");
        }
    });
}

#[test]
fn a_receive_that_is_freed_after_its_send_was_announced_leaves_it_to_the_next() {
    job(2, |comm| {
        let memory = TestBytes::new(8);
        if comm.rank() == 0 {
            let (send, operation) = comm.psend_init(args(&memory, 2, 4, 1, 0)).unwrap();
            memory.mem().write(0, b"announce");
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
            send.start().unwrap();
            operation.ready(0..2).unwrap();
            wait(&send).unwrap();
        } else {
            let first = comm.precv_init(args(&memory, 2, 4, 0, 0)).unwrap();
            let (recv, _operation) = comm.precv_init(args(&memory, 1, 8, 0, 0)).unwrap();
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
            drop(first);
            recv.start().unwrap();
            wait(&recv).unwrap();
            assert_eq!(memory.get(), b"announce");
        }
    });
}
