//! What memory, caches and switches cost in virtual time.

/// Costs of a machine, in nanoseconds unless their names say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Switching a processor to another thread.
    pub switch: u64,
    /// What a thread loses on another core than before: the core's own caches are cold.
    pub cold_core: u64,
    /// Loading a kilobyte from the node's own memory into a shared cache.
    pub load_kib: u64,
    /// Bytes that a shared cache holds.
    pub cache_bytes: u64,
    /// Access to memory of another node in the same package, in percent of the own node's.
    pub far_percent: u64,
    /// Access to memory of another package, in percent of the own node's.
    pub farther_percent: u64,
    /// Longest time for which a thread runs while others wait for its processor.
    pub quantum: u64,
    /// Time from one tick of the scheduler to the next.
    pub tick: u64,
}

impl Default for Costs {
    /// A machine of several packages with a memory controller each: accesses to another package
    /// take 1.7 times as long.
    fn default() -> Self {
        Self {
            switch: 200,
            cold_core: 3_000,
            load_kib: 100,
            cache_bytes: 4 << 20,
            far_percent: 130,
            farther_percent: 170,
            quantum: 1_000_000,
            tick: 2_000_000,
        }
    }
}
