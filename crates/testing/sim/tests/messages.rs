//! Guarantees of the engine, over ranks as threads with real concurrency.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
    Status,
};
use garonne_engine::transport::Transport;
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_sim::{ThreadWorld, threads, threads_with};
use garonne_sync::user::{Data, Scratch};

fn send_op(
    host: &dyn Messaging,
    peer: u32,
    tag: i32,
    buffer: &Scratch,
    len: usize,
    mode: SendCompletion,
) -> StartOutcome {
    let data = Data::contiguous(buffer.mem(), len as u64);
    host.send(SendArgs {
        context: 2,
        peer,
        source: host.me(),
        tag,
        data,
        mode,
        origin: CallOrigin::default(),
    })
    .unwrap()
}

fn wait(host: &dyn Messaging, started: StartOutcome) -> Status {
    match started {
        StartOutcome::Done(status) => status,
        StartOutcome::Pending(request) => finish(host, request),
    }
}

fn finish(host: &dyn Messaging, request: Request) -> Status {
    let mut status = None;
    host.wait_until(&mut || {
        status = host.take(request).unwrap();
        status.is_some()
    });
    status.unwrap()
}

fn pattern(source: Option<u32>, tag: Option<i32>) -> Pattern {
    Pattern {
        context: 2,
        source: source.map(|rank| Source { rank, peer: rank }),
        tag,
    }
}

fn recv_op(
    host: &dyn Messaging,
    source: Option<u32>,
    tag: Option<i32>,
    buffer: &Scratch,
) -> StartOutcome {
    let data = Data::contiguous(buffer.mem(), buffer.len() as u64);
    host.recv(RecvArgs {
        pattern: pattern(source, tag),
        data,
        origin: CallOrigin::default(),
    })
    .unwrap()
}

fn filled(len: usize, seed: u8) -> Scratch {
    let buffer = Scratch::new(len).unwrap();
    buffer.mem().with_mut(0, len, |bytes| {
        bytes
            .iter_mut()
            .enumerate()
            .for_each(|(i, byte)| *byte = (i as u8).wrapping_mul(31).wrapping_add(seed))
    });
    buffer
}

fn assert_filled(buffer: &Scratch, len: usize, seed: u8) {
    buffer.mem().with(0, len, |bytes| {
        for (i, byte) in bytes.iter().enumerate() {
            assert_eq!(
                *byte,
                (i as u8).wrapping_mul(31).wrapping_add(seed),
                "byte {i} of {len}"
            );
        }
    });
}

#[test]
fn messages_of_every_size_arrive_whole_in_both_modes() {
    threads(2, |host| {
        let host = &*host;
        for mode in [SendCompletion::Standard, SendCompletion::Synchronous] {
            for (round, len) in [0, 1, 8, 32, 33, 100, 4096, 4097, 8192, 100_000, 1 << 20]
                .into_iter()
                .enumerate()
            {
                if host.me() == 0 {
                    let buffer = filled(len, round as u8);
                    wait(host, send_op(host, 1, 7, &buffer, len, mode));
                } else {
                    let buffer = Scratch::new(len).unwrap();
                    let status = wait(host, recv_op(host, Some(0), Some(7), &buffer));
                    assert_eq!(
                        (status.source, status.tag, status.len, status.error),
                        (0, 7, len as u64, None)
                    );
                    assert_filled(&buffer, len, round as u8);
                }
            }
        }
    });
}

#[test]
fn a_message_longer_than_its_receive_is_an_error_that_names_both_sides() {
    threads(2, |host| {
        let host = &*host;
        for len in [64usize, 100_000] {
            if host.me() == 0 {
                wait(
                    host,
                    send_op(
                        host,
                        1,
                        1,
                        &filled(len, 0),
                        len,
                        SendCompletion::Synchronous,
                    ),
                );
            } else {
                let buffer = Scratch::new(16).unwrap();
                let status = wait(host, recv_op(host, Some(0), None, &buffer));
                match status.error {
                    Some(Error::Truncated(both)) => {
                        assert_eq!((both.sent, both.room, both.peer), (len as u64, 16, 0))
                    }
                    other => panic!("expected a truncation, got {other:?}"),
                }
            }
        }
    });
}

#[test]
fn sends_to_oneself_match_in_either_order_and_any_size() {
    threads(1, |host| {
        let host = &*host;
        for len in [0usize, 8, 5000, 300_000] {
            let (out, first, second) = (
                filled(len, 9),
                Scratch::new(len).unwrap(),
                Scratch::new(len).unwrap(),
            );
            let posted = recv_op(host, None, Some(4), &first);
            wait(
                host,
                send_op(host, 0, 4, &out, len, SendCompletion::Standard),
            );
            wait(host, posted);
            assert_filled(&first, len, 9);
            let sent = send_op(host, 0, 5, &out, len, SendCompletion::Synchronous);
            assert!(matches!(sent, StartOutcome::Pending(_)));
            assert_eq!(
                host.probe(pattern(Some(0), None)).unwrap().unwrap().len,
                len as u64
            );
            wait(host, recv_op(host, Some(0), Some(5), &second));
            wait(host, sent);
            assert_filled(&second, len, 9);
        }
    });
}

