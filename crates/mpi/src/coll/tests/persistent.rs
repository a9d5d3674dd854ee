//! Persistent collectives: what their numbers promise. What they do is tested from C, in tests/c/persistent.c.

use super::board::world;
use crate::coll::tag::NUMBERS;
use crate::coll::*;
use crate::error::Class;
use crate::request;

#[test]
fn where_counting_has_come_round_to_one_that_lives_the_new_one_is_refused() {
    world(2, |comm| {
        let init = || comm.init_collective(&Barrier, Origin::default());
        let first = init().unwrap();
        comm.0.initialised.fetch_add(NUMBERS - 1, Ordering::Relaxed);
        let error = init().err().expect("two would have one tag");
        assert_eq!(error.class, Class::Other);
        assert!(
            error.detail.contains("MPI_Barrier, persistent collective 1"),
            "{}",
            error.detail
        );
        // All others are as good as ever, and so is that number once it is free.
        let second = init().unwrap();
        for request in [&first, &second] {
            request.start().unwrap();
            request::wait(request).unwrap();
        }
        drop((first, second));
        comm.0.initialised.fetch_add(NUMBERS - 2, Ordering::Relaxed);
        assert!(init().is_ok());
    });
}
