//! Endpoints with event queues: two in one process, driven by two threads, or in two processes.

use garonne::{
    Attributes, CONNECT_DATA_MAX, CloseCause, ConnectionId, Delivery, Event, EventEndpoint, Key,
    RegionKey, RegionRights, Result,
};
use std::io::{Read, Write};
use std::mem::discriminant;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any delay of a busy machine.
const SURELY: Duration = Duration::from_secs(60);
const ANYWHERE: &str = "garonne://127.0.0.1:0";

fn code(result: Result<impl std::fmt::Debug>) -> &'static str {
    result.expect_err("it must fail").code()
}

/// Bytes that say where they are.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|at| (at * 7 + at / 251 + seed) as u8)
        .collect()
}

fn next(endpoint: &EventEndpoint) -> Event {
    let event = endpoint.next_event(Some(SURELY)).unwrap();
    event.expect("an event in time")
}

/// The next event is the end of a connection in this way.
fn ends_by(endpoint: &EventEndpoint, wanted: CloseCause) {
    let end = next(endpoint);
    let Event::Closed { cause, .. } = &end else {
        panic!("not an end: {end:?}");
    };
    assert_eq!(discriminant(cause), discriminant(&wanted), "{end:?}");
}

/// Accepts the next caller, and returns the connection when it stands.
fn accept(endpoint: &EventEndpoint, attributes: Attributes) -> ConnectionId {
    loop {
        match next(endpoint) {
            Event::ConnectRequest { connection, .. } => {
                endpoint.accept(connection, attributes, b"welcome").unwrap();
            }
            Event::Connected { connection, data } => {
                assert_eq!(data, b"");
                return connection;
            }
            other => panic!("not a caller: {other:?}"),
        }
    }
}

/// Waits until the connection stands.
fn connected(endpoint: &EventEndpoint) -> ConnectionId {
    match next(endpoint) {
        Event::Connected { connection, data } => {
            assert_eq!(data, b"welcome");
            connection
        }
        other => panic!("not connected: {other:?}"),
    }
}

/// Runs both sides of one connection in two threads.
fn between(
    listening: impl FnOnce(EventEndpoint, ConnectionId) + Send,
    connecting: impl FnOnce(EventEndpoint, ConnectionId) + Send,
) {
    with_attributes(Attributes::default(), listening, connecting);
}

fn with_attributes(
    attributes: Attributes,
    listening: impl FnOnce(EventEndpoint, ConnectionId) + Send,
    connecting: impl FnOnce(EventEndpoint, ConnectionId) + Send,
) {
    let key = Key::generate().unwrap();
    let server = EventEndpoint::new().unwrap();
    let uri = server.listen(ANYWHERE, &key).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let connection = accept(&server, attributes);
            listening(server, connection);
        });
        let client = EventEndpoint::new().unwrap();
        client
            .connect(&uri, &key, Attributes::default(), b"")
            .unwrap();
        let connection = connected(&client);
        connecting(client, connection);
    });
}

#[test]
fn messages_of_all_lengths_arrive_in_order_with_their_tags_and_sends_end_in_order() {
    const LENGTHS: [usize; 9] = [0, 1, 32, 64, 5_000, 100_000, 7, 1 << 20, 12];
    between(
        |server, connection| {
            for round in 0..2 {
                for (tag, len) in LENGTHS.into_iter().enumerate() {
                    match next(&server) {
                        Event::Message {
                            connection: from,
                            tag: came,
                            message,
                        } => {
                            assert_eq!((from, came), (connection, tag as u32));
                            assert_eq!(*message, pattern(len, round));
                        }
                        other => panic!("not a message: {other:?}"),
                    }
                }
            }
            ends_by(&server, CloseCause::PeerLeft);
            server.close(SURELY).unwrap();
        },
        |client, connection| {
            let mut sends = 0;
            for round in 0..2 {
                for (tag, len) in LENGTHS.into_iter().enumerate() {
                    let bytes = pattern(len, round);
                    client.send(connection, tag as u32, bytes, sends).unwrap();
                    sends += 1;
                }
            }
            client.disconnect(connection).unwrap();
            assert_eq!(code(client.send(connection, 1, b"late", 0)), "G0401");
            for sent in 0..sends {
                match next(&client) {
                    Event::Sent {
                        context,
                        bytes,
                        result,
                        ..
                    } => {
                        result.unwrap();
                        assert_eq!(context, sent);
                        assert_eq!(bytes.len(), LENGTHS[sent as usize % LENGTHS.len()]);
                    }
                    other => panic!("not the end of a send: {other:?}"),
                }
            }
            ends_by(&client, CloseCause::Closed);
            assert_eq!(code(client.send(connection, 1, b"late", 0)), "G0401");
        },
    );
}

