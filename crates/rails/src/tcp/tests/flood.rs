//! Peers that have proved themselves and send more than anybody wants: a look at one of them ends.

use super::*;
use crate::limits::{TCP_FILLS_MAX, TCP_RECEIVE};

#[test]
fn a_look_ends_however_many_words_come_and_what_is_behind_them_comes_all_the_same() {
    let mut stage = stage();
    let mut socket = stage.connected(Stream::Small);
    let words = head(Kind::Acknowledge, 0, (0, 0)).repeat(4096);
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
    let header = Header {
        kind: 1,
        ..Header::default()
    };
    rest.extend_from_slice(&head(Kind::Packet, HEADER as u32, (0, 0)));
    rest.extend_from_slice(&frame::header_bytes(&header));
    let writer = std::thread::spawn(move || socket.write_all(&rest).map(|()| socket).unwrap());
    let (mut told, mut looks) = (Told::default(), 0);
    while told.packets.is_empty() && looks < 1_000_000 {
        looks += 1;
        stage.rail.take_from((1, Streams::Both), 16, &mut told);
    }
    assert!(looks >= sent / most, "{sent} bytes in {looks} looks");
    assert_eq!(told.packets, [(1, header, vec![])]);
    assert!(told.gone.is_empty());
    drop(writer.join().unwrap());
    stage.rail.sever();
}
