//! The other shards of a rank: how a waiting thread serves shards in which nobody waits.
//!
//! Part of `locked_engine`. A rank of several threads may have several locked engines, its shards
//! ([`crate::sharded`]). Each has a leader of its own. A thread that waits in one shard, but left
//! operations open in others, polls those as well. Before it sleeps it becomes the leader of those
//! shards, arms their doorbells, and sleeps on all of them at once. If another thread leads such a
//! shard, the sleeper registers as dependent on it; a leader that leaves notifies its dependants.
//!
//! Operations that other threads left open are the business of those threads and of the progress
//! thread. They are polled now and then all the same, because the thread that left them may be
//! gone. Steppers, the progress thread, and waits for events of any shard live in the first shard,
//! which is notified of completions elsewhere. A rank with one shard pays nothing for this.

use super::async_progress::OFF;
use super::multi_wait::Leadership;
use super::open_operations::OpenOperations;
use super::progress::LockPolicy;
use super::{LockedEngine, ProgressCaller, lock};
use crate::environment::Environment;
use crate::limits::{OTHER_SHARDS_DOUBLINGS, OTHER_SHARDS_EVERY, OTHER_SHARDS_SLEEP};
use crate::messaging::{Messaging, WaitKey};
use garonne_engine::api::{Request, SHARDS_MAX};
use garonne_engine::engine::Engine;
use garonne_engine::transport::Transport;
use garonne_sync::pad::CachePadded;
use garonne_sync::progress_owner::WakeupScope;
use garonne_sync::waiter;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// All shards of a rank.
pub(crate) struct ShardSet<R, S> {
    hosts: [OnceLock<Weak<LockedEngine<R, S>>>; SHARDS_MAX],
    /// Threads that wait in the first shard for what may come in any.
    any_shard_waits: AtomicU32,
    /// Threads counted by `any_shard_waits`, and steppers of the first shard.
    interest: AtomicU32,
    /// Whether something may be open in the first shard that needs asynchronous progress.
    first_open: Arc<CachePadded<AtomicBool>>,
    /// The rank as steppers know it.
    sharded_engine: Weak<dyn Messaging>,
}

/// One host's place among them.
pub(super) struct ShardLinks<R, S> {
    shard: usize,
    shards: Arc<ShardSet<R, S>>,
    /// Shards, as bits, whose leaders sleep and lean on who polls this one.
    dependent_shards: AtomicU32,
    /// Shards, as bits, in which threads left something open that now sit here, or that left it to
    /// the progress thread: who polls here sees to those.
    delegated_shards: AtomicU32,
    /// Who polls here has slept in the place of a leader of the first shard.
    covered_first: AtomicBool,
}

// The marks of a waiter are the shards, as bits, in which it left something open that may not be
// over.

/// Nothing of the calling waiter's is open in this shard any more.
fn forget(shard: usize) {
    waiter::change_marks(|open| open & !(1 << shard));
}

/// A thread waits for what may come in any shard.
pub(crate) struct AnyShardWait<'a, R, S>(&'a ShardSet<R, S>);

impl<R, S> Drop for AnyShardWait<'_, R, S> {
    fn drop(&mut self) {
        self.0.any_shard_waits.fetch_sub(1, Ordering::SeqCst);
        self.0.interest.fetch_sub(1, Ordering::SeqCst);
    }
}

impl<R, S> ShardSet<R, S> {
    /// The shards of the rank that steppers know as `sharded_engine`.
    pub(crate) fn new(
        sharded_engine: Weak<dyn Messaging>,
        first: &LockedEngine<R, S>,
    ) -> Arc<Self> {
        Arc::new(Self {
            sharded_engine,
            hosts: [const { OnceLock::new() }; SHARDS_MAX],
            any_shard_waits: AtomicU32::new(0),
            interest: AtomicU32::new(0),
            first_open: first.async_progress.any_open.clone(),
        })
    }

    /// From now on what completes anywhere is told in the first shard. Before what is awaited is
    /// asked after.
    pub(crate) fn any_shard_waits(&self) -> AnyShardWait<'_, R, S> {
        self.interest.fetch_add(1, Ordering::SeqCst);
        self.any_shard_waits.fetch_add(1, Ordering::SeqCst);
        AnyShardWait(self)
    }

    fn host(&self, shard: usize) -> Option<Arc<LockedEngine<R, S>>> {
        self.hosts.get(shard)?.get()?.upgrade()
    }

    /// Open shards among `which`, without `shard` itself.
    fn others(&self, shard: usize, which: u32) -> impl Iterator<Item = Arc<LockedEngine<R, S>>> {
        (0..SHARDS_MAX)
            .filter(move |other| *other != shard && which >> other & 1 != 0)
            .filter_map(|other| self.host(other))
    }
}

