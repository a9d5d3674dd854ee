//! Checksum of the sources that declare what crosses the border of a module, for build scripts: a
//! module of other sources is refused, whatever their version says.

use std::fs;
use std::path::{Path, PathBuf};

/// FNV-1a.
fn add(sum: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(sum, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) {
    let entries =
        fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    for entry in entries {
        let path = entry.expect("the directory can be listed").path();
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Sets the variable `name` of the crate that is built to the checksum of all Rust files in these
/// directories, which are relative to the crate, and of the compiler's flags.
pub fn set(name: &str, directories: &[&str]) {
    let root = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where it is"));
    let mut sum = 0xcbf2_9ce4_8422_2325;
    for source in directories {
        let directory = root.join(source);
        println!("cargo::rerun-if-changed={}", directory.display());
        let mut files = Vec::new();
        list(&directory, &mut files);
        files.sort();
        for file in files {
            let name = file.strip_prefix(&directory).expect("it lies there");
            let bytes = fs::read(&file).expect("a source can be read");
            sum = add(add(sum, name.as_os_str().as_encoded_bytes()), &bytes);
        }
    }
    // What may lay types out otherwise.
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    sum = add(sum, flags.as_bytes());
    println!("cargo::rerun-if-env-changed=CARGO_ENCODED_RUSTFLAGS");
    println!("cargo::rustc-env={name}={sum}");
}
