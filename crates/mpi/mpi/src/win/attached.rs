//! Memory that members attach to dynamic windows.
//!
//! A member keeps the list of its attached memory, sorted by address, in memory of its own. The
//! control block says where the list is, and how often it changed. Origins read the list by
//! themselves, and read it again only after a change.

use super::target::{MemberControl, MemberMemory};
use super::{Flavor, Window};
use crate::error::{Class, Result};
use garonne_sync::mutex::lock;
use garonne_sync::peer_memory::{self, PeerCopy};
use garonne_sync::user::{Data, Scratch, UserMem};
use garonne_sync::window_control;
use std::collections::BTreeMap;

/// Bytes of an entry of a list: address and length.
const ENTRY: usize = 16;
/// Tries to read a list that its member changes all the time.
const READS: u32 = 10_000;

/// Memory that this process attached to a window.
#[derive(Default)]
pub(super) struct Attachments {
    /// By address: memory and length.
    pieces: BTreeMap<u64, (UserMem, u64)>,
    /// The list that others read. Lists that were too short live on, since others may read them.
    lists: Vec<Scratch>,
}

impl Attachments {
    /// Returns memory that was attached over these bytes: one piece, or several that touch each
    /// other, and the address at which the first begins.
    fn find(&self, first: u64, end: u64) -> Option<(UserMem, u64)> {
        let pieces = self.pieces.iter().map(|(at, (_, len))| (*at, *len));
        covers(pieces, first, end).then_some(())?;
        let (at, (mem, _)) = self.pieces.range(..=first).next_back()?;
        Some((*mem, *at))
    }

    /// Writes the list that others read, and returns where it is.
    fn write(&mut self) -> Option<(u64, u64)> {
        let entries = self.pieces.len();
        if self.lists.last().map_or(0, Scratch::len) < entries * ENTRY {
            let room = (2 * entries).max(64) * ENTRY;
            self.lists.push(Scratch::new(room)?);
        }
        let list = self.lists.last()?.mem();
        for (index, (at, (_, len))) in self.pieces.iter().enumerate() {
            let place = (index * ENTRY) as isize;
            list.write_array(place, at.to_ne_bytes());
            list.write_array(place + 8, len.to_ne_bytes());
        }
        Some((list.addr(0) as u64, entries as u64))
    }
}

/// A peer's list, as it was read last.
#[derive(Default)]
pub(super) struct AttachedCopy {
    version: u64,
    pieces: Vec<(u64, u64)>,
}

/// Whether pieces, sorted by address, cover these bytes without a gap.
fn covers(pieces: impl Iterator<Item = (u64, u64)>, first: u64, end: u64) -> bool {
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
        let overlaps = |(other, (_, other_len)): (&u64, &(UserMem, u64))| {
            *other < at.saturating_add(len) && at < other.saturating_add(*other_len)
        };
        if own.pieces.contains_key(&at) || own.pieces.iter().any(overlaps) {
            let text = format!("has memory attached already among the {len} B at {at:#x}");
            return Err(self.error(Class::RmaAttach, text));
        }
        own.pieces.insert(at, (mem, len));
        self.publish(&mut own)
    }

    /// `MPI_Win_detach`.
    ///
    /// # Errors
    /// `RmaAttach` where nothing was attached, `RmaFlavor`.
    pub fn detach(&self, address: usize) -> Result<()> {
        self.check_dynamic()?;
        let mut own = lock(&self.0.attachments);
        if own.pieces.remove(&(address as u64)).is_none() {
            let text = format!("has no memory attached at {address:#x}");
            return Err(self.error(Class::RmaAttach, text));
        }
        self.publish(&mut own)
    }

    fn publish(&self, own: &mut Attachments) -> Result<()> {
        let control = self.own_control();
        control.begin_attached();
        let written = own.write();
        let (address, entries) = written.unwrap_or_default();
        control.publish_attached(address, entries);
        let text = "has no memory left for the list of what is attached";
        written
            .map(drop)
            .ok_or_else(|| self.error(Class::NoMem, text))
    }

    /// Returns memory that this process attached over these bytes, and where it begins.
    pub(super) fn own_attached(&self, first: u64, end: u64) -> Option<(UserMem, u64)> {
        lock(&self.0.attachments).find(first, end)
    }

    /// Returns whether a member attached these bytes.
    ///
    /// # Errors
    /// `Other` where the member's memory cannot be read.
    pub(super) fn peer_attaches(&self, rank: u32, first: u64, end: u64) -> Result<bool> {
        let member = &self.0.members[rank as usize];
        let (MemberMemory::Attached(copy), MemberControl::Mapped(control)) =
            (&member.memory, &member.control)
        else {
            return Ok(false);
        };
        let mut copy = lock(copy);
        let mut failure = None;
        for _ in 0..READS {
            let Some(list) = control.attached() else {
                std::thread::yield_now();
                continue;
            };
            if list.version == copy.version {
                return Ok(covers(copy.pieces.iter().copied(), first, end));
            }
            let bytes = usize::try_from(list.entries)
                .ok()
                .and_then(|entries| entries.checked_mul(ENTRY));
            let room = bytes.and_then(Scratch::new);
            let Some(room) = room else {
                return Err(self.error(Class::NoMem, "has no memory left for a list"));
            };
            let len = room.len() as u64;
            let read = peer_memory::copy(
                member.process,
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
            let word = |at: usize| u64::from_ne_bytes(room.mem().read_array(at as isize));
            copy.pieces = (0..list.entries as usize)
                .map(|index| (word(index * ENTRY), word(index * ENTRY + 8)))
                .collect();
            copy.version = list.version;
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
