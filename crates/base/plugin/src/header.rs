//! The header with which a module begins, and how it is compared with the process that loads it.
//!
//! Written by the module's compiler as a constant, read by the process. Its layout is C's and never
//! changes up to `version` and `size`.

use crate::{Difference, LoadError, LoadedModule};
use std::ffi::CStr;
use std::path::Path;

/// Version of the header's layout.
pub const HEADER_VERSION: u32 = 1;

/// Mark with which every header begins.
pub(crate) const MAGIC: [u8; 8] = *b"GARONNEM";

const NAME: usize = 32;
const TEXT: usize = 128;

/// First words of a header, alike in all versions.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderStart {
    pub(crate) magic: [u8; 8],
    pub(crate) version: u32,
    /// Bytes of the whole header.
    pub(crate) size: u32,
}

/// Description of a build: of a module, or of the process that loads it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build {
    layout: u64,
    interface: [u8; NAME],
    crates: [u8; NAME],
    compiler: [u8; TEXT],
}

/// Header that a module exports: what it was built by and with, and its entry, a function of type
/// `E`.
///
/// A constant of the module, made by [`ModuleHeader::new`]; the macro of the interface exports it.
#[repr(C)]
#[derive(Debug)]
pub struct ModuleHeader<E> {
    start: HeaderStart,
    pub(crate) build: Build,
    pub(crate) entry: E,
}

/// Identity of an interface in this build: what a module must have alike to be loaded.
///
/// A constant of the crate that owns the interface; [`ModuleHeader::new`] puts it into modules, and
/// [`load`](crate::load) compares.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    symbol: &'static CStr,
    build: Build,
}

/// Checksum over everything that crosses the border of a module.
///
/// Begun with the checksum of the sources; [`Checksum::layout_of`] adds each type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checksum(u64);

impl Checksum {
    /// Begins with a checksum of the sources that declare the interface.
    pub const fn new(sources: u64) -> Self {
        let cfg = [
            cfg!(debug_assertions),
            cfg!(panic = "unwind"),
            cfg!(target_has_atomic = "64"),
        ];
        let mut sum = Self(0xcbf2_9ce4_8422_2325).word(sources);
        let mut at = 0;
        while at < cfg.len() {
            sum = sum.word(cfg[at] as u64);
            at += 1;
        }
        sum
    }

    /// Adds size and alignment of a type.
    pub const fn layout_of<T>(self) -> Self {
        self.word(size_of::<T>() as u64)
            .word(align_of::<T>() as u64)
    }

    /// FNV-1a, a byte at a time.
    const fn word(mut self, word: u64) -> Self {
        let bytes = word.to_le_bytes();
        let mut at = 0;
        while at < bytes.len() {
            self.0 = (self.0 ^ bytes[at] as u64).wrapping_mul(0x0000_0100_0000_01b3);
            at += 1;
        }
        self
    }
}

/// Copies a text into an array that ends with zeros, cut if it is too long.
const fn padded<const LEN: usize>(text: &str) -> [u8; LEN] {
    let (bytes, mut padded, mut at) = (text.as_bytes(), [0; LEN], 0);
    while at < bytes.len() && at < LEN {
        padded[at] = bytes[at];
        at += 1;
    }
    padded
}

/// Returns the text in such an array; of a foreign one without what a terminal would obey.
fn text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = String::from_utf8_lossy(&bytes[..end]);
    text.chars().filter(|letter| !letter.is_control()).collect()
}

impl Identity {
    /// The interface of this name, whose modules export their header as `symbol`; `crates` is the
    /// version of the crates that declare it.
    pub const fn new(
        interface: &'static str,
        symbol: &'static CStr,
        crates: &'static str,
        layout: Checksum,
    ) -> Self {
        Self {
            symbol,
            build: Build {
                layout: layout.0,
                interface: padded(interface),
                crates: padded(crates),
                compiler: padded(crate::COMPILER),
            },
        }
    }

    /// Returns the name of the interface.
    pub fn name(&self) -> String {
        text(&self.build.interface)
    }

    /// Returns the symbol that modules of this interface export.
    pub fn symbol(&self) -> &'static CStr {
        self.symbol
    }

    /// Compares a module with this build.
    pub(crate) fn check(&self, file: &Path, module: &LoadedModule) -> Result<(), LoadError> {
        let (ours, theirs) = (&self.build, module.build());
        let sum = |build: &Build| format!("{:016x}", build.layout);
        let rows = [
            (
                Difference::Interface,
                text(&theirs.interface),
                text(&ours.interface),
            ),
            (Difference::Crates, text(&theirs.crates), text(&ours.crates)),
            (
                Difference::Compiler,
                text(&theirs.compiler),
                text(&ours.compiler),
            ),
            (Difference::Layout, sum(theirs), sum(ours)),
        ];
        for (what, theirs, ours) in rows {
            if theirs != ours {
                return Err(LoadError::Differs {
                    file: file.to_owned(),
                    what,
                    theirs,
                    ours,
                });
            }
        }
        Ok(())
    }
}

impl<E> ModuleHeader<E> {
    /// Returns the header of a module of an interface, with its entry.
    pub const fn new(interface: &Identity, entry: E) -> Self {
        Self {
            start: HeaderStart {
                magic: MAGIC,
                version: HEADER_VERSION,
                size: size_of::<Self>() as u32,
            },
            build: interface.build,
            entry,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_and_shown_without_control_characters() {
        assert_eq!(text(&padded::<4>("abcdef")), "abcd");
        assert_eq!(text(&padded::<8>("abc")), "abc");
        assert_eq!(text(b"a\x1b[2Jb\0c"), "a[2Jb");
        assert_eq!(text(&[0xff, 0]), "\u{fffd}");
    }

    #[test]
    fn the_checksum_tells_sources_sizes_and_their_order_apart() {
        let sums = [
            Checksum::new(1),
            Checksum::new(2),
            Checksum::new(1).layout_of::<u8>(),
            Checksum::new(1).layout_of::<u64>(),
            Checksum::new(1).layout_of::<u8>().layout_of::<u64>(),
            Checksum::new(1).layout_of::<u64>().layout_of::<u8>(),
        ];
        for (at, sum) in sums.iter().enumerate() {
            assert!(!sums[..at].contains(sum), "{at}");
        }
    }
}
