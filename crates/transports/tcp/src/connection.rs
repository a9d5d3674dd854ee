//! One open connection: bytes in and out of a socket that never blocks, sealed if the job wants it.
//!
//! Owned by a stream of a pair. Sealed traffic is cut into records (clause T10); a record is made
//! only when the one before has left, so that at most one waits here each way. Whoever sends hands
//! the same bytes again until they are taken.

use crate::handshake::SessionTerms;
use crate::sys;
use garonne_sync::user::UserMem;
use garonne_transport::iovec::{CopyDirection, IoBlock};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use snow::TransportState;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Plain bytes of a record: with its seal and length it stays within what one message may have.
const RECORD: usize = 32 * 1024;
/// Bytes of a seal.
const SEAL: usize = 16;

/// Result of a try to move bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IoResult {
    /// Number of bytes that were moved; at least one.
    Moved(usize),
    /// Not now.
    Later,
    /// The connection has ended.
    Over,
}

/// Hint whether more follows at once, so that the system may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRead {
    Nothing,
    More,
}

#[derive(Debug)]
struct RecordCipher {
    state: Box<TransportState>,
    /// A sealed record of which `out_at` bytes have left.
    out: Vec<u8>,
    out_at: usize,
    /// Sealed bytes that came, not a whole record yet.
    came: Vec<u8>,
    /// Opened bytes of which `open_at` were taken.
    open: Vec<u8>,
    open_at: usize,
}

/// Way in which a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// The other side has closed it, or broken its seal.
    Closed,
    /// The system at the other end, or something on the way that speaks for it, says that there is
    /// no such connection.
    Reset,
    /// The way there failed.
    Broke,
}

/// A proved connection: its socket, and the cipher where traffic is sealed. Owned by a packet
/// stream, a bulk connection or an agent channel.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: OwnedFd,
    /// Bytes that came behind the handshake's last message.
    ahead: Vec<u8>,
    version: u16,
    seal: Option<RecordCipher>,
    end: Option<CloseReason>,
}

fn outcome(result: Result<usize, Errno>) -> IoResult {
    match result {
        Ok(0) => IoResult::Over,
        Ok(moved) => IoResult::Moved(moved),
        Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => IoResult::Later,
        Err(_) => IoResult::Over,
    }
}

/// Returns how the connection has ended, if that is what this says; the system says it once.
fn end(result: Result<usize, Errno>, got: IoResult) -> Option<CloseReason> {
    match (got, result) {
        (IoResult::Over, Ok(_) | Err(Errno::PIPE)) => Some(CloseReason::Closed),
        (IoResult::Over, Err(Errno::CONNRESET)) => Some(CloseReason::Reset),
        (IoResult::Over, Err(_)) => Some(CloseReason::Broke),
        _ => None,
    }
}

fn try_send(socket: &OwnedFd, bytes: &[u8], then: AfterRead) -> Result<usize, Errno> {
    let more = match then {
        AfterRead::More => libc::MSG_MORE,
        AfterRead::Nothing => 0,
    };
    sys::send(socket.as_fd(), bytes, more).map_err(errno)
}

fn try_recv(socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    sys::recv(socket.as_fd(), bytes).map_err(errno)
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_raw_os_error(error.raw_os_error().unwrap_or(0))
}

/// Sends bytes on any socket of ours.
pub(crate) fn send(socket: &OwnedFd, bytes: &[u8], then: AfterRead) -> IoResult {
    outcome(try_send(socket, bytes, then))
}

/// Receives bytes on any socket of ours.
pub(crate) fn recv(socket: &OwnedFd, bytes: &mut [u8]) -> IoResult {
    outcome(try_recv(socket, bytes))
}

/// Returns what a receive from a socket of ours would find, which stays there.
fn peek(socket: &OwnedFd) -> Result<usize, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    rustix::net::recv(socket, &mut [0; 1][..], flags).map(|(_, got)| got)
}

/// Returns whether something has come by a socket of ours that nobody has received.
pub(crate) fn has_come(socket: &OwnedFd) -> bool {
    peek(socket).is_ok_and(|got| got > 0)
}

/// Returns whether nothing comes by a socket of ours any more, since the other side has closed it.
pub(crate) fn is_closed(socket: &OwnedFd) -> bool {
    peek(socket) == Ok(0)
}

/// Receives behind the bytes that came before, up to `most` of them in all.
pub(crate) fn recv_onto(socket: &OwnedFd, came: &mut Vec<u8>, most: usize) -> IoResult {
    let had = came.len();
    came.resize(most.max(had), 0);
    let got = recv(socket, &mut came[had..]);
    came.truncate(
        had + if let IoResult::Moved(moved) = got {
            moved
        } else {
            0
        },
    );
    got
}

impl Connection {
    /// Over a socket whose handshake is over; `ahead` are bytes that were received behind it.
    pub(crate) fn new(socket: OwnedFd, terms: SessionTerms, ahead: Vec<u8>) -> Self {
        let seal = terms.seal.map(|state| RecordCipher {
            state,
            out: Vec::new(),
            out_at: 0,
            came: Vec::new(),
            open: Vec::new(),
            open_at: 0,
        });
        Self {
            socket,
            ahead,
            version: terms.version,
            seal,
            end: None,
        }
    }

