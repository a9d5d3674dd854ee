//! Receives by the fast path, whose slots are used again at once.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{CallOrigin, Pattern, SendArgs, SendCompletion, Source, StartOutcome};
use garonne_engine::fast::recv::{FastRecv, PlainRecvStatus};
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, check};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

/// Longer than what travels with its envelope.
const LEN: usize = 4000;

#[test]
fn a_receive_that_went_by_packets_leaves_nothing_to_the_next_in_its_slot() {
    let job = SimJob {
        world: 2,
        seed: 1,
        faults: Faults {
            delay_ns: (500, 5_000),
            loss: 0,
            repeat: 0,
            until_ns: 0,
            ..Faults::none()
        },
        quotas: CreditQuotas {
            envelopes: 1024,
            payload: 1 << 16,
        },
        memory: MemoryAccess::Apart,
    };
    check(&job, |host: Arc<SimHost>| {
        let room = Scratch::new(LEN).expect("memory");
        for number in 0..3u8 {
            if host.me() == 0 {
                room.mem().write(0, &[number; LEN]);
                let send = SendArgs {
                    context: 0,
                    peer: 1,
                    source: 0,
                    tag: 0,
                    data: Data::contiguous(room.mem(), LEN as u64),
                    mode: SendCompletion::Standard,
                    origin: CallOrigin::default(),
                };
                if let StartOutcome::Pending(request) = host.send(send).expect("started") {
                    host.wait_until(&mut || host.take(request).expect("ours").is_some());
                }
                continue;
            }
            let pattern = Pattern {
                context: 0,
                source: Some(Source { rank: 0, peer: 0 }),
                tag: Some(0),
            };
            let catch = FastRecv::new(pattern, (room.mem(), LEN as u32), CallOrigin::default());
            let request = host
                .inspect(|shard| shard.post_plain(&catch))
                .expect("nothing is in the way");
            host.wait_until(
                &mut || match host.inspect(|shard| shard.take_plain(request)) {
                    PlainRecvStatus::NotYet => false,
                    PlainRecvStatus::Plainly(caught) => caught.len as usize == LEN,
                    PlainRecvStatus::Otherwise => panic!("it ended otherwise"),
                },
            );
            room.mem()
                .with(0, LEN, |bytes| assert_eq!(bytes, [number; LEN]));
        }
    });
}
