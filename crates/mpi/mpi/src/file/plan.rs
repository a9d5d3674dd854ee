//! The plan of a collective access: who moves which bytes of the file, as a pure function of what
//! all processes know.
//!
//! 1. Each process sums up the bytes that it touches ([`AccessSummary::of_runs`]). All exchange
//!    these, and join them in the order of ranks ([`AccessSummary::of_ranks`]).
//! 2. [`AccessPlan::choose`] tells whether each process accesses the file by itself, or some move
//!    the bytes of all: the writers, each with a domain of the file ([`FileDomains`]).
//! 3. Each process cuts its runs at the borders of domains and windows ([`FileDomains::pieces`]).
//!    A window is what a writer stages at once.
//! 4. A writer takes the pieces of a window in the order of ranks, so that the highest rank's byte
//!    remains where several write, and writes what is covered ([`covered`]). Bytes in holes are
//!    neither read nor written, since others may write there meanwhile.
//!
//! Offsets are bytes of the file below 2^63. Runs of a process ascend and do not overlap.

#[cfg(test)]
mod tests;

use std::ops::Range;

/// Fewest bytes for which one more process is made a writer: less is written by one call anyway.
const WRITER_BYTES_MIN: u64 = 256 << 10;

/// Mean length of runs from which each process writes by itself: a call moves so many bytes in as
/// much time as they take through another process. With four ranks on two cores, 1 KB is 1.6 times
/// as fast through a writer, and 4 KB 3 times as fast without.
const DIRECT_WRITE_BYTES: u64 = 2 << 10;

/// Mean length of runs from which each process reads by itself: reads take several runs with one
/// call where gaps are small.
const DIRECT_READ_BYTES: u64 = 8 << 10;

/// One byte of so many between the first and the last is touched at least, where it pays that
/// writers move the bytes: with fewer, most of a window is empty.
const SPARSE_SHARE: u64 = 64;

/// Alignments that are believed.
const ALIGN_BYTES: std::ops::RangeInclusive<u64> = 1..=1 << 30;

/// The greatest offset of a file, and one.
const FILE_END: u64 = 1 << 63;

/// What one process or several touch of a file in one collective access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessSummary {
    /// First byte; meaningless without bytes.
    pub first: u64,
    /// End of the last byte.
    pub end: u64,
    /// Bytes, those that several touch counted for each.
    pub bytes: u64,
    /// Contiguous runs.
    pub runs: u64,
    /// Processes with bytes.
    pub parts: u64,
    /// A process begins before a lower rank ends.
    pub interleaved: bool,
    /// Lowest rank that cannot take part, since its call is wrong.
    pub refused_by: Option<u32>,
}

impl AccessSummary {
    /// Nothing.
    pub const EMPTY: Self = Self {
        first: 0,
        end: 0,
        bytes: 0,
        runs: 0,
        parts: 0,
        interleaved: false,
        refused_by: None,
    };

    /// Words of a summary that is sent.
    pub const WORDS: usize = 7;

    /// The part of a process that touches these runs, in ascending order.
    pub fn of_runs(runs: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut summary = Self::EMPTY;
        for run in runs {
            if run.start < run.end {
                summary = Self {
                    first: if summary.runs == 0 {
                        run.start
                    } else {
                        summary.first
                    },
                    end: run.end,
                    bytes: summary.bytes + (run.end - run.start),
                    runs: summary.runs + 1,
                    parts: 1,
                    ..summary
                };
            }
        }
        summary
    }

    /// The part of a process that touches `bytes` bytes in `runs` runs within a range.
    pub fn of_range(range: Range<u64>, bytes: u64, runs: u64) -> Self {
        if bytes == 0 || range.start >= range.end {
            return Self::EMPTY;
        }
        Self {
            first: range.start,
            end: range.end,
            bytes,
            runs: runs.max(1),
            parts: 1,
            ..Self::EMPTY
        }
    }

    /// The part of a process whose call is wrong.
    pub fn refused(rank: u32) -> Self {
        Self {
            refused_by: Some(rank),
            ..Self::EMPTY
        }
    }

