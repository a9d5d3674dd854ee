//! Collective operations (MPI 5.0, chapter 6): on intra- and intercommunicators, blocking and nonblocking.
//!
//! Owns the algorithms, their choice, and the schedules they become. Called by the C edge through the methods of
//! [`Comm`](crate::comm::Comm), and by the communicator code for its own agreements. Bounded by the steps an algorithm states (see
//! [`algo`]) and the temporary memory it asks for, at most a small multiple of the call's own data.

mod algo;
pub mod blocks;
pub(crate) mod plan;
pub mod tag;
pub(crate) mod typed;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
