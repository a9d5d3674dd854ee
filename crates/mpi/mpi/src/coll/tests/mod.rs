//! Every algorithm against a naive model, on the simulator of schedules: ranks, sizes, roots, in
//! place or not, operations that commute or not, shapes with and without gaps, each under several
//! orders of events.

mod across;
mod acts;
mod board;
mod by_node;
mod gathers;
mod inter;
mod lanes;
mod persistent;
mod reductions;
mod refusals;
mod rounds;
mod support;
pub(super) mod threads;
mod user_operations;
mod ways;
mod world;
