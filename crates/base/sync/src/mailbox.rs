//! Rings in shared segments: the [`Producer`] of a writer and the [`Consumer`] of the reader, over
//! the algorithm of `ring`.
//!
//! The shared-memory transport uses them. They own pointers into the segment, which are computed
//! and checked once. What a peer wrote is copied out and validated. A record that no correct writer
//! makes is reported as [`Consumed::Broken`].

mod segment;

pub use crate::ring::{INLINE_MAX, RecordClass, RingFull, RingGeometry, UNIT};
pub use segment::{CONTROL_BYTES, RANK_BLOCK_BYTES, RingLayout};

use crate::copy::{self, StoreKind, copy_mem_with};
use crate::facade::Ordering;
use crate::ring::{Claim, NextSlot, RingKind, RingMemory, RingReader, RingWriter, rounds_to};
use crate::shm;
use crate::slot_batch::{NextRecord, SlotBatch};
use crate::user::UserMem;
use segment::{RingSegment, SlotAddress, header_at, put_at};
use std::io::{Error, ErrorKind, Result};
use std::sync::Arc;

/// One writer's end of a ring in a peer's inbox.
#[derive(Debug)]
pub struct Producer {
    writer: RingWriter<RingSegment>,
    /// The slot batch of a lane, once one was asked for.
    run: Option<Arc<SlotBatch>>,
    /// The run was opened since the writer last looked what it took.
    running: bool,
}

/// Units of a lane that are used where copies need not fetch what they overwrite: then its length
/// makes no difference, and fewer pages have to be touched.
const ENOUGH_UNITS: u32 = 8192;

/// Units that the writer of a lane of `units` uses. The reader computes the same number; only its
/// measurements depend on that.
fn most_of(units: u32) -> u32 {
    match copy::needs_no_old_lines() {
        true => units.min(ENOUGH_UNITS),
        false => units,
    }
}

/// A claimed record. Give it back to the producer it came from.
#[derive(Clone, Copy, Debug)]
#[must_use = "a claim that is never published blocks the ring"]
pub struct ClaimedRecord {
    claim: Claim,
    /// Place where the payload goes. Valid while the producer lives.
    pub mem: UserMem,
    /// Bytes of room there.
    pub len: usize,
}

