//! Files (MPI 5.0, chapter 14).
//!
//! - `plan`: who moves which bytes in a collective access.

pub mod plan;
