//! Programs and libraries of which ranks as threads load copies: the headers of ELF files.
//!
//! The module is taken by its path: its crate is an executable with the C library's entry points.

#![no_main]
#![allow(dead_code)]

#[path = "../../crates/run/rank-threads/src/image.rs"]
mod image;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    image::read_anything(bytes);
});
