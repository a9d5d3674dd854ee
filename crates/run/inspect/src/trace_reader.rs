//! The reader of a job's traces: asks the ranks of a world to record, and reads what
//! they recorded, also of those that are gone.
//!
//! Owned by the launcher or a tool of the same user, which holds the world's memory file and so
//! keeps its last records. All that is read here was written by other processes: it is copied,
//! bounded, and decoded to something or nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use garonne_sync::shm::{MapAccess, Segment};
use garonne_sync::trace_ring::TraceRingReader;
use garonne_trace::record::Record;

use garonne_job::error::Result;
use garonne_job::layout::{self, RankBlock, WaitInfo, WorldShape};
use garonne_job::limits;
use garonne_job::program_map;
use garonne_links::memory_file;
use garonne_links::sys;

/// From where on to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFrom {
    /// All that is still there.
    Beginning,
    /// From now on.
    Now,
}

/// The trace of one rank.
#[derive(Debug)]
struct RankTrace {
    area: Segment,
    journal: Segment,
    place: TraceRingReader,
    /// Losses told already.
    told: u64,
}

/// Reads what the ranks of a world record. Keeps the world's memory file, so that the last records
/// of ranks that are gone can be read.
#[derive(Debug)]
pub struct TraceReader {
    shape: WorldShape,
    world_memory: Segment,
    rings: Vec<RankTrace>,
}

impl TraceReader {
    /// Opens the memory file of a world.
    ///
    /// # Errors
    /// It is none, or cannot be mapped.
    pub fn open(file: &OwnedFd, from: ReadFrom) -> Result<Self> {
        let (shape, world_memory) = memory_file::open(file.as_fd(), MapAccess::ReadWrite)?;
        let ring = |rank| {
            let area = memory_file::map(
                file.as_fd(),
                shape.trace_offset(rank),
                layout::TRACE_BYTES,
                MapAccess::Read,
            )?;
            let journal = area.part(layout::NOTES_BYTES, layout::TRACE_RING.bytes());
            let mut place = TraceRingReader::default();
            if from == ReadFrom::Now {
                place.skip_to_end(&journal);
            }
            Ok(RankTrace {
                area,
                journal,
                place,
                told: 0,
            })
        };
        let rings = (0..shape.size).map(ring).collect::<Result<_>>()?;
        Ok(Self {
            shape,
            world_memory,
            rings,
        })
    }

    /// The world.
    pub fn shape(&self) -> &WorldShape {
        &self.shape
    }

    /// Returns whether the job ends before its time.
    pub fn is_ending(&self) -> bool {
        layout::ending(&self.world_memory).load(Relaxed) != 0
    }

    /// Returns the ranks of this host.
    pub fn local_ranks(&self) -> Vec<u32> {
        layout::rank_endpoint::local_ranks(&self.world_memory, &self.shape).collect()
    }

    /// Returns the block of a rank of this host.
    pub fn rank_block(&self, rank: u32) -> RankBlock {
        RankBlock::of(&self.world_memory, rank)
    }

    /// Returns what a rank waits for, with the number and the return address of the call that it is
    /// in; `None` if it does not wait.
    pub fn waits(&self, rank: u32) -> Option<(WaitInfo, u16, u64)> {
        let wait = self
            .rank_block(rank)
            .wait()
            .filter(|wait| wait.since_ns != 0)?;
        // The wait says what was asked for; the program may be in another call, which waits for
        // that.
        let latest = layout::last_calls::latest_call(&self.world_memory, &self.shape, rank);
        let (call, site) = match latest.first() {
            Some(&(site, Some(call))) => (call, site),
            _ => (wait.call as u16, wait.site),
        };
        (call != 0).then_some((wait, call, site))
    }

    /// Has the ranks record until a while from now; to be called again before it is over.
    pub fn ask(&self) {
        let until = sys::monotonic_ns().saturating_add(limits::TRACE_LEASE.as_nanos() as u64);
        layout::trace_until(&self.world_memory).fetch_max(until, AcqRel);
        let word = self.world_memory.atomic_u32(layout::TRACE_WORD);
        // Another value than one that a rank may be about to clear.
        if word.load(Acquire) == 0 {
            let fresh = (sys::monotonic_ns() >> 10) as u32 | 1;
            let _ = word.compare_exchange(0, fresh, AcqRel, Relaxed);
        }
    }

    /// Reads what a rank recorded since the last time. `last` says that it records no more. Returns
    /// how many records were overwritten before they could be read.
    pub fn read(&mut self, rank: u32, last: bool, each: &mut dyn FnMut(Record)) -> u64 {
        let Some(ring) = self.rings.get_mut(rank as usize) else {
            return 0;
        };
        // A writer that is quicker than this reader must not keep it here.
        for _ in 0..layout::TRACE_RING.slots() {
            let Some(words) = ring.place.next(&ring.journal, layout::TRACE_RING, last) else {
                break;
            };
            if let Some(record) = Record::decode(&words) {
                each(record);
            }
        }
        let lost = ring.place.lost - ring.told;
        ring.told = ring.place.lost;
        lost
    }

