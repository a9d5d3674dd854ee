//! Timelines of short stories: what is shown, nested, connected and closed.

use super::*;

fn seen(rank: u32, at_ns: u64, what: EventKind) -> TraceEvent {
    TraceEvent {
        rank,
        thread: 10 + rank,
        cpu: 3,
        at_ns,
        kind: what,
    }
}

fn enter(call: &str) -> EventKind {
    EventKind::Enter {
        call: call.into(),
        site: "halo.c:58".into(),
    }
}

fn start(side: OperationKind, operation: u64) -> EventKind {
    EventKind::Start {
        operation,
        side,
        call: "MPI_Isend".into(),
        site: "halo.c:58".into(),
        context: 0,
        tag: 1,
        peer: None,
        bytes: 8,
    }
}

fn done(operation: u64) -> EventKind {
    let message = MessageId {
        context: 0,
        from: 0,
        to: 1,
        sequence: 4,
    };
    EventKind::Done {
        operation,
        message: Some(message),
        bytes: 8,
    }
}

fn events(timeline: &mut Timeline) -> Vec<Value> {
    let text = format!("[{}]", timeline.take());
    serde_json::from_str(&text).unwrap()
}

fn phases(events: &[Value], wanted: &str) -> Vec<String> {
    let of = events
        .iter()
        .filter(|event| wanted.contains(event["ph"].as_str().unwrap()));
    of.map(|event| {
        format!(
            "{}{}",
            event["ph"].as_str().unwrap(),
            event["name"].as_str().unwrap()
        )
    })
    .collect()
}

#[test]
fn slices_nest_and_are_closed_with_what_is_within_them() {
    let mut timeline = Timeline::new(0, 2);
    timeline.see(&seen(
        0,
        1,
        EventKind::Leave {
            call: "MPI_Send".into(),
        },
    ));
    timeline.see(&seen(0, 2, enter("MPI_Allreduce")));
    let name = "MPI_Allreduce 3".into();
    timeline.see(&seen(0, 3, EventKind::Collective { name }));
    timeline.see(&seen(0, 4, EventKind::SleepBegin));
    timeline.see(&seen(
        0,
        9,
        EventKind::Leave {
            call: "MPI_Allreduce".into(),
        },
    ));
    timeline.see(&seen(0, 12, enter("MPI_Recv")));
    timeline.finish(0);
    let all = events(&mut timeline);
    let expected = [
        "BMPI_Allreduce",
        "BMPI_Allreduce 3",
        "Basleep",
        "Easleep",
        "EMPI_Allreduce 3",
        "EMPI_Allreduce",
        "BMPI_Recv",
        "EMPI_Recv",
    ];
    assert_eq!(phases(&all, "BE"), expected);
}

#[test]
fn an_arrow_is_drawn_once_both_ends_are_known_in_either_order() {
    for sender_first in [true, false] {
        let mut timeline = Timeline::new(0, 2);
        let mut sides = [
            (0, OperationKind::Send, 10),
            (1, OperationKind::Receive, 20),
        ];
        if !sender_first {
            sides.reverse();
        }
        for (rank, side, at) in sides {
            assert_eq!(phases(&events(&mut timeline), "sf"), [""; 0]);
            timeline.see(&seen(rank, at, enter("MPI_Sendrecv")));
            timeline.see(&seen(rank, at, start(side, 7)));
            timeline.see(&seen(rank, at + 5, done(7)));
        }
        let all = events(&mut timeline);
        assert_eq!(phases(&all, "sf"), ["smessage", "fmessage"]);
        let arrow: Vec<&Value> = all
            .iter()
            .filter(|event| event["cat"] == "message")
            .collect();
        assert_eq!(arrow[0]["id"], arrow[1]["id"]);
        assert_eq!(
            (&arrow[0]["ts"], &arrow[0]["pid"]),
            (&json!(0.01), &json!(0)),
            "where the send was started"
        );
        assert_eq!(
            (&arrow[1]["ts"], &arrow[1]["pid"]),
            (&json!(0.025), &json!(1)),
            "where the receive was over"
        );
    }
}

#[test]
fn an_arrow_whose_call_was_not_seen_is_not_drawn() {
    for seen_call in [0, 1] {
        let mut timeline = Timeline::new(0, 2);
        for (rank, side) in [(0, OperationKind::Send), (1, OperationKind::Receive)] {
            if rank == seen_call {
                timeline.see(&seen(rank, 1, enter("MPI_Sendrecv")));
            }
            timeline.see(&seen(rank, 2, start(side, 7)));
            timeline.see(&seen(rank, 3, done(7)));
        }
        assert_eq!(phases(&events(&mut timeline), "sf"), [""; 0]);
    }
}

#[test]
fn what_was_lost_is_said_and_leaves_nothing_open() {
    let mut timeline = Timeline::new(0, 2);
    timeline.see(&seen(0, 2, enter("MPI_Wait")));
    timeline.see(&seen(0, 3, start(OperationKind::Send, 7)));
    timeline.see(&seen(0, 0, EventKind::Lost(12)));
    timeline.see(&seen(
        0,
        9,
        EventKind::Leave {
            call: "MPI_Wait".into(),
        },
    ));
    timeline.see(&seen(0, 9, done(7)));
    timeline.finish(0);
    let all = events(&mut timeline);
    assert_eq!(phases(&all, "BE"), ["BMPI_Wait", "EMPI_Wait"]);
    assert_eq!(phases(&all, "be"), ["bMPI_Isend", "eMPI_Isend"]);
    assert_eq!(phases(&all, "i"), ["i12 events lost"]);
}

