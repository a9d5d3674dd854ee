//! What ranks record while they are traced, as a reader copies it out of their memory, and files
//! with timelines.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_trace::read_anything(bytes);
});
