//! Fibers that are threads of their own towards the C library.

use garonne_fiber::{Barrier, Builder, Identity, workers, yield_now};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

thread_local! {
    static OWN: Cell<usize> = const { Cell::new(0) };
}

#[inline(never)]
fn exchange(next: usize) -> usize {
    OWN.replace(next)
}

#[inline(never)]
fn errno() -> *mut libc::c_int {
    // SAFETY: the C library's word of the calling thread.
    unsafe { libc::__errno_location() }
}

/// More fibers than workers, which wait for each other so that they run mixed and migrate.
#[test]
fn thread_local_variables_belong_to_the_fiber() {
    let count = 4 * workers() + 3;
    let barrier = Arc::new(Barrier::new(count));
    let fibers: Vec<_> = (1..=count)
        .map(|number| {
            let barrier = barrier.clone();
            let builder = Builder::new().identity(Identity::new().unwrap());
            let body = move || {
                assert_eq!(exchange(number), 0);
                // SAFETY: has no precondition.
                let (thread, place) = (unsafe { libc::pthread_self() }, errno() as usize);
                for round in 0..200 {
                    match round % 3 {
                        0 => _ = barrier.wait(),
                        _ => yield_now(),
                    }
                    assert_eq!(exchange(number), number);
                    // SAFETY: has no precondition.
                    assert_eq!(unsafe { libc::pthread_self() }, thread);
                    assert_eq!(errno() as usize, place);
                }
                thread as usize
            };
            builder.spawn(body).unwrap()
        })
        .collect();
    let mut threads: Vec<usize> = fibers.into_iter().map(|f| f.join().unwrap()).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads.len(), count, "each is a thread of its own");
}

/// Compiled code may wait for others of a team by spinning. All of them run, though workers are
/// fewer.
#[test]
fn fibers_that_spin_for_each_other_all_run() {
    let count = workers() + 3;
    let come = Arc::new(AtomicUsize::new(0));
    let fibers: Vec<_> = (0..count)
        .map(|_| {
            let come = come.clone();
            let builder = Builder::new().identity(Identity::new().unwrap());
            let body = move || {
                come.fetch_add(1, Ordering::SeqCst);
                while come.load(Ordering::SeqCst) < count {
                    std::thread::yield_now();
                }
            };
            builder.spawn(body).unwrap()
        })
        .collect();
    fibers.into_iter().for_each(|fiber| fiber.join().unwrap());
}
