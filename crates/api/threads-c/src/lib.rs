//! `libgaronne_threads.so.1`: the C interface of fibers (`garonne_threads.h`).
//!
//! Each function turns pointers into values, calls `garonne_fiber`, and returns an error number. An
//! object of C is one pointer, null until it is used, to a value on the heap.
//!
//! The header makes the promises on which the unsafe blocks rest: pointers are valid or null, and
//! an object is destroyed when nobody uses it any more.

mod bubbles;
mod mpi;
mod objects;
mod sync;
mod threads;
