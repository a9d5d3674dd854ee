//! A rank of several threads as several locked engines, its shards. Each communicator has its
//! messages in one shard ([`shard_of`]), so threads that use communicators of different shards
//! share no lock.
//!
//! The first shard exists from the beginning; the others are opened when a communicator of theirs
//! is first used. Whatever does not belong to one communicator's messages is in the first shard:
//! steppers, waits for memory that others write, the progress thread, and waits for events of any
//! shard. Names of operations and messages carry their shard in the highest bits of their index,
//! outside their engine. `locked_engine::other_shards` describes who polls a shard in which nobody
//! waits.

use crate::environment::{CommunicatorInfo, Environment, PossibleSenders};
use crate::limits::ANY_OF_FEW;
use crate::locked_engine::LockedEngine;
use crate::locked_engine::other_shards::ShardSet;
use crate::messaging::{
    AnyOfWaiter, BackgroundWork, CommunicatorSupport, Diagnosis, FastMessaging, Messaging,
    NodeShared, RegionCall, RegionMessaging, Stepper, WaitTarget, Waiting, current_waiter,
};
use garonne_engine::api::{
    CallOrigin, ContextId, Error, Message, Pattern, Peer, RecvArgs, Request, SHARDS_MAX, SendArgs,
    StartOutcome, Status, in_shard, shard_of, without_shard,
};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::{FastRecv, ReceivedMessage};
use garonne_engine::fast::send::FastSend;
use garonne_engine::faults::ContextMembers;
use garonne_engine::observe::contexts_in_use::ContextsInUse;
use garonne_engine::observe::events::{ExternalWait, PendingOperation, SentMessage};
use garonne_engine::observe::tracer::{OperationTracer, TracedOperation};
use garonne_engine::one_sided::{RegionKey, RegionMemory};
use garonne_engine::schedule::priority::Priority;
use garonne_engine::transport::{BulkToken, BulkTransfer, RegionDescriptor, Transport};
use garonne_sync::shm::Segment;
use garonne_sync::user::Data;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

/// Function that opens a further shard of a rank: its engine, and its environment.
pub type ShardOpener<R, S> =
    Box<dyn Fn(usize) -> Result<(Engine<R>, S), Error> + std::marker::Send + Sync>;

/// The locked engines of one rank, by shard. The rank owns them. The first exists from the
/// beginning; [`ShardedEngine::engine_of`] opens the others.
pub struct ShardedEngine<R, S> {
    first: Arc<LockedEngine<R, S>>,
    /// By shard, the first place unused.
    more: [OnceLock<Arc<LockedEngine<R, S>>>; SHARDS_MAX],
    count: usize,
    open: ShardOpener<R, S>,
    /// Who watches; whoever opens a shard or changes this holds it.
    watcher: Mutex<Option<Arc<dyn OperationTracer>>>,
    shards: Arc<ShardSet<R, S>>,
}

const NO_SHARD: Error = Error::Misuse("no such communicator in this process");
const STALE: Error = Error::Misuse("no such operation");

fn with_shard_index(shard: usize, started: StartOutcome) -> StartOutcome {
    match started {
        StartOutcome::Pending(name) => StartOutcome::Pending(Request {
            index: in_shard(shard, name.index),
            ..name
        }),
        done @ StartOutcome::Done(_) => done,
    }
}

impl<R: Transport + std::marker::Send + 'static, S: Environment + 'static> ShardedEngine<R, S> {
    /// A rank whose first shard is `first`, with room for `count` in all. `open` opens the others.
    pub fn new(first: Arc<LockedEngine<R, S>>, count: usize, open: ShardOpener<R, S>) -> Arc<Self> {
        Arc::new_cyclic(|sharded_engine: &Weak<Self>| {
            let shards = ShardSet::new(sharded_engine.clone(), &first);
            first.join_shard_set(0, &shards);
            Self {
                first,
                more: [const { OnceLock::new() }; SHARDS_MAX],
                count: count.clamp(1, SHARDS_MAX),
                open,
                watcher: Mutex::default(),
                shards,
            }
        })
    }
}

