//! Anything that a peer may send to [`BulkTransfer`], in any parts, while this side reads, lends,
//! withdraws and gives up.

use super::*;
use crate::bulk::eager_prefix::{PrefixBuffer, PrefixTarget};
use crate::hostile::{FuzzScript, HostilePeer};
use garonne_sync::user::Scratch;
use garonne_transport::limits::TCP_POLL_ALL_EVERY;
use std::sync::Arc;

/// Cookies of regions, those that this side lends among them.
const COOKIES: u64 = 6;
const LENT: u64 = 3;
/// Bytes of a lent region, and at most of a read.
const REGION: u64 = 300;
const KINDS: [FrameKind; 5] = [
    FrameKind::Ask,
    FrameKind::Bulk,
    FrameKind::Refused,
    FrameKind::Advance,
    FrameKind::Unkept,
];
/// Is behind a buffer, and in it once it was given back.
const OWN: u8 = 0xdd;
/// Bytes behind a buffer.
const BEHIND: usize = 16;

/// Something that this side reads.
struct LocalState {
    whole: u64,
    memory: Scratch,
    len: usize,
}

struct BulkFuzz {
    bulk: BulkConnection,
    other: HostilePeer,
    keep: Arc<PrefixBuffer>,
    lent: Scratch,
    open: Vec<LocalState>,
    /// Memory that came back.
    back: Vec<Scratch>,
    next_whole: u64,
}

impl BulkFuzz {
    fn new() -> Self {
        let (mut bulk, (channel, other)) = (BulkConnection::default(), HostilePeer::new());
        bulk.adopt(channel);
        Self {
            bulk,
            other,
            keep: Arc::default(),
            lent: Scratch::new(REGION as usize).expect("memory"),
            open: Vec::new(),
            back: Vec::new(),
            next_whole: 0,
        }
    }

    /// The peer sends a frame whose head is right, unless it is not.
    fn frame(&mut self, story: &mut FuzzScript) -> Option<()> {
        let kind = KINDS[usize::from(story.byte()?) % KINDS.len()];
        let number = story.byte()?;
        let number = u32::from(number & 0x3f) | if number & 0x40 > 0 { UNASKED } else { 0 };
        let body = match kind {
            FrameKind::Ask | FrameKind::Advance => {
                let ask = ReadRequest {
                    cookie: u64::from(number & 0x3f),
                    offset: (u64::from(story.byte()?) * 2).saturating_sub(256),
                    len: u64::from(story.byte()?) * 2,
                };
                ask.encode().to_vec()
            }
            FrameKind::Bulk => {
                let len = usize::from(story.byte()?) + 1;
                story.bytes(len).to_vec()
            }
            _ => Vec::new(),
        };
        let head = FrameHeader {
            len: body.len() as u32,
            kind,
            number,
            expected: 0,
        };
        self.other.says(&[&head.encode()[..], &body].concat());
        Some(())
    }

    /// This side reads: what the peer has begun with, or not.
    fn read(&mut self, story: &mut FuzzScript) -> Option<()> {
        let cookie = u64::from(story.byte()?) % COOKIES;
        let (len, bound) = (u64::from(story.byte()?) + 1, story.byte()? % 2 == 0);
        let memory = Scratch::new(len as usize + BEHIND)?;
        memory
            .mem()
            .with_mut(0, memory.len(), |bytes| bytes.fill(OWN));
        let local = (Data::contiguous(memory.mem(), len), 0);
        let (whole, at) = (self.next_whole, 0);
        self.next_whole += 1;
        let (piece, offset) = (RequestedRange { whole, at, len }, 0);
        let ask = ReadRequest {
            cookie,
            offset,
            len,
        };
        self.open.push(LocalState {
            whole,
            memory,
            len: len as usize,
        });
        let found = match bound {
            true => self.bulk.bind(piece, ask, local.clone()),
            false => PrefixTarget::No,
        };
        match found {
            PrefixTarget::No => self.bulk.read(piece, ask, local),
            PrefixTarget::Coming => {}
            PrefixTarget::Here => self.over(piece),
        }
        Some(())
    }