impl<R, S> ShardLinks<R, S> {
    /// Other shards in which the calling thread left something open.
    #[inline]
    fn others_of_thread(&self) -> u32 {
        waiter::marks() & !(1 << self.shard)
    }

    /// Returns whether whoever polls here polls for somebody who waits for what may come anywhere.
    #[inline]
    fn awaits_all(&self) -> bool {
        self.shard == 0 && self.shards.any_shard_waits.load(Ordering::SeqCst) > 0
    }
}

/// Another shard of which the caller has the leadership, its bell armed.
pub(super) struct CoveredShard<R: Transport + Send, S: Environment> {
    host: Arc<LockedEngine<R, S>>,
    pub(super) ticket: u32,
    seen: u64,
}

impl<R: Transport + Send, S: Environment> CoveredShard<R, S> {
    /// Looks once more. `true`: something moved.
    pub(super) fn look(&self) -> bool {
        self.host.poll_predicates();
        self.host.advance(ProgressCaller::Program, LockPolicy::Wait)
    }

    /// The caller is about to sleep. `false`: it is to look again first.
    pub(super) fn begin_sleep(&self) -> bool {
        self.host.leader.set_sleeps(true);
        self.host.waiters.event_count() == self.seen
    }

    /// Returns how long to sleep at most because of this.
    pub(super) fn sleep_limit(&self) -> Option<Duration> {
        self.host.retry_limit()
    }

    /// The word of its bell.
    pub(super) fn bell(&self) -> Option<&AtomicU32> {
        self.host.wake_source.bell()
    }
}

impl<R: Transport + Send, S: Environment> Drop for CoveredShard<R, S> {
    fn drop(&mut self) {
        self.host.leader.set_sleeps(false);
        self.host.lock_engine().transport().disarm();
        drop(Leadership(&self.host.waiters));
        self.host.note_leader_left();
    }
}

impl<R: Transport + Send, S: Environment> LockedEngine<R, S> {
    /// Makes this the host of one of a rank's shards. Once, before it is used.
    pub(crate) fn join_shard_set(self: &Arc<Self>, shard: usize, shards: &Arc<ShardSet<R, S>>) {
        let place = shards.hosts.get(shard);
        let placed = place.is_some_and(|place| place.set(Arc::downgrade(self)).is_ok());
        let beside = ShardLinks {
            shard,
            shards: shards.clone(),
            dependent_shards: AtomicU32::new(0),
            delegated_shards: AtomicU32::new(0),
            covered_first: AtomicBool::new(false),
        };
        let known = placed && self.shard_links.set(beside).is_ok();
        debug_assert!(known, "a shard has one host, and a host one shard");
        // Whoever sleeps knows nothing of this one, and may sleep without a limit.
        shards
            .others(shard, u32::MAX)
            .for_each(|host| host.count_event_and_wake());
    }

    /// The rank as its steppers know it, if that is not this host alone.
    pub(super) fn sharded_engine(&self) -> Option<Arc<dyn Messaging>> {
        self.shard_links.get()?.shards.sharded_engine.upgrade()
    }

    /// A thread waits here for what may come anywhere: the leader, if there is one, is to look
    /// again.
    #[inline]
    pub(crate) fn note_any_shard_wait(&self) {
        if self.waiters.has_leader() {
            self.count_event_and_wake();
        }
    }

    /// The calling thread started something here that goes on.
    #[inline]
    pub(super) fn note_open_in_shard(&self) {
        if let Some(beside) = self.shard_links.get() {
            waiter::change_marks(|open| open | 1 << beside.shard);
        }
    }

    /// After so many looks that brought nothing: looks at the shards that the thread has to do with
    /// and nobody polls. `true`: something moved there.
    #[inline]
    pub(super) fn poll_other_shards_after(&self, looks: u32) -> bool {
        let Some(beside) = self.shard_links.get() else {
            return false;
        };
        if beside.awaits_all() {
            return self.poll_other_shards(ProgressCaller::Program);
        }
        let which = beside.others_of_thread() | beside.delegated_shards.load(Ordering::Relaxed);
        which != 0
            && looks.is_multiple_of(OTHER_SHARDS_EVERY)
            && self.poll_shards(which, ProgressCaller::Program)
    }

