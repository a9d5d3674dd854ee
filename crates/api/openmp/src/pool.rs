//! Threads of teams: fibers that wait for a part in a team.

use crate::icv::{Icv, globals};
use crate::parker::{Parker, wait_until};
use crate::task::TaskGroup;
use crate::team::Team;
use crate::thread::{self, Code};
use garonne_bubble_runtime::Member;
use garonne_fiber::{Builder, FiberHandle, Identity, Place};
use garonne_sync::mutex::lock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A thread's part in a team.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) team: Arc<Team>,
    pub(crate) number: usize,
    pub(crate) icv: Icv,
    pub(crate) code: Code,
    pub(crate) group: Option<Arc<TaskGroup>>,
    pub(crate) league: (u32, u32),
    pub(crate) place: Option<usize>,
    pub(crate) partition: (usize, usize),
    /// The thread of the team's bubble that it is, if teams are bubbles.
    pub(crate) member: Option<Member>,
}

/// A thread of teams. Its fiber lives as long as the process.
#[derive(Debug)]
pub(crate) struct Dock {
    pub(crate) parker: Arc<Parker>,
    has_work: AtomicBool,
    work: Mutex<Option<Assignment>>,
    fiber: Mutex<Option<FiberHandle>>,
    /// CPU or place that the fiber was told to use, plus 1.
    told: AtomicUsize,
}

/// Threads that no team has.
static FREE: Mutex<Vec<Arc<Dock>>> = Mutex::new(Vec::new());

static FORKED: AtomicBool = AtomicBool::new(false);

/// This process is the child of a fork: it has no workers, so that all its teams have one thread.
pub fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

/// Takes threads until there are so many. Fewer if the system gives no more.
pub(crate) fn fill(docks: &mut Vec<Arc<Dock>>, count: usize) {
    if docks.len() < count {
        let mut free = lock(&FREE);
        while docks.len() < count
            && let Some(dock) = free.pop()
        {
            docks.push(dock);
        }
    }
    while docks.len() < count {
        match Dock::start() {
            Ok(dock) => docks.push(dock),
            Err(error) => {
                eprintln!(
                    "\nlibgomp: no further thread, the team has {}: {error}",
                    docks.len() + 1
                );
                return;
            }
        }
    }
}

/// Gives threads back.
pub(crate) fn give_back(docks: Vec<Arc<Dock>>) {
    if !docks.is_empty() {
        lock(&FREE).extend(docks);
    }
}

impl Dock {
    fn start() -> Result<Arc<Self>, Box<dyn std::error::Error>> {
        let identity = Identity::new()?;
        let dock = Arc::new(Self {
            parker: Arc::default(),
            has_work: AtomicBool::new(false),
            work: Mutex::new(None),
            fiber: Mutex::new(None),
            told: AtomicUsize::new(0),
        });
        let own = dock.clone();
        let builder = Builder::new()
            .name("OpenMP thread")
            .identity(identity)
            .stack_size(globals().stack);
        let fiber = builder.start(move || own.serve())?;
        *lock(&dock.fiber) = Some(fiber);
        Ok(dock)
    }

    /// Tells the fiber where to run. `None`: anywhere.
    pub(crate) fn set_cpus(&self, cpus: Option<&[u32]>) {
        let key = match cpus {
            Some(cpus) => cpus.iter().fold(cpus.len(), |key, cpu| {
                key.wrapping_mul(8191).wrapping_add(*cpu as usize + 1)
            }),
            None => 0,
        };
        if self.told.swap(key, Ordering::Relaxed) == key {
            return;
        }
        let place = match cpus {
            None => Place::Machine,
            Some(cpus) => {
                let mut set = garonne_topology::CpuSet::new();
                cpus.iter().for_each(|cpu| set.insert(*cpu));
                Place::Cpus(set)
            }
        };
        if let Some(fiber) = &*lock(&self.fiber) {
            // A place that the machine does not have leaves the thread where it is.
            let _ = fiber.set_place(&place);
        }
    }

    /// Gives the thread its part in a team.
    pub(crate) fn assign(&self, assignment: Assignment) {
        *lock(&self.work) = Some(assignment);
        self.has_work.store(true, Ordering::SeqCst);
        self.parker.notify();
    }

    /// The life of the thread.
    fn serve(&self) {
        let thread = thread::adopt(self.parker.clone());
        loop {
            wait_until(
                &self.parker,
                || self.has_work.load(Ordering::Acquire),
                || false,
            );
            self.has_work.store(false, Ordering::Relaxed);
            let assignment = lock(&self.work).take();
            if let Some(assignment) = assignment {
                thread.serve(assignment);
            }
        }
    }
}
