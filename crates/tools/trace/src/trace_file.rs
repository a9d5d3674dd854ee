//! A timeline in a file that is whole after every write: each write takes the place of the file's
//! end and brings a new one.
//!
//! The kernel carries a write out page by page and looks between two pages whether the process was
//! killed, so a write stays within a page where it can. A write that must leave its page may be cut
//! there if the process is killed in that very moment; [`whole`] mends such a file for readers.

use serde_json::Value;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Way in which each timeline begins, by which an earlier one is known.
pub const BEGINNING: &str = r#"{"displayTimeUnit":"ns","otherData":"#;
const END: &str = "\n]}\n";
/// Between two events.
const BETWEEN: &str = ",\n";
/// Bytes that the kernel writes at a time at least.
const PAGE: u64 = 4096;

/// Timeline in a file that is whole after every write. [`TraceFile::create`] begins it; each write
/// replaces the file's end and brings a new one.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    /// Place where the end begins.
    at: u64,
}

impl TraceFile {
    /// Makes the file, with what concerns the whole of it.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path, about: &Value) -> io::Result<Self> {
        let file = File::create(path)?;
        let mut made = Self { file, at: 0 };
        let first = r#"{"ph":"M","name":"trace","pid":0,"args":{}}"#;
        made.put(&format!("{BEGINNING}{about},\"traceEvents\":[\n{first}"))?;
        Ok(made)
    }

    /// Adds events, each a line and separated by a comma at its end; nothing for none.
    ///
    /// # Errors
    /// What the system says; the file is as before then, or lacks its end.
    pub fn add(&mut self, events: &str) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let mut chunk = String::new();
        for event in events.split(BETWEEN) {
            let room = PAGE - self.at % PAGE;
            let len = chunk.len() + BETWEEN.len() + event.len() + END.len();
            if !chunk.is_empty() && len as u64 > room {
                self.put(&std::mem::take(&mut chunk))?;
            }
            chunk += BETWEEN;
            chunk += event;
        }
        self.put(&chunk)
    }

    fn put(&mut self, text: &str) -> io::Result<()> {
        self.file
            .write_all_at(format!("{text}{END}").as_bytes(), self.at)?;
        self.at += text.len() as u64;
        Ok(())
    }
}

/// A file's text with an end, if its last write was cut; `None` if nothing was.
pub fn whole(text: &[u8]) -> Option<Vec<u8>> {
    if text.ends_with(END.as_bytes()) {
        return None;
    }
    let cut = text
        .windows(BETWEEN.len())
        .rposition(|window| window == BETWEEN.as_bytes())?;
    Some([&text[..cut], END.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::json;

    #[test]
    fn the_file_can_be_read_after_each_addition() {
        let path = std::env::temp_dir().join(format!("garonne-trace-file-{}", std::process::id()));
        let read = || -> Value { serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap() };
        let mut file = TraceFile::create(&path, &json!({ "ranks": 2 })).unwrap();
        for count in 1..5 {
            assert_eq!(
                read()["traceEvents"].as_array().unwrap().len(),
                2 * count - 1
            );
            file.add("{\"ph\":\"i\"},\n{\"ph\":\"i\"}").unwrap();
            file.add("").unwrap();
        }
        assert_eq!(read()["otherData"]["ranks"], 2);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_of_many_pages_has_every_event_once() {
        let path = std::env::temp_dir().join(format!("garonne-trace-pages-{}", std::process::id()));
        let mut file = TraceFile::create(&path, &json!({})).unwrap();
        let events: Vec<String> = (0..900)
            .map(|n| format!("{{\"n\":{n},\"text\":\"{}\"}}", "x".repeat(n * 7)))
            .collect();
        for some in events.chunks(37) {
            file.add(&some.join(",\n")).unwrap();
        }
        let read: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let numbers: Vec<u64> = read["traceEvents"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|event| event["n"].as_u64())
            .collect();
        assert_eq!(numbers, (0..900).collect::<Vec<_>>());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_read_up_to_there() {
        let text = b"{\"traceEvents\":[\n{\"a\":1},\n{\"a\":2},\n{\"a\":3}\n]}\n";
        assert_eq!(whole(text), None);
        let first = text.iter().position(|byte| *byte == b',').unwrap() + 2;
        for cut in first..text.len() - 1 {
            let mended = whole(&text[..cut]).unwrap();
            let read: Value = serde_json::from_slice(&mended).unwrap();
            assert!(!read["traceEvents"].as_array().unwrap().is_empty());
        }
        assert_eq!(whole(b"nonsense"), None);
    }
}
