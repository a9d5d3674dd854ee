//! The side of a rank: how a process of a job registers with its agent, maps the world's memory and
//! brings its engine up.
//!
//! Used by the C edge, and by commands that are ranks themselves (`garonne ping`, `garonne tune`).
//! [`Rank`] is a process that has become a rank, and [`client::AgentClient`] its connection to the
//! agent. [`trace_recorder`] records calls while somebody traces the job, [`strategy`] loads a
//! strategy, and [`measured_networks`] keeps what networks gave. Nothing here starts or ends a
//! process.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

pub mod client;
mod crash;
mod environment;
mod ethernet_ranks;
mod flight_recorder;
mod idle_cores;
mod loaded_objects;
pub mod measured_networks;
mod node_peers;
mod published_names;
mod rank;
mod remote_hosts;
mod shards;
mod spawned_job;
pub mod strategy;
pub mod trace_recorder;
pub mod transport_modules;
mod world_connections;
#[cfg(fuzzing)]
pub use world_connections::read_anything as read_world_messages;

pub use environment::{PublishedState, RankEnvironment};
pub use rank::{JobHosts, Rank, RankHost, clock_ns};
pub use shards::RankShards;
pub use world_connections::WorldConnections;
