//! The loader's cache of libraries (`/etc/ld.so.cache`), which `ldconfig` writes: names and the
//! paths they stand for.
//!
//! Format of glibc 2.2 and later, in the byte order of the machine that wrote it: a header of 48
//! bytes, one entry of 24 bytes for each library, the strings. A file in the older format begins
//! with another magic and holds this one behind it; such files are not read.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the loader keeps its cache.
pub const PATH: &str = "/etc/ld.so.cache";

const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;

/// Flags of an entry: the C library that the object is for.
const KIND_MASK: u32 = 0xff;
const KIND_ELF_LIBC6: u32 = 3;
/// An entry with a bit of these set is for processors with certain extensions only.
const HWCAP_AT: usize = 16;

/// Names of libraries and the paths that the loader takes for them, in the cache's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cache {
    entries: Vec<(String, PathBuf)>,
}

impl Cache {
    /// Reads the system's cache. One that is missing or damaged is empty, as it is for the loader.
    pub fn of_system() -> Self {
        fs::read(Path::new(PATH)).map_or_else(|_| Self::default(), |bytes| Self::parse(&bytes))
    }

    /// Reads a cache from its file's bytes. Entries that point outside are left out.
    pub fn parse(bytes: &[u8]) -> Self {
        let mut cache = Self::default();
        if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
            return cache;
        }
        let count = word(bytes, MAGIC.len()).unwrap_or(0) as usize;
        let entries = bytes[HEADER_BYTES..].chunks_exact(ENTRY_BYTES).take(count);
        for entry in entries {
            let kind = word(entry, 0).unwrap_or(0) & KIND_MASK;
            let needs_extensions = entry[HWCAP_AT..].iter().any(|byte| *byte != 0);
            if kind != KIND_ELF_LIBC6 || needs_extensions {
                continue;
            }
            let text = |at| string(bytes, word(entry, at)? as usize);
            if let (Some(name), Some(path)) = (text(4), text(8)) {
                cache.entries.push((name, PathBuf::from(path)));
            }
        }
        cache
    }

    /// Returns the paths kept for a name. The loader takes the first whose architecture fits.
    pub fn paths<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a Path> {
        let name = name.to_owned();
        let named = self.entries.iter().filter(move |entry| entry.0 == name);
        named.map(|entry| entry.1.as_path())
    }

    /// Returns whether the cache names no library.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// Reads a string that ends with a zero, at an offset from the cache's beginning.
fn string(bytes: &[u8], at: usize) -> Option<String> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache with one entry of these flags for `libx.so.1`.
    fn cache_of(flags: u32, hwcap: u64, count: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(count.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        let strings = (HEADER_BYTES + ENTRY_BYTES) as u32;
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(strings.to_ne_bytes());
        bytes.extend((strings + 10).to_ne_bytes());
        bytes.extend([0; 4]);
        bytes.extend(hwcap.to_ne_bytes());
        bytes.extend(b"libx.so.1\0/lib/libx.so.1\0");
        bytes
    }

    #[test]
    fn a_library_is_found_by_its_name() {
        let cache = Cache::parse(&cache_of(0x0303, 0, 1));
        let paths: Vec<_> = cache.paths("libx.so.1").collect();
        assert_eq!(paths, [Path::new("/lib/libx.so.1")]);
        assert_eq!(cache.paths("libx.so").count(), 0);
    }

    #[test]
    fn entries_for_other_c_libraries_or_extensions_are_left_out() {
        assert!(Cache::parse(&cache_of(0x0301, 0, 1)).is_empty());
        assert!(Cache::parse(&cache_of(0x0303, 1 << 62, 1)).is_empty());
    }

    #[test]
    fn damaged_caches_name_nothing_that_is_not_there() {
        let whole = cache_of(0x0303, 0, u32::MAX);
        for len in 0..whole.len() {
            let cache = Cache::parse(&whole[..len]);
            assert!(cache.entries.len() <= 1, "{len}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            Cache::parse(&damaged);
        }
    }

    #[test]
    fn kept_inputs_of_fuzzing_are_read() {
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/loader_cache");
        let read = |name| Cache::parse(&fs::read(seeds.join(name)).unwrap());
        assert_eq!(read("one").paths("libmpi.so.12").count(), 1);
        assert!(read("many").is_empty());
    }

    #[test]
    fn the_system_s_own_cache_names_the_c_library_if_there_is_one() {
        if Path::new(PATH).exists() {
            assert!(Cache::of_system().paths("libc.so.6").next().is_some());
        }
    }
}