impl<R: Transport + std::marker::Send, S: Environment> ShardedEngine<R, S> {
    /// The first shard.
    pub fn first(&self) -> &Arc<LockedEngine<R, S>> {
        &self.first
    }

    fn watching(&self) -> MutexGuard<'_, Option<Arc<dyn OperationTracer>>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shards that are open.
    fn all(&self) -> impl Iterator<Item = &LockedEngine<R, S>> {
        let more = self.more.iter().filter_map(|place| place.get());
        std::iter::once(&self.first).chain(more).map(|host| &**host)
    }

    /// A shard, if it is open.
    pub fn known(&self, shard: usize) -> Option<&LockedEngine<R, S>> {
        match shard {
            0 => Some(&self.first),
            _ => self.more.get(shard)?.get().map(|host| &**host),
        }
    }

    /// The host of a context's messages, opened if it is not yet.
    ///
    /// # Errors
    /// `Misuse` if there is no such shard; what the system said.
    #[inline]
    pub fn engine_of(&self, context: ContextId) -> Result<&LockedEngine<R, S>, Error> {
        let shard = shard_of(context);
        self.known(shard)
            .map_or_else(|| self.open_engine(shard), Ok)
    }

    #[cold]
    fn open_engine(&self, shard: usize) -> Result<&LockedEngine<R, S>, Error> {
        let place = self
            .more
            .get(shard)
            .filter(|_| shard < self.count)
            .ok_or(NO_SHARD)?;
        let watcher = self.watching();
        if place.get().is_none() {
            let (engine, surroundings) = (self.open)(shard)?;
            let (me, world) = (self.first.me(), self.first.world_size());
            let host = Arc::new(LockedEngine::new(engine, me, world, surroundings));
            if let Some(watcher) = &*watcher {
                host.watch(Some(tagged(shard, watcher)));
            }
            // Whoever finds it finds it in its place.
            host.join_shard_set(shard, &self.shards);
            let _ = place.set(host);
        }
        place.get().map(|host| &**host).ok_or(NO_SHARD)
    }

    /// The host that knows an operation or message of this index, and the index there.
    #[inline]
    fn of(&self, index: u32) -> Result<(&LockedEngine<R, S>, u32), Error> {
        let host = self.known(shard_of(index)).ok_or(STALE)?;
        Ok((host, without_shard(index)))
    }

    fn split_request(&self, name: Request) -> Result<(&LockedEngine<R, S>, Request), Error> {
        self.of(name.index)
            .map(|(host, index)| (host, Request { index, ..name }))
    }

    /// Tells `tracer` from now on what happens; `None`: nobody any more.
    pub fn watch(&self, watcher: Option<Arc<dyn OperationTracer>>) {
        let mut kept = self.watching();
        self.first.watch(watcher.clone());
        for (shard, place) in self.more.iter().enumerate() {
            if let Some(host) = place.get() {
                host.watch(watcher.as_ref().map(|watcher| tagged(shard, watcher)));
            }
        }
        *kept = watcher;
    }

    /// Packets are queued somewhere that found no room yet.
    pub fn has_work(&self) -> bool {
        self.all().any(LockedEngine::has_work)
    }

    /// Calls `f` on each engine, for inspection.
    pub fn inspect(&self, mut f: impl FnMut(&mut Engine<R>)) {
        self.all().for_each(|host| host.inspect(&mut f));
    }

    /// The shard of what is awaited, if it is of one.
    fn shard_of_target(awaits: WaitTarget) -> Option<usize> {
        match awaits {
            WaitTarget::Operation(name) | WaitTarget::Receive(name, _) => {
                Some(shard_of(name.index))
            }
            WaitTarget::AnyOf(waiter) => Some(shard_of(waiter)),
            WaitTarget::Message(pattern) => Some(shard_of(pattern.context)),
            // Told there.
            WaitTarget::Signal(_) => Some(0),
            WaitTarget::Anything
            | WaitTarget::AnyAnywhere(_)
            | WaitTarget::Stepper(_)
            | WaitTarget::Memory(_) => None,
        }
    }

