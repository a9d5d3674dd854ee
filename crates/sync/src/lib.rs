//! The unsafe floor of Garonne: cells, locks, rings, parking, shared segments and views of user memory.
//!
//! Everything above this crate (except named `sys.rs` files and the C edge) is written without `unsafe`. Lock-free
//! code takes its atomics from one facade, so that loom can run it (`RUSTFLAGS="--cfg loom" cargo test --lib --release`).

mod facade;

pub mod board;
pub mod chore;
#[cfg(all(test, loom))]
mod chore_loom;
#[cfg(not(loom))]
pub mod copy;
pub mod division;
pub mod doorbell;
#[cfg(not(loom))]
pub mod futex;
pub mod hands;
pub mod journal;
#[cfg(not(loom))]
pub mod local;
#[cfg(not(loom))]
pub mod looks;
#[cfg(not(loom))]
pub mod mailbox;
pub mod pad;
#[cfg(not(loom))]
pub mod postponed;
pub mod rack;
#[cfg_attr(loom, allow(dead_code, unused_imports))]
mod ring;
pub mod roster;
pub mod round;
#[cfg(not(loom))]
pub mod run;
pub mod seats;
#[cfg(not(loom))]
pub mod shm;
pub mod submission;
pub mod trylock;
#[cfg(not(loom))]
pub mod user;
pub mod wide;
