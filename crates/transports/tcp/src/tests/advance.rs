//! The beginning of large data that leaves unasked: what a transport sends so, and what it makes of
//! what a peer does.

use super::*;
use crate::bulk::eager_prefix::ReceivedPrefix;
use crate::frame::{ASK, UNASKED};
use garonne_sync::user::Data;
use garonne_transport::limits::{EAGER_PREFIX_SKIPS, EAGER_PREFIXES_KEPT};

const MB: usize = 1 << 20;

/// A cookie of the peer's, of whose region so many bytes come unasked.
fn announced(cookie: u64, ahead: u64) -> RegionDescriptor {
    RegionDescriptor::new(cookie, &ahead.to_le_bytes()).unwrap()
}

fn advance(cookie: u64, len: u64) -> Vec<u8> {
    let mut bytes = head(FrameKind::Advance, ASK as u32, (UNASKED | cookie as u32, 0)).to_vec();
    let offset = 0;
    bytes.extend_from_slice(
        &ReadRequest {
            cookie,
            offset,
            len,
        }
        .encode(),
    );
    bytes
}

/// A frame of data of this number.
fn data(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut frame = head(FrameKind::Bulk, bytes.len() as u32, (number, 0)).to_vec();
    frame.extend_from_slice(bytes);
    frame
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

impl Stage {
    /// Exposes this memory to rank 1: its cookie, and how much of it leaves unasked.
    pub(super) fn exposes(&mut self, token: BulkToken, memory: &Scratch, len: usize) -> (u64, u64) {
        let data = Data::contiguous(memory.mem(), len as u64);
        let ExposeResult::Ready(descriptor) = self.transport.expose(token, 1, &data) else {
            panic!("there is room")
        };
        let announce = PacketHeader {
            kind: garonne_engine::transport::PacketKind::Rts as u8,
            ..PacketHeader::default()
        };
        let room = self.transport.claim(1, 0, PacketClass::Control).unwrap();
        self.transport.commit(room, &announce);
        (
            descriptor.cookie,
            crate::transport::ahead_of(&descriptor).unwrap_or(0),
        )
    }

    /// The next request that rank 1 gets.
    fn asked(&mut self, socket: &mut TcpStream) -> (u32, ReadRequest) {
        let mut bytes = [0; HEAD + ASK];
        self.read(socket, &mut bytes);
        let head =
            FrameHeader::decode(bytes.first_chunk().unwrap(), StreamNumber::Bulk(0)).unwrap();
        assert_eq!(head.kind, FrameKind::Ask);
        (
            head.number,
            ReadRequest::decode(bytes[HEAD..].try_into().unwrap()),
        )
    }

    /// The read of this name ends well, with these bytes in `local`.
    fn has_read(&mut self, token: BulkToken, local: &Scratch, expected: &[u8]) {
        let mut told = RecordedEvents::default();
        self.until(&mut told, |told| !told.done.is_empty());
        assert_eq!(told.done, [(token, Ok(()))]);
        let mut got = vec![0; expected.len()];
        local.mem().read(0, &mut got);
        assert!(got == expected);
    }

    fn all_blocks(&self) -> Vec<ReceivedPrefix> {
        let blocks: Vec<ReceivedPrefix> =
            std::iter::from_fn(|| self.transport.prefixes.take()).collect();
        assert_eq!(blocks.len(), EAGER_PREFIXES_KEPT);
        blocks
    }
}

#[test]
fn the_first_megabyte_of_a_region_follows_its_announcement_and_the_rest_waits_to_be_asked_for() {
    let mut stage = stage();
    let _small = stage.connected(StreamNumber::Small);
    let memory = Scratch::new(2 * MB).unwrap();
    memory.mem().write(0, &pattern(2 * MB));
    assert_eq!(
        stage.exposes(1, &memory, 2 * MB).1,
        0,
        "there is no connection for it"
    );
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    // Over several networks what is asked for goes where there is room.
    stage.directory.networks.store(2, Ordering::Relaxed);
    assert_eq!(stage.exposes(2, &memory, 2 * MB).1, 0);
    stage.transport.revoke(2);
    stage.directory.networks.store(1, Ordering::Relaxed);
    let (cookie, ahead) = stage.exposes(2, &memory, 2 * MB);
    assert_eq!(ahead, MB as u64);
    // One at a time.
    assert_eq!(stage.exposes(3, &memory, 2 * MB).1, 0);
    let mut expected = advance(cookie, ahead);
    expected.extend(data(UNASKED | cookie as u32, &pattern(2 * MB)[..MB]));
    let mut came = vec![0; expected.len()];
    stage.read(&mut socket, &mut came);
    assert!(came == expected);
    // The peer had no place for it: nothing more comes unasked for a while.
    let number = UNASKED | cookie as u32;
    socket
        .write_all(&head(FrameKind::Unkept, 0, (number, 0)))
        .unwrap();
    stage.polls(20, &mut RecordedEvents::default());
    stage.transport.revoke(2);
    for _ in 0..EAGER_PREFIX_SKIPS {
        assert_eq!(stage.exposes(4, &memory, MB).1, 0);
        stage.transport.revoke(4);
    }
    assert_eq!(stage.exposes(5, &memory, 100_000).1, 100_000);
    stage.transport.sever();
}

#[test]
fn on_the_next_connection_nothing_is_sent_unasked_again() {
    let mut stage = stage();
    let _small = stage.connected(StreamNumber::Small);
    let memory = Scratch::new(MB).unwrap();
    memory.mem().write(0, &pattern(MB));
    let socket = stage.connected(StreamNumber::Bulk(0));
    let (lost, ahead) = stage.exposes(1, &memory, 100_000);
    assert_eq!(ahead, 100_000);
    drop(socket);
    stage.polls(20, &mut RecordedEvents::default());
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    // The next region's may leave, although nobody has read the first.
    let (next, ahead) = stage.exposes(2, &memory, 90_000);
    assert_eq!(ahead, 90_000);
    let mut expected = [advance(lost, 0), advance(next, 90_000)].concat();
    expected.extend(data(UNASKED | next as u32, &pattern(90_000)));
    let mut came = vec![0; expected.len()];
    stage.read(&mut socket, &mut came);
    assert!(came == expected);
    stage.transport.sever();
}

#[test]
fn what_comes_unasked_goes_where_its_read_says_whenever_that_begins() {
    let bytes = pattern(300_000);
    // The read begins after so many bytes: of all, of the head alone, of some of the body …
    for (cookie, first) in [
        (1, 0),
        (2, HEAD + ASK),
        (3, 100_000),
        (4, 2 * HEAD + ASK + 300_000),
    ] {
        for shaped in [false, true] {
            let mut stage = stage();
            let _small = stage.connected(StreamNumber::Small);
            let mut socket = stage.connected(StreamNumber::Bulk(0));
            let mut stream = advance(cookie, 300_000);
            stream.extend(data(UNASKED | cookie as u32, &bytes));
            let mut told = RecordedEvents::default();
            let writes = |socket: &mut TcpStream, stage: &mut Stage, bytes: &[u8]| {
                for part in bytes.chunks(50_000) {
                    socket.write_all(part).unwrap();
                    stage.polls(10, &mut RecordedEvents::default());
                }
            };
            writes(&mut socket, &mut stage, &stream[..first]);
            let local = Scratch::new(400_000).unwrap();
            let spaced: std::sync::Arc<dyn garonne_sync::user::Layout> =
                std::sync::Arc::new(Spaced);
            let target = match shaped {
                false => Data::contiguous(local.mem(), 350_000),
                true => Data::shaped(local.mem(), spaced),
            };
            stage.reads(5, &announced(cookie, 300_000), &target);
            // The rest is asked for.
            let (number, ask) = stage.asked(&mut socket);
            let rest = (ask.cookie, ask.offset, ask.len);
            assert_eq!(rest, (cookie, 300_000, 50_000));
            socket.write_all(&stream[first..]).unwrap();
            socket.write_all(&data(number, &[9; 50_000])).unwrap();
            stage.until(&mut told, |told| !told.done.is_empty());
            assert_eq!(told.done, [(5, Ok(()))], "read after {first} bytes");
            let mut got = vec![0; 350_000];
            target.pack(0, &mut got);
            assert!(
                got[..300_000] == bytes && got[300_000..] == [9; 50_000],
                "{first} {shaped}"
            );
            stage.all_blocks();
            stage.transport.sever();
        }
    }
}

/// 350,000 bytes in blocks of 50, each 7 bytes from the next.
#[derive(Debug)]
struct Spaced;

impl garonne_sync::user::Layout for Spaced {
    fn packed_len(&self) -> u64 {
        350_000
    }
    fn pack(&self, mem: UserMem, from: u64, dst: garonne_sync::user::Packed) {
        for at in 0..dst.len() as u64 {
            let place = (from + at) / 50 * 57 + (from + at) % 50;
            dst.mem().copy_from(at as isize, mem, place as isize, 1);
        }
    }
    fn unpack(&self, mem: UserMem, from: u64, src: garonne_sync::user::Packed) {
        for at in 0..src.len() as u64 {
            let place = (from + at) / 50 * 57 + (from + at) % 50;
            mem.copy_from(place as isize, src.mem(), at as isize, 1);
        }
    }
    fn blocks(&self, _: u64, _: u64, _: usize, _: &mut Vec<(isize, usize)>) -> u64 {
        0
    }
}

#[test]
fn without_a_place_it_is_dropped_and_asked_for_and_its_sender_is_told() {
    let mut stage = stage();
    let blocks = stage.all_blocks();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let bytes = pattern(100_000);
    let mut stream = advance(8, 100_000);
    stream.extend(data(UNASKED | 8, &bytes));
    socket.write_all(&stream).unwrap();
    let mut answer = [0; HEAD];
    stage.read(&mut socket, &mut answer);
    assert_eq!(answer, head(FrameKind::Unkept, 0, (UNASKED | 8, 0)));
    drop(blocks);
    let local = Scratch::new(100_000).unwrap();
    stage.reads(
        5,
        &announced(8, 100_000),
        &Data::contiguous(local.mem(), 100_000),
    );
    let (number, ask) = stage.asked(&mut socket);
    assert_eq!((ask.cookie, ask.offset, ask.len), (8, 0, 100_000));
    socket.write_all(&data(number, &bytes)).unwrap();
    stage.has_read(5, &local, &bytes);
    stage.transport.sever();
}

#[test]
fn what_a_broken_connection_did_not_bring_is_asked_for_on_the_next() {
    let mut stage = stage();
    let _small = stage.connected(StreamNumber::Small);
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let bytes = pattern(100_000);
    let local = Scratch::new(100_000).unwrap();
    stage.reads(
        5,
        &announced(8, 100_000),
        &Data::contiguous(local.mem(), 100_000),
    );
    let mut stream = advance(8, 100_000);
    stream.extend(data(UNASKED | 8, &bytes));
    socket.write_all(&stream[..50_000]).unwrap();
    stage.polls(50, &mut RecordedEvents::default());
    drop(socket);
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let (number, ask) = stage.asked(&mut socket);
    let got = 50_000 - 2 * HEAD - ASK;
    assert_eq!((ask.offset, ask.len), (got as u64, (100_000 - got) as u64));
    // Its sender does not know that, and says that nothing comes of itself.
    socket.write_all(&advance(8, 0)).unwrap();
    socket.write_all(&data(number, &bytes[got..])).unwrap();
    stage.has_read(5, &local, &bytes);
    stage.all_blocks();
    // What was announced before what came last, and did not come, was withdrawn: it is asked for,
    // and that is refused.
    stage.reads(
        5,
        &announced(7, 100_000),
        &Data::contiguous(local.mem(), 100_000),
    );
    assert_eq!(stage.asked(&mut socket).1.cookie, 7);
    stage.transport.sever();
}

#[test]
fn what_was_to_come_on_a_former_connection_is_asked_for_when_its_sender_says_that_it_does_not() {
    let mut stage = stage();
    let _small = stage.connected(StreamNumber::Small);
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let bytes = pattern(100_000);
    let local = Scratch::new(100_000).unwrap();
    // Announced with bytes that the former connection has swallowed.
    stage.reads(
        5,
        &announced(8, 60_000),
        &Data::contiguous(local.mem(), 100_000),
    );
    let (rest, ask) = stage.asked(&mut socket);
    assert_eq!((ask.offset, ask.len), (60_000, 40_000));
    socket.write_all(&data(rest, &bytes[60_000..])).unwrap();
    // What others say nothing of still comes.
    socket.write_all(&advance(7, 0)).unwrap();
    stage.polls(50, &mut RecordedEvents::default());
    socket.write_all(&advance(8, 0)).unwrap();
    let (number, ask) = stage.asked(&mut socket);
    assert_eq!((ask.cookie, ask.offset, ask.len), (8, 0, 60_000));
    socket.write_all(&data(number, &bytes[..60_000])).unwrap();
    stage.has_read(5, &local, &bytes);
    // Of a read that begins later it is known.
    stage.reads(
        6,
        &announced(8, 60_000),
        &Data::contiguous(local.mem(), 60_000),
    );
    assert_eq!(stage.asked(&mut socket).1.len, 60_000);
    stage.transport.sever();
}

#[test]
fn a_region_that_is_withdrawn_before_it_was_all_sent_is_refused_to_its_read() {
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let local = Scratch::new(100_000).unwrap();
    stage.reads(
        5,
        &announced(8, 100_000),
        &Data::contiguous(local.mem(), 100_000),
    );
    socket.write_all(&advance(8, 100_000)).unwrap();
    socket
        .write_all(&head(FrameKind::Refused, 0, (UNASKED | 8, 0)))
        .unwrap();
    let mut told = RecordedEvents::default();
    stage.until(&mut told, |told| !told.done.is_empty());
    assert!(matches!(told.done[..], [(5, Err(_))]), "{told:?}");
    // The next may come.
    socket.write_all(&advance(9, 100)).unwrap();
    socket.write_all(&advance(9, 100)).unwrap();
    stage.until(&mut told, |told| !told.gone.is_empty());
    assert_eq!(told.gone, [1], "but not twice");
    stage.transport.sever();
}

#[test]
fn who_is_patient_takes_what_comes_when_there_is_much_of_it_or_all() {
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let bytes = pattern(3 * MB);
    let local = Scratch::new(3 * MB).unwrap();
    stage.transport.be_patient(true);
    stage.reads(
        5,
        &announced(0, 0),
        &Data::contiguous(local.mem(), 3 * MB as u64),
    );
    let (number, _) = stage.asked(&mut socket);
    let brought = |stage: &Stage| stage.transport.brought_by(1)[0] as usize;
    let (first, rest) = bytes.split_at(MB);
    socket
        .write_all(&head(FrameKind::Bulk, MB as u32, (number, 0)))
        .unwrap();
    socket.write_all(&first[..1000]).unwrap();
    stage.polls(50, &mut RecordedEvents::default());
    // What came with the head was taken; of what follows the socket says nothing.
    let taken = brought(&stage);
    socket.write_all(&first[1000..300_000]).unwrap();
    stage.polls(50, &mut RecordedEvents::default());
    assert_eq!(brought(&stage), taken, "the rest of the frame is not there");
    // Who is not takes what there is.
    stage.transport.be_patient(false);
    stage.polls(50, &mut RecordedEvents::default());
    assert_eq!(brought(&stage), 300_000);
    stage.transport.be_patient(true);
    let mut told = RecordedEvents::default();
    let frames = [
        &first[300_000..],
        &data(number, &rest[..MB]),
        &data(number, &rest[MB..]),
    ]
    .concat();
    let mut left = &frames[..];
    socket.set_nonblocking(true).unwrap();
    while told.done.is_empty() {
        if let Ok(sent) = socket.write(left) {
            left = &left[sent..];
        }
        stage.polls(1, &mut told);
    }
    assert_eq!(told.done, [(5, Ok(()))]);
    let mut got = vec![0; 3 * MB];
    local.mem().read(0, &mut got);
    assert!(got == bytes);
    stage.transport.sever();
}

#[test]
fn advances_that_break_the_format_end_their_peer() {
    let with = |cookie: u64, number: u32, offset: u64, len: u64| {
        let mut bytes = head(FrameKind::Advance, ASK as u32, (number, 0)).to_vec();
        bytes.extend_from_slice(
            &ReadRequest {
                cookie,
                offset,
                len,
            }
            .encode(),
        );
        bytes
    };
    let two = [advance(1, 10), advance(2, 10)].concat();
    let too_much = [advance(1, 10), data(UNASKED | 1, &[0; 11])].concat();
    let cases = [
        with(1, 1, 0, 10),
        with(1, UNASKED | 2, 0, 10),
        with(1, UNASKED | 1, 1, 10),
        with(1, UNASKED | 2, 0, 0),
        with(1, UNASKED | 1, 0, MB as u64 + 1),
        with(1, UNASKED | 1, 0, u64::MAX),
        data(UNASKED | 1, &[0; 10]),
        head(FrameKind::Ask, ASK as u32, (UNASKED | 1, 0)).to_vec(),
        two,
        too_much,
    ];
    for bytes in cases {
        let mut stage = stage();
        let mut socket = stage.connected(StreamNumber::Bulk(0));
        socket.write_all(&bytes).unwrap();
        let mut told = RecordedEvents::default();
        stage.until(&mut told, |told| !told.gone.is_empty());
        assert_eq!(told.gone, [1], "{bytes:?}");
        stage.transport.sever();
    }
    // A read of which more was announced than there is takes nothing of it.
    let mut stage = stage();
    let mut socket = stage.connected(StreamNumber::Bulk(0));
    let local = Scratch::new(100).unwrap();
    stage.reads(5, &announced(8, 101), &Data::contiguous(local.mem(), 100));
    assert_eq!(stage.asked(&mut socket).1.len, 100);
    stage.transport.sever();
}
