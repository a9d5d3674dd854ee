//! What agents say to each other has no number of its own: the TCP format's, which their openings
//! agree on, stands for it (docs/reference/job.md, D1). So these bytes may not change while that
//! number stays: each version that is spoken stands for one sum over all kinds of messages. Who
//! changes a message raises `VERSIONS` (`garonne_tcp::frame`), both ends of it unless each
//! version's bytes are still written to who speaks that, and adds a row.

use super::tests::{a_bootstrap, a_place, orders, reports};
use super::*;
use crate::join_messages::{HostOffer, ToJoiner};
use crate::query::{OutputFormat, RemoteCommand};
use crate::snapshot;
use garonne_tcp::VERSIONS;
use garonne_trace::event::{EventKind, MessageId, ProgressMode, TraceEvent};
use garonne_trace::event_stream;
use garonne_trace::record::OperationKind as Which;
use std::collections::BTreeSet;

/// Versions, and what their messages sum up to. A row stays as it is once a build with it was given
/// to anybody.
const SUMS: [(u16, u64); 7] = [
    (9, 18_348_079_457_839_109_643),
    (10, 10_818_030_693_713_279_332),
    (11, 2_862_862_941_321_689_796),
    (12, 8_926_534_005_871_010_526),
    (13, 8_900_139_288_084_155_905),
    (14, 14_090_211_191_984_615_024),
    (15, 13_554_253_093_217_058_715),
];

