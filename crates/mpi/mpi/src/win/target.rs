//! Where the memory of a member is, and whether an access stays within it.

use super::attached::{AttachedCopy, AttachedPiece, covers};
use super::{Flavor, Window};
use crate::datatype::Datatype;
use crate::error::{Class, Result};
use garonne_engine::api::Peer;
use garonne_engine::one_sided::RegionKey;
use garonne_sync::peer_memory;
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, UserMem};
use garonne_sync::window_control::WindowControl;
use std::sync::{Arc, Mutex};

/// What a member knows of another one, or of itself.
pub(super) struct Member {
    pub size: u64,
    pub disp_unit: u64,
    /// The member's process, as seen from here.
    pub process: u32,
    /// The member is a thread of this process: a rank beside this one.
    pub is_same_process: bool,
    pub control: MemberControl,
    pub memory: MemberMemory,
    /// All of the memory, if this process may load and store it: [`Self::memory`] keeps it mapped.
    pub near: Option<UserMem>,
}

/// How the control block of a member is reached.
pub(super) enum MemberControl {
    /// Mapped here.
    Mapped(WindowControl),
    /// On another host.
    OtherHost(OtherHostRegion),
}

/// A registered region of a member on another host.
#[derive(Clone, Copy)]
pub(super) struct OtherHostRegion {
    pub peer: Peer,
    pub key: RegionKey,
}

/// How the memory of a member is reached.
pub(super) enum MemberMemory {
    /// Mapped here.
    Mapped(Segment),
    /// Memory that this process's program gave.
    Own(UserMem),
    /// Memory that the program of another rank of this process gave.
    SameProcess(UserMem),
    /// At this address of another process.
    Process(u64),
    /// On another host.
    OtherHost(RemotePieces),
    /// Attached to a dynamic window: the list as it was read last.
    Attached(Mutex<AttachedCopy>),
}

/// Elements of a datatype in the memory of a target.
pub(super) struct TargetData {
    pub data: Data,
    /// Address of the first element in [`Self::data`].
    pub mem: UserMem,
    /// Where the bytes are, for the stripes of accumulates.
    pub first: u64,
    pub len: u64,
    pub place: TargetPlace,
}

/// Memory of a member on another host: registered regions, by the addresses for which they stand.
#[derive(Clone)]
pub(super) struct RemotePieces {
    pub peer: Peer,
    pub pieces: Arc<[AttachedPiece]>,
}

/// Where the memory of a target is.
#[derive(Clone)]
pub(super) enum TargetPlace {
    /// This process may load and store it.
    Mapped,
    /// In another process of this host.
    Process(u32),
    /// On another host.
    OtherHost(RemotePieces),
}

/// Bytes that elements reach: from the first, relative to their address, to the end.
fn reach(datatype: &Datatype, count: u64) -> Option<(i128, i128)> {
    if count == 0 || datatype.size() == 0 {
        return None;
    }
    let low = i128::from(datatype.true_lb());
    let high = low + i128::from(datatype.true_extent());
    let span = i128::from(datatype.extent()) * i128::from(count - 1);
    Some((low + span.min(0), high + span.max(0)))
}

impl Window {
    /// Returns `len` bytes at a displacement of a target's memory, which this process may load and
    /// store now, and their offset: the short way of accesses. `None` says nothing.
    #[inline]
    pub fn near(&self, rank: i32, disp: i64, len: u64) -> Option<(UserMem, u64)> {
        if rank < 0 || !self.0.open_to_all.allows_access(rank) {
            return None;
        }
        if !self.0.one_host {
            self.serve_in_turn();
        }
        let member = self.0.members.get(usize::try_from(rank).ok()?)?;
        let mem = member.near?;
        let offset = u64::try_from(disp).ok()?.checked_mul(member.disp_unit)?;
        let end = offset.checked_add(len)?;
        (end <= member.size).then(|| (mem.offset(offset as isize), offset))
    }

    /// Returns the elements at a displacement of a target's memory.
    ///
    /// # Errors
    /// `Disp` for a negative displacement, `RmaRange` for elements that are not within the memory.
    pub(super) fn target_data(
        &self,
        rank: u32,
        disp: i64,
        count: u64,
        datatype: &Datatype,
    ) -> Result<TargetData> {
        let member = &self.0.members[rank as usize];
        let reach = reach(datatype, count);
        if self.0.flavor == Flavor::Dynamic {
            return self.attached_data(rank, disp, (count, datatype), reach);
        }
        if disp < 0 {
            let text = format!("got displacement {disp}; it must not be negative");
            return Err(self.error(Class::Disp, text));
        }
        let offset = i128::from(disp) * i128::from(member.disp_unit);
        let (low, high) = reach.map_or((offset, offset), |(low, high)| {
            (offset + low, offset + high)
        });
        if reach.is_some() && (low < 0 || high > i128::from(member.size)) {
            let text = format!(
                "has {} B at rank {rank}; the access is to bytes {low} to {high} there",
                member.size
            );
            return Err(self.error(Class::RmaRange, text));
        }
        let offset = offset as isize;
        let (mem, place) = match &member.memory {
            MemberMemory::Mapped(part) => {
                (part.mem(0, part.len()).offset(offset), TargetPlace::Mapped)
            }
            MemberMemory::Own(mem) | MemberMemory::SameProcess(mem) => {
                (mem.offset(offset), TargetPlace::Mapped)
            }
            MemberMemory::Process(address) => (
                UserMem::null().offset(*address as isize).offset(offset),
                TargetPlace::Process(member.process),
            ),
            MemberMemory::OtherHost(region) => (
                UserMem::null().offset(offset),
                TargetPlace::OtherHost(region.clone()),
            ),
            MemberMemory::Attached(_) => return Err(self.no_memory_at(rank, disp)),
        };
        Ok(TargetData {
            data: datatype.data(mem, count)?,
            mem,
            first: low as u64,
            len: (high - low) as u64,
            place,
        })
    }

