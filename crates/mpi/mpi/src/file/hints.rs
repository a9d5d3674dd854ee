//! Hints of files: those that the standard reserves, and those that programs set for ROMIO. What
//! is set is told back; what no file here knows is left out.

use crate::info::Info;
use std::path::Path;

/// Hints that the standard reserves for files (section 14.2.8).
const RESERVED: [&str; 15] = [
    "access_style",
    "cb_block_size",
    "cb_buffer_size",
    "cb_nodes",
    "chunked",
    "chunked_item",
    "chunked_size",
    "collective_buffering",
    "file_perm",
    "io_node_list",
    "nb_proc",
    "num_io_nodes",
    "striping_factor",
    "striping_unit",
    "mpi_assert_memory_alloc_kinds",
];

/// Beginnings of the hints of ROMIO.
const FAMILIES: [&str; 6] = ["romio_", "cb_", "ind_rd_", "ind_wr_", "ds_", "striping_"];

/// Returns whether a value may be taken over.
fn accepts(key: &str, value: &str) -> bool {
    let is_number = || value.trim().parse::<u64>().is_ok();
    match key {
        "cb_block_size" | "cb_buffer_size" | "cb_nodes" | "nb_proc" | "num_io_nodes"
        | "striping_factor" | "striping_unit" | "ind_rd_buffer_size" | "ind_wr_buffer_size" => {
            is_number()
        }
        "collective_buffering" => matches!(value.trim(), "true" | "false"),
        "file_perm" => permissions(value).is_some(),
        _ => true,
    }
}

fn is_known(key: &str) -> bool {
    RESERVED.contains(&key) || FAMILIES.iter().any(|family| key.starts_with(family))
}

/// Returns the hints of `info` that are known and whose values make sense.
pub(super) fn known(info: &Info) -> Info {
    let own = Info::new();
    update(&own, info);
    own
}

/// Takes over the hints of `info` that are known and whose values make sense.
pub(super) fn update(own: &Info, info: &Info) {
    for (key, value) in info.to_pairs() {
        if is_known(&key) && accepts(&key, &value) {
            // Lengths were checked when the pair was set on `info`.
            let _ = own.set(&key, &value);
        }
    }
}

/// Returns a new object with the hints in force and the name of the file.
pub(super) fn told(own: &Info, path: &Path) -> Info {
    let told = own.dup();
    // A name longer than values may be is left out.
    let _ = told.set("filename", &path.to_string_lossy());
    told
}

/// Permissions of a file that is made: an octal number.
fn permissions(value: &str) -> Option<u32> {
    let bits = u32::from_str_radix(value.trim(), 8).ok()?;
    (bits <= 0o7777).then_some(bits)
}

/// Returns the permissions that the hints ask for, before the process's mask.
pub(super) fn permissions_of(info: &Info) -> u32 {
    let said = info.lookup("file_perm");
    said.and_then(|value| permissions(&value)).unwrap_or(0o666)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_hints_are_told_back_and_senseless_values_are_not() {
        let asked = Info::from_pairs([
            ("cb_buffer_size", "1048576"),
            ("cb_nodes", "many"),
            ("romio_ds_write", "disable"),
            ("colour", "blue"),
            ("file_perm", "0640"),
        ]);
        let own = known(&asked);
        let keys: Vec<_> = own.to_pairs().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["cb_buffer_size", "romio_ds_write", "file_perm"]);
        assert_eq!(permissions_of(&own), 0o640);
        let told = told(&own, Path::new("/tmp/x"));
        assert_eq!(told.lookup("filename").as_deref(), Some("/tmp/x"));
    }
}
