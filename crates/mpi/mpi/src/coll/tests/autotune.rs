//! The way of long collectives over boards: chosen by each member for itself, and alike.

use super::thread_world::{WordBuffer, word, world};
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::error::Class;
use crate::op::{Op, PredefinedOp};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// A round of long collectives of `count` words a block, whose results are looked at.
fn round(comm: &Comm, count: u64, root: u32) {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let op = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
    let (me, n, call) = (comm.rank(), comm.size(), CallOrigin::default());
    let all = count * u64::from(n);
    let describe = |words: &WordBuffer, count| Elements {
        mem: words.0.mem(),
        count,
        datatype,
    };
    let own = WordBuffer::new(all, |index| word(me, (index / count) as u32, index % count));
    let into = WordBuffer::new(all, |_| 5);

    let exchanged = Alltoall {
        send: Some(describe(&own, count)),
        recv: describe(&into, count),
    };
    comm.collective(&exchanged, call).unwrap();
    into.check(all, |index| word((index / count) as u32, me, index % count));

    let gathered = Allgather {
        send: Some(describe(&own, count)),
        recv: describe(&into, count),
    };
    comm.collective(&gathered, call).unwrap();
    into.check(all, |index| word((index / count) as u32, 0, index % count));

    let reduced = Allreduce {
        send: Some(own.0.mem()),
        recv: into.0.mem(),
        count,
        datatype,
        op,
    };
    comm.collective(&reduced, call).unwrap();
    into.check(count, |index| {
        (0..n).fold(0u32, |sum, from| sum.wrapping_add(word(from, 0, index)))
    });

    let sent = match me == root {
        true => WordBuffer::new(count, |index| word(root, 7, index)),
        false => WordBuffer::new(count, |_| 5),
    };
    let bcast = Bcast {
        buffer: describe(&sent, count),
        root: root as i32,
    };
    comm.collective(&bcast, call).unwrap();
    sent.check(count, |index| word(root, 7, index));
}

#[test]
fn members_that_measure_different_times_learn_the_same_and_lose_no_data() {
    for n in [2, 3] {
        let learned = Mutex::new(BTreeSet::new());
        world(n, |comm| {
            for turn in 0..24 {
                // One is late each time, and so measures something else than the rest; lengths of
                // two classes take turns.
                if turn % n == comm.rank() {
                    std::thread::yield_now();
                }
                round(comm, 5000 << (turn % 2), turn % n);
            }
            let mut learned = learned.lock().unwrap();
            learned.insert(comm.0.segment.tuner_state());
        });
        // Of each of the two styles of meeting.
        assert_eq!(learned.into_inner().unwrap().len(), 2);
    }
}

#[test]
fn members_that_were_of_different_minds_are_told_instead_of_waiting_for_each_other() {
    for n in [2, 3] {
        world(n, |comm| {
            (0..3).for_each(|_| round(comm, 5000, 0));
            if comm.rank() == 1 {
                comm.0.segment.reset_tuner();
            }
            let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
            let words = WordBuffer::new(5000 * u64::from(n), |_| 0);
            let gathered = Allgather {
                send: None,
                recv: Elements {
                    mem: words.0.mem(),
                    count: 5000,
                    datatype,
                },
            };
            let error = comm
                .collective(&gathered, CallOrigin::default())
                .unwrap_err();
            assert_eq!(error.class, Class::NotSame);
        });
    }
}
