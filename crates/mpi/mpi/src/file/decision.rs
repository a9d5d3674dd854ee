//! How processes come to the plan of a collective access: each tells in one exchange what it
//! touches, and all choose by what all told.

use super::File;
use super::agreement::Agreement;
use super::disk_work::DiskWorkers;
use super::gathering::Gathering;
use super::hints::CollectiveHints;
use super::independent::ReadyAccess;
use super::plan::{AccessPlan, AccessSummary, FileDomains, PlanSetting, writer_candidates};
use super::stripes::{Stripe, StripeCursor, stripes_of};
use super::transfer::{Direction, Transfer};
use crate::error::Result;
use crate::request::Status;
use garonne_files::{FileSystemInfo, FileSystemKind};
use garonne_sync::mutex::lock;

/// Ranks of a host that may be writers: one copies while the other writes.
const WRITERS_PER_HOST: u32 = 2;

/// What one process tells of its access.
#[derive(Clone, Copy, Debug)]
struct AccessReport {
    summary: AccessSummary,
    /// Stripes that it touches; `u64::MAX` where these cannot go through writers.
    stripes: u64,
    /// A number that the processes of its host share.
    node: u32,
    /// Hints in force; all follow rank 0.
    hints: CollectiveHints,
    disk: FileSystemInfo,
}

const WORDS: usize = AccessSummary::WORDS + CollectiveHints::WORDS + 4;

impl AccessReport {
    fn to_words(self) -> [u64; WORDS] {
        let mut words = [0; WORDS];
        let (summary, rest) = words.split_at_mut(AccessSummary::WORDS);
        let (hints, rest) = rest.split_at_mut(CollectiveHints::WORDS);
        summary.copy_from_slice(&self.summary.to_words());
        hints.copy_from_slice(&self.hints.to_words());
        rest.copy_from_slice(&[
            self.stripes,
            self.node.into(),
            self.disk.kind as u64,
            self.disk.block_bytes,
        ]);
        words
    }

    fn from_words(words: &[u64; WORDS]) -> Self {
        let word = |index: usize| words[index];
        let rest = AccessSummary::WORDS + CollectiveHints::WORDS;
        let kinds = [
            FileSystemKind::Local,
            FileSystemKind::Nfs,
            FileSystemKind::Lustre,
            FileSystemKind::Shared,
        ];
        let kind = kinds
            .into_iter()
            .find(|kind| *kind as u64 == word(rest + 2));
        Self {
            summary: AccessSummary::from_words(std::array::from_fn(word)),
            hints: CollectiveHints::from_words(std::array::from_fn(|index| {
                word(AccessSummary::WORDS + index)
            })),
            stripes: word(rest),
            node: word(rest + 1) as u32,
            disk: FileSystemInfo {
                kind: kind.unwrap_or(FileSystemKind::Unknown),
                block_bytes: word(rest + 3),
            },
        }
    }
}

/// Returns what a transfer touches; `None` where that cannot go through writers.
fn touched(transfer: &Transfer) -> Option<Vec<Stripe>> {
    let len = transfer.data.len;
    // Atomic accesses lock what they touch.
    (!transfer.atomic).then(|| stripes_of(transfer.map.runs(transfer.from, len)))?
}

fn summary_of(stripes: &[Stripe]) -> AccessSummary {
    let first = StripeCursor::new(stripes).next_offset();
    let (Some(first), Some(last)) = (first, stripes.last()) else {
        return AccessSummary::EMPTY;
    };
    let bytes = stripes.iter().map(Stripe::bytes).sum();
    let runs = stripes.iter().map(|stripe| stripe.count).sum();
    AccessSummary::of_range(first..last.end(), bytes, runs)
}

/// What all processes decided.
pub(super) struct AccessDecision {
    /// Writers, if the access goes through these.
    domains: Option<FileDomains>,
    stripes: Vec<Stripe>,
    /// Stripes that a process touches at most.
    stripes_max: u64,
}