    /// The version of the format that both sides use on it.
    pub(crate) fn version(&self) -> u16 {
        self.version
    }

    /// Returns how it has ended, if it has.
    pub(crate) fn end(&self) -> Option<CloseReason> {
        self.end
    }

    fn receive(socket: &OwnedFd, how: &mut Option<CloseReason>, bytes: &mut [u8]) -> IoResult {
        let result = try_recv(socket, bytes);
        let got = outcome(result);
        *how = how.or(end(result, got));
        got
    }

    fn transmit(
        socket: &OwnedFd,
        how: &mut Option<CloseReason>,
        bytes: &[u8],
        then: AfterRead,
    ) -> IoResult {
        let result = try_send(socket, bytes, then);
        let sent = outcome(result);
        *how = how.or(end(result, sent));
        sent
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns whether traffic is sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// Returns whether bytes that were taken have not left.
    pub(crate) fn holds_back(&self) -> bool {
        self.seal
            .as_ref()
            .is_some_and(|seal| seal.out_at < seal.out.len())
    }

    /// Returns whether bytes lie here of which the socket tells nothing.
    pub(crate) fn has_come(&self) -> bool {
        !self.ahead.is_empty()
            || self
                .seal
                .as_ref()
                .is_some_and(|seal| seal.open_at < seal.open.len() || seal.whole().is_some())
    }

    /// Has what was taken leave.
    pub(crate) fn push(&mut self) -> IoResult {
        let Some(seal) = &mut self.seal else {
            return IoResult::Moved(0);
        };
        while seal.out_at < seal.out.len() {
            match Self::transmit(
                &self.socket,
                &mut self.end,
                &seal.out[seal.out_at..],
                AfterRead::Nothing,
            ) {
                IoResult::Moved(moved) => seal.out_at += moved,
                other => return other,
            }
        }
        IoResult::Moved(0)
    }

    /// Takes some of these bytes, in order. `AfterRead::More` is a hint.
    pub(crate) fn send(&mut self, bytes: &[u8], then: AfterRead) -> IoResult {
        if self.seal.is_none() {
            return Self::transmit(&self.socket, &mut self.end, bytes, then);
        }
        match self.push() {
            IoResult::Moved(_) => {}
            other => return other,
        }
        let Some(seal) = &mut self.seal else {
            return IoResult::Over;
        };
        let plain = &bytes[..bytes.len().min(RECORD)];
        seal.out.resize(2 + plain.len() + SEAL, 0);
        let Ok(len) = seal.state.write_message(plain, &mut seal.out[2..]) else {
            return IoResult::Over;
        };
        seal.out[..2].copy_from_slice(&(len as u16).to_le_bytes());
        seal.out.truncate(2 + len);
        seal.out_at = 0;
        match self.push() {
            IoResult::Over => IoResult::Over,
            _ => IoResult::Moved(plain.len()),
        }
    }

    /// Sends from user memory, as `send` does from a slice.
    pub(crate) fn send_from(&mut self, mem: UserMem, offset: isize, len: usize) -> IoResult {
        mem.with(offset, len, |bytes| self.send(bytes, AfterRead::Nothing))
    }

    /// Moves bytes between these blocks of user memory and the socket, in their order, without a
    /// copy of ours. `None`: traffic is sealed, so it must be copied.
    pub(crate) fn move_blocks(
        &mut self,
        way: CopyDirection,
        blocks: &mut [IoBlock],
    ) -> Option<IoResult> {
        if self.seal.is_some() || way == CopyDirection::Read && !self.ahead.is_empty() {
            return None;
        }
        let moved = sys::move_through(self.socket.as_fd(), way, blocks).map_err(errno);
        let got = outcome(moved);
        self.end = self.end.or(end(moved, got));
        Some(got)
    }

    /// Receives into user memory, as `recv` does into a slice.
    pub(crate) fn recv_into(&mut self, mem: UserMem, offset: isize, len: usize) -> IoResult {
        mem.with_mut(offset, len, |bytes| self.recv(bytes))
    }

    /// Gives some bytes that came.
    pub(crate) fn recv(&mut self, bytes: &mut [u8]) -> IoResult {
        if self.seal.is_some() {
            return self.recv_sealed(bytes);
        }
        if self.ahead.is_empty() {
            return Self::receive(&self.socket, &mut self.end, bytes);
        }
        let take = self.ahead.len().min(bytes.len());
        bytes[..take].copy_from_slice(&self.ahead[..take]);
        self.ahead.drain(..take);
        IoResult::Moved(take)
    }

    fn recv_sealed(&mut self, bytes: &mut [u8]) -> IoResult {
        let Some(seal) = &mut self.seal else {
            return IoResult::Over;
        };
        seal.came.append(&mut self.ahead);
        loop {
            let open = &seal.open[seal.open_at..];
            if !open.is_empty() {
                let take = open.len().min(bytes.len());
                bytes[..take].copy_from_slice(&open[..take]);
                seal.open_at += take;
                return IoResult::Moved(take);
            }
            if let Some(len) = seal.whole() {
                seal.open.resize(len, 0);
                seal.open_at = 0;
                let Ok(opened) = seal
                    .state
                    .read_message(&seal.came[2..2 + len], &mut seal.open)
                else {
                    // Nothing of it is ever given away.
                    seal.open.clear();
                    self.end.get_or_insert(CloseReason::Closed);
                    return IoResult::Over;
                };
                seal.open.truncate(opened);
                seal.came.drain(..2 + len);
                continue;
            }
            let had = seal.came.len();
            seal.came.resize(had + 2 * RECORD, 0);
            let got = Self::receive(&self.socket, &mut self.end, &mut seal.came[had..]);
            match got {
                IoResult::Moved(moved) => seal.came.truncate(had + moved),
                other => {
                    seal.came.truncate(had);
                    return other;
                }
            }
        }
    }
}

impl RecordCipher {
    /// Length of the record that lies whole in `came`.
    fn whole(&self) -> Option<usize> {
        let len = usize::from(u16::from_le_bytes(*self.came.first_chunk()?));
        (self.came.len() >= 2 + len).then_some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::NONBLOCK,
            None,
        )
        .unwrap()
    }

