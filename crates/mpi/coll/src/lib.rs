//! Collective operations as schedules of steps: which algorithm serves a call, what each process
//! does in it, and how the path of its data is learned.
//!
//! [`choose`] names the algorithm of a call. A function of [`algo`] or [`hierarchical`] states its
//! steps to a [`Plan`](plan::Plan). Who carries the steps out is no matter of this crate: the
//! plans of `garonne-mpi` send messages, [`testing`] simulates. [`autotune`] and
//! [`segment_allocator`] serve collectives in shared memory.
//!
//! The border runs where communicators begin. `garonne-mpi` binds calls to communicators,
//! datatypes and operations, and meets in shared memory. A communicator owns its segment and its
//! counts of collectives. Its constructors are collectives themselves, and errors and waits name
//! the communicator. So those parts and communicators use each other, and stay in one crate.
//!
//! Nothing here communicates, waits or reads a clock. Datatypes and operations are seen through
//! [`ElementLayout`](typed_buffer::ElementLayout) and [`ReduceOp`](typed_buffer::ReduceOp).

#![forbid(unsafe_code)]

pub mod algo;
pub mod autotune;
pub mod blocks;
pub mod call_tag;
pub mod choose;
pub mod hierarchical;
pub mod in_group;
pub mod limits;
pub mod node_map;
pub mod plan;
pub mod segment_allocator;
mod sub_plan;
pub mod switch_tree;
pub mod temp_buffer;
pub mod testing;
pub mod typed_buffer;

#[cfg(test)]
mod tests;
