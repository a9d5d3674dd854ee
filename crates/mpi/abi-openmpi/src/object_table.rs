//! Table of the objects whose addresses are handles.

use garonne_bodies::abi::fast::PlainType;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Table of objects: the word of each by its address, searched for each handle that a call gets.
/// An address that is not in it is no handle, so no call reads memory that it was not told of.
/// Objects are added and never taken out.
pub(crate) struct ObjectTable([ObjectEntry; ObjectTable::LEN]);

/// An object's address and word; [`FREE`] and 0 where there is none.
struct ObjectEntry {
    address: AtomicUsize,
    word: AtomicUsize,
}

/// Address where there is no object. No handle with the highest bit is an address.
const FREE: usize = 1 << 63;

impl ObjectTable {
    /// Several times as many entries as there are predefined handles.
    pub(crate) const LEN: usize = 1024;
    /// Objects have as many bytes or more, so those side by side have entries side by side.
    const SMALLEST: usize = 256;

    pub(crate) const fn new() -> Self {
        Self(
            [const {
                ObjectEntry {
                    address: AtomicUsize::new(FREE),
                    word: AtomicUsize::new(0),
                }
            }; Self::LEN],
        )
    }

    /// Returns the entry at which an address is looked for first, or so many behind.
    #[inline(always)]
    fn entry(&self, address: usize, step: usize) -> &ObjectEntry {
        &self.0[(address / Self::SMALLEST).wrapping_add(step) % Self::LEN]
    }

    /// Adds an object. Returns whether there was room.
    pub(crate) fn add(&self, address: usize, word: usize) -> bool {
        let free = |entry: &&ObjectEntry| {
            let word = (entry.word).compare_exchange(0, word, Ordering::AcqRel, Ordering::Relaxed);
            word.is_ok()
        };
        let mut entries = (0..Self::LEN).map(|step| self.entry(address, step));
        let Some(entry) = entries.find(free) else {
            return false;
        };
        entry.address.store(address, Ordering::Release);
        true
    }

    /// Returns the address of the object with a word.
    #[cold]
    pub(crate) fn address(&self, word: usize) -> Option<usize> {
        let mut entries = self.0.iter();
        let found = entries.find(|entry| entry.word.load(Ordering::Acquire) == word)?;
        Some(found.address.load(Ordering::Acquire)).filter(|address| *address != FREE)
    }

    /// Returns the word of the object at an address.
    #[inline(always)]
    pub(crate) fn word(&self, address: usize) -> Option<usize> {
        for step in 0..Self::LEN {
            let entry = self.entry(address, step);
            match entry.address.load(Ordering::Acquire) {
                FREE => return None,
                found if found == address => return Some(entry.word.load(Ordering::Relaxed)),
                _ => {}
            }
        }
        None
    }
}

/// Plain datatypes by the addresses of their objects, for fast paths: each has one place or none.
/// Datatypes are added and never taken out.
pub(crate) struct PlainTypes([PlainEntry; PlainTypes::LEN]);

/// A datatype's address, bytes of an element, and lower byte of its word.
#[repr(align(32))]
struct PlainEntry {
    address: AtomicUsize,
    bytes: AtomicUsize,
    code: AtomicU8,
}

const _: () = assert!(size_of::<PlainEntry>() == 32, "found by a shift");

impl PlainTypes {
    /// Datatypes that lie side by side in a library or in a program all have places. Few of one lie
    /// at the same place as those of the other.
    const LEN: usize = 2048;
    /// The objects have so many bytes.
    const OBJECT: usize = 512;

    pub(crate) const fn new() -> Self {
        Self(
            [const {
                PlainEntry {
                    address: AtomicUsize::new(FREE),
                    bytes: AtomicUsize::new(0),
                    code: AtomicU8::new(0),
                }
            }; Self::LEN],
        )
    }

    #[inline(always)]
    fn entry(&self, address: usize) -> &PlainEntry {
        &self.0[address / Self::OBJECT % Self::LEN]
    }

    /// Adds a datatype, if its place is free. Called by one thread at a time.
    pub(crate) fn add(&self, address: usize, plain: PlainType) {
        let entry = self.entry(address);
        if entry.address.load(Ordering::Relaxed) == FREE {
            entry.bytes.store(plain.bytes, Ordering::Relaxed);
            entry.code.store(plain.code, Ordering::Relaxed);
            entry.address.store(address, Ordering::Release);
        }
    }

    /// Returns the datatype whose object is at an address; `None` for one that has no place.
    #[inline(always)]
    pub(crate) fn find(&self, address: usize) -> Option<PlainType> {
        let entry = self.entry(address);
        (entry.address.load(Ordering::Acquire) == address).then(|| PlainType {
            bytes: entry.bytes.load(Ordering::Relaxed),
            code: entry.code.load(Ordering::Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_objects_that_fit_are_found_and_no_other() {
        let table = Box::new(ObjectTable::new());
        // All begin at the same entry.
        let address = |at: usize| 0x4000_0000 + at * ObjectTable::LEN * ObjectTable::SMALLEST;
        for at in 0..ObjectTable::LEN {
            assert!(table.add(address(at), at + 1));
        }
        assert!(!table.add(address(ObjectTable::LEN), 1), "no room");
        for at in 0..ObjectTable::LEN {
            assert_eq!(table.word(address(at)), Some(at + 1));
            assert_eq!(table.address(at + 1), Some(address(at)));
        }
        assert_eq!(table.word(address(ObjectTable::LEN)), None);
        assert_eq!(table.word(0), None);
    }

    #[test]
    fn plain_datatypes_are_found_by_their_addresses_only() {
        const DOUBLE: usize = 0x214;
        const INT: usize = 0x209;
        let types = Box::new(PlainTypes::new());
        let (first, second) = (0x7000_0040, 0x7000_0240);
        let same_place = first + PlainTypes::LEN * PlainTypes::OBJECT;
        types.add(first, PlainType::of(DOUBLE));
        types.add(second, PlainType::of(INT));
        types.add(same_place, PlainType::of(INT));
        let of = |address| types.find(address).map(|found| (found.bytes, found.code));
        assert_eq!(of(first), Some((8, DOUBLE as u8)));
        assert_eq!(of(second), Some((4, INT as u8)));
        for garbage in [0, 8, first + 8, second + 512, same_place, FREE + 5000] {
            assert_eq!(of(garbage), None, "{garbage:#x}");
        }
        // The mark of a free place is no plain datatype.
        assert!(of(FREE).is_none_or(|(bytes, _)| bytes == 0));
    }
}
