//! Small messages and large data of one peer, each in its turn, and how much of large data waits in
//! a socket.

use super::*;

impl Stage {
    /// Rank 1 asks for all of what is exposed to it.
    fn is_asked(&mut self, socket: &mut TcpStream, lent: &Data) {
        let ExposeResult::Ready(descriptor) = self.transport.expose(8, 1, lent) else {
            panic!("there is room")
        };
        let ask = ReadRequest {
            cookie: descriptor.cookie,
            offset: 0,
            len: lent.len,
        };
        let head = head(FrameKind::Ask, frame::ASK as u32, (0, 0));
        socket
            .write_all(&[&head[..], &ask.encode()].concat())
            .unwrap();
    }
}

#[test]
fn a_poll_that_leaves_bulk_data_to_the_next_says_that_it_moved_some() {
    const LEN: usize = 400_000;
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let memory = Scratch::new(LEN).unwrap();
    let local = Data::contiguous(memory.mem(), LEN as u64);
    stage.reads(9, &RegionDescriptor::new(5, &[]).unwrap(), &local);
    stage.read(&mut socket, &mut [0; HEAD + frame::ASK]);
    let body = [&head(FrameKind::Bulk, LEN as u32, (0, 0))[..], &[7; LEN]].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| socket.write_all(&body).unwrap());
        let (mut told, mut left) = (RecordedEvents::default(), 0);
        while told.done.is_empty() {
            // Small messages come and go, so slices are short.
            stage.transport.ctx.priority.small(&PacketHeader {
                kind: 1,
                ..PacketHeader::default()
            });
            let said = stage.transport.poll(16, &mut told);
            let more = !stage.transport.ctx.ready.is_empty();
            assert!(said > 0 || !more, "it may sleep now");
            left += u32::from(more);
        }
        assert!(left > 0);
    });
    stage.transport.sever();
}

#[test]
fn a_small_message_is_told_of_before_large_data_move() {
    const LEN: usize = 400_000;
    let mut stage = stage();
    let (mut small, mut large) = (
        stage.connected(StreamNumber::Small),
        stage.connected(StreamNumber::Bulk(0)),
    );
    let memory = Scratch::new(LEN).unwrap();
    let local = Data::contiguous(memory.mem(), LEN as u64);
    stage.reads(9, &RegionDescriptor::new(5, &[]).unwrap(), &local);
    stage.read(&mut large, &mut [0; HEAD + frame::ASK]);
    let moved = |stage: &Stage| stage.transport.brought_by(1)[0];
    let header = PacketHeader {
        kind: 1,
        ..PacketHeader::default()
    };
    let packet = |number: u32| {
        let head = head(FrameKind::Packet, HEADER as u32, (number, 0));
        [&head[..], &frame::header_bytes(&header)].concat()
    };
    large
        .write_all(&head(FrameKind::Bulk, LEN as u32, (0, 0)))
        .unwrap();
    stage.transport.ctx.priority.small(&header);
    for round in 0..3 {
        let before = moved(&stage);
        large.write_all(&[7; 1000]).unwrap();
        while moved(&stage) == before {
            stage.polls(1, &mut RecordedEvents::default());
        }
        large.write_all(&[7; 1000]).unwrap();
        small.write_all(&packet(round)).unwrap();
        // Both lie there.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (mut told, before) = (RecordedEvents::default(), moved(&stage));
        while told.packets.is_empty() {
            stage.polls(1, &mut told);
        }
        assert_eq!(moved(&stage), before);
        stage.polls(1, &mut told);
        assert_eq!(moved(&stage), before + 1000, "the next poll moves them");
    }
    stage.transport.sever();
}

