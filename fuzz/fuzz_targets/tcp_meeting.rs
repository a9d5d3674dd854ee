//! What two do that are to meet at a host between them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_tcp::hostile::meeting(bytes);
});
