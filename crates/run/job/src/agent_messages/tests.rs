use super::*;
use crate::agreement::AgreementKey;
use crate::job::{Program, StderrMode, StdinReaders};
use crate::node_map::NodeMap;
use crate::process_exit::ProcessExit;
use garonne_topology::binding::BindTo;
use proptest::prelude::*;

fn a_job() -> Job {
    let mut job = Job::new(vec![
        Program {
            argv: vec!["./a".into(), "b c".into()],
            ranks: 2,
            env: vec![("X".into(), Some("1".into())), ("Y".into(), None)],
            dir: Some("/tmp".into()),
        },
        Program {
            argv: vec!["d".into()],
            ranks: 1,
            env: vec![],
            dir: None,
        },
    ]);
    job.env = Some(vec![("HOME".into(), "/root".into())]);
    job.streams = StderrMode::Merged;
    job.stdin = StdinReaders::Rank(2);
    job.nodes = NodeMap {
        names: vec!["here".into(), "b".into()],
        of_rank: vec![1, 1, 0],
    };
    job.policy.bind = BindTo::Numa;
    job.cpus = "0-3".into();
    (job.fan_out, job.guests, job.traced) = (2, 1, true);
    (job.name, job.started_s) = ("heat".into(), 1_700_000_000);
    job
}

pub(super) fn a_place() -> HostEndpoint {
    HostEndpoint {
        name: "n1".into(),
        network_id: 7,
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        joined: true,
        ethernet: Some([2, 0, 0, 0, 0, 1]),
    }
}

fn a_host() -> NodeEndpoints {
    NodeEndpoints {
        node: 3,
        place: a_place(),
        ports: vec![1, 65535],
    }
}

fn a_callback() -> ReverseConnectRequest {
    ReverseConnectRequest {
        from: 1,
        to: 2,
        bulk: true,
    }
}

fn a_venue() -> RendezvousPoint {
    RendezvousPoint {
        call: a_callback(),
        via: 7,
        port: 65535,
    }
}

fn some_own() -> Vec<InterfaceAddress> {
    let own = |at: &str, usable, leads_on, linked| InterfaceAddress {
        at: at.parse().unwrap(),
        usable,
        leads_on,
        linked,
    };
    vec![
        own("10.0.0.1/24", true, false, false),
        own("fd00::1/64", false, true, true),
    ]
}

fn an_agreement() -> AgreementKey {
    AgreementKey {
        epoch: 1,
        context: 2,
        first: 3,
        number: 4,
    }
}

fn a_contribution() -> Contribution {
    Contribution {
        key: an_agreement(),
        members: vec![3, 70_000],
        acknowledged: vec![70_000],
        flags: 5,
        number: 6,
    }
}

fn a_decision() -> Decision {
    Decision {
        key: an_agreement(),
        dead: vec![70_000],
        acknowledged: true,
        flags: 5,
        number: 6,
    }
}

pub(super) fn orders() -> Vec<AgentCommand> {
    vec![
        AgentCommand::Job(Box::new(a_job())),
        AgentCommand::Hosts(vec![a_host(), NodeEndpoints::default()]),
        AgentCommand::StartRanks,
        AgentCommand::RanksDied(vec![3, 70_000]),
        AgentCommand::Decided(a_decision()),
        AgentCommand::Forward(70_000, vec![1, 2, 3]),
        AgentCommand::Signal(15),
        AgentCommand::End {
            patient: true,
            code: -1,
        },
        AgentCommand::ReverseConnect(a_callback()),
        AgentCommand::DisabledNetworks(vec![
            "10.0.0.0/24".parse().unwrap(),
            "fd00::/64".parse().unwrap(),
        ]),
        AgentCommand::ProbeRelay(a_callback()),
        AgentCommand::ReportAddresses(8),
        AgentCommand::DrainResult(9, "so".into()),
        AgentCommand::AddRelayRoute(RelayRoute {
            to: 3,
            via: 2,
            port: 1,
        }),
        AgentCommand::OpenRendezvous(a_callback()),
        AgentCommand::TryRendezvous(a_venue()),
        AgentCommand::Finish,
        AgentCommand::StreamCredit(3, OutputStream::Err, 99),
        AgentCommand::Input(vec![1, 2]),
        AgentCommand::Ended(vec![4, 5]),
        AgentCommand::NewAddresses(vec![
            (3, [10, 0, 0, 3].into()),
            (0, [0xfd00, 0, 0, 0, 0, 0, 0, 1].into()),
        ]),
        AgentCommand::Query(
            QueryId {
                node: 70_000,
                number: 2,
            },
            Query::Records { ms: 9 },
        ),
        AgentCommand::QueryResult(3, QueryId { node: 1, number: 2 }, vec![6, 7]),
        AgentCommand::Ping,
    ]
}

