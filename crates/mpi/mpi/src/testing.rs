//! Jobs for this crate's tests, over the real engine and over a naive model of it: ranks are
//! threads, one lock guards everything, matching is a linear search. The model is independent of
//! the engine, so that a disagreement between the two shows a mistake in one of them.

use crate::comm::Comm;
use crate::process::{HwResource, Process, ProcessConfig, ThreadLevel};
use garonne_engine::CreditQuotas;
use garonne_engine::api::*;
use garonne_engine::engine::Engine;
use garonne_progress::audit::MessageAudit;
use garonne_progress::environment::Environment;
use garonne_progress::locked_engine::LockedEngine;
use garonne_progress::messaging::{
    BackgroundWork, CommunicatorSupport, Diagnosis, FastMessaging, Messaging, NodeShared,
    RegionMessaging, Stepper, Waiting,
};
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sync::user::{Data, UserMem};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

struct NaiveNet {
    state: Mutex<NaiveState>,
    moved: Condvar,
}

struct NaiveState {
    ranks: Vec<NaiveRank>,
    /// Rises with every change, so that waiters notice.
    version: u64,
}

#[derive(Default)]
struct NaiveRank {
    unexpected: VecDeque<NaiveMessage>,
    posted: VecDeque<NaiveReceive>,
    requests: HashMap<u32, Option<Status>>,
    taken: HashMap<u32, NaiveMessage>,
    next: u32,
}

struct NaiveMessage {
    from: Peer,
    context: ContextId,
    source: u32,
    tag: i32,
    bytes: Vec<u8>,
    /// The sender's request to complete when this is matched.
    sync: Option<u32>,
}

struct NaiveReceive {
    pattern: Pattern,
    data: Data,
    name: u32,
}

fn accepts(pattern: &Pattern, parcel: &NaiveMessage) -> bool {
    pattern.context == parcel.context
        && pattern
            .source
            .is_none_or(|source| source.rank == parcel.source && source.peer == parcel.from)
        && pattern.tag.is_none_or(|tag| tag == parcel.tag)
}

/// One rank's view of the net.
pub(crate) struct NaiveHost {
    net: Arc<NaiveNet>,
    me: Peer,
    steppers: Mutex<Vec<Arc<dyn Stepper>>>,
}

impl NaiveHost {
    fn state(&self) -> MutexGuard<'_, NaiveState> {
        self.net
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn changed(&self, state: &mut NaiveState) {
        state.version += 1;
        self.net.moved.notify_all();
    }
}

fn deliver(state: &mut NaiveState, to: Peer, parcel: NaiveMessage, data: &Data) -> Status {
    let len = parcel.bytes.len() as u64;
    let fits = (len.min(data.len)) as usize;
    data.unpack(0, &parcel.bytes[..fits]);
    if let Some(name) = parcel.sync {
        state.ranks[parcel.from as usize].requests.insert(
            name,
            Some(Status {
                source: 0,
                tag: 0,
                len: 0,
                cancelled: false,
                error: None,
            }),
        );
    }
    let error = (len > data.len).then(|| {
        Error::Truncated(Box::new(MessageMismatch {
            sent: len,
            room: data.len,
            peer: parcel.from,
            sequence: 0,
            origin: CallOrigin::default(),
        }))
    });
    let _ = to;
    Status {
        source: parcel.source,
        tag: parcel.tag,
        len: fits as u64,
        cancelled: false,
        error,
    }
}

impl NodeShared for NaiveHost {}

impl RegionMessaging for NaiveHost {}

impl MessageAudit for NaiveHost {}

impl Messaging for NaiveHost {
    fn me(&self) -> Peer {
        self.me
    }

    fn world_size(&self) -> u32 {
        self.state().ranks.len() as u32
    }

    fn send(&self, send: SendArgs) -> Result<StartOutcome, Error> {
        let mut bytes = vec![0; send.data.len as usize];
        send.data.pack(0, &mut bytes);
        let mut state = self.state();
        let mine = &mut state.ranks[self.me as usize];
        let sync = (send.mode == SendCompletion::Synchronous).then(|| {
            mine.next += 1;
            mine.requests.insert(mine.next, None);
            mine.next
        });
        let parcel = NaiveMessage {
            from: self.me,
            context: send.context,
            source: send.source,
            tag: send.tag,
            bytes,
            sync,
        };
        let peer = &mut state.ranks[send.peer as usize];
        match peer
            .posted
            .iter()
            .position(|posted| accepts(&posted.pattern, &parcel))
        {
            Some(at) => {
                let posted = peer.posted.remove(at).unwrap();
                let status = deliver(&mut state, send.peer, parcel, &posted.data);
                state.ranks[send.peer as usize]
                    .requests
                    .insert(posted.name, Some(status));
            }
            None => peer.unexpected.push_back(parcel),
        }
        self.changed(&mut state);
        Ok(match sync {
            Some(index) => StartOutcome::Pending(Request {
                index,
                generation: 0,
            }),
            None => StartOutcome::Done(Status {
                source: 0,
                tag: 0,
                len: 0,
                cancelled: false,
                error: None,
            }),
        })
    }

