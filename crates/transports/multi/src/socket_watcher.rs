//! The thread that watches the sockets of a rank that sleeps on a doorbell, or whose progress
//! thread does, and rings when one is ready.
//!
//! Owned by [`MultiTransport`](super::MultiTransport), which starts it at the first sleep or when
//! progress is first released. It also sees to it that what is kept, or what a socket did not take
//! at once, leaves while nobody of the rank looks.

use super::remotes::{RemoteSockets, RemoteTransports};
use super::{lock, try_lock};
use garonne_engine::transport::WakeSource;
use garonne_sync::progress_owner::{ProgressWakeup, WakeupScope};
use garonne_sync::shm::SharedWord;
use garonne_transport::limits::TCP_COALESCE_CHECK;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// Doorbells that the watcher rings when a socket is ready.
pub(super) struct Doorbells {
    pub(super) rank: Arc<dyn WakeSource>,
    pub(super) progress_words: Option<(SharedWord, SharedWord)>,
}

impl Doorbells {
    /// Wakes whoever has armed one.
    fn ring(&self) {
        self.rank.wake();
        if let Some((word, all)) = &self.progress_words {
            // What a socket brings nobody knows before it is read, so it counts as an answer.
            ProgressWakeup::new(word, all).ring(WakeupScope::Transfers);
        }
    }
}

/// The thread that rings the doorbell when a socket is ready, or calls the progress thread.
#[derive(Debug)]
pub(super) struct SocketWatcher {
    /// Holds the epoll of the sockets, armed for one event at a time.
    epoll: Arc<OwnedFd>,
    stop: OwnedFd,
    /// Asks it to nap.
    kept: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

const SOCKETS: u64 = 0;
const STOP: u64 = 1;
const KEPT: u64 = 2;

impl SocketWatcher {
    /// Starts the thread on these processors, or where the caller runs if there are none. It rings
    /// nothing before it is armed.
    ///
    /// # Errors
    /// The system gives no descriptor or no thread.
    pub(super) fn start(
        sockets: &RemoteSockets,
        (bells, cpus): (Doorbells, &[u32]),
        tcp: &Arc<Mutex<RemoteTransports>>,
    ) -> Result<Self, rustix::io::Errno> {
        let epoll = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC)?);
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let kept = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        epoll::add(&*epoll, &*kept, EventData::new_u64(KEPT), EventFlags::IN)?;
        epoll::add(&*epoll, &stop, EventData::new_u64(STOP), EventFlags::IN)?;
        let nothing = EventFlags::ONESHOT;
        let all = sockets.epoll().ok_or(rustix::io::Errno::MFILE)?;
        epoll::add(&*epoll, all, EventData::new_u64(SOCKETS), nothing)?;
        let (its_epoll, its_kept, tcp) = (epoll.clone(), kept.clone(), tcp.clone());
        let cpus = cpus.to_vec();
        let thread = garonne_transport::sys::without_signals(|| {
            std::thread::Builder::new()
                .name(String::from("garonne-sockets"))
                .stack_size(garonne_transport::limits::WATCHER_STACK)
                .spawn(move || {
                    live_on(&cpus);
                    watch(&its_epoll, &its_kept, &bells, &tcp);
                })
        });
        let thread = thread.map_err(|_| rustix::io::Errno::AGAIN)?;
        Ok(Self {
            epoll,
            stop,
            kept,
            thread: Some(thread),
        })
    }

    /// Something is kept that is to leave soon.
    pub(super) fn nap(&self) {
        let _ = rustix::io::write(&*self.kept, &1u64.to_ne_bytes());
    }

    /// From now on the first socket that is ready, or is so already, rings.
    pub(super) fn arm(&self, sockets: &RemoteSockets) -> bool {
        let once = EventFlags::IN | EventFlags::ONESHOT;
        let event = EventData::new_u64(SOCKETS);
        sockets
            .epoll()
            .is_some_and(|all| epoll::modify(&*self.epoll, all, event, once).is_ok())
    }
}

/// Moves the calling thread to these processors; without any it stays where it is.
fn live_on(cpus: &[u32]) {
    let mut set = rustix::thread::CpuSet::new();
    let known = |cpu: &usize| *cpu < rustix::thread::CpuSet::MAX_CPU;
    cpus.iter()
        .map(|cpu| *cpu as usize)
        .filter(known)
        .for_each(|cpu| set.set(cpu));
    if set.count() > 0 {
        // Some may have been taken from the process since: then it stays, too.
        let _ = rustix::thread::sched_setaffinity(None, &set);
    }
}

fn watch(epoll: &OwnedFd, kept: &OwnedFd, bells: &Doorbells, tcp: &Mutex<RemoteTransports>) {
    let (mut nap, mut busy) = (None, false);
    loop {
        let mut events = Vec::with_capacity(3);
        let limit = nap.map(|nap: Duration| Timespec {
            tv_sec: 0,
            tv_nsec: nap.subsec_nanos() as _,
        });
        match epoll::wait(
            epoll,
            rustix::buffer::spare_capacity(&mut events),
            limit.as_ref(),
        ) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return,
        }
        if events.is_empty() {
            // Who has it mostly polls, and sees to what is kept by itself. Waiting for it would
            // make that one call the system when it lets go; so only after a second nap.
            let Some(mut tcp) = try_lock(tcp).or_else(|| busy.then(|| lock(tcp))) else {
                busy = true;
                continue;
            };
            busy = false;
            nap = tcp.nap();
            if tcp.makes_room() {
                drop(tcp);
                bells.ring();
            }
        }
        for event in events {
            match event.data.u64() {
                STOP => return,
                KEPT => {
                    let _ = rustix::io::read(kept, &mut [0; 8]);
                    nap = Some(TCP_COALESCE_CHECK);
                }
                _ => bells.ring(),
            }
        }
    }
}

impl Drop for SocketWatcher {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
