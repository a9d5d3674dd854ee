//! Long blocks read from where they lie: their owners expose them, and each reader copies once.
//!
//! In the first epoch all show what they expose. After it all read, and in the second epoch they
//! say that they have. Memory is exposed only during the call, and owners stay in the call as long.
//! Where the system refuses a read that it allowed before, all learn it in the second epoch, and
//! lanes serve. A member that cannot expose its blocks (they are in place, or in too many pieces)
//! shows that, and lanes serve for all.

use super::pieces;
use crate::coll::comm_segment::Attachment;
use crate::coll::shm_sync::ShmSync;
use crate::error::{self, Class, Result};
use crate::limits::coll as limit;
use garonne_engine::api::Error;
use garonne_engine::transport::{BulkToken, BulkTransfer, RegionDescriptor};
use garonne_sync::shm_barrier::CELL_BYTES;
use garonne_sync::user::{Data, UserMem};
use std::sync::atomic::Ordering;

/// Memory that a member offers for direct reads.
pub(super) enum ReadOffer {
    /// Data that others may read.
    Lend(Data),
    /// Data that changes during the call, so others must not read it.
    InPlace,
}

/// A part of another member's memory, and where its copy goes.
pub(super) struct ReadRequest {
    pub from: u32,
    pub offset: u64,
    pub into: Data,
}

/// An offer as members show it to each other.
pub(super) enum OfferRecord {
    /// Lanes must serve.
    Refused,
    Lent {
        len: u64,
        descriptor: RegionDescriptor,
    },
}

/// State, length of the blob, bytes lent, cookie, blob.
pub(super) const SHOWN_BYTES: usize = 64;
const BLOB_AT: usize = 24;
/// Two of them are shown at once where results are lent as well.
const _: () = assert!(2 * SHOWN_BYTES <= CELL_BYTES);

/// Way in which a member's reading went, as it says it to the others.
const READ: u8 = 1;
const REFUSED: u8 = 2;
const FAILED: u8 = 3;

/// The outcomes of the reads of the other members.
pub(super) struct ReadOutcomes {
    /// One of those that met an error.
    pub failed: Option<u32>,
    /// The system refused some.
    pub refused: bool,
}

/// The system's number for memory that is not there.
const EFAULT: i32 = 14;

/// Memory of this process that others may read, until this is dropped.
pub(super) struct ExposedRegion<'a> {
    sync: &'a ShmSync<'a>,
    name: BulkToken,
    pub record: OfferRecord,
}

impl<'a> ExposedRegion<'a> {
    /// Lends what is offered; `index` tells the lendings of one collective apart. One collective of
    /// a communicator is under way at a time.
    pub fn new(sync: &'a ShmSync<'a>, index: u64, offer: &ReadOffer) -> Self {
        let name: BulkToken = 1 << 63 | index << 62 | u64::from(sync.comm.context());
        let descriptor = match offer {
            ReadOffer::InPlace => None,
            ReadOffer::Lend(data) => sync
                .comm
                .process()
                .host
                .expose(name, data)
                .map(|descriptor| (data.len, descriptor)),
        };
        let shown = descriptor.map_or(OfferRecord::Refused, |(len, descriptor)| {
            OfferRecord::Lent { len, descriptor }
        });
        Self {
            sync,
            name,
            record: shown,
        }
    }
}

impl Drop for ExposedRegion<'_> {
    fn drop(&mut self) {
        if !self.record.is_refused() {
            self.sync.comm.process().host.revoke(self.name);
        }
    }
}

impl OfferRecord {
    pub fn is_refused(&self) -> bool {
        matches!(self, OfferRecord::Refused)
    }

    pub fn write(&self, cell: UserMem) {
        let mut bytes = [0; SHOWN_BYTES];
        match self {
            OfferRecord::Refused => {}
            OfferRecord::Lent { len, descriptor } => {
                let blob = descriptor.blob();
                // A blob of another transport that is too long is none that this node's processes
                // can read.
                if let Some(place) = bytes[BLOB_AT..].get_mut(..blob.len()) {
                    place.copy_from_slice(blob);
                    bytes[0] = 1;
                    bytes[1] = blob.len() as u8;
                    bytes[8..16].copy_from_slice(&len.to_ne_bytes());
                    bytes[16..24].copy_from_slice(&descriptor.cookie.to_ne_bytes());
                }
            }
        }
        cell.write(0, &bytes);
    }

    pub fn read(cell: UserMem) -> Self {
        let mut bytes = [0; SHOWN_BYTES];
        cell.read(0, &mut bytes);
        let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|index| bytes[at + index]));
        let blob = bytes[BLOB_AT..].get(..usize::from(bytes[1]));
        match (
            bytes[0],
            blob.and_then(|blob| RegionDescriptor::new(word(16), blob)),
        ) {
            (1, Some(descriptor)) => OfferRecord::Lent {
                len: word(8),
                descriptor,
            },
            _ => OfferRecord::Refused,
        }
    }
}

/// One call whose members read each other's memory.
///
/// Owned by the call. Either [`DirectTransfer::read_directly`] or
/// [`DirectTransfer::reduce_directly`] is called, once.
pub(super) struct DirectTransfer<'a> {
    pub(super) sync: &'a ShmSync<'a>,
    pub(super) attachment: &'a Attachment,
}

