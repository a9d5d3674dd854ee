//! The part of a lane's payload area that its writer uses. The part grows as more data goes
//! through.

/// Units that a lane's writer fills before it comes back to the first, to begin with: enough for a
/// message of some dozens of kilobytes beside one that is being read.
pub(super) const LAP_FIRST: u32 = 4096;

/// Rounds after which it takes twice as many: by then the pages of the next cost a part of what the
/// bytes did.
const LAP_ROUNDS: u32 = 4;

/// Part of its area that a lane's writer fills before it begins anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct FillLimit {
    /// The writer comes back to the first unit from about here.
    pub(super) units: u32,
    most: u32,
    rounds: u32,
}

impl FillLimit {
    pub(super) fn new(most: u32) -> Self {
        Self {
            units: LAP_FIRST.min(most),
            most,
            rounds: 0,
        }
    }

    /// The writer comes back to the first unit.
    pub(super) fn again(&mut self) {
        self.rounds += 1;
        if self.rounds >= LAP_ROUNDS {
            (self.units, self.rounds) = ((self.units * 2).min(self.most), 0);
        }
    }
}

/// Times that a lane's writer has to come back to its first unit until it has filled `most` units
/// once.
pub(crate) fn rounds_to(most: u32) -> u32 {
    let doublings = most
        .checked_div(LAP_FIRST)
        .and_then(u32::checked_ilog2)
        .unwrap_or(0);
    LAP_ROUNDS * doublings + 1
}
