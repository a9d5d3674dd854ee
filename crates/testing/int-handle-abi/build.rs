//! Generates wrappers and entry points of the second ABI from the tables in `garonne-abi-gen`, and
//! sets the library's soname and link options.

use garonne_abi_gen::{conversions, entry_points};
use std::path::Path;
use std::{env, fs, process};

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    // The tables are part of the build script: a change of them runs the script again.
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/by_hand.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libint_handle_abi.so.1");
    // See the build script of `garonne-abi-std`.
    println!("cargo:rustc-link-lib=dylib:+verbatim=libgcc_eh.a");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}

fn generate() -> Result<(), String> {
    let by_hand = fs::read_to_string("src/by_hand.rs").map_err(|e| format!("by_hand.rs: {e}"))?;
    let library = conversions::library(
        garonne_abi_gen::functions()?,
        &garonne_abi_gen::parameters()?,
        &garonne_abi_gen::mpich()?,
        &by_hand,
    )?;
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    let write = |name: &str, text: &str| {
        fs::write(Path::new(&out).join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    write("wrappers.rs", &library.code)?;
    let names = library.functions.iter().map(|f| f.name.as_str());
    write(
        "entry_points.rs",
        &entry_points::entry_points_of_names(names),
    )
}
