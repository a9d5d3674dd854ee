//! Epochs of windows: fence, post and start, locks, and what may be accessed when.
//!
//! A window of one process has at most one access epoch of active targets, locks of any number of
//! targets, and one exposure epoch. Whoever opens an epoch writes counters and locks in the control
//! blocks of others, and rings their doorbells. Nobody answers.

mod active_targets;

use super::Window;
use super::open_to_all::OpenToAll;
use super::target::MemberControl;
use crate::coll::Barrier;
use crate::error::{Class, Error, Result};
use garonne_engine::api::CallOrigin;
use garonne_sync::lock_all_word::LockAllWord;
use garonne_sync::mutex::lock;
use garonne_sync::window_control::full_fence;
use garonne_sync::window_lock::{LockMode, WindowLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Assertions of the calls that open and close epochs, as bits of the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assert(pub i32);

impl Assert {
    /// `MPI_MODE_NOCHECK`.
    pub const NOCHECK: i32 = 1024;
    /// `MPI_MODE_NOPRECEDE`.
    pub const NOPRECEDE: i32 = 2048;
    /// `MPI_MODE_NOPUT`.
    pub const NOPUT: i32 = 4096;
    /// `MPI_MODE_NOSTORE`.
    pub const NOSTORE: i32 = 8192;
    /// `MPI_MODE_NOSUCCEED`.
    pub const NOSUCCEED: i32 = 16384;

    const FENCE: i32 = Self::NOSTORE | Self::NOPUT | Self::NOPRECEDE | Self::NOSUCCEED;
    const POST: i32 = Self::NOCHECK | Self::NOSTORE | Self::NOPUT;

    fn has(self, bit: i32) -> bool {
        self.0 & bit != 0
    }
}

/// Kinds of locks, with their numbers in the standard ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum LockKind {
    /// `MPI_LOCK_EXCLUSIVE`.
    Exclusive = 301,
    /// `MPI_LOCK_SHARED`.
    Shared = 302,
}

impl LockKind {
    /// The kind of a number.
    pub fn from_number(number: i32) -> Option<Self> {
        [Self::Exclusive, Self::Shared]
            .into_iter()
            .find(|kind| *kind as i32 == number)
    }

    fn mode(self) -> LockMode {
        match self {
            Self::Exclusive => LockMode::Exclusive,
            Self::Shared => LockMode::Shared,
        }
    }
}

/// How a lock was taken. `None`: it was asserted that nobody else wants it.
type HeldLock = Option<LockMode>;

/// Locks of single targets. One takes no allocation: most programs hold one at a time.
#[derive(Default)]
struct HeldLocks {
    one: Option<(i32, HeldLock)>,
    /// Further ones.
    others: BTreeMap<i32, HeldLock>,
}

impl HeldLocks {
    fn is_empty(&self) -> bool {
        self.one.is_none() && self.others.is_empty()
    }

    #[inline]
    fn contains_key(&self, rank: &i32) -> bool {
        self.one.is_some_and(|(one, _)| one == *rank)
            || (!self.others.is_empty() && self.others.contains_key(rank))
    }

    fn insert(&mut self, rank: i32, held: HeldLock) {
        match self.one {
            None => self.one = Some((rank, held)),
            Some(_) => drop(self.others.insert(rank, held)),
        }
    }

    fn remove(&mut self, rank: &i32) -> Option<HeldLock> {
        match self.one.take_if(|(one, _)| one == rank) {
            Some((_, held)) => Some(held),
            None if self.others.is_empty() => None,
            None => self.others.remove(rank),
        }
    }
}

/// How all members are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldAll {
    /// The program asserted that nobody else wants a lock.
    Unchecked,
    /// By the window's one word.
    Word,
    /// By the lock of each member.
    EachLock,
}

