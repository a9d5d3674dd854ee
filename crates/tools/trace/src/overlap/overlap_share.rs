//! Computes how much of one operation was hidden, and the reason if little was or if it was waited
//! for all the same. Pure functions of the times in its life.
//!
//! The time that counts is that in which somebody moved the operation's bytes. What of it fell into
//! the program's own code was hidden. What fell into a call of MPI by the thread that had started
//! the operation was not. An operation may stay open while the program computes and be moved when
//! the program waits at last: nothing of it is hidden, however long it was open.

use super::intervals::{Interval, common, total, unite};
use crate::event::ProgressMode;
use crate::limits::{LATE_NS, LITTLE_PERCENT, SMALL_NS};

/// Why little of an operation was hidden, or why it was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OverlapReason {
    /// The operation took so little that hiding it would gain nothing, or was over when it was
    /// started.
    Small,
    /// The message had come, and waited for the receive to be posted.
    PostedLate,
    /// The program waited for it, or was in other calls, as soon as it was started.
    WaitedAtOnce,
    /// The other side came when the program waited already.
    PartnerLate,
    /// There was time, but nothing moves bytes while the rank computes.
    BackgroundOff,
    /// There was time, but the system gave no progress thread.
    NoThread,
    /// There was time, but no core was free for the work.
    NoCore,
    /// There was time, and a core, but nobody used it.
    NotAdvanced,
    /// The program computed for a shorter time than moving the bytes took.
    ShortComputation,
    /// Most was hidden, and then the program waited while nobody moved the rest: not because the
    /// other side started late, as far as is known.
    RestLate,
}

/// How many there are.
pub const REASONS: usize = 10;

impl OverlapReason {
    /// All of them, in their order.
    pub const ALL: [OverlapReason; REASONS] = [
        OverlapReason::Small,
        OverlapReason::PostedLate,
        OverlapReason::WaitedAtOnce,
        OverlapReason::PartnerLate,
        OverlapReason::BackgroundOff,
        OverlapReason::NoThread,
        OverlapReason::NoCore,
        OverlapReason::NotAdvanced,
        OverlapReason::ShortComputation,
        OverlapReason::RestLate,
    ];

    /// In a few words.
    pub fn text(self) -> &'static str {
        match self {
            OverlapReason::Small => "too small to matter",
            OverlapReason::PostedLate => "posted late",
            OverlapReason::WaitedAtOnce => "waited at once",
            OverlapReason::PartnerLate => "partner late",
            OverlapReason::BackgroundOff => "background off",
            OverlapReason::NoThread => "no thread for it",
            OverlapReason::NoCore => "no core free",
            OverlapReason::NotAdvanced => "not advanced",
            OverlapReason::ShortComputation => "computed too short",
            OverlapReason::RestLate => "rest came late",
        }
    }

    /// Returns in a sentence what to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            OverlapReason::Small => "nothing to gain here",
            OverlapReason::PostedLate => {
                "post the receive before the computation that comes before it, so that the message finds its place"
            }
            OverlapReason::WaitedAtOnce => {
                "put work that does not need the data between the start and the wait"
            }
            OverlapReason::PartnerLate => {
                "the other side should start its part earlier; the ranks may be out of balance"
            }
            OverlapReason::BackgroundOff => {
                "do not set GARONNE_BACKGROUND=0, or call MPI_Test now and then while computing"
            }
            OverlapReason::NoThread => {
                "the system refuses threads (ulimit -u, cgroup pids.max); garonne why background says more"
            }
            OverlapReason::NoCore => {
                "leave a core to the helpers (fewer ranks, or --cpus-per-rank), or expect no gain where all cores compute"
            }
            OverlapReason::NotAdvanced => {
                "see the timeline (garonne trace) for who could have moved it"
            }
            OverlapReason::ShortComputation => {
                "start earlier or wait later: there is less computation than communication"
            }
            OverlapReason::RestLate => {
                "the others, or the network, had the rest: see the timeline (garonne trace) for what they did meanwhile"
            }
        }
    }
}

