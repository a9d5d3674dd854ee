//! Two endpoints of one process, by the providers that every machine has: messages, reads,
//! failures.

use garonne_ofi::endpoint::{Endpoint, Event, MESSAGE_MAX, Peer, READS};
use garonne_ofi::library::Library;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Two endpoints that know each other, or why there are none.
fn pair(provider: &str) -> Option<[(Endpoint, Peer); 2]> {
    let library = match Library::load() {
        Ok(library) => library,
        Err(error) => {
            eprintln!("skipped: {error}");
            return None;
        }
    };
    let address = (provider != "shm").then_some("127.0.0.1");
    let offers = match library.offers(Some(provider), address) {
        Ok(offers) => offers,
        Err(error) => {
            eprintln!("skipped: no {provider} here: {error}");
            return None;
        }
    };
    let (mut one, mut other) = (
        Endpoint::open(&offers).unwrap(),
        Endpoint::open(&offers).unwrap(),
    );
    let to_other = one.insert(other.address()).unwrap();
    let to_one = other.insert(one.address()).unwrap();
    Some([(one, to_other), (other, to_one)])
}

fn messages(provider: &str) {
    let Some([(mut one, to_other), (mut other, to_one)]) = pair(provider) else {
        return;
    };
    const COUNT: usize = 2000;
    let message = |number: usize| -> Vec<u8> {
        let len = 8 + number * 37 % (MESSAGE_MAX - 8);
        let mut bytes = number.to_le_bytes().to_vec();
        bytes.extend((8..len).map(|at| (at * 31 + number) as u8));
        bytes
    };
    let (mut sent, mut came, begun) = ([0; 2], [0; 2], Instant::now());
    while came != [COUNT; 2] {
        assert!(begun.elapsed() < LIMIT, "sent {sent:?}, came {came:?}");
        for (side, (endpoint, to)) in [(&mut one, to_other), (&mut other, to_one)]
            .into_iter()
            .enumerate()
        {
            while sent[side] < COUNT && endpoint.send(to, &message(sent[side])).unwrap() {
                sent[side] += 1;
            }
            endpoint
                .poll(&mut |event| match event {
                    Event::Message(bytes) => {
                        assert_eq!(bytes, message(came[side]), "in order, and whole");
                        came[side] += 1;
                    }
                    other => panic!("{other:?}"),
                })
                .unwrap();
        }
    }
}

#[test]
fn messages_arrive_in_order_by_tcp() {
    messages("tcp");
}

#[test]
fn messages_arrive_in_order_by_shared_memory() {
    messages("shm");
}

fn reads(provider: &str) {
    let Some([(mut one, to_other), (mut other, _)]) = pair(provider) else {
        return;
    };
    let source: Vec<u8> = (0..8_000_003u32).map(|at| (at ^ at >> 9) as u8).collect();
    let mut local = vec![0u8; source.len()];
    // SAFETY: both outlive their regions.
    let (exposed, prepared) = unsafe {
        (
            other.expose(source.as_ptr(), source.len()).unwrap(),
            one.prepare(local.as_mut_ptr(), local.len()).unwrap(),
        )
    };
    const PIECE: usize = 100_000;
    let pieces = source.len().div_ceil(PIECE);
    let (mut begun, mut done, start) = (0, 0, Instant::now());
    while done < pieces {
        assert!(
            start.elapsed() < LIMIT,
            "{begun} begun, {done} done of {pieces}"
        );
        while begun < pieces && begun - done < READS {
            let (at, len) = (begun * PIECE, PIECE.min(source.len() - begun * PIECE));
            // SAFETY: pieces do not overlap, and nobody looks at them before all are there.
            let step = unsafe {
                let to = (local.as_mut_ptr().add(at), len, prepared);
                one.read(
                    begun as u64,
                    (to_other, exposed.at + at as u64, exposed.key),
                    to,
                )
            };
            if !step.unwrap() {
                break;
            }
            begun += 1;
        }
        let mut count = |event: Event<'_>| {
            assert!(matches!(event, Event::Read(_, Ok(()))), "{event:?}");
            done += 1;
        };
        one.poll(&mut count).unwrap();
        other.poll(&mut |event| panic!("{event:?}")).unwrap();
    }
    assert!(local == source, "what was read is what is there");
    other.withdraw(exposed);
    if let Some(prepared) = prepared {
        one.withdraw(prepared);
    }
}

