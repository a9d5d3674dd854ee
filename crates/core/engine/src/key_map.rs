//! Constant-time lookup structures of the engine: a hash table over two-word keys, and keyed
//! first-in-first-out lists.
//!
//! Owned by the matcher, the sequences of peers and the send window. Single-threaded. Bounded by
//! what their owners put in: a key leaves the table with its last item, and storage doubles at
//! `grow` only, so a steady state allocates nothing.

/// "No index".
pub(crate) const NONE: u32 = u32::MAX;

/// Two words that name a list or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableKey(pub u64, pub u64);

#[derive(Clone, Debug)]
struct MapNode<V> {
    key: TableKey,
    next: u32,
    value: V,
}

/// A chained hash table whose entries have stable indices while they live.
#[derive(Debug)]
pub(crate) struct KeyMap<V> {
    buckets: Vec<u32>,
    shift: u32,
    nodes: Vec<MapNode<V>>,
    free: u32,
    used: usize,
}

const BUCKETS_MIN_LOG2: u32 = 4;

/// Fibonacci hashing of both words, without so many of the low bits.
#[inline]
pub(crate) fn digest(key: TableKey, shift: u32) -> u64 {
    let mixed =
        key.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ key.1.wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed
        .rotate_left(29)
        .wrapping_add(mixed)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        >> shift
}

/// The top bits select the bucket, so there are always enough of them.
#[inline]
fn place(key: TableKey, shift: u32) -> usize {
    digest(key, shift) as usize
}

impl<V: Default> KeyMap<V> {
    pub(crate) fn new() -> Self {
        Self {
            buckets: vec![NONE; 1 << BUCKETS_MIN_LOG2],
            shift: 64 - BUCKETS_MIN_LOG2,
            nodes: Vec::new(),
            free: NONE,
            used: 0,
        }
    }

    #[inline]
    fn bucket(&self, key: TableKey) -> usize {
        place(key, self.shift)
    }

    /// The index of the entry of `key`.
    #[inline]
    pub(crate) fn find(&self, key: TableKey) -> Option<u32> {
        let mut at = self.buckets[self.bucket(key)];
        while at != NONE {
            let node = &self.nodes[at as usize];
            if node.key == key {
                return Some(at);
            }
            at = node.next;
        }
        None
    }

    /// Returns whether the living entry at `index` has the key `key`; `false` for an index beyond
    /// the entries.
    #[inline(always)]
    fn has(&self, index: u32, key: TableKey) -> bool {
        self.nodes
            .get(index as usize)
            .is_some_and(|node| node.key == key)
    }

    /// The index of the entry of `key`, made with a default value if there was none.
    #[inline]
    pub(crate) fn find_or_insert(&mut self, key: TableKey) -> u32 {
        match self.find(key) {
            Some(at) => at,
            None => self.insert(key),
        }
    }

    fn insert(&mut self, key: TableKey) -> u32 {
        if self.used >= self.buckets.len() {
            self.grow();
        }
        let bucket = self.bucket(key);
        let node = MapNode {
            key,
            next: self.buckets[bucket],
            value: V::default(),
        };
        let at = if self.free != NONE {
            let at = self.free;
            self.free = self.nodes[at as usize].next;
            self.nodes[at as usize] = node;
            at
        } else {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        };
        self.buckets[bucket] = at;
        self.used += 1;
        at
    }

    /// Doubles the buckets: the one place where the table's shape changes.
    #[cold]
    fn grow(&mut self) {
        self.shift -= 1;
        let mut buckets = vec![NONE; self.buckets.len() * 2];
        for old in std::mem::take(&mut self.buckets) {
            let mut at = old;
            while at != NONE {
                let next = self.nodes[at as usize].next;
                let bucket = place(self.nodes[at as usize].key, self.shift);
                self.nodes[at as usize].next = buckets[bucket];
                buckets[bucket] = at;
                at = next;
            }
        }
        self.buckets = buckets;
    }

    /// Removes the entry at `index`.
    pub(crate) fn remove(&mut self, index: u32) {
        let bucket = self.bucket(self.nodes[index as usize].key);
        let next = self.nodes[index as usize].next;
        let mut at = self.buckets[bucket];
        if at == index {
            self.buckets[bucket] = next;
        } else {
            while self.nodes[at as usize].next != index {
                at = self.nodes[at as usize].next;
            }
            self.nodes[at as usize].next = next;
        }
        self.nodes[index as usize].next = self.free;
        self.nodes[index as usize].value = V::default();
        self.free = index;
        self.used -= 1;
    }

    #[inline]
    pub(crate) fn get(&self, index: u32) -> &V {
        &self.nodes[index as usize].value
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, index: u32) -> &mut V {
        &mut self.nodes[index as usize].value
    }

    /// Entries alive.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.used
    }
}

#[derive(Clone, Copy, Debug)]
struct QueueEnds {
    head: u32,
    tail: u32,
}

