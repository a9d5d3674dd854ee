//! What is learned of ways, and how calls are decided by it.

use super::*;

const SORT: CallClass = CallClass {
    pattern: TrafficPattern::Alltoall,
    len: 1 << 18,
};
const TWO: AvailablePaths = AvailablePaths {
    direct: false,
    messages: false,
    streamed: false,
    library: false,
};
const THREE: AvailablePaths = AvailablePaths {
    direct: true,
    ..TWO
};
const ALL: AvailablePaths = AvailablePaths {
    direct: true,
    messages: true,
    streamed: true,
    library: true,
};

const FOUR: AvailablePaths = AvailablePaths {
    library: true,
    ..THREE
};

/// Calls of a sort, each way taking so many nanoseconds: how often each was gone.
fn calls(
    ways: &mut PathTuner,
    open: AvailablePaths,
    count: u32,
    ns: [u64; PATHS.len()],
) -> [u32; PATHS.len()] {
    let mut gone = [0; PATHS.len()];
    for _ in 0..count {
        let (way, timed) = ways.decide(SORT, open);
        gone[way] += 1;
        ways.record(
            (SORT, open),
            way,
            timed.then(|| Duration::from_nanos(ns[way])),
        );
    }
    gone
}

fn others_than(way: usize, gone: [u32; PATHS.len()]) -> u32 {
    gone.iter().sum::<u32>() - gone[way]
}

#[test]
fn every_open_way_is_tried_and_the_quickest_is_kept_to() {
    for best in 0..PATHS.len() {
        let mut ns = [300_000; PATHS.len()];
        ns[best] = 100_000;
        let mut ways = PathTuner::default();
        let gone = calls(&mut ways, ALL, 1000, ns);
        assert!(
            gone.iter()
                .all(|count| *count >= u32::from(limit::TUNE_SAMPLES)),
            "{gone:?}"
        );
        assert!(others_than(best, gone) <= 60, "{best}: {gone:?}");
    }
}

#[test]
fn a_way_that_is_not_open_is_never_gone() {
    let mut ways = PathTuner::default();
    let gone = calls(&mut ways, TWO, 1000, [9, 9, 1, 1, 1, 1, 1]);
    assert_eq!(gone[2..], [0; 5]);
    calls(
        &mut ways,
        ALL,
        1000,
        [9, 9, 1, 1, 1, 1, 1].map(|us| us * 10_000),
    );
    let gone = calls(&mut ways, TWO, 1000, [9, 9, 1, 1, 1, 1, 1]);
    assert_eq!(gone[2..], [0; 5]);
}

#[test]
fn one_slow_call_changes_nothing_but_other_cores_do_and_back_again() {
    let (near, far) = (
        [110_000, 80_000, 130_000, 0, 0, 0, 0],
        [90_000, 250_000, 140_000, 0, 0, 0, 0],
    );
    let mut ways = PathTuner::default();
    calls(&mut ways, THREE, 500, near);
    assert_eq!(ways.best_path(SORT, THREE), 1);
    ways.record((SORT, THREE), 1, Some(Duration::from_millis(10)));
    assert_eq!(ways.best_path(SORT, THREE), 1);
    for _ in 0..3 {
        calls(&mut ways, THREE, 50, far);
        assert_eq!(ways.best_path(SORT, THREE), 0);
        calls(&mut ways, THREE, 400, near);
        assert_eq!(ways.best_path(SORT, THREE), 1);
    }
}

#[test]
fn most_short_calls_read_no_clock() {
    let mut ways = PathTuner::default();
    calls(&mut ways, THREE, 100, [90_000, 80_000, 70_000, 0, 0, 0, 0]);
    let mut timed = 0;
    for _ in 0..800 {
        let (way, time) = ways.decide(SORT, THREE);
        timed += u32::from(time);
        ways.record(
            (SORT, THREE),
            way,
            time.then(|| Duration::from_nanos(70_000 + way as u64 * 10_000)),
        );
    }
    assert!(timed <= 130, "{timed}");
}

#[test]
fn a_length_never_seen_goes_the_way_of_shorter_ones_and_learns_in_its_turn() {
    let mut ways = PathTuner::default();
    calls(
        &mut ways,
        THREE,
        200,
        [300_000, 100_000, 200_000, 0, 0, 0, 0],
    );
    let longer = CallClass {
        len: 16 * SORT.len,
        ..SORT
    };
    assert_eq!(ways.decide(longer, THREE).0, 1);
    let other = CallClass {
        pattern: TrafficPattern::Allgather,
        ..longer
    };
    assert_eq!(ways.decide(other, THREE).0, DIRECT);
    let shorter = CallClass {
        pattern: TrafficPattern::Allgather,
        ..SORT
    };
    assert_eq!(ways.decide(shorter, THREE).0, 0);
}

#[test]
fn long_calls_begin_by_reading_and_lose_no_more_than_a_share_to_tries() {
    const LONG: CallClass = CallClass {
        pattern: TrafficPattern::Alltoall,
        len: 1 << 20,
    };
    let us = [1900, 1500, 850, 0, 1550, 1800, 1450];
    for known in [false, true] {
        let mut ways = PathTuner::default();
        if known {
            // Where reading was not yet the best.
            let ns = [330_000, 210_000, 215_000, 0, 0, 0, 300_000];
            calls(&mut ways, FOUR, 200, ns);
        }
        let (mut took, mut others) = (0, 0);
        for turn in 0..400 {
            let (way, timed) = ways.decide(LONG, FOUR);
            assert!(timed);
            took += us[way];
            others += u32::from(way != DIRECT);
            if turn < 12 {
                assert!(others <= 4, "{others} of {turn}");
            }
            ways.record((LONG, FOUR), way, Some(Duration::from_micros(us[way])));
        }
        assert_eq!(ways.best_path(LONG, FOUR), DIRECT);
        let best = 400 * us[DIRECT];
        assert!(
            others >= 4 && took <= best + best / 10,
            "{others} others, {took} us"
        );
    }
}

#[test]
fn ways_past_the_caches_are_expected_to_take_what_those_next_to_them_do_or_less() {
    let mut ways = PathTuner::default();
    let shorter = [300_000, 100_000, 200_000, 0, 0, 0, 400_000];
    calls(&mut ways, THREE, 200, shorter);
    let longer = CallClass {
        len: 64 * SORT.len,
        ..SORT
    };
    let open = AvailablePaths {
        streamed: true,
        ..THREE
    };
    assert_eq!(ways.decide(longer, THREE).0, 1);
    assert_eq!(ways.decide(longer, open).0, 4);
}

#[test]
fn nothing_is_learned_of_a_call_that_somebody_could_not_time() {
    let mut ways = PathTuner::default();
    for _ in 0..100 {
        let (way, _) = ways.decide(SORT, THREE);
        ways.record((SORT, THREE), way, None);
    }
    assert_eq!(ways.best_path(SORT, THREE), 0);
    assert_eq!(ways.decide(SORT, THREE), (0, true));
}

#[test]
fn lengths_fall_into_classes_of_powers_of_two() {
    let class = |len| CallClass { len, ..SORT }.length_class();
    assert_eq!(
        [class(0), class(8192), class(16383), class(16384)],
        [0, 0, 0, 1]
    );
    assert_eq!(class(u64::MAX), limit::TUNE_CLASSES - 1);
}
