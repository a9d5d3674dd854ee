//! What ranks send each other, as a symmetric sparse matrix.

use thiserror::Error;

/// Reason why a traffic matrix is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TrafficError {
    /// A rank outside the job.
    #[error("traffic names rank {rank}, where there are {ranks} ranks")]
    Rank {
        /// The rank.
        rank: u64,
        /// Number of ranks.
        ranks: u32,
    },
    /// A line that is no entry.
    #[error("line {line}: '{text}' is not 'SOURCE DESTINATION BYTES' in whole numbers")]
    Line {
        /// Number of the line, from 1.
        line: usize,
        /// The line, at most its first 60 characters.
        text: String,
    },
}

/// Sum of all weights is kept below this, so that sums of gains stay far from the limits of `i64`.
const TOTAL_MAX: u128 = 1 << 44;

/// Symmetric traffic between ranks: for each rank its partners and the weight of the traffic with
/// each, both directions together. Traffic of a rank with itself is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Where each rank's partners begin in `partners`; one entry more than ranks.
    first: Vec<usize>,
    partners: Vec<(u32, i64)>,
}

impl Traffic {
    /// Traffic between `ranks` ranks from entries (source, destination, bytes), in any order;
    /// several entries of a pair add up.
    pub fn new(
        ranks: u32,
        entries: impl IntoIterator<Item = (u32, u32, u64)>,
    ) -> Result<Self, TrafficError> {
        let mut both: Vec<(u32, u32, u128)> = Vec::new();
        let mut total = 0_u128;
        for (a, b, bytes) in entries {
            if let Some(rank) = [a, b].into_iter().find(|rank| *rank >= ranks) {
                let rank = u64::from(rank);
                return Err(TrafficError::Rank { rank, ranks });
            }
            if a != b && bytes > 0 {
                total += u128::from(bytes);
                both.extend([(a, b, u128::from(bytes)), (b, a, u128::from(bytes))]);
            }
        }
        both.sort_unstable_by_key(|(a, b, _)| (*a, *b));
        let scale = (total / TOTAL_MAX).max(1);
        let mut first = vec![0; ranks as usize + 1];
        let mut partners = Vec::new();
        for pair in both.chunk_by(|x, y| (x.0, x.1) == (y.0, y.1)) {
            let bytes: u128 = pair.iter().map(|entry| entry.2).sum();
            partners.push((pair[0].1, (bytes / scale).max(1) as i64));
            first[pair[0].0 as usize + 1] += 1;
        }
        for rank in 0..ranks as usize {
            first[rank + 1] += first[rank];
        }
        Ok(Self { first, partners })
    }

    /// Reads lines of `SOURCE DESTINATION BYTES`; empty lines and those that begin with `#` are
    /// comments.
    pub fn parse(text: &str, ranks: u32) -> Result<Self, TrafficError> {
        let mut entries = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') {
                continue;
            }
            let bad = || TrafficError::Line {
                line: number + 1,
                text: trimmed.chars().take(60).collect(),
            };
            let mut words = trimmed.split_whitespace().map(str::parse::<u64>);
            let (Some(Ok(a)), Some(Ok(b)), Some(Ok(bytes)), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return Err(bad());
            };
            let rank =
                |rank: u64| u32::try_from(rank).map_err(|_| TrafficError::Rank { rank, ranks });
            entries.push((rank(a)?, rank(b)?, bytes));
        }
        Self::new(ranks, entries)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    /// Partners of a rank with the weight of the traffic.
    pub fn partners(&self, rank: u32) -> &[(u32, i64)] {
        let rank = rank as usize;
        &self.partners[self.first[rank]..self.first[rank + 1]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_add_up_and_a_rank_is_no_partner_of_itself() {
        let traffic = Traffic::parse("# ring\n0 1 5\n1 0 6\n\n2 2 9\n1 2 1", 3).unwrap();
        assert_eq!(traffic.partners(0), [(1, 11)]);
        assert_eq!(traffic.partners(1), [(0, 11), (2, 1)]);
        assert_eq!(traffic.partners(2), [(1, 1)]);
    }

    #[test]
    fn what_is_no_matrix_is_refused_with_its_line() {
        let bad = |text: &str| Traffic::parse(text, 2).unwrap_err().to_string();
        assert!(bad("0 1 5\n0 1 NaN").starts_with("line 2: '0 1 NaN'"));
        assert!(bad("0 1").starts_with("line 1"));
        assert!(bad("0 1 -3").starts_with("line 1"));
        assert!(bad("0 7 1").contains("rank 7, where there are 2"));
        assert!(bad("0 99999999999 1").contains("99999999999"));
    }

    #[test]
    fn huge_counts_keep_their_proportion() {
        let traffic = Traffic::new(3, [(0, 1, u64::MAX), (1, 2, u64::MAX / 4)]).unwrap();
        let [(_, small)] = traffic.partners(2) else {
            panic!("one partner")
        };
        let (_, large) = traffic.partners(0)[0];
        assert!(large < 1 << 45 && (large / small) == 4);
    }
}
