//! Events that become tasks, with real descriptors, alarms, signals, words and blocking calls.

use garonne_progress::events::{FutexWord, Interest, WatchAction};
use garonne_progress::tasks::{
    Error, Place, RunContext, TaskOptions, TaskSettings, Tasks, Urgency,
};
use garonne_sync::futex;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn tasks() -> Tasks {
    Tasks::new(TaskSettings {
        spins: 50,
        ..TaskSettings::here()
    })
    .unwrap()
}

fn both() -> [TaskOptions; 2] {
    let idle = TaskOptions::at(Place::Machine);
    let now = TaskOptions {
        urgency: Urgency::Now,
        ..idle.clone()
    };
    [idle, now]
}

/// A sender that several threads may hold.
fn line<T>() -> (Arc<Mutex<Sender<T>>>, Receiver<T>) {
    let (tell, told) = channel();
    (Arc::new(Mutex::new(tell)), told)
}

#[test]
fn a_descriptor_is_read_whenever_something_comes_until_its_other_side_closes() {
    let tasks = tasks();
    for how in both() {
        let (mut here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let from = there.try_clone().unwrap();
        let (tell, told) = line();
        let watch =
            tasks.on_descriptor((&there, Interest::Readable), &how, move |_: &RunContext| {
                let mut bytes = [0u8; 16];
                loop {
                    match (&mut &from).read(&mut bytes) {
                        Ok(0) => {
                            tell.lock().unwrap().send(None).unwrap();
                            return WatchAction::Stop;
                        }
                        Ok(count) => tell
                            .lock()
                            .unwrap()
                            .send(Some(bytes[..count].to_vec()))
                            .unwrap(),
                        Err(_) => return WatchAction::Keep,
                    }
                }
            });
        for byte in 0..20u8 {
            here.write_all(&[byte]).unwrap();
            assert_eq!(told.recv().unwrap(), Some(vec![byte]));
        }
        drop(here);
        assert_eq!(told.recv().unwrap(), None);
        drop(watch.unwrap());
    }
}

#[test]
fn after_its_watch_is_dropped_an_action_does_not_run() {
    let tasks = tasks();
    let (mut here, there) = UnixStream::pair().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let count = runs.clone();
    let how = TaskOptions::at(Place::Machine);
    // Level-triggered: nothing is read, so it fires again and again.
    let watch = tasks.on_descriptor((&there, Interest::Both), &how, move |_: &RunContext| {
        count.fetch_add(1, Ordering::Relaxed);
        WatchAction::Keep
    });
    here.write_all(b"x").unwrap();
    while runs.load(Ordering::Relaxed) < 10 {
        std::thread::yield_now();
    }
    drop(watch);
    let before = runs.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(runs.load(Ordering::Relaxed), before);
}

#[test]
fn alarms_ring_in_order_and_periodically_until_they_are_told_to_stop() {
    let tasks = tasks();
    for how in both() {
        let (tell, told) = line();
        let single = |name: &'static str, after_ms| {
            let tell = tell.clone();
            let first = Duration::from_millis(after_ms);
            tasks.on_alarm((first, None), &how, move |_: &RunContext| {
                tell.lock().unwrap().send(name).unwrap();
                WatchAction::Stop
            })
        };
        let watches = (single("late", 30), single("early", 1));
        assert_eq!(told.recv().unwrap(), "early");
        assert_eq!(told.recv().unwrap(), "late");
        drop(watches);
        let beats = AtomicU32::new(0);
        let tell = tell.clone();
        let period = Some(Duration::from_millis(1));
        let watch = tasks.on_alarm(
            (Duration::ZERO, period),
            &how,
            move |_: &RunContext| match beats.fetch_add(1, Ordering::Relaxed) {
                4 => {
                    tell.lock().unwrap().send("fifth").unwrap();
                    WatchAction::Stop
                }
                _ => WatchAction::Keep,
            },
        );
        assert_eq!(told.recv().unwrap(), "fifth");
        drop(watch);
    }
    let how = TaskOptions::at(Place::Machine);
    let zero = tasks.on_alarm(
        (Duration::ZERO, Some(Duration::ZERO)),
        &how,
        |_: &RunContext| WatchAction::Stop,
    );
    assert!(matches!(zero, Err(Error::Misuse(_))));
}

