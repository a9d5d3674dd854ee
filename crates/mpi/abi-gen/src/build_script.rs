//! What the build scripts of libraries above `libmpi_abi.so.1` have in common.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Returns the directory for what the build script generates.
///
/// # Errors
/// Cargo has not named the directory.
pub fn out_dir() -> Result<PathBuf, String> {
    env::var("OUT_DIR")
        .map(PathBuf::from)
        .map_err(|error| format!("OUT_DIR: {error}"))
}

/// Writes a generated file.
///
/// # Errors
/// The name of the file, and why it cannot be written.
pub fn write(name: &str, text: &str) -> Result<(), String> {
    fs::write(out_dir()?.join(name), text).map_err(|error| format!("{name}: {error}"))
}

/// Has the shared library linked under the name `soname`, so that it needs `libmpi_abi.so.1`, which
/// the loader searches in `runpath`, and stays loaded.
///
/// # Errors
/// As [`link_above`].
pub fn link_above_the_core(soname: &str, runpath: &str) -> Result<(), String> {
    link_above("libmpi_abi.so.1", soname, runpath)
}

/// Has the shared library linked under the name `soname`, so that it needs the library `needed`,
/// which the loader searches in `runpath`, and stays loaded.
///
/// The need is written even if no symbol is linked. An empty library stands in for `needed`, which
/// need not be built yet.
///
/// # Errors
/// The C compiler is missing or cannot make a shared library.
pub fn link_above(needed: &str, soname: &str, runpath: &str) -> Result<(), String> {
    link(needed, soname, runpath, "--enable-new-dtags")
}

fn link(needed: &str, soname: &str, runpath: &str, tags: &str) -> Result<(), String> {
    let stub = empty_library(&out_dir()?, needed)?;
    for argument in [
        format!("-Wl,-soname,{soname}"),
        "-Wl,-z,nodelete".into(),
        format!("-Wl,-rpath,{runpath},{tags}"),
        format!("-Wl,--no-as-needed,{},--as-needed", stub.display()),
    ] {
        println!("cargo:rustc-cdylib-link-arg={argument}");
    }
    Ok(())
}

/// Has a library of entry points for another ABI linked under the name `soname`, for
/// `PREFIX/lib/foreign`.
///
/// # Errors
/// As [`link_above_the_core`].
pub fn link_entry_points(soname: &str) -> Result<(), String> {
    // No code of the library unwinds. Whatever of the unwinder is referred to comes into it: to
    // load another library takes each rank a tenth of a millisecond.
    println!("cargo:rustc-link-lib=dylib:+verbatim=libgcc_eh.a");
    // Not a RUNPATH: scripts may name an MPI with a library of this name in LD_LIBRARY_PATH.
    link(
        "libmpi_abi.so.1",
        soname,
        "$ORIGIN/..",
        "--disable-new-dtags",
    )
}

/// Makes a shared library without symbols.
fn empty_library(out: &Path, soname: &str) -> Result<PathBuf, String> {
    let (library, source) = (out.join(soname), out.join("empty.c"));
    fs::write(&source, "").map_err(|error| format!("empty.c: {error}"))?;
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args(["-shared", "-nostdlib"])
        .arg(format!("-Wl,-soname,{soname}"))
        .arg("-o")
        .args([&library, &source])
        .status()
        .map_err(|error| format!("{compiler}: {error}"))?;
    match status.success() {
        true => Ok(library),
        false => Err(format!("{compiler} cannot make a shared library")),
    }
}