/// Returns the writers that all processes choose by what all told.
fn choose(reports: &[AccessReport], direction: Direction) -> Option<FileDomains> {
    let leading = reports.first()?;
    let describable = reports.iter().all(|report| report.stripes < u64::MAX);
    let all = AccessSummary::of_ranks(reports.iter().map(|report| report.summary));
    let node_of = |rank: u32| reports[rank as usize].node;
    let ranks = reports.len() as u32;
    let hosts = writer_candidates(ranks, 1, node_of).len() as u32;
    let per_host = leading.hints.writers_max.unwrap_or(WRITERS_PER_HOST);
    let setting = PlanSetting {
        candidates: &writer_candidates(ranks, per_host, node_of),
        hosts,
        writers_max: leading.hints.writers_max,
        window_bytes: leading.hints.window_bytes,
        align: leading.disk.block_bytes,
        exclusive_writes: leading.disk.kind == FileSystemKind::Local,
        pages_of_one_host: leading.disk.kind == FileSystemKind::Nfs,
        buffering: leading.hints.buffering,
    };
    match AccessPlan::choose(&all, direction == Direction::Write, &setting) {
        AccessPlan::Collective(domains) if describable => Some(domains),
        _ => None,
    }
}

impl Agreement<'_> {
    /// Meets the other processes of an access, and decides with them how it goes.
    ///
    /// # Errors
    /// This process's own; that another one cannot take part.
    pub async fn decide(
        self,
        file: &File,
        direction: Direction,
        ready: Result<ReadyAccess>,
    ) -> Result<(AccessDecision, ReadyAccess)> {
        let alone = AccessDecision {
            domains: None,
            stripes: Vec::new(),
            stripes_max: 0,
        };
        if self.comm.size() == 1 {
            return Ok((alone, ready?));
        }
        let stripes = ready.as_ref().ok().map(|ready| touched(&ready.transfer));
        let refused = AccessSummary::refused(self.comm.rank());
        let known = stripes.as_ref().map(|list| list.as_deref());
        let report = AccessReport {
            summary: known.map_or(refused, |list| summary_of(list.unwrap_or(&[]))),
            stripes: match known {
                Some(None) => u64::MAX,
                Some(Some(list)) => list.len() as u64,
                None => 0,
            },
            node: self.comm.node_number(),
            hints: CollectiveHints::of(&file.0.info, direction),
            disk: file.0.disk.info(),
        };
        let told = self.all(report.to_words()).await?;
        let reports: Vec<_> = told.iter().map(AccessReport::from_words).collect();
        let refuses = reports.iter().any(|one| one.summary.refused_by.is_some());
        if refuses {
            let ready = self.agree_by_steps(ready).await?;
            return Ok((alone, ready));
        }
        let decision = AccessDecision {
            domains: choose(&reports, direction),
            stripes: stripes.flatten().unwrap_or_default(),
            stripes_max: reports.iter().map(|one| one.stripes).max().unwrap_or(0),
        };
        Ok((decision, ready?))
    }

    /// Carries an access out as was decided.
    ///
    /// # Errors
    /// What failed first, at all processes if at one.
    pub async fn carry_out(
        self,
        file: &File,
        workers: &DiskWorkers,
        (decision, mut ready): (AccessDecision, ReadyAccess),
    ) -> Result<Status> {
        let Some(domains) = decision.domains else {
            let done = ready.run_by(workers).await;
            return self.agree_by_steps(done).await;
        };
        let mut buffers = std::mem::take(&mut *lock(&file.0.gather_buffers));
        let mut gathering = Gathering {
            meeting: self,
            disk: file.0.disk.clone(),
            workers,
            locks: ready
                .transfer
                .sieving
                .writes
                .then(|| ready.transfer.gap_lock.clone()),
            domains: &domains,
            direction: ready.transfer.direction,
            stripes: &decision.stripes,
            stripes_max: decision.stripes_max,
            data: &ready.transfer.data,
            buffers: &mut buffers,
        };
        let moved = gathering.run().await;
        *lock(&file.0.gather_buffers) = buffers;
        ready.transfer.done = moved?;
        // Conversions may fail at one process alone.
        match ready.staged.converts() {
            true => self.agree_by_steps(ready.finish()).await,
            false => ready.finish(),
        }
    }
}