/// The times in an operation's life, in nanoseconds.
#[derive(Clone, Debug)]
pub struct OperationTimes<'a> {
    /// From its start to its end.
    pub open: Interval,
    /// When the call that started it returned.
    pub returned: u64,
    /// When the other side of its message was started, if that is known.
    pub partner: Option<u64>,
    /// The operation is a receive.
    pub receives: bool,
    /// When its bytes were moved, by anybody.
    pub moved: Vec<Interval>,
    /// When the thread that started it was inside MPI, within `open`: sorted, disjoint.
    pub in_mpi: &'a [Interval],
}

/// Means that the rank had for progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressMeans {
    /// Mode of progress while the rank computes.
    pub background: ProgressMode,
    /// All cores have ranks that compute.
    pub crowded: bool,
}

/// Overlap of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverlapShare {
    /// Time in which bytes were moved.
    pub moving_ns: u64,
    /// Moving time outside MPI.
    pub hidden_ns: u64,
    /// Time inside MPI between the return of the call that started it and its end.
    pub waited_ns: u64,
    /// Why little was hidden, if little was, or why it was waited for long.
    pub reason: Option<OverlapReason>,
}

/// Judges one operation.
pub fn judge(life: OperationTimes<'_>, means: ProgressMeans) -> OverlapShare {
    let mut moved = life.moved.clone();
    let moving_ns = unite(&mut moved);
    // Times are other processes' words: they may contradict each other.
    let hidden_ns = moving_ns.saturating_sub(common(&moved, life.in_mpi));
    let waiting = Interval::new(life.returned.min(life.open.end), life.open.end);
    let mut waits: Vec<Interval> = life
        .in_mpi
        .iter()
        .map(|part| part.intersection(waiting))
        .collect();
    let waited_ns = unite(&mut waits);
    let little = hidden_ns.saturating_mul(100) < moving_ns.saturating_mul(LITTLE_PERCENT);
    let reason = if little || moving_ns < SMALL_NS {
        Some(reason(&life, means, (moving_ns, waited_ns)))
    } else {
        kept_waiting(
            &life,
            moving_ns,
            waited_ns.saturating_sub(common(&moved, &waits)),
        )
    };
    OverlapShare {
        moving_ns,
        hidden_ns,
        waited_ns,
        reason,
    }
}

/// Returns why an operation of which most was hidden was waited for longer than all the moving
/// took, if it was. `idle_ns` is what was waited while nobody moved anything. Of a collective it is
/// not known when others came; since some of it had moved, none of them need have been late.
fn kept_waiting(life: &OperationTimes<'_>, moving_ns: u64, idle_ns: u64) -> Option<OverlapReason> {
    (idle_ns >= LATE_NS && idle_ns > moving_ns).then_some(match life.partner {
        Some(partner) if partner > life.returned => OverlapReason::PartnerLate,
        _ => OverlapReason::RestLate,
    })
}

