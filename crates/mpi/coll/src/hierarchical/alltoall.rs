//! An exchange of short blocks between all ranks, in one message from each node to each other.
//!
//! The ranks of a node divide the other nodes among themselves. Each rank hands its blocks for a
//! node to the one that is responsible for it; that one sends what all have for that node in one
//! message, and hands what comes from there to those that it is for. Every block is copied five
//! times, and every rank needs temporary room for about five times the call's data.

use crate::blocks::Blocks;
use crate::node_map::NodeMap;
use crate::plan::Plan;
use crate::temp_buffer::NoMemory;
use crate::typed_buffer::slice;
use garonne_sync::user::Data;

/// Which of the `size` ranks of a node is responsible for node `other`.
fn responsible(size: u32, other: u32) -> u32 {
    other % size
}

/// Packed blocks of `len` bytes that are filled or emptied one after the other.
struct PackedBlocks {
    data: Data,
    len: u64,
    at: u64,
}

impl PackedBlocks {
    fn new<E: From<NoMemory>>(
        p: &mut dyn Plan<Error = E>,
        blocks: u64,
        len: u64,
    ) -> Result<Self, E> {
        let bytes = blocks * len;
        Ok(Self {
            data: Data::contiguous(p.scratch(bytes)?, bytes),
            len,
            at: 0,
        })
    }

    /// The next so many blocks.
    fn next(&mut self, blocks: u64) -> Data {
        let next = slice(&self.data, self.at, blocks * self.len);
        self.at += blocks * self.len;
        next
    }

    /// Returns `blocks` packed blocks, the first of which is number `block`.
    fn from(&self, block: u64, blocks: u64) -> Data {
        slice(&self.data, block * self.len, blocks * self.len)
    }
}

/// Carries it out. Sending and receiving blocks may be the same memory.
pub fn alltoall<E: From<NoMemory>>(
    p: &mut dyn Plan<Error = E>,
    spread: &NodeMap,
    send: &Blocks<'_>,
    recv: &Blocks<'_>,
) -> Result<(), E> {
    let exchange = NodeExchange {
        spread,
        block: recv.len(p.me()),
    };
    let gathered = exchange.hand_out(p, send, recv)?;
    let arrived = exchange.between_nodes(p, &gathered)?;
    exchange.hand_in(p, &arrived, recv)
}

struct NodeExchange<'a> {
    spread: &'a NodeMap,
    /// Bytes of every block.
    block: u64,
}

