//! Envelopes of a sequence that are out of order.
//!
//! Owned by a [`Sequence`](crate::peer::sequences::Sequence), and present only while something is
//! out of order: envelopes that arrived early, and envelopes pulled out of the sender's window.
//! Bounded by the credits of the peer and the pending receives.

use std::collections::BTreeMap;

/// Envelopes of a sequence that are out of order.
#[derive(Debug, Default)]
pub(crate) struct Reorder {
    /// Envelopes that arrived early, by number: slots of the store.
    pub early: BTreeMap<u64, u32>,
    /// Numbers taken by a query whose envelope is on its way: the receive's slot and generation, or
    /// a taken probe's message.
    pub reserved: BTreeMap<u64, ReservedFor>,
    /// Numbers that already were delivered out of sequence, as ranges start to end (exclusive).
    pub delivered: BTreeMap<u64, u64>,
}

/// Taker of an envelope that was pulled out of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedFor {
    /// The receive in this slot.
    Receive(u32),
    /// The message in this slot of the store, taken by a matched probe.
    Message(u32),
}

impl Reorder {
    /// Nothing is out of sequence any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.early.is_empty() && self.reserved.is_empty() && self.delivered.is_empty()
    }

    /// Notes that `number` was delivered, joining neighbouring ranges.
    pub(crate) fn note_delivered(&mut self, number: u64) {
        let mut end = number + 1;
        if let Some(next) = self.delivered.remove(&end) {
            end = next;
        }
        if let Some((_, last)) = self.delivered.range_mut(..number).next_back()
            && *last == number
        {
            *last = end;
            return;
        }
        self.delivered.insert(number, end);
    }

    /// Returns whether `number` was delivered out of sequence.
    pub(crate) fn was_delivered(&self, number: u64) -> bool {
        self.delivered
            .range(..=number)
            .next_back()
            .is_some_and(|(_, end)| number < *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delivered_numbers_join_into_ranges() {
        let mut reorder = Reorder::default();
        for number in [5, 7, 6, 1, 9, 8] {
            reorder.note_delivered(number);
        }
        assert_eq!(reorder.delivered, BTreeMap::from([(1, 2), (5, 10)]));
        assert!(
            reorder.was_delivered(9) && !reorder.was_delivered(10) && !reorder.was_delivered(4)
        );
    }
}