#[test]
fn the_descriptor_is_readable_when_there_is_an_event_and_not_for_ever() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const ROUNDS: usize = 100;
    /// Polls the descriptor, and takes what is there.
    fn by_descriptor(endpoint: &EventEndpoint, mut on_event: impl FnMut(Event) -> bool) -> usize {
        let fd = endpoint.descriptor();
        let mut wakes = 0;
        loop {
            while let Some(event) = endpoint.next_event(Some(Duration::ZERO)).unwrap() {
                if on_event(event) {
                    return wakes;
                }
            }
            let limit = Timespec {
                tv_sec: SURELY.as_secs() as _,
                tv_nsec: 0,
            };
            let ready = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&limit)).unwrap();
            assert_eq!(ready, 1, "nothing came in time");
            wakes += 1;
        }
    }
    between(
        |server, connection| {
            let mut came = 0;
            by_descriptor(&server, |event| match event {
                Event::Message { message, .. } => {
                    assert_eq!(*message, pattern(1000, came));
                    came += 1;
                    server.send(connection, 0, message.into_vec(), 0).unwrap();
                    false
                }
                Event::Sent { result, .. } => {
                    result.unwrap();
                    false
                }
                Event::Closed { .. } => true,
                other => panic!("unexpected: {other:?}"),
            });
            assert_eq!(came, ROUNDS);
        },
        |client, connection| {
            let mut round = 0;
            client.send(connection, 0, pattern(1000, 0), 0).unwrap();
            let wakes = by_descriptor(&client, |event| match event {
                Event::Message { message, .. } => {
                    assert_eq!(*message, pattern(1000, round));
                    round += 1;
                    if round < ROUNDS {
                        client.send(connection, 0, pattern(1000, round), 0).unwrap();
                    } else {
                        client.disconnect(connection).unwrap();
                    }
                    false
                }
                Event::Sent { result, .. } => {
                    result.unwrap();
                    false
                }
                Event::Closed { .. } => true,
                other => panic!("unexpected: {other:?}"),
            });
            // Some for each event and for what the transport does by itself; a descriptor that is
            // readable for ever gives thousands.
            assert!(wakes < 50 * ROUNDS, "{wakes} wake-ups for {ROUNDS} events");
        },
    );
}

#[test]
fn one_endpoint_serves_many_connections() {
    const CLIENTS: usize = 6;
    let key = Key::generate().unwrap();
    let server = EventEndpoint::new().unwrap();
    let uri = server.listen(ANYWHERE, &key).unwrap();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (uri, key) = (&uri, &key);
            scope.spawn(move || {
                let client = EventEndpoint::new().unwrap();
                let data = format!("client {number}");
                client
                    .connect(uri, key, Attributes::default(), data.as_bytes())
                    .unwrap();
                let connection = connected(&client);
                for round in 0..10u32 {
                    let question = pattern(100 * number, round as usize);
                    client.send(connection, round, question.clone(), 0).unwrap();
                    loop {
                        match next(&client) {
                            Event::Message { tag, message, .. } => {
                                assert_eq!((tag, &*message), (round, &*question));
                                break;
                            }
                            Event::Sent { result, .. } => result.unwrap(),
                            other => panic!("not an answer: {other:?}"),
                        }
                    }
                }
                client.disconnect(connection).unwrap();
                client.close(SURELY).unwrap();
            });
        }
        let (mut said, mut closed) = (Vec::new(), 0);
        while closed < CLIENTS {
            match next(&server) {
                Event::ConnectRequest {
                    connection, data, ..
                } => {
                    said.push(String::from_utf8(data).unwrap());
                    let attributes = Attributes::default();
                    server.accept(connection, attributes, b"welcome").unwrap();
                }
                Event::Message {
                    connection,
                    tag,
                    message,
                } => server.send(connection, tag, message.into_vec(), 0).unwrap(),
                Event::Closed { cause, .. } => {
                    assert!(matches!(cause, CloseCause::PeerLeft), "{cause:?}");
                    closed += 1;
                }
                Event::Sent { result, .. } => result.unwrap(),
                Event::Connected { .. } => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        said.sort();
        said.dedup();
        assert_eq!(said.len(), CLIENTS);
    });
}

