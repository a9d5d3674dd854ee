use super::*;
use proptest::prelude::*;

/// Says what it was told to say.
#[derive(Debug)]
struct Says {
    waits: PluginAnswer<bool>,
    order: PluginAnswer<Vec<usize>>,
    piece: PluginAnswer<Option<StripePiece>>,
}

impl Default for Says {
    fn default() -> Self {
        Self {
            waits: PluginAnswer::Yours,
            order: PluginAnswer::Yours,
            piece: PluginAnswer::Yours,
        }
    }
}

impl super::StrategyPlugin for Says {
    fn decides(&self) -> PluginDecisions {
        PluginDecisions {
            waiting: true,
            order: true,
            pieces: true,
        }
    }

    fn may_wait(&self, _: &CoalesceQuery) -> PluginAnswer<bool> {
        self.waits.clone()
    }

    fn order(&self, _: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
        self.order.clone()
    }

    fn piece(&self, _: &StripeQuery<'_>) -> PluginAnswer<Option<StripePiece>> {
        self.piece.clone()
    }
}

fn loaded(says: Says) -> CheckedPlugin {
    CheckedPlugin::new(Box::new(says), 4)
}

fn chunks(contexts: &[u32]) -> Vec<WindowEntry> {
    let chunk = |context: &u32| WindowEntry {
        context: *context,
        len: 8,
        ..WindowEntry::default()
    };
    contexts.iter().map(chunk).collect()
}

fn asked(asked: u64, accepted: u64, refused: u64) -> DecisionCounts {
    DecisionCounts {
        asked,
        accepted,
        refused,
    }
}

fn lane(asked: u32, room: u32) -> RailView {
    let way = RailEstimate {
        rate: 1000.0,
        latency: 100.0,
        backlog: u64::from(asked) << 20,
    };
    RailView::new(way, asked, room, true)
}

#[test]
fn a_plan_that_leaves_anything_out_is_refused_and_counted() {
    let window = chunks(&[1, 2, 1, 3]);
    let orders: [(&[usize], bool); 6] = [
        (&[1, 3, 0, 2], true),
        (&[], false),
        (&[0, 1, 2], false),
        (&[2, 0, 1, 3], false),
        (&[0, 0, 1, 2], false),
        (&[0, 1, 2, 4], false),
    ];
    for (order, good) in orders {
        let loaded = loaded(Says {
            order: PluginAnswer::Decided(order.to_vec()),
            ..Says::default()
        });
        let view = WindowView {
            peer: 2,
            envelopes: 1,
            payload: 0,
            chunks: &window,
        };
        assert_eq!(loaded.order(&view), good.then(|| order.to_vec()));
        assert_eq!(
            loaded.counts(2)[DecisionKind::Order as usize],
            asked(1, good.into(), (!good).into())
        );
        assert_eq!(
            loaded.counts(1),
            [DecisionCounts::default(); 3],
            "another peer's"
        );
    }
}

#[test]
fn a_decision_that_is_left_to_us_is_neither_taken_nor_refused_and_rubbish_is_refused() {
    let message = CoalesceQuery {
        peer: 3,
        context: 0,
        tag: 0,
        since_look: 0,
        series: (0, 0),
        backoff: 0,
        len: 8,
        kept: 8,
    };
    let says = |waits| {
        loaded(Says {
            waits,
            ..Says::default()
        })
    };
    for (answer, wanted, counts) in [
        (PluginAnswer::Decided(true), Some(true), asked(1, 1, 0)),
        (PluginAnswer::Decided(false), Some(false), asked(1, 1, 0)),
        (PluginAnswer::Yours, None, asked(1, 0, 0)),
        (PluginAnswer::Rubbish, None, asked(1, 0, 1)),
    ] {
        let loaded = says(answer);
        assert_eq!(loaded.may_wait(&message), wanted);
        assert_eq!(loaded.counts(3)[DecisionKind::Waiting as usize], counts);
    }
}

