//! Whole stories of two ranks, told event by event.

use super::*;

const US: u64 = 1000;

/// Tells what a rank's thread 1 does, in microseconds.
struct Teller<'a>(&'a mut OverlapAnalysis, u32);

impl Teller<'_> {
    fn tell(&mut self, at_us: u64, what: EventKind) {
        self.0.see(&TraceEvent {
            rank: self.1,
            thread: 1,
            cpu: 0,
            at_ns: at_us * US,
            kind: what,
        });
    }

    fn call(&mut self, name: &str, begin: u64, end: u64) {
        self.enter(name, begin);
        self.leave(name, end);
    }

    fn enter(&mut self, name: &str, at: u64) {
        let site = "halo.c:58".into();
        self.tell(
            at,
            EventKind::Enter {
                call: name.into(),
                site,
            },
        );
    }

    fn leave(&mut self, name: &str, at: u64) {
        self.tell(at, EventKind::Leave { call: name.into() });
    }

    fn start(&mut self, at: u64, side: OperationKind, call: &str, operation: u64) {
        self.start_tagged(at, side, call, operation, 6);
    }

    fn start_tagged(&mut self, at: u64, side: OperationKind, call: &str, operation: u64, tag: i32) {
        self.start_in(at, side, call, operation, (2, tag));
    }

    fn start_in(
        &mut self,
        at: u64,
        side: OperationKind,
        call: &str,
        operation: u64,
        (context, tag): (u32, i32),
    ) {
        let what = EventKind::Start {
            operation,
            side,
            call: call.into(),
            site: call.to_lowercase().as_str().into(),
            context,
            tag,
            peer: Some(1 - self.1),
            bytes: 1 << 20,
        };
        self.tell(at, what);
    }

    fn done(&mut self, at: u64, operation: u64, message: Option<MessageId>) {
        let bytes = 1 << 20;
        self.tell(
            at,
            EventKind::Done {
                operation,
                message,
                bytes,
            },
        );
    }

    fn work(&mut self, since: u64, until: u64, operation: u64) {
        let what = EventKind::Work {
            operation,
            peer: Some(1 - self.1),
            since_ns: since * US,
            bytes: 1 << 20,
        };
        self.tell(until, what);
    }
}

const MESSAGE: MessageId = MessageId {
    context: 2,
    from: 0,
    to: 1,
    sequence: 5,
};

fn row(analysis: OverlapAnalysis, call: &str) -> CallSiteOverlap {
    let rows = analysis.finish();
    let key = (call.to_lowercase().as_str().into(), call.into());
    rows.get(&key)
        .cloned()
        .unwrap_or_else(|| panic!("{call} in {rows:?}"))
}

/// Rank 0 sends and computes, rank 1 receives and waits at once, reading the message itself.
fn sender_computes() -> OverlapAnalysis {
    let mut analysis = OverlapAnalysis::new(false);
    let mut sender = Teller(&mut analysis, 0);
    sender.enter("MPI_Isend", 0);
    sender.start(1, OperationKind::Send, "MPI_Isend", 9);
    sender.leave("MPI_Isend", 5);
    let mut receiver = Teller(&mut analysis, 1);
    receiver.enter("MPI_Irecv", 2);
    receiver.start(3, OperationKind::Receive, "MPI_Irecv", 4);
    receiver.leave("MPI_Irecv", 6);
    receiver.enter("MPI_Wait", 7);
    receiver.work(20, 120, 4);
    receiver.done(121, 4, Some(MESSAGE));
    receiver.leave("MPI_Wait", 122);
    let mut sender = Teller(&mut analysis, 0);
    sender.enter("MPI_Wait", 500);
    sender.done(501, 9, Some(MESSAGE));
    sender.leave("MPI_Wait", 502);
    analysis
}