pub(super) fn reports() -> Vec<AgentReport> {
    vec![
        AgentReport::Ready(vec![a_host()]),
        AgentReport::Listening(9, a_place().addresses),
        AgentReport::RankDied(3, 137, "r".into(), "l".into()),
        AgentReport::Agree(3, a_contribution()),
        AgentReport::FromNode(70_000, vec![4, 5]),
        AgentReport::Output(1, OutputStream::Out, vec![0; 9]),
        AgentReport::Failed {
            rank: None,
            code: -1,
            finalized: true,
            report: "r".into(),
            line: "l".into(),
        },
        AgentReport::RanksEnded(vec![1, 2]),
        AgentReport::StdinTaken(5),
        AgentReport::Print("x".into()),
        AgentReport::Unbound("share CPUs 0".into()),
        AgentReport::RankExits(vec![
            RankExit {
                rank: 3,
                process: 99,
                ended: ProcessExit::Exit(-1),
                ran_ms: 1 << 40,
            },
            RankExit {
                rank: 4,
                process: 0,
                ended: ProcessExit::Signal(9),
                ran_ms: 0,
            },
        ]),
        AgentReport::Done,
        AgentReport::ReverseConnect(a_callback()),
        AgentReport::DisableNetwork("10.0.0.0/24".parse().unwrap(), true, 9),
        AgentReport::Addresses(8, some_own()),
        AgentReport::RelayOpened(a_callback(), 7),
        AgentReport::RendezvousOpened(a_callback(), 7),
        AgentReport::RendezvousReached(a_venue()),
        AgentReport::NewAddresses(a_place().addresses),
        AgentReport::Query(9, Query::Cancel),
        AgentReport::QueryResult(QueryId { node: 1, number: 2 }, vec![8]),
        AgentReport::Ping,
    ]
}

pub(super) fn a_bootstrap() -> AgentBootstrap {
    AgentBootstrap {
        job: 1 << 100,
        secret: Secret::from_bytes(&[7; SECRET_BYTES]),
        node: 3,
        name: "n1".into(),
        parent: 2,
        parent_name: "n0".into(),
        port: 4000,
        addresses: a_place().addresses,
    }
}

#[test]
fn an_bootstrap_of_another_build_is_refused_with_both_named() {
    let (bootstrap, ours) = (a_bootstrap(), VERSIONS);
    let later = Versions::from((ours.highest + 1, ours.highest + 2));
    for (versions, library) in [(later, LIBRARY), (ours, "garonne 9.9.9"), (later, "")] {
        let error =
            AgentBootstrap::decode(&bootstrap.encode_as(versions, library)[4..]).unwrap_err();
        let text = error.to_string();
        let both = [library, LIBRARY, &versions.to_string(), &ours.to_string()];
        assert!(
            text.contains("G0203") && both.iter().all(|side| text.contains(side)),
            "{text}"
        );
    }
    // What a later one may say behind that is not looked at.
    let mut bytes = bootstrap.encode_as(later, LIBRARY);
    bytes.truncate(bytes.len() - 40);
    assert!(
        AgentBootstrap::decode(&bytes[4..])
            .unwrap_err()
            .to_string()
            .contains("G0203")
    );
    let both = Versions::from((ours.lowest, ours.highest + 1));
    assert_eq!(
        AgentBootstrap::decode(&bootstrap.encode_as(both, LIBRARY)[4..])
            .unwrap()
            .job,
        bootstrap.job
    );
}

#[test]
fn orders_and_reports_read_back_as_written() {
    for order in orders() {
        let again = AgentCommand::decode(&order.encode()).unwrap();
        assert_eq!(format!("{again:?}"), format!("{order:?}"));
    }
    for report in reports() {
        assert_eq!(AgentReport::decode(&report.encode()).unwrap(), report);
    }
    let place = a_place();
    assert_eq!(
        decode_host_endpoint(&encode_host_endpoint(&place)).unwrap(),
        place
    );
}

