//! What the members of a communicator agree on through their agents, where ranks may die
//! (docs/reference/job.md, C11).
//!
//! Each member gives a [`Contribution`] to its agent, which passes it to the first agent. The first
//! agent knows who has died, and decides once every member has contributed or is gone. Members get
//! the same [`Decision`], whatever dies afterwards. Owns the encoding.

use crate::agent_messages::{put_numbers, ranks};
use crate::error::Result;
use crate::limits::RANKS_MAX;
use crate::rank_messages::{MessageReader, MessageWriter, malformed};

/// Name of an agreement. Two that are open at a time have different names: the groups of two
/// communicators of one context have no member in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AgreementKey {
    /// Number of the world.
    pub epoch: u32,
    /// First context of the communicator.
    pub context: u32,
    /// First member of the communicator.
    pub first: u32,
    /// Number of the agreement on the communicator.
    pub number: u32,
}

/// What a member brings to an agreement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contribution {
    /// Name of the agreement.
    pub key: AgreementKey,
    /// Members, in the order of ranks of the world.
    pub members: Vec<u32>,
    /// Members whose death this member has acknowledged, in order.
    pub acknowledged: Vec<u32>,
    /// Bits of which all members' conjunction is decided.
    pub flags: u32,
    /// Number of which the greatest is decided.
    pub number: u32,
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Name of the agreement.
    pub key: AgreementKey,
    /// Members that are dead, in order.
    pub dead: Vec<u32>,
    /// Whether all members that contributed have acknowledged all these deaths.
    pub acknowledged: bool,
    /// Conjunction of the members' bits.
    pub flags: u32,
    /// Greatest of the members' numbers.
    pub number: u32,
}

fn put_key(writer: MessageWriter, key: &AgreementKey) -> MessageWriter {
    let words = [key.epoch, key.context, key.first, key.number];
    words
        .iter()
        .fold(writer, |writer, word| writer.raw(word.to_le_bytes()))
}

fn read_key(r: &mut MessageReader<'_>) -> Result<AgreementKey> {
    Ok(AgreementKey {
        epoch: r.u32()?,
        context: r.u32()?,
        first: r.u32()?,
        number: r.u32()?,
    })
}

/// Appends ranks in ascending order as runs, each by its first rank and its length: a message about
/// a whole world stays short.
fn put_ranks(writer: MessageWriter, ranks: &[u32]) -> MessageWriter {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((first, count)) if first.checked_add(*count) == Some(rank) => *count += 1,
            _ => runs.push((rank, 1)),
        }
    }
    let words = runs.iter().flat_map(|(first, count)| [first, count]);
    let words: Vec<[u8; 4]> = words.map(|word| word.to_le_bytes()).collect();
    put_numbers(writer, words.into_iter())
}

/// Reads ranks that [`put_ranks`] wrote.
fn read_ranks(r: &mut MessageReader<'_>) -> Result<Vec<u32>> {
    let words = ranks(r)?;
    let (runs, rest) = words.as_chunks::<2>();
    let mut all = Vec::new();
    for [first, count] in runs {
        let end = first.checked_add(*count).filter(|end| *end <= RANKS_MAX);
        let end = end.ok_or_else(|| malformed("a run of ranks reaches beyond the last"))?;
        if all.len() + *count as usize > RANKS_MAX as usize {
            return Err(malformed("it names more ranks than there are"));
        }
        all.extend(*first..end);
    }
    match rest.is_empty() {
        true => Ok(all),
        false => Err(malformed("a run of ranks has no length")),
    }
}

impl Contribution {
    /// Appends the contribution.
    pub fn put(&self, writer: MessageWriter) -> MessageWriter {
        let writer = put_key(writer, &self.key)
            .raw(self.flags.to_le_bytes())
            .raw(self.number.to_le_bytes());
        put_ranks(put_ranks(writer, &self.members), &self.acknowledged)
    }

    /// Reads a contribution.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read(r: &mut MessageReader<'_>) -> Result<Self> {
        let key = read_key(r)?;
        Ok(Self {
            key,
            flags: r.u32()?,
            number: r.u32()?,
            members: read_ranks(r)?,
            acknowledged: read_ranks(r)?,
        })
    }
}

impl Decision {
    /// Appends the decision.
    pub fn put(&self, writer: MessageWriter) -> MessageWriter {
        let writer = put_key(writer, &self.key)
            .raw(self.flags.to_le_bytes())
            .raw(self.number.to_le_bytes())
            .raw([u8::from(self.acknowledged)]);
        put_ranks(writer, &self.dead)
    }

    /// Reads a decision.
    ///
    /// # Errors
    /// It is damaged.
    pub fn read(r: &mut MessageReader<'_>) -> Result<Self> {
        let key = read_key(r)?;
        Ok(Self {
            key,
            flags: r.u32()?,
            number: r.u32()?,
            acknowledged: r.raw()? != [0],
            dead: read_ranks(r)?,
        })
    }
}

/// An agreement that is not decided.
#[derive(Debug)]
struct OpenAgreement {
    members: Vec<u32>,
    /// By member: whether it has contributed.
    contributed: Vec<bool>,
    /// Deaths that each contribution acknowledges.
    acknowledged: Vec<Vec<u32>>,
    flags: u32,
    number: u32,
}