    fn recv(&self, recv: RecvArgs) -> Result<StartOutcome, Error> {
        let mut state = self.state();
        let mine = &mut state.ranks[self.me as usize];
        if let Some(at) = mine
            .unexpected
            .iter()
            .position(|parcel| accepts(&recv.pattern, parcel))
        {
            let parcel = mine.unexpected.remove(at).unwrap();
            let status = deliver(&mut state, self.me, parcel, &recv.data);
            self.changed(&mut state);
            return Ok(StartOutcome::Done(status));
        }
        mine.next += 1;
        let name = mine.next;
        mine.requests.insert(name, None);
        mine.posted.push_back(NaiveReceive {
            pattern: recv.pattern,
            data: recv.data,
            name,
        });
        Ok(StartOutcome::Pending(Request {
            index: name,
            generation: 0,
        }))
    }

    fn probe(&self, pattern: Pattern) -> Result<Option<Status>, Error> {
        let state = self.state();
        let found = state.ranks[self.me as usize]
            .unexpected
            .iter()
            .find(|parcel| accepts(&pattern, parcel));
        Ok(found.map(|parcel| Status {
            source: parcel.source,
            tag: parcel.tag,
            len: parcel.bytes.len() as u64,
            cancelled: false,
            error: None,
        }))
    }

    fn mprobe(&self, pattern: Pattern) -> Result<Option<(Message, Status)>, Error> {
        let Some(status) = self.probe(pattern)? else {
            return Ok(None);
        };
        let mut state = self.state();
        let mine = &mut state.ranks[self.me as usize];
        let at = mine
            .unexpected
            .iter()
            .position(|parcel| accepts(&pattern, parcel))
            .unwrap();
        let parcel = mine.unexpected.remove(at).unwrap();
        mine.next += 1;
        mine.taken.insert(mine.next, parcel);
        Ok(Some((
            Message {
                index: mine.next,
                generation: 0,
            },
            status,
        )))
    }

    fn mrecv(&self, message: Message, data: Data, _: CallOrigin) -> Result<StartOutcome, Error> {
        let mut state = self.state();
        let parcel = state.ranks[self.me as usize]
            .taken
            .remove(&message.index)
            .ok_or(Error::Misuse("stale message"))?;
        let status = deliver(&mut state, self.me, parcel, &data);
        self.changed(&mut state);
        Ok(StartOutcome::Done(status))
    }

    fn cancel(&self, request: Request) -> Result<(), Error> {
        let mut state = self.state();
        let mine = &mut state.ranks[self.me as usize];
        if let Some(at) = mine
            .posted
            .iter()
            .position(|posted| posted.name == request.index)
        {
            mine.posted.remove(at);
            let status = Status {
                source: 0,
                tag: 0,
                len: 0,
                cancelled: true,
                error: None,
            };
            mine.requests.insert(request.index, Some(status));
        }
        self.changed(&mut state);
        Ok(())
    }

    fn peek(&self, request: Request) -> Result<Option<Status>, Error> {
        self.state().ranks[self.me as usize]
            .requests
            .get(&request.index)
            .cloned()
            .ok_or(Error::Misuse("stale request"))
    }

    fn take(&self, request: Request) -> Result<Option<Status>, Error> {
        let status = self.peek(request)?;
        if status.is_some() {
            self.state().ranks[self.me as usize]
                .requests
                .remove(&request.index);
        }
        Ok(status)
    }

    fn abandon(&self, _: Request) -> Result<(), Error> {
        Ok(())
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        panic!("aborted with {code}: {message}")
    }

    fn wtime(&self) -> f64 {
        0.0
    }
}

impl FastMessaging for NaiveHost {}

impl Waiting for NaiveHost {
    fn completed_at(&self, request: Request) -> Option<u64> {
        // The model does not keep the order of completions: any answer of a complete request is
        // legal.
        matches!(self.peek(request), Ok(Some(_))).then_some(0)
    }

    fn completions(&self, _context: ContextId) -> u64 {
        0
    }

