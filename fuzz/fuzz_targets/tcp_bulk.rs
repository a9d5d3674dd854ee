//! What a peer sends for large data, in any parts, while this side reads, lends and withdraws.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_tcp::hostile::bulk(bytes);
});
