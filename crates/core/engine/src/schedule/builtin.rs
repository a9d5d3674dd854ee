//! The strategies that this library has, by name. Each decides all three things that there are to
//! decide.
//!
//! Pure, and no more than a choice: what is decided, and how, is in [`coalesce`](super::coalesce),
//! [`order`](super::order) and [`stripe`](super::stripe).

use crate::schedule::coalesce::CoalescePolicy;
use crate::schedule::order::OrderPolicy;
use crate::schedule::stripe::StripePolicy;

/// A built-in strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BuiltinStrategy {
    /// Nothing waits for anything that could be better.
    Immediate,
    /// Few writes and requests, without delaying what could leave now.
    Aggregate,
    /// Waits for what is best: for others to leave with, and for the quickest network.
    Hold,
    /// Learns from what messages and networks have done.
    #[default]
    Adaptive,
}

impl BuiltinStrategy {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Immediate, Self::Aggregate, Self::Hold, Self::Adaptive];

    /// Returns the name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::Aggregate => "aggregate",
            Self::Hold => "hold",
            Self::Adaptive => "adaptive",
        }
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// A number that stands for it, above 0 and at most [`BuiltinStrategy::ALL`]'s length.
    pub fn code(self) -> u64 {
        1 + self as u64
    }

    /// The one for which that number stands.
    pub fn from_code(code: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.code() == code)
    }

    /// When small messages leave.
    pub fn coalescing(self) -> CoalescePolicy {
        match self {
            Self::Immediate => CoalescePolicy::Immediate,
            Self::Aggregate => CoalescePolicy::Aggregate,
            Self::Hold => CoalescePolicy::Hold,
            Self::Adaptive => CoalescePolicy::Adaptive,
        }
    }

    /// In which order a window's messages leave.
    pub fn ordering(self) -> OrderPolicy {
        match self {
            Self::Immediate => OrderPolicy::AsSent,
            Self::Aggregate | Self::Hold | Self::Adaptive => OrderPolicy::SmallFirst,
        }
    }

    /// Returns how large transfers are striped.
    pub fn striping(self) -> StripePolicy {
        match self {
            Self::Immediate => StripePolicy::Equal,
            Self::Aggregate => StripePolicy::Shares,
            Self::Hold => StripePolicy::Quickest,
            Self::Adaptive => StripePolicy::Balanced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_lead_back() {
        for one in BuiltinStrategy::ALL {
            assert_eq!(BuiltinStrategy::named(one.name()), Some(one));
            assert_eq!(BuiltinStrategy::from_code(one.code()), Some(one));
        }
        assert_eq!(BuiltinStrategy::named("sometimes"), None);
        assert_eq!(
            (BuiltinStrategy::from_code(0), BuiltinStrategy::from_code(5)),
            (None, None)
        );
    }

    #[test]
    fn no_two_decide_alike() {
        let decisions = |one: BuiltinStrategy| (one.coalescing(), one.ordering(), one.striping());
        for (at, one) in BuiltinStrategy::ALL.into_iter().enumerate() {
            for other in &BuiltinStrategy::ALL[at + 1..] {
                assert_ne!(decisions(one), decisions(*other));
            }
        }
    }
}
