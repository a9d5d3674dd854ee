//! The phases of a leader's wait, as a machine without memory, threads or clocks.
//!
//! Part of `locked_engine`. [`WaitPhases::step`] does what one phase asks for, by [`PhaseActions`],
//! and returns the next phase. `wait_loop` implements the actions for a locked engine; the tests
//! here implement them by a script.
//!
//! | phase | what happens | next phase |
//! |---|---|---|
//! | `CheckEvent` | check the own event, if it may have come | `Done`, `ServeOthers` |
//! | `ServeOthers` | poll predicates; yield the core to a woken thread | `ParkOnBell`, `Poll` |
//! | `ParkOnBell` | park on doorbell and slot at once | `Poll`, `Done`, `Follows` |
//! | `Poll` | make a progress pass | `CheckEvent`, `Idle` |
//! | `Idle` | poll elsewhere, then ask the budget | `CheckEvent` or one of the next four |
//! | `Spin` | pause for some nanoseconds | `CheckEvent` |
//! | `Yield` | yield the core, within the budget | `CheckEvent` |
//! | `YieldOn` | yield the core for longer, as that paid before | `CheckEvent` |
//! | `RunTasks` | publish a long wait; run tasks | `CheckEvent`, `HandOver` |
//! | `HandOver` | leave leadership to a waiter parked on the doorbell | `Follows`, `Park` |
//! | `Park` | arm the doorbell, poll once more, sleep | `Done`, `CheckEvent` |
//! | `Done` | the own event has come, and the waiter leads | |
//! | `Follows` | another waiter leads; the own event may not have come | |
//!
//! A pass that moved something begins the row of passes anew, with its spins, yields and sleeps.
//! What came elsewhere does so too, but keeps the number of sleeps. A sleep in vain begins nothing
//! anew, so that the next pass in vain is followed by sleep at once.

use super::leader_parking::ParkOutcome;
use crate::environment::{SpinBudget, YieldOutcome};
use crate::limits::YIELDS_IN_VAIN;
use std::time::Duration;

/// A phase of a leader's wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Check the own condition.
    CheckEvent,
    /// Look after parked waiters.
    ServeOthers,
    /// Park on the doorbell and in a wait slot.
    ParkOnBell,
    /// Make a progress pass.
    Poll,
    /// Decide how to spend the time until the next pass.
    Idle,
    /// Pause for a moment.
    Spin,
    /// Give the core away.
    Yield,
    /// Give the core away beyond the budget.
    YieldOn,
    /// Run tasks of the process before sleeping.
    RunTasks,
    /// Leave leadership to a waiter that sleeps anyway; if there is none, go on with `Park`.
    HandOver(Option<Duration>),
    /// Sleep on the doorbell; at most for so long, if tasks said so.
    Park(Option<Duration>),
    /// The event has come.
    Done,
    /// Another waiter leads.
    Follows,
}

/// Effects of phases on the world. The methods are named by the phase that calls them.
pub(super) trait PhaseActions {
    /// Checks the leader's condition, if it may have changed. `true`: its event has come.
    fn check_event(&mut self) -> bool;

    /// Looks after other waiters, after so many passes in vain. `true`: the leader is in the way of
    /// one that it woke, and is to park.
    fn serve_others(&mut self, idle: u32) -> bool;

    /// Parks on the doorbell and in a wait slot.
    fn park_on_bell(&mut self) -> ParkOutcome;

    /// Makes a progress pass. `true`: something moved.
    fn poll(&mut self) -> bool;

    /// Polls other shards and lets other waiters of the thread run, after so many passes in vain.
    /// `true`: any of that brought something about.
    fn poll_elsewhere(&mut self, idle: u32) -> bool;

    /// The first pass in vain has ended.
    fn begin_idle(&mut self);

    /// The spins of the budget are over: returns how many more there are.
    fn spin_on(&mut self) -> u32;

    /// Pauses for a moment.
    fn spin(&mut self);

    /// Gives the core away.
    fn yield_core(&mut self) -> YieldOutcome;

    /// Tells whether giving the core away goes on beyond the budget.
    fn yields_on(&mut self) -> bool;