#[test]
fn a_flood_never_hides_the_message_that_the_receiver_wants() {
    for (quota, flood) in [(1u32, 300u32), (2, 300), (7, 1000), (1024, 5000)] {
        threads_with(
            ThreadWorld {
                world: 2,
                quotas: CreditQuotas {
                    envelopes: quota,
                    payload: 100,
                },
            },
            |rank| {
                let host: &dyn Messaging = &*rank;
                let small = filled(8, 3);
                let large = filled(20_000, 4);
                if host.me() == 0 {
                    let floods: Vec<_> = (0..flood)
                        .map(|_| send_op(host, 1, 1, &small, 8, SendCompletion::Standard))
                        .collect();
                    wait(
                        host,
                        send_op(host, 1, 2, &large, 20_000, SendCompletion::Standard),
                    );
                    wait(
                        host,
                        send_op(host, 1, 3, &small, 8, SendCompletion::Synchronous),
                    );
                    wait(
                        host,
                        send_op(host, 1, 4, &small, 8, SendCompletion::Synchronous),
                    );
                    floods
                        .into_iter()
                        .for_each(|started| drop(wait(host, started)));
                } else {
                    let buffer = Scratch::new(20_000).unwrap();
                    assert_eq!(
                        wait(host, recv_op(host, None, Some(2), &buffer)).len,
                        20_000
                    );
                    assert_filled(&buffer, 20_000, 4);
                    // A probe, then a matched probe, reach into the window too.
                    let mut seen = None;
                    host.wait_until(&mut || {
                        seen = host.probe(pattern(None, Some(3))).unwrap();
                        seen.is_some()
                    });
                    assert_eq!(
                        seen.map(|status| (status.source, status.tag, status.len)),
                        Some((0, 3, 8))
                    );
                    assert_eq!(wait(host, recv_op(host, Some(0), Some(3), &buffer)).tag, 3);
                    let mut taken = None;
                    host.wait_until(&mut || {
                        taken = host.mprobe(pattern(Some(0), Some(4))).unwrap();
                        taken.is_some()
                    });
                    let (message, _) = taken.unwrap();
                    let data = Data::contiguous(buffer.mem(), 20_000);
                    assert_eq!(
                        wait(
                            host,
                            host.mrecv(message, data, CallOrigin::default()).unwrap()
                        )
                        .tag,
                        4
                    );
                    assert!(
                        rank.inspect(|shard| shard.unexpected_count()) <= quota as usize,
                        "the quota bounds what is kept"
                    );
                    for _ in 0..flood {
                        let status = wait(host, recv_op(host, None, None, &buffer));
                        assert_eq!((status.tag, status.len), (1, 8));
                    }
                }
            },
        );
    }
}

