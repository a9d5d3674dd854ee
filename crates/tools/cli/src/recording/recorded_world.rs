//! One world of a job that is recorded: its ranks on this host, their names for things, and who of
//! them has died.

use garonne_inspect::trace_reader::TraceReader;
use garonne_job::layout::{self, RankState};
use garonne_job::wait_report::{BOOK_BYTES, WaitReportCopy};
use garonne_links::process_memory::memory_of;
use garonne_trace::event::{EventKind, ProgressMode, RecordDecoder, TraceEvent};
use garonne_trace::record::Record;

use super::name_lookup::WorldNames;
use crate::diagnosis::collectives;

/// Item that was read of a rank.
#[derive(Debug)]
pub enum RankReading {
    /// A record of its trace ring.
    Record(Record),
    /// Number of records that were overwritten.
    Lost(u64),
    /// The rank has died; that was seen at this moment.
    Died(u64),
}

/// State in which one rank was last found.
#[derive(Clone, Copy, Debug, Default)]
struct RecordedRank {
    /// Mode of progress that the rank announced last.
    background: ProgressMode,
    /// The rank has recorded something.
    has_spoken: bool,
    has_died: bool,
}

/// One world of a job that is recorded. Owns the reader of its trace rings and the names of its
/// ranks.
pub struct RecordedWorld {
    /// Place where the ranks record.
    pub reader: TraceReader,
    /// Ranks of the world on this host.
    local_ranks: Vec<u32>,
    decoder: RecordDecoder<WorldNames>,
    ranks: Vec<RecordedRank>,
    /// Number of its first rank in the file: worlds of one job follow each other.
    base: u32,
}

impl RecordedWorld {
    /// A world whose ranks have numbers from `base` on in the file.
    pub fn new(traced: TraceReader, base: u32) -> Self {
        Self {
            local_ranks: local_ranks_of(&traced),
            decoder: RecordDecoder::new(WorldNames::default()),
            ranks: vec![RecordedRank::default(); traced.shape().size as usize],
            base,
            reader: traced,
        }
    }

    /// Returns the ranks of the world on this host.
    pub fn local_ranks(&self) -> Vec<u32> {
        self.local_ranks.clone()
    }

    /// Returns whether a rank is dead, once.
    pub fn has_newly_died(&mut self, rank: u32) -> bool {
        let is_dead = self.reader.rank_block(rank).state() == RankState::Gone;
        self.ranks
            .get_mut(rank as usize)
            .is_some_and(|known| !std::mem::replace(&mut known.has_died, is_dead) && is_dead)
    }

    /// Tells what was found of a rank.
    pub fn tell(&mut self, rank: u32, what: &RankReading, tell: &mut impl FnMut(&TraceEvent)) {
        let record = match what {
            RankReading::Lost(records) => {
                return tell(&self.seen(rank, (0, 0), EventKind::Lost(*records)));
            }
            // A rank that never came to MPI is not in the file.
            RankReading::Died(_) if !self.ranks[rank as usize].has_spoken => return,
            RankReading::Died(at_ns) => {
                let process = self.reader.rank_block(rank).pid();
                return tell(&self.seen(rank, (process, *at_ns), EventKind::Died));
            }
            RankReading::Record(record) => record,
        };
        let card = self.reader.rank_block(rank);
        let background = known(card.async_progress().0);
        let known = &mut self.ranks[rank as usize];
        known.has_spoken = true;
        if std::mem::replace(&mut known.background, background) != background {
            let at = (record.thread, record.at_ns);
            tell(&self.seen(rank, at, EventKind::State(background)));
        }
        self.meet(rank);
        if let Some(mut seen) = self.decoder.decode(rank, record) {
            seen.shift(self.base);
            tell(&seen);
        }
    }

    /// Tells of ranks that wait since before this moment in which call they are: they have recorded
    /// nothing.
    pub fn show_waits(&mut self, begun_ns: u64, tell: &mut impl FnMut(&TraceEvent)) {
        for rank in self.local_ranks() {
            let card = self.reader.rank_block(rank);
            let waits = self.reader.waits(rank);
            let Some((wait, call, site)) = waits.filter(|(wait, ..)| wait.since_ns < begun_ns)
            else {
                continue;
            };
            let known = self.ranks[rank as usize];
            if known.has_spoken || card.state() != RankState::Running {
                continue;
            }
            self.meet(rank);
            // The track of the thread that the process began with, since a wait does not say whose
            // it is.
            let at = (card.pid(), begun_ns);
            for part in names(card.pid(), card.wait_report()) {
                self.decoder.decode(rank, &part);
            }
            let entered = self.decoder.entered(rank, call, site);
            tell(&self.seen(rank, at, entered));
            if let Some(context) = collectives::collective(&wait).map(|_| wait.comm as u32) {
                let name = self.decoder.collective(rank, context, wait.tag);
                tell(&self.seen(rank, at, EventKind::Collective { name }));
            }
        }
    }

    fn seen(&self, rank: u32, (thread, at_ns): (u32, u64), what: EventKind) -> TraceEvent {
        TraceEvent {
            rank: self.base.saturating_add(rank),
            thread,
            cpu: 0,
            at_ns,
            kind: what,
        }
    }

    fn meet(&mut self, rank: u32) {
        let pid = self.reader.rank_block(rank).pid();
        let traced = &self.reader;
        self.decoder
            .names()
            .meet(rank, pid, || traced.objects(rank));
    }
}

/// The names of a living rank's communicators, as it would record them.
fn names(process: u32, book: u64) -> Vec<Record> {
    let read = || memory_of(process, book, BOOK_BYTES);
    let Some((first, again)) = read().zip(read()) else {
        return Vec::new();
    };
    let copied = WaitReportCopy::new(&first, &again);
    let numbers = copied.numbers().into_iter();
    let named = numbers.filter_map(|number| Some((number, copied.communicator(number)?.name)));
    named
        .flat_map(|(number, name)| Record::named(number, &name).collect::<Vec<_>>())
        .collect()
}

/// The ranks of a world that run on this host.
pub fn local_ranks_of(world: &TraceReader) -> Vec<u32> {
    world.local_ranks()
}

fn known(background: layout::AsyncProgressState) -> ProgressMode {
    match background {
        layout::AsyncProgressState::Unneeded
        | layout::AsyncProgressState::Helper
        | layout::AsyncProgressState::Late => ProgressMode::On,
        layout::AsyncProgressState::Off => ProgressMode::Off,
        layout::AsyncProgressState::Refused(_) => ProgressMode::Refused,
    }
}