#[test]
fn a_caller_may_be_rejected_and_who_never_answers_is_given_up() {
    let key = Key::generate().unwrap();
    let server = EventEndpoint::new().unwrap();
    let uri = server.listen(ANYWHERE, &key).unwrap();
    std::thread::scope(|scope| {
        let (uri, key) = (&uri, &key);
        let rejected = scope.spawn(move || {
            let client = EventEndpoint::new().unwrap();
            let attributes = Attributes::default();
            let asked = client.connect(uri, key, attributes, b"no").unwrap();
            match next(&client) {
                Event::ConnectFailed { connection, error } => {
                    assert_eq!((connection, error.code()), (asked, "G0404"));
                    assert!(error.to_string().contains("rejected"), "{error}");
                }
                other => panic!("not rejected: {other:?}"),
            }
            // Nobody answers this one.
            let limit = Duration::from_millis(300);
            client
                .connect_within(uri, key, attributes, b"wait", limit)
                .unwrap();
            match next(&client) {
                Event::ConnectFailed { error, .. } => assert_eq!(error.code(), "G0404"),
                other => panic!("not given up: {other:?}"),
            }
        });
        let mut waiting = None;
        while !rejected.is_finished() || waiting.is_none() {
            match server.next_event(Some(Duration::from_millis(5))).unwrap() {
                None => {}
                Some(Event::ConnectRequest {
                    connection, data, ..
                }) if data == b"no" => server.reject(connection).unwrap(),
                Some(Event::ConnectRequest { connection, .. }) => waiting = Some(connection),
                Some(other) => panic!("unexpected: {other:?}"),
            }
        }
        rejected.join().unwrap();
        // The caller is gone: that is found at once or with the look that takes it away.
        let refused = server.accept(waiting.unwrap(), Attributes::default(), b"");
        assert!(matches!(code(refused), "G0401" | "G0404"));
    });
}

#[test]
fn another_key_opens_nothing_and_strangers_harm_nobody() {
    let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
    let server = EventEndpoint::new().unwrap();
    let uri = server.listen(ANYWHERE, &key).unwrap();
    let address = uri.strip_prefix("garonne://").unwrap().to_string();
    std::thread::scope(|scope| {
        let (uri, key, address) = (&uri, &key, &address);
        let clients = scope.spawn(move || {
            // They say nothing, rubbish, or an endless first message.
            let silent = TcpStream::connect(address).unwrap();
            let mut rubbish = TcpStream::connect(address).unwrap();
            let _ = rubbish.write_all(&[0xff; 4096]);
            let client = EventEndpoint::new().unwrap();
            client
                .connect(uri, &other, Attributes::default(), b"")
                .unwrap();
            match next(&client) {
                Event::ConnectFailed { error, .. } => assert_eq!(error.code(), "G0404"),
                event => panic!("a wrong key was taken: {event:?}"),
            }
            client
                .connect(uri, key, Attributes::default(), b"")
                .unwrap();
            connected(&client);
            client.close(SURELY).unwrap();
            drop((silent, rubbish));
        });
        let connection = accept(&server, Attributes::default());
        match next(&server) {
            Event::Closed {
                connection: over, ..
            } => assert_eq!(over, connection),
            event => panic!("unexpected: {event:?}"),
        }
        clients.join().unwrap();
    });
}

