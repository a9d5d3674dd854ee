//! A strategy that others wrote: what it is asked, what it may answer, and what becomes of its
//! answers.
//!
//! It is asked only where there is something to decide, and each of its answers is checked before
//! anything is done with it. Where it leaves a decision to us or answers rubbish the built-in
//! strategy decides. So a bad one can be slow, never wrong. Bounded by one row of counts for each
//! peer.

use crate::api::{ContextId, Peer};
use crate::limits::{STRIPE_LEAST, STRIPE_PATHS};
use crate::schedule::order::{self, WindowEntry};
use crate::schedule::stripe::{self, RailEstimate};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Answer of a strategy.
#[derive(Clone, Debug, PartialEq)]
pub enum PluginAnswer<T> {
    /// This.
    Decided(T),
    /// The built-in strategy may decide.
    Yours,
    /// Nothing that means anything.
    Rubbish,
}

/// The decisions that a strategy makes; for others it is not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PluginDecisions {
    /// [`StrategyPlugin::may_wait`].
    pub waiting: bool,
    /// [`StrategyPlugin::order`].
    pub order: bool,
    /// [`StrategyPlugin::piece`].
    pub pieces: bool,
}

/// A small message that is sent now, and could wait for others to leave in one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceQuery {
    /// To whom.
    pub peer: Peer,
    /// The context that its envelope belongs to: all messages of one kind of one communicator.
    pub context: ContextId,
    /// Tag of the message.
    pub tag: i32,
    /// Messages to this peer since the rank looked at its connections, without it.
    pub since_look: u32,
    /// Length of the last burst between two polls, and number of bursts in a row of that length.
    pub series: (u32, u32),
    /// Messages that the built-in strategy would have leave at once, since one was overdue.
    pub backoff: u32,
    /// Length of the message in bytes.
    pub len: u64,
    /// Bytes that wait, it included.
    pub kept: u64,
}

/// The oldest messages of a peer's window.
#[derive(Clone, Copy, Debug)]
pub struct WindowView<'a> {
    /// To whom.
    pub peer: Peer,
    /// Envelopes that the peer still accepts: so many messages may leave now, at most.
    pub envelopes: u32,
    /// Payload bytes that it still accepts unasked.
    pub payload: u64,
    /// The messages, from the oldest on: at least two, of more than one context.
    pub chunks: &'a [WindowEntry],
}

/// A rail as a strategy sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RailView {
    /// Rate, latency and backlog.
    pub way: RailEstimate,
    /// Pieces that it has been asked for and has not brought.
    pub asked: u32,
    /// Pieces that it may be asked for now.
    pub room: u32,
    /// Bytes of such a piece at most.
    pub most: u64,
}

impl RailView {
    /// A rail that has been asked for so many pieces, and may be for so many more; `known`: what it
    /// does has been seen.
    pub fn new(way: RailEstimate, asked: u32, room: u32, known: bool) -> Self {
        // Of a rail that nobody knows little is asked until it has shown what it does.
        let most = if known {
            stripe::most(&way)
        } else {
            STRIPE_LEAST
        };
        Self {
            way,
            asked,
            room,
            most,
        }
    }
}

/// Large data that are to be read from a peer.
#[derive(Clone, Copy, Debug)]
pub struct StripeQuery<'a> {
    /// From whom.
    pub peer: Peer,
    /// Bytes that nobody was asked for.
    pub left: u64,
    /// Bytes of the next piece at least, and at most what its way says.
    pub least: u64,
    /// The rails, at most [`STRIPE_PATHS`].
    pub ways: &'a [RailView],
}

/// A piece of large data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripePiece {
    /// The rail that it is asked for on.
    pub way: usize,
    /// Length of the message in bytes.
    pub len: u64,
}

/// Decisions of the optimisation window. Pure functions: the same question gets the same answer,
/// whenever and wherever it is asked. They are called by whichever thread moves messages, of which
/// there may be several, while the rank's other threads wait.
pub trait StrategyPlugin: std::fmt::Debug + Send + Sync {
    /// Returns the decisions that the strategy makes.
    fn decides(&self) -> PluginDecisions;

    /// Decides whether a message may wait for the rank's next poll of its connections. Otherwise it
    /// leaves with all that waits.
    fn may_wait(&self, _message: &CoalesceQuery) -> PluginAnswer<bool> {
        PluginAnswer::Yours
    }

    /// Places in the window, in the order in which its messages are to leave: all of them, and
    /// those of one context in their order.
    fn order(&self, _window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
        PluginAnswer::Yours
    }

    /// The next piece and its way; none: nothing more until one that was asked for has come.
    fn piece(&self, _flow: &StripeQuery<'_>) -> PluginAnswer<Option<StripePiece>> {
        PluginAnswer::Yours
    }
}

/// A kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// [`StrategyPlugin::may_wait`].
    Waiting,
    /// [`StrategyPlugin::order`].
    Order,
    /// [`StrategyPlugin::piece`].
    Piece,
}

impl DecisionKind {
    /// All variants.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Order, Self::Piece];
}

/// Number of queries of one kind, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionCounts {
    /// Times it was asked.
    pub asked: u64,
    /// Answers that were carried out.
    pub accepted: u64,
    /// Answers that were not; it left the rest to us.
    pub refused: u64,
}

