//! What a peer says of its endpoint of libfabric.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_tcp::hostile::hello(bytes);
});