#[test]
fn a_sender_that_computes_while_its_partner_reads_has_all_hidden() {
    let row = row(sender_computes(), "MPI_Isend");
    assert_eq!((row.percent(), row.reason()), (Some(100), None));
    assert_eq!((row.operations, row.moving_ns), (1, 100 * US));
}

#[test]
fn a_receiver_that_waits_at_once_has_nothing_hidden() {
    let row = row(sender_computes(), "MPI_Irecv");
    assert_eq!(
        (row.percent(), row.reason()),
        (Some(0), Some(OverlapReason::WaitedAtOnce))
    );
    assert_eq!(row.waited_ns, 114 * US);
}

#[test]
fn what_of_a_blocking_call_is_no_operation_to_hide() {
    let mut analysis = OverlapAnalysis::new(false);
    let mut rank = Teller(&mut analysis, 0);
    rank.enter("MPI_Send", 0);
    rank.start(1, OperationKind::Send, "MPI_Send", 9);
    rank.done(80, 9, Some(MESSAGE));
    rank.leave("MPI_Send", 81);
    assert!(analysis.finish().is_empty());
}

/// Rank 1 comes 5 ms after rank 0, in a blocking call on each side.
fn blocking_story(context: u32) -> BTreeMap<(SharedName, SharedName), CallSiteOverlap> {
    let mut analysis = OverlapAnalysis::new(false);
    for (of, begin) in [(0, 0), (1, 5000)] {
        let mut rank = Teller(&mut analysis, of);
        let call = ["MPI_Recv", "MPI_Send"][of as usize];
        rank.enter(call, begin);
        let side = [OperationKind::Receive, OperationKind::Send][of as usize];
        rank.start_in(begin, side, call, 9, (context, 6));
        let message = MessageId {
            context,
            from: 1,
            to: 0,
            sequence: 3,
        };
        rank.done(5100, 9, Some(message));
        rank.leave(call, 5101);
    }
    analysis.finish()
}

#[test]
fn a_blocking_call_whose_partner_was_late_is_counted_and_the_late_one_is_not() {
    let rows = blocking_story(0);
    let sites: Vec<&str> = rows.keys().map(|(_, call)| &**call).collect();
    assert_eq!(sites, ["MPI_Recv"]);
    let row = rows.values().next().unwrap();
    assert_eq!((row.operations, row.waited_ns), (1, 5000 * US));
    assert_eq!(
        (row.percent(), row.reason()),
        (None, Some(OverlapReason::PartnerLate))
    );
    assert!(blocking_story(1).is_empty(), "a message of a collective");
}

#[test]
fn members_of_a_blocking_collective_wait_for_the_last_that_comes_before_they_leave() {
    let mut analysis = OverlapAnalysis::new(false);
    let entered = [
        ("a", 0, 0, 9000),
        ("a", 1, 8000, 9001),
        ("a", 2, 2000, 9002),
        ("b", 0, 0, 20),
        ("b", 1, 9000, 9020),
    ];
    for (name, of, begin, end) in entered {
        let mut rank = Teller(&mut analysis, of);
        let call = if name == "a" {
            "MPI_Barrier"
        } else {
            "MPI_Bcast"
        };
        rank.enter(call, begin);
        let name = name.into();
        rank.tell(begin, EventKind::Collective { name });
        // A callback's call within it.
        rank.call("MPI_Comm_rank", begin, begin);
        rank.leave(call, end);
    }
    let rows = analysis.finish();
    let rows: Vec<_> = rows.iter().map(|((_, call), row)| (&**call, row)).collect();
    let [("MPI_Barrier", barrier)] = rows[..] else {
        panic!("{rows:?}");
    };
    assert_eq!((barrier.operations, barrier.waited_ns), (3, 14_000 * US));
    assert_eq!(barrier.reasons[OverlapReason::PartnerLate as usize], 2);
}

