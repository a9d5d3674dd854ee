//! Signals as events. Alone in its file: signals are the whole process's, and this needs all threads to block one.

use garonne_progress::events::Next;
use garonne_progress::tasks::{At, Error, How, Place, Settings, Tasks};
use std::sync::Mutex;
use std::sync::mpsc::channel;

/// Runs without the test harness, whose threads would take the signal.
fn main() {
    let tasks = Tasks::new(Settings::here()).unwrap();
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let how = How::at(Place::Machine);
    let watch = tasks.on_signals(&[libc::SIGUSR1, libc::SIGUSR2], &how, move |signal, _: &At| {
        tell.lock().unwrap().send(signal).unwrap();
        if signal == libc::SIGUSR2 {
            Next::Stop
        } else {
            Next::Keep
        }
    });
    for signal in [rustix::process::Signal::USR1, rustix::process::Signal::USR2] {
        rustix::process::kill_process(rustix::process::getpid(), signal).unwrap();
        assert_eq!(told.recv().unwrap(), signal.as_raw());
    }
    drop(watch);
    // What the kernel never tells of, what the C library keeps for itself, and what is no signal.
    for refused in [libc::SIGKILL, libc::SIGSTOP, 32, 33, 0, -1, 65, 200, i32::MAX] {
        let watch = tasks.on_signals(&[libc::SIGUSR1, refused], &how, |_, _: &At| Next::Stop);
        assert!(matches!(watch, Err(Error::Misuse(_))), "{refused}");
    }
    println!("signals are told by number, without a handler");
}
