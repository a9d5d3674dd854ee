//! The processes of a job on one node: launcher, agent, and the side of a rank.
//!
//! Three roles share this crate, each in its own process. The **launcher** ([`launcher`]) is the
//! `garonne run` that the user sees. The **agent** ([`agent`]) starts the ranks, passes their
//! output on and ends the job at the first failure. The **client** ([`client`]) is the part of the
//! MPI library that registers with the agent and maps the shared memory; [`rank`] brings the
//! rank's engine up. What they agree on is in `garonne-job`, how they reach each other in
//! `garonne-links`.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

pub mod adoption;
pub mod agent;
pub mod client;
pub mod cpu_claims;
pub mod crash;
mod elf;
pub mod flight_recorder;
pub mod join;
pub mod launcher;
pub mod measured_networks;
mod program_map;
pub mod query_client;
pub mod rank;
pub mod rank_slots;
pub mod remote_agent;
pub mod sent_counters;
pub mod strategy;
pub mod trace_reader;
pub mod trace_recorder;