    /// Returns the shard of a target at this moment: a stepper without messages ends in the first
    /// shard.
    fn current_shard_of_target(&self, awaits: WaitTarget) -> Option<usize> {
        match awaits {
            WaitTarget::Stepper(_) => (!self.first.has_steppers_with_messages()).then_some(0),
            other => Self::shard_of_target(other),
        }
    }

    /// The host of that shard; `None`: it may come in any.
    fn shard_engine(&self, awaits: WaitTarget) -> Option<(usize, &LockedEngine<R, S>)> {
        let shard = self.current_shard_of_target(awaits)?;
        Some((shard, self.known(shard)?))
    }

    /// Returns whether who waits there for what was awaited there stays.
    fn is_still_in(shard: usize, awaits: WaitTarget) -> bool {
        match awaits {
            WaitTarget::Stepper(_) => shard == 0,
            other => Self::shard_of_target(other) == Some(shard),
        }
    }

    /// Returns what is awaited, as the host of its shard knows it.
    fn to_shard_target(awaits: WaitTarget) -> WaitTarget {
        let inside = |name: Request| Request {
            index: without_shard(name.index),
            ..name
        };
        match awaits {
            WaitTarget::Operation(name) => WaitTarget::Operation(inside(name)),
            WaitTarget::Receive(name, pattern) => WaitTarget::Receive(inside(name), pattern),
            WaitTarget::AnyOf(waiter) => WaitTarget::AnyOf(without_shard(waiter)),
            other => other,
        }
    }
}

/// Adds the shard to the names of what is watched.
#[derive(Debug)]
struct ShardTagger {
    watcher: Arc<dyn OperationTracer>,
    shard: u64,
}

fn tagged(shard: usize, watcher: &Arc<dyn OperationTracer>) -> Arc<dyn OperationTracer> {
    Arc::new(ShardTagger {
        watcher: watcher.clone(),
        shard: u64::from(in_shard(shard, 0)),
    })
}

impl OperationTracer for ShardTagger {
    fn now(&self) -> u64 {
        self.watcher.now()
    }

    fn started(&self, operation: &TracedOperation) {
        let name = operation.name | self.shard;
        self.watcher
            .started(&TracedOperation { name, ..*operation });
    }

    fn over(&self, operation: &TracedOperation) {
        let name = operation.name | self.shard;
        self.watcher.over(&TracedOperation { name, ..*operation });
    }

    fn moved(&self, name: u64, peer: Option<Peer>, bytes: u64, since: u64) {
        self.watcher.moved(name | self.shard, peer, bytes, since);
    }

    fn collective(&self, context: ContextId, tag: i32) {
        self.watcher.collective(context, tag);
    }
}

impl<R: Transport + std::marker::Send, S: Environment> NodeShared for ShardedEngine<R, S> {
    fn coll_heap(&self, owner: Peer) -> Option<Segment> {
        self.first.coll_heap(owner)
    }

    fn memory_spins(&self) -> u32 {
        self.first.memory_spins()
    }

    fn doorbell(&self, peer: Peer) -> Option<Segment> {
        self.first.doorbell(peer)
    }

    fn progress_wakeup_words(&self, peer: Peer) -> Option<Segment> {
        self.first.progress_wakeup_words(peer)
    }

    fn can_read(&self, peer: Peer) -> bool {
        self.first.can_read(peer)
    }

    fn expose(&self, name: BulkToken, data: &Data) -> Option<RegionDescriptor> {
        self.first.expose(name, data)
    }

    fn revoke(&self, name: BulkToken) {
        self.first.revoke(name);
    }

    fn read_exposed(&self, bulk: BulkTransfer<'_>) -> Result<(), Error> {
        self.first.read_exposed(bulk)
    }

