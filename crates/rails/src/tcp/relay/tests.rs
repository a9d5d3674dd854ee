//! Calls through a host between, what is passed on, and who is not let through.

use super::*;
use crate::tcp::frame::{Process, Stream};
use crate::tcp::handshake::House;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const JOB: [u8; 16] = [5; 16];

fn listener() -> (TcpListener, SocketAddr) {
    let listener = crate::tcp::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// The bytes of rank 0's call to rank 3.
fn call(secret: &Secret, job: [u8; 16]) -> Vec<u8> {
    let me = Process {
        job,
        world: 0,
        rank: 0,
        incarnation: 0,
    };
    let house = House::new(secret.clone(), me, false);
    handshake::Caller::call(&house, (3, 0), Stream::Small).unwrap().1
}

/// Has the relay turn until `done` gives something.
fn until<T>(
    relay: &mut Relay,
    addresses: &dyn Fn(u32) -> Vec<SocketAddr>,
    mut done: impl FnMut() -> Option<T>,
) -> T {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        relay.turn(addresses);
        if let Some(done) = done() {
            return done;
        }
        assert!(Instant::now() < limit, "it never came");
    }
}

fn take(socket: &mut TcpStream, got: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 50_000];
    match socket.read(&mut bytes) {
        Ok(0) => return true,
        Ok(n) => got.extend_from_slice(&bytes[..n]),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
    }
    false
}

#[test]
fn what_is_said_arrives_both_ways_and_its_end_too() {
    let secret = Secret::generate().unwrap();
    let (rank, at) = listener();
    let (_closed, nobody) = {
        let (listener, address) = listener();
        drop(listener);
        ((), address)
    };
    let (port, here) = listener();
    let mut relay = Relay::new(port, secret.clone(), JOB).unwrap();
    // The first address leads nowhere.
    let addresses = |rank: u32| if rank == 3 { vec![nobody, at] } else { Vec::new() };
    let mut caller = TcpStream::connect(here).unwrap();
    let opening = call(&secret, JOB);
    let (first, rest) = opening.split_at(opening.len() / 2);
    caller.write_all(first).unwrap();
    relay.turn(&addresses);
    caller.write_all(rest).unwrap();
    rank.set_nonblocking(true).unwrap();
    let mut called = until(&mut relay, &addresses, || rank.accept().ok()).0;
    caller.set_nonblocking(true).unwrap();
    called.set_nonblocking(true).unwrap();

    let data: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let (mut sent, mut there, mut back, mut answered) = (0, Vec::new(), Vec::new(), 0);
    until(&mut relay, &addresses, || {
        if sent < data.len() {
            sent += caller.write(&data[sent..]).unwrap_or(0);
            if sent == data.len() {
                caller.shutdown(std::net::Shutdown::Write).unwrap();
            }
        }
        let ended = take(&mut called, &mut there);
        answered += called.write(&data[answered..]).unwrap_or(0);
        take(&mut caller, &mut back);
        (ended && answered == data.len() && back.len() == data.len()).then_some(())
    });
    assert!(there[..opening.len()] == opening[..] && there[opening.len()..] == data[..]);
    assert!(back == data);
    assert_eq!(relay.passages(), (1, 1));
    drop(called);
    until(&mut relay, &addresses, || {
        take(&mut caller, &mut back).then_some(())
    });
    until(&mut relay, &addresses, || Some(()));
    assert_eq!(relay.passages(), (0, 1));
}

#[test]
fn strangers_and_other_jobs_get_no_further() {
    let secret = Secret::generate().unwrap();
    let (_rank, at) = listener();
    let (port, here) = listener();
    let mut relay = Relay::new(port, secret.clone(), JOB).unwrap();
    let addresses = |_| -> Vec<SocketAddr> { panic!("nobody may be called: {at}") };
    let other = Secret::generate().unwrap();
    for bytes in [
        call(&other, JOB),
        call(&secret, [6; 16]),
        b"GET / HTTP/1.1\r\n".to_vec(),
    ] {
        let mut caller = TcpStream::connect(here).unwrap();
        caller.write_all(&bytes).unwrap();
        caller.set_nonblocking(true).unwrap();
        until(&mut relay, &addresses, || match caller.read(&mut [0; 1]) {
            Ok(0) => Some(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(()),
            _ => None,
        });
    }
    assert_eq!(relay.passages(), (0, 3));
}

#[test]
fn many_who_say_nothing_leave_a_place_for_who_does() {
    let secret = Secret::generate().unwrap();
    let (rank, at) = listener();
    let (port, here) = listener();
    let mut relay = Relay::new(port, secret.clone(), JOB).unwrap();
    let addresses = |_| vec![at];
    let mut mute = Vec::new();
    for _ in 0..RELAY_PASSAGES_MAX + 10 {
        mute.push(TcpStream::connect(here).unwrap());
        relay.turn(&addresses);
    }
    let mut caller = TcpStream::connect(here).unwrap();
    caller.write_all(&call(&secret, JOB)).unwrap();
    rank.set_nonblocking(true).unwrap();
    until(&mut relay, &addresses, || rank.accept().ok());
    assert!(relay.passages().0 <= RELAY_PASSAGES_MAX);
}

#[test]
fn an_end_that_has_failed_while_the_other_is_silent_keeps_nobody_busy() {
    let secret = Secret::generate().unwrap();
    let (rank, at) = listener();
    let (port, here) = listener();
    let mut relay = Relay::new(port, secret.clone(), JOB).unwrap();
    let addresses = |_| vec![at];
    let mut caller = TcpStream::connect(here).unwrap();
    caller.write_all(&call(&secret, JOB)).unwrap();
    rank.set_nonblocking(true).unwrap();
    let mut called = until(&mut relay, &addresses, || rank.accept().ok()).0;
    called.set_nonblocking(true).unwrap();
    // The caller is gone, and what still goes to it is answered by a reset; the called one does not look, and closes nothing.
    drop(caller);
    let mut got = Vec::new();
    until(&mut relay, &addresses, || {
        take(&mut called, &mut got).then_some(())
    });
    called.write_all(b"word").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut turns = 0;
    while relay.is_called() {
        relay.turn(&addresses);
        turns += 1;
        assert!(turns < 100, "it turns for nothing");
    }
}
