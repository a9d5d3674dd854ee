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

use super::helper_process::{self, HelperProcess};
use super::{Agent, EpollToken};
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

impl Agent<'_> {
    /// A rank tells that a signal ends it. From now on that is the first failure, whoever fails
    /// meanwhile.
    pub(super) fn rank_crashed(&mut self, rank: u32, member: u32, crash: CrashReport) {
        if self.shutdown.is_some() || self.hang_reports.is_interrupt() {
            return self.let_end(member);
        }
        if self.crash_examinations.examined.is_some() {
            return self.crash_examinations.standing.push(member);
        }
        self.unfinalized_rank.get_or_insert(rank);
        let pid = self.ranks.process(member).pid;
        let program = (pid > 0)
            .then(|| self.start_examining(pid, crash))
            .flatten();
        if program.is_none() {
            self.let_end(member);
        }
        self.crash_examinations.examined = Some(ExaminedRank {
            member,
            signal: crash.signal,
            program,
            said: Vec::new(),
            until: Instant::now() + CRASH_WAIT,
        });
    }

    fn start_examining(&self, pid: i32, crash: CrashReport) -> Option<ExaminerProcess> {
        let words = ["agent", "--crashed", &pid.to_string(), &crash.word()];
        let HelperProcess { pid, pipe } = helper_process::start(&words, self.ctx.signals)?;
        let program = ExaminerProcess { pid, pipe };
        self.ctx
            .listen(program.pipe.as_fd(), EpollToken::CrashExaminer)
            .ok()?;
        Some(program)
    }

    /// The program that examines a rank says something, or has ended.
    pub(super) fn read_examiner(&mut self) {
        let mut buffer = [0; 4096];
        while let Some(examined) = &mut self.crash_examinations.examined {
            let Some(program) = &examined.program else {
                return;
            };
            match rustix::io::read(&program.pipe, &mut buffer) {
                Ok(n) if n > 0 && examined.said.len() + n <= CRASH_TEXT_BYTES_MAX => {
                    examined.said.extend_from_slice(&buffer[..n]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end_examination(),
            }
        }
    }

    /// Enough has been found, or has to be enough: the rank may end.
    fn end_examination(&mut self) {
        if let Some(examined) = &mut self.crash_examinations.examined {
            examined.program = None;
            let member = examined.member;
            self.let_end(member);
        }
    }

    /// Ends the program if it has had its time.
    pub(super) fn check_examinations(&mut self, now: Instant) {
        if self.crash_examinations.due().is_some_and(|due| due <= now) {
            self.end_examination();
        }
    }

    /// The job ends: nobody need stand still any more.
    pub(super) fn let_crashed_end(&mut self) {
        self.end_examination();
        for member in std::mem::take(&mut self.crash_examinations.standing) {
            self.let_end(member);
        }
    }

    fn let_end(&self, member: u32) {
        let Some(rank) = self.ranks.rank_of(member) else {
            return;
        };
        let epoch = self.ranks.process(member).epoch;
        let card = self.ranks.worlds()[epoch].rank_block(rank);
        // SYNC(crash-end): the rank looks before and after it sleeps.
        card.crash().store(MAY_END, Release);
        futex::wake(card.crash(), u32::MAX);
    }

    /// Returns lines that say where in the program the signal came that ended a rank; empty if that
    /// is not known.
    pub(super) fn place_of_crash(&mut self, rank: u32, signal: i32) -> String {
        // What was written before the rank ended counts.
        self.read_examiner();
        let member = self.ranks[rank].member;
        let text = member.and_then(|member| self.crash_examinations.found(member, signal));
        let lines = text.iter().flat_map(|text| text.lines());
        lines
            .map(|line| format!("\n  {}", printable::line(line)))
            .collect()
    }
}
