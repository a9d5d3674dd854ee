//! The TCP transport from outside: the conformance suite, connections that break, hostile
//! unauthenticated callers, hosts that are network namespaces.

mod coalescer;
mod cuts;
mod fragments;
mod messages;
mod multipath;
mod namespaces;
mod ofi_path;
mod proxy;
mod relay_rendezvous;
mod storm;
mod suite;
mod support;
mod traffic;
