//! Proofs: who is let in, and what is noticed.

use super::*;
use proptest::prelude::*;

fn process(rank: u32) -> Process {
    Process {
        job: [3; 16],
        world: 0,
        rank,
        incarnation: 7,
    }
}

fn houses(sealed: bool) -> (House, House) {
    let secret = Secret::generate().unwrap();
    let house = |rank| House {
        secret: secret.clone(),
        me: process(rank),
        sealed,
    };
    (house(0), house(1))
}

fn call(house: &House) -> (Caller, Vec<u8>) {
    Caller::call(house, (1, 7), Stream::Small).unwrap()
}

fn hear(house: &House, bytes: &[u8]) -> Result<Heard, Fault> {
    Callee::hear(house, bytes, |from, _| {
        assert_eq!(*from, process(0));
        Ok(40)
    })
}

fn answer(house: &House, bytes: &[u8]) -> (Callee, Vec<u8>) {
    match hear(house, bytes) {
        Ok(Heard::Answered {
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
        let (near, far) = houses(sealed);
        let (caller, bytes) = call(&near);
        let (mut callee, bytes) = answer(&far, &bytes);
        let Ok(Answered::Done { agreed, proof, .. }) = caller.answered(&bytes, 20) else {
            panic!("the answer is honest")
        };
        assert_eq!((agreed.expected, agreed.seal.is_some()), (40, sealed));
        assert_eq!(callee.proved(&proof[..50]), Ok(None));
        assert_eq!(callee.proved(&proof), Ok(Some((20, proof.len()))));
        if let (Some(mut near), Some(mut far)) = (agreed.seal, callee.seal()) {
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
        let (near, far) = houses(sealed);
        let asking = House {
            me: Process {
                world: ASKED,
                ..near.me
            },
            sealed: false,
            ..near.clone()
        };
        let (caller, bytes) = call(&asking);
        let heard = Callee::hear(&far, &bytes, |from, _| {
            assert_eq!(from.world, ASKED);
            Ok(0)
        });
        let Ok(Heard::Answered {
            mut callee, answer, ..
        }) = heard
        else {
            panic!("it is refused: {heard:?}")
        };
        let Ok(Answered::Done { proof, .. }) = caller.answered(&answer, 0) else {
            panic!("the answer is honest")
        };
        assert_eq!(callee.proved(&proof), Ok(Some((0, proof.len()))));
        // A rank that differs is still refused.
        let other = House {
            sealed: !sealed,
            ..near
        };
        let (_, bytes) = call(&other);
        assert!(matches!(
            hear(&far, &bytes),
            Ok(Heard::Refused(Fault::Refused(Reason::Sealing), _))
        ));
    }
}

#[test]
fn another_secret_is_noticed_by_the_called_side_before_it_answers() {
    let (near, _) = houses(false);
    let (_, far) = houses(false);
    let (_, bytes) = call(&near);
    assert!(matches!(hear(&far, &bytes), Err(Fault::NotAuthentic)));
}

#[test]
fn an_answer_without_the_secret_is_refused() {
    let (near, far) = houses(false);
    let (caller, bytes) = call(&near);
    let impostor = House {
        secret: Secret::generate().unwrap(),
        ..far.clone()
    };
    assert!(hear(&impostor, &bytes).is_err());
    // It invents one.
    let made_up = Opening::own(Body::Answer([5; SECOND])).encode();
    assert!(matches!(caller.answered(&made_up, 0), Err(Fault::NotAuthentic)));
}

#[test]
fn a_replayed_call_gets_nowhere() {
    let (near, far) = houses(false);
    let (caller, bytes) = call(&near);
    let (_, first_answer) = answer(&far, &bytes);
    let Ok(Answered::Done { proof, .. }) = caller.answered(&first_answer, 0) else {
        panic!("the answer is honest")
    };
    let (mut callee, second_answer) = answer(&far, &bytes);
    assert_ne!(first_answer, second_answer);
    assert_eq!(
        callee.proved(&proof),
        Err(Fault::NotAuthentic),
        "an old proof proves nothing"
    );
}

#[test]
fn a_call_is_bound_to_its_job_world_rank_incarnation_and_stream() {
    let (near, far) = houses(false);
    let (_, honest) = call(&near);
    // Job, world, rank, incarnation of both, stream, sealing: whatever is changed on the way, it is refused or not authentic.
    for at in frame::PREFIX..CALL {
        let mut bytes = honest.clone();
        bytes[at] ^= 1;
        let heard = Callee::hear(&far, &bytes, |_, _| panic!("byte {at} is not bound"));
        assert!(matches!(heard, Ok(Heard::Refused(..)) | Err(_)), "byte {at}");
    }
}

#[test]
fn another_library_is_refused_by_name_on_both_sides() {
    let (near, far) = houses(false);
    let (caller, mut bytes) = call(&near);
    bytes[16..24].copy_from_slice(b"ancient ");
    let Ok(Heard::Refused(Fault::Library(_), refusal)) = hear(&far, &bytes) else {
        panic!("it must be refused")
    };
    match caller.answered(&refusal, 0) {
        Err(fault @ Fault::Library(_)) => assert!(fault.to_string().contains(frame::LIBRARY)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn versions_without_overlap_are_refused_by_name() {
    let (near, far) = houses(false);
    let (caller, mut bytes) = call(&near);
    bytes[12..16].copy_from_slice(&[9, 0, 11, 0]);
    let Ok(Heard::Refused(Fault::Versions { theirs: (9, 11), .. }, mut refusal)) = hear(&far, &bytes) else {
        panic!("it must be refused")
    };
    refusal[12..16].copy_from_slice(&[9, 0, 11, 0]);
    match caller.answered(&refusal, 0) {
        Err(fault @ Fault::Versions { theirs: (9, 11), .. }) => {
            assert!(fault.to_string().contains("formats 9 to 11"));
        }
        other => panic!("{other:?}"),
    }
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
        let (near, far) = houses(false);
        let (caller, mut honest) = call(&near);
        let admitted = |heard| matches!(heard, Ok(Heard::Answered { .. }));
        prop_assert!(!admitted(hear(&far, &bytes)));
        let at = at.index(honest.len());
        let same = honest[at] == byte;
        honest[at] = byte;
        if let Ok(Heard::Answered { .. }) = hear(&far, &honest) {
            prop_assert!(same, "byte {} was changed", at);
        }
        let done = matches!(caller.answered(&bytes, 0), Ok(Answered::Done { .. }));
        prop_assert!(!done);
    }
}
