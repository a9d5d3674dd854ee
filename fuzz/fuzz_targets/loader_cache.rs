//! The cache of the dynamic loader, a file that `ldconfig` writes.

#![no_main]

use garonne_loader::cache::Cache;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let cache = Cache::parse(bytes);
    cache.paths("libmpi.so.12").count();
});