    fn note_external_wait(&self, context: ContextId, meeting: Option<ExternalWait>) {
        if let Ok(host) = self.engine_of(context) {
            host.note_external_wait(context, meeting);
        }
    }
}

impl<R, S> Messaging for ShardedEngine<R, S>
where
    R: Transport + std::marker::Send + 'static,
    S: Environment + 'static,
{
    fn me(&self) -> Peer {
        self.first.me()
    }

    fn world_size(&self) -> u32 {
        self.first.world_size()
    }

    fn shards(&self) -> usize {
        self.count
    }

    fn send(&self, send: SendArgs) -> Result<StartOutcome, Error> {
        let shard = shard_of(send.context);
        let started = self.engine_of(send.context)?.send(send)?;
        Ok(with_shard_index(shard, started))
    }

    fn recv(&self, recv: RecvArgs) -> Result<StartOutcome, Error> {
        let context = recv.pattern.context;
        let started = self.engine_of(context)?.recv(recv)?;
        Ok(with_shard_index(shard_of(context), started))
    }

    fn probe(&self, pattern: Pattern) -> Result<Option<Status>, Error> {
        self.engine_of(pattern.context)?.probe(pattern)
    }

    fn mprobe(&self, pattern: Pattern) -> Result<Option<(Message, Status)>, Error> {
        let found = self.engine_of(pattern.context)?.mprobe(pattern)?;
        let shard = shard_of(pattern.context);
        Ok(found.map(|(message, status)| {
            let index = in_shard(shard, message.index);
            (Message { index, ..message }, status)
        }))
    }

    fn mrecv(
        &self,
        message: Message,
        data: Data,
        origin: CallOrigin,
    ) -> Result<StartOutcome, Error> {
        let (host, index) = self.of(message.index)?;
        let started = host.mrecv(Message { index, ..message }, data, origin)?;
        Ok(with_shard_index(shard_of(message.index), started))
    }

    fn cancel(&self, request: Request) -> Result<(), Error> {
        let (host, name) = self.split_request(request)?;
        host.cancel(name)
    }

    fn peek(&self, request: Request) -> Result<Option<Status>, Error> {
        let (host, name) = self.split_request(request)?;
        host.peek(name)
    }

    fn take(&self, request: Request) -> Result<Option<Status>, Error> {
        let (host, name) = self.split_request(request)?;
        host.take(name)
    }

    fn abandon(&self, request: Request) -> Result<(), Error> {
        let (host, name) = self.split_request(request)?;
        host.abandon(name)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        self.first.abort(code, message)
    }

    fn wtime(&self) -> f64 {
        self.first.wtime()
    }
}

impl<R, S> FastMessaging for ShardedEngine<R, S>
where
    R: Transport + std::marker::Send + 'static,
    S: Environment + 'static,
{
    #[inline]
    fn send_small(&self, small: &FastSend) -> bool {
        self.engine_of(small.context)
            .is_ok_and(|host| host.send_small(small))
    }

    fn fast_recv(&self, catch: &FastRecv) -> Option<ReceivedMessage> {
        self.engine_of(catch.context).ok()?.fast_recv(catch)
    }

    fn offer_early_rtr(&self, name: Request) {
        if let Ok((host, name)) = self.split_request(name) {
            FastMessaging::offer_early_rtr(host, name);
        }
    }
}