/// Epochs that are open at this process.
#[derive(Default)]
pub(super) struct Epochs {
    /// A fence opened an epoch, and no other call has opened one since.
    fenced: bool,
    /// Targets of the epoch that `MPI_Win_start` opened.
    started: Option<Vec<u32>>,
    /// Locks by target; `MPI_PROC_NULL` is no target.
    locks: HeldLocks,
    /// `MPI_Win_lock_all`.
    all: Option<HeldAll>,
    /// Members whose completions the open exposure epoch waits for.
    exposed: Option<Arc<[u32]>>,
    /// Completions that earlier exposure epochs waited for.
    consumed: u32,
    /// Posts of each target that earlier calls of `MPI_Win_start` used.
    used_posts: BTreeMap<u32, u32>,
}

impl Epochs {
    fn set_fenced(&mut self, fenced: bool, open: &OpenToAll) {
        self.fenced = fenced;
        self.tell(open);
    }

    fn set_all(&mut self, held: Option<HeldAll>, open: &OpenToAll) -> Option<HeldAll> {
        let before = std::mem::replace(&mut self.all, held);
        self.tell(open);
        before
    }

    fn tell(&self, open: &OpenToAll) {
        let locked = self.locks.one.map(|(rank, _)| rank);
        open.tell(self.fenced, self.all.is_some(), locked);
    }

    fn open_epoch(&self) -> Option<&'static str> {
        if self.all.is_some() {
            Some("MPI_Win_lock_all has opened an epoch")
        } else if !self.locks.is_empty() {
            Some("MPI_Win_lock has opened an epoch")
        } else if self.started.is_some() {
            Some("MPI_Win_start has opened an epoch")
        } else if self.exposed.is_some() {
            Some("MPI_Win_post has opened an epoch")
        } else {
            None
        }
    }

    /// Whether a target may be accessed.
    #[inline]
    fn allows(&self, rank: i32) -> bool {
        self.all.is_some()
            || self.fenced
            || self.locks.contains_key(&rank)
            || (rank == crate::PROC_NULL && !self.locks.is_empty())
            || self
                .started
                .as_ref()
                .is_some_and(|targets| rank == crate::PROC_NULL || targets.contains(&(rank as u32)))
    }

    fn locks_target(&self, rank: i32) -> bool {
        self.all.is_some()
            || self.locks.contains_key(&rank)
            || (rank == crate::PROC_NULL && !self.locks.is_empty())
    }
}

impl Window {
    fn check_assert(&self, assert: Assert, allowed: i32) -> Result<()> {
        if assert.0 & !allowed == 0 {
            return Ok(());
        }
        let text = format!(
            "got assertion {:#x}, which this call does not take",
            assert.0
        );
        Err(self.error(Class::Assert, text))
    }

    #[cold]
    fn wrong_epoch(&self, what: impl std::fmt::Display) -> Error {
        self.error(Class::RmaSync, what)
    }

    /// Refuses a call that needs all epochs closed.
    pub(super) fn check_closed(&self, call: &str) -> Result<()> {
        match lock(&self.0.epochs).open_epoch() {
            Some(open) => Err(self.wrong_epoch(format!("cannot be used for {call}: {open}"))),
            None => Ok(()),
        }
    }

    /// Refuses an access outside an epoch.
    #[inline]
    pub(super) fn check_access(&self, rank: i32) -> Result<()> {
        match lock(&self.0.epochs).allows(rank) {
            true => Ok(()),
            false => Err(self.no_access(rank)),
        }
    }

    #[cold]
    fn no_access(&self, rank: i32) -> Error {
        let place = match rank == crate::PROC_NULL {
            true => String::from("MPI_PROC_NULL"),
            false => format!("rank {rank}"),
        };
        self.wrong_epoch(format!(
            "has no epoch in which rank {} may access {place}: call MPI_Win_fence, MPI_Win_start or MPI_Win_lock before",
            self.rank()
        ))
    }

