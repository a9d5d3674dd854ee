//! The paths of large data between a pair: one connection that every pair has, one for each further
//! network that both hosts are on, and one by libfabric; or, of two ranks of one host, one
//! connection and the memory that both reach.
//!
//! Owned by the transport, one per peer. What is to be read is cut into pieces, and each is asked
//! for on whichever connection has room for it, as the engine's strategy says (`strategy::split`)
//! from what each has moved so far; so ratios follow what networks do while they do it. A piece
//! whose connection breaks, or brings nothing while others do, is asked for again elsewhere. With
//! one way, a read is one piece and no clock is read. Time is an argument. Bounded by what the
//! engine asks for.

mod eager_prefix;
pub(crate) mod measured_rates;

use crate::bulk::RequestedRange;
use crate::connection::Connection;
use crate::frame::{FABRIC, MEMORY, ReadRequest};
use crate::memory_path::MemoryPath;
use crate::ofi_path::OfiPath;
use crate::path_rate::PathRate;
use crate::path_transport::PathTransport;
use crate::peer::ConnectAttempts;
use crate::stripe_settings::StripeRule;
use crate::sys;
use garonne_engine::api::Peer;
use garonne_engine::limits::STRIPE_LEAST;
use garonne_engine::schedule::plugin::{CheckedPlugin, RailView, StripeQuery};
use garonne_engine::schedule::stripe::{self, RailEstimate};
use garonne_engine::transport::{BulkToken, RegionDescriptor};
use garonne_sync::user::Data;
use garonne_transport::limits::{OFI_SILENT_CHECKS, TCP_MULTIPATH_MIN, TCP_PATH_RATE, TCP_PIECES};
use std::ops::Range;
use std::time::Instant;

/// Something that the engine reads.
#[derive(Debug)]
struct StripedRead {
    key: u64,
    token: BulkToken,
    ask: ReadRequest,
    local: Data,
    local_offset: u64,
    /// Ranges that nobody is asked for, from the last to the first.
    left: Vec<(u64, u64)>,
    /// Pieces that somebody is asked for.
    asked: u32,
    refused: bool,
    /// A device cannot read it by itself.
    by_sockets: bool,
    /// The right to the memory where it lies, of a peer of this host.
    memory: Option<RegionDescriptor>,
}

/// One of the ways.
#[derive(Debug, Default)]
pub(crate) struct Path {
    pub(crate) bulk: PathTransport,
    pub(crate) calls: ConnectAttempts,
    pace: PathRate,
}

impl Path {
    fn is_usable(&self) -> bool {
        // What has answered since it stood still does not any more.
        let stalls = self.pace.stalls && self.pace.heard == self.bulk.heard();
        self.bulk.is_ready() && !stalls && !self.pace.drained
    }
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadResult {
    Done(BulkToken),
    Refused(BulkToken),
}

/// Connections for the large data of one peer, one a path, and the reads that are divided among
/// them. Owned by the peer's record.
#[derive(Debug, Default)]
pub(crate) struct Multipath {
    paths: Vec<Path>,
    wholes: Vec<StripedRead>,
    next_key: u64,
    /// More ways than the first are there or may be.
    several: bool,
}

impl Multipath {
    pub(crate) fn get(&self, path: u8) -> Option<&Path> {
        self.paths.get(usize::from(path))
    }

    /// The way of this number, which is at most [`FABRIC`]: streams have no others.
    pub(crate) fn at(&mut self, path: u8) -> &mut Path {
        let path = usize::from(path.min(FABRIC));
        while self.paths.len() <= path {
            self.paths.push(Path::default());
        }
        let one = &mut self.paths[path];
        if path == usize::from(FABRIC) && one.bulk.fabric().is_none() {
            one.bulk = PathTransport::Fabric(Box::default());
        }
        self.several |= path > 0;
        &mut self.paths[path]
    }

    /// The way by libfabric, if it was ever asked for.
    pub(crate) fn fabric(&self) -> Option<&OfiPath> {
        self.get(FABRIC)?.bulk.fabric()
    }

    /// Returns the libfabric path, to be changed.
    pub(crate) fn fabric_mut(&mut self) -> Option<&mut OfiPath> {
        self.paths.get_mut(usize::from(FABRIC))?.bulk.fabric_mut()
    }

