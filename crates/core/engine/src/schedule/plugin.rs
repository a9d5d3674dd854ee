//! A strategy that others wrote: what it is asked, what it may answer, and what becomes of its
//! answers.
//!
//! It is asked only where there is something to decide, and each of its answers is checked before
//! anything is done with it. Where it leaves a decision to us or answers rubbish the built-in
//! strategy decides. So a bad one can be slow, never wrong. Bounded by one row of counts for each
//! peer.

use crate::api::{Context, Peer};
use crate::limits::{SPLIT_LEAST, SPLIT_WAYS};
use crate::schedule::order::{self, Chunk};
use crate::schedule::stripe::{self, Way};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// What a strategy says when it is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<T> {
    /// This.
    Decided(T),
    /// The built-in strategy may decide.
    Yours,
    /// Nothing that means anything.
    Rubbish,
}

/// What a strategy decides at all; for the rest it is not asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decides {
    /// [`Strategy::may_wait`].
    pub waiting: bool,
    /// [`Strategy::order`].
    pub order: bool,
    /// [`Strategy::piece`].
    pub pieces: bool,
}

/// A small message that is sent now, and could wait for others to leave in one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// To whom.
    pub peer: Peer,
    /// The context that its envelope belongs to: all messages of one kind of one communicator.
    pub context: Context,
    /// Its tag.
    pub tag: i32,
    /// Messages to this peer since the rank looked at its connections, without it.
    pub since_look: u32,
    /// How many were sent between the two looks before, and how many series in a row had that
    /// length.
    pub series: (u32, u32),
    /// Messages that the built-in strategy would have leave at once, since one was overdue.
    pub backoff: u32,
    /// Its bytes.
    pub len: u64,
    /// Bytes that wait, it included.
    pub kept: u64,
}

/// The oldest messages of a peer's window.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// To whom.
    pub peer: Peer,
    /// Envelopes that the peer still accepts: so many messages may leave now, at most.
    pub envelopes: u32,
    /// Payload bytes that it still accepts unasked.
    pub payload: u64,
    /// The messages, from the oldest on: at least two, of more than one context.
    pub chunks: &'a [Chunk],
}

/// One of the ways of large data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lane {
    /// Rate, latency and backlog.
    pub way: Way,
    /// Pieces that it has been asked for and has not brought.
    pub asked: u32,
    /// Pieces that it may be asked for now.
    pub room: u32,
    /// Bytes of such a piece at most.
    pub most: u64,
}

impl Lane {
    /// A way that has been asked for so many pieces, and may be for so many more; `known`: what it
    /// does has been seen.
    pub fn new(way: Way, asked: u32, room: u32, known: bool) -> Self {
        // Of a way that nobody knows little is asked until it has shown what it does.
        let most = if known {
            stripe::most(&way)
        } else {
            SPLIT_LEAST
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
pub struct Flow<'a> {
    /// From whom.
    pub peer: Peer,
    /// Bytes that nobody was asked for.
    pub left: u64,
    /// Bytes of the next piece at least, and at most what its way says.
    pub least: u64,
    /// The ways, at most [`SPLIT_WAYS`].
    pub ways: &'a [Lane],
}

/// A piece of large data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The way that it is asked for on.
    pub way: usize,
    /// Its bytes.
    pub len: u64,
}

/// Decisions of the optimisation window. Pure functions: the same question gets the same answer,
/// whenever and wherever it is asked. They are called by whichever thread moves messages, of which
/// there may be several, while the rank's other threads wait.
pub trait Strategy: std::fmt::Debug + Send + Sync {
    /// What it decides.
    fn decides(&self) -> Decides;

    /// Whether a message may wait for the rank's next look at its connections. It leaves with all
    /// that waits otherwise.
    fn may_wait(&self, _message: &Message) -> Answer<bool> {
        Answer::Yours
    }

    /// Places in the window, in the order in which its messages are to leave: all of them, and
    /// those of one context in their order.
    fn order(&self, _window: &Window<'_>) -> Answer<Vec<usize>> {
        Answer::Yours
    }

    /// The next piece and its way; none: nothing more until one that was asked for has come.
    fn piece(&self, _flow: &Flow<'_>) -> Answer<Option<Piece>> {
        Answer::Yours
    }
}

/// A kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// [`Strategy::may_wait`].
    Waiting,
    /// [`Strategy::order`].
    Order,
    /// [`Strategy::piece`].
    Piece,
}

impl Question {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Order, Self::Piece];
}

/// How often a strategy was asked a kind of question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Times it was asked.
    pub asked: u64,
    /// Answers that were carried out.
    pub accepted: u64,
    /// Answers that were not; it left the rest to us.
    pub refused: u64,
}

/// Words of a row of counts.
const ROW: usize = 3 * Question::ALL.len();

