//! Files that a user names, read up to a bound: a device such as `/dev/zero` never ends.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

/// Bytes of a list of hosts or of programs: some hundred for each of 2^17 hosts.
pub const LIST_BYTES_MAX: u64 = 64 << 20;
/// Bytes of a file that holds a key.
pub const KEY_BYTES_MAX: u64 = 64 << 10;

/// The content of a file of at most so many bytes.
///
/// # Errors
/// It cannot be read, or is longer.
pub fn read(path: impl AsRef<Path>, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text =
            format!("it has more than {most} bytes, which is more than such a file may have");
        return Err(io::Error::new(ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Reads a file of text up to a bound.
///
/// # Errors
/// As [`read`]; [`ErrorKind::InvalidData`] where it is no text.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?)
        .map_err(|_| io::Error::new(ErrorKind::InvalidData, "it is not text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_refused_and_what_is_short_enough_is_read() {
        let error = read("/dev/zero", 1000).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileTooLarge);
        assert!(error.to_string().contains("1000 bytes"), "{error}");
        assert_eq!(read("/dev/null", 0).unwrap(), b"");
        let own = read_text("/proc/self/comm", 16).unwrap();
        assert!(own.ends_with('\n'));
    }
}
