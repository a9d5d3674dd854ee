//! Recordings of a job that has ended: the last events of its ranks, and the memory of its newest
//! world.
//!
//! Owned by the command, whose launcher hands it the files of ranks and worlds where a job ends
//! badly. All that is read was written by processes that are gone: it is copied and bounded.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

use garonne_engine::observe::post_mortem::{self, AREA_BYTES, RecordedEvents};
use garonne_sync::shm::{MapAccess, Segment};

use garonne_job::error::Result;
use garonne_job::layout::{self, WaitInfo, WorldShape};
use garonne_job::program_map;
use garonne_links::memory_file;

/// The last `most` events of a rank, from its area's file; `None`: it is no such file.
pub fn read(file: &OwnedFd, most: usize) -> Option<RecordedEvents> {
    let file = File::from(file.try_clone().ok()?);
    if file.metadata().ok()?.len() < AREA_BYTES as u64 {
        return None;
    }
    let mut bytes = vec![0; AREA_BYTES];
    file.read_exact_at(&mut bytes, 0).ok()?;
    post_mortem::read(&bytes, most)
}

/// The memory of a world after its end: what its ranks were doing last.
#[derive(Debug)]
pub struct FlightRecording {
    file: OwnedFd,
    shape: WorldShape,
    world_memory: Segment,
}

impl FlightRecording {
    /// Opens the memory file of a world.
    ///
    /// # Errors
    /// It is none, or cannot be mapped.
    pub fn open(file: OwnedFd) -> Result<Self> {
        let (shape, world_memory) = memory_file::open(file.as_fd(), MapAccess::Read)?;
        Ok(Self {
            file,
            shape,
            world_memory,
        })
    }

    /// The world.
    pub fn shape(&self) -> &WorldShape {
        &self.shape
    }

    /// Returns what a rank waited for, if it did.
    pub fn wait(&self, rank: u32) -> Option<WaitInfo> {
        let card = layout::RankBlock::of(&self.world_memory, rank);
        card.wait().filter(|wait| wait.since_ns != 0)
    }

    /// The latest calls of a rank's threads: return address, and the number of the call if it was
    /// told.
    pub fn latest(&self, rank: u32) -> Vec<(u64, Option<u16>)> {
        layout::last_calls::latest_call(&self.world_memory, &self.shape, rank)
    }

    /// Returns where the objects of a rank's process were mapped, as in a `maps` file; empty if it
    /// did not say.
    pub fn objects(&self, rank: u32) -> String {
        let at = self.shape.trace_offset(rank);
        let notes = memory_file::map(
            self.file.as_fd(),
            at,
            layout::NOTES_BYTES as u64,
            MapAccess::Read,
        );
        notes.map_or_else(|_| String::new(), |notes| program_map::read(&notes).objects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_sync::post_mortem::PostMortemArea;

    #[test]
    fn only_an_area_of_this_format_is_read() {
        let (_area, file) =
            PostMortemArea::new(&post_mortem::header(), &post_mortem::slots()).unwrap();
        assert_eq!(read(&file, 9), Some(RecordedEvents::default()));
        let (_area, file) = PostMortemArea::new(b"another", &post_mortem::slots()).unwrap();
        assert_eq!(read(&file, 9), None);
        let (_area, file) = PostMortemArea::new(&post_mortem::header(), &[]).unwrap();
        assert_eq!(read(&file, 9), None, "it is too short");
    }
}
