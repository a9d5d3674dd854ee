//! Generates the glue from the tables in `garonne-abi-gen`, and sets the library's soname and what
//! it needs.

use garonne_abi_gen::fortran::{Names, glue};
use garonne_abi_gen::{abi_library, build_script};
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
        &garonne_abi_gen::openmpi_groups()?,
        Names::OpenMpi,
    );
    build_script::write("glue.rs", &code)?;
    let entries = garonne_abi_gen::openmpi_library()?.entries;
    build_script::write("table.rs", &abi_library::names("openmpi", &entries))?;
    // Functions of the C library are looked up when they are first called. It lies beside this one.
    build_script::link_above("libmpi.so.40", "libmpi_mpifh.so.40", "$ORIGIN")
}
