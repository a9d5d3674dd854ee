//! A private copy of a program or library: a file whose needed names are others.
//!
//! The dynamic loader loads a file once, by inode and by name. So each rank loads copies, which
//! need each other by names that only these copies have. All offsets of the file are checked: a
//! damaged one is an error.

use std::ops::Range;

const ET_DYN: u16 = 3;
/// Least bytes of a page, by which parts of a file are mapped.
pub const PAGE: usize = 4096;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const PT_TLS: u32 = 7;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_VERNEEDNUM: u64 = 0x6fff_ffff;
/// Mark of an executable, which `dlopen` refuses.
const DF_1_PIE: u64 = 0x0800_0000;
/// Tags of tables that may lie behind the symbols: HASH, GNU_HASH, STRTAB, VERSYM, VERNEED, VERDEF,
/// RELA, JMPREL.
const TABLES: [u64; 8] = [
    4,
    0x6fff_fef5,
    DT_STRTAB,
    0x6fff_fff0,
    DT_VERNEED,
    0x6fff_fffc,
    7,
    23,
];
/// Place of the table of sections' offset in the header.
const SECTIONS: Range<usize> = 40..48;
const SYMBOL_BYTES: usize = 24;
/// Binding of symbols that the loader has once in the process, whatever copy they are in.
const STB_GNU_UNIQUE: u8 = 10;
const STB_GLOBAL: u8 = 1;

/// The thread-local variables that a program begins with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadLocals {
    /// Values of those that have one.
    pub begin: Vec<u8>,
    /// Bytes of all.
    pub bytes: usize,
    /// Alignment of the block.
    pub align: usize,
}

/// Whole pages of a file that nobody writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constants {
    /// Place in the file.
    pub file: Range<usize>,
    /// Address of the first byte, from the place where the file is loaded.
    pub address: usize,
    /// True if they hold instructions.
    pub is_code: bool,
}

/// A file that is changed before it is loaded. `B` holds its bytes.
#[derive(Clone, Debug)]
pub struct Image<B = Vec<u8>> {
    bytes: B,
    /// Bytes that are loaded, from the first.
    len: usize,
    loads: Vec<(u64, Range<u64>)>,
    /// Parts of the file that are mapped without being written, and where they lie.
    constants: Vec<Constants>,
    /// Bytes of the file that differ from the original's.
    changed: Vec<Range<usize>>,
    dynamic: Range<usize>,
    thread_locals: Option<ThreadLocals>,
    is_program: bool,
    entry: u64,
}

