//! The TCP transport from outside: the conformance suite, connections that break, hostile
//! strangers, hosts that are network namespaces.

mod coalescer;
mod cuts;
mod fabric;
mod meeting;
mod messages;
mod namespaces;
mod pieces;
mod proxy;
mod storm;
mod suite;
mod support;
mod traffic;
mod ways;
