//! Messages by which two endpoints agree on a connection.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne::read_connection_messages(bytes);
});
