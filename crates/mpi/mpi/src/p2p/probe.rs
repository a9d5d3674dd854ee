//! Probes, and messages taken out of matching (MPI 5.0 section 3.8).

use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::request::{Request, Status};
use garonne_engine::api::{self, CallOrigin, StartOutcome};
use garonne_engine::observe::events::{AwaitedRanks, ExternalWait, PendingOperation};
use garonne_progress::messaging::WaitTarget;
use garonne_sync::user::Data;

/// A message that a matched probe took: received once with [`MatchedMessage::recv`] or
/// [`MatchedMessage::irecv`].
pub enum MatchedMessage {
    /// `MPI_MESSAGE_NO_PROC`: from `MPI_PROC_NULL`.
    NoProc,
    /// A real one.
    Taken(Comm, api::Message),
}

impl Comm {
    /// `MPI_Iprobe`.
    pub fn iprobe(&self, source: i32, tag: i32) -> Result<Option<Status>> {
        self.without_waiting(tag, || self.peek_message(source, tag))
    }

    fn peek_message(&self, source: i32, tag: i32) -> Result<Option<Status>> {
        let Some(pattern) = self.pattern(source, tag)? else {
            return Ok(Some(Status::PROC_NULL));
        };
        let found = self
            .0
            .process
            .host
            .probe(pattern)
            .map_err(|error| self.convert(error))?;
        Ok(found.map(|status| Status::of_receive(&status)))
    }

    /// `MPI_Probe`.
    pub fn probe(&self, source: i32, tag: i32, origin: CallOrigin) -> Result<Status> {
        self.until((source, tag, origin), || self.peek_message(source, tag))
    }

    /// `MPI_Improbe`.
    pub fn improbe(&self, source: i32, tag: i32) -> Result<Option<(MatchedMessage, Status)>> {
        self.without_waiting(tag, || self.take_message(source, tag))
    }

    fn take_message(&self, source: i32, tag: i32) -> Result<Option<(MatchedMessage, Status)>> {
        let Some(pattern) = self.pattern(source, tag)? else {
            return Ok(Some((MatchedMessage::NoProc, Status::PROC_NULL)));
        };
        let found = self
            .0
            .process
            .host
            .mprobe(pattern)
            .map_err(|error| self.convert(error))?;
        Ok(found.map(|(message, status)| {
            (
                MatchedMessage::Taken(self.clone(), message),
                Status::of_receive(&status),
            )
        }))
    }

    /// `MPI_Mprobe`.
    pub fn mprobe(
        &self,
        source: i32,
        tag: i32,
        origin: CallOrigin,
    ) -> Result<(MatchedMessage, Status)> {
        self.until((source, tag, origin), || self.take_message(source, tag))
    }

    fn without_waiting<T>(
        &self,
        tag: i32,
        look: impl Fn() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let found = look()?;
        if found.is_none() && self.0.process.host.yield_core(self.context_of(tag)) {
            return look();
        }
        Ok(found)
    }

    /// Describes a probe by this call for tools.
    pub fn probed(&self, source: i32, tag: i32, origin: CallOrigin) -> PendingOperation {
        self.probing((source, tag, origin)).shown()
    }

    fn probing(&self, (source, tag, origin): (i32, i32, CallOrigin)) -> ExternalWait {
        ExternalWait {
            awaited: AwaitedRanks::Sender(
                u32::try_from(source)
                    .ok()
                    .and_then(|rank| self.target_of(rank)),
            ),
            context: self.context_of(tag),
            tag,
            origin,
        }
    }

    fn until<T>(
        &self,
        (source, tag, origin): (i32, i32, CallOrigin),
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut found = look();
        if let Ok(None) = found {
            let host = &self.0.process.host;
            let pattern = self.pattern(source, tag)?;
            let meeting = self.probing((source, tag, origin));
            host.note_external_wait(meeting.context, Some(meeting));
            host.wait_for(
                &|| pattern.map_or(WaitTarget::Anything, WaitTarget::Message),
                &mut || {
                    found = look();
                    !matches!(found, Ok(None))
                },
            );
            host.note_external_wait(self.context_of(tag), None);
        }
        found?.ok_or_else(|| self.error(Class::Intern, "waited for a message, but found none"))
    }
}

impl MatchedMessage {
    /// The communicator it was probed on.
    pub fn comm(&self) -> Option<&Comm> {
        match self {
            MatchedMessage::NoProc => None,
            MatchedMessage::Taken(comm, _) => Some(comm),
        }
    }

    /// `MPI_Mrecv`.
    pub fn recv(self, data: Data, origin: CallOrigin) -> Result<Status> {
        match self {
            MatchedMessage::NoProc => Ok(Status::PROC_NULL),
            MatchedMessage::Taken(comm, message) => {
                let started = start(&comm, message, data, origin)?;
                crate::request::wait(&Request::of_recv(&comm, started)?)
            }
        }
    }

    /// `MPI_Imrecv`. `process` is the calling rank, for a message without communicator.
    pub fn irecv(
        self,
        data: Data,
        origin: CallOrigin,
        process: &std::sync::Arc<crate::process::Process>,
    ) -> Result<Request> {
        match self {
            MatchedMessage::NoProc => Ok(Request::done(process, Status::PROC_NULL)),
            MatchedMessage::Taken(comm, message) => {
                let started = start(&comm, message, data, origin)?;
                Ok(Request::of_recv(&comm, started)?.left_open())
            }
        }
    }
}

fn start(
    comm: &Comm,
    message: api::Message,
    data: Data,
    origin: CallOrigin,
) -> Result<StartOutcome, Error> {
    comm.process()
        .host
        .mrecv(message, data, origin)
        .map_err(|error| comm.convert(error))
}
