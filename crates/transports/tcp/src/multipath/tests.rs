//! Ways that are opened, silent, or broken.

use super::*;
use crate::handshake::SessionTerms;
use garonne_engine::schedule::stripe::StripePolicy;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

#[test]
fn a_way_that_was_just_opened_is_not_taken_for_silent() {
    let pairs: Vec<_> = (0..3)
        .map(|_| {
            socketpair(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::NONBLOCK,
                None,
            )
        })
        .collect();
    let mut paths = Multipath::default();
    let open = |paths: &mut Multipath, path: u8| {
        let own = pairs[usize::from(path)]
            .as_ref()
            .unwrap()
            .0
            .try_clone()
            .unwrap();
        paths.adopt(
            path,
            Connection::new(own, SessionTerms::plain(), Vec::new()),
        );
    };
    open(&mut paths, 0);
    open(&mut paths, 1);
    let (cookie, offset, len) = (1, 0, 64 << 20);
    paths.read(
        9,
        ReadRequest {
            cookie,
            offset,
            len,
        },
        (Data::empty(), 0),
    );
    assert_eq!(paths.spread((StripePolicy::default(), None)), 0b11);
    // Another that could bring what they owe.
    open(&mut paths, 2);
    assert!(!paths.listen());
    assert!(paths.listen());
}

#[test]
fn the_strategy_says_which_ways_are_asked() {
    for (splitting, asked) in [
        (StripePolicy::Balanced, 0b11),
        (StripePolicy::Shares, 0b11),
        (StripePolicy::Equal, 0b11),
        (StripePolicy::Quickest, 0b01),
    ] {
        let mut paths = Multipath::default();
        for path in [0, 1] {
            let flags = SocketFlags::NONBLOCK;
            let (own, _) =
                socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            paths.adopt(
                path,
                Connection::new(own, SessionTerms::plain(), Vec::new()),
            );
        }
        let (cookie, offset, len) = (1, 0, 64 << 20);
        paths.read(
            9,
            ReadRequest {
                cookie,
                offset,
                len,
            },
            (Data::empty(), 0),
        );
        assert_eq!(paths.spread((splitting, None)), asked, "{splitting:?}");
    }
}

#[test]
fn what_a_way_began_with_is_not_shown_as_what_it_was_seen_to_give() {
    let mut paths = Multipath::default();
    assert!(paths.begin_with(0, (500.0, 30.0), Instant::now()));
    assert_eq!(paths.brought(0), (0, 0));
}