    /// Refuses an access outside an epoch that locks opened.
    ///
    /// # Errors
    /// `RmaSync`.
    pub fn check_locked(&self, rank: i32) -> Result<()> {
        let target = self
            .target(rank)?
            .map_or(crate::PROC_NULL, |rank| rank as i32);
        match lock(&self.0.epochs).locks_target(target) {
            true => Ok(()),
            false => Err(self.wrong_epoch(format!(
                "has no lock of rank {rank}: call MPI_Win_lock or MPI_Win_lock_all before"
            ))),
        }
    }

    /// Waits for memory that other members write.
    pub(super) fn wait(&self, come: &mut (dyn FnMut() -> bool + Send)) {
        let host = &self.comm().process().host;
        if !self.0.one_host {
            // What members on other hosts change rings for nobody.
            while !come() {
                host.progress();
                std::thread::yield_now();
            }
            return;
        }
        let mut over = false;
        host.wait_for_memory(&mut || {
            over = over || come();
            over
        });
    }

    /// `MPI_Win_fence`.
    ///
    /// # Errors
    /// `Assert`, `RmaSync`.
    pub fn fence(&self, assert: Assert, origin: CallOrigin) -> Result<()> {
        self.check_assert(assert, Assert::FENCE)?;
        self.check_closed("MPI_Win_fence")?;
        fence(Ordering::SeqCst);
        self.comm().collective(&Barrier, origin)?;
        fence(Ordering::SeqCst);
        lock(&self.0.epochs).set_fenced(!assert.has(Assert::NOSUCCEED), &self.0.open_to_all);
        Ok(())
    }

    /// `MPI_Win_lock`.
    ///
    /// # Errors
    /// `Assert`, `RmaSync`, `Rank`; `ProcFailed` where a holder of the lock has died.
    pub fn lock(&self, kind: LockKind, rank: i32, assert: Assert) -> Result<()> {
        self.check_assert(assert, Assert::NOCHECK)?;
        let target = self.target(rank)?;
        let held = (!assert.has(Assert::NOCHECK)).then(|| kind.mode());
        {
            let mut epochs = lock(&self.0.epochs);
            let conflict = match epochs.locks.contains_key(&rank) {
                true => Some("this process has locked it already"),
                false if epochs.all.is_some() => Some("MPI_Win_lock_all has opened an epoch"),
                false if epochs.started.is_some() => Some("MPI_Win_start has opened an epoch"),
                false => None,
            };
            if let Some(why) = conflict {
                return Err(self.wrong_epoch(format!("cannot lock rank {rank}: {why}")));
            }
            epochs.locks.insert(rank, held);
            epochs.set_fenced(false, &self.0.open_to_all);
        }
        if let (Some(target), Some(mode)) = (target, held) {
            let acquired = self.acquire(target, mode);
            if acquired.is_err() {
                self.forget_lock(rank);
            }
            return acquired;
        }
        Ok(())
    }

    fn forget_lock(&self, rank: i32) -> Option<HeldLock> {
        let mut epochs = lock(&self.0.epochs);
        let held = epochs.locks.remove(&rank);
        epochs.tell(&self.0.open_to_all);
        held
    }

    fn acquire(&self, target: u32, mode: LockMode) -> Result<()> {
        let control = match &self.0.members[target as usize].control {
            MemberControl::Mapped(control) if self.0.one_host => control,
            _ => return self.acquire_by_ticket(target, mode),
        };
        if mode == LockMode::Exclusive {
            self.end_lock_all_word(target)?;
        }
        let (lock, me) = (control.lock(), self.rank() as u16);
        if lock.try_acquire(me, mode) {
            return Ok(());
        }
        lock.enqueue(me, mode);
        self.wait_in_queue(lock, mode, target)
    }

