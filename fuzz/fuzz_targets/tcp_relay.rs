//! What the two ends of a passage through a host between them do.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_tcp::hostile::relay(bytes);
});
