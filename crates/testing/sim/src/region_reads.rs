//! Reads of peers' memory by asking for it: pieces over several ways, each asked for again, by
//! another way, until it is there.
//!
//! Owned by a rank's transport. The owner of a region answers what it is asked and keeps nothing;
//! the reader keeps what it asked for, so what comes twice, late or changed is passed over, and no
//! byte is written after the read's end was told. Bounded by [`AT_ONCE`] pieces of each read.

use garonne_engine::api::{Error, Peer};
use garonne_engine::reliable::{open, seal};
use garonne_engine::transport::{BulkToken, BulkTransfer};
use garonne_sync::user::Data;
use std::collections::BTreeMap;

/// Pieces of one read that are asked for at a time.
const AT_ONCE: u32 = 4;
/// Bytes of a piece at most.
const PIECE_MAX: u64 = 1500;
/// First and longest wait for a piece, and how often it is asked for while nothing comes: as long
/// as a link tries.
const RETRY_NS: (u64, u64) = (200_000, 50_000_000);
const TRIES_MAX: u32 = 24;
/// Numbers of pieces are told from those of packets.
const FIRST_NUMBER: u64 = 1 << 63;

/// Messages between the reader and the owner of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadMessage {
    /// Request for bytes of a region.
    Ask {
        number: u64,
        cookie: u64,
        at: u64,
        len: u64,
    },
    /// The requested bytes.
    Part(u64, Vec<u8>),
    /// There is no such region.
    Refusal(u64),
}

impl ReadMessage {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, words, bytes): (u64, &[u64], &[u8]) = match self {
            Self::Ask {
                number,
                cookie,
                at,
                len,
            } => (0, &[*number, *cookie, *at, *len], &[]),
            Self::Part(number, bytes) => (1, &[*number], bytes),
            Self::Refusal(number) => (2, &[*number], &[]),
        };
        let mut all = kind.to_le_bytes().to_vec();
        all.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        all.extend(bytes);
        seal(&all)
    }

    /// `None`: it was changed on its way.
    pub(crate) fn decode(sealed: &[u8]) -> Option<Self> {
        let mut rest = open(sealed)?;
        let mut word = || {
            let (word, after) = rest.split_first_chunk()?;
            rest = after;
            Some(u64::from_le_bytes(*word))
        };
        let (kind, number) = (word()?, word()?);
        Some(match kind {
            0 => Self::Ask {
                number,
                cookie: word()?,
                at: word()?,
                len: word()?,
            },
            1 => Self::Part(number, rest.to_vec()),
            2 => Self::Refusal(number),
            _ => return None,
        })
    }
}

/// Something that the engine reads.
#[derive(Debug)]
struct PendingRead {
    token: BulkToken,
    peer: Peer,
    cookie: u64,
    offset: u64,
    local: Data,
    local_offset: u64,
    len: u64,
    /// Bytes from the front that somebody was asked for.
    asked: u64,
    /// Pieces that are asked for and not there.
    open: u32,
}

#[derive(Debug)]
struct PendingPiece {
    whole: u64,
    at: u64,
    len: u64,
    again_at_ns: u64,
    wait_ns: u64,
    tries: u32,
}

/// A request to send: peer, number, message.
pub(crate) type ReadRequest = (Peer, u64, ReadMessage);
/// A read that is over.
pub(crate) type ReadResult = (BulkToken, Result<(), Error>);

/// Reads of a rank.
#[derive(Debug, Default)]
pub(crate) struct RegionReads {
    wholes: BTreeMap<u64, PendingRead>,
    pieces: BTreeMap<u64, PendingPiece>,
    next: u64,
}

impl RegionReads {
    /// Starts a read; [`RegionReads::due`] asks for it.
    pub(crate) fn begin(&mut self, bulk: &BulkTransfer<'_>) {
        let whole = PendingRead {
            token: bulk.token,
            peer: bulk.peer,
            cookie: bulk.descriptor.cookie,
            offset: bulk.offset,
            local: bulk.local.clone(),
            local_offset: bulk.local_offset,
            len: bulk.len,
            asked: 0,
            open: 0,
        };
        self.wholes.insert(self.next, whole);
        self.next += 1;
    }

