//! Strings: Fortran's have a length and end with blanks, C's end with a zero.

use smallvec::SmallVec;
use std::ffi::{c_int, c_void};

/// Bytes of a string that need no heap.
const INLINE: usize = 128;

/// A string of the program, as C has it.
pub struct StringIn(SmallVec<[u8; INLINE]>);

impl StringIn {
    /// Copies a string without the blanks at its end, and at its beginning if `trims_both`.
    ///
    /// # Safety
    /// So many bytes can be read.
    pub unsafe fn read(from: *const u8, len: usize, trims_both: bool) -> Self {
        // The upper half of a length is not there in the calls of older compilers.
        let len = len & 0xffff_ffff;
        let bytes = match len {
            0 => &[][..],
            // SAFETY: as the caller says.
            _ => unsafe { std::slice::from_raw_parts(from, len) },
        };
        // A program that ends its strings as C does means that.
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(len);
        let bytes = &bytes[..end];
        let end = bytes
            .iter()
            .rposition(|byte| *byte != b' ')
            .map_or(0, |at| at + 1);
        let begin = match trims_both {
            true => bytes
                .iter()
                .position(|byte| *byte != b' ')
                .unwrap_or(0)
                .min(end),
            false => 0,
        };
        let mut text = SmallVec::from_slice(&bytes[begin..end]);
        text.push(0);
        Self(text)
    }

    /// Returns the address of the string.
    pub fn as_ptr(&self) -> *const u8 {
        self.0.as_ptr()
    }

    /// Returns whether the string is empty.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 1
    }
}

/// Room for a string that C writes.
pub struct StringOut(Vec<u8>);

impl StringOut {
    /// Room for so many bytes, the final zero among them.
    pub fn new(room: usize) -> Self {
        Self(vec![0; room.max(1)])
    }

    /// Room for as many characters as an argument says, which then counts the final zero, too. A
    /// count of 0 asks for the length alone.
    ///
    /// # Safety
    /// The address is that of an `INTEGER`.
    pub unsafe fn counted(count: *mut c_void) -> Self {
        let count = count.cast::<c_int>();
        // SAFETY: as the caller says.
        let room = unsafe { *count };
        if room > 0 {
            // SAFETY: as the caller says.
            unsafe { *count = room.saturating_add(1) }
        }
        Self::new(usize::try_from(room).unwrap_or(0) + 1)
    }

    /// Returns the address of the room.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }

    /// Copies the string to Fortran's, which is filled up with blanks.
    ///
    /// # Safety
    /// So many bytes can be written.
    pub unsafe fn write(&self, to: *mut u8, len: usize) {
        let len = len & 0xffff_ffff;
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.0.len());
        let copied = end.min(len);
        // SAFETY: as the caller says; both are shorter than what they are taken from.
        unsafe {
            std::ptr::copy_nonoverlapping(self.0.as_ptr(), to, copied);
            std::ptr::write_bytes(to.add(copied), b' ', len - copied);
        }
    }

    /// Copies the string if it is set, and makes the argument count characters again.
    ///
    /// # Safety
    /// So many bytes can be written, and the count is an `INTEGER`.
    pub unsafe fn write_counted(&self, is_set: bool, count: *mut c_void, to: *mut u8, len: usize) {
        let count = count.cast::<c_int>();
        // SAFETY: as the caller says.
        unsafe {
            if *count > 0 {
                *count -= 1;
            }
            if is_set && self.0.len() > 1 {
                self.write(to, len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, both: bool) -> Vec<u8> {
        // SAFETY: the bytes of the text.
        unsafe { StringIn::read(text.as_ptr(), text.len(), both) }
            .0
            .to_vec()
    }

    #[test]
    fn blanks_at_the_ends_do_not_count() {
        assert_eq!(read("  a b  ", false), b"  a b\0");
        assert_eq!(read("  a b  ", true), b"a b\0");
        assert_eq!(read("    ", true), b"\0");
        assert_eq!(read("", false), b"\0");
        assert_eq!(read("a\0b ", false), b"a\0");
    }

    #[test]
    fn what_c_wrote_is_filled_up_or_cut() {
        let mut out = StringOut::new(8);
        out.0[..3].copy_from_slice(b"abc");
        let mut text = *b"xxxxx";
        // SAFETY: the bytes of the array.
        unsafe { out.write(text.as_mut_ptr(), 5) };
        assert_eq!(&text, b"abc  ");
        // SAFETY: the first bytes of the array.
        unsafe { out.write(text.as_mut_ptr(), 2) };
        assert_eq!(&text, b"abc  ");
    }
}