impl<R, S> Waiting for ShardedEngine<R, S>
where
    R: Transport + std::marker::Send + 'static,
    S: Environment + 'static,
{
    fn completed_at(&self, request: Request) -> Option<u64> {
        // Shards count for themselves: of operations of several the standard lets any be first.
        let (host, name) = self.split_request(request).ok()?;
        host.completed_at(name)
    }

    fn completions(&self, context: ContextId) -> u64 {
        self.engine_of(context)
            .map_or(0, |host| host.completions(context))
    }

    fn progress(&self) -> bool {
        let mut moved = false;
        for host in self.all() {
            moved |= host.progress();
        }
        moved
    }

    fn yield_core(&self, context: ContextId) -> bool {
        self.engine_of(context)
            .is_ok_and(|host| host.yield_core(context))
    }

    fn share_a_shard(&self, one: WaitTarget, other: WaitTarget) -> bool {
        Self::shard_of_target(one).is_some_and(|shard| Self::shard_of_target(other) == Some(shard))
    }

    fn progress_for(&self, awaits: WaitTarget) -> bool {
        let home = self.shard_engine(awaits);
        home.map_or_else(
            || self.progress_for_test(),
            |(_, host)| host.progress_for_test(),
        )
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        self.wait_for(&|| WaitTarget::Anything, done);
    }

    fn wait_for(&self, awaits: &dyn Fn() -> WaitTarget, done: &mut dyn FnMut() -> bool) {
        let mut over = false;
        while !over {
            let Some((shard, host)) = self.shard_engine(awaits()) else {
                let _told = self.shards.any_shard_waits();
                // Who polls there already may sleep, and not know that it is to see to all.
                self.first.note_any_shard_wait();
                let here = || match awaits() {
                    known @ (WaitTarget::Stepper(_) | WaitTarget::AnyAnywhere(_)) => known,
                    _ => WaitTarget::Anything,
                };
                self.first.wait_for(&here, &mut || {
                    over = done();
                    over || self.shard_engine(awaits()).is_some()
                });
                continue;
            };
            // Until what is awaited next is elsewhere.
            host.wait_for(&|| Self::to_shard_target(awaits()), &mut || {
                over = done();
                over || !Self::is_still_in(shard, awaits())
            });
        }
    }

    fn register_any_of(&self, parts: &mut dyn Iterator<Item = WaitTarget>) -> WaitTarget {
        let parts: SmallVec<[WaitTarget; ANY_OF_FEW]> = parts.collect();
        // What is told is told everywhere.
        let is_bound = |part: &&WaitTarget| !matches!(part, WaitTarget::Signal(_));
        let mut shards = parts
            .iter()
            .filter(is_bound)
            .map(|part| self.current_shard_of_target(*part));
        let shard = shards.next().unwrap_or(Some(0));
        if let Some((shard, host)) = shard.and_then(|shard| Some((shard, self.known(shard)?)))
            && shards.all(|other| other == Some(shard))
        {
            return match host
                .register_any_of(&mut parts.iter().map(|part| Self::to_shard_target(*part)))
            {
                WaitTarget::AnyOf(waiter) => WaitTarget::AnyOf(in_shard(shard, waiter)),
                other => other,
            };
        }
        // Each shard notes its own, and tells the first, in which steppers end.
        for part in &parts {
            let noted = match (part, self.shard_engine(*part)) {
                (WaitTarget::Operation(_), Some((_, host))) => {
                    host.register_any_of(&mut std::iter::once(Self::to_shard_target(*part)))
                }
                (WaitTarget::Stepper(_) | WaitTarget::Signal(_), _) => continue,
                _ => WaitTarget::Anything,
            };
            if noted == WaitTarget::Anything {
                return noted;
            }
        }
        WaitTarget::AnyAnywhere(current_waiter())
    }

    fn signal(&self, awaits: WaitTarget, waiter: &AnyOfWaiter) {
        match awaits {
            WaitTarget::Stepper(_) => self.first.signal(awaits, waiter),
            _ => self.all().for_each(|host| host.signal(awaits, waiter)),
        }
    }

    fn wait_for_memory(&self, come: &mut (dyn FnMut() -> bool + std::marker::Send)) {
        self.first.wait_for_memory(come);
    }

    fn is_single_threaded(&self) -> bool {
        self.first.is_single_threaded()
    }

    fn wake(&self) {
        self.first.wake();
    }
}

