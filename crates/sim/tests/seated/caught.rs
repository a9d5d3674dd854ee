//! When a blocking receive of one of several threads looks for its message before it is posted.

use super::*;

/// Whether a message of so many bytes that lies there is caught without being posted, into so much room.
fn is_caught(host: &dyn Host, context: Context, room: u32) -> bool {
    let memory = Scratch::new(room as usize).unwrap();
    let catch = Catch {
        context,
        peer: 1,
        rank: 1,
        tag: 1,
        mem: memory.mem(),
        room,
        origin: Origin::default(),
    };
    // The first time only shows who has sat down before.
    (0..100).any(|_| host.recv_quick(&catch).is_some())
}

#[test]
fn who_has_more_to_see_to_than_a_short_message_posts_its_receive() {
    let first = Fabric::shaken(WORLD, 1);
    let fabrics = [first.clone(), first.beside(2), first.beside(3)];
    let hosts = [0, 1].map(|me| {
        let (fabrics, host) = (fabrics.clone(), Arc::new(rank(&first, me, SPINS)));
        let open = move |shard: usize| Ok(engine(&fabrics[shard], me, SPINS));
        Sharded::new(host, 3, Box::new(open))
    });
    let (receiver, sender): (&dyn Host, &dyn Host) = (&*hosts[0], &*hosts[1]);
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
    assert!(!is_caught(receiver, context, 8192), "it might come in pieces");
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
