//! Ranks that a signal ends and that stand still until they have been examined (`garonne-rank`
//! reports them).
//!
//! The agent has its own program examine the first one (`garonne agent --crashed`), which
//! writes a line for each function; it goes on meanwhile. The rank ends when the program has ended,
//! at the latest after [`CRASH_WAIT`], and what was written is told with its end. Others that crash
//! meanwhile stand until the job ends by the first, and are not examined.

use garonne_job::crash_report::CrashReport;
use garonne_job::crash_report::MAY_END;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::Release;
use std::time::Instant;

use garonne_sync::futex;

use super::EpollToken;
use super::context::Context;
use super::helper_process::{self, HelperProcess};
use super::ranks::Ranks;
use garonne_job::limits::{CRASH_TEXT_BYTES_MAX, CRASH_WAIT};
use garonne_job::printable;
use garonne_links::sys;

/// A rank that is or was examined.
#[derive(Debug)]
struct ExaminedRank {
    member: u32,
    signal: i32,
    /// The program that examines it; `None` once it has ended.
    program: Option<ExaminerProcess>,
    said: Vec<u8>,
    until: Instant,
}

#[derive(Debug)]
struct ExaminerProcess {
    /// 0 when it was reaped.
    pid: i32,
    pipe: OwnedFd,
}

impl Drop for ExaminerProcess {
    fn drop(&mut self) {
        if self.pid != 0 {
            sys::kill(self.pid, libc::SIGKILL);
        }
    }
}

/// The examination of ranks that a signal ends: one at a time, by a program of the agent's own.
///
/// Owned by the agent. [`examine`](Self::examine) begins, what the program writes is read as the
/// epoll tells, and [`check_examinations`](Self::check_examinations) is called when
/// [`due`](Self::due) says so. [`let_crashed_end`](Self::let_crashed_end) comes with the job's end.
#[derive(Debug, Default)]
pub(super) struct CrashExaminations {
    examined: Option<ExaminedRank>,
    /// Members that stand still beside it.
    standing: Vec<u32>,
}

impl CrashExaminations {
    fn program(&mut self) -> Option<&mut ExaminerProcess> {
        self.examined.as_mut()?.program.as_mut()
    }

    /// Returns whether a process is or was examined.
    pub fn is_examining(&self) -> bool {
        self.examined.is_some()
    }

    /// When the program has had enough time.
    pub fn due(&self) -> Option<Instant> {
        let examined = self.examined.as_ref()?;
        examined.program.as_ref().map(|_| examined.until)
    }

    /// A child of the agent has ended, and its process id may be another's soon.
    pub fn reaped(&mut self, pid: i32) {
        if let Some(program) = self.program().filter(|program| program.pid == pid) {
            program.pid = 0;
        }
    }

    /// Returns the lines that the examination of a process found, if this signal ended it.
    fn found(&self, member: u32, signal: i32) -> Option<String> {
        let known =
            |examined: &&ExaminedRank| (examined.member, examined.signal) == (member, signal);
        let said = &self.examined.as_ref().filter(known)?.said;
        let end = said.iter().rposition(|byte| *byte == b'\n')?;
        Some(String::from_utf8_lossy(&said[..end]).into_owned())
    }
}

impl CrashExaminations {
    /// Has a registered process examined that a signal ends, unless another one is or was.
    pub fn examine(&mut self, ctx: &Context<'_>, ranks: &Ranks, member: u32, crash: CrashReport) {
        if self.examined.is_some() {
            return self.standing.push(member);
        }
        let pid = ranks.process(member).pid;
        let program = (pid > 0)
            .then(|| self.start_examining(ctx, pid, crash))
            .flatten();
        if program.is_none() {
            self.let_end(ranks, member);
        }
        self.examined = Some(ExaminedRank {
            member,
            signal: crash.signal,
            program,
            said: Vec::new(),
            until: Instant::now() + CRASH_WAIT,
        });
    }

    fn start_examining(
        &self,
        ctx: &Context<'_>,
        pid: i32,
        crash: CrashReport,
    ) -> Option<ExaminerProcess> {
        let words = ["agent", "--crashed", &pid.to_string(), &crash.word()];
        let HelperProcess { pid, pipe } = helper_process::start(&words, ctx.signals)?;
        let program = ExaminerProcess { pid, pipe };
        ctx.listen(program.pipe.as_fd(), EpollToken::CrashExaminer)
            .ok()?;
        Some(program)
    }

    /// The program that examines a rank says something, or has ended.
    pub fn read_examiner(&mut self, ranks: &Ranks) {
        let mut buffer = [0; 4096];
        while let Some(examined) = &mut self.examined {
            let Some(program) = &examined.program else {
                return;
            };
            match rustix::io::read(&program.pipe, &mut buffer) {
                Ok(n) if n > 0 && examined.said.len() + n <= CRASH_TEXT_BYTES_MAX => {
                    examined.said.extend_from_slice(&buffer[..n]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end_examination(ranks),
            }
        }
    }

    /// Enough has been found, or has to be enough: the rank may end.
    fn end_examination(&mut self, ranks: &Ranks) {
        if let Some(examined) = &mut self.examined {
            examined.program = None;
            let member = examined.member;
            self.let_end(ranks, member);
        }
    }

    /// Ends the program if it has had its time.
    pub fn check_examinations(&mut self, ranks: &Ranks, now: Instant) {
        if self.due().is_some_and(|due| due <= now) {
            self.end_examination(ranks);
        }
    }

    /// The job ends: nobody need stand still any more.
    pub fn let_crashed_end(&mut self, ranks: &Ranks) {
        self.end_examination(ranks);
        for member in std::mem::take(&mut self.standing) {
            self.let_end(ranks, member);
        }
    }

    pub fn let_end(&self, ranks: &Ranks, member: u32) {
        let Some(rank) = ranks.rank_of(member) else {
            return;
        };
        let epoch = ranks.process(member).epoch;
        let card = ranks.worlds()[epoch].rank_block(rank);
        // SYNC(crash-end): the rank looks before and after it sleeps.
        card.crash().store(MAY_END, Release);
        futex::wake(card.crash(), u32::MAX);
    }

    /// Returns lines that say where in the program the signal came that ended a rank; empty if that
    /// is not known.
    pub fn place_of_crash(&mut self, ranks: &Ranks, rank: u32, signal: i32) -> String {
        // What was written before the rank ended counts.
        self.read_examiner(ranks);
        let member = ranks[rank].member;
        let text = member.and_then(|member| self.found(member, signal));
        let lines = text.iter().flat_map(|text| text.lines());
        lines
            .map(|line| format!("\n  {}", printable::line(line)))
            .collect()
    }
}
