//! The order in which a window leaves by a transport that has room for few packets at a time, with
//! and without a strategy of somebody else's.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{CallOrigin, Error, Peer, SendArgs, SendCompletion};
use garonne_engine::engine::Engine;
use garonne_engine::limits::{ORDER_LOOK_AHEAD, ORDER_PATIENCE};
use garonne_engine::schedule::builtin::BuiltinStrategy;
use garonne_engine::schedule::plugin::{
    CheckedPlugin, DecisionCounts, DecisionKind, PluginAnswer, PluginDecisions, StrategyPlugin,
    WindowView,
};
use garonne_engine::schedule::priority::Priority;
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader, PeerCapabilities,
    PollSink, RemoteMemory, SharedCopy, Transport, TransportLimits, WakeSource,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::sync::Arc;
use std::time::Duration;

/// Takes so many packets of data until it is told otherwise, and remembers their contexts.
#[derive(Default)]
struct Narrow {
    room: u32,
    sent: Vec<u32>,
    lent: Vec<Scratch>,
}

struct Bed;

impl WakeSource for Bed {
    fn sleep(&self, _: u32, _: Option<Duration>) {}
    fn wake(&self) {}
}

impl Transport for Narrow {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: 32,
            packet_max: 16 << 10,
            control_max: 88,
            ordered: true,
        }
    }
    fn capabilities(&self, _: Peer) -> Option<PeerCapabilities> {
        Some(PeerCapabilities {
            eager_max: 16 << 10,
            fragmented_max: 0,
            can_read: false,
            can_write: false,
            pipeline_chunk: 1024,
            read_chunk: 1024,
        })
    }
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        if class == PacketClass::Data && self.room == 0 {
            return Err(ClaimError::Full);
        }
        let scratch = Scratch::new(len).ok_or(ClaimError::Full)?;
        let room = PacketBuffer {
            mem: scratch.mem(),
            len,
            peer,
            token: 0,
            stores: StoreKind::Cached,
        };
        self.lent.push(scratch);
        Ok(room)
    }
    fn commit(&mut self, _: PacketBuffer, header: &PacketHeader) {
        self.lent.pop();
        self.room -= 1;
        self.sent.push(header.context);
    }
    fn abandon(&mut self, _: PacketBuffer) {
        self.lent.pop();
    }
    fn send_inline(
        &mut self,
        _: Peer,
        header: &PacketHeader,
        _: UserMem,
    ) -> Result<(), ClaimError> {
        self.room = self.room.checked_sub(1).ok_or(ClaimError::Full)?;
        self.sent.push(header.context);
        Ok(())
    }
    fn poll(&mut self, _: u32, _: &mut impl PollSink) -> u32 {
        0
    }
    fn arm(&mut self) -> u32 {
        0
    }
    fn disarm(&mut self) {}
    fn wake_source(&self) -> Arc<dyn WakeSource> {
        Arc::new(Bed)
    }
    fn wake_peer(&mut self, _: Peer) {}
}

impl FastPath for Narrow {}

impl FragmentedSends for Narrow {}

impl RemoteMemory for Narrow {
    fn expose(&mut self, _: BulkToken, _: Peer, _: &Data) -> ExposeResult {
        ExposeResult::Unable
    }

    fn revoke(&mut self, _: BulkToken) -> BulkStatus {
        BulkStatus::Done
    }

    fn read(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Resource("nothing can be read here"))
    }

    fn write(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Resource("nothing can be written here"))
    }
}

impl SharedCopy for Narrow {}

impl AsyncProgress for Narrow {}

impl NodeMemory for Narrow {}

/// Has context 1 leave after all others.
#[derive(Debug)]
struct LastIsOne;

impl StrategyPlugin for LastIsOne {
    fn decides(&self) -> PluginDecisions {
        PluginDecisions {
            order: true,
            ..PluginDecisions::default()
        }
    }

