//! The layout of nonblocking-collective slots: those of a communicator, and those of one persistent
//! collective.

use super::{ROUNDS, WIDE_SETS};
use crate::shm_barrier::{CELL_BYTES, NOTE_BYTES};

/// Number of rounds, and lengths of their cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbcLayout {
    /// A power of two: how far a member that waits for nobody may be ahead of those that wait for
    /// it.
    pub rounds: u32,
    /// Sets of wide cells; divides `rounds`.
    pub sets: u32,
    /// Bytes of a small cell, at most [`CELL_BYTES`].
    pub cell: usize,
    /// Bytes of a wide one; 0: there are none.
    pub wide: usize,
}

impl NbcLayout {
    /// The layout of a communicator's slots, in which its collectives meet one after another.
    pub const fn common(wide: usize) -> Self {
        Self {
            rounds: ROUNDS,
            sets: WIDE_SETS,
            cell: CELL_BYTES,
            wide,
        }
    }

    /// The layout of the slots of one persistent collective, which a member never has open twice.
    /// Cells have at least `len` bytes.
    pub const fn own(rounds: u32, len: usize) -> Self {
        // As long as the lines of a slot that it needs.
        let (cell, wide) = if len <= CELL_SHORT {
            (CELL_SHORT, 0)
        } else if len <= CELL_BYTES {
            (CELL_BYTES, 0)
        } else {
            (CELL_SHORT, len.next_multiple_of(CELL_BYTES))
        };
        Self {
            rounds,
            sets: rounds,
            cell,
            wide,
        }
    }

    /// Returns whether it can be one: for what another process said.
    pub fn is_sound(&self) -> bool {
        let counts = self.rounds.is_power_of_two() && (1..=ROUNDS).contains(&self.rounds);
        let sets = self.sets > 0 && self.rounds.is_multiple_of(self.sets);
        let cells = [CELL_SHORT, CELL_BYTES].contains(&self.cell);
        counts && sets && cells && self.wide.is_multiple_of(CELL_BYTES)
    }

    /// The most that a member can put down in one cell.
    pub const fn room(&self) -> usize {
        if self.wide > self.cell {
            self.wide
        } else {
            self.cell
        }
    }
}

/// A cell that fits a line pair together with the flag and note before it.
const CELL_SHORT: usize = 128 - 8 - NOTE_BYTES;