impl NodeExchange<'_> {
    /// Ranks of the own node, and the own place among them.
    fn here(&self) -> (u32, u32) {
        let (node, me) = self.spread.mine();
        (self.spread.size(node), me)
    }

    /// The other nodes that a rank of the own node is responsible for.
    fn nodes_of(&self, index: u32) -> impl Iterator<Item = u32> + '_ {
        let ((own, _), (size, _)) = (self.spread.mine(), self.here());
        (0..self.spread.nodes())
            .filter(move |node| *node != own && responsible(size, *node) == index)
    }

    /// Returns how many ranks those have.
    fn ranks_of(&self, index: u32) -> u64 {
        self.nodes_of(index)
            .map(|node| u64::from(self.spread.size(node)))
            .sum()
    }

    fn neighbour(&self, index: u32) -> u32 {
        self.spread.rank(self.spread.mine().0, index)
    }

    /// Blocks for ranks of the own node go there; those for others to who is responsible for their
    /// nodes. Returns what was handed to this rank: by rank of the own node, then by node, then by
    /// rank there.
    fn hand_out<E: From<NoMemory>>(
        &self,
        p: &mut dyn Plan<Error = E>,
        send: &Blocks<'_>,
        recv: &Blocks<'_>,
    ) -> Result<PackedBlocks, E> {
        let (size, me) = self.here();
        // All is packed before anything arrives where it may have lain.
        let mut packed = Vec::new();
        for index in 0..size {
            let mut run = PackedBlocks::new(p, 1 + self.ranks_of(index), self.block)?;
            p.copy(send.one(self.neighbour(index)), run.next(1))?;
            for node in self.nodes_of(index) {
                for there in 0..self.spread.size(node) {
                    p.copy(send.one(self.spread.rank(node, there)), run.next(1))?;
                }
            }
            packed.push(run);
        }
        let mine = self.ranks_of(me);
        let mut gathered = PackedBlocks::new(p, u64::from(size) * mine, self.block)?;
        for index in 0..size {
            let (rank, room) = (self.neighbour(index), gathered.next(mine));
            if index == me {
                p.copy(packed[me as usize].from(0, 1), recv.one(rank))?;
                if mine > 0 {
                    p.copy(packed[me as usize].from(1, mine), room)?;
                }
                continue;
            }
            p.recv(rank, recv.one(rank))?;
            if mine > 0 {
                p.recv(rank, room)?;
            }
        }
        for index in (0..size).filter(|index| *index != me) {
            let (rank, theirs) = (self.neighbour(index), self.ranks_of(index));
            p.send(rank, packed[index as usize].from(0, 1))?;
            if theirs > 0 {
                p.send(rank, packed[index as usize].from(1, theirs))?;
            }
        }
        p.fence()?;
        Ok(gathered)
    }

    /// One message to each node that this rank is responsible for, and one from there. Returns what
    /// came, by node: by rank there, then by rank of the own node.
    fn between_nodes<E: From<NoMemory>>(
        &self,
        p: &mut dyn Plan<Error = E>,
        gathered: &PackedBlocks,
    ) -> Result<Vec<(u32, PackedBlocks)>, E> {
        let ((own, me), (size, _)) = (self.spread.mine(), self.here());
        let mine = self.ranks_of(me);
        let mut before = 0;
        let mut arrived = Vec::new();
        for node in self.nodes_of(me) {
            let ranks = u64::from(self.spread.size(node));
            let there = self
                .spread
                .rank(node, responsible(self.spread.size(node), own));
            let mut leaving = PackedBlocks::new(p, u64::from(size) * ranks, self.block)?;
            for index in 0..u64::from(size) {
                p.copy(
                    gathered.from(index * mine + before, ranks),
                    leaving.next(ranks),
                )?;
            }
            before += ranks;
            let coming = PackedBlocks::new(p, u64::from(size) * ranks, self.block)?;
            p.recv(there, coming.data.clone())?;
            p.send(there, leaving.data)?;
            arrived.push((node, coming));
        }
        p.fence()?;
        Ok(arrived)
    }

    /// Distributes the data from other nodes to the ranks that it is for.
    fn hand_in<E: From<NoMemory>>(
        &self,
        p: &mut dyn Plan<Error = E>,
        arrived: &[(u32, PackedBlocks)],
        recv: &Blocks<'_>,
    ) -> Result<(), E> {
        let (size, me) = self.here();
        let mut incoming = Vec::new();
        for index in (0..size).filter(|index| *index != me) {
            let theirs = self.ranks_of(index);
            if theirs > 0 {
                let run = PackedBlocks::new(p, theirs, self.block)?;
                p.recv(self.neighbour(index), run.data.clone())?;
                incoming.push((index, run));
            }
        }
        for index in 0..size {
            let mut run = PackedBlocks::new(p, self.ranks_of(me), self.block)?;
            for (node, came) in arrived {
                for there in 0..self.spread.size(*node) {
                    let block = came.from(u64::from(there) * u64::from(size) + u64::from(index), 1);
                    match index == me {
                        true => p.copy(block, recv.one(self.spread.rank(*node, there)))?,
                        false => p.copy(block, run.next(1))?,
                    }
                }
            }
            if index != me && run.data.len > 0 {
                p.send(self.neighbour(index), run.data)?;
            }
        }
        p.fence()?;
        for (index, mut run) in incoming {
            for node in self.nodes_of(index) {
                for there in 0..self.spread.size(node) {
                    p.copy(run.next(1), recv.one(self.spread.rank(node, there)))?;
                }
            }
        }
        Ok(())
    }
}
