//! How much of each nonblocking operation was hidden behind computation, by call site.
//!
//! Fed with what was seen of all ranks, each rank's events in their order; gives rows. Follows
//! every operation from its start to its end, joins the two sides of a message, and judges each
//! side by [`overlap_share`]. A nonblocking collective has the moves of the messages that it is
//! made of. Blocking calls count where a partner was late ([`blocking`]). Bounded by
//! [`crate::limits`].

mod blocking;
pub mod intervals;
pub mod overlap_share;

use crate::event::{EventKind, MessageId, ProgressMode, SharedName, TraceEvent, has_tag};
use crate::limits::{LATE_NS, LITTLE_PERCENT, OPEN_OPERATIONS, PENDING_PAIRS_KEPT, SITES, THREADS};
use crate::record::OperationKind;
use blocking::{BlockingWaits, CurrentCall};
use intervals::{Interval, MpiIntervals, add};
use overlap_share::{OperationTimes, OverlapReason, OverlapShare, ProgressMeans, REASONS, judge};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};

/// An operation whose end was not seen yet.
#[derive(Clone, Debug)]
struct OpenOperation {
    thread: u32,
    started: u64,
    side: OperationKind,
    call: SharedName,
    site: SharedName,
    context: u32,
    tag: i32,
    moved: Vec<Interval>,
    /// Bytes of a collective: of its messages, sent and received, and those that it moves in shared
    /// memory.
    bytes: u64,
    /// The collective that it is a part of.
    part_of: Option<u64>,
}

/// One that is over, as far as its own rank can tell.
#[derive(Clone, Debug)]
struct FinishedOperation {
    rank: u32,
    open: Interval,
    returned: u64,
    side: OperationKind,
    call: SharedName,
    site: SharedName,
    bytes: u64,
    moved: Vec<Interval>,
    in_mpi: Vec<Interval>,
    part_of: Option<u64>,
    /// The message is the program's own, and not a collective's.
    own: bool,
}

#[derive(Debug, Default)]
struct RankOverlap {
    threads: HashMap<u32, MpiIntervals>,
    /// The calls that threads are in.
    current_calls: HashMap<u32, CurrentCall>,
    open: HashMap<u64, OpenOperation>,
    /// The collectives among them.
    collectives: Vec<u64>,
    /// Place where collectives were started: context and place.
    of_collectives: HashSet<(u32, SharedName)>,
    background: ProgressMode,
}

/// Sums over the operations of one call site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallSiteOverlap {
    /// Operations that are over.
    pub operations: u64,
    /// Operations that took too little to matter.
    pub small: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Time in which bytes were moved, in nanoseconds, all operations together.
    pub moving_ns: u64,
    /// Moving time that was hidden.
    pub hidden_ns: u64,
    /// Time waited for them.
    pub waited_ns: u64,
    /// Operations by the reason why little was hidden, or why they were waited for.
    pub reasons: [u64; REASONS],
    /// Time waited for those with each reason.
    pub waits_ns: [u64; REASONS],
}

impl CallSiteOverlap {
    /// The hidden part, in hundredths; `None` if nothing was there to hide.
    pub fn percent(&self) -> Option<u64> {
        (self.moving_ns > 0 && self.operations > self.small)
            .then(|| (u128::from(self.hidden_ns) * 100 / u128::from(self.moving_ns)) as u64)
    }

    /// Returns the most frequent reason, of those that matter if there are any. Where most was
    /// hidden all the same, the reason with the longest wait counts, if more was waited for than
    /// moving took. Otherwise only a reason counts that most operations had: what befell a few is
    /// not why the row is as it is.
    pub fn reason(&self) -> Option<OverlapReason> {
        if self
            .percent()
            .is_none_or(|percent| percent < LITTLE_PERCENT)
        {
            return self.most_frequent();
        }
        let waited = self.waited_ns >= LATE_NS && self.waited_ns > self.moving_ns;
        let longest = waited.then(|| self.longest_waited()).flatten();
        longest.or_else(|| {
            self.most_frequent()
                .filter(|reason| self.reasons[*reason as usize] > self.operations / 2)
        })
    }

