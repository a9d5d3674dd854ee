//! Steppers: what progress advances step by step, from when it is attached until it is over.
//!
//! Part of `locked_engine`. One thread at a time runs the steppers, and events that reach another
//! thread meanwhile are not lost. Attaching does not wait for a stepper that runs. The context of a
//! run says as which rank steppers send and receive, and hears what came of the run.

use super::{ProgressCaller, lock};
use crate::limits::{ENDED_KNOWN, OPEN_FEW};
use crate::messaging::{Messaging, Stepper, WaitKey};
use garonne_sync::single_flight::SingleFlight;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Parts of the rank that a run of steppers needs.
pub(super) trait StepContext {
    /// Calls `f` with the rank as its steppers know it.
    fn with_rank(&self, f: impl FnOnce(&dyn Messaging));

    /// Notes what came of a run, and wakes those who wait for it.
    fn note_run(&self, run: &StepperRun);
}

/// The steppers of one engine. The locked engine owns them. Order of calls for each stepper:
/// [`Steppers::attach`]; then any of the methods that run steppers, until its step says that it is
/// over.
pub(super) struct Steppers {
    running: SingleFlight<Vec<Arc<dyn Stepper>>>,
    /// Attached and not yet among `running`: attaching must not wait for a stepper that runs.
    attached: Mutex<VecDeque<Arc<dyn Stepper>>>,
    /// Attached and not yet over, wherever they are.
    open: AtomicU32,
    /// Open steppers that poll memory which others write.
    polling_memory: AtomicU32,
    /// Open steppers that may have messages.
    with_messages: AtomicU32,
    /// Open steppers that stand for what peers may ask.
    serving: AtomicU32,
    /// The engine's completions when the steppers last ran.
    stepped_completions: AtomicU64,
}

impl Steppers {
    pub(super) fn new() -> Self {
        Self {
            running: SingleFlight::default(),
            attached: Mutex::default(),
            open: AtomicU32::new(0),
            polling_memory: AtomicU32::new(0),
            with_messages: AtomicU32::new(0),
            serving: AtomicU32::new(0),
            stepped_completions: AtomicU64::new(0),
        }
    }

    /// Returns how many are attached and not over.
    #[inline]
    pub(super) fn open(&self) -> u32 {
        self.open.load(Ordering::SeqCst)
    }