    fn order(&self, window: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
        let (one, mut others): (Vec<_>, Vec<_>) =
            (0..window.chunks.len()).partition(|place| window.chunks[*place].context == 1);
        others.extend(one);
        PluginAnswer::Decided(others)
    }
}

struct Side {
    shard: Engine<Narrow>,
    loaded: Option<Arc<CheckedPlugin>>,
    bytes: Scratch,
}

impl Side {
    fn new(strategy: Option<Box<dyn StrategyPlugin>>) -> Self {
        let quotas = CreditQuotas {
            envelopes: 100_000,
            payload: 1 << 40,
        };
        let mut shard = Engine::new(Narrow::default(), 0, 2, quotas);
        let loaded = strategy.map(|strategy| Arc::new(CheckedPlugin::new(strategy, 2)));
        if let Some(loaded) = &loaded {
            shard.set_plugin(loaded.clone());
        }
        let bytes = Scratch::new(16 << 10).expect("memory");
        Self {
            shard,
            loaded,
            bytes,
        }
    }

    fn send(&mut self, context: u32, len: u64) {
        let send = SendArgs {
            context,
            peer: 1,
            source: 0,
            tag: 0,
            data: Data::contiguous(self.bytes.mem(), len),
            mode: SendCompletion::Standard,
            origin: CallOrigin::default(),
        };
        self.shard.send(send).expect("started");
    }

    /// Lets so many packets leave; their contexts.
    fn leave(&mut self, packets: u32) -> Vec<u32> {
        self.shard.transport().room = packets;
        self.shard.progress();
        self.shard.transport().room = 0;
        std::mem::take(&mut self.shard.transport().sent)
    }

    fn asked(&self) -> DecisionCounts {
        let loaded = self.loaded.as_ref().expect("there is one");
        loaded.counts(1)[DecisionKind::Order as usize]
    }
}

#[test]
fn the_oldest_message_leaves_however_few_leave_at_a_time_and_whatever_a_plan_says() {
    for strategy in [None, Some(Box::new(LastIsOne) as Box<dyn StrategyPlugin>)] {
        for at_a_time in [1, 3, 7, 20] {
            let mut side = Side::new(
                strategy
                    .as_ref()
                    .map(|_| Box::new(LastIsOne) as Box<dyn StrategyPlugin>),
            );
            side.send(1, 9000);
            (0..100).for_each(|_| side.send(2, 8));
            let mut overtook = 0;
            loop {
                let left = side.leave(at_a_time);
                assert_eq!(left.len(), at_a_time as usize);
                overtook += left.iter().take_while(|context| **context == 2).count();
                if left.contains(&1) {
                    break;
                }
                assert!(
                    overtook < ORDER_PATIENCE as usize + ORDER_LOOK_AHEAD,
                    "{at_a_time} at a time"
                );
                // As fast as they leave.
                (0..at_a_time).for_each(|_| side.send(2, 8));
            }
        }
    }
}

#[test]
fn a_loaded_strategy_orders_the_window_and_is_asked_only_where_there_is_something_to_order() {
    let mut side = Side::new(Some(Box::new(LastIsOne)));
    // One message, and several of one context: there is one order.
    side.send(1, 8);
    assert_eq!(side.leave(5), [1]);
    (0..3).for_each(|_| side.send(1, 9000));
    assert_eq!(side.leave(5), [1, 1, 1]);
    assert_eq!(side.asked(), DecisionCounts::default());
    for context in [1, 2, 1, 3] {
        side.send(context, 8);
    }
    assert_eq!(side.leave(10), [2, 3, 1, 1]);
    let DecisionCounts {
        asked, accepted, ..
    } = side.asked();
    assert!((1..=2).contains(&asked) && accepted == asked, "{asked}");
    assert_eq!(side.leave(10), [], "nothing is left");
}

