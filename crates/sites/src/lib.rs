//! Call sites for people: a return address, in this process or another of the same user, as a line of a source file.
//!
//! Stateless but for [`Resolver`], which keeps what it read. Used where an error is put into words and by the commands that look at a job; never on the way of
//! a call that succeeds, since it reads the process's memory map and the object's debug information from files. Everything read is only shown, and what
//! cannot be read leads to a less exact answer, never to an error. Bounded by the size of the object's debug information.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

/// The process that a call site belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The asking process.
    Own,
    /// Another, by its id in the asker's PID namespace.
    Process(u32),
}

impl Whose {
    fn maps(self) -> String {
        match self {
            Self::Own => "/proc/self/maps".into(),
            Self::Process(pid) => format!("/proc/{pid}/maps"),
        }
    }

    /// Where the files that the process has mapped are found from here.
    fn root(self) -> String {
        match self {
            Self::Own => String::new(),
            Self::Process(pid) => format!("/proc/{pid}/root"),
        }
    }
}

/// Where the call before the return address `address` stands: `halo.c:58` if there is debug information, else the
/// object file with the nearest symbol or the offset.
pub fn describe(whose: Whose, address: u64) -> String {
    if address == 0 {
        return "an unknown place".into();
    }
    let maps = std::fs::read_to_string(whose.maps()).unwrap_or_default();
    let mut fresh = Resolver::default();
    fresh
        .find(&maps, &[&whose.root()], address)
        .unwrap_or_else(|| format!("{:#x}", address - 1))
}

/// Describes many addresses, reading each object's debug information once. Bounded by the objects that the addresses lie in.
#[derive(Default)]
pub struct Resolver {
    objects: HashMap<String, Option<Opened>>,
}

struct Opened {
    loader: addr2line::Loader,
    position_independent: bool,
}

impl Resolver {
    /// As [`describe`] for process `pid`, whose objects were mapped as `maps` says (lines of a `maps` file); what is not in there is looked up in the process as it
    /// is now. The process may be gone.
    pub fn describe(&mut self, pid: u32, maps: &str, address: u64) -> String {
        if address == 0 {
            return "an unknown place".into();
        }
        let whose = Whose::Process(pid);
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
        let object = Object::at(maps, inside)?;
        let relative = inside.wrapping_sub(object.base);
        let unnamed = || format!("{}+{relative:#x}", last_part(object.path));
        let opened = self.objects.entry(object.path.into()).or_insert_with(|| {
            roots
                .iter()
                .find_map(|root| Opened::open(&format!("{root}{}", object.path)))
        });
        Some(
            opened
                .as_ref()
                .and_then(|opened| {
                    let svma = if opened.position_independent {
                        relative
                    } else {
                        inside
                    };
                    opened.describe(object.path, svma)
                })
                .unwrap_or_else(unnamed),
        )
    }
}

fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl Opened {
    fn open(file: &str) -> Option<Self> {
        Some(Self {
            position_independent: is_position_independent(file)?,
            loader: addr2line::Loader::new(file).ok()?,
        })
    }

    /// What debug information or symbols say about an address of the object file.
    fn describe(&self, path: &str, svma: u64) -> Option<String> {
        if let Ok(Some(place)) = self.loader.find_location(svma)
            && let (Some(file), Some(line)) = (place.file, place.line)
        {
            return Some(format!("{}:{line}", last_part(file)));
        }
        let symbol = self.loader.find_symbol(svma)?;
        let name = addr2line::demangle_auto(symbol.into(), None);
        Some(format!("{}: {name}", last_part(path)))
    }
}

/// Whether an ELF file is mapped wherever there is room, so that its addresses count from its base.
fn is_position_independent(file: &str) -> Option<bool> {
    const ET_DYN: u8 = 3;
    let mut head = [0; 18];
    File::open(file).ok()?.read_exact(&mut head).ok()?;
    // The type is two bytes in the object's order, and no type that can be mapped needs the high one.
    (&head[..4] == b"\x7fELF").then_some(head[16] == ET_DYN || head[17] == ET_DYN)
}

/// A mapped object file.
#[derive(Debug, PartialEq, Eq)]
struct Object<'a> {
    path: &'a str,
    /// Where its first byte is mapped.
    base: u64,
}

impl<'a> Object<'a> {
    /// The object around `address`, from the text of a `maps` file.
    fn at(maps: &'a str, address: u64) -> Option<Self> {
        let mut base = None;
        for line in maps.lines() {
            let Some(part) = Part::parse(line) else { continue };
            if part.offset == 0 {
                base = Some((part.path, part.start));
            }
            if (part.start..part.end).contains(&address) {
                let known = base
                    .filter(|&(path, _)| path == part.path)
                    .map(|(_, start)| start);
                let base = known.or_else(|| part.start.checked_sub(part.offset))?;
                return part.path.starts_with('/').then_some(Self {
                    path: part.path,
                    base,
                });
            }
        }
        None
    }
}

/// A line of a `maps` file.
struct Part<'a> {
    start: u64,
    end: u64,
    offset: u64,
    path: &'a str,
}

impl<'a> Part<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let hex = |text| u64::from_str_radix(text, 16).ok();
        // start-end rights offset device inode path; the path may contain spaces.
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let path = fields.nth(2)?.trim_start();
        Some(Self {
            start: hex(start)?,
            end: hex(end)?,
            offset: hex(offset)?,
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0000000-55d0001000 r--p 00000000 fe:00 11                             /home/a b/halo\n\
55d0001000-55d0003000 r-xp 00001000 fe:00 11                             /home/a b/halo\n\
7f00000000-7f00001000 rw-p 00000000 00:00 0 \n\
7ffc000000-7ffc001000 r-xp 00000000 00:00 0                              [vdso]\n";

    #[test]
    fn an_address_belongs_to_the_object_mapped_around_it() {
        let halo = Object {
            path: "/home/a b/halo",
            base: 0x55_d000_0000,
        };
        assert_eq!(Object::at(MAPS, 0x55_d000_2000), Some(halo));
        assert_eq!(Object::at(MAPS, 0x7f_0000_0000), None);
        assert_eq!(Object::at(MAPS, 0x7f_fc00_0000), None);
        assert_eq!(Object::at("nonsense\n1-2\n", 1), None);
    }

    #[inline(never)]
    fn here() -> u64 {
        here as fn() -> u64 as usize as u64
    }

    #[test]
    fn code_with_debug_information_is_named_by_file_and_line() {
        let line = line!() - 6;
        let said = describe(Whose::Own, here() + 1);
        assert_eq!(said.split(':').next(), Some("lib.rs"), "{said}");
        let at: u32 = said.split(':').nth(1).and_then(|line| line.parse().ok()).unwrap();
        assert!(at.abs_diff(line) <= 3, "{said}, expected about {line}");
        assert_eq!(describe(Whose::Process(std::process::id()), here() + 1), said);
    }

    #[test]
    fn a_process_that_is_gone_is_described_by_what_it_had_mapped() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut resolver = Resolver::default();
        let said = describe(Whose::Own, here() + 1);
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
        assert_eq!(describe(Whose::Own, 0), "an unknown place");
        assert_eq!(describe(Whose::Own, 17), "0x10");
        assert_eq!(describe(Whose::Process(u32::MAX), 17), "0x10");
    }
}
