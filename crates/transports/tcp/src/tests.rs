//! Strangers and peers that do not keep to the format: none of them crashes, starves or fools a
//! rank.

mod advance;
mod flood;
mod turns;
mod versions;

use super::*;
use crate::frame::HEADER;
use crate::frame::{FrameHeader, HEAD, Opening, RejectReason};
use crate::handshake::{Initiator, InitiatorStep};
use crate::test_support::TestDirectory;
use garonne_engine::transport::{
    BulkTransfer as BulkCopy, ExposeResult, PacketClass, RemoteMemory, Transport,
};
use garonne_sync::user::{Data, Scratch};
use garonne_transport::conformance::{RecordedEvents, send};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

fn identity(secret: &Secret, rank: Peer) -> LocalIdentity {
    let me = ProcessId {
        job: [1; 16],
        world: 0,
        rank,
        incarnation: rank,
    };
    LocalIdentity::new(secret.clone(), me, false)
}

/// Rank 0 as a transport, and what rank 1 has to play by hand: its secret, its listener and rank
/// 0's address.
struct Stage {
    transport: TcpTransport,
    secret: Secret,
    second: TcpListener,
    address: SocketAddr,
    directory: Arc<TestDirectory>,
}

fn stage() -> Stage {
    let secret = Secret::generate().unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (listener, second) = (listen(any).unwrap(), listen(any).unwrap());
    let address = listener.local_addr().unwrap();
    let directory = Arc::new(TestDirectory {
        incarnation: |peer| peer,
        ..TestDirectory::at([address, second.local_addr().unwrap()])
    });
    let transport = TcpTransport::new(identity(&secret, 0), directory.clone(), listener).unwrap();
    Stage {
        transport,
        secret,
        second,
        address,
        directory,
    }
}

