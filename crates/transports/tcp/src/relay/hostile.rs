//! A caller that knows the job's secret and one that is called, which send, stop and close as they
//! like, with a [`Relay`] between them; or two that call each other there.

use super::*;
use crate::frame::{ProcessId, RejectReason, StreamNumber};
use crate::handshake::{self, LocalIdentity};
use crate::hostile::FuzzScript;
use crate::relay_protocol;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

const JOB: [u8; 16] = [5; 16];
/// Turns that a passage may take for what one step of its ends brings about.
const TURNS: usize = 64;
const SURELY_HANGS: Duration = Duration::from_secs(8);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = crate::listen(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port");
    let address = listener.local_addr().expect("its address");
    (listener, address)
}

/// One end of a passage.
#[derive(Default)]
struct FuzzEnd {
    socket: Option<TcpStream>,
    sent: Vec<u8>,
    got: Vec<u8>,
    has_shut: bool,
}

impl FuzzEnd {
    fn step(&mut self, what: u8, story: &mut FuzzScript) {
        let Some(socket) = &mut self.socket else {
            return;
        };
        match what % 8 {
            0..=3 if !self.has_shut => {
                let bytes = story.bytes(usize::from(what / 8) * 5 + 1);
                if let Ok(sent) = socket.write(bytes) {
                    self.sent.extend_from_slice(&bytes[..sent]);
                }
            }
            4 | 5 => self.take(),
            6 => self.has_shut |= socket.shutdown(std::net::Shutdown::Write).is_ok(),
            7 if what >= 0xc0 => self.socket = None,
            _ => {}
        }
    }

    fn take(&mut self) {
        let (mut bytes, Some(socket)) = ([0; 4096], &mut self.socket) else {
            return;
        };
        if let Ok(got) = socket.read(&mut bytes) {
            self.got.extend_from_slice(&bytes[..got]);
        }
    }
}

/// Has both ends do what these bytes say.
pub fn pass_anything_on(bytes: &[u8]) {
    let (port, address) = listener();
    let secret = Secret::from_bytes(&[9; 32]);
    let mut relay = Relay::new(port, secret.clone(), JOB).expect("a descriptor");
    let (called, called_at) = listener();
    called
        .set_nonblocking(true)
        .expect("a port that does not block");
    let lead = |_, _| RelayDirection::To(vec![called_at].into());
    let me = ProcessId {
        job: JOB,
        world: 0,
        rank: 0,
        incarnation: 0,
    };
    let identity = LocalIdentity::new(secret, me, false);
    let (mut caller, mut other, mut story) =
        (FuzzEnd::default(), FuzzEnd::default(), FuzzScript(bytes));
    let socket = TcpStream::connect(address).expect("it listens");
    socket
        .set_nonblocking(true)
        .expect("a socket that does not block");
    caller.socket = Some(socket);
    // A proper call most often, and then anything.
    if story.byte().is_some_and(|first| first >= 0x20)
        && let Ok((_, call)) = handshake::Initiator::call(&identity, (3, 0), StreamNumber::Small)
        && let Some(socket) = &mut caller.socket
        && socket.write_all(&call).is_ok()
    {
        caller.sent = call;
    }
    let begun = Instant::now();
    while let Some(what) = story.byte() {
        match what & 1 {
            0 => caller.step(what.rotate_right(1), &mut story),
            _ => other.step(what.rotate_right(1), &mut story),
        }
        let mut turns = 0;
        while relay.is_called() {
            relay.turn(Instant::now(), &lead);
            turns += 1;
            assert!(turns < TURNS, "it is never done");
        }
        if let Ok((socket, _)) = called.accept() {
            socket
                .set_nonblocking(true)
                .expect("a socket that does not block");
            other.socket = Some(socket);
        }
        assert!(caller.sent.starts_with(&other.got) && other.sent.starts_with(&caller.got));
        assert!(relay.relayed_connections.len() <= 1 && begun.elapsed() < SURELY_HANGS);
    }
}

/// Has two that are to meet do what these bytes say, each with a proper call most often: what comes
/// of it is the call of the lower rank for the higher, behind a word that it is the called one, and
/// then what each has sent; or less.
pub fn meet_anyhow(bytes: &[u8]) {
    let (port, address) = listener();
    let secret = Secret::from_bytes(&[9; 32]);
    let mut relay = Relay::new(port, secret.clone(), JOB).expect("a descriptor");
    let mut story = FuzzScript(bytes);
    let mut ends = [(0, 3), (3, 0)].map(|(rank, to)| {
        let me = ProcessId {
            job: JOB,
            world: 0,
            rank,
            incarnation: 0,
        };
        let identity = LocalIdentity::new(secret.clone(), me, false);
        let mut end = FuzzEnd::default();
        let socket = TcpStream::connect(address).expect("it listens");
        socket
            .set_nonblocking(true)
            .expect("a socket that does not block");
        end.socket = Some(socket);
        if story.byte().is_some_and(|first| first >= 0x20)
            && let Ok((_, call)) =
                handshake::Initiator::call(&identity, (to, 0), StreamNumber::Small)
            && let Some(socket) = &mut end.socket
            && socket.write_all(&call).is_ok()
        {
            end.sent = call;
        }
        end
    });
    let lengths = [ends[0].sent.len(), ends[1].sent.len()];
    let [waits, turn] = [RejectReason::Waits, RejectReason::Turn].map(relay_protocol::word);
    let begun = Instant::now();
    while let Some(what) = story.byte() {
        ends[usize::from(what & 1)].step(what.rotate_right(1), &mut story);
        let mut turns = 0;
        while relay.is_called() {
            relay.turn(Instant::now(), &|_, _| RelayDirection::Meeting);
            turns += 1;
            assert!(turns < TURNS, "it is never done");
        }
        let heard = |got: &[u8], words: &[u8], sent: &[u8]| {
            let got = got.strip_prefix(&waits[..]).unwrap_or(got);
            waits.starts_with(got)
                || got
                    .iter()
                    .zip(words.iter().chain(sent))
                    .all(|(got, sent)| got == sent)
        };
        assert!(heard(&ends[0].got, &[], &ends[1].sent[lengths[1]..]));
        assert!(heard(&ends[1].got, &turn, &ends[0].sent));
        assert!(relay.relayed_connections.len() <= 2 && begun.elapsed() < SURELY_HANGS);
    }
}
