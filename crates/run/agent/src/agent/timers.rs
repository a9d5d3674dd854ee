//! What the agent does without an event: when it is due, and doing it.

use std::time::Instant;

use super::Agent;
use super::output::OutputSink;
use super::shutdown::Shutdown;
use garonne_job::error::Result;
use garonne_job::limits;

impl Agent<'_> {
    /// When something is to be done without an event.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let streams = self
            .slots
            .iter()
            .flat_map(|slot| [slot.out.due(), slot.err.due(), slot.err.held_due()])
            .flatten();
        let now = Instant::now();
        let waits_below = !self.ctx.links.is_done_below();
        // What is due may have to wait for those below, who tell when they are done.
        let ending = self
            .shutdown
            .as_ref()
            .and_then(Shutdown::due)
            .map(|due| match waits_below {
                true if due <= now => now + limits::BELOW_LOOK,
                _ => due,
            });
        let passes = self.sinks.iter().filter_map(OutputSink::pass_due);
        streams
            .chain(passes)
            .filter(|_| !self.output_paused)
            .chain(self.slots.iter().filter_map(|slot| slot.wrapper_deadline))
            .chain(ending)
            .chain(self.deadline)
            .chain(self.absence_due())
            .chain(self.other_mpi.due())
            .chain(self.ctx.links.due())
            .chain(self.unfinished_due())
            .chain(self.adopted_due())
            .chain(self.hang_reports_due())
            .chain(self.failure_output.due())
            .chain((!self.resumed_streams.is_empty()).then(Instant::now))
            .min()
    }

    pub(super) fn handle_due(&mut self) -> Result<()> {
        let now = Instant::now();
        self.output_due(now);
        self.check_failure_output(now);
        for rank in 0..self.slots.len() {
            let slot = &mut self.slots[rank];
            if slot.wrapper_deadline.is_some_and(|due| due <= now) {
                slot.wrapper_deadline = None;
                self.wrapper_outlived_rank(rank as u32);
            }
        }
        if self.deadline.is_some_and(|due| due <= now) {
            self.deadline = None;
            self.out_of_time();
        }
        self.check_missing_ranks(now);
        self.check_for_other_mpi(now);
        self.check_late_join(now);
        self.check_children(now);
        self.report_pending_failure();
        self.check_parent(now);
        self.check_adopted(now);
        self.check_hang_reports(now);
        Ok(())
    }
}
