//! Frames of a CPython interpreter (3.9 to 3.14), read out of its process's memory.
//!
//! Capturing takes a read for each frame and may happen while a thread stands still. Naming reads
//! code objects and may happen later, since they live as long as their functions. A frame whose
//! code object was freed meanwhile is left out. Nothing is written to the process, and none of its
//! code runs.

mod layout;
mod line_table;

use std::fs::File;

use garonne_sites::proc_maps::{MappedObject, part_at, parts};
use object::{Object as _, ObjectSymbol, ReadCache};
use serde::Serialize;

use crate::limits::{PYTHON_FRAMES_MAX, THREADS_MAX};
use crate::process_memory::ProcessMemory;
use layout::{CurrentFrame, PythonLayout};

/// A Python function that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PythonFrame {
    /// Qualified name; before CPython 3.11 the plain name.
    pub function: String,
    /// The source file.
    pub file: String,
    /// The line; 0 where the interpreter does not know it.
    pub line: u32,
}

/// A frame as it was captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawPythonFrame {
    code: u64,
    /// The address of an instruction; before CPython 3.11 its index.
    instruction: u64,
}

/// The CPython interpreter in a process. Capturing frames takes little time and may happen while a
/// thread stands still; naming them may happen later.
#[derive(Debug)]
pub struct PythonInterpreter {
    memory: ProcessMemory,
    layout: PythonLayout,
    /// Place where the address of the first interpreter state lies.
    head: u64,
}

/// Interpreters of one process that are looked at: the main one, and some that programs made.
const INTERPRETERS_MAX: usize = 16;
/// A longer name, file name or line table is none.
const OBJECT_BYTES_MAX: u64 = 1 << 20;

impl PythonInterpreter {
    /// The interpreter of a process, if it has one. `maps` is the text of its `maps` file.
    ///
    /// # Errors
    /// There is one whose structures are not known: a line for the user.
    pub fn find(pid: u32, maps: &str) -> Option<Result<Self, String>> {
        let memory = ProcessMemory { pid };
        let (path, runtime, version) = candidates(pid, maps).into_iter().find_map(|object| {
            let symbols = symbols(pid, &object, ["_PyRuntime", "Py_Version"])?;
            let version = symbols[1].and_then(|address| memory.word(address));
            Some((object.path, symbols[0]?, version))
        })?;
        let minor = match version {
            Some(version) => Some((version >> 16 & 0xff) as u8),
            None => minor_of_paths(path, maps),
        };
        let Some(minor) = minor else {
            return Some(Err(
                "the version of its Python interpreter is not known".into()
            ));
        };
        let layout = PythonLayout::of(memory, runtime, minor);
        let known = layout.map(|layout| Self {
            memory,
            head: runtime + layout.interpreters_head,
            layout,
        });
        Some(
            known.ok_or_else(|| format!("frames of CPython 3.{minor} cannot be read from outside")),
        )
    }

    /// The frames of a thread, the innermost first; empty if the thread is in no Python function.
    /// `tid` is the thread's id as its own process sees it, and `sp` an address on its stack.
    pub fn capture(&self, tid: u32, is_main: bool, sp: u64, maps: &str) -> Vec<RawPythonFrame> {
        self.state_of(tid, is_main, sp, maps)
            .map_or_else(Vec::new, |state| self.frames_of(state))
    }

    fn state_of(&self, tid: u32, is_main: bool, sp: u64, maps: &str) -> Option<u64> {
        let states = self.thread_states();
        let Some(native_id) = self.layout.native_id else {
            // The oldest state is that of the main thread; those of others name an address on their
            // stacks.
            return match is_main {
                true => states.last().copied(),
                false => states.into_iter().find(|state| {
                    let pthread = self.memory.word(state + self.layout.thread_id).unwrap_or(0);
                    part_at(maps, sp).is_some_and(|part| part.holds(pthread))
                }),
            };
        };
        let is_of = |state: &u64| self.memory.word(state + native_id) == Some(tid.into());
        states.into_iter().find(is_of)
    }

    fn thread_states(&self) -> Vec<u64> {
        let mut states = Vec::new();
        let mut interpreter = self.memory.word(self.head).unwrap_or(0);
        for _ in 0..INTERPRETERS_MAX {
            if interpreter == 0 {
                break;
            }
            let first = interpreter.wrapping_add(self.layout.threads_head);
            let mut state = self.memory.word(first).unwrap_or(0);
            while state != 0 && states.len() < THREADS_MAX {
                states.push(state);
                let next = state.wrapping_add(self.layout.thread_next);
                state = self.memory.word(next).unwrap_or(0);
            }
            let next = interpreter.wrapping_add(self.layout.interpreter_next);
            interpreter = self.memory.word(next).unwrap_or(0);
        }
        states
    }

    fn frames_of(&self, state: u64) -> Vec<RawPythonFrame> {
        let word = |address: u64| self.memory.word(address).unwrap_or(0);
        let mut frame = match self.layout.current {
            CurrentFrame::At(offset) => word(state.wrapping_add(offset)),
            CurrentFrame::Through { holder, offset } => match word(state.wrapping_add(holder)) {
                0 => 0,
                holder => word(holder.wrapping_add(offset)),
            },
        };
        let mut frames = Vec::new();
        let mut walked = 0;
        while frame != 0 && walked < PYTHON_FRAMES_MAX {
            walked += 1;
            let Some(bytes) = self.memory.array::<{ layout::FRAME_BYTES }>(frame) else {
                break;
            };
            let at = |offset: u64| {
                let begin = offset as usize;
                let field = bytes
                    .get(begin..begin + 8)
                    .and_then(|field| field.try_into().ok());
                field.map_or(0, u64::from_ne_bytes)
            };
            let layout = &self.layout.frame;
            let is_shim = layout.owner.is_some_and(|(offset, first_of_c)| {
                bytes
                    .get(offset as usize)
                    .is_some_and(|owner| *owner >= first_of_c)
            });
            // The lowest bits may mark how the pointer is counted.
            let code = at(layout.code) & !7;
            if code != 0 && !is_shim {
                let instruction = at(layout.instruction);
                frames.push(RawPythonFrame { code, instruction });
            }
            frame = at(layout.previous);
        }
        frames
    }

