//! A strategy for Garonne's optimisation window, as a module in Rust.
//!
//! ```text
//! cargo build --release -p earliest-finish
//! garonne strategy target/release/libearliest_finish.so
//! GARONNE_STRATEGY=target/release/libearliest_finish.so mpirun -n 2 --host a,b ./app
//! ```
//!
//! It decides two things. **Large data** over several networks: the next piece goes to the way on
//! which it would end first, and waits for that way if it is busy. Pieces are a part of what is
//! left, so that all ways end together. **Small messages**: those with a tag of [`URGENT`] and more
//! leave at once, others wait for company. The order of a window is left to Garonne.
//!
//! What it decides are pure functions of plain values, tested here; [`sys`] makes them the
//! functions that `garonne_strategy.h` describes.

#[allow(unsafe_code)]
pub mod sys;

/// Tags from here on mark messages that somebody waits for.
pub const URGENT: i32 = 10_000;

/// A network, as far as is asked here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// Bytes that it moves in a microsecond.
    pub rate: f64,
    /// Microseconds from a request to its first byte.
    pub latency: f64,
    /// Bytes that it still has to bring.
    pub backlog: u64,
    /// Bytes of a piece at most.
    pub most: u64,
    /// Whether it may be asked for a piece now.
    pub has_room: bool,
}

/// What becomes of the next piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This way brings so many bytes.
    Piece(usize, u64),
    /// It waits until a way that is busy has room: there it ends first.
    Wait,
}

impl Way {
    /// Microseconds until it would have brought so many bytes more.
    fn ends(&self, bytes: u64) -> f64 {
        self.latency.max(self.backlog as f64 / self.rate) + bytes as f64 / self.rate
    }

    /// The piece that it would be asked for.
    fn piece(&self, left: u64, least: u64, ways: usize) -> u64 {
        let share = left / (2 * ways.max(1) as u64);
        share.clamp(least, self.most.max(least)).min(left)
    }
}

/// The next piece of `left` bytes, of `least` at least. Waits only for a way that has been asked
/// for something, since others have room.
pub fn piece(ways: &[Way], left: u64, least: u64) -> Next {
    let len = |way: &Way| way.piece(left, least, ways.len());
    let end = |at: &usize| ways[*at].ends(len(&ways[*at]));
    let first = |all: &mut dyn Iterator<Item = usize>| all.min_by(|a, b| end(a).total_cmp(&end(b)));
    match first(&mut (0..ways.len())) {
        Some(at) if ways[at].has_room => Next::Piece(at, len(&ways[at])),
        _ => Next::Wait,
    }
}

/// Whether a small message may wait for others.
pub fn may_wait(tag: i32, since_look: u32) -> bool {
    // The first may be all that comes.
    tag < URGENT && since_look > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LEAST: u64 = 64 << 10;

    fn ways() -> impl Strategy<Value = Vec<Way>> {
        let way = (1.0f64..5000.0, 0.0f64..5000.0, 0u32..3, LEAST..8 << 20);
        let way = way.prop_map(|(rate, latency, asked, most)| Way {
            rate,
            latency,
            backlog: u64::from(asked) * most / 2,
            most,
            has_room: asked < 2,
        });
        prop::collection::vec(way, 2..=4)
    }

    proptest! {
        #[test]
        fn pieces_are_on_ways_with_room_and_within_their_bounds(ways in ways(), left in 1u64..1 << 34) {
            let least = LEAST.min(left);
            match piece(&ways, left, least) {
                Next::Piece(at, len) => {
                    prop_assert!(ways[at].has_room);
                    prop_assert!(len >= least && len <= left && len <= ways[at].most.max(least));
                }
                Next::Wait => prop_assert!(ways.iter().any(|way| !way.has_room), "for whom?"),
            }
        }

        #[test]
        fn no_other_way_would_end_sooner_with_its_piece(ways in ways(), left in 1u64..1 << 34) {
            if let Next::Piece(at, len) = piece(&ways, left, LEAST.min(left)) {
                let end = ways[at].ends(len);
                for other in &ways {
                    prop_assert!(other.ends(other.piece(left, LEAST.min(left), ways.len())) >= end);
                }
            }
        }

        #[test]
        fn all_data_are_brought_in_little_more_than_the_time_that_the_ways_take_together(
            rates in prop::collection::vec(10.0f64..1000.0, 2..=4), total in 64u64 << 20..1 << 30,
        ) {
            // Ways that do what is believed of them; each has at most two pieces.
            let mut queues: Vec<Vec<(f64, u64)>> = vec![Vec::new(); rates.len()];
            let (mut left, mut now, mut last) = (total, 0.0, 0.0f64);
            loop {
                let next = if left == 0 { Next::Wait } else {
                    let ways: Vec<Way> = rates.iter().zip(&queues).map(|(rate, queue)| Way {
                        rate: *rate,
                        latency: 50.0,
                        backlog: queue.iter().map(|(_, len)| len).sum(),
                        // Garonne's pieces take 20 ms at most.
                        most: ((rate * 20_000.0) as u64).clamp(LEAST, 8 << 20),
                        has_room: queue.len() < 2,
                    }).collect();
                    piece(&ways, left, LEAST.min(left))
                };
                if let Next::Piece(at, len) = next {
                    let begins = queues[at].last().map_or(now, |(end, _)| *end);
                    queues[at].push((begins + len as f64 / rates[at], len));
                    left -= len;
                    continue;
                }
                let soonest = (0..rates.len())
                    .filter(|at| !queues[*at].is_empty())
                    .min_by(|a, b| queues[*a][0].0.total_cmp(&queues[*b][0].0));
                let Some(at) = soonest else { break };
                now = queues[at].remove(0).0;
                last = last.max(now);
            }
            prop_assert_eq!(left, 0);
            let ideal = total as f64 / rates.iter().sum::<f64>();
            prop_assert!(last < ideal * 1.25, "{last} after {ideal}");
        }

        #[test]
        fn urgent_messages_never_wait_and_others_never_alone(tag in any::<i32>(), since_look in any::<u32>()) {
            let waits = may_wait(tag, since_look);
            prop_assert!(!waits || tag < URGENT && since_look > 0);
        }
    }
}
