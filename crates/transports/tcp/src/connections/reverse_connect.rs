//! What a rank does that is asked for its call while it has one under way, or is connected as it
//! seems to it.

use super::*;
use crate::agent_channel::{ChannelConnect, ConnectOutcome, identity_of_asking};
use crate::frame::{CALL, FIRST, PREFIX, ProcessId, RejectReason, SECOND};
use crate::handshake::Initiator;
use crate::relay::{Relay, RelayDirection};
use crate::relay_protocol;
use crate::test_support::{ClosedPort, TestDirectory};
use crate::{Secret, TcpTransport, listen};
use garonne_engine::transport::{PacketClass, Transport};
use garonne_transport::conformance::{RecordedEvents, send};
use garonne_transport::limits::{
    RELAY_HALF_LIMIT, TCP_GIVE_WAY_AFTER, TCP_RELAYED_REQUEST_EVERY, TCP_REVERSE_CONNECT_EVERY,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

const JOB: [u8; 16] = [1; 16];

/// Returns the directory of two that may have a second network in common, and may be hidden from
/// each other.
fn directory(at: [SocketAddr; 2], first: Option<SocketAddr>) -> Arc<TestDirectory> {
    Arc::new(TestDirectory {
        first,
        networks: AtomicUsize::new(2),
        hidden: true,
        ..TestDirectory::at(at)
    })
}

fn identity(secret: &Secret, rank: Peer) -> LocalIdentity {
    let me = ProcessId {
        job: JOB,
        world: 0,
        rank,
        incarnation: 0,
    };
    LocalIdentity::new(secret.clone(), me, false)
}

/// Rank 0, which has something to say to rank 1, and whoever is at rank 1's address.
struct Scene {
    secret: Secret,
    transport: TcpTransport,
    directory: Arc<TestDirectory>,
    here: SocketAddr,
    there: TcpListener,
    asks: Vec<ChannelConnect>,
}

impl Scene {
    fn new() -> Self {
        Self::with(None)
    }

    fn with(first: Option<SocketAddr>) -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let (listener, there) = (listen(any).unwrap(), listen(any).unwrap());
        let at = [&listener, &there].map(|listener| listener.local_addr().unwrap());
        let directory = directory(at, first);
        let secret = Secret::generate().unwrap();
        let mut transport =
            TcpTransport::new(identity(&secret, 0), directory.clone(), listener).unwrap();
        send(&mut transport, 1, b"word", 0, PacketClass::Data).unwrap();
        Self {
            secret,
            transport,
            directory,
            here: at[0],
            there,
            asks: Vec::new(),
        }
    }

    fn poll(&mut self) {
        self.transport.poll(16, &mut RecordedEvents::default());
        self.asks
            .retain_mut(|ask| matches!(ask.look(), ConnectOutcome::Waits));
        std::thread::sleep(Duration::from_micros(200));
    }

    /// Polls until `done` gives something, for longer than any delay of a machine with too much to
    /// do.
    fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        for _ in 0..100_000 {
            if let Some(done) = done(self) {
                return done;
            }
            self.poll();
        }
        panic!("it never came");
    }

    /// Rank 1's agent asks rank 0 for its call, and is heard.
    fn ask(&mut self) {
        let asking = identity_of_asking(self.secret.clone(), JOB, 1);
        self.asks
            .push(ChannelConnect::ask(&asking, (self.here, 0), false).unwrap());
        self.until(|scene| scene.asks.is_empty().then_some(()));
    }

    /// The next call of rank 0, and its socket.
    fn call(&mut self) -> (TcpStream, Vec<u8>) {
        let mut socket = self.until(|scene| scene.there.accept().ok()).0;
        socket.set_nonblocking(true).unwrap();
        let call = self.read(&mut socket, CALL + FIRST);
        (socket, call)
    }

    fn read(&mut self, socket: &mut TcpStream, len: usize) -> Vec<u8> {
        let (mut came, mut bytes) = (Vec::new(), [0; 600]);
        self.until(|_| {
            let most = len - came.len();
            match socket.read(&mut bytes[..most]) {
                Ok(0) => panic!("it was cut"),
                Ok(more) => came.extend_from_slice(&bytes[..more]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
            (came.len() == len).then_some(())
        });
        came
    }

    /// Returns whether nobody calls for a moment.
    fn is_calm(&mut self) -> bool {
        (0..100).for_each(|_| self.poll());
        self.there.accept().is_err()
    }

    fn wait(&mut self) {
        let until = Instant::now() + TCP_GIVE_WAY_AFTER;
        while Instant::now() < until {
            self.poll();
        }
    }
}

/// Returns whether the other end has been closed.
fn is_over(socket: &mut TcpStream) -> bool {
    match socket.read(&mut [0; 1]) {
        Ok(got) => got == 0,
        Err(error) => error.kind() != ErrorKind::WouldBlock,
    }
}

#[test]
fn who_is_asked_calls_again_where_a_call_has_stood_unanswered_for_a_while_and_later_the_next_time()
{
    let mut scene = Scene::new();
    let (mut first, _) = scene.call();
    scene.ask();
    assert!(
        scene.is_calm() && !is_over(&mut first),
        "it was given up at once"
    );
    scene.wait();
    assert!(scene.is_calm());
    scene.ask();
    let (mut second, _) = scene.call();
    assert!(is_over(&mut first));
    // Whoever is called may need longer than that to answer.
    for _ in 0..2 {
        scene.ask();
        assert!(scene.is_calm() && !is_over(&mut second));
        scene.wait();
    }
    scene.ask();
    let (third, _) = scene.call();
    assert!(is_over(&mut second));
    drop(third);
    scene.transport.sever();
}

#[test]
fn a_call_whose_answer_is_there_is_not_given_up_because_nobody_has_looked() {
    let mut scene = Scene::new();
    let there = scene.there.try_clone().unwrap();
    let directory = directory([scene.here, there.local_addr().unwrap()], None);
    let mut other = TcpTransport::new(identity(&scene.secret, 1), directory, there).unwrap();
    scene.wait();
    let asking = identity_of_asking(scene.secret.clone(), JOB, 1);
    let mut ask = ChannelConnect::ask(&asking, (scene.here, 0), false).unwrap();
    while !ask.has_called() {
        ask.look();
    }
    (0..100).for_each(|_| scene.poll());
    // Both are there at the next look: the answer, and the proof of who asks.
    for _ in 0..100 {
        other.poll(16, &mut RecordedEvents::default());
        std::thread::sleep(Duration::from_micros(200));
    }
    assert!(matches!(ask.look(), ConnectOutcome::Open(_)));
    std::thread::sleep(Duration::from_millis(10));
    scene.transport.ctx.sockets.look_again();
    scene.transport.poll(16, &mut RecordedEvents::default());
    assert!(
        scene.transport.ctx.ends(1, StreamNumber::Small).is_some(),
        "it was given up"
    );
    scene.transport.sever();
    other.sever();
}

#[test]
fn who_is_asked_while_it_waits_at_another_place_goes_to_the_first() {
    let closed = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let place = closed.local_addr().unwrap();
    drop(closed);
    let mut scene = Scene::with(Some(place));
    let (mut elsewhere, _) = scene.call();
    elsewhere
        .write_all(&relay_protocol::word(RejectReason::Waits))
        .unwrap();
    let there = listen(place).unwrap();
    scene.wait();
    scene.ask();
    scene.until(|_| there.accept().ok());
    scene.until(|_| is_over(&mut elsewhere).then_some(()));
    scene.transport.sever();
}

#[test]
fn who_was_led_to_a_call_that_proves_nothing_calls_again_when_it_is_asked() {
    let mut scene = Scene::new();
    let (mut first, _) = scene.call();
    // What somebody has heard earlier.
    let (_, recorded) =
        Initiator::call(&identity(&scene.secret, 1), (0, 0), StreamNumber::Small).unwrap();
    let turn = relay_protocol::word(RejectReason::Turn);
    first.write_all(&[turn, recorded].concat()).unwrap();
    scene.read(&mut first, PREFIX + SECOND);
    scene.wait();
    let asked = Instant::now();
    scene.ask();
    let (_second, _) = scene.call();
    assert!(
        asked.elapsed() < RELAY_HALF_LIMIT / 2,
        "not for being asked"
    );
    scene.transport.sever();
}

#[test]
fn whose_call_is_cut_asks_for_the_other_s_since_who_cut_it_may_be_a_host_between_that_reaches_nobody()
 {
    let mut scene = Scene::new();
    let asked = |scene: &Scene| scene.directory.asked.lock().unwrap().len();
    for _ in 0..2 {
        let before = asked(&scene);
        let until = Instant::now() + TCP_REVERSE_CONNECT_EVERY;
        while Instant::now() < until {
            drop(scene.call());
        }
        assert!(asked(&scene) > before);
    }
    scene.transport.sever();
}

#[test]
fn a_call_that_a_host_between_keeps_is_asked_for_now_and_then() {
    let mut scene = Scene::new();
    let (mut first, _) = scene.call();
    let asked = |scene: &Scene| scene.directory.asked.lock().unwrap().len();
    let (before, begun) = (asked(&scene), Instant::now());
    first
        .write_all(&relay_protocol::word(RejectReason::Waits))
        .unwrap();
    for more in 1..4 {
        scene.until(|scene| (asked(scene) >= before + more).then_some(()));
    }
    // One when it hears that it is kept, and then each time that it is due.
    let due = begun.elapsed().as_micros() / TCP_RELAYED_REQUEST_EVERY.as_micros();
    assert!(
        (asked(&scene) - before) as u128 <= due + 1,
        "it asks without end"
    );
    assert!(!is_over(&mut first));
    scene.transport.sever();
}

#[test]
fn a_further_network_where_somebody_keeps_the_call_keeps_nobody_awake() {
    let mut scene = Scene::new();
    let (mut first, _) = scene.call();
    first
        .write_all(&relay_protocol::word(RejectReason::Waits))
        .unwrap();
    scene
        .transport
        .connections
        .want(&mut scene.transport.ctx, 1, StreamNumber::Bulk(1));
    let (mut further, _) = scene.call();
    further
        .write_all(&relay_protocol::word(RejectReason::Waits))
        .unwrap();
    let until = Instant::now() + TCP_RELAYED_REQUEST_EVERY + TCP_GIVE_WAY_AFTER;
    while Instant::now() < until {
        scene.poll();
    }
    scene.transport.ctx.sockets.look_again();
    scene.transport.poll(16, &mut RecordedEvents::default());
    assert!(
        scene.transport.ctx.timers.is_set() && !scene.transport.ctx.timers.is_due(Instant::now()),
        "it never rests"
    );
    assert!(!is_over(&mut first) && !is_over(&mut further));
    scene.transport.sever();
}

#[test]
fn a_connection_that_the_other_end_does_not_know_any_more_is_made_again_when_it_asks_twice() {
    let mut scene = Scene::new();
    let there = scene.there.try_clone().unwrap();
    // Which cannot call rank 0.
    let hole = ClosedPort::new();
    let directory = directory([hole.at, there.local_addr().unwrap()], None);
    let mut other =
        TcpTransport::new(identity(&scene.secret, 1), directory.clone(), there).unwrap();
    let mut told = RecordedEvents::default();
    scene.until(|_| {
        other.poll(16, &mut told);
        (told.packets.len() == 1).then_some(())
    });
    let end = |transport: &TcpTransport, peer| {
        transport
            .ctx
            .ends(peer, StreamNumber::Small)
            .map(|(own, _)| own)
    };
    let first = end(&scene.transport, 1);
    assert!(first.is_some());
    // Said before it stood, and come late.
    scene.ask();
    assert!(scene.is_calm() && end(&scene.transport, 1) == first);
    // Its way is gone, and nobody tells rank 0, which goes on sending there.
    let remote = other.ctx.peers.get(0).unwrap();
    let gone = remote
        .fd(StreamNumber::Small)
        .unwrap()
        .try_clone_to_owned()
        .unwrap();
    other
        .connections
        .broke(&mut other.ctx, 0, StreamNumber::Small);
    send(&mut scene.transport, 1, b"more", 0, PacketClass::Data).unwrap();
    scene.wait();
    assert!(end(&scene.transport, 1) == first && end(&other, 0).is_none());
    scene.until(|_| {
        other.poll(16, &mut told);
        (!directory.asked.lock().unwrap().is_empty()).then_some(())
    });
    scene.ask();
    scene.until(|scene| {
        other.poll(16, &mut told);
        let new = end(&scene.transport, 1).filter(|new| Some(*new) != first);
        (new.is_some() && told.packets.len() == 2).then_some(())
    });
    assert!(end(&other, 0).is_some() && told.gone.is_empty());
    // A host between that had it would let go of it, too: what had been sent there is all.
    let more = || rustix::net::recv(&gone, &mut [0; 600][..], rustix::net::RecvFlags::DONTWAIT);
    assert_eq!(
        more().and_then(|_| more()).unwrap_err(),
        rustix::io::Errno::CONNRESET
    );
    scene.transport.sever();
    other.sever();
}

/// Rank 0, which has something to say to rank 1 and cannot call it, so that it asks; and rank 1.
struct OneWay {
    secret: Secret,
    hole: ClosedPort,
    /// Place where each listens.
    at: [SocketAddr; 2],
    ports: [TcpListener; 2],
}

impl OneWay {
    fn new() -> Self {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let ports = [listen(any).unwrap(), listen(any).unwrap()];
        Self {
            secret: Secret::generate().unwrap(),
            hole: ClosedPort::new(),
            at: [0, 1].map(|rank: usize| ports[rank].local_addr().unwrap()),
            ports,
        }
    }

    /// A host between them, and where it is called.
    fn relay(&self) -> (Relay, SocketAddr) {
        let port = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let here = port.local_addr().unwrap();
        (Relay::new(port, self.secret.clone(), JOB).unwrap(), here)
    }

    /// Returns whether rank 1 gets what rank 0 has to say, where rank 0 calls it at the one
    /// address, and it rank 0 at the other; rank 0 looks each `every`, and `between` is done all
    /// the time.
    fn arrives(
        self,
        (of_one, of_zero): (SocketAddr, SocketAddr),
        every: Duration,
        mut between: impl FnMut(),
    ) -> bool {
        let books = [[self.at[0], of_one], [of_zero, self.at[1]]].map(|at| directory(at, None));
        let mut ranks = (0..).zip(self.ports).map(|(rank, port)| {
            let directory = Arc::clone(&books[rank as usize]);
            TcpTransport::new(identity(&self.secret, rank), directory, port).unwrap()
        });
        let [mut zero, mut one] = [(); 2].map(|()| ranks.next().unwrap());
        send(&mut zero, 1, b"word", 0, PacketClass::Data).unwrap();
        let (mut told, mut asks) = (RecordedEvents::default(), Vec::new());
        let (begun, mut looks) = (Instant::now(), 0);
        while told.packets.is_empty() && begun.elapsed() < Duration::from_secs(30) {
            if begun.elapsed() >= every * looks {
                looks += 1;
                zero.ctx.sockets.look_again();
                zero.poll(16, &mut RecordedEvents::default());
            }
            one.ctx.sockets.look_again();
            one.poll(16, &mut told);
            for (rank, directory) in (0..).zip(&books) {
                let to = 1 - rank;
                for (_, bulk) in std::mem::take(&mut *directory.asked.lock().unwrap()) {
                    let asking = identity_of_asking(self.secret.clone(), JOB, rank);
                    asks.push(
                        ChannelConnect::ask(&asking, (self.at[to as usize], to), bulk).unwrap(),
                    );
                }
            }
            asks.retain_mut(|ask| matches!(ask.look(), ConnectOutcome::Waits));
            between();
            std::thread::sleep(Duration::from_micros(500));
        }
        zero.sever();
        one.sever();
        told.packets.len() == 1
    }
}

#[test]
fn a_recorded_call_that_is_held_where_two_meet_keeps_them_apart_no_longer_than_it_takes_to_ask() {
    let pair = OneWay::new();
    let (mut relay, here) = pair.relay();
    let mut turn = || relay.turn(Instant::now(), &|_, _| RelayDirection::Meeting);
    // Of rank 1, which has nothing to say, and calls only when it is asked.
    let (_, recorded) =
        Initiator::call(&identity(&pair.secret, 1), (0, 0), StreamNumber::Small).unwrap();
    let mut thief = TcpStream::connect(here).unwrap();
    thief.write_all(&recorded).unwrap();
    thief.set_nonblocking(true).unwrap();
    while thief.peek(&mut [0; 1]).is_err() {
        turn();
    }
    let begun = Instant::now();
    assert!(pair.arrives((here, here), Duration::ZERO, turn));
    assert!(begun.elapsed() < RELAY_HALF_LIMIT, "not for being asked");
    // It has not hung up.
    drop(thief);
}

#[test]
fn who_looks_seldom_and_asks_is_reached() {
    std::thread::scope(|scope| {
        for every in [100, 1200, 1700, 2500] {
            scope.spawn(move || {
                let pair = OneWay::new();
                let at = (pair.hole.at, pair.at[0]);
                assert!(
                    pair.arrives(at, Duration::from_millis(every), || {}),
                    "{every} ms"
                );
            });
        }
    });
}

#[test]
fn who_asks_is_reached_through_a_host_between_that_knows_a_silent_address_of_it_as_well() {
    let pair = OneWay::new();
    let (mut relay, here) = pair.relay();
    let addresses = vec![pair.hole.at, pair.at[0]];
    let turn = || {
        relay.turn(Instant::now(), &|_, _| {
            RelayDirection::To(addresses.clone().into())
        })
    };
    let at = (pair.hole.at, here);
    assert!(pair.arrives(at, Duration::ZERO, turn));
}
