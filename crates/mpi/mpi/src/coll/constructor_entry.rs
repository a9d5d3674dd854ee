//! Entry of a process into a constructor of communicators, as a collective in which all members
//! take part.
//!
//! Constructors are numbered with the blocking collectives of their communicator, and pass a
//! barrier in its segment first, where there is one. So ranks that called something else are told
//! of it instead of waiting for each other, and tools see which members are missing.

use super::call_signature::CallSignature;
use super::comm_segment;
use super::execute::CollContext;
use super::shm_sync::ShmSync;
use crate::comm::Comm;
use crate::error::Result;
use crate::process::Process;
use garonne_coll::call_tag::{CallSeries, CollectiveKind};
use garonne_engine::api::CallOrigin;
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait};
use garonne_progress::environment::CollectiveCounter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A constructor that this process has entered. While this lives, those who watch see that the
/// thread waits for the other members.
pub(crate) struct ConstructorEntry {
    process: Arc<Process>,
    origin: CallOrigin,
}

impl ConstructorEntry {
    /// The program's call.
    pub fn origin(&self) -> CallOrigin {
        self.origin
    }
}

impl Drop for ConstructorEntry {
    fn drop(&mut self) {
        self.process.host.note_external_wait(0, None);
    }
}

impl Comm {
    /// Enters a constructor.
    ///
    /// # Errors
    /// `NotSame` on all members, if some called another collective.
    pub(crate) fn enter(
        &self,
        kind: CollectiveKind,
        origin: CallOrigin,
    ) -> Result<ConstructorEntry> {
        let call = self.next_call(CallSeries::Blocking, kind);
        if let Some(place) = comm_segment::attach_for_blocking(self, call, origin)? {
            ShmSync::new(self, place, call, origin, CallSignature::of(kind))
                .compare_signatures()?;
        }
        let process = self.process().clone();
        let meeting =
            CollContext::borrowed(self, call, origin).wait_description(AwaitedRanks::Members);
        process.host.note_external_wait(0, Some(meeting));
        Ok(ConstructorEntry { process, origin })
    }

    /// A constructor that gives a request, about to begin to talk, as those know it who watch. It
    /// has no number among the collectives: programs may start it before a blocking one on one
    /// process, and after it on another.
    pub(crate) fn started_constructor(&self, origin: CallOrigin) -> ExternalWait {
        let count = &self.0.collective_counts[CollectiveCounter::Constructions as usize];
        ExternalWait {
            awaited: AwaitedRanks::Members,
            context: self.context() + 2,
            tag: (count.load(Ordering::Relaxed) & i32::MAX as u32) as i32,
            origin,
        }
    }
}
