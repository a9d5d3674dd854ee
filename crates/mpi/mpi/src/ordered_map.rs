//! A map that keeps the order in which its keys came: what info objects and cached attributes are.
//!
//! Owned by an info object or by the attributes of one object. Each operation costs the same
//! however many keys there are, but for the number of a key after others were taken out between the
//! first and the last: the next such question closes the gaps.

use std::collections::HashMap;
use std::hash::Hash;

/// Places without an entry that are kept at least before the entries move together.
const GAPS_KEPT: usize = 16;

/// A map that keeps the order in which its keys came.
#[derive(Clone, Debug)]
pub(crate) struct OrderedMap<K, V> {
    /// Entries in the order in which their keys came, with gaps where some were taken out. Never
    /// begins or ends with a gap.
    entries: Vec<Option<(K, V)>>,
    /// Place where the first entry is: everything before is a gap.
    first: usize,
    places: HashMap<K, usize>,
}

impl<K, V> Default for OrderedMap<K, V> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            first: 0,
            places: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash, V> OrderedMap<K, V> {
    /// The value of `key`.
    pub fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let place = *self.places.get(key)?;
        self.entries[place].as_ref().map(|(_, value)| value)
    }

    /// Gives `key` this value. A new key comes last; one that is there stays where it is.
    pub fn set(&mut self, key: K, value: V) {
        match self.places.get(&key) {
            Some(&place) => self.entries[place] = Some((key, value)),
            None => {
                self.places.insert(key.clone(), self.entries.len());
                self.entries.push(Some((key, value)));
            }
        }
    }

    /// Takes `key` out.
    pub fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: std::borrow::Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let place = self.places.remove(key)?;
        let taken = self.entries[place].take();
        while self.entries.last().is_some_and(Option::is_none) {
            self.entries.pop();
        }
        self.first = self.first.min(self.entries.len());
        while self.entries.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
        if self.entries.len() > 2 * self.len() + GAPS_KEPT {
            self.close_gaps();
        }
        taken.map(|(_, value)| value)
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The entry whose key came as the `n`-th of those that are there, counted from 0.
    pub fn nth(&mut self, n: usize) -> Option<(&K, &V)> {
        if self.entries.len() - self.first != self.len() {
            self.close_gaps();
        }
        let (key, value) = self.entries.get(self.first.checked_add(n)?)?.as_ref()?;
        Some((key, value))
    }

    /// The entry whose key came last.
    pub fn last(&self) -> Option<(&K, &V)> {
        let (key, value) = self.entries.last()?.as_ref()?;
        Some((key, value))
    }

    /// All entries in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries
            .iter()
            .flatten()
            .map(|(key, value)| (key, value))
    }

    fn close_gaps(&mut self) {
        self.entries.retain(Option::is_some);
        self.first = 0;
        for (place, (key, _)) in self.entries.iter().flatten().enumerate() {
            if let Some(known) = self.places.get_mut(key) {
                *known = place;
            }
        }
    }
}

impl<K: Clone + Eq + Hash, V> FromIterator<(K, V)> for OrderedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut map = Self::default();
        pairs
            .into_iter()
            .for_each(|(key, value)| map.set(key, value));
        map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn keys_are_numbered_in_the_order_in_which_they_came(steps in proptest::collection::vec((0u8..3, 0u8..40), 0..400)) {
            let mut map = OrderedMap::default();
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (at, (step, key)) in steps.into_iter().enumerate() {
                let known = model.iter().position(|(other, _)| *other == key);
                match step {
                    0 => {
                        map.set(key, at);
                        match known {
                            Some(known) => model[known].1 = at,
                            None => model.push((key, at)),
                        }
                    }
                    1 => prop_assert_eq!(map.remove(&key), known.map(|known| model.remove(known).1)),
                    _ => {
                        let nth = map.nth(key.into()).map(|(key, value)| (*key, *value));
                        prop_assert_eq!(nth, model.get(usize::from(key)).copied());
                    }
                }
                prop_assert_eq!(map.get(&key).copied(), model.iter().find(|(other, _)| *other == key).map(|(_, value)| *value));
                prop_assert_eq!(map.last().map(|(key, value)| (*key, *value)), model.last().copied());
                prop_assert_eq!(map.len(), model.len());
                prop_assert!(map.entries.len() <= 2 * map.len() + GAPS_KEPT);
            }
            prop_assert_eq!(map.iter().map(|(key, value)| (*key, *value)).collect::<Vec<_>>(), model);
        }
    }
}
