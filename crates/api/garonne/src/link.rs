//! One connection of an endpoint with an event queue: an engine between two processes, what is
//! under way on it, and the events that come of it.

use crate::endpoint::{CONTROL, MESSAGES};
use crate::error::{misuse, of_engine};
use crate::event::{CloseCause, ConnectionId, Event, LentMessage};
use crate::limits::{CLOSE_LIMIT, RECEIVES_MAX};
use crate::pair::PairEnd;
use crate::remote_memory::{RegionId, RemoteMemory};
use crate::sys::OwnedOperation;
use garonne_engine::api::{
    self, CallOrigin, Pattern, RecvArgs, SendArgs, SendCompletion, Source, Status,
};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_progress::messaging::Messaging;
use garonne_tcp::SocketSet;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Context of notices of accesses that are done.
const NOTICES: api::ContextId = MESSAGES + 2;
/// Bytes of a notice: its number.
const NOTICE_BYTES: usize = 8;

/// A send under way.
#[derive(Debug)]
struct OpenSend {
    context: u64,
    operation: OwnedOperation,
}

/// How far a connection is.
#[derive(Debug)]
enum LinkState {
    Open,
    /// The program closed it: what it sent leaves, then the goodbye.
    Draining(Instant),
    /// The goodbye is on its way.
    Parting(Instant),
}

/// Room for events that a connection may fill.
#[derive(Debug)]
pub(crate) struct EventRoom {
    /// Further events.
    pub(crate) events: usize,
    /// Further bytes of messages; at least one message fits always.
    pub(crate) bytes: usize,
}

/// The engine of one connection: of a pair of processes, or of a rank.
pub(crate) trait LinkEngine: std::fmt::Debug + Send {
    fn messaging(&self) -> &dyn Messaging;

    /// The process at the other end.
    fn other(&self) -> api::Peer;

    /// Returns how the other side ended; `None`: it is there. Makes no progress.
    fn end(&self) -> Option<PairEnd>;

    /// Has the goodbye leave that [`LinkEngine::has_nothing_to_send`] sees through.
    fn say_goodbye(&self) -> std::result::Result<(), api::Error>;

    /// Returns whether all that was sent has reached the other host.
    fn has_nothing_to_send(&self) -> bool;

    /// Prepares for a sleep: what is due by then, and how long it may last.
    fn before_sleep(&self) -> Option<Duration>;

    /// The sockets on which something may arrive; `None`: there are none to sleep on.
    fn sockets(&self) -> Option<SocketSet>;
}

/// All that a peer sends in a context.
pub(crate) fn from_peer(context: api::ContextId, peer: api::Peer) -> Pattern {
    Pattern {
        context,
        source: Some(Source { rank: peer, peer }),
        tag: None,
    }
}

/// The number of operations of a connection's contexts, and others, that have completed so far.
fn completions(host: &dyn Messaging) -> u64 {
    match host.shards() {
        1 => host.completions(MESSAGES),
        // Contexts are spread over engines, each of which counts its own.
        _ => [MESSAGES, CONTROL, NOTICES]
            .map(|context| host.completions(context))
            .iter()
            .sum(),
    }
}

/// One connection. Order of calls: [`Link::new`]; any number of [`Link::send`] and
/// [`Link::advance`]; [`Link::close`]; [`Link::advance`] until it gives the end.
#[derive(Debug)]
pub(crate) struct Link {
    id: ConnectionId,
    pair: Box<dyn LinkEngine>,
    /// Longest message that this side takes, and the other side.
    limits: (u64, u64),
    sends: VecDeque<OpenSend>,
    receives: VecDeque<OwnedOperation>,
    state: LinkState,
    /// Dropped after the engine, which may touch what it keeps.
    memory: RemoteMemory,
    /// The receive of the peer's next notice. `None`: no more come.
    notice: Option<OwnedOperation>,
    /// Notices to the peer that are on their way.
    told: Vec<OwnedOperation>,
    /// A message was left with the engine for want of room.
    is_behind: bool,
    /// Completions of the engine at the last look at operations under way; `None`: look anyway.
    seen: Option<u64>,
}

