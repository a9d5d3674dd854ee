//! Reads of peers' regions: the receiver asks for blocks, two per peer at a time, and asks again
//! for what did not come.
//!
//! What was asked of all peers together fits where frames wait here until they are taken. So peers
//! that send at once lose nothing on the last link for want of room at its end, and the more of
//! them there are, the shorter their blocks.
//!
//! Owned by the transport. A block's frames may come in any order and more than once; each is
//! written where it belongs, once.

use crate::frame::{Ask, FrameSet};
use crate::limits::{
    BLOCK_FRAMES_MAX, BLOCK_FRAMES_MIN, BLOCKS_ASKED, OVERTAKEN_NS, RETRY_FIRST_NS, RETRY_MAX_NS,
};
use garonne_engine::api::Peer;
use garonne_engine::transport::{BulkToken, BulkTransfer};
use garonne_sync::user::Data;
use std::collections::{BTreeSet, VecDeque};

/// A read that is under way.
#[derive(Debug)]
struct BlockRead {
    token: BulkToken,
    peer: Peer,
    cookie: u64,
    offset: u64,
    local: Data,
    local_offset: u64,
    len: u64,
    /// Bytes that were asked for.
    asked: u64,
    blocks: Vec<AskedBlock>,
}

/// A block that was asked for and is not there.
#[derive(Debug)]
struct AskedBlock {
    request: u64,
    /// Place in the read.
    at: u64,
    len: u32,
    /// Bytes of one frame.
    chunk: u16,
    missing: FrameSet,
    last_frame: u64,
    ends_quietly: bool,
    is_repeated: bool,
    /// Time of the request, until it is repeated.
    asked_at_ns: Option<u64>,
    again_at_ns: u64,
    wait_ns: u64,
}

impl BlockRead {
    /// Returns the length of the next block, at most `share` frames; `None`: all was asked for.
    fn next_len(&self, chunk: u16, share: usize) -> Option<u32> {
        let left = self.len - self.asked;
        let frames = left.div_ceil(chunk.into());
        // Two blocks that are about equal, and not a long one and a rest.
        let frames = match frames <= share as u64 {
            true => frames,
            false => (share as u64).min(frames.div_ceil(2)),
        };
        let len = left.min(u64::from(chunk) * frames);
        (left > 0).then(|| u32::try_from(len).unwrap_or(u32::MAX))
    }
}

/// How long peers take to bring a block, and so how long to wait for something of it before it is
/// asked for again. A receiver that sleeps sees nothing of a block before its end.
#[derive(Debug)]
struct AnswerTime {
    smoothed_ns: u64,
    deviation_ns: u64,
    wait_ns: u64,
}

impl AnswerTime {
    fn new() -> Self {
        Self {
            smoothed_ns: 0,
            deviation_ns: 0,
            wait_ns: RETRY_FIRST_NS,
        }
    }

    /// A request that was sent once was answered after so long.
    fn answered(&mut self, took_ns: u64) {
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.deviation_ns) = (took_ns, took_ns / 2);
        } else {
            let off = self.smoothed_ns.abs_diff(took_ns);
            self.deviation_ns = (3 * self.deviation_ns + off) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + took_ns) / 8;
        }
        let wait_ns = self.smoothed_ns + 4 * self.deviation_ns;
        self.wait_ns = wait_ns.clamp(RETRY_FIRST_NS, RETRY_MAX_NS);
    }

    /// A request was not answered in time: others wait longer, until one is answered.
    fn is_late(&mut self) {
        self.wait_ns = (self.wait_ns * 2).min(RETRY_MAX_NS);
    }
}

/// A request to send: the peer, the number, the region, the place in it, and which frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRequest {
    pub peer: Peer,
    pub request: u64,
    pub cookie: u64,
    pub offset: u64,
    pub ask: Ask,
    pub is_repeated: bool,
}

/// All reads of a transport.
#[derive(Debug)]
pub(crate) struct BlockReads {
    reads: VecDeque<BlockRead>,
    answers: AnswerTime,
    next_request: u64,
    /// Frames asked for and not there, of all peers together at most: what finds room here.
    budget: usize,
    /// Frames asked for at most, narrowed by what got lost: queues of switches are short.
    window: usize,
    /// Requests before this one narrow the window no more.
    narrowed_until: u64,
}

