//! Two transports that speak different versions of the format, and two agents.

use super::*;
use crate::agent_channel::{self, ChannelConnect, ConnectOutcome, PendingChannels};
use crate::connection_table::{ConnectionEntry, read_shown};
use crate::frame::LibraryName;

/// Sends a message from a rank that speaks the first versions to one that speaks the
/// second: the versions that both show, or what the caller was told.
fn meet(ours: (u16, u16), theirs: (u16, u16)) -> Result<[u32; 2], HandshakeError> {
    let secret = Secret::generate().unwrap();
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listeners = [(); 2].map(|()| listen(any).unwrap());
    let addresses = [0, 1].map(|at| listeners[at].local_addr().unwrap());
    let pair = Arc::new(TestDirectory::at(addresses));
    let mut rank = 0;
    let mut transports = listeners.map(|listener| {
        let identity = native(&secret, rank).speaking([ours, theirs][rank as usize].into());
        rank += 1;
        TcpTransport::new(identity, pair.clone(), listener).unwrap()
    });
    send(&mut transports[0], 1, &[7; 9], 0, PacketClass::Data).unwrap();
    let mut told = [RecordedEvents::default(), RecordedEvents::default()];
    for _ in 0..100_000 {
        for (transport, told) in transports.iter_mut().zip(&mut told) {
            transport.poll(16, told);
        }
        if !told[1].packets.is_empty() || !told[0].gone.is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let shown = |transport: &TcpTransport| match &read_shown(&transport.shown_table())[..] {
        [ConnectionEntry { version, .. }] => *version,
        other => panic!("{other:?}"),
    };
    let refused = pair
        .refused
        .lock()
        .unwrap()
        .first()
        .map(|(_, fault)| fault.clone());
    let met = refused.map_or_else(
        || Ok([shown(&transports[0]), shown(&transports[1])]),
        |fault| {
            assert_eq!(told[0].gone, [1]);
            assert!(told[0].reasons[0].contains(&fault.to_string()));
            Err(fault)
        },
    );
    assert_eq!(met.is_ok(), told[1].packets.len() == 1);
    transports.into_iter().for_each(TcpTransport::sever);
    met
}

#[test]
fn ranks_use_the_highest_version_of_both_and_show_it() {
    for (ours, theirs, version) in [
        ((6, 7), (6, 6), 6),
        ((6, 6), (6, 7), 6),
        ((6, 7), (5, 8), 7),
    ] {
        assert_eq!(meet(ours, theirs), Ok([version; 2]));
    }
}

#[test]
fn ranks_without_a_version_in_common_are_refused_with_both_named() {
    for (ours, theirs) in [((4, 5), (6, 7)), ((6, 7), (4, 5))] {
        let fault = meet(ours, theirs).unwrap_err();
        let [ours, theirs] = [ours, theirs].map(crate::Versions::from);
        let library = crate::LIBRARY;
        assert_eq!(
            fault.to_string(),
            format!("it runs {library} with formats {theirs}, this process {library} with {ours}")
        );
    }
}

/// Returns what comes of a call between two agents that speak such versions.
fn call(ours: (u16, u16), theirs: (u16, u16)) -> Result<[u16; 2], [String; 2]> {
    let secret = Secret::generate().unwrap();
    let listener = listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = listener.local_addr().unwrap();
    let identity = |node, versions: (u16, u16)| {
        agent_channel::identity(secret.clone(), [7; 16], node).speaking(versions.into())
    };
    let mut pending = PendingChannels::new(identity(0, theirs), listener);
    let mut call = ChannelConnect::begin(&identity(3, ours), address, 0).unwrap();
    let (mut near, mut far, mut place) = (None, None, None);
    for _ in 0..10_000 {
        pending.open(&mut |at, _| {
            place = Some(at);
            true
        });
        far = far.or(place.and_then(|at| pending.look(at, |node| node == 3)));
        if near.is_none() {
            match call.look() {
                ConnectOutcome::Waits => {}
                ConnectOutcome::Open(line) => near = Some(line),
                ConnectOutcome::Refused(fault) => {
                    let (_, there) = pending.turned_away().expect("it knows whom it sent away");
                    return Err([fault.to_string(), there.to_string()]);
                }
                other => panic!("{other:?}"),
            }
        }
        if let (Some(near), Some((_, far))) = (&near, &far) {
            return Ok([near.version(), far.version()]);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("nothing came of it");
}

#[test]
fn a_name_of_a_library_that_was_changed_on_the_way_is_told_as_such() {
    let own = HandshakeError::Library(LibraryName::own()).to_string();
    assert!(own.contains("another name arrived there"), "{own}");
}

#[test]
fn agents_use_the_highest_version_of_both_or_refuse_each_other_by_name() {
    assert_eq!(call((6, 7), (6, 6)), Ok([6, 6]));
    assert_eq!(call((5, 6), (6, 7)), Ok([6, 6]));
    assert_eq!(call((5, 8), (6, 7)), Ok([7, 7]));
    let said = call((4, 5), (6, 7)).unwrap_err();
    let library = crate::LIBRARY;
    assert_eq!(
        said,
        [("6 to 7", "4 to 5"), ("4 to 5", "6 to 7")].map(|(theirs, ours)| format!(
            "it runs {library} with formats {theirs}, this process {library} with {ours}"
        ))
    );
}