impl DirectTransfer<'_> {
    pub(super) fn next_epoch(&self) -> u32 {
        self.sync.next_epoch_with_lanes()
    }

    pub(super) fn barrier(&self, epoch: u32) -> Result<()> {
        self.sync.barrier(epoch, || {})
    }

    /// Lends what is offered, reads from the others what is wanted, and does `meanwhile`. `false`:
    /// lanes must serve, and nothing was moved.
    ///
    /// # Errors
    /// `NotSame` as every meeting; what reading met, after all have met again.
    pub(super) fn read_directly(
        &self,
        offer: &ReadOffer,
        wanted: &mut dyn Iterator<Item = ReadRequest>,
        meanwhile: impl FnOnce(),
    ) -> Result<bool> {
        let lending = ExposedRegion::new(self.sync, 0, offer);
        // All have said that they read what they wanted, or nobody reads, when the lending ends.
        self.read_exposed(&lending.record, wanted, meanwhile)
    }

    fn read_exposed(
        &self,
        own: &OfferRecord,
        wanted: &mut dyn Iterator<Item = ReadRequest>,
        meanwhile: impl FnOnce(),
    ) -> Result<bool> {
        let (board, epoch) = (&self.attachment.segment, self.next_epoch());
        own.write(board.cell(self.attachment.me, epoch));
        self.barrier(epoch)?;
        let refuses = |member| OfferRecord::read(board.cell(member, epoch)).is_refused();
        if (0..board.members()).any(refuses) {
            return Ok(false);
        }
        // An error must not keep the others waiting in the next meeting.
        let mut outcome = Ok(true);
        for wanted in wanted {
            match self.read_one(&OfferRecord::read(board.cell(wanted.from, epoch)), &wanted) {
                Ok(all) => outcome = outcome.map(|before| before && all),
                Err(error) => outcome = Err(error),
            }
        }
        self.finish_reads(outcome, meanwhile)
    }

    /// Says how the own reading went (`false`: the system refused it), and learns how that of the
    /// others did. `false`: lanes must serve, for this call and all that follow.
    ///
    /// # Errors
    /// The own one; that reading was refused here, if another's failed: who has an error does not
    /// come to lanes.
    pub(super) fn finish_reads(&self, own: Result<bool>, meanwhile: impl FnOnce()) -> Result<bool> {
        let said = self.exchange_outcomes(&own, meanwhile)?;
        let all = own?;
        match (all, said.failed) {
            (false, Some(_)) => Err(self.sync.comm.error(
                Class::Other,
                "the system refused to read another process's memory",
            )),
            (true, Some(_)) => Ok(true),
            (true, None) if !said.refused => Ok(true),
            (_, None) => {
                self.attachment
                    .reading_refused
                    .store(true, Ordering::Relaxed);
                Ok(false)
            }
        }
    }

    /// Says how the own reading went (`false`: the system refused it), and hears how that of the
    /// others did.
    ///
    /// # Errors
    /// `NotSame` as every meeting.
    pub(super) fn exchange_outcomes(
        &self,
        own: &Result<bool>,
        meanwhile: impl FnOnce(),
    ) -> Result<ReadOutcomes> {
        let (board, epoch) = (&self.attachment.segment, self.next_epoch());
        let state = match own {
            Ok(true) => READ,
            Ok(false) => REFUSED,
            Err(_) => FAILED,
        };
        board.cell(self.attachment.me, epoch).write(0, &[state]);
        self.sync.barrier_with(epoch, || {}, meanwhile)?;
        let says = |member| {
            let mut said = [0];
            board.cell(member, epoch).read(0, &mut said);
            said[0]
        };
        let mut others = self.attachment.others();
        Ok(ReadOutcomes {
            failed: others.find(|&member| !matches!(says(member), READ | REFUSED)),
            refused: self
                .attachment
                .others()
                .any(|member| says(member) == REFUSED),
        })
    }

    /// `false`: the system does not let this process read it.
    pub(super) fn read_one(&self, shown: &OfferRecord, wanted: &ReadRequest) -> Result<bool> {
        let OfferRecord::Lent { len, descriptor } = shown else {
            return Ok(true);
        };
        let comm = self.sync.comm;
        let peer = comm.group().peer(wanted.from).ok_or_else(|| {
            error::Error::new(Class::Intern, format!("no process is rank {}", wanted.from))
        })?;
        let there = len.saturating_sub(wanted.offset);
        for (at, len) in pieces(wanted.into.len.min(there), limit::DIRECT_PIECE) {
            let bulk = BulkTransfer {
                token: 0,
                peer,
                descriptor,
                offset: wanted.offset + at,
                local: &wanted.into,
                local_offset: at,
                len,
            };
            match comm.process().host.read_exposed(bulk) {
                Ok(()) => {}
                Err(Error::Resource(_)) => return Ok(false),
                // Memory that is not there is somebody's mistake, and lanes would not find it
                // either.
                Err(Error::System { errno, .. }) if errno != EFAULT => return Ok(false),
                Err(error) => return Err(comm.convert(error)),
            }
        }
        Ok(true)
    }
}
