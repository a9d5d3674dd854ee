//! What the TCP transport does with its sockets: looks at which are ready, has calls go on, lets
//! strangers in.
//!
//! Part of [`TcpTransport`]; called from its polls and before it sleeps. Nothing here delivers to
//! the engine.

use crate::connector::{ConnectFailure, ConnectStep, Connector};
use crate::frame::{ASKED, FABRIC, ProcessId, RejectReason, StreamNumber};
use crate::packet_stream::SendResult;
use crate::peer::{ConnectState, RetryDecision};
use crate::unauthenticated::Authenticated;
use crate::{LOST, PendingNotice, TcpTransport};
use garonne_engine::api::{Error, Peer};
use garonne_transport::limits::TCP_ACCEPTS_PER_POLL;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Events taken from the kernel at once; the rest stays with it.
const EVENTS: usize = 32;

/// Passes over the ready descriptors: callers that are being proved first, then the listener, then
/// peers.
const TURNS: u8 = 3;

/// Socket that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EpollTarget {
    Door,
    Bell,
    Stranger(usize),
    Peer(Peer, StreamNumber),
}

impl EpollTarget {
    fn data(self) -> EventData {
        EventData::new_u64(match self {
            Self::Door => 0,
            Self::Bell => 1,
            Self::Stranger(place) => 2 | (place as u64) << 8,
            Self::Peer(peer, stream) => (3 + u64::from(stream.code())) | (u64::from(peer) << 8),
        })
    }

    /// Returns whose turn is first; below [`TURNS`].
    fn turn(self) -> u8 {
        match self {
            Self::Stranger(_) => 0,
            Self::Door => 1,
            Self::Bell | Self::Peer(..) => 2,
        }
    }

    fn from_data(data: EventData) -> Self {
        let (kind, index) = (data.u64() & 0xff, data.u64() >> 8);
        match kind {
            0 => Self::Door,
            1 => Self::Bell,
            2 => Self::Stranger(index as usize),
            _ => {
                let stream = StreamNumber::from_code((kind - 3) as u8);
                Self::Peer(index as Peer, stream.unwrap_or(StreamNumber::Small))
            }
        }
    }
}

/// How events of a stream of a peer are known.
pub(super) fn watched(peer: Peer, stream: StreamNumber) -> EventData {
    EpollTarget::Peer(peer, stream).data()
}

impl TcpTransport {
    /// Watches the transport's own descriptors.
    pub(super) fn watch_own(&self) -> Result<(), Error> {
        let failed = |errno: rustix::io::Errno| Error::System {
            what: "cannot watch the rail's descriptors",
            errno: errno.raw_os_error(),
        };
        let epoll = &self.wake.epoll;
        epoll::add(
            epoll,
            self.door.fd(),
            EpollTarget::Door.data(),
            EventFlags::IN,
        )
        .map_err(failed)?;
        epoll::add(
            epoll,
            self.wake.bell(),
            EpollTarget::Bell.data(),
            EventFlags::IN,
        )
        .map_err(failed)
    }

    pub(super) fn mark_ready(&mut self, peer: Peer) {
        if !self.ready.contains(&peer) {
            self.ready.push(peer);
        }
    }

    /// Something is to be done at this time.
    pub(super) fn remind(&mut self, at: Instant) {
        if self.deadline.is_none_or(|deadline| at < deadline) {
            self.deadline = Some(at);
            // The owner may be about to sleep.
            self.wake.set_deadline(self.deadline);
        }
    }

