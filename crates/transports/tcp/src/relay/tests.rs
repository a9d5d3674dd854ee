//! Calls through a host between, what is passed on, who is not let through, and how two meet there.

use super::relayed_connection::side_of;
use super::*;
use crate::frame::{ProcessId, RejectReason, StreamNumber};
use crate::handshake::{self, LocalIdentity, SECRET_BYTES};
use crate::relay_protocol;
use crate::test_support::ClosedPort;
use garonne_transport::limits::{RELAY_HALF_LIMIT, TCP_CONNECT_LIMIT};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpStream};
use std::time::Duration;

const JOB: [u8; 16] = [5; 16];

fn listener() -> (TcpListener, SocketAddr) {
    let listener = crate::listen(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A relay of the job, where it is called, and what its callers have to know.
fn relay() -> (Relay, SocketAddr, Secret) {
    let secret = Secret::generate().unwrap();
    let (port, here) = listener();
    (Relay::new(port, secret.clone(), JOB).unwrap(), here, secret)
}

/// The bytes of rank 0's call to rank 3.
fn call(secret: &Secret, job: [u8; 16]) -> Vec<u8> {
    call_of(secret, job, (0, 3))
}

fn call_of(secret: &Secret, job: [u8; 16], (from, to): (u32, u32)) -> Vec<u8> {
    let me = ProcessId {
        job,
        world: 0,
        rank: from,
        incarnation: 0,
    };
    let identity = LocalIdentity::new(secret.clone(), me, false);
    handshake::Initiator::call(&identity, (to, 0), StreamNumber::Small)
        .unwrap()
        .1
}

/// Has the relay turn until `done` gives something.
fn until<T>(
    relay: &mut Relay,
    lead: &dyn Fn(u32, u32) -> RelayDirection,
    mut done: impl FnMut() -> Option<T>,
) -> T {
    let limit = Instant::now() + Duration::from_secs(20);
    loop {
        relay.turn(Instant::now(), lead);
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
    let (mut relay, here, secret) = relay();
    let (rank, at) = listener();
    let (_closed, nobody) = {
        let (listener, address) = listener();
        drop(listener);
        ((), address)
    };
    // The first address leads nowhere.
    let lead = |_, rank: u32| {
        let addresses = match rank {
            3 => vec![nobody, at],
            _ => Vec::new(),
        };
        RelayDirection::To(addresses.into())
    };
    let mut caller = TcpStream::connect(here).unwrap();
    let opening = call(&secret, JOB);
    let (first, rest) = opening.split_at(opening.len() / 2);
    caller.write_all(first).unwrap();
    relay.turn(Instant::now(), &lead);
    caller.write_all(rest).unwrap();
    rank.set_nonblocking(true).unwrap();
    let mut called = until(&mut relay, &lead, || rank.accept().ok()).0;
    caller.set_nonblocking(true).unwrap();
    called.set_nonblocking(true).unwrap();

    let data: Vec<u8> = (0..3_000_000u32).map(|at| ((at * 7) >> 3) as u8).collect();
    let (mut sent, mut there, mut back, mut answered) = (0, Vec::new(), Vec::new(), 0);
    until(&mut relay, &lead, || {
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
    assert_eq!(relay.relayed_connections(), (1, 1));
    drop(called);
    until(&mut relay, &lead, || {
        take(&mut caller, &mut back).then_some(())
    });
    until(&mut relay, &lead, || Some(()));
    assert_eq!(relay.relayed_connections(), (0, 1));
}

#[test]
fn addresses_of_last_resort_are_called_when_the_others_lead_nowhere_and_only_then() {
    let (rank, at) = listener();
    let (other, beside) = listener();
    let gone = {
        let (listener, address) = listener();
        drop(listener);
        address
    };
    rank.set_nonblocking(true).unwrap();
    other.set_nonblocking(true).unwrap();
    for (preferred, fallback) in [
        (vec![gone], vec![at]),
        (vec![], vec![at]),
        (vec![at], vec![beside]),
    ] {
        let (mut relay, here, secret) = relay();
        let lead = |_, _| {
            RelayDirection::To(CalledAddresses {
                preferred: preferred.clone(),
                fallback: fallback.clone(),
            })
        };
        let mut caller = TcpStream::connect(here).unwrap();
        let opening = call(&secret, JOB);
        caller.write_all(&opening).unwrap();
        let mut called = until(&mut relay, &lead, || rank.accept().ok()).0;
        called.set_nonblocking(true).unwrap();
        let mut got = Vec::new();
        until(&mut relay, &lead, || {
            take(&mut called, &mut got);
            (got.len() == opening.len()).then_some(())
        });
        assert_eq!(got, opening);
        assert!(other.accept().is_err(), "it was not needed");
    }
}

#[test]
fn a_call_whose_caller_has_hung_up_is_not_passed_on() {
    let (mut relay, here, secret) = relay();
    let hole = ClosedPort::new();
    let lead = |_, _| RelayDirection::To(vec![hole.at].into());
    let mut caller = TcpStream::connect(here).unwrap();
    caller.write_all(&call(&secret, JOB)).unwrap();
    while !relay
        .relayed_connections
        .iter()
        .flatten()
        .any(RelayedConnection::calls)
    {
        relay.turn(Instant::now(), &lead);
    }
    let hung_up = Instant::now();
    drop(caller);
    while relay.relayed_connections().0 > 0 {
        relay.turn(Instant::now(), &lead);
    }
    assert!(hung_up.elapsed() < TCP_CONNECT_LIMIT / 2, "not for that");
}

#[test]
fn unauthenticated_callers_and_other_jobs_get_no_further() {
    let (mut relay, here, secret) = relay();
    let (_rank, at) = listener();
    let lead = |_, _| -> RelayDirection { panic!("nobody may be called: {at}") };
    let other = Secret::generate().unwrap();
    for bytes in [
        call(&other, JOB),
        call(&secret, [6; 16]),
        b"GET / HTTP/1.1\r\n".to_vec(),
    ] {
        let mut caller = TcpStream::connect(here).unwrap();
        caller.write_all(&bytes).unwrap();
        caller.set_nonblocking(true).unwrap();
        until(&mut relay, &lead, || match caller.read(&mut [0; 1]) {
            Ok(0) => Some(()),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(()),
            _ => None,
        });
    }
    assert_eq!(relay.relayed_connections(), (0, 3));
}

#[test]
fn many_who_say_nothing_leave_a_place_for_who_does() {
    let (mut relay, here, secret) = relay();
    let (rank, at) = listener();
    let lead = |_, _| RelayDirection::To(vec![at].into());
    let mut mute = Vec::new();
    for _ in 0..RELAY_UNIDENTIFIED_MAX + 10 {
        mute.push(TcpStream::connect(here).unwrap());
        relay.turn(Instant::now(), &lead);
    }
    let mut caller = TcpStream::connect(here).unwrap();
    caller.write_all(&call(&secret, JOB)).unwrap();
    rank.set_nonblocking(true).unwrap();
    until(&mut relay, &lead, || rank.accept().ok());
    assert!(relay.relayed_connections().0 <= RELAY_UNIDENTIFIED_MAX + 1);
}

/// One that calls from another address than the others.
fn connect_from(last: u8, here: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType};
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    rustix::net::connect(&socket, &here).unwrap();
    TcpStream::from(socket)
}

#[test]
fn many_who_say_nothing_leave_the_place_of_one_from_elsewhere_that_computes() {
    let (mut relay, here, secret) = relay();
    let (rank, at) = listener();
    let lead = |_, _| RelayDirection::To(vec![at].into());
    // Its connection stands, and its call leaves when it looks again.
    let mut caller = connect_from(2, here);
    let mute: Vec<TcpStream> = (0..2 * RELAY_UNIDENTIFIED_MAX)
        .map(|_| {
            relay.turn(Instant::now(), &lead);
            TcpStream::connect(here).unwrap()
        })
        .collect();
    for _ in 0..mute.len() {
        relay.turn(Instant::now(), &lead);
    }
    caller.write_all(&call(&secret, JOB)).unwrap();
    rank.set_nonblocking(true).unwrap();
    until(&mut relay, &lead, || rank.accept().ok());
    assert!(relay.relayed_connections().0 <= RELAY_UNIDENTIFIED_MAX + 1);
}

#[test]
fn who_calls_from_many_addresses_of_one_network_comes_in_a_crowd_too() {
    let (mut relay, here, _) = relay();
    let mute: Vec<TcpStream> = (0..RELAY_UNIDENTIFIED_MAX)
        .map(|_| TcpStream::connect(here).unwrap())
        .collect();
    while relay.relayed_connections().0 < RELAY_UNIDENTIFIED_MAX {
        relay.turn(Instant::now(), &meets);
    }
    // The first computes.
    let mut leaves = |of: &dyn Fn(u16) -> Ipv6Addr| {
        for (place, relayed) in (0..).zip(&mut relay.relayed_connections) {
            if let Some(RelayedConnection::Hearing(unheard)) = relayed {
                unheard.from = Some(side_of(of(place).into()));
            }
        }
        relay.crowded().unwrap()
    };
    let six = |place: u16| Ipv6Addr::new(0xfd00, 0, 0, place.min(1), 0, 0, 0, place);
    assert_eq!(leaves(&six), 1);
    // Nor are all addresses of IPv4 one side, as a socket of IPv6 shows them.
    let four = |place: u16| Ipv4Addr::from(u32::from(place.min(1))).to_ipv6_mapped();
    assert_eq!(leaves(&four), 1);
    drop(mute);
}

#[test]
fn a_call_that_is_here_is_heard_before_its_place_is_another_s() {
    let (mut relay, here, secret) = relay();
    let (rank, at) = listener();
    let lead = |_, _| RelayDirection::To(vec![at].into());
    let mut caller = TcpStream::connect(here).unwrap();
    let mut mute = Vec::new();
    for _ in 1..RELAY_UNIDENTIFIED_MAX {
        relay.turn(Instant::now(), &lead);
        mute.push(TcpStream::connect(here).unwrap());
    }
    while relay.relayed_connections().0 < RELAY_UNIDENTIFIED_MAX {
        relay.turn(Instant::now(), &lead);
    }
    // The kernel tells of the one who comes first.
    mute.push(TcpStream::connect(here).unwrap());
    caller.write_all(&call(&secret, JOB)).unwrap();
    rank.set_nonblocking(true).unwrap();
    until(&mut relay, &lead, || rank.accept().ok());
    assert_eq!(relay.relayed_connections().0, RELAY_UNIDENTIFIED_MAX + 1);
}

#[test]
fn who_says_nothing_is_cut_when_its_time_is_over() {
    let (mut relay, here, _secret) = relay();
    let mute = TcpStream::connect(here).unwrap();
    until(&mut relay, &meets, || Some(()));
    while relay.relayed_connections().0 == 0 {
        relay.turn(Instant::now(), &meets);
    }
    relay.turn(Instant::now() + RELAY_HALF_LIMIT, &meets);
    assert_eq!(relay.relayed_connections(), (0, 1));
    drop(mute);
}

#[test]
fn an_end_that_has_failed_while_the_other_is_silent_keeps_nobody_busy() {
    let (mut relay, here, secret) = relay();
    let (rank, at) = listener();
    let lead = |_, _| RelayDirection::To(vec![at].into());
    let mut caller = TcpStream::connect(here).unwrap();
    caller.write_all(&call(&secret, JOB)).unwrap();
    rank.set_nonblocking(true).unwrap();
    let mut called = until(&mut relay, &lead, || rank.accept().ok()).0;
    called.set_nonblocking(true).unwrap();
    // The caller is gone, and what still goes to it is answered by a reset; the called one does not
    // look, and closes nothing.
    drop(caller);
    let mut got = Vec::new();
    until(&mut relay, &lead, || {
        take(&mut called, &mut got).then_some(())
    });
    called.write_all(b"word").unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut turns = 0;
    while relay.is_called() {
        relay.turn(Instant::now(), &lead);
        turns += 1;
        assert!(turns < 100, "it turns for nothing");
    }
}

/// One that calls where two are to meet.
struct Party {
    socket: TcpStream,
    call: Vec<u8>,
    got: Vec<u8>,
}

impl Party {
    fn new(here: SocketAddr, secret: &Secret, pair: (u32, u32)) -> Self {
        let mut socket = TcpStream::connect(here).unwrap();
        let call = call_of(secret, JOB, pair);
        socket.write_all(&call).unwrap();
        socket.set_nonblocking(true).unwrap();
        let got = Vec::new();
        Self { socket, call, got }
    }

    /// Returns whether exactly this has come.
    fn has(&mut self, all: &[&[u8]]) -> bool {
        take(&mut self.socket, &mut self.got);
        self.got == all.concat()
    }
}

fn meets(_: u32, _: u32) -> RelayDirection {
    RelayDirection::Meeting
}

#[test]
fn two_that_call_each_other_are_joined_and_the_higher_is_the_called_one() {
    let [waits, turn] = [RejectReason::Waits, RejectReason::Turn].map(relay_protocol::word);
    for (first, second) in [((1, 2), (2, 1)), ((2, 1), (1, 2))] {
        let (mut relay, here, secret) = relay();
        let mut one = Party::new(here, &secret, first);
        until(&mut relay, &meets, || one.has(&[&waits]).then_some(()));
        // Nobody else is met, though it calls the same rank.
        let mut third = Party::new(here, &secret, (3, 1));
        until(&mut relay, &meets, || third.has(&[&waits]).then_some(()));
        let mut other = Party::new(here, &secret, second);
        let call = if first.0 < second.0 {
            one.call.clone()
        } else {
            other.call.clone()
        };
        until(&mut relay, &meets, || match first.0 < second.0 {
            true => other.has(&[&turn, &call]).then_some(()),
            false => one.has(&[&waits, &turn, &call]).then_some(()),
        });
        // The lower one is told that it is kept in any case: it is not known yet whether the other
        // is who it says.
        let lower = if first.0 < second.0 {
            &mut one
        } else {
            &mut other
        };
        until(&mut relay, &meets, || lower.has(&[&waits]).then_some(()));
        one.socket.write_all(b"from the first").unwrap();
        other.socket.write_all(b"from the second").unwrap();
        until(&mut relay, &meets, || {
            take(&mut one.socket, &mut one.got);
            take(&mut other.socket, &mut other.got);
            let all =
                one.got.ends_with(b"from the second") && other.got.ends_with(b"from the first");
            all.then_some(())
        });
        assert_eq!(relay.relayed_connections(), (2, 3));
        // The end of one is the other's, and leaves the third alone.
        drop(one);
        until(&mut relay, &meets, || {
            take(&mut other.socket, &mut other.got).then_some(())
        });
        drop(other);
        until(&mut relay, &meets, || Some(()));
        assert!(third.has(&[&waits]));
    }
}

#[test]
fn who_is_not_met_in_time_is_sent_away_and_costs_nothing_more() {
    let (mut relay, here, secret) = relay();
    let waits = relay_protocol::word(RejectReason::Waits);
    let mut one = Party::new(here, &secret, (1, 2));
    until(&mut relay, &meets, || one.has(&[&waits]).then_some(()));
    assert_eq!(relay.relayed_connections().0, 1);
    relay.turn(Instant::now() + RELAY_HALF_LIMIT, &meets);
    assert_eq!(relay.relayed_connections().0, 0);
    until(&mut relay, &meets, || {
        take(&mut one.socket, &mut one.got).then_some(())
    });
}

#[test]
fn who_hangs_up_says_more_or_calls_again_while_it_waits_is_met_no_more() {
    let (mut relay, here, secret) = relay();
    let [waits, turn] = [RejectReason::Waits, RejectReason::Turn].map(relay_protocol::word);
    let came = |relay: &mut Relay, party: &mut Party| {
        until(relay, &meets, || party.has(&[&waits]).then_some(()))
    };
    let mut gone = Party::new(here, &secret, (1, 2));
    came(&mut relay, &mut gone);
    drop(gone);
    let mut eager = Party::new(here, &secret, (1, 2));
    came(&mut relay, &mut eager);
    eager.socket.write_all(b"x").unwrap();
    until(&mut relay, &meets, || {
        take(&mut eager.socket, &mut eager.got).then_some(())
    });
    let (mut before, mut again) = (Party::new(here, &secret, (1, 2)), None);
    came(&mut relay, &mut before);
    let again = again.insert(Party::new(here, &secret, (1, 2)));
    came(&mut relay, again);
    until(&mut relay, &meets, || {
        take(&mut before.socket, &mut before.got).then_some(())
    });
    assert_eq!(relay.relayed_connections().0, 1);
    let mut other = Party::new(here, &secret, (2, 1));
    let call = again.call.clone();
    until(&mut relay, &meets, || {
        other.has(&[&turn, &call]).then_some(())
    });
}

#[test]
fn unauthenticated_callers_and_whoever_calls_itself_are_kept_by_nobody() {
    let (mut relay, here, secret) = relay();
    let other = Secret::from_bytes(&[7; SECRET_BYTES]);
    for mut party in [
        Party::new(here, &other, (1, 2)),
        Party::new(here, &secret, (1, 1)),
    ] {
        until(&mut relay, &meets, || {
            take(&mut party.socket, &mut party.got).then_some(())
        });
        assert!(party.got.is_empty());
    }
    assert_eq!(relay.relayed_connections(), (0, 2));
}

/// A relay at which so many wait for rank 0 as may.
fn crowd() -> (Relay, SocketAddr, Secret, Vec<Party>) {
    let (mut relay, here, secret) = relay();
    let waits = relay_protocol::word(RejectReason::Waits);
    let mut parties: Vec<Party> = Vec::new();
    for from in 1..=RELAYED_CONNECTIONS_MAX as u32 {
        let mut party = Party::new(here, &secret, (from, 0));
        until(&mut relay, &meets, || party.has(&[&waits]).then_some(()));
        parties.push(party);
    }
    assert_eq!(relay.relayed_connections().0, RELAYED_CONNECTIONS_MAX);
    (relay, here, secret, parties)
}

#[test]
fn however_many_wait_the_one_called_comes_to_who_waits_for_it() {
    let (mut relay, here, secret, mut parties) = crowd();
    let mute: Vec<TcpStream> = (0..RELAY_UNIDENTIFIED_MAX + 10)
        .map(|_| TcpStream::connect(here).unwrap())
        .collect();
    let [waits, turn] = [RejectReason::Waits, RejectReason::Turn].map(relay_protocol::word);
    for first in [0, RELAYED_CONNECTIONS_MAX - 1] {
        let mut called = Party::new(here, &secret, (0, first as u32 + 1));
        let first = &mut parties[first];
        until(&mut relay, &meets, || {
            first.has(&[&waits, &turn, &called.call]).then_some(())
        });
        assert!(called.has(&[&waits]));
    }
    drop(mute);
}

#[test]
fn who_has_waited_for_the_longest_gives_way_to_who_comes() {
    let (mut relay, here, secret, mut parties) = crowd();
    let waits = relay_protocol::word(RejectReason::Waits);
    let mut late = Party::new(here, &secret, (RELAYED_CONNECTIONS_MAX as u32 + 1, 0));
    until(&mut relay, &meets, || late.has(&[&waits]).then_some(()));
    let oldest = &mut parties[0];
    until(&mut relay, &meets, || {
        take(&mut oldest.socket, &mut oldest.got).then_some(())
    });
    // It knows that it was kept, and calls again.
    assert!(oldest.got == waits);
    assert!(parties[1..].iter_mut().all(|party| party.has(&[&waits])));
    // So it is where a call goes on to the one that is called.
    let (_rank, at) = listener();
    let lead = |_, _| RelayDirection::To(vec![at].into());
    let passes = Party::new(here, &secret, (7, 8));
    let oldest = &mut parties[1];
    until(&mut relay, &lead, || {
        take(&mut oldest.socket, &mut oldest.got).then_some(())
    });
    assert_eq!(relay.relayed_connections().0, RELAYED_CONNECTIONS_MAX);
    relay.turn(Instant::now() + RELAY_HALF_LIMIT, &meets);
    relay.turn(Instant::now(), &meets);
    assert_eq!(relay.relayed_connections().0, 1);
    drop(passes);
}

/// Set in a process of its own, which may have as few descriptors as it likes.
const ALONE: &str = "GARONNE_TEST_ALONE";

#[test]
fn a_host_between_without_descriptors_rests_and_takes_the_call_later() {
    if std::env::var_os(ALONE).is_none() {
        let name =
            "relay::tests::a_host_between_without_descriptors_rests_and_takes_the_call_later";
        let this = std::env::current_exe().unwrap();
        let mut alone = std::process::Command::new(this);
        let ended = alone
            .args(["--exact", name])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stdout).into_owned();
        return assert!(
            ended.status.success() && said.contains("1 passed"),
            "{said}"
        );
    }
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (mut relay, here, secret) = relay();
    let mut one = Party::new(here, &secret, (1, 2));
    let may = getrlimit(Resource::Nofile);
    // As many as one is waited for with.
    let none = Rlimit {
        current: Some(1),
        ..may
    };
    setrlimit(Resource::Nofile, none).unwrap();
    let mut turns = 0;
    while relay.is_called() {
        relay.turn(Instant::now(), &meets);
        turns += 1;
        assert!(turns < 100, "it turns for nothing");
    }
    assert_eq!(relay.relayed_connections(), (0, 0));
    setrlimit(Resource::Nofile, may).unwrap();
    let waits = relay_protocol::word(RejectReason::Waits);
    until(&mut relay, &meets, || one.has(&[&waits]).then_some(()));
}

#[test]
fn who_has_hung_up_unseen_is_met_by_nobody() {
    let (mut relay, here, secret) = relay();
    let [waits, turn] = [RejectReason::Waits, RejectReason::Turn].map(relay_protocol::word);
    let mut gone = Party::new(here, &secret, (1, 2));
    until(&mut relay, &meets, || gone.has(&[&waits]).then_some(()));
    let mut socket = TcpStream::connect(here).unwrap();
    socket.set_nonblocking(true).unwrap();
    while relay.relayed_connections().0 < 2 {
        relay.turn(Instant::now(), &meets);
    }
    // The kernel tells of the call first, and then of the end.
    let call = call_of(&secret, JOB, (2, 1));
    socket.write_all(&call).unwrap();
    drop(gone);
    let mut other = Party {
        socket,
        call,
        got: Vec::new(),
    };
    until(&mut relay, &meets, || other.has(&[&waits]).then_some(()));
    let mut again = Party::new(here, &secret, (1, 2));
    until(&mut relay, &meets, || {
        other.has(&[&waits, &turn, &again.call]).then_some(())
    });
    assert!(again.has(&[&waits]));
}

#[test]
fn an_address_that_falls_silent_once_for_several_or_hours_later_does_not_do_so_again() {
    let (address, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
    let after = |seconds| {
        let (mut silent, begun) = (VecDeque::new(), Instant::now());
        assert!(!fell_again(&mut silent, address, begun));
        assert!(!fell_again(&mut silent, other, begun));
        fell_again(&mut silent, address, begun + Duration::from_secs(seconds))
    };
    assert_eq!(
        [0, 2, 10, 20, 3600].map(after),
        [false, false, true, true, false]
    );
    let mut silent = VecDeque::new();
    for n in 0..2 * TCP_SHORT_PACKET_ADDRESSES as u32 {
        fell_again(&mut silent, IpAddr::from(n.to_be_bytes()), Instant::now());
    }
    assert_eq!(silent.len(), TCP_SHORT_PACKET_ADDRESSES);
}