    /// Looks at all shards that nobody polls. `true`: something moved.
    #[inline(never)]
    pub(super) fn poll_other_shards(&self, by: ProgressCaller) -> bool {
        self.poll_shards(u32::MAX, by)
    }

    fn poll_shards(&self, which: u32, by: ProgressCaller) -> bool {
        let Some(beside) = self.shard_links.get() else {
            return false;
        };
        let mut moved = false;
        for host in beside.shards.others(beside.shard, which) {
            if !host.waiters.has_leader() {
                moved |= host.advance(by, LockPolicy::IfFree);
            }
        }
        moved
    }

    /// Takes the roles of those that the caller has to see to while it sleeps and nobody polls, and
    /// arms their bells; leans on who polls the others of those.
    pub(super) fn cover_other_shards(&self) -> Vec<CoveredShard<R, S>> {
        let Some(beside) = self.shard_links.get() else {
            return Vec::new();
        };
        // Who waits for anything is in the first shard, and relies on who polls it.
        let all = beside.awaits_all();
        let mut which = if all {
            u32::MAX
        } else {
            beside.others_of_thread() | self.delegated_shards()
        };
        if which & 1 != 0 || beside.shard == 0 {
            // Steppers have their messages in any.
            let first = beside.shards.host(0);
            if first.is_some_and(|first| first.has_steppers_with_messages()) {
                which = u32::MAX;
            }
        }
        let (mut seen, mut covered) = (1 << beside.shard, Vec::new());
        while which & !seen != 0 {
            let others = beside.shards.others(beside.shard, which & !seen);
            seen |= which;
            for other in others.filter_map(|host| host.cover_for(beside.shard, all)) {
                // Those who sit there rely on its leader in turn.
                which |= other.host.delegated_shards();
                if other
                    .host
                    .shard_links
                    .get()
                    .is_some_and(|beside| beside.shard == 0)
                {
                    beside.covered_first.store(true, Ordering::Relaxed);
                }
                covered.push(other);
            }
        }
        covered
    }

    /// Returns whether whoever polls here has to see to other shards as well.
    #[inline]
    pub(super) fn serves_other_shards(&self) -> bool {
        let Some(beside) = self.shard_links.get() else {
            return false;
        };
        let steps = beside.shard == 0 && self.has_steppers_with_messages();
        steps || beside.awaits_all() || self.delegated_shards() != 0
    }

    /// Returns whether a stepper may have messages, which come in whatever shard they are of.
    #[inline]
    pub(crate) fn has_steppers_with_messages(&self) -> bool {
        self.steppers.have_messages()
    }

    /// Tells whether the calling thread, which left operations open itself, must serve other
    /// shards.
    pub(super) fn must_serve_other_shards(&self) -> bool {
        self.serves_other_shards() || self.open_in_other_shards() != 0
    }

    /// Returns whether the first shard, of which this is none, has steppers, or something open that
    /// needs hands, and nobody polls there: waits in any shard see to these.
    pub(super) fn is_first_busy(&self) -> bool {
        // Without the host itself, as a rule: threads of all shards ask this at each wait, and
        // would count themselves in and out.
        let first = self.shard_links.get().filter(|beside| beside.shard != 0);
        first.is_some_and(|ShardLinks { shards, .. }| {
            let waiting = shards.any_shard_waits.load(Ordering::Relaxed);
            let steppers = shards.interest.load(Ordering::Relaxed) != waiting;
            let is_busy = steppers || shards.first_open.load(Ordering::Relaxed);
            is_busy
                && shards
                    .host(0)
                    .is_none_or(|first| !first.waiters.has_leader())
        })
    }

    /// The calling thread is about to sit here: whoever polls sees to what it left open elsewhere.
    #[inline]
    pub(super) fn delegate_open_shards(&self) {
        self.delegate_shards(self.open_in_other_shards());
    }

    /// The other shards in which something may be the calling thread's.
    #[inline]
    fn open_in_other_shards(&self) -> u32 {
        let Some(beside) = self.shard_links.get() else {
            return 0;
        };
        match beside.others_of_thread() {
            0 => 0,
            left => {
                let others = beside.shards.others(beside.shard, left);
                others.fold(0, |which, host| which | host.open_here())
            }
        }
    }

    /// The bit of this shard, if an operation here may be the calling thread's.
    fn open_here(&self) -> u32 {
        let Some(beside) = self.shard_links.get() else {
            return 0;
        };
        if self.needs_progress() {
            return 1 << beside.shard;
        }
        forget(beside.shard);
        0
    }

