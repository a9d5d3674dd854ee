//! The ranks of a host, numbered in the order of their ranks in the job.
//!
//! Writers of an inbox are named by these numbers, which have 16 bits whatever the number of ranks
//! in the job.

use garonne_engine::api::Peer;
use std::sync::Arc;

/// The ranks of one host in ascending order: a rank's place among them is its local number. All
/// ranks of the host make the same list. A value that its owners share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalRanks {
    ranks: Arc<[Peer]>,
}

impl LocalRanks {
    /// Takes the ranks of a host, in any order and each as often as it is named.
    pub fn new(mut ranks: Vec<Peer>) -> Self {
        ranks.sort_unstable();
        ranks.dedup();
        Self {
            ranks: ranks.into(),
        }
    }

    /// All ranks of a job on one host.
    pub fn all(size: u32) -> Self {
        Self {
            ranks: (0..size).collect(),
        }
    }

    /// Number of ranks of this host.
    pub fn count(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Returns the local number of a rank; `None` for one of another host, or beyond what 16 bits
    /// can name.
    pub fn number(&self, peer: Peer) -> Option<u16> {
        let at = self.ranks.binary_search(&peer).ok()?;
        u16::try_from(at).ok()
    }

    /// Returns the rank with a local number, which a peer may have made up.
    #[inline(always)]
    pub fn peer(&self, number: u16) -> Option<Peer> {
        self.ranks.get(usize::from(number)).copied()
    }

    /// Returns the ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = Peer> + '_ {
        self.ranks.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_are_numbered_in_their_order() {
        let local = LocalRanks::new(vec![1 << 20, 7, 70_000, 7]);
        assert_eq!(local.count(), 3);
        assert_eq!(
            [7, 70_000, 1 << 20, 8].map(|peer| local.number(peer)),
            [Some(0), Some(1), Some(2), None]
        );
        assert_eq!(
            [0, 2, 3].map(|number| local.peer(number)),
            [Some(7), Some(1 << 20), None]
        );
        assert_eq!(LocalRanks::all(3), LocalRanks::new(vec![2, 0, 1]));
    }

    #[test]
    fn a_rank_beyond_sixteen_bits_has_no_number() {
        let local = LocalRanks::all(70_000);
        assert_eq!(local.number(65_535), Some(65_535));
        assert_eq!(local.number(65_536), None);
    }
}