    /// Publishes a wait in which the leader parked so often, and runs tasks.
    fn run_tasks(&mut self, parks: u32) -> TasksOutcome;

    /// Leaves leadership to a waiter that is parked on the doorbell. `false`: there is none.
    fn hand_over(&mut self) -> bool;

    /// Sleeps on the doorbell, for `limit` at most, after so many times before. `true`: the
    /// leader's event has come.
    fn park(&mut self, limit: Option<Duration>, parks: u32) -> bool;
}

/// Result of running tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TasksOutcome {
    /// Tasks ran, which may have taken long.
    Ran,
    /// There is none to run before this time is over, if any is.
    None(Option<Duration>),
}

/// The counters of one wait, by which phases follow each other. A wait owns it, and calls
/// [`WaitPhases::step`] from [`Phase::CheckEvent`] on until [`Phase::Done`] or [`Phase::Follows`].
#[derive(Debug)]
pub(super) struct WaitPhases {
    budget: SpinBudget,
    /// Passes in a row that moved nothing.
    idle: u32,
    /// Spins in this row of passes, with those beyond the budget.
    spins: u32,
    /// Times that others took the core in this row of passes.
    taken: u32,
    /// Sleeps since something moved.
    parks: u32,
}

impl WaitPhases {
    pub(super) fn new(budget: SpinBudget) -> Self {
        Self {
            budget,
            idle: 0,
            spins: budget.spins,
            taken: 0,
            parks: 0,
        }
    }

    /// Does what `phase` asks for, and returns the next phase: see the table above.
    #[inline(always)]
    pub(super) fn step(&mut self, phase: Phase, actions: &mut impl PhaseActions) -> Phase {
        match phase {
            Phase::CheckEvent => match actions.check_event() {
                true => Phase::Done,
                false => Phase::ServeOthers,
            },
            Phase::ServeOthers => match actions.serve_others(self.idle) {
                true => Phase::ParkOnBell,
                false => Phase::Poll,
            },
            Phase::ParkOnBell => match actions.park_on_bell() {
                ParkOutcome::Leads => {
                    self.idle = 0;
                    Phase::Poll
                }
                ParkOutcome::Done => Phase::Done,
                ParkOutcome::Follows => Phase::Follows,
            },
            Phase::Poll => match actions.poll() {
                true => {
                    *self = Self::new(self.budget);
                    Phase::CheckEvent
                }
                false => Phase::Idle,
            },
            Phase::Idle => self.after_idle_pass(actions),
            Phase::Spin => {
                actions.spin();
                Phase::CheckEvent
            }
            Phase::Yield => {
                self.taken += u32::from(actions.yield_core() == YieldOutcome::Taken);
                Phase::CheckEvent
            }
            Phase::YieldOn => {
                actions.yield_core();
                Phase::CheckEvent
            }
            Phase::RunTasks => match actions.run_tasks(self.parks) {
                TasksOutcome::Ran => Phase::CheckEvent,
                TasksOutcome::None(limit) => Phase::HandOver(limit),
            },
            Phase::HandOver(limit) => match actions.hand_over() {
                true => Phase::Follows,
                false => Phase::Park(limit),
            },
            Phase::Park(limit) => match actions.park(limit, self.parks) {
                true => Phase::Done,
                false => {
                    self.parks = self.parks.saturating_add(1);
                    Phase::CheckEvent
                }
            },
            end @ (Phase::Done | Phase::Follows) => end,
        }
    }