/// Words of a row of counts.
const ROW: usize = 3 * DecisionKind::ALL.len();

/// Bytes of the counts of an engine in a world of so many.
pub fn counts_bytes(world: u32) -> usize {
    world as usize * ROW * size_of::<u64>()
}

/// The counts of a peer in a table that was read from another process, which may be anything.
pub fn read_counts(table: &[u8], peer: Peer) -> Option<[DecisionCounts; 3]> {
    let words = table.as_chunks().0;
    let row = words.chunks_exact(ROW).nth(peer as usize)?;
    let word = |at: usize| u64::from_le_bytes(row[at]);
    Some(DecisionKind::ALL.map(|question| {
        let at = 3 * question as usize;
        DecisionCounts {
            asked: word(at),
            accepted: word(at + 1),
            refused: word(at + 2),
        }
    }))
}

/// A strategy with the counts of its answers. Shared by engine and rail of one rank.
#[derive(Debug)]
pub struct CheckedPlugin {
    strategy: Box<dyn StrategyPlugin>,
    decides: PluginDecisions,
    /// Relaxed: each word is right by itself, for those who watch from outside.
    counts: Box<[AtomicU64]>,
}

impl CheckedPlugin {
    /// For a rank of a world of so many.
    pub fn new(strategy: Box<dyn StrategyPlugin>, world: u32) -> Self {
        Self {
            decides: strategy.decides(),
            strategy,
            counts: (0..world as usize * ROW)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// Returns the decisions that the strategy makes.
    pub fn decides(&self) -> PluginDecisions {
        self.decides
    }

    /// The address of the counts, which stays as long as this lives; [`counts_bytes`] and
    /// [`read_counts`] say what lies there.
    pub fn at(&self) -> usize {
        self.counts.as_ptr().expose_provenance()
    }

    /// The counts of a peer.
    pub fn counts(&self, peer: Peer) -> [DecisionCounts; 3] {
        DecisionKind::ALL.map(|question| {
            let [asked, accepted, refused] = [0, 1, 2].map(|at| {
                let word = self.word(peer, question, at);
                word.map_or(0, |word| word.load(Relaxed))
            });
            DecisionCounts {
                asked,
                accepted,
                refused,
            }
        })
    }

    fn word(&self, peer: Peer, question: DecisionKind, at: usize) -> Option<&AtomicU64> {
        self.counts
            .get(peer as usize * ROW + 3 * question as usize + at)
    }

    /// Counts an answer, and returns `checked`, the part that may be carried out.
    fn count<T>(
        &self,
        peer: Peer,
        question: DecisionKind,
        answer: PluginAnswer<T>,
        check: impl FnOnce(T) -> Option<T>,
    ) -> Option<T> {
        let add = |at: usize| {
            if let Some(word) = self.word(peer, question, at) {
                word.fetch_add(1, Relaxed);
            }
        };
        add(0);
        let (at, accepted) = match answer {
            PluginAnswer::Yours => return None,
            PluginAnswer::Rubbish => (2, None),
            PluginAnswer::Decided(said) => match check(said) {
                Some(said) => (1, Some(said)),
                None => (2, None),
            },
        };
        add(at);
        accepted
    }

    /// Returns whether a message may wait, if the strategy decides that. Not asked of messages that
    /// must leave.
    pub fn may_wait(&self, message: &CoalesceQuery) -> Option<bool> {
        if !self.decides.waiting {
            return None;
        }
        let answer = self.strategy.may_wait(message);
        self.count(message.peer, DecisionKind::Waiting, answer, Some)
    }

    /// The order of a window's messages, if the strategy gives one that may be carried out.
    pub fn order(&self, window: &WindowView<'_>) -> Option<Vec<usize>> {
        if !self.decides.order {
            return None;
        }
        let answer = self.strategy.order(window);
        let whole = |order: Vec<usize>| {
            let whole = order.len() == window.chunks.len() && order::check(window.chunks, &order);
            whole.then_some(order)
        };
        self.count(window.peer, DecisionKind::Order, answer, whole)
    }

    /// The next piece, of an allowed length, on a rail that has room, if the strategy names one;
    /// `Some(None)`: none before one that was asked for has come.
    pub fn piece(&self, flow: &StripeQuery<'_>) -> Option<Option<StripePiece>> {
        if !self.decides.pieces || flow.ways.len() > STRIPE_PATHS {
            return None;
        }
        let answer = self.strategy.piece(flow);
        self.count(flow.peer, DecisionKind::Piece, answer, |said| {
            allowed(flow, said)
        })
    }
}

/// Returns the valid part of an answer about a piece: lengths are clamped, and nothing waits unless
/// data are under way.
fn allowed(flow: &StripeQuery<'_>, said: Option<StripePiece>) -> Option<Option<StripePiece>> {
    let Some(StripePiece { way, len }) = said else {
        return flow.ways.iter().any(|lane| lane.asked > 0).then_some(None);
    };
    let lane = flow.ways.get(way).filter(|lane| lane.room > 0)?;
    let most = lane.most.max(flow.least);
    let len = len.clamp(flow.least, most).min(flow.left);
    Some(Some(StripePiece { way, len }))
}

#[cfg(test)]
mod tests;
