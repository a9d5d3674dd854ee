//! The protocol tuners of all peers, and the clock that measures for them.
//!
//! Owned by the transport. One fetch at a time is measured, and only if no other runs beside it:
//! two would slow each other. The clock is read twice for each message that is measured. What is
//! known is also shown in a table at a fixed place, for those who watch from outside. Bounded by
//! the peers that announced something.

use crate::cost_model::CostModel;
use crate::protocol_tuner::{ProtocolTuner, TunerReport, WAYS, class_len};
use garonne_engine::api::Peer;
use garonne_engine::transport::{BulkToken, RendezvousMode};
use garonne_transport::limits::{TUNER_CLASSES, TUNERS_SHOWN};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// Words of a row: the peer plus one (0: none), then for each class the paces in the order of
/// [`WAYS`], in picoseconds per byte.
const ROW: usize = 1 + TUNER_CLASSES * WAYS.len();

/// Bytes of the table that [`ProtocolTuners::shown_at`] tells of.
pub const SHOWN_BYTES: usize = TUNERS_SHOWN * ROW * 4;

/// The paces in a table that was read from another process, which may be anything: by peer, what is
/// known of each length.
pub fn read_shown(table: &[u8]) -> Vec<(Peer, Vec<(u64, TunerReport)>)> {
    let word = |at: usize| {
        let bytes = table.get(4 * at..4 * at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    };
    let row = |row: usize| {
        let peer = word(row * ROW)?.checked_sub(1)?;
        let classes = (0..TUNER_CLASSES).filter_map(|class| {
            let first = row * ROW + 1 + class * WAYS.len();
            let costs: [Option<u32>; WAYS.len()] =
                std::array::from_fn(|way| word(first + way).filter(|cost| *cost > 0));
            let best = (0..WAYS.len())
                .filter(|way| costs[*way].is_some())
                .min_by_key(|way| costs[*way])?;
            let known = TunerReport {
                costs: costs.map(|cost| cost.map(|cost| f64::from(cost) * 1.024)),
                preferred: WAYS[best],
            };
            Some((class_len(class), known))
        });
        Some((peer, classes.collect()))
    };
    (0..TUNERS_SHOWN).filter_map(row).collect()
}

#[derive(Clone, Copy, Debug)]
struct TimedFetch {
    token: BulkToken,
    peer: Peer,
    len: u64,
    way: RendezvousMode,
    start: Instant,
}

/// The tuner of each peer of this host, and the table of them that tools read. Owned by the
/// transport.
#[derive(Debug)]
pub(crate) struct ProtocolTuners {
    /// By peer; made at its first announcement.
    of: Vec<Option<Box<ProtocolTuner>>>,
    seed: ProtocolTuner,
    running: Option<TimedFetch>,
    /// Fetches that go on.
    alive: u32,
    /// Rows of [`ROW`] words. Relaxed: each word is right by itself.
    shown: Box<[AtomicU32]>,
}

impl ProtocolTuners {
    pub(crate) fn new(peers: u32) -> Self {
        Self {
            of: bytemuck::zeroed_vec(peers as usize),
            seed: ProtocolTuner::default(),
            running: None,
            alive: 0,
            shown: (0..TUNERS_SHOWN * ROW).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// The address of the table that shows what is known, which stays as long as this lives.
    pub(crate) fn shown_at(&self) -> usize {
        self.shown.as_ptr().expose_provenance()
    }

    /// Shows one pace.
    fn show(&self, peer: Peer, len: u64, way: RendezvousMode) {
        let Some(tuner) = self.of(peer) else { return };
        let row = self.shown.chunks_exact(ROW).find(|row| {
            let owner = row[0].load(Ordering::Relaxed);
            owner == 0 || owner == peer + 1
        });
        if let Some(row) = row {
            let (at, value) = tuner.cell(len, way);
            row[0].store(peer + 1, Ordering::Relaxed);
            row[1 + at].store(value, Ordering::Relaxed);
        }
    }

    /// All paces begin with what the model says.
    pub(crate) fn seed(&mut self, costs: &CostModel) {
        for (way, len, ns) in costs.fetch_times() {
            self.seed.seed(way, len, ns);
        }
        self.of = bytemuck::zeroed_vec(self.of.len());
    }

    /// The pace from a peer, if it announced anything yet.
    pub(crate) fn of(&self, peer: Peer) -> Option<&ProtocolTuner> {
        self.of.get(peer as usize)?.as_deref()
    }

    fn open(&mut self, peer: Peer) -> Option<&mut ProtocolTuner> {
        let slot = self.of.get_mut(peer as usize)?;
        Some(slot.get_or_insert_with(|| Box::new(self.seed.clone())))
    }

    /// Decides how a message is fetched, which begins now.
    pub(crate) fn begin(
        &mut self,
        token: BulkToken,
        peer: Peer,
        len: u64,
        able: impl Fn(RendezvousMode) -> bool,
    ) -> RendezvousMode {
        let alone = self.alive == 0;
        self.alive += 1;
        let Some(tuner) = self.open(peer) else {
            return RendezvousMode::Data;
        };
        let way = tuner.decide(len, able);
        self.running = alone.then(|| TimedFetch {
            token,
            peer,
            len,
            way,
            start: Instant::now(),
        });
        way
    }

    /// A fetch begins whose time says nothing.
    pub(crate) fn begin_unmeasured(&mut self) {
        self.alive += 1;
        self.running = None;
    }

    /// A fetch is over; `worked` is false if its way cannot be gone.
    pub(crate) fn end(&mut self, token: BulkToken, worked: bool) {
        self.alive = self.alive.saturating_sub(1);
        let Some(running) = self.running.take_if(|running| running.token == token) else {
            return;
        };
        if let Some(tuner) = self.open(running.peer) {
            if worked {
                tuner.took(running.way, running.len, running.start.elapsed());
                self.show(running.peer, running.len, running.way);
            } else {
                tuner.bar(running.way);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol_tuner::WAYS;

    const LEN: u64 = 1 << 20;

    #[test]
    fn only_a_fetch_that_runs_alone_is_measured() {
        let mut tuners = ProtocolTuners::new(2);
        tuners.begin(1, 1, LEN, |way| way == RendezvousMode::Read);
        tuners.begin(2, 1, LEN, |way| way == RendezvousMode::Read);
        tuners.end(1, true);
        tuners.end(2, true);
        let nothing = |tuners: &ProtocolTuners| {
            tuners
                .of(1)
                .map(|tuner| tuner.known(LEN).costs == [None; WAYS.len()])
        };
        assert_eq!(nothing(&tuners), Some(true));
        tuners.begin(3, 1, LEN, |way| way == RendezvousMode::Read);
        tuners.end(3, true);
        assert_eq!(nothing(&tuners), Some(false));
    }

    #[test]
    fn a_way_that_fails_is_not_gone_again() {
        let mut tuners = ProtocolTuners::new(2);
        for token in 0..100 {
            let way = tuners.begin(token, 1, LEN, |_| true);
            assert!(
                token < 10 || !matches!(way, RendezvousMode::Write | RendezvousMode::Share),
                "{token}"
            );
            tuners.end(
                token,
                matches!(way, RendezvousMode::Read | RendezvousMode::Data),
            );
        }
    }

    #[test]
    fn what_is_known_is_shown_as_it_is() {
        let mut tuners = ProtocolTuners::new(40);
        for token in 0..200 {
            let len = LEN << (token % 2);
            tuners.begin(token, (token % 20) as Peer, len, |_| true);
            tuners.end(token, true);
        }
        let words = tuners
            .shown
            .iter()
            .map(|word| word.load(Ordering::Relaxed).to_le_bytes());
        let table: Vec<u8> = words.flatten().collect();
        assert_eq!(table.len(), SHOWN_BYTES);
        let shown = read_shown(&table);
        assert_eq!(shown.len(), TUNERS_SHOWN);
        for (peer, lengths) in shown {
            assert!(!lengths.is_empty());
            for (len, known) in lengths {
                let own = tuners.of(peer).map(|tuner| tuner.known(len));
                assert_eq!(own.map(|own| own.costs), Some(known.costs));
            }
        }
        assert!(read_shown(&table[..3]).is_empty() && read_shown(&[0xff; 100]).len() == 1);
    }

    #[test]
    fn peers_that_do_not_exist_send_packets() {
        let mut tuners = ProtocolTuners::new(1);
        assert_eq!(tuners.begin(1, 7, LEN, |_| true), RendezvousMode::Data);
        tuners.end(1, true);
    }
}
