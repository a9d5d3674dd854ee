//! What the agent calls a rank when it tells of it, and where the rank was at its end.
//!
//! All that is read here was written by the rank, which may have overwritten itself: it is only
//! shown. Called when a job fails, not before.

use std::os::fd::AsFd;

use garonne_sites::SymbolResolver;
use garonne_sync::shm::MapAccess;

use super::super::worlds::World;
use super::{Ranks, RegisteredProcess};
use garonne_job::call_names;
use garonne_job::job::Job;
use garonne_job::layout::{self, last_calls};
use garonne_job::program_map::{self, ProgramMap};
use garonne_links::memory_file;

/// The calls that do not say which of them they are.
const QUICK: &str = "the send or receive";

/// Latest calls of a rank's threads that are named: which of them was killed nobody knows, and of
/// many each says little.
const CALLS_SHOWN: usize = 4;

impl Ranks {
    /// The program that is the rank: what its process was called by, which is not what was started
    /// where that is a shell or a tool that runs others.
    pub fn program_name(&self, job: &Job, rank: u32) -> String {
        let told = self.program_map_of(rank).program;
        if !told.is_empty() {
            return told;
        }
        let program = &job.programs[self[rank].program];
        program
            .argv
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Returns the latest MPI call of a rank that a signal ended, as the rest of a sentence; empty
    /// if it did not say. Whether it had left its latest call nobody knows, nor which of its
    /// threads was killed.
    pub fn last_call(&self, rank: u32) -> String {
        let Some((member, world)) = self.joined(rank) else {
            return String::new();
        };
        let calls = last_calls::latest_call(world.world_memory(), world.shape(), rank);
        let objects = self.program_map_of(rank).objects;
        let named = calls.iter().take(CALLS_SHOWN).map(|(site, call)| {
            let name = call.and_then(|call| call_names::name(call.into()));
            let place = SymbolResolver::default().describe(member.pid as u32, &objects, *site);
            format!("{} at {place}", name.unwrap_or(QUICK))
        });
        let mut named: Vec<String> = named.collect();
        if calls.len() > CALLS_SHOWN {
            named.push("others of its threads'".into());
        }
        match named.len() {
            0 => String::new(),
            1 => format!(" in or after {}", named[0]),
            _ => format!(
                " in or after one of its threads' latest calls: {}",
                named.join(", or ")
            ),
        }
    }

    /// The process that is the rank, and its world.
    fn joined(&self, rank: u32) -> Option<(&RegisteredProcess, &World)> {
        let member = self.process_of(rank)?;
        Some((member, self.worlds.get(member.epoch)?))
    }

    fn program_map_of(&self, rank: u32) -> ProgramMap {
        let area = self.joined(rank).and_then(|(_, world)| {
            let at = world.shape().trace_offset(rank);
            memory_file::map(
                world.file().as_fd(),
                at,
                layout::NOTES_BYTES as u64,
                MapAccess::Read,
            )
            .ok()
        });
        area.map_or_else(ProgramMap::default, |area| program_map::read(&area))
    }
}