    /// Both ends of sealed traffic.
    fn seals() -> [Box<TransportState>; 2] {
        let noise = || snow::Builder::new("Noise_NN_25519_ChaChaPoly_BLAKE2s".parse().unwrap());
        let (mut caller, mut called) = (
            noise().build_initiator().unwrap(),
            noise().build_responder().unwrap(),
        );
        let (mut message, mut nothing) = ([0; 256], [0; 256]);
        let len = caller.write_message(&[], &mut message).unwrap();
        called.read_message(&message[..len], &mut nothing).unwrap();
        let len = called.write_message(&[], &mut message).unwrap();
        caller.read_message(&message[..len], &mut nothing).unwrap();
        [caller, called].map(|noise| Box::new(noise.into_transport_mode().unwrap()))
    }

    fn sealed(state: Box<TransportState>) -> SessionTerms {
        SessionTerms {
            seal: Some(state),
            ..SessionTerms::plain()
        }
    }

    /// Returns what comes of two records of which `change` is done to the first's bytes on the way:
    /// the answers of three calls, and the bytes.
    fn received(change: impl FnOnce(&mut Vec<u8>)) -> (Vec<IoResult>, Vec<u8>) {
        let [caller, called] = seals();
        let ((own, way), (back, other)) = (pair(), pair());
        let mut sender = Connection::new(own, sealed(caller), Vec::new());
        let mut receiver = Connection::new(other, sealed(called), Vec::new());
        let mut carried = Vec::new();
        for plain in [b"first", b"other"] {
            assert!(matches!(
                sender.send(plain, AfterRead::Nothing),
                IoResult::Moved(5)
            ));
            let mut bytes = [0; 128];
            let IoResult::Moved(len) = recv(&way, &mut bytes) else {
                panic!("nothing was sent")
            };
            carried.push(bytes[..len].to_vec());
        }
        change(&mut carried[0]);
        carried.iter().for_each(|bytes| {
            assert!(matches!(
                send(&back, bytes, AfterRead::Nothing),
                IoResult::Moved(_)
            ))
        });
        let (mut answers, mut came) = (Vec::new(), Vec::new());
        for _ in 0..3 {
            let mut bytes = [0xee; 64];
            let answer = receiver.recv(&mut bytes);
            if let IoResult::Moved(len) = answer {
                came.extend_from_slice(&bytes[..len]);
            }
            answers.push(answer);
        }
        (answers, came)
    }

    #[test]
    fn a_sealed_record_with_a_changed_byte_ends_the_connection_and_gives_nothing() {
        let (_, came) = received(|_| ());
        assert_eq!(came, b"firstother");
        // Behind the length, every byte; shorter and longer lengths take bytes of the neighbour.
        for at in 2..2 + 5 + SEAL {
            let (answers, came) = received(|record| record[at] ^= 0x10);
            assert!(
                matches!(answers[..], [IoResult::Over, ..]) && came.is_empty(),
                "byte {at}: {came:?}"
            );
        }
        for len in [0, 1, SEAL as u8, 4 + SEAL as u8, 6 + SEAL as u8] {
            let (answers, came) = received(|record| record[0] = len);
            assert!(
                matches!(answers[..], [IoResult::Over, ..]) && came.is_empty(),
                "length {len}: {came:?}"
            );
        }
    }

    #[test]
    fn a_sealed_record_that_comes_twice_is_no_record() {
        let (answers, came) = received(|record| record.extend_from_within(..));
        assert!(
            matches!(answers[..], [IoResult::Moved(5), IoResult::Over, ..]),
            "{came:?}"
        );
    }
}
