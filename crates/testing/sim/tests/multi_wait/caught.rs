//! When a blocking receive of one of several threads looks for its message before it is posted.

use super::*;
use garonne_progress::messaging::{BackgroundWork, Waiting};

/// Returns whether a message of so many bytes that lies ready is received without being posted,
/// into so much room.
fn is_caught(host: &dyn Messaging, context: ContextId, room: u32) -> bool {
    let memory = Scratch::new(room as usize).unwrap();
    let catch = FastRecv {
        context,
        peer: 1,
        rank: 1,
        tag: 1,
        mem: memory.mem(),
        room,
        origin: CallOrigin::default(),
    };
    // The first time only shows who has sat down before.
    (0..100).any(|_| host.fast_recv(&catch).is_some())
}

#[test]
fn who_has_more_to_see_to_than_a_short_message_posts_its_receive() {
    let first = Fabric::shaken(WORLD, 1);
    let fabrics = [first.clone(), first.beside(2), first.beside(3)];
    let hosts = [0, 1].map(|me| {
        let (fabrics, host) = (fabrics.clone(), Arc::new(rank(&first, me, SPINS)));
        let open = move |shard: usize| Ok(engine(&fabrics[shard], me, SPINS));
        ShardedEngine::new(host, 3, Box::new(open))
    });
    let (receiver, sender): (&dyn Messaging, &dyn Messaging) = (&*hosts[0], &*hosts[1]);
    let (ring, shards) = (&|| (), 3);
    let at = |host, thread| At {
        host,
        ring,
        thread,
        shards,
    };
    let context = at(receiver, 1).context(0);
    let sends = || send(at(sender, 1), 0, 1, 8);
    sends();
    assert!(
        !is_caught(receiver, context, 8192),
        "it might come in pieces"
    );
    assert!(is_caught(receiver, context, 4096));
    sends();
    let open = recv(at(receiver, 2), 0, 2, 8);
    assert!(
        !is_caught(receiver, context, 8),
        "what is open in another shard would not advance"
    );
    send(at(sender, 2), 0, 2, 8);
    receiver.wait_for(&|| open.awaits(), &mut || open.is_over(receiver));
    assert!(is_caught(receiver, context, 8));
}

/// A collective that has come to its place in memory, and waits for others there.
struct Met {
    all: AtomicBool,
    steps: AtomicU32,
}

impl Stepper for Met {
    fn step(&self, _: &dyn Messaging) -> bool {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.all.load(Ordering::SeqCst)
    }

    fn polls_memory(&self) -> bool {
        true
    }

    fn has_messages(&self) -> bool {
        false
    }
}

/// Answers whatever comes with this tag, until what is the last.
fn answer(at: At<'_>, tag: i32, last: &AtomicBool) {
    let mut over = false;
    while !over {
        wait(at, Way::Named, tag, &AtomicU32::new(0));
        over = last.load(Ordering::SeqCst);
        send(at, 0, tag + 1, 8);
    }
}

/// A rank's hosts of so many shards, with the peer's, and a stepper that looks at memory.
fn beside_a_stepper(
    shards: usize,
    body: impl FnOnce(&[Arc<ShardedEngine<LocalTransport, AsyncEnvironment>>; 2], &Met),
) {
    let first = Fabric::shaken(WORLD, 1);
    let more = (1..shards).map(|shard| first.beside(shard as u64));
    let fabrics: Vec<Arc<Fabric>> = std::iter::once(first.clone()).chain(more).collect();
    let hosts = [0, 1].map(|me| {
        let (fabrics, host) = (fabrics.clone(), Arc::new(rank(&first, me, SPINS)));
        let open = move |shard: usize| Ok(engine(&fabrics[shard], me, SPINS));
        ShardedEngine::new(host, shards, Box::new(open))
    });
    let met = Arc::new(Met {
        all: AtomicBool::new(false),
        steps: AtomicU32::new(0),
    });
    std::thread::scope(|scope| {
        scope.spawn(|| {
            hosts[0].attach_stepper(met.clone());
            hosts[0].wait_for(&|| WaitTarget::stepper_end(&*met), &mut || {
                met.all.load(Ordering::SeqCst)
            });
        });
        body(&hosts, &met);
        met.all.store(true, Ordering::SeqCst);
        hosts[0].wake();
    });
}

/// Receives caught after which it is believed, and rounds after which that none is: more than are
/// needed by far.
const ENOUGH: u32 = 10;
const NEVER: u32 = 20_000;

/// A thread of a rank waits for a stepper that looks at memory, and another exchanges messages in
/// the same shard meanwhile: it comes to receive them without posting, and the stepper is looked at
/// all the while.
fn catches_beside_a_stepper(shards: usize) {
    let (mut rounds, mut caught, mut looked) = (0, 0, 0);
    beside_a_stepper(shards, |hosts, met| {
        let at = |rank: usize| At {
            host: &*hosts[rank],
            ring: &|| (),
            thread: 0,
            shards,
        };
        let last = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| answer(at(1), 1, &last));
            while caught < ENOUGH && rounds < NEVER {
                let before = met.steps.load(Ordering::SeqCst);
                send(at(0), 0, 1, 8);
                if catches(at(0), 2) {
                    caught += 1;
                    looked += u32::from(met.steps.load(Ordering::SeqCst) != before);
                } else {
                    wait(at(0), Way::Named, 2, &AtomicU32::new(0));
                }
                rounds += 1;
            }
            last.store(true, Ordering::SeqCst);
            send(at(0), 0, 1, 8);
            wait(at(0), Way::Named, 2, &AtomicU32::new(0));
        });
    });
    assert!(caught >= ENOUGH, "{caught} were caught in {rounds} rounds");
    assert!(
        looked >= ENOUGH - 2,
        "it was looked at beside {looked} of {caught}"
    );
}

#[test]
fn receives_are_caught_beside_a_thread_that_waits_for_a_stepper() {
    catches_beside_a_stepper(1);
}

#[test]
fn receives_are_caught_beside_a_thread_that_waits_for_a_stepper_in_the_first_of_several_shards() {
    catches_beside_a_stepper(SHARDS);
}

#[test]
fn receives_are_caught_in_a_shard_beside_a_thread_that_waits_for_a_stepper_in_the_first() {
    beside_a_stepper(SHARDS, |hosts, met| {
        let at = |rank: usize| At {
            host: &*hosts[rank],
            ring: &|| (),
            thread: 1,
            shards: SHARDS,
        };
        while met.steps.load(Ordering::SeqCst) < 10 {
            std::thread::yield_now();
        }
        for _ in 0..ENOUGH {
            send(at(1), 0, 1, 8);
            assert!(is_caught(&*hosts[0], at(0).context(0), 8));
        }
    });
}