    /// Whoever polls here is to see to these shards, too.
    fn delegate_shards(&self, which: u32) {
        if which != 0
            && let Some(beside) = self.shard_links.get()
            && which & !beside.delegated_shards.fetch_or(which, Ordering::SeqCst) != 0
        {
            self.count_event_and_wake();
        }
    }

    /// The shards that whoever polls here is to see to for others. Those in which nothing is open
    /// any more are forgotten.
    fn delegated_shards(&self) -> u32 {
        let Some(beside) = self.shard_links.get() else {
            return 0;
        };
        let mut which = beside.delegated_shards.load(Ordering::SeqCst);
        if which == 0 {
            return 0;
        }
        for host in beside.shards.others(beside.shard, which) {
            let bit = host.shard_links.get().map_or(0, |beside| 1 << beside.shard);
            // Taken out first: who leaves something open afterwards finds that it has to say so.
            beside.delegated_shards.fetch_and(!bit, Ordering::SeqCst);
            if host.needs_progress() {
                beside.delegated_shards.fetch_or(bit, Ordering::SeqCst);
            } else {
                which &= !bit;
            }
        }
        which
    }

    fn cover_for(self: Arc<Self>, by: usize, surely: bool) -> Option<CoveredShard<R, S>> {
        let beside = self.shard_links.get()?;
        if !surely && !self.needs_progress() {
            forget(beside.shard);
            return None;
        }
        if !self.waiters.try_lead(waiter::current_id()) {
            // Before another look at leadership: who gives it back looks for leaners afterwards.
            beside.dependent_shards.fetch_or(1 << by, Ordering::SeqCst);
            if self.waiters.has_leader() || !self.waiters.try_lead(waiter::current_id()) {
                return None;
            }
        }
        let seen = self.waiters.event_count();
        let ticket = self.lock_engine().transport().arm();
        Some(CoveredShard {
            host: self,
            ticket,
            seen,
        })
    }

    /// Returns how long to sleep at most after having slept so often, because of what threads may
    /// have left open in other shards that are gone.
    pub(super) fn multi_shard_sleep_limit(&self, parks: u32) -> Option<Duration> {
        let beside = self.shard_links.get()?;
        let mut others = beside.shards.others(beside.shard, u32::MAX);
        others
            .next()
            .map(|_| OTHER_SHARDS_SLEEP * (1 << parks.min(OTHER_SHARDS_DOUBLINGS)))
    }

    /// Returns whether something may come here that is to be seen to.
    fn needs_progress(&self) -> bool {
        self.steppers.open() > 0 || {
            let shard = self.lock_engine();
            shard.has_work() || shard.has_open_operations()
        }
    }

    /// The leader of this shard has left: those who sleep and leaned on it have to see to it.
    #[inline]
    pub(super) fn note_leader_left(&self) {
        let Some(beside) = self.shard_links.get() else {
            return;
        };
        let mut leaners = beside.dependent_shards.load(Ordering::SeqCst);
        if leaners != 0 {
            leaners = beside.dependent_shards.swap(0, Ordering::SeqCst);
        }
        if beside.shard != 0 && beside.shards.any_shard_waits.load(Ordering::SeqCst) > 0 {
            leaners |= 1;
        }
        if leaners != 0 {
            beside
                .shards
                .others(beside.shard, leaners)
                .for_each(|host| host.count_event_and_wake());
        }
    }

    /// The leader of this shard has left. While it slept in the place of one of the first shard,
    /// the progress thread left the work there to it: what is open is lent again, if nobody would
    /// call the progress thread.
    #[inline]
    pub(super) fn release_first_again(&self) {
        if let Some(beside) = self.shard_links.get()
            && beside.covered_first.load(Ordering::Relaxed)
            && beside.covered_first.swap(false, Ordering::Relaxed)
            && let Some(first) = beside.shards.host(0)
            && first.is_worker_unreachable()
        {
            first.release_again();
        }
    }

    /// Something completed here: who waits for anything, and steppers, are in the first shard.
    #[inline]
    pub(super) fn notify_first_shard(&self) {
        if let Some(beside) = self.shard_links.get()
            && beside.shard != 0
            && beside.shards.interest.load(Ordering::SeqCst) > 0
            && let Some(first) = beside.shards.host(0)
        {
            first.hear();
        }
    }

