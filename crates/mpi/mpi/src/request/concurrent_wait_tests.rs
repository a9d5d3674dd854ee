//! Waits of one thread beside what others do with the same requests: nobody sleeps on, and nobody
//! waits for the other's lock.

use super::*;
use crate::p2p::bsend_buffer::BsendMemory;
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::testing::{self, TestBytes};
use garonne_engine::api::CallOrigin;
use garonne_progress::environment::{Environment, SpinBudget, WaitObserver, YieldOutcome};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

struct PlainEnvironment;
impl WaitObserver for PlainEnvironment {}

impl Environment for PlainEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        SpinBudget {
            spins: 10,
            yields: 0,
            spinners: 1,
        }
    }
    fn yield_core(&self) -> YieldOutcome {
        std::thread::yield_now();
        YieldOutcome::Unused
    }
    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted {code}: {message}")
    }
    fn wtime(&self) -> f64 {
        0.0
    }
}

fn recv_args(into: &TestBytes, tag: i32) -> RecvArgs {
    RecvArgs {
        data: into.data(),
        source: 0,
        tag,
        origin: CallOrigin::default(),
    }
}

fn send_args(from: &TestBytes, tag: i32) -> SendArgs {
    SendArgs {
        data: from.data(),
        dest: 0,
        tag,
        mode: SendMode::Standard,
        origin: CallOrigin::default(),
    }
}

fn comes(flag: &AtomicBool, limit: Duration) -> bool {
    let begun = Instant::now();
    while !flag.load(Ordering::SeqCst) && begun.elapsed() < limit {
        std::thread::sleep(Duration::from_millis(1));
    }
    flag.load(Ordering::SeqCst)
}

const LARGE: usize = 1 << 20;

