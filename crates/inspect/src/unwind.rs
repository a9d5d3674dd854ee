//! Return addresses out of registers and a copy of a stack, by the unwind tables of the objects that the process has mapped.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;

use framehop::{CacheNative, ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder, UnwinderNative};
use framehop::{MayAllocateDuringUnwind, UnwindRegsNative};
use garonne_sites::maps::{Object, parts};
use object::read::ReadRef;
use object::{Object as _, ObjectSection, ObjectSegment, ReadCache};

use crate::limits::FRAMES_MAX;
use crate::memory::{Memory, Stack};
use crate::registers::Registers;

/// The addresses of a stack's functions, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unwound {
    /// Each lies within the instruction that the function is at: of callers within the call.
    pub addresses: Vec<u64>,
    /// Whether the last one is the outermost function of its thread.
    pub complete: bool,
}

/// Unwinds stacks of one process. Objects are read when the first address in them is met.
pub struct ProcessUnwinder<'a> {
    memory: Memory,
    maps: &'a str,
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    known: HashSet<u64>,
}

impl<'a> ProcessUnwinder<'a> {
    /// Of process `pid`, whose `maps` file says this.
    pub fn new(pid: u32, maps: &'a str) -> Self {
        Self {
            memory: Memory { pid },
            maps,
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            known: HashSet::new(),
        }
    }

    /// The functions of a stack that was copied together with the registers.
    pub fn unwind(&mut self, registers: Registers, stack: &Stack) -> Unwound {
        let mut unwound = Unwound::default();
        let mut raw: UnwindRegsNative = registers.into();
        let mut read = |address| stack.word(address).ok_or(());
        let mut at = FrameAddress::from_instruction_pointer(registers.pc);
        while unwound.addresses.len() < FRAMES_MAX {
            let inside = at.address_for_lookup();
            self.learn(inside);
            unwound.addresses.push(inside);
            match self
                .unwinder
                .unwind_frame(at, &mut raw, &mut self.cache, &mut read)
            {
                Ok(Some(address)) => match FrameAddress::from_return_address(address) {
                    Some(next) => at = next,
                    None => break,
                },
                Ok(None) => {
                    unwound.complete = true;
                    break;
                }
                Err(_) => break,
            }
        }
        unwound
    }

    /// Reads the unwind tables of the object around an address, once.
    fn learn(&mut self, address: u64) {
        let Some((path, base)) = self.around(address) else {
            return;
        };
        if !self.known.insert(base) {
            return;
        }
        let range = self.range_of(path, base);
        let sections = match path.starts_with('/') {
            true => sections_of_file(self.memory.pid, path),
            // The kernel's own object, which is in no file.
            false => sections_of_memory(self.memory, range.clone()),
        };
        if let Some(sections) = sections {
            self.unwinder
                .add_module(Module::new(path.to_owned(), range, base, sections));
        }
    }

    fn around(&self, address: u64) -> Option<(&'a str, u64)> {
        let maps: &'a str = self.maps;
        if let Some(object) = Object::at(maps, address) {
            return Some((object.path, object.base));
        }
        let part = garonne_sites::maps::part_at(maps, address)?;
        (part.path == "[vdso]").then_some((part.path, part.start))
    }

    /// From the first byte of an object to the end of its last part.
    fn range_of(&self, path: &str, base: u64) -> Range<u64> {
        let own = parts(self.maps).filter(|part| part.path == path && part.start >= base);
        let own = own.take_while(|part| part.start == base || part.offset != 0);
        base..own.last().map_or(base, |part| part.end)
    }
}

type Sections = ExplicitModuleSectionInfo<Vec<u8>>;

fn sections_of_file(pid: u32, path: &str) -> Option<Sections> {
    let roots = [format!("/proc/{pid}/root{path}"), path.to_owned()];
    let file = roots.iter().find_map(|path| File::open(path).ok())?;
    // Reads what is asked for, and not the whole file.
    let cache = ReadCache::new(file);
    sections(&cache)
}

fn sections_of_memory(memory: Memory, range: Range<u64>) -> Option<Sections> {
    let len = usize::try_from(range.end - range.start).ok()?;
    let bytes = memory.bytes(range.start, len);
    sections(bytes.as_slice())
}

fn sections<'a>(data: impl ReadRef<'a>) -> Option<Sections> {
    let file = object::File::parse(data).ok()?;
    let range = |name: &str| {
        let section = file.section_by_name(name)?;
        Some(section.address()..section.address().checked_add(section.size())?)
    };
    let section = |name: &str| {
        let bytes = file.section_by_name(name)?.uncompressed_data().ok()?;
        Some((range(name)?, bytes.into_owned()))
    };
    let first = file.segments().next()?;
    let base_svma = first.address().checked_sub(first.file_range().0)?;
    let (eh_frame_svma, eh_frame) = section(".eh_frame").unzip();
    let (eh_frame_hdr_svma, eh_frame_hdr) = section(".eh_frame_hdr").unzip();
    Some(Sections {
        base_svma,
        text_svma: range(".text"),
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        debug_frame: section(".debug_frame").map(|(_, bytes)| bytes),
        ..Sections::default()
    })
}