/// FNV-1a over messages, the length of each before it.
fn sum(messages: &[Vec<u8>]) -> u64 {
    let lengths = messages
        .iter()
        .map(|message| (message.len() as u32).to_le_bytes());
    let all = lengths
        .zip(messages)
        .flat_map(|(len, message)| len.into_iter().chain(message.iter().copied()));
    all.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Fails to build where an order is not known here: it needs an example among [`agent_messages`].
fn is_an_order(order: &AgentCommand) -> bool {
    match order {
        AgentCommand::Job(_)
        | AgentCommand::Hosts(_)
        | AgentCommand::StartRanks
        | AgentCommand::Forward(..)
        | AgentCommand::Signal(_)
        | AgentCommand::End { .. }
        | AgentCommand::Finish
        | AgentCommand::StreamCredit(..)
        | AgentCommand::Input(_)
        | AgentCommand::Ended(_)
        | AgentCommand::ReverseConnect(_)
        | AgentCommand::DisabledNetworks(_)
        | AgentCommand::NewAddresses(_)
        | AgentCommand::ProbeRelay(_)
        | AgentCommand::AddRelayRoute(_)
        | AgentCommand::OpenRendezvous(_)
        | AgentCommand::TryRendezvous(_)
        | AgentCommand::ReportAddresses(_)
        | AgentCommand::DrainResult(..)
        | AgentCommand::Query(..)
        | AgentCommand::QueryResult(..)
        | AgentCommand::RanksDied(_)
        | AgentCommand::Decided(_)
        | AgentCommand::Ping => true,
    }
}

/// Returns whether a report is of a kind that every version has.
fn is_a_report(report: &AgentReport) -> bool {
    match report {
        AgentReport::Ready(_)
        | AgentReport::Listening(..)
        | AgentReport::FromNode(..)
        | AgentReport::Output(..)
        | AgentReport::Failed { .. }
        | AgentReport::RanksEnded(_)
        | AgentReport::StdinTaken(_)
        | AgentReport::Print(_)
        | AgentReport::Unbound(_)
        | AgentReport::RankExits(_)
        | AgentReport::Done
        | AgentReport::ReverseConnect(_)
        | AgentReport::DisableNetwork(..)
        | AgentReport::Addresses(..)
        | AgentReport::NewAddresses(_)
        | AgentReport::RelayOpened(..)
        | AgentReport::RendezvousOpened(..)
        | AgentReport::RendezvousReached(_)
        | AgentReport::Query(..)
        | AgentReport::QueryResult(..)
        | AgentReport::RankDied(..)
        | AgentReport::Agree(..)
        | AgentReport::Ping => true,
    }
}

/// Returns a frame of records with each kind of event once.
fn frame() -> Vec<u8> {
    let (call, site) = ("MPI_Isend".into(), "halo.c:58".into());
    let message = Some(MessageId {
        context: 2,
        from: 0,
        to: 1,
        sequence: 5,
    });
    let done = |message| EventKind::Done {
        operation: 9,
        message,
        bytes: 4,
    };
    let start = |side| EventKind::Start {
        operation: 1 << 63 | 9,
        side,
        call: std::sync::Arc::clone(&call),
        site: std::sync::Arc::clone(&site),
        context: 2,
        tag: -1,
        peer: Some(3),
        bytes: 1 << 40,
    };
    let mut all = vec![
        EventKind::Enter {
            call: std::sync::Arc::clone(&call),
            site: std::sync::Arc::clone(&site),
        },
        EventKind::Leave {
            call: std::sync::Arc::clone(&call),
        },
        EventKind::Work {
            operation: 9,
            peer: None,
            since_ns: 12,
            bytes: 4,
        },
        EventKind::Run {
            since_ns: 12,
            finished: true,
        },
        done(message),
        done(None),
        EventKind::TurnBegin,
        EventKind::TurnEnd,
        EventKind::SleepBegin,
        EventKind::SleepEnd,
        EventKind::Collective {
            name: "MPI_Ibcast #3".into(),
        },
        EventKind::Lost(77),
    ];
    all.extend([Which::Send, Which::Receive, Which::Collective].map(start));
    all.extend(
        [
            ProgressMode::Unknown,
            ProgressMode::On,
            ProgressMode::Off,
            ProgressMode::Refused,
        ]
        .map(EventKind::State),
    );
    let mut writer = event_stream::EventWriter::default();
    for (what, rank) in all.into_iter().zip(0..) {
        writer.see(&TraceEvent {
            rank,
            thread: 7,
            cpu: 3,
            at_ns: 1000,
            kind: what,
        });
    }
    writer.finish()
}

/// Returns a message of each kind; several of kinds with optional parts.
fn messages() -> Vec<Vec<u8>> {
    let (orders, reports) = (orders(), reports());
    assert!(orders.iter().all(is_an_order) && reports.iter().all(is_a_report));
    let mut all: Vec<Vec<u8>> = orders.iter().map(AgentCommand::encode).collect();
    all.extend(reports.iter().map(AgentReport::encode));
    let kind = |message: &Vec<u8>| u16::from_le_bytes([message[6], message[7]]);
    let kinds: BTreeSet<u16> = all.iter().map(kind).collect();
    assert!(
        kinds.into_iter().eq((301..=338).chain(343..=351)),
        "each kind has an example"
    );
    let wishes = [
        Query::State,
        Query::Load,
        Query::Clock,
        Query::Records { ms: 9 },
        Query::Cancel,
        Query::All,
        Query::Command(RemoteCommand::Gate(3), OutputFormat::Text),
        Query::Command(RemoteCommand::Gate(3), OutputFormat::Json),
        Query::Command(RemoteCommand::Network, OutputFormat::Text),
        Query::Command(RemoteCommand::Paces, OutputFormat::Json),
        Query::Command(RemoteCommand::Background, OutputFormat::Json),
        Query::Command(RemoteCommand::Map, OutputFormat::Json),
    ];
    all.extend(wishes.map(|wish| AgentReport::Query(1, wish).encode()));
    let offer = HostOffer {
        name: "n1".into(),
        slots: 4,
    };
    let refused = ToJoiner::Refused {
        code: "G0227".into(),
        text: "full".into(),
    };
    all.extend([
        a_bootstrap().encode_as((1, 2).into(), "whichever"),
        encode_host_endpoint(&a_place()),
        snapshot::encode(&snapshot::tests::some()),
        frame(),
        offer.encode(),
        ToJoiner::Wait { came: 1, wanted: 2 }.encode(),
        refused.encode(),
    ]);
    all
}

#[test]
fn what_agents_say_is_what_the_versions_of_their_connections_stand_for() {
    let said = sum(&messages());
    for version in VERSIONS.lowest..=VERSIONS.highest {
        let row = SUMS.iter().find(|(known, _)| *known == version);
        assert_eq!(
            row,
            Some(&(version, said)),
            "messages of agents have changed, or VERSIONS: see the top of this file"
        );
    }
}
