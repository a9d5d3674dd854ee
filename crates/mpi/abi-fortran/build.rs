//! Generates the glue from the tables in `garonne-abi-gen`, and sets the library's soname and what
//! it needs.

use garonne_abi_gen::fortran::{Names, glue};
use std::path::Path;
use std::process::Command;
use std::{env, fs, process};

fn main() {
    if let Err(error) = generate() {
        eprintln!("error: {error}");
        process::exit(1);
    }
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmpifort_abi.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // The C library lies beside it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-rpath,$ORIGIN,--enable-new-dtags");
}

fn generate() -> Result<(), String> {
    let out = env::var("OUT_DIR").map_err(|error| error.to_string())?;
    let out = Path::new(&out);
    let code = glue::glue(
        &garonne_abi_gen::fortran_routines()?,
        &garonne_abi_gen::constants()?,
        Names::Standard,
    );
    fs::write(out.join("glue.rs"), code).map_err(|error| format!("glue.rs: {error}"))?;
    // The library needs libmpi_abi.so.1, of which no symbol is linked: functions are looked up when
    // they are first called. An empty library of that name stands in for it.
    let stub = out.join("libmpi_abi.so.1");
    fs::write(out.join("empty.c"), "").map_err(|error| format!("empty.c: {error}"))?;
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib", "-Wl,-soname,libmpi_abi.so.1", "-o"])
        .arg(&stub)
        .arg(out.join("empty.c"))
        .status()
        .map_err(|error| format!("{compiler}: {error}"))?;
    if !status.success() {
        return Err(format!("{compiler} cannot make a shared library"));
    }
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,--no-as-needed,{},--as-needed",
        stub.display()
    );
    Ok(())
}
