//! Digests of type signatures, which both sides of a message compare where types are checked.
//!
//! Pure. Equal signatures have equal digests in all processes of one build; of different ones
//! nearly all differ, so a check by them says nothing wrong, but may miss a mistake. Bounded by
//! [`MARKED_RUNS_MAX`].

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;

use garonne_engine::api::TypeDigest;

use super::basic_type::BasicType;
use super::{Datatype, LeafType};
use crate::limits::MARKED_RUNS_MAX;

/// A kind as others than its own name for it know it: what is laid out and computed with alike is
/// one.
fn plain(basic: BasicType) -> BasicType {
    match basic {
        BasicType::Long => BasicType::I64,
        BasicType::ULong => BasicType::U64,
        other => other,
    }
}

fn digest(what: impl Hash) -> u16 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    // Never what says nothing, nor with the bit of sequences.
    (hasher.finish() % u64::from(TypeDigest::SEQUENCE - 1)) as u16 + 1
}

/// A signature as it is collected.
#[derive(Default)]
struct SignatureRuns(Vec<(BasicType, u64)>);

impl SignatureRuns {
    /// Adds elements; breaks where nothing can be said.
    fn add(&mut self, basic: BasicType, count: u64) -> ControlFlow<()> {
        let (basic, full) = (plain(basic), self.0.len() == MARKED_RUNS_MAX);
        match self.0.last_mut() {
            _ if basic == BasicType::Byte => return ControlFlow::Break(()),
            Some((last, length)) if *last == basic => *length += count,
            _ if full => return ControlFlow::Break(()),
            _ => self.0.push((basic, count)),
        }
        ControlFlow::Continue(())
    }

    fn add_leaves(&mut self, leaf: LeafType, count: u64) -> ControlFlow<()> {
        match leaf {
            LeafType::Basic(basic) => self.add(basic, count),
            LeafType::Pair { value, index } => (0..count).try_for_each(|_| {
                self.add(value, 1)?;
                self.add(index, 1)
            }),
        }
    }
}

impl Datatype {
    /// Returns the digest of `count` elements. The digest is empty if there are none, or if bytes
    /// are among them, which may be anything.
    pub fn mark(&self, count: u64) -> TypeDigest {
        let mut runs = SignatureRuns::default();
        let flow = match self.leaf() {
            Some(LeafType::Basic(basic)) => runs.add(basic, count),
            _ => self.visit_leaves(count, &mut |run| runs.add_leaves(run.leaf, run.count)),
        };
        match runs.0[..] {
            _ if flow.is_break() || count == 0 => TypeDigest::NONE,
            [] => TypeDigest::NONE,
            [(basic, _)] => TypeDigest(digest(basic)),
            _ => TypeDigest(digest(runs.0) | TypeDigest::SEQUENCE),
        }
    }
}
