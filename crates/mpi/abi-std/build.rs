//! Generates the library's entry points and the tables of other ABIs' wrappers from the tables in
//! `garonne-abi-gen`, and sets its soname and link options.

use garonne_abi_gen::{abi_library, entry_points};
use std::path::Path;
use std::{env, fs, process};

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    // The table is part of the build script: a change of it runs the script again.
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // The unwinder comes into the library: to load another one takes each rank a tenth of a
    // millisecond.
    println!("cargo:rustc-link-lib=dylib:+verbatim=libgcc_eh.a");
    // Threads and exit handlers of ours may outlive a dlclose.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn generate() -> Result<(), String> {
    let functions = garonne_abi_gen::functions()?;
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    write("entry_points.rs", entry_points::entry_points(&functions))?;
    write(
        "wrapper_lookup.rs",
        entry_points::wrapper_lookup(&functions),
    )?;
    write(
        "mpich_functions.rs",
        abi_library::table("mpich", &garonne_abi_gen::mpich_library()?.entries),
    )?;
    write(
        "openmpi_functions.rs",
        abi_library::table("openmpi", &garonne_abi_gen::openmpi_library()?.entries),
    )
}
