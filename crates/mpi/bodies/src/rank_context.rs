//! All that a rank owns in this library, behind one pointer of each thread.
//!
//! A process mostly is one rank, and its [`RankContext`] is a static. Every thread of the process
//! begins with a pointer to that one, so threads that the program makes belong to its rank. A
//! process may have further ranks. A thread that belongs to one of them enters its context
//! ([`RankContext::enter`]) before its first MPI call.
//!
//! Threads of the library that act for a rank get what they need of it as an argument: its engine,
//! and what a value captured when it was made. They never ask for the current context. Functions of
//! the program that they call (C tasks) run in the context of the rank that submitted them
//! ([`RankContext::run`]).
//!
//! `tools/statics.txt` lists what the library keeps per process instead, each with its reason.

use crate::comm_contexts::CommContexts;
use crate::datatype_queries::F90Types;
use crate::datatype_refs::DatatypeRefs;
use crate::errhandler::ErrorHandlers;
use crate::fast_path::PeerTable;
use crate::handle::HandleTable;
use crate::init_state::{self, InitState};
use crate::last_call::{self, LastCalls, SetAsideWords};
use crate::mpi_t::ToolInterface;
use crate::objects::ObjectTables;
use crate::op::UserOpEntry;
use crate::recent_errors::RecentErrors;
use crate::request::RequestEntry;
use crate::this_rank::RankEngines;
use crate::thread_words::{self, CONTEXT};
use crate::trace_calls::{self, CallTracing};
use crate::{attr, env};
use garonne_mpi::file::File;
use garonne_mpi::p2p::MatchedMessage;
use garonne_mpi::session::Session;
use garonne_mpi::win::Window;
use garonne_rank::Rank;
use std::marker::PhantomData;

/// The process's only rank, unless more were made.
pub(crate) static ONLY: RankContext = RankContext::new(0, None);

/// All that belongs to one rank: its engines, its state between init and finalize, its objects and
/// their handles, its errors.
///
/// Lives until the process ends, because handles, callbacks and threads of its rank refer to it. A
/// further rank of the process is made by [`RankContext::for_rank`]. Then each of its threads
/// [enters](RankContext::enter) it, and calls MPI as in a process of its own.
pub struct RankContext {
    pub(crate) peers: PeerTable,
    pub(crate) engines: RankEngines,
    pub(crate) init: InitState,
    pub(crate) lifecycle: env::Lifecycle,
    pub(crate) objects: ObjectTables,
    pub(crate) requests: HandleTable<RequestEntry>,
    pub(crate) messages: HandleTable<MatchedMessage>,
    pub(crate) user_ops: HandleTable<UserOpEntry>,
    pub(crate) sessions: HandleTable<Session>,
    pub(crate) windows: HandleTable<Window>,
    pub(crate) files: HandleTable<File>,
    pub(crate) comm_contexts: CommContexts,
    pub(crate) datatype_refs: DatatypeRefs,
    pub(crate) f90_types: F90Types,
    pub(crate) predefined_attrs: attr::PredefinedValues,
    pub(crate) predefined_types: attr::PredefinedTypes,
    pub(crate) recent_errors: RecentErrors,
    pub(crate) error_handlers: ErrorHandlers,
    pub(crate) tracing: CallTracing,
    pub(crate) last_calls: LastCalls,
    pub(crate) tool_interface: ToolInterface,
}

impl RankContext {
    /// A context in which nothing happened yet. `number` tells the ranks of a process apart; `rank`
    /// is the rank that it becomes when it initialises MPI, or `None` for the one that the
    /// environment names.
    const fn new(number: u32, rank: Option<Rank>) -> Self {
        Self {
            peers: PeerTable::new(),
            engines: RankEngines::new(rank),
            init: InitState::new(),
            lifecycle: env::Lifecycle::new(),
            objects: ObjectTables::new(number),
            requests: HandleTable::new(number),
            messages: HandleTable::new(number),
            user_ops: HandleTable::new(number),
            sessions: HandleTable::new(number),
            windows: HandleTable::new(number),
            files: HandleTable::new(number),
            comm_contexts: CommContexts::new(),
            datatype_refs: DatatypeRefs::new(),
            f90_types: F90Types::new(),
            predefined_attrs: attr::PredefinedValues::new(),
            predefined_types: attr::PredefinedTypes::new(),
            recent_errors: RecentErrors::new(),
            error_handlers: ErrorHandlers::new(),
            tracing: CallTracing::new(),
            last_calls: LastCalls::new(),
            tool_interface: ToolInterface::new(number),
        }
    }

    /// Makes the context of a further rank of this process. `number` is another one for each, from
    /// 1: handles of one rank are refused in another with the help of it.
    ///
    /// The context is never freed.
    pub fn for_rank(number: u32, rank: Rank) -> &'static Self {
        Box::leak(Box::new(Self::new(number, Some(rank))))
    }

    /// Returns the context of the rank to which the calling thread belongs.
    #[inline(always)]
    pub fn current() -> &'static Self {
        // SAFETY: the word holds the address of `ONLY`, or that of a context which `enter` wrote.
        // Both live until the process ends.
        unsafe { &*thread_words::read::<CONTEXT>().cast() }
    }

    /// Makes the calling thread one of this rank's until the value returned is dropped.
    pub fn enter(&'static self) -> EnteredRank {
        let before = Self::current();
        self.make_current();
        if init_state::is_forked_child() {
            trace_calls::in_child();
        }
        EnteredRank {
            before,
            words: last_call::set_aside(),
            of_one_thread: PhantomData,
        }
    }

    /// Runs a function in the calling thread as one of this rank's.
    pub fn run<T>(&'static self, function: impl FnOnce() -> T) -> T {
        let _entered = (!std::ptr::eq(Self::current(), self)).then(|| self.enter());
        function()
    }

    fn make_current(&'static self) {
        thread_words::write::<CONTEXT>(std::ptr::from_ref(self).cast());
    }

    /// Returns whether this is the context with which every thread of the process begins.
    pub(crate) fn is_only(&self) -> bool {
        std::ptr::eq(self, &ONLY)
    }
}

impl std::fmt::Debug for RankContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankContext")
            .field("is_only", &self.is_only())
            .finish_non_exhaustive()
    }
}

/// The time in which a thread belongs to a rank that it entered. Ends in the order of a stack.
#[derive(Debug)]
#[must_use = "the thread leaves the rank when this is dropped"]
pub struct EnteredRank {
    before: &'static RankContext,
    words: SetAsideWords,
    of_one_thread: PhantomData<*const ()>,
}

impl Drop for EnteredRank {
    fn drop(&mut self) {
        self.before.make_current();
        last_call::restore(&self.words);
    }
}
