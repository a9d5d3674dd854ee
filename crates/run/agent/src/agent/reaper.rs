//! Ends of the agent's children: ranks, commands that started other agents, programs of its own,
//! orphans of ranks.

use std::collections::HashSet;

use super::Agent;
use garonne_links::process_tree;

impl Agent<'_> {
    /// Some child has ended: finds out which ranks have, and reaps orphans.
    pub(super) fn reap_children(&mut self) {
        let mut found = false;
        for rank in 0..self.ranks.count() {
            let slot = &mut self.ranks[rank];
            if slot.ended.is_none()
                && let Some(ended) = process_tree::ended(slot.pid)
            {
                slot.ended = Some(ended);
                found = true;
                self.rank_ended(rank, ended);
            }
        }
        self.check_starters();
        if !found {
            // One set: of both there may be ten thousand.
            let ranks = self.ranks.iter().map(|slot| slot.pid);
            let starters = self.root_role.iter();
            let starters = starters.flat_map(|root| root.remote_starts.processes());
            let kept: HashSet<i32> = ranks.chain(starters).collect();
            for pid in process_tree::children_of(rustix::process::getpid().as_raw_pid()) {
                if !kept.contains(&pid) {
                    process_tree::reap(pid);
                    // It may have been a program of this agent.
                    self.snapshots.reaped(pid);
                    self.crash_examinations.reaped(pid);
                    self.hang_reports.reaped(pid);
                }
            }
        }
    }
}
