//! All that can go wrong with a medium, at once, from a seed.
//!
//! A [`storm`] passes: what it cuts comes back before a link gives up, and of the ways between two
//! ranks one stays. [`deaths`] and [`rift`] are for good.

use crate::faults::{FOR_EVER, Faults, Outage, OutageKind, Partition};
use crate::random::Random;
use garonne_engine::api::Peer;
use std::collections::BTreeSet;

/// In which time all of it begins.
const BEGINS_NS: u64 = 1_000_000;
/// The longest time that something is cut: much less than
/// [`garonne_engine::reliable::LOST_AFTER_NS`].
const CUT_NS: u64 = 60_000_000;

/// Loss, repeats, damage, disorder, several ways that die, stand still and come back, partitions
/// that heal, slow ranks and short inboxes, for `world` ranks.
pub fn storm(seed: u64, world: u32) -> Faults {
    let mut random = Random::new(seed ^ 0x0057_0a11);
    let ways = 1 + random.below(3) as u8;
    let mut faults = Faults {
        delay_ns: (500, 2_000 + random.below(60_000)),
        loss: random.below(100),
        repeat: random.below(60),
        damage: 1 + random.below(60),
        until_ns: 1_000_000 + random.below(20_000_000),
        ways,
        inbox_max: [64, 400, usize::MAX][random.below(3) as usize],
        ..Faults::none()
    };
    for _ in 0..random.below(5) {
        let begins_ns = random.below(BEGINS_NS);
        faults.outages.push(Outage {
            way: random.below(u64::from(ways)) as u8,
            of: (!random.one_in(3)).then(|| random.below(u64::from(world)) as Peer),
            span_ns: begins_ns..begins_ns + 1 + random.below(CUT_NS),
            how: if random.one_in(2) {
                OutageKind::Lost
            } else {
                OutageKind::Held
            },
        });
    }
    if ways > 1 {
        faults.outages.push(Outage {
            way: random.below(u64::from(ways)) as u8,
            of: random
                .one_in(2)
                .then(|| random.below(u64::from(world)) as Peer),
            span_ns: random.below(BEGINS_NS)..FOR_EVER,
            how: OutageKind::Lost,
        });
    }
    for _ in 0..random.below(3) {
        let begins_ns = random.below(BEGINS_NS);
        faults.partitions.push(Partition {
            side: side(&mut random, world),
            span_ns: begins_ns..begins_ns + 1 + random.below(CUT_NS),
        });
    }
    for _ in 0..random.below(u64::from(world) / 16 + 2) {
        let pause_ns = 50_000 + random.below(2_000_000);
        faults
            .slow
            .push((random.below(u64::from(world)) as Peer, pause_ns));
    }
    faults
}

/// Some of all ranks, and not all.
fn side(random: &mut Random, world: u32) -> BTreeSet<Peer> {
    let one = 1 + random.below(u64::from(world) - 1) as Peer;
    let share = 1 + random.below(9);
    let mut side: BTreeSet<Peer> = (1..world).filter(|_| random.below(10) < share).collect();
    side.insert(one);
    side
}

/// `count` ranks that die, and when.
pub fn deaths(seed: u64, world: u32, count: usize) -> Vec<(Peer, u64)> {
    let mut random = Random::new(seed ^ 0xdead);
    let mut dead = BTreeSet::new();
    while dead.len() < count {
        dead.insert(random.below(u64::from(world)) as Peer);
    }
    dead.into_iter()
        .map(|rank| (rank, random.below(BEGINS_NS)))
        .collect()
}

/// A partition that never heals.
pub fn rift(seed: u64, world: u32) -> Partition {
    let mut random = Random::new(seed ^ 0x21f7);
    Partition {
        side: side(&mut random, world),
        span_ns: random.below(BEGINS_NS)..FOR_EVER,
    }
}
