//! Tells the crate by which compiler it is built, for which target, and with which flags.

use std::process::Command;

fn main() {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| String::from("rustc"));
    let said = Command::new(rustc).arg("-V").output();
    let version = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    let version = version.expect("the compiler says its version");
    let target = std::env::var("TARGET").expect("cargo names the target");
    println!("cargo::rustc-env=PLUGIN_COMPILER={version} for {target}");
    println!("cargo::rerun-if-env-changed=RUSTC");
    println!("cargo::rerun-if-changed=build.rs");
}
