//! The words of a need: `4 groups sharing cache near network`, `2 groups sharing memory: 2 groups
//! sharing cache`. Pure.
//!
//! A level is a number of groups, the ranks of each (`of 4`), and wishes. What follows a colon is
//! what is in each group. Commas and the words `each`, `and`, `with`, `ranks` are there for
//! readers.

use std::ops::Range;

/// What the ranks of a group have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shared {
    /// A host.
    Host,
    /// The memory of a NUMA node.
    Memory,
    /// A cache.
    Cache,
}

/// A device that a group is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearDevice {
    /// A network card.
    Network,
    /// A graphics processor or another accelerator.
    Gpu,
    /// A disk.
    Storage,
}

impl NearDevice {
    /// Name for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Network => "network card",
            Self::Gpu => "GPU",
            Self::Storage => "disk",
        }
    }
}

/// Bounds of a need: more levels than machines have, more words than anybody writes.
const LEVELS_MAX: usize = 8;
const TEXT_MAX: usize = 1024;

/// A level of groups, with what is in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Number of groups; `None`: as many as the ranks make.
    pub count: Option<u32>,
    /// Ranks of each; `None`: all, shared out evenly.
    pub size: Option<u32>,
    /// What the ranks of a group share.
    pub shared: Option<Shared>,
    /// What each group is near.
    pub near: Option<NearDevice>,
    /// Whether no two groups are to share the memory of a NUMA node, since each uses all of its
    /// bandwidth.
    pub memory_bound: bool,
    /// Cores of each rank.
    pub cores: Option<u32>,
    /// Groups in each group.
    pub inside: Option<Box<Need>>,
}