impl Default for QueueEnds {
    fn default() -> Self {
        Self {
            head: NONE,
            tail: NONE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct QueueLink {
    prev: u32,
    next: u32,
    list: u32,
}

const UNLINKED: QueueLink = QueueLink {
    prev: NONE,
    next: NONE,
    list: NONE,
};

/// First-in-first-out lists found by key, whose items can be unlinked from the middle. A link is a
/// number that its owner chooses (an item in several lists owns several links).
#[derive(Debug)]
pub(crate) struct KeyedQueues {
    keys: KeyMap<QueueEnds>,
    links: Vec<QueueLink>,
    /// The list used last, if it lives: a series of messages is between two, with one tag.
    last: u32,
}

impl KeyedQueues {
    pub(crate) fn new() -> Self {
        Self {
            keys: KeyMap::new(),
            links: Vec::new(),
            last: NONE,
        }
    }

    /// The list of `key`, if there is one.
    #[inline(always)]
    fn list(&mut self, key: TableKey) -> Option<u32> {
        if self.keys.has(self.last, key) {
            return Some(self.last);
        }
        let found = self.keys.find(key)?;
        self.last = found;
        Some(found)
    }

    /// Forgets a list that became empty.
    #[inline]
    fn remove_list(&mut self, list: u32) {
        if self.last == list {
            self.last = NONE;
        }
        self.keys.remove(list);
    }

    /// Appends `link` to the list of `key`.
    #[inline(always)]
    pub(crate) fn push(&mut self, key: TableKey, link: u32) {
        if link as usize >= self.links.len() {
            self.links.resize(link as usize + 1, UNLINKED);
        }
        let list = match self.list(key) {
            Some(list) => list,
            None => self.keys.insert(key),
        };
        let ends = self.keys.get_mut(list);
        let prev = ends.tail;
        ends.tail = link;
        if prev == NONE {
            ends.head = link;
        } else {
            self.links[prev as usize].next = link;
        }
        self.links[link as usize] = QueueLink {
            prev,
            next: NONE,
            list,
        };
    }

    /// Puts `link` before all of the list of `key`, which holds something.
    pub(crate) fn push_front(&mut self, key: TableKey, link: u32) {
        let Some(list) = self.list(key) else {
            return self.push(key, link);
        };
        if link as usize >= self.links.len() {
            self.links.resize(link as usize + 1, UNLINKED);
        }
        let next = std::mem::replace(&mut self.keys.get_mut(list).head, link);
        self.links[next as usize].prev = link;
        self.links[link as usize] = QueueLink {
            prev: NONE,
            next,
            list,
        };
    }

    /// Takes `link` out of its list. It must be in one.
    #[inline]
    pub(crate) fn remove(&mut self, link: u32) {
        let QueueLink { prev, next, list } =
            std::mem::replace(&mut self.links[link as usize], UNLINKED);
        assert_ne!(list, NONE, "a link that is in no list was removed");
        if prev == NONE && next == NONE {
            self.remove_list(list);
            return;
        }
        if prev == NONE {
            self.keys.get_mut(list).head = next;
        } else {
            self.links[prev as usize].next = next;
        }
        if next == NONE {
            self.keys.get_mut(list).tail = prev;
        } else {
            self.links[next as usize].prev = prev;
        }
    }

    /// The oldest link in the list of `key`.
    #[inline]
    pub(crate) fn head(&self, key: TableKey) -> Option<u32> {
        self.keys.find(key).map(|list| self.keys.get(list).head)
    }

    /// Takes the oldest link out of the list of `key`.
    #[inline(always)]
    pub(crate) fn pop(&mut self, key: TableKey) -> Option<u32> {
        let list = self.list(key)?;
        let head = self.keys.get(list).head;
        let next = std::mem::replace(&mut self.links[head as usize], UNLINKED).next;
        if next == NONE {
            self.remove_list(list);
        } else {
            self.keys.get_mut(list).head = next;
            self.links[next as usize].prev = NONE;
        }
        Some(head)
    }

    /// The link after `link` in its list.
    pub(crate) fn next(&self, link: u32) -> Option<u32> {
        match self.links[link as usize].next {
            NONE => None,
            next => Some(next),
        }
    }

    /// Returns whether `link` is in a list.
    pub(crate) fn linked(&self, link: u32) -> bool {
        self.links
            .get(link as usize)
            .is_some_and(|link| link.list != NONE)
    }

    /// Returns whether no list holds anything.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, VecDeque};

    #[test]
    fn lists_behave_like_a_map_of_queues() {
        let mut lists = KeyedQueues::new();
        let mut model: HashMap<u64, VecDeque<u32>> = HashMap::new();
        let mut at: HashMap<u32, u64> = HashMap::new();
        let mut state = 88172645463325252u64;
        for _ in 0..50_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let link = (state % 300) as u32;
            let key = (state >> 20) % 97;
            if state.is_multiple_of(7) && !at.contains_key(&link) {
                lists.push_front(TableKey(key, key * 3), link);
                model.entry(key).or_default().push_front(link);
                at.insert(link, key);
            } else if state.is_multiple_of(5) {
                let popped = lists.pop(TableKey(key, key * 3));
                assert_eq!(popped, model.get_mut(&key).and_then(VecDeque::pop_front));
                popped.map(|link| at.remove(&link));
            } else if let Some(key) = at.remove(&link) {
                lists.remove(link);
                model.get_mut(&key).unwrap().retain(|&other| other != link);
            } else {
                lists.push(TableKey(key, key * 3), link);
                model.entry(key).or_default().push_back(link);
                at.insert(link, key);
            }
            assert_eq!(
                lists.head(TableKey(key, key * 3)),
                model.get(&key).and_then(|queue| queue.front().copied())
            );
        }
        for (link, _) in at {
            lists.remove(link);
        }
        assert!(lists.is_empty());
    }
}
