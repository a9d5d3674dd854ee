//! Nonblocking collectives, and a few other calls, of all kinds and lengths with what is to be
//! found afterwards: what [`super::shm_nonblocking`] has ranks start.

use super::thread_world::{WordBuffer, word};
use super::user_operations::{compose, op};
use crate::coll::*;
use crate::datatype::{Datatype, codes};
use crate::op::{Op, PredefinedOp};
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::request;
use garonne_coll::testing::schedule_sim::SimRandom;
use garonne_sync::user::Data;
use std::sync::atomic::AtomicU32;

static CALLS: AtomicU32 = AtomicU32::new(0);

/// What all ranks start, in one order.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestCall {
    pub what: u32,
    /// Words of a block.
    pub count: u64,
    pub root: u32,
    pub in_place: bool,
    /// What tells its data from those of others.
    pub salt: u32,
}

const ACTS: u32 = 22;

impl TestCall {
    pub fn random(random: &mut SimRandom, n: u32, salt: u32) -> Self {
        // Small cells, wide ones, and what goes by messages.
        let counts = [1, 3, 63, 64, 65, 150, 1024, 1500, 4000, 9000];
        Self {
            what: random.below(ACTS as usize) as u32,
            count: counts[random.below(counts.len())],
            root: random.below(n as usize) as u32,
            in_place: random.below(2) == 0,
            salt,
        }
    }

    fn word(&self, from: u32, to: u32, index: u64) -> u32 {
        word(from, to, index).wrapping_add(self.salt.wrapping_mul(0x9e37_79b9))
    }
}

/// Something open, with what is to be found when it is over.
pub(super) struct StartedCall {
    pub request: Request,
    pub check: Box<dyn FnOnce()>,
    /// The program's buffers beside what is checked.
    _kept: Vec<WordBuffer>,
}

pub(super) fn elements<'a>(words: &WordBuffer, count: u64, datatype: &'a Datatype) -> Elements<'a> {
    Elements {
        mem: words.0.mem(),
        count,
        datatype,
    }
}

