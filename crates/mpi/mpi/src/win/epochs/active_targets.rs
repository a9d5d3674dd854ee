//! Epochs of windows that targets take part in: post and start, complete and wait.
//!
//! Origins count posts and targets completions, in control blocks of their own that the others
//! write. Counts go on from epoch to epoch.

use super::{Assert, Window};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use garonne_engine::one_sided::AtomicType;
use garonne_sync::mutex::lock;
use garonne_sync::window_control::WindowControl;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Window {
    /// Ranks in the window of the members of a group.
    fn ranks_of(&self, group: &Group) -> Result<Vec<u32>> {
        let rank = |peer| {
            self.group().rank_of(peer).ok_or_else(|| {
                let text = format!("has no process {peer}, which is in the group");
                self.error(Class::Group, text)
            })
        };
        group.members().map(rank).collect()
    }

    /// `MPI_Win_post`.
    ///
    /// # Errors
    /// `Assert`, `RmaSync`, `Group`.
    pub fn post(&self, group: &Group, assert: Assert) -> Result<()> {
        self.check_assert(assert, Assert::POST)?;
        let origins = self.ranks_of(group)?;
        {
            let mut epochs = lock(&self.0.epochs);
            if epochs.exposed.is_some() {
                return Err(self.wrong_epoch("is exposed already: MPI_Win_wait has to come first"));
            }
            epochs.exposed = Some(origins.as_slice().into());
        }
        let me = self.rank();
        for origin in origins {
            // Release: what this process stored in its memory. SYNC(window-post).
            let post = |control: &WindowControl| {
                control.posted(me).fetch_add(1, Ordering::Release);
            };
            let word = (WindowControl::posted_offset(me), AtomicType::U32);
            match self.count_up(origin, post, word) {
                // The end of the epoch says so.
                Err(error) if error.class != Class::ProcFailed => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// `MPI_Win_start`.
    ///
    /// # Errors
    /// `Assert`, `RmaSync`, `Group`; `ProcFailed` where a target that has not posted is dead. No
    /// epoch is open then, here or at the other targets.
    pub fn start(&self, group: &Group, assert: Assert) -> Result<()> {
        self.check_assert(assert, Assert::NOCHECK)?;
        let targets = self.ranks_of(group)?;
        let awaited: Vec<(u32, u32)> = {
            let mut epochs = lock(&self.0.epochs);
            if let Some(open) = epochs.open_epoch().filter(|_| {
                epochs.all.is_some() || !epochs.locks.is_empty() || epochs.started.is_some()
            }) {
                let text = format!("cannot be used for MPI_Win_start: {open}");
                return Err(self.wrong_epoch(text));
            }
            epochs.set_fenced(false, &self.0.open_to_all);
            epochs.started = Some(targets.clone());
            let used = &mut epochs.used_posts;
            let count = |target: &u32| {
                let posts = used.entry(*target).or_default();
                *posts = posts.wrapping_add(1);
                (*target, *posts)
            };
            targets.iter().map(count).collect()
        };
        let control = self.own_control();
        for (target, posts) in awaited {
            // Acquire: what the target stored in its memory. SYNC(window-post).
            let has_posted = move || {
                let seen = control.posted(target).load(Ordering::Acquire);
                seen.wrapping_sub(posts) <= u32::MAX / 2
            };
            let mut is_dead = false;
            if !has_posted() {
                self.wait(&mut || {
                    // Deaths first: what the dead did before counts.
                    is_dead = self.dead_members().contains(&target);
                    has_posted() || is_dead
                });
            }
            if is_dead && !has_posted() {
                // What went wrong first is what the program is told.
                let _ = self.complete();
                let text = format!("has lost rank {target}, which has not posted its memory");
                return Err(self.error(Class::ProcFailed, text));
            }
        }
        Ok(())
    }

    /// `MPI_Win_complete`.
    ///
    /// # Errors
    /// `RmaSync`; `ProcFailed` where a target is dead, once the others know.
    pub fn complete(&self) -> Result<()> {
        let started = lock(&self.0.epochs).started.take();
        let Some(targets) = started else {
            let text = "has no epoch to complete: MPI_Win_start has to come first";
            return Err(self.wrong_epoch(text));
        };
        let mut outcome = Ok(());
        for target in targets {
            // Release: what this process wrote to the target. SYNC(window-complete).
            let complete = |control: &WindowControl| {
                control.completed().fetch_add(1, Ordering::Release);
            };
            let word = (WindowControl::completed_offset(), AtomicType::U32);
            // The others are waiting, whoever is dead.
            let told = self.count_up(target, complete, word);
            outcome = outcome.and(told);
        }
        self.serve_other_hosts();
        outcome
    }

    /// Returns the count of completions at which the exposure epoch is over, and its origins.
    fn awaited_completions(&self) -> Result<(u32, Arc<[u32]>)> {
        let epochs = lock(&self.0.epochs);
        let Some(origins) = epochs.exposed.clone() else {
            return Err(self.wrong_epoch("is not exposed: MPI_Win_post has to come first"));
        };
        Ok((epochs.consumed.wrapping_add(origins.len() as u32), origins))
    }

    /// Returns a dead origin and the count of completions, once all come that the others owe.
    fn dead_origin(&self, awaited: u32, origins: &[u32]) -> Option<(u32, u32)> {
        let dead = self.dead_members();
        let mut lost = origins.iter().filter(|origin| dead.contains(origin));
        let first = *lost.next()?;
        let living = awaited.wrapping_sub(1 + lost.count() as u32);
        self.has_completed(living).then(|| {
            (
                first,
                self.own_control().completed().load(Ordering::Acquire),
            )
        })
    }

    /// Ends the exposure epoch with the error that an origin is dead.
    fn end_without(&self, (dead, completed): (u32, u32)) -> Error {
        self.end_exposure(completed);
        let text = format!("has lost rank {dead}, which has not completed its accesses");
        self.error(Class::ProcFailed, text)
    }

    fn has_completed(&self, awaited: u32) -> bool {
        let control = self.own_control();
        // Acquire: what origins wrote to this process. SYNC(window-complete).
        let seen = control.completed().load(Ordering::Acquire);
        seen.wrapping_sub(awaited) <= u32::MAX / 2
    }

    fn end_exposure(&self, awaited: u32) {
        let mut epochs = lock(&self.0.epochs);
        epochs.consumed = awaited;
        epochs.exposed = None;
    }

    /// `MPI_Win_wait`.
    ///
    /// # Errors
    /// `RmaSync`; `ProcFailed` where an origin is dead and has not completed: the epoch is over.
    pub fn wait_exposure(&self) -> Result<()> {
        let (awaited, origins) = self.awaited_completions()?;
        let mut dead = None;
        if !self.has_completed(awaited) {
            self.wait(&mut || {
                // Deaths first: what the dead did before counts.
                dead = self.dead_origin(awaited, &origins);
                self.has_completed(awaited) || dead.is_some()
            });
        }
        if let Some(lost) = dead.filter(|_| !self.has_completed(awaited)) {
            return Err(self.end_without(lost));
        }
        self.end_exposure(awaited);
        Ok(())
    }

    /// `MPI_Win_test`.
    ///
    /// # Errors
    /// As for `wait_exposure`.
    pub fn test_exposure(&self) -> Result<bool> {
        let (awaited, origins) = self.awaited_completions()?;
        let dead = self.dead_origin(awaited, &origins);
        let over = self.has_completed(awaited)
            || (self.comm().process().host.progress_for_test() && self.has_completed(awaited));
        if over {
            self.end_exposure(awaited);
        } else if let Some(lost) = dead {
            return Err(self.end_without(lost));
        }
        Ok(over)
    }
}
