//! Sets of CPU numbers, as the kernel writes them (`0-3,8`).

use crate::limits::CPUS_MAX;

/// A set of CPUs. Bounded by [`CPUS_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Bit `i % 64` of word `i / 64` is CPU `i`; the last word is never zero.
    words: Vec<u64>,
}

impl CpuSet {
    /// No CPU.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the kernel's list form. `None` if it is not one.
    pub fn parse(list: &str) -> Option<Self> {
        let mut set = Self::new();
        if list.trim().is_empty() {
            return Some(set);
        }
        for range in list.trim().split(',') {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            if first > last || last >= CPUS_MAX {
                return None;
            }
            (first..=last).for_each(|cpu| set.insert(cpu));
        }
        Some(set)
    }

    /// Reads the kernel's mask form: words of 32 bits in hexadecimal, the highest first, between
    /// commas. `None` if it is not one.
    pub fn parse_mask(mask: &str) -> Option<Self> {
        let mut set = Self::new();
        for (index, word) in mask.trim().split(',').rev().enumerate() {
            let word = u32::from_str_radix(word, 16).ok()?;
            (0..32)
                .filter(|bit| word >> bit & 1 == 1)
                .for_each(|bit| set.insert(index as u32 * 32 + bit));
        }
        Some(set)
    }

    /// Adds a CPU. Numbers beyond the limit are ignored: no kernel has them.
    pub fn insert(&mut self, cpu: u32) {
        if cpu >= CPUS_MAX {
            return;
        }
        let word = cpu as usize / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (cpu % 64);
    }

    /// Returns whether it has the CPU.
    pub fn contains(&self, cpu: u32) -> bool {
        self.words
            .get(cpu as usize / 64)
            .is_some_and(|word| word >> (cpu % 64) & 1 == 1)
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.words
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// CPUs in increasing order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        let cpus = 0..self.words.len() as u32 * 64;
        cpus.filter(|cpu| self.contains(*cpu))
    }

    /// CPUs of either.
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).collect()
    }

    /// Returns whether any CPU is in both.
    pub fn meets(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).any(|(a, b)| a & b != 0)
    }

    /// CPUs that are in both.
    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|cpu| other.contains(*cpu)).collect()
    }

    /// Returns whether every CPU of `other` is in it.
    pub fn covers(&self, other: &Self) -> bool {
        let mine = |index: usize| self.words.get(index).copied().unwrap_or(0);
        other
            .words
            .iter()
            .enumerate()
            .all(|(index, word)| word & !mine(index) == 0)
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The words of the mask, as `sched_setaffinity` takes them.
    pub fn words(&self) -> &[u64] {
        &self.words
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = Self::new();
        cpus.into_iter().for_each(|cpu| set.insert(cpu));
        set
    }
}

impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            match first == last {
                true => write!(f, "{separator}{first}")?,
                false => write!(f, "{separator}{first}-{last}")?,
            }
            separator = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_reads_back_from_its_text(cpus in proptest::collection::btree_set(0u32..300, 0..60)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.len(), cpus.len());
            prop_assert_eq!(set.iter().collect::<Vec<_>>(), cpus.into_iter().collect::<Vec<_>>());
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Some(set));
        }
    }

    proptest! {
        #[test]
        fn covering_and_intersection_agree_with_their_members(
            a in proptest::collection::btree_set(0u32..200, 0..40), b in proptest::collection::btree_set(0u32..200, 0..40),
        ) {
            let (left, right): (CpuSet, CpuSet) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(left.covers(&right), b.is_subset(&a));
            prop_assert_eq!(left.intersection(&right), a.intersection(&b).copied().collect::<CpuSet>());
            prop_assert!(left.union(&right).covers(&left));
            prop_assert_eq!(left.first(), a.first().copied());
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["x", "3-1", "1-", "99999999", "-1", "0,,1", ",", "1,"] {
            assert_eq!(CpuSet::parse(text), None, "{text}");
        }
        assert_eq!(CpuSet::parse("\n"), Some(CpuSet::new()));
        assert_eq!(
            CpuSet::parse_mask("00000001,80000003\n"),
            CpuSet::parse("0-1,31-32")
        );
        assert_eq!(CpuSet::parse_mask("0x1"), None);
    }
}
