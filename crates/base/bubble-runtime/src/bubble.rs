//! A bubble as programs have it.

use crate::limits::PAGES_ASKED;
use crate::member::Member;
use crate::runtime::{BubbleRuntime, runtime};
use crate::{Access, AffinityKind, BubbleError, Statistics, sys};
use garonne_bubbles::{Attributes, BubbleId, Entity, FrameworkError, Machine, PlaceId, ThreadId};
use garonne_fiber::{Builder, Completion, FiberHandle, JoinHandle, Place};
use garonne_topology::CpuSet;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Attributes of a bubble that is about to be made.
#[derive(Clone, Debug, Default)]
pub struct BubbleBuilder {
    attributes: Attributes,
    place: Place,
}

impl BubbleBuilder {
    /// What a bubble has that asks for nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// A name, for reports and recordings.
    pub fn name(mut self, name: &str) -> Self {
        self.attributes.name = name.to_owned();
        self
    }

    /// How its threads belong together.
    pub fn affinity(mut self, kind: AffinityKind) -> Self {
        self.attributes.affinity = kind;
        self
    }

    /// Threads of higher priority run first; that of bubbles around is added.
    pub fn priority(mut self, priority: i32) -> Self {
        self.attributes.priority = priority;
        self
    }

    /// The area of the machine that its threads must not leave.
    pub fn place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// Makes the bubble, inside another one or by itself.
    ///
    /// # Errors
    /// The machine has no such place, or it goes beyond that of the bubble around.
    pub fn build(mut self, parent: Option<&Bubble>) -> Result<Bubble, BubbleError> {
        let runtime = match parent {
            Some(parent) => parent.runtime.clone(),
            None => runtime()?,
        };
        self.attributes.allowed = area(&self.place)?;
        let (attributes, parent) = (self.attributes, parent.map(|parent| parent.id));
        let (id, end) = runtime.change(|state| state.begin(parent, attributes))?;
        Ok(Bubble {
            runtime,
            id,
            end,
            is_open: AtomicBool::new(true),
        })
    }
}

/// The area of a place; `None`: the machine.
fn area(place: &Place) -> Result<Option<PlaceId>, BubbleError> {
    if *place == Place::Machine {
        return Ok(None);
    }
    let area = place.area(&garonne_fiber::machine());
    let area = area.ok_or_else(|| garonne_fiber::SpawnError::NoPlace(place.to_string()))?;
    Ok(Some(PlaceId(area as u32)))
}

/// A bubble. It ends when all in it has ended and nobody can put more into it: after
/// [`Bubble::join`], or when the value is dropped. Both submit a bubble that was not.
#[derive(Debug)]
pub struct Bubble {
    runtime: Arc<BubbleRuntime>,
    id: BubbleId,
    end: Arc<Completion>,
    /// More may be put into it.
    is_open: AtomicBool,
}

impl Bubble {
    /// A bubble without attributes, inside another one or by itself.
    ///
    /// # Errors
    /// The environment names a scheduler or a file that is not there.
    pub fn new(parent: Option<&Bubble>) -> Result<Self, BubbleError> {
        BubbleBuilder::new().build(parent)
    }

    /// Number of the bubble in recordings.
    pub fn number(&self) -> u32 {
        self.id.0
    }