impl<R, S> BackgroundWork for ShardedEngine<R, S>
where
    R: Transport + std::marker::Send + 'static,
    S: Environment + 'static,
{
    fn attach_stepper(&self, stepper: Arc<dyn Stepper>) {
        self.first.attach_stepper(stepper);
    }

    fn attach_awaited_stepper(&self, stepper: Arc<dyn Stepper>) {
        self.first.attach_awaited_stepper(stepper);
    }

    fn leave_pending(&self, request: Request) {
        let (shard, index) = (shard_of(request.index), without_shard(request.index));
        let name = Request { index, ..request };
        match (shard, self.more.get(shard).and_then(OnceLock::get)) {
            (0, _) => self.first.leave_pending(name),
            (_, Some(host)) => self.first.leave_open_in_other_shard(host, name),
            _ => {}
        }
    }
}

impl<R, S> CommunicatorSupport for ShardedEngine<R, S>
where
    R: Transport + std::marker::Send + 'static,
    S: Environment + 'static,
{
    fn publish_communicator(&self, number: u32, known: &CommunicatorInfo<'_>) {
        self.first.publish_communicator(number, known);
    }

    fn forget_contexts(&self, contexts: Range<ContextId>) {
        if let Some(host) = self.known(shard_of(contexts.start)) {
            host.forget_contexts(contexts);
        }
    }

    fn prioritise(&self, contexts: Range<ContextId>, priority: Priority) -> Result<(), Error> {
        self.engine_of(contexts.start)?
            .prioritise(contexts, priority)
    }

    fn watch_context(&self, contexts: Range<ContextId>, members: Arc<dyn ContextMembers>) {
        if let Ok(host) = self.engine_of(contexts.start) {
            host.watch_context(contexts, members);
        }
    }

    fn revoke_contexts(
        &self,
        contexts: Range<ContextId>,
        members: &dyn ContextMembers,
    ) -> Result<(), Error> {
        self.engine_of(contexts.start)?
            .revoke_contexts(contexts, members)
    }

    fn is_revoked(&self, first: ContextId) -> bool {
        self.known(shard_of(first))
            .is_some_and(|host| host.is_revoked(first))
    }

    fn lost_peers(&self) -> Vec<Peer> {
        let known = (0..self.count).filter_map(|shard| self.known(shard));
        known.flat_map(|host| host.lost_peers()).collect()
    }

    fn acknowledge_losses(&self, first: ContextId) {
        if let Some(host) = self.known(shard_of(first)) {
            host.acknowledge_losses(first);
        }
    }

    fn contexts_in_use(&self) -> ContextsInUse {
        let known = (0..self.count).filter_map(|shard| self.known(shard));
        known.fold(ContextsInUse::default(), |all, host| {
            all.and(host.contexts_in_use())
        })
    }
}

impl<R: Transport + std::marker::Send, S: Environment> RegionMessaging for ShardedEngine<R, S> {
    fn register_region(&self, memory: RegionMemory) -> Result<RegionKey, Error> {
        self.first.register_region(memory)
    }

    fn deregister_region(&self, key: &RegionKey) -> Result<StartOutcome, Error> {
        self.first.deregister_region(key)
    }

    fn access_region(
        &self,
        peer: Peer,
        key: &RegionKey,
        call: RegionCall,
    ) -> Result<StartOutcome, Error> {
        self.first.access_region(peer, key, call)
    }
}

impl<R, S> Diagnosis for ShardedEngine<R, S>
where
    R: Transport + std::marker::Send + 'static,
    S: Environment + 'static,
{
    fn pending(&self, name: Request) -> Option<PendingOperation> {
        let (host, name) = self.split_request(name).ok()?;
        host.pending(name)
    }

    fn tracer(&self) -> Option<Arc<dyn OperationTracer>> {
        self.first.tracer()
    }

    fn process_of(&self, peer: Peer) -> Option<u32> {
        self.first.process_of(peer)
    }

    fn possible_senders(&self, sent: &SentMessage) -> Option<PossibleSenders> {
        // The ring of events that others can read is that of the first shard.
        (shard_of(sent.context) == 0).then(|| self.first.possible_senders(sent))?
    }
}
