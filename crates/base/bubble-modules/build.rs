//! Gives the crate a checksum of the sources that declare what crosses the border of a scheduler's
//! module.

#[path = "../plugin/source_checksum.rs"]
mod source_checksum;

fn main() {
    // Crates whose types and traits a module and its process share, and this one.
    let shared = ["../bubbles/src", "../topology/src", "../plugin/src", "src"];
    source_checksum::set("BUBBLE_SOURCES", &shared);
}