    #[inline(always)]
    fn after_idle_pass(&mut self, actions: &mut impl PhaseActions) -> Phase {
        self.idle = self.idle.saturating_add(1);
        if actions.poll_elsewhere(self.idle) {
            self.idle = 0;
            return Phase::CheckEvent;
        }
        if self.idle == 1 {
            actions.begin_idle();
        }
        let SpinBudget { spins, yields, .. } = self.budget;
        if self.idle == spins.saturating_add(1) && spins > 0 {
            self.spins = self.spins.saturating_add(actions.spin_on());
        }
        if self.idle <= self.spins {
            Phase::Spin
        } else if self.taken < yields && self.idle <= self.spins.saturating_add(YIELDS_IN_VAIN) {
            Phase::Yield
        } else if actions.yields_on() {
            Phase::YieldOn
        } else {
            Phase::RunTasks
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Answers by a script; where it says nothing, nothing comes and nobody else wants anything.
    #[derive(Default)]
    struct Script {
        events: VecDeque<bool>,
        is_in_the_way: VecDeque<bool>,
        parks_on_bell: VecDeque<ParkOutcome>,
        moves: VecDeque<bool>,
        elsewhere: VecDeque<bool>,
        yields_on: VecDeque<bool>,
        tasks: VecDeque<TasksOutcome>,
        hand_over: VecDeque<bool>,
        park: VecDeque<bool>,
        more_spins: u32,
        core_taken: bool,
        idle_begun: u32,
        /// Arguments of `park`.
        parked: Vec<(Option<Duration>, u32)>,
    }

    fn next<T>(answers: &mut VecDeque<T>, usual: T) -> T {
        answers.pop_front().unwrap_or(usual)
    }

    impl PhaseActions for Script {
        fn check_event(&mut self) -> bool {
            next(&mut self.events, false)
        }

        fn serve_others(&mut self, _: u32) -> bool {
            next(&mut self.is_in_the_way, false)
        }

        fn park_on_bell(&mut self) -> ParkOutcome {
            next(&mut self.parks_on_bell, ParkOutcome::Leads)
        }

        fn poll(&mut self) -> bool {
            next(&mut self.moves, false)
        }

        fn poll_elsewhere(&mut self, _: u32) -> bool {
            next(&mut self.elsewhere, false)
        }

        fn begin_idle(&mut self) {
            self.idle_begun += 1;
        }

        fn spin_on(&mut self) -> u32 {
            self.more_spins
        }

        fn spin(&mut self) {}

        fn yield_core(&mut self) -> YieldOutcome {
            match self.core_taken {
                true => YieldOutcome::Taken,
                false => YieldOutcome::Unused,
            }
        }

        fn yields_on(&mut self) -> bool {
            next(&mut self.yields_on, false)
        }

        fn run_tasks(&mut self, _: u32) -> TasksOutcome {
            next(&mut self.tasks, TasksOutcome::None(None))
        }

        fn hand_over(&mut self) -> bool {
            next(&mut self.hand_over, false)
        }

        fn park(&mut self, limit: Option<Duration>, parks: u32) -> bool {
            self.parked.push((limit, parks));
            next(&mut self.park, false)
        }
    }

    fn budget(spins: u32, yields: u32) -> SpinBudget {
        SpinBudget {
            spins,
            yields,
            spinners: 1,
        }
    }

    /// The phases of a wait of so many steps at most.
    fn phases(budget: SpinBudget, script: &mut Script, steps: usize) -> Vec<Phase> {
        let (mut machine, mut phase, mut seen) =
            (WaitPhases::new(budget), Phase::CheckEvent, vec![]);
        while seen.len() < steps && !matches!(phase, Phase::Done | Phase::Follows) {
            seen.push(phase);
            phase = machine.step(phase, script);
        }
        seen.push(phase);
        seen
    }

    /// Returns how a leader spends its time between passes: the phases without those of the passes.
    fn between_passes(phases: &[Phase]) -> Vec<Phase> {
        let of_a_pass = [
            Phase::CheckEvent,
            Phase::ServeOthers,
            Phase::Poll,
            Phase::Idle,
        ];
        let others = phases.iter().filter(|phase| !of_a_pass.contains(phase));
        others.copied().collect()
    }

    fn row(parts: &[(Phase, usize)]) -> Vec<Phase> {
        let parts = parts.iter();
        parts
            .flat_map(|(phase, times)| std::iter::repeat_n(*phase, *times))
            .collect()
    }

    const SLEEP: [(Phase, usize); 3] = [
        (Phase::RunTasks, 1),
        (Phase::HandOver(None), 1),
        (Phase::Park(None), 1),
    ];

    #[test]
    fn an_event_that_has_come_ends_the_wait_before_a_pass() {
        let mut script = Script {
            events: [true].into(),
            ..Script::default()
        };
        let seen = phases(budget(10, 10), &mut script, 10);
        assert_eq!(seen, [Phase::CheckEvent, Phase::Done]);
    }

    #[test]
    fn a_pass_in_vain_is_followed_by_every_phase_of_one_row() {
        let mut script = Script::default();
        let seen = phases(budget(1, 0), &mut script, 5);
        use Phase::{CheckEvent, Idle, Poll, ServeOthers, Spin};
        assert_eq!(
            seen,
            [CheckEvent, ServeOthers, Poll, Idle, Spin, CheckEvent]
        );
    }

    #[test]
    fn a_leader_spins_then_yields_then_sleeps_and_after_a_sleep_in_vain_sleeps_at_once() {
        let mut script = Script {
            more_spins: 3,
            ..Script::default()
        };
        let seen = between_passes(&phases(budget(2, 5), &mut script, 400));
        let yields = (Phase::Yield, YIELDS_IN_VAIN as usize);
        let expected = row(&[&[(Phase::Spin, 5), yields], &SLEEP[..], &SLEEP[..]].concat());
        assert_eq!(seen[..expected.len()], expected);
        assert_eq!(script.idle_begun, 1);
        assert_eq!(script.parked[..3], [(None, 0), (None, 1), (None, 2)]);
    }

    #[test]
    fn a_core_that_others_take_is_given_away_as_often_as_the_budget_says() {
        let mut script = Script {
            core_taken: true,
            yields_on: [true, true].into(),
            ..Script::default()
        };
        let seen = between_passes(&phases(budget(0, 4), &mut script, 60));
        let expected = row(&[&[(Phase::Yield, 4), (Phase::YieldOn, 2)], &SLEEP[..]].concat());
        assert_eq!(seen[..expected.len()], expected);
    }

    #[test]
    fn what_moves_begins_the_row_anew_and_what_comes_elsewhere_keeps_the_sleeps() {
        let mut script = Script {
            // The wait of a pass, a sleep, a pass that moves something.
            moves: [false, true].into(),
            ..Script::default()
        };
        phases(budget(0, 0), &mut script, 40);
        assert_eq!(script.parked[..2], [(None, 0), (None, 0)]);
        let mut script = Script {
            elsewhere: [false, true].into(),
            ..Script::default()
        };
        phases(budget(0, 0), &mut script, 40);
        assert_eq!(script.parked[..2], [(None, 0), (None, 1)]);
        assert_eq!(script.idle_begun, 2, "the row of passes begins anew");
    }

    #[test]
    fn a_leader_that_is_in_the_way_parks_on_the_doorbell() {
        for (outcome, then) in [
            (ParkOutcome::Leads, Phase::Poll),
            (ParkOutcome::Done, Phase::Done),
            (ParkOutcome::Follows, Phase::Follows),
        ] {
            let mut script = Script {
                is_in_the_way: [true].into(),
                parks_on_bell: [outcome].into(),
                ..Script::default()
            };
            let seen = phases(budget(0, 0), &mut script, 3);
            use Phase::{CheckEvent, ParkOnBell, ServeOthers};
            assert_eq!(seen, [CheckEvent, ServeOthers, ParkOnBell, then]);
        }
    }

    #[test]
    fn before_it_sleeps_a_leader_runs_tasks_and_leaves_leadership_to_who_sleeps() {
        let limit = Some(Duration::from_millis(3));
        let mut script = Script {
            tasks: [TasksOutcome::Ran, TasksOutcome::None(limit)].into(),
            park: [true].into(),
            ..Script::default()
        };
        let seen = between_passes(&phases(budget(0, 0), &mut script, 40));
        let expected = [
            Phase::RunTasks,
            Phase::RunTasks,
            Phase::HandOver(limit),
            Phase::Park(limit),
            Phase::Done,
        ];
        assert_eq!(seen, expected);
        let mut script = Script {
            hand_over: [true].into(),
            ..Script::default()
        };
        let seen = between_passes(&phases(budget(0, 0), &mut script, 40));
        assert_eq!(
            seen,
            [Phase::RunTasks, Phase::HandOver(None), Phase::Follows]
        );
        assert_eq!(script.parked, []);
    }
}
