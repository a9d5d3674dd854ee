//! Plans over random accesses, carried out on memory and compared with accesses in the order of
//! ranks.

#![allow(
    clippy::single_range_in_vec_init,
    reason = "accesses of one run are lists of one range"
)]

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A rank's runs: gaps and lengths, from an offset.
type Steps = (u64, Vec<(u64, u64)>);

fn runs_of((offset, steps): &Steps) -> Vec<Range<u64>> {
    let mut at = *offset;
    let mut runs = Vec::new();
    for (gap, len) in steps {
        at += gap;
        runs.push(at..at + len);
        at += len;
    }
    runs
}

fn some_ranks() -> impl Strategy<Value = Vec<Steps>> {
    let steps = prop::collection::vec((0u64..40, 0u64..30), 0..12);
    prop::collection::vec((0u64..300, steps), 1..9)
}

#[derive(Clone, Debug)]
struct Setting {
    hosts: u32,
    per_host: u32,
    writers_max: Option<u32>,
    window_bytes: u64,
    align: u64,
    exclusive_writes: bool,
    buffering: Buffering,
}

fn some_setting() -> impl Strategy<Value = Setting> {
    let buffering = prop_oneof![
        4 => Just(Buffering::Enable),
        2 => Just(Buffering::Automatic),
        1 => Just(Buffering::Disable),
    ];
    let align = prop_oneof![
        Just(0),
        Just(1),
        Just(7),
        Just(16),
        Just(64),
        Just(u64::MAX)
    ];
    let window = prop_oneof![0u64..100, Just(u64::MAX)];
    (
        (1u32..5, 0u32..4, prop::option::of(0u32..6)),
        (window, align),
        any::<bool>(),
        buffering,
    )
        .prop_map(
            |(
                (hosts, per_host, writers_max),
                (window_bytes, align),
                exclusive_writes,
                buffering,
            )| {
                Setting {
                    hosts,
                    per_host,
                    writers_max,
                    window_bytes,
                    align,
                    exclusive_writes,
                    buffering,
                }
            },
        )
}

