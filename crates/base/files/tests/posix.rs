//! The kernel's files: what is promised of them, on the file systems of this machine.

use garonne_files::posix::PosixFileSystem;
use garonne_files::{Cause, File, FileError, FileSystem, FileSystemKind, LockKind, OpenOptions};
use garonne_sync::user::Packed;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that is removed at the end of a test.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("garonne-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).expect("removes the test's directory");
    }
}

const NEW: OpenOptions = OpenOptions {
    read: true,
    write: true,
    create: true,
    exclusive: false,
    delete_on_close: false,
    mode: 0o640,
};

fn open(path: &Path) -> Arc<dyn File> {
    PosixFileSystem.open(path, NEW).expect("opens")
}

fn cause<T: std::fmt::Debug>(result: Result<T, FileError>) -> Cause {
    result.expect_err("fails").cause
}

#[test]
fn what_is_written_from_many_buffers_is_read_into_others() {
    let place = Place::new("many");
    let file = open(&place.path("a"));
    let content: Vec<u8> = (0..100_000u32).map(|i| ((i * 31) >> 3) as u8).collect();
    // More buffers than one call takes.
    let pieces: Vec<_> = content.chunks(100).map(Packed::of).collect();
    file.write_vectored_at(5, &pieces).expect("writes");
    assert_eq!(file.size().expect("size"), 100_005);
    let mut back = vec![0; 100_010];
    let (head, tail) = Packed::over(&mut back).split(33);
    assert_eq!(
        file.read_vectored_at(5, &[head, tail]).expect("reads"),
        100_000
    );
    assert_eq!(back[..100_000], content);
    assert_eq!(
        file.read_at(100_005, Packed::over(&mut back))
            .expect("reads"),
        0
    );
}

#[test]
fn what_is_prefetched_is_read_as_it_is_also_behind_the_end() {
    let place = Place::new("prefetched");
    let file = open(&place.path("a"));
    let content: Vec<u8> = (0..50_000u32).map(|i| ((i * 17) >> 2) as u8).collect();
    file.write_at(0, Packed::of(&content)).expect("writes");
    file.sync().expect("syncs");
    for range in [0..50_000, 4096..4096, 40_000..1 << 20, 1 << 40..1 << 41] {
        file.prefetch(range);
    }
    assert_eq!(file.size().expect("size"), 50_000);
    let mut back = vec![0; 50_000];
    let got = file.read_at(0, Packed::over(&mut back)).expect("reads");
    assert_eq!((got, back), (50_000, content));
}

#[test]
fn a_call_above_the_kernels_limit_moves_all() {
    let place = Place::new("large");
    let file = open(&place.path("a"));
    // Nothing is on the disk, and one buffer stands for many.
    let bytes = (2 << 30) + 4096;
    file.set_size(bytes).expect("resizes");
    let mut memory = vec![7; 64 << 20];
    let buffers = vec![Packed::over(&mut memory); 33];
    assert_eq!(file.read_vectored_at(0, &buffers).expect("reads"), bytes);
}

#[test]
fn causes_of_failed_opens() {
    let place = Place::new("causes");
    let (there, missing) = (place.path("there"), place.path("missing"));
    drop(open(&there));
    let system = PosixFileSystem;
    assert_eq!(
        std::fs::metadata(&there).expect("there").mode() & 0o777 & !0o640,
        0
    );
    let existing = OpenOptions {
        create: false,
        ..NEW
    };
    let exclusive = OpenOptions {
        exclusive: true,
        ..NEW
    };
    assert_eq!(cause(system.open(&missing, existing)), Cause::NotFound);
    assert_eq!(cause(system.open(&there, exclusive)), Cause::Exists);
    assert_eq!(
        cause(system.open(&place.0, OpenOptions::default())),
        Cause::BadName
    );
    assert_eq!(cause(system.open(&there.join("x"), NEW)), Cause::BadName);
    assert_eq!(
        cause(system.open(&place.path(&"x".repeat(300)), NEW)),
        Cause::BadName
    );
    assert_eq!(cause(system.delete(&missing)), Cause::NotFound);
    assert_eq!(cause(system.delete(&place.0)), Cause::BadName);
    let only_read = system.open(&there, OpenOptions::default()).expect("opens");
    let refused = only_read
        .write_at(0, Packed::of(b"x"))
        .expect_err("read only");
    assert_eq!((refused.done, refused.error.cause), (0, Cause::Access));
}

