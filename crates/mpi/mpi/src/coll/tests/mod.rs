//! Collective calls of ranks that are threads, over messages and in shared memory. Algorithms are
//! tested in `garonne-coll`.

mod autotune;
mod intercomm_calls;
mod nonblocking_acts;
mod persistent;
mod random_calls;
mod refusals;
mod shm_blocking;
mod shm_large;
mod shm_nonblocking;
pub(super) mod thread_world;
mod user_operations;