    /// Something completed here, and the engine is in hand: of those who wait in the first shard
    /// for what may end in any those are called whose operations are over.
    #[inline]
    pub(super) fn notify_any_shard_waiters(&self, shard: &Engine<R>) {
        if let Some(beside) = self.shard_links.get()
            && beside.shard != 0
            && beside.shards.any_shard_waits.load(Ordering::SeqCst) > 0
            && let Some(first) = beside.shards.host(0)
        {
            let is_due = |waiter| shard.may_have_completed_for(waiter);
            first
                .waiters
                .notify(|awaited| matches!(WaitKey::decode(awaited), WaitKey::AnyOf(waiter) if is_due(waiter)));
        }
    }

    #[cold]
    #[inline(never)]
    fn hear(&self) {
        if self.steppers.open() > 0 {
            self.steppers.make_due();
            // Whoever this is may be the progress thread, which runs no code of the program's.
            self.steppers.run(ProgressCaller::Helper, self);
        }
        self.announce(|_| false);
    }

    /// Steppers were attached (or, negative, are over).
    pub(super) fn count_interest(&self, steppers: i32) {
        if let Some(beside) = self.shard_links.get() {
            beside
                .shards
                .interest
                .fetch_add(steppers as u32, Ordering::SeqCst);
        }
    }

    /// Returns whether another shard that nobody polls has work that found no room.
    pub(super) fn other_shards_have_work(&self) -> bool {
        let Some(beside) = self.shard_links.get() else {
            return false;
        };
        let mut others = beside.shards.others(beside.shard, u32::MAX);
        others.any(|host| !host.waiters.has_leader() && host.lock_engine().has_work())
    }

    /// A call that must not wait found nothing here: others may rely on it all the same. `true`:
    /// something moved elsewhere.
    #[inline]
    pub(super) fn note_unused_test(&self) -> bool {
        if self.shard_links.get().is_none() {
            return false;
        }
        let looks = self.unused_tests.fetch_add(1, Ordering::Relaxed);
        looks.is_multiple_of(OTHER_SHARDS_EVERY) && self.poll_other_shards(ProgressCaller::Program)
    }

    /// The program goes on with this operation of another shard open: as
    /// [`LockedEngine::leave_request_open`], of the first.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave_open_in_other_shard(&self, host: &Arc<Self>, request: Request) {
        if self.async_progress.phase.load(Ordering::Acquire) == OFF {
            return;
        }
        let shard = host.lock_engine();
        let Some(site) = shard.pending_call_site(request) else {
            return;
        };
        drop(shard);
        let mut open = lock(&self.async_progress.open_in_other_shards);
        let known = open.iter().position(|(other, _)| Arc::ptr_eq(other, host));
        let known = known.unwrap_or_else(|| {
            open.push((host.clone(), OpenOperations::default()));
            open.len() - 1
        });
        let first = open[known]
            .1
            .add(request, |request| host.lock_engine().is_complete(request));
        let only = open
            .iter()
            .enumerate()
            .all(|(at, (_, others))| at == known || others.is_empty());
        let nothing_here =
            lock(&self.async_progress.open_operations).is_empty() && self.steppers.open() == 0;
        let alone = first && only && nothing_here;
        drop(open);
        // The progress thread leaves it to whoever polls.
        self.delegate_shards(host.shard_links.get().map_or(0, |beside| 1 << beside.shard));
        self.left(site, WakeupScope::Transfers, alone);
    }

    /// Looks at the shards of those, after the words were armed. `true`: there is work left.
    pub(super) fn poll_released_shards(&self) -> bool {
        let hosts: Vec<_> = {
            let open = lock(&self.async_progress.open_in_other_shards);
            let noted = open.iter().filter(|(_, operations)| !operations.is_empty());
            noted.map(|(host, _)| host.clone()).collect()
        };
        let mut work = false;
        for host in hosts {
            let mut shard = host.lock_engine();
            let before = shard.completions();
            work |= shard.poll_only().more || shard.has_work();
            let changed = shard.completions() != before;
            host.unlock(shard, changed);
        }
        work
    }

    /// Returns whether one of those goes on.
    pub(super) fn is_request_open_in_other_shards(&self) -> bool {
        let mut open = lock(&self.async_progress.open_in_other_shards);
        // One that goes on is enough; what it leaves unasked is asked after it.
        open.retain_mut(|(host, operations)| {
            operations.goes_on(|request| host.lock_engine().is_complete(request))
        });
        !open.is_empty()
    }
}
