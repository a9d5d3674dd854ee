//! Inputs that fuzzing kept, for tests of transports that read them once more.

/// Gives each kept input of a fuzz target to `read`.
///
/// # Panics
/// If there is none, or one cannot be read.
pub fn replay(target: &str, read: fn(&[u8])) {
    let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../fuzz/seeds")
        .join(target);
    let inputs = std::fs::read_dir(&dir).unwrap();
    let count = inputs
        .map(|input| read(&std::fs::read(input.unwrap().path()).unwrap()))
        .count();
    assert!(count > 0, "{}", dir.display());
}
