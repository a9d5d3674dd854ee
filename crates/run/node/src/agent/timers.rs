//! What the agent does without an event: when it is due, and doing it.

use std::time::Instant;

use super::Agent;
use super::output::OutputSink;
use super::shutdown::Shutdown;
use crate::error::Result;
use crate::limits;

impl Agent<'_> {
    /// When something is to be done without an event.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let streams = self
            .slots
            .iter()
            .flat_map(|slot| [slot.out.due(), slot.err.due(), slot.err.held_due()])
            .flatten();
        let now = Instant::now();
        let waits_below = self.below.as_ref().is_some_and(|below| !below.is_done());
        // What is due may have to wait for those below, who tell when they are done.
        let ending = self
            .ending
            .as_ref()
            .and_then(Shutdown::due)
            .map(|due| match waits_below {
                true if due <= now => now + limits::BELOW_LOOK,
                _ => due,
            });
        let passes = self.sinks.iter().filter_map(OutputSink::pass_due);
        streams
            .chain(passes)
            .filter(|_| !self.paused)
            .chain(self.slots.iter().filter_map(|slot| slot.dark_until))
            .chain(ending)
            .chain(self.deadline)
            .chain(self.absence_due())
            .chain(self.other_mpi.due())
            .chain(self.below.as_ref().and_then(|below| below.due()))
            .chain(self.up_due())
            .chain(self.adopted_due())
            .chain(self.lookers_due())
            .chain(self.last_words.due())
            .chain((!self.revived.is_empty()).then(Instant::now))
            .min()
    }

    pub(super) fn handle_due(&mut self) -> Result<()> {
        let now = Instant::now();
        self.output_due(now);
        self.last_words_keep_time(now);
        for rank in 0..self.slots.len() {
            let slot = &mut self.slots[rank];
            if slot.dark_until.is_some_and(|due| due <= now) {
                slot.dark_until = None;
                self.left_in_the_dark(rank as u32);
            }
        }
        if self.deadline.is_some_and(|due| due <= now) {
            self.deadline = None;
            self.out_of_time();
        }
        self.look_for_absent(now);
        self.look_for_other_mpi(now);
        self.gate_keeps_time(now);
        self.below_keep_time(now);
        self.let_go();
        self.up_keep_time(now);
        self.adopted_keep_time(now);
        self.lookers_keep_time(now);
        Ok(())
    }
}
