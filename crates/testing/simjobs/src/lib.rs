//! MPI-level jobs on the simulated fabric. The crate has tests only; it stands above `mpi` and
//! `sim`, which do not know each other.

#![forbid(unsafe_code)]
