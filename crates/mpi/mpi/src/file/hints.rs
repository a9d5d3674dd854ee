//! Hints of files: those that the standard reserves, and those that programs set for ROMIO. What
//! is set is told back; what no file here knows is left out.

use super::plan::Buffering;
use super::transfer::{Direction, Sieving};
use crate::info::Info;
use std::path::Path;

/// Bytes that a writer of a collective access stages at once, unless a hint says otherwise.
const WINDOW_BYTES: u64 = 4 << 20;
/// Sizes of windows that are taken over.
const WINDOW_RANGE: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

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

/// What hints say about collective accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CollectiveHints {
    /// `cb_buffer_size`.
    pub window_bytes: u64,
    /// `cb_nodes`.
    pub writers_max: Option<u32>,
    /// `romio_cb_read` or `romio_cb_write`, and `collective_buffering` where these are not set.
    pub buffering: Buffering,
}

impl CollectiveHints {
    /// What the hints say for one direction.
    pub fn of(info: &Info, direction: Direction) -> Self {
        let asked = |key| info.lookup(key).and_then(|value| number(&value));
        let own = info.lookup(key_of(direction));
        let both = info.lookup("collective_buffering");
        let buffering = match (own.and_then(|value| buffering_of(&value)), both.as_deref()) {
            (Some(own), _) => own,
            (None, Some(value)) if value.trim() == "false" => Buffering::Disable,
            _ => Buffering::Automatic,
        };
        Self {
            window_bytes: asked("cb_buffer_size").unwrap_or(WINDOW_BYTES),
            writers_max: asked("cb_nodes").and_then(|writers| u32::try_from(writers).ok()),
            buffering,
        }
    }

    /// Words of hints that are sent.
    pub const WORDS: usize = 3;

    /// Returns the hints as words.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        let writers = self.writers_max.unwrap_or(0).into();
        [self.window_bytes, writers, self.buffering as u64]
    }

    /// The hints of words that another process sent.
    pub fn from_words([window, writers, buffering]: [u64; Self::WORDS]) -> Self {
        let known = [Buffering::Automatic, Buffering::Enable, Buffering::Disable];
        let said = known.into_iter().find(|known| *known as u64 == buffering);
        Self {
            window_bytes: window.clamp(*WINDOW_RANGE.start(), *WINDOW_RANGE.end()),
            writers_max: u32::try_from(writers).ok().filter(|writers| *writers > 0),
            buffering: said.unwrap_or_default(),
        }
    }
}

/// Bytes that are read or written over gaps at once, unless a hint says otherwise.
const SIEVE_BYTES: u64 = 1 << 20;

/// What hints say about gaps in the file. `reads`: the file may be read.
pub(super) fn sieving(info: &Info, reads: bool) -> Sieving {
    let word = |key| info.lookup(key).and_then(|value| buffering_of(&value));
    let bytes = |key| info.lookup(key).and_then(|value| number(&value));
    Sieving {
        reads: word("romio_ds_read") != Some(Buffering::Disable),
        read_bytes: bytes("ind_rd_buffer_size").unwrap_or(SIEVE_BYTES),
        writes: reads && word("romio_ds_write") == Some(Buffering::Enable),
        write_bytes: bytes("ind_wr_buffer_size").unwrap_or(SIEVE_BYTES),
    }
}

fn key_of(direction: Direction) -> &'static str {
    match direction {
        Direction::Read => "romio_cb_read",
        Direction::Write => "romio_cb_write",
    }
}

fn number(value: &str) -> Option<u64> {
    value.trim().parse().ok()
}

fn buffering_of(value: &str) -> Option<Buffering> {
    match value.trim() {
        "automatic" => Some(Buffering::Automatic),
        "enable" => Some(Buffering::Enable),
        "disable" => Some(Buffering::Disable),
        _ => None,
    }
}

fn buffering_name(buffering: Buffering) -> &'static str {
    match buffering {
        Buffering::Automatic => "automatic",
        Buffering::Enable => "enable",
        Buffering::Disable => "disable",
    }
}

/// Returns whether a value may be taken over.
fn accepts(key: &str, value: &str) -> bool {
    let is_number = || number(value).is_some();
    match key {
        "cb_buffer_size" | "ind_rd_buffer_size" | "ind_wr_buffer_size" => {
            number(value).is_some_and(|bytes| WINDOW_RANGE.contains(&bytes))
        }
        "cb_nodes" => number(value).is_some_and(|writers| (1..1 << 31).contains(&writers)),
        "romio_cb_read" | "romio_cb_write" | "romio_ds_read" | "romio_ds_write" => {
            buffering_of(value).is_some()
        }
        "cb_block_size" | "nb_proc" | "num_io_nodes" | "striping_factor" | "striping_unit" => {
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
    for direction in [Direction::Read, Direction::Write] {
        let hints = CollectiveHints::of(own, direction);
        // Keys and values are short.
        let _ = told.set("cb_buffer_size", &hints.window_bytes.to_string());
        let _ = told.set(key_of(direction), buffering_name(hints.buffering));
    }
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
        assert_eq!(told.lookup("cb_buffer_size").as_deref(), Some("1048576"));
        assert_eq!(told.lookup("romio_cb_write").as_deref(), Some("automatic"));
    }

    #[test]
    fn hints_of_collective_accesses_are_alike_where_they_are_sent() {
        let asked = Info::from_pairs([
            ("cb_nodes", "3"),
            ("romio_cb_write", "enable"),
            ("collective_buffering", "false"),
        ]);
        let own = known(&asked);
        let [write, read] = [Direction::Write, Direction::Read]
            .map(|direction| CollectiveHints::of(&own, direction));
        assert_eq!(
            (write.buffering, read.buffering),
            (Buffering::Enable, Buffering::Disable)
        );
        assert_eq!(
            (write.window_bytes, write.writers_max),
            (WINDOW_BYTES, Some(3))
        );
        for hints in [write, read] {
            assert_eq!(CollectiveHints::from_words(hints.to_words()), hints);
        }
    }
}