/// Reason why a file cannot be loaded as a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No ELF file of 64 bits, or a damaged one.
    Damaged,
    /// An executable that lies at fixed addresses.
    FixedAddresses,
    /// No dynamic section: linked statically.
    Static,
    /// A needed name is shorter than the name that replaces it.
    ShortName,
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Damaged => "it is no ELF file of 64 bits, or a damaged one",
            Self::FixedAddresses => {
                "it was linked to fixed addresses; build it with -fPIE -pie (the default of most compilers)"
            }
            Self::Static => "it was linked statically",
            Self::ShortName => "the name of one of its libraries has fewer than 4 letters",
        })
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Image<B> {
    /// Reads the headers of a file.
    ///
    /// # Errors
    /// The file cannot be loaded a second time.
    pub fn read(bytes: B) -> Result<Self, Unfit> {
        let file = bytes.as_ref();
        if file.get(..6) != Some(b"\x7fELF\x02\x01") {
            return Err(Unfit::Damaged);
        }
        if half(file, 16)? != ET_DYN {
            return Err(Unfit::FixedAddresses);
        }
        let (table, size, count) = (
            place(word(file, 32)?)?,
            usize::from(half(file, 54)?),
            usize::from(half(file, 56)?),
        );
        let mut image = Self {
            entry: word(file, 24)?,
            len: file.len(),
            bytes,
            loads: Vec::new(),
            constants: Vec::new(),
            changed: Vec::new(),
            dynamic: 0..0,
            thread_locals: None,
            is_program: false,
        };
        for index in 0..count {
            let at = table.checked_add(index * size).ok_or(Unfit::Damaged)?;
            image.segment(at)?;
        }
        // What is not loaded is not copied.
        let ends = image
            .loads
            .iter()
            .map(|(offset, range)| offset.saturating_add(range.end - range.start));
        image.len = place(ends.max().unwrap_or_default())?.min(image.len);
        match image.dynamic.is_empty() {
            true => Err(Unfit::Static),
            false => Ok(image),
        }
    }

    fn segment(&mut self, at: usize) -> Result<(), Unfit> {
        let bytes = &self.bytes.as_ref()[..self.len];
        let field = |offset: usize| word(bytes, at.checked_add(offset).ok_or(Unfit::Damaged)?);
        let (kind, rights) = (half_word(bytes, at)?, half_word(bytes, at + 4)?);
        let (offset, address, in_file, in_memory) = (field(8)?, field(16)?, field(32)?, field(40)?);
        let end = offset.checked_add(in_file).ok_or(Unfit::Damaged)?;
        let file = place(offset)?..place(end)?;
        let is_in_file = file.is_empty() || file.end <= bytes.len();
        match kind {
            PT_LOAD | PT_DYNAMIC | PT_TLS if !is_in_file => return Err(Unfit::Damaged),
            PT_LOAD => {
                let end = address.checked_add(in_file).ok_or(Unfit::Damaged)?;
                self.loads.push((offset, address..end));
                let is_alike = offset % PAGE as u64 == address % PAGE as u64;
                if rights & PF_W == 0 && is_alike && !file.is_empty() {
                    let before = file.start % PAGE;
                    self.constants.push(Constants {
                        file: file.start - before..file.end,
                        address: place(address)?.checked_sub(before).ok_or(Unfit::Damaged)?,
                        is_code: rights & PF_X != 0,
                    });
                }
            }
            PT_DYNAMIC => self.dynamic = file,
            PT_INTERP => self.is_program = true,
            PT_TLS => {
                let (bytes_all, align) = (place(in_memory)?, place(field(48)?)?.max(1));
                // The block's bytes with their alignment are a number, too.
                bytes_all.checked_add(align).ok_or(Unfit::Damaged)?;
                self.thread_locals = Some(ThreadLocals {
                    begin: bytes.get(file).unwrap_or_default().to_vec(),
                    bytes: bytes_all,
                    align,
                });
            }
            _ => {}
        }
        Ok(())
    }

    /// The thread-local variables that the file has.
    pub fn thread_locals(&self) -> Option<&ThreadLocals> {
        self.thread_locals.as_ref()
    }

    /// Returns whether the file names a loader, as programs do.
    pub fn is_program(&self) -> bool {
        self.is_program
    }

    /// Address of the first instruction, from the place where the file is loaded.
    pub fn entry(&self) -> u64 {
        self.entry
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes.as_ref()[..self.len]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes.as_mut()[..self.len]
    }

    /// Returns pages that are as in the original file, which may be mapped in their place.
    pub fn unchanged_constants(&self) -> Vec<Constants> {
        let mut all = Vec::new();
        for part in &self.constants {
            let mut start = part.file.start;
            let mut end_run = |start: usize, end: usize| {
                if start < end {
                    all.push(Constants {
                        file: start..end,
                        address: part.address + (start - part.file.start),
                        is_code: part.is_code,
                    });
                }
            };
            for page in part.file.clone().step_by(PAGE) {
                let is_in = |change: &Range<usize>| change.start < page + PAGE && page < change.end;
                if self.changed.iter().any(is_in) {
                    end_run(start, page);
                    start = page + PAGE;
                }
            }
            end_run(start, part.file.end);
        }
        all
    }

    /// Gives needed libraries other names, and has `dlopen` take an executable. `name_of`: the new
    /// name of a library; `None` leaves it.
    ///
    /// # Errors
    /// The file is damaged, or a new name is longer than the old one.
    pub fn rename(&mut self, name_of: impl Fn(&str) -> Option<String>) -> Result<(), Unfit> {
        let entries = self.entries()?;
        let value = |tag: u64| {
            entries
                .iter()
                .find(|entry| entry.1 == tag)
                .map(|entry| entry.2)
        };
        let strings = value(DT_STRTAB).ok_or(Unfit::Damaged)?;
        let mut names = Vec::new();
        for &(at, tag, value) in &entries {
            match tag {
                // The value may be an address before the strings: see `need`.
                DT_NEEDED | DT_SONAME => names.push(Some(strings.wrapping_add(value))),
                DT_FLAGS_1 => self.store(at + 8, &(value & !DF_1_PIE).to_le_bytes())?,
                _ => {}
            }
        }
        if let (Some(at), Some(count)) = (value(DT_VERNEED), value(DT_VERNEEDNUM)) {
            let mut at = self.offset(at)?;
            for _ in 0..count {
                // vn_file and vn_next: words of 32 bits.
                let field = |offset: usize| {
                    half_word(self.bytes(), at.checked_add(offset).ok_or(Unfit::Damaged)?)
                };
                let (file, next) = (field(4)?, field(12)?);
                names.push(strings.checked_add(file.into()));
                if next == 0 {
                    break;
                }
                at = at.checked_add(next as usize).ok_or(Unfit::Damaged)?;
            }
        }
        for name in names {
            let at = self.offset(name.ok_or(Unfit::Damaged)?)?;
            let rest = self.bytes().get(at..).ok_or(Unfit::Damaged)?;
            let len = rest
                .iter()
                .position(|byte| *byte == 0)
                .ok_or(Unfit::Damaged)?;
            let old = std::str::from_utf8(&rest[..len]).map_err(|_| Unfit::Damaged)?;
            if let Some(new) = name_of(old) {
                if new.len() > len {
                    return Err(Unfit::ShortName);
                }
                let mut new = new.into_bytes();
                new.push(0);
                self.store(at, &new)?;
            }
        }
        let Some(symbols) = value(DT_SYMTAB) else {
            return Ok(());
        };
        // Symbols end where the next table begins.
        let begins = entries.iter().filter(|entry| TABLES.contains(&entry.1));
        let next = begins.map(|entry| entry.2).filter(|at| *at > symbols).min();
        self.own_unique_symbols(symbols, next.unwrap_or(symbols))
    }

    /// Has the file need a library of this name, so that its symbols count for what the file leaves
    /// open: in place of the C library, which that library needs itself, or else as an entry more.
    /// Returns `false` where the file has room for neither.
    ///
    /// The name lies in the header, in place of the table of sections, which is not loaded.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn need(&mut self, library: &str) -> Result<bool, Unfit> {
        let is_head = |load: &&(u64, Range<u64>)| load.0 == 0 && load.1.end - load.1.start > 64;
        let head = self.loads.iter().find(is_head).map(|load| load.1.start);
        let (Some(head), true) = (head, library.len() < SECTIONS.len()) else {
            return Ok(false);
        };
        let entries = self.entries()?;
        let strings = entries.iter().find(|entry| entry.1 == DT_STRTAB);
        let strings = strings.ok_or(Unfit::Damaged)?.2;
        let mut replaced = None;
        for &(at, tag, value) in &entries {
            if tag == DT_NEEDED {
                let name = self.offset(strings.wrapping_add(value))?;
                let rest = self.bytes().get(name..).ok_or(Unfit::Damaged)?;
                if rest.starts_with(b"libc.so.") {
                    replaced = Some(at);
                }
            }
        }
        // Linkers leave empty entries behind the last; one of them ends the section.
        let end = entries
            .last()
            .map_or(self.dynamic.start, |entry| entry.0 + 16);
        let is_spare = end + 32 <= self.dynamic.end;
        let Some(at) = replaced.or(is_spare.then_some(end)) else {
            return Ok(false);
        };
        let name = (head + SECTIONS.start as u64).wrapping_sub(strings);
        self.store(at, &[DT_NEEDED.to_le_bytes(), name.to_le_bytes()].concat())?;
        let mut text = library.as_bytes().to_vec();
        text.resize(SECTIONS.len(), 0);
        self.store(SECTIONS.start, &text)?;
        Ok(true)
    }

    /// Entries of the dynamic section: place in the file, tag, value.
    fn entries(&self) -> Result<Vec<(usize, u64, u64)>, Unfit> {
        let mut entries = Vec::new();
        for at in self.dynamic.clone().step_by(16) {
            let tag = word(self.bytes(), at)?;
            if tag == 0 {
                break;
            }
            entries.push((at, tag, word(self.bytes(), at + 8)?));
        }
        Ok(entries)
    }

    /// Makes symbols global that the process would have once.
    fn own_unique_symbols(&mut self, symbols: u64, end: u64) -> Result<(), Unfit> {
        let begin = self.offset(symbols)?;
        let table = self.bytes_mut().get_mut(begin..).ok_or(Unfit::Damaged)?;
        let count = (place(end - symbols)? / SYMBOL_BYTES).min(table.len() / SYMBOL_BYTES);
        let mut is_changed = false;
        for symbol in table.chunks_exact_mut(SYMBOL_BYTES).take(count) {
            if symbol[4] >> 4 == STB_GNU_UNIQUE {
                symbol[4] = STB_GLOBAL << 4 | symbol[4] & 0xf;
                is_changed = true;
            }
        }
        if is_changed {
            self.changed.push(begin..begin + count * SYMBOL_BYTES);
        }
        Ok(())
    }

    fn store(&mut self, at: usize, new: &[u8]) -> Result<(), Unfit> {
        let end = at.checked_add(new.len()).ok_or(Unfit::Damaged)?;
        let old = self.bytes_mut().get_mut(at..end).ok_or(Unfit::Damaged)?;
        old.copy_from_slice(new);
        self.changed.push(at..end);
        Ok(())
    }

    /// Returns where the byte of an address lies in the file.
    fn offset(&self, address: u64) -> Result<usize, Unfit> {
        let load = self
            .loads
            .iter()
            .find(|(_, range)| range.contains(&address));
        let (offset, range) = load.ok_or(Unfit::Damaged)?;
        place(
            (address - range.start)
                .checked_add(*offset)
                .ok_or(Unfit::Damaged)?,
        )
    }
}