#[test]
fn a_collective_has_the_moves_and_the_bytes_of_its_messages() {
    let mut analysis = OverlapAnalysis::new(false);
    let mut rank = Teller(&mut analysis, 0);
    rank.enter("MPI_Ibcast", 0);
    rank.start(1, OperationKind::Collective, "MPI_Ibcast", 70);
    rank.start(2, OperationKind::Send, "MPI_Ibcast", 9);
    rank.leave("MPI_Ibcast", 5);
    rank.call("MPI_Test", 100, 110);
    rank.work(20, 60, 9);
    rank.done(61, 9, Some(MESSAGE));
    rank.enter("MPI_Wait", 300);
    // It knows of no bytes itself.
    let over = EventKind::Done {
        operation: 70,
        message: None,
        bytes: 0,
    };
    rank.tell(301, over);
    rank.leave("MPI_Wait", 302);
    let row = row(analysis, "MPI_Ibcast");
    assert_eq!(
        (row.operations, row.bytes, row.moving_ns, row.percent()),
        (1, 1 << 20, 40 * US, Some(100))
    );
}

/// A collective of three ranks that meet in shared memory: what a rank moves there bears the
/// collective's own name.
#[test]
fn a_collective_that_meets_in_memory_has_its_bytes_and_what_was_hidden_of_them() {
    let mut analysis = OverlapAnalysis::new(false);
    let mut rank = Teller(&mut analysis, 0);
    rank.enter("MPI_Iallgather", 0);
    rank.start(1, OperationKind::Collective, "MPI_Iallgather", 1 << 63);
    rank.work(2, 12, 1 << 63);
    rank.leave("MPI_Iallgather", 13);
    // Its progress thread takes the others' blocks while it computes.
    rank.work(40, 70, 1 << 63);
    rank.done(71, 1 << 63, None);
    rank.call("MPI_Wait", 300, 301);
    let row = row(analysis, "MPI_Iallgather");
    assert_eq!((row.moving_ns, row.hidden_ns), (40 * US, 30 * US));
    // Twice what a work brings, and what the end says.
    assert_eq!(
        (row.operations, row.bytes, row.reason()),
        (1, 3 << 20, None)
    );
}

#[test]
fn messages_of_another_kind_at_a_collectives_place_are_neither_its_own_nor_the_programs() {
    let mut analysis = OverlapAnalysis::new(false);
    let mut rank = Teller(&mut analysis, 0);
    rank.enter("MPI_Ibarrier", 0);
    rank.start_tagged(1, OperationKind::Collective, "MPI_Ibarrier", 1 << 63, 8);
    // Those of its own differ in the lowest bit at most.
    rank.start_tagged(2, OperationKind::Send, "MPI_Ibarrier", 9, 9);
    rank.start_tagged(3, OperationKind::Send, "MPI_Ibarrier", 10, 14);
    rank.done(4, 9, Some(MESSAGE));
    let over = EventKind::Done {
        operation: 1 << 63,
        message: None,
        bytes: 0,
    };
    rank.tell(5, over);
    // What of it comes later is no operation of the program's, either.
    rank.start_tagged(6, OperationKind::Receive, "MPI_Ibarrier", 11, 14);
    rank.done(7, 11, None);
    rank.done(7, 10, None);
    rank.leave("MPI_Ibarrier", 8);
    let row = row(analysis, "MPI_Ibarrier");
    assert_eq!((row.operations, row.bytes), (1, 1 << 20));
}

#[test]
fn why_a_few_operations_were_not_hidden_is_not_why_a_row_is_as_it_is() {
    let mut row = CallSiteOverlap {
        operations: 5,
        moving_ns: 100 * US,
        hidden_ns: 90 * US,
        ..CallSiteOverlap::default()
    };
    row.reasons[OverlapReason::PostedLate as usize] = 2;
    assert_eq!((row.percent(), row.reason()), (Some(90), None));
    // Most operations had it, even if the long ones had not.
    row.reasons[OverlapReason::PostedLate as usize] = 3;
    assert_eq!(row.reason(), Some(OverlapReason::PostedLate));
    row.reasons[OverlapReason::PostedLate as usize] = 1;
    row.hidden_ns = 10 * US;
    assert_eq!(row.reason(), Some(OverlapReason::PostedLate));
}

