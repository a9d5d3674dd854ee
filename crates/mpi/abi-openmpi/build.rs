//! Generates tables and wrappers of the ABI from the tables in `garonne-abi-gen`.

use garonne_abi_gen::{build_script, openmpi};
use std::process;

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    // The tables are part of the build script: a change of them runs the script again.
    println!("cargo:rerun-if-changed=build.rs");
}

fn generate() -> Result<(), String> {
    let mut code = garonne_abi_gen::openmpi_library()?.code;
    code.push_str(&openmpi::fortran_integers(
        &garonne_abi_gen::constants()?,
        &garonne_abi_gen::openmpi_fortran()?,
    ));
    build_script::write("wrappers.rs", &code)
}
