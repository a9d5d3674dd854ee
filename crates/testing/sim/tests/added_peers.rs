//! Peers of a second world that a running engine is connected to.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, Peer, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sync::user::{Data, Scratch};

const CONTEXT: u32 = 2;
const ADDED: u32 = 1000;
/// Longer than what travels with an envelope, so that regions are exposed and read, too.
const LEN: usize = 100_000;

fn send(engine: &mut Engine<LocalTransport>, me: Peer, peer: Peer, data: Data) -> StartOutcome {
    try_send(engine, me, peer, data).unwrap()
}

fn try_send(
    engine: &mut Engine<LocalTransport>,
    me: Peer,
    peer: Peer,
    data: Data,
) -> Result<StartOutcome, Error> {
    engine.send(SendArgs {
        context: CONTEXT,
        peer,
        source: me,
        tag: 7,
        data,
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    })
}

/// Sends from one engine to the other, and checks what arrived.
fn exchange(
    (from, sender): (Peer, &mut Engine<LocalTransport>),
    (to, receiver): (Peer, &mut Engine<LocalTransport>),
    len: usize,
) {
    let (sent, got) = (Scratch::new(len).unwrap(), Scratch::new(len).unwrap());
    sent.mem()
        .with_mut(0, len, |bytes| bytes.fill((from ^ to) as u8 | 1));
    let sending = send(sender, from, to, Data::contiguous(sent.mem(), len as u64));
    let mut receiving = receiver
        .recv(RecvArgs {
            pattern: Pattern {
                context: CONTEXT,
                source: Some(Source {
                    rank: from,
                    peer: from,
                }),
                tag: Some(7),
            },
            data: Data::contiguous(got.mem(), len as u64),
            origin: CallOrigin::default(),
        })
        .unwrap();
    let mut sending = sending;
    for _ in 0..10_000 {
        receiver.progress();
        sender.progress();
        for (engine, started) in [
            (&mut *receiver, &mut receiving),
            (&mut *sender, &mut sending),
        ] {
            if let StartOutcome::Pending(request) = *started
                && let Some(status) = engine.take(request).unwrap()
            {
                *started = StartOutcome::Done(status);
            }
        }
        if let (StartOutcome::Done(sent), StartOutcome::Done(received)) = (&sending, &receiving) {
            assert_eq!((sent.error.is_none(), received.len), (true, len as u64));
            got.mem().with_mut(0, len, |bytes| {
                assert!(bytes.iter().all(|byte| *byte == (from ^ to) as u8 | 1));
            });
            return;
        }
    }
    panic!("a message of {len} bytes from {from} to {to} does not arrive");
}

#[test]
fn a_running_engine_exchanges_messages_with_peers_that_were_added_to_it() {
    let whole = 2 + ADDED;
    let fabric = Fabric::new(whole);
    let quotas = CreditQuotas::for_world(2);
    let mut engine = Engine::new(fabric.transport(0), 0, 2, quotas);
    let mut neighbour = Engine::new(fabric.transport(1), 1, 2, quotas);
    exchange((0, &mut engine), (1, &mut neighbour), 100);
    let nobody = Scratch::new(8).unwrap();
    let refused = try_send(&mut engine, 0, 5, Data::contiguous(nobody.mem(), 8));
    assert!(
        matches!(refused, Err(Error::Misuse(_))),
        "peer 5 is not known yet: {refused:?}"
    );
    assert_eq!(engine.add_peers(ADDED).unwrap(), 2..whole);
    for peer in 2..whole {
        let mut other = Engine::new(fabric.transport(peer), peer, whole, quotas);
        let len = if peer % 50 == 0 { LEN } else { 100 };
        exchange((0, &mut engine), (peer, &mut other), len);
        exchange((peer, &mut other), (0, &mut engine), len);
    }
    exchange((1, &mut neighbour), (0, &mut engine), LEN);
    assert_eq!(engine.peer_count(), whole as usize - 1, "all but itself");
    assert!(engine.is_idle());
}
