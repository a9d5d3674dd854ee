//! Names of files as programs give them: perhaps with the prefix of a kind of file system.
//!
//! ```text
//! name   = prefix ":" path / path
//! prefix = one of PREFIXES, exactly so
//! ```
//!
//! Anything else before a colon is part of the path, since files may be called so.

use crate::error::{Cause, FileError};
use std::path::{Path, PathBuf};

/// Prefixes that programs write for MPI files. The kernel's calls serve all of them.
const PREFIXES: [&str; 8] = [
    "ufs", "nfs", "xfs", "gpfs", "lustre", "panfs", "pvfs2", "file",
];

/// Returns the path of a name: what is behind a known prefix, or the name as it is.
///
/// # Errors
/// [`Cause::BadName`] for a path that is empty or contains a zero byte.
pub fn path_of_name(name: &Path) -> Result<PathBuf, FileError> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = name.as_os_str().as_bytes();
    let rest = PREFIXES.iter().find_map(|prefix| {
        let rest = bytes.strip_prefix(prefix.as_bytes())?;
        rest.strip_prefix(b":")
    });
    let path = rest.unwrap_or(bytes);
    if path.is_empty() || path.contains(&0) {
        return Err(FileError::found("open", name, Cause::BadName));
    }
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> Option<String> {
        let path = path_of_name(Path::new(name)).ok()?;
        Some(path.to_str().expect("text").to_owned())
    }

    #[test]
    fn known_prefixes_are_taken_off_once_and_only_exactly() {
        assert_eq!(path("ufs:/tmp/a").as_deref(), Some("/tmp/a"));
        assert_eq!(path("nfs:a").as_deref(), Some("a"));
        assert_eq!(path("ufs:nfs:a").as_deref(), Some("nfs:a"));
        for as_it_is in [
            "UFS:a", "ufsx:a", "xufs:a", "run:3", "/ufs:a", "./ufs:a", "ufs", " ufs:a",
        ] {
            assert_eq!(path(as_it_is).as_deref(), Some(as_it_is));
        }
    }

    #[test]
    fn names_without_a_path_are_refused() {
        for bad in ["", "ufs:", "a\0b", "nfs:a\0"] {
            assert_eq!(path(bad), None, "{bad:?}");
        }
    }
}
