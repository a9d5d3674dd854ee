//! What threads of a rank wait for that its engine does not know: collectives through shared
//! memory, probes, constructors.
//!
//! The locked engine owns the list. A thread notes what it is about to wait for, and removes the
//! note afterwards. Bounded by the threads that wait.

use garonne_engine::observe::events::{ExternalWait, PendingReport};
use garonne_sync::waiter::{self, WaiterId};

/// Notes of waits that the engine does not know, by waiter.
#[derive(Debug, Default)]
pub(super) struct ExternalWaits(Vec<(WaiterId, ExternalWait)>);

impl ExternalWaits {
    /// The calling waiter waits for this now, or for nothing.
    pub fn set(&mut self, meeting: Option<ExternalWait>) {
        let who = waiter::current_id();
        self.0.retain(|(other, _)| *other != who);
        self.0.extend(meeting.map(|meeting| (who, meeting)));
    }

    /// Adds them to what the engine knows.
    pub fn tell(&self, waiting: &mut PendingReport) {
        for (_, meeting) in &self.0 {
            waiting.external_wait.get_or_insert(*meeting);
            waiting.add(meeting.shown());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_engine::api::CallOrigin;
    use garonne_engine::observe::events::AwaitedRanks;

    #[test]
    fn a_thread_that_goes_on_leaves_what_another_waits_for() {
        let meeting = |tag| ExternalWait {
            awaited: AwaitedRanks::Members,
            context: 9,
            tag,
            origin: CallOrigin::default(),
        };
        let mut meetings = ExternalWaits::default();
        meetings.set(Some(meeting(1)));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                meetings.set(Some(meeting(2)));
                meetings.set(None);
                meetings.set(Some(meeting(3)));
                meetings.set(None);
            });
        });
        let mut waiting = PendingReport::default();
        meetings.tell(&mut waiting);
        assert_eq!(waiting.external_wait, Some(meeting(1)));
        assert_eq!(waiting.listed(), [meeting(1).shown()]);
    }
}