    /// Returns where the objects of a rank's process are or were mapped, as in a `maps` file; empty
    /// if it did not say.
    pub fn objects(&self, rank: u32) -> String {
        let Some(ring) = self.rings.get(rank as usize) else {
            return String::new();
        };
        program_map::read(&ring.area).objects
    }
}

/// The clock of all records on this host, in nanoseconds.
pub fn now_ns() -> u64 {
    sys::monotonic_ns()
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_job::layout::JobId;
    use garonne_sync::trace_ring;
    use garonne_trace::record::RecordKind;

    fn world() -> OwnedFd {
        let shape = WorldShape {
            job: JobId(3),
            epoch: 0,
            size: 2,
            nodes: 1,
            node: 0,
            hosts_bytes: 0,
            coll_bytes: 4096,
            inbox_bytes: 4096,
            shards: 1,
            cpus_milli: 2000,
            bound: false,
        };
        memory_file::create(&shape).unwrap().0
    }

    fn ring(file: &OwnedFd, rank: u32) -> Segment {
        let (shape, _) = memory_file::open(file.as_fd(), MapAccess::ReadWrite).unwrap();
        let offset = shape.trace_offset(rank);
        memory_file::map(
            file.as_fd(),
            offset,
            layout::TRACE_BYTES,
            MapAccess::ReadWrite,
        )
        .unwrap()
    }

    #[test]
    fn each_rank_is_read_from_its_own_journal_and_what_is_nonsense_is_passed_over() {
        let file = world();
        let mut traced = TraceReader::open(&file, ReadFrom::Beginning).unwrap();
        let area = ring(&file, 1);
        let journal = area.part(layout::NOTES_BYTES, layout::TRACE_RING.bytes());
        trace_ring::write(
            &journal,
            layout::TRACE_RING,
            &Record::new(RecordKind::TurnBegin).encode(),
        );
        trace_ring::write(&journal, layout::TRACE_RING, &[u64::MAX; 7]);
        trace_ring::write(
            &journal,
            layout::TRACE_RING,
            &Record::new(RecordKind::TurnEnd).encode(),
        );
        let mut seen = Vec::new();
        assert_eq!(
            traced.read(0, true, &mut |record| seen.push((0, record.kind))),
            0
        );
        assert_eq!(
            traced.read(1, true, &mut |record| seen.push((1, record.kind))),
            0
        );
        assert_eq!(
            traced.read(2, true, &mut |record| seen.push((2, record.kind))),
            0
        );
        assert_eq!(seen, [(1, RecordKind::TurnBegin), (1, RecordKind::TurnEnd)]);
        assert_eq!(
            TraceReader::open(&file, ReadFrom::Now)
                .unwrap()
                .read(1, true, &mut |_| panic!("nothing new")),
            0
        );
    }

    #[test]
    fn what_was_lost_is_told_once() {
        let file = world();
        let mut traced = TraceReader::open(&file, ReadFrom::Beginning).unwrap();
        let journal = ring(&file, 0).part(layout::NOTES_BYTES, layout::TRACE_RING.bytes());
        for _ in 0..layout::TRACE_RING.slots() + 5 {
            trace_ring::write(
                &journal,
                layout::TRACE_RING,
                &Record::new(RecordKind::TurnEnd).encode(),
            );
        }
        let mut read = 0;
        assert_eq!(traced.read(0, true, &mut |_| read += 1), 5);
        assert_eq!(read, layout::TRACE_RING.slots());
        assert_eq!(traced.read(0, true, &mut |_| panic!("all was read")), 0);
    }

    #[test]
    fn notes_of_any_length_are_read_within_their_room() {
        let file = world();
        let traced = TraceReader::open(&file, ReadFrom::Beginning).unwrap();
        let area = ring(&file, 0);
        area.write(8, "55d0-55d1 r-xp 0 fe:00 11 /halo ü\n".as_bytes());
        for len in [0, 5, 35, layout::NOTES_BYTES as u64, u64::MAX] {
            area.atomic_u64(0).store(len, Relaxed);
            assert!(traced.objects(0).len() <= layout::NOTES_BYTES * 3);
        }
        assert_eq!(traced.objects(2), "");
    }

    #[test]
    fn ranks_are_asked_for_a_while_only() {
        let file = world();
        let traced = TraceReader::open(&file, ReadFrom::Now).unwrap();
        let (_, world_memory) = memory_file::open(file.as_fd(), MapAccess::ReadWrite).unwrap();
        assert_eq!(world_memory.atomic_u32(layout::TRACE_WORD).load(Relaxed), 0);
        traced.ask();
        assert_ne!(world_memory.atomic_u32(layout::TRACE_WORD).load(Relaxed), 0);
        let until = layout::trace_until(&world_memory).load(Relaxed);
        assert!(until > 0 && until < u64::MAX / 2);
    }
}