#[test]
fn who_waits_for_what_nobody_was_asked_for_is_refused() {
    for (ways, wanted) in [
        ([lane(0, 2), lane(0, 2)], None),
        ([lane(0, 2), lane(1, 1)], Some(None)),
    ] {
        let loaded = loaded(Says {
            piece: PluginAnswer::Decided(None),
            ..Says::default()
        });
        let flow = StripeQuery {
            peer: 0,
            left: 1 << 20,
            least: STRIPE_LEAST,
            ways: &ways,
        };
        assert_eq!(loaded.piece(&flow), wanted);
    }
}

#[test]
fn counts_are_read_from_a_table_and_rubbish_is_read_without_harm() {
    let loaded = loaded(Says::default());
    let view = WindowView {
        peer: 1,
        envelopes: 1,
        payload: 0,
        chunks: &chunks(&[1, 2]),
    };
    for _ in 0..3 {
        loaded.order(&view);
    }
    let words = loaded.counts.iter();
    let table: Vec<u8> = words
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect();
    assert_eq!(table.len(), counts_bytes(4));
    for peer in 0..4 {
        assert_eq!(read_counts(&table, peer), Some(loaded.counts(peer)));
    }
    assert_eq!(
        read_counts(&table, 1).unwrap()[DecisionKind::Order as usize],
        asked(3, 0, 0)
    );
    assert_eq!(read_counts(&table, 4), None);
    assert_eq!(read_counts(&table[..80], 1), None);
}

proptest! {
    #[test]
    fn whatever_is_said_of_a_piece_what_is_carried_out_is_allowed(
        ways in prop::collection::vec((0u32..3, 1.0f64..5000.0, 0.0f64..5000.0, any::<bool>()), 1..=STRIPE_PATHS),
        left in 1u64..1 << 40, way in 0usize..6, len in prop_oneof![Just(0u64), Just(u64::MAX), 1u64..1 << 40],
    ) {
        let ways: Vec<RailView> = ways
            .iter()
            .map(|(asked, rate, latency, known)| {
                let way = RailEstimate { rate: *rate, latency: *latency, backlog: u64::from(*asked) * 1000 };
                RailView::new(way, *asked, 2 - asked, *known)
            })
            .collect();
        let flow = StripeQuery { peer: 0, left, least: STRIPE_LEAST.min(left), ways: &ways };
        let loaded = loaded(Says { piece: PluginAnswer::Decided(Some(StripePiece { way, len })), ..Says::default() });
        match loaded.piece(&flow) {
            Some(Some(piece)) => {
                prop_assert_eq!(piece.way, way);
                prop_assert!(ways[way].room > 0);
                prop_assert!(piece.len >= flow.least && piece.len <= left);
                prop_assert!(piece.len <= ways[way].most.max(flow.least));
            }
            Some(None) => prop_assert!(false, "nobody said that"),
            None => prop_assert!(ways.get(way).is_none_or(|lane| lane.room == 0)),
        }
    }

    #[test]
    fn whatever_is_said_of_an_order_what_is_carried_out_holds_all_messages_in_the_order_of_their_contexts(
        contexts in prop::collection::vec(0u32..4, 2..12), order in prop::collection::vec(0usize..14, 0..14), shuffled in any::<bool>(),
    ) {
        let window = chunks(&contexts);
        // Rubbish is seldom a permutation.
        let order = if shuffled {
            let mut all: Vec<usize> = (0..window.len()).collect();
            all.sort_by_key(|place| order.get(*place).copied());
            all
        } else {
            order
        };
        let loaded = loaded(Says { order: PluginAnswer::Decided(order), ..Says::default() });
        let view = WindowView { peer: 0, envelopes: 1, payload: 0, chunks: &window };
        if let Some(order) = loaded.order(&view) {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..window.len()).collect::<Vec<_>>());
            for context in 0..4 {
                prop_assert!(order.iter().filter(|place| contexts[**place] == context).is_sorted());
            }
        }
    }
}
