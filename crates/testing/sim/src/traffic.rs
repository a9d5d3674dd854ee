//! Random traffic between ranks, and what must be true of it: every message once, intact, as it was
//! sent, and in order.
//!
//! A plan is a function of a seed, the same on every rank; each plays its part of it. Messages
//! carry their number and a pattern of it, so that each byte is checked.

use crate::job::SimHost;
use crate::random::Random;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, RecvArgs, Request, SendArgs, SendCompletion, Source, StartOutcome,
    Status,
};
use garonne_progress::messaging::{FastMessaging, Messaging, Waiting};
use garonne_sync::user::{Data, Scratch};
use std::collections::HashMap;

/// Lengths of all kinds: nothing, with the envelope, in one packet, in pieces, announced.
pub const LENS: [usize; 9] = [0, 8, 32, 33, 200, 256, 257, 1500, 9000];

/// The context whose receives name source and tag.
pub const EXACT: usize = 0;

/// Wildcards of the receives of each context: (source named, tag named). One kind per context, so
/// that every message can be received.
const CONTEXTS: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

/// A message of a plan.
#[derive(Clone, Copy, Debug)]
pub struct PlannedMessage {
    /// Sender.
    pub from: u32,
    /// Receiver.
    pub to: u32,
    /// Which context, which says how receives name it.
    pub context: usize,
    /// Tag of the message.
    pub tag: i32,
    /// Bytes.
    pub len: usize,
    /// Position in the plan.
    pub number: u64,
    /// Send mode.
    pub mode: SendCompletion,
}

/// The messages of a job, of these lengths: the same on every rank.
pub fn plan(seed: u64, world: u32, count: u64, lens: &[usize]) -> Vec<PlannedMessage> {
    let mut random = Random::new(seed ^ 0x5eed);
    (0..count)
        .map(|number| PlannedMessage {
            from: random.below(u64::from(world)) as u32,
            to: random.below(u64::from(world)) as u32,
            context: random.below(4) as usize,
            tag: random.below(3) as i32,
            len: lens[random.below(lens.len() as u64) as usize],
            number,
            mode: if random.one_in(4) {
                SendCompletion::Synchronous
            } else {
                SendCompletion::Standard
            },
        })
        .collect()
}

/// Every message starts with its number as far as it fits and goes on in a pattern of it.
fn byte(number: u64, at: usize) -> u8 {
    if at < 8 {
        number.to_le_bytes()[at]
    } else {
        (number as u8).wrapping_mul(37).wrapping_add(at as u8)
    }
}

/// Waits for the end of what was started.
pub fn finish(host: &dyn Messaging, started: StartOutcome) -> Status {
    match started {
        StartOutcome::Done(status) => status,
        StartOutcome::Pending(request) => wait(host, request),
    }
}

fn wait(host: &dyn Messaging, request: Request) -> Status {
    let mut status = None;
    host.wait_until(&mut || {
        status = host.take(request).expect("the request is ours");
        status.is_some()
    });
    status.expect("the wait ended")
}

