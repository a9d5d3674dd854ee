//! Two ranks that do not agree about what one grants the other: whoever sends more than its
//! receiver granted is found out, whatever it sends, and whoever does not is not.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_sim::local::{Fabric, LocalTransport};
use garonne_sim::random::Random;
use garonne_sim::seeds::run_seeds;
use garonne_sync::user::{Data, Scratch};
use std::collections::VecDeque;

/// Credits that the receiver grants.
const GRANTED: CreditQuotas = CreditQuotas {
    envelopes: 16,
    payload: 4000,
};
/// Credits that the sender believes in.
const BELIEVED: CreditQuotas = CreditQuotas {
    envelopes: 64,
    payload: 64_000,
};
/// The longest message that travels with its envelope in this fabric.
const LEN_MAX: u64 = 4000;

#[derive(Clone, Copy, Debug)]
enum Deed {
    /// The sender sends so many bytes, in this mode.
    Sends(u64, SendCompletion),
    /// The receiver takes the oldest message, if there is one.
    Receives,
}

fn deed(random: &mut Random) -> Deed {
    let len = match random.below(6) {
        0..3 => random.below(40),
        3..5 => random.below(1500),
        _ => LEN_MAX,
    };
    match random.below(5) {
        0..2 => Deed::Receives,
        2 => Deed::Sends(len, SendCompletion::Synchronous),
        _ => Deed::Sends(len, SendCompletion::Standard),
    }
}

fn send(
    shard: &mut Engine<LocalTransport>,
    peer: u32,
    memory: &Scratch,
    len: u64,
    mode: SendCompletion,
) -> bool {
    let send = SendArgs {
        context: 0,
        peer,
        source: 1 - peer,
        tag: 5,
        data: Data::contiguous(memory.mem(), len),
        mode,
        origin: CallOrigin::default(),
    };
    shard.send(send).is_ok()
}

fn settle(shards: &mut [Engine<LocalTransport>; 2]) {
    for _ in 0..20 {
        for shard in shards.iter_mut() {
            shard.progress();
        }
    }
}

#[test]
fn who_sends_more_than_was_granted_is_lost_and_nobody_else() {
    run_seeds("-p garonne-sim --test credit_overdraft", 0..300, |seed| {
        let mut random = Random::new(seed);
        let fabric = Fabric::new(2);
        let quotas = [GRANTED, BELIEVED];
        let mut shards =
            [0, 1].map(|me| Engine::new(fabric.transport(me), me, 2, quotas[me as usize]));
        let memory = Scratch::new(LEN_MAX as usize).unwrap();
        // What was sent and not received, and what was received without that its sender was told.
        let (mut waiting, mut owed) = (VecDeque::new(), (0u32, 0u64));
        let mut overdrawn = false;
        for _ in 0..1 + random.below(60) {
            match deed(&mut random) {
                Deed::Sends(len, mode) => {
                    assert!(send(&mut shards[1], 0, &memory, len, mode));
                    waiting.push_back(len);
                }
                Deed::Receives => {
                    let Some(len) = waiting.pop_front() else {
                        continue;
                    };
                    let pattern = Pattern {
                        context: 0,
                        source: Some(Source { rank: 1, peer: 1 }),
                        tag: Some(5),
                    };
                    let recv = RecvArgs {
                        pattern,
                        data: Data::contiguous(memory.mem(), LEN_MAX),
                        origin: CallOrigin::default(),
                    };
                    assert!(
                        matches!(shards[0].recv(recv), Ok(StartOutcome::Done(_))),
                        "it lay there"
                    );
                    owed = (owed.0 + 1, owed.1 + len);
                    // Told by the half.
                    if owed.0 * 2 >= GRANTED.envelopes || owed.1 * 2 >= GRANTED.payload {
                        owed = (0, 0);
                    }
                }
            }
            settle(&mut shards);
            let envelopes = waiting.len() as u32 + owed.0;
            let payload = waiting.iter().sum::<u64>() + owed.1;
            overdrawn = envelopes > GRANTED.envelopes || payload > GRANTED.payload;
            if overdrawn {
                break;
            }
        }
        assert_eq!(
            send(&mut shards[0], 1, &memory, 0, SendCompletion::Standard),
            !overdrawn
        );
        assert!(shards[0].unexpected_count() <= GRANTED.envelopes as usize);
    });
}
