//! Records and notes that virtual sockets write into shared memory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_socket_records::read_anything(bytes);
});
