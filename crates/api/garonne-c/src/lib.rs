//! `libgaronne.so.1`: the C interface of endpoints with event queues (`garonne.h`).
//!
//! Each function turns pointers into values, calls the crate `garonne`, and returns an error
//! number. The header makes the promises on which the unsafe blocks rest: pointers are valid or
//! null, text ends with a zero, and an endpoint is not used any more after it was closed.

mod calls;
mod errors;
mod events;
mod regions;
