//! Looks for what is wrong with a strategy that others wrote: asks it thousands of random
//! questions, each twice, and checks every answer.
//!
//! Everything is made from a seed, so what was found is found again. The engine checks answers as
//! well and does without bad ones; what is found here is what the author wants to know.

use crate::limits::{
    COALESCE_BYTES, COALESCE_EACH_MAX, EXAMINE_CASES, EXAMINE_STARVED, EXAMINE_STREAMS,
    ORDER_LOOK_AHEAD, ORDER_SMALL_MAX, STRIPE_LEAST, STRIPE_PATHS,
};
use crate::schedule::order::{self, WindowEntry};
use crate::schedule::plugin::{
    CoalesceQuery, DecisionKind, PluginAnswer, RailView, StrategyPlugin, StripePiece, StripeQuery,
    WindowView,
};
use crate::schedule::stripe::RailEstimate;

/// Something wrong with a strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginFinding {
    /// Kind of the query.
    pub question: DecisionKind,
    /// Which of the questions of this kind, or which stream of messages, from 0 on.
    pub case: u64,
    /// The property that does not hold.
    pub property: PluginProperty,
    /// Description of the violation.
    pub how: String,
}

/// A property that every good strategy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PluginProperty {
    /// Answers mean something.
    Sense,
    /// A plan names every message of the window, and once.
    Permutation,
    /// A plan keeps messages of one context in their order.
    EnvelopeOrder,
    /// However many others come, each message leaves; data that nobody is asked for do not wait for
    /// nothing.
    NoStarvation,
    /// Rails are there and have room, lengths are within their bounds.
    Bounds,
    /// Equal queries get equal answers.
    Purity,
}

impl PluginProperty {
    /// Returns the property in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Sense => "answers mean something",
            Self::Permutation => "a plan names every message of the window once",
            Self::EnvelopeOrder => "messages of one context keep their order",
            Self::NoStarvation => "nothing waits for ever",
            Self::Bounds => "pieces have a way with room and an allowed length",
            Self::Purity => "the same question gets the same answer",
        }
    }
}

/// Findings of a check, and the queries made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginReport {
    /// Answers by kind of question.
    pub asked: [u64; 3],
    /// Queries whose decision was left to the built-in strategy.
    pub left: [u64; 3],
    /// The first case of each property that does not hold.
    pub findings: Vec<PluginFinding>,
}

impl PluginReport {
    fn find(&mut self, question: DecisionKind, case: u64, property: PluginProperty, how: String) {
        let known =
            |finding: &PluginFinding| (finding.question, finding.property) == (question, property);
        if !self.findings.iter().any(known) {
            self.findings.push(PluginFinding {
                question,
                case,
                property,
                how,
            });
        }
    }

    /// Counts an answer. What it decided, if it is one that decides.
    fn hear<T>(&mut self, question: DecisionKind, case: u64, answer: &PluginAnswer<T>) -> Option<T>
    where
        T: Clone,
    {
        self.asked[question as usize] += 1;
        match answer {
            PluginAnswer::Decided(said) => return Some(said.clone()),
            PluginAnswer::Yours => self.left[question as usize] += 1,
            PluginAnswer::Rubbish => {
                self.find(
                    question,
                    case,
                    PluginProperty::Sense,
                    String::from("it says nothing that is in the interface"),
                );
            }
        }
        None
    }
}