/// Bytes of the counts of an engine in a world of so many.
pub fn counts_bytes(world: u32) -> usize {
    world as usize * ROW * size_of::<u64>()
}

/// The counts of a peer in a table that was read from another process, which may be anything.
pub fn read_counts(table: &[u8], peer: Peer) -> Option<[Counts; 3]> {
    let words = table.as_chunks().0;
    let row = words.chunks_exact(ROW).nth(peer as usize)?;
    let word = |at: usize| u64::from_le_bytes(row[at]);
    Some(Question::ALL.map(|question| {
        let at = 3 * question as usize;
        Counts {
            asked: word(at),
            accepted: word(at + 1),
            refused: word(at + 2),
        }
    }))
}

/// A strategy with the counts of its answers. Shared by engine and rail of one rank.
#[derive(Debug)]
pub struct Loaded {
    strategy: Box<dyn Strategy>,
    decides: Decides,
    /// Relaxed: each word is right by itself, for those who watch from outside.
    counts: Box<[AtomicU64]>,
}

impl Loaded {
    /// For a rank of a world of so many.
    pub fn new(strategy: Box<dyn Strategy>, world: u32) -> Self {
        Self {
            decides: strategy.decides(),
            strategy,
            counts: (0..world as usize * ROW)
                .map(|_| AtomicU64::new(0))
                .collect(),
        }
    }

    /// What it decides.
    pub fn decides(&self) -> Decides {
        self.decides
    }

    /// The address of the counts, which stays as long as this lives; [`counts_bytes`] and
    /// [`read_counts`] say what lies there.
    pub fn at(&self) -> usize {
        self.counts.as_ptr().expose_provenance()
    }

    /// The counts of a peer.
    pub fn counts(&self, peer: Peer) -> [Counts; 3] {
        Question::ALL.map(|question| {
            let [asked, accepted, refused] = [0, 1, 2].map(|at| {
                let word = self.word(peer, question, at);
                word.map_or(0, |word| word.load(Relaxed))
            });
            Counts {
                asked,
                accepted,
                refused,
            }
        })
    }

    fn word(&self, peer: Peer, question: Question, at: usize) -> Option<&AtomicU64> {
        self.counts
            .get(peer as usize * ROW + 3 * question as usize + at)
    }

    /// What is left of an answer, of which `checked` is what may be carried out.
    fn count<T>(
        &self,
        peer: Peer,
        question: Question,
        answer: Answer<T>,
        check: impl FnOnce(T) -> Option<T>,
    ) -> Option<T> {
        let add = |at: usize| {
            if let Some(word) = self.word(peer, question, at) {
                word.fetch_add(1, Relaxed);
            }
        };
        add(0);
        let (at, accepted) = match answer {
            Answer::Yours => return None,
            Answer::Rubbish => (2, None),
            Answer::Decided(said) => match check(said) {
                Some(said) => (1, Some(said)),
                None => (2, None),
            },
        };
        add(at);
        accepted
    }

    /// Whether a message may wait, if the strategy says it. Not asked of messages that must leave.
    pub fn may_wait(&self, message: &Message) -> Option<bool> {
        if !self.decides.waiting {
            return None;
        }
        let answer = self.strategy.may_wait(message);
        self.count(message.peer, Question::Waiting, answer, Some)
    }

    /// The order of a window's messages, if the strategy gives one that may be carried out.
    pub fn order(&self, window: &Window<'_>) -> Option<Vec<usize>> {
        if !self.decides.order {
            return None;
        }
        let answer = self.strategy.order(window);
        let whole = |order: Vec<usize>| {
            let whole = order.len() == window.chunks.len() && order::check(window.chunks, &order);
            whole.then_some(order)
        };
        self.count(window.peer, Question::Order, answer, whole)
    }

    /// The next piece, of an allowed length, on a way that has room, if the strategy names one;
    /// `Some(None)`: none before one that was asked for has come.
    pub fn piece(&self, flow: &Flow<'_>) -> Option<Option<Piece>> {
        if !self.decides.pieces || flow.ways.len() > SPLIT_WAYS {
            return None;
        }
        let answer = self.strategy.piece(flow);
        self.count(flow.peer, Question::Piece, answer, |said| {
            allowed(flow, said)
        })
    }
}

/// What is carried out of an answer about a piece: nobody waits for what nobody was asked for, and
/// lengths are brought within their bounds.
fn allowed(flow: &Flow<'_>, said: Option<Piece>) -> Option<Option<Piece>> {
    let Some(Piece { way, len }) = said else {
        return flow.ways.iter().any(|lane| lane.asked > 0).then_some(None);
    };
    let lane = flow.ways.get(way).filter(|lane| lane.room > 0)?;
    let most = lane.most.max(flow.least);
    let len = len.clamp(flow.least, most).min(flow.left);
    Some(Some(Piece { way, len }))
}

#[cfg(test)]
mod tests;
