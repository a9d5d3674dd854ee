//! Tests of looks.

use super::*;
use crate::limits::LOCAL_RANKS_MAX;
use garonne_engine::api::{CallOrigin, TypeDigest};
use garonne_engine::observe::events::{PendingAction, PendingOperation, UnreceivedMessage};

fn seen(rank: u32) -> DetailedSnapshot {
    let wait = WaitInfo {
        call: 3,
        peer: -1,
        tag: -2,
        comm: 1 << 40,
        bytes: 5,
        since_ns: 77,
        site: 99,
    };
    let list: Arc<[u32]> = vec![4, 2, 9].into();
    DetailedSnapshot {
        rank: RankSnapshot {
            rank,
            pid: 5,
            state: RankState::Running,
            cpu: Some(0),
            process: Some('S'),
            cpu_seconds: 1.5,
            wait: Some(wait),
            book: 0,
            sent_messages: 1,
            sent_bytes: 2,
            unexpected: 3,
        },
        waited_ns: 12,
        moves: true,
        place: Some("a.c:3".into()),
        operations: Some(PendingOperations {
            list: vec![PendingOperation {
                action: PendingAction::Probe,
                context: 8,
                peer: Some(3),
                tag: None,
                bytes: 9,
                origin: CallOrigin {
                    call: 1,
                    datatype: 2,
                    digest: TypeDigest::NONE,
                    site: 3,
                },
            }],
            more: true,
            threads: false,
            kept: vec![UnreceivedMessage {
                context: 8,
                peer: 2,
                tag: -5,
                bytes: 6,
            }],
        }),
        operation_places: vec!["b.c:4".into()],
        senders: vec![String::new()],
        takers: vec!["c.c:5".into()],
        polls: vec![PollingThread {
            looks: 5,
            for_ns: 6,
            asks: vec![PolledOperation {
                call: 7,
                place: "c.c:5".into(),
                operations: vec![(PendingOperation::default(), "d.c:6".into())],
            }],
        }],
        entered: vec![CollectivesEntered {
            number: 1,
            counts: [1, 2, 3, 4],
        }],
        comms: vec![
            CommSnapshot {
                number: 1,
                name: "halo".into(),
                size: Some(3),
                members: CommMembers::List(list),
            },
            CommSnapshot {
                number: 0,
                name: String::new(),
                size: None,
                members: CommMembers::Untold,
            },
        ],
    }
}

/// Returns the snapshots of two ranks, one of them with all that there may be.
pub fn some() -> Vec<DetailedSnapshot> {
    vec![seen(0), DetailedSnapshot::unavailable(7)]
}

#[test]
fn a_look_reads_back_as_written_and_writes_members_once() {
    let all = [seen(0), seen(7)];
    let bytes = encode(&all);
    assert_eq!(decode(&bytes).unwrap(), all);
    assert_eq!(decode(&encode(&[])).unwrap(), []);
    let one = encode(&all[..1]).len();
    // The head, the number of ranks, and the list of three with its length and the number of lists.
    assert_eq!(bytes.len(), 2 * one - 8 - 4 - 4 - 4 - 3 * 4);
}

#[test]
fn a_look_cut_or_changed_anywhere_is_an_error_or_another_look() {
    let bytes = encode(&[seen(0), seen(7)]);
    for cut in 0..bytes.len() {
        assert!(decode(&bytes[..cut]).is_err(), "cut to {cut}");
        for wrong in [0, 0xff, bytes[cut] ^ 0x80] {
            let mut changed = bytes.clone();
            changed[cut] = wrong;
            let _ = decode(&changed);
        }
    }
    assert!(decode(&[bytes, vec![0]].concat()).is_err());
}

#[test]
fn a_page_is_words_or_why_there_are_none() {
    assert_eq!(page(b"+a\nb\x1b[2J").unwrap(), Ok("a\nb [2J".to_owned()));
    assert_eq!(page(b"-why").unwrap(), Err("why".to_owned()));
    assert!(page(b"").is_err() && page(b"a").is_err());
}

#[test]
fn what_a_terminal_would_obey_does_not_come_through() {
    let mut rank = seen(0);
    rank.place = Some("a\x1b[2Jb".into());
    assert_eq!(
        decode(&encode(&[rank])).unwrap()[0].place.as_deref(),
        Some("a [2Jb")
    );
}

#[test]
fn a_host_full_of_ranks_fits_though_the_last_are_told_without_details() {
    let mut one = seen(0);
    one.place = Some("x".repeat(LOOK_TEXT_MAX));
    one.operations = Some(PendingOperations {
        list: vec![PendingOperation::default(); PENDING_SHOWN],
        ..PendingOperations::default()
    });
    let of_rank = |rank| {
        let mut seen = one.clone();
        seen.rank.rank = rank;
        // Those of later ranks find no room in any case.
        let members = if rank < 4000 { 1000 } else { 1 };
        seen.comms[0].members = CommMembers::List(vec![rank; members].into());
        seen
    };
    let all: Vec<_> = (0..LOCAL_RANKS_MAX).map(of_rank).collect();
    let bytes = encode(&all);
    assert!(bytes.len() <= LOOK_BYTES_MAX, "{}", bytes.len());
    let again = decode(&bytes).unwrap();
    assert_eq!(again.len(), all.len());
    assert_eq!(again[0], all[0]);
    assert_eq!(again.last().unwrap().operations, None);
    assert_eq!(again.last().unwrap().rank, all.last().unwrap().rank);
}
