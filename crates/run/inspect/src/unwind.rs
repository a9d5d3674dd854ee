//! Return addresses out of registers and a copy of a stack, by the unwind tables of the objects
//! that the process has mapped.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;

use framehop::{
    CacheNative, ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder, UnwinderNative,
};
use framehop::{MayAllocateDuringUnwind, UnwindRegsNative};
use garonne_sites::proc_maps::{MappedObject, part_at, parts};
use object::read::ReadRef;
use object::{Object as _, ObjectSection, ObjectSegment, ReadCache};

use crate::limits::FRAMES_MAX;
use crate::process_memory::{ProcessMemory, StackCopy};
use crate::registers::Registers;

/// The addresses of a stack's functions, the innermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnwoundStack {
    /// Each lies within the instruction that the function is at: of callers within the call.
    pub addresses: Vec<u64>,
    /// The last address is of the outermost function of its thread.
    pub complete: bool,
}

/// The instructions by which a signal handler returns: the system call `rt_sigreturn`, with what
/// the kernel laid down on the stack.
struct SignalTrampoline {
    code: [u8; 8],
    /// Place where the registers before the signal lie, from the stack pointer.
    context_offset: u64,
}

const SIGNAL_RETURN: SignalTrampoline = match cfg!(target_arch = "x86_64") {
    // mov rax, 15; syscall (its first byte)
    true => SignalTrampoline {
        code: [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f],
        context_offset: 0,
    },
    // mov x8, 139; svc 0. What is told of the signal lies before the registers.
    false => SignalTrampoline {
        code: [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4],
        context_offset: size_of::<libc::siginfo_t>() as u64,
    },
};

/// Unwinds stacks of one process. Objects are read when the first address in them is met.
pub struct ProcessUnwinder<'a> {
    memory: ProcessMemory,
    maps: &'a str,
    unwinder: UnwinderNative<Vec<u8>, MayAllocateDuringUnwind>,
    cache: CacheNative<MayAllocateDuringUnwind>,
    known: HashSet<u64>,
}

impl<'a> ProcessUnwinder<'a> {
    /// Returns the unwinder of process `pid`, whose `maps` file says this.
    pub fn new(pid: u32, maps: &'a str) -> Self {
        Self {
            memory: ProcessMemory { pid },
            maps,
            unwinder: UnwinderNative::new(),
            cache: CacheNative::new(),
            known: HashSet::new(),
        }
    }

    /// The functions of a stack that was copied together with the registers.
    pub fn unwind(&mut self, registers: Registers, stack: &StackCopy) -> UnwoundStack {
        self.unwind_by(registers, |address| stack.word(address))
    }

    /// The functions of a stack whose words `read` gives.
    pub fn unwind_by(
        &mut self,
        registers: Registers,
        mut read: impl FnMut(u64) -> Option<u64>,
    ) -> UnwoundStack {
        let mut unwound = UnwoundStack::default();
        let registers = self.before_wrong_call(registers, &mut read);
        let mut raw: UnwindRegsNative = registers.into();
        let mut read = |address| read(address).ok_or(());
        let mut at = FrameAddress::from_instruction_pointer(registers.pc);
        while unwound.addresses.len() < FRAMES_MAX {
            let inside = at.address_for_lookup();
            self.learn(inside);
            unwound.addresses.push(inside);
            let sp = raw.sp();
            let unwinder = &mut self.unwinder;
            let caller = unwinder.unwind_frame(at, &mut raw, &mut self.cache, &mut read);
            if let Ok(Some(address)) = caller {
                match FrameAddress::from_return_address(address) {
                    Some(next) => at = next,
                    None => break,
                }
            } else if let Some(interrupted) = self.interrupted(at.address(), sp) {
                // The return into the kernel is no function of the program's.
                unwound.addresses.pop();
                at = FrameAddress::from_instruction_pointer(interrupted.pc);
                raw = interrupted.into();
            } else {
                unwound.complete = caller == Ok(None);
                break;
            }
        }
        unwound
    }

    /// The registers as after the call's return, if the thread has just called what is no function.
    fn before_wrong_call(
        &self,
        registers: Registers,
        read: impl FnOnce(u64) -> Option<u64>,
    ) -> Registers {
        let is_code =
            |pc: u64| part_at(self.maps, pc).is_some_and(|part| part.rights.contains('x'));
        if is_code(registers.pc) {
            return registers;
        }
        let back = match cfg!(target_arch = "x86_64") {
            true => read(registers.sp).map(|pc| (pc, registers.sp.wrapping_add(8))),
            false => Some((registers.lr, registers.sp)),
        };
        match back {
            // Within the call.
            Some((pc, sp)) if is_code(pc) => Registers {
                pc: pc - 1,
                sp,
                ..registers
            },
            _ => registers,
        }
    }

    /// The registers that a signal interrupted, if `address` is where a signal handler returns to,
    /// with this stack pointer.
    fn interrupted(&self, address: u64, sp: u64) -> Option<Registers> {
        let code = self.memory.array(address)?;
        let context = sp.checked_add(SIGNAL_RETURN.context_offset)?;
        (code == SIGNAL_RETURN.code).then(|| Registers::of_context(self.memory, context))?
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
        if let Some(object) = MappedObject::at(maps, address) {
            return Some((object.path, object.base));
        }
        let part = part_at(maps, address)?;
        (part.path == "[vdso]").then_some((part.path, part.start))
    }

    /// From the first byte of an object to the end of its last part.
    fn range_of(&self, path: &str, base: u64) -> Range<u64> {
        let own = parts(self.maps).filter(|part| part.path == path && part.start >= base);
        let own = own.take_while(|part| part.start == base || part.offset != 0);
        base..own.last().map_or(base, |part| part.end)
    }
}

type ModuleSections = ExplicitModuleSectionInfo<Vec<u8>>;

fn sections_of_file(pid: u32, path: &str) -> Option<ModuleSections> {
    let roots = [format!("/proc/{pid}/root{path}"), path.to_owned()];
    let file = roots.iter().find_map(|path| File::open(path).ok())?;
    // Reads what is asked for, and not the whole file.
    let cache = ReadCache::new(file);
    sections(&cache)
}

fn sections_of_memory(memory: ProcessMemory, range: Range<u64>) -> Option<ModuleSections> {
    let len = usize::try_from(range.end - range.start).ok()?;
    let bytes = memory.bytes(range.start, len);
    sections(bytes.as_slice())
}

fn sections<'a>(data: impl ReadRef<'a>) -> Option<ModuleSections> {
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
    Some(ModuleSections {
        base_svma,
        text_svma: range(".text"),
        eh_frame_svma,
        eh_frame,
        eh_frame_hdr_svma,
        eh_frame_hdr,
        debug_frame: section(".debug_frame").map(|(_, bytes)| bytes),
        ..ModuleSections::default()
    })
}
