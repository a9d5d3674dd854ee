//! How urgent fibers are.

/// How urgent a fiber is. Of the fibers that a worker may run, the most urgent ones go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Before all others.
    High = 0,
    /// What a fiber has that asks for nothing.
    #[default]
    Normal = 1,
    /// When a worker has nothing else to run.
    Low = 2,
}