/// Reads, renames and lists what any bytes say, as a rank does with a program: the fuzz target
/// `program_images`.
#[doc(hidden)]
pub fn read_anything(bytes: &[u8]) {
    let Ok(mut image) = Image::read(bytes.to_vec()) else {
        return;
    };
    let all = image.unchanged_constants();
    assert!(all.iter().all(|part| part.file.end <= bytes.len()));
    if let Some(variables) = image.thread_locals() {
        assert!(
            variables
                .bytes
                .checked_next_multiple_of(variables.align)
                .is_some()
        );
    }
    let name_of = |name: &str| (name.len() > 4).then(|| "1234".to_owned());
    if image.need("5678").is_ok() && image.rename(name_of).is_ok() {
        let parts = image.unchanged_constants();
        for part in parts {
            let (new, old) = (image.bytes().get(part.file.clone()), &bytes[part.file]);
            assert!(new.is_none_or(|new| new == old), "a changed page");
        }
    }
}

fn place(value: u64) -> Result<usize, Unfit> {
    usize::try_from(value).map_err(|_| Unfit::Damaged)
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Unfit> {
    let end = at.checked_add(N).ok_or(Unfit::Damaged)?;
    let part = bytes.get(at..end).ok_or(Unfit::Damaged)?;
    part.try_into().map_err(|_| Unfit::Damaged)
}

fn half(bytes: &[u8], at: usize) -> Result<u16, Unfit> {
    array(bytes, at).map(u16::from_le_bytes)
}

fn half_word(bytes: &[u8], at: usize) -> Result<u32, Unfit> {
    array(bytes, at).map(u32::from_le_bytes)
}

fn word(bytes: &[u8], at: usize) -> Result<u64, Unfit> {
    array(bytes, at).map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> Vec<u8> {
        std::fs::read("/proc/self/exe").unwrap()
    }

    #[test]
    fn needed_names_and_the_mark_of_an_executable_are_changed() {
        let mut image = Image::read(own()).unwrap();
        assert!(image.is_program() && image.entry() > 0);
        let rename = |name: &str| name.starts_with("libc.so").then(|| "1234".to_owned());
        image.rename(rename).unwrap();
        let again = Image::read(image.bytes().to_vec()).unwrap();
        let seen = std::cell::Cell::new((0, 0));
        let count = |name: &str| {
            let (new, old) = seen.get();
            seen.set((
                new + usize::from(name == "1234"),
                old + usize::from(name.starts_with("libc.so")),
            ));
            None
        };
        again.clone().rename(count).unwrap();
        assert!(seen.get().0 >= 1 && seen.get().1 == 0, "{:?}", seen.get());
        let flags = again
            .entries()
            .unwrap()
            .into_iter()
            .filter(|entry| entry.1 == DT_FLAGS_1);
        assert!(flags.clone().all(|(_, _, value)| value & DF_1_PIE == 0));
    }

    #[test]
    fn a_name_is_needed_in_place_of_the_c_library() {
        for seed in ["library", "program"] {
            let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../../../fuzz/seeds/program_images")
                .join(seed);
            let mut image = Image::read(std::fs::read(path).unwrap()).unwrap();
            assert_eq!(image.need("123"), Ok(true));
            assert_eq!(&image.bytes()[SECTIONS], b"123\0\0\0\0\0");
            let seen = std::cell::RefCell::new(Vec::new());
            let look = |name: &str| {
                seen.borrow_mut().push(name.to_owned());
                None
            };
            // The versions of its symbols are still sought in the C library.
            assert!(image.rename(look).is_ok());
            let mut seen = seen.into_inner();
            seen.retain(|name| !name.starts_with("ld-linux"));
            seen.sort();
            assert_eq!(seen, ["123", "libc.so.6"], "{seed}");
        }
        let mut own = Image::read(own()).unwrap();
        assert_eq!(own.need("a name of nine"), Ok(false));
    }

    #[test]
    fn pages_that_count_as_unchanged_are_those_of_the_original() {
        let original = own();
        let mut image = Image::read(original.clone()).unwrap();
        let rename = |name: &str| name.starts_with("lib").then(|| "1234".to_owned());
        image.rename(rename).unwrap();
        let parts = image.unchanged_constants();
        assert!(parts.iter().any(|part| part.is_code));
        for part in parts {
            assert_eq!(
                image.bytes()[part.file.clone()],
                original[part.file.clone()],
                "{part:?}"
            );
            assert_eq!(part.file.start % PAGE, 0);
            assert_eq!(part.address % PAGE, 0);
        }
    }

    #[test]
    fn a_name_without_room_is_an_error() {
        let long = |name: &str| name.starts_with("libc.so").then(|| "x".repeat(40));
        assert_eq!(
            Image::read(own()).unwrap().rename(long),
            Err(Unfit::ShortName)
        );
    }

    #[test]
    fn damaged_files_are_errors() {
        assert_eq!(
            Image::read(b"#!/bin/sh".to_vec()).unwrap_err(),
            Unfit::Damaged
        );
        let whole = own();
        for at in (0..4096).step_by(7) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0xff;
            bytes.truncate(whole.len() - at * 8);
            if let Ok(mut image) = Image::read(bytes) {
                let _ = image.rename(|_| Some("1234".to_owned()));
            }
        }
    }

    /// A file of headers alone whose segments may claim anything.
    fn claims(kind: u32, offset: u64, address: u64, in_file: u64) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[16] = ET_DYN as u8;
        bytes[32] = 64;
        (bytes[54], bytes[56]) = (56, 1);
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        for (at, word) in [(8, offset), (16, address), (32, in_file), (40, u64::MAX)] {
            bytes[64 + at..64 + at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn segments_beyond_the_file_are_errors_and_take_no_time() {
        for kind in [PT_LOAD, PT_DYNAMIC, PT_TLS] {
            for (offset, in_file) in [(0, 1 << 62), (u64::MAX - 1, 1), (0, u64::MAX), (100, 100)] {
                let read = Image::read(claims(kind, offset, 0, in_file));
                assert_eq!(
                    read.unwrap_err(),
                    Unfit::Damaged,
                    "{kind} {offset} {in_file}"
                );
            }
        }
        // Addresses end where 64 bits end.
        let read = Image::read(claims(PT_LOAD, 0, u64::MAX - 50, 120));
        assert_eq!(read.unwrap_err(), Unfit::Damaged);
    }

    #[test]
    fn kept_inputs_of_the_fuzz_target_are_read() {
        let seeds = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fuzz/seeds/program_images");
        let read = |entry: std::io::Result<std::fs::DirEntry>| {
            read_anything(&std::fs::read(entry.unwrap().path()).unwrap());
        };
        assert!(std::fs::read_dir(&seeds).unwrap().map(read).count() >= 2);
    }
}
