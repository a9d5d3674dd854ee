//! Accesses to members on other hosts, by the engine's one-sided calls.
//!
//! Control blocks and memory are registered regions. Each access waits until it is done at the
//! target, so that a flush has nothing to wait for.

use super::Window;
use super::attached::{AttachedCopy, ENTRY};
use super::setup::key_of;
use super::target::{MemberControl, OtherHostRegion, RemotePieces};
use crate::error::{Class, Error, Result};
use garonne_engine::api::{self, Peer, StartOutcome};
use garonne_engine::one_sided::{
    AccessRights, AtomicArgs, AtomicOp, AtomicType, RegionKey, RegionMemory, SwapArgs,
};
use garonne_progress::messaging::{Messaging, RegionCall, WaitTarget};
use garonne_sync::peer_memory::PeerCopy;
use garonne_sync::user::{Data, Packed, Scratch, UserMem};
use garonne_sync::window_control::{LIST_KEY_WORDS, TicketWord, WindowControl};
use garonne_sync::window_lock::LockMode;
use garonne_sync::window_stripes::{self, StripeGuard};
use std::sync::atomic::Ordering;

/// Bytes that are gathered for the blocks of one batch of accesses.
const BATCH_BYTES: u64 = 64 << 10;
/// Blocks of one batch: each batch is a round trip. The engine bounds how many are on their way.
const BATCH_BLOCKS: usize = 1024;
/// Blocks are read together with the gaps between them if both have at most so many times the
/// bytes of the blocks: bytes are cheaper than accesses.
const GAPS_READ: u64 = 8;

/// Accesses to memory near this process of which one carries requests of other hosts out.
const SERVE_EVERY: u32 = 16;

/// Stripes of a target that are held, wherever the target is.
pub(super) enum HeldStripes<'a> {
    Mapped {
        _guard: StripeGuard<'a>,
    },
    OtherHost {
        window: &'a Window,
        region: OtherHostRegion,
        stripes: u64,
    },
}

impl Drop for HeldStripes<'_> {
    fn drop(&mut self) {
        if let Self::OtherHost {
            window,
            region,
            stripes,
        } = self
        {
            // A target that is gone needs its stripes no more.
            let _ = window.give_stripes_back(region, *stripes);
        }
    }
}

/// Returns the numbers of the bits that are set, in ascending order.
fn bits(mut rest: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let index = (rest != 0).then(|| rest.trailing_zeros())?;
        rest &= rest - 1;
        Some(index)
    })
}

/// Returns those of the taken stripes before the first one that is wanted and was not free.
fn stripes_in_order(wanted: u64, taken: u64) -> u64 {
    let missing = wanted & !taken;
    let before = match missing {
        0 => u64::MAX,
        _ => (1 << missing.trailing_zeros()) - 1,
    };
    taken & before
}

/// Waits for the end of an operation.
fn finish(host: &dyn Messaging, started: StartOutcome) -> std::result::Result<(), api::Error> {
    let request = match started {
        StartOutcome::Done(status) => return status.error.map_or(Ok(()), Err),
        StartOutcome::Pending(request) => request,
    };
    let mut ended = None;
    host.wait_for(&|| WaitTarget::Operation(request), &mut || {
        if ended.is_none() {
            ended = host.take(request).transpose();
        }
        ended.is_some()
    });
    match ended {
        Some(Ok(status)) => status.error.map_or(Ok(()), Err),
        Some(Err(error)) => Err(error),
        None => Ok(()),
    }
}

impl Window {
    fn host(&self) -> &dyn Messaging {
        &*self.comm().process().host
    }

    /// Carries out what members on other hosts have asked of this process.
    pub(super) fn serve_other_hosts(&self) {
        if !self.0.one_host {
            self.host().progress();
        }
    }

    /// Does so at some of the accesses to members near this process, which need nobody else: a
    /// process that only makes such calls would keep members on other hosts waiting for ever.
    #[cold]
    pub(super) fn serve_in_turn(&self) {
        let accesses = self.0.near_accesses.fetch_add(1, Ordering::Relaxed);
        if accesses.is_multiple_of(SERVE_EVERY) {
            self.serve_other_hosts();
        }
    }

    #[cold]
    fn region_error(&self, error: api::Error) -> Error {
        let error = self.comm().process().convert(error);
        let text = format!("cannot access memory on another host: {}", error.detail);
        self.error(error.class, text)
    }

