//! What a rank has sent, as fresh as this moment: read from its memory where that may be read, else
//! what it published last.
//!
//! A rank publishes when it sleeps and when credits move. One that computes, or exchanges few small
//! messages, does neither for long; so who wants to know reads the words from which its engines
//! count. The rank does nothing for it.

use garonne_engine::observe::counters;
use garonne_links::process_memory::memory_of;
use garonne_sync::shm::Segment;

use garonne_job::layout::{self, RankBlock, RankState, SentTotals, WorldShape};

/// Messages that a rank has sent and received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentCounters {
    /// Messages sent, and unexpected messages, as the rank published them last.
    pub tally: SentTotals,
    /// Changes with messages that it receives; 0: not known.
    pub received: u64,
}

/// Returns the counters of a rank of this host.
pub fn of(world_memory: &Segment, shape: &WorldShape, rank: u32) -> SentCounters {
    let published = layout::tally(world_memory, shape, rank);
    let card = RankBlock::of(world_memory, rank);
    let mut counted = SentCounters {
        tally: published,
        received: 0,
    };
    if card.state() != RankState::Running || card.pid() == 0 {
        return counted;
    }
    let pid = card.pid();
    let of_engine = |address| counters::read(address, |at, len| memory_of(pid, at, len));
    let engines = layout::counters(world_memory, shape, rank)
        .into_iter()
        .map(of_engine);
    // All or nothing: a part of them would be less than what is known.
    let Some(engines) = engines.collect::<Option<Vec<_>>>() else {
        return counted;
    };
    let sum = |value: fn(&counters::CounterValues) -> u64| {
        engines.iter().map(value).fold(0, u64::wrapping_add)
    };
    // What was sent to a peer that is gone is counted no more, but was published.
    counted.tally.messages = published.messages.max(sum(|engine| engine.messages));
    counted.tally.bytes = published.bytes.max(sum(|engine| engine.bytes));
    counted.received = sum(|engine| engine.received);
    counted
}
