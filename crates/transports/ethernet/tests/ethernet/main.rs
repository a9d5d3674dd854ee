//! The Ethernet transport over a wire in memory that loses, repeats, changes and reorders frames,
//! under a clock that the tests move.

mod hostile;
mod incast;
mod paths;
mod suite;
mod wire;
