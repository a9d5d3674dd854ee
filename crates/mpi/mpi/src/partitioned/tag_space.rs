//! Tags of pieces: ranges that live at a time do not overlap.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The tags that a receiver gave to senders on one communicator. Tag 0 is not among them: it
/// belongs to the messages of [`super::matching`].
#[derive(Default)]
pub(super) struct TagSpace(Mutex<UsedTags>);

#[derive(Default)]
struct UsedTags {
    /// Number of tags of each range, by its first tag.
    ranges: BTreeMap<i32, i32>,
    /// Tag at which the search for a free range begins.
    next: i32,
}

impl UsedTags {
    /// First of `len` free tags at or after `from`.
    fn free_from(&self, from: i32, len: i32) -> Option<i32> {
        let mut first = from.max(1);
        if let Some((&before, &length)) = self.ranges.range(..=first).next_back() {
            first = first.max(before.checked_add(length)?);
        }
        for (&used, &length) in self.ranges.range(first..) {
            if used - first >= len {
                return Some(first);
            }
            first = used.checked_add(length)?;
        }
        (i32::MAX - first >= len).then_some(first)
    }
}

impl TagSpace {
    /// Reserves `len` tags that follow each other; `None` if there is no such range.
    pub fn reserve(self: &Arc<Self>, len: u32) -> Option<TagRange> {
        // A range of no tags is a range of one, so that ranges have different first tags.
        let len = i32::try_from(len.max(1)).ok()?;
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let next = used.next;
        let first = used.free_from(next, len);
        let first = first.or_else(|| used.free_from(1, len))?;
        used.ranges.insert(first, len);
        used.next = first.saturating_add(len);
        Some(TagRange {
            first,
            space: self.clone(),
        })
    }
}

/// Tags in use; free again when dropped.
pub(super) struct TagRange {
    /// The first of them.
    pub first: i32,
    space: Arc<TagSpace>,
}

impl Drop for TagRange {
    fn drop(&mut self) {
        let mut used = self.space.0.lock().unwrap_or_else(PoisonError::into_inner);
        used.ranges.remove(&self.first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_do_not_overlap_and_gaps_are_used_again() {
        let space = Arc::new(TagSpace::default());
        let a = space.reserve(10).unwrap();
        let b = space.reserve(5).unwrap();
        assert_eq!((a.first, b.first), (1, 11));
        let rest = space.reserve(i32::MAX as u32 - 16).unwrap();
        assert_eq!(rest.first, 16);
        assert!(space.reserve(1).is_none());
        drop(a);
        assert_eq!(space.reserve(10).unwrap().first, 1);
        drop(b);
        assert!(space.reserve(16).is_none());
        assert_eq!(space.reserve(15).unwrap().first, 1);
    }
}