    #[cold]
    fn access_error(&self, peer: Peer, error: api::Error) -> Error {
        let error = self.comm().process().convert(error);
        let text = match self.group().rank_of(peer) {
            Some(rank) => format!("cannot access memory of rank {rank}: {}", error.detail),
            None => error.detail,
        };
        self.error(error.class, text)
    }

    fn call_region(&self, region: &OtherHostRegion, call: RegionCall) -> Result<()> {
        let host = self.host();
        host.access_region(region.peer, &region.key, call)
            .and_then(|started| finish(host, started))
            .map_err(|error| self.access_error(region.peer, error))
    }

    /// Ends the registration of memory, and waits until nobody accesses it any more.
    pub(super) fn close_regions(&self) -> Result<()> {
        let host = self.host();
        let attached = self.attached_regions();
        self.0
            .regions
            .iter()
            .chain(&attached)
            .try_for_each(|key| self.close_region(host, key))
    }

    fn close_region(&self, host: &dyn Messaging, key: &RegionKey) -> Result<()> {
        host.deregister_region(key)
            .and_then(|started| finish(host, started))
            .map_err(|error| self.region_error(error))
    }

    /// Opens memory of this process to members on other hosts; `None` where there are none.
    ///
    /// # Errors
    /// `NoMem`, `Other`.
    pub(super) fn open_region(&self, mem: UserMem, len: u64) -> Result<Option<RegionKey>> {
        if self.0.one_host || len == 0 {
            return Ok(None);
        }
        let memory = RegionMemory {
            mem,
            len,
            rights: AccessRights::ALL,
        };
        let key = self.host().register_region(memory);
        key.map(Some).map_err(|error| self.region_error(error))
    }

    /// Ends what [`Self::open_region`] began.
    pub(super) fn withdraw_region(&self, key: Option<RegionKey>) -> Result<()> {
        key.map_or(Ok(()), |key| self.close_region(self.host(), &key))
    }

    /// Changes a word of a control block on another host, and returns its old value.
    fn update_word(
        &self,
        region: &OtherHostRegion,
        (offset, kind): (u64, AtomicType),
        op: AtomicOp,
        operand: u64,
    ) -> Result<u64> {
        let room = Scratch::new(32).ok_or_else(|| self.no_room())?;
        room.mem().write_array(0, operand.to_ne_bytes());
        let args = AtomicArgs {
            offset,
            kind,
            op,
            operands: Data::contiguous(room.mem(), kind.size() as u64),
            result: Some(room.mem().offset(16)),
        };
        self.call_region(region, RegionCall::Atomic(args))?;
        Ok(u64::from_ne_bytes(room.mem().read_array(16)))
    }

    /// Adds 1 to a counter in a member's control block, which `here` does if the block is mapped.
    pub(super) fn count_up(
        &self,
        rank: u32,
        here: impl FnOnce(&WindowControl),
        (offset, kind): (usize, AtomicType),
    ) -> Result<()> {
        match &self.0.members[rank as usize].control {
            MemberControl::Mapped(control) => {
                here(control);
                self.ring(rank);
                Ok(())
            }
            MemberControl::OtherHost(region) => {
                let word = (offset as u64, kind);
                self.update_word(region, word, AtomicOp::Sum, 1).map(drop)
            }
        }
    }

    /// Adds to a word of the lock for members on several hosts, and returns its old value.
    fn add_ticket(&self, rank: u32, word: TicketWord, more: u64) -> Result<u64> {
        match &self.0.members[rank as usize].control {
            // What holders before wrote, and what this one did. SYNC(window-lock).
            MemberControl::Mapped(control) => {
                Ok(control.ticket(word).fetch_add(more, Ordering::AcqRel))
            }
            MemberControl::OtherHost(region) => {
                let place = (word.offset() as u64, AtomicType::U64);
                self.update_word(region, place, AtomicOp::Sum, more)
            }
        }
    }

    /// Takes the lock of a member of a window on several hosts.
    pub(super) fn acquire_by_ticket(&self, rank: u32, mode: LockMode) -> Result<()> {
        let ticket = self.add_ticket(rank, TicketWord::Drawn, 1)?;
        let awaited = match mode {
            LockMode::Exclusive => TicketWord::Written,
            LockMode::Shared => TicketWord::Read,
        };
        while self.add_ticket(rank, awaited, 0)? != ticket {
            // Tickets do not tell who holds the lock.
            if let Some(dead) = self.dead_members().first() {
                let text = format!(
                    "has lost rank {dead}, which may have died with the lock of rank {rank}"
                );
                return Err(self.error(Class::ProcFailed, text));
            }
            self.host().progress();
            std::thread::yield_now();
        }
        match mode {
            LockMode::Exclusive => Ok(()),
            LockMode::Shared => self.add_ticket(rank, TicketWord::Read, 1).map(drop),
        }
    }

