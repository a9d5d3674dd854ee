//! Calls that move blocks through lanes as they are.

use super::direct_read::{ReadOffer, ReadRequest};
use super::{LaneTransfer, pieces, share, suits_alltoall};
use crate::coll::comm_segment::BarrierKind;
use crate::error::{Class, Error, Result};
use crate::limits::coll as limit;
use garonne_coll::autotune::{CallClass, TrafficPattern};
use garonne_coll::blocks::Blocks;
use garonne_coll::call_tag::CollectiveKind;
use garonne_coll::typed_buffer::{self, slice};
use garonne_sync::shm_barrier::DEPTH;
use garonne_sync::user::{Data, UserMem};

/// The part of `data` that belongs to the piece of at most `most` bytes at `at`.
fn some(data: &Data, at: u64, most: u64) -> Data {
    match data.len.checked_sub(at) {
        None | Some(0) => Data::empty(),
        Some(left) => slice(data, at, left.min(most)),
    }
}

/// A number in a lane or in this process's memory.
fn number(mem: UserMem, index: u32) -> u64 {
    let mut bytes = [0; 8];
    mem.read(8 * index as isize, &mut bytes);
    u64::from_ne_bytes(bytes)
}

impl LaneTransfer<'_> {
    /// The root fills the next piece while the others read the last one.
    pub(super) fn bcast(&self, root: u32, data: &Data) -> Result<()> {
        if self.attachment.barrier == BarrierKind::Flags {
            return self.stream(root, data);
        }
        for (at, len) in pieces(data.len, self.lane_len()) {
            let epoch = self.next_epoch();
            let there = self.in_lane(root, epoch, 0, len);
            if root == self.attachment.me {
                self.put(&slice(data, at, len), &there);
            }
            self.barrier(epoch)?;
            if root != self.attachment.me {
                self.take(&there, &slice(data, at, len));
            }
        }
        Ok(())
    }

    /// Copies `data` from the root in pieces. The root may be `PARTS` pieces ahead of its readers:
    /// each of these pieces has a part of the root's lanes of its own.
    fn stream(&self, root: u32, data: &Data) -> Result<()> {
        const PARTS: u32 = DEPTH / 2;
        self.barrier(self.next_epoch())?;
        let part = self.lane_len() / u64::from(PARTS);
        for (at, len) in pieces(data.len, part.min(limit::BCAST_PIECE)) {
            let epoch = self.sync.next_epoch();
            let there = self.in_lane(root, epoch, u64::from(epoch / 2 % PARTS) * part, len);
            if root == self.attachment.me {
                self.put(&slice(data, at, len), &there);
                self.sync.signal(epoch)?;
            } else {
                self.sync.wait_for(epoch, root)?;
                self.take(&there, &slice(data, at, len));
            }
        }
        // The next call may write any part.
        self.barrier(self.sync.next_epoch())
    }

    /// The block of each rank, of a length that all agree on.
    pub(super) fn gather(
        &self,
        len: &dyn Fn(u32) -> u64,
        mine: &Option<Data>,
        blocks: &Blocks<'_>,
        root: Option<u32>,
    ) -> Result<()> {
        let me = self.attachment.me;
        let takes = root.is_none_or(|root| root == me);
        let own = match mine {
            Some(mine) => mine.clone(),
            None => blocks.one(me),
        };
        let longest = (0..self.members()).map(len).max().unwrap_or(0);
        for (at, most) in pieces(longest, self.piece(self.lane_len(), longest)) {
            let epoch = self.next_epoch();
            let part = some(&own, at, most);
            if root != Some(me) {
                self.put(&part, &self.in_lane(me, epoch, 0, most));
            }
            self.barrier_with(epoch, || {
                if takes && mine.is_some() {
                    self.keep(&part, &some(&blocks.one(me), at, most));
                }
            })?;
            if takes {
                for from in self.attachment.others() {
                    let here = some(&blocks.one(from), at, most);
                    self.take(&self.in_lane(from, epoch, 0, here.len), &here);
                }
            }
        }
        Ok(())
    }

    /// Gathers to all by direct reads. Returns `false` if lanes must serve.
    pub(super) fn gather_directly(&self, mine: &Option<Data>, blocks: &Blocks<'_>) -> Result<bool> {
        let me = self.attachment.me;
        let own = match mine {
            Some(mine) => mine.clone(),
            None => blocks.one(me),
        };
        let mut wanted = self.attachment.others().map(|from| ReadRequest {
            from,
            offset: 0,
            into: blocks.one(from),
        });
        let keep = || {
            if mine.is_some() {
                typed_buffer::copy_own(&own, &blocks.one(me));
            }
        };
        self.direct()
            .read_directly(&ReadOffer::Lend(own.clone()), &mut wanted, keep)
    }

    pub(super) fn scatter(
        &self,
        block: u64,
        blocks: &Blocks<'_>,
        mine: &Option<Data>,
        root: u32,
    ) -> Result<()> {
        let me = self.attachment.me;
        let piece = share(self.attachment.segment.lane_len(), self.members(), block);
        for (at, len) in pieces(block, piece) {
            let epoch = self.next_epoch();
            if root == me {
                for to in self.attachment.others() {
                    let there = self.share_of((me, to), epoch, (piece, len));
                    self.put(&slice(&blocks.one(to), at, len), &there);
                }
            }
            self.barrier(epoch)?;
            if let (true, Some(mine)) = (root != me, mine) {
                let there = self.share_of((root, me), epoch, (piece, len));
                self.take(&there, &slice(mine, at, len));
            }
        }
        if let (true, Some(mine)) = (root == me, mine) {
            typed_buffer::copy(&blocks.one(me), mine);
        }
        Ok(())
    }

    /// In place, a piece of a block is received after the same piece was put down.
    pub(super) fn alltoall(&self, block: u64, send: &Blocks<'_>, recv: &Blocks<'_>) -> Result<()> {
        self.exchange_blocks(block, send, recv, &|_| block)
    }

    /// Exchanges blocks by direct reads. Returns `false` if lanes must serve.
    pub(super) fn alltoall_directly(
        &self,
        block: u64,
        send: &Blocks<'_>,
        recv: &Blocks<'_>,
    ) -> Result<bool> {
        let (me, n) = (self.attachment.me, self.members());
        let offer = match send.one(0).mem == recv.one(0).mem {
            true => ReadOffer::InPlace,
            false => ReadOffer::Lend(send.run(0, n)),
        };
        let mut wanted = self.attachment.others().map(|from| ReadRequest {
            from,
            offset: u64::from(me) * block,
            into: recv.one(from),
        });
        let keep = || typed_buffer::copy_own(&send.one(me), &recv.one(me));
        self.direct().read_directly(&offer, &mut wanted, keep)
    }

    /// Blocks of at most `block` bytes, of which so many come from each rank.
    fn exchange_blocks(
        &self,
        block: u64,
        send: &Blocks<'_>,
        recv: &Blocks<'_>,
        sent: &dyn Fn(u32) -> u64,
    ) -> Result<()> {
        let me = self.attachment.me;
        let piece = self.piece(
            share(self.attachment.segment.lane_len(), self.members(), block),
            block,
        );
        for (at, most) in pieces(block, piece) {
            let epoch = self.next_epoch();
            for to in self.attachment.others() {
                let part = some(&send.one(to), at, most);
                self.put(&part, &self.share_of((me, to), epoch, (piece, part.len)));
            }
            self.barrier_with(epoch, || {
                self.keep(
                    &some(&send.one(me), at, most),
                    &some(&recv.one(me), at, most),
                );
            })?;
            for from in self.attachment.others() {
                let part = some(&recv.one(from), at, most.min(sent(from).saturating_sub(at)));
                self.take(&self.share_of((from, me), epoch, (piece, part.len)), &part);
            }
        }
        Ok(())
    }

    /// In the first meeting every rank says its longest block and how much it has for each other.
    /// `false`: too much for lanes.
    ///
    /// # Errors
    /// `Truncate` for a block that is longer than the room for it; all blocks are moved as far as
    /// there is room.
    pub(super) fn uneven(
        &self,
        kind: CollectiveKind,
        send: &Blocks<'_>,
        recv: &Blocks<'_>,
    ) -> Result<bool> {
        let (me, n, epoch) = (self.attachment.me, self.members(), self.next_epoch());
        let lane = |member| self.attachment.segment.lane(member, epoch);
        let own = (0..n).map(|to| send.len(to)).max().unwrap_or(0);
        lane(me).write(0, &own.to_ne_bytes());
        for to in 0..n {
            lane(me).write(8 * (to as isize + 1), &send.len(to).to_ne_bytes());
        }
        self.barrier(epoch)?;
        let longest =
            (self.attachment.others().map(|from| number(lane(from), 0))).fold(own, u64::max);
        let sent: Vec<u64> = (0..n).map(|from| number(lane(from), me + 1)).collect();
        let sent = |from: u32| sent.get(from as usize).copied().unwrap_or(0);
        let over = (0..n).find(|&from| sent(from) > recv.len(from));
        let over = over.map(|from| self.too_long(kind, from, sent(from), recv.len(from)));
        if longest == 0 {
            return Ok(true);
        }
        if !suits_alltoall(self.attachment.segment.lane_len(), n, longest) {
            return Ok(false);
        }
        let sort = CallClass {
            pattern: TrafficPattern::Alltoall,
            len: longest,
        };
        let open = self.available_paths(TrafficPattern::Alltoall, longest);
        self.run_tuned(sort, open, |lanes, _| {
            lanes.exchange_blocks(longest, send, recv, &sent)
        })?;
        over.map_or(Ok(true), Err)
    }

    #[cold]
    fn too_long(&self, kind: CollectiveKind, from: u32, sent: u64, room: u64) -> Error {
        let text = format!(
            "{kind}: rank {from} sends {sent} B to rank {}, which has room for {room} B",
            self.attachment.me
        );
        self.sync.comm.error(Class::Truncate, text)
    }
}
