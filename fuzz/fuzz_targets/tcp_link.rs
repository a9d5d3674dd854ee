//! What a peer sends as packets, in any parts and over one connection after another.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_tcp::hostile::link(bytes);
});