/// Starts it on this rank. `None`: it was a blocking call, and is over.
pub(super) fn start(comm: &Comm, act: TestCall) -> Option<StartedCall> {
    let datatype = &Datatype::predefined(codes::UINT32_T).unwrap();
    let sum = &Op::predefined(PredefinedOp::Sum as u16).unwrap();
    let own_op = &op(&CALLS);
    let (me, n) = (comm.rank(), comm.size());
    let TestCall {
        count,
        root,
        in_place,
        ..
    } = act;
    let all = u64::from(n) * count;
    let block = move |index: u64| ((index / count) as u32, index % count);
    let call = CallOrigin::default();
    let to_each = move |index| act.word(me, block(index).0, block(index).1);
    let from_each = move |index| act.word(block(index).0, me, block(index).1);
    let from_all = move |index| act.word(block(index).0, 0, block(index).1);
    let own = move |index| act.word(me, 0, index);
    let total =
        move |index| (0..n).fold(0u32, |sum, from| sum.wrapping_add(act.word(from, 0, index)));
    let whole = move |first: u32, last: u32, index| {
        let words = (first..last).map(|from| act.word(from, 0, index));
        words.reduce(compose).unwrap()
    };
    let (mine, out) = (WordBuffer::new(count, own), WordBuffer::new(all, to_each));
    let at_root = me == root;
    let (request, check): (_, Box<dyn FnOnce()>) = match act.what {
        0 => (comm.start_collective(&Barrier, call), Box::new(|| {})),
        1 => {
            let buffer = WordBuffer::new(count, own);
            let bcast = Bcast {
                buffer: elements(&buffer, count, datatype),
                root: root as i32,
            };
            let request = comm.start_collective(&bcast, call);
            (
                request,
                Box::new(move || buffer.check(count, |index| act.word(root, 0, index))),
            )
        }
        2 | 3 => {
            let into = WordBuffer::new(count, own);
            let allreduce = Allreduce {
                send: (!in_place).then(|| mine.0.mem()),
                recv: into.0.mem(),
                count,
                datatype,
                op: if act.what == 2 { sum } else { own_op },
            };
            let request = comm.start_collective(&allreduce, call);
            let ordered = act.what == 3;
            let expected = move |index| {
                if ordered {
                    whole(0, n, index)
                } else {
                    total(index)
                }
            };
            (request, Box::new(move || into.check(count, expected)))
        }
        4 => {
            let into = WordBuffer::new(count, own);
            let reduce = Reduce {
                send: (!in_place || !at_root).then(|| mine.0.mem()),
                recv: at_root.then(|| into.0.mem()),
                count,
                datatype,
                op: own_op,
                root: root as i32,
            };
            let request = comm.start_collective(&reduce, call);
            let expected = move |index| {
                if at_root {
                    whole(0, n, index)
                } else {
                    own(index)
                }
            };
            (request, Box::new(move || into.check(count, expected)))
        }
        5 | 6 => {
            let into = WordBuffer::new(count, own);
            let (send, recv, op) = ((!in_place).then(|| mine.0.mem()), into.0.mem(), own_op);
            let request = match act.what {
                5 => comm.start_collective(
                    &Scan {
                        send,
                        recv,
                        count,
                        datatype,
                        op,
                    },
                    call,
                ),
                _ => comm.start_collective(
                    &Exscan {
                        send,
                        recv,
                        count,
                        datatype,
                        op,
                    },
                    call,
                ),
            };
            let last = if act.what == 5 { me + 1 } else { me };
            let expected = move |index| {
                if last > 0 {
                    whole(0, last, index)
                } else {
                    own(index)
                }
            };
            (request, Box::new(move || into.check(count, expected)))
        }
        7 => {
            let into = WordBuffer::new(all, |index| {
                if block(index).0 == me {
                    from_all(index)
                } else {
                    0
                }
            });
            let send = (!in_place).then(|| elements(&mine, count, datatype));
            let recv = elements(&into, count, datatype);
            let request = comm.start_collective(&Allgather { send, recv }, call);
            (request, Box::new(move || into.check(all, from_all)))
        }
        8 => {
            // Blocks of unequal lengths, which all know: that of rank r is r words shorter, and
            // begins where it would otherwise.
            let len = move |rank: u32| count.saturating_sub(rank.into());
            let (counts, displs): (Vec<i32>, Vec<i32>) = (0..n)
                .map(|rank| (len(rank) as i32, (u64::from(rank) * count) as i32))
                .unzip();
            let into = WordBuffer::new(all, |index| {
                if block(index).0 == me {
                    from_all(index)
                } else {
                    0
                }
            });
            let send = (!in_place).then(|| elements(&mine, len(me), datatype));
            let recv = ElementsV {
                mem: into.0.mem(),
                counts: CountArray::Int(&counts),
                displs: CountArray::Int(&displs),
                datatype,
            };
            let request = comm.start_collective(&Allgatherv { send, recv }, call);
            let expected = move |index| match block(index) {
                (from, at) if from == me || at < len(from) => from_all(index),
                _ => 0,
            };
            // What is beyond the own block was there before.
            let expected = move |index| match block(index) {
                (from, at) if from != me && at >= len(from) => 0,
                _ => expected(index),
            };
            (request, Box::new(move || into.check(all, expected)))
        }
        9 => {
            let into = WordBuffer::new(all, |index| if in_place { to_each(index) } else { 0 });
            let send = (!in_place).then(|| elements(&out, count, datatype));
            let recv = elements(&into, count, datatype);
            let request = comm.start_collective(&Alltoall { send, recv }, call);
            (request, Box::new(move || into.check(all, from_each)))
        }
        10 => {
            let into = WordBuffer::new(all, |index| {
                if block(index).0 == me {
                    from_all(index)
                } else {
                    0
                }
            });
            let gather = Gather {
                send: (!in_place || !at_root).then(|| elements(&mine, count, datatype)),
                recv: at_root.then(|| elements(&into, count, datatype)),
                root: root as i32,
            };
            let request = comm.start_collective(&gather, call);
            let check = move || {
                if at_root {
                    into.check(all, from_all)
                }
            };
            (request, Box::new(check))
        }
        11 => {
            let into = WordBuffer::new(count, |_| 0);
            let gets = !in_place || !at_root;
            let scatter = Scatter {
                send: at_root.then(|| elements(&out, count, datatype)),
                recv: gets.then(|| elements(&into, count, datatype)),
                root: root as i32,
            };
            let request = comm.start_collective(&scatter, call);
            let expected = move |index| if gets { act.word(root, me, index) } else { 0 };
            (request, Box::new(move || into.check(count, expected)))
        }
        12 => {
            let into = WordBuffer::new(all, to_each);
            let reduce_scatter = ReduceScatterBlock {
                send: (!in_place).then(|| out.0.mem()),
                recv: into.0.mem(),
                count,
                datatype,
                op: sum,
            };
            let request = comm.start_collective(&reduce_scatter, call);
            let expected = move |index| {
                (0..n).fold(0u32, |sum, from| {
                    sum.wrapping_add(act.word(from, me, index))
                })
            };
            (request, Box::new(move || into.check(count, expected)))
        }
        13 => {
            // To the next rank and from the one before, the receive first or last.
            let (next, before) = ((me + 1) % n, (me + n - 1) % n);
            let (tag, into) = (act.salt as i32, WordBuffer::new(count, |_| 0));
            let (there, here) = (mine.0.mem(), into.0.mem());
            let receive = || {
                comm.irecv(RecvArgs {
                    data: Data::contiguous(here, 4 * count),
                    source: before as i32,
                    tag,
                    origin: call,
                })
            };
            let send = || {
                comm.isend(SendArgs {
                    data: Data::contiguous(there, 4 * count),
                    dest: next as i32,
                    tag,
                    mode: SendMode::Standard,
                    origin: call,
                })
            };
            let (sent, request) = match in_place {
                true => (send(), receive()),
                false => {
                    let request = receive();
                    (send(), request)
                }
            };
            let sent = sent.unwrap();
            let check = move || {
                request::wait(&sent).unwrap();
                into.check(count, |index| act.word(before, 0, index));
            };
            (request, Box::new(check))
        }
        15 | 16 => {
            // Blocks of any length from none to a whole one, which only two know each.
            let len =
                move |from: u32, to: u32| count * u64::from((from * 3 + to * 5 + act.salt) % 4) / 3;
            // In place, what goes and comes is as long.
            let len = move |from: u32, to: u32| match in_place {
                true => len(from.min(to), from.max(to)),
                false => len(from, to),
            };
            let list =
                |len: &dyn Fn(u32) -> u64| (0..n).map(|rank| len(rank) as i64).collect::<Vec<_>>();
            let (sent, taken) = (list(&|to| len(me, to)), list(&|from| len(from, me)));
            let (places, bytes) = (
                list(&|rank| u64::from(rank) * count),
                list(&|rank| u64::from(rank) * count * 4),
            );
            let before = move |index| if in_place { to_each(index) } else { 7 };
            let into = WordBuffer::new(all, before);
            let types = vec![datatype.clone(); n as usize];
            let request = match act.what {
                15 => {
                    let part = |words: &WordBuffer, counts| ElementsV {
                        mem: words.0.mem(),
                        counts,
                        displs: CountArray::Wide(&places),
                        datatype,
                    };
                    let call_of = Alltoallv {
                        send: (!in_place).then(|| part(&out, CountArray::Wide(&sent))),
                        recv: part(&into, CountArray::Wide(&taken)),
                    };
                    comm.start_collective(&call_of, call)
                }
                _ => {
                    let part = |words: &WordBuffer, counts| ElementsW {
                        mem: words.0.mem(),
                        counts,
                        displs: CountArray::Wide(&bytes),
                        datatypes: &types,
                    };
                    let call_of = Alltoallw {
                        send: (!in_place).then(|| part(&out, CountArray::Wide(&sent))),
                        recv: part(&into, CountArray::Wide(&taken)),
                    };
                    comm.start_collective(&call_of, call)
                }
            };
            let expected = move |index| match block(index) {
                (from, at) if at < len(from, me) => from_each(index),
                _ => before(index),
            };
            (request, Box::new(move || into.check(all, expected)))
        }
        17 | 18 => {
            let len = move |rank: u32| count * u64::from((rank + act.salt) % 4) / 3;
            let list =
                |len: &dyn Fn(u32) -> u64| (0..n).map(|rank| len(rank) as i64).collect::<Vec<_>>();
            let (counts, places) = (list(&len), list(&|rank| u64::from(rank) * count));
            let mine_is_there = in_place && at_root;
            let part = |words: &WordBuffer| ElementsV {
                mem: words.0.mem(),
                counts: CountArray::Wide(&counts),
                displs: CountArray::Wide(&places),
                datatype,
            };
            match act.what {
                17 => {
                    let into = WordBuffer::new(all, |index| {
                        if block(index).0 == me {
                            from_all(index)
                        } else {
                            7
                        }
                    });
                    let gatherv = Gatherv {
                        send: (!mine_is_there).then(|| elements(&mine, len(me), datatype)),
                        recv: at_root.then(|| part(&into)),
                        root: root as i32,
                    };
                    let request = comm.start_collective(&gatherv, call);
                    let expected = move |index| match block(index) {
                        (from, at) if from == me || at < len(from) => from_all(index),
                        _ => 7,
                    };
                    let check = move || {
                        if at_root {
                            into.check(all, expected)
                        }
                    };
                    (request, Box::new(check))
                }
                _ => {
                    let into = WordBuffer::new(count, |_| 7);
                    let scatterv = Scatterv {
                        send: at_root.then(|| part(&out)),
                        recv: (!mine_is_there).then(|| elements(&into, len(me), datatype)),
                        root: root as i32,
                    };
                    let request = comm.start_collective(&scatterv, call);
                    let expected = move |index| match !mine_is_there && index < len(me) {
                        true => act.word(root, me, index),
                        false => 7,
                    };
                    (request, Box::new(move || into.check(count, expected)))
                }
            }
        }
        19 => {
            let len = move |rank: u32| count * u64::from((rank + act.salt) % 4) / 3;
            let counts: Vec<_> = (0..n).map(|rank| len(rank) as i64).collect();
            let first = (0..me).map(len).sum::<u64>();
            let into = WordBuffer::new(all, to_each);
            let reduce_scatter = ReduceScatter {
                send: (!in_place).then(|| out.0.mem()),
                recv: into.0.mem(),
                counts: CountArray::Wide(&counts),
                datatype,
                op: sum,
            };
            let request = comm.start_collective(&reduce_scatter, call);
            let expected = move |index: u64| {
                let (to, at) = block(first + index);
                (0..n).fold(0u32, |sum, from| sum.wrapping_add(act.word(from, to, at)))
            };
            (request, Box::new(move || into.check(len(me), expected)))
        }
        14 => {
            comm.collective(&Barrier, call).unwrap();
            return None;
        }
        _ => {
            let into = WordBuffer::new(count, own);
            let (send, recv, op) = (Some(mine.0.mem()), into.0.mem(), sum);
            let allreduce = Allreduce {
                send,
                recv,
                count,
                datatype,
                op,
            };
            comm.collective(&allreduce, call).unwrap();
            into.check(count, total);
            return None;
        }
    };
    Some(StartedCall {
        request: request.unwrap(),
        check,
        _kept: vec![mine, out],
    })
}
