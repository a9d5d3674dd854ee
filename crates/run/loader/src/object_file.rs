//! The dynamic section of one ELF file: what the loader reads of it.

use std::fs::File;
use std::path::Path;

use object::elf::{
    DF_1_NODEFLIB, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, FileHeader32,
    FileHeader64, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHN_UNDEF, SHT_DYNSYM, SHT_GNU_HASH,
    SHT_HASH, SHT_PROGBITS, SHT_SYMTAB,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader, Sym, VersionTable};
use object::{Endianness, FileKind, ReadCache};

/// Machine, word size and byte order of an ELF file. The loader skips objects of another kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Architecture {
    /// `e_machine`, such as `EM_X86_64`.
    pub machine: u16,
    /// True if addresses have 64 bits.
    pub is_64_bit: bool,
    /// True if numbers begin with their least significant byte.
    pub is_little_endian: bool,
}

/// Constants of one file that are searched for strings: those of large static programs.
const CONSTANTS_MAX: u64 = 256 << 20;

/// What the loader reads of an ELF file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectFile {
    /// Machine, word size and byte order.
    pub architecture: Architecture,
    /// Path of the loader (`PT_INTERP`); `None` in libraries and static programs.
    pub interpreter: Option<String>,
    /// True if the file has a dynamic section. A static program has none.
    pub is_dynamic: bool,
    /// Names of the objects that it needs (`DT_NEEDED`), in the file's order.
    pub needed: Vec<String>,
    /// Name of the object (`DT_SONAME`).
    pub soname: Option<String>,
    /// `DT_RPATH`, unexpanded: searched before `LD_LIBRARY_PATH`, also for what its needs need.
    pub rpath: Option<String>,
    /// `DT_RUNPATH`, unexpanded: searched after `LD_LIBRARY_PATH`, for its own needs alone.
    pub runpath: Option<String>,
    /// True if the system's directories and the loader's cache do not count (`-z nodefaultlib`).
    pub no_default_dirs: bool,
}

/// Reads the loader's part of a file. `None`: the file is no ELF file, is damaged, or cannot be
/// read.
pub fn read(path: &Path) -> Option<ObjectFile> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => of::<FileHeader64<Endianness>>(&data),
        FileKind::Elf32 => of::<FileHeader32<Endianness>>(&data),
        _ => None,
    }
}

/// Reads the loader's part of a file, and calls with each of its dynamic symbols: the name, and
/// whether the file itself defines it. `None`: the file is no ELF file, is damaged, or cannot be
/// read.
pub fn read_with_symbols(path: &Path, call: impl FnMut(&[u8], bool)) -> Option<ObjectFile> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => {
            symbols_of::<FileHeader64<Endianness>>(&data, SHT_DYNSYM, call)?;
            of::<FileHeader64<Endianness>>(&data)
        }
        FileKind::Elf32 => {
            symbols_of::<FileHeader32<Endianness>>(&data, SHT_DYNSYM, call)?;
            of::<FileHeader32<Endianness>>(&data)
        }
        _ => None,
    }
}

fn of<Header: FileHeader<Endian = Endianness>>(data: &ReadCache<File>) -> Option<ObjectFile> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, data).ok()?;
    let interpreter = segments
        .iter()
        .find_map(|segment| segment.interpreter(endian, data).ok().flatten())
        .map(|path| String::from_utf8_lossy(path).into_owned());
    let mut file = ObjectFile {
        architecture: Architecture {
            machine: header.e_machine(endian),
            is_64_bit: header.is_class_64(),
            is_little_endian: header.is_little_endian(),
        },
        interpreter,
        ..ObjectFile::default()
    };
    let sections = header.sections(endian, data).ok()?;
    let Some((entries, link)) = sections.dynamic(endian, data).ok()? else {
        return Some(file);
    };
    file.is_dynamic = true;
    let strings = sections.strings(endian, data, link).ok()?;
    for entry in entries {
        let text = || {
            let text = strings.get(entry.val32(endian)?).ok()?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        match entry.tag32(endian) {
            Some(DT_NEEDED) => file.needed.extend(text()),
            Some(DT_SONAME) => file.soname = text(),
            Some(DT_RPATH) => file.rpath = text(),
            Some(DT_RUNPATH) => file.runpath = text(),
            Some(DT_FLAGS_1) => {
                let flags = entry.val32(endian).unwrap_or(0);
                file.no_default_dirs = flags & DF_1_NODEFLIB != 0;
            }
            _ => {}
        }
    }
    Some(file)
}

/// Calls with each symbol of a file, also those that the loader does not read and that `strip`
/// takes away: the name, and whether the file itself defines it. `None`: the file is no ELF file,
/// is damaged, or cannot be read.
pub fn read_all_symbols(path: &Path, call: impl FnMut(&[u8], bool)) -> Option<()> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => symbols_of::<FileHeader64<Endianness>>(&data, SHT_SYMTAB, call),
        FileKind::Elf32 => symbols_of::<FileHeader32<Endianness>>(&data, SHT_SYMTAB, call),
        _ => None,
    }
}

