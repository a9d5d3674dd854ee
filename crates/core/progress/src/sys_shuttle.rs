//! Replacement of `sys` under shuttle (`--cfg shuttle`): threads of a random schedule, which move
//! between CPUs whenever the schedule says so.

use garonne_topology::CpuSet;
use shuttle::rand::{Rng, thread_rng};
use std::cell::Cell;
use std::io;
use std::sync::Arc;

/// CPUs of the machine on which unbound threads are.
pub(crate) const CPUS: u32 = 4;

shuttle::thread_local! {
    /// The CPU that the thread is bound to.
    static BOUND: Cell<Option<u32>> = const { Cell::new(None) };
    /// The thread is of the idle class.
    static IDLES: Cell<bool> = const { Cell::new(false) };
}

pub(crate) fn enter_idle_class() {
    IDLES.with(|idles| idles.set(true));
}

pub(crate) fn is_of_idle_class() -> bool {
    IDLES.with(Cell::get)
}

pub(crate) fn bind(cpus: &CpuSet) -> io::Result<()> {
    let mut cpus = cpus.iter();
    let first = cpus.next();
    BOUND.with(|bound| bound.set(first.filter(|_| cpus.next().is_none())));
    Ok(())
}

pub(crate) fn cpu() -> u32 {
    let bound = BOUND.with(Cell::get);
    bound.unwrap_or_else(|| thread_rng().gen_range(0..CPUS))
}

pub(crate) fn without_signals<T>(f: impl FnOnce() -> T) -> T {
    f()
}

/// Work of a thread of [`start`].
pub(crate) trait ThreadMain: Send + Sync + 'static {
    /// All of it.
    fn work(self: Arc<Self>);
}

/// A thread that was started and is neither joined nor left to itself yet.
#[derive(Debug)]
pub(crate) struct ThreadHandle(shuttle::thread::JoinHandle<()>);

pub(crate) fn start<W: ThreadMain>(work: &Arc<W>, _: usize) -> io::Result<ThreadHandle> {
    let work = work.clone();
    Ok(ThreadHandle(shuttle::thread::spawn(move || work.work())))
}

impl ThreadHandle {
    pub(crate) fn join(self) {
        self.0.join().expect("a thread does not panic");
    }

    pub(crate) fn is_me(&self) -> bool {
        self.0.thread().id() == shuttle::thread::current().id()
    }

    pub(crate) fn detach(self) {}
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RaceChecker;

impl RaceChecker {
    pub(crate) fn find() -> Option<Self> {
        None
    }

    pub(crate) fn looks_away(_: Option<Self>, f: impl FnOnce()) {
        f();
    }
}

pub(crate) fn name_thread(_: &std::ffi::CStr) {}

pub(crate) fn while_nobody_forks<T>(f: impl FnOnce() -> T) -> T {
    f()
}

pub(crate) fn forks() -> u32 {
    0
}

pub(crate) fn forks_now() -> u32 {
    0
}