/// Three receives, two of them hidden whole. The third, in one piece of the same length, comes 2 s
/// after the program has begun to wait for it.
#[test]
fn a_row_that_was_waited_for_has_the_reason_of_the_wait_however_much_was_hidden() {
    let mut analysis = OverlapAnalysis::new(false);
    let mut rank = Teller(&mut analysis, 1);
    for (begin, comes, operation) in [(0, 100, 4), (10_000, 10_100, 5), (20_000, 2_020_000, 6)] {
        rank.enter("MPI_Irecv", begin);
        rank.start(begin + 1, OperationKind::Receive, "MPI_Irecv", operation);
        rank.leave("MPI_Irecv", begin + 5);
        let message = MessageId {
            sequence: operation as u32,
            ..MESSAGE
        };
        let mut sender = Teller(rank.0, 0);
        sender.enter("MPI_Send", comes - 10);
        sender.start(comes - 9, OperationKind::Send, "MPI_Send", operation);
        sender.done(comes + 1000, operation, Some(message));
        sender.leave("MPI_Send", comes + 1001);
        rank.work(comes, comes + 1000, operation);
        let waits = (begin + 2000).min(comes + 2000);
        rank.enter("MPI_Wait", waits);
        rank.done((comes + 1001).max(waits), operation, Some(message));
        rank.leave("MPI_Wait", (comes + 1002).max(waits + 1));
    }
    let row = row(analysis, "MPI_Irecv");
    assert_eq!((row.operations, row.percent()), (3, Some(66)));
    assert!(row.waited_ns > 1_990_000 * US, "{row:?}");
    assert_eq!(row.reason(), Some(OverlapReason::PartnerLate));
}

#[test]
fn of_several_reasons_to_wait_the_longest_is_told() {
    let mut row = CallSiteOverlap {
        operations: 10,
        moving_ns: 100 * US,
        hidden_ns: 90 * US,
        waited_ns: 3000 * US,
        ..CallSiteOverlap::default()
    };
    row.reasons[OverlapReason::WaitedAtOnce as usize] = 2;
    row.waits_ns[OverlapReason::WaitedAtOnce as usize] = 200 * US;
    row.reasons[OverlapReason::RestLate as usize] = 1;
    row.waits_ns[OverlapReason::RestLate as usize] = 2000 * US;
    assert_eq!(row.reason(), Some(OverlapReason::RestLate));
    // Short beside the moving: what befell a few is not why the row is as it is.
    row.moving_ns = 4000 * US;
    row.hidden_ns = 3600 * US;
    assert_eq!(row.reason(), None);
}

#[test]
fn after_a_loss_nothing_is_made_up() {
    let mut analysis = OverlapAnalysis::new(false);
    let mut rank = Teller(&mut analysis, 0);
    rank.enter("MPI_Isend", 0);
    rank.start(1, OperationKind::Send, "MPI_Isend", 9);
    rank.tell(2, EventKind::Lost(1000));
    rank.done(80, 9, Some(MESSAGE));
    assert_eq!(analysis.lost, 1000);
    assert!(analysis.finish().is_empty());
}

#[test]
fn the_reason_that_matters_is_told_before_the_smallness_of_others() {
    let mut row = CallSiteOverlap {
        operations: 5,
        small: 4,
        ..CallSiteOverlap::default()
    };
    row.reasons[OverlapReason::Small as usize] = 4;
    row.reasons[OverlapReason::WaitedAtOnce as usize] = 1;
    assert_eq!(row.reason(), Some(OverlapReason::WaitedAtOnce));
    row.reasons[OverlapReason::WaitedAtOnce as usize] = 0;
    assert_eq!(row.reason(), None);
    row.operations = 4;
    assert_eq!(row.reason(), Some(OverlapReason::Small));
}
