//! Revocation over jobs of several ranks, over the real engine.

use crate::comm::Comm;
use crate::error::Class;
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::request::wait;
use crate::testing::{TestBytes, engine_job};
use garonne_engine::api::CallOrigin;

/// Longer than what is sent before its receive is known.
const LARGE: usize = 3 << 20;

fn send(data: &TestBytes, dest: i32, tag: i32) -> SendArgs {
    SendArgs {
        data: data.data(),
        dest,
        tag,
        mode: SendMode::Standard,
        origin: CallOrigin::default(),
    }
}

fn recv(data: &TestBytes, source: i32, tag: i32) -> RecvArgs {
    RecvArgs {
        data: data.data(),
        source,
        tag,
        origin: CallOrigin::default(),
    }
}

fn dup(comm: &Comm) -> Comm {
    comm.dup(None, CallOrigin::default()).unwrap()
}

#[test]
fn all_that_is_open_on_a_revoked_communicator_ends_at_all_members_and_others_go_on() {
    engine_job(4, |world| {
        let comm = dup(&world);
        let (large, few) = (TestBytes::new(LARGE), TestBytes::new(8));
        let open = match comm.rank() {
            // Waits for nothing before it revokes.
            0 => None,
            // A message that nobody receives, a receive from one, and one from anybody.
            1 => Some(comm.isend(send(&large, 2, 1))),
            2 => Some(comm.irecv(recv(&few, 3, 2))),
            _ => Some(comm.irecv(recv(&large, crate::ANY_SOURCE, 3))),
        };
        match open {
            None => comm.revoke().unwrap(),
            Some(open) => {
                let ended = open.and_then(|open| wait(&open)).unwrap_err();
                assert_eq!(ended.class, Class::Revoked);
            }
        }
        assert!(comm.is_revoked());
        let next = (comm.rank() as i32 + 1) % 4;
        let refused = comm.send(send(&few, next, 4)).unwrap_err();
        assert_eq!(refused.class, Class::Revoked);
        let refused = comm.recv(recv(&few, next, 4)).unwrap_err();
        assert_eq!(refused.class, Class::Revoked);
        let refused = comm.dup(None, CallOrigin::default()).err().unwrap();
        assert_eq!(refused.class, Class::Revoked);
        // The parent is as it was, and makes communicators with contexts of their own.
        let other = dup(&world);
        assert!(!other.is_revoked() && other.context() != comm.context());
        let got = TestBytes::new(1);
        let word = TestBytes::of(&[comm.rank() as u8]);
        let previous = (comm.rank() as i32 + 3) % 4;
        other
            .sendrecv(send(&word, next, 5), recv(&got, previous, 5))
            .unwrap();
        assert_eq!(got.get(), [previous as u8]);
    });
}

#[test]
fn who_does_not_know_a_communicator_yet_finds_it_revoked_when_it_is_made() {
    engine_job(3, |world| {
        for _ in 0..50 {
            let comm = dup(&world);
            if comm.rank() == 0 {
                comm.revoke().unwrap();
            }
            let few = TestBytes::new(8);
            if comm.rank() > 0 {
                let ended = comm.recv(recv(&few, 0, 1)).unwrap_err();
                assert_eq!(ended.class, Class::Revoked);
            }
            comm.free().unwrap();
        }
    });
}

#[test]
fn messages_under_way_when_a_communicator_is_revoked_harm_no_other() {
    engine_job(2, |world| {
        for round in 0..30u8 {
            let comm = dup(&world);
            let out = TestBytes::new(LARGE);
            let into: Vec<_> = (0..4).map(|_| TestBytes::new(LARGE)).collect();
            let other = 1 - comm.rank() as i32;
            let mut open = Vec::new();
            for (tag, into) in (0..).zip(&into) {
                open.push(comm.irecv(recv(into, other, tag)));
                open.push(comm.isend(send(&out, other, tag)));
            }
            if u32::from(round) % 2 == comm.rank() {
                comm.revoke().unwrap();
            }
            for request in open.into_iter().flatten() {
                if let Err(error) = wait(&request) {
                    assert_eq!(error.class, Class::Revoked);
                }
            }
            let (word, got) = (TestBytes::of(&[round]), TestBytes::new(1));
            world
                .sendrecv(send(&word, other, 9), recv(&got, other, 9))
                .unwrap();
            assert_eq!(got.get(), [round]);
            comm.free().unwrap();
        }
    });
}
