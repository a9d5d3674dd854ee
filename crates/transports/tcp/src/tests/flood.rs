//! Peers that have proved themselves and send more than anybody wants, and callers for whom there
//! is no place: neither keeps a rank busy.

use super::*;
use garonne_transport::limits::{
    TCP_FILLS_MAX, TCP_PROOF_STAYS, TCP_RECEIVE, TCP_UNAUTHENTICATED_MAX,
};
use rustix::event::{PollFd, PollFlags, Timespec};
use std::time::Instant;

#[test]
fn a_look_ends_however_many_words_come_and_what_is_behind_them_comes_all_the_same() {
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Small);
    let words = head(FrameKind::Acknowledge, 0, (0, 0)).repeat(4096);
    socket.set_nonblocking(true).unwrap();
    // As much as both kernels keep; the last may be cut anywhere.
    let (mut sent, mut full) = (0, 0);
    while full < 20 {
        match socket.write(&words[sent % HEAD..]) {
            Ok(more) => sent += more,
            Err(_) => {
                full += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    let most = TCP_FILLS_MAX as usize * TCP_RECEIVE;
    assert!(sent > 2 * most, "only {sent} bytes are no flood");
    socket.set_nonblocking(false).unwrap();
    let mut rest = words[sent % HEAD..][..(HEAD - sent % HEAD) % HEAD].to_vec();
    let header = PacketHeader {
        kind: 1,
        ..PacketHeader::default()
    };
    rest.extend_from_slice(&head(FrameKind::Packet, HEADER as u32, (0, 0)));
    rest.extend_from_slice(&frame::header_bytes(&header));
    let writer = std::thread::spawn(move || socket.write_all(&rest).map(|()| socket).unwrap());
    let (mut told, mut looks) = (RecordedEvents::default(), 0);
    while told.packets.is_empty() && looks < 1_000_000 {
        looks += 1;
        stage
            .transport
            .take_from((1, StreamKind::Both), 16, &mut told);
    }
    assert!(looks >= sent / most, "{sent} bytes in {looks} looks");
    assert_eq!(told.packets, [(1, header, vec![])]);
    assert!(told.gone.is_empty());
    drop(writer.join().unwrap());
    stage.transport.sever();
}

/// A door whose places are all taken by callers who have shown the secret, at `now`, and one more
/// who calls.
struct Crowd {
    door: Listener,
    inside: Vec<TcpStream>,
    outside: TcpStream,
}

impl Crowd {
    fn new(now: Instant) -> Self {
        let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let secret = Secret::generate().unwrap();
        let mut door = Listener::new(OwnedFd::from(listener));
        let mut inside = Vec::new();
        for place in 0..TCP_UNAUTHENTICATED_MAX {
            let (_, call) =
                Initiator::call(&identity(&secret, 1), (0, 0), StreamNumber::Small).unwrap();
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(&call).unwrap();
            assert!(is_readable(&door, 60));
            let mut came = Vec::new();
            door.open(now, &mut |place, _| {
                came.push(place);
                true
            });
            assert_eq!(came, [place]);
            socket.set_nonblocking(true).unwrap();
            while socket.read(&mut [0; 600]).is_err() {
                assert!(
                    door.look(place, &identity(&secret, 0), |_, _| Ok(0))
                        .is_none()
                );
            }
            inside.push(socket);
        }
        let outside = TcpStream::connect(address).unwrap();
        assert!(is_readable(&door, 60));
        Self {
            door,
            inside,
            outside,
        }
    }

    /// Returns how many come in.
    fn open(&mut self, now: Instant) -> usize {
        let mut came = 0;
        self.door.open(now, &mut |_, _| {
            came += 1;
            true
        });
        came
    }
}

/// Returns whether a door has something to do, or will within so many seconds.
fn is_readable(door: &Listener, seconds: i64) -> bool {
    let limit = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    let mut fds = [PollFd::from_borrowed_fd(door.fd(), PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&limit)).unwrap() > 0
}

#[test]
fn nobody_is_woken_for_callers_for_whom_there_is_no_place_until_there_is_one() {
    // The clock of the door will not come there.
    let now = Instant::now() + Duration::from_secs(3600);
    let mut crowd = Crowd::new(now);
    assert_eq!(crowd.open(now), 0);
    assert!(!is_readable(&crowd.door, 0), "woken in vain");
    // One goes.
    drop(crowd.inside.remove(0));
    let secret = Secret::generate().unwrap();
    while crowd.door.strangers_inside() == TCP_UNAUTHENTICATED_MAX {
        assert!(
            crowd
                .door
                .look(0, &identity(&secret, 0), |_, _| Ok(0))
                .is_none()
        );
    }
    assert!(is_readable(&crowd.door, 60));
    assert_eq!(crowd.open(now), 1);
    // All have had their time.
    let _second = TcpStream::connect(crowd.outside.peer_addr().unwrap()).unwrap();
    assert!(is_readable(&crowd.door, 60));
    assert_eq!(crowd.open(now + TCP_PROOF_STAYS), 1);
}

#[test]
fn a_door_without_a_place_opens_by_itself_when_the_oldest_caller_has_had_its_time() {
    let now = Instant::now();
    let mut crowd = Crowd::new(now);
    // A moment before that.
    let just = now + TCP_PROOF_STAYS - Duration::from_millis(1);
    assert_eq!(crowd.open(just), 0);
    assert!(is_readable(&crowd.door, 60), "it stays shut");
    assert_eq!(crowd.open(now + TCP_PROOF_STAYS), 1);
}