impl Need {
    /// Reads the words of a need.
    ///
    /// # Errors
    /// Which word is not understood, for the user.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!("a need has at most {TEXT_MAX} bytes"));
        }
        let levels: Vec<&str> = text.split(':').collect();
        if levels.len() > LEVELS_MAX {
            return Err(format!("a need has at most {LEVELS_MAX} levels"));
        }
        let mut need: Option<Self> = None;
        for level in levels.into_iter().rev() {
            let mut own = Self::level(level)?;
            if let Some(inner) = &need {
                own.check_inside(inner)?;
            }
            own.inside = need.map(Box::new);
            need = Some(own);
        }
        need.ok_or_else(|| "a need has words".into())
    }

    fn level(text: &str) -> Result<Self, String> {
        let mut need = Self::default();
        let words = text
            .split([' ', ',', '\t', '\n'])
            .filter(|word| !word.is_empty());
        let mut words = words.peekable();
        if words.peek().is_none() {
            return Err("a level of the need is empty; one is '4 groups sharing cache'".into());
        }
        while let Some(word) = words.next() {
            if let Ok(number) = word.parse::<u32>() {
                let place = match words.next() {
                    Some("group" | "groups") => &mut need.count,
                    Some("core" | "cores") => &mut need.cores,
                    other => {
                        return Err(format!(
                            "'{number} {}' is not understood; '{number} groups' and '{number} cores' are",
                            other.unwrap_or_default()
                        ));
                    }
                };
                if number == 0 {
                    return Err(format!("'{word}' of something is no need"));
                }
                if place.replace(number).is_some() {
                    return Err(format!("'{word}' says again what is said before it"));
                }
                continue;
            }
            match word {
                "each" | "and" | "with" | "group" | "groups" | "ranks" | "rank" | "a" => {}
                "of" => {
                    let size = words
                        .next()
                        .and_then(|word| word.parse().ok())
                        .filter(|size| *size > 0);
                    need.size = Some(size.ok_or("'of' is followed by a number of ranks")?);
                }
                "sharing" => {
                    need.shared = Some(match words.next() {
                        Some("cache") => Shared::Cache,
                        Some("memory") => Shared::Memory,
                        Some("host") => Shared::Host,
                        other => {
                            return Err(format!(
                                "what is shared is 'cache', 'memory' or 'host', not '{}'",
                                other.unwrap_or_default()
                            ));
                        }
                    });
                }
                "near" => {
                    need.near = Some(match words.find(|word| *word != "a") {
                        Some("network") => NearDevice::Network,
                        Some("gpu" | "GPU") => NearDevice::Gpu,
                        Some("storage" | "disk") => NearDevice::Storage,
                        other => {
                            return Err(format!(
                                "groups are near 'network', 'gpu' or 'storage', not '{}'",
                                other.unwrap_or_default()
                            ));
                        }
                    });
                }
                "memory-bound" => need.memory_bound = true,
                other => {
                    return Err(format!(
                        "'{other}' is not understood; a need is such as '4 groups sharing cache near network'"
                    ));
                }
            }
        }
        Ok(need)
    }

    fn check_inside(&self, inner: &Self) -> Result<(), String> {
        if let (Some(outer), Some(inner)) = (self.shared, inner.shared)
            && inner <= outer
        {
            return Err("groups within groups share something nearer than those around them: host, then memory, then cache".into());
        }
        if self.cores.is_some() && inner.cores.is_some() {
            return Err("cores of a rank are said once".into());
        }
        if inner.memory_bound && self.shared >= Some(Shared::Memory) {
            return Err(
                "groups within one memory cannot each have the bandwidth of a memory".into(),
            );
        }
        Ok(())
    }

    /// Cores of each rank, wherever that is said.
    pub fn cores_of_rank(&self) -> u32 {
        let inner = || self.inside.as_ref().map(|inside| inside.cores_of_rank());
        self.cores.or_else(inner).unwrap_or(1)
    }

    /// Ranks of each group, and number of groups, where there are `ranks` in all.
    ///
    /// # Errors
    /// The ranks cannot be shared out so.
    pub fn shape(&self, ranks: u32) -> Result<(u32, u32), String> {
        let (count, size) = match (self.count, self.size) {
            (Some(count), Some(size)) => (count, size),
            (Some(count), None) => (count, ranks / count),
            (None, Some(size)) => (ranks / size, size),
            (None, None) => (1, ranks),
        };
        match u64::from(count) * u64::from(size) == u64::from(ranks) && ranks > 0 {
            true => Ok((size, count)),
            false => Err(format!("{ranks} ranks are not {}", self.shape_text())),
        }
    }

    fn shape_text(&self) -> String {
        match (self.count, self.size) {
            (Some(count), Some(size)) => format!("{count} groups of {size}"),
            (Some(count), None) => format!("{count} groups of one size"),
            (None, Some(size)) => format!("groups of {size}"),
            (None, None) => "a group".into(),
        }
    }

    /// The groups of a job of `ranks` ranks, by their ranks.
    ///
    /// # Errors
    /// The ranks cannot be shared out so, at some level.
    pub fn groups(&self, ranks: u32) -> Result<Vec<Range<u32>>, String> {
        let (size, count) = self.shape(ranks)?;
        let (mut need, mut inner) = (self, size);
        while let Some(inside) = &need.inside {
            inner = inside.shape(inner)?.0;
            need = inside;
        }
        Ok((0..count)
            .map(|group| group * size..(group + 1) * size)
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn needs_are_read_as_people_write_them() {
        let need = Need::parse("4 groups sharing a cache, each near network");
        assert!(need.is_err(), "'a' is no thing to share");
        let need = Need::parse("4 groups sharing cache, each near a network").unwrap();
        let expected = Need {
            count: Some(4),
            shared: Some(Shared::Cache),
            near: Some(NearDevice::Network),
            ..Need::default()
        };
        assert_eq!(need, expected);
        let nested = Need::parse("2 groups sharing memory, memory-bound: groups of 2 ranks sharing cache with 2 cores each").unwrap();
        assert_eq!(nested.cores_of_rank(), 2);
        assert!(nested.memory_bound && nested.inside.as_ref().unwrap().size == Some(2));
        assert_eq!(nested.groups(8).unwrap(), [0..4, 4..8]);
    }

    #[test]
    fn what_is_not_understood_or_does_not_fit_is_told() {
        for (text, word) in [
            ("", "empty"),
            ("4", "'4 '"),
            ("4 clubs", "'4 clubs'"),
            ("0 groups", "'0'"),
            ("2 groups 3 groups", "again"),
            ("groups of many", "number of ranks"),
            ("near coast", "'coast'"),
            ("sharing secrets", "'secrets'"),
            ("2 groups sharing cache: 2 groups sharing memory", "nearer"),
            ("a: a: a: a: a: a: a: a: a", "levels"),
            ("quickly", "'quickly'"),
        ] {
            let fault = Need::parse(text).unwrap_err();
            assert!(fault.contains(word), "{text}: {fault}");
        }
        let fault = Need::parse("4 groups").unwrap().groups(6).unwrap_err();
        assert!(fault.contains("6 ranks are not 4 groups"), "{fault}");
        let fault = Need::parse("2 groups: 2 groups")
            .unwrap()
            .groups(6)
            .unwrap_err();
        assert!(fault.contains("3 ranks"), "{fault}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_need_or_an_error(text in "[ -~]{0,60}", ranks in 0u32..5000) {
            if let Ok(need) = Need::parse(&text) {
                let _ = need.groups(ranks);
            }
        }

        #[test]
        fn any_words_of_needs_are_a_need_or_an_error(words in prop::collection::vec("groups|of|[0-9]{1,11}|sharing|cache|near|network|:|memory|cores", 0..12), ranks in 0u32..5000) {
            if let Ok(groups) = Need::parse(&words.join(" ")).and_then(|need| need.groups(ranks)) {
                prop_assert_eq!(groups.iter().map(|group| group.len()).sum::<usize>(), ranks as usize);
            }
        }
    }
}
