//! Memory of another process, read value by value.

use crate::sys;

/// The memory of one process. Everything read may be wrong or change: values are checked by whoever
/// uses them.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMemory {
    /// The process, as this process's namespace names it.
    pub pid: u32,
}

/// A string longer than that is none that a person would read.
const TEXT_MAX: usize = 4096;

impl ProcessMemory {
    /// Reads as many bytes from `address` on as are there, at most `len`.
    pub fn bytes(self, address: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let got = sys::read(self.pid, address, &mut bytes).unwrap_or(0);
        bytes.truncate(got);
        bytes
    }

    /// Exactly `N` bytes.
    pub fn array<const N: usize>(self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (sys::read(self.pid, address, &mut bytes).ok()? == N).then_some(bytes)
    }

    /// A word.
    pub fn word(self, address: u64) -> Option<u64> {
        self.array(address).map(u64::from_ne_bytes)
    }

    /// A text that ends with a zero byte.
    pub fn text(self, address: u64) -> Option<String> {
        let bytes = self.bytes(address, TEXT_MAX);
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// A copy of a part of a stack.
#[derive(Clone, Debug, Default)]
pub struct StackCopy {
    /// The address of the first byte.
    pub at: u64,
    /// Bytes of the stack, up to its end or that of the copy.
    pub bytes: Vec<u8>,
}

impl StackCopy {
    /// The word at `address`, if the copy holds it.
    pub fn word(&self, address: u64) -> Option<u64> {
        let begin = usize::try_from(address.checked_sub(self.at)?).ok()?;
        let bytes = self.bytes.get(begin..begin.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_ne_bytes)
    }
}