fn with_setting<T>(ranks: u32, setting: &Setting, f: impl FnOnce(&PlanSetting<'_>) -> T) -> T {
    let candidates = writer_candidates(ranks, setting.per_host, |rank| rank % setting.hosts);
    f(&PlanSetting {
        candidates: &candidates,
        hosts: setting.hosts.min(ranks),
        writers_max: setting.writers_max,
        window_bytes: setting.window_bytes,
        align: setting.align,
        exclusive_writes: setting.exclusive_writes,
        pages_of_one_host: false,
        buffering: setting.buffering,
    })
}

/// Byte that a rank writes at a position of its stream.
fn byte(rank: usize, position: u64) -> u8 {
    (rank as u64 * 37 + position * 5 + 1) as u8
}

/// What the file is if ranks write one after the other.
fn written_in_turn(ranks: &[Vec<Range<u64>>]) -> BTreeMap<u64, u8> {
    let mut file = BTreeMap::new();
    for (rank, runs) in ranks.iter().enumerate() {
        let mut position = 0;
        for run in runs {
            for at in run.clone() {
                file.insert(at, byte(rank, position));
                position += 1;
            }
        }
    }
    file
}

/// Returns the bytes that ranges cover together, as ascending ranges with gaps between them.
fn covered(ranges: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut sorted: Vec<_> = ranges
        .into_iter()
        .filter(|range| !range.is_empty())
        .collect();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// What writers do with the pieces of all ranks.
fn carried_out(domains: &FileDomains, ranks: &[Vec<Range<u64>>]) -> BTreeMap<u64, u8> {
    let mut windows: BTreeMap<(u32, u64), Vec<(usize, AccessPiece)>> = BTreeMap::new();
    for (rank, runs) in ranks.iter().enumerate() {
        let mut expected = 0;
        let mut position = 0;
        let pieces = runs.iter().flat_map(|run| {
            let at = position;
            position += run.end - run.start;
            domains.pieces_of_run(run.clone(), at)
        });
        for piece in pieces {
            assert!(!piece.range.is_empty());
            assert_eq!(
                piece.position, expected,
                "a byte is left out or comes twice"
            );
            expected += piece.range.end - piece.range.start;
            let window = (piece.domain, piece.window);
            windows.entry(window).or_default().push((rank, piece));
        }
        let asked: u64 = runs.iter().map(|run| run.end - run.start).sum();
        assert_eq!(expected, asked, "all bytes are moved");
    }
    let mut file = BTreeMap::new();
    for ((domain, window), pieces) in windows {
        assert!((domain as usize) < domains.writers().len());
        assert!(window < domains.windows(domain));
        let room = domains.window_range(domain, window);
        assert!(room.end - room.start <= domains.window_bytes());
        let mut staged = BTreeMap::new();
        for (rank, piece) in &pieces {
            assert!(room.start <= piece.range.start && piece.range.end <= room.end);
            for (index, at) in piece.range.clone().enumerate() {
                staged.insert(at, byte(*rank, piece.position + index as u64));
            }
        }
        for range in covered(pieces.iter().map(|(_, piece)| piece.range.clone())) {
            for at in range {
                let before = file.insert(at, staged[&at]);
                assert_eq!(before, None, "two writers write one byte");
            }
        }
    }
    file
}

proptest! {
    #[test]
    fn writers_leave_what_ranks_in_turn_would(ranks in some_ranks(), setting in some_setting(), writes: bool) {
        let ranks: Vec<_> = ranks.iter().map(runs_of).collect();
        let summaries = ranks.iter().map(|runs| AccessSummary::of_runs(runs.iter().cloned()));
        let all = AccessSummary::of_ranks(summaries);
        let expected = written_in_turn(&ranks);
        let plan = with_setting(ranks.len() as u32, &setting, |setting| {
            AccessPlan::choose(&all, writes, setting)
        });
        match plan {
            AccessPlan::Nothing => prop_assert!(expected.is_empty()),
            AccessPlan::Refused(rank) => prop_assert!(false, "refused by {}", rank),
            AccessPlan::Independent => prop_assert_ne!(setting.buffering, Buffering::Enable),
            AccessPlan::Collective(domains) => {
                prop_assert_ne!(setting.buffering, Buffering::Disable);
                prop_assert_eq!(carried_out(&domains, &ranks), expected);
            }
        }
    }

    #[test]
    fn domains_are_whole_disjoint_and_aligned(ranks in some_ranks(), setting in some_setting()) {
        let ranks: Vec<_> = ranks.iter().map(runs_of).collect();
        let setting = Setting { buffering: Buffering::Enable, ..setting };
        let summaries = ranks.iter().map(|runs| AccessSummary::of_runs(runs.iter().cloned()));
        let all = AccessSummary::of_ranks(summaries);
        let plan = with_setting(ranks.len() as u32, &setting, |setting| {
            AccessPlan::choose(&all, true, setting)
        });
        if let AccessPlan::Collective(domains) = plan {
            let mut at = all.first;
            for (domain, writer) in domains.writers().iter().enumerate() {
                let range = domains.range(domain as u32);
                prop_assert_eq!(range.start, at);
                prop_assert!(range.start < range.end, "an empty domain");
                if domain > 0 {
                    prop_assert_eq!(at % setting.align.clamp(1, 1 << 30), 0);
                }
                let mut inner = at;
                for window in 0..domains.windows(domain as u32) {
                    let window = domains.window_range(domain as u32, window);
                    prop_assert_eq!(window.start, inner);
                    inner = window.end;
                }
                prop_assert_eq!(inner, range.end);
                at = range.end;
                prop_assert_eq!(domains.domain_of_rank(*writer), Some(domain as u32));
            }
            prop_assert_eq!(at, all.end);
            if let Some(most) = setting.writers_max {
                prop_assert!(domains.writers().len() as u32 <= most.max(1));
            }
        }
    }

    #[test]
    fn summaries_may_be_joined_in_any_grouping_and_sent(ranks in some_ranks(), at in 0usize..9, refuses in prop::option::of(0u32..9)) {
        let mut parts: Vec<_> = ranks.iter().map(|steps| AccessSummary::of_runs(runs_of(steps))).collect();
        if let Some(rank) = refuses.filter(|rank| (*rank as usize) < parts.len()) {
            parts[rank as usize] = AccessSummary::refused(rank);
        }
        let whole = AccessSummary::of_ranks(parts.iter().copied());
        let (low, high) = parts.split_at(at.min(parts.len()));
        let halves = AccessSummary::of_ranks(low.iter().copied()).join(AccessSummary::of_ranks(high.iter().copied()));
        prop_assert_eq!(whole, halves);
        prop_assert_eq!(AccessSummary::from_words(whole.to_words()), whole);
        prop_assert_eq!(whole.refused_by, refuses.filter(|rank| (*rank as usize) < parts.len()));
    }

    #[test]
    fn summaries_of_any_words_give_sound_plans(words: [u64; 7], large in 0u64..1 << 62, setting in some_setting()) {
        let near_the_end = [large, u64::MAX >> 1, words[2], words[3], 5, 1, 0];
        for words in [words, near_the_end] {
            let all = AccessSummary::from_words(words);
            let plan = with_setting(4, &setting, |setting| AccessPlan::choose(&all, true, setting));
            if let AccessPlan::Collective(domains) = plan {
                let last = domains.writers().len() as u32 - 1;
                prop_assert_eq!(domains.range(last).end, all.end);
                let piece = domains.pieces_of_run(all.end - 1..all.end, 0).last().expect("a piece");
                prop_assert_eq!(piece.range, all.end - 1..all.end);
                prop_assert_eq!(piece.domain, last);
            }
        }
    }

    #[test]
    fn candidates_take_hosts_in_turn(ranks in 1u32..40, per_host in 1u32..5, hosts in 1u32..6) {
        let candidates = writer_candidates(ranks, per_host, |rank| rank * 7 / 3 % hosts);
        let mut sorted = candidates.clone();
        sorted.sort_unstable();
        sorted.dedup();
        prop_assert_eq!(sorted.len(), candidates.len());
        let mut counts = BTreeMap::new();
        let mut last = 0;
        for rank in candidates {
            let count = counts.entry(rank * 7 / 3 % hosts).or_insert(0);
            *count += 1;
            prop_assert!(*count >= last && *count <= per_host);
            last = *count;
        }
    }
}

fn parts_of(runs: &[Vec<Range<u64>>]) -> AccessSummary {
    AccessSummary::of_ranks(runs.iter().map(|runs| AccessSummary::of_runs(runs.clone())))
}

const SETTING: PlanSetting<'_> = PlanSetting {
    candidates: &[0, 1, 2, 3],
    hosts: 1,
    writers_max: None,
    window_bytes: 4 << 20,
    align: 4096,
    exclusive_writes: true,
    pages_of_one_host: false,
    buffering: Buffering::Automatic,
};

#[test]
fn parts_one_behind_the_other_are_accessed_independently() {
    let large = 1 << 20;
    let runs: Vec<_> = (0..4)
        .map(|rank| vec![rank * large..(rank + 1) * large])
        .collect();
    let plan = AccessPlan::choose(&parts_of(&runs), true, &SETTING);
    assert_eq!(plan, AccessPlan::Independent);
    // Hosts that share pages by NFS must not both write one.
    let nfs = PlanSetting {
        hosts: 2,
        pages_of_one_host: true,
        ..SETTING
    };
    let plan = AccessPlan::choose(&parts_of(&runs), true, &nfs);
    assert!(matches!(plan, AccessPlan::Collective(_)));
    assert_eq!(
        AccessPlan::choose(&parts_of(&runs), false, &nfs),
        AccessPlan::Independent
    );
}

#[test]
fn small_interleaved_runs_go_through_one_writer_where_writers_exclude_each_other() {
    let runs: Vec<Vec<_>> = (0..4u64)
        .map(|rank| {
            (0..20_000)
                .map(|i| (4 * i + rank) * 64..(4 * i + rank + 1) * 64)
                .collect()
        })
        .collect();
    let all = parts_of(&runs);
    let writers =
        |writes, setting: &PlanSetting<'_>| match AccessPlan::choose(&all, writes, setting) {
            AccessPlan::Collective(domains) => domains.writers().to_vec(),
            other => panic!("{other:?}"),
        };
    assert_eq!(writers(true, &SETTING), [0]);
    assert_eq!(writers(false, &SETTING), [0, 1, 2, 3]);
    let two = PlanSetting {
        writers_max: Some(2),
        ..SETTING
    };
    assert_eq!(writers(true, &two), [0, 1]);
}

#[test]
fn few_bytes_far_apart_are_accessed_independently() {
    let runs: Vec<Vec<_>> = (0..4u64)
        .map(|rank| {
            (0..100)
                .map(|i| (4 * i + rank) << 20..((4 * i + rank) << 20) + 64)
                .collect()
        })
        .collect();
    let plan = AccessPlan::choose(&parts_of(&runs), true, &SETTING);
    assert_eq!(plan, AccessPlan::Independent);
}

#[test]
fn a_rank_whose_call_is_wrong_stops_all() {
    let all = AccessSummary::of_runs([0..100]).join(AccessSummary::refused(1));
    assert_eq!(
        AccessPlan::choose(&all, true, &SETTING),
        AccessPlan::Refused(1)
    );
}

#[test]
fn holes_are_not_covered() {
    assert_eq!(covered([5..7, 0..2, 2..3, 6..9, 4..4]), [0..3, 5..9]);
    assert_eq!(covered([]), []);
}
