//! Call sites for people: a return address, in this process or another of the same user, as a line
//! of a source file.
//!
//! Stateless but for [`SymbolResolver`], which keeps what it read. Used where an error is put into
//! words, and by the commands that look at a job. Never used on the way of a call that succeeds,
//! since it reads the process's memory map and the object's debug information from files.
//! Everything read is only shown; what cannot be read leads to a less exact answer, never to an
//! error. Bounded by the size of the object's debug information.

#![forbid(unsafe_code)]

pub mod proc_maps;
mod symbols;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use proc_maps::MappedObject;
use symbols::SymbolTable;

/// The process that a call site belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessRef {
    /// The asking process.
    Own,
    /// Another, by its id in the asker's PID namespace.
    Process(u32),
}

impl ProcessRef {
    fn maps(self) -> String {
        match self {
            Self::Own => "/proc/self/maps".into(),
            Self::Process(pid) => format!("/proc/{pid}/maps"),
        }
    }

    /// Returns where the files that the process has mapped are found from here.
    fn root(self) -> String {
        match self {
            Self::Own => String::new(),
            Self::Process(pid) => format!("/proc/{pid}/root"),
        }
    }
}

/// Describes where the call before the return address `address` stands: `halo.c:58` if there is
/// debug information. Otherwise names the object file with the nearest symbol or the offset.
pub fn describe(whose: ProcessRef, address: u64) -> String {
    if address == 0 {
        return "an unknown place".into();
    }
    let maps = std::fs::read_to_string(whose.maps()).unwrap_or_default();
    let mut fresh = SymbolResolver::default();
    fresh
        .find(&maps, &[&whose.root()], address)
        .unwrap_or_else(|| format!("{:#x}", address - 1))
}

/// Describes many addresses, reading each object's debug information once. Owned by the command
/// that prints places, and dropped with it. Bounded by the objects that the addresses lie in.
#[derive(Default)]
pub struct SymbolResolver {
    objects: HashMap<String, Option<OpenedObject>>,
}

struct OpenedObject {
    file: String,
    loader: addr2line::Loader,
    symbols: OnceCell<SymbolTable>,
    position_independent: bool,
}

impl SymbolResolver {
    /// Describes an address of process `pid`, which may be gone. `maps` (lines of a `maps` file)
    /// says where its objects were mapped. What is not in there is looked up in the process as it
    /// is now.
    pub fn describe(&mut self, pid: u32, maps: &str, address: u64) -> String {
        if address == 0 {
            return "an unknown place".into();
        }
        let whose = ProcessRef::Process(pid);
        let roots = [whose.root(), String::new()];
        let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
        if let Some(found) = self.find(maps, &roots, address) {
            return found;
        }
        let now = std::fs::read_to_string(whose.maps()).unwrap_or_default();
        self.find(&now, &roots, address)
            .unwrap_or_else(|| format!("{:#x}", address - 1))
    }

    /// `None`: no object is mapped there. Files are looked for below each of `roots`.
    fn find(&mut self, maps: &str, roots: &[&str], address: u64) -> Option<String> {
        // One byte back is within the call instruction, hence on its source line.
        let inside = address - 1;
        let object = MappedObject::at(maps, inside)?;
        let described = self
            .open(object.path, roots)
            .and_then(|opened| opened.describe(object.path, opened.svma(&object, inside)));
        let unnamed = || {
            format!(
                "{}+{:#x}",
                last_part(object.path),
                inside.wrapping_sub(object.base)
            )
        };
        Some(described.unwrap_or_else(unnamed))
    }

    /// Returns the functions around the instruction at `address` of process `pid`, whose objects
    /// are mapped as `maps` says. There are several where calls were inlined, the innermost first.
    /// Empty if no object is mapped there.
    pub fn functions(&mut self, pid: u32, maps: &str, address: u64) -> Vec<SourceFunction> {
        let Some(object) = MappedObject::at(maps, address) else {
            return Vec::new();
        };
        let roots = [ProcessRef::Process(pid).root(), String::new()];
        let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
        let opened = self.open(object.path, &roots);
        let found = opened.map(|opened| opened.functions(opened.svma(&object, address)));
        let mut functions = found.unwrap_or_default();
        if functions.is_empty() {
            functions.push(SourceFunction::default());
        }
        for function in &mut functions {
            function.object = object.path.to_owned();
            function.offset = address.wrapping_sub(object.base);
        }
        functions
    }

    fn open(&mut self, path: &str, roots: &[&str]) -> Option<&OpenedObject> {
        let opened = self.objects.entry(path.into()).or_insert_with(|| {
            let mut files = roots.iter().map(|root| format!("{root}{path}"));
            files.find_map(|file| OpenedObject::open(&file))
        });
        opened.as_ref()
    }
}

