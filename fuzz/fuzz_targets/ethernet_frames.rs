//! Frames of the Ethernet transport.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_ethernet::frame::read_anything(bytes);
});
