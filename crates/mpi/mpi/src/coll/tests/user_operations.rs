//! Operations of the program's own over boards.

use super::thread_world::{WordBuffer, world, world_of};
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::op::{Commutativity, Op, UserOp};
use garonne_engine::api::CallOrigin;
use garonne_sync::user::UserMem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Composes the maps x -> ax + b of the integers modulo 2^16, of which a word holds a and b: the
/// order of operands matters.
pub(super) struct Compose<'a> {
    calls: &'a AtomicU32,
}

pub(super) fn compose(left: u32, right: u32) -> u32 {
    let (a, b, c, d) = (left >> 16, left & 0xffff, right >> 16, right & 0xffff);
    (a.wrapping_mul(c) & 0xffff) << 16 | (b.wrapping_mul(c).wrapping_add(d) & 0xffff)
}

impl UserOp for Compose<'static> {
    fn call(&self, invec: UserMem, inoutvec: UserMem, count: u64, _: &Datatype) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let read = |mem: UserMem| {
            let mut bytes = vec![0; 4 * count as usize];
            mem.read(0, &mut bytes);
            bytes
        };
        let words = |bytes: &[u8]| -> Vec<u32> {
            let words = bytes.chunks_exact(4);
            words
                .map(|word| u32::from_ne_bytes(word.try_into().unwrap()))
                .collect()
        };
        let (left, right) = (words(&read(invec)), words(&read(inoutvec)));
        let all = left
            .iter()
            .zip(right)
            .flat_map(|(left, right)| compose(*left, right).to_ne_bytes());
        inoutvec.write(0, &all.collect::<Vec<u8>>());
    }
}

fn factor(rank: u32, index: u64) -> u32 {
    (2 * rank + 3) << 16 | (rank * 7 + index as u32)
}

fn product(ranks: std::ops::Range<u32>, index: u64) -> u32 {
    ranks
        .map(|rank| factor(rank, index))
        .reduce(compose)
        .unwrap()
}

pub(super) fn op(calls: &'static AtomicU32) -> Op {
    Op::user(Arc::new(Compose { calls }), Commutativity::No)
}

fn reductions(comm: &Comm, count: u64, op: &Op) {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let (me, n) = (comm.rank(), comm.size());
    let input = WordBuffer::new(count, |index| factor(me, index));
    let output = WordBuffer::new(count, |_| 0);
    let (send, recv) = (Some(input.0.mem()), output.0.mem());
    let allreduce = Allreduce {
        send,
        recv,
        count,
        datatype,
        op,
    };
    comm.collective(&allreduce, CallOrigin::default()).unwrap();
    output.check(count, |index| product(0..n, index));
    let scan = Scan {
        send,
        recv,
        count,
        datatype,
        op,
    };
    comm.collective(&scan, CallOrigin::default()).unwrap();
    output.check(count, |index| product(0..me + 1, index));
    let root = n as i32 - 1;
    let reduce = Reduce {
        send,
        recv: Some(recv),
        count,
        datatype,
        op,
        root,
    };
    comm.collective(&reduce, CallOrigin::default()).unwrap();
    if me + 1 == n {
        output.check(count, |index| product(0..n, index));
    }
}

#[test]
fn operations_that_do_not_commute_combine_in_the_order_of_ranks_whether_they_fit_a_cell_or_not() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    for n in [2, 3, 5, 9] {
        world(n, |comm| {
            for count in [1, 3, 64, 65, 1000] {
                reductions(comm, count, &op(&CALLS));
            }
        });
    }
}

#[test]
fn at_a_peer_the_last_to_come_combines_small_contributions_for_all() {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let (n, rounds) = (8, 5);
    world_of(n, 0, &|comm| {
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let op = &op(&CALLS);
        let (input, output) = (
            WordBuffer::new(2, |_| factor(comm.rank(), 0)),
            WordBuffer::new(2, |_| 0),
        );
        for _ in 0..rounds {
            let (send, recv) = (Some(input.0.mem()), output.0.mem());
            let call = Allreduce {
                send,
                recv,
                count: 2,
                datatype,
                op,
            };
            comm.collective(&call, CallOrigin::default()).unwrap();
        }
    });
    assert_eq!(CALLS.load(Ordering::SeqCst), rounds * (n - 1));
}