    /// Something is asked for.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.wholes.is_empty()
    }

    /// Returns the requests that are due now.
    ///
    /// # Errors
    /// A peer that did not answer for as long as is tried.
    pub(crate) fn due(
        &mut self,
        now_ns: u64,
        mut draw: impl FnMut(u64) -> u64,
    ) -> Result<Vec<ReadRequest>, Peer> {
        for (key, whole) in &mut self.wholes {
            while whole.open < AT_ONCE && whole.asked < whole.len {
                let len = (1 + draw(PIECE_MAX)).min(whole.len - whole.asked);
                let piece = PendingPiece {
                    whole: *key,
                    at: whole.asked,
                    len,
                    again_at_ns: now_ns,
                    wait_ns: RETRY_NS.0 / 2,
                    tries: 0,
                };
                self.pieces.insert(FIRST_NUMBER | self.next, piece);
                self.next += 1;
                whole.asked += len;
                whole.open += 1;
            }
        }
        let mut requests = Vec::new();
        for (number, piece) in &mut self.pieces {
            let (Some(whole), true) = (self.wholes.get(&piece.whole), piece.again_at_ns <= now_ns)
            else {
                continue;
            };
            if piece.tries >= TRIES_MAX {
                return Err(whole.peer);
            }
            piece.tries += 1;
            piece.wait_ns = (piece.wait_ns * 2).min(RETRY_NS.1);
            piece.again_at_ns = now_ns + piece.wait_ns;
            let ask = ReadMessage::Ask {
                number: *number,
                cookie: whole.cookie,
                at: whole.offset + piece.at,
                len: piece.len,
            };
            requests.push((whole.peer, *number, ask));
        }
        Ok(requests)
    }

    /// Something came from a peer, so that it is not lost.
    pub(crate) fn heard(&mut self, peer: Peer) {
        for piece in self.pieces.values_mut() {
            let whole = self.wholes.get(&piece.whole);
            if whole.is_some_and(|whole| whole.peer == peer) {
                piece.tries = 0;
            }
        }
    }

    /// When `due` has something to do again, if nothing arrives before.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        self.pieces.values().map(|piece| piece.again_at_ns).min()
    }

    /// Takes a piece in. `None`: it was there already, or is nobody's; else the read that it ends,
    /// if it does.
    pub(crate) fn take(
        &mut self,
        from: Peer,
        number: u64,
        bytes: &[u8],
    ) -> Option<Option<ReadResult>> {
        let piece = self.pieces.get(&number)?;
        let whole = self.wholes.get_mut(&piece.whole)?;
        if whole.peer != from || piece.len != bytes.len() as u64 {
            return None;
        }
        whole.local.unpack(whole.local_offset + piece.at, bytes);
        whole.open -= 1;
        let ended = (whole.open == 0 && whole.asked == whole.len).then_some((whole.token, Ok(())));
        if ended.is_some() {
            self.wholes.remove(&piece.whole);
        }
        self.pieces.remove(&number);
        Some(ended)
    }

    /// The owner has no such region: the read that ends so.
    pub(crate) fn refuse(&mut self, from: Peer, number: u64) -> Option<ReadResult> {
        let key = self.pieces.get(&number)?.whole;
        let peer = self.wholes.get(&key)?.peer;
        (peer == from)
            .then(|| self.fail(key, "the region was revoked"))
            .flatten()
    }

    /// A peer is gone: the reads that end so.
    pub(crate) fn lose(&mut self, peer: Peer) -> Vec<ReadResult> {
        let of_peer = |(key, whole): (&u64, &PendingRead)| (whole.peer == peer).then_some(*key);
        let keys: Vec<u64> = self.wholes.iter().filter_map(of_peer).collect();
        let fail = |key| self.fail(key, "died while its memory was used");
        keys.into_iter().filter_map(fail).collect()
    }

    fn fail(&mut self, key: u64, what: &'static str) -> Option<ReadResult> {
        let whole = self.wholes.remove(&key)?;
        self.pieces.retain(|_, piece| piece.whole != key);
        let peer = whole.peer;
        Some((whole.token, Err(Error::Peer { peer, what })))
    }
}
