//! Messages between launcher, agent and ranks.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use garonne_node::wire::{Link, ToAgent, ToRank};
    let _ = (ToAgent::decode(bytes), ToRank::decode(bytes), Link::decode(bytes));
});
