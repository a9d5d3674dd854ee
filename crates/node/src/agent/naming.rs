//! What the agent calls a rank when it tells of it, and where the rank was at its end.
//!
//! All that is read here was written by the rank, which may have overwritten itself: it is only shown. Called when a job fails, not before.

use std::os::fd::AsFd;

use garonne_sites::Resolver;
use garonne_sync::shm::Access;

use super::{Agent, Member, World};
use crate::layout;
use crate::notes::{self, Notes};
use crate::{calls, memory};

/// The calls that do not say which of them they are.
const QUICK: &str = "the send or receive";

impl Agent<'_> {
    /// The program that is the rank: what its process was called by, which is not what was started where that is a shell or a tool that runs others.
    pub(super) fn program_name(&self, rank: u32) -> String {
        let told = self.notes(rank).program;
        if !told.is_empty() {
            return told;
        }
        let program = &self.job.programs[self.slots[rank as usize].program];
        program
            .argv
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Where the rank was when a signal ended it, as the rest of a sentence; empty if it did not say. Whether it had left its latest call nobody knows.
    pub(super) fn last_call(&self, rank: u32) -> String {
        let Some((member, world)) = self.joined(rank) else {
            return String::new();
        };
        let (site, call) = layout::entered(world.board.atomic_u64s(layout::entered_offset(rank)));
        if site == 0 {
            return String::new();
        }
        let name = call.and_then(|call| calls::name(call.into()));
        let objects = self.notes(rank).objects;
        let place = Resolver::default().describe(member.pid as u32, &objects, site);
        format!(" in or after {} at {place}", name.unwrap_or(QUICK))
    }

    /// The process that is the rank, and its world.
    fn joined(&self, rank: u32) -> Option<(&Member, &World)> {
        let member = &self.members[self.slots[rank as usize].member? as usize];
        Some((member, self.worlds.get(member.epoch as usize)?))
    }

    fn notes(&self, rank: u32) -> Notes {
        let area = self.joined(rank).and_then(|(_, world)| {
            let at = world.shape.trace_offset(rank);
            memory::map(world.file.as_fd(), at, layout::NOTES_BYTES as u64, Access::Read).ok()
        });
        area.map_or_else(Notes::default, |area| notes::read(&area))
    }
}
