//! The process in which the ranks of a group run: it takes them from their stand-ins, starts a
//! thread for each, and tells each stand-in how its rank ended.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use garonne_links::sys as links;
use garonne_sync::futex;
use garonne_sync::mutex::lock;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{SendFlags, SocketFlags};

use crate::handover::{Handover, RankEnd};
use crate::libraries::Libraries;
use crate::rank::Rank;
use crate::{ENV_SHARED_PROCESS, rank, sys};

/// Counts ends of ranks: the word on which whoever tells them sleeps.
static ENDS: AtomicU32 = AtomicU32::new(0);

/// Wakes the thread that tells ends. May be called from a signal handler.
pub(crate) fn rank_has_ended() {
    // SYNC(rank-end): what a rank stored before is seen by whoever reads the count.
    ENDS.fetch_add(1, Ordering::AcqRel);
    futex::wake(&ENDS, 1);
}

/// A rank of this process and the connection to its stand-in.
struct Member {
    rank: &'static Rank,
    line: OwnedFd,
}

/// Runs the ranks that the order names, until all have ended.
///
/// # Errors
/// A rank cannot be taken. The stand-ins of all others notice the end of this process.
pub(crate) fn run(order: &str) -> Result<i32, String> {
    let numbers = order
        .split_once(':')
        .and_then(|(number, members)| Some((number.parse().ok()?, members.parse::<usize>().ok()?)));
    let (number, members) =
        numbers.ok_or_else(|| format!("{ENV_SHARED_PROCESS} is damaged: {order:?}"))?;
    let listener = sys::own_descriptor(number).ok_or("the shared process's socket is not there")?;
    sys::begin();
    let libraries = Arc::new(Libraries::default());
    let all = Arc::new(Mutex::new(Vec::<Member>::new()));
    let told = all.clone();
    std::thread::spawn(move || tell_ends(&told, members));
    for _ in 0..members {
        let line = rustix::net::accept_with(&listener, SocketFlags::CLOEXEC)
            .map_err(|error| format!("a rank cannot be taken: {error}"))?;
        let user = rustix::net::sockopt::socket_peercred(&line).map(|peer| peer.uid);
        if user != Ok(rustix::process::getuid()) {
            return Err("a process of another user asked to run a rank".into());
        }
        let handover = Handover::receive(line.as_fd())?;
        let rank = Rank::new(&handover);
        lock(&all).push(Member { rank, line });
        rank::start(rank, handover, libraries.clone())?;
    }
    drop(listener);
    watch(&all)
}

/// Tells stand-ins how their ranks ended; after the last one the process ends.
fn tell_ends(all: &Mutex<Vec<Member>>, members: usize) {
    let mut left = members;
    loop {
        // SYNC(rank-end)
        let seen = ENDS.load(Ordering::Acquire);
        for member in lock(all).iter() {
            if let Some(end) = member.rank.take_end() {
                let word = end.to_word().to_le_bytes();
                let _ = links::send(member.line.as_fd(), &word, &[], SendFlags::empty());
                left -= 1;
                // What a crash has left of this process is of no use to other ranks.
                if matches!(end, RankEnd::Signal(_)) {
                    left = usize::MAX;
                }
            }
        }
        if left == 0 {
            sys::end_process(0);
        }
        futex::wait(&ENDS, seen, None);
    }
}

/// Waits for a stand-in that ends before its rank: somebody ended the rank, and with it the process
/// goes. Never returns while all is well.
fn watch(all: &Mutex<Vec<Member>>) -> Result<i32, String> {
    loop {
        let lines: Vec<_> = lock(all)
            .iter()
            .filter(|member| !member.rank.is_over())
            .filter_map(|member| rustix::io::fcntl_dupfd_cloexec(&member.line, 3).ok())
            .collect();
        let mut polls: Vec<_> = lines
            .iter()
            .map(|line| PollFd::new(line, PollFlags::RDHUP))
            .collect();
        if polls.is_empty() {
            sys::wait_for_the_end();
        }
        let _ = rustix::event::poll(&mut polls, None);
        let ended = polls.iter().any(|poll| !poll.revents().is_empty());
        // A stand-in also ends because its rank has: then the rank is over by now.
        let by_itself = lock(all)
            .iter()
            .filter(|member| !member.rank.is_over())
            .any(|member| {
                let mut poll = [PollFd::new(&member.line, PollFlags::RDHUP)];
                let zero = rustix::time::Timespec {
                    tv_sec: 0,
                    tv_nsec: 0,
                };
                rustix::event::poll(&mut poll, Some(&zero)).is_ok_and(|ready| ready > 0)
            });
        if ended && by_itself {
            sys::end_by_signal(libc::SIGKILL);
        }
    }
}