/// Examines a strategy. `before` is told of each question before it is asked, in case no answer
/// comes.
pub fn examine(
    strategy: &dyn StrategyPlugin,
    seed: u64,
    before: &mut dyn FnMut(DecisionKind, u64),
) -> PluginReport {
    let (mut report, decides) = (PluginReport::default(), strategy.decides());
    let mut chance = CheckRng(seed);
    if decides.waiting {
        let cases: Vec<_> = (0..EXAMINE_CASES).map(|_| message(&mut chance)).collect();
        let ask = |message: &CoalesceQuery| strategy.may_wait(message);
        twice(
            DecisionKind::Waiting,
            &cases,
            &ask,
            before,
            &mut report,
            &mut |_, _, _, _: bool| (),
        );
    }
    if decides.order {
        let cases: Vec<_> = (0..EXAMINE_CASES).map(|_| window(&mut chance)).collect();
        let ask = |case: &(WindowView<'static>, Vec<WindowEntry>)| strategy.order(&seen(case));
        twice(
            DecisionKind::Order,
            &cases,
            &ask,
            before,
            &mut report,
            &mut check_order,
        );
        for stream in 0..EXAMINE_STREAMS {
            before(DecisionKind::Order, EXAMINE_CASES + stream);
            starve(strategy, stream, &mut chance, &mut report);
        }
    }
    if decides.pieces {
        let cases: Vec<_> = (0..EXAMINE_CASES).map(|_| flow(&mut chance)).collect();
        let ask = |case: &(StripeQuery<'static>, Vec<RailView>)| strategy.piece(&with_ways(case));
        twice(
            DecisionKind::Piece,
            &cases,
            &ask,
            before,
            &mut report,
            &mut check_piece,
        );
    }
    report
}

/// Asks all questions of a kind, checks the answers, and asks again from the last to the first:
/// whoever remembers anything answers differently then.
fn twice<C, T: Clone + PartialEq>(
    question: DecisionKind,
    cases: &[C],
    ask: &dyn Fn(&C) -> PluginAnswer<T>,
    before: &mut dyn FnMut(DecisionKind, u64),
    report: &mut PluginReport,
    check: &mut dyn FnMut(&C, u64, &mut PluginReport, T),
) {
    let mut answers = Vec::with_capacity(cases.len());
    for (number, case) in cases.iter().enumerate() {
        before(question, number as u64);
        let answer = ask(case);
        if let Some(said) = report.hear(question, number as u64, &answer) {
            check(case, number as u64, report, said);
        }
        answers.push(answer);
    }
    for (number, (case, first)) in cases.iter().zip(&answers).enumerate().rev() {
        before(question, number as u64);
        let again = ask(case);
        report.asked[question as usize] += 1;
        if again != *first {
            report.find(
                question,
                number as u64,
                PluginProperty::Purity,
                String::from("asked again, it answers something else"),
            );
        }
    }
}

fn seen<'a>((window, chunks): &'a (WindowView<'static>, Vec<WindowEntry>)) -> WindowView<'a> {
    WindowView { chunks, ..*window }
}

fn with_ways<'a>((flow, ways): &'a (StripeQuery<'static>, Vec<RailView>)) -> StripeQuery<'a> {
    StripeQuery { ways, ..*flow }
}

fn check_order(
    (_, chunks): &(WindowView<'static>, Vec<WindowEntry>),
    case: u64,
    report: &mut PluginReport,
    order: Vec<usize>,
) {
    let all = chunks.len();
    let mut named = vec![false; all];
    for &place in &order {
        let how = match named.get_mut(place) {
            None => format!("place {place} of a window of {all} messages"),
            Some(true) => format!("place {place} twice"),
            Some(named) => {
                *named = true;
                continue;
            }
        };
        return report.find(DecisionKind::Order, case, PluginProperty::Permutation, how);
    }
    if order.len() < all {
        let how = format!("{} of {all} messages", order.len());
        return report.find(DecisionKind::Order, case, PluginProperty::Permutation, how);
    }
    if !order::check(chunks, &order) {
        let how = overtaking(chunks, &order);
        report.find(
            DecisionKind::Order,
            case,
            PluginProperty::EnvelopeOrder,
            how,
        );
    }
}

fn overtaking(chunks: &[WindowEntry], order: &[usize]) -> String {
    for (at, place) in order.iter().enumerate() {
        let context = chunks[*place].context;
        let later = order[at + 1..]
            .iter()
            .find(|later| *later < place && chunks[**later].context == context);
        if let Some(later) = later {
            return format!("place {place} before place {later}, both of context {context}");
        }
    }
    String::new()
}

/// A long message waits while short ones of other contexts join as fast as messages leave.
fn starve(
    strategy: &dyn StrategyPlugin,
    stream: u64,
    chance: &mut CheckRng,
    report: &mut PluginReport,
) {
    let small = |chance: &mut CheckRng| WindowEntry {
        context: 10 + chance.below(50) as u32,
        tag: chance.below(4) as i32,
        len: 1 + chance.below(256),
        ..WindowEntry::default()
    };
    let large = WindowEntry {
        context: 1,
        tag: 0,
        len: ORDER_SMALL_MAX as u64 + 1 + chance.below(1 << 20),
        ..WindowEntry::default()
    };
    let mut window = vec![large];
    window.extend((1..ORDER_LOOK_AHEAD).map(|_| small(chance)));
    let mut overtaken = 0;
    while overtaken <= EXAMINE_STARVED {
        let leave = 1 + chance.below(ORDER_LOOK_AHEAD as u64 / 2) as usize;
        let view = WindowView {
            peer: 1,
            envelopes: leave as u32,
            payload: 1 << 16,
            chunks: &window,
        };
        let answer = strategy.order(&view);
        let Some(order) = report.hear(DecisionKind::Order, EXAMINE_CASES + stream, &answer) else {
            return;
        };
        // What is wrong otherwise is found elsewhere.
        if order.len() != window.len()
            || !order::check(&window, &order)
            || order[..leave].contains(&0)
        {
            return;
        }
        overtaken += leave as u64;
        let gone = &order[..leave];
        window = (0..window.len())
            .filter(|place| !gone.contains(place))
            .map(|place| window[place])
            .collect();
        window.extend((0..leave).map(|_| small(chance)));
    }
    let how = format!(
        "{overtaken} messages overtook the oldest, of {} bytes, and it does not leave while others come",
        large.len
    );
    report.find(
        DecisionKind::Order,
        EXAMINE_CASES + stream,
        PluginProperty::NoStarvation,
        how,
    );
}

fn check_piece(
    (flow, ways): &(StripeQuery<'static>, Vec<RailView>),
    case: u64,
    report: &mut PluginReport,
    said: Option<StripePiece>,
) {
    let Some(StripePiece { way, len }) = said else {
        if ways.iter().all(|lane| lane.asked == 0) {
            let how = format!(
                "{} bytes are left, and it waits while nobody is asked for any",
                flow.left
            );
            report.find(DecisionKind::Piece, case, PluginProperty::NoStarvation, how);
        }
        return;
    };
    let how = match ways.get(way) {
        None => format!("way {way} of {}", ways.len()),
        Some(lane) if lane.room == 0 => format!("way {way}, which has no room"),
        Some(lane) => {
            let most = lane.most.max(flow.least).min(flow.left);
            if (flow.least..=most).contains(&len) {
                return;
            }
            format!(
                "a piece of {len} bytes, where {} to {most} are allowed",
                flow.least
            )
        }
    };
    report.find(DecisionKind::Piece, case, PluginProperty::Bounds, how);
}

fn message(chance: &mut CheckRng) -> CoalesceQuery {
    let len = match chance.below(3) {
        0 => chance.below(64),
        1 => chance.below(1024),
        _ => chance.below(COALESCE_EACH_MAX as u64 + 1),
    };
    let before = chance.below(COALESCE_BYTES as u64 - len);
    CoalesceQuery {
        peer: chance.below(1000) as u32,
        context: chance.below(20) as u32,
        tag: chance.below(100) as i32,
        since_look: chance.below(100) as u32,
        series: (chance.below(100) as u32, chance.below(10) as u32),
        backoff: chance.below(100) as u32,
        len,
        kept: before + len,
    }
}

fn window(chance: &mut CheckRng) -> (WindowView<'static>, Vec<WindowEntry>) {
    let contexts = 2 + chance.below(6);
    let of = |chance: &mut CheckRng, context: u64| WindowEntry {
        context: 2 * context as u32,
        tag: chance.below(4) as i32,
        len: match chance.below(3) {
            0 => chance.below(ORDER_SMALL_MAX as u64 + 1),
            1 => chance.below(100_000),
            // Many of one length.
            _ => 8 << (4 * chance.below(4)),
        },
        ..WindowEntry::default()
    };
    // At least two, of two contexts.
    let mut chunks = vec![of(chance, 0), of(chance, 1)];
    for _ in 0..chance.below(ORDER_LOOK_AHEAD as u64 - 1) {
        let context = chance.below(contexts);
        let at = chance.below(chunks.len() as u64 + 1) as usize;
        chunks.insert(at, of(chance, context));
    }
    let window = WindowView {
        peer: chance.below(1000) as u32,
        envelopes: 1 + chance.below(1024) as u32,
        payload: chance.below(1 << 20),
        chunks: &[],
    };
    (window, chunks)
}

fn flow(chance: &mut CheckRng) -> (StripeQuery<'static>, Vec<RailView>) {
    let whole = chance.below(4) == 0;
    let left = match whole {
        true => 1 + chance.below(512 << 10),
        false => {
            let log2 = 10 + chance.below(20);
            1 + chance.below(1 << log2)
        }
    };
    let ready = chance.below(STRIPE_PATHS as u64 - 1) as u32;
    let lane = |number: u32, chance: &mut CheckRng| {
        // One has room at least.
        let asked = if number == ready {
            chance.below(2)
        } else {
            chance.below(3)
        } as u32;
        let way = RailEstimate {
            rate: 1.0 + chance.below(5000) as f64,
            latency: chance.below(5000) as f64,
            backlog: (0..asked).map(|_| 1 + chance.below(1 << 20)).sum(),
        };
        let room = if whole { 1 } else { 2 - asked };
        let lane = RailView::new(way, asked, room, chance.below(4) != 0);
        RailView {
            most: if whole { left } else { lane.most },
            ..lane
        }
    };
    let several = (ready + 1).max(2)
        + chance.below(u64::from(STRIPE_PATHS as u32 - (ready + 1).max(2)) + 1) as u32;
    let ways = (0..several).map(|number| lane(number, chance)).collect();
    let flow = StripeQuery {
        peer: chance.below(1000) as u32,
        left,
        least: if whole { left } else { STRIPE_LEAST.min(left) },
        ways: &[],
    };
    (flow, ways)
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
struct CheckRng(u64);

impl CheckRng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::coalesce::{CoalesceCandidate, CoalescePolicy, SendHistory, may_wait};
    use crate::schedule::order::OrderPolicy;
    use crate::schedule::plugin::PluginDecisions;
    use crate::schedule::stripe::StripePolicy;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    const ALL: PluginDecisions = PluginDecisions {
        waiting: true,
        order: true,
        pieces: true,
    };

    /// The built-in strategies, asked as one that was loaded is.
    #[derive(Debug)]
    struct BuiltinPlugin;

    impl StrategyPlugin for BuiltinPlugin {
        fn decides(&self) -> PluginDecisions {
            ALL
        }

        fn may_wait(&self, message: &CoalesceQuery) -> PluginAnswer<bool> {
            let candidate = CoalesceCandidate {
                len: message.len as usize,
                urgent: false,
                kept: message.kept as usize,
            };
            PluginAnswer::Decided(may_wait(
                CoalescePolicy::Hold,
                &candidate,
                &SendHistory::default(),
            ))
        }

        fn order(&self, window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
            PluginAnswer::Decided(order::plan(OrderPolicy::default(), window.chunks))
        }

        fn piece(&self, flow: &StripeQuery<'_>) -> PluginAnswer<Option<StripePiece>> {
            let ways: Vec<RailEstimate> = flow.ways.iter().map(|lane| lane.way).collect();
            let of = |(way, lane): (usize, &RailView)| {
                let len = StripePolicy::default()
                    .piece(&ways, way, flow.left)
                    .min(lane.most);
                (lane.room > 0 && len > 0).then(|| StripePiece {
                    way,
                    len: len.max(flow.least),
                })
            };
            let piece = flow.ways.iter().enumerate().find_map(of);
            // Others are quicker, and have no room.
            piece.map_or(PluginAnswer::Yours, |piece| {
                PluginAnswer::Decided(Some(piece))
            })
        }
    }

    /// Wrong in one rail.
    #[derive(Debug)]
    struct FaultyPlugin(PluginProperty, AtomicU64);

    impl FaultyPlugin {
        fn turn(&self) -> u64 {
            self.1.fetch_add(1, Relaxed)
        }
    }

    impl StrategyPlugin for FaultyPlugin {
        fn decides(&self) -> PluginDecisions {
            ALL
        }

        fn may_wait(&self, message: &CoalesceQuery) -> PluginAnswer<bool> {
            match self.0 {
                PluginProperty::Sense => PluginAnswer::Rubbish,
                PluginProperty::Purity => PluginAnswer::Decided(self.turn().is_multiple_of(2)),
                _ => BuiltinPlugin.may_wait(message),
            }
        }

        fn order(&self, window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
            let all = 0..window.chunks.len();
            match self.0 {
                PluginProperty::Sense => PluginAnswer::Rubbish,
                PluginProperty::Permutation => PluginAnswer::Decided(vec![0; all.len()]),
                PluginProperty::EnvelopeOrder => PluginAnswer::Decided(all.rev().collect()),
                PluginProperty::NoStarvation => {
                    // The context of the oldest is always the last.
                    let first = window.chunks[0].context;
                    let (mut order, last): (Vec<_>, Vec<_>) =
                        all.partition(|place| window.chunks[*place].context != first);
                    order.extend(last);
                    PluginAnswer::Decided(order)
                }
                PluginProperty::Purity if self.turn().is_multiple_of(2) => {
                    PluginAnswer::Decided(all.collect())
                }
                _ => BuiltinPlugin.order(window),
            }
        }

        fn piece(&self, flow: &StripeQuery<'_>) -> PluginAnswer<Option<StripePiece>> {
            match self.0 {
                PluginProperty::Sense => PluginAnswer::Rubbish,
                PluginProperty::NoStarvation => PluginAnswer::Decided(None),
                PluginProperty::Bounds => PluginAnswer::Decided(Some(StripePiece {
                    way: 0,
                    len: 1 << 40,
                })),
                PluginProperty::Purity if self.turn().is_multiple_of(2) => PluginAnswer::Yours,
                _ => BuiltinPlugin.piece(flow),
            }
        }
    }

    #[test]
    fn nothing_is_found_in_the_built_in_strategies() {
        for seed in 0..2 {
            let mut before = 0;
            let report = examine(&BuiltinPlugin, seed, &mut |_, _| before += 1);
            assert_eq!(report.findings, [], "seed {seed}");
            assert!(
                report.asked.iter().all(|asked| *asked >= 2 * EXAMINE_CASES),
                "{report:?}"
            );
            assert!(before >= 6 * EXAMINE_CASES);
        }
    }

    #[test]
    fn each_property_that_does_not_hold_is_found_whatever_the_seed_and_no_other() {
        use DecisionKind::{Order, Piece, Waiting};
        use PluginProperty::{Bounds, EnvelopeOrder, NoStarvation, Permutation, Purity, Sense};
        let wrong = [
            (Sense, vec![Waiting, Order, Piece]),
            (Permutation, vec![Order]),
            (EnvelopeOrder, vec![Order]),
            (NoStarvation, vec![Order, Piece]),
            (Bounds, vec![Piece]),
            (Purity, vec![Waiting, Order, Piece]),
        ];
        for (property, questions) in wrong {
            for seed in 0..2 {
                let report = examine(
                    &FaultyPlugin(property, AtomicU64::new(0)),
                    seed,
                    &mut |_, _| (),
                );
                let found: Vec<_> = report
                    .findings
                    .iter()
                    .map(|one| (one.property, one.question))
                    .collect();
                let wanted: Vec<_> = questions
                    .iter()
                    .map(|question| (property, *question))
                    .collect();
                assert_eq!(found, wanted, "seed {seed}: {report:?}");
            }
        }
    }

    #[test]
    fn one_seed_finds_the_same_again_and_two_do_not_ask_the_same() {
        let examined = |seed| {
            examine(
                &FaultyPlugin(PluginProperty::Bounds, AtomicU64::new(0)),
                seed,
                &mut |_, _| (),
            )
        };
        assert_eq!(examined(7), examined(7));
        assert_ne!(examined(7), examined(8));
    }

    #[test]
    fn who_decides_nothing_is_asked_nothing() {
        #[derive(Debug)]
        struct SilentPlugin;
        impl StrategyPlugin for SilentPlugin {
            fn decides(&self) -> PluginDecisions {
                PluginDecisions::default()
            }
        }
        let report = examine(&SilentPlugin, 0, &mut |_, _| panic!("asked"));
        assert_eq!(report, PluginReport::default());
    }
}
