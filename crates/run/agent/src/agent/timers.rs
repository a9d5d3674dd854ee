//! What the agent does without an event: when it is due, and doing it.

use std::time::Instant;

use super::Agent;
use garonne_job::error::Result;
use garonne_job::limits;

impl Agent<'_> {
    /// When something is to be done without an event.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let now = Instant::now();
        let waits_below = !self.ctx.links.is_done_below();
        // What is due may have to wait for those below, who tell when they are done.
        let ending = self.end.stage_due().map(|due| match waits_below {
            true if due <= now => now + limits::CHILDREN_CHECK,
            _ => due,
        });
        let outputs = self.output.due().into_iter();
        outputs
            .chain(self.ranks.iter().filter_map(|slot| slot.wrapper_deadline))
            .chain(ending)
            .chain(self.end.deadline())
            .chain(self.missing_ranks.due().filter(|_| !self.ctx.is_ending))
            .chain(self.other_mpi.due())
            .chain(self.ctx.links.due())
            .chain(self.adopted_due())
            .chain(self.snapshots.due())
            .chain(self.crash_examinations.due())
            .chain(self.hang_reports.due())
            .min()
    }

    pub(super) fn handle_due(&mut self) -> Result<()> {
        let now = Instant::now();
        self.output.output_due(&self.ctx, now);
        let code = self.code();
        self.output.check_failure_output(&mut self.ctx, code, now);
        for rank in 0..self.ranks.count() {
            let slot = &mut self.ranks[rank];
            if slot.wrapper_deadline.is_some_and(|due| due <= now) {
                slot.wrapper_deadline = None;
                self.wrapper_outlived_rank(rank);
            }
        }
        if self.end.take_deadline(now) {
            self.out_of_time();
        }
        if let Some((rank, line)) = self.missing_ranks.check(&self.ctx, &self.ranks, now) {
            self.rank_refused(rank, &line);
        }
        if let Some((rank, line)) = self.other_mpi.check(&self.ctx, &self.ranks, now) {
            self.rank_refused(rank, &line);
        }
        self.check_late_join(now);
        self.check_children(now);
        self.report_pending_failure();
        self.check_parent(now);
        self.check_adopted(now);
        self.snapshots.check_snapshots(&mut self.ctx, now);
        self.crash_examinations.check_examinations(&self.ranks, now);
        if let Some(report) = self.hang_reports.check(now) {
            self.hang_report_ended(report);
        }
        self.hang_reports
            .check_for_stall(&self.ctx, &self.ranks, now);
        Ok(())
    }
}
