//! Calls that are open, looked at and waited for by several threads.

use super::open::Open;
use super::{lock, visits};
use crate::coll::tests::threads::world_of;
use crate::coll::{Barrier, Comm, Origin};
use crate::request;
use garonne_progress::host::Stepper;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The call of this rank that is open.
fn only_open(comm: &Comm) -> Arc<Open> {
    let open = lock(&visits(comm).open);
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
        comm.collective(&Barrier, Origin::default()).unwrap();
        if comm.rank() == 1 {
            wait_for(&held);
            let request = comm.start_collective(&Barrier, Origin::default()).unwrap();
            come.store(true, Ordering::SeqCst);
            request::wait(&request).unwrap();
            return;
        }
        let request = comm.start_collective(&Barrier, Origin::default()).unwrap();
        let open = only_open(comm);
        // One that has looked, and is put aside before it lets go.
        let at_it = open.state.begin().unwrap();
        held.store(true, Ordering::SeqCst);
        wait_for(&come);
        // The one that polls was rung for that, and sleeps after this look.
        assert!(!open.step(&*comm.process().host));
        assert!(at_it.end(), "nobody would look again");
        open.look();
        assert!(open.step(&*comm.process().host), "all have come");
        request::wait(&request).unwrap();
    });
}
