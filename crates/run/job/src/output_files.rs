//! Files that take what ranks write, instead of the launcher's own output: their names, by rank and
//! stream.
//!
//! A name is a pattern as MPICH's hydra has it: `%r` the rank, `%h` the name of its host, `%p` the
//! number of its host, `%g` 0 (a job is one group), `%t` the time of the start in seconds, `%%` a
//! percent sign. Ranks whose names come out alike share a file, line by line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// The patterns of a job; none: that stream goes where the launcher's own goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutputFiles {
    /// Pattern for standard output.
    pub out: Option<OsString>,
    /// Pattern for standard error.
    pub err: Option<OsString>,
}

/// Values that replace the letters of a pattern, for one rank.
#[derive(Clone, Copy, Debug)]
pub struct PatternValues<'a> {
    /// Number of the rank.
    pub rank: u32,
    /// The name of its host.
    pub host: &'a str,
    /// The number of its host.
    pub node: u32,
    /// When the job began, in seconds since 1970.
    pub start: u64,
}

impl OutputFiles {
    /// Open MPI's file names: `NAME.RANK.out` and `NAME.RANK.err`.
    pub fn of_ranks(name: &OsStr) -> Self {
        let with = |ending: &str| Some([literal(name).as_bytes(), ending.as_bytes()].concat());
        Self {
            out: with(".%r.out").map(OsString::from_vec),
            err: with(".%r.err").map(OsString::from_vec),
        }
    }

    /// Open MPI's directory: `DIR/rank.RANK/stdout` and `DIR/rank.RANK/stderr`.
    pub fn in_directory(directory: &OsStr) -> Self {
        let with = |ending: &str| Some([literal(directory).as_bytes(), ending.as_bytes()].concat());
        Self {
            out: with("/rank.%r/stdout").map(OsString::from_vec),
            err: with("/rank.%r/stderr").map(OsString::from_vec),
        }
    }

    /// Returns whether no stream goes to files.
    pub fn are_none(&self) -> bool {
        self.out.is_none() && self.err.is_none()
    }
}

/// A text that stands for itself in a pattern.
fn literal(text: &OsStr) -> OsString {
    let doubled = text.as_bytes().iter().flat_map(|byte| match byte {
        b'%' => [Some(b'%'), Some(b'%')],
        other => [Some(*other), None],
    });
    OsString::from_vec(doubled.flatten().collect())
}

/// The letters behind `%` that a pattern may have.
const LETTERS: [u8; 6] = *b"rhpgt%";

/// The first `%` of a pattern with something else behind it.
pub fn strange(pattern: &OsStr) -> Option<String> {
    let mut bytes = pattern.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'%' {
            match bytes.next() {
                Some(letter) if LETTERS.contains(letter) => {}
                Some(letter) => return Some(format!("%{}", char::from(*letter))),
                None => return Some("%".to_owned()),
            }
        }
    }
    None
}

/// The file that a pattern names for a rank.
pub fn path(pattern: &OsStr, named: PatternValues<'_>) -> PathBuf {
    let mut path = Vec::new();
    let mut bytes = pattern.as_bytes().iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => match bytes.next() {
                Some(b'r') => path.extend(named.rank.to_string().into_bytes()),
                Some(b'h') => path.extend(named.host.replace('/', "_").into_bytes()),
                Some(b'p') => path.extend(named.node.to_string().into_bytes()),
                Some(b'g') => path.push(b'0'),
                Some(b't') => path.extend(named.start.to_string().into_bytes()),
                Some(other) => path.push(*other),
                None => path.push(b'%'),
            },
            other => path.push(*other),
        }
    }
    PathBuf::from(OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(pattern: &OsStr) -> String {
        let named = PatternValues {
            rank: 7,
            host: "n1",
            node: 2,
            start: 99,
        };
        path(pattern, named).to_str().unwrap().to_owned()
    }

    #[test]
    fn patterns_name_files_by_rank_host_and_time() {
        assert_eq!(named(OsStr::new("o-%r-%h-%p-%g-%t.%%")), "o-7-n1-2-0-99.%");
        let files = OutputFiles::of_ranks(OsStr::new("50%r"));
        assert_eq!(named(&files.out.unwrap()), "50%r.7.out");
        let files = OutputFiles::in_directory(OsStr::new("d"));
        assert_eq!(named(&files.err.unwrap()), "d/rank.7/stderr");
    }

    #[test]
    fn what_is_no_pattern_is_found() {
        assert_eq!(strange(OsStr::new("a%r%%b")), None);
        assert_eq!(strange(OsStr::new("a%x")), Some("%x".to_owned()));
        assert_eq!(strange(OsStr::new("a%")), Some("%".to_owned()));
    }
}