    /// Waits for a lock in whose queue this process is, or until its holder is known to be dead.
    fn wait_in_queue(&self, queue: WindowLock<'_>, mode: LockMode, target: u32) -> Result<()> {
        let me = self.rank() as u16;
        let dead_holder = || {
            // Linear in the members, but only after a death.
            let dead = self.dead_members();
            let is_dead = |holder: &u16| dead.contains(&u32::from(*holder));
            (!dead.is_empty()).then(|| queue.holders().find(is_dead))?
        };
        let (mut acquired, mut dead) = (false, None);
        self.wait(&mut || {
            acquired = acquired || queue.poll(me, mode);
            if !acquired {
                dead = dead_holder();
            }
            acquired || dead.is_some()
        });
        let Some(holder) = dead.filter(|_| !acquired) else {
            return Ok(());
        };
        if !queue.cancel(me, mode) {
            // Its last holder is handing it over, and may die before that is done.
            let mut handed = false;
            self.wait(&mut || {
                handed = handed || queue.poll(me, mode);
                handed || dead_holder().is_some()
            });
            if handed {
                return Ok(());
            }
        }
        Err(self.dead_holder(holder.into(), target))
    }

    #[cold]
    fn dead_holder(&self, holder: u32, target: u32) -> Error {
        let text = format!("has lost rank {holder}, which died with the lock of rank {target}");
        self.error(Class::ProcFailed, text)
    }

    /// Members that are known to be dead, in a job that survives deaths.
    pub(super) fn dead_members(&self) -> Vec<u32> {
        let process = self.comm().process();
        let detector = process.config.faults.as_ref();
        let has_deaths = detector.is_some_and(|detector| detector.has_deaths());
        if !process.survives() || !(has_deaths || self.comm().has_other_worlds()) {
            return Vec::new();
        }
        let (group, dead) = (self.group(), self.comm().dead_members());
        dead.iter()
            .filter_map(|peer| group.rank_of(*peer))
            .collect()
    }

    fn release(&self, target: u32, mode: LockMode) -> Result<()> {
        let control = match &self.0.members[target as usize].control {
            MemberControl::Mapped(control) if self.0.one_host => control,
            _ => return self.release_by_ticket(target, mode),
        };
        let lock = control.lock();
        lock.release(self.rank() as u16, mode, |member| self.ring(member.into()));
        Ok(())
    }

    /// `MPI_Win_unlock`.
    ///
    /// # Errors
    /// `RmaSync`, `Rank`.
    pub fn unlock(&self, rank: i32) -> Result<()> {
        let target = self.target(rank)?;
        let Some(held) = self.forget_lock(rank) else {
            return Err(self.wrong_epoch(format!(
                "has no lock of rank {rank} to give up: MPI_Win_lock has to come first"
            )));
        };
        if let (Some(target), Some(mode)) = (target, held) {
            self.release(target, mode)?;
        }
        self.serve_other_hosts();
        Ok(())
    }

    /// `MPI_Win_lock_all`.
    ///
    /// # Errors
    /// `Assert`, `RmaSync`; `ProcFailed` where a holder of a lock has died.
    pub fn lock_all(&self, assert: Assert) -> Result<()> {
        self.check_assert(assert, Assert::NOCHECK)?;
        let by_word = self
            .lock_all_word()
            .filter(|_| !assert.has(Assert::NOCHECK));
        {
            let mut epochs = lock(&self.0.epochs);
            let access =
                epochs.all.is_some() || !epochs.locks.is_empty() || epochs.started.is_some();
            if let Some(open) = epochs.open_epoch().filter(|_| access) {
                let text = format!("cannot be used for MPI_Win_lock_all: {open}");
                return Err(self.wrong_epoch(text));
            }
            let is_counted = by_word.is_some_and(|word| self.enter_lock_all(word));
            let held = match (assert.has(Assert::NOCHECK), is_counted) {
                (true, _) => HeldAll::Unchecked,
                (false, true) => HeldAll::Word,
                (false, false) => HeldAll::EachLock,
            };
            epochs.fenced = false;
            epochs.set_all(Some(held), &self.0.open_to_all);
            if held != HeldAll::EachLock {
                return Ok(());
            }
        }
        for target in 0..self.size() {
            if let Err(error) = self.acquire(target, LockMode::Shared) {
                // What went wrong first is what the program is told.
                let _ = (0..target).try_for_each(|target| self.release(target, LockMode::Shared));
                lock(&self.0.epochs).set_all(None, &self.0.open_to_all);
                return Err(error);
            }
        }
        Ok(())
    }