    /// Joins parts in the order of ranks.
    pub fn of_ranks(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self::EMPTY, Self::join)
    }

    /// Joins what lower ranks touch with what higher ranks touch.
    #[must_use]
    pub fn join(self, higher: Self) -> Self {
        let refused_by = match (self.refused_by, higher.refused_by) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        if self.parts == 0 || higher.parts == 0 {
            let some = if self.parts == 0 { higher } else { self };
            return Self { refused_by, ..some };
        }
        Self {
            first: self.first.min(higher.first),
            end: self.end.max(higher.end),
            bytes: self.bytes.saturating_add(higher.bytes),
            runs: self.runs.saturating_add(higher.runs),
            parts: self.parts + higher.parts,
            interleaved: self.interleaved || higher.interleaved || higher.first < self.end,
            refused_by,
        }
    }

    /// Returns the summary as words.
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [
            self.first,
            self.end,
            self.bytes,
            self.runs,
            self.parts,
            u64::from(self.interleaved),
            self.refused_by.map_or(0, |rank| u64::from(rank) + 1),
        ]
    }

    /// The summary of words that another process sent. Whatever they are, plans made of the summary
    /// are sound.
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [first, end, bytes, runs, parts, interleaved, refused] = words;
        let refused_by = refused.checked_sub(1);
        let refused_by = refused_by.map(|rank| u32::try_from(rank).unwrap_or(u32::MAX));
        let sound = first < end && end <= FILE_END && bytes > 0 && parts > 0;
        if !sound {
            return Self {
                refused_by,
                ..Self::EMPTY
            };
        }
        Self {
            first,
            end,
            bytes,
            runs: runs.max(1),
            parts,
            interleaved: interleaved != 0,
            refused_by,
        }
    }
}

/// What hints say about one direction of collective accesses (`romio_cb_read`, `romio_cb_write`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffering {
    /// Decided by the plan.
    #[default]
    Automatic,
    /// Writers move all bytes.
    Enable,
    /// Each process accesses the file by itself.
    Disable,
}

/// What a plan depends on beside the access: alike at all processes of a file.
#[derive(Clone, Copy, Debug)]
pub struct PlanSetting<'a> {
    /// Ranks that may be writers, as [`writer_candidates`] orders them.
    pub candidates: &'a [u32],
    /// Hosts of the processes.
    pub hosts: u32,
    /// Writers at most, if a hint says so (`cb_nodes`).
    pub writers_max: Option<u32>,
    /// Bytes that a writer stages at once (`cb_buffer_size`).
    pub window_bytes: u64,
    /// Domains begin at multiples of this: a page, a block or a stripe.
    pub align: u64,
    /// Two writers of one file on one host wait for each other, as with most local file systems.
    pub exclusive_writes: bool,
    /// Hosts see each other's writes only by whole pages, as with NFS.
    pub pages_of_one_host: bool,
    /// What the hint for this direction says.
    pub buffering: Buffering,
}

/// Returns the ranks in the order in which they are made writers: the first of each host, then the
/// second of each, and so on, at most `per_host` of each.
pub fn writer_candidates(ranks: u32, per_host: u32, host_of: impl Fn(u32) -> u32) -> Vec<u32> {
    let mut seen = std::collections::HashMap::new();
    let mut places: Vec<(u32, u32)> = Vec::new();
    for rank in 0..ranks {
        let before = seen.entry(host_of(rank)).or_insert(0u32);
        if *before < per_host.max(1) {
            places.push((*before, rank));
        }
        *before += 1;
    }
    places.sort_unstable();
    places.into_iter().map(|(_, rank)| rank).collect()
}

/// How a collective access goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPlan {
    /// No process touches anything.
    Nothing,
    /// Nobody accesses the file, since the call of this rank is wrong.
    Refused(u32),
    /// Each process accesses the file by itself.
    Independent,
    /// Writers move the bytes of all.
    Collective(FileDomains),
}

impl AccessPlan {
    /// Chooses the plan: a pure function, so that all processes come to the same.
    pub fn choose(all: &AccessSummary, writes: bool, setting: &PlanSetting<'_>) -> Self {
        if let Some(rank) = all.refused_by {
            return Self::Refused(rank);
        }
        if all.parts == 0 {
            return Self::Nothing;
        }
        let collective = match setting.buffering {
            Buffering::Enable => true,
            Buffering::Disable => false,
            Buffering::Automatic => pays(all, writes, setting),
        };
        match collective && !setting.candidates.is_empty() {
            true => Self::Collective(FileDomains::new(all, writes, setting)),
            false => Self::Independent,
        }
    }
}

/// Returns whether it pays that some move the bytes of all.
fn pays(all: &AccessSummary, writes: bool, setting: &PlanSetting<'_>) -> bool {
    if all.parts == 1 {
        return false;
    }
    if writes && setting.pages_of_one_host && setting.hosts > 1 {
        return true;
    }
    let is_dense = all.bytes.saturating_mul(SPARSE_SHARE) >= all.end - all.first;
    let direct_bytes = match writes {
        true => DIRECT_WRITE_BYTES,
        false => DIRECT_READ_BYTES,
    };
    all.interleaved && is_dense && all.bytes / all.runs < direct_bytes
}