    /// Tells whether any is open, as a hint.
    #[inline]
    pub(super) fn is_any_open_hint(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Tells whether an open stepper may have messages, which come in whatever shard they are of.
    #[inline]
    pub(super) fn have_messages(&self) -> bool {
        self.with_messages.load(Ordering::SeqCst) > 0
    }

    /// Tells whether peers may ask something of this rank at any time.
    #[inline]
    pub(super) fn serve_peers(&self) -> bool {
        self.serving.load(Ordering::SeqCst) > 0
    }

    /// Counts a stepper as open, before anybody can finish it; `enqueue` follows.
    pub(super) fn count(&self, stepper: &dyn Stepper) {
        self.polling_memory
            .fetch_add(u32::from(stepper.polls_memory()), Ordering::SeqCst);
        self.with_messages
            .fetch_add(u32::from(stepper.has_messages()), Ordering::SeqCst);
        self.serving
            .fetch_add(u32::from(stepper.serves_peers()), Ordering::SeqCst);
        self.open.fetch_add(1, Ordering::SeqCst);
    }

    /// Attaches a stepper that was counted. `step_new` takes its first step.
    pub(super) fn enqueue(&self, stepper: Arc<dyn Stepper>) {
        lock(&self.attached).push_back(stepper);
    }

    /// Has the next call of `step` run the steppers, whatever completed since they last ran.
    pub(super) fn make_due(&self) {
        self.stepped_completions.store(u64::MAX, Ordering::Release);
    }

    /// Runs the steppers if something happened since they last ran, or if one looks at memory.
    /// `true` if any finished or something happened meanwhile.
    #[inline]
    pub(super) fn step(
        &self,
        completions: u64,
        by: ProgressCaller,
        context: &impl StepContext,
    ) -> bool {
        self.open() != 0 && self.step_open(completions, by, context)
    }

    fn step_open(&self, completions: u64, by: ProgressCaller, context: &impl StepContext) -> bool {
        let old = self.stepped_completions.swap(completions, Ordering::AcqRel) == completions;
        if old && self.polling_memory.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.run(by, context)
    }

    /// Runs the steppers on behalf of a caller that left another one open. Among many they are run
    /// a few times only while their number grows; else starting them all would cost the square of
    /// it. `false`: they are yet to be run.
    pub(super) fn step_unless_many(&self, completions: u64, context: &impl StepContext) -> bool {
        let open = self.open() as usize;
        if open < OPEN_FEW || open.is_power_of_two() {
            self.step(completions, ProgressCaller::Program, context);
            return true;
        }
        self.polling_memory.load(Ordering::SeqCst) == 0
            && self.stepped_completions.load(Ordering::Acquire) == completions
    }

    /// Runs the steppers; whoever finds another thread at it leaves them to that one, which then
    /// runs them once more. `true` if any finished.
    pub(super) fn run(&self, by: ProgressCaller, context: &impl StepContext) -> bool {
        let mut finished = false;
        self.running.attend(|steppers| {
            let mut run = StepperRun::default();
            context.with_rank(|rank| {
                steppers.retain(|stepper| self.goes_on(stepper, (rank, by), &mut run));
                self.step_attached(steppers, (rank, by), &mut run);
            });
            finished |= self.account(&run, context);
        });
        finished
    }

    /// Steps those that were just attached, and nobody else: what these wait for has not changed by
    /// that, and what a first step brings about for others is counted among the completions, by
    /// which the next look tells them. Whoever finds another thread at it leaves all to that one.
    pub(super) fn step_new(&self, by: ProgressCaller, context: &impl StepContext) {
        let Some(mut steppers) = self.running.begin() else {
            return;
        };
        let mut run = StepperRun::default();
        context.with_rank(|rank| self.step_attached(steppers.value(), (rank, by), &mut run));
        self.account(&run, context);
        // Events that came to another thread meanwhile are for all.
        if steppers.end() {
            self.run(by, context);
        }
    }

    /// Takes in those that were attached, and those that come while they are stepped.
    fn step_attached(
        &self,
        steppers: &mut Vec<Arc<dyn Stepper>>,
        by: (&dyn Messaging, ProgressCaller),
        run: &mut StepperRun,
    ) {
        // Not kept locked: a step may attach.
        let next = || lock(&self.attached).pop_front();
        while let Some(stepper) = next() {
            if self.goes_on(&stepper, by, run) {
                steppers.push(stepper);
            }
        }
    }

    /// Steps one, if whoever runs it may. `false`: it is over.
    fn goes_on(
        &self,
        stepper: &Arc<dyn Stepper>,
        (rank, by): (&dyn Messaging, ProgressCaller),
        run: &mut StepperRun,
    ) -> bool {
        if by == ProgressCaller::Helper && stepper.runs_user_code() {
            run.left = true;
            return true;
        }
        let over = stepper.step(rank);
        if over {
            run.end(stepper);
            if stepper.polls_memory() {
                self.polling_memory.fetch_sub(1, Ordering::SeqCst);
            }
            if stepper.has_messages() {
                self.with_messages.fetch_sub(1, Ordering::SeqCst);
            }
            if stepper.serves_peers() {
                self.serving.fetch_sub(1, Ordering::SeqCst);
            }
        }
        !over
    }

    /// Counts what came of a run, and tells the rank. `true`: some are over.
    fn account(&self, run: &StepperRun, context: &impl StepContext) -> bool {
        self.open.fetch_sub(run.finished, Ordering::SeqCst);
        if run.left {
            // The events are still to be told to those, by a thread of the program.
            self.make_due();
        }
        context.note_run(run);
        run.finished > 0
    }
}

/// Result of stepping.
#[derive(Default)]
pub(super) struct StepperRun {
    /// Steppers that are over.
    finished: u32,
    /// The first of them.
    ended: [Option<Arc<dyn Stepper>>; ENDED_KNOWN],
    /// Some were left to a thread of the program.
    left: bool,
}

impl StepperRun {
    /// Returns how many steppers are over.
    pub(super) fn finished(&self) -> u32 {
        self.finished
    }

    /// Tells whether anybody waits for what came of the run.
    pub(super) fn is_news(&self) -> bool {
        self.finished > 0 || self.left
    }

    fn end(&mut self, stepper: &Arc<dyn Stepper>) {
        if let Some(place) = self.ended.get_mut(self.finished as usize) {
            *place = Some(stepper.clone());
        }
        self.finished += 1;
    }

    /// Tells whether a waiter with this key is to ask again, or to step what was left.
    pub(super) fn is_news_for(&self, awaited: WaitKey) -> bool {
        let all = self.left || self.finished as usize > ENDED_KNOWN;
        let mut ended = self.ended.iter().flatten();
        match awaited {
            WaitKey::Stepper(_) => {
                all || ended.any(|stepper| WaitKey::stepper_end(stepper) == awaited)
            }
            WaitKey::AnyOf(current_waiter) => {
                let is_its = |stepper: &Arc<dyn Stepper>| {
                    stepper
                        .current_waiter()
                        .is_some_and(|noted| noted.is_registered_by(current_waiter))
                };
                all || ended.any(is_its)
            }
            _ => false,
        }
    }
}
