//! A receive of an unexpected synchronous message answers its sender at once: the program may
//! compute next.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Pattern, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::fast::recv::{FastRecv, PlainRecvStatus};
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, check};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

const LEN: usize = 8;

/// Receives the kept message in one of the ways that there are.
fn receive(host: &SimHost, way: usize, room: &Scratch) {
    let pattern = Pattern {
        context: 0,
        source: Some(Source { rank: 0, peer: 0 }),
        tag: Some(0),
    };
    let data = Data::contiguous(room.mem(), LEN as u64);
    let origin = CallOrigin::default();
    let started = host.inspect(|shard| match way {
        0 => shard.recv(RecvArgs {
            pattern,
            data,
            origin,
        }),
        1 => {
            let (message, _) = shard
                .mprobe(pattern)
                .expect("it lives")
                .expect("it is kept");
            shard.mrecv(message, data, origin)
        }
        _ => {
            let catch = FastRecv::new(pattern, (room.mem(), LEN as u32), origin);
            let request = shard.post_plain(&catch).expect("nothing is in the way");
            assert!(matches!(
                shard.take_plain(request),
                PlainRecvStatus::Plainly(_)
            ));
            Ok(StartOutcome::Pending(request))
        }
    });
    assert!(
        way > 1 || matches!(started, Ok(StartOutcome::Done(_))),
        "{started:?}"
    );
    assert!(
        host.inspect(|shard| shard.is_idle()),
        "the answer is yet to be sent"
    );
}

#[test]
fn the_sender_of_a_kept_message_hears_of_its_receive_before_the_receiver_goes_on() {
    let job = SimJob {
        world: 2,
        seed: 1,
        faults: Faults {
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
        for way in 0..3 {
            if host.me() == 1 {
                host.wait_until(&mut || host.inspect(|shard| shard.unexpected_count()) == 1);
                receive(&host, way, &room);
                continue;
            }
            let send = SendArgs {
                context: 0,
                peer: 1,
                source: 0,
                tag: 0,
                data: Data::contiguous(room.mem(), LEN as u64),
                mode: SendCompletion::Synchronous,
                origin: CallOrigin::default(),
            };
            if let StartOutcome::Pending(request) = host.send(send).expect("started") {
                host.wait_until(&mut || host.take(request).expect("ours").is_some());
            }
        }
    });
}