#[test]
fn what_an_action_leaves_unread_calls_it_again_until_it_is_read() {
    let tasks = tasks();
    for how in both() {
        let (mut here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        let (tell, told) = line();
        let (watched, left) = (there.try_clone().unwrap(), AtomicU32::new(5));
        let watch = tasks.on_descriptor(
            (&watched, Interest::Readable),
            &how,
            move |_: &RunContext| {
                let before = left.fetch_sub(1, Ordering::Relaxed);
                if before == 1 {
                    assert_eq!((&there).read(&mut [0; 8]).unwrap(), 1);
                }
                tell.lock().unwrap().send(before).unwrap();
                WatchAction::Keep
            },
        );
        here.write_all(b"a").unwrap();
        for left in (1..=5).rev() {
            assert_eq!(told.recv().unwrap(), left);
        }
        assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
        drop(watch);
    }
}

#[test]
fn a_changed_word_is_told_with_its_new_value() {
    let tasks = tasks();
    for how in both() {
        let word = Arc::new(AtomicU32::new(7));
        let (tell, told) = line();
        let watched: Arc<dyn FutexWord> = word.clone();
        let watch = tasks.on_word((watched, 7), &how, move |value, _: &RunContext| {
            tell.lock().unwrap().send(value).unwrap();
            if value == 10 {
                WatchAction::Stop
            } else {
                WatchAction::Keep
            }
        });
        for value in 8..=10 {
            word.store(value, Ordering::Release);
            futex::wake(&word, u32::MAX);
            assert_eq!(told.recv().unwrap(), value);
        }
        drop(watch);
    }
}

#[test]
fn more_words_than_the_kernel_takes_at_once_are_all_noticed() {
    let tasks = tasks();
    let how = TaskOptions::at(Place::Machine);
    let (tell, told) = line();
    let words: Vec<_> = (0..100).map(|_| Arc::new(AtomicU32::new(0))).collect();
    let watches: Vec<_> = words
        .iter()
        .enumerate()
        .map(|(index, word)| {
            let (watched, tell): (Arc<dyn FutexWord>, _) = (word.clone(), tell.clone());
            tasks.on_word((watched, 0), &how, move |_, _: &RunContext| {
                tell.lock().unwrap().send(index).unwrap();
                WatchAction::Stop
            })
        })
        .collect();
    for (index, word) in words.iter().enumerate().rev().step_by(33) {
        word.store(1, Ordering::Release);
        futex::wake(word, u32::MAX);
        assert_eq!(told.recv().unwrap(), index);
    }
    drop(watches);
}

#[test]
fn a_blocking_call_holds_up_nothing_else_and_its_end_is_an_event() {
    let tasks = tasks();
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let reading = tasks
        .blocking(move || {
            let mut byte = [0u8];
            there.read_exact(&mut byte).map(|()| byte[0])
        })
        .unwrap();
    let (tell, told) = line();
    let over = tell.clone();
    let how = TaskOptions::at(Place::Machine);
    let watch = tasks.on_completion(&reading, &how, move |_: &RunContext| {
        over.lock().unwrap().send("over").unwrap();
    });
    // Others come and go meanwhile, on threads of their own and as tasks.
    assert_eq!(tasks.blocking(|| 5).unwrap().wait(), Some(5));
    let task = tasks.task(&how, move |_: &RunContext| {
        tell.lock().unwrap().send("task").unwrap();
        garonne_progress::tasks::RunOutcome::Done
    });
    let task = Arc::new(task.unwrap());
    tasks.submit_shared(&task).unwrap();
    assert_eq!(told.recv().unwrap(), "task");
    assert!(!reading.is_over());
    here.write_all(&[9]).unwrap();
    assert_eq!(told.recv().unwrap(), "over");
    assert_eq!(reading.wait().unwrap().unwrap(), 9);
    assert!(reading.wait().is_none(), "taken once");
    drop(watch);
    // Late comers are told at once.
    let (tell, told) = line();
    let watch = tasks.on_completion(&reading, &how, move |_: &RunContext| {
        tell.lock().unwrap().send(()).unwrap()
    });
    told.recv().unwrap();
    drop(watch);
}

#[test]
fn a_blocking_call_that_panics_is_over_without_a_result() {
    let tasks = tasks();
    let call = tasks.blocking(|| -> u32 { std::panic::resume_unwind(Box::new(())) });
    assert_eq!(call.unwrap().wait(), None);
}

#[test]
fn after_the_end_nothing_is_watched() {
    let tasks = tasks();
    let how = TaskOptions::at(Place::Machine);
    let (here, _there) = UnixStream::pair().unwrap();
    let before = tasks.on_descriptor((&here, Interest::Readable), &how, |_: &RunContext| {
        WatchAction::Keep
    });
    tasks.stop();
    assert!(before.is_ok());
    assert!(matches!(
        tasks.on_descriptor((&here, Interest::Readable), &how, |_: &RunContext| {
            WatchAction::Keep
        }),
        Err(Error::Misuse(_))
    ));
    assert!(matches!(tasks.blocking(|| ()), Err(Error::Misuse(_))));
    let word: Arc<dyn FutexWord> = Arc::new(AtomicU32::new(0));
    assert!(matches!(
        tasks.on_word((word, 0), &how, |_, _: &RunContext| WatchAction::Keep),
        Err(Error::Misuse(_))
    ));
}
