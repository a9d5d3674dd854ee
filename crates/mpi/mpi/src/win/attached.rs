//! Memory that members attach to dynamic windows.
//!
//! A member keeps the list of its attached memory, sorted by address, in memory of its own. The
//! control block says where the list is, and how often it changed. Origins read the list by
//! themselves, and read it again only after a change.

use super::setup::{key_of, key_words};
use super::target::{MemberControl, MemberMemory};
use super::{Flavor, Window};
use crate::error::{Class, Result};
use garonne_engine::one_sided::RegionKey;
use garonne_sync::mutex::lock;
use garonne_sync::peer_memory::{self, PeerCopy};
use garonne_sync::user::{Data, Scratch, UserMem};
use garonne_sync::window_control::{self, LIST_KEY_WORDS, WindowControl};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Words of an entry of a list: address, length, key of the region for members on other hosts.
const ENTRY_WORDS: usize = 2 + LIST_KEY_WORDS;
/// Bytes of an entry.
pub(super) const ENTRY: usize = 8 * ENTRY_WORDS;
/// Tries to read a list that its member changes all the time.
const READS: u32 = 10_000;

/// Memory that this process attached to a window.
#[derive(Default)]
pub(super) struct Attachments {
    /// By address: memory, length, and the region for members on other hosts.
    pieces: BTreeMap<u64, (UserMem, u64, Option<RegionKey>)>,
    /// The list that others read, and its region. Lists that were too short live on, since others
    /// may read them.
    lists: Vec<(Scratch, Option<RegionKey>)>,
}

impl Attachments {
    /// Returns memory that was attached over these bytes: one piece, or several that touch each
    /// other, and the address at which the first begins.
    fn find(&self, first: u64, end: u64) -> Option<(UserMem, u64)> {
        let pieces = self.pieces.iter().map(|(at, (_, len, _))| (*at, *len));
        covers(pieces, first, end).then_some(())?;
        let (at, (mem, ..)) = self.pieces.range(..=first).next_back()?;
        Some((*mem, *at))
    }

    /// Returns whether the list that others read has room for all pieces.
    fn has_room(&self) -> bool {
        let room = self.lists.last().map_or(0, |(list, _)| list.len());
        room >= self.pieces.len() * ENTRY && room > 0
    }

    /// Writes the list that others read, which has room. Returns where it is, and its region.
    fn write(&self) -> Option<(u64, Option<RegionKey>)> {
        let (list, key) = self.lists.last()?;
        for (index, (at, (_, len, key))) in self.pieces.iter().enumerate() {
            let words = [*at, *len].into_iter().chain(key_words(key.as_ref()));
            for (word, value) in words.enumerate() {
                let place = (index * ENTRY + 8 * word) as isize;
                list.mem().write_array(place, value.to_ne_bytes());
            }
        }
        Some((list.mem().addr(0) as u64, *key))
    }
}

/// A piece of memory that a peer attached.
#[derive(Clone, Copy)]
pub(super) struct AttachedPiece {
    /// Address of the first byte.
    pub start: u64,
    pub len: u64,
    /// Region, for members on other hosts.
    pub key: Option<RegionKey>,
}

/// A peer's list, as it was read last.
#[derive(Default)]
pub(super) struct AttachedCopy {
    pub version: u64,
    pieces: Arc<[AttachedPiece]>,
}

impl AttachedCopy {
    /// Takes over a list that was read.
    pub(super) fn set(&mut self, version: u64, list: UserMem, entries: usize) {
        let piece = |index: usize| {
            let words: [u64; ENTRY_WORDS] = std::array::from_fn(|word| {
                u64::from_ne_bytes(list.read_array((index * ENTRY + 8 * word) as isize))
            });
            AttachedPiece {
                start: words[0],
                len: words[1],
                key: key_of(&words[2..]),
            }
        };
        self.pieces = (0..entries).map(piece).collect();
        self.version = version;
    }
}

/// Whether pieces, sorted by address, cover these bytes without a gap.
pub(super) fn covers(pieces: impl Iterator<Item = (u64, u64)>, first: u64, end: u64) -> bool {
    let mut next = first;
    for (at, len) in pieces {
        if at > next {
            break;
        }
        next = next.max(at.saturating_add(len));
        if next >= end {
            return true;
        }
    }
    next >= end && first < end && next > first
}

impl Window {
    fn check_dynamic(&self) -> Result<()> {
        if self.0.flavor == Flavor::Dynamic {
            return Ok(());
        }
        let text = "is not dynamic: no memory can be attached or detached";
        Err(self.error(Class::RmaFlavor, text))
    }

