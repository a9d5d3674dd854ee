//! What an ELF file says of MPI: which libraries it needs, and whether it calls or provides
//! `MPI_Init`.
//!
//! Read in parts, never as a whole: libraries of other MPIs are tens of megabytes. A file that is
//! none, or is damaged, says nothing.

use std::fs::File;
use std::path::Path;

use object::elf::{DT_NEEDED, DT_SONAME, FileHeader32, FileHeader64};
use object::read::elf::{Dyn, FileHeader, ProgramHeader, Sym};
use object::{FileKind, ReadCache};

/// The functions by one of which a program becomes one of MPI.
const BEGINNINGS: [&[u8]; 3] = [b"MPI_Init", b"MPI_Init_thread", b"MPI_Session_init"];

/// Prefix of symbols that only libraries of Garonne export.
const OURS: &[u8] = b"garonne_";

/// What an ELF file says of MPI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ElfSummary {
    /// The libraries that it needs, by their names.
    pub needed: Vec<String>,
    /// Name of the library (`DT_SONAME`).
    pub name: Option<String>,
    /// Whether it calls a function that begins MPI, of another file.
    pub calls_mpi: bool,
    /// Whether it has these functions.
    pub provides_mpi: bool,
    /// Whether it is a library of Garonne.
    pub is_ours: bool,
}

/// Reads a file. `None`: it is no program or library, or cannot be read.
pub fn read(path: &Path) -> Option<ElfSummary> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => of::<FileHeader64<object::Endianness>>(&data),
        FileKind::Elf32 => of::<FileHeader32<object::Endianness>>(&data),
        _ => None,
    }
}

/// The loader that a program names, which must be there for it to be executed.
pub fn loader(path: &Path) -> Option<String> {
    let data = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&data).ok()? {
        FileKind::Elf64 => loader_of::<FileHeader64<object::Endianness>>(&data),
        FileKind::Elf32 => loader_of::<FileHeader32<object::Endianness>>(&data),
        _ => None,
    }
}

fn loader_of<Header: FileHeader<Endian = object::Endianness>>(
    data: &ReadCache<File>,
) -> Option<String> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, data).ok()?.iter();
    let path = segments.find_map(|segment| segment.interpreter(endian, data).ok().flatten())?;
    Some(String::from_utf8_lossy(path).into_owned())
}

fn of<Header: FileHeader<Endian = object::Endianness>>(
    data: &ReadCache<File>,
) -> Option<ElfSummary> {
    let header = Header::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let sections = header.sections(endian, data).ok()?;
    let mut elf = ElfSummary::default();
    if let Some((entries, link)) = sections.dynamic(endian, data).ok()? {
        let strings = sections.strings(endian, data, link).ok()?;
        for entry in entries {
            let text = |entry: &Header::Dyn| {
                let at = entry.val32(endian)?;
                let text = strings.get(at).ok()?;
                Some(String::from_utf8_lossy(text).into_owned())
            };
            match entry.tag32(endian) {
                Some(DT_NEEDED) => elf.needed.extend(text(entry)),
                Some(DT_SONAME) => elf.name = text(entry),
                _ => {}
            }
        }
    }
    let symbols = sections
        .symbols(endian, data, object::elf::SHT_DYNSYM)
        .ok()?;
    for symbol in symbols.iter() {
        let Ok(name) = symbol.name(endian, symbols.strings()) else {
            continue;
        };
        let is_here = symbol.st_shndx(endian) != object::elf::SHN_UNDEF;
        elf.is_ours |= is_here && name.starts_with(OURS);
        if BEGINNINGS.contains(&name) {
            elf.provides_mpi |= is_here;
            elf.calls_mpi |= !is_here;
        }
    }
    Some(elf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_needs_libraries_and_says_nothing_of_mpi() {
        let own = read(Path::new("/proc/self/exe")).unwrap();
        assert!(
            own.needed.iter().any(|name| name.starts_with("libc.so")),
            "{own:?}"
        );
        assert_eq!(
            (own.calls_mpi, own.provides_mpi, own.is_ours),
            (false, false, false)
        );
    }

    #[test]
    fn what_is_no_elf_file_says_nothing() {
        assert_eq!(read(Path::new("/etc/passwd")), None);
        assert_eq!(read(Path::new("/dev/null")), None);
        assert_eq!(read(Path::new("/nowhere")), None);
    }
}