impl Link {
    pub(crate) fn new(
        id: ConnectionId,
        pair: Box<dyn LinkEngine>,
        limits: (u64, u64),
    ) -> Result<Self> {
        let mut link = Self {
            id,
            pair,
            limits,
            sends: VecDeque::new(),
            receives: VecDeque::new(),
            state: LinkState::Open,
            memory: RemoteMemory::default(),
            notice: None,
            told: Vec::new(),
            is_behind: false,
            seen: None,
        };
        link.expect_notice()?;
        Ok(link)
    }

    fn expect_notice(&mut self) -> Result<()> {
        let host = self.pair.messaging();
        let pattern = self.pattern(NOTICES);
        let receive = |data| {
            host.recv(RecvArgs {
                pattern,
                data,
                origin: CallOrigin::default(),
            })
        };
        let notice = OwnedOperation::start(vec![0; NOTICE_BYTES], receive);
        self.notice = Some(notice.map_err(|error| of_engine("connection", error))?);
        Ok(())
    }

    fn pattern(&self, context: api::ContextId) -> Pattern {
        from_peer(context, self.pair.other())
    }

    /// The connection's remote memory, with what its calls need.
    pub(crate) fn memory(&mut self) -> Result<(&mut RemoteMemory, &dyn Messaging, api::Peer)> {
        if !matches!(self.state, LinkState::Open) {
            return Err(misuse("the connection was closed"));
        }
        self.seen = None;
        let (host, peer) = (self.pair.messaging(), self.pair.other());
        Ok((&mut self.memory, host, peer))
    }

    /// Returns whether the peer may access this region.
    pub(crate) fn uses(&self, region: RegionId) -> bool {
        self.memory.uses(region)
    }

    /// Returns whether another look may find something that no socket tells of.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Returns whether it is to be looked at although no socket has anything for it.
    pub(crate) fn needs_looks(&self) -> bool {
        self.is_behind
            || self.pair.sockets().is_none()
            || !self.has_nothing_open()
            || !matches!(self.state, LinkState::Open)
    }

    /// Returns whether dropping it may take its time: a peer may not take what is on its way.
    pub(crate) fn may_linger(&self) -> bool {
        !self.pair.has_nothing_to_send()
    }

