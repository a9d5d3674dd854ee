//! Gives the crate a checksum of the sources that declare what crosses the border of a transport
//! module.

#[path = "../../base/plugin/source_checksum.rs"]
mod source_checksum;

fn main() {
    // Crates whose types and traits a module and its process share, and this one.
    let shared = [
        "../../base/sync/src",
        "../../base/plugin/src",
        "../engine/src",
        "src",
    ];
    source_checksum::set("TRANSPORT_SOURCES", &shared);
}
