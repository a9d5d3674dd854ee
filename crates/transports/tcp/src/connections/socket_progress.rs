//! What a rank does with its sockets: looks at which are ready, has calls go on, lets callers in,
//! and does what is due by the clock.
//!
//! Part of [`Connections`]; called from the transport's polls and before it sleeps. Nothing here
//! delivers to the engine.

use super::Connections;
use crate::context::TransportContext;
use crate::frame::{ASKED, ProcessId, RejectReason, StreamNumber};
use crate::ofi_path::STREAM as FABRIC_STREAM;
use crate::packet_stream::SendResult;
use crate::peer::{ConnectAttempts, ConnectState};
use crate::poll_pacing::PollPacing;
use crate::sockets::{EVENTS, EpollTarget, TURNS};
use crate::unauthenticated::Authenticated;
use garonne_engine::api::Peer;
use garonne_transport::limits::{TCP_ACCEPTS_PER_POLL, TCP_SILENCE_MAX};
use rustix::event::epoll::{Event, EventFlags};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::Instant;

impl Connections {
    /// Looks at all sockets and at the clock.
    pub(crate) fn look(&mut self, ctx: &mut TransportContext, pacing: &mut PollPacing) {
        ctx.sockets.begin_look();
        let drained = self.directory.drained();
        if drained != self.drained_changes {
            self.drained_changes = drained;
            self.leave_drained(ctx);
        }
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let Some(events) = ctx.sockets.wait(&mut room) else {
            return;
        };
        if events.is_empty() && !ctx.timers.is_set() {
            return;
        }
        let now = Instant::now();
        self.come_back(ctx, now);
        // Whose call is here need not be asked for it, and has not come too late.
        for turn in 0..TURNS {
            let whose = |event: &Event| (EpollTarget::from_data(event.data), event.flags);
            for (watched, flags) in events.iter().map(whose) {
                if watched.turn() != turn {
                    continue;
                }
                pacing.saw(match watched {
                    EpollTarget::Peer(peer, StreamNumber::Small) => Some(peer),
                    _ => None,
                });
                match watched {
                    EpollTarget::Bell => {
                        ctx.sockets.wake().hush();
                        self.take_endpoints(ctx);
                    }
                    EpollTarget::Listener => self.let_in(ctx, now),
                    EpollTarget::Unauthenticated(place) => self.stranger(ctx, place, now),
                    EpollTarget::Peer(peer, stream) => self.event(ctx, peer, stream, flags, now),
                }
            }
        }
        if ctx.timers.is_due(now) {
            self.keep_time(ctx, now);
        }
    }

