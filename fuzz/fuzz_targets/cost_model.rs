//! The cost model kept in the user's cache directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_rails::cost::read_anything(bytes);
});
