//! Payloads of control packets, and the ring of events of a peer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_engine::decode_anything(bytes);
});
