//! Starting fibers, waiting for their ends, and what a fiber does with itself.

use crate::context::{self, ANYWHERE, Fiber, Runnable, STACKS};
use crate::guest::ReadyFiber;
use crate::limits::STACK_DEFAULT;
use crate::wait_queue::WaitHandle;
use crate::{Identity, Place, Priority, SpawnError, local, runtime};
use garonne_sync::mutex::lock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Attributes of a fiber that is about to start.
#[derive(Debug)]
pub struct Builder {
    name: Option<Box<str>>,
    stack_size: usize,
    place: Place,
    priority: Priority,
    identity: Option<Identity>,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// What a fiber has that asks for nothing.
    pub fn new() -> Self {
        Self {
            name: None,
            stack_size: STACK_DEFAULT,
            place: Place::Machine,
            priority: Priority::Normal,
            identity: None,
        }
    }

    /// A name, for reports.
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Bytes of the stack, rounded up to a power of two.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Where it may run.
    pub fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// How urgent it is.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// What it is towards the C library, in place of its worker's thread.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Starts a fiber that runs `body`.
    pub fn spawn<T, F>(self, body: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (ready, handle) = self.prepare_with_result(body)?;
        ready.start();
        Ok(handle)
    }

    /// Makes a fiber that runs `body`, and that the caller starts, or gives to a guest scheduler.
    pub fn prepare_with_result<T, F>(
        self,
        body: F,
    ) -> Result<(ReadyFiber, JoinHandle<T>), SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let ready = self.prepare(move || {
            // A panic is the joiner's to see.
            *lock(&slot) = Some(catch_unwind(AssertUnwindSafe(body)));
        })?;
        let fiber = ready.handle();
        Ok((ready, JoinHandle { fiber, result }))
    }

    /// Starts a fiber whose end alone is of interest. A panic in `body` ends it, and is lost.
    pub fn start(self, body: impl FnOnce() + Send + 'static) -> Result<FiberHandle, SpawnError> {
        let ready = self.prepare(body)?;
        let handle = ready.handle();
        ready.start();
        Ok(handle)
    }

    /// Makes a fiber as [`Builder::start`] does, which the caller starts later.
    pub fn prepare(self, body: impl FnOnce() + Send + 'static) -> Result<ReadyFiber, SpawnError> {
        let scheduler = runtime::scheduler();
        runtime::ready(&scheduler)?;
        let place = self.place.on(&scheduler.tree);
        let place = place.ok_or_else(|| SpawnError::NoPlace(self.place.to_string()))?;
        let stack = STACKS.take(self.stack_size)?;
        let body = Box::new(move || {
            let _ = catch_unwind(AssertUnwindSafe(body));
            let _ = catch_unwind(local::end_of_fiber);
        });
        let ready = Runnable::new(
            scheduler.clone(),
            stack,
            self.name,
            place,
            self.priority,
            self.identity,
            body,
        );
        scheduler.fiber_started();
        Ok(ReadyFiber(ready))
    }
}

/// A fiber, for whoever waits for its end or asks about it.
#[derive(Clone, Debug)]
pub struct FiberHandle(pub(crate) Arc<Fiber>);

impl FiberHandle {
    /// Waits for the fiber's end.
    pub fn wait(&self) {
        self.0.joiners.wait_for(&self.0.ended, None);
    }

    /// Waits for the fiber's end, at most so long; `false`: it goes on.
    pub fn wait_for(&self, limit: Duration) -> bool {
        self.0
            .joiners
            .wait_for(&self.0.ended, Some(deadline(limit)))
    }

    /// Tells whether it has ended.
    pub fn is_finished(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }

    /// Returns the fiber's name.
    pub fn name(&self) -> Option<String> {
        self.0.name()
    }

    /// Changes its name.
    pub fn set_name(&self, name: &str) {
        self.0.set_name(name);
    }

    /// Changes where it runs, from its next switch on. One that is queued goes there at once.
    pub fn set_place(&self, place: &Place) -> Result<(), SpawnError> {
        let scheduler = &self.0.scheduler;
        let area = place.on(&scheduler.tree);
        let area = area.ok_or_else(|| SpawnError::NoPlace(place.to_string()))?;
        self.0.place.store(area, Ordering::Relaxed);
        let queued = scheduler
            .queues
            .remove(|ready| Arc::ptr_eq(ready.fiber(), &self.0));
        if let Some(ready) = queued {
            scheduler.queue(ready);
        }
        Ok(())
    }

