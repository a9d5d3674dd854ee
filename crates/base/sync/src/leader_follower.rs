//! Leader/followers: of several threads one leads, and one standby takes over while the leader is
//! within a *run* that may take long.
//!
//! The leader declares when a run begins and ends. Meanwhile the standby may take the lead. The
//! former leader then finds at the end of its run that it no longer leads, so exactly one thread
//! does. There is at most one standby. The leader starts one when there is none. A standby that
//! leaves for want of work cannot be missed by a leader that begins a run: SYNC(lead-run). Nothing
//! here sleeps or wakes.

use crate::facade::{AtomicU32, Ordering, total_order};

/// A leader's turn, by number: odd within a run. 32 bits of it come around after as many runs as
/// none outlasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderTurn(u32);

impl LeaderTurn {
    fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    fn is_run(self) -> bool {
        self.0 % 2 == 1
    }
}

/// The turn of the leader, and whether there is a standby. The event threads own it. The leader
/// calls `begin_run` and `end_run` around each run; the standby calls `take_lead` when a run takes
/// long.
#[derive(Debug)]
pub struct LeaderFollower {
    /// The turn of whoever leads. Written by the leader between runs, and exchanged by leader and
    /// standby within one.
    turn: AtomicU32,
    /// 1: there is a standby, or one is on its way.
    standby: AtomicU32,
}

impl LeaderFollower {
    /// With a leader, whose first turn this is, and no standby.
    pub fn new() -> (Self, LeaderTurn) {
        let lead = Self {
            turn: AtomicU32::new(0),
            standby: AtomicU32::new(0),
        };
        (lead, LeaderTurn(0))
    }

    /// The turn at this moment.
    pub fn turn(&self) -> LeaderTurn {
        LeaderTurn(self.turn.load(Ordering::SeqCst))
    }

    /// The leader begins a run. Afterwards it makes sure of a standby.
    pub fn begin_run(&self, turn: LeaderTurn) -> LeaderTurn {
        debug_assert!(!turn.is_run());
        let run = turn.next();
        // Release: what the leader did is the standby's to go on with. SYNC(lead-turn). A swap, in
        // the one order of all with `leave_standby`: SYNC(lead-run).
        self.turn.swap(run.0, Ordering::SeqCst);
        total_order();
        run
    }

    /// The run is over. `None`: another leads meanwhile.
    pub fn end_run(&self, run: LeaderTurn) -> Option<LeaderTurn> {
        self.exchange(run)
    }

    /// The standby takes the lead if the leader is within a run. Release and Acquire:
    /// SYNC(lead-turn).
    pub fn take_lead(&self) -> Option<LeaderTurn> {
        let run = self.turn();
        let turn = run.is_run().then(|| self.exchange(run)).flatten();
        if turn.is_some() {
            self.standby.store(0, Ordering::SeqCst);
        }
        turn
    }

    fn exchange(&self, run: LeaderTurn) -> Option<LeaderTurn> {
        let next = run.next();
        let exchanged =
            self.turn
                .compare_exchange(run.0, next.0, Ordering::SeqCst, Ordering::Relaxed);
        exchanged.is_ok().then_some(next)
    }

    /// Returns whether there is a standby.
    pub fn has_standby(&self) -> bool {
        self.standby.load(Ordering::SeqCst) == 1
    }

    /// The caller stands in from now on, or has somebody do it. `false`: somebody does already.
    pub fn reserve_standby(&self) -> bool {
        self.standby.swap(1, Ordering::SeqCst) == 0
    }

    /// There is none after all.
    pub fn cancel_standby(&self) {
        self.standby.store(0, Ordering::SeqCst);
    }

    /// The standby goes, unless it is needed: a run goes on, and no other was hired yet. `false`:
    /// it stays.
    pub fn leave_standby(&self) -> bool {
        self.standby.swap(0, Ordering::SeqCst);
        total_order();
        // Either a leader that begins a run sees that there is none, or its run is seen here.
        // SYNC(lead-run).
        !(self.turn().is_run() && self.reserve_standby())
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::facade::Cell;
    use loom::sync::Arc;

    /// State that only the leader touches, between runs.
    struct Duty {
        lead: LeaderFollower,
        mine: Cell<()>,
    }

    impl Duty {
        fn new() -> (Arc<Self>, LeaderTurn) {
            let (lead, turn) = LeaderFollower::new();
            let mine = Cell::new(());
            (Arc::new(Self { lead, mine }), turn)
        }

        fn leads(&self) {
            // One thread at a time, which loom checks here.
            self.mine.with_mut(|_| ());
        }
    }

    #[test]
    fn of_leader_and_stand_in_one_leads_and_sees_what_the_other_did() {
        loom::model(|| {
            let (duty, turn) = Duty::new();
            assert!(duty.lead.reserve_standby());
            let its = duty.clone();
            let stand_in = loom::thread::spawn(move || {
                let takes = its.lead.take_lead();
                if takes.is_some() {
                    its.leads();
                }
                takes.is_some()
            });
            let mut turn = Some(turn);
            for _ in 0..2 {
                let Some(leads) = turn else { break };
                duty.leads();
                let run = duty.lead.begin_run(leads);
                turn = duty.lead.end_run(run);
            }
            if turn.is_some() {
                duty.leads();
            }
            assert_ne!(stand_in.join().unwrap(), turn.is_some());
        });
    }

    #[test]
    fn a_run_has_a_stand_in_while_it_goes_on_and_never_two() {
        loom::model(|| {
            let (duty, turn) = Duty::new();
            assert!(duty.lead.reserve_standby());
            let its = duty.clone();
            let stand_in = loom::thread::spawn(move || u32::from(!its.lead.leave_standby()));
            duty.lead.begin_run(turn);
            let hired = u32::from(!duty.lead.has_standby() && duty.lead.reserve_standby());
            let stayed = stand_in.join().unwrap();
            assert_eq!(hired + stayed, 1);
            assert!(duty.lead.has_standby());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_lead_is_only_taken_within_a_run_and_once() {
        let (lead, first) = LeaderFollower::new();
        assert!(lead.reserve_standby() && !lead.reserve_standby());
        assert_eq!(lead.take_lead(), None);
        let run = lead.begin_run(first);
        let next = lead.take_lead().unwrap();
        assert_eq!((lead.take_lead(), lead.end_run(run)), (None, None));
        assert!(!lead.has_standby());
        let run = lead.begin_run(next);
        assert_eq!(lead.end_run(run), Some(lead.turn()));
    }

    #[test]
    fn a_stand_in_goes_between_runs_and_stays_within_one() {
        let (lead, first) = LeaderFollower::new();
        assert!(lead.reserve_standby());
        let run = lead.begin_run(first);
        assert!(!lead.leave_standby() && lead.has_standby());
        lead.end_run(run);
        assert!(lead.leave_standby() && !lead.has_standby());
    }
}
