//! Checks which files a command may overwrite: a word that was meant for a program, or for a job,
//! must not cost its file.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use garonne_trace::trace_file::BEGINNING;

/// Way in which timelines begin.
pub const TIMELINE: &[u8] = BEGINNING.as_bytes();

/// Returns whether a file may be replaced: it is not there, is empty, begins as earlier documents
/// of its kind do, or is no plain file.
///
/// # Errors
/// What the system says of a file that cannot be read.
pub fn may_replace(path: &Path, beginning: &[u8]) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() > 0 => {}
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    let mut first = Vec::new();
    File::open(path)?
        .take(beginning.len() as u64)
        .read_to_end(&mut first)?;
    Ok(first == beginning)
}

/// Refuses to write to what is of another kind.
///
/// # Errors
/// One line for the user.
pub fn check(path: &Path, beginning: &[u8]) -> Result<(), String> {
    let shown = path.display();
    match may_replace(path, beginning) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "'{shown}' is there, and not an earlier one of these: give another name, or remove it"
        )),
        Err(error) => Err(format!("cannot write {shown}: {error}")),
    }
}

/// Writes a document, unless what stands there is of another kind.
///
/// # Errors
/// One line for the user.
pub fn write(path: &Path, beginning: &[u8], document: &str) -> Result<(), String> {
    check(path, beginning)?;
    std::fs::write(path, document)
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_trace::trace_file::TraceFile;

    #[test]
    fn only_a_timeline_or_an_empty_file_may_be_replaced() {
        let path =
            std::env::temp_dir().join(format!("garonne-trace-target-{}", std::process::id()));
        let allowed = |text: Option<&[u8]>| {
            text.iter()
                .for_each(|text| std::fs::write(&path, text).unwrap());
            may_replace(&path, TIMELINE).unwrap()
        };
        assert!(allowed(None));
        assert!(allowed(Some(b"")));
        assert!(!allowed(Some(b"\x7fELF")));
        assert!(!allowed(Some(
            b"{\"displayTimeUnit\":\"ms\",\"otherData\":{}}"
        )));
        TraceFile::create(&path, &serde_json::json!({})).unwrap();
        assert!(allowed(None));
        assert!(may_replace(Path::new("/dev/null"), TIMELINE).unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn only_an_earlier_document_or_an_empty_file_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x");
        for (text, replaced) in [
            ("", true),
            ("page 1", true),
            ("pag", false),
            ("#!/bin/sh", false),
        ] {
            std::fs::write(&path, text).unwrap();
            let wrote = write(&path, b"page", "page 2");
            assert_eq!(wrote.is_ok(), replaced, "{text}: {wrote:?}");
            let now = std::fs::read_to_string(&path).unwrap();
            assert_eq!(now, if replaced { "page 2" } else { text });
        }
        assert!(write(&directory.path().join("new"), b"page", "page 1").is_ok());
        assert!(write(directory.path(), b"page", "page 1").is_err());
    }
}