    /// A captured frame in words; `None` if what it was is gone.
    pub fn name(&self, raw: RawPythonFrame) -> Option<PythonFrame> {
        let code = &self.layout.code;
        let word = |offset: u64| self.memory.word(raw.code + offset);
        let file = self.text(word(code.filename)?)?;
        if file.is_empty() || file == "<shim>" {
            return None;
        }
        let first = self
            .memory
            .array(raw.code + code.first_line)
            .map(i32::from_ne_bytes)?;
        let table = self.bytes(word(code.line_table)?)?;
        // -1 before the first instruction.
        let index = (raw.instruction as i32).max(0) as u32;
        let line = match self.layout.minor {
            ..=9 => line_table::of_3_9(&table, first, index),
            10 => line_table::of_3_10(&table, first, index),
            _ => {
                let begin = raw.code + code.instructions;
                line_table::of_3_11(&table, first, raw.instruction.wrapping_sub(begin) as i64)
            }
        };
        Some(PythonFrame {
            function: self.text(word(code.name)?)?,
            file,
            line: line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0),
        })
    }

    /// A `str` object.
    fn text(&self, object: u64) -> Option<String> {
        const LENGTH: u64 = 16;
        const STATE: u64 = 32;
        let length = self.memory.word(object + LENGTH)?;
        let state = self.memory.array(object + STATE).map(u32::from_ne_bytes)?
            >> self.layout.text_state_shift;
        let (kind, is_compact, is_ascii) = (state & 7, state >> 3 & 1 != 0, state >> 4 & 1 != 0);
        if !is_compact || length > OBJECT_BYTES_MAX {
            return None;
        }
        let begin = match is_ascii {
            true => object + self.layout.ascii_header,
            false => object + self.layout.compact_header,
        };
        let bytes = self.exactly(begin, length * u64::from(kind))?;
        match kind {
            1 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
            2 => {
                let units = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|unit| u16::from_ne_bytes(*unit));
                Some(
                    char::decode_utf16(units)
                        .map(|unit| unit.unwrap_or('\u{fffd}'))
                        .collect(),
                )
            }
            4 => {
                let units = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|unit| u32::from_ne_bytes(*unit));
                Some(
                    units
                        .map(|unit| char::from_u32(unit).unwrap_or('\u{fffd}'))
                        .collect(),
                )
            }
            _ => None,
        }
    }

    /// A `bytes` object.
    fn bytes(&self, object: u64) -> Option<Vec<u8>> {
        const LENGTH: u64 = 16;
        const CONTENT: u64 = 32;
        let length = self.memory.word(object + LENGTH)?;
        self.exactly(object + CONTENT, length)
    }

    fn exactly(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let len = usize::try_from(len)
            .ok()
            .filter(|_| len <= OBJECT_BYTES_MAX)?;
        Some(self.memory.bytes(address, len)).filter(|bytes| bytes.len() == len)
    }
}

/// The objects of a process that an interpreter may be in: its library, else the program.
fn candidates<'a>(pid: u32, maps: &'a str) -> Vec<MappedObject<'a>> {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let program = program.to_string_lossy().into_owned();
    let mut found: Vec<MappedObject<'a>> = Vec::new();
    for part in parts(maps) {
        let name = garonne_sites::last_part(part.path);
        let may_be = name.starts_with("libpython") || part.path == program;
        if may_be && part.offset == 0 && found.iter().all(|known| known.path != part.path) {
            found.push(MappedObject {
                path: part.path,
                base: part.start,
            });
        }
    }
    found.sort_by_key(|object| object.path == program);
    found
}

/// Where an object has these symbols, of those that other objects may use.
fn symbols<const N: usize>(
    pid: u32,
    object: &MappedObject<'_>,
    names: [&str; N],
) -> Option<[Option<u64>; N]> {
    let roots = [
        format!("/proc/{pid}/root{}", object.path),
        object.path.to_owned(),
    ];
    let file = roots.iter().find_map(|path| File::open(path).ok())?;
    let cache = ReadCache::new(file);
    let file = object::File::parse(&cache).ok()?;
    let bias = match file.kind() {
        object::ObjectKind::Executable => 0,
        _ => object.base,
    };
    let mut found = [None; N];
    for symbol in file.dynamic_symbols() {
        if let Some(index) = names.iter().position(|name| symbol.name() == Ok(*name))
            && symbol.is_definition()
        {
            found[index] = Some(bias.wrapping_add(symbol.address()));
        }
    }
    Some(found)
}

/// The minor version that a path names, as `/usr/bin/python3.9` and
/// `.../lib/python3.9/lib-dynload/...`.
fn minor_of_paths(path: &str, maps: &str) -> Option<u8> {
    let of = |path: &str| {
        let (_, rest) = path.rsplit_once("python3.")?;
        let digits = rest
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(rest.len());
        rest[..digits].parse().ok()
    };
    of(path).or_else(|| parts(maps).find_map(|part| of(part.path)))
}