#[test]
fn small_messages_in_every_poll_do_not_keep_large_data_from_who_sends_some_as_well() {
    const LEN: usize = 400_000;
    const LENT: usize = 16 << 20;
    const ROUNDS: u32 = 100;
    const EACH: usize = 1000;
    let mut stage = stage();
    let (mut small, mut large) = (
        stage.connected(StreamNumber::Small),
        stage.connected(StreamNumber::Bulk(0)),
    );
    let memory = [LEN, LENT].map(|len| (Scratch::new(len).unwrap(), len as u64));
    let [local, lent] = memory
        .each_ref()
        .map(|(memory, len)| Data::contiguous(memory.mem(), *len));
    stage.reads(9, &RegionDescriptor::new(5, &[]).unwrap(), &local);
    stage.read(&mut large, &mut [0; HEAD + frame::ASK]);
    let header = PacketHeader {
        kind: 1,
        ..PacketHeader::default()
    };
    stage.is_asked(&mut large, &lent);
    large
        .write_all(&head(FrameKind::Bulk, LEN as u32, (0, 0)))
        .unwrap();
    stage.transport.ctx.priority.small(&header);
    stage.polls(10, &mut RecordedEvents::default());
    large.set_nonblocking(true).unwrap();
    let mut sink = vec![0; 1 << 20];
    for round in 0..ROUNDS {
        // It takes what it asked for, so that the transport's socket always has room for more.
        while large.read(&mut sink).is_ok_and(|got| got > 0) {}
        large.write_all(&[7; EACH]).unwrap();
        let packet = [
            &head(FrameKind::Packet, HEADER as u32, (round, 0))[..],
            &frame::header_bytes(&header),
        ];
        small.write_all(&packet.concat()).unwrap();
        let mut told = RecordedEvents::default();
        for _ in 0..100_000 {
            if told.packets.is_empty() {
                stage.transport.poll(16, &mut told);
            }
        }
        assert_eq!(told.packets.len(), 1);
    }
    let moved = stage.transport.brought_by(1)[0];
    assert!(
        moved >= u64::from(ROUNDS / 2 - 1) * EACH as u64,
        "{moved} bytes"
    );
    stage.transport.sever();
}

#[test]
fn who_polls_no_more_leaves_as_much_in_a_socket_as_it_takes() {
    const LENT: usize = 16 << 20;
    let mut stage = stage();
    let mut large = stage.connected(StreamNumber::Bulk(0));
    rustix::net::sockopt::set_socket_recv_buffer_size(&large, 1 << 16).unwrap();
    let memory = Scratch::new(LENT).unwrap();
    let lent = Data::contiguous(memory.mem(), LENT as u64);
    stage.is_asked(&mut large, &lent);
    large.set_nonblocking(true).unwrap();
    let mut sink = vec![0; 1 << 20];
    let mut drain = || {
        let (mut got, mut dry) = (0, 0);
        while dry < 20 {
            match large.read(&mut sink) {
                Ok(more) if more > 0 => (got, dry) = (got + more, 0),
                _ => dry += 1,
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        got
    };
    stage.polls(10, &mut RecordedEvents::default());
    let holds_little = |stage: &mut Stage| {
        let remote = stage.transport.ctx.peers.get_mut(1).unwrap();
        remote.paths.at(0).bulk.socket_mut().unwrap().holds_little()
    };
    for _ in 0..10 {
        drain();
        // The second comes right after the first, unless this thread was put aside.
        stage.transport.ctx.flush(1, StreamNumber::Bulk(0));
        stage.transport.ctx.flush(1, StreamNumber::Bulk(0));
        if holds_little(&mut stage) {
            break;
        }
    }
    assert!(holds_little(&mut stage));
    stage.transport.arm();
    assert!(!holds_little(&mut stage));
    let left = drain();
    assert!(left > 3 << 19, "{left} bytes");
    stage.transport.sever();
}

#[test]
fn of_what_leaves_unasked_a_socket_takes_all_also_right_behind_other_large_data() {
    const LEN: usize = 40_000;
    let mut stage = stage();
    let _small = stage.connected(StreamNumber::Small);
    let mut large = stage.connected(StreamNumber::Bulk(0));
    let memory = Scratch::new(LEN).unwrap();
    for token in 0..200 {
        assert_eq!(stage.exposes(token, &memory, LEN).1, LEN as u64);
        let remote = stage.transport.ctx.peers.get_mut(1).unwrap();
        let bulk = remote.paths.at(0).bulk.socket_mut().unwrap();
        assert!(!bulk.is_serving() && !bulk.holds_little());
        stage.transport.revoke(token);
        large
            .read_exact(&mut [0; 2 * HEAD + frame::ASK + LEN])
            .unwrap();
    }
    stage.transport.sever();
}
