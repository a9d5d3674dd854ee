//! Messages between launcher, agent and ranks, and between the agents of several hosts.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_job::rank_messages::read_anything(bytes);
});
