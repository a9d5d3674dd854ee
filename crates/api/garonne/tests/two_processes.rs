//! Two processes that connect by address: each test starts this program again as the other one.

use garonne::{Endpoint, Error, Key, Listener, Peer, RegionKey, Result, Source};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ADDRESS: &str = "GARONNE_TEST_CONNECT_TO";
/// Longer than any delay of a busy machine.
const SURELY: Duration = Duration::from_secs(60);

/// The test of this name in another process, which connects to the listener.
fn other_process(test: &str, listener: &Listener, key: &Key) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(ADDRESS, listener.address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(key.as_bytes()).unwrap();
    child
}

/// This process's end if it is the other process.
fn as_other_process() -> Option<(Endpoint, Peer)> {
    let address = std::env::var(ADDRESS).ok()?;
    let mut key = [0; Key::BYTES];
    std::io::stdin().read_exact(&mut key).unwrap();
    let endpoint = Endpoint::connect(address.parse().unwrap(), &Key::from_bytes(key)).unwrap();
    let peer = endpoint.peers().next().unwrap();
    Some((endpoint, peer))
}

/// Runs `other` in the other process and `this` here, and has both leave.
fn between(
    test: &str,
    other: impl FnOnce(&Endpoint, Peer) -> Result<()>,
    this: impl FnOnce(&Endpoint, Peer) -> Result<()>,
) {
    if let Some((endpoint, peer)) = as_other_process() {
        other(&endpoint, peer).unwrap();
        return endpoint.leave().unwrap();
    }
    let key = Key::generate().unwrap();
    let listener = bind(&key);
    let mut child = other_process(test, &listener, &key);
    let endpoint = listener.accept_within(SURELY).unwrap();
    let peer = endpoint.peer(1).unwrap();
    this(&endpoint, peer).unwrap();
    endpoint.leave().unwrap();
    assert!(child.wait().unwrap().success());
}

fn bind(key: &Key) -> Listener {
    Listener::bind("127.0.0.1:0".parse().unwrap(), key).unwrap()
}

fn code(result: Result<impl std::fmt::Debug>) -> &'static str {
    result.expect_err("it must fail").code()
}

/// Bytes that say where they are.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn messages_of_all_lengths_arrive_in_order_and_whole() {
    const LENGTHS: [usize; 7] = [0, 1, 64, 5_000, 100_000, 1 << 20, 2 << 20];
    between(
        "messages_of_all_lengths_arrive_in_order_and_whole",
        |endpoint, peer| {
            for len in LENGTHS {
                endpoint.send(peer, 5, &pattern(len))?;
            }
            Ok(())
        },
        |endpoint, peer| {
            let mut buffer = vec![0; 2 << 20];
            for len in LENGTHS {
                let received = endpoint.recv(Source::Any, 5, &mut buffer)?;
                assert_eq!((received.peer, received.tag), (peer, 5));
                assert_eq!(buffer[..received.len], pattern(len));
            }
            Ok(())
        },
    );
}

#[test]
fn requests_own_their_memory_and_give_it_back() {
    const LEN: usize = 1 << 20;
    let both = |endpoint: &Endpoint, peer: Peer| {
        let incoming = endpoint.start_recv(peer, 9, vec![0; LEN + 5])?;
        let mut outgoing = endpoint.start_send(peer, 9, pattern(LEN))?;
        let begun = Instant::now();
        while !outgoing.is_done() {
            assert!(begun.elapsed() < SURELY, "the send never ends");
        }
        assert_eq!(outgoing.wait()?, pattern(LEN));
        let (received, bytes) = incoming.wait()?;
        assert_eq!(received.len, LEN);
        assert_eq!(bytes, pattern(LEN));
        Ok(())
    };
    between("requests_own_their_memory_and_give_it_back", both, both);
}

#[test]
fn requests_that_are_dropped_or_forgotten_harm_nobody() {
    between(
        "requests_that_are_dropped_or_forgotten_harm_nobody",
        |endpoint, peer| {
            drop(endpoint.start_send(peer, 1, pattern(2 << 20))?);
            std::mem::forget(endpoint.start_recv(peer, 2, vec![0; 64])?);
            endpoint.recv(peer, 3, &mut [])?;
            Ok(())
        },
        |endpoint, peer| {
            drop(endpoint.start_recv(peer, 1, vec![0; 2 << 20])?);
            let mut whole = vec![0; 2 << 20];
            endpoint.recv(peer, 1, &mut whole)?;
            assert_eq!(whole, pattern(2 << 20));
            endpoint.send(peer, 2, b"into memory that nobody has any more")?;
            endpoint.send(peer, 3, b"")?;
            Ok(())
        },
    );
}

