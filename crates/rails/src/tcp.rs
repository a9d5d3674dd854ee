//! Ways to peers on other hosts: so far what crosses a connection and how its two ends prove who they are; the rail itself follows.

pub mod frame;
pub mod handshake;
