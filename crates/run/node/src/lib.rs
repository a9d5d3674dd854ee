//! Starting, watching and serving the ranks of a job on one node.
//!
//! Three roles share this crate, each in its own process: the **launcher** ([`launcher`], the
//! `garonne run` that the user sees), the **agent** ([`agent`], which starts the ranks, passes
//! their output on and ends the job at the first failure), and the **client** ([`client`], the part
//! of the MPI library that registers with the agent and maps the shared memory). [`layout`] and
//! [`rank_messages`] are what they agree on; [`codes`] is the table of error codes.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

pub mod addresses;
pub mod adoption;
pub mod agent;
pub mod agent_checkin;
pub mod agent_discovery;
pub mod agent_messages;
pub mod agent_tree;
pub mod bounded_read;
pub mod call_names;
pub mod capabilities;
pub mod client;
pub mod codes;
pub mod cpu_claims;
pub mod crash;
pub mod disabled_networks;
mod elf;
pub mod error;
pub mod flight_recorder;
mod host_table;
pub mod job;
pub mod job_name;
pub mod join;
pub mod launcher;
mod launchers;
pub mod layout;
pub mod limits;
pub mod local_host;
pub mod measured_networks;
mod memory_file;
mod new_networks;
pub mod node_map;
pub mod out_of_memory;
pub mod outcome;
pub mod output_files;
pub mod printable;
pub mod process_tree;
mod program_map;
pub mod query;
pub mod query_client;
pub mod rank;
pub mod rank_messages;
pub mod rank_slots;
pub mod reachability;
pub mod registration_secret;
pub mod relay_routes;
pub mod remote_agent;
pub mod sent_counters;
pub mod settings;
pub mod snapshot;
pub mod strategy;
#[allow(unsafe_code)]
mod sys;
pub mod trace_reader;
pub mod trace_recorder;
pub mod trusted_peer;
pub mod wait_report;

pub use error::{Error, Result};
#[cfg(fuzzing)]
pub use launchers::read_any_launcher;