#[test]
fn a_region_is_read_by_who_has_its_key_until_it_is_withdrawn() {
    const LEN: usize = 300_000;
    between(
        "a_region_is_read_by_who_has_its_key_until_it_is_withdrawn",
        |endpoint, peer| {
            let region = endpoint.expose(pattern(LEN))?;
            endpoint.send(peer, 1, &region.key().to_bytes())?;
            endpoint.recv(peer, 2, &mut [])?;
            assert_eq!(region.bytes(), pattern(LEN));
            assert_eq!(*region.withdraw()?, pattern(LEN));
            drop(endpoint.expose(pattern(8))?);
            std::mem::forget(endpoint.expose(pattern(8))?);
            endpoint.send(peer, 3, b"")?;
            endpoint.recv(peer, 4, &mut [])?;
            Ok(())
        },
        |endpoint, peer| {
            let mut key = [0; RegionKey::BYTES_MAX];
            let received = endpoint.recv(peer, 1, &mut key)?;
            let key = RegionKey::from_bytes(&key[..received.len])?;
            assert_eq!(key.len(), LEN as u64);
            let mut whole = vec![0; LEN];
            endpoint.read(peer, &key, 0, &mut whole)?;
            assert_eq!(whole, pattern(LEN));
            let mut end = [0; 100];
            endpoint.read(peer, &key, LEN as u64 - 100, &mut end)?;
            assert_eq!(end[..], pattern(LEN)[LEN - 100..]);
            endpoint.read(peer, &key, LEN as u64, &mut [])?;
            let beyond = endpoint.read(peer, &key, LEN as u64 - 99, &mut end);
            assert_eq!(code(beyond), "G0401");
            assert_eq!(code(endpoint.read(peer, &key, u64::MAX, &mut end)), "G0401");
            assert_eq!(code(RegionKey::from_bytes(b"no key")), "G0401");
            endpoint.send(peer, 2, b"")?;
            endpoint.recv(peer, 3, &mut [])?;
            assert_eq!(code(endpoint.read(peer, &key, 0, &mut end)), "G0401");
            endpoint.send(peer, 4, b"")
        },
    );
}

#[test]
fn threads_share_an_endpoint() {
    const THREADS: u32 = 3;
    let both = |endpoint: &Endpoint, peer: Peer| {
        std::thread::scope(|scope| {
            for tag in 0..THREADS {
                scope.spawn(move || {
                    let mut buffer = [0; 64];
                    for round in 0..200u32 {
                        endpoint.send(peer, tag, &round.to_le_bytes()).unwrap();
                        let received = endpoint.recv(peer, tag, &mut buffer).unwrap();
                        assert_eq!(buffer[..received.len], round.to_le_bytes());
                    }
                });
            }
        });
        Ok(())
    };
    between("threads_share_an_endpoint", both, both);
}

#[test]
fn what_cannot_be_is_refused_with_its_code() {
    between(
        "what_cannot_be_is_refused_with_its_code",
        |endpoint, peer| {
            endpoint.send(peer, 1, b"too long")?;
            endpoint.recv(peer, 2, &mut [])?;
            Ok(())
        },
        |endpoint, peer| {
            assert_eq!(code(endpoint.recv(peer, 1, &mut [0; 3])), "G0402");
            assert_eq!(code(endpoint.peer(0)), "G0401");
            assert_eq!(code(endpoint.peer(2)), "G0401");
            assert_eq!(code(endpoint.send(peer, u32::MAX, b"")), "G0401");
            endpoint.send(peer, 2, b"")
        },
    );
}

#[test]
fn what_was_sent_before_leaving_arrives_and_nothing_is_waited_for_afterwards() {
    between(
        "what_was_sent_before_leaving_arrives_and_nothing_is_waited_for_afterwards",
        |endpoint, peer| endpoint.send(peer, 1, b"last words"),
        |endpoint, peer| {
            // The other one has left long since.
            std::thread::sleep(Duration::from_millis(300));
            let mut words = [0; 16];
            let received = endpoint.recv(peer, 1, &mut words)?;
            assert_eq!(&words[..received.len], b"last words");
            assert_eq!(code(endpoint.recv(peer, 1, &mut words)), "G0403");
            assert_eq!(code(endpoint.recv(Source::Any, 1, &mut words)), "G0403");
            assert_eq!(code(endpoint.send(peer, 1, b"too late")), "G0403");
            Ok(())
        },
    );
}

#[test]
fn a_process_that_dies_keeps_nobody_waiting() {
    const TEST: &str = "a_process_that_dies_keeps_nobody_waiting";
    if let Some((endpoint, peer)) = as_other_process() {
        endpoint.send(peer, 1, b"alive").unwrap();
        std::process::abort();
    }
    let key = Key::generate().unwrap();
    let listener = bind(&key);
    let mut child = other_process(TEST, &listener, &key);
    let endpoint = listener.accept_within(SURELY).unwrap();
    let peer = endpoint.peer(1).unwrap();
    endpoint.recv(peer, 1, &mut [0; 8]).unwrap();
    let begun = Instant::now();
    assert_eq!(code(endpoint.recv(peer, 1, &mut [0; 8])), "G0403");
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(!child.wait().unwrap().success());
}

#[test]
fn another_key_opens_nothing() {
    let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
    let listener = bind(&key);
    let address = listener.address();
    let accepting =
        std::thread::spawn(move || listener.accept_within(Duration::from_secs(3)).map(drop));
    let refused = Endpoint::connect(address, &other).expect_err("the key is another");
    assert!(
        matches!(refused, Error::Peer { .. }),
        "not as it should be: {refused}"
    );
    assert_eq!(code(accepting.join().unwrap()), "G0404");
}

#[test]
fn nobody_listens_is_found_soon() {
    let key = Key::generate().unwrap();
    let gone = bind(&key).address();
    let begun = Instant::now();
    assert_eq!(code(Endpoint::connect(gone, &key)), "G0403");
    assert!(begun.elapsed() < Duration::from_secs(20));
}
