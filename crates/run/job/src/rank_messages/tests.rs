//! Messages read back as they were written, and nothing else is read as one.

use super::*;
use proptest::prelude::*;

fn samples() -> Vec<ToAgent> {
    vec![
        ToAgent::Register {
            protocols: (1, 3).into(),
            admission: RegistrationSecret::from_bytes([5; 16]),
            rank: 7,
            pid: 9,
            version: "0.1.0".into(),
        },
        ToAgent::Attach,
        ToAgent::Finalized,
        ToAgent::Abort {
            code: -3,
            text: "so".into(),
        },
        ToAgent::Report { text: "é".into() },
        ToAgent::Put {
            key: "k".into(),
            value: vec![0, 1, 255],
        },
        ToAgent::Get { key: String::new() },
        ToAgent::Fence,
        ToAgent::Resumed,
        ToAgent::ReverseConnect {
            peer: 3,
            bulk: true,
        },
        ToAgent::Unreachable { peer: 3 },
        ToAgent::DisableNetwork {
            network: "10.7.0.0/16".parse().unwrap(),
            drained: true,
        },
        ToAgent::Query(Query::Records { ms: 7 }),
        ToAgent::ConnectionRefused {
            peer: 3,
            code: "G0203".into(),
            text: "é".into(),
        },
        ToAgent::Crashed(CrashReport {
            signal: 11,
            code: -6,
            tid: 7,
            detail: 8,
            context: 1 << 40,
        }),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_a_message_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..80), kind in 0u16..350) {
        let framed = [MessageWriter::new(kind).0, bytes.clone()].concat();
        for bytes in [bytes, framed] {
            read_anything(&bytes);
        }
    }

    #[test]
    fn a_message_with_any_byte_changed_or_missing_is_read_or_refused(which in 0usize..15, at: prop::sample::Index, byte: u8) {
        let samples = samples();
        let mut bytes = samples[which % samples.len()].encode();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = ToAgent::decode(&bytes);
        let _ = ToAgent::decode(&bytes[..at]);
    }
}

#[test]
fn messages_read_back_as_written() {
    for message in samples() {
        assert_eq!(ToAgent::decode(&message.encode()).unwrap(), message);
    }
    for message in [
        ToRank::Welcome {
            protocol: 1,
            rank: 3,
        },
        ToRank::Singleton,
        ToRank::Refused {
            code: "G0203".into(),
            text: "no".into(),
        },
        ToRank::Value { value: vec![] },
        ToRank::Fenced,
        ToRank::Acknowledged,
        ToRank::Attached {
            command: "a b".into(),
            launcher: 4,
            ranks: 2,
            hosts: "a\nb".into(),
            name: "heat".into(),
            started_s: 1_700_000_000,
        },
        ToRank::QueryStarted { node: 3 },
        ToRank::QueryResult { node: 70_000 },
    ] {
        assert_eq!(ToRank::decode(&message.encode()).unwrap(), message);
    }
    let link = LauncherMessage::Signal {
        signal: 15,
        broadcast: true,
    };
    assert_eq!(LauncherMessage::decode(&link.encode()).unwrap(), link);
    let told = [
        LauncherMessage::NewWorld,
        LauncherMessage::FlightRecording { rank: None },
        LauncherMessage::FlightRecording { rank: Some(3) },
        LauncherMessage::FlightRecorder {
            rank: 3,
            process: 7,
        },
    ];
    for link in told {
        assert_eq!(LauncherMessage::decode(&link.encode()).unwrap(), link);
    }
    let line = LauncherMessage::AgentConnection { node: 7 };
    assert_eq!(LauncherMessage::decode(&line.encode()).unwrap(), line);
    assert_eq!(
        LauncherMessage::decode(&LauncherMessage::Done { code: -1 }.encode()).unwrap(),
        LauncherMessage::Done { code: -1 }
    );
}

#[test]
fn no_prefix_and_no_extension_of_a_message_is_accepted() {
    for message in samples() {
        let bytes = message.encode();
        for cut in 0..bytes.len() {
            assert!(
                ToAgent::decode(&bytes[..cut]).is_err(),
                "{message:?} cut to {cut}"
            );
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(ToAgent::decode(&longer).is_err(), "{message:?} extended");
    }
}

#[test]
fn registrations_and_refusals_of_other_protocols_are_still_readable() {
    let refused = ToRank::Refused {
        code: "G0203".into(),
        text: "no".into(),
    };
    for protocol in [0, 9] {
        assert!(ToAgent::decode(&samples()[0].encode_in(protocol)).is_ok());
        assert!(ToRank::decode(&refused.encode_in(protocol)).is_ok());
        let error = ToAgent::decode(&ToAgent::Fence.encode_in(protocol)).unwrap_err();
        assert_eq!(error.code(), codes::G0203);
    }
    let spoken = ToAgent::Fence.encode_in(PROTOCOLS.highest);
    assert_eq!(ToAgent::decode(&spoken).unwrap(), ToAgent::Fence);
}

#[test]
fn a_welcome_is_of_the_protocol_that_it_tells() {
    for protocol in [0, 1, 7, 513] {
        let message = ToRank::Welcome { protocol, rank: 3 }.encode();
        assert_eq!(message[PROTOCOL_AT], u16::to_le_bytes(protocol));
    }
}