#[test]
fn a_window_that_does_not_move_is_asked_about_once() {
    let mut side = Side::new(Some(Box::new(LastIsOne)));
    for context in [1, 2, 1, 3] {
        side.send(context, 8);
    }
    (0..100).for_each(|_| assert_eq!(side.leave(0), []));
    assert_eq!(side.asked().asked, 1);
    // One more message is another question, and so is what is left when one has left.
    side.send(2, 8);
    (0..100).for_each(|_| assert_eq!(side.leave(0), []));
    assert_eq!(side.asked().asked, 2);
    assert_eq!(side.leave(1), [2]);
    (0..100).for_each(|_| assert_eq!(side.leave(0), []));
    assert_eq!(side.asked().asked, 3);
    assert_eq!(side.leave(10), [3, 2, 1, 1]);
}

#[test]
fn an_empty_plan_and_one_that_breaks_the_order_are_done_without() {
    #[derive(Debug)]
    struct Says(Vec<usize>);
    impl StrategyPlugin for Says {
        fn decides(&self) -> PluginDecisions {
            LastIsOne.decides()
        }
        fn order(&self, _: &WindowView<'_>) -> PluginAnswer<Vec<usize>> {
            PluginAnswer::Decided(self.0.clone())
        }
    }
    for plan in [
        vec![],
        vec![3, 2, 1, 0],
        vec![0, 0, 0, 0],
        vec![9; 4],
        vec![0; 1000],
    ] {
        let mut side = Side::new(Some(Box::new(Says(plan.clone()))));
        for (context, len) in [(1, 9000), (2, 8), (1, 8), (1, 8)] {
            side.send(context, len);
        }
        // As without it.
        assert_eq!(side.leave(10), [2, 1, 1, 1], "{plan:?}");
        let DecisionCounts { asked, refused, .. } = side.asked();
        assert!(asked > 0 && refused == asked, "{plan:?}: {asked} {refused}");
    }
}

#[test]
fn each_built_in_strategy_orders_the_window_as_its_name_says() {
    for one in BuiltinStrategy::ALL {
        let mut side = Side::new(None);
        side.shard.set_order(one.ordering());
        side.shard.set_priority(16..24, Priority::High);
        for (context, len) in [(1, 9000), (2, 8), (3, 9000), (2, 9000), (4, 8), (17, 9000)] {
            side.send(context, len);
        }
        let expected = match one {
            BuiltinStrategy::Immediate => [17, 1, 2, 3, 2, 4],
            BuiltinStrategy::Aggregate | BuiltinStrategy::Hold | BuiltinStrategy::Adaptive => {
                [17, 2, 4, 1, 3, 2]
            }
        };
        assert_eq!(side.leave(10), expected, "{one:?}");
    }
}

#[test]
fn communicators_of_high_priority_leave_first_and_those_of_low_priority_last() {
    let mut side = Side::new(None);
    side.shard.set_priority(16..24, Priority::High);
    side.shard.set_priority(8..16, Priority::Low);
    for (context, len) in [(8, 8), (1, 9000), (2, 8), (17, 12_000), (8, 9000), (16, 8)] {
        side.send(context, len);
    }
    assert_eq!(side.leave(10), [17, 16, 2, 1, 8, 8]);
    // As all others again.
    side.shard.set_priority(16..24, Priority::Normal);
    side.shard.set_priority(8..16, Priority::Normal);
    for (context, len) in [(8, 8), (1, 9000), (2, 8), (17, 12_000), (16, 8)] {
        side.send(context, len);
    }
    assert_eq!(side.leave(10), [8, 2, 16, 1, 17]);
}

#[test]
fn a_message_of_low_priority_is_put_off_no_longer_than_any() {
    let mut side = Side::new(None);
    side.shard.set_priority(8..16, Priority::Low);
    side.send(8, 8);
    (0..100).for_each(|_| side.send(2, 8));
    let mut overtook = 0;
    loop {
        let left = side.leave(3);
        if left.contains(&8) {
            break;
        }
        overtook += left.len();
        assert!(overtook < ORDER_PATIENCE as usize + ORDER_LOOK_AHEAD);
        (0..3).for_each(|_| side.send(2, 8));
    }
}
