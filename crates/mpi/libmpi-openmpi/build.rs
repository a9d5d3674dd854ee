//! Generates the entry points from the tables in `garonne-abi-gen`, and sets the library's soname
//! and what it needs.

use garonne_abi_gen::{abi_library, build_script, openmpi};
use std::process;

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    println!("cargo:rerun-if-changed=build.rs");
}

fn generate() -> Result<(), String> {
    let library = garonne_abi_gen::openmpi_library()?;
    build_script::write(
        "entry_points.rs",
        &abi_library::entry_points("openmpi", &library.entries),
    )?;
    let objects = openmpi::objects(
        &garonne_abi_gen::constants()?,
        &garonne_abi_gen::openmpi_groups()?,
    );
    build_script::write("objects.rs", &openmpi::objects_code(&objects))?;
    build_script::link_entry_points("libmpi.so.40")
}