/// Plays one rank of the plan and checks what it receives. Messages with peers that are `lost` may
/// end in an error.
///
/// # Panics
/// If a message is lost, damaged, doubled or out of order.
pub fn play(host: &SimHost, plan: &[PlannedMessage], lost: impl Fn(u32) -> bool) {
    let me = host.me();
    let mut random = Random::new(u64::from(me) ^ plan.len() as u64);
    let outgoing: Vec<&PlannedMessage> = plan.iter().filter(|message| message.from == me).collect();
    let incoming: Vec<&PlannedMessage> = plan.iter().filter(|message| message.to == me).collect();
    let buffers: Vec<Scratch> = outgoing.iter().map(|message| filled(message)).collect();
    let most = plan.iter().map(|message| message.len).max().unwrap_or(0);
    let rooms: Vec<Scratch> = incoming
        .iter()
        .map(|_| Scratch::new(most).expect("memory"))
        .collect();
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    let (mut next_out, mut next_in) = (0, 0);
    while next_out < outgoing.len() || next_in < incoming.len() {
        let send = next_out < outgoing.len() && (next_in == incoming.len() || random.one_in(2));
        if send {
            let message = outgoing[next_out];
            let data = Data::contiguous(buffers[next_out].mem(), message.len as u64);
            let started = host.send(SendArgs {
                context: message.context as u32 * 2,
                peer: message.to,
                source: me,
                tag: message.tag,
                data,
                mode: message.mode,
                origin: CallOrigin::default(),
            });
            sends.push((message, started));
            next_out += 1;
        } else {
            let message = incoming[next_in];
            let (by_source, by_tag) = CONTEXTS[message.context];
            let pattern = Pattern {
                context: message.context as u32 * 2,
                source: by_source.then_some(Source {
                    rank: message.from,
                    peer: message.from,
                }),
                tag: by_tag.then_some(message.tag),
            };
            let data = Data::contiguous(rooms[next_in].mem(), most as u64);
            let started = host.recv(RecvArgs {
                pattern,
                data,
                origin: CallOrigin::default(),
            });
            if let Ok(StartOutcome::Pending(name)) = started {
                host.offer_early_rtr(name);
            }
            receives.push((pattern, next_in, started));
            next_in += 1;
        }
        if random.one_in(8) {
            host.progress();
        }
    }
    let mut seen = vec![false; plan.len()];
    let mut last = HashMap::new();
    for (pattern, room, started) in receives {
        let status = match started {
            Ok(started) => finish(host, started),
            Err(Error::Peer { peer, .. }) if lost(peer) => continue,
            Err(other) => panic!("a receive was refused: {other:?}"),
        };
        if let Some(error) = status.error {
            assert!(
                matches!(error, Error::Peer { peer, .. } if lost(peer)),
                "unexpected: {error:?}"
            );
            continue;
        }
        check_message(
            plan,
            me,
            &pattern,
            &status,
            &rooms[room],
            &mut seen,
            &mut last,
        );
    }
    for (message, started) in sends {
        match started {
            Ok(started) => {
                let status = finish(host, started);
                assert!(
                    status.error.is_none() || lost(message.to),
                    "{message:?}: {status:?}"
                );
            }
            Err(error) => assert!(lost(message.to), "{message:?}: {error:?}"),
        }
    }
    let missing = incoming
        .iter()
        .find(|message| message.len >= 8 && !seen[message.number as usize] && !lost(message.from));
    assert!(missing.is_none(), "never received: {missing:?}");
}

/// A buffer with the message in it.
pub fn filled(message: &PlannedMessage) -> Scratch {
    let buffer = Scratch::new(message.len).expect("memory");
    let bytes: Vec<u8> = (0..message.len)
        .map(|at| byte(message.number, at))
        .collect();
    buffer.mem().write(0, &bytes);
    buffer
}

type LastSeen = HashMap<(Pattern, u32), u64>;

/// Exactly once, intact, as sent, and in the order of sends among those that one pattern takes from
/// one sender.
fn check_message(
    plan: &[PlannedMessage],
    me: u32,
    pattern: &Pattern,
    status: &Status,
    room: &Scratch,
    seen: &mut [bool],
    last: &mut LastSeen,
) {
    if status.len < 8 {
        return;
    }
    let mut bytes = vec![0; status.len as usize];
    room.mem().read(0, &mut bytes);
    let number = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let message = plan.get(number as usize).expect("a message of the plan");
    assert_eq!(
        (message.to, message.from, message.tag, message.len as u64),
        (me, status.source, status.tag, status.len)
    );
    assert_eq!(message.context as u32 * 2, pattern.context);
    assert!(
        bytes
            .iter()
            .enumerate()
            .all(|(at, value)| *value == byte(number, at)),
        "message {number} was damaged"
    );
    assert!(
        !std::mem::replace(&mut seen[number as usize], true),
        "message {number} arrived twice"
    );
    if let Some(before) = last.insert((*pattern, status.source), number) {
        assert!(before < number, "message {number} overtook {before}");
    }
}