    /// Returns whether anything of this region is lent to a device.
    pub(crate) fn lends(&self, cookie: u64) -> bool {
        self.fabric().is_some_and(|fabric| fabric.lends(cookie))
    }

    /// Numbers of the ways that there are.
    pub(crate) fn numbers(&self) -> Range<u8> {
        0..self.paths.len() as u8
    }

    /// Further networks are there.
    pub(crate) fn expect_several(&mut self) {
        self.several = true;
    }

    /// Nobody waits for anything on any way, here or there.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |path: &Path| !path.bulk.is_wanted() && !path.bulk.has_to_send();
        self.wholes.is_empty()
            && self.paths.iter().all(idle)
            && !self.fabric().is_some_and(OfiPath::needs_polls)
    }

    /// This side waits for something.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.wholes.is_empty()
    }

    /// Returns whether so much is to be read that further paths are worth opening.
    pub(crate) fn is_much(&self) -> bool {
        let asked: u64 = self.paths.iter().map(|path| path.bulk.backlog()).sum();
        self.left() + asked >= TCP_MULTIPATH_MIN
    }

    /// Something is asked for on this way, or would be on the first.
    pub(crate) fn is_wanted_on(&self, path: u8) -> bool {
        match path {
            0 => self.is_wanted(),
            _ => self.is_much(),
        }
    }

    pub(crate) fn is_serving(&self) -> bool {
        self.paths.iter().any(|path| path.bulk.is_serving())
    }

    /// Starts a read. The local range is valid until it is told of.
    pub(crate) fn read(&mut self, token: BulkToken, ask: ReadRequest, local: (Data, u64)) {
        self.wholes.push(StripedRead {
            key: self.next_key,
            token,
            ask,
            by_sockets: local.0.layout.is_some(),
            local: local.0,
            local_offset: local.1,
            left: vec![(0, ask.len)],
            asked: 0,
            refused: false,
            memory: None,
        });
        self.next_key += 1;
    }

    /// Starts a read of a region that lies in memory which this side reaches, as `memory` says:
    /// that is one of the ways.
    pub(crate) fn read_by_both(
        &mut self,
        (token, ask): (BulkToken, ReadRequest),
        memory: RegionDescriptor,
        local: (Data, u64),
    ) {
        let way = &mut self.at(MEMORY).bulk;
        if way.memory().is_none() {
            *way = PathTransport::Memory(MemoryPath::default());
        }
        self.read(token, ask, local);
        if let Some(whole) = self.wholes.last_mut() {
            whole.memory = Some(memory);
        }
    }

    /// Returns the next piece to be copied: from where, and where it goes.
    pub(crate) fn next_copy(&self) -> Option<(RegionDescriptor, u64, (Data, u64), u64)> {
        let (piece, local, local_offset) = self.get(MEMORY)?.bulk.memory()?.next()?;
        let whole = self.wholes.iter().find(|whole| whole.key == piece.whole)?;
        let offset = whole.ask.offset + piece.at;
        Some((
            whole.memory?,
            offset,
            (local.clone(), local_offset),
            piece.len,
        ))
    }

    /// Records that `len` bytes were copied by the memory path.
    pub(crate) fn copied(&mut self, len: u64) -> Option<ReadResult> {
        let piece = self.at(MEMORY).bulk.memory_mut()?.copied(len)?;
        self.ended(MEMORY, piece, false)
    }

    /// Fails the copy: its read ends, and what others bring of it goes nowhere.
    pub(crate) fn fail_copy(&mut self) -> Option<BulkToken> {
        let (piece, ..) = self.get(MEMORY)?.bulk.memory()?.next()?;
        for path in self.numbers() {
            let rest = self.at(path).bulk.give_up();
            self.give_back(rest);
        }
        let at = self
            .wholes
            .iter()
            .position(|whole| whole.key == piece.whole)?;
        Some(self.wholes.remove(at).token)
    }

    /// The reads of this side, which will not be served any more.
    pub(crate) fn take_reads(&mut self) -> Vec<BulkToken> {
        for path in &mut self.paths {
            path.bulk.give_up();
        }
        self.wholes.drain(..).map(|whole| whole.token).collect()
    }

    /// Memory of this region is not touched any more, but for what is lent to a device. The ways
    /// whose connections have to end.
    #[must_use]
    pub(crate) fn revoke(&mut self, cookie: u64) -> Vec<u8> {
        let paths = (0..).zip(&mut self.paths);
        paths
            .filter_map(|(number, path)| path.bulk.revoke(cookie).then_some(number))
            .collect()
    }

    /// A connection of this way is open.
    pub(crate) fn adopt(&mut self, path: u8, channel: Connection) {
        let path = self.at(path);
        // Before anything queues; later it would be the time that this side's own bytes wait.
        let latency = sys::round_trip(channel.fd()).unwrap_or(0);
        path.pace = PathRate {
            bytes: path.pace.bytes,
            took: path.pace.took,
            found: path.pace.found,
            // With the rate, since that is doubted by when it was found.
            last: path.pace.last,
            share: path.pace.share,
            latency: latency.into(),
            // What is asked for before the first look has until the next, too.
            heard: u64::MAX,
            ..PathRate::default()
        };
        let rest = path.bulk.adopt(channel);
        self.give_back(rest);
    }

    /// Nothing more is asked for on this way, or something may be again.
    pub(crate) fn set_drained(&mut self, path: u8, drained: bool) {
        self.at(path).pace.drained = drained;
    }

    /// Sets the part that a way should give by where its device is, of what the best gives.
    pub(crate) fn set_share(&mut self, path: u8, share: f64) {
        self.at(path).pace.share = Some(share);
    }

    /// A connection has ended.
    pub(crate) fn cut(&mut self, path: u8) {
        let rest = self.at(path).bulk.cut();
        self.at(path).pace.since = None;
        self.give_back(rest);
    }

    /// Pieces that have to be asked for again. Of a refused read this may have been the last: the
    /// next that is told of it says so.
    pub(crate) fn give_back(&mut self, rest: Vec<RequestedRange>) {
        for piece in rest {
            if let Some(whole) = self
                .wholes
                .iter_mut()
                .find(|whole| whole.key == piece.whole)
            {
                whole.asked -= 1;
                if !whole.refused {
                    whole.left.push((piece.at, piece.len));
                }
            }
        }
    }

    /// A piece came, or was refused.
    pub(crate) fn ended(
        &mut self,
        path: u8,
        piece: RequestedRange,
        refused: bool,
    ) -> Option<ReadResult> {
        if self.several {
            let path = self.at(path);
            let more = path.bulk.asked() > 0;
            path.pace.came(Instant::now(), path.bulk.moved(), more);
        }
        let at = self
            .wholes
            .iter()
            .position(|whole| whole.key == piece.whole)?;
        let whole = &mut self.wholes[at];
        whole.asked -= 1;
        if refused {
            whole.refused = true;
            whole.left.clear();
        }
        self.is_over(at)
    }

    /// A piece cannot be read by a device: what is left of its read comes by sockets.
    pub(crate) fn declined(&mut self, piece: RequestedRange) {
        if let Some(whole) = self
            .wholes
            .iter_mut()
            .find(|whole| whole.key == piece.whole)
        {
            whole.by_sockets = true;
        }
        self.give_back(vec![piece]);
    }

    fn is_over(&mut self, at: usize) -> Option<ReadResult> {
        let whole = &self.wholes[at];
        if whole.asked > 0 || !whole.left.is_empty() {
            return None;
        }
        let whole = self.wholes.remove(at);
        Some(match whole.refused {
            true => ReadResult::Refused(whole.token),
            false => ReadResult::Done(whole.token),
        })
    }

    /// A read of which a piece was refused, and whose other pieces went back.
    pub(crate) fn refused_whole(&mut self) -> Option<ReadResult> {
        let at = self
            .wholes
            .iter()
            .position(|whole| whole.refused && whole.asked == 0)?;
        self.is_over(at)
    }

    /// Asks for what nobody is asked for, where there is room, as `how` says. The ways on which
    /// something is to be sent now, as bits.
    pub(crate) fn spread(&mut self, how: StripeRule<'_>) -> u32 {
        if self.wholes.iter().all(|whole| whole.left.is_empty()) {
            return 0;
        }
        let mut usable: Vec<usize> = (0..self.paths.len())
            .filter(|path| self.paths[*path].is_usable())
            .collect();
        let is_own = |path: &usize| self.paths[*path].pace.share != Some(0.0);
        if usable.iter().any(is_own) {
            usable.retain(is_own);
        }
        match usable[..] {
            [] => 0,
            [only] if !self.several => {
                while let Some((at, len)) = self.next_left(true) {
                    self.ask(only, at, len);
                }
                1 << only
            }
            _ => self.spread_over(&usable, how),
        }
    }

    fn spread_over(&mut self, usable: &[usize], (splitting, consult): StripeRule<'_>) -> u32 {
        let now = Instant::now();
        let fastest = self.fastest(usable);
        for path in usable {
            self.paths[*path].pace.forget_bad_moment(now, fastest);
        }
        let sockets: Vec<usize> = usable
            .iter()
            .copied()
            .filter(|path| self.paths[*path].bulk.fabric().is_none())
            .collect();
        let (mut asked, mut moved) = match consult {
            Some((loaded, peer)) => self.spread_as_told((usable, &sockets), (loaded, peer), now),
            None => (0, true),
        };
        while moved {
            moved = false;
            for path in usable {
                let is_socket = sockets.contains(path);
                let Some((at, len)) = self.next_left(is_socket) else {
                    continue;
                };
                // Those that could carry it.
                let able = if self.wholes[at].by_sockets {
                    &sockets[..]
                } else {
                    usable
                };
                let index = able.iter().position(|one| one == path).unwrap_or(0);
                let ways = self.ways(able);
                let len = if self.wholes[at].ask.len < TCP_MULTIPATH_MIN {
                    if stripe::first(&ways, len) == index {
                        len
                    } else {
                        0
                    }
                } else if self.paths[*path].bulk.asked() >= TCP_PIECES {
                    0
                } else {
                    let piece = splitting.piece(&ways, index, self.left());
                    // Of a way that nobody knows little is asked until it has shown what it does.
                    let known = self.paths[*path].pace.rate().is_some();
                    if known {
                        piece
                    } else {
                        piece.min(STRIPE_LEAST)
                    }
                };
                if len > 0 {
                    self.ask(*path, at, len);
                    let one = &mut self.paths[*path];
                    one.pace.asks(now, one.bulk.moved());
                    (moved, asked) = (true, asked | 1 << path);
                }
            }
        }
        asked
    }

    /// Asks for pieces as long as the strategy that was loaded names them. The ways on which
    /// something is to be sent, and whether the built-in strategy is to go on: it is not if the
    /// other says that nothing more should be asked for now.
    fn spread_as_told(
        &mut self,
        (usable, sockets): (&[usize], &[usize]),
        consult: (&CheckedPlugin, Peer),
        now: Instant,
    ) -> (u32, bool) {
        let (loaded, peer) = consult;
        let mut asked = 0;
        while let Some((at, len)) = self.next_left(true) {
            // Those that could carry it.
            let usable = if self.wholes[at].by_sockets {
                sockets
            } else {
                usable
            };
            let short = self.wholes[at].ask.len < TCP_MULTIPATH_MIN;
            let lanes = self.lanes(usable, short.then_some(len));
            if lanes.iter().all(|lane| lane.room == 0) {
                return (asked, false);
            }
            let left = if short { len } else { self.left() };
            let flow = StripeQuery {
                peer,
                left,
                least: if short { len } else { STRIPE_LEAST.min(left) },
                ways: &lanes,
            };
            match loaded.piece(&flow) {
                Some(Some(piece)) => {
                    let number = usable[piece.way];
                    self.ask(number, at, piece.len);
                    let path = &mut self.paths[number];
                    path.pace.asks(now, path.bulk.moved());
                    asked |= 1 << number;
                }
                Some(None) => return (asked, false),
                None => return (asked, true),
            }
        }
        (asked, false)
    }

    /// The usable ways as a strategy sees them. What is `whole` is not split, and is not kept
    /// waiting for room.
    fn lanes(&self, usable: &[usize], whole: Option<u64>) -> Vec<RailView> {
        let lane = |(way, path): (RailEstimate, &usize)| {
            let Path { bulk, pace, .. } = &self.paths[*path];
            let asked = bulk.asked() as u32;
            let room = match whole {
                Some(_) => 1,
                None => (TCP_PIECES as u32).saturating_sub(asked),
            };
            let lane = RailView::new(way, asked, room, pace.rate().is_some());
            RailView {
                most: whole.unwrap_or(lane.most),
                ..lane
            }
        };
        self.ways(usable)
            .into_iter()
            .zip(usable)
            .map(lane)
            .collect()
    }

    /// The best known rate; 0: none is known.
    fn fastest(&self, usable: &[usize]) -> f64 {
        let known = usable
            .iter()
            .filter_map(|path| self.paths[*path].pace.rate());
        known.fold(0.0, f64::max)
    }

    fn ways(&self, usable: &[usize]) -> Vec<RailEstimate> {
        let fastest = self.fastest(usable);
        let guess = if fastest > 0.0 {
            fastest
        } else {
            TCP_PATH_RATE
        };
        let way = |path: &usize| {
            let Path { bulk, pace, .. } = &self.paths[*path];
            RailEstimate {
                rate: pace
                    .rate()
                    .unwrap_or(guess * pace.share.unwrap_or(1.0).max(0.1)),
                latency: pace.latency,
                backlog: bulk.backlog(),
            }
        };
        usable.iter().map(way).collect()
    }

    /// Bytes that nobody is asked for.
    fn left(&self) -> u64 {
        let ranges = self.wholes.iter().flat_map(|whole| &whole.left);
        ranges.map(|(_, len)| len).sum()
    }

    /// The next range that nobody is asked for, and that a socket, or a device, can bring: the
    /// index of its read, and its length.
    fn next_left(&self, socket: bool) -> Option<(usize, u64)> {
        let is_next = |whole: &StripedRead| !whole.left.is_empty() && (socket || !whole.by_sockets);
        let at = self.wholes.iter().position(is_next)?;
        Some((at, self.wholes[at].left.last()?.1))
    }

    /// Asks for so much of the next range of a read, at most.
    fn ask(&mut self, path: usize, at: usize, most: u64) {
        let whole = &mut self.wholes[at];
        let Some((from, len)) = whole.left.pop() else {
            return;
        };
        let taken = len.min(most);
        if taken < len {
            whole.left.push((from + taken, len - taken));
        }
        whole.asked += 1;
        let piece = RequestedRange {
            whole: whole.key,
            at: from,
            len: taken,
        };
        let ask = ReadRequest {
            cookie: whole.ask.cookie,
            offset: whole.ask.offset + from,
            len: taken,
        };
        let local = (whole.local.clone(), whole.local_offset + from);
        self.paths[path].bulk.read(piece, ask, local);
    }

    /// Looks for ways that have brought nothing since the last such look although something was
    /// asked for, while another could: what they owe is asked for elsewhere. `true`: there is some.
    pub(crate) fn listen(&mut self) -> bool {
        let mut silent = Vec::new();
        for (number, path) in self.paths.iter_mut().enumerate() {
            let heard = path.bulk.heard();
            let waits = path.bulk.asked() > 0 && path.bulk.channel().is_some();
            let is_silent = waits && path.pace.heard == heard;
            path.pace.silent_looks = if is_silent {
                path.pace.silent_looks + 1
            } else {
                0
            };
            let looks = path.bulk.fabric().map_or(1, |_| OFI_SILENT_CHECKS);
            if path.pace.silent_looks >= looks && !path.pace.stalls {
                silent.push(number);
            }
            if path.pace.heard != heard {
                path.pace.stalls = false;
            }
            // What is asked for only now has until the next look.
            path.pace.heard = if waits { heard } else { u64::MAX };
        }
        let others = |silent: &[usize]| {
            (0..self.paths.len())
                .any(|path| !silent.contains(&path) && self.paths[path].is_usable())
        };
        if silent.is_empty() || !others(&silent) {
            return false;
        }
        for path in silent {
            let path = &mut self.paths[path];
            path.pace.stalls = true;
            path.pace.since = None;
            let rest = path.bulk.give_up();
            self.give_back(rest);
        }
        true
    }

    /// Bytes that each way has brought.
    pub(crate) fn bytes_brought(&self) -> Vec<u64> {
        self.paths.iter().map(|path| path.bulk.moved()).collect()
    }

    /// Megabytes that a way was seen to bring in a second, and has brought; 0: not known. What it
    /// began with nobody saw now.
    pub(crate) fn brought(&self, path: u8) -> (u32, u32) {
        let brought = |path: &Path| {
            (
                path.pace.rate().filter(|_| path.pace.found).unwrap_or(0.0) as u32,
                (path.bulk.moved() / 1_000_000) as u32,
            )
        };
        self.get(path).map_or((0, 0), brought)
    }
}

#[cfg(test)]
mod tests;