    /// Does so in a dynamic window, where displacements are addresses.
    fn attached_data(
        &self,
        rank: u32,
        disp: i64,
        (count, datatype): (u64, &Datatype),
        reach: Option<(i128, i128)>,
    ) -> Result<TargetData> {
        // Addresses above the half of 64 bits are negative displacements.
        let at = i128::from(disp as u64);
        let Some((low, high)) = reach.map(|(low, high)| (at + low, at + high)) else {
            return Ok(TargetData {
                data: Data::empty(),
                mem: UserMem::null(),
                first: 0,
                len: 0,
                place: TargetPlace::Mapped,
            });
        };
        let (first, end) = match (u64::try_from(low), u64::try_from(high)) {
            (Ok(first), Ok(end)) => (first, end),
            _ => return Err(self.no_memory_at(rank, disp)),
        };
        let member = &self.0.members[rank as usize];
        let (mem, place) = if rank == self.rank() {
            let found = self.own_attached(first, end);
            let mem =
                found.map(|(mem, start)| mem.offset((disp as u64).wrapping_sub(start) as isize));
            (mem, TargetPlace::Mapped)
        } else {
            let pieces = self.pieces_of(rank)?;
            let attached = pieces.iter().map(|piece| (piece.start, piece.len));
            let mem = covers(attached, first, end).then(|| match member.is_same_process {
                true => peer_memory::of_this_process(disp as u64),
                false => UserMem::null().offset(disp as isize),
            });
            let place = match &member.control {
                MemberControl::Mapped(_) if member.is_same_process => TargetPlace::Mapped,
                MemberControl::Mapped(_) => TargetPlace::Process(member.process),
                MemberControl::OtherHost(region) => TargetPlace::OtherHost(RemotePieces {
                    peer: region.peer,
                    pieces,
                }),
            };
            (mem, place)
        };
        let mem = mem.ok_or_else(|| self.no_memory_at(rank, disp))?;
        Ok(TargetData {
            data: datatype.data(mem, count)?,
            mem,
            first,
            len: end - first,
            place,
        })
    }

    #[cold]
    fn no_memory_at(&self, rank: u32, disp: i64) -> crate::error::Error {
        let text = format!("has no attached memory of rank {rank} for an access at {disp:#x}");
        self.error(Class::RmaRange, text)
    }

    /// `MPI_Win_shared_query`: size, unit of displacements and address of a member's memory.
    /// `None` for `rank` is `MPI_PROC_NULL`: the first member that has memory.
    ///
    /// # Errors
    /// `RmaFlavor` for dynamic windows, `Rank`.
    pub fn shared_query(&self, rank: i32) -> Result<(u64, u64, usize)> {
        if self.0.flavor == Flavor::Dynamic {
            let text = "is dynamic: none of its memory can be asked for";
            return Err(self.error(Class::RmaFlavor, text));
        }
        let member = match self.target(rank)? {
            Some(rank) => Some(&self.0.members[rank as usize]),
            None => self.0.members.iter().find(|member| member.size > 0),
        };
        let Some(member) = member else {
            return Ok((0, 1, 0));
        };
        Ok(match &member.memory {
            // Nobody needs the place of a part that lies between no others.
            MemberMemory::Mapped(_) if member.size == 0 && !self.0.contiguous => {
                (0, member.disp_unit, 0)
            }
            MemberMemory::Mapped(part) => (
                member.size,
                member.disp_unit,
                part.ptr(0, 0).expose_provenance(),
            ),
            MemberMemory::Own(mem) | MemberMemory::SameProcess(mem) => {
                (member.size, member.disp_unit, mem.addr(0))
            }
            // Not shared with this process, which size 0 says.
            MemberMemory::Process(_) | MemberMemory::OtherHost(_) | MemberMemory::Attached(_) => {
                (0, 0, 0)
            }
        })
    }

    /// The member that `rank` names; `None` for `MPI_PROC_NULL`.
    ///
    /// # Errors
    /// `Rank`.
    pub(super) fn target(&self, rank: i32) -> Result<Option<u32>> {
        match u32::try_from(rank) {
            Ok(rank) if rank < self.size() => Ok(Some(rank)),
            _ if rank == crate::PROC_NULL => Ok(None),
            _ => {
                let text = format!("has no rank {rank}: it has {} members", self.size());
                Err(self.error(Class::Rank, text))
            }
        }
    }
}
