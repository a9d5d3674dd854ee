//! What ranks record for readers after their death: kept while the job runs, handed to the launcher
//! where it ends badly.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::SendFlags;

use super::context::Context;
use super::rank_start;
use super::ranks::Ranks;
use garonne_job::limits::{FDS_OF_AGENT, RECORDERS_TOLD};
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::sys;

/// Memory files in which ranks record events, kept while the job runs.
///
/// Owned by the agent. [`keep`](Self::keep) takes a file when a rank hands it over,
/// [`blame`](Self::blame) notes a failure, and [`hand_over`](Self::hand_over) comes last.
#[derive(Debug, Default)]
pub(super) struct FlightRecorders {
    /// By rank: the member whose file it is, and the file.
    files: HashMap<u32, (u32, OwnedFd)>,
    /// The job ends badly, and the rank that is to blame, if one is.
    cause: Option<Option<u32>>,
}

impl FlightRecorders {
    /// The job ends by a failure, of this rank if it is one's. The first failure counts.
    pub fn blame(&mut self, rank: Option<u32>) {
        self.cause.get_or_insert(rank);
    }

    /// The job ends before its ranks did anything of which events could tell.
    pub fn forget(&mut self) {
        self.files.clear();
    }
}

impl FlightRecorders {
    /// Keeps the file of a rank's newest member, if there are descriptors enough for all ranks of
    /// this host.
    pub fn keep(&mut self, ctx: &Context<'_>, rank: u32, member: u32, file: Option<OwnedFd>) {
        let local = || ctx.job.ranks_of(ctx.node).len() as u64;
        let has_room = || rank_start::open_files_limit() >= FDS_OF_AGENT + 5 * local();
        if let Some(file) = file.filter(|_| has_room()) {
            self.files.insert(rank, (member, file));
        }
    }

    /// Hands the launcher what the ranks of this host have recorded, if the job ended badly: of
    /// those that are nearest by number to the one to blame.
    pub fn hand_over(&self, ctx: &Context<'_>, ranks: &Ranks) {
        let Some(cause) = self.cause.filter(|_| !ctx.is_adopted) else {
            return;
        };
        let epoch = |member: u32| ranks.process(member).epoch;
        // Those of one world: of programs that a script ran one after the other, the last.
        let kept = || self.files.iter();
        let Some(newest) = kept().map(|(_, (member, _))| epoch(*member)).max() else {
            return;
        };
        let Some(world) = ranks.worlds().get(newest) else {
            return;
        };
        let mut recorders: Vec<_> = kept()
            .filter(|(_, (member, _))| epoch(*member) == newest)
            .collect();
        recorders.sort_by_key(|(rank, _)| (rank.abs_diff(cause.unwrap_or(0)), **rank));
        recorders.truncate(RECORDERS_TOLD);
        // A launcher that is stopped takes no more, and does without.
        let tell = |message: &LauncherMessage, file: &OwnedFd| {
            let _ = sys::send(
                ctx.launcher_socket.as_fd(),
                &message.encode(),
                &[file.as_fd()],
                SendFlags::DONTWAIT,
            );
        };
        tell(
            &LauncherMessage::FlightRecording { rank: cause },
            world.file(),
        );
        for (&rank, (member, file)) in recorders {
            let process = ranks.process(*member).pid as u32;
            tell(&LauncherMessage::FlightRecorder { rank, process }, file);
        }
    }
}
