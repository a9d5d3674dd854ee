//! Names of ports as programs pass them, and cards of processes of other worlds.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_rank::read_world_messages(bytes);
});