    /// A read is over or given back: its memory is somebody else's.
    fn over(&mut self, piece: RequestedRange) {
        let at = self
            .open
            .iter()
            .position(|local| local.whole == piece.whole);
        let local = self.open.swap_remove(at.expect("each read ends once"));
        assert!(piece.at + piece.len <= local.len as u64);
        local.memory.mem().with_mut(0, local.memory.len(), |bytes| {
            assert!(bytes[local.len..].iter().all(|byte| *byte == OWN));
            bytes.fill(OWN);
        });
        self.back.push(local.memory);
    }

    fn all_over(&mut self, pieces: Vec<RequestedRange>) {
        pieces.into_iter().for_each(|piece| self.over(piece));
    }

    /// Takes what has come, as a transport does.
    fn take(&mut self, most: usize) -> Result<(), AckViolation> {
        for _ in 0..1 << 16 {
            let (got, told) = self.bulk.fill(most)?;
            match told {
                None => {}
                Some(BulkEvent::Done(piece) | BulkEvent::Refused(piece)) => self.over(piece),
                Some(BulkEvent::Unsent(pieces)) => self.all_over(pieces),
                Some(BulkEvent::Unread(number)) => self.bulk.keep(number, self.keep.take()),
                Some(BulkEvent::Asks(number, ask)) => {
                    let end = ask.offset.checked_add(ask.len).filter(|_| ask.len > 0);
                    match end.is_some_and(|end| end <= REGION) && ask.cookie < LENT {
                        true => self.bulk.serve(number, &ask, self.region()),
                        false => self.bulk.refuse(number),
                    }
                }
                Some(BulkEvent::Declined(_) | BulkEvent::Unused(_)) => {
                    unreachable!("not of a socket")
                }
            }
            if !matches!(got, IoResult::Moved(_)) {
                return Ok(());
            }
        }
        panic!("a look that does not end");
    }

    fn region(&self) -> Data {
        Data::contiguous(self.lent.mem(), REGION)
    }

    /// The connection ends, and there is another.
    fn renew(&mut self) {
        let (channel, other) = HostilePeer::new();
        let rest = self.bulk.adopt(channel);
        self.all_over(rest);
        self.other = other;
    }

    fn check(&self) {
        // One for each that this side began, and the one that its peer may begin with.
        assert!(self.bulk.reads.len() <= self.next_whole as usize + 1);
        let unasked = self.bulk.reads.iter().filter(|read| !read.counts()).count();
        assert!(unasked <= self.next_whole as usize + 1);
        let words = (self.bulk.next.len() + self.bulk.staged.len()) / HEAD;
        assert!(
            self.bulk.asks_waiting() <= TCP_BULK_REQUESTS_MAX && words <= 4 * TCP_BULK_REQUESTS_MAX
        );
    }
}

/// Has a peer do what these bytes say, and this side, too.
pub fn receive_anything(bytes: &[u8]) {
    let (mut stage, mut story) = (BulkFuzz::new(), FuzzScript(bytes));
    while let Some(what) = story.byte() {
        let went_on = match what % 10 {
            0 => {
                let len = usize::from(what / 10) + 1;
                stage.other.says(story.bytes(len));
                Some(())
            }
            1..=3 => stage.frame(&mut story),
            4 => stage.read(&mut story),
            5 => {
                let cookie = u64::from(what / 10) % LENT;
                let data = stage.region();
                stage.bulk.advance(cookie, &data);
                Some(())
            }
            6 => {
                if stage.bulk.revoke(u64::from(what / 10) % LENT) {
                    stage.renew();
                }
                Some(())
            }
            7 => {
                let rest = stage.bulk.give_up();
                stage.all_over(rest);
                Some(())
            }
            8 => {
                if what % 20 == 8 {
                    stage.renew();
                }
                let _ = stage.other.hears();
                stage.bulk.flush(usize::from(what) * 8 + 1);
                Some(())
            }
            _ => {
                stage.bulk.flush(usize::MAX);
                let _ = stage.other.hears();
                Some(())
            }
        };
        stage.check();
        let looks = if what >= 0x80 { TCP_POLL_ALL_EVERY } else { 1 };
        for _ in 0..looks {
            if stage.take(usize::from(what) + 1).is_err() {
                return;
            }
        }
        stage.check();
        if went_on.is_none() {
            break;
        }
    }
    for memory in &stage.back {
        memory.mem().with(0, memory.len(), |bytes| {
            assert!(
                bytes.iter().all(|byte| *byte == OWN),
                "written after it came back"
            );
        });
    }
}
