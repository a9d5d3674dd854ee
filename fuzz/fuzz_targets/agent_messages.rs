//! Messages between launcher, agent and ranks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_node::wire::read_anything(bytes);
});
