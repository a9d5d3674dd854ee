//! What a rank records for readers after its death, from the rank to the launcher: the area that
//! its last events lie in.
//!
//! A rank makes the area when it joins its job and hands the descriptor to its agent, which keeps
//! it while the job runs. Where the job ends badly the agent hands those of its host to the
//! launcher ([`crate::launcher::LauncherEvent`]).

use garonne_job::settings::ENV_RECORD;
use garonne_job::settings::record::is_wanted;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use garonne_engine::observe::post_mortem::{self, AREA_BYTES, RecordedEvents};
use garonne_sync::post_mortem::PostMortemArea;
use garonne_sync::shm::{MapAccess, Segment};

use crate::client::AgentClient;
use crate::program_map;
use garonne_job::error::Result;
use garonne_job::layout::{self, WaitInfo, WorldShape};
use garonne_links::memory_file;

/// The area of this rank, whose file its agent has now; `None` if none is wanted or to be had: the
/// rank does without.
///
/// # Errors
/// The setting says what it may not.
pub(crate) fn area_of(client: &AgentClient) -> Result<Option<Arc<PostMortemArea>>> {
    if !is_wanted(&std::env::var_os(ENV_RECORD).unwrap_or_default())? {
        return Ok(None);
    }
    let made = PostMortemArea::new(&post_mortem::header(), &post_mortem::slots());
    Ok(made.ok().map(|(area, file)| {
        client.send_flight_recorder(file.as_fd());
        area
    }))
}

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
    board: Segment,
}

impl FlightRecording {
    /// Opens the memory file of a world.
    ///
    /// # Errors
    /// It is none, or cannot be mapped.
    pub fn open(file: OwnedFd) -> Result<Self> {
        let (shape, board) = memory_file::open(file.as_fd(), MapAccess::Read)?;
        Ok(Self { file, shape, board })
    }

    /// The world.
    pub fn shape(&self) -> &WorldShape {
        &self.shape
    }

    /// Returns what a rank waited for, if it did.
    pub fn wait(&self, rank: u32) -> Option<WaitInfo> {
        let card = layout::RankBlock::of(&self.board, rank);
        card.wait().filter(|wait| wait.since_ns != 0)
    }

    /// The latest calls of a rank's threads: return address, and the number of the call if it was
    /// told.
    pub fn latest(&self, rank: u32) -> Vec<(u64, Option<u16>)> {
        layout::last_calls::latest_call(&self.board, &self.shape, rank)
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

    #[test]
    fn the_setting_has_two_words_and_names_them() {
        assert!(is_wanted("".as_ref()).unwrap() && is_wanted("on".as_ref()).unwrap());
        assert!(!is_wanted(" off".as_ref()).unwrap());
        let error = is_wanted("of".as_ref()).unwrap_err().to_string();
        assert!(error.contains("on, off"), "{error}");
    }

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