    /// A stream of a peer is needed: it is opened, unless it is.
    pub(super) fn want(&mut self, peer: Peer, stream: StreamNumber) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if remote.fd(stream).is_none() && matches!(remote.calls(stream).call, ConnectState::Rest) {
            let now = Instant::now();
            remote.calls(stream).want(now);
            self.call(peer, stream, now);
        }
    }

    /// Calls a peer, if it is time for that.
    pub(super) fn call(&mut self, peer: Peer, stream: StreamNumber, now: Instant) {
        let idle = self.is_idle_beside(peer, stream);
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let calls = remote.calls(stream);
        match calls.call {
            ConnectState::At(at) if at <= now && idle => {
                calls.call = ConnectState::Rest;
                return;
            }
            ConnectState::At(at) if at <= now => {}
            ConnectState::At(at) => return self.remind(at),
            _ => return,
        }
        if stream.is_fabric() && !self.may_call_fabric(peer) {
            return;
        }
        // The one beside an endpoint stands for no network: it takes the one that works.
        let works = stream
            .is_fabric()
            .then(|| self.ends(peer, StreamNumber::Bulk(0)))
            .flatten();
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let calls = remote.calls(stream);
        let address = match stream {
            StreamNumber::Small | StreamNumber::Bulk(0) => {
                let (all, led) = (self.hosts.addresses(peer), self.hosts.may_be_led(peer));
                let is_drained = |address| led && self.hosts.is_drained(address);
                let now_tried = calls.may_try(&all, is_drained, now);
                calls.address(now_tried)
            }
            StreamNumber::Bulk(FABRIC) => {
                let addresses = self.hosts.addresses(peer);
                let works = addresses
                    .iter()
                    .find(|address| works.is_some_and(|(_, other)| other.ip() == address.ip()));
                works.copied().or_else(|| calls.address(&addresses))
            }
            StreamNumber::Bulk(path) => self
                .hosts
                .networks(peer)
                .get(usize::from(path) - 1)
                .copied(),
        };
        let Some(address) = address else {
            calls.call = ConnectState::Rest;
            // Of a further network nobody needs to know why it is not there any more.
            if !stream.is_further() && !self.is_beside(peer) {
                self.lose(peer);
            }
            return;
        };
        let to = (peer, self.hosts.incarnation(peer));
        let longest = self.brief.longest_to(address.ip());
        match Connector::begin_with(&self.house, (address, to, stream), longest, now) {
            Ok(line) => {
                let flags = EventFlags::IN | EventFlags::OUT;
                let data = EpollTarget::Peer(peer, stream).data();
                if epoll::add(&self.wake.epoll, line.fd(), data, flags).is_err() {
                    return self.failed(peer, stream, ConnectFailure::Unreachable, now);
                }
                calls.call = ConnectState::Out(Box::new(line));
                if let Some(due) = remote.due(stream) {
                    self.remind(due);
                }
            }
            Err(failure) => self.failed(peer, stream, failure, now),
        }
    }

    pub(super) fn failed(
        &mut self,
        peer: Peer,
        stream: StreamNumber,
        failure: ConnectFailure,
        now: Instant,
    ) {
        if stream.is_further() || self.is_beside(peer) {
            return self.failed_further(peer, stream, &failure, now);
        }
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let calls = remote.calls(stream);
        let verdict = match self.hosts.may_be_hidden(peer) {
            true => calls.failed_hidden(&failure, now),
            false if self.hosts.may_be_led(peer) => calls.failed_led(&failure, now),
            false if calls.failed(&failure, now) => RetryDecision::Gone,
            false => RetryDecision::Again,
        };
        let due = calls.due();
        // Who has cut it may be a host between that does not reach the peer.
        let unreached = !matches!(failure, ConnectFailure::Fault(_));
        if unreached {
            self.ask(peer, stream, now);
        }
        match verdict {
            RetryDecision::Gone => return self.lose_for(peer, self.why(peer, &failure)),
            RetryDecision::Apart => self.hosts.cannot_reach(peer),
            RetryDecision::Again => {}
        }
        if let Some(due) = due {
            self.remind(due);
        }
    }

    /// Returns what is to be said of a peer that is given up since calls to it fail like that;
    /// where the two cannot have a connection, the hosts hear of it, too.
    fn why(&self, peer: Peer, failure: &ConnectFailure) -> &'static str {
        let ConnectFailure::Fault(fault) = failure else {
            return LOST;
        };
        self.hosts.refused(peer, fault);
        fault.for_good()
    }

    /// A call goes on.
    pub(super) fn step(&mut self, peer: Peer, stream: StreamNumber, now: Instant) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        let expected = match stream {
            StreamNumber::Small => remote.link.expected(),
            StreamNumber::Bulk(_) => 0,
        };
        let calls = remote.calls(stream);
        let line = match std::mem::take(&mut calls.call) {
            ConnectState::Out(line) => line,
            other => {
                calls.call = other;
                return;
            }
        };
        let (was_called, was_kept) = (line.called().is_some(), line.is_kept());
        match line.step(expected, now) {
            ConnectStep::Wait(line) => {
                if !was_called && line.called().is_some() {
                    let data = EpollTarget::Peer(peer, stream).data();
                    let _ = epoll::modify(&self.wake.epoll, line.fd(), data, EventFlags::IN);
                }
                let newly_kept = !was_kept && line.is_kept();
                calls.call = ConnectState::Out(Box::new(line));
                if newly_kept {
                    self.ask(peer, stream, now);
                } else if let Some(due) = calls.due() {
                    self.remind(due);
                }
            }
            ConnectStep::Failed(failure) => self.failed(peer, stream, failure, now),
            ConnectStep::Open(channel, theirs) => {
                let data = EpollTarget::Peer(peer, stream).data();
                let watched = epoll::modify(&self.wake.epoll, channel.fd(), data, EventFlags::IN);
                if watched.is_err() {
                    return self.failed(peer, stream, ConnectFailure::Cut, now);
                }
                let outdated = calls.is_outdated(&self.hosts.addresses(peer));
                self.opened(peer, stream, channel, theirs);
                if outdated {
                    // Its network may have been drained meanwhile.
                    self.leave_drained_by(peer, stream);
                }
            }
        }
    }

    /// A stream of a peer is open, whoever called.
    fn opened(
        &mut self,
        peer: Peer,
        stream: StreamNumber,
        channel: super::connection::Connection,
        theirs: u32,
    ) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        remote.calls(stream).opened();
        let version = channel.version();
        let honest = match stream {
            StreamNumber::Small => remote.link.adopt(channel, theirs, &mut self.blocks).is_ok(),
            StreamNumber::Bulk(path) => {
                remote.paths.adopt(path, channel);
                true
            }
        };
        if !honest {
            return self.lose(peer);
        }
        let ends = self.ends(peer, stream);
        if let Some(Some(remote)) = self.remotes.get_mut(peer as usize) {
            let calls = remote.calls(stream);
            calls.met = ends.map(|(_, other)| other.ip());
            calls.silences.opened(Instant::now());
        }
        if let (StreamNumber::Bulk(path), Some(ends)) = (stream, ends) {
            let (drained, share) = (self.is_drained(ends), self.hosts.share(ends.0.ip()));
            if let Some(Some(remote)) = self.remotes.get_mut(peer as usize) {
                if !stream.is_fabric() {
                    remote.paths.set_share(path, share);
                }
                if stream.is_further() {
                    remote.paths.set_drained(path, drained);
                }
            }
        }
        self.shown.opened(peer, stream, ends);
        self.shown.version(peer, stream, version);
        if let (StreamNumber::Bulk(path), Some(ends)) = (stream, ends) {
            self.begin_tuned(peer, path, ends);
        }
        self.show_round_trip(peer, stream);
        self.shown.brief(peer, stream, self.is_brief(peer, stream));
        if stream.is_fabric() {
            self.opened_fabric(peer);
        }
        self.mark_ready(peer);
        self.flush(peer, stream);
        self.spread(peer);
    }

    /// A stranger's socket is ready.
    fn stranger(&mut self, place: usize, now: Instant) {
        let (me, size) = (self.house.me.rank, self.hosts.size());
        let (remotes, gone, hosts, beside) = (&self.remotes, &self.gone, &self.hosts, &self.beside);
        let admit = |from: &ProcessId, stream: StreamNumber| {
            let peer = from.rank;
            let asked = from.world == ASKED;
            if peer >= size
                || peer == me
                || gone[peer as usize]
                || from.incarnation != hosts.incarnation(peer)
                || stream.is_further() && beside.get(peer as usize) == Some(&true)
            {
                return Err(RejectReason::Other);
            }
            let Some(remote) = remotes[peer as usize].as_ref().filter(|_| !asked) else {
                return Ok(0);
            };
            if me < peer
                && remote
                    .call_of(stream)
                    .is_some_and(|calls| calls.stands(now))
            {
                return Err(RejectReason::Busy);
            }
            Ok(match stream {
                StreamNumber::Small => remote.link.expected(),
                StreamNumber::Bulk(_) => 0,
            })
        };
        if let Some(newcomer) = self.door.look(place, &self.house, admit) {
            self.newcomer(newcomer);
        }
    }

    fn newcomer(&mut self, newcomer: Authenticated) {
        let (peer, stream) = (newcomer.from.rank, newcomer.stream);
        if self.remote(peer).is_err() {
            return;
        }
        if newcomer.from.world == ASKED {
            return self.wanted_there(peer, stream);
        }
        let data = EpollTarget::Peer(peer, stream).data();
        if epoll::modify(
            &self.wake.epoll,
            newcomer.channel.fd(),
            data,
            EventFlags::IN,
        )
        .is_ok()
        {
            self.opened(peer, stream, newcomer.channel, newcomer.expected);
        }
    }

    /// Bytes are under way on a connection, and the other host has confirmed nothing for long.
    pub(super) fn fell_silent(&mut self, peer: Peer, stream: StreamNumber, now: Instant) {
        self.broke_so(peer, stream, (true, now));
    }

    /// A connection has ended.
    pub(super) fn broke(&mut self, peer: Peer, stream: StreamNumber) {
        self.broke_so(peer, stream, (false, Instant::now()));
    }

    fn broke_so(&mut self, peer: Peer, stream: StreamNumber, (silent, now): (bool, Instant)) {
        if self.note_end(peer, stream, silent, now) {
            return self.give_up_silent(peer);
        }
        let next = self.by_next_network(peer, stream);
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if let Some(next) = next {
            remote.calls(stream).turn_to(next);
        }
        match stream {
            StreamNumber::Small => remote.link.cut(),
            StreamNumber::Bulk(path) => remote.paths.cut(path),
        }
        self.shown.closed(peer, stream);
        if remote.condemned {
            return;
        }
        if remote.link.heard_bye {
            // It left in good order; whoever still asks it for something asks in vain.
            let reads = remote.paths.take_reads();
            self.fail(peer, reads, LOST);
            self.settle_recalls();
            return;
        }
        if stream.is_fabric() {
            self.broke_fabric(peer);
        } else if remote.is_wanted(stream) {
            remote.calls(stream).broke(now, self.house.me.rank > peer);
            if let Some(due) = remote.due(stream) {
                self.remind(due);
            }
            self.must_look = true;
        }
        self.spread(peer);
    }

    /// Which of a peer's addresses is to be called when its open connection by one of several
    /// networks in common breaks: that of the next one. The network itself may be why, as a tunnel
    /// that takes calls and loses all longer packets.
    fn by_next_network(&self, peer: Peer, stream: StreamNumber) -> Option<usize> {
        if !matches!(stream, StreamNumber::Small | StreamNumber::Bulk(0)) {
            return None;
        }
        let remote = self.remotes.get(peer as usize)?.as_ref()?;
        let met = remote.call_of(stream)?.met?;
        let networks = self.hosts.networks(peer);
        let at = networks.iter().position(|network| network.ip() == met)?;
        let mut others = networks[at + 1..].iter().chain(&networks[..at]);
        let next = others.find(|network| !self.hosts.is_drained(network.ip()))?;
        let addresses = self.hosts.addresses(peer);
        addresses.iter().position(|address| address == next)
    }

    fn fail(&mut self, peer: Peer, reads: Vec<u64>, what: &'static str) {
        for token in reads {
            self.done.push((token, Err(Error::Peer { peer, what })));
        }
    }

    /// A peer counts as gone.
    pub(super) fn lose(&mut self, peer: Peer) {
        self.lose_for(peer, LOST);
    }

    pub(super) fn lose_for(&mut self, peer: Peer, why: &'static str) {
        let beside = self.is_beside(peer);
        if beside && !self.hosts.is_gone(peer) {
            return self.part(peer);
        }
        let Some(gone) = self.gone.get_mut(peer as usize) else {
            return;
        };
        if std::mem::replace(gone, true) {
            return;
        }
        if let Some(mut remote) = self.remotes[peer as usize].take() {
            for stream in remote.streams() {
                self.shown.closed(peer, stream);
            }
            let reads = remote.paths.take_reads();
            self.fail(peer, reads, why);
            remote.link.log.clear(&mut self.blocks);
            self.open.retain(|open| *open != peer);
        }
        self.settle_recalls();
        if !beside {
            self.untold.push(PendingNotice::Gone(peer, why));
        }
    }

    /// Sends what waits on a stream, and has its socket watched for room if it is full.
    pub(super) fn flush(&mut self, peer: Peer, stream: StreamNumber) {
        let slice = match stream {
            StreamNumber::Small => usize::MAX,
            StreamNumber::Bulk(_) => self.brisk.slice(Instant::now),
        };
        self.flush_some(peer, stream, slice);
    }

    /// Sends what waits, but about `slice` bytes of bulk data at most.
    pub(super) fn flush_some(&mut self, peer: Peer, stream: StreamNumber, slice: usize) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        self.unconfirmed = true;
        let sent = match stream {
            StreamNumber::Small => remote.link.flush(),
            StreamNumber::Bulk(path) => remote.paths.at(path).bulk.flush(slice),
        };
        if sent == SendResult::Over {
            // What the other side sent before it cut is taken first.
            self.mark_ready(peer);
            self.must_look = true;
            return;
        }
        // What may leave later is seen to at the next look, as where there is no room now.
        let full = sent != SendResult::All;
        if sent == SendResult::Enough {
            self.must_look = true;
        }
        if remote.calls(stream).watches_room == full {
            return;
        }
        let flags = if full {
            EventFlags::IN | EventFlags::OUT
        } else {
            EventFlags::IN
        };
        if let Some(fd) = remote.fd(stream)
            && epoll::modify(
                &self.wake.epoll,
                fd,
                EpollTarget::Peer(peer, stream).data(),
                flags,
            )
            .is_ok()
        {
            remote.calls(stream).watches_room = full;
        }
    }

    /// Looks at all sockets and at the clock.
    pub(super) fn look(&mut self) {
        self.must_look = false;
        let drained = self.hosts.drained();
        if drained != self.drained {
            self.drained = drained;
            self.leave_drained();
        }
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let now_or_never = Timespec::default();
        let Ok((events, _)) = epoll::wait(&self.wake.epoll, &mut room, Some(&now_or_never)) else {
            self.must_look = true;
            return;
        };
        if events.is_empty() && self.deadline.is_none() {
            return;
        }
        let now = Instant::now();
        self.come_back(now);
        // Whose call is here need not be asked for it, and has not come too late.
        for turn in 0..TURNS {
            let whose = |event: &Event| (EpollTarget::from_data(event.data), event.flags);
            for (watched, flags) in events.iter().map(whose) {
                if watched.turn() != turn {
                    continue;
                }
                self.glance.saw_another(
                    self.hot
                        .map(|hot| EpollTarget::Peer(hot, StreamNumber::Small))
                        != Some(watched),
                );
                match watched {
                    EpollTarget::Bell => {
                        self.wake.hush();
                        self.take_endpoints();
                    }
                    EpollTarget::Door => self.let_in(now),
                    EpollTarget::Stranger(place) => self.stranger(place, now),
                    EpollTarget::Peer(peer, stream) => self.event(peer, stream, flags, now),
                }
            }
        }
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.keep_time(now);
        }
    }

    /// Lets some in, and hears each at once: who looks seldom would answer it at the next look
    /// only.
    fn let_in(&mut self, now: Instant) {
        for _ in 0..TCP_ACCEPTS_PER_POLL {
            let epoll = &self.wake.epoll;
            let mut watch = |place: usize, fd: BorrowedFd<'_>| {
                epoll::add(
                    epoll,
                    fd,
                    EpollTarget::Stranger(place).data(),
                    EventFlags::IN,
                )
                .is_ok()
            };
            let Some(place) = self.door.open_to_one(now, &mut watch) else {
                break;
            };
            self.stranger(place, now);
        }
        if let Some(at) = self.door.keep_time(now) {
            self.remind(at);
        }
    }

    fn event(&mut self, peer: Peer, stream: StreamNumber, flags: EventFlags, now: Instant) {
        let Some(Some(remote)) = self.remotes.get_mut(peer as usize) else {
            return;
        };
        if matches!(remote.calls(stream).call, ConnectState::Out(_)) && remote.fd(stream).is_none()
        {
            return self.step(peer, stream, now);
        }
        if flags.intersects(EventFlags::OUT) {
            self.flush(peer, stream);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.mark_ready(peer);
        }
    }
}