    /// Moves it to the run queue of an area, by its number in [`machine`], and keeps it inside from
    /// then on. A fiber that runs or waits goes there when it is next ready. For bubble schedulers.
    pub fn move_to(&self, area: usize) -> Result<(), SpawnError> {
        let scheduler = &self.0.scheduler;
        if area >= scheduler.tree.areas().len() {
            return Err(SpawnError::NoPlace(format!("area {area}")));
        }
        self.0.place.store(area, Ordering::Relaxed);
        let queued = scheduler
            .queues
            .remove(|ready| Arc::ptr_eq(ready.fiber(), &self.0));
        if let Some(ready) = queued {
            self.0.core.store(ANYWHERE, Ordering::Relaxed);
            scheduler.queue_at(area, ready);
        }
        Ok(())
    }

    /// Tells whether two handles name one fiber.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// A fiber whose result somebody wants. Dropped, it lets the fiber go on alone.
#[derive(Debug)]
pub struct JoinHandle<T> {
    fiber: FiberHandle,
    result: Arc<Mutex<Option<std::thread::Result<T>>>>,
}

impl<T> JoinHandle<T> {
    /// Waits for the fiber's end, and returns its result or its panic.
    pub fn join(self) -> std::thread::Result<T> {
        self.fiber.wait();
        let result = lock(&self.result).take();
        result.unwrap_or_else(|| Err(Box::new("the fiber ended without a result")))
    }

    /// The fiber.
    pub fn fiber(&self) -> &FiberHandle {
        &self.fiber
    }
}

/// Starts a fiber that runs `body`.
///
/// # Panics
/// If the system gives no memory for its stack; [`Builder::spawn`] returns an error then.
pub fn spawn<T, F>(body: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Builder::new().spawn(body) {
        Ok(handle) => handle,
        Err(error) => panic!("{error}"),
    }
}

/// The machine over which the caller's fibers run. Run queues have the numbers of its areas.
pub fn machine() -> garonne_topology::Tree {
    runtime::scheduler().tree.clone()
}

/// Number of fibers that are ready in the run queue of an area.
pub fn queued(area: usize) -> usize {
    runtime::scheduler().queues.len(area)
}

/// The fiber that calls this; `None` on a thread that runs none.
pub fn current() -> Option<FiberHandle> {
    context::current().map(FiberHandle)
}

/// A number of the fiber that calls this, or of the thread that runs none. No other one that is
/// alive has it; it is not 0.
pub fn caller() -> usize {
    let fiber =
        context::with_current(|fiber| fiber.map(|fiber| std::ptr::from_ref(fiber) as usize));
    // A thread that runs no fiber migrates nowhere, so the address of its word is its own.
    fiber.unwrap_or_else(context::address_of_thread)
}

/// Lets other fibers run.
pub fn yield_now() {
    let is_fiber = context::with_current(|fiber| fiber.map(Fiber::yield_now));
    if is_fiber.is_none() {
        std::thread::yield_now();
    }
}

/// Waits so long. A fiber's worker goes on with others.
pub fn sleep(time: Duration) {
    match context::current() {
        Some(fiber) => {
            let end = deadline(time);
            let scheduler = fiber.scheduler.clone();
            WaitHandle::current().wait_until(&scheduler, end);
        }
        None => std::thread::sleep(time),
    }
}

/// Ends the fiber that calls this, after the destructors of its keys. What is on its stack is not
/// dropped, as with `pthread_exit` in C. `false` on a thread that runs no fiber.
pub fn exit() -> bool {
    match context::current() {
        Some(fiber) => {
            local::end_of_fiber();
            drop(fiber);
            context::with_current(|fiber| fiber.map(|fiber| fiber.exit()));
            false
        }
        None => false,
    }
}

/// The time on the caller's clock after so long.
pub(crate) fn deadline(limit: Duration) -> u64 {
    let now = runtime::scheduler().now();
    now.saturating_add(limit.as_nanos().min(u128::from(u64::MAX)) as u64)
}

/// While this lives its fiber does not migrate to another core.
#[must_use = "dropping it lets the fiber migrate"]
#[derive(Debug)]
pub struct Pin(Option<Arc<Fiber>>);

/// Keeps the fiber that calls this on its core. Pins nest.
pub fn pin() -> Pin {
    let fiber = context::current();
    if let Some(fiber) = &fiber {
        fiber.pins.fetch_add(1, Ordering::Relaxed);
    }
    Pin(fiber)
}

impl Drop for Pin {
    fn drop(&mut self) {
        if let Some(fiber) = &self.0 {
            fiber.pins.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