    /// The word by which all members are locked at once; `None`: there is none between hosts.
    #[inline]
    fn lock_all_word(&self) -> Option<LockAllWord<'_>> {
        let first = self.0.first_control.as_ref().filter(|_| self.0.one_host)?;
        Some(first.lock_all())
    }

    fn enter_lock_all(&self, word: LockAllWord<'_>) -> bool {
        // Before the count: a member that dies in between can be found.
        self.own_control().holds_all().store(1, Ordering::Release);
        let is_counted = word.enter();
        if !is_counted {
            self.own_control().holds_all().store(0, Ordering::Release);
        }
        is_counted
    }

    fn leave_lock_all(&self) {
        if let Some(word) = self.lock_all_word() {
            if word.leave() {
                // Whoever waits to lock exclusively, once in the life of a window.
                (0..self.size()).for_each(|rank| self.ring(rank));
            }
            self.own_control().holds_all().store(0, Ordering::Release);
        }
    }

    /// Waits until members that locked all by the window's word have given it up, after which
    /// nobody locks all by it.
    ///
    /// # Errors
    /// `ProcFailed` where one of them has died.
    #[inline]
    fn end_lock_all_word(&self, target: u32) -> Result<()> {
        match self.lock_all_word() {
            Some(word) if !word.close() => self.wait_for_lock_all(word, target),
            _ => Ok(()),
        }
    }

    #[cold]
    fn wait_for_lock_all(&self, word: LockAllWord<'_>, target: u32) -> Result<()> {
        let dead_holder = || {
            let holds = |rank: &u32| match &self.0.members[*rank as usize].control {
                MemberControl::Mapped(control) => control.holds_all().load(Ordering::Acquire) != 0,
                MemberControl::OtherHost(_) => false,
            };
            self.dead_members().into_iter().find(holds)
        };
        let mut dead = None;
        self.wait(&mut || {
            let is_closed = word.is_closed();
            dead = if is_closed { None } else { dead_holder() };
            is_closed || dead.is_some()
        });
        dead.map_or(Ok(()), |holder| Err(self.dead_holder(holder, target)))
    }

    /// `MPI_Win_unlock_all`.
    ///
    /// # Errors
    /// `RmaSync`.
    pub fn unlock_all(&self) -> Result<()> {
        let Some(held) = lock(&self.0.epochs).set_all(None, &self.0.open_to_all) else {
            let text = "has no locks to give up: MPI_Win_lock_all has to come first";
            return Err(self.wrong_epoch(text));
        };
        match held {
            HeldAll::Unchecked => {}
            HeldAll::Word => self.leave_lock_all(),
            HeldAll::EachLock => {
                (0..self.size()).try_for_each(|target| self.release(target, LockMode::Shared))?
            }
        }
        self.serve_other_hosts();
        Ok(())
    }

    /// `MPI_Win_flush` and `MPI_Win_flush_local`.
    ///
    /// # Errors
    /// `RmaSync`, `Rank`.
    #[inline]
    pub fn flush(&self, rank: i32) -> Result<()> {
        if !(self.0.open_to_all.locks(rank) && (rank as u32) < self.size()) {
            self.check_locked(rank)?;
        }
        full_fence();
        self.serve_other_hosts();
        Ok(())
    }

    /// `MPI_Win_flush_all` and `MPI_Win_flush_local_all`.
    ///
    /// # Errors
    /// `RmaSync`.
    pub fn flush_all(&self) -> Result<()> {
        if !self.0.open_to_all.has_locks() && lock(&self.0.epochs).locks.is_empty() {
            let text = "has no locks: call MPI_Win_lock or MPI_Win_lock_all before";
            return Err(self.wrong_epoch(text));
        }
        full_fence();
        self.serve_other_hosts();
        Ok(())
    }

    /// `MPI_Win_sync`.
    pub fn sync(&self) {
        full_fence();
        self.serve_other_hosts();
    }
}
