//! What roots of two worlds tell each other, and records of partitioned communication.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_mpi::read_anything(bytes);
});