    /// Returns until when it may sleep by itself.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let own = match self.state {
            LinkState::Open => None,
            LinkState::Draining(until) | LinkState::Parting(until) => {
                Some(until.saturating_duration_since(Instant::now()))
            }
        };
        own.into_iter().chain(self.pair.before_sleep()).min()
    }

    /// Starts to send a message. Its end is an event, unless there is an error.
    pub(crate) fn send(&mut self, tag: u32, bytes: Vec<u8>, context: u64) -> Result<()> {
        if !matches!(self.state, LinkState::Open) {
            return Err(misuse("send: the connection was closed"));
        }
        if bytes.len() as u64 > self.limits.1 {
            return Err(misuse(format!(
                "send: a message of {} B, and the peer takes {} B at most",
                bytes.len(),
                self.limits.1
            )));
        }
        let host = self.pair.messaging();
        let envelope = SendArgs {
            context: MESSAGES,
            peer: self.pair.other(),
            source: host.me(),
            tag: crate::endpoint::checked(tag)?,
            data: garonne_sync::user::Data::empty(),
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        };
        let operation = OwnedOperation::start_send(bytes, host, envelope);
        let operation = operation.map_err(|error| of_engine("send", error))?;
        self.sends.push_back(OpenSend { context, operation });
        self.seen = None;
        Ok(())
    }

    /// Begins to close the connection.
    pub(crate) fn close(&mut self) {
        if matches!(self.state, LinkState::Open) {
            self.state = LinkState::Draining(Instant::now() + CLOSE_LIMIT);
        }
    }

    /// Makes progress, and appends what happened to `events`. Returns `true` when the last event of
    /// the connection was appended.
    pub(crate) fn advance(&mut self, room: EventRoom, events: &mut VecDeque<Event>) -> bool {
        let host = self.pair.messaging();
        host.progress();
        let completions = Some(completions(host));
        // Where nothing has completed since, only a message can be new.
        let is_idle = self.seen == completions && matches!(self.state, LinkState::Open);
        self.seen = completions;
        if !is_idle {
            self.end_sends(events);
            self.end_accesses(events);
        }
        let mut failed = self.receive(room, events);
        if !is_idle {
            failed = failed.and_then(|()| self.hear_notices(events));
        }
        let cause = match failed {
            Err(error) => Some(CloseCause::PeerLost(error)),
            Ok(()) if is_idle => None,
            Ok(()) => self.look_for_end(),
        };
        let Some(cause) = cause else {
            return false;
        };
        self.fail_sends(events);
        self.end_accesses(events);
        self.memory.fail(self.id, events);
        events.push_back(Event::Closed {
            connection: self.id,
            cause,
        });
        true
    }

    /// Tells of the sends that are over, in the order in which they were started.
    fn end_sends(&mut self, events: &mut VecDeque<Event>) {
        let host = self.pair.messaging();
        while let Some(send) = self.sends.front_mut()
            && send.operation.is_over(host)
            && let Some(mut send) = self.sends.pop_front()
        {
            let ended = send.operation.wait(host, |_, _| {});
            events.push_back(Event::Sent {
                connection: self.id,
                context: send.context,
                bytes: send.operation.into_bytes(),
                result: ended.map(drop).map_err(|error| of_engine("send", error)),
            });
        }
    }

    /// Tells of all sends that are still open that they failed.
    fn fail_sends(&mut self, events: &mut VecDeque<Event>) {
        self.pair.messaging().progress();
        self.end_sends(events);
        for send in self.sends.drain(..) {
            events.push_back(Event::Sent {
                connection: self.id,
                context: send.context,
                bytes: send.operation.into_bytes(),
                result: Err(Error::peer(
                    codes::G0403,
                    "send: the connection ended before the message had left",
                )),
            });
        }
    }

    /// Tells of accesses that are over, and the peer of those that it is to know of.
    fn end_accesses(&mut self, events: &mut VecDeque<Event>) {
        let host = self.pair.messaging();
        let notices = self.memory.advance(self.id, host, events);
        for number in notices {
            let envelope = SendArgs {
                context: NOTICES,
                peer: self.pair.other(),
                source: host.me(),
                tag: 0,
                data: garonne_sync::user::Data::empty(),
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            };
            let bytes = number.to_le_bytes().to_vec();
            let told =
                OwnedOperation::start(bytes, |data| host.send(SendArgs { data, ..envelope }));
            // A peer that is gone is found to be gone.
            self.told.extend(told);
        }
        self.told.retain_mut(|told| !told.is_over(host));
    }

    /// Tells of the peer's accesses of which it wants that.
    fn hear_notices(&mut self, events: &mut VecDeque<Event>) -> Result<()> {
        while let Some(notice) = &mut self.notice
            && notice.is_over(self.pair.messaging())
            && let Some(mut notice) = self.notice.take()
        {
            // The end of the connection is told by the goodbye's receive.
            let Ok(status) = notice.wait(self.pair.messaging(), |_, _| {}) else {
                return Ok(());
            };
            let Ok(number) = notice.into_bytes().try_into() else {
                return Ok(());
            };
            if status.len != NOTICE_BYTES as u64 {
                let text = "the peer sent a notice that is not understood";
                return Err(Error::peer(codes::G0403, text));
            }
            events.push_back(Event::Notified {
                connection: self.id,
                number: u64::from_le_bytes(number),
            });
            self.expect_notice()?;
        }
        Ok(())
    }

    /// Takes messages as far as there is room for them.
    fn receive(&mut self, mut room: EventRoom, events: &mut VecDeque<Event>) -> Result<()> {
        self.is_behind = false;
        loop {
            self.end_receives(&mut room, events)?;
            if self.receives.len() >= RECEIVES_MAX {
                return Ok(());
            }
            if room.events <= self.receives.len() || room.bytes == 0 {
                self.is_behind = true;
                return Ok(());
            }
            let Some(len) = self.start_receive()? else {
                return Ok(());
            };
            room.bytes = room.bytes.saturating_sub(len);
        }
    }

    /// Starts to receive the next message, if there is one. Returns its length.
    fn start_receive(&mut self) -> Result<Option<usize>> {
        let host = self.pair.messaging();
        let pattern = self.pattern(MESSAGES);
        let found = match host.mprobe(pattern) {
            Ok(found) => found,
            // The end is told by the goodbye's receive.
            Err(api::Error::Peer { .. }) => None,
            Err(error) => return Err(of_engine("receive", error)),
        };
        let Some((message, Status { len, .. })) = found else {
            return Ok(None);
        };
        if len > self.limits.0 {
            let text = format!(
                "the peer sent a message of {len} B, where {} B were agreed on",
                self.limits.0
            );
            return Err(Error::peer(codes::G0403, text));
        }
        let mut bytes = Vec::new();
        let room = usize::try_from(len).ok();
        let room = room.filter(|len| bytes.try_reserve_exact(*len).is_ok());
        let Some(room) = room else {
            let text = format!("no memory for a message of {len} B");
            return Err(Error::resource(codes::G0304, text));
        };
        bytes.resize(room, 0);
        let origin = CallOrigin::default();
        let operation = OwnedOperation::start(bytes, |data| host.mrecv(message, data, origin));
        let operation = operation.map_err(|error| of_engine("receive", error))?;
        self.receives.push_back(operation);
        Ok(Some(room))
    }

    /// Tells of the messages that are here, in the order in which they were sent.
    fn end_receives(&mut self, room: &mut EventRoom, events: &mut VecDeque<Event>) -> Result<()> {
        let host = self.pair.messaging();
        while let Some(receive) = self.receives.front_mut()
            && receive.is_over(host)
            && let Some(mut receive) = self.receives.pop_front()
        {
            let ended = receive.wait(host, |_, _| {});
            let status = ended.map_err(|error| of_engine("receive", error))?;
            room.events = room.events.saturating_sub(1);
            if matches!(self.state, LinkState::Open) {
                events.push_back(Event::Message {
                    connection: self.id,
                    tag: status.tag.unsigned_abs(),
                    message: LentMessage::new(receive.into_bytes()),
                });
            }
        }
        Ok(())
    }

    /// Returns how the connection ended; `None`: it goes on.
    fn look_for_end(&mut self) -> Option<CloseCause> {
        if let Some(end) = self.pair.end() {
            if self.is_behind || !self.receives.is_empty() {
                return None;
            }
            return Some(match (end, &self.state) {
                (PairEnd::Left, _) => CloseCause::PeerLeft,
                // All of this side's messages had arrived.
                (PairEnd::Lost(_), LinkState::Parting(_)) if self.sends.is_empty() => {
                    CloseCause::Closed
                }
                (PairEnd::Lost(error), _) => CloseCause::PeerLost(of_engine("connection", error)),
            });
        }
        match self.state {
            LinkState::Open => None,
            LinkState::Draining(until) => {
                if self.has_nothing_open() && self.pair.has_nothing_to_send() {
                    // Who is gone needs no goodbye, and is found to be gone.
                    let _ = self.pair.say_goodbye();
                    self.state = LinkState::Parting(until);
                }
                self.too_late(until)
            }
            LinkState::Parting(until) => match self.pair.has_nothing_to_send() {
                true => Some(CloseCause::Closed),
                false => self.too_late(until),
            },
        }
    }

    fn has_nothing_open(&self) -> bool {
        self.sends.is_empty() && self.told.is_empty() && !self.memory.is_busy()
    }

    fn too_late(&self, until: Instant) -> Option<CloseCause> {
        (Instant::now() >= until).then(|| {
            CloseCause::PeerLost(Error::Timeout {
                code: codes::G0403,
                text: "the peer did not take what was sent before the connection was closed".into(),
            })
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if !matches!(self.state, LinkState::Parting(_)) && self.pair.end().is_none() {
            // The transport waits a short time until it has arrived.
            let _ = self.pair.say_goodbye();
        }
        // The engine may outlive the connection.
        let host = self.pair.messaging();
        self.memory.abandon(host);
        if let Some(request) = self.notice.as_ref().and_then(OwnedOperation::request) {
            // A notice that has come already needs no end.
            let _ = host.cancel(request);
        }
    }
}