#[test]
fn a_message_longer_than_agreed_is_refused_by_its_sender() {
    let attributes = {
        let mut attributes = Attributes::default();
        attributes.message_max = 1000;
        attributes
    };
    with_attributes(
        attributes,
        |server, _| loop {
            match next(&server) {
                Event::Message { message, .. } => assert_eq!(message.len(), 1000),
                Event::Closed { .. } => break,
                other => panic!("unexpected: {other:?}"),
            }
        },
        |client, connection| {
            assert_eq!(code(client.send(connection, 1, vec![0; 1001], 0)), "G0401");
            client.send(connection, 1, vec![0; 1000], 0).unwrap();
            client.close(SURELY).unwrap();
        },
    );
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let key = Key::generate().unwrap();
    let endpoint = EventEndpoint::new().unwrap();
    let attributes = Attributes::default();
    assert_eq!(code(endpoint.listen("tcp://127.0.0.1:0", &key)), "G0401");
    assert_eq!(
        code(endpoint.listen("garonne://192.0.2.1:1", &key)),
        "G0304"
    );
    let data = [0; CONNECT_DATA_MAX + 1];
    assert_eq!(
        code(endpoint.connect(ANYWHERE, &key, attributes, &data)),
        "G0401"
    );
    let mut lossy = attributes;
    lossy.delivery = Delivery::Datagram;
    let refused = endpoint.connect(ANYWHERE, &key, lossy, b"").unwrap_err();
    assert!(refused.to_string().contains("Datagram"), "{refused}");
    let nobody = ConnectionId::from_number(99);
    assert_eq!(code(endpoint.send(nobody, 1, b"", 0)), "G0401");
    assert_eq!(code(endpoint.disconnect(nobody)), "G0401");
    assert_eq!(code(endpoint.accept(nobody, attributes, b"")), "G0401");
    assert_eq!(code(endpoint.reject(nobody)), "G0401");
    assert_eq!(
        endpoint.next_event(Some(Duration::ZERO)).unwrap().map(drop),
        None
    );
    assert_eq!(code(Key::from_text("abc")), "G0401");
    assert_eq!(
        Key::from_text(&key.to_text()).unwrap().as_bytes(),
        key.as_bytes()
    );
    // A port at which nobody listens any more.
    let gone = EventEndpoint::new()
        .unwrap()
        .listen(ANYWHERE, &key)
        .unwrap();
    endpoint.connect(&gone, &key, attributes, b"").unwrap();
    match next(&endpoint) {
        Event::ConnectFailed { error, .. } => assert_eq!(error.code(), "G0404"),
        event => panic!("unexpected: {event:?}"),
    }
}

