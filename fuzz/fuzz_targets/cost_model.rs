//! The cost model, and what networks gave, kept in the user's cache directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_shm::cost_model::read_anything(bytes);
    garonne_rank::measured_networks::read_anything(bytes);
});
