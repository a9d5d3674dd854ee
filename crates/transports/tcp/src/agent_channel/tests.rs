//! Lines between agents: messages, who may call, changes of the connection.

use super::*;
use crate::Secret;

fn pair(theirs: &Secret, mine: &Secret) -> Option<(AgentChannel, AgentChannel)> {
    connect((theirs, 0), (mine, 0), 0)
}

/// A connection, the `turn`th of a line, of whose messages so many have come on both sides.
fn connect(
    (theirs, has_come): (&Secret, u32),
    (mine, came): (&Secret, u32),
    turn: u32,
) -> Option<(AgentChannel, AgentChannel)> {
    let listener = crate::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let mut pending = PendingChannels::new(identity(theirs.clone(), [7; 16], 0), listener);
    let identity = identity_again(identity(mine.clone(), [7; 16], 3), turn);
    let mut call = ChannelConnect::begin_again(&identity, (address, 0), came).unwrap();
    let expected = |node, at| ((node, at) == (3, turn)).then_some(has_come);
    let mut place = None;
    let mut far = None;
    for _ in 0..2000 {
        pending.open(&mut |at, _| {
            place = Some(at);
            true
        });
        if let Some(at) = place
            && let Some(come) = pending.look_again(at, expected)
        {
            far = Some(come.1);
        }
        match call.look() {
            ConnectOutcome::Waits => {}
            ConnectOutcome::Failed(_) | ConnectOutcome::Refused(_) | ConnectOutcome::Cut(_) => {
                return None;
            }
            ConnectOutcome::Open(near) => {
                while far.is_none() {
                    far = pending
                        .look_again(place.unwrap(), expected)
                        .map(|(_, far)| far);
                }
                return far.map(|far| (*near, far));
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    None
}

/// Has both sides send and receive, and changes the connection now and then: cut anywhere, or while
/// it still works.
fn change_connections(seed: u64) {
    let mut state = seed;
    let mut random = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let secret = Secret::generate().unwrap();
    let (mut near, mut far) = pair(&secret, &secret).unwrap();
    let (mut made, mut halfway) = (None, None);
    let (mut sent, mut got) = ([0u32; 2], [0u32; 2]);
    let mut turn = 0;
    while got != [200; 2] || sent != got {
        for side in [0, 1] {
            let (from, to) = match side {
                0 => (&mut near, &mut far),
                _ => (&mut far, &mut near),
            };
            if sent[side] < 200 && random(2) == 0 {
                let mut message = vec![side as u8; random(3000) as usize + 4];
                message[..4].copy_from_slice(&sent[side].to_le_bytes());
                from.send(&message).unwrap();
                sent[side] += 1;
            }
            let _ = from.push();
            for _ in 0..random(4) {
                if let Some(message) = to.receive().unwrap() {
                    assert_eq!(message[..4], got[side].to_le_bytes(), "seed {seed}");
                    got[side] += 1;
                }
            }
        }
        match random(20) {
            // The counts that are told grow old until the connection is taken.
            0 if made.is_none() && halfway.is_none() => {
                turn += 1;
                made = connect((&secret, far.received()), (&secret, near.received()), turn);
                assert!(made.is_some());
            }
            1 if halfway.is_none() => {
                if let Some((by, come)) = made.take() {
                    near.renew(by).unwrap();
                    halfway = Some(come);
                }
            }
            2 => {
                if let Some(come) = halfway.take() {
                    far.renew(come).unwrap();
                }
            }
            _ => {}
        }
    }
    assert!(turn > 0, "seed {seed}");
    assert_eq!((near.receive(), far.receive()), (Ok(None), Ok(None)));
}

#[test]
fn a_line_that_changes_its_connection_loses_nothing_and_doubles_nothing() {
    (1..5).for_each(change_connections);
}

#[test]
fn a_connection_that_broke_may_be_renewed_and_one_that_was_closed_not() {
    let secret = Secret::generate().unwrap();
    let (mut near, far) = pair(&secret, &secret).unwrap();
    near.send(&[1]).unwrap();
    rustix::net::sockopt::set_socket_linger(far.fd(), Some(std::time::Duration::ZERO)).unwrap();
    drop(far);
    let ended = |line: &mut AgentChannel| loop {
        match line.receive() {
            Ok(_) => {}
            Err(lost) => return lost,
        }
    };
    assert_eq!(
        (ended(&mut near), near.is_reset()),
        (ChannelLoss::Broke, true)
    );
    near.send(&[2]).unwrap();
    let (by, mut far) = connect((&secret, 0), (&secret, near.received()), 1).unwrap();
    near.renew(by).unwrap();
    assert!(!near.is_reset());
    let mut came = Vec::new();
    while came.len() < 2 {
        near.push().unwrap();
        came.extend(far.receive().unwrap());
    }
    assert_eq!(came, [[1], [2]]);
    drop(far);
    assert_eq!(ended(&mut near), ChannelLoss::Over);
}

#[test]
fn messages_of_any_length_arrive_in_order_and_the_end_after_them() {
    let secret = Secret::generate().unwrap();
    let (mut near, mut far) = pair(&secret, &secret).unwrap();
    let messages = [vec![], vec![1], vec![2; 300_000], vec![3; 5]];
    for message in &messages {
        near.send(message).unwrap();
    }
    let mut got = Vec::new();
    while got.len() < messages.len() {
        near.push().unwrap();
        got.extend(far.receive().unwrap());
    }
    assert_eq!(got, messages);
    assert_eq!(near.waiting(), 0);
    drop(near);
    while far.receive() != Err(ChannelLoss::Over) {}
}

#[test]
fn who_does_not_know_the_secret_gets_no_connection() {
    assert!(pair(&Secret::generate().unwrap(), &Secret::generate().unwrap()).is_none());
}

#[test]
fn a_message_longer_than_agreed_is_not_sent() {
    let secret = Secret::generate().unwrap();
    let (mut near, _far) = pair(&secret, &secret).unwrap();
    assert_eq!(
        near.send(&vec![0; AGENT_MESSAGE_MAX + 1]),
        Err(ChannelLoss::Over)
    );
}

#[test]
fn more_callers_than_places_all_come_in_and_none_is_cut_off() {
    const CALLERS: usize = 3 * garonne_transport::limits::TCP_UNAUTHENTICATED_MAX;
    let secret = Secret::generate().unwrap();
    let listener = crate::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let mut pending = PendingChannels::new(identity(secret.clone(), [7; 16], 0), listener);
    let call = |node| {
        ChannelConnect::begin(&identity(secret.clone(), [7; 16], node as u32), address, 0).unwrap()
    };
    let mut calls: Vec<Option<ChannelConnect>> =
        (0..CALLERS).map(|node| Some(call(node))).collect();
    // They stand and have said their first words before anybody listens.
    while !calls.iter().flatten().all(ChannelConnect::has_called) {
        for slot in calls
            .iter_mut()
            .filter(|slot| slot.as_ref().is_some_and(|call| !call.has_called()))
        {
            assert!(matches!(
                slot.as_mut().unwrap().look(),
                ConnectOutcome::Waits
            ));
        }
    }
    let (mut opened, mut came) = (Vec::new(), Vec::new());
    while came.len() < CALLERS {
        // The set of pending channels has every chance to take more than it can keep before any of
        // them goes on.
        for _ in 0..CALLERS {
            let mut places = Vec::new();
            pending.open(&mut |place, _| {
                places.push(place);
                true
            });
            for place in places {
                assert!(pending.look(place, |_| true).is_none());
            }
        }
        for slot in &mut calls {
            match slot.as_mut().map(ChannelConnect::look) {
                None | Some(ConnectOutcome::Waits) => {}
                Some(ConnectOutcome::Open(line)) => {
                    opened.push(line);
                    *slot = None;
                }
                Some(other) => panic!("{other:?}, after {} had come in", came.len()),
            }
        }
        for place in 0..garonne_transport::limits::TCP_UNAUTHENTICATED_MAX {
            came.extend(pending.look(place, |_| true));
        }
    }
    assert_eq!(opened.len(), CALLERS);
}

/// Returns what stands before a message is part of the format, as the messages are
/// (`node::orders::pinned`): who changes it raises `frame::VERSIONS`.
#[test]
fn before_a_message_stand_its_length_its_number_and_how_many_were_received() {
    let secret = Secret::generate().unwrap();
    let (mut one, _other) = pair(&secret, &secret).unwrap();
    // So that it is kept, and does not leave.
    one.over = Some(ChannelLoss::Broke);
    one.send(b"first").unwrap();
    one.send(b"abc").unwrap();
    one.received = 7;
    one.frame(1);
    assert_eq!(
        one.out,
        [&[3, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0], &b"abc"[..]].concat()
    );
}
