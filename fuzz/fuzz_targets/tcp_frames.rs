//! Opening messages and frames of connections between hosts.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_tcp::frame::read_anything(bytes);
});