#[test]
fn the_death_of_a_peer_is_an_event() {
    const URI: &str = "GARONNE_TEST_EVENTS_URI";
    const TEST: &str = "the_death_of_a_peer_is_an_event";
    if let Ok(uri) = std::env::var(URI) {
        let mut key = String::new();
        std::io::stdin().read_to_string(&mut key).unwrap();
        let key = Key::from_text(&key).unwrap();
        let client = EventEndpoint::new().unwrap();
        client
            .connect(&uri, &key, Attributes::default(), b"")
            .unwrap();
        let connection = connected(&client);
        client.send(connection, 1, b"last words", 0).unwrap();
        // The other side answers, so all of it has arrived.
        while !matches!(next(&client), Event::Message { .. }) {}
        std::process::abort();
    }
    let key = Key::generate().unwrap();
    let server = EventEndpoint::new().unwrap();
    let uri = server.listen(ANYWHERE, &key).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([TEST, "--exact", "--nocapture"])
        .env(URI, uri)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(key.to_text().as_bytes()).unwrap();
    drop(pipe);
    let connection = accept(&server, Attributes::default());
    let begun = Instant::now();
    let mut heard = false;
    loop {
        match next(&server) {
            Event::Message { message, .. } => {
                assert_eq!(&*message, b"last words");
                heard = true;
                server.send(connection, 2, b"heard", 0).unwrap();
            }
            Event::Sent { .. } => {}
            Event::Closed {
                cause: CloseCause::PeerLost(error),
                ..
            } => {
                assert_eq!(error.code(), "G0403");
                break;
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
    assert!(heard && begun.elapsed() < SURELY);
    assert_eq!(code(server.send(connection, 2, b"too late", 0)), "G0401");
    assert!(!child.wait().unwrap().success());
}

/// The next event that is no end of a send.
fn next_news(endpoint: &EventEndpoint) -> Event {
    loop {
        match next(endpoint) {
            Event::Sent { result, .. } => result.unwrap(),
            other => return other,
        }
    }
}

fn message(endpoint: &EventEndpoint) -> Vec<u8> {
    match next_news(endpoint) {
        Event::Message { message, .. } => message.into_vec(),
        other => panic!("not a message: {other:?}"),
    }
}

/// Bytes and outcome of the access with this context, which is the next event.
fn access_done(endpoint: &EventEndpoint, expected: u64) -> Result<Vec<u8>> {
    match next_news(endpoint) {
        Event::AccessDone {
            context,
            bytes,
            result,
            ..
        } => {
            assert_eq!(context, expected);
            result.map(|()| bytes)
        }
        other => panic!("not the end of an access: {other:?}"),
    }
}

#[test]
fn memory_is_written_read_and_updated_from_afar_and_both_sides_learn_of_it() {
    const LEN: usize = 400_000;
    between(
        |server, connection| {
            let region = server.create_region(LEN).unwrap();
            let key = server
                .expose(connection, region, RegionRights::All)
                .unwrap();
            let again = server.expose(connection, region, RegionRights::Read);
            assert_eq!(code(again), "G0401");
            assert_eq!(code(server.remove_region(region)), "G0401");
            server.send(connection, 1, key.to_bytes(), 0).unwrap();
            match next_news(&server) {
                Event::Notified { number, .. } => assert_eq!(number, 77),
                other => panic!("not told: {other:?}"),
            }
            let mut bytes = vec![0; LEN - 8];
            server.read_region(region, 8, &mut bytes).unwrap();
            assert_eq!(bytes, pattern(LEN - 8, 3));
            assert_eq!(code(server.read_region(region, 9, &mut bytes)), "G0401");
            server.write_region(region, 8, &pattern(100, 9)).unwrap();
            server.send(connection, 2, b"written", 0).unwrap();
            assert_eq!(message(&server), b"read");
            let mut word = [0; 8];
            server.read_region(region, 0, &mut word).unwrap();
            assert_eq!(u64::from_ne_bytes(word), 42);
            server.withdraw(connection, region).unwrap();
            assert!(matches!(next_news(&server), Event::Withdrawn { .. }));
            server.remove_region(region).unwrap();
            assert_eq!(code(server.withdraw(connection, region)), "G0401");
            server.send(connection, 3, b"gone", 0).unwrap();
            while !matches!(next_news(&server), Event::Closed { .. }) {}
        },
        |client, connection| {
            let key = RegionKey::from_bytes(&message(&client)).unwrap();
            assert_eq!(key.len(), LEN as u64);
            let bytes = pattern(LEN - 8, 3);
            client
                .put(connection, (&key, 8), bytes.clone(), 1, Some(77))
                .unwrap();
            client.fence(connection, 2).unwrap();
            assert_eq!(access_done(&client, 1).unwrap(), bytes);
            assert_eq!(access_done(&client, 2).unwrap(), b"");
            assert_eq!(message(&client), b"written");
            client.get(connection, (&key, 8), 100, 3, None).unwrap();
            assert_eq!(access_done(&client, 3).unwrap(), pattern(100, 9));
            for (context, old) in [(4, 0u64), (5, 21)] {
                client
                    .fetch_add(connection, (&key, 0), 21, context, None)
                    .unwrap();
                assert_eq!(access_done(&client, context).unwrap(), old.to_ne_bytes());
            }
            let beyond = client.get(connection, (&key, 9), LEN - 8, 6, None);
            assert_eq!(code(beyond), "G0401");
            let huge = client.get(connection, (&key, 0), usize::MAX, 6, None);
            assert_eq!(code(huge), "G0401");
            client.send(connection, 4, b"read", 0).unwrap();
            assert_eq!(message(&client), b"gone");
            // The key is of no use any more, and the connection goes on.
            client.put(connection, (&key, 0), b"late", 7, None).unwrap();
            assert_eq!(code(access_done(&client, 7)), "G0401");
            client.close(SURELY).unwrap();
        },
    );
}

#[test]
fn a_key_allows_what_it_says_and_an_end_ends_all_accesses() {
    between(
        |server, connection| {
            let region = server.create_region(64).unwrap();
            let key = server.expose(connection, region, RegionRights::Read);
            server
                .send(connection, 1, key.unwrap().to_bytes(), 0)
                .unwrap();
            assert_eq!(message(&server), b"end");
            // Dropped without a word, with the region exposed.
        },
        |client, connection| {
            let key = RegionKey::from_bytes(&message(&client)).unwrap();
            let refused = client.put(connection, (&key, 0), b"x", 1, None);
            assert_eq!(code(refused), "G0401");
            let refused = client.fetch_add(connection, (&key, 0), 1, 1, None);
            assert_eq!(code(refused), "G0401");
            client.get(connection, (&key, 0), 64, 1, None).unwrap();
            assert_eq!(access_done(&client, 1).unwrap(), [0; 64]);
            client.send(connection, 1, b"end", 0).unwrap();
            match next_news(&client) {
                Event::Closed { cause, .. } => {
                    assert!(matches!(cause, CloseCause::PeerLeft), "{cause:?}");
                }
                other => panic!("unexpected: {other:?}"),
            }
            let late = client.get(connection, (&key, 0), 64, 2, None);
            assert_eq!(code(late), "G0401");
        },
    );
}