impl BlockReads {
    /// No reads yet; `slots` frames that came find room here until they are taken.
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            reads: VecDeque::new(),
            answers: AnswerTime::new(),
            next_request: 1,
            // Packets need some.
            budget: slots / 4 * 3,
            window: slots / 4 * 3,
            narrowed_until: 0,
        }
    }

    /// Begins a read of at least one byte.
    pub(crate) fn begin(&mut self, bulk: &BulkTransfer<'_>) {
        self.reads.push_back(BlockRead {
            token: bulk.token,
            peer: bulk.peer,
            cookie: bulk.descriptor.cookie,
            offset: bulk.offset,
            local: bulk.local.clone(),
            local_offset: bulk.local_offset,
            len: bulk.len,
            asked: 0,
            blocks: Vec::with_capacity(BLOCKS_ASKED),
        });
    }

    /// Returns whether nothing is being read.
    pub(crate) fn is_empty(&self) -> bool {
        self.reads.is_empty()
    }

    /// Appends the requests that are to leave now: for the next blocks of each peer's oldest reads,
    /// and for what is overdue. `chunk_of` says how many bytes a frame of a peer brings.
    pub(crate) fn due(
        &mut self,
        now_ns: u64,
        chunk_of: impl Fn(Peer) -> u16,
        requests: &mut Vec<BlockRequest>,
    ) {
        let blocks = self.reads.iter().flat_map(|read| &read.blocks);
        let mut out: usize = blocks.map(|block| block.missing.len() as usize).sum();
        let peers: BTreeSet<Peer> = self.reads.iter().map(|read| read.peer).collect();
        let share = self.window / (BLOCKS_ASKED * peers.len().max(1));
        let share = share.clamp(BLOCK_FRAMES_MIN, BLOCK_FRAMES_MAX);
        for at in 0..self.reads.len() {
            let peer = self.reads[at].peer;
            let before = self.reads.iter().filter(|read| read.peer == peer);
            let under_way: usize = before.map(|read| read.blocks.len()).sum();
            let chunk = chunk_of(peer);
            let read = &mut self.reads[at];
            for block in &mut read.blocks {
                if block.again_at_ns <= now_ns {
                    let nothing_came = block.missing.len() as u64 == block.last_frame + 1;
                    if block.asked_at_ns.take().is_some() && nothing_came {
                        self.answers.is_late();
                    }
                    if !nothing_came && block.request >= self.narrowed_until {
                        self.window = (self.window * 3 / 4).max(2 * BLOCK_FRAMES_MIN);
                        self.narrowed_until = self.next_request;
                    }
                    block.is_repeated = true;
                    block.wait_ns = (block.wait_ns * 2).min(RETRY_MAX_NS);
                    block.again_at_ns = now_ns + block.wait_ns;
                    requests.push(read_request((peer, read.cookie, read.offset), block));
                }
            }
            let before = read.blocks.len();
            for _ in under_way..BLOCKS_ASKED {
                let fits = out == 0 || out + share <= self.window;
                let Some(len) = read.next_len(chunk, share).filter(|_| fits) else {
                    break;
                };
                let frames = len.div_ceil(chunk.into());
                out += frames as usize;
                read.blocks.push(AskedBlock {
                    request: self.next_request,
                    at: read.asked,
                    len,
                    chunk,
                    missing: FrameSet::first(frames as usize),
                    last_frame: u64::from(frames) - 1,
                    ends_quietly: false,
                    is_repeated: false,
                    asked_at_ns: Some(now_ns),
                    again_at_ns: now_ns + self.answers.wait_ns,
                    wait_ns: self.answers.wait_ns,
                });
                self.next_request += 1;
                read.asked += u64::from(len);
            }
            let new = &mut read.blocks[before..];
            if read.asked == read.len && new.len() > 1 {
                // Nothing more is to be asked for before the last of them is there.
                new[0].ends_quietly = true;
            }
            let of_read = (peer, read.cookie, read.offset);
            requests.extend(new.iter().map(|block| read_request(of_read, block)));
        }
    }

    /// Takes a frame of a block in. `Ok(Some)`: the read it belongs to is complete. `Err`: it is
    /// not the frame that was asked for.
    pub(crate) fn take(
        &mut self,
        (peer, request, index): (Peer, u64, u64),
        bytes: &[u8],
        now_ns: u64,
    ) -> Result<Option<BulkToken>, ()> {
        let found = self.reads.iter_mut().enumerate().find_map(|(at, read)| {
            let block = read
                .blocks
                .iter()
                .position(|block| block.request == request);
            (read.peer == peer).then_some(())?;
            Some((at, block?))
        });
        // Of a block that is complete frames may still come.
        let Some((at, block_at)) = found else {
            return Ok(None);
        };
        let read = &mut self.reads[at];
        let block = &mut read.blocks[block_at];
        let chunk = block.chunk;
        let first = index.checked_mul(u64::from(chunk)).ok_or(())?;
        let left = u64::from(block.len)
            .checked_sub(first)
            .filter(|left| *left > 0);
        if left.is_none_or(|left| bytes.len() as u64 != left.min(chunk.into())) {
            return Err(());
        }
        if !block.missing.remove(index) {
            return Ok(None);
        }
        block.wait_ns = self.answers.wait_ns;
        block.again_at_ns = now_ns + block.wait_ns;
        if index == block.last_frame {
            // What overtook the others did so by little, and what is missing then is lost.
            block.again_at_ns = now_ns + OVERTAKEN_NS;
        }
        read.local
            .unpack(read.local_offset + block.at + first, bytes);
        if block.missing.is_empty() {
            if let Some(asked_at_ns) = block.asked_at_ns {
                // A block that came as a whole widens the window by an eighth of itself.
                let wider = self.window + block.last_frame as usize / 8;
                self.window = wider.min(self.budget);
                self.answers.answered(now_ns.saturating_sub(asked_at_ns));
            }
            read.blocks.swap_remove(block_at);
        }
        let complete = read.asked == read.len && read.blocks.is_empty();
        let ended = if complete {
            self.reads.remove(at)
        } else {
            None
        };
        Ok(ended.map(|read| read.token))
    }

    /// Returns whether something is being read from a peer.
    pub(crate) fn awaits(&self, peer: Peer) -> bool {
        self.reads.iter().any(|read| read.peer == peer)
    }

    /// Ends the read of which a request was refused.
    pub(crate) fn refuse(&mut self, peer: Peer, request: u64) -> Option<BulkToken> {
        let is_it = |read: &BlockRead| {
            read.peer == peer && read.blocks.iter().any(|block| block.request == request)
        };
        let at = self.reads.iter().position(is_it)?;
        self.reads.remove(at).map(|read| read.token)
    }

    /// Ends all reads from a peer.
    pub(crate) fn lose(&mut self, peer: Peer) -> Vec<BulkToken> {
        let lost = self.reads.iter().filter(|read| read.peer == peer);
        let tokens = lost.map(|read| read.token).collect();
        self.reads.retain(|read| read.peer != peer);
        tokens
    }

    /// When `due` has something to do again, if nothing arrives before.
    pub(crate) fn deadline_ns(&self) -> Option<u64> {
        let blocks = self.reads.iter().flat_map(|read| &read.blocks);
        blocks.map(|block| block.again_at_ns).min()
    }
}

fn read_request((peer, cookie, offset): (Peer, u64, u64), block: &AskedBlock) -> BlockRequest {
    BlockRequest {
        peer,
        request: block.request,
        cookie,
        offset: offset + block.at,
        ask: Ask {
            len: block.len,
            chunk: block.chunk,
            ends_quietly: block.ends_quietly && !block.is_repeated,
            missing: block.missing,
        },
        is_repeated: block.is_repeated,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_answers_slowly_is_waited_for_and_one_that_becomes_quick_no_longer() {
        let mut answers = AnswerTime::new();
        answers.is_late();
        assert_eq!(answers.wait_ns, 2 * RETRY_FIRST_NS);
        (0..50).for_each(|_| answers.answered(5 * RETRY_FIRST_NS));
        let around = 5 * RETRY_FIRST_NS..6 * RETRY_FIRST_NS;
        assert!(around.contains(&answers.wait_ns), "{answers:?}");
        (0..100).for_each(|_| answers.answered(RETRY_FIRST_NS / 100));
        assert_eq!(answers.wait_ns, RETRY_FIRST_NS);
        (0..20).for_each(|_| answers.is_late());
        assert_eq!(answers.wait_ns, RETRY_MAX_NS);
    }
}