#[test]
fn an_bootstrap_reads_back_and_fits_what_a_pipe_takes_at_once() {
    let bootstrap = AgentBootstrap {
        secret: Secret::generate().unwrap(),
        name: "n".repeat(255),
        parent_name: "m".repeat(255),
        addresses: vec!["fd00::1".parse().unwrap(); limits::ADDRESSES_MAX],
        ..a_bootstrap()
    };
    let bytes = bootstrap.encode();
    assert!(bytes.len() <= limits::BOOTSTRAP_BYTES_MAX);
    let again = AgentBootstrap::decode(&bytes[4..]).unwrap();
    assert_eq!(again.secret.bytes(), bootstrap.secret.bytes());
    assert_eq!(
        (again.job, again.node, again.parent, again.port),
        (
            bootstrap.job,
            bootstrap.node,
            bootstrap.parent,
            bootstrap.port
        )
    );
    assert_eq!(
        (again.name, again.parent_name, again.addresses),
        (bootstrap.name, bootstrap.parent_name, bootstrap.addresses)
    );
}

#[test]
fn no_prefix_and_no_extension_of_a_message_is_accepted() {
    let mut messages: Vec<_> = orders().iter().map(AgentCommand::encode).collect();
    messages.extend(reports().iter().map(AgentReport::encode));
    for bytes in messages {
        for cut in 0..bytes.len() {
            assert!(
                AgentCommand::decode(&bytes[..cut]).is_err()
                    && AgentReport::decode(&bytes[..cut]).is_err()
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(AgentCommand::decode(&longer).is_err() && AgentReport::decode(&longer).is_err());
    }
}

#[test]
fn the_inputs_that_fuzzing_begins_with_are_messages() {
    let dir =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds/agent_messages");
    let mut read = 0;
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let (name, bytes) = (
            path.file_name().unwrap().to_string_lossy().into_owned(),
            std::fs::read(&path).unwrap(),
        );
        let good = match name.split('_').next() {
            Some("order") => AgentCommand::decode(&bytes).is_ok(),
            Some("report") => AgentReport::decode(&bytes).is_ok(),
            Some("hosts") => decode_host_endpoint(&bytes).is_ok(),
            // It names the library that it is of.
            Some("errand") => AgentBootstrap::decode(&bytes)
                .map_or_else(|error| error.code() == codes::G0203, |_| true),
            _ => continue,
        };
        assert!(good, "{name}");
        read += 1;
    }
    assert!(read > 10);
}

#[test]
fn a_job_whose_ranks_are_nowhere_is_refused() {
    let mut job = a_job();
    job.nodes.of_rank[0] = 9;
    assert!(AgentCommand::decode(&AgentCommand::Job(Box::new(job)).encode()).is_err());
    let mut job = a_job();
    job.nodes.of_rank.pop();
    assert!(AgentCommand::decode(&AgentCommand::Job(Box::new(job)).encode()).is_err());
}

proptest! {
    #[test]
    fn a_message_with_any_byte_changed_is_read_or_refused(which in 0usize..25, at: prop::sample::Index, byte: u8) {
        let mut all: Vec<_> = orders().iter().map(AgentCommand::encode).collect();
        all.extend(reports().iter().map(AgentReport::encode));
        let mut bytes = all.swap_remove(which % all.len());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        read_anything(&bytes);
        read_anything(&bytes[..at]);
    }
}

#[test]
fn looks_are_known_on_every_part_of_their_way() {
    let (asked, look) = (QueryId { node: 2, number: 9 }, vec![1; 100]);
    let order = AgentCommand::QueryResult(3, asked, look.clone()).encode();
    let report = AgentReport::QueryResult(asked, look).encode();
    assert!(shows_ranks(&order) && shows_ranks(&report));
    assert!(shows_ranks(&AgentCommand::Forward(5, order).encode()));
    assert!(shows_ranks(&AgentReport::FromNode(5, report).encode()));
    assert!(!shows_ranks(
        &AgentReport::FromNode(5, AgentReport::Done.encode()).encode()
    ));
    assert!(
        !shows_ranks(&AgentCommand::Query(asked, Query::State).encode()) && !shows_ranks(b"none")
    );
}
