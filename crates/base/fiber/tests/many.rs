//! 100,000 fibers alive at once, each with a page of its stack touched.

#![cfg(not(loom))]

use garonne_fiber::{Builder, Semaphore};
use std::sync::Arc;

const FIBERS: usize = 100_000;

#[test]
fn a_hundred_thousand_fibers_are_alive_at_once() {
    let shared = Arc::new((Semaphore::new(0), Semaphore::new(0)));
    let fibers: Vec<_> = (0..FIBERS)
        .map(|_| {
            let shared = shared.clone();
            let body = move || {
                let page = std::hint::black_box([1u8; 4096]);
                shared.0.post();
                shared.1.wait();
                usize::from(page[4095])
            };
            Builder::new().stack_size(16 << 10).spawn(body).unwrap()
        })
        .collect();
    (0..FIBERS).for_each(|_| shared.0.wait());
    let mappings = std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count();
    println!("{mappings} mappings");
    (0..FIBERS).for_each(|_| assert!(shared.1.post()));
    assert_eq!(
        fibers
            .into_iter()
            .map(|fiber| fiber.join().unwrap())
            .sum::<usize>(),
        FIBERS
    );
}
