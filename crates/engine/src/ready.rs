//! Receives whose message lies ready: matched and taken in one go, without a request.
//!
//! A message that lies in its slot when its receive comes needs no more than a comparison, if nothing else could concern either: no receive was posted
//! before, no message is kept or held back, nothing waits to be done. Whenever that is not so nothing happens here, and the ways of `quick`
//! and `shard` see to it. Owned by the shard; holds nothing.

use crate::api::Request;
use crate::core::Core;
use crate::event::{Event, What};
use crate::quick::{ANY_PEER, Catch, Caught};
use crate::rail::{Header, Kind, Peeked, Rail, Ready};
use crate::shard::Shard;
use crate::table::NONE;

impl Core {
    /// Whether a receive may take a message that lies ready: nothing queued must not wait, no message is kept, held back by its sender or comes in
    /// pieces already, and no receive was posted before.
    #[inline(always)]
    fn is_calm(&self) -> bool {
        let nothing = u32::from(self.pending) | self.holders | self.flows;
        nothing == 0 && self.matcher.is_empty()
    }

    /// Receives a packet that lies ready into `catch`, if it is the next envelope of its stream and all is plain, for a receive that nothing
    /// precedes. Gives the gate whose credits are to be returned now, or `NONE`. `None`: nothing happened.
    #[inline(always)]
    fn grab(&mut self, catch: &Catch, peeked: &Peeked) -> Option<(Caught, u32)> {
        let [first, second, third] = peeked.words;
        let caught = Caught {
            source: (second >> 32) as u32,
            tag: third as u32 as i32,
            len: Header::len_in(&peeked.words),
        };
        // Neither flags nor shard: the half has the kind alone.
        let wanted = first as u32 == Kind::Eager as u32
            && second as u32 == catch.context
            && (peeked.peer == catch.peer || catch.peer == ANY_PEER)
            && (caught.tag == catch.tag || catch.tag < 0)
            && caught.len <= catch.room;
        if !wanted {
            return None;
        }
        let route = self.known_route(catch.context, peeked.peer)?;
        let stream = self.streams.get_mut(route.stream);
        let gate = &mut self.gates[route.gate as usize];
        let sequence = (third >> 32) as u32;
        if stream.odd.is_some() || sequence != stream.next_rx as u32 || !gate.may_send(&self.quotas) {
            return None;
        }
        stream.next_rx += 1;
        gate.outstanding += 1;
        let due = gate.owe(caught.len.into(), &self.quotas);
        catch.mem.copy_from(0, peeked.payload, 0, caught.len as usize);
        self.events.push(Event {
            len: caught.len.into(),
            site: catch.origin.site,
            peer: peeked.peer,
            context: catch.context,
            tag: caught.tag,
            call: catch.origin.call,
            what: What::Recv,
            kind: catch.origin.kind,
        });
        Some((caught, if due { route.gate } else { NONE }))
    }
}

impl<R: Rail> Shard<R> {
    /// Receives at once if a matching small message was kept, or is the next thing that arrives within `spins` looks at a quiet rail; `None`: nothing
    /// was received, take the general way.
    #[inline(always)]
    pub fn recv_quick(&mut self, catch: &Catch, spins: u32) -> Option<Caught> {
        let mut left = spins;
        while self.core.is_calm() {
            match self.take_ready(catch) {
                Ready::Taken(caught) => return Some(caught),
                Ready::Unknown if self.rail.is_quiet() => {}
                _ => return self.recv_polled(*catch, left),
            }
            if left == 0 {
                return None;
            }
            left -= 1;
            std::hint::spin_loop();
        }
        self.recv_troubled(*catch, spins)
    }

    /// Receives the message that lies ready, if it is one for `catch`; the engine is calm.
    #[inline(always)]
    fn take_ready(&mut self, catch: &Catch) -> Ready<Caught> {
        let core = &mut self.core;
        match self.rail.take_ready(|peeked| core.grab(catch, peeked)) {
            Ready::Taken((caught, gate)) => {
                if gate != NONE {
                    self.return_credits_now(gate);
                }
                Ready::Taken(caught)
            }
            Ready::Refused => Ready::Refused,
            Ready::Unknown => Ready::Unknown,
        }
    }

    /// The same where messages are kept or receives posted.
    #[inline(never)]
    fn recv_troubled(&mut self, catch: Catch, spins: u32) -> Option<Caught> {
        // Held messages may match, or one that comes in pieces already, and queued work must not wait for this.
        if self.core.pending || self.core.holders != 0 || self.core.flows != 0 {
            return None;
        }
        if let Some(item) = self.core.matcher.find(&catch.pattern()) {
            return self.recv_kept(catch, item);
        }
        self.recv_polled(catch, spins)
    }

    #[cold]
    #[inline(never)]
    fn return_credits_now(&mut self, gate: u32) {
        self.core.return_credits(gate);
        self.pump();
    }

    /// Starts a receive of contiguous bytes: it ends with a message that lies ready or was kept, or is posted. `None`: nothing happened, take
    /// the general way. Its end is asked for with [`Shard::end_plain`] or with `take`.
    #[inline(always)]
    pub fn post_plain(&mut self, catch: &Catch) -> Option<Request> {
        if self.core.is_calm()
            && self.core.requests.has_room()
            && let Ready::Taken(caught) = self.take_ready(catch)
        {
            self.core.completions += 1;
            return self
                .core
                .requests
                .open_ended(catch.context, caught, self.core.completions);
        }
        self.post_unready(*catch)
    }
}
