//! Calls of an agent at addresses of which some lead nowhere.

use super::*;
use garonne_job::limits::BUSY_WAIT;
use garonne_tcp::agent_channel;
use garonne_tcp::agent_channel::PendingChannels;
use garonne_tcp::{Secret, listen};
use std::os::fd::AsFd;

/// The node whose agent calls.
fn heard(pending: &mut PendingChannels) -> Option<u32> {
    let until = Instant::now() + CALL_WAIT;
    while Instant::now() < until {
        pending.open(&mut |_, _| true);
        if let Some((node, _)) = (0..4).find_map(|place| pending.look(place, |_| true)) {
            return Some(node);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    None
}

#[test]
fn of_a_host_that_others_cannot_reach_it_is_said_what_it_has() {
    let identity = agent_channel::identity(Secret::from_bytes(&[3; 32]), [1; 16], 1);
    // Nobody listens there: it was taken, and is free again.
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let said = |node, addresses: &[&str]| {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        let whom = ConnectTarget {
            node,
            name: "up",
            port,
            busy_retry: Duration::ZERO,
            starter: None,
        };
        connect_to(&identity, &addresses, &whom)
            .unwrap_err()
            .to_string()
    };
    let scoped = said(0, &["127.0.0.1", "fe80::1", "fe80::2"]);
    let whole = "the launcher's host has no address that other hosts can use: its interfaces have only link-local ones (fe80::1, fe80::2)";
    assert!(
        scoped.contains(whole) && scoped.contains("127.0.0.1:"),
        "{scoped}"
    );
    let none = said(3, &[]);
    let whole = "host 'up', whose agent this one reports to, has no address that other hosts can use: its interfaces have none";
    assert!(none.ends_with(whole), "{none}");
    let some = said(0, &["127.0.0.1", "127.0.0.2"]);
    assert!(
        some.contains("its interfaces have none, and what it has for itself"),
        "{some}"
    );
}

#[test]
fn who_is_cut_off_among_many_calls_again_and_who_has_another_secret_is_told() {
    let secret = || Secret::from_bytes(&[3; 32]);
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let first = std::thread::spawn(move || {
        let wait = |fd| {
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
            rustix::event::poll(&mut fds, None).unwrap();
        };
        for _ in 0..3 {
            wait(listener.as_fd());
            drop(listener.accept().unwrap());
        }
        let mut pending =
            PendingChannels::new(agent_channel::identity(secret(), [1; 16], 0), listener);
        heard(&mut pending)
    });
    // Two calls at a time.
    let identity = agent_channel::identity(secret(), [1; 16], 5);
    assert!(
        connect_any(
            &identity,
            &[address, address],
            (0, ConnectDeadlines::with_key())
        )
        .is_ok()
    );
    assert_eq!(first.join().unwrap(), Some(5));

    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let first = std::thread::spawn({
        let over = over.clone();
        move || {
            let mut pending = PendingChannels::new(
                agent_channel::identity(Secret::from_bytes(&[4; 32]), [1; 16], 0),
                listener,
            );
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                pending.open(&mut |_, _| true);
                assert!((0..4).all(|place| pending.look(place, |_| true).is_none()));
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    let missed = connect_any(&identity, &[address], (0, ConnectDeadlines::with_key())).unwrap_err();
    assert_eq!(missed.cut, Some(address));
    let failures = missed.tried;
    assert!(
        failures.len() == 1 && failures[0].contains("cut the call off"),
        "{failures:?}"
    );
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    first.join().unwrap();
}

#[test]
fn who_is_kept_for_longer_than_cut_calls_are_made_again_and_then_cut_off_calls_once_more() {
    let secret = || Secret::from_bytes(&[3; 32]);
    let listener = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let first = std::thread::spawn(move || {
        let mut fds = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
        rustix::event::poll(&mut fds, None).unwrap();
        drop(listener.accept().unwrap());
        let mut pending =
            PendingChannels::new(agent_channel::identity(secret(), [1; 16], 0), listener);
        heard(&mut pending)
    });
    let identity = agent_channel::identity(secret(), [1; 16], 5);
    let patience = ConnectDeadlines {
        reset_retry: Duration::ZERO,
        ..ConnectDeadlines::with_key()
    };
    assert!(connect_any(&identity, &[address], (0, patience)).is_ok());
    assert_eq!(first.join().unwrap(), Some(5));
}

#[test]
fn who_is_not_there_yet_is_called_again_and_nobody_is_when_the_sender_has_let_go() {
    let own = SocketAddr::from(([127, 0, 0, 1], 0));
    let free = || listen(own).unwrap().local_addr().unwrap();
    let address = free();
    let first = std::thread::spawn(move || {
        // After the first calls, which nobody takes.
        std::thread::sleep(Duration::from_millis(300));
        let mut pending = PendingChannels::new(
            agent_channel::identity(Secret::from_bytes(&[3; 32]), [1; 16], 0),
            listen(address).unwrap(),
        );
        heard(&mut pending)
    });
    let identity = agent_channel::identity(Secret::from_bytes(&[3; 32]), [1; 16], 5);
    let (input, sender) = rustix::pipe::pipe().unwrap();
    let patience = ConnectDeadlines {
        reset_retry: BUSY_WAIT,
        unreachable_retry: CALL_WAIT,
        beside: false,
        starter: Some(input.as_fd()),
    };
    assert!(connect_any(&identity, &[address], (0, patience)).is_ok());
    assert_eq!(first.join().unwrap(), Some(5));

    drop(sender);
    let missed = connect_any(&identity, &[free()], (0, patience)).unwrap_err();
    assert_eq!(missed.tried.len(), 1, "{missed:?}");
}

#[test]
fn who_takes_a_call_and_says_nothing_keeps_nobody_from_reaching_another() {
    let identity = agent_channel::identity(Secret::from_bytes(&[3; 32]), [1; 16], 1);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let at = place.local_addr().unwrap();
    drop(place);
    let addresses = [silent.local_addr().unwrap(), at];
    let reaching = std::thread::spawn(move || {
        connect_any(&identity, &addresses, (0, ConnectDeadlines::with_key()))
    });
    // Nobody listened at the other place when the calls began.
    let _silent = silent.accept().unwrap();
    std::thread::sleep(CUT_PAUSE);
    let expected = agent_channel::identity(Secret::from_bytes(&[3; 32]), [1; 16], 0);
    let mut pending = PendingChannels::new(expected, listen(at).unwrap());
    assert!(heard(&mut pending).is_some());
    assert_eq!(reaching.join().unwrap().unwrap().1, at);
}
