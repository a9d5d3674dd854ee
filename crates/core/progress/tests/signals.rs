//! Signals as events. Alone in its file: signals are the whole process's, and this needs all
//! threads to block one.

use garonne_progress::events::WatchAction;
use garonne_progress::tasks::{
    Error, Place, RunContext, TaskOptions, TaskSettings, Tasks, Urgency,
};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than a test machine keeps anybody waiting.
const LONG: Duration = Duration::from_secs(60);

/// Runs without the test harness, whose threads would take the signal.
fn main() {
    let tasks = Tasks::new(TaskSettings::here()).unwrap();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let how = TaskOptions::at(Place::Machine);
    let watch = tasks.on_signals(
        &[libc::SIGUSR1, libc::SIGUSR2],
        &how,
        move |signal, _: &RunContext| {
            tell.lock().unwrap().send(signal).unwrap();
            if signal == libc::SIGUSR2 {
                WatchAction::Stop
            } else {
                WatchAction::Keep
            }
        },
    );
    for signal in [rustix::process::Signal::USR1, rustix::process::Signal::USR2] {
        rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
        assert_eq!(told.recv().unwrap(), signal.as_raw());
    }
    drop(watch);
    // What the kernel never tells of, what the C library keeps for itself, and what is no signal.
    for refused in [
        libc::SIGKILL,
        libc::SIGSTOP,
        32,
        33,
        0,
        -1,
        65,
        200,
        i32::MAX,
    ] {
        let watch = tasks.on_signals(&[libc::SIGUSR1, refused], &how, |_, _: &RunContext| {
            WatchAction::Stop
        });
        assert!(matches!(watch, Err(Error::Misuse(_))), "{refused}");
    }
    all_watches_of_a_signal_hear_of_it_and_one_ends_alone();
    queued_signals_are_told_each_to_all();
    what_comes_between_two_watches_is_for_the_second();
    println!("signals are told by number, without a handler, to all who watch");
}

fn send(signal: i32) {
    let signal = rustix::process::Signal::from_named_raw(signal).unwrap();
    rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
}

/// Long enough for what is not to come.
const QUIET: Duration = Duration::from_millis(20);

/// Two libraries that watch the same signal, in the tasks that they share or each in its own, at
/// once or when a core is idle.
fn all_watches_of_a_signal_hear_of_it_and_one_ends_alone() {
    let shared = Tasks::new(TaskSettings::here()).unwrap();
    for urgency in [Urgency::Idle, Urgency::Now] {
        let other = Tasks::new(TaskSettings::here()).unwrap();
        let (mut watches, mut told) = (Vec::new(), Vec::new());
        for (tasks, urgency) in [
            (&shared, Urgency::Idle),
            (&shared, urgency),
            (&other, Urgency::Now),
        ] {
            let (tell, its) = channel();
            let tell = Mutex::new(tell);
            let how = TaskOptions {
                urgency,
                ..TaskOptions::at(Place::Machine)
            };
            let watch = tasks.on_signals(
                &[libc::SIGUSR1, libc::SIGCHLD],
                &how,
                move |signal, _: &RunContext| {
                    tell.lock().unwrap().send(signal).unwrap();
                    WatchAction::Keep
                },
            );
            watches.push(watch.unwrap());
            told.push(its);
        }
        // Those who watch one of both only are told of no other.
        let (wrong, how) = (Arc::new(AtomicU32::new(0)), TaskOptions::at(Place::Machine));
        let its_wrong = wrong.clone();
        let one = shared.on_signals(&[libc::SIGCHLD], &how, move |signal, _: &RunContext| {
            its_wrong.fetch_add(u32::from(signal != libc::SIGCHLD), Ordering::Relaxed);
            WatchAction::Keep
        });
        for left in (1..=3).rev() {
            for signal in [libc::SIGUSR1, libc::SIGCHLD].repeat(20) {
                send(signal);
                for its in &told {
                    assert_eq!(its.recv_timeout(LONG).unwrap(), signal, "{left} watch");
                }
            }
            watches.remove(0);
            let gone = told.remove(0);
            send(libc::SIGUSR1);
            for its in &told {
                assert_eq!(its.recv_timeout(LONG).unwrap(), libc::SIGUSR1);
            }
            assert!(gone.recv_timeout(QUIET).is_err());
            if left == 1 {
                // It waits in the kernel: told to the next.
                assert_eq!(first_told(&shared), libc::SIGUSR1);
            }
        }
        drop(one);
        assert_eq!(wrong.load(Ordering::Relaxed), 0);
    }
}

fn first_told(tasks: &Tasks) -> i32 {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let watch = tasks.on_signals(
        &[libc::SIGUSR1],
        &TaskOptions::at(Place::Machine),
        move |signal, _: &RunContext| {
            tell.lock().unwrap().send(signal).unwrap();
            WatchAction::Stop
        },
    );
    let signal = told.recv_timeout(LONG).unwrap();
    drop(watch);
    signal
}

/// Signals of the real-time kind are counted, also for a watch that is slower than another.
fn queued_signals_are_told_each_to_all() {
    const SENT: usize = 50;
    let tasks = Tasks::new(TaskSettings::here()).unwrap();
    let (mut watches, mut told) = (Vec::new(), Vec::new());
    for slow in [false, true] {
        let (tell, its) = channel();
        let tell = Mutex::new(tell);
        let how = TaskOptions {
            urgency: Urgency::Now,
            ..TaskOptions::at(Place::Machine)
        };
        let watch = tasks.on_signals(
            &[libc::SIGRTMIN() + 3],
            &how,
            move |signal, _: &RunContext| {
                if slow {
                    std::thread::sleep(Duration::from_millis(1));
                }
                tell.lock().unwrap().send(signal).unwrap();
                WatchAction::Keep
            },
        );
        watches.push(watch.unwrap());
        told.push(its);
    }
    // By a shell: signals without a name have no safe call here.
    let (signal, me) = (libc::SIGRTMIN() + 3, std::process::id());
    let all = format!("i=0; while [ $i -lt {SENT} ]; do kill -{signal} {me}; i=$((i+1)); done");
    let sent = std::process::Command::new("sh").args(["-c", &all]).status();
    assert!(sent.unwrap().success());
    for its in &told {
        (0..SENT).for_each(|_| assert_eq!(its.recv_timeout(LONG).unwrap(), libc::SIGRTMIN() + 3));
        assert!(its.recv_timeout(QUIET).is_err());
    }
}

/// A watch that answered that it wants no more is told no more while another goes on.
fn what_comes_between_two_watches_is_for_the_second() {
    let tasks = Tasks::new(TaskSettings::here()).unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let its_runs = runs.clone();
    let once = tasks.on_signals(
        &[libc::SIGUSR1],
        &TaskOptions::at(Place::Machine),
        move |_, _: &RunContext| {
            its_runs.fetch_add(1, Ordering::Relaxed);
            WatchAction::Stop
        },
    );
    send(libc::SIGUSR1);
    while runs.load(Ordering::Relaxed) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    send(libc::SIGUSR1);
    assert_eq!(first_told(&tasks), libc::SIGUSR1);
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    drop(once);
}
