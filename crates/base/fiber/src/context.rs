//! A fiber: a stack with registers, a name, a place of the machine, and whoever waits for its end.
//!
//! [`Fiber`] is shared by handles, queues and waits. [`Runnable`] is the right to run it, of which
//! there is one: a worker or a run queue has it, or nobody while the fiber is parked.

mod sys;

pub use sys::on_worker_stack;
pub(crate) use sys::{
    SwitchRequest, address_of_thread, bare_switches, current, keeping_errno, with_current,
};

use crate::borrowed_stack::BorrowedStack;
use crate::identity::Identity;
use crate::keypoint::WaiterPlace;
use crate::local::Locals;
use crate::park_state::ParkState;
use crate::scheduler::Scheduler;
use crate::stack::{StackMemory, StackPool};
use crate::wait_queue::WaitQueue;
use crate::{Priority, limits};
use garonne_sync::mutex::lock;
use garonne_sync::waiter_seam::EnteredPlace;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use sys::Context;

/// Stacks of all fibers of the process.
pub(crate) static STACKS: StackPool = StackPool::new();

/// Address of the guard of a stack that has another one's guard: no fault is there.
const NO_GUARD: usize = usize::MAX - limits::GUARD_BYTES;

/// Place of a fiber that may run anywhere: no area has this number.
pub(crate) const ANYWHERE: usize = usize::MAX;

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Fiber {
    pub(crate) context: Context,
    pub(crate) park: ParkState,
    /// Word of the wait that the fiber is in: 0 until somebody ends it.
    pub(crate) signal: AtomicU32,
    /// Area inside which the fiber runs, or [`ANYWHERE`].
    pub(crate) place: AtomicUsize,
    /// Values that keep the fiber on its core: it does not migrate while there is one.
    pub(crate) pins: AtomicU32,
    pub(crate) priority: Priority,
    /// Number by which the guest scheduler knows it, or `NO_GUEST`.
    pub(crate) guest_number: AtomicU64,
    pub(crate) scheduler: Arc<Scheduler>,
    pub(crate) locals: Mutex<Locals>,
    pub(crate) ended: AtomicBool,
    pub(crate) joiners: WaitQueue,
    pub(crate) waiter: WaiterPlace,
    /// What it is towards the C library; `None`: the thread of its worker.
    identity: Option<Identity>,
    name: Mutex<Option<Box<str>>>,
    /// Addresses of the guard.
    pub(crate) guard: usize,
    /// Core that ran it last.
    pub(crate) core: AtomicUsize,
}

impl Fiber {
    /// Time in ns that it may run without a switch while others are ready. Compiled code, which
    /// has an identity, may wait by spinning.
    pub(crate) fn patience(&self) -> u64 {
        match (&self.identity, self.context.borrowed()) {
            (None, _) => u64::MAX,
            (Some(_), None) => limits::PATIENCE_WITH_IDENTITIES,
            (Some(_), Some(_)) => limits::PATIENCE_WITH_THREADS,
        }
    }

    pub(crate) fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// A thread of the C library. Nobody has the right to run it: its kernel thread does.
    pub(crate) fn of_thread(
        scheduler: Arc<Scheduler>,
        stack: BorrowedStack,
        identity: Identity,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Context::on_borrowed(stack),
            park: ParkState::new(),
            signal: AtomicU32::new(0),
            place: AtomicUsize::new(ANYWHERE),
            pins: AtomicU32::new(0),
            priority: Priority::Normal,
            guest_number: AtomicU64::new(crate::guest::NO_GUEST),
            scheduler,
            locals: Mutex::new(Locals::default()),
            ended: AtomicBool::new(false),
            joiners: WaitQueue::new(),
            waiter: WaiterPlace::default(),
            identity: Some(identity),
            name: Mutex::new(None),
            guard: NO_GUARD,
            core: AtomicUsize::new(ANYWHERE),
        })
    }

    pub(crate) fn name(&self) -> Option<String> {
        lock(&self.name).as_deref().map(str::to_owned)
    }

    pub(crate) fn set_name(&self, name: &str) {
        *lock(&self.name) = Some(name.into());
    }

    /// The name for a signal handler: none if somebody changes it just now.
    pub(crate) fn with_name_now(&self, body: impl FnOnce(&str)) {
        match self.name.try_lock() {
            Ok(name) => body(name.as_deref().unwrap_or("without a name")),
            Err(_) => body("without a name"),
        }
    }

    /// Tells whether a worker of this core may run it.
    pub(crate) fn may_run_on(&self, core: usize) -> bool {
        if self.pins.load(Ordering::Relaxed) != 0 {
            return self.core.load(Ordering::Relaxed) == core;
        }
        let place = self.place.load(Ordering::Relaxed);
        place == ANYWHERE || self.scheduler.tree.path(core).any(|area| area == place)
    }

    /// Parks the fiber, which calls this, until it is unparked. May return early.
    pub(crate) fn park(&self) {
        if self.park.take_permit() {
            return;
        }
        if std::thread::panicking() {
            // A panic is counted by threads: a fiber that unwinds stays where it is.
            std::thread::yield_now();
            return;
        }
        self.context.suspend(SwitchRequest::Park);
    }

    /// Lets others run, on behalf of this fiber, which calls this.
    pub(crate) fn yield_now(&self) {
        if !std::thread::panicking() {
            self.context.suspend(SwitchRequest::Yield);
        }
    }

    /// Ends the fiber, which calls this, without dropping what is on its stack.
    pub(crate) fn exit(&self) -> ! {
        self.context.suspend(SwitchRequest::Exit);
        unreachable!("nobody resumes a fiber that has ended")
    }

    /// Queues the fiber if it is parked; its next park returns at once if it is not.
    pub(crate) fn unpark(self: &Arc<Self>) {
        if self.park.unpark() {
            self.scheduler.queue(Runnable(self.clone()));
        }
    }
}

