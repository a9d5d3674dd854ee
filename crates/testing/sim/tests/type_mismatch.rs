//! Early RTR and messages of other elements than the receives wait for: an error on one side, which
//! the other cannot know of when it writes.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome,
    TypeDigest,
};
use garonne_progress::messaging::{FastMessaging, Messaging, Waiting};
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, check};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

fn job(seed: u64) -> SimJob {
    let faults = Faults {
        delay_ns: (500, 20_000),
        loss: 20,
        repeat: 20,
        until_ns: 500_000,
        ..Faults::none()
    };
    SimJob {
        world: 2,
        seed,
        faults,
        quotas: CreditQuotas {
            envelopes: 1024,
            payload: 1 << 16,
        },
        memory: MemoryAccess::Reached,
    }
}

#[test]
fn a_message_of_other_elements_that_its_sender_has_begun_to_write_is_an_error_of_its_receive_alone()
{
    let pattern = |rank: u32, tag| Pattern {
        context: 0,
        source: Some(Source { rank, peer: rank }),
        tag: Some(tag),
    };
    let origin = |mark| CallOrigin {
        digest: TypeDigest(mark),
        ..CallOrigin::default()
    };
    let mut written = 0;
    for seed in 0..60 {
        let report = check(&job(seed), move |host: Arc<SimHost>| {
            let room = Scratch::new(4000).expect("memory");
            let data = |len| Data::contiguous(room.mem(), len);
            let end = |started| match started {
                StartOutcome::Done(status) => status,
                StartOutcome::Pending(request) => {
                    let mut status = None;
                    host.wait_until(&mut || {
                        status = status.take().or_else(|| host.take(request).expect("ours"));
                        status.is_some()
                    });
                    status.expect("ended")
                }
            };
            let send = |tag, len| SendArgs {
                context: 0,
                peer: 1 - host.me(),
                source: host.me(),
                tag,
                data: data(len),
                mode: SendCompletion::Standard,
                origin: origin(1),
            };
            let recv = |rank, tag, len, mark| RecvArgs {
                pattern: pattern(rank, tag),
                data: data(len),
                origin: origin(mark),
            };
            if host.me() == 0 {
                assert_eq!(
                    end(host.recv(recv(1, 1, 8, 1)).expect("posted")).error,
                    None
                );
                assert_eq!(end(host.send(send(0, 4000)).expect("started")).error, None);
                assert_eq!(end(host.send(send(1, 8)).expect("started")).error, None);
            } else {
                let started = host.recv(recv(0, 0, 4000, 2)).expect("posted");
                if let StartOutcome::Pending(request) = started {
                    host.offer_early_rtr(request);
                }
                assert_eq!(end(host.send(send(1, 8)).expect("started")).error, None);
                for _ in 0..10 {
                    host.inspect(|shard| shard.transport().rest());
                }
                assert!(
                    matches!(end(started).error, Some(Error::Mistyped(_))),
                    "seed {seed}"
                );
                // The sender goes on as if nothing had been.
                assert_eq!(
                    end(host.recv(recv(0, 1, 8, 1)).expect("posted")).error,
                    None
                );
            }
        });
        written += report.written;
    }
    assert!(written > 10, "only {written} messages were written ahead");
}