/// Parts of a file, each with the process that reads or writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDomains {
    /// What all processes together touch.
    span: Range<u64>,
    /// Where the first domain would begin: a multiple of the alignment.
    base: u64,
    domain_bytes: u64,
    window_bytes: u64,
    /// Ranks, by domain.
    writers: Vec<u32>,
}

/// Bytes of one process's run that one writer stages at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPiece {
    /// Which domain.
    pub domain: u32,
    /// Which window of the domain.
    pub window: u64,
    /// Bytes of the file.
    pub range: Range<u64>,
    /// Where the bytes are in the process's stream of data.
    pub position: u64,
}

impl FileDomains {
    fn new(all: &AccessSummary, writes: bool, setting: &PlanSetting<'_>) -> Self {
        let align = setting
            .align
            .clamp(*ALIGN_BYTES.start(), *ALIGN_BYTES.end());
        let base = all.first - all.first % align;
        let units = (all.end - base).div_ceil(align);
        let default = match writes && setting.exclusive_writes {
            true => setting.hosts.max(1) as usize,
            false => setting.candidates.len(),
        };
        let hint = setting.writers_max.map(|writers| writers.max(1) as usize);
        let writers = (hint.unwrap_or(default).min(setting.candidates.len()) as u64)
            .min(units)
            .min(all.bytes.div_ceil(WRITER_BYTES_MIN))
            .max(1);
        let per_domain = units.div_ceil(writers);
        let domains = units.div_ceil(per_domain);
        let window_units = (setting.window_bytes.min(FILE_END) / align).max(1);
        Self {
            span: all.first..all.end,
            base,
            domain_bytes: per_domain * align,
            window_bytes: window_units * align,
            writers: setting.candidates[..domains as usize].to_vec(),
        }
    }

    /// Returns the ranks that move bytes, by domain.
    pub fn writers(&self) -> &[u32] {
        &self.writers
    }

    /// Returns the domain of a rank that moves bytes.
    pub fn domain_of_rank(&self, rank: u32) -> Option<u32> {
        let at = self.writers.iter().position(|writer| *writer == rank)?;
        Some(at as u32)
    }

    /// Returns the bytes of a domain.
    pub fn range(&self, domain: u32) -> Range<u64> {
        let start = self.base + u64::from(domain) * self.domain_bytes;
        self.clipped(start..start.saturating_add(self.domain_bytes))
    }

    /// Returns the number of windows of a domain.
    pub fn windows(&self, domain: u32) -> u64 {
        let start = self.base + u64::from(domain) * self.domain_bytes;
        let end = self.range(domain).end;
        end.saturating_sub(start).div_ceil(self.window_bytes)
    }

    /// Returns the bytes of a window. Nobody touches bytes of a window without pieces.
    pub fn window_range(&self, domain: u32, window: u64) -> Range<u64> {
        let start = self.base + u64::from(domain) * self.domain_bytes;
        let end = start.saturating_add(self.domain_bytes);
        let start = start.saturating_add(window.saturating_mul(self.window_bytes));
        self.clipped(start..start.saturating_add(self.window_bytes).min(end))
    }

    /// Returns the bytes of a window that is not cut: what a buffer for any window has to hold.
    pub fn window_bytes(&self) -> u64 {
        let longest = self.window_bytes.min(self.domain_bytes);
        longest.min(self.span.end - self.span.start)
    }

    fn clipped(&self, range: Range<u64>) -> Range<u64> {
        let clip = |at: u64| at.clamp(self.span.start, self.span.end);
        clip(range.start)..clip(range.end)
    }

    /// Cuts one run whose bytes begin at `position` in the process's stream of data.
    pub fn pieces_of_run(
        &self,
        run: Range<u64>,
        position: u64,
    ) -> impl Iterator<Item = AccessPiece> {
        debug_assert!(
            run.is_empty() || self.span.start <= run.start && run.end <= self.span.end,
            "a run beyond what was told"
        );
        let mut at = run.start;
        std::iter::from_fn(move || {
            if at >= run.end {
                return None;
            }
            let in_file = at - self.base;
            let domain = in_file / self.domain_bytes;
            let in_domain = in_file % self.domain_bytes;
            let window = in_domain / self.window_bytes;
            let left = (self.window_bytes - in_domain % self.window_bytes)
                .min(self.domain_bytes - in_domain);
            let range = at..run.end.min(at + left);
            let piece = AccessPiece {
                domain: domain as u32,
                window,
                position: position + (at - run.start),
                range: range.clone(),
            };
            at = range.end;
            Some(piece)
        })
    }
}
