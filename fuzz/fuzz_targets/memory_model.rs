//! The model of a machine's memory, kept in the user's cache directory.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| garonne_memory_model::model_file::read_anything(bytes));