impl Producer {
    /// The mailbox end of writer `me`.
    pub fn mailbox(shm: &shm::Segment, place: RingLayout, me: u16) -> Result<Self> {
        if me >= place.writers {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                "a writer without a card",
            ));
        }
        Ok(Self::new(RingWriter::new(
            RingSegment::new(shm, place)?,
            me,
            RingKind::Mailbox,
        )))
    }

    /// The end of the only writer of a lane, which is empty.
    pub fn lane(shm: &shm::Segment, place: RingLayout, me: u16) -> Result<Self> {
        let mut writer = RingWriter::new(RingSegment::new(shm, place)?, me, RingKind::Lane);
        writer.fill_at_most(most_of(place.geometry.units));
        Ok(Self::new(writer))
    }

    fn new(writer: RingWriter<RingSegment>) -> Self {
        Self {
            writer,
            run: None,
            running: false,
        }
    }

    /// The run of this lane, which rings `bell`.
    pub fn run(&mut self, bell: &shm::SharedWord) -> Arc<SlotBatch> {
        let memory = &self.writer.memory;
        let run = self.run.get_or_insert_with(|| {
            Arc::new(SlotBatch::new(
                bell.clone(),
                memory.slot(0),
                memory.mapping.clone(),
            ))
        });
        run.clone()
    }

    /// Opens the run for as many records as there are free slots in a row, at most `records`: how
    /// many.
    pub fn open_run(&mut self, records: u32) -> u32 {
        self.close_run();
        let Some(run) = &self.run else { return 0 };
        let records = run.cursor.open(&mut self.writer, records);
        self.running = records > 0;
        records
    }

    /// Goes on behind what the run took. Before anything else is claimed.
    #[inline(always)]
    fn close_run(&mut self) {
        if self.running {
            self.end_run();
        }
    }

    #[inline(never)]
    fn end_run(&mut self) {
        self.running = false;
        if let Some(run) = &self.run {
            run.cursor.end(&mut self.writer);
        }
    }

    /// The most payload of one record: a quarter of the area.
    pub fn payload_max(geometry: &RingGeometry) -> usize {
        geometry.units as usize / 4 * UNIT
    }

    /// Sends `len` bytes at `bytes` (at most [`Producer::payload_max`]) behind `header`, written by
    /// these stores.
    #[inline(always)]
    pub fn send(
        &mut self,
        header: [u64; 3],
        bytes: UserMem,
        len: usize,
        stores: StoreKind,
    ) -> std::result::Result<(), RingFull> {
        let claimed = self.claim(len, RecordClass::Data)?;
        copy_mem_with(stores, claimed.mem, bytes, len.min(claimed.len));
        self.commit(claimed, header, stores);
        Ok(())
    }

    /// Sends a record whose bytes share the slot with the header, if they can and this is a lane
    /// that has room at first glance. `false`: nothing happened; [`Producer::send`] tries harder.
    #[inline(always)]
    pub fn send_inline(&mut self, header: [u64; 3], bytes: UserMem, len: usize) -> bool {
        if len > INLINE_MAX {
            return false;
        }
        self.close_run();
        let Some(claim) = self.writer.claim_slot() else {
            return false;
        };
        let stamp = self.writer.stamp_word(claim, 0);
        // The slot is looked up once for all that is written to it.
        let at = self.writer.memory.at(claim.slot);
        put_at(at, header, None);
        RingSegment::inline_room(at).copy_from(0, bytes, 0, len);
        // Release, as in `RingWriter::stamp`. SYNC(ring-stamp).
        self.writer.memory.stamp(at).store(stamp, Ordering::Release);
        true
    }

    /// Returns whether this is a lane with room for `records` records of up to `each` bytes: then
    /// so many claims of data succeed.
    pub fn has_room(&mut self, records: usize, each: usize) -> bool {
        self.close_run();
        self.writer
            .has_space(records as u32, each.div_ceil(UNIT) as u32)
    }

    /// Claims room for `len` bytes (at most [`Producer::payload_max`]).
    #[inline]
    pub fn claim(
        &mut self,
        len: usize,
        priority: RecordClass,
    ) -> std::result::Result<ClaimedRecord, RingFull> {
        self.close_run();
        let units = if len <= INLINE_MAX {
            0
        } else {
            len.div_ceil(UNIT) as u32
        };
        let claim = self.writer.claim(units, priority)?;
        let (mem, len) = self.writer.memory.room(claim);
        Ok(ClaimedRecord { claim, mem, len })
    }

    /// Publishes a claimed record, which these stores wrote.
    #[inline]
    pub fn commit(&mut self, claimed: ClaimedRecord, header: [u64; 3], stores: StoreKind) {
        self.writer.publish(claimed.claim, header, stores);
    }

    /// Publishes a claimed record as empty: the reader passes over it.
    pub fn abandon(&mut self, claimed: ClaimedRecord) {
        self.writer.publish_void(claimed.claim);
    }

    /// The ring's position behind everything this writer has claimed in it.
    pub fn position(&self) -> u32 {
        self.writer.last()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // Others may hold the run, and the slots are no longer looked after.
        self.close_run();
    }
}

/// Result of a consumer's look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumed {
    /// Nothing there.
    Empty,
    /// A record was shown and its room given back.
    Record,
    /// A void record was passed over.
    Void,
    /// A record that no honest writer makes was passed over; this writer is named in it.
    Broken(u16),
}

/// The reader's end of a ring in its own inbox.
#[derive(Debug)]
pub struct Consumer {
    reader: RingReader<RingSegment>,
    starving: bool,
    /// Payload lines of the last record that shared no slot, at most [`FETCHED_LINES`]: the next is
    /// likely to be such a one.
    lines: u32,
    /// The only writer of a lane.
    writer: u16,
    ready: NextRecord<SlotAddress>,
}

/// Payload lines that a waiting reader keeps an eye on, so that they come together with the slot
/// and not after it. Few, since a line looked at while it is written travels twice.
const FETCHED_LINES: u32 = 4;

/// Payloads of so many lines are still being written when their first lines are looked at: those
/// would travel twice for nothing.
const LONG_LINES: u32 = 2048 / UNIT as u32;

/// A record as it lies there.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    /// The writer it names. As untrusted as everything else here.
    pub writer: u16,
    /// The header's words.
    pub header: [u64; 3],
    /// The payload; valid during the call, writable by the peer.
    pub payload: UserMem,
    /// Bytes that may be read there.
    pub room: usize,
    /// Way in which its writer says that it wrote the payload.
    pub stores: StoreKind,
}

impl Consumer {
    /// The reader of a ring. One per ring.
    pub fn new(shm: &shm::Segment, place: RingLayout) -> Result<Self> {
        Self::of_lane(shm, place, 0)
    }

    /// The reader of a lane, whose only writer is `writer`.
    pub fn of_lane(shm: &shm::Segment, place: RingLayout, writer: u16) -> Result<Self> {
        let reader = RingReader::new(RingSegment::new(shm, place)?);
        let ready = NextRecord::of(&reader, writer);
        Ok(Self {
            reader,
            starving: false,
            lines: 0,
            writer,
            ready,
        })
    }

    /// To be called whenever the reader moved.
    #[inline]
    fn follow(&mut self) {
        self.ready = NextRecord::of(&self.reader, self.writer);
    }

