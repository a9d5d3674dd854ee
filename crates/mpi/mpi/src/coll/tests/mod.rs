//! Every algorithm against a naive model, on the simulator of schedules: ranks, sizes, roots, in
//! place or not, operations that commute or not, shapes with and without gaps, each under several
//! orders of events.

mod autotune;
mod gather_scatter;
mod hierarchical;
mod intercomm;
mod intercomm_calls;
mod nonblocking_acts;
mod persistent;
mod random_calls;
mod reductions;
mod refusals;
mod shm_blocking;
mod shm_large;
mod shm_nonblocking;
mod support;
pub(super) mod thread_world;
mod user_operations;
