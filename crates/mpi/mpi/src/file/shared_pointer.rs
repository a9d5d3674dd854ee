//! The word of a shared file pointer: in this process if there is one only, else in a window that
//! rank 0 holds. Nothing is stored in the file system.

use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::op::{Op, PredefinedOp};
use crate::win::{AccumulateArgs, Assert, Flavor, Part, TargetPart, Window, WindowRequest};
use garonne_engine::api::CallOrigin;
use garonne_sync::user::{Scratch, UserMem};
use std::sync::atomic::{AtomicU64, Ordering};

/// `MPI_UINT64_T`.
const UINT64: u16 = 0x259;

/// The shared file pointer, in etypes of the view.
pub(super) enum SharedPointer {
    /// The file has one process.
    Alone(AtomicU64),
    /// Rank 0's part of a window.
    InWindow(Window),
}

impl SharedPointer {
    /// A pointer at 0. Collective.
    pub fn new(comm: &Comm, origin: CallOrigin) -> Result<Self> {
        if comm.size() == 1 {
            return Ok(Self::alone());
        }
        let size = match comm.rank() {
            0 => 8,
            _ => 0,
        };
        let request = WindowRequest {
            flavor: Flavor::Allocate,
            memory: UserMem::null(),
            size,
            disp_unit: 8,
            info: Info::new(),
        };
        let window = Window::new(comm, request, origin)?;
        window.lock_all(Assert(0))?;
        Ok(Self::InWindow(window))
    }

    /// A pointer at 0 for a file of one process.
    pub fn alone() -> Self {
        Self::Alone(AtomicU64::new(0))
    }

    /// Ends the pointer. Collective.
    pub fn free(&self, origin: CallOrigin) -> Result<()> {
        match self {
            Self::Alone(_) => Ok(()),
            Self::InWindow(window) => {
                window.unlock_all()?;
                window.free(origin)
            }
        }
    }

    pub fn get(&self) -> Result<u64> {
        match self {
            Self::Alone(word) => Ok(word.load(Ordering::Relaxed)),
            Self::InWindow(window) => update(window, PredefinedOp::NoOp, 0),
        }
    }

    pub fn set(&self, etypes: u64) -> Result<()> {
        match self {
            Self::Alone(word) => {
                word.store(etypes, Ordering::Relaxed);
                Ok(())
            }
            Self::InWindow(window) => update(window, PredefinedOp::Replace, etypes).map(drop),
        }
    }

    /// Moves the pointer, and returns where it was.
    pub fn fetch_add(&self, etypes: u64) -> Result<u64> {
        match self {
            Self::Alone(word) => Ok(word.fetch_add(etypes, Ordering::Relaxed)),
            Self::InWindow(window) => update(window, PredefinedOp::Sum, etypes),
        }
    }
}

/// Changes the word, and returns what it was.
fn update(window: &Window, op: PredefinedOp, operand: u64) -> Result<u64> {
    let room = Scratch::new(16)
        .ok_or_else(|| Error::new(Class::NoMem, "no memory is left for a file pointer"))?;
    let datatype = Datatype::predefined_ref(UINT64)
        .ok_or_else(|| Error::new(Class::Intern, "MPI_UINT64_T is not predefined"))?;
    room.mem().write_array(0, operand.to_ne_bytes());
    let part = |mem| Part {
        mem,
        count: 1,
        datatype,
    };
    window.accumulate(&AccumulateArgs {
        origin: (op != PredefinedOp::NoOp).then(|| part(room.mem())),
        result: Some(part(room.mem().offset(8))),
        target: TargetPart {
            rank: 0,
            disp: 0,
            count: 1,
            datatype,
        },
        op: Op::Predefined(op),
    })?;
    window.flush(0)?;
    Ok(u64::from_ne_bytes(room.mem().read_array(8)))
}
