//! What a peer says of where a region lies.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_shm::read_anything(bytes);
});