#[test]
fn receives_see_the_order_of_sends_at_every_quota() {
    for quota in [1u32, 2, 3, 64] {
        threads_with(
            ThreadWorld {
                world: 3,
                quotas: CreditQuotas {
                    envelopes: quota,
                    payload: 64,
                },
            },
            |rank| {
                let host: &dyn Messaging = &*rank;
                const COUNT: u32 = 200;
                if host.me() == 2 {
                    let buffers: Vec<_> =
                        (0..2 * COUNT).map(|_| Scratch::new(8).unwrap()).collect();
                    let posted: Vec<_> = buffers
                        .iter()
                        .map(|buffer| recv_op(host, None, None, buffer))
                        .collect();
                    let mut next = [0u32; 2];
                    for (started, buffer) in posted.into_iter().zip(&buffers) {
                        let status = wait(host, started);
                        let number = buffer
                            .mem()
                            .with(0, 4, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
                        assert_eq!(
                            number, next[status.source as usize],
                            "from {}",
                            status.source
                        );
                        assert_eq!(status.tag, (number % 5) as i32);
                        next[status.source as usize] += 1;
                    }
                } else {
                    let buffers: Vec<_> = (0..COUNT)
                        .map(|number| {
                            let buffer = Scratch::new(8).unwrap();
                            buffer.mem().write(0, &number.to_le_bytes());
                            buffer
                        })
                        .collect();
                    let sends: Vec<_> = (0..COUNT)
                        .map(|number| {
                            send_op(
                                host,
                                2,
                                (number % 5) as i32,
                                &buffers[number as usize],
                                8,
                                SendCompletion::Standard,
                            )
                        })
                        .collect();
                    sends
                        .into_iter()
                        .for_each(|started| drop(wait(host, started)));
                }
            },
        );
    }
}

#[test]
fn a_cancelled_receive_takes_no_message_and_says_so() {
    threads(1, |host| {
        let host = &*host;
        let buffer = Scratch::new(8).unwrap();
        let StartOutcome::Pending(request) = recv_op(host, None, None, &buffer) else {
            panic!("nothing was sent yet")
        };
        host.cancel(request).unwrap();
        assert!(finish(host, request).cancelled);
        assert_eq!(
            host.take(request),
            Err(Error::Misuse(
                "the request is stale: it completed and was taken already"
            ))
        );
        wait(
            host,
            send_op(host, 0, 1, &buffer, 8, SendCompletion::Standard),
        );
        assert!(!wait(host, recv_op(host, None, None, &buffer)).cancelled);
    });
}

#[test]
fn an_abandoned_send_finishes_on_its_own() {
    threads(2, |host| {
        let host = &*host;
        let buffer = filled(100_000, 1);
        if host.me() == 0 {
            let StartOutcome::Pending(request) =
                send_op(host, 1, 1, &buffer, 100_000, SendCompletion::Standard)
            else {
                panic!("too large to be eager")
            };
            host.abandon(request).unwrap();
            assert!(host.peek(request).is_ok());
            wait(
                host,
                recv_op(host, Some(1), Some(2), &Scratch::new(8).unwrap()),
            );
            assert!(host.peek(request).is_err());
        } else {
            wait(host, recv_op(host, Some(0), Some(1), &buffer));
            wait(
                host,
                send_op(host, 0, 2, &buffer, 8, SendCompletion::Standard),
            );
        }
    });
}

#[test]
fn threads_of_one_rank_wake_each_other_whoever_polls() {
    threads(2, |host| {
        let host = &*host;
        std::thread::scope(|scope| {
            for lane in 0..4i32 {
                scope.spawn(move || {
                    let (buffer, room) =
                        (filled(20_000, lane as u8), Scratch::new(20_000).unwrap());
                    for round in 0..50i32 {
                        // Lanes 0 and 1 talk within the rank, the others with the other rank; one
                        // of each pair sends first.
                        let (to, from) = if lane < 2 {
                            (host.me(), host.me())
                        } else {
                            (1 - host.me(), 1 - host.me())
                        };
                        let (out, back) = if lane < 2 {
                            (lane, 1 - lane)
                        } else {
                            (lane, lane)
                        };
                        let len = [8, 20_000][(round % 2) as usize];
                        let first = if lane < 2 { lane == 0 } else { host.me() == 0 };
                        if first {
                            let sent =
                                send_op(host, to, out, &buffer, len, SendCompletion::Synchronous);
                            wait(host, recv_op(host, Some(from), Some(back), &room));
                            wait(host, sent);
                        } else {
                            let receive = recv_op(host, Some(from), Some(back), &room);
                            let status = wait(host, receive);
                            assert_filled(&room, status.len as usize, back as u8);
                            wait(
                                host,
                                send_op(host, to, out, &buffer, len, SendCompletion::Synchronous),
                            );
                        }
                    }
                });
            }
        });
    });
}

#[test]
fn a_thread_that_waits_for_memory_is_asked_again_while_another_polls() {
    use std::sync::atomic::{AtomicBool, Ordering};
    // Each rank's poller polls until both ranks' other threads have waited.
    let waited = std::sync::Barrier::new(2);
    let setup = ThreadWorld {
        world: 2,
        quotas: CreditQuotas::for_world(2),
    };
    threads_with(setup, |host| {
        let host = &*host;
        let raised = AtomicBool::new(false);
        let room = Scratch::new(8).unwrap();
        std::thread::scope(|scope| {
            // The poller: its message comes only after the other thread has waited.
            let receive = recv_op(host, Some(1 - host.me()), Some(7), &room);
            scope.spawn(|| wait(host, receive));
            std::thread::sleep(std::time::Duration::from_millis(5));
            // The doorbell is all that whoever raises the flag knows of this rank, as where that is
            // another process.
            let bell = host.inspect(|shard| shard.transport().wake_source());
            let raised = &raised;
            scope.spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(5));
                raised.store(true, Ordering::Release);
                bell.wake();
            });
            host.wait_for_memory(&mut || raised.load(Ordering::Acquire));
            waited.wait();
            wait(
                host,
                send_op(
                    host,
                    1 - host.me(),
                    7,
                    &filled(8, 7),
                    8,
                    SendCompletion::Standard,
                ),
            );
        });
    });
}

#[test]
fn a_waiter_is_not_asked_again_after_its_yes() {
    use std::sync::atomic::{AtomicBool, Ordering};
    threads(1, |host| {
        let host = &*host;
        let finished = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !finished.load(Ordering::Acquire) {
                    host.wake();
                    std::thread::yield_now();
                }
            });
            // The yes comes while polling, while giving way, and in the last look before sleep.
            let again = (1..400u32).filter(|yes| {
                let mut asked = 0;
                host.wait_until(&mut || {
                    asked += 1;
                    asked >= *yes
                });
                asked != *yes
            });
            let again: Vec<u32> = again.collect();
            finished.store(true, Ordering::Release);
            assert_eq!(again, []);
        });
    });
}