    fn longest_waited(&self) -> Option<OverlapReason> {
        let waits = |reason: &OverlapReason| self.waits_ns[*reason as usize];
        OverlapReason::ALL
            .into_iter()
            .filter(|reason| *reason != OverlapReason::Small && waits(reason) >= LATE_NS)
            .max_by_key(|reason| (waits(reason), std::cmp::Reverse(*reason)))
    }

    fn most_frequent(&self) -> Option<OverlapReason> {
        let count = |reason: &OverlapReason| self.reasons[*reason as usize];
        let matters = OverlapReason::ALL
            .into_iter()
            .filter(|reason| *reason != OverlapReason::Small && count(reason) > 0);
        let most = matters.max_by_key(|reason| (count(reason), std::cmp::Reverse(*reason)));
        most.or_else(|| {
            (self.small > 0 && self.small == self.operations).then_some(OverlapReason::Small)
        })
    }

    fn add(&mut self, share: &OverlapShare, bytes: u64) {
        self.operations += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        for (sum, part) in [
            (&mut self.moving_ns, share.moving_ns),
            (&mut self.hidden_ns, share.hidden_ns),
            (&mut self.waited_ns, share.waited_ns),
        ] {
            *sum = sum.saturating_add(part);
        }
        if let Some(reason) = share.reason {
            self.reasons[reason as usize] += 1;
            let waits = &mut self.waits_ns[reason as usize];
            *waits = waits.saturating_add(share.waited_ns);
            self.small += u64::from(reason == OverlapReason::Small);
        }
    }
}

/// Computes how much of each operation was hidden, by call site. Feed it the events of each rank in
/// order ([`OverlapAnalysis::see`]), then call `finish`.
#[derive(Debug, Default)]
pub struct OverlapAnalysis {
    ranks: HashMap<u32, RankOverlap>,
    /// Messages of which one side is over, and whether that is the sender's.
    unpaired_messages: HashMap<MessageId, FinishedOperation>,
    order: VecDeque<MessageId>,
    /// Collectives that are over, for what is still to be known of their messages.
    collectives: HashMap<(u32, u64), FinishedOperation>,
    collectives_order: VecDeque<(u32, u64)>,
    rows: BTreeMap<(SharedName, SharedName), CallSiteOverlap>,
    blocking: BlockingWaits,
    crowded: bool,
    /// Records that nobody read.
    pub lost: u64,
}

/// Returns whether a function gives a request, so that there is something to hide.
fn is_nonblocking(call: &str) -> bool {
    call.starts_with("MPI_I") || call.starts_with("MPI_Start") || call.contains("_init")
}

impl OverlapAnalysis {
    /// For a job whose ranks take all cores that it has (`crowded`) or not.
    pub fn new(crowded: bool) -> Self {
        Self {
            crowded,
            ..Self::default()
        }
    }

