//! Sessions (MPI 5.0 section 11.3): a handle to the library, process sets by name, and groups made
//! from them.
//!
//! A session counts as a user of its process's engine, so MPI is up from the first session or
//! `MPI_Init` to the last `MPI_Session_finalize` or `MPI_Finalize`. Communicators keep their
//! session alive as a value; finalizing it only ends its use.

use crate::errhandler::{Errhandler, ErrhandlerKind};
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::info::Info;
use crate::p2p::bsend_buffer::BsendBuffer;
use crate::process::{Process, ThreadLevel};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// A session. A clone is the same session.
#[derive(Clone)]
pub struct Session(Arc<SessionInner>);

struct SessionInner {
    process: Arc<Process>,
    level: ThreadLevel,
    info: Info,
    errhandler: RwLock<Errhandler>,
    buffers: BsendBuffer,
    handle: AtomicUsize,
    finalized: AtomicBool,
}

/// The process sets there are, with the group of each; the third holds the processes that share the
/// caller's node.
const PSETS: [&str; 3] = ["mpi://WORLD", "mpi://SELF", "garonne://NODE"];

impl Session {
    /// `MPI_Session_init`. `info` may ask for a thread level (`thread_level`: `MPI_THREAD_MULTIPLE`
    /// …); every level is supported, `MPI_THREAD_MULTIPLE` is the default.
    pub fn init(
        process: &Arc<Process>,
        info: Option<&Info>,
        errhandler: Errhandler,
    ) -> Result<Self> {
        if !errhandler.fits(ErrhandlerKind::Session) {
            return Err(Error::new(
                Class::Arg,
                "MPI_Session_init got an error handler that was not made for sessions",
            ));
        }
        let wanted = info.and_then(|info| info.lookup("thread_level"));
        let level = match wanted.as_deref() {
            Some("MPI_THREAD_SINGLE") => ThreadLevel::Single,
            Some("MPI_THREAD_FUNNELED") => ThreadLevel::Funneled,
            Some("MPI_THREAD_SERIALIZED") => ThreadLevel::Serialized,
            _ => ThreadLevel::Multiple,
        };
        process.enter();
        Ok(Self(Arc::new(SessionInner {
            process: process.clone(),
            level,
            info: Info::from_pairs([("thread_level", level_name(level))]),
            errhandler: RwLock::new(errhandler),
            buffers: BsendBuffer::default(),
            handle: AtomicUsize::new(0),
            finalized: AtomicBool::new(false),
        })))
    }

    /// `MPI_Session_finalize`. Afterwards [`Process::users`] tells the edge whether the engine may
    /// go.
    pub fn finalize(&self) -> Result<()> {
        if self.0.finalized.swap(true, Ordering::AcqRel) {
            return Err(Error::new(
                Class::Session,
                "this session was finalized before",
            ));
        }
        self.0.buffers.flush(&self.0.process);
        self.0.process.leave();
        Ok(())
    }

    /// The rank it belongs to.
    pub fn process(&self) -> &Arc<Process> {
        &self.0.process
    }

    /// The thread level of this session.
    pub fn level(&self) -> ThreadLevel {
        self.0.level
    }

    /// `MPI_Session_get_info`: a new object with the hints in use and the kinds of memory that
    /// buffers may be of.
    pub fn info(&self) -> Info {
        self.0.info.with_memory_kinds()
    }

    /// Buffer of `MPI_Session_attach_buffer`.
    pub fn buffers(&self) -> &BsendBuffer {
        &self.0.buffers
    }

    /// The edge's handle of this session, 0 if it has none.
    pub fn handle(&self) -> usize {
        self.0.handle.load(Ordering::Relaxed)
    }

    /// Tells the handle that the edge gave to this session.
    pub fn set_handle(&self, handle: usize) {
        self.0.handle.store(handle, Ordering::Relaxed);
    }

    /// `MPI_Session_get_errhandler`.
    pub fn errhandler(&self) -> Errhandler {
        self.0
            .errhandler
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// `MPI_Session_set_errhandler`.
    pub fn set_errhandler(&self, handler: Errhandler) -> Result<()> {
        if !handler.fits(ErrhandlerKind::Session) {
            return Err(Error::new(
                Class::Arg,
                "got an error handler that was not made for sessions",
            ));
        }
        *self
            .0
            .errhandler
            .write()
            .unwrap_or_else(PoisonError::into_inner) = handler;
        Ok(())
    }

    /// `MPI_Session_get_num_psets`.
    pub fn num_psets(&self) -> usize {
        PSETS.len()
    }

    /// `MPI_Session_get_nth_pset`.
    pub fn nth_pset(&self, n: i32) -> Result<&'static str> {
        let found = usize::try_from(n).ok().and_then(|n| PSETS.get(n));
        found.copied().ok_or_else(|| {
            Error::new(
                Class::Arg,
                format!("there is no process set number {n}, only {}", PSETS.len()),
            )
        })
    }

    /// `MPI_Group_from_session_pset`.
    pub fn group(&self, pset: &str) -> Result<Group> {
        let process = &self.0.process;
        match pset_index(pset) {
            Some(0) => Ok(Group::world(process.host.world_size())),
            Some(1) => Ok(Group::single(process.host.me())),
            Some(_) => Ok(process.config.node.clone()),
            None => Err(Error::new(
                Class::Arg,
                format!(
                    "there is no process set {pset:?}, only {}",
                    PSETS.join(", ")
                ),
            )),
        }
    }

    /// `MPI_Session_get_pset_info`.
    pub fn pset_info(&self, pset: &str) -> Result<Info> {
        let group = self.group(pset)?;
        Ok(Info::from_pairs([("mpi_size", group.size().to_string())]))
    }
}

/// Index of a process set's name. The standard compares these names without regard to case.
pub(crate) fn pset_index(pset: &str) -> Option<usize> {
    PSETS
        .iter()
        .position(|name| name.eq_ignore_ascii_case(pset))
}

fn level_name(level: ThreadLevel) -> &'static str {
    match level {
        ThreadLevel::Single => "MPI_THREAD_SINGLE",
        ThreadLevel::Funneled => "MPI_THREAD_FUNNELED",
        ThreadLevel::Serialized => "MPI_THREAD_SERIALIZED",
        ThreadLevel::Multiple => "MPI_THREAD_MULTIPLE",
    }
}