    /// Starts a fiber in the bubble. It runs when the bubble was submitted.
    ///
    /// # Errors
    /// The bubble has ended, or there is no memory for a stack.
    pub fn spawn<T, F>(&self, builder: Builder, body: F) -> Result<JoinHandle<T>, BubbleError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (fiber, handle) = builder.prepare_with_result(body)?;
        self.take_in(fiber)?;
        Ok(handle)
    }

    /// Starts a fiber in the bubble whose end alone is of interest.
    ///
    /// # Errors
    /// The bubble has ended, or there is no memory for a stack.
    pub fn start(
        &self,
        builder: Builder,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<FiberHandle, BubbleError> {
        let fiber = builder.prepare(body)?;
        let handle = fiber.handle();
        self.take_in(fiber)?;
        Ok(handle)
    }

    fn take_in(&self, fiber: garonne_fiber::ReadyFiber) -> Result<(), BubbleError> {
        let attributes = Attributes {
            name: fiber.handle().name().unwrap_or_default(),
            ..Attributes::default()
        };
        self.runtime.add(self.id, attributes, fiber)
    }

    /// Makes a thread for each of these names and places, for fibers that come by themselves, and
    /// submits the bubble if nobody has.
    ///
    /// # Errors
    /// The bubble has ended, or the machine has no such place.
    pub fn expect<'a>(
        &self,
        threads: impl IntoIterator<Item = (&'a str, &'a Place)>,
    ) -> Result<Vec<Member>, BubbleError> {
        let mut wanted = Vec::new();
        for (name, place) in threads {
            wanted.push(Attributes {
                name: name.to_owned(),
                allowed: area(place)?,
                ..Attributes::default()
            });
        }
        let made = self.runtime.change(|state| {
            let mut made = Vec::with_capacity(wanted.len());
            for attributes in wanted {
                match state.framework.add_thread(Some(self.id), attributes) {
                    Ok(thread) => made.push(thread),
                    Err(error) => {
                        made.into_iter().for_each(|thread| drop(state.end(thread)));
                        return Err(BubbleError::from(error));
                    }
                }
            }
            state.submit(self.id).map(|()| made)
        })?;
        let member = |thread| Member::new(self.runtime.clone(), thread);
        Ok(made.into_iter().map(member).collect())
    }

    /// Gives the bubble to the scheduler, with all in it. More may be put into it later.
    ///
    /// # Errors
    /// It has ended.
    pub fn submit(&self) -> Result<(), BubbleError> {
        self.runtime.change(|state| state.submit(self.id))
    }

    /// Submits the bubble if nobody has, and waits until all in it has ended. Nothing can be put
    /// into it any more.
    ///
    /// # Errors
    /// The caller is in the bubble.
    pub fn join(&self) -> Result<(), BubbleError> {
        let caller = garonne_fiber::guest_number().map(|number| ThreadId(number as u32));
        let is_inside = caller.is_some_and(|caller| {
            self.runtime.change(|state| {
                let view = state.framework.view();
                view.around(Entity::Thread(caller))
                    .any(|bubble| bubble == self.id)
            })
        });
        if is_inside && !self.end.is_set() {
            return Err(BubbleError::InsideItself);
        }
        self.close();
        self.end.wait();
        Ok(())
    }

    /// Sums over all in the bubble.
    pub fn statistics(&self) -> Statistics {
        let entity = Entity::Bubble(self.id);
        self.runtime
            .change(|state| state.framework.view().statistics(entity))
    }

    /// Says that all in the bubble uses this memory, and asks the kernel where its pages are.
    ///
    /// # Errors
    /// The bubble has ended.
    pub fn attach_memory(
        &self,
        address: usize,
        bytes: usize,
        access: Access,
    ) -> Result<(), BubbleError> {
        let node = node_of(address, bytes);
        self.runtime.change(|state| {
            let entity = Entity::Bubble(self.id);
            if state.framework.view().has_ended(entity) {
                return Err(FrameworkError::Ended(entity).into());
            }
            let memory = state.framework.add_memory(bytes as u64, node)?;
            state.framework.attach(entity, memory, access)?;
            Ok(())
        })
    }

    fn close(&self) {
        if !self.is_open.swap(false, Ordering::AcqRel) {
            return;
        }
        let ends = self.runtime.change(|state| {
            // It fails for a bubble that has ended, which needs it no more.
            let _ = state.submit(self.id);
            state.close(self.id)
        });
        ends.iter().for_each(|end| end.set());
    }
}

impl Drop for Bubble {
    fn drop(&mut self) {
        self.close();
        self.runtime.change(|state| state.forget(self.id));
    }
}

/// The NUMA node that has most pages of this memory; `None`: nobody touched them.
fn node_of(address: usize, bytes: usize) -> Option<PlaceId> {
    const PAGE: usize = 4096;
    let first = address & !(PAGE - 1);
    let pages = (address - first).saturating_add(bytes).div_ceil(PAGE);
    let step = pages.div_ceil(PAGES_ASKED).max(1);
    let asked: Vec<usize> = (0..pages)
        .step_by(step)
        .map(|page| first.saturating_add(page * PAGE))
        .collect();
    let mut found: BTreeMap<u32, usize> = BTreeMap::new();
    for node in sys::nodes_of_pages(&asked).into_iter().flatten() {
        *found.entry(node).or_default() += 1;
    }
    let (node, _) = found.into_iter().max_by_key(|(_, pages)| *pages)?;
    let tree = garonne_fiber::machine();
    let machine = Machine::new(&tree);
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"));
    let cpus = list.ok().and_then(|list| CpuSet::parse(list.trim()));
    let cpus = cpus.map(|cpus| cpus.intersection(&tree.areas()[tree.root()].cpus));
    let area = cpus
        .filter(|cpus| !cpus.is_empty())
        .and_then(|cpus| tree.covering(&cpus));
    Some(match area {
        Some(area) => machine.node(PlaceId(area as u32)),
        None => machine.root(),
    })
}
