//! The end of a job: by success, by the first failure, by a signal, by time.
//!
//! The first failure decides the exit code and is the only one that is reported. The failing rank's
//! own words go out first, then one line that says what happened; then the others are asked to end,
//! and soon ended.

use garonne_job::process_exit::ProcessExit;
use std::time::Instant;

use super::Agent;
use super::job_end::ShutdownStage;
use super::output_routing::OutputLoss;
use super::spawned_jobs;
use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::codes;
use garonne_job::error::Result;
use garonne_job::limits::{DRAIN_WAIT, FINALIZED_GRACE, LEFTOVER_GRACE, WRAPPER_WAIT};
use garonne_links::process_tree::{self, signal_name};

/// A failure that ends the job.
#[derive(Debug)]
pub(super) struct JobFailure {
    code: i32,
    line: String,
    /// True if the rank had finalised MPI: then the others get time to finalise as well.
    finalized: bool,
    /// The rank, if it is known here.
    rank: Option<u32>,
}

/// Returns whether a signal to the launcher ends the job; others are passed on.
pub(super) fn ends_jobs(signal: i32) -> bool {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT].contains(&signal)
}

impl Agent<'_> {
    /// The exit code, once there is nothing left to wait for.
    pub(super) fn exit_code_if_done(&mut self) -> Result<Option<i32>> {
        let now = Instant::now();
        let over = self.ranks.all_over();
        // Elsewhere it is ordered when the job is over.
        let over_everywhere = over
            && !self.ctx.is_child()
            && !self.ctx.waiting_for_agents
            && !self.end.holds_failure();
        let code = self.code();
        match self.end.stage() {
            None if over_everywhere && self.hang_reports.is_interrupt() => {
                if let Some(report) = self.hang_reports.end(false) {
                    self.hang_report_ended(report);
                }
            }
            // The end of such a job brings SIGCHLD, and so this place again.
            None if (over_everywhere || self.end.is_finish_ordered())
                && spawned_jobs::any_running() => {}
            None if self.end.is_finish_ordered() => self.finish(now + LEFTOVER_GRACE),
            None if over_everywhere => {
                self.ctx.command_all(&AgentCommand::Finish);
                self.finish(now + LEFTOVER_GRACE);
                self.set_code(self.faults.code(self.ranks.count()));
            }
            Some(ShutdownStage::Patience(due)) if due <= now && !over => self.terminate(code),
            Some(ShutdownStage::Patience(_) | ShutdownStage::Kill(_)) if over => self
                .end
                .begin(code, ShutdownStage::Leftovers(now + DRAIN_WAIT)),
            _ => {}
        }
        // A leftover that ends is an orphan of ours, so SIGCHLD brings us here again.
        let close = match self.end.stage() {
            None | Some(ShutdownStage::Patience(_)) => false,
            Some(ShutdownStage::Kill(due)) => due <= now && !self.wait_for_records(now),
            Some(ShutdownStage::Leftovers(due)) => {
                (due <= now || self.snapshots.has_kept() || self.nothing_left())
                    && !self.wait_for_records(now)
            }
        };
        // Other hosts may have much to say still; whether they live is asked elsewhere.
        let close = close
            && self.ctx.links.children().is_none_or(|below| {
                below.is_done() || (self.code() != 0 && below.is_hopeless(now))
            });
        Ok(close.then(|| self.close_output()))
    }

    /// Returns whether what ranks recorded is still read and passed on; those that have not ended
    /// are killed before.
    fn wait_for_records(&mut self, now: Instant) -> bool {
        let Some(until) = self.snapshots.keep(now) else {
            return false;
        };
        if self.is_killing() {
            (0..self.ranks.count()).for_each(|rank| self.ranks.signal_rank(rank, libc::SIGKILL));
        }
        let (code, stage) = (self.code(), ShutdownStage::Leftovers(until));
        self.end.begin(code, stage);
        true
    }

    /// Returns whether nothing more is to come: no rank's output, of other hosts' ranks at the
    /// first agent alone, which alone hears it; and no process, of which the commands that started
    /// agents end with these.
    fn nothing_left(&self) -> bool {
        let ranks = 0..self.ranks.count();
        let mut heard = ranks.filter(|rank| !self.ctx.is_child() || self.ctx.is_here(*rank));
        heard.all(|rank| self.output.has_ended(rank)) && !process_tree::any_alive()
    }

    /// A rank's direct child has ended.
    pub(super) fn rank_ended(&mut self, rank: u32, ended: ProcessExit) {
        self.exit_log.note_end(rank);
        let slot = &mut self.ranks[rank];
        slot.wrapper_deadline = None;
        let Some(index) = slot.member else {
            return self.unregistered_ended(rank, ended);
        };
        self.read_process(index);
        self.ranks.process_finalized(index);
        if self.ranks.process(index).direct {
            self.ranks.process_mut(index).gone = true;
            if !self.ranks.process(index).finalized || ended != ProcessExit::Exit(0) {
                self.mark_gone(rank);
            }
        }
        let member = self.ranks.process(index);
        if member.finalized {
            return self.finalized_ended(rank, ended);
        }
        if member.gone || ended != ProcessExit::Exit(0) {
            // A wrapper may say something else than how its child ended.
            let ended = self.ranks.end_reported_by(index).unwrap_or(ended);
            self.ended_without_finalize(rank, ended);
        }
    }

    fn unregistered_ended(&mut self, rank: u32, ended: ProcessExit) {
        let is_foreign = self.other_mpi.was_of_other_mpi(&self.ranks, rank);
        if is_foreign && ended == ProcessExit::Exit(0) {
            let line = self.other_mpi.failure(&self.ctx, &self.ranks, rank, "ran");
            return self.rank_refused(rank, &line);
        }
        if let Some(line) = self.other_mpi.warning(&self.ranks, rank) {
            self.output.print_line(&mut self.ctx, &line);
        }
        if ended != ProcessExit::Exit(0) {
            let (code, what) = describe(ended);
            let mut line = format!(
                "error[{code}]: rank {rank} ({}, process {}) {what}",
                self.ranks.program_name(self.ctx.job, rank),
                self.ranks[rank].pid
            );
            if is_foreign {
                let other = self
                    .other_mpi
                    .other_mpi_of(&self.ctx, &self.ranks, rank, "ran");
                line += &format!("\nnote[{}]: rank {rank} {other}", codes::G0240);
            }
            self.rank_fails(
                rank,
                JobFailure {
                    code: ended.code(),
                    line,
                    finalized: false,
                    rank: None,
                },
            );
        }
    }

    fn finalized_ended(&mut self, rank: u32, ended: ProcessExit) {
        self.ended_well(rank);
        if ended != ProcessExit::Exit(0) {
            let (code, what) = describe(ended);
            let place = format!(
                "rank {rank} ({}, process {})",
                self.ranks.program_name(self.ctx.job, rank),
                self.ranks[rank].pid
            );
            // Python calls MPI_Finalize on its way out, whatever its program ended by.
            let when = match is_python(&self.ranks.program_name(self.ctx.job, rank)) {
                true => ": its Python program ended by an exception or by sys.exit",
                false => " after MPI_Finalize",
            };
            let crash = match ended {
                ProcessExit::Signal(signal) => {
                    self.crash_examinations
                        .place_of_crash(&self.ranks, rank, signal)
                }
                ProcessExit::Exit(_) => String::new(),
            };
            let line = format!("error[{code}]: {place} {what}{when}{crash}");
            let killed = matches!(ended, ProcessExit::Signal(_));
            if killed && self.faults.survives() && !self.has_cause() {
                // It has done its part.
                return self.output.print_line(&mut self.ctx, &line);
            }
            self.fail(
                rank,
                JobFailure {
                    code: ended.code(),
                    line,
                    finalized: true,
                    rank: None,
                },
            );
        }
    }

    pub(super) fn ended_without_finalize(&mut self, rank: u32, ended: ProcessExit) {
        self.mark_gone(rank);
        let pid = self.ranks.member_pid(rank);
        let place = format!(
            "rank {rank} ({}, process {pid})",
            self.ranks.program_name(self.ctx.job, rank)
        );
        let (code, line) = match ended {
            ProcessExit::Signal(signal) => (
                128 + signal,
                format!(
                    "error[{}]: {place} was killed by {}{}",
                    codes::G0206,
                    signal_name(signal),
                    self.place_of_signal(rank, signal)
                ),
            ),
            // A shell reports the signal that ended its command in this way.
            ProcessExit::Exit(code @ 129..=159) if !self.ranks.is_direct(rank) => (
                code,
                format!(
                    "error[{}]: {place} was killed by {}{}",
                    codes::G0206,
                    signal_name(code - 128),
                    self.place_of_signal(rank, code - 128)
                ),
            ),
            ProcessExit::Exit(status) => (
                if status == 0 { 1 } else { status },
                format!(
                    "error[{}]: {place} ended with exit status {status} before MPI_Finalize",
                    codes::G0201
                ),
            ),
        };
        self.rank_fails(
            rank,
            JobFailure {
                code,
                line,
                finalized: false,
                rank: None,
            },
        );
    }

    /// Returns where in the program a signal ended a rank. If the rank touched memory that is not
    /// there: near which call, for its buffer may be why. The functions around the place, if it
    /// crashed and was examined.
    fn place_of_signal(&mut self, rank: u32, signal: i32) -> String {
        let call = match signal {
            libc::SIGSEGV | libc::SIGBUS => self.ranks.last_call(rank),
            _ => String::new(),
        };
        call + &self
            .crash_examinations
            .place_of_crash(&self.ranks, rank, signal)
    }

    /// The registered process is gone, perhaps before its wrapper: waits a little for the kernel's
    /// or the wrapper's word on how it ended. It is the first failure from now on, whoever fails
    /// meanwhile.
    pub(super) fn unfinalized_member_gone(&mut self, rank: u32, index: u32) {
        if self.ctx.is_adopted {
            return self.suspect_adopted(rank, index);
        }
        if !self.ctx.is_ending && !self.faults.survives() {
            self.end.suspect(rank);
        }
        match self.ranks.end_reported_by(index).or(self.ranks[rank].ended) {
            Some(ended) => self.ended_without_finalize(rank, ended),
            None => {
                self.ranks[rank].wrapper_deadline = Some(Instant::now() + WRAPPER_WAIT);
                self.ranks.await_reaping(&self.ctx.epoll, index);
            }
        }
    }

    /// The kernel says how the registered process ended, before its wrapper has.
    pub(super) fn wrapped_rank_ended(&mut self, rank: u32, ended: ProcessExit) {
        if self.ranks[rank].wrapper_deadline.take().is_some() {
            match self.ctx.is_adopted {
                true => self.fail_adopted(rank, ended),
                false => self.ended_without_finalize(rank, ended),
            }
        }
    }

    /// The wrapper did not say how its child ended.
    pub(super) fn wrapper_outlived_rank(&mut self, rank: u32) {
        self.mark_gone(rank);
        if let Some(ended) = self.adopted_end(rank) {
            return self.ended_without_finalize(rank, ended);
        }
        let place = format!(
            "rank {rank} ({}, process {})",
            self.ranks.program_name(self.ctx.job, rank),
            self.ranks.member_pid(rank)
        );
        let line = format!(
            "error[{}]: {place} ended before MPI_Finalize; {}",
            codes::G0213,
            self.unreported_cause()
        );
        self.rank_fails(
            rank,
            JobFailure {
                code: 1,
                line,
                finalized: false,
                rank: None,
            },
        );
    }

    /// Shows on the board that a rank's process is gone. The key that ends the job has ended it, if
    /// one does: then what it waited for is still to be read.
    fn mark_gone(&self, rank: u32) {
        if !self.hang_reports.is_interrupt() {
            self.ranks.mark_gone(rank);
        }
    }

    /// A rank called MPI_Abort.
    pub(super) fn aborted(&mut self, rank: u32, code: i32, text: &str) {
        let line = match text.trim_end() {
            "" => format!(
                "error[{}]: rank {rank} ({}) called MPI_Abort with code {code}{}",
                codes::G0202,
                self.ranks.program_name(self.ctx.job, rank),
                if code == 0 {
                    "; an aborted job ends with 1"
                } else {
                    ""
                }
            ),
            text => text.to_owned(),
        };
        // An exit status has eight bits. However an abort was meant, what the other ranks were
        // doing is lost: no success.
        let status = match code & 0xff {
            0 => 1,
            status => status,
        };
        self.fail(
            rank,
            JobFailure {
                code: status,
                line,
                finalized: false,
                rank: None,
            },
        );
    }

    /// A rank cannot join the job, or will not although the others wait for it.
    pub(super) fn rank_refused(&mut self, rank: u32, line: &str) {
        if !self.has_cause() {
            self.flight_recorders.forget();
        }
        self.fail(
            rank,
            JobFailure {
                code: 1,
                line: line.to_owned(),
                finalized: false,
                rank: None,
            },
        );
    }

    /// A rank has died: the first failure, or what the job survives.
    fn rank_fails(&mut self, rank: u32, failure: JobFailure) {
        match self.faults.survives() {
            true => self.survive(rank, failure.code, failure.line),
            false => self.fail(rank, failure),
        }
    }

    /// The first failure: its rank's words, one line, and the end of the others.
    fn fail(&mut self, rank: u32, failure: JobFailure) {
        if self.has_cause() || self.end.suspects_other(Some(rank)) {
            return;
        }
        self.output.drain(&mut self.ctx, rank);
        self.output.blame(rank);
        let report = self.ranks[rank]
            .member
            .map(|index| std::mem::take(&mut self.ranks.process_mut(index).report))
            .unwrap_or_default();
        if self.ctx.is_child() {
            let JobFailure {
                code,
                line,
                finalized,
                rank: _,
            } = failure;
            let rank = Some(rank);
            return self.ctx.report(&AgentReport::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            });
        }
        let rank = Some(rank);
        self.find_cause(report, JobFailure { rank, ..failure });
    }

    pub(super) fn print_failure(&mut self, report: &str, failure: &JobFailure) {
        let words = [report.trim_end(), &failure.line];
        let from = usize::from(report.is_empty());
        self.output
            .print_failure_output(&mut self.ctx, &words[from..]);
        if failure.finalized || self.ctx.is_adopted {
            // Its peers are most likely about to finalise, too: they may do so and end by
            // themselves. Or another launcher ends them, in its own way.
            self.end_with_grace(failure.code, Instant::now() + FINALIZED_GRACE);
        } else {
            self.flight_recorders.blame(failure.rank);
            self.terminate(failure.code);
        }
    }

    /// A failure that another host's agent reports. What its rank wrote came before.
    pub(super) fn failed_on_other_host(
        &mut self,
        rank: Option<u32>,
        how: (i32, bool),
        report: &str,
        line: &str,
    ) {
        if self.has_cause() || self.end.suspects_other(rank) {
            return;
        }
        if let Some(rank) = rank.filter(|rank| *rank < self.ranks.count()) {
            self.output.drain(&mut self.ctx, rank);
            self.output.blame(rank);
        }
        let failure = JobFailure {
            code: how.0,
            line: line.to_owned(),
            finalized: how.1,
            rank,
        };
        self.find_cause(report.to_owned(), failure);
    }

    /// A failure that is no rank's: of a host, or of its agent.
    pub(super) fn fail_without_rank(&mut self, code: i32, line: &str) {
        if !self.has_cause() {
            self.print_line(line);
            self.flight_recorders.blame(None);
            self.terminate(code);
        }
    }

    /// Returns whether the job ends already, or its end was asked for: failures do not count any
    /// more.
    pub(super) fn has_cause(&self) -> bool {
        self.ctx.is_ending || self.hang_reports.is_interrupt()
    }

    /// The exit code of the job.
    pub(super) fn code(&self) -> i32 {
        self.end.code()
    }

    /// The first agent says with which code the job ends.
    pub(super) fn set_code(&mut self, code: i32) {
        self.end.set_code(code);
    }

    /// The ranks may end by themselves until then.
    pub(super) fn end_with_grace(&mut self, code: i32, until: Instant) {
        self.end_job(code, ShutdownStage::Patience(until));
    }

    /// All ranks of all hosts have ended; what they left may end by itself until then.
    pub(super) fn finish(&mut self, until: Instant) {
        if !self.ctx.is_ending {
            self.hang_reports.stop();
            let stage = ShutdownStage::Leftovers(until);
            self.end.begin(0, stage);
            self.ctx.is_ending = true;
        }
    }

    /// Everything is to end already.
    pub(super) fn is_killing(&self) -> bool {
        let stage = self.end.stage();
        matches!(stage, Some(ShutdownStage::Kill(_)))
    }

    /// Nobody is left to report to.
    pub(super) fn end_at_once(&mut self) {
        self.end_job(1, ShutdownStage::Kill(Instant::now()));
    }

    /// Asks all ranks to end, and ends them soon.
    pub(super) fn terminate(&mut self, code: i32) {
        self.end_job(code, ShutdownStage::Kill(Instant::now() + self.end.grace()));
        for rank in 0..self.ranks.count() {
            self.ranks.signal_rank(rank, libc::SIGTERM);
        }
    }

    /// Everything still alive is killed then.
    pub(super) fn end_by(&mut self, code: i32, due: Instant) {
        self.end_job(code, ShutdownStage::Kill(due));
    }

    fn end_job(&mut self, code: i32, stage: ShutdownStage) {
        self.hang_reports.stop();
        self.end.begin(code, stage);
        self.ctx.is_ending = true;
        let patient = matches!(stage, ShutdownStage::Patience(_));
        self.ctx.command_all(&AgentCommand::End { patient, code });
        self.crash_examinations.let_crashed_end(&self.ranks);
        self.stop_unused_starters();
        self.ranks.worlds().mark_ending();
    }

    /// Ends the job where its output cannot be written any more: as a program in a shell's pipeline
    /// does whose reader has left, or by a failure, even of a job that has ended well.
    pub(super) fn handle_output_loss(&mut self) {
        let fault = match self.output.take_loss() {
            None => return,
            Some(OutputLoss::Fault(fault)) => fault,
            Some(OutputLoss::ReaderGone) => {
                if !self.ctx.is_ending {
                    self.terminate(128 + libc::SIGPIPE);
                }
                return;
            }
        };
        match (self.ctx.is_ending, self.code()) {
            (false, _) => {
                self.output_lost(fault);
                self.terminate(1);
            }
            (true, 0) => {
                self.set_code(1);
                self.output_lost(fault);
            }
            (true, _) => {}
        }
    }

    fn output_lost(&mut self, fault: rustix::io::Errno) {
        let error = std::io::Error::from(fault);
        let line = format!(
            "error[{}]: cannot write the job's output: {error}",
            codes::G0305
        );
        self.print_line(&line);
    }
}

/// Code and words for the end of a process that owed nobody an MPI_Finalize.
fn describe(ended: ProcessExit) -> (&'static str, String) {
    match ended {
        ProcessExit::Exit(status) => (codes::G0207, format!("ended with exit status {status}")),
        ProcessExit::Signal(signal) => (
            codes::G0206,
            format!("was killed by {}", signal_name(signal)),
        ),
    }
}

/// Returns whether a program is an interpreter of Python, by its name.
pub(super) fn is_python(program: &str) -> bool {
    let name = program.rsplit('/').next().unwrap_or_default();
    name.starts_with("python") || name.starts_with("pypy")
}
