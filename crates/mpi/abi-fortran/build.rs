//! Generates the glue from the tables in `garonne-abi-gen`, and sets the library's soname and what
//! it needs.

use garonne_abi_gen::build_script;
use garonne_abi_gen::fortran::{Names, glue};
use std::process;

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    println!("cargo:rerun-if-changed=build.rs");
}

fn generate() -> Result<(), String> {
    let code = glue::glue(
        &garonne_abi_gen::fortran_routines()?,
        &garonne_abi_gen::constants()?,
        Names::Standard,
    );
    build_script::write("glue.rs", &code)?;
    // Functions of the C library are looked up when they are first called. It lies beside this one.
    build_script::link_above_the_core("libmpifort_abi.so.1", "$ORIGIN")
}
