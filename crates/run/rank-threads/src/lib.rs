//! `garonne-rank-threads`: a process of several ranks, each a thread with its own copy of the
//! program.
//!
//! The agent starts one such command for each rank, as it would start the program. These processes
//! are *stand-ins* ([`stand_in`]): they hand arguments, environment and descriptors to the shared
//! process of their group, wait, and end as their rank ends. So the agent, its tools and the
//! launcher see one process per rank. The first stand-in of a group starts the group's *shared
//! process* ([`process`]).
//!
//! A rank in the shared process ([`rank`]) is a kernel thread with its own descriptors and working
//! directory. The program and all its libraries but the C library are loaded once per rank, from
//! files in memory that differ from the originals in a few names ([`image`]). So each rank has its
//! own globals, and its own instance of the MPI library. Functions of the C library that act on the
//! process act on the rank instead ([`of_rank`]).

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "a test program has the C library's own functions, which use less of this"
    )
)]
#![allow(
    clippy::missing_safety_doc,
    reason = "programs call the entry points as they call the C library's"
)]

pub mod image;

mod handover;
mod libraries;
mod limits;
mod modules;
#[cfg(not(test))]
mod of_rank;
mod process;
mod rank;
mod relocations;
mod stand_in;
mod streams;
mod sys;
mod thread_locals;

/// Number of a descriptor and of ranks, `number:ranks`, by which a stand-in tells the shared
/// process that it starts what it shall do.
const ENV_SHARED_PROCESS: &str = "GARONNE_RANK_THREADS";

/// Runs as a shared process or as a rank's stand-in, and returns the exit code.
pub fn run() -> i32 {
    let done = match std::env::var(ENV_SHARED_PROCESS) {
        Ok(order) => process::run(&order),
        Err(_) => stand_in::run(),
    };
    done.unwrap_or_else(|text| {
        eprintln!("garonne: {text}");
        limits::EXIT_CANNOT_START
    })
}
