//! Collectives with blocks of different lengths, scans and scattered reductions through cells and
//! lanes.

use super::thread_world::{WordBuffer, word, world};
use crate::coll::*;
use crate::datatype::{Constructor, ContentsForm, Datatype, codes};
use crate::error::Class;
use crate::op::{Op, PredefinedOp};

/// Returns how many words `from` has for `to`: some nothing, some a lot; nobody anything if `unit`
/// is 0.
fn amount(from: u32, to: u32, unit: u32) -> i32 {
    let few = (from * 5 + to * 3) % 4;
    (few * unit + few.min(unit)) as i32
}

/// Returns where blocks of these lengths begin, with a word between two of them.
fn places(counts: &[i32]) -> (Vec<i32>, u64) {
    let mut end = 0;
    let places = counts.iter().map(|count| {
        end += count + 1;
        end - count - 1
    });
    (places.collect(), end as u64)
}

fn fill(
    words: &WordBuffer,
    (counts, places): (&[i32], &[i32]),
    total: u64,
    value: impl Fn(u32, u64) -> u32,
) {
    words.fill(total, |index| expected((counts, places), index, &value));
}

/// The word at `index` of a buffer of such blocks; gaps hold 5.
fn expected(
    (counts, places): (&[i32], &[i32]),
    index: u64,
    value: &impl Fn(u32, u64) -> u32,
) -> u32 {
    let block = (0..counts.len()).find(|&block| {
        let start = places[block] as u64;
        (start..start + counts[block] as u64).contains(&index)
    });
    block.map_or(5, |block| value(block as u32, index - places[block] as u64))
}

fn uneven(comm: &Comm, unit: u32, in_place: bool) {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let (me, n, call) = (comm.rank(), comm.size(), CallOrigin::default());
    let describe = |words: &WordBuffer, counts, displs| ElementsV {
        mem: words.0.mem(),
        counts: CountArray::Int(counts),
        displs: CountArray::Int(displs),
        datatype,
    };
    let pair = |from: u32, to: u32| match in_place {
        // What is received replaces what was sent, so both are as long.
        true => amount(from.min(to), from.max(to), unit),
        false => amount(from, to, unit),
    };
    let out: Vec<i32> = (0..n).map(|to| pair(me, to)).collect();
    let into: Vec<i32> = (0..n).map(|from| pair(from, me)).collect();
    let ((out_at, out_len), (into_at, into_len)) = (places(&out), places(&into));
    let sent = WordBuffer::new(out_len, |_| 5);
    fill(&sent, (&out, &out_at), out_len, |to, index| {
        word(me, to, index)
    });
    let taken = WordBuffer::new(into_len, |_| 5);
    if in_place {
        fill(&taken, (&into, &into_at), into_len, |to, index| {
            word(me, to, index)
        });
    }
    let send = (!in_place).then(|| describe(&sent, &out, &out_at));
    let recv = describe(&taken, &into, &into_at);
    comm.collective(&Alltoallv { send, recv }, call).unwrap();
    let value = |from, index| word(from, me, index);
    taken.check(into_len, |index| expected((&into, &into_at), index, &value));

    let all: Vec<i32> = (0..n).map(|from| amount(from, 1, unit)).collect();
    let (all_at, all_len) = places(&all);
    let own = WordBuffer::new(all[me as usize] as u64 + 1, |index| word(me, 9, index));
    let value = |from, index| word(from, 9, index);
    let taken = WordBuffer::new(all_len, |index| match in_place {
        // The other blocks are there as well, and must be overwritten with the same.
        true => expected((&all, &all_at), index, &value),
        false => 5,
    });
    let send = (!in_place).then(|| Elements {
        mem: own.0.mem(),
        count: all[me as usize] as u64,
        datatype,
    });
    let recv = describe(&taken, &all, &all_at);
    comm.collective(&Allgatherv { send, recv }, call).unwrap();
    taken.check(all_len, |index| expected((&all, &all_at), index, &value));
}