fn symbols_of<Header: FileHeader<Endian = Endianness>>(
    data: &ReadCache<File>,
    table: u32,
    mut call: impl FnMut(&[u8], bool),
) -> Option<()> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, table).ok()?;
    for symbol in symbols.iter() {
        if let Ok(name) = symbol.name(endian, symbols.strings()) {
            call(name, symbol.st_shndx(endian) != SHN_UNDEF);
        }
    }
    Some(())
}

/// Returns whether a library defines all of these symbols, as the loader looks them up: by its hash
/// table, of which a few pages are read.
pub fn defines(path: &Path, names: &[&[u8]]) -> bool {
    let Ok(data) = File::open(path).map(ReadCache::new) else {
        return false;
    };
    let defined = match FileKind::parse(&data) {
        Ok(FileKind::Elf64) => defined_in::<FileHeader64<Endianness>>(&data, names),
        Ok(FileKind::Elf32) => defined_in::<FileHeader32<Endianness>>(&data, names),
        _ => None,
    };
    defined.unwrap_or(false)
}

fn defined_in<Header: FileHeader<Endian = Endianness>>(
    data: &ReadCache<File>,
    names: &[&[u8]],
) -> Option<bool> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let symbols = sections.symbols(endian, data, SHT_DYNSYM).ok()?;
    let versions = VersionTable::default();
    let of_kind = |kind| {
        let mut sections = sections.iter();
        sections.find(|section| section.sh_type(endian) == kind)
    };
    // Divisors and shifts of the tables, which damaged files may have as zero or too large.
    let words = |kind| -> Option<[u32; 4]> {
        let bytes = of_kind(kind)?.data(endian, data).ok()?;
        let word = |at: usize| {
            let bytes = bytes.get(at * 4..at * 4 + 4)?.try_into().ok()?;
            Some(match header.is_little_endian() {
                true => u32::from_le_bytes(bytes),
                false => u32::from_be_bytes(bytes),
            })
        };
        Some([word(0)?, word(1)?, word(2)?, word(3)?])
    };
    if let Some([buckets, _, filters, shift]) = words(SHT_GNU_HASH) {
        let is_sound = buckets > 0 && filters.is_power_of_two() && shift < 32;
        let (table, _) = sections.gnu_hash(endian, data).ok()?.filter(|_| is_sound)?;
        let has = |name: &&[u8]| {
            let hash = object::elf::gnu_hash(name);
            let found = table.find(endian, name, hash, None, &symbols, &versions);
            found.is_some_and(|(_, symbol)| symbol.st_shndx(endian) != SHN_UNDEF)
        };
        return Some(names.iter().all(has));
    }
    let [buckets, ..] = words(SHT_HASH)?;
    let (table, _) = sections.hash(endian, data).ok()?.filter(|_| buckets > 0)?;
    let has = |name: &&[u8]| {
        let hash = object::elf::hash(name);
        let found = table.find(endian, name, hash, None, &symbols, &versions);
        found.is_some_and(|(_, symbol)| symbol.st_shndx(endian) != SHN_UNDEF)
    };
    Some(names.iter().all(has))
}

/// Calls with each string of a file's constants: what lies before each byte of zero, from the zero
/// before. `strip` leaves them. `None`: the file is no ELF file, is damaged, or cannot be read.
pub fn read_strings(path: &Path, call: impl FnMut(&[u8])) -> Option<()> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => strings_of::<FileHeader64<Endianness>>(&data, call),
        FileKind::Elf32 => strings_of::<FileHeader32<Endianness>>(&data, call),
        _ => None,
    }
}

fn strings_of<Header: FileHeader<Endian = Endianness>>(
    data: &ReadCache<File>,
    mut call: impl FnMut(&[u8]),
) -> Option<()> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut left = CONSTANTS_MAX;
    for section in header.sections(endian, data).ok()?.iter() {
        let flags: u64 = section.sh_flags(endian).into();
        let bytes: u64 = section.sh_size(endian).into();
        let kind = u64::from(SHF_ALLOC | SHF_EXECINSTR | SHF_WRITE);
        let is_constant =
            section.sh_type(endian) == SHT_PROGBITS && flags & kind == u64::from(SHF_ALLOC);
        if !is_constant || bytes > left {
            continue;
        }
        left -= bytes;
        let constants = section.data(endian, data).ok()?;
        // What comes after the last zero is no string.
        let end = constants.iter().rposition(|byte| *byte == 0);
        let strings = &constants[..end.unwrap_or(0)];
        strings.split(|byte| *byte == 0).for_each(&mut call);
    }
    Some(())
}