/// The right to run a fiber.
#[derive(Debug)]
pub(crate) struct Runnable(Arc<Fiber>);

impl Runnable {
    /// A new fiber, and the right to run it.
    #[allow(clippy::too_many_arguments, reason = "attributes of one thing")]
    pub(crate) fn new(
        scheduler: Arc<Scheduler>,
        stack: StackMemory,
        name: Option<Box<str>>,
        place: usize,
        priority: Priority,
        identity: Option<Identity>,
        body: Box<dyn FnOnce() + Send>,
    ) -> Self {
        let guard = stack.guard();
        Self(Arc::new(Fiber {
            context: Context::new(stack, body),
            park: ParkState::new(),
            signal: AtomicU32::new(0),
            place: AtomicUsize::new(place),
            pins: AtomicU32::new(0),
            priority,
            guest_number: AtomicU64::new(crate::guest::NO_GUEST),
            scheduler,
            locals: Mutex::new(Locals::default()),
            ended: AtomicBool::new(false),
            joiners: WaitQueue::new(),
            waiter: WaiterPlace::default(),
            identity,
            name: Mutex::new(name),
            guard,
            core: AtomicUsize::new(ANYWHERE),
        }))
    }

    /// The right to run a thread of the C library, which its kernel thread gives away.
    pub(crate) fn of_thread(fiber: Arc<Fiber>) -> Self {
        Self(fiber)
    }

    /// Gives the right to run a thread of the C library back to its kernel thread.
    pub(crate) fn bind(self) {
        if let Some(stack) = self.0.context.borrowed() {
            stack.call_kernel_thread();
        }
    }

    pub(crate) fn fiber(&self) -> &Arc<Fiber> {
        &self.0
    }

    /// Number by which the guest scheduler knows it.
    #[inline]
    pub(crate) fn guest_number(&self) -> Option<u64> {
        let number = self.0.guest_number.load(Ordering::Relaxed);
        (number != crate::guest::NO_GUEST).then_some(number)
    }

    /// Runs the fiber on the calling thread until it leaves its stack. `None`: it has ended.
    pub(crate) fn run(self) -> Option<(Self, SwitchRequest)> {
        let request = match &self.0.identity {
            None => self.turn(),
            Some(identity) => {
                if let Some(stack) = self.0.context.borrowed() {
                    stack.await_leave();
                }
                let (worker, mut request) = (crate::runtime::worker(), None);
                identity.act_as(&mut || {
                    crate::runtime::set_worker(worker);
                    request = self.turn_of_identity();
                });
                request
            }
        };
        match request {
            Some(SwitchRequest::Exit) | None => {
                self.end();
                None
            }
            Some(request) => Some((self, request)),
        }
    }

    #[inline]
    fn turn(&self) -> Option<SwitchRequest> {
        let mut place = EnteredPlace::new();
        let _entered = crate::keypoint::enter(&self.0, &mut place);
        sys::as_current(&self.0, || self.0.context.resume())
    }

    /// A turn with another thread pointer than before.
    #[inline(never)]
    fn turn_of_identity(&self) -> Option<SwitchRequest> {
        self.turn()
    }

    /// Parks the fiber, which asked for it. `Some`: it was unparked meanwhile.
    pub(crate) fn settle(self) -> Option<Self> {
        // After a successful settle another worker may run the fiber.
        if self.0.park.settle() {
            None
        } else {
            Some(self)
        }
    }

    /// Ends a fiber that never ran: its function is dropped without being called.
    pub(crate) fn discard(self) {
        self.0.context.drop_function();
        self.end();
    }

    /// The fiber has ended: its stack serves the next, and whoever joins it goes on.
    fn end(self) {
        if let Some(stack) = self.0.context.take_stack() {
            STACKS.give_back(stack);
        }
        self.0.scheduler.fiber_ended(self.guest_number());
        self.0.joiners.close(&self.0.ended);
    }
}

/// Tells whether an address lies in the guard of a stack that begins with it.
pub(crate) fn is_in_guard(guard: usize, address: usize) -> bool {
    (guard..guard + limits::GUARD_BYTES).contains(&address)
}
