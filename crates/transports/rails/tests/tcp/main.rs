//! The TCP rail from outside: the conformance suite, connections that break, hostile strangers,
//! hosts that are network namespaces.

mod composed;
mod cuts;
mod fabric;
mod gather;
mod joint;
mod meeting;
mod messages;
mod namespaces;
mod pieces;
mod proxy;
mod storm;
mod suite;
mod support;
mod traffic;
#[path = "../support/vector.rs"]
mod vector;
mod ways;