impl Stage {
    fn polls(&mut self, count: usize, told: &mut RecordedEvents) {
        for _ in 0..count {
            self.transport.poll(16, told);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Polls until this is told, for longer than any delay of a machine with too much to do.
    fn until(
        &mut self,
        told: &mut RecordedEvents,
        mut is_told: impl FnMut(&RecordedEvents) -> bool,
    ) {
        for _ in 0..100_000 {
            if is_told(told) {
                return;
            }
            self.polls(1, told);
        }
    }

    /// Reads exactly as many bytes, polling the transport meanwhile.
    fn read(&mut self, socket: &mut TcpStream, bytes: &mut [u8]) {
        socket.set_nonblocking(true).unwrap();
        let (mut got, mut told) = (0, RecordedEvents::default());
        for _ in 0..100_000 {
            self.polls(1, &mut told);
            match socket.read(&mut bytes[got..]) {
                Ok(0) => panic!("it was cut after {got} bytes"),
                Ok(more) => got += more,
                Err(_) => {}
            }
            if got == bytes.len() {
                socket.set_nonblocking(false).unwrap();
                return;
            }
        }
        panic!("only {got} bytes came");
    }

    /// Returns whether the transport cuts this connection within so many polls.
    fn is_cut(&mut self, socket: &mut TcpStream, polls: usize) -> bool {
        socket.set_nonblocking(true).unwrap();
        let mut told = RecordedEvents::default();
        for _ in 0..polls {
            self.polls(1, &mut told);
            match socket.read(&mut [0; 600]) {
                Ok(0) => return true,
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return true,
                _ => {}
            }
        }
        false
    }

    /// Has the transport read from rank 1 as much as `local` holds.
    fn reads(&mut self, token: BulkToken, descriptor: &RegionDescriptor, local: &Data) {
        let bulk = BulkCopy {
            token,
            peer: 1,
            descriptor,
            offset: 0,
            local,
            local_offset: 0,
            len: local.len,
        };
        assert_eq!(self.transport.read(bulk), Ok(BulkStatus::Pending));
    }

    fn caller(&self, stream: StreamNumber) -> (TcpStream, Initiator, Vec<u8>) {
        let (caller, call) = Initiator::call(&identity(&self.secret, 1), (0, 0), stream).unwrap();
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_nodelay(true).unwrap();
        (socket, caller, call)
    }

    /// Rank 1's connection, with the whole handshake done.
    fn connected(&mut self, stream: StreamNumber) -> TcpStream {
        let (mut socket, caller, call) = self.caller(stream);
        socket.write_all(&call).unwrap();
        let mut answer = [0; frame::PREFIX + frame::SECOND];
        self.read(&mut socket, &mut answer);
        let Ok(InitiatorStep::Done { proof, .. }) = caller.answered(&answer, 0) else {
            panic!("rank 0 is honest")
        };
        socket.write_all(&proof).unwrap();
        self.polls(5, &mut RecordedEvents::default());
        socket
    }
}

fn head(kind: FrameKind, len: u32, (number, expected): (u32, u32)) -> [u8; HEAD] {
    FrameHeader {
        len,
        kind,
        number,
        expected,
    }
    .encode()
}

#[test]
fn a_peer_that_breaks_the_format_counts_as_gone() {
    let too_long = {
        let mut bytes = head(FrameKind::Packet, 0, (0, 0));
        bytes[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        bytes
    };
    let cases = [
        (StreamNumber::Small, too_long),
        (StreamNumber::Small, head(FrameKind::Ring, 0, (1, 0))),
        (StreamNumber::Small, head(FrameKind::Acknowledge, 0, (0, 5))),
        (StreamNumber::Small, head(FrameKind::Bulk, 8, (0, 0))),
        (StreamNumber::Bulk(0), head(FrameKind::Bulk, 8, (0, 0))),
        (StreamNumber::Bulk(0), head(FrameKind::Refused, 0, (0, 0))),
        (StreamNumber::Bulk(0), head(FrameKind::Packet, 24, (0, 0))),
    ];
    for (stream, bytes) in cases {
        let mut stage = stage();
        let mut socket = stage.connected(stream);
        socket.write_all(&bytes).unwrap();
        let mut told = RecordedEvents::default();
        stage.until(&mut told, |told| !told.gone.is_empty());
        assert_eq!(
            (told.gone, told.packets.len()),
            (vec![1], 0),
            "{stream:?} {bytes:?}"
        );
        stage.transport.sever();
    }
}

#[test]
fn an_honest_peer_played_by_hand_is_heard_and_its_repeats_are_passed_over() {
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Small);
    let mut packet = head(FrameKind::Packet, (HEADER + 1) as u32, (0, 0)).to_vec();
    let header = PacketHeader {
        kind: 1,
        len: 1,
        ..PacketHeader::default()
    };
    packet.extend_from_slice(&frame::header_bytes(&header));
    packet.push(77);
    let mut told = RecordedEvents::default();
    for _ in 0..3 {
        socket.write_all(&packet).unwrap();
    }
    packet[8] = 1;
    socket.write_all(&packet).unwrap();
    stage.until(&mut told, |told| told.packets.len() > 1);
    assert_eq!(told.packets, [(1, header, vec![77]), (1, header, vec![77])]);
    assert!(told.gone.is_empty());
    stage.transport.sever();
}

#[test]
fn what_is_not_exposed_cannot_be_read() {
    let mut stage = stage();
    let memory = Scratch::new(100).unwrap();
    let ExposeResult::Ready(descriptor) =
        stage
            .transport
            .expose(9, 1, &Data::contiguous(memory.mem(), 100))
    else {
        panic!("there is room")
    };
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let cookie = descriptor.cookie;
    let wrong = [
        (cookie + 1, 0, 10),
        (cookie, 0, 101),
        (cookie, 100, 1),
        (cookie, u64::MAX, 2),
        (cookie, 0, 0),
    ];
    for (number, (cookie, offset, len)) in (0..).zip(wrong) {
        socket
            .write_all(&head(FrameKind::Ask, frame::ASK as u32, (number, 0)))
            .unwrap();
        socket
            .write_all(
                &ReadRequest {
                    cookie,
                    offset,
                    len,
                }
                .encode(),
            )
            .unwrap();
        let mut answer = [0; HEAD];
        stage.read(&mut socket, &mut answer);
        assert_eq!(
            answer,
            head(FrameKind::Refused, 0, (number, 0)),
            "{cookie} {offset} {len}"
        );
    }
    let ask = ReadRequest {
        cookie,
        offset: 90,
        len: 10,
    };
    socket
        .write_all(&head(FrameKind::Ask, frame::ASK as u32, (50, 0)))
        .unwrap();
    socket.write_all(&ask.encode()).unwrap();
    let mut answer = [1; HEAD + 10];
    stage.read(&mut socket, &mut answer);
    assert_eq!(answer[..HEAD], head(FrameKind::Bulk, 10, (50, 0)));
    assert_eq!(answer[HEAD..], [0; 10]);
    stage.transport.sever();
}

#[test]
fn a_peer_that_asks_for_ever_and_takes_no_answer_counts_as_gone() {
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let ask = ReadRequest {
        cookie: 77,
        offset: 0,
        len: 1,
    };
    let ask = [
        &head(FrameKind::Ask, frame::ASK as u32, (0, 0))[..],
        &ask.encode(),
    ]
    .concat();
    let asks = ask.repeat(1000);
    rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    socket.set_nonblocking(true).unwrap();
    let (mut told, mut at) = (RecordedEvents::default(), 0);
    for _ in 0..100_000 {
        if !told.gone.is_empty() {
            break;
        }
        if let Ok(more) = socket.write(&asks[at..]) {
            at = (at + more) % asks.len();
        }
        stage.transport.poll(16, &mut told);
    }
    assert_eq!(told.gone, [1]);
    stage.transport.sever();
}

#[test]
fn a_read_from_a_peer_that_the_engine_has_lost_ends_and_writes_nothing_more() {
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let memory = Scratch::new(100).unwrap();
    let local = Data::contiguous(memory.mem(), 100);
    stage.reads(9, &RegionDescriptor::new(5, &[]).unwrap(), &local);
    stage.read(&mut socket, &mut [0; HEAD + frame::ASK]);
    let mut told = RecordedEvents::default();
    stage.transport.peer_lost(1);
    stage.until(&mut told, |told| !told.done.is_empty());
    assert!(matches!(
        told.done[..],
        [(9, Err(Error::Peer { peer: 1, .. }))]
    ));
    let body = [&head(FrameKind::Bulk, 100, (0, 0))[..], &[7; 100]].concat();
    // It may be cut already.
    let _ = socket.write_all(&body);
    stage.polls(5, &mut told);
    memory
        .mem()
        .with(0, 100, |bytes| assert!(bytes.iter().all(|byte| *byte == 0)));
    assert_eq!(told.done.len(), 1);
    stage.transport.sever();
}

#[test]
fn a_replayed_call_and_a_wrong_proof_open_nothing() {
    let mut stage = stage();
    let (mut socket, _caller, call) = stage.caller(StreamNumber::Small);
    socket.write_all(&call).unwrap();
    let mut answer = [0; frame::PREFIX + frame::SECOND];
    stage.read(&mut socket, &mut answer);
    // Whoever recorded the call cannot go on.
    let proof = Opening::own(
        frame::VERSIONS,
        frame::MessageBody::Proof([9; frame::THIRD]),
    )
    .encode();
    socket.write_all(&proof).unwrap();
    assert!(stage.is_cut(&mut socket, 100_000));
    assert!(
        stage.transport.ctx.peers.met().is_empty(),
        "nobody has proved anything"
    );
    stage.transport.sever();
}

#[test]
fn unauthenticated_callers_without_the_secret_are_cut_at_once() {
    let mut stage = stage();
    let other = Secret::generate().unwrap();
    let (_, call) = Initiator::call(&identity(&other, 1), (0, 0), StreamNumber::Small).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4000], &call] {
        let mut socket = TcpStream::connect(stage.address).unwrap();
        socket.write_all(bytes).unwrap();
        assert!(stage.is_cut(&mut socket, 100_000));
    }
    assert!(stage.transport.ctx.peers.met().is_empty());
    stage.transport.sever();
}