#[test]
fn pipes_are_refused_at_once() {
    let place = Place::new("pipe");
    let pipe = place.path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("mkfifo").success());
    for options in [
        NEW,
        OpenOptions::default(),
        OpenOptions { read: false, ..NEW },
    ] {
        assert_eq!(cause(PosixFileSystem.open(&pipe, options)), Cause::BadName);
    }
}

#[test]
fn sizes_and_allocation() {
    let place = Place::new("sizes");
    let file = open(&place.path("a"));
    file.write_at(0, Packed::of(b"begin")).expect("writes");
    file.set_size(10_000).expect("resizes");
    file.preallocate(300_000).expect("allocates");
    assert_eq!(file.size().expect("size"), 300_000);
    let allocated = std::fs::metadata(place.path("a")).expect("there").blocks() * 512;
    assert!(allocated >= 300_000, "{allocated} bytes have room");
    file.preallocate(100).expect("allocates");
    assert_eq!(file.size().expect("size"), 300_000);
    file.set_size(3).expect("resizes");
    file.sync().expect("syncs");
    let mut bytes = [0; 8];
    assert_eq!(file.read_at(0, Packed::over(&mut bytes)).expect("reads"), 3);
    assert_eq!(&bytes[..3], b"beg");
}

#[test]
fn the_name_goes_with_the_last_reference() {
    let place = Place::new("delete");
    let path = place.path("a");
    let options = OpenOptions {
        delete_on_close: true,
        ..NEW
    };
    let file = PosixFileSystem.open(&path, options).expect("opens");
    let other = file.clone();
    drop(file);
    assert!(path.exists());
    drop(other);
    assert!(!path.exists());
}

#[test]
fn locks_exclude_other_open_files_of_this_process() {
    let place = Place::new("locks");
    let (a, b) = (open(&place.path("a")), open(&place.path("a")));
    assert!(a.lock(0..100, LockKind::Exclusive, true).expect("locks"));
    assert!(!b.lock(50..60, LockKind::Shared, false).expect("locks"));
    assert!(
        b.lock(100..u64::MAX, LockKind::Exclusive, false)
            .expect("locks")
    );
    std::thread::scope(|threads| {
        let waits = threads.spawn(|| b.lock(50..60, LockKind::Shared, true).expect("locks"));
        a.unlock(0..100).expect("unlocks");
        assert!(waits.join().expect("no panic"));
    });
    assert!(!a.lock(55..56, LockKind::Exclusive, false).expect("locks"));
    drop(b);
    assert!(
        a.lock(0..u64::MAX, LockKind::Exclusive, false)
            .expect("locks")
    );
}

#[test]
fn the_kind_of_a_file_system_is_told_also_for_a_name_that_is_not_there() {
    let system = PosixFileSystem;
    let shm = system.info(Path::new("/dev/shm/not-there-at-all"));
    assert_eq!(shm.expect("kind").kind, FileSystemKind::Local);
    assert_eq!(
        system
            .info(Path::new("not-there"))
            .expect("kind")
            .block_bytes
            % 512,
        0
    );
    assert_eq!(
        cause(system.info(Path::new("/not-there/at-all"))),
        Cause::NotFound
    );
}

#[test]
fn devices_are_files() {
    let options = OpenOptions {
        create: false,
        ..NEW
    };
    let null = PosixFileSystem
        .open(Path::new("/dev/null"), options)
        .expect("opens");
    null.write_at(0, Packed::of(b"anything")).expect("writes");
    let full = PosixFileSystem
        .open(Path::new("/dev/full"), options)
        .expect("opens");
    let failed = full.write_at(0, Packed::of(b"anything")).expect_err("full");
    assert_eq!((failed.done, failed.error.cause), (0, Cause::NoSpace));
}
