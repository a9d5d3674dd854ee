//! The end of a job: by success, by the first failure, by a signal, by time.
//!
//! The first failure decides the exit code and is the only one that is reported. The failing rank's own words go out
//! first, then one line that says what happened; then the others are asked to end, and soon ended.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use super::output::{Kind, Sink};
use super::{Agent, Slot};
use crate::codes;
use crate::error::Result;
use crate::layout;
use crate::limits::{DRAIN_READS, DRAIN_WAIT, FINALIZED_GRACE, LEFTOVER_GRACE, TERM_GRACE, WRAPPER_WAIT};
use crate::processes::{self, Ended};
use crate::sys;
use crate::wire::Link;

/// The job is over but for what still runs.
#[derive(Debug)]
pub(super) struct Ending {
    code: i32,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The ranks may end by themselves until then.
    Patience(Instant),
    /// Everything still alive is killed then.
    Kill(Instant),
    /// All ranks have ended; what they left may end by itself until then.
    Leftovers(Instant),
}

impl Ending {
    pub fn due(&self) -> Option<Instant> {
        match self.stage {
            Stage::Patience(due) | Stage::Kill(due) | Stage::Leftovers(due) => Some(due),
        }
    }
}

/// A failure that ends the job.
struct Failure {
    code: i32,
    line: String,
    /// Whether the rank had finalised MPI: then the others get time to finalise as well.
    finalized: bool,
}

/// Whether a signal to the launcher ends the job; others are passed on.
fn ends_jobs(signal: i32) -> bool {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
}