    /// Takes one event.
    pub fn see(&mut self, seen: &TraceEvent) {
        let rank = self.ranks.entry(seen.rank).or_default();
        match &seen.kind {
            EventKind::Enter { call, site } => {
                if rank.threads.len() < THREADS || rank.threads.contains_key(&seen.thread) {
                    rank.threads
                        .entry(seen.thread)
                        .or_default()
                        .enter(seen.at_ns);
                    rank.current_calls
                        .entry(seen.thread)
                        .and_modify(CurrentCall::enter)
                        .or_insert_with(|| CurrentCall::new(call, site, seen.at_ns));
                }
            }
            EventKind::Leave { call } => {
                if let Some(thread) = rank.threads.get_mut(&seen.thread) {
                    thread.leave(seen.at_ns);
                }
                if rank
                    .current_calls
                    .get_mut(&seen.thread)
                    .is_some_and(CurrentCall::leave)
                    && let Some(inside) = rank.current_calls.remove(&seen.thread)
                    && !is_nonblocking(call)
                {
                    self.blocking.left(seen.rank, inside, seen.at_ns);
                }
            }
            EventKind::Collective { name } => {
                if let Some(inside) = rank.current_calls.get_mut(&seen.thread) {
                    inside.is_collective(name);
                }
            }
            EventKind::Start { .. } => rank.start(seen),
            EventKind::Work {
                operation,
                since_ns,
                bytes,
                ..
            } => {
                if let Some(open) = rank.open.get_mut(operation) {
                    if open.side == OperationKind::Collective {
                        open.bytes = open.bytes.saturating_add(*bytes);
                    }
                    add(&mut open.moved, Interval::new(*since_ns, seen.at_ns));
                }
            }
            EventKind::Done {
                operation,
                message,
                bytes,
            } => {
                if let Some(ended) = rank.end(seen, *operation, *bytes) {
                    self.ended(ended, *operation, *message);
                }
            }
            EventKind::State(state) => rank.background = *state,
            EventKind::Lost(records) => {
                self.lost = self.lost.saturating_add(*records);
                rank.threads.values_mut().for_each(MpiIntervals::forget);
                // Of what was open, who knows what became of it.
                rank.open.clear();
                rank.collectives.clear();
                rank.current_calls.clear();
            }
            EventKind::TurnBegin
            | EventKind::TurnEnd
            | EventKind::SleepBegin
            | EventKind::SleepEnd
            | EventKind::Run { .. }
            | EventKind::Named { .. }
            | EventKind::Died => {}
        }
    }

    fn ended(&mut self, ended: FinishedOperation, operation: u64, message: Option<MessageId>) {
        if ended.side == OperationKind::Collective {
            let key = (ended.rank, operation);
            self.collectives_order.push_back(key);
            if let Some(old) = self.collectives.insert(key, ended) {
                self.judge(&old, None);
            }
            if self.collectives_order.len() > PENDING_PAIRS_KEPT
                && let Some(oldest) = self.collectives_order.pop_front()
                && let Some(ended) = self.collectives.remove(&oldest)
            {
                self.judge(&ended, None);
            }
            return;
        }
        let Some(message) = message else {
            return self.judge(&ended, None);
        };
        if let Some(other) = self.unpaired_messages.remove(&message) {
            if other.rank != ended.rank {
                self.join(ended, other);
            }
            return;
        }
        self.order.push_back(message);
        self.unpaired_messages.insert(message, ended);
        if self.order.len() > PENDING_PAIRS_KEPT
            && let Some(oldest) = self.order.pop_front()
            && let Some(ended) = self.unpaired_messages.remove(&oldest)
        {
            self.judge(&ended, None);
        }
    }

    /// Both sides of a message are over: each has the other's moves, too.
    fn join(&mut self, mut one: FinishedOperation, mut other: FinishedOperation) {
        let moved: Vec<Interval> = one.moved.iter().chain(&other.moved).copied().collect();
        let times = (one.open.begin, other.open.begin);
        (one.moved, other.moved) = (moved.clone(), moved);
        self.judge(&one, Some(times.1));
        self.judge(&other, Some(times.0));
    }

