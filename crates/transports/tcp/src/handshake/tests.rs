//! Proofs: who is let in, and what is noticed.

use super::*;
use proptest::prelude::*;

fn process(rank: u32) -> ProcessId {
    ProcessId {
        job: [3; 16],
        world: 0,
        rank,
        incarnation: 7,
    }
}

fn identities(sealed: bool) -> (LocalIdentity, LocalIdentity) {
    let secret = Secret::generate().unwrap();
    let identity = |rank| LocalIdentity::new(secret.clone(), process(rank), sealed);
    (identity(0), identity(1))
}

fn call(identity: &LocalIdentity) -> (Initiator, Vec<u8>) {
    Initiator::call(identity, (1, 7), StreamNumber::Small).unwrap()
}

fn hear(identity: &LocalIdentity, bytes: &[u8]) -> Result<ResponderStep, HandshakeError> {
    Responder::hear(identity, bytes, |from, _| {
        assert_eq!(*from, process(0));
        Ok(40)
    })
}

fn answer(identity: &LocalIdentity, bytes: &[u8]) -> (Responder, Vec<u8>) {
    match hear(identity, bytes) {
        Ok(ResponderStep::Answered {
            callee,
            answer,
            consumed,
        }) => {
            assert_eq!(consumed, bytes.len());
            (*callee, answer)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn two_who_know_the_secret_agree_and_tell_each_other_what_they_expect() {
    for sealed in [false, true] {
        let (near, far) = identities(sealed);
        let (caller, bytes) = call(&near);
        let (mut callee, bytes) = answer(&far, &bytes);
        let Ok(InitiatorStep::Done {
            expected,
            terms,
            proof,
            ..
        }) = caller.answered(&bytes, 20)
        else {
            panic!("the answer is honest")
        };
        assert_eq!((expected, terms.seal.is_some()), (40, sealed));
        assert_eq!(callee.proved(&proof[..50]), Ok(None));
        assert_eq!(callee.proved(&proof), Ok(Some((20, proof.len()))));
        if let (Some(mut near), Some(mut far)) = (terms.seal, callee.terms().seal) {
            let (mut sealed, mut open) = ([0; 64], [0; 64]);
            let len = near.write_message(b"hello", &mut sealed).unwrap();
            assert_eq!(far.read_message(&sealed[..len], &mut open), Ok(5));
            assert!(
                far.read_message(&sealed[..len], &mut open).is_err(),
                "nothing is taken twice"
            );
        }
    }
}

#[test]
fn who_asks_for_a_call_is_heard_whether_ranks_encrypt_or_not() {
    for sealed in [false, true] {
        let (near, far) = identities(sealed);
        let asking = LocalIdentity {
            me: ProcessId {
                world: ASKED,
                ..near.me
            },
            sealed: false,
            ..near.clone()
        };
        let (caller, bytes) = call(&asking);
        let heard = Responder::hear(&far, &bytes, |from, _| {
            assert_eq!(from.world, ASKED);
            Ok(0)
        });
        let Ok(ResponderStep::Answered {
            mut callee, answer, ..
        }) = heard
        else {
            panic!("it is refused: {heard:?}")
        };
        let Ok(InitiatorStep::Done { proof, .. }) = caller.answered(&answer, 0) else {
            panic!("the answer is honest")
        };
        assert_eq!(callee.proved(&proof), Ok(Some((0, proof.len()))));
        // A rank that differs is still refused.
        let other = LocalIdentity {
            sealed: !sealed,
            ..near
        };
        let (_, bytes) = call(&other);
        assert!(matches!(
            hear(&far, &bytes),
            Ok(ResponderStep::Refused(
                HandshakeError::Refused(RejectReason::Sealing),
                _
            ))
        ));
    }
}

#[test]
fn another_secret_is_noticed_by_the_called_side_before_it_answers() {
    let (near, _) = identities(false);
    let (_, far) = identities(false);
    let (_, bytes) = call(&near);
    assert!(matches!(
        hear(&far, &bytes),
        Err(HandshakeError::NotAuthentic)
    ));
}

#[test]
fn an_answer_without_the_secret_is_refused() {
    let (near, far) = identities(false);
    let (caller, bytes) = call(&near);
    let impostor = LocalIdentity {
        secret: Secret::generate().unwrap(),
        ..far.clone()
    };
    assert!(hear(&impostor, &bytes).is_err());
    // It invents one.
    let made_up = Opening::own(VERSIONS, MessageBody::Answer([5; SECOND])).encode();
    assert!(matches!(
        caller.answered(&made_up, 0),
        Err(HandshakeError::NotAuthentic)
    ));
}

#[test]
fn a_replayed_call_gets_nowhere() {
    let (near, far) = identities(false);
    let (caller, bytes) = call(&near);
    let (_, first_answer) = answer(&far, &bytes);
    let Ok(InitiatorStep::Done { proof, .. }) = caller.answered(&first_answer, 0) else {
        panic!("the answer is honest")
    };
    let (mut callee, second_answer) = answer(&far, &bytes);
    assert_ne!(first_answer, second_answer);
    assert_eq!(
        callee.proved(&proof),
        Err(HandshakeError::NotAuthentic),
        "an old proof proves nothing"
    );
}

#[test]
fn a_call_is_bound_to_its_job_world_rank_incarnation_and_stream() {
    let (near, far) = identities(false);
    let (_, honest) = call(&near);
    // Job, world, rank, incarnation of both, stream, sealing: whatever is changed on the way, it is
    // refused or not authentic.
    for at in frame::PREFIX..CALL {
        let mut bytes = honest.clone();
        bytes[at] ^= 1;
        let heard = Responder::hear(&far, &bytes, |_, _| panic!("byte {at} is not bound"));
        assert!(
            matches!(heard, Ok(ResponderStep::Refused(..)) | Err(_)),
            "byte {at}"
        );
    }
}

#[test]
fn another_library_is_refused_by_name_on_both_sides() {
    let (near, far) = identities(false);
    let (caller, mut bytes) = call(&near);
    bytes[16..24].copy_from_slice(b"ancient ");
    let Ok(ResponderStep::Refused(HandshakeError::Library(_), refusal)) = hear(&far, &bytes) else {
        panic!("it must be refused")
    };
    match caller.answered(&refusal, 0) {
        Err(fault @ HandshakeError::Library(_)) => {
            assert!(fault.to_string().contains(frame::LIBRARY))
        }
        other => panic!("{other:?}"),
    }
}

/// Returns what becomes of a call between two that speak such versions, of which `change` is done
/// to each message on its way: the version that both use.
fn meet(
    ours: (u16, u16),
    theirs: (u16, u16),
    mut change: impl FnMut(&mut Vec<u8>),
) -> Result<u16, (Option<HandshakeError>, HandshakeError)> {
    let (near, far) = identities(false);
    let (near, far) = (near.speaking(ours.into()), far.speaking(theirs.into()));
    let (caller, mut bytes) = call(&near);
    change(&mut bytes);
    let (callee, mut bytes) = match hear(&far, &bytes) {
        Ok(ResponderStep::Answered { callee, answer, .. }) => (Ok(callee), answer),
        Ok(ResponderStep::Refused(fault, refusal)) => (Err(fault), refusal),
        other => return Err((None, other.unwrap_err())),
    };
    change(&mut bytes);
    match (caller.answered(&bytes, 0), callee) {
        (
            Ok(InitiatorStep::Done {
                terms, mut proof, ..
            }),
            Ok(mut callee),
        ) => {
            change(&mut proof);
            callee
                .proved(&proof)
                .map_err(|fault| (Some(fault.clone()), fault))?;
            assert_eq!(terms.version, callee.terms().version, "both use the same");
            Ok(terms.version)
        }
        (Err(here), callee) => Err((callee.err(), here)),
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn both_use_the_highest_version_that_both_speak() {
    for (ours, theirs, version) in [
        ((6, 6), (6, 6), 6),
        ((6, 7), (6, 6), 6),
        ((6, 6), (6, 7), 6),
        ((5, 6), (6, 7), 6),
        ((6, 7), (5, 6), 6),
        ((6, 7), (6, 7), 7),
        ((1, 9), (3, 8), 8),
    ] {
        assert_eq!(
            meet(ours, theirs, |_| ()),
            Ok(version),
            "{ours:?} {theirs:?}"
        );
    }
}

#[test]
fn versions_without_overlap_are_refused_by_name_on_both_sides() {
    for (ours, theirs) in [((4, 5), (6, 7)), ((6, 7), (4, 5)), ((6, 6), (9, 11))] {
        let Err((Some(there), here)) = meet(ours, theirs, |bytes| {
            bytes[16..24].copy_from_slice(b"elsewise")
        }) else {
            panic!("it must be refused")
        };
        for (fault, own, other) in [(here, ours, theirs), (there, theirs, ours)] {
            let said = fault.to_string();
            let expected = format!(
                "with formats {} to {}, this process {} with {} to {}",
                other.0,
                other.1,
                frame::LIBRARY,
                own.0,
                own.1
            );
            assert!(
                said.contains("it runs elsewise") && said.contains(&expected),
                "{said}"
            );
        }
    }
}

#[test]
fn nobody_on_the_way_makes_them_use_an_older_version() {
    let said = |bytes: &mut Vec<u8>, versions: [u8; 2]| {
        bytes[12..16].copy_from_slice(&[versions[0], 0, versions[1], 0]);
    };
    // In the first message alone, in the second, in both; of each what is said is narrower, wider,
    // or something else.
    for versions in [[6, 6], [5, 6], [5, 7], [7, 8], [6, 8], [1, 9]] {
        for which in 1..8 {
            let mut at = 0;
            let met = meet((6, 7), (5, 7), |bytes| {
                if which & 1 << at != 0 {
                    said(bytes, versions);
                }
                at += 1;
            });
            // Whatever is let through is what they would have used anyway.
            match met {
                Ok(version) => assert_eq!(version, 7, "{versions:?} in {which}"),
                Err((_, HandshakeError::NotAuthentic)) => {}
                other => panic!("{other:?}, {versions:?} in {which}"),
            }
        }
    }
    // An honest pair would use 7: neither takes 6.
    let lower = |turn: u8| {
        let mut at = 0;
        meet((6, 7), (6, 7), move |bytes| {
            if at == turn {
                said(bytes, [6, 6]);
            }
            at += 1;
        })
    };
    assert_eq!(
        lower(0),
        Err((None, HandshakeError::NotAuthentic)),
        "the call is bound"
    );
    assert_eq!(
        lower(1),
        Err((None, HandshakeError::NotAuthentic)),
        "the answer is compared"
    );
}

#[test]
fn a_refusal_of_versions_that_its_sender_speaks_is_not_believed() {
    // Who changes the versions of a call has it refused, but not by name: that attempt alone is
    // over.
    let mut at = 0;
    let met = meet((6, 7), (6, 7), |bytes| {
        if at == 0 {
            bytes[12..16].copy_from_slice(&[9, 0, 9, 0]);
        }
        at += 1;
    });
    let Err((Some(HandshakeError::Versions { .. }), here)) = met else {
        panic!("it must be refused")
    };
    assert_eq!(here, HandshakeError::Refused(RejectReason::Versions));
}

#[test]
fn a_secret_passes_through_a_descriptor_once() {
    let secret = Secret::generate().unwrap();
    let taken = Secret::take(secret.lay_down().unwrap()).unwrap();
    assert_eq!(*secret.0, *taken.0);
    assert_eq!(format!("{secret:?}"), "Secret");
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::write(&write, &[1; 33]).unwrap();
    drop(write);
    assert!(matches!(Secret::take(read), Err(Error::Misuse(_))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn wild_bytes_open_nothing(bytes in prop::collection::vec(any::<u8>(), 0..300), at: prop::sample::Index, byte: u8) {
        let (near, far) = identities(false);
        let (caller, mut honest) = call(&near);
        let admitted = |heard| matches!(heard, Ok(ResponderStep::Answered { .. }));
        prop_assert!(!admitted(hear(&far, &bytes)));
        let at = at.index(honest.len());
        let same = honest[at] == byte;
        honest[at] = byte;
        if let Ok(ResponderStep::Answered { .. }) = hear(&far, &honest) {
            prop_assert!(same, "byte {} was changed", at);
        }
        let done = matches!(caller.answered(&bytes, 0), Ok(InitiatorStep::Done { .. }));
        prop_assert!(!done);
    }
}