/// The names of signals that end programs, as people know them.
fn signal_name(signal: i32) -> String {
    const NAMES: [(i32, &str); 14] = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    NAMES
        .iter()
        .find(|(number, _)| *number == signal)
        .map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

impl Slot {
    fn is_over(&self, gone: impl Fn(u32) -> bool) -> bool {
        self.ended.is_some() && self.member.is_none_or(gone)
    }
}

impl Agent<'_> {
    /// The exit code, once there is nothing left to wait for.
    pub(super) fn finished(&mut self) -> Result<Option<i32>> {
        let now = Instant::now();
        let gone = |index: u32| self.members[index as usize].direct || self.members[index as usize].gone;
        let over = self
            .slots
            .iter()
            .all(|slot| slot.is_over(gone) && slot.dark_until.is_none());
        let code = self.ending.as_ref().map_or(0, |ending| ending.code);
        match self.ending.as_ref().map(|ending| ending.stage) {
            None if over => {
                self.ending = Some(Ending {
                    code,
                    stage: Stage::Leftovers(now + LEFTOVER_GRACE),
                })
            }
            Some(Stage::Patience(due)) if due <= now && !over => self.terminate(code),
            Some(Stage::Patience(_) | Stage::Kill(_)) if over => {
                self.ending = Some(Ending {
                    code,
                    stage: Stage::Leftovers(now + DRAIN_WAIT),
                })
            }
            _ => {}
        }
        // A leftover that ends is an orphan of ours, so SIGCHLD brings us here again.
        let close = match self.ending.as_ref().map(|ending| ending.stage) {
            None | Some(Stage::Patience(_)) => false,
            Some(Stage::Kill(due)) => due <= now,
            Some(Stage::Leftovers(due)) => due <= now || self.nothing_left(),
        };
        Ok(close.then(|| self.close()))
    }

    fn nothing_left(&self) -> bool {
        let closed = self
            .slots
            .iter()
            .all(|slot| slot.out.fd.is_none() && slot.err.fd.is_none());
        closed && !processes::any_alive()
    }

    /// Kills what is left, passes the last output on and returns the exit code.
    fn close(&mut self) -> i32 {
        processes::kill_all();
        // The rank whose long line is passing finishes it first.
        let passing = self.sinks.iter().filter_map(Sink::passes).collect::<Vec<_>>();
        for rank in passing.into_iter().chain(0..self.slots.len() as u32) {
            self.drain(rank);
        }
        self.flush_slowly();
        self.flush(Kind::Out);
        self.ending.as_ref().map_or(0, |ending| ending.code)
    }

    /// Writes what is left for a reader that may be slow, until it is gone or somebody asks the job to end.
    fn flush_slowly(&mut self) {
        loop {
            let waiting = self
                .sinks
                .iter()
                .filter(|sink| sink.pending_bytes() > 0)
                .map(Sink::fd)
                .collect::<Vec<_>>();
            if waiting.is_empty() {
                return;
            }
            let mut fds = vec![
                PollFd::new(self.signals, PollFlags::IN),
                PollFd::new(self.link, PollFlags::IN),
            ];
            fds.extend(waiting.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)));
            let _ = rustix::event::poll(&mut fds, None);
            let link_speaks = !fds[1].revents().is_empty();
            drop(fds);
            if (link_speaks && self.launcher_asks_for_the_end())
                || std::iter::from_fn(|| self.signals.next()).any(|signal| ends_jobs(signal.number))
            {
                return;
            }
            for sink in self.sinks.iter_mut().filter(|sink| sink.pending_bytes() > 0) {
                sink.flush();
            }
        }
    }

    /// Reads one message of the launcher: whether it passes on a signal that ends jobs, or is gone.
    fn launcher_asks_for_the_end(&self) -> bool {
        match sys::recv(self.link.as_fd(), RecvFlags::DONTWAIT).map(|message| Link::decode(&message.bytes)) {
            Ok(Ok(Link::Signal { signal, .. })) => ends_jobs(signal),
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            _ => true,
        }
    }

    /// Reads all that a rank has written so far and passes it on, unfinished lines too.
    fn drain(&mut self, rank: u32) {
        for kind in [Kind::Out, Kind::Err] {
            // One reading may stop early to let others finish their lines; all together take what a pipe holds.
            for _ in 0..DRAIN_READS {
                self.pump(kind, rank);
            }
            self.emit(kind, rank);
        }
    }

    /// A rank's direct child has ended.
    pub(super) fn rank_ended(&mut self, rank: u32, ended: Ended) {
        let slot = &mut self.slots[rank as usize];
        slot.dark_until = None;
        let Some(index) = slot.member else {
            return self.unregistered_ended(rank, ended);
        };
        self.serve_member(index);
        if self.members[index as usize].direct {
            self.members[index as usize].gone = true;
            if !self.members[index as usize].finalized || ended != Ended::Exit(0) {
                self.mark_gone(rank);
            }
        }
        let member = &self.members[index as usize];
        if member.finalized {
            return self.finalized_ended(rank, ended);
        }
        if member.gone || ended != Ended::Exit(0) {
            // A wrapper may say something else than how its child ended.
            let ended = self.told_end(index).unwrap_or(ended);
            self.ended_without_finalize(rank, ended);
        }
    }

    fn unregistered_ended(&mut self, rank: u32, ended: Ended) {
        if ended != Ended::Exit(0) {
            let (code, what) = describe(ended);
            let line = format!(
                "error[{code}]: rank {rank} ({}, process {}) {what}",
                self.program_name(rank),
                self.slots[rank as usize].pid
            );
            self.fail(
                rank,
                Failure {
                    code: ended.code(),
                    line,
                    finalized: false,
                },
            );
        }
    }

    fn finalized_ended(&mut self, rank: u32, ended: Ended) {
        if ended != Ended::Exit(0) {
            let (code, what) = describe(ended);
            let place = format!(
                "rank {rank} ({}, process {})",
                self.program_name(rank),
                self.slots[rank as usize].pid
            );
            let line = format!("error[{code}]: {place} {what} after MPI_Finalize");
            self.fail(
                rank,
                Failure {
                    code: ended.code(),
                    line,
                    finalized: true,
                },
            );
        }
    }

    fn ended_without_finalize(&mut self, rank: u32, ended: Ended) {
        self.mark_gone(rank);
        let pid = self.member_pid(rank);
        let place = format!("rank {rank} ({}, process {pid})", self.program_name(rank));
        let (code, line) = match ended {
            Ended::Signal(signal) => (
                128 + signal,
                format!(
                    "error[{}]: {place} was killed by {}",
                    codes::G0206,
                    signal_name(signal)
                ),
            ),
            // A shell reports the signal that ended its command in this way.
            Ended::Exit(code @ 129..=159) if !self.is_direct(rank) => (
                code,
                format!(
                    "error[{}]: {place} was killed by {}",
                    codes::G0206,
                    signal_name(code - 128)
                ),
            ),
            Ended::Exit(status) => (
                if status == 0 { 1 } else { status },
                format!(
                    "error[{}]: {place} ended with exit status {status} before MPI_Finalize",
                    codes::G0201
                ),
            ),
        };
        self.fail(
            rank,
            Failure {
                code,
                line,
                finalized: false,
            },
        );
    }

    fn member_pid(&self, rank: u32) -> i32 {
        let slot = &self.slots[rank as usize];
        slot.member
            .map_or(slot.pid, |index| self.members[index as usize].pid)
    }

    fn is_direct(&self, rank: u32) -> bool {
        self.slots[rank as usize]
            .member
            .is_none_or(|index| self.members[index as usize].direct)
    }

    /// The registered process is gone, perhaps before its wrapper: waits a little for the kernel's or the wrapper's word on how
    /// it ended. It is the first failure from now on, whoever fails meanwhile.
    pub(super) fn unfinalized_member_gone(&mut self, rank: u32, index: u32) {
        if self.ending.is_none() {
            self.suspect.get_or_insert(rank);
        }
        match self.told_end(index).or(self.slots[rank as usize].ended) {
            Some(ended) => self.ended_without_finalize(rank, ended),
            None => {
                self.slots[rank as usize].dark_until = Some(Instant::now() + WRAPPER_WAIT);
                self.await_reaping(index);
            }
        }
    }

    /// The kernel says how the registered process ended, before its wrapper has.
    pub(super) fn wrapped_rank_ended(&mut self, rank: u32, ended: Ended) {
        if self.slots[rank as usize].dark_until.take().is_some() {
            self.ended_without_finalize(rank, ended);
        }
    }

    /// The wrapper did not say how its child ended.
    pub(super) fn left_in_the_dark(&mut self, rank: u32) {
        self.mark_gone(rank);
        let place = format!(
            "rank {rank} ({}, process {})",
            self.program_name(rank),
            self.member_pid(rank)
        );
        let line = format!(
            "error[{}]: {place} ended before MPI_Finalize; its wrapper does not say how",
            codes::G0213
        );
        self.fail(
            rank,
            Failure {
                code: 1,
                line,
                finalized: false,
            },
        );
    }

    /// A rank called MPI_Abort.
    pub(super) fn aborted(&mut self, rank: u32, code: i32, text: &str) {
        let line = match text.trim_end() {
            "" => format!(
                "error[{}]: rank {rank} ({}) called MPI_Abort with code {code}{}",
                codes::G0202,
                self.program_name(rank),
                if code == 0 {
                    "; an aborted job ends with 1"
                } else {
                    ""
                }
            ),
            text => text.to_owned(),
        };
        // An exit status has eight bits. However an abort was meant, what the other ranks were doing is lost: no success.
        let status = match code & 0xff {
            0 => 1,
            status => status,
        };
        self.fail(
            rank,
            Failure {
                code: status,
                line,
                finalized: false,
            },
        );
    }

    /// A rank cannot join the job, or will not although the others wait for it.
    pub(super) fn kept_out(&mut self, rank: u32, line: &str) {
        self.fail(
            rank,
            Failure {
                code: 1,
                line: line.to_owned(),
                finalized: false,
            },
        );
    }

    /// The first failure: its rank's words, one line, and the end of the others.
    fn fail(&mut self, rank: u32, failure: Failure) {
        if self.ending.is_some() || self.suspect.is_some_and(|suspect| suspect != rank) {
            return;
        }
        self.drain(rank);
        let report = self.slots[rank as usize]
            .member
            .map(|index| std::mem::take(&mut self.members[index as usize].report));
        if let Some(report) = report.filter(|report| !report.is_empty()) {
            self.say(report.trim_end());
        }
        self.say(&failure.line);
        if failure.finalized {
            // Its peers are most likely about to finalise, too: they may do so and end by themselves.
            self.end(failure.code, Stage::Patience(Instant::now() + FINALIZED_GRACE));
        } else {
            self.terminate(failure.code);
        }
    }

    /// Asks all ranks to end, and ends them soon.
    fn terminate(&mut self, code: i32) {
        self.end(code, Stage::Kill(Instant::now() + TERM_GRACE));
        for rank in 0..self.slots.len() as u32 {
            self.signal_rank(rank, libc::SIGTERM);
        }
    }

    fn end(&mut self, code: i32, stage: Stage) {
        self.deadline = None;
        self.ending = Some(Ending { code, stage });
        for world in &self.worlds {
            layout::ending(&world.board).store(1, Relaxed);
        }
    }

    /// Sends a signal to the process that is the rank: the registered one, else what was started.
    fn signal_rank(&self, rank: u32, signal: i32) {
        let slot = &self.slots[rank as usize];
        match slot.member.map(|index| &self.members[index as usize]) {
            Some(member) if !member.direct && !member.gone => sys::kill(member.pid, signal),
            _ if slot.ended.is_none() => sys::kill(slot.pid, signal),
            _ => {}
        }
    }

    /// The time of the job has passed.
    pub(super) fn out_of_time(&mut self) {
        if self.ending.is_some() {
            return;
        }
        let running: Vec<_> = (0..self.slots.len())
            .filter(|&rank| self.slots[rank].ended.is_none())
            .map(|r| r.to_string())
            .collect();
        let shown = if running.len() > 16 {
            format!("{} ranks", running.len())
        } else {
            format!("ranks {}", running.join(", "))
        };
        let after = self.job.timeout.unwrap_or_default().as_secs_f64();
        self.say(&format!(
            "error[{}]: the job did not end within {after} s; still running: {shown}",
            codes::G0208
        ));
        self.terminate(124);
    }

    /// Nobody reads our output any more: the job ends as a program in a shell's pipeline does. Or it cannot be written, which is a
    /// failure even of a job that has ended well.
    pub(super) fn reader_gone(&mut self, kind: Kind) {
        let fault = self.sinks.fault();
        match (&mut self.ending, fault) {
            _ if kind != Kind::Out => {}
            (None, None) => self.terminate(128 + libc::SIGPIPE),
            (None, Some(fault)) => {
                self.output_lost(fault);
                self.terminate(1);
            }
            (Some(ending), Some(fault)) if ending.code == 0 => {
                ending.code = 1;
                self.output_lost(fault);
            }
            _ => {}
        }
    }

    fn output_lost(&mut self, fault: rustix::io::Errno) {
        let error = std::io::Error::from(fault);
        let line = format!("error[{}]: cannot write the job's output: {error}", codes::G0305);
        self.say(&line);
    }

    /// A signal for the job. `broadcast`: the ranks have it already.
    pub(super) fn signalled(&mut self, signal: i32, broadcast: bool) {
        match signal {
            libc::SIGINT | libc::SIGTERM | libc::SIGHUP | libc::SIGQUIT => {
                self.end_by_signal(signal, broadcast)
            }
            _ if broadcast => {}
            libc::SIGTSTP | libc::SIGCONT => {
                for pid in processes::descendants(rustix::process::getpid().as_raw_pid()) {
                    sys::kill(pid, signal);
                }
            }
            _ => (0..self.slots.len() as u32).for_each(|rank| self.signal_rank(rank, signal)),
        }
    }

    fn end_by_signal(&mut self, signal: i32, broadcast: bool) {
        let now = Instant::now();
        // Asked twice by hand: no more patience. The same signal may also arrive here twice at once.
        let again = self
            .last_signal
            .is_some_and(|last| now.duration_since(last) > DRAIN_WAIT / 2);
        self.last_signal = Some(now);
        if self.ending.is_some() && !again {
            return;
        }
        let code = self.ending.as_ref().map_or(128 + signal, |ending| ending.code);
        self.end(code, Stage::Kill(if again { now } else { now + TERM_GRACE }));
        if !broadcast {
            for rank in 0..self.slots.len() as u32 {
                self.signal_rank(rank, signal);
            }
        }
    }
}

/// Code and words for the end of a process that owed nobody an MPI_Finalize.
fn describe(ended: Ended) -> (&'static str, String) {
    match ended {
        Ended::Exit(status) => (codes::G0207, format!("ended with exit status {status}")),
        Ended::Signal(signal) => (codes::G0206, format!("was killed by {}", signal_name(signal))),
    }
}
