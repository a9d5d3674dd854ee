//! Object files that have been read, so that each is read once however often it is asked for.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;

use crate::object_file::{self, ObjectFile};

/// What tells one state of a file from any other file and from later states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds of the last change of its content.
    modified: (i64, i64),
}

/// The loader's parts of files, by device, inode, length and time of change.
///
/// Owned by whoever follows the needs of several programs. [`read`](Self::read) may be called in
/// any order.
#[derive(Debug, Default)]
pub struct ObjectCache(RefCell<HashMap<FileIdentity, Option<Rc<ObjectFile>>>>);

impl ObjectCache {
    /// Returns the loader's part of a file. `None`: the file is not there, or is no ELF file.
    pub fn read(&self, path: &Path) -> Option<Rc<ObjectFile>> {
        let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let identity = FileIdentity {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
        };
        let mut known = self.0.borrow_mut();
        let read = known.entry(identity);
        read.or_insert_with(|| object_file::read(path).map(Rc::new))
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_once_and_again_after_a_change() {
        let dir = std::env::temp_dir().join(format!("garonne-objects-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (path, other) = (dir.join("program"), dir.join("link"));
        std::fs::copy("/proc/self/exe", &path).unwrap();
        let _ = std::fs::remove_file(&other);
        std::fs::hard_link(&path, &other).unwrap();
        let cache = ObjectCache::default();
        let first = cache.read(&path).unwrap();
        assert!(Rc::ptr_eq(&first, &cache.read(&other).unwrap()));
        std::fs::write(&path, "text").unwrap();
        assert!(cache.read(&path).is_none());
        assert!(cache.read(&dir).is_none());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
