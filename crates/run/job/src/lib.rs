//! What a job is, as values: programs and hosts, who runs where, the memory that its ranks share,
//! and every message between ranks, agents, launchers and tools.
//!
//! Nothing here starts a process, opens a connection or waits. [`job`] and [`node_map`] say what
//! runs where, [`agent_tree`] which agent reports to which. [`layout`] is the memory of a world,
//! with its tables [`host_table`], [`new_networks`], [`disabled_networks`] and [`relay_routes`].
//! [`rank_messages`] and [`agent_messages`] are the messages. [`snapshot`] and [`wait_report`] are
//! what ranks show to tools. [`settings`] reads environment variables, and [`codes`] is the table
//! of error codes.

#![forbid(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

pub mod address_limit;
pub mod adoption_messages;
pub mod agent_checkin;
pub mod agent_messages;
pub mod agent_socket_name;
pub mod agent_tree;
pub mod agreement;
pub mod bounded_read;
pub mod call_names;
pub mod codes;
pub mod crash_report;
pub mod disabled_networks;
pub mod error;
pub mod host_table;
pub mod job;
pub mod job_name;
pub mod join_key;
pub mod join_messages;
pub mod layout;
pub mod limits;
pub mod new_networks;
pub mod node_map;
pub mod outcome;
pub mod output_files;
pub mod printable;
pub mod process_exit;
pub mod program_map;
pub mod query;
pub mod rank_messages;
pub mod registration_secret;
pub mod relay_routes;
pub mod settings;
pub mod snapshot;
pub mod switch_groups;
pub mod wait_report;

pub use error::{Error, Result};