    /// `MPI_Win_attach`.
    ///
    /// # Errors
    /// `RmaAttach` for memory that overlaps what is attached, `RmaFlavor`, `Size`, `NoMem`.
    pub fn attach(&self, mem: UserMem, size: i64) -> Result<()> {
        self.check_dynamic()?;
        let Ok(len) = u64::try_from(size) else {
            let text = format!("cannot attach {size} B; the size must not be negative");
            return Err(self.error(Class::Size, text));
        };
        let at = mem.addr(0) as u64;
        let mut own = lock(&self.0.attachments);
        let overlaps = |(other, (_, other_len, _)): (&u64, &(UserMem, u64, _))| {
            *other < at.saturating_add(len) && at < other.saturating_add(*other_len)
        };
        if own.pieces.contains_key(&at) || own.pieces.iter().any(overlaps) {
            let text = format!("has memory attached already among the {len} B at {at:#x}");
            return Err(self.error(Class::RmaAttach, text));
        }
        let key = self.open_region(mem, len)?;
        own.pieces.insert(at, (mem, len, key));
        self.publish(&mut own)
    }

    /// `MPI_Win_detach`.
    ///
    /// # Errors
    /// `RmaAttach` where nothing was attached, `RmaFlavor`.
    pub fn detach(&self, address: usize) -> Result<()> {
        self.check_dynamic()?;
        let mut own = lock(&self.0.attachments);
        let Some((_, _, key)) = own.pieces.remove(&(address as u64)) else {
            let text = format!("has no memory attached at {address:#x}");
            return Err(self.error(Class::RmaAttach, text));
        };
        self.publish(&mut own)?;
        drop(own);
        self.withdraw_region(key)
    }

    fn publish(&self, own: &mut Attachments) -> Result<()> {
        if !own.has_room() {
            let room = (2 * own.pieces.len()).max(64) * ENTRY;
            let list = Scratch::new(room).ok_or_else(|| self.no_room())?;
            let key = self.open_region(list.mem(), room as u64)?;
            own.lists.push((list, key));
        }
        let control = self.own_control();
        control.begin_attached();
        let (address, key) = own.write().unwrap_or_default();
        control.publish_attached(address, own.pieces.len() as u64, &key_words(key.as_ref()));
        Ok(())
    }

    /// Returns the regions of all that is attached, and of the lists.
    pub(super) fn attached_regions(&self) -> Vec<RegionKey> {
        let own = lock(&self.0.attachments);
        let pieces = own.pieces.values().filter_map(|(_, _, key)| *key);
        let lists = own.lists.iter().filter_map(|(_, key)| *key);
        pieces.chain(lists).collect()
    }

    /// Returns memory that this process attached over these bytes, and where it begins.
    pub(super) fn own_attached(&self, first: u64, end: u64) -> Option<(UserMem, u64)> {
        lock(&self.0.attachments).find(first, end)
    }

    /// Returns the memory that a member attached.
    ///
    /// # Errors
    /// `Other` where the member's list cannot be read.
    pub(super) fn pieces_of(&self, rank: u32) -> Result<Arc<[AttachedPiece]>> {
        let member = &self.0.members[rank as usize];
        let MemberMemory::Attached(copy) = &member.memory else {
            return Ok(Arc::default());
        };
        let mut copy = lock(copy);
        match &member.control {
            MemberControl::Mapped(control) => {
                self.read_list(rank, (member.process, control), &mut copy)?;
            }
            MemberControl::OtherHost(region) => self.read_remote_list(region, &mut copy)?,
        }
        Ok(copy.pieces.clone())
    }

    /// Reads the list of a member of this host, if it has another version than the copy.
    fn read_list(
        &self,
        rank: u32,
        (process, control): (u32, &WindowControl),
        copy: &mut AttachedCopy,
    ) -> Result<()> {
        let mut failure = None;
        for _ in 0..READS {
            let Some(list) = control.attached() else {
                std::thread::yield_now();
                continue;
            };
            if list.version == copy.version {
                return Ok(());
            }
            let bytes = usize::try_from(list.entries)
                .ok()
                .and_then(|entries| entries.checked_mul(ENTRY));
            let room = bytes.and_then(Scratch::new);
            let room = room.ok_or_else(|| self.no_room())?;
            let len = room.len() as u64;
            let read = peer_memory::copy(
                process,
                PeerCopy::Read,
                &Data::contiguous(room.mem(), len),
                (
                    &Data::contiguous(window_control::list_memory(&list), len),
                    0,
                ),
            );
            if !control.is_attached(list.version) {
                continue;
            }
            if let Err(error) = read {
                failure = Some(error);
                break;
            }
            copy.set(list.version, room.mem(), list.entries as usize);
        }
        let why = failure.map_or(String::from("changes all the time"), |error| {
            format!("cannot be read: {error}")
        });
        let text = format!("does not know what rank {rank} attached: its list {why}");
        Err(self.error(Class::Other, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_covered_by_one_piece_or_by_several_that_touch() {
        let pieces = [(100, 10), (110, 5), (120, 10), (200, 0)];
        let covered = |first, end| covers(pieces.into_iter(), first, end);
        assert!(covered(100, 110) && covered(105, 115) && covered(120, 130));
        assert!(!covered(99, 101) && !covered(110, 121) && !covered(129, 131));
        assert!(!covered(200, 201) && !covered(0, 1) && !covered(130, 131));
    }
}
