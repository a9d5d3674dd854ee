//! Ranks that will never join a world whose other ranks wait for them: the agent says so and ends
//! the job.
//!
//! A program may end well without MPI_Init, behind a wrapper or on purpose, and a job in which no
//! rank calls it is none of MPI's business. So nothing is said until nothing can change any more:
//! every rank of the world has ended or sleeps in a wait of the library, no process is left that
//! could still register, and at least one rank never came. Looked at only while there is such a
//! rank, a few times a second; nothing here costs the ranks anything.

use std::time::{Duration, Instant};

use super::context::Context;
use super::ranks::{RankSlot, Ranks};
use garonne_job::codes;
use garonne_job::layout::WaitInfo;
use garonne_job::limits::{MISSING_RANKS_CHECK, MISSING_RANKS_WAIT};
use garonne_links::process_tree;
use garonne_links::sys;

/// Possibility that a rank still takes part in a world.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Participation {
    /// The rank computes, or may still register: anything can happen.
    Open,
    /// The rank registered, and has ended.
    Over,
    /// The rank ended well without registering.
    Absent,
    /// The rank has waited for some time.
    Waits(WaitInfo),
}

/// The first rank that is missing in a world where all others wait, and one of those; preferably
/// one that waits for just this rank.
fn verdict(parts: &[Participation]) -> Option<(usize, usize)> {
    let absent = parts
        .iter()
        .position(|part| *part == Participation::Absent)?;
    if parts.contains(&Participation::Open) {
        return None;
    }
    let waits = |part: &Participation| matches!(part, Participation::Waits(_));
    let for_absent = |part: &Participation| match part {
        Participation::Waits(wait) => usize::try_from(wait.peer)
            .is_ok_and(|peer| parts.get(peer) == Some(&Participation::Absent)),
        _ => false,
    };
    match parts.iter().position(for_absent) {
        Some(waiter) => match parts[waiter] {
            Participation::Waits(wait) => {
                Some((usize::try_from(wait.peer).unwrap_or(absent), waiter))
            }
            _ => None,
        },
        None => Some((absent, parts.iter().position(waits)?)),
    }
}

/// The search for ranks that will never join a world.
///
/// Owned by the agent. [`check`](Self::check) is called after each event, and when
/// [`due`](Self::due) says so.
#[derive(Debug, Default)]
pub(super) struct MissingRanks {
    due: Option<Instant>,
}

impl MissingRanks {
    /// The world that ranks joined last, if some rank will never come to it.
    fn incomplete_world(ctx: &Context<'_>, ranks: &Ranks) -> Option<u32> {
        // What ranks of other hosts do is not seen from here.
        if ctx.job.nodes.several() {
            return None;
        }
        let epoch = u32::try_from(ranks.worlds().len()).ok()?.checked_sub(1)?;
        let missed = |slot: &RankSlot| slot.missed(Self::epoch_of(ranks, slot), epoch);
        (!ctx.is_ending && ranks.iter().any(missed)).then_some(epoch)
    }

    fn epoch_of(ranks: &Ranks, slot: &RankSlot) -> Option<u32> {
        slot.member.map(|index| ranks.process(index).epoch)
    }

    /// Returns when to look for absent ranks again; `None` if no rank is missing.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Looks for absent ranks, if it is time, and sets the time of the next look. Returns a rank
    /// for which all others wait, with its failure.
    pub fn check(
        &mut self,
        ctx: &Context<'_>,
        ranks: &Ranks,
        now: Instant,
    ) -> Option<(u32, String)> {
        let Some(epoch) = Self::incomplete_world(ctx, ranks) else {
            self.due = None;
            return None;
        };
        match self.due {
            Some(due) if due > now => None,
            None => {
                self.due = Some(now + MISSING_RANKS_CHECK);
                None
            }
            Some(_) => {
                self.due = Some(now + MISSING_RANKS_CHECK);
                Self::find(ctx, ranks, epoch)
            }
        }
    }

    fn find(ctx: &Context<'_>, ranks: &Ranks, epoch: u32) -> Option<(u32, String)> {
        ranks.worlds()[epoch].reset_absence();
        let now = Duration::from_nanos(sys::monotonic_ns());
        let parts: Vec<Participation> = (0..ranks.count())
            .map(|rank| Self::participation_of(ranks, rank, epoch, now))
            .collect();
        let (absent, waiter) = verdict(&parts)?;
        if Self::strangers_alive(ranks) {
            return None;
        }
        let waiting = parts
            .iter()
            .filter(|part| matches!(part, Participation::Waits(_)))
            .count();
        let others = match waiting - 1 {
            0 => String::new(),
            1 => String::from(", and so does another rank"),
            more => format!(", and so do {more} others"),
        };
        let again = if epoch > 0 { " once more" } else { "" };
        let line = format!(
            "error[{}]: rank {absent} ({}, process {}) ended with exit status 0 and did not call MPI_Init{again}; rank {waiter} waits for ever{others}",
            codes::G0214,
            ranks.program_name(ctx.job, absent as u32),
            ranks[absent as u32].pid
        );
        Some((absent as u32, line))
    }

    fn participation_of(ranks: &Ranks, rank: u32, epoch: u32, now: Duration) -> Participation {
        let slot = &ranks[rank];
        if slot.missed(Self::epoch_of(ranks, slot), epoch) {
            return Participation::Absent;
        }
        let Some(member) = slot.member.map(|index| ranks.process(index)) else {
            return Participation::Open;
        };
        let gone = member.gone || (member.direct && slot.ended.is_some());
        if gone && (slot.ended.is_some() || member.epoch == epoch) {
            return Participation::Over;
        }
        // One that has finalized may come again: with a session, or by another program of its
        // script.
        if gone || member.finalized || member.epoch != epoch {
            return Participation::Open;
        }
        let wait = ranks.worlds()[epoch].rank_block(rank).wait();
        wait.filter(|wait| {
            wait.since_ns != 0 && Duration::from_nanos(wait.since_ns) + MISSING_RANKS_WAIT <= now
        })
        .map_or(Participation::Open, Participation::Waits)
    }

    /// Returns whether a process that no rank waits for (put into the background by a script that
    /// has ended) may still register.
    fn strangers_alive(ranks: &Ranks) -> bool {
        process_tree::children_of(rustix::process::getpid().as_raw_pid())
            .into_iter()
            .filter(|pid| !ranks.iter().any(|slot| slot.pid == *pid))
            .any(|pid| {
                process_tree::ended(pid).is_none()
                    && !ranks.processes().any(|member| member.pid == pid)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(peer: i32) -> Participation {
        Participation::Waits(WaitInfo {
            peer,
            since_ns: 1,
            ..WaitInfo::default()
        })
    }

    #[test]
    fn nothing_is_said_while_a_rank_may_still_act() {
        assert_eq!(
            verdict(&[waits(1), Participation::Absent, Participation::Open]),
            None
        );
        assert_eq!(verdict(&[Participation::Over, Participation::Absent]), None);
        assert_eq!(verdict(&[waits(1), Participation::Over]), None);
    }

    #[test]
    fn the_one_that_is_waited_for_is_named_first() {
        let parts = [
            Participation::Absent,
            waits(-1),
            waits(3),
            Participation::Absent,
        ];
        assert_eq!(verdict(&parts), Some((3, 2)));
        assert_eq!(
            verdict(&[Participation::Absent, waits(-1), Participation::Over]),
            Some((0, 1))
        );
    }
}
