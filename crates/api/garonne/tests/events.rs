//! Endpoints with event queues: two in one process, driven by two threads, or in two processes.

use garonne::{
    Attributes, CONNECT_DATA_MAX, CloseCause, ConnectionId, Delivery, Event, EventEndpoint, Key,
    Result,
};
use std::io::{Read, Write};
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
            let end = next(&server);
            assert!(
                matches!(
                    &end,
                    Event::Closed {
                        cause: CloseCause::PeerLeft,
                        ..
                    }
                ),
                "{end:?}"
            );
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
            let end = next(&client);
            assert!(
                matches!(
                    &end,
                    Event::Closed {
                        cause: CloseCause::Closed,
                        ..
                    }
                ),
                "{end:?}"
            );
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
