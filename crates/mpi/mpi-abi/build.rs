//! Generates the Rust code of constants, wrappers and entry points from the tables in `abi/`, and
//! sets the library's soname and link options.

#[path = "generator/rust.rs"]
mod rust;
#[path = "generator/table.rs"]
#[allow(
    dead_code,
    reason = "the header's generator, which runs in a test, reads the rest"
)]
mod table;

use std::path::Path;
use std::{env, fs, process};

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    println!("cargo:rerun-if-changed=abi");
    println!("cargo:rerun-if-changed=generator");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // The unwinder comes into the library: to load another one takes each rank a tenth of a
    // millisecond.
    println!("cargo:rustc-link-lib=dylib:+verbatim=libgcc_eh.a");
    // Threads and exit handlers of ours may outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn generate() -> Result<(), String> {
    let read = |path: &str| fs::read_to_string(path).map_err(|e| format!("{path}: {e}"));
    let functions = table::functions(&read("abi/functions.txt")?)
        .map_err(|e| format!("abi/functions.txt: {e}"))?;
    let constants = table::constants(&read("abi/constants.txt")?)
        .map_err(|e| format!("abi/constants.txt: {e}"))?;
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    write("constants.rs", rust::constants(&constants))?;
    write("functions.rs", rust::functions(&functions))
}
