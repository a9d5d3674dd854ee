//! The strategy that a rank follows, as its rank block shows it.

use garonne_engine::schedule::builtin::BuiltinStrategy;

/// The strategy that a rank follows, in a word of its rank block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActiveStrategy {
    /// A built-in one.
    BuiltIn(BuiltinStrategy),
    /// A module; where the counts of its answers lie in the rank's own memory. What it does not
    /// decide, the default does.
    Module(u64),
}

impl ActiveStrategy {
    /// Nothing lies below this address in any process.
    const LOWEST: u64 = 4096;

    /// Returns the word that stands for it.
    pub fn word(self) -> u64 {
        match self {
            Self::BuiltIn(one) => one.code(),
            Self::Module(address) => address,
        }
    }

    /// Returns what a word stands for.
    pub fn from_word(word: u64) -> Option<Self> {
        match word {
            Self::LOWEST.. => Some(Self::Module(word)),
            code => BuiltinStrategy::from_code(code).map(Self::BuiltIn),
        }
    }

    /// The built-in strategy that decides what no module does.
    pub fn built_in(self) -> BuiltinStrategy {
        match self {
            Self::BuiltIn(one) => one,
            Self::Module(_) => BuiltinStrategy::default(),
        }
    }

    /// Returns the address of the counts of a module's answers in the rank's own memory; 0: there
    /// is none.
    pub fn answers(self) -> u64 {
        match self {
            Self::BuiltIn(_) => 0,
            Self::Module(address) => address,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_followed_is_read_from_its_word() {
        let all = BuiltinStrategy::ALL
            .map(ActiveStrategy::BuiltIn)
            .into_iter();
        for followed in all.chain([
            ActiveStrategy::Module(4096),
            ActiveStrategy::Module(u64::MAX),
        ]) {
            assert_eq!(ActiveStrategy::from_word(followed.word()), Some(followed));
        }
        assert_eq!(
            (
                ActiveStrategy::from_word(0),
                ActiveStrategy::from_word(4095)
            ),
            (None, None)
        );
    }
}