fn scattered(comm: &Comm, unit: u32, in_place: bool) {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let op = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
    let (me, n, call) = (comm.rank(), comm.size(), CallOrigin::default());
    let counts: Vec<i32> = (0..n).map(|of| amount(of, 2, unit)).collect();
    let total: u64 = counts.iter().map(|&count| count as u64).sum();
    let before: u64 = counts[..me as usize]
        .iter()
        .map(|&count| count as u64)
        .sum();
    let sum = |index: u64| (0..n).fold(0u32, |sum, from| sum.wrapping_add(word(from, 3, index)));

    let own = WordBuffer::new(total + 1, |index| word(me, 3, index));
    let into = WordBuffer::new(total + 1, |index| word(me, 3, index));
    let reduced = ReduceScatter {
        send: (!in_place).then(|| own.0.mem()),
        recv: into.0.mem(),
        counts: CountArray::Int(&counts),
        datatype,
        op,
    };
    comm.collective(&reduced, call).unwrap();
    let mine = counts[me as usize] as u64;
    into.check(mine, |index| sum(before + index));

    let each = u64::from(unit) + 1;
    let all = each * u64::from(n);
    let own = WordBuffer::new(all, |index| word(me, 3, index));
    let into = WordBuffer::new(all, |index| word(me, 3, index));
    let reduced = ReduceScatterBlock {
        send: (!in_place).then(|| own.0.mem()),
        recv: into.0.mem(),
        count: each,
        datatype,
        op,
    };
    comm.collective(&reduced, call).unwrap();
    into.check(each, |index| sum(u64::from(me) * each + index));

    let upto =
        |last: u32, index| (0..last).fold(0u32, |sum, from| sum.wrapping_add(word(from, 3, index)));
    for exclusive in [false, true] {
        let into = WordBuffer::new(all, |index| word(me, 3, index));
        let (send, recv, count) = ((!in_place).then(|| own.0.mem()), into.0.mem(), all);
        if exclusive {
            let scan = Exscan {
                send,
                recv,
                count,
                datatype,
                op,
            };
            comm.collective(&scan, call).unwrap();
        } else {
            let scan = Scan {
                send,
                recv,
                count,
                datatype,
                op,
            };
            comm.collective(&scan, call).unwrap();
        }
        into.check(all, |index| match (exclusive, me) {
            (true, 0) => word(0, 3, index),
            (true, _) => upto(me, index),
            (false, _) => upto(me + 1, index),
        });
    }
}

#[test]
fn uneven_blocks_scans_and_scattered_reductions_through_a_board_give_what_messages_would() {
    for (n, units) in [(2, [1, 25_000]), (3, [0, 1_000]), (9, [1, 700])] {
        world(n, |comm| {
            for unit in units {
                for in_place in [false, true] {
                    uneven(comm, unit, in_place);
                    scattered(comm, unit, in_place);
                }
            }
            assert!(comm.0.segment.lane_len() > 0);
        });
    }
}

#[test]
fn a_block_of_an_uneven_exchange_that_is_too_long_is_an_error_where_there_is_no_room() {
    world(3, |comm| {
        (0..3).for_each(|_| comm.collective(&Barrier, CallOrigin::default()).unwrap());
        let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
        let (me, places) = (comm.rank(), [0, 10, 20]);
        let out: [i32; 3] = if me == 1 { [3, 3, 9] } else { [3; 3] };
        let words = WordBuffer::new(30, |index| word(me, 0, index));
        let taken = WordBuffer::new(30, |_| 5);
        let describe = |words: &WordBuffer, counts| ElementsV {
            mem: words.0.mem(),
            counts,
            displs: CountArray::Int(&places),
            datatype,
        };
        let call = Alltoallv {
            send: Some(describe(&words, CountArray::Int(&out))),
            recv: describe(&taken, CountArray::All(3)),
        };
        let outcome = comm.collective(&call, CallOrigin::default());
        if me == 2 {
            let error = outcome.unwrap_err();
            assert_eq!(error.class, Class::Truncate);
            assert!(error.detail.contains("rank 1 sends 36 B"), "{error}");
        } else {
            outcome.unwrap();
        }
        taken.check(30, |index| match index % 10 {
            place @ 0..3 => word((index / 10) as u32, 0, u64::from(me) * 10 + place),
            _ => 5,
        });
    });
}

/// Every second word, which is too scattered to be read from where it lies; the others take the
/// words back to back.
fn scattered_words(comm: &Comm, count: u64) {
    let word_type = &Datatype::predefined(codes::UINT32_T).unwrap();
    let spread = &Datatype::construct(
        Constructor::Resized {
            lb: 0,
            extent: 8,
            old: word_type.clone(),
        },
        ContentsForm::Int,
    )
    .unwrap();
    let (me, n, call) = (comm.rank(), comm.size(), CallOrigin::default());
    let describe = |words: &WordBuffer, datatype| Elements {
        mem: words.0.mem(),
        count,
        datatype,
    };
    let every_second =
        |from: u32| move |index: u64| word(from, 4, index / 2) * u32::from(index.is_multiple_of(2));
    let root = n - 1;
    let (spread_out, dense) = (
        WordBuffer::new(2 * count, every_second(root)),
        WordBuffer::new(count, |_| 0),
    );
    let buffer = match me == root {
        true => describe(&spread_out, spread),
        false => describe(&dense, word_type),
    };
    let bcast = Bcast {
        buffer,
        root: root as i32,
    };
    comm.collective(&bcast, call).unwrap();
    if me != root {
        dense.check(count, |index| word(root, 4, index));
    }

    let own = WordBuffer::new(2 * count, every_second(me));
    let all = WordBuffer::new(count * u64::from(n), |_| 0);
    let gathered = Allgather {
        send: Some(describe(&own, spread)),
        recv: describe(&all, word_type),
    };
    comm.collective(&gathered, call).unwrap();
    all.check(count * u64::from(n), |index| {
        word((index / count) as u32, 4, index % count)
    });
}

#[test]
fn blocks_that_cannot_be_read_from_where_they_lie_go_through_lanes() {
    for n in [2, 3] {
        world(n, |comm| {
            // Several pieces of a lane.
            scattered_words(comm, 150_000);
            assert!(comm.0.segment.reads_directly());
        });
    }
}
