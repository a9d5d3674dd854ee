//! Every algorithm against a naive model, on the simulator of schedules: ranks, sizes, roots, in
//! place or not, operations that commute or not, shapes with and without gaps, each under several
//! orders of events.

mod gather_scatter;
mod hierarchical;
mod intercomm;
mod reductions;