#[test]
fn work_is_shown_where_it_is_done_and_for_both_ranks() {
    let mut timeline = Timeline::new(1000, 2);
    timeline.see(&seen(0, 2000, EventKind::TurnBegin));
    let work = EventKind::Work {
        operation: 7,
        peer: Some(1),
        since_ns: 2500,
        bytes: 1 << 20,
    };
    timeline.see(&seen(0, 4000, work));
    let all = events(&mut timeline);
    let moves = all.iter().find(|event| event["ph"] == "X").unwrap();
    assert_eq!(
        (&moves["ts"], &moves["dur"], &moves["args"]["core"]),
        (&json!(1.5), &json!(1.5), &json!(3))
    );
    let names = phases(&all, "be");
    assert_eq!(names[0], "bown helper moves bytes");
    assert_eq!(names[2], "brank 0's helper moves bytes");
}

#[test]
fn runs_of_tasks_are_shown_on_the_threads_that_ran_them() {
    let mut timeline = Timeline::new(0, 2);
    let run = |thread, at_ns, finished| TraceEvent {
        thread,
        ..seen(
            0,
            at_ns,
            EventKind::Run {
                since_ns: at_ns - 500,
                finished,
            },
        )
    };
    timeline.see(&run(77, 1000, false));
    timeline.see(&run(77, 2500, true));
    timeline.see(&run(78, 3000, true));
    timeline.see(&TraceEvent {
        thread: 78,
        ..seen(0, 4000, enter("MPI_Wait"))
    });
    timeline.finish(0);
    let events = events(&mut timeline);
    let slices: Vec<_> = events.iter().filter(|event| event["cat"] == TASK).collect();
    let told = |slice: &&Value| {
        let args = &slice["args"];
        (
            slice["tid"].as_u64(),
            slice["ts"].as_f64(),
            slice["dur"].as_f64(),
            args["core"].as_u64(),
            args["finished"].as_bool(),
        )
    };
    assert_eq!(
        slices.iter().map(told).collect::<Vec<_>>(),
        [(77, 0.5, false), (77, 2.0, true), (78, 2.5, true)].map(|(thread, ts, finished)| (
            Some(thread),
            Some(ts),
            Some(0.5),
            Some(3),
            Some(finished)
        ))
    );
    let named = events.iter().filter(|event| event["name"] == "thread_name");
    let names: Vec<_> = named
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["worker 77", "worker 78", "program 78"]);
}

#[test]
fn an_operation_without_a_tag_of_the_programs_shows_none() {
    let mut timeline = Timeline::new(0, 2);
    for (operation, side) in [(1, OperationKind::Send), (2, OperationKind::Collective)] {
        timeline.see(&seen(0, 5, start(side, operation)));
    }
    let events = events(&mut timeline);
    let begun = events.iter().filter(|event| event["ph"] == "b");
    let tags = begun.map(|event| ["tag", INTERNAL_TAG].map(|name| event["args"][name].as_i64()));
    assert_eq!(tags.collect::<Vec<_>>(), [[Some(1), None], [None, Some(1)]]);
}

#[test]
fn what_is_open_ends_where_the_rank_dies_or_the_recording_ends() {
    let mut timeline = Timeline::new(0, 2);
    for rank in [0, 1] {
        timeline.see(&seen(rank, 1000, enter("MPI_Recv")));
        timeline.see(&seen(rank, 2000, start(OperationKind::Receive, 7)));
    }
    timeline.see(&seen(1, 5000, EventKind::Died));
    timeline.finish(9000);
    let all = events(&mut timeline);
    let ends = |rank: u32| {
        let of_rank = all.iter().filter(move |event| event["pid"] == rank);
        let ends = of_rank.filter(|event| ["E", "e"].contains(&event["ph"].as_str().unwrap()));
        ends.map(|event| {
            (
                event["ts"].as_f64().unwrap(),
                event["args"]["end"].as_str().unwrap(),
            )
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(ends(0), [(9.0, "still open"); 2]);
    assert_eq!(ends(1), [(5.0, "the rank died"); 2]);
    assert_eq!(phases(&all, "i"), ["irank 1 died"]);
}

#[test]
fn operations_bear_the_name_of_their_communicator() {
    let mut timeline = Timeline::new(0, 2);
    let name = "halo".into();
    timeline.see(&seen(0, 1, EventKind::Named { number: 0, name }));
    timeline.see(&seen(0, 2, start(OperationKind::Send, 7)));
    timeline.see(&seen(1, 2, start(OperationKind::Receive, 7)));
    let all = events(&mut timeline);
    let begun = all.iter().filter(|event| event["ph"] == "b");
    let named: Vec<_> = begun
        .map(|event| event["args"]["communicator"].as_str())
        .collect();
    assert_eq!(
        named,
        [Some("halo"), None],
        "each rank has names of its own"
    );
}
