//! Frames that a lossy medium carries, and what a link makes of those of a peer that says anything.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_engine::reliable::receive_anything(bytes);
});
