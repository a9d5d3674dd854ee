//! Where the structures of CPython have the fields that lead to its frames.
//!
//! From 3.13 on the interpreter says it itself (`_Py_DebugOffsets`); before, each minor version has
//! one layout for 64-bit systems.

use crate::process_memory::ProcessMemory;

/// Bytes of a frame that are read: its header, of all versions.
pub const FRAME_BYTES: usize = 112;

/// Place where a thread's state names its innermost frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentFrame {
    /// At this offset.
    At(u64),
    /// In a structure that the state points to.
    Through {
        /// Place where the state points to the structure.
        holder: u64,
        /// Place where the structure points to the frame.
        offset: u64,
    },
}

/// Offsets within a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameLayout {
    pub code: u64,
    pub previous: u64,
    pub instruction: u64,
    /// Place where the owner is said, and from which value on it is the interpreter itself: such
    /// frames are no function's.
    pub owner: Option<(u64, u8)>,
}

/// Offsets within a code object.
#[derive(Clone, Copy, Debug)]
pub struct CodeLayout {
    pub filename: u64,
    pub name: u64,
    pub line_table: u64,
    pub first_line: u64,
    pub instructions: u64,
}

/// All of one version.
#[derive(Clone, Copy, Debug)]
pub struct PythonLayout {
    pub minor: u8,
    pub interpreters_head: u64,
    pub interpreter_next: u64,
    pub threads_head: u64,
    pub thread_next: u64,
    pub thread_id: u64,
    pub native_id: Option<u64>,
    pub current: CurrentFrame,
    pub frame: FrameLayout,
    pub code: CodeLayout,
    /// Bytes of a `str` object before its characters, if these are ASCII; and if they are not.
    pub ascii_header: u64,
    pub compact_header: u64,
    /// The bit of a `str` object's state at which its kind begins.
    pub text_state_shift: u32,
}

const NAME: u64 = 112;

const V3_10: PythonLayout = PythonLayout {
    minor: 10,
    interpreters_head: 32,
    interpreter_next: 0,
    threads_head: 8,
    thread_next: 8,
    thread_id: 176,
    native_id: None,
    current: CurrentFrame::At(24),
    frame: FrameLayout {
        code: 32,
        previous: 24,
        instruction: 96,
        owner: None,
    },
    code: CodeLayout {
        filename: 104,
        name: NAME,
        line_table: 120,
        first_line: 40,
        instructions: 0,
    },
    ascii_header: 48,
    compact_header: 72,
    text_state_shift: 2,
};

const V3_11: PythonLayout = PythonLayout {
    minor: 11,
    interpreters_head: 40,
    threads_head: 16,
    thread_id: 152,
    native_id: Some(160),
    current: CurrentFrame::Through {
        holder: 56,
        offset: 8,
    },
    frame: FrameLayout {
        code: 32,
        previous: 48,
        instruction: 56,
        owner: None,
    },
    code: CodeLayout {
        filename: 112,
        name: 128,
        line_table: 136,
        first_line: 72,
        instructions: 184,
    },
    ..V3_10
};

const V3_12: PythonLayout = PythonLayout {
    minor: 12,
    threads_head: 72,
    thread_id: 136,
    native_id: Some(144),
    current: CurrentFrame::Through {
        holder: 56,
        offset: 0,
    },
    frame: FrameLayout {
        code: 0,
        previous: 8,
        instruction: 56,
        owner: Some((70, 3)),
    },
    code: CodeLayout {
        first_line: 68,
        instructions: 192,
        ..V3_11.code
    },
    ascii_header: 40,
    compact_header: 56,
    ..V3_11
};

/// First bytes of `_Py_DebugOffsets`.
const COOKIE: [u8; 8] = *b"xdebugpy";

/// Place where `_Py_DebugOffsets` of a version says what is needed.
struct DebugOffsets {
    thread: u64,
    frame: u64,
    code: u64,
    text: u64,
}

impl PythonLayout {
    /// Returns the layout of CPython 3.`minor`, whose `_PyRuntime` lies at `runtime`. `None`: that
    /// version is not known.
    pub fn of(memory: ProcessMemory, runtime: u64, minor: u8) -> Option<Self> {
        match minor {
            9 => Some(Self {
                minor,
                frame: FrameLayout {
                    instruction: 104,
                    ..V3_10.frame
                },
                ..V3_10
            }),
            10 => Some(V3_10),
            11 => Some(V3_11),
            12 => Some(V3_12),
            13 => Self::from_debug_offsets(
                memory,
                runtime,
                (minor, 3),
                DebugOffsets {
                    thread: 168,
                    frame: 232,
                    code: 280,
                    text: 560,
                },
            ),
            14 => Self::from_debug_offsets(
                memory,
                runtime,
                (minor, 3),
                DebugOffsets {
                    thread: 192,
                    frame: 256,
                    code: 320,
                    text: 640,
                },
            ),
            _ => None,
        }
    }

    /// Reads the layout from the interpreter's own table. `first_of_c`: the first owner of a frame
    /// that is no function's.
    fn from_debug_offsets(
        memory: ProcessMemory,
        runtime: u64,
        (minor, first_of_c): (u8, u8),
        at: DebugOffsets,
    ) -> Option<Self> {
        if memory.array(runtime)? != COOKIE {
            return None;
        }
        // An offset that is none leads outside of what is read.
        let say = |offset: u64| {
            memory
                .word(runtime + offset)
                .filter(|value| *value < 1 << 20)
        };
        let is_free_threaded = say(16)? != 0;
        let ascii_header = say(at.text)?;
        Some(Self {
            minor,
            interpreters_head: say(40)?,
            interpreter_next: say(64)?,
            threads_head: say(72)?,
            thread_next: say(at.thread)?,
            current: CurrentFrame::At(say(at.thread + 16)?),
            thread_id: say(at.thread + 24)?,
            native_id: Some(say(at.thread + 32)?),
            frame: FrameLayout {
                previous: say(at.frame)?,
                code: say(at.frame + 8)?,
                instruction: say(at.frame + 16)?,
                owner: Some((say(at.frame + 32)?, first_of_c)),
            },
            code: CodeLayout {
                filename: say(at.code)?,
                name: say(at.code + 16)?,
                line_table: say(at.code + 24)?,
                first_line: say(at.code + 32)?,
                instructions: say(at.code + 64)?,
            },
            ascii_header,
            compact_header: ascii_header + 16,
            // How a string is interned takes two bits, or a byte where threads change it at once.
            text_state_shift: if is_free_threaded { 8 } else { 2 },
        })
    }
}