/// A function of a program, at one of its instructions, as far as debug information and symbols
/// tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceFunction {
    /// Demangled name.
    pub name: Option<String>,
    /// The source file as the compiler was given it.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u32>,
    /// The file of the program or library that the function is in.
    pub object: String,
    /// Place where the instruction lies in the object, from its base.
    pub offset: u64,
}

/// The last part of a path.
pub fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl OpenedObject {
    fn open(file: &str) -> Option<Self> {
        Some(Self {
            file: file.to_owned(),
            position_independent: is_position_independent(file)?,
            loader: addr2line::Loader::new(file).ok()?,
            symbols: OnceCell::new(),
        })
    }

    /// An address of the process as the object file names it.
    fn svma(&self, object: &MappedObject<'_>, address: u64) -> u64 {
        match self.position_independent {
            true => address.wrapping_sub(object.base),
            false => address,
        }
    }

    /// The functions around an address of the object file, the innermost first. Of an object
    /// without debug information its symbol.
    fn functions(&self, svma: u64) -> Vec<SourceFunction> {
        let mut functions = Vec::new();
        if let Ok(mut frames) = self.loader.find_frames(svma) {
            while let Ok(Some(frame)) = frames.next() {
                let name = frame
                    .function
                    .as_ref()
                    .and_then(|name| name.demangle().ok());
                functions.push(SourceFunction {
                    name: name.map(|name| name.into_owned()),
                    file: frame
                        .location
                        .as_ref()
                        .and_then(|at| at.file)
                        .map(str::to_owned),
                    line: frame.location.as_ref().and_then(|at| at.line),
                    ..SourceFunction::default()
                });
            }
        }
        let symbol = || self.symbol(svma);
        match functions.last_mut() {
            // Line tables alone name no functions.
            Some(outermost) if outermost.name.is_none() => outermost.name = symbol(),
            Some(_) => {}
            None => functions.extend(symbol().map(|name| SourceFunction {
                name: Some(name),
                ..SourceFunction::default()
            })),
        }
        functions
    }

    /// Describes an address of the object file by debug information or symbols.
    fn describe(&self, path: &str, svma: u64) -> Option<String> {
        if let Ok(Some(place)) = self.loader.find_location(svma)
            && let (Some(file), Some(line)) = (place.file, place.line)
        {
            return Some(format!("{}:{line}", last_part(file)));
        }
        Some(format!("{}: {}", last_part(path), self.symbol(svma)?))
    }

    /// The function around an address of the object file by its symbols, demangled.
    fn symbol(&self, svma: u64) -> Option<String> {
        let symbols = self.symbols.get_or_init(|| SymbolTable::of(&self.file));
        let name = symbols.at(svma)?;
        Some(addr2line::demangle_auto(name.into(), None).into_owned())
    }
}

/// Returns whether an ELF file is mapped wherever there is room, so that its addresses count from
/// its base.
fn is_position_independent(file: &str) -> Option<bool> {
    const ET_DYN: u8 = 3;
    let mut head = [0; 18];
    File::open(file).ok()?.read_exact(&mut head).ok()?;
    // The type is two bytes in the object's order, and no type that can be mapped needs the high
    // one.
    (&head[..4] == b"\x7fELF").then_some(head[16] == ET_DYN || head[17] == ET_DYN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn here() -> u64 {
        here as fn() -> u64 as usize as u64
    }

    #[test]
    fn code_with_debug_information_is_named_by_file_and_line() {
        let line = line!() - 6;
        let said = describe(ProcessRef::Own, here() + 1);
        assert_eq!(said.split(':').next(), Some("lib.rs"), "{said}");
        let at: u32 = said
            .split(':')
            .nth(1)
            .and_then(|line| line.parse().ok())
            .unwrap();
        assert!(at.abs_diff(line) <= 3, "{said}, expected about {line}");
        assert_eq!(
            describe(ProcessRef::Process(std::process::id()), here() + 1),
            said
        );
    }

    #[test]
    fn a_process_that_is_gone_is_described_by_what_it_had_mapped() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut resolver = SymbolResolver::default();
        let said = describe(ProcessRef::Own, here() + 1);
        for _ in 0..2 {
            assert_eq!(resolver.describe(u32::MAX, &maps, here() + 1), said);
        }
        assert_eq!(
            resolver.describe(std::process::id(), "", here() + 1),
            said,
            "what it has mapped now"
        );
        assert_eq!(
            resolver.describe(u32::MAX, "", here() + 1),
            format!("{:#x}", here())
        );
    }

    #[test]
    fn what_is_not_known_is_said_as_far_as_it_is() {
        assert_eq!(describe(ProcessRef::Own, 0), "an unknown place");
        assert_eq!(describe(ProcessRef::Own, 17), "0x10");
        assert_eq!(describe(ProcessRef::Process(u32::MAX), 17), "0x10");
    }
}
