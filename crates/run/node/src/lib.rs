//! Starting, watching and serving the ranks of a job on one node.
//!
//! Three roles share this crate, each in its own process: the **launcher** ([`launcher`], the
//! `garonne run` that the user sees), the **agent** ([`agent`], which starts the ranks, passes
//! their output on and ends the job at the first failure), and the **client** ([`client`], the part
//! of the MPI library that registers with the agent and maps the shared memory). [`layout`] and
//! [`wire`] are what they agree on; [`codes`] is the table of error codes.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

mod added;
pub mod addresses;
pub mod admission;
pub mod adoption;
pub mod agent;
mod atlas;
pub mod believed;
pub mod book;
pub mod bounded;
pub mod calls;
pub mod client;
pub mod codes;
pub mod counted;
pub mod crash;
pub mod drained;
mod elf;
pub mod error;
pub mod exhausted;
mod foreign;
pub mod gathering;
pub mod job;
pub mod job_name;
pub mod joining;
pub mod launcher;
pub mod layout;
pub mod leaf;
pub mod limits;
pub mod look;
mod memory;
pub mod nodes;
mod notes;
pub mod orders;
pub mod outcome;
pub mod output_files;
pub mod own;
pub mod placement;
pub mod printable;
pub mod probe;
pub mod processes;
pub mod rank;
pub mod rank_slots;
pub mod reach;
pub mod recorder;
pub mod rendezvous;
pub mod settings;
pub mod strategy;
#[allow(unsafe_code)]
mod sys;
pub mod traced;
pub mod tracing;
pub mod tree;
pub mod tuned;
pub mod visit;
pub mod ways;
pub mod wire;
pub mod wish;

pub use error::{Error, Result};
#[cfg(fuzzing)]
pub use foreign::read_any_launcher;