#[test]
fn memory_is_read_by_tcp() {
    reads("tcp");
}

#[test]
fn memory_is_read_by_shared_memory() {
    reads("shm");
}

#[test]
fn withdrawn_memory_is_not_read() {
    let Some([(mut one, to_other), (mut other, _)]) = pair("tcp") else {
        return;
    };
    let (source, mut local) = (vec![7u8; 100_000], vec![0u8; 100_000]);
    // SAFETY: both outlive what is done with them.
    unsafe {
        let exposed = other.expose(source.as_ptr(), source.len()).unwrap();
        other.withdraw(exposed);
        let prepared = one.prepare(local.as_mut_ptr(), local.len()).unwrap();
        let to = (local.as_mut_ptr(), local.len(), prepared);
        let (mut ended, mut begun, start) = (None, false, Instant::now());
        while ended.is_none() {
            assert!(start.elapsed() < LIMIT);
            begun = begun
                || one
                    .read(5, (to_other, exposed.at, exposed.key), to)
                    .unwrap();
            let mut told = |event: Event<'_>| match event {
                Event::Read(token, result) => ended = Some((token, result)),
                other => panic!("{other:?}"),
            };
            one.poll(&mut told).unwrap();
            other.poll(&mut |_| {}).unwrap();
        }
        let (token, result) = ended.unwrap();
        assert!(token == 5 && result.is_err(), "{result:?}");
    }
    assert!(local.iter().all(|byte| *byte == 0));
}

/// The library does not say by itself whether a peer lives: it may answer "not now" for
/// ever. Who uses an endpoint has to know it otherwise; others are reached meanwhile.
#[test]
fn a_peer_that_is_gone_keeps_nobody_from_others() {
    let (Some([(mut one, to_gone), (gone, _)]), Some([(mut third, _), _])) =
        (pair("tcp"), pair("tcp"))
    else {
        return;
    };
    let to_third = one.insert(third.address()).unwrap();
    drop(gone);
    let (mut sent, mut came, start) = (false, false, Instant::now());
    while !came {
        assert!(start.elapsed() < LIMIT);
        let _ = one.send(to_gone, b"to nobody");
        sent = sent || one.send(to_third, b"to you").unwrap();
        let mut told =
            |event: Event<'_>| assert!(matches!(event, Event::Unsent(peer, _) if peer == to_gone));
        one.poll(&mut told).unwrap();
        third
            .poll(&mut |event| came |= event == Event::Message(b"to you"))
            .unwrap();
    }
}

#[test]
fn wrong_addresses_and_long_messages_are_refused() {
    let Some([(mut one, to_other), _other]) = pair("tcp") else {
        return;
    };
    assert!(one.insert(b"").is_err());
    assert!(one.insert(&[0; 300]).is_err());
    assert!(one.send(to_other, &vec![0; MESSAGE_MAX + 1]).is_err());
}

#[test]
fn who_may_sleep_is_woken() {
    let Some([(mut one, to_other), (mut other, _)]) = pair("tcp") else {
        return;
    };
    if other.wait().is_none() {
        return eprintln!("skipped: this provider has no descriptor to wait for");
    }
    let (mut sent, mut came, start) = (false, false, Instant::now());
    while !came {
        assert!(start.elapsed() < LIMIT);
        sent = sent || one.send(to_other, b"wake up").unwrap();
        one.poll(&mut |_| {}).unwrap();
        if sent && other.may_sleep() {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&other.wait().unwrap());
            let mut poll = libc::pollfd {
                fd,
                events: libc::POLLIN,
                revents: 0,
            };
            // SAFETY: one entry. Time-limited, since the sender may have to be polled once more.
            unsafe { libc::poll(&mut poll, 1, 100) };
        }
        other
            .poll(&mut |event| came |= event == Event::Message(b"wake up"))
            .unwrap();
    }
}