    /// Returns whether nothing was published at the next slot a moment ago.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.reader.is_empty()
    }

    /// The writer named by the next record, without taking it.
    #[inline(always)]
    pub fn next_writer(&self) -> Option<u16> {
        match self.reader.look() {
            NextSlot::Record(found) => Some(found.writer),
            _ => None,
        }
    }

    /// Fetches the slot `ahead` places beyond the next one into this core's cache, for a reader
    /// that is behind its writer.
    #[inline(always)]
    pub fn fetch_ahead(&self, ahead: u32) {
        let slot = self.reader.head_slot().wrapping_add(ahead);
        crate::copy::prefetch(self.reader.memory.slot(slot));
    }

    /// Slots taken so far, wrapping.
    pub fn position(&self) -> u32 {
        self.reader.head_slot()
    }

    /// Returns whether payloads have filled all that this lane's writer uses of the area once, so
    /// that nobody touches its memory for the first time any more. Asked anew after 2^32 units.
    pub fn has_been_round(&self) -> bool {
        let units = self.reader.memory.geometry().units;
        self.reader.next_unit() / units >= rounds_to(most_of(units))
    }

    /// The next record of a lane, if its payload shares its slot; it stays until
    /// [`Consumer::pass`]. A look that finds none also fetches where the next payload beside a slot
    /// may lie.
    #[inline(always)]
    pub fn peek(&self) -> Option<Record> {
        let Some(at) = self.ready.peek(&self.reader.memory) else {
            self.fetch_payload();
            return None;
        };
        Some(Record {
            writer: self.writer,
            header: header_at(at),
            payload: RingSegment::inline_room(at),
            room: INLINE_MAX,
            stores: StoreKind::Cached,
        })
    }

    /// Gives the room of the record back that [`Consumer::peek`] just showed. `true`: writers wait
    /// for room and are to be rung.
    #[inline(always)]
    pub fn pass(&mut self) -> bool {
        self.lines = 0;
        self.ready.pass(&mut self.reader, self.writer)
    }

    /// Shows the next record to `show` and gives its room back.
    #[inline(always)]
    pub fn take(&mut self, show: impl FnOnce(Record)) -> Consumed {
        let found = match self.reader.look() {
            NextSlot::Empty => {
                self.fetch_payload();
                return Consumed::Empty;
            }
            NextSlot::Broken(writer) => {
                self.starving |= self.reader.pass_over();
                self.follow();
                return Consumed::Broken(writer);
            }
            NextSlot::Record(found) => found,
        };
        if !found.void {
            let header = [found.words[0], found.words[1], found.words[2]];
            let (payload, room) = match found.area {
                Some((unit, units)) => {
                    let at = self.reader.memory.area.wrapping_add(unit as usize * UNIT);
                    // SAFETY: `look` checked that unit and units lie within the area.
                    (unsafe { UserMem::new(at) }, units as usize * UNIT)
                }
                None => (RingSegment::inline_room(found.at), INLINE_MAX),
            };
            show(Record {
                writer: found.writer,
                header,
                payload,
                room,
                stores: found.stores,
            });
        }
        self.lines = match found.area {
            Some((_, units)) if units < LONG_LINES => units.min(FETCHED_LINES),
            _ => 0,
        };
        self.starving |= self.reader.release(&found);
        if self.ready.step::<RingSegment>() {
            self.follow();
        }
        if found.void {
            Consumed::Void
        } else {
            Consumed::Record
        }
    }

    /// Fetches the lines where the next payload will lie if it does not share its slot. To be
    /// called while waiting: the writer takes them away when it writes, and this brings them back.
    #[inline(always)]
    fn fetch_payload(&self) {
        for line in 0..self.lines {
            let unit = self.reader.next_unit().wrapping_add(line)
                & (self.reader.memory.geometry().units - 1);
            crate::copy::prefetch(self.reader.memory.area.wrapping_add(unit as usize * UNIT));
        }
    }

    /// Tells the writers how far the reader is; for a poll that found nothing (more).
    #[inline(always)]
    pub fn idle(&mut self) {
        self.starving |= self.reader.publish_idle();
    }

    /// Returns whether writers wait for room that is there now: ring them. Asking clears it.
    #[inline(always)]
    pub fn take_starving(&mut self) -> bool {
        std::mem::take(&mut self.starving)
    }

    /// Passes over the next slot if a writer that is `gone` claimed it and died before publishing.
    pub fn skip_gone(&mut self, gone: &mut dyn FnMut(u16) -> bool) -> bool {
        let skipped = self.reader.skip_gone(gone);
        self.follow();
        skipped
    }
}

#[cfg(test)]
#[path = "mailbox_tests.rs"]
mod tests;
