//! How the processes of a job find and reach each other: sockets on this host, addresses and
//! connections between hosts, the memory file of a world, and the processes of this host.
//!
//! [`agent_discovery`] is how a process finds its agent, and [`trusted_peer`] whom it believes.
//! [`addresses`], [`allowed_networks`] and [`reachability`] say by which networks hosts reach each
//! other, and [`connect`] connects to an agent of another host. [`memory_file`] makes and verifies
//! the file that ranks map, and [`capabilities`] tries what the machine permits. [`sys`] has the
//! system calls that safe wrappers do not offer.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

pub mod addresses;
pub mod agent_answer;
pub mod agent_discovery;
pub mod allowed_networks;
pub mod capabilities;
pub mod connect;
pub mod lldp_listener;
pub mod local_host;
pub mod memory_file;
pub mod out_of_memory;
pub mod output_pipe;
pub mod process_memory;
pub mod process_tree;
pub mod reachability;
pub mod socket_pair;
#[allow(unsafe_code)]
pub mod sys;
pub mod trusted_peer;
