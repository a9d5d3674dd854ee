//! What other launchers answer to the ranks that they started, and the environment that they make
//! for them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    garonne_launchers::read_any_launcher(bytes);
});