    fn progress(&self) -> bool {
        let steppers = std::mem::take(&mut *self.steppers.lock().unwrap());
        let count = steppers.len();
        let rest: Vec<_> = steppers
            .into_iter()
            .filter(|stepper| !stepper.step(self))
            .collect();
        let moved = rest.len() < count;
        self.steppers.lock().unwrap().extend(rest);
        if moved {
            self.wake();
        }
        moved
    }

    fn wait_until(&self, done: &mut dyn FnMut() -> bool) {
        loop {
            let seen = self.state().version;
            if done() {
                return;
            }
            self.progress();
            if done() {
                return;
            }
            let state = self.state();
            if state.version == seen {
                let (state, late) = self
                    .net
                    .moved
                    .wait_timeout(state, Duration::from_secs(120))
                    .unwrap();
                drop(state);
                assert!(!late.timed_out(), "rank {} waits for ever", self.me);
            }
        }
    }

    fn wake(&self) {
        self.changed(&mut self.state());
    }
}

impl BackgroundWork for NaiveHost {
    fn attach_stepper(&self, stepper: Arc<dyn Stepper>) {
        if !stepper.step(self) {
            self.steppers.lock().unwrap().push(stepper);
        }
    }
}

impl CommunicatorSupport for NaiveHost {}

impl Diagnosis for NaiveHost {}

/// Runs `program` as a job of `size` ranks between init and finalize, over the naive model and then
/// over the real engine; panics if any rank does.
pub(crate) fn job(size: u32, program: impl Fn(Comm) + Sync + std::marker::Send) {
    std::thread::scope(|scope| {
        for host in hosts(size) {
            let program = &program;
            scope.spawn(move || rank(host, program));
        }
    });
    garonne_sim::threads(size, |host| rank(host, &program));
}

thread_local! {
    static RESOURCES: RefCell<Vec<HwResource>> = const { RefCell::new(Vec::new()) };
}

/// Has the calling rank find these hardware resources on its machine.
pub(crate) fn set_resources(resources: Vec<HwResource>) {
    RESOURCES.set(resources);
}

fn rank(host: Arc<dyn Messaging>, program: &impl Fn(Comm)) {
    let process = Process::new(ProcessConfig {
        resources: || RESOURCES.with_borrow(Vec::clone),
        ..ProcessConfig::plain(host)
    });
    process.init(ThreadLevel::Multiple).unwrap();
    program(process.world().unwrap());
    process.finalize().unwrap();
    assert_eq!(process.users(), 0);
}

/// Runs `program` on every rank of a job over the real engine only, for what the model leaves open.
pub(crate) fn engine_job(size: u32, program: impl Fn(Comm) + Sync + std::marker::Send) {
    garonne_sim::threads(size, |host| rank(host, &program));
}

/// Hosts of `size` connected ranks.
pub(crate) fn hosts(size: u32) -> Vec<Arc<NaiveHost>> {
    let ranks = (0..size).map(|_| NaiveRank::default()).collect();
    let net = Arc::new(NaiveNet {
        state: Mutex::new(NaiveState { ranks, version: 0 }),
        moved: Condvar::new(),
    });
    (0..size)
        .map(|me| {
            Arc::new(NaiveHost {
                net: net.clone(),
                me,
                steppers: Mutex::default(),
            })
        })
        .collect()
}

/// Runs `program` as the only rank, over the real engine and its transport, in these surroundings.
pub(crate) fn alone(surroundings: impl Environment + 'static, program: impl FnOnce(&Comm)) {
    let neighbours = ThreadPeers::new(1).unwrap().pop().unwrap();
    let transport = ShmTransport::new(Arc::new(neighbours)).unwrap();
    let shard = Engine::new(transport, 0, 1, CreditQuotas::for_world(1));
    let host = LockedEngine::new(shard, 0, 1, surroundings);
    let process = Process::new(ProcessConfig::plain(Arc::new(host)));
    process.init(ThreadLevel::Multiple).unwrap();
    program(&process.world().unwrap());
    process.finalize().unwrap();
}

/// Memory for one test's message, kept by the test.
pub(crate) struct TestBytes(garonne_sync::user::Scratch);

impl TestBytes {
    pub fn new(len: usize) -> Self {
        Self(garonne_sync::user::Scratch::new(len).unwrap())
    }

    pub fn of(bytes: &[u8]) -> Self {
        let new = Self::new(bytes.len());
        new.0.mem().write(0, bytes);
        new
    }

    pub fn data(&self) -> Data {
        Data::contiguous(self.0.mem(), self.0.len() as u64)
    }

    pub fn mem(&self) -> UserMem {
        self.0.mem()
    }

    pub fn get(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.0.len()];
        self.0.mem().read(0, &mut bytes);
        bytes
    }
}
