//! Shared memory and TCP in one transport: the conformance suite, and large data that take both.

mod both;
mod coalescer;
mod intra_node_paths;
#[allow(dead_code, reason = "shared with the tests of the TCP transport")]
#[path = "../../../tcp/tests/tcp/proxy.rs"]
mod proxy;
#[allow(dead_code, reason = "shared with the tests of the TCP transport")]
#[path = "../../../tcp/tests/tcp/support.rs"]
mod support;
#[path = "../../../tcp/tests/tcp/traffic.rs"]
mod traffic;
