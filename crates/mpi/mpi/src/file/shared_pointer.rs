//! The word of a shared file pointer: in this process if there is one only, in the segment of
//! the file's communicator if all share a node, else in a window that rank 0 holds. Nothing is
//! stored in the file system.

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
    /// A word of the communicator's segment, which all processes map.
    InSegment(Comm),
    /// Rank 0's part of a window, where the processes have no segment.
    InWindow(Window),
}

impl SharedPointer {
    /// A pointer at 0. Collective.
    pub fn new(comm: &Comm, origin: CallOrigin) -> Result<Self> {
        if comm.size() == 1 {
            return Ok(Self::alone());
        }
        // The segment is there, or not, at all processes: these had a collective before.
        if comm.segment_word().is_some() {
            return Ok(Self::InSegment(comm.clone()));
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
            Self::Alone(_) | Self::InSegment(_) => Ok(()),
            Self::InWindow(window) => {
                window.unlock_all()?;
                window.free(origin)
            }
        }
    }

    /// The word, where this process maps it.
    fn word(&self) -> Option<&AtomicU64> {
        match self {
            Self::Alone(word) => Some(word),
            Self::InSegment(comm) => comm.segment_word(),
            Self::InWindow(_) => None,
        }
    }

    pub fn get(&self) -> Result<u64> {
        match self {
            Self::InWindow(window) => update(window, PredefinedOp::NoOp, 0),
            mapped => Ok(mapped.word().ok_or_else(no_word)?.load(Ordering::Relaxed)),
        }
    }

    pub fn set(&self, etypes: u64) -> Result<()> {
        match self {
            Self::InWindow(window) => update(window, PredefinedOp::Replace, etypes).map(drop),
            mapped => {
                let word = mapped.word().ok_or_else(no_word)?;
                word.store(etypes, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Moves the pointer, and returns where it was.
    pub fn fetch_add(&self, etypes: u64) -> Result<u64> {
        match self {
            Self::InWindow(window) => update(window, PredefinedOp::Sum, etypes),
            mapped => {
                let word = mapped.word().ok_or_else(no_word)?;
                Ok(word.fetch_add(etypes, Ordering::Relaxed))
            }
        }
    }
}

#[cold]
fn no_word() -> Error {
    let text = "the communicator of a file has lost its segment";
    Error::new(Class::Intern, text)
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
