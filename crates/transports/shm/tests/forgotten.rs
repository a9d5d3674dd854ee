//! What engines keep for a communicator, and that nothing of it is left once both sides have
//! forgotten it, whatever was still on its way.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_engine::fast::recv::FastRecv;
use garonne_engine::fast::send::FastSend;
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sync::user::{Data, Scratch};
use std::ops::Range;
use std::sync::Arc;

/// Contexts: of the communicator that is freed, and of two others.
const CONTEXT: u32 = 10;
const OTHER: u32 = 18;
const THIRD: u32 = 26;
const CONTEXTS: Range<u32> = 8..16;
const TAG: i32 = 5;
const LEN: usize = 8;
/// More than any message here needs.
const LOOKS: usize = 100;

struct Pair {
    sender: Engine<ShmTransport>,
    receiver: Engine<ShmTransport>,
    memory: Scratch,
    room: Scratch,
}

fn pattern(context: u32) -> Pattern {
    Pattern {
        context,
        source: Some(Source { rank: 0, peer: 0 }),
        tag: Some(TAG),
    }
}

impl Pair {
    fn new(quotas: CreditQuotas) -> Self {
        let ranks = ThreadPeers::new(2).unwrap().into_iter().enumerate();
        let mut shards = ranks.map(|(me, rank)| {
            Engine::new(
                ShmTransport::new(Arc::new(rank)).unwrap(),
                me as u32,
                2,
                quotas,
            )
        });
        let (mut sender, receiver) = (shards.next().unwrap(), shards.next().unwrap());
        sender.allow_slot_batches(true);
        Self {
            sender,
            receiver,
            memory: Scratch::new(LEN).unwrap(),
            room: Scratch::new(1 << 20).unwrap(),
        }
    }

    fn plenty() -> Self {
        Self::new(CreditQuotas::for_world(2))
    }

    /// The send, unless it is over.
    fn send(&mut self, context: u32) -> Option<Request> {
        let (mem, origin) = (self.memory.mem(), CallOrigin::default());
        let small = FastSend {
            context,
            peer: 1,
            source: 0,
            tag: TAG,
            mem,
            len: LEN,
            origin,
        };
        if self.sender.send_small(&small) {
            return None;
        }
        let send = SendArgs {
            context,
            peer: 1,
            source: 0,
            tag: TAG,
            data: Data::contiguous(mem, LEN as u64),
            mode: SendCompletion::Standard,
            origin,
        };
        match self.sender.send(send).unwrap() {
            StartOutcome::Done(_) => None,
            StartOutcome::Pending(request) => Some(request),
        }
    }

    fn post(&mut self, context: u32) -> StartOutcome {
        let recv = RecvArgs {
            pattern: pattern(context),
            data: Data::contiguous(self.room.mem(), LEN as u64),
            origin: CallOrigin::default(),
        };
        self.receiver.recv(recv).unwrap()
    }

    fn ends(&mut self, receive: Request) -> bool {
        (0..LOOKS).any(|_| {
            self.sender.progress();
            self.receiver.progress();
            let ended = self.receiver.take(receive).unwrap();
            ended
                .inspect(|status| assert_eq!(status.error, None))
                .is_some()
        })
    }

    fn passes(&mut self, context: u32) {
        self.send(context);
        match self.post(context) {
            StartOutcome::Done(status) => assert_eq!(status.error, None),
            StartOutcome::Pending(receive) => assert!(self.ends(receive)),
        }
    }

    fn forget(&mut self) {
        self.sender.forget(&CONTEXTS);
        self.receiver.forget(&CONTEXTS);
    }
}

#[test]
fn nothing_is_left_of_a_communicator_and_its_numbers_begin_anew() {
    let mut pair = Pair::plenty();
    pair.passes(OTHER);
    let before = (pair.sender.streams(), pair.receiver.streams());
    for round in 0..50 {
        for _ in 0..round % 5 {
            // One takes the other's place in the next round.
            pair.passes(CONTEXT + round % 2);
            pair.passes(CONTEXT + 1 - round % 2);
            pair.passes(OTHER);
            assert_eq!(pair.sender.streams(), before.0 + 2);
            assert_eq!(pair.receiver.streams(), before.1 + 2);
        }
        pair.forget();
        assert_eq!((pair.sender.streams(), pair.receiver.streams()), before);
    }
}

#[test]
fn an_offer_that_comes_after_its_communicator_was_freed_is_nobodys_fault() {
    for sent_before in 0..3 {
        let mut pair = Pair::plenty();
        for _ in 0..sent_before {
            pair.passes(CONTEXT);
        }
        let place = (pair.room.mem(), 1 << 20);
        let catch = FastRecv::new(pattern(CONTEXT), place, CallOrigin::default());
        let receive = pair.receiver.post_plain(&catch).unwrap();
        pair.receiver.offer_early(receive);
        // Before it has heard of that.
        assert!(pair.send(CONTEXT).is_none());
        pair.sender.forget(&CONTEXTS);
        assert!(pair.ends(receive));
        pair.receiver.forget(&CONTEXTS);
        while pair.sender.progress() {}
        for context in [CONTEXT, OTHER, CONTEXT] {
            pair.passes(context);
        }
    }
}

#[test]
fn a_question_whose_answer_comes_after_its_communicator_was_freed_holds_up_no_other() {
    let quotas = CreditQuotas {
        envelopes: 2,
        payload: 1 << 20,
    };
    for answered in [false, true] {
        let mut pair = Pair::new(quotas);
        pair.passes(CONTEXT);
        while pair.receiver.progress() | pair.sender.progress() {}
        for _ in 0..2 {
            assert!(pair.send(OTHER).is_none());
        }
        // These find no credit, and only a question brings one of them.
        let held = [CONTEXT, THIRD].map(|context| pair.send(context));
        assert!(held.iter().all(Option::is_some));
        while pair.receiver.progress() | pair.sender.progress() {}
        assert_eq!(pair.receiver.probe(pattern(CONTEXT)).unwrap(), None);
        pair.receiver.progress();
        pair.sender.progress();
        if answered {
            pair.receiver.progress();
        }
        pair.receiver.forget(&CONTEXTS);
        match pair.post(THIRD) {
            StartOutcome::Done(status) => assert_eq!(status.error, None),
            StartOutcome::Pending(receive) => assert!(pair.ends(receive), "{answered}"),
        }
    }
}
