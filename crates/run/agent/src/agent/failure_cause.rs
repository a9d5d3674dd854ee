//! Which failure is told, where a line to another host is broken: whether that host is gone, and
//! whether it is the cause of what fails elsewhere.
//!
//! A line outlives its connection, since networks fail and come back. But of an agent that is gone
//! the others know by its end alone, and its ranks' peers may say sooner that they have lost them
//! than it is known that nobody makes the line again.

use garonne_job::process_exit::ProcessExit;
use std::time::Instant;

use super::Agent;
use super::shutdown::JobFailure;
use garonne_job::limits::STARTER_BEFORE_LINE;

/// The code by which ssh says that its own connection failed, or that it does not know how the
/// other side ended.
const SSH_LOST: i32 = 255;

/// A failure that is not told yet.
#[derive(Debug)]
pub(super) struct PendingFailure {
    report: String,
    failure: JobFailure,
}

/// Returns whether an agent is gone whose line was reset then: what started it has ended at the
/// same time, and says that it ended by itself. What is on the way to a host may reset connections
/// as well, but hardly has `docker exec` say how the agent ended.
fn is_gone(reset: Instant, (over, how): (Instant, ProcessExit)) -> bool {
    let long_before = reset.saturating_duration_since(over) > STARTER_BEFORE_LINE;
    !long_before && how != ProcessExit::Exit(SSH_LOST)
}

impl Agent<'_> {
    /// Looks whether the line of an agent that this one has started can still be made again.
    pub(super) fn suspect_link(&mut self, node: u32) {
        let below = self.ctx.links.children();
        let line = below.and_then(|below| below.link_to(node));
        let reset = line.and_then(|line| line.reset_since());
        let root = self.root_role.as_ref();
        let starter = root.and_then(|root| root.remote_starts.ended(node));
        if let (Some(reset), Some(starter)) = (reset, starter)
            && is_gone(reset, starter)
        {
            self.ctx.links.lose_child(&self.ctx.epoll, node);
        }
    }

    /// Ends the job by a failure: at once, or when it is known of all hosts whether they are there.
    /// Another launcher than ours, which ends the ranks itself, waits for nobody's words.
    pub(super) fn find_cause(&mut self, report: String, failure: JobFailure) {
        let below = self.ctx.links.children();
        let unsure = !self.ctx.is_adopted && below.is_some_and(|below| below.has_broken_link());
        match unsure {
            false => self.print_failure(&report, &failure),
            true => self.end.hold_failure(PendingFailure { report, failure }),
        }
    }

    /// Tells the failure that was held back once all lines stand; where one is over, its host has
    /// been told of, which ended the job.
    pub(super) fn report_pending_failure(&mut self) {
        let Some(PendingFailure { report, failure }) = self.end.take_failure() else {
            return;
        };
        if !self.ctx.is_ending {
            self.find_cause(report, failure);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_is_reset_as_its_starter_ends_is_gone_unless_that_says_that_it_lost_the_way() {
        let reset = Instant::now() + Duration::from_secs(60);
        let soon = reset - STARTER_BEFORE_LINE / 2;
        let killed = ProcessExit::Signal(libc::SIGKILL);
        for how in [
            killed,
            ProcessExit::Exit(137),
            ProcessExit::Exit(1),
            ProcessExit::Exit(0),
        ] {
            assert!(is_gone(reset, (soon, how)), "{how:?}");
            assert!(
                is_gone(reset, (reset + Duration::from_secs(2), how)),
                "{how:?}"
            );
        }
        assert!(!is_gone(reset, (soon, ProcessExit::Exit(SSH_LOST))));
        // A client that has done its part, or was ended by somebody: the job goes on, and so does
        // the line.
        assert!(!is_gone(reset, (reset - 2 * STARTER_BEFORE_LINE, killed)));
    }
}
