//! The limits of this crate, each with the reason for its value.

/// Moves that one answer of a scheduler may have, for each bubble and thread there is. A thread is
/// moved once for each level of the machine at most, and the deepest machines have eight.
pub const MOVES_PER_ENTITY: usize = 8;

/// Moves that any answer may have, however few bubbles there are.
pub const MOVES_LEAST: usize = 64;

/// How often a processor that found nothing is offered to the scheduler before it stays idle. Each
/// time may open one level of nested bubbles.
pub const IDLE_ROUNDS: usize = 8;

/// Events that follow from moves and are told to the scheduler before the framework goes on. A
/// scheduler that answers each with another move would never end.
pub const FOLLOWING_EVENTS: usize = 256;