    /// Lets some in, and hears each at once: who looks seldom would answer it at the next look
    /// only.
    fn let_in(&mut self, ctx: &mut TransportContext, now: Instant) {
        for _ in 0..TCP_ACCEPTS_PER_POLL {
            let sockets = &ctx.sockets;
            let mut watch = |place: usize, fd: BorrowedFd<'_>| {
                sockets.watch(fd, EpollTarget::Unauthenticated(place), EventFlags::IN)
            };
            let Some(place) = self.listener.open_to_one(now, &mut watch) else {
                break;
            };
            self.stranger(ctx, place, now);
        }
        if let Some(at) = self.listener.keep_time(now) {
            ctx.timers.remind(at);
        }
    }

    /// A unauthenticated caller's socket is ready.
    fn stranger(&mut self, ctx: &mut TransportContext, place: usize, now: Instant) {
        let (me, size) = (self.identity.me.rank, self.directory.size());
        let (peers, directory, beside) = (&ctx.peers, &self.directory, &self.beside);
        let admit = |from: &ProcessId, stream: StreamNumber| {
            let peer = from.rank;
            let asked = from.world == ASKED;
            if peer >= size
                || peer == me
                || peers.is_gone(peer)
                || from.incarnation != directory.incarnation(peer)
                || stream.is_further() && beside.get(peer as usize) == Some(&true)
            {
                return Err(RejectReason::Other);
            }
            let Some(remote) = peers.get(peer).filter(|_| !asked) else {
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
        if let Some(newcomer) = self.listener.look(place, &self.identity, admit) {
            self.newcomer(ctx, newcomer);
        }
    }

    fn event(
        &mut self,
        ctx: &mut TransportContext,
        peer: Peer,
        stream: StreamNumber,
        flags: EventFlags,
        now: Instant,
    ) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        if matches!(remote.calls(stream).call, ConnectState::Out(_)) && remote.fd(stream).is_none()
        {
            return self.step(ctx, peer, stream, now);
        }
        if flags.intersects(EventFlags::OUT) {
            ctx.flush(peer, stream);
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            ctx.ready.mark(peer);
        }
    }

    /// To be called before anything else is done in a look: what is due for long could not be done,
    /// by this side and perhaps by all, who may have been stopped together.
    pub(super) fn come_back(&mut self, ctx: &mut TransportContext, now: Instant) {
        let Some(time) = ctx.timers.away(now) else {
            return;
        };
        for at in 0..ctx.peers.met().len() {
            let peer = ctx.peers.met()[at];
            let Some(remote) = ctx.peers.get_mut(peer) else {
                continue;
            };
            for stream in remote.streams() {
                remote.calls(stream).away(time, now);
            }
        }
    }

    /// Does what is due by the clock.
    pub(super) fn keep_time(&mut self, ctx: &mut TransportContext, now: Instant) {
        let listen = ctx.timers.begin(now);
        if let Some(at) = self.listener.keep_time(now) {
            ctx.timers.remind(at);
        }
        let mut unconfirmed = false;
        for peer in ctx.peers.met().to_vec() {
            if listen {
                self.listen(ctx, peer);
            }
            let Some(remote) = ctx.peers.get(peer) else {
                continue;
            };
            for stream in remote.streams() {
                let silence = if listen {
                    ctx.silence(peer, stream)
                } else {
                    None
                };
                unconfirmed |= silence.is_some();
                if silence.is_some_and(|silence| silence > TCP_SILENCE_MAX) {
                    ctx.cut_short(peer, stream);
                    self.fell_silent(ctx, peer, stream, now);
                }
                let Some(remote) = ctx.peers.get(peer) else {
                    break;
                };
                let calls = remote.call_of(stream);
                match calls.and_then(ConnectAttempts::due) {
                    Some(due) if due > now => ctx.timers.remind(due),
                    Some(_) => match calls.and_then(|calls| calls.late(now)) {
                        Some(failure) => self.failed(ctx, peer, stream, failure, now),
                        None if calls.is_some_and(ConnectAttempts::is_out) => {
                            self.ask(ctx, peer, stream, now)
                        }
                        None => self.call(ctx, peer, stream, now),
                    },
                    None => {}
                }
            }
        }
        if listen {
            ctx.timers.set_unconfirmed(unconfirmed);
        }
        ctx.listen_again(now);
        ctx.timers.end();
    }

    /// Told by the host that a peer died: what came from it is still delivered, then the engine is
    /// told.
    pub(crate) fn peer_gone(&mut self, ctx: &mut TransportContext, peer: Peer) {
        if ctx.peers.is_gone(peer) {
            return;
        }
        match ctx.peers.get_mut(peer) {
            Some(remote) => {
                remote.condemned = true;
                ctx.ready.mark(peer);
            }
            None => self.lose(ctx, peer),
        }
    }

    /// Last words before the owner sleeps: acknowledgements that are owed, deaths that the host
    /// knows of, the time to wake up.
    pub fn before_sleep(&mut self, ctx: &mut TransportContext) {
        for at in 0..ctx.peers.met().len() {
            let peer = ctx.peers.met()[at];
            if self.directory.is_gone(peer) {
                self.peer_gone(ctx, peer);
            }
            if let Some(remote) = ctx.peers.get_mut(peer)
                && remote.link.owes()
            {
                ctx.timers.expect_confirmation();
                if remote.link.acknowledge() == SendResult::Over {
                    ctx.ready.mark(peer);
                }
            }
        }
        ctx.fill_sockets();
        ctx.watch_fabrics();
        ctx.listen_again(Instant::now());
        ctx.sockets.look_again();
    }

    /// A caller has proved itself.
    fn newcomer(&mut self, ctx: &mut TransportContext, newcomer: Authenticated) {
        let (peer, stream) = (newcomer.from.rank, newcomer.stream);
        if self.remote(ctx, peer).is_err() {
            return;
        }
        if newcomer.from.world == ASKED {
            return self.wanted_there(ctx, peer, stream);
        }
        let target = EpollTarget::Peer(peer, stream);
        if ctx
            .sockets
            .change(newcomer.channel.fd(), target, EventFlags::IN)
        {
            self.opened(ctx, peer, stream, newcomer.channel, newcomer.expected);
        }
    }

    /// Leaves the networks that are to be left alone, and may use all others again. What every pair
    /// needs is opened anew if there is another network; what was under way is sent and asked for
    /// again there.
    fn leave_drained(&mut self, ctx: &mut TransportContext) {
        for peer in ctx.peers.met().to_vec() {
            let Some(remote) = ctx.peers.get(peer) else {
                continue;
            };
            for stream in remote.streams() {
                self.leave_drained_by(ctx, peer, stream);
            }
            ctx.spread(peer);
        }
    }

    /// Looks for ways that bring nothing while others could.
    fn listen(&mut self, ctx: &mut TransportContext, peer: Peer) {
        let Some(remote) = ctx.peers.get_mut(peer) else {
            return;
        };
        let had_fabric = remote.fd(FABRIC_STREAM).is_some();
        let silent = remote.paths.listen();
        if had_fabric && remote.fd(FABRIC_STREAM).is_none() {
            // Given up.
            self.broke(ctx, peer, FABRIC_STREAM);
        }
        self.listen_to_fabric(ctx, peer);
        if silent {
            ctx.spread(peer);
        }
    }
}
