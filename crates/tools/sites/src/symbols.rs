//! Functions that an object file names in its symbol tables, for code without debug information.
//!
//! A function is named only for addresses that its size covers. In a library whose own functions
//! were stripped, the nearest name before an address is mostly another function's.

use std::fs::File;

use object::read::ReadCache;
use object::{Object, ObjectSymbol, SymbolKind};

/// The functions of an object file, by address.
#[derive(Debug, Default)]
pub(crate) struct SymbolTable {
    /// First address, size, name; a size of 0 is not known.
    list: Vec<(u64, u64, String)>,
}

impl SymbolTable {
    /// Reads the symbols of a file; none where the file cannot be read.
    pub fn of(path: &str) -> Self {
        File::open(path).map_or_else(|_| Self::default(), Self::read)
    }

    fn read(file: File) -> Self {
        let cache = ReadCache::new(file);
        let Ok(file) = object::File::parse(&cache) else {
            return Self::default();
        };
        let all = file.symbols().chain(file.dynamic_symbols());
        let functions = all.filter(|symbol| {
            symbol.is_definition()
                && matches!(symbol.kind(), SymbolKind::Text | SymbolKind::Unknown)
        });
        let mut list: Vec<_> = functions
            .filter_map(|symbol| {
                Some((
                    symbol.address(),
                    symbol.size(),
                    symbol.name().ok()?.to_owned(),
                ))
            })
            .collect();
        list.sort_unstable();
        list.dedup();
        Self { list }
    }

    /// The function around an address of the object file.
    pub fn at(&self, svma: u64) -> Option<&str> {
        let after = self.list.partition_point(|(begin, ..)| *begin <= svma);
        let (nearest, ..) = *self.list[..after].last()?;
        let same = self.list[..after]
            .iter()
            .rev()
            .take_while(|(begin, ..)| *begin == nearest);
        let covers = |(begin, size, _): &&(u64, u64, String)| *size == 0 || svma - begin < *size;
        same.filter(covers).map(|(.., name)| name.as_str()).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_named_as_far_as_it_reaches() {
        let symbol = |begin, size, name: &str| (begin, size, name.to_owned());
        let list = vec![
            symbol(16, 4, "alias"),
            symbol(16, 8, "whole"),
            symbol(32, 0, "assembly"),
        ];
        let symbols = SymbolTable { list };
        let at = [15, 16, 23, 24, 31, 32, 99].map(|address| symbols.at(address));
        let (whole, assembly) = (Some("whole"), Some("assembly"));
        assert_eq!(at, [None, whole, whole, None, None, assembly, assembly]);
    }
}
