//! Shared caches: which areas of memory each has, the latest used last.

use garonne_bubbles::MemoryId;

/// A cache that many cores share.
#[derive(Clone, Debug, Default)]
pub(crate) struct SharedCache {
    held: Vec<(MemoryId, u64)>,
}

impl SharedCache {
    /// Uses an area of memory, of which the cache holds `room` bytes at most. Returns the bytes
    /// that had to be loaded.
    pub(crate) fn touch(&mut self, memory: MemoryId, bytes: u64, room: u64) -> u64 {
        let bytes = bytes.min(room);
        let before = self.drop(memory);
        self.held.push((memory, bytes));
        let mut used: u64 = self.held.iter().map(|(_, bytes)| bytes).sum();
        while used > room {
            used -= self.held.remove(0).1;
        }
        if before { 0 } else { bytes }
    }

    /// Drops an area of memory; returns whether it was held.
    pub(crate) fn drop(&mut self, memory: MemoryId) -> bool {
        let before = self.held.len();
        self.held.retain(|(held, _)| *held != memory);
        self.held.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_leaves_first() {
        let mut cache = SharedCache::default();
        let [a, b, c] = [MemoryId(0), MemoryId(1), MemoryId(2)];
        assert_eq!(cache.touch(a, 40, 100), 40);
        assert_eq!(cache.touch(b, 40, 100), 40);
        assert_eq!(cache.touch(a, 40, 100), 0);
        assert_eq!(cache.touch(c, 40, 100), 40);
        assert_eq!(cache.touch(a, 40, 100), 0);
        assert_eq!(cache.touch(b, 40, 100), 40);
        assert_eq!(cache.touch(c, 500, 100), 100);
        assert!(cache.drop(c) && !cache.drop(c) && !cache.drop(a));
    }
}
