//! Generates the Rust code of constants and wrappers from the table in `garonne-abi-gen`.

use garonne_abi_gen::wrappers;
use std::path::Path;
use std::{env, fs, process};

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    // The table is part of the build script: a change of it runs the script again.
    println!("cargo:rerun-if-changed=build.rs");
}

fn generate() -> Result<(), String> {
    let mut functions = garonne_abi_gen::functions()?;
    functions.extend(garonne_abi_gen::refused_functions()?);
    let constants = garonne_abi_gen::constants()?;
    let out = env::var("OUT_DIR").map_err(|e| e.to_string())?;
    let write = |name: &str, text: String| {
        fs::write(Path::new(&out).join(name), text).map_err(|e| format!("{name}: {e}"))
    };
    write("constants.rs", wrappers::constants(&constants))?;
    write("wrappers.rs", wrappers::functions(&functions))
}