#[test]
fn who_says_nothing_is_cut_when_its_time_is_over() {
    let mut stage = stage();
    let mut silent: Vec<_> = (0..5)
        .map(|_| TcpStream::connect(stage.address).unwrap())
        .collect();
    stage.polls(10, &mut RecordedEvents::default());
    assert!(!stage.is_cut(&mut silent[0], 20));
    // Time is an argument.
    let later = Instant::now() + garonne_transport::limits::TCP_AUTHENTICATION_LIMIT;
    assert_eq!(
        stage.transport.connections.listener().keep_time(later),
        None
    );
    for socket in &mut silent {
        assert!(stage.is_cut(socket, 100_000));
    }
    stage.transport.sever();
}

#[test]
fn an_honest_peer_gets_through_a_flood_of_unauthenticated_callers() {
    let mut stage = stage();
    let mut crowd = Vec::new();
    let more = |crowd: &mut Vec<TcpStream>| {
        for n in 0..20 {
            // The kernel's queue may be full: then the flood is at its best.
            let Ok(mut unauthenticated) =
                TcpStream::connect_timeout(&stage.address, Duration::from_millis(200))
            else {
                continue;
            };
            let _ = match n % 4 {
                0 => unauthenticated.write_all(&[n; 3000]),
                1 => unauthenticated.write_all(&frame::MAGIC[..5]),
                2 => unauthenticated.write_all(&frame::MAGIC),
                _ => Ok(()),
            };
            crowd.push(unauthenticated);
        }
    };
    more(&mut crowd);
    let secret = stage.secret.clone();
    let second = stage.second.try_clone().unwrap();
    let mut peer =
        TcpTransport::new(identity(&secret, 1), stage.directory.clone(), second).unwrap();
    let mut told = RecordedEvents::default();
    let mut sent = 0;
    for round in 0..100_000 {
        if sent < 100 && send(&mut peer, 0, &[sent as u8; 100], sent, PacketClass::Data).is_ok() {
            sent += 1;
        }
        peer.poll(16, &mut RecordedEvents::default());
        stage.transport.poll(16, &mut told);
        if round % 20 == 0 && crowd.len() < 400 {
            more(&mut crowd);
        }
        if told.packets.len() == 100 {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(told.packets.len(), 100);
    peer.sever();
    stage.transport.sever();
}

#[test]
fn another_library_at_the_other_end_is_refused_by_name() {
    let (told, refused) = refuse(RejectReason::Library);
    assert!(matches!(&refused[..], [(1, HandshakeError::Library(_))]));
    assert!(
        told.reasons[0].contains("it runs garonne 9.9.9-elsewhere, this process"),
        "{told:?}"
    );
}

#[test]
fn a_side_that_encrypts_is_told_from_one_that_has_gone() {
    let (told, refused) = refuse(RejectReason::Sealing);
    assert_eq!(
        refused,
        [(1, HandshakeError::Refused(RejectReason::Sealing))]
    );
    assert!(told.reasons[0].contains("one side encrypts"), "{told:?}");
}

/// Returns what a rank says and hears that calls another, and is refused.
fn refuse(reason: RejectReason) -> (RecordedEvents, Vec<(Peer, HandshakeError)>) {
    let mut stage = stage();
    send(&mut stage.transport, 1, &[1], 0, PacketClass::Data).unwrap();
    let mut told = RecordedEvents::default();
    let mut accepted = None;
    for _ in 0..100_000 {
        stage.polls(1, &mut told);
        if let Ok((socket, _)) = stage.second.accept() {
            accepted = Some(socket);
            break;
        }
    }
    let mut socket = accepted.unwrap();
    let mut refusal = Opening::own(frame::VERSIONS, frame::MessageBody::Refusal(reason)).encode();
    refusal[16..40].copy_from_slice(b"garonne 9.9.9-elsewhere\0");
    socket.write_all(&refusal).unwrap();
    stage.until(&mut told, |told| !told.gone.is_empty());
    assert_eq!(told.gone, [1]);
    let refused = stage.directory.refused.lock().unwrap().clone();
    stage.transport.sever();
    (told, refused)
}

fn native(secret: &Secret, rank: Peer) -> LocalIdentity {
    let mut identity = identity(secret, rank);
    identity.me.incarnation = 0;
    identity
}

#[test]
fn a_peer_that_takes_no_calls_is_asked_for_its_own_and_messages_flow_both_ways() {
    use crate::agent_channel::{ChannelConnect, ConnectOutcome, identity_of_asking};
    let secret = Secret::generate().unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (first, second, closed) = (
        listen(any).unwrap(),
        listen(any).unwrap(),
        listen(any).unwrap(),
    );
    let (here, there) = (first.local_addr().unwrap(), second.local_addr().unwrap());
    // Where the second rank is not to be reached.
    let nowhere = closed.local_addr().unwrap();
    drop(closed);
    let directory = |other| {
        Arc::new(TestDirectory {
            hidden: true,
            ..TestDirectory::at([here, other])
        })
    };
    let (asking, asked) = (directory(nowhere), directory(there));
    let mut transports = [
        TcpTransport::new(native(&secret, 0), asking.clone(), first).unwrap(),
        TcpTransport::new(native(&secret, 1), asked, second).unwrap(),
    ];
    send(&mut transports[0], 1, &[7; 9], 0, PacketClass::Data).unwrap();
    let mut told = [RecordedEvents::default(), RecordedEvents::default()];
    let mut calls: Vec<ChannelConnect> = Vec::new();
    let mut answered = false;
    for _ in 0..100_000 {
        for (peer, bulk) in std::mem::take(&mut *asking.asked.lock().unwrap()) {
            assert_eq!((peer, bulk), (1, false));
            let identity = identity_of_asking(secret.clone(), [1; 16], 0);
            calls.push(ChannelConnect::ask(&identity, (there, 1), bulk).unwrap());
        }
        calls.retain_mut(|call| matches!(call.look(), ConnectOutcome::Waits));
        for (transport, told) in transports.iter_mut().zip(&mut told) {
            transport.poll(16, told);
        }
        if !told[1].packets.is_empty() && !std::mem::replace(&mut answered, true) {
            send(&mut transports[1], 0, &[8; 5], 0, PacketClass::Data).unwrap();
        }
        if !told[0].packets.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    assert_eq!(
        (told[1].packets[0].0, &told[1].packets[0].2[..]),
        (0, &[7; 9][..])
    );
    assert_eq!(
        (told[0].packets[0].0, &told[0].packets[0].2[..]),
        (1, &[8; 5][..])
    );
    assert!(told.iter().all(|told| told.gone.is_empty()));
    transports.into_iter().for_each(TcpTransport::sever);
}
