//! Which version of a format two sides speak with each other: a function of what both say, the same
//! on either side.
//!
//! Used by the handshake of this transport, and by `node` for what ranks and their agents say to
//! each other. Pure. The highest version that both speak is the one; each side tells the other,
//! under seal, which it found, so that nobody on the way has them use an older one.

use std::fmt;

/// The versions of a format that a library speaks: all from the lowest to the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub lowest: u16,
    /// The newest; not below the oldest.
    pub highest: u16,
}

/// Two sides have no version in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoneInCommon;

impl Versions {
    /// The highest version that both speak.
    ///
    /// # Errors
    /// There is none.
    pub fn agree(self, theirs: Self) -> Result<u16, NoneInCommon> {
        let best = self.highest.min(theirs.highest);
        let spoken = best >= self.lowest.max(theirs.lowest);
        spoken.then_some(best).ok_or(NoneInCommon)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.lowest, self.highest)
    }
}

impl From<(u16, u16)> for Versions {
    fn from((lowest, highest): (u16, u16)) -> Self {
        Self { lowest, highest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn agree(ours: (u16, u16), theirs: (u16, u16)) -> Option<u16> {
        Versions::from(ours).agree(theirs.into()).ok()
    }

    #[test]
    fn the_highest_that_both_speak_is_the_one() {
        assert_eq!(agree((6, 6), (6, 6)), Some(6));
        assert_eq!(agree((6, 7), (6, 6)), Some(6));
        assert_eq!(agree((6, 6), (6, 7)), Some(6));
        assert_eq!(agree((6, 7), (6, 7)), Some(7));
        assert_eq!(agree((5, 6), (6, 7)), Some(6));
        assert_eq!(agree((4, 5), (6, 7)), None);
        assert_eq!(agree((6, 7), (4, 5)), None);
    }

    proptest! {
        #[test]
        fn both_sides_find_the_same_and_there_is_no_better(ours: (u16, u16), theirs: (u16, u16)) {
            let ordered = |(a, b): (u16, u16)| (a.min(b), a.max(b));
            let (ours, theirs) = (ordered(ours), ordered(theirs));
            let found = agree(ours, theirs);
            prop_assert_eq!(found, agree(theirs, ours));
            let speaks = |(lowest, highest): (u16, u16), version: u16| (lowest..=highest).contains(&version);
            let best = (0..=u16::MAX).rev().find(|version| speaks(ours, *version) && speaks(theirs, *version));
            prop_assert_eq!(found, best);
        }
    }
}
