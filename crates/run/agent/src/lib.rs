//! Launcher and agents: the processes that run a job.
//!
//! Used by the command. The **launcher** ([`launcher`]) is the `garonne run` that the user sees.
//! The **agent** ([`agent`]) of a host starts its ranks, passes their output on and ends the job at
//! the first failure. Agents of other hosts are started ([`remote_agent`]), join with a key
//! ([`join`]), or serve ranks that another launcher started ([`adoption`]). [`cpu_claims`],
//! [`rank_slots`] and [`needs`] decide on which processors ranks run.

#![deny(unsafe_code)]
#![deny(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic where the stream cannot be written"
)]

pub mod adoption;
pub mod agent;
pub mod binding_order;
pub mod cpu_claims;
pub mod join;
pub mod launcher;
pub mod needs;
pub mod rank_slots;
pub mod remote_agent;
