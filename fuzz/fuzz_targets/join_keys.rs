//! Join keys as people paste them, and what hosts that join and their job say to each other.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_job::join_messages::read_anything(bytes);
});