    /// Gives the lock of a member of a window on several hosts up.
    pub(super) fn release_by_ticket(&self, rank: u32, mode: LockMode) -> Result<()> {
        if mode == LockMode::Exclusive {
            self.add_ticket(rank, TicketWord::Read, 1)?;
        }
        self.add_ticket(rank, TicketWord::Written, 1).map(drop)
    }

    /// Takes the stripes of these bytes of a member's memory.
    #[inline]
    pub(super) fn hold_stripes(&self, rank: u32, at: u64, len: u64) -> Result<HeldStripes<'_>> {
        let stripes = WindowControl::stripes_of(at, len);
        match &self.0.members[rank as usize].control {
            MemberControl::Mapped(control) => {
                // A holder on another host may need this process to serve it.
                let goes_on = |holder: u32| {
                    self.serve_other_hosts();
                    !self.dead_members().contains(&holder)
                };
                let locked =
                    window_stripes::lock_stripes(control.stripes(), self.rank(), stripes, goes_on);
                let _guard = locked.map_err(|holder| self.dead_accumulate(holder, rank))?;
                Ok(HeldStripes::Mapped { _guard })
            }
            MemberControl::OtherHost(region) => self.hold_remote_stripes(rank, *region, stripes),
        }
    }

    #[cold]
    fn dead_accumulate(&self, holder: u32, target: u32) -> Error {
        let text = format!(
            "has lost rank {holder}, which died while it accumulated at rank {target}: what it left there is unknown"
        );
        self.error(Class::ProcFailed, text)
    }

    fn hold_remote_stripes(
        &self,
        rank: u32,
        region: OtherHostRegion,
        stripes: u64,
    ) -> Result<HeldStripes<'_>> {
        let mut held = HeldStripes::OtherHost {
            window: self,
            region,
            stripes: 0,
        };
        let mut wanted = stripes;
        while wanted != 0 {
            let (taken, holder) = self.try_stripes(&region, wanted)?;
            let kept = stripes_in_order(wanted, taken);
            if let HeldStripes::OtherHost { stripes, .. } = &mut held {
                *stripes |= kept;
            }
            wanted &= !kept;
            // Nobody waits for a stripe while it holds a later one.
            self.give_stripes_back(&region, taken & !kept)?;
            if let Some(holder) = holder {
                if self.dead_members().contains(&holder) {
                    return Err(self.dead_accumulate(holder, rank));
                }
                self.host().progress();
                std::thread::yield_now();
            }
        }
        Ok(held)
    }

    /// Asks for stripes, given as bits, in one round trip. Returns those that were free, and the
    /// member that holds the first of the others.
    fn try_stripes(&self, region: &OtherHostRegion, wanted: u64) -> Result<(u64, Option<u32>)> {
        let room = Scratch::new(8 * 64).ok_or_else(|| self.no_room())?;
        let place = |index: u32| room.mem().offset(8 * index as isize);
        let swaps = bits(wanted).map(|index| {
            place(index).write_array(0, (self.rank() + 1).to_ne_bytes());
            // Unless the target says so, the stripe is not this process's.
            place(index).write_array(4, u32::MAX.to_ne_bytes());
            RegionCall::Swap(SwapArgs {
                offset: WindowControl::stripe_offset(index) as u64,
                kind: AtomicType::U32,
                compare: 0,
                value: place(index),
                result: place(index).offset(4),
            })
        });
        let called = self.call_region_often(region, swaps);
        let found = |index: u32| u32::from_ne_bytes(place(index).read_array(4));
        let taken = bits(wanted)
            .filter(|index| found(*index) == 0)
            .fold(0, |all, index| all | 1 << index);
        if called.is_err() {
            // What went wrong first is what the program is told.
            let _ = self.give_stripes_back(region, taken);
        }
        let missing = bits(wanted & !taken).next();
        called.map(|()| (taken, missing.map(|index| found(index).saturating_sub(1))))
    }

    /// Gives stripes back, in one round trip.
    fn give_stripes_back(&self, region: &OtherHostRegion, stripes: u64) -> Result<()> {
        if stripes == 0 {
            return Ok(());
        }
        let room = Scratch::new(16).ok_or_else(|| self.no_room())?;
        room.mem().write_array(0, 0u64.to_ne_bytes());
        let calls = bits(stripes).map(|index| {
            RegionCall::Atomic(AtomicArgs {
                offset: WindowControl::stripe_offset(index) as u64,
                kind: AtomicType::U32,
                op: AtomicOp::Replace,
                operands: Data::contiguous(room.mem(), 4),
                result: None,
            })
        });
        self.call_region_often(region, calls)
    }

    /// Begins all calls before it waits for the first one. After an error it waits for the others.
    fn call_region_often(
        &self,
        region: &OtherHostRegion,
        calls: impl Iterator<Item = RegionCall>,
    ) -> Result<()> {
        let (host, mut open, mut outcome) = (self.host(), Vec::new(), Ok(()));
        for call in calls {
            match host.access_region(region.peer, &region.key, call) {
                Ok(started) => open.push(started),
                Err(error) => {
                    outcome = Err(self.access_error(region.peer, error));
                    break;
                }
            }
        }
        for started in open {
            let ended =
                finish(host, started).map_err(|error| self.access_error(region.peer, error));
            outcome = outcome.and(ended);
        }
        outcome
    }

    /// Copies between `here` and the packed bytes of `there` from `from` on, whose addresses the
    /// pieces stand for.
    pub(super) fn copy_remote(
        &self,
        remote: &RemotePieces,
        direction: PeerCopy,
        here: &Data,
        (there, from): (&Data, u64),
    ) -> Result<()> {
        let len = here.len.min(there.len.saturating_sub(from));
        if let (None, true) = (&there.layout, here.len == len && len > 0) {
            let address = there.mem.addr(from as isize) as u64;
            let (region, offset, room) = self.locate(remote, address)?;
            if len <= room {
                return self.call_region(&region, region_call(direction, offset, here.clone()));
            }
        }
        let room = Scratch::new(len.min(BATCH_BYTES) as usize).ok_or_else(|| self.no_room())?;
        let (mut done, mut blocks) = (0, Vec::with_capacity(BATCH_BLOCKS));
        while done < len {
            blocks.clear();
            let batch = (len - done).min(BATCH_BYTES);
            let covered = match &there.layout {
                Some(layout) => layout.blocks(from + done, batch, BATCH_BLOCKS, &mut blocks),
                None => {
                    blocks.push(((from + done) as isize, batch as usize));
                    batch
                }
            };
            let packed = Packed::new(room.mem(), covered as usize);
            if direction == PeerCopy::Write {
                here.pack_to(done, packed);
            }
            let addressed = blocks
                .iter()
                .map(|(offset, len)| (there.mem.addr(*offset) as u64, *len as u64));
            if direction == PeerCopy::Write
                || !self.read_with_gaps(remote, room.mem(), addressed.clone())?
            {
                self.copy_blocks(remote, direction, room.mem(), addressed)?;
            }
            if direction == PeerCopy::Read {
                here.unpack_from(done, packed);
            }
            done += covered;
        }
        Ok(())
    }

    /// Reads blocks, given by address and length, by one access that reads the gaps between them,
    /// too. `false`: the gaps are too wide or are not in the same region.
    fn read_with_gaps(
        &self,
        remote: &RemotePieces,
        packed: UserMem,
        blocks: impl Iterator<Item = (u64, u64)> + Clone,
    ) -> Result<bool> {
        let ends = |(address, len): (u64, u64)| address.saturating_add(len);
        let first = blocks.clone().map(|(address, _)| address).min();
        let end = blocks.clone().map(ends).max();
        let wanted: u64 = blocks.clone().map(|(_, len)| len).sum();
        let (Some(first), Some(end)) = (first, end) else {
            return Ok(true);
        };
        let span = end.saturating_sub(first);
        if blocks.clone().nth(1).is_none() || span > wanted.saturating_mul(GAPS_READ) {
            return Ok(false);
        }
        let (region, offset, room) = self.locate(remote, first)?;
        if span > room {
            return Ok(false);
        }
        let Some(read) = Scratch::new(span as usize) else {
            return Ok(false);
        };
        let data = Data::contiguous(read.mem(), span);
        self.call_region(&region, RegionCall::Get { offset, data })?;
        let mut at = 0;
        for (address, len) in blocks {
            packed.copy_from(at, read.mem(), (address - first) as isize, len as usize);
            at += len as isize;
        }
        Ok(true)
    }

    /// Copies blocks, given by address and length, from or to memory where they lie back to back.
    fn copy_blocks(
        &self,
        remote: &RemotePieces,
        direction: PeerCopy,
        packed: UserMem,
        blocks: impl Iterator<Item = (u64, u64)>,
    ) -> Result<()> {
        let (host, mut at, mut open) = (self.host(), 0, Vec::with_capacity(BATCH_BLOCKS));
        let mut outcome = Ok(());
        for (mut address, mut rest) in blocks {
            // A block may lie in several pieces that touch each other.
            while rest > 0 && outcome.is_ok() {
                match self.locate(remote, address) {
                    Ok((region, offset, room)) => {
                        let len = rest.min(room);
                        let data = Data::contiguous(packed.offset(at as isize), len);
                        let call = region_call(direction, offset, data);
                        match host.access_region(region.peer, &region.key, call) {
                            Ok(started) => open.push(started),
                            Err(error) => outcome = Err(self.access_error(region.peer, error)),
                        }
                        (address, rest, at) = (address + len, rest - len, at + len);
                    }
                    Err(error) => outcome = Err(error),
                }
            }
        }
        // All of them: they use the buffer.
        for started in open {
            let ended =
                finish(host, started).map_err(|error| self.access_error(remote.peer, error));
            outcome = outcome.and(ended);
        }
        outcome
    }

    /// Returns the region of an address, the offset in it, and the bytes from there to its end.
    fn locate(&self, remote: &RemotePieces, address: u64) -> Result<(OtherHostRegion, u64, u64)> {
        let found = remote.pieces.iter().find_map(|piece| {
            let offset = address.checked_sub(piece.start)?;
            let room = piece.len.checked_sub(offset).filter(|room| *room > 0)?;
            let region = OtherHostRegion {
                peer: remote.peer,
                key: piece.key?,
            };
            Some((region, offset, room))
        });
        let text = "has no registered memory for an access to another host";
        found.ok_or_else(|| self.error(Class::RmaRange, text))
    }

    /// Reads the list of memory that a member on another host attached, if it has another version
    /// than the copy.
    pub(super) fn read_remote_list(
        &self,
        region: &OtherHostRegion,
        copy: &mut AttachedCopy,
    ) -> Result<()> {
        const WORDS: usize = 3 + LIST_KEY_WORDS;
        let offset = WindowControl::attached_offset() as u64;
        let place = Scratch::new(8 * WORDS).ok_or_else(|| self.no_room())?;
        loop {
            let data = Data::contiguous(place.mem(), 8 * WORDS as u64);
            self.call_region(region, RegionCall::Get { offset, data })?;
            let words: [u64; WORDS] = std::array::from_fn(|index| {
                u64::from_ne_bytes(place.mem().read_array(8 * index as isize))
            });
            let (version, entries) = (words[0], words[2]);
            if version == copy.version {
                return Ok(());
            }
            let list = key_of(&words[3..]).filter(|_| version.is_multiple_of(2));
            if let Some(key) = list {
                let len = usize::try_from(entries).unwrap_or(0).saturating_mul(ENTRY);
                let room = Scratch::new(len).ok_or_else(|| self.no_room())?;
                let list = OtherHostRegion { key, ..*region };
                if len > 0 {
                    let data = Data::contiguous(room.mem(), len as u64);
                    self.call_region(&list, RegionCall::Get { offset: 0, data })?;
                }
                let word = (offset, AtomicType::U64);
                if self.update_word(region, word, AtomicOp::NoOp, 0)? == version {
                    copy.set(version, room.mem(), entries as usize);
                    return Ok(());
                }
            }
            self.host().progress();
            std::thread::yield_now();
        }
    }
}

fn region_call(direction: PeerCopy, offset: u64, data: Data) -> RegionCall {
    match direction {
        PeerCopy::Read => RegionCall::Get { offset, data },
        PeerCopy::Write => RegionCall::Put { offset, data },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_behind_a_missing_one_are_not_kept() {
        assert_eq!(bits(0b1010_0001).collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(bits(u64::MAX).count(), 64);
        for (wanted, taken, kept) in [
            (0b111, 0b111, 0b111),
            (0b111, 0b110, 0),
            (0b111, 0b101, 0b001),
            (0b1010, 0b0010, 0b0010),
            (u64::MAX, u64::MAX, u64::MAX),
            (u64::MAX, u64::MAX >> 1, u64::MAX >> 1),
            (u64::MAX, 0, 0),
        ] {
            assert_eq!(
                stripes_in_order(wanted, taken),
                kept,
                "{wanted:b} {taken:b}"
            );
        }
    }
}
