//! Calls that are open, looked at and waited for by several threads.

use super::pending::PendingCollective;
use super::{lock, member_slots};
use crate::coll::tests::thread_world::world_of;
use crate::coll::{Barrier, CallOrigin, Comm};
use crate::p2p::RecvArgs;
use crate::request;
use crate::testing::TestBytes;
use garonne_progress::messaging::Stepper;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The call of this rank that is open.
fn only_open(comm: &Comm) -> Arc<PendingCollective> {
    let open = lock(&member_slots(comm).pending);
    let mut open = open.iter().filter_map(std::sync::Weak::upgrade);
    open.next().unwrap()
}

fn wait_for(flag: &AtomicBool) {
    while !flag.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
}

#[test]
fn who_is_at_a_call_looks_again_for_those_who_found_that() {
    let (held, come) = (AtomicBool::new(false), AtomicBool::new(false));
    world_of(2, 3, &|comm| {
        // There is a place to meet at from now on.
        comm.collective(&Barrier, CallOrigin::default()).unwrap();
        if comm.rank() == 1 {
            wait_for(&held);
            let request = comm
                .start_collective(&Barrier, CallOrigin::default())
                .unwrap();
            come.store(true, Ordering::SeqCst);
            request::wait(&request).unwrap();
            return;
        }
        let request = comm
            .start_collective(&Barrier, CallOrigin::default())
            .unwrap();
        let open = only_open(comm);
        // One that has looked, and is put aside before it lets go.
        let at_it = open.state.begin().unwrap();
        held.store(true, Ordering::SeqCst);
        wait_for(&come);
        // The one that polls was rung for that, and sleeps after this look.
        assert!(!open.step(&*comm.process().host));
        assert!(at_it.end(), "nobody would look again");
        open.advance_state();
        assert!(open.step(&*comm.process().host), "all have come");
        request::wait(&request).unwrap();
    });
}

#[test]
fn a_collective_among_others_ends_a_wait_of_a_thread_that_does_not_poll() {
    let (waits, ended) = (
        [const { AtomicBool::new(false) }; 2],
        AtomicBool::new(false),
    );
    for (waits, spins) in waits.iter().zip([0, 3]) {
        ended.store(false, Ordering::SeqCst);
        world_of(2, spins, &|comm| {
            comm.collective(&Barrier, CallOrigin::default()).unwrap();
            if comm.rank() == 1 {
                wait_for(waits);
                std::thread::sleep(std::time::Duration::from_millis(50));
                let request = comm
                    .start_collective(&Barrier, CallOrigin::default())
                    .unwrap();
                request::wait(&request).unwrap();
                return;
            }
            let into = TestBytes::new(8);
            let args = RecvArgs {
                data: into.data(),
                source: 1,
                tag: 9,
                origin: CallOrigin::default(),
            };
            let never = comm.irecv(args).unwrap();
            let barrier = comm
                .start_collective(&Barrier, CallOrigin::default())
                .unwrap();
            std::thread::scope(|scope| {
                let host = &comm.process().host;
                scope.spawn(|| host.wait_until(&mut || ended.load(Ordering::SeqCst)));
                std::thread::sleep(std::time::Duration::from_millis(30));
                waits.store(true, Ordering::SeqCst);
                let (at, outcome) = request::wait_any(&[Some(&never), Some(&barrier)]).unwrap();
                assert!(at == 1 && outcome.is_ok());
                ended.store(true, Ordering::SeqCst);
                host.wake();
            });
            never.cancel().unwrap();
            request::wait(&never).unwrap();
        });
    }
}