fn reason(
    life: &OperationTimes<'_>,
    means: ProgressMeans,
    (moving_ns, waited_ns): (u64, u64),
) -> OverlapReason {
    if moving_ns < SMALL_NS {
        // There is nothing to hide, but somebody was waited for. Of a collective it is not known
        // when others came: all that it could wait for is that.
        let late = life.partner.is_none_or(|partner| partner > life.returned);
        return match late && waited_ns >= LATE_NS {
            true => OverlapReason::PartnerLate,
            false => OverlapReason::Small,
        };
    }
    let partner = life.partner.unwrap_or(life.open.begin);
    // Time in which the program computed while the operation was open, and while both sides were
    // there.
    let computed_in = |span: Interval| {
        let inside: Vec<Interval> = life
            .in_mpi
            .iter()
            .map(|part| part.intersection(span))
            .collect();
        span.len().saturating_sub(total(&inside))
    };
    let both = Interval::new(partner.clamp(life.open.begin, life.open.end), life.open.end);
    let room = computed_in(both);
    let none = |time: u64| time < moving_ns / 10;
    // Whoever waits at once for one that comes much later would have waited for it anyway.
    let much_later = partner.saturating_sub(life.returned) > moving_ns;
    if life.receives && life.open.begin.saturating_sub(partner) > moving_ns {
        OverlapReason::PostedLate
    } else if much_later && none(room) {
        OverlapReason::PartnerLate
    } else if none(computed_in(life.open)) {
        OverlapReason::WaitedAtOnce
    } else if none(room) {
        OverlapReason::PartnerLate
    } else if room < moving_ns / 2 {
        OverlapReason::ShortComputation
    } else {
        match means.background {
            ProgressMode::Off => OverlapReason::BackgroundOff,
            ProgressMode::Refused => OverlapReason::NoThread,
            _ if means.crowded => OverlapReason::NoCore,
            _ => OverlapReason::NotAdvanced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1000;
    const FREE: ProgressMeans = ProgressMeans {
        background: ProgressMode::On,
        crowded: false,
    };

    fn us(begin: u64, end: u64) -> Interval {
        Interval::new(begin * US, end * US)
    }

    /// An operation from 0 to 1000 µs whose start returned after 10.
    fn life<'a>(moved: &[Interval], in_mpi: &'a [Interval]) -> OperationTimes<'a> {
        OperationTimes {
            open: us(0, 1000),
            returned: 10 * US,
            partner: Some(0),
            receives: true,
            moved: moved.to_vec(),
            in_mpi,
        }
    }

    #[test]
    fn what_was_moved_while_the_program_computed_was_hidden() {
        let share = judge(
            life(&[us(100, 300), us(200, 400)], &[us(0, 10), us(990, 1000)]),
            FREE,
        );
        assert_eq!((share.moving_ns, share.hidden_ns), (300 * US, 300 * US));
        assert_eq!((share.waited_ns, share.reason), (10 * US, None));
    }

    #[test]
    fn what_was_moved_in_the_wait_was_not_hidden_however_long_it_was_open() {
        let inside = [us(0, 10), us(800, 1000)];
        for (means, reason) in [
            (
                ProgressMeans {
                    background: ProgressMode::Off,
                    ..FREE
                },
                OverlapReason::BackgroundOff,
            ),
            (
                ProgressMeans {
                    background: ProgressMode::Refused,
                    ..FREE
                },
                OverlapReason::NoThread,
            ),
            (
                ProgressMeans {
                    crowded: true,
                    ..FREE
                },
                OverlapReason::NoCore,
            ),
            (FREE, OverlapReason::NotAdvanced),
        ] {
            let share = judge(life(&[us(810, 1000)], &inside), means);
            assert_eq!((share.hidden_ns, share.reason), (0, Some(reason)));
        }
    }

    #[test]
    fn a_wait_at_once_hides_nothing() {
        let share = judge(life(&[us(20, 1000)], &[us(0, 10), us(11, 1000)]), FREE);
        assert_eq!((share.hidden_ns, share.waited_ns), (0, 989 * US));
        assert_eq!(share.reason, Some(OverlapReason::WaitedAtOnce));
    }

    #[test]
    fn a_receive_whose_message_waited_for_it_was_posted_late() {
        let inside = [Interval::new(5000 * US, 6000 * US)];
        let late = OperationTimes {
            open: us(5000, 6000),
            returned: 5010 * US,
            ..life(&[us(5100, 5900)], &inside)
        };
        assert_eq!(
            judge(late.clone(), FREE).reason,
            Some(OverlapReason::PostedLate)
        );
        let send = OperationTimes {
            receives: false,
            ..late
        };
        assert_eq!(judge(send, FREE).reason, Some(OverlapReason::WaitedAtOnce));
    }

    #[test]
    fn a_partner_that_came_when_the_program_waited_already_was_late() {
        let inside = [us(0, 10), us(500, 1000)];
        let late = OperationTimes {
            partner: Some(900 * US),
            ..life(&[us(910, 1000)], &inside)
        };
        assert_eq!(judge(late, FREE).reason, Some(OverlapReason::PartnerLate));
    }

    #[test]
    fn a_partner_that_came_much_later_was_late_also_where_the_program_waited_at_once() {
        let inside = [us(0, 10), us(11, 1000)];
        for (partner, reason) in [
            (900, OverlapReason::PartnerLate),
            (50, OverlapReason::WaitedAtOnce),
        ] {
            for receives in [true, false] {
                let late = OperationTimes {
                    partner: Some(partner * US),
                    receives,
                    ..life(&[us(910, 1000)], &inside)
                };
                assert_eq!(judge(late, FREE).reason, Some(reason));
            }
        }
    }

    #[test]
    fn a_partner_that_was_waited_for_was_late_also_where_there_was_next_to_nothing_to_move() {
        let inside = [us(0, 10), us(500, 1000)];
        for partner in [Some(900 * US), None] {
            let late = OperationTimes {
                partner,
                ..life(&[], &inside)
            };
            assert_eq!(judge(late, FREE).reason, Some(OverlapReason::PartnerLate));
        }
        let soon = [us(0, 10), us(995, 1000)];
        let hardly = OperationTimes {
            partner: None,
            ..life(&[], &soon)
        };
        assert_eq!(judge(hardly, FREE).reason, Some(OverlapReason::Small));
    }

    #[test]
    fn an_operation_that_was_waited_for_has_a_reason_however_much_of_it_was_hidden() {
        let inside = [us(0, 10), us(500, 1000)];
        let most = |partner, moved: &[Interval]| {
            let share = judge(
                OperationTimes {
                    partner,
                    ..life(moved, &inside)
                },
                FREE,
            );
            assert!(share.hidden_ns * 2 >= share.moving_ns, "{share:?}");
            share.reason
        };
        let hidden_and_rest = [us(100, 120), us(990, 1000)];
        assert_eq!(most(None, &hidden_and_rest), Some(OverlapReason::RestLate));
        assert_eq!(
            most(Some(90 * US), &hidden_and_rest),
            Some(OverlapReason::PartnerLate)
        );
        assert_eq!(
            most(Some(5 * US), &hidden_and_rest),
            Some(OverlapReason::RestLate)
        );
        // What is waited for is the moving itself, or is short beside it.
        assert_eq!(most(None, &[us(10, 500), us(500, 970)]), None);
        assert_eq!(most(None, &[us(10, 600)]), None);
        // Waited for longer than all the moving, but not while nobody moved anything.
        assert_eq!(most(None, &[us(100, 300), us(500, 690)]), None);
    }

    #[test]
    fn a_short_wait_for_what_was_hidden_needs_no_reason() {
        let inside = [us(0, 10), us(910, 1000)];
        assert_eq!(judge(life(&[us(100, 120)], &inside), FREE).reason, None);
    }

    #[test]
    fn less_computation_than_moving_is_said() {
        let share = judge(life(&[us(110, 1000)], &[us(0, 10), us(210, 1000)]), FREE);
        assert_eq!(
            (share.hidden_ns, share.reason),
            (100 * US, Some(OverlapReason::ShortComputation))
        );
    }

    #[test]
    fn what_took_next_to_nothing_is_small() {
        let share = judge(life(&[Interval::new(0, SMALL_NS - 1)], &[]), FREE);
        assert_eq!(share.reason, Some(OverlapReason::Small));
        assert_eq!(
            judge(life(&[], &[us(0, 1000)]), FREE).reason,
            Some(OverlapReason::Small)
        );
    }

    #[test]
    fn reasons_are_listed_in_their_order() {
        assert!(
            OverlapReason::ALL
                .iter()
                .enumerate()
                .all(|(place, reason)| *reason as usize == place)
        );
    }
}
