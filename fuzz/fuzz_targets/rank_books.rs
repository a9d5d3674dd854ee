//! What a rank shows of its waits and communicators, as a visitor copies it out of its memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_job::wait_report::read_anything(bytes);
});