/// The agreements of a job, at its first agent, which decides them: a value without clock or
/// sockets.
///
/// [`contribute`](Self::contribute) and [`lose`](Self::lose) return what is decided by then; each
/// agreement is decided once. Memory of an agreement goes with its decision.
#[derive(Debug, Default)]
pub struct Agreements {
    open: std::collections::HashMap<AgreementKey, OpenAgreement>,
    /// Ranks that will contribute nothing more, in order; and whether they died.
    gone: std::collections::BTreeMap<u32, bool>,
}

impl Agreements {
    /// A rank brings its contribution. What a member has brought counts, even if it dies
    /// afterwards.
    pub fn contribute(&mut self, rank: u32, given: Contribution) -> Option<Decision> {
        let open = self.open.entry(given.key).or_insert_with(|| OpenAgreement {
            contributed: vec![false; given.members.len()],
            members: given.members,
            acknowledged: Vec::new(),
            flags: u32::MAX,
            number: 0,
        });
        // A member that is not one, or comes twice, changes nothing.
        let place = open.members.binary_search(&rank).ok()?;
        if std::mem::replace(&mut open.contributed[place], true) {
            return None;
        }
        open.acknowledged.push(given.acknowledged);
        open.flags &= given.flags;
        open.number = open.number.max(given.number);
        self.decide(given.key)
    }

    /// A rank has died, or has ended well: agreements wait for it no more.
    pub fn lose(&mut self, rank: u32, died: bool) -> Vec<Decision> {
        let known = self.gone.entry(rank).or_insert(died);
        *known |= died;
        let keys: Vec<AgreementKey> = self.open.keys().copied().collect();
        keys.into_iter()
            .filter_map(|key| self.decide(key))
            .collect()
    }

    fn decide(&mut self, key: AgreementKey) -> Option<Decision> {
        let open = self.open.get(&key)?;
        let missing = open
            .members
            .iter()
            .zip(&open.contributed)
            .any(|(member, came)| !came && !self.gone.contains_key(member));
        if missing {
            return None;
        }
        let open = self.open.remove(&key)?;
        let is_dead = |member: &u32| self.gone.get(member).copied().unwrap_or(false);
        let dead: Vec<u32> = open.members.iter().copied().filter(is_dead).collect();
        let knows = |known: &Vec<u32>| dead.iter().all(|rank| known.contains(rank));
        Some(Decision {
            key,
            acknowledged: open.acknowledged.iter().all(knows),
            dead,
            flags: open.flags,
            number: open.number,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> AgreementKey {
        AgreementKey {
            epoch: 0,
            context: 8,
            first: 0,
            number,
        }
    }

    fn given(number: u32, flags: u32, acknowledged: &[u32]) -> Contribution {
        Contribution {
            key: key(number),
            members: vec![0, 1, 2],
            acknowledged: acknowledged.to_vec(),
            flags,
            number: flags,
        }
    }

    #[test]
    fn all_members_decide_by_conjunction_and_maximum() {
        let mut all = Agreements::default();
        assert_eq!(all.contribute(0, given(0, 0b110, &[])), None);
        assert_eq!(all.contribute(0, given(0, 0, &[])), None, "not twice");
        assert_eq!(all.contribute(7, given(0, 0, &[])), None, "not a member");
        assert_eq!(all.contribute(2, given(0, 0b011, &[])), None);
        let decision = all.contribute(1, given(0, 0b111, &[])).unwrap();
        assert_eq!((decision.flags, decision.number), (0b010, 0b111));
        assert!(decision.dead.is_empty() && decision.acknowledged);
        assert!(all.open.is_empty());
    }

    #[test]
    fn a_death_decides_and_what_the_dead_brought_counts() {
        let mut all = Agreements::default();
        assert_eq!(all.contribute(2, given(0, 0b100, &[])), None);
        assert!(all.lose(2, true).is_empty());
        assert_eq!(all.contribute(0, given(0, 0b111, &[2])), None);
        let decided = all.lose(1, true);
        assert_eq!(decided.len(), 1);
        assert_eq!(decided[0].flags, 0b100);
        assert_eq!(decided[0].dead, [1, 2]);
        assert!(!decided[0].acknowledged);
    }

    #[test]
    fn ranks_travel_as_runs_and_damaged_ones_are_refused() {
        let contribution = Contribution {
            members: (0..100_000).chain([200_000, 200_002]).collect(),
            ..given(3, 7, &[5, 6])
        };
        let message = contribution.put(MessageWriter::new(17)).0;
        assert!(message.len() < 100, "{}", message.len());
        let read = |bytes: &[u8]| {
            let (_, mut r) = MessageReader::new(bytes).unwrap();
            Contribution::read(&mut r)
        };
        assert_eq!(read(&message).unwrap(), contribution);
        let mut damaged = message.clone();
        // The length of the first run.
        damaged[8 + 24 + 4 + 4 + 3] = 0xff;
        assert!(read(&damaged).is_err());
    }

    #[test]
    fn deaths_that_all_have_acknowledged_are_no_error_and_a_good_end_is_no_death() {
        let mut all = Agreements::default();
        all.lose(1, true);
        all.lose(0, false);
        let decision = all.contribute(2, given(1, 5, &[1])).unwrap();
        assert_eq!((decision.dead, decision.acknowledged), (vec![1], true));
    }
}