/// A thread that waits while another polls for all: it sleeps on through `vainly`, and ends by
/// `end`, although the poller stays.
fn sleeps_until(
    world: &Comm,
    wait: impl FnOnce() + std::marker::Send,
    vainly: impl FnOnce(),
    end: impl FnOnce(),
) {
    let (ended, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let host = &world.process().host;
    std::thread::scope(|scope| {
        scope.spawn(|| host.wait_until(&mut || over.load(Ordering::SeqCst)));
        std::thread::sleep(Duration::from_millis(30));
        scope.spawn(|| {
            wait();
            ended.store(true, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(100));
        vainly();
        std::thread::sleep(Duration::from_millis(100));
        assert!(!ended.load(Ordering::SeqCst));
        end();
        let came = comes(&ended, Duration::from_secs(5));
        over.store(true, Ordering::SeqCst);
        host.wake();
        // Let the other go in any case.
        assert!(comes(&ended, Duration::from_secs(5)), "not even then");
        assert!(
            came,
            "the thread slept on although what it waited for was over"
        );
    });
}

fn call_off(request: &Request) {
    request.cancel().unwrap();
    wait(request).unwrap();
}

fn pair_among(several: bool) {
    testing::alone(PlainEnvironment, |world| {
        let (out, inn, never, back) = (
            TestBytes::new(LARGE),
            TestBytes::new(8),
            TestBytes::new(8),
            TestBytes::new(LARGE),
        );
        let pair = world
            .isendrecv(send_args(&out, 2), recv_args(&inn, 1))
            .unwrap();
        let other = world.irecv(recv_args(&never, 9)).unwrap();
        let wait = || {
            let list = [Some(&pair), Some(&other)];
            if several {
                assert_eq!(wait_some(&list, &mut |at, _| assert_eq!(at, 0)), Some(1));
            } else {
                assert_eq!(wait_any(&list).unwrap().0, 0);
            }
        };
        // The receive's half ends, and then the send's.
        let half = || world.send(send_args(&inn, 1)).unwrap();
        let rest = || assert_eq!(world.recv(recv_args(&back, 2)).unwrap().tag, 2);
        sleeps_until(world, wait, half, rest);
        call_off(&other);
    });
}

#[test]
fn a_pair_among_others_ends_waitany() {
    pair_among(false);
}

#[test]
fn a_pair_among_others_ends_waitsome() {
    pair_among(true);
}

/// A generalised request whose functions have nothing to do.
struct NoFunctions;

impl generalized::GeneralizedFunctions for NoFunctions {
    fn query(&self) -> Result<Status, i32> {
        Ok(Status::EMPTY)
    }
    fn free(&self) -> Result<(), i32> {
        Ok(())
    }
    fn cancel(&self, _complete: bool) -> Result<(), i32> {
        Ok(())
    }
}

#[test]
fn a_generalised_request_that_another_thread_completes_ends_each_wait() {
    testing::alone(PlainEnvironment, |world| {
        for among in [false, true] {
            let never = TestBytes::new(8);
            let other = world.irecv(recv_args(&never, 9)).unwrap();
            let (general, request) = generalized::start(world.process(), Box::new(NoFunctions));
            let wait = || match among {
                false => assert!(wait(&request).is_ok()),
                true => assert_eq!(
                    wait_any(&[Some(&other), None, Some(&request)]).unwrap().0,
                    2
                ),
            };
            // To cancel it does not end it.
            let cancel = || request.cancel().unwrap();
            sleeps_until(world, wait, cancel, || general.complete().unwrap());
            call_off(&other);
        }
    });
}

#[test]
fn a_persistent_receive_that_another_thread_starts_ends_a_wait_for_it_among_others() {
    testing::alone(PlainEnvironment, |world| {
        let (into, never) = (TestBytes::new(8), TestBytes::new(8));
        let other = world.irecv(recv_args(&never, 9)).unwrap();
        let request = world.recv_init(recv_args(&into, 1)).unwrap();
        let wait = || assert_eq!(wait_any(&[Some(&request), Some(&other)]).unwrap().0, 0);
        let start = || request.start().unwrap();
        sleeps_until(world, wait, start, || {
            world.send(send_args(&never, 1)).unwrap()
        });
        call_off(&other);
    });
}

#[test]
fn a_flush_ends_with_the_last_message_of_its_buffer() {
    testing::alone(PlainEnvironment, |world| {
        let (out, back) = (TestBytes::new(LARGE), TestBytes::new(LARGE));
        for among in [false, true] {
            let (process, never) = (world.process(), TestBytes::new(8));
            let other = world.irecv(recv_args(&never, 9)).unwrap();
            process.buffers.attach(BsendMemory::Automatic).unwrap();
            for tag in [1, 2] {
                let mode = SendMode::Buffered;
                let args = SendArgs {
                    mode,
                    ..send_args(&out, tag)
                };
                world.send(args).unwrap();
            }
            let flush = process.buffers.iflush(process);
            let wait = || match among {
                false => process.buffers.flush(process),
                true => assert_eq!(wait_any(&[Some(&other), Some(&flush)]).unwrap().0, 1),
            };
            let receive = |tag| assert_eq!(world.recv(recv_args(&back, tag)).unwrap().tag, tag);
            sleeps_until(world, wait, || receive(1), || receive(2));
            assert!(process.buffers.detach(process).is_some());
            call_off(&other);
        }
    });
}

/// Longer than anything here takes, on a machine that does much else.
const SURELY_STUCK: Duration = Duration::from_secs(60);

/// One thread waits for any of so many receives, again and again, while another cancels one after
/// the other.
fn cancels(count: i32) {
    const TURNS: u32 = 3000;
    testing::alone(PlainEnvironment, |world| {
        let rooms: Vec<_> = (0..count).map(|_| TestBytes::new(8)).collect();
        let requests: Vec<_> = rooms
            .iter()
            .enumerate()
            .map(|(tag, room)| world.recv_init(recv_args(room, tag as i32)).unwrap())
            .collect();
        requests.iter().for_each(|request| request.start().unwrap());
        let (turns, over) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let list: Vec<_> = requests.iter().map(Some).collect();
                for _ in 0..TURNS {
                    let (at, _) = wait_any(&list).unwrap();
                    requests[at].start().unwrap();
                    turns.fetch_add(1, Ordering::SeqCst);
                }
                over.store(true, Ordering::SeqCst);
            });
            scope.spawn(|| {
                for turn in 0usize.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    // It may have ended at this moment.
                    let _ = requests[turn * 7919 % requests.len()].cancel();
                    let begun = Instant::now();
                    while begun.elapsed() < Duration::from_micros(20 + turn as u64 % 100) {
                        std::hint::spin_loop();
                    }
                }
            });
            let (mut seen, mut since) = (0, Instant::now());
            while !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
                let now = turns.load(Ordering::SeqCst);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
                if since.elapsed() > SURELY_STUCK {
                    eprintln!("neither who waits nor who cancels gets on, after {now} turns");
                    // Threads that hold each other up cannot be ended otherwise.
                    std::process::abort();
                }
            }
        });
        for request in &requests {
            request.cancel().unwrap();
            wait(request).unwrap();
        }
    });
}

#[test]
fn who_cancels_gets_on_beside_a_thread_that_waits_for_any_of_many() {
    cancels(1000);
}

#[test]
fn who_cancels_gets_on_beside_a_thread_that_waits_for_any_of_few() {
    cancels(4);
}
