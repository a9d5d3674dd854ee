//! Deaths that the job survives: who tells whom, and what the members of a communicator agree on
//! afterwards.
//!
//! The agent of a dead rank's host marks the rank in shared memory at once, wakes the others, and
//! tells the first agent, which tells all. The first agent decides agreements
//! ([`garonne_job::agreement`]); since the job ends without it, no decision is ever taken twice.

use std::collections::{HashMap, HashSet};

use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::agreement::{AgreementKey, Agreements, Contribution, Decision};
use garonne_job::job::Job;
use garonne_job::rank_messages::ToRank;
use garonne_job::settings::survive;

use super::Agent;

/// Deaths and agreements of a job.
///
/// Owned by the agent. Its agreements are used at the first agent only.
#[derive(Debug)]
pub(super) struct Faults {
    survives: bool,
    /// Ranks of all hosts that have died, and the exit code that the first of them stands for.
    dead: HashSet<u32>,
    first_code: i32,
    agreements: Agreements,
    /// Registered processes of this host that wait for a decision.
    waiting: HashMap<AgreementKey, Vec<u32>>,
}

impl Faults {
    /// Nothing has happened yet.
    pub fn new(job: &Job) -> Self {
        Self {
            survives: survive::of(job),
            dead: HashSet::new(),
            first_code: 0,
            agreements: Agreements::default(),
            waiting: HashMap::new(),
        }
    }

    /// Returns whether the death of a rank leaves the others running.
    pub fn survives(&self) -> bool {
        self.survives
    }

    /// Returns the ranks of all hosts that have died.
    pub fn dead(&self) -> impl Iterator<Item = u32> {
        self.dead.iter().copied()
    }

    /// Returns the exit code of a job of so many ranks whose ranks have all ended: that of the
    /// first death where nobody is left.
    pub fn code(&self, ranks: u32) -> i32 {
        match self.dead.len() as u32 == ranks {
            true => self.first_code,
            false => 0,
        }
    }
}

impl Agent<'_> {
    /// A rank of this host has died, and the job goes on.
    pub(super) fn survive(&mut self, rank: u32, code: i32, line: String) {
        if self.has_cause() || self.faults.dead.contains(&rank) {
            return;
        }
        self.mark_dead(rank);
        self.output.drain(&mut self.ctx, rank);
        let report = self.ranks[rank]
            .member
            .map(|index| std::mem::take(&mut self.ranks.process_mut(index).report))
            .unwrap_or_default();
        match self.ctx.is_child() {
            true => {
                self.faults.dead.insert(rank);
                self.ctx
                    .report(&AgentReport::RankDied(rank, code, report, line));
            }
            false => self.rank_died(rank, code, &report, &line),
        }
    }

    /// A rank of any host has died, which the first agent tells the others and the user.
    pub(super) fn rank_died(&mut self, rank: u32, code: i32, report: &str, line: &str) {
        if self.has_cause() || !self.faults.dead.insert(rank) {
            return;
        }
        if self.faults.dead.len() == 1 {
            self.faults.first_code = code;
        }
        self.mark_dead(rank);
        self.ctx.command_all(&AgentCommand::RanksDied(vec![rank]));
        for words in [report.trim_end(), line] {
            if !words.is_empty() {
                self.print_line(words);
            }
        }
        let decided = self.faults.agreements.lose(rank, true);
        decided.into_iter().for_each(|one| self.decided(one));
    }

    /// The first agent says that ranks have died.
    pub(super) fn heard_of_deaths(&mut self, ranks: Vec<u32>) {
        for rank in ranks {
            if self.faults.dead.insert(rank) {
                self.mark_dead(rank);
            }
        }
    }

    /// A rank has ended well: nobody waits for its contribution any more. Ranks of this host, which
    /// agree in shared memory, look at its state once they are woken.
    pub(super) fn ended_well(&mut self, rank: u32) {
        if self.faults.survives() {
            self.ranks.worlds().wake_ranks(&self.ctx);
        }
        let decided = self.faults.agreements.lose(rank, false);
        decided.into_iter().for_each(|one| self.decided(one));
    }

    fn mark_dead(&self, rank: u32) {
        if rank < self.ctx.job.size() {
            self.ranks.worlds().mark_dead(&self.ctx, rank);
        }
    }

    /// A process of this host brings its contribution.
    pub(super) fn agree(&mut self, index: u32, rank: u32, mut given: Contribution) {
        given.key.epoch = self.ranks.process(index).epoch;
        let waiting = self.faults.waiting.entry(given.key).or_default();
        waiting.push(index);
        match self.ctx.is_child() {
            true => self.ctx.report(&AgentReport::Agree(rank, given)),
            false => self.contribution(rank, given),
        }
    }

    /// A rank of any host has contributed.
    pub(super) fn contribution(&mut self, rank: u32, given: Contribution) {
        if let Some(decision) = self.faults.agreements.contribute(rank, given) {
            self.decided(decision);
        }
    }

    fn decided(&mut self, decision: Decision) {
        if self.ctx.job.nodes.several() {
            self.ctx
                .command_all(&AgentCommand::Decided(decision.clone()));
        }
        self.tell_decision(decision);
    }

    /// Tells the processes of this host what was decided.
    pub(super) fn tell_decision(&mut self, decision: Decision) {
        let Some(waiting) = self.faults.waiting.remove(&decision.key) else {
            return;
        };
        let epoch = decision.key.epoch;
        let message = ToRank::Decided(decision);
        for index in waiting {
            self.ranks.answer(index, &message);
            if let Some(rank) = self.ranks.rank_of(index)
                && let Some(world) = self.ranks.worlds().get(epoch)
            {
                world.count_decision(rank);
            }
        }
    }
}
