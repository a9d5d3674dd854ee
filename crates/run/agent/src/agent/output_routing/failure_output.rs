//! The last words of a job whose ranks wrote tracebacks ([`traceback`](super::super::traceback)):
//! equal ones once, those that only follow from another rank's end in a line, and the failure with
//! the words of its rank behind them.
//!
//! Only the first agent has this, since all output passes there. Where no rank holds a traceback
//! and none is of Python, a failure is told at once.

use std::time::Instant;

use super::super::context::Context;
use super::super::output::StreamKind;
use super::super::shutdown;
use super::super::traceback::{self, TracebackGroup};
use super::Output;
use garonne_job::codes;
use garonne_job::limits::FAILURE_WAIT;
use garonne_job::node_map::named;
use garonne_job::printable;

/// Tracebacks and the failure's own line, held until all that belongs together can be printed.
#[derive(Debug, Default)]
pub(super) struct FailureOutput {
    /// The rank that failed first.
    cause: Option<u32>,
    /// Lines about the failure, until they are printed.
    lines: Vec<String>,
    due: Option<Instant>,
}

impl FailureOutput {
    /// When they are said at the latest.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// This rank has failed, and no other before.
    pub fn blame(&mut self, rank: Option<u32>) {
        self.cause = rank;
    }
}

impl Output {
    /// Says what a failure comes to: at once, or behind what other ranks still write of it.
    pub fn print_failure_output(&mut self, ctx: &mut Context<'_>, lines: &[&str]) {
        let of_python = |program: &garonne_job::job::Program| {
            let name = program.argv.first().map(|word| word.to_string_lossy());
            name.is_some_and(|name| shutdown::is_python(&name))
        };
        let holds = self.streams.iter().any(|slot| slot.err.holds());
        if ctx.is_adopted || !(holds || ctx.job.programs.iter().any(of_python)) {
            return lines.iter().for_each(|line| self.print_line(ctx, line));
        }
        lines.iter().for_each(|line| self.note_line(line));
        self.failure.lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.failure.due = Some(Instant::now() + FAILURE_WAIT);
    }

    /// Tells all tracebacks that are held, and the failure.
    pub fn write_tracebacks(&mut self, ctx: &mut Context<'_>, code: i32) {
        let cause = self.failure.cause;
        let slots = self.streams.iter_mut().zip(0..);
        let held = slots.filter(|(slot, _)| slot.err.holds());
        let held = held
            .map(|(slot, rank)| (rank, slot.err.take_held()))
            .collect();
        // What ranks of a job that ended well wrote is theirs.
        let (consequences, groups) = match code {
            0 => (Vec::new(), traceback::apart(held)),
            _ => traceback::split(traceback::groups(held, cause), cause),
        };
        for (words, ranks) in consequences {
            let words = printable::line(&words);
            self.print_line(
                ctx,
                &format!("note[{}]: {} raised {words}", codes::G0312, named(&ranks)),
            );
        }
        for group in groups {
            self.write_traceback_group(ctx, &group);
        }
        self.failure.due = None;
        for line in std::mem::take(&mut self.failure.lines) {
            self.print_line(ctx, &line);
        }
    }

    fn write_traceback_group(&mut self, ctx: &mut Context<'_>, group: &TracebackGroup) {
        let TracebackGroup {
            text,
            ranks,
            cut,
            numbered,
        } = group;
        let sink = self.sinks.of(StreamKind::Err, ranks[0]);
        self.streams[ranks[0] as usize].err.pass_on(text, sink);
        self.emit(ctx, StreamKind::Err, ranks[0]);
        let same = &ranks[1..];
        let words = match (same.is_empty(), cut.is_empty()) {
            (true, true) => return,
            (false, true) if *numbered => {
                format!("{} wrote the same, with their own numbers", named(same))
            }
            (false, true) => format!("{} wrote the same", named(same)),
            (true, false) => format!("{} had begun to write the same", named(cut)),
            (false, false) => {
                format!(
                    "{} wrote the same, {} had begun to",
                    named(same),
                    named(cut)
                )
            }
        };
        self.print_line(ctx, &format!("note[{}]: {words}", codes::G0312));
    }

    /// Tells what is due: of a job that fails all of it, else what a rank holds back.
    pub fn check_failure_output(&mut self, ctx: &mut Context<'_>, code: i32, now: Instant) {
        let is_over = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        let held = |output: &Self, rank: u32| output.streams[rank as usize].err.held_due();
        let ranks = 0..self.streams.len() as u32;
        if ctx.is_ending {
            if is_over(self.failure.due) || ranks.into_iter().any(|rank| is_over(held(self, rank)))
            {
                self.write_tracebacks(ctx, code);
            }
            return;
        }
        for rank in ranks {
            if !self.paused && is_over(held(self, rank)) {
                let text = self.streams[rank as usize].err.take_held();
                let sink = self.sinks.of(StreamKind::Err, rank);
                self.streams[rank as usize].err.pass_on(&text, sink);
            }
        }
    }

    /// Notes that a rank has failed, and no other before.
    pub fn blame(&mut self, rank: u32) {
        self.failure.blame(Some(rank));
    }
}
