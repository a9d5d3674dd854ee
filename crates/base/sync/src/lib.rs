//! The unsafe floor of Garonne: cells, locks, rings, parking, shared segments and views of user
//! memory.
//!
//! Everything above this crate (except named `sys.rs` files and the C edge) is written without
//! `unsafe`. Lock-free code takes its atomics from one facade, so that loom can run it
//! (`RUSTFLAGS="--cfg loom" cargo test --lib --release`). With `--cfg shuttle` there is only what
//! tasks are made of, for random schedules of theirs (`garonne-progress`).

mod facade;

#[cfg(not(shuttle))]
pub mod attended;
#[cfg(not(shuttle))]
pub mod board;
pub mod chore;
#[cfg(all(test, loom))]
mod chore_loom;
#[cfg(not(any(loom, shuttle)))]
pub mod copy;
#[cfg(not(shuttle))]
pub mod division;
#[cfg(not(shuttle))]
pub mod doorbell;
#[cfg_attr(loom, path = "futex_loom.rs")]
#[cfg_attr(shuttle, path = "futex_shuttle.rs")]
pub mod futex;
#[cfg(not(shuttle))]
pub mod hands;
#[cfg(not(shuttle))]
pub mod heap;
#[cfg(not(shuttle))]
pub mod journal;
/// Descriptors that the program may have closed.
pub mod kept_fd;
pub mod lead;
#[cfg(not(any(loom, shuttle)))]
pub mod local;
#[cfg(not(shuttle))]
pub mod looks;
#[cfg(not(any(loom, shuttle)))]
pub mod mailbox;
pub mod pad;
mod patience;
#[cfg(not(any(loom, shuttle)))]
pub mod post_mortem;
#[cfg(not(shuttle))]
pub mod postponed;
pub mod rack;
#[cfg(not(shuttle))]
#[cfg_attr(loom, allow(dead_code, unused_imports))]
mod ring;
pub mod roster;
#[cfg(not(shuttle))]
pub mod round;
#[cfg(not(shuttle))]
#[cfg_attr(loom, allow(dead_code))]
pub mod run;
#[cfg(not(shuttle))]
pub mod seats;
#[cfg(not(any(loom, shuttle)))]
pub mod shm;
#[cfg(not(any(loom, shuttle)))]
pub mod stores;
#[cfg(not(shuttle))]
pub mod trylock;
#[cfg(not(any(loom, shuttle)))]
pub mod user;
#[cfg(not(shuttle))]
pub mod wide;
