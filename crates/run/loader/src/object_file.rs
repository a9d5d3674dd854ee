//! The dynamic section of one ELF file: what the loader reads of it.

use std::fs::File;
use std::path::Path;

use object::elf::{
    DF_1_NODEFLIB, DT_FLAGS_1, DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME, FileHeader32,
    FileHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
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