    fn judge(&mut self, ended: &FinishedOperation, partner: Option<u64>) {
        if let Some(whole) = ended.part_of {
            let Some(collective) = self.collectives.get_mut(&(ended.rank, whole)) else {
                if let Some(open) = self
                    .ranks
                    .get_mut(&ended.rank)
                    .and_then(|rank| rank.open.get_mut(&whole))
                {
                    ended
                        .moved
                        .iter()
                        .for_each(|span| add(&mut open.moved, *span));
                    open.bytes = open.bytes.saturating_add(ended.bytes);
                }
                return;
            };
            collective.bytes = collective.bytes.saturating_add(ended.bytes);
            return ended
                .moved
                .iter()
                .for_each(|span| add(&mut collective.moved, *span));
        }
        if !is_nonblocking(&ended.call) {
            if ended.own {
                self.blocking
                    .message((&ended.call, &ended.site), ended.open, partner, ended.bytes);
            }
            return;
        }
        let means = ProgressMeans {
            background: self
                .ranks
                .get(&ended.rank)
                .map_or_else(ProgressMode::default, |rank| rank.background),
            crowded: self.crowded,
        };
        // Moves of the other side may reach beyond this side's end: its last word is under way
        // then.
        let moved = ended.moved.iter().map(|span| span.intersection(ended.open));
        let life = OperationTimes {
            open: ended.open,
            returned: ended.returned,
            partner,
            receives: ended.side == OperationKind::Receive,
            moved: moved.collect(),
            in_mpi: &ended.in_mpi,
        };
        let share = judge(life, means);
        let row = self
            .rows
            .entry((ended.site.clone(), ended.call.clone()))
            .or_default();
        row.add(&share, ended.bytes);
    }

    /// The rows, by place and function: no more is to come.
    pub fn finish(mut self) -> BTreeMap<(SharedName, SharedName), CallSiteOverlap> {
        let halves: Vec<FinishedOperation> = std::mem::take(&mut self.unpaired_messages)
            .into_values()
            .collect();
        halves.iter().for_each(|ended| self.judge(ended, None));
        let collectives: Vec<FinishedOperation> = std::mem::take(&mut self.collectives)
            .into_values()
            .collect();
        collectives.iter().for_each(|ended| self.judge(ended, None));
        self.rows.extend(self.blocking.finish());
        self.rows
    }
}

impl RankOverlap {
    fn start(&mut self, seen: &TraceEvent) {
        let EventKind::Start {
            operation,
            side,
            call,
            site,
            context,
            tag,
            ..
        } = &seen.kind
        else {
            return;
        };
        if self.open.len() >= OPEN_OPERATIONS {
            return;
        }
        // Messages of a nonblocking collective bear its place, its context and its tag.
        let is_part = |name: &&u64| {
            let whole = self.open.get(*name);
            whole.is_some_and(|open| {
                (open.context, open.tag >> 1) == (*context, tag >> 1) && open.site == *site
            })
        };
        let part_of = match side {
            OperationKind::Collective => None,
            _ => self.collectives.iter().find(is_part).copied(),
        };
        let place = (*context, site.clone());
        if *side == OperationKind::Collective {
            self.collectives.push(*operation);
            if self.of_collectives.len() < SITES {
                self.of_collectives.insert(place);
            }
        } else if part_of.is_none() && self.of_collectives.contains(&place) {
            // By such messages the ranks agree where a communicator's collectives meet, on behalf
            // of the first that calls one.
            return;
        }
        let open = OpenOperation {
            thread: seen.thread,
            started: seen.at_ns,
            side: *side,
            call: call.clone(),
            site: site.clone(),
            context: *context,
            tag: *tag,
            moved: Vec::new(),
            bytes: 0,
            part_of,
        };
        self.open.insert(*operation, open);
    }

    fn end(&mut self, seen: &TraceEvent, operation: u64, bytes: u64) -> Option<FinishedOperation> {
        let open = self.open.remove(&operation)?;
        if open.side == OperationKind::Collective {
            self.collectives.retain(|name| *name != operation);
        }
        let life = Interval::new(open.started, seen.at_ns);
        let in_mpi = self
            .threads
            .get(&open.thread)
            .map_or_else(Vec::new, |thread| thread.within(life));
        // The call that started it is the one that its start lies in.
        let returned = in_mpi
            .first()
            .filter(|part| part.begin <= life.begin)
            .map_or(life.begin, |part| part.end);
        Some(FinishedOperation {
            rank: seen.rank,
            open: life,
            returned,
            side: open.side,
            call: open.call,
            site: open.site,
            bytes: bytes.saturating_add(open.bytes),
            moved: open.moved,
            in_mpi,
            part_of: open.part_of,
            own: has_tag(open.side, open.context),
        })
    }
}

#[cfg(test)]
mod tests;
