//! Counters of what an engine has sent, readable by other processes at any moment, also while the
//! rank computes.
//!
//! Small messages are counted nowhere on their path. What was sent follows from the credits of each
//! peer and from how far its slot batch is. The header here says where those words lie in the
//! rank's memory. Whoever may read that memory computes the counters ([`read`]); the rank does
//! nothing for it. Owned by the engine's core, which reports new peers and slot batches; bounded by
//! the peers.

use std::sync::atomic::{AtomicU64, Ordering};

use garonne_sync::mailbox::UNIT;
use garonne_sync::slot_batch::SlotBatch;

use crate::peer::credits::CreditQuotas;
use crate::peer::state::{CreditWords, PLACES, PeerState};

/// First word of the header while the engine lives.
const MARK: u64 = 0x6761_726f_6e6e_6531;

/// The words of the header.
mod at {
    pub const MARK: usize = 0;
    /// Odd while the words behind it change.
    pub const SEQUENCE: usize = 1;
    pub const PEER_STATES: usize = 2;
    /// The address of the first peer state, and the bytes of each.
    pub const FIRST: usize = 3;
    pub const STRIDE: usize = 4;
    /// The address of the runs' words: [`super::BatchAddresses`] for each peer state.
    pub const RUNS: usize = 5;
    /// Bytes that a slot batch goes on for each record.
    pub const RECORD: usize = 6;
    pub const ENVELOPES: usize = 7;
    pub const PAYLOAD: usize = 8;
    /// Offsets of the words of a peer state, in the order of [`crate::peer::state::PLACES`].
    pub const PLACES: usize = 9;
}

const HEADER_WORDS: usize = at::PLACES + PLACES.len();
/// Peer states and bytes of one that a header is believed to have: above these it is no header any
/// more.
const PEER_STATES_MAX: u64 = 1 << 20;
const STRIDE_MAX: u64 = 1 << 12;
/// Number of attempts to read a peer state that changes meanwhile.
const TRIES: usize = 16;
/// Between the first and the last of a slot batch's words.
const RUN_BYTES_MAX: u64 = 256;

/// Addresses of the three words of a peer's run: its place, where it began, its payload; zeros: it
/// has none.
type BatchAddresses = [u64; 3];

/// Header in this process's memory that says where the words are from which others compute what was
/// sent.
#[derive(Debug)]
pub(crate) struct ExportedCounters {
    header: Box<[AtomicU64; HEADER_WORDS]>,
    runs: Vec<BatchAddresses>,
}

impl ExportedCounters {
    pub fn new(quotas: &CreditQuotas) -> Self {
        let header: [AtomicU64; HEADER_WORDS] = std::array::from_fn(|_| AtomicU64::new(0));
        let set = |word: usize, value: u64| header[word].store(value, Ordering::Relaxed);
        set(at::MARK, MARK);
        set(at::STRIDE, size_of::<PeerState>() as u64);
        set(at::RECORD, UNIT as u64);
        set(at::ENVELOPES, quotas.envelopes.into());
        set(at::PAYLOAD, quotas.payload);
        for (word, place) in (at::PLACES..).zip(PLACES) {
            set(word, place as u64);
        }
        Self {
            header: Box::new(header),
            runs: Vec::new(),
        }
    }

    /// Returns the fixed address of the header in this process.
    pub fn address(&self) -> usize {
        self.header.as_ptr().addr()
    }

    fn set(&self, word: usize, value: usize) {
        self.header[word].store(value as u64, Ordering::Release);
    }

    fn turn(&self) {
        let sequence = self.header[at::SEQUENCE].load(Ordering::Relaxed);
        self.header[at::SEQUENCE].store(sequence.wrapping_add(1), Ordering::SeqCst);
    }

    /// Peer states are about to be moved.
    pub fn hide(&self) {
        self.turn();
    }

    /// Publishes the addresses of all peer states.
    pub fn show(&mut self, peer_states: &[PeerState]) {
        self.runs.resize(peer_states.len(), [0; 3]);
        self.set(at::PEER_STATES, peer_states.len());
        self.set(at::FIRST, peer_states.as_ptr().addr());
        self.set(at::RUNS, self.runs.as_ptr().addr());
        self.turn();
    }

    /// A peer's run is this from now on.
    pub fn note_run(&mut self, peer_index: u32, run: Option<&SlotBatch>) {
        if let Some(words) = self.runs.get_mut(peer_index as usize) {
            *words = run.map_or([0; 3], |run| run.words_at().map(|address| address as u64));
        }
    }
}

impl Drop for ExportedCounters {
    fn drop(&mut self) {
        // Who still has the address finds that nobody counts there any more.
        self.header[at::MARK].store(0, Ordering::SeqCst);
    }
}

/// Counters read from a process's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterValues {
    /// Messages sent.
    pub messages: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Changes with messages that are received.
    pub received: u64,
}

/// Reads what an engine has counted, from the memory of its process, of which `read` gives so many
/// bytes at an address, or `None`. `address` is what the engine's shard gave as `counters_address`.
/// `None`: it cannot be read, or changes all the time, as with a rank that sends without a pause:
/// such a rank often publishes its counters itself.
pub fn read(address: u64, read: impl Fn(u64, usize) -> Option<Vec<u8>>) -> Option<CounterValues> {
    let memory = ExaminedMemory { read };
    let header = memory.header(address)?;
    let sequence = header[at::SEQUENCE];
    let sane = header[at::MARK] == MARK
        && sequence.is_multiple_of(2)
        && header[at::PEER_STATES] <= PEER_STATES_MAX
        && (1..=STRIDE_MAX).contains(&header[at::STRIDE])
        && header[at::PLACES..]
            .iter()
            .all(|place| *place < header[at::STRIDE]);
    if !sane {
        return None;
    }
    let peer_states = header[at::PEER_STATES] as usize;
    let stride = header[at::STRIDE] as usize;
    let quotas = CreditQuotas {
        envelopes: header[at::ENVELOPES] as u32,
        payload: header[at::PAYLOAD],
    };
    let mut sum = CounterValues::default();
    if peer_states > 0 {
        let runs = memory.bytes(header[at::RUNS], peer_states * size_of::<BatchAddresses>())?;
        let all = memory.bytes(header[at::FIRST], peer_states * stride)?;
        let places = &header[at::PLACES..];
        let rows = all.chunks_exact(stride).zip(runs.as_chunks::<24>().0);
        for ((bytes, run), number) in rows.zip(0u64..) {
            let run: BatchAddresses = words(run);
            let at = header[at::FIRST] + number * stride as u64;
            let (credit, used) = memory.settled(CreditWords::of(bytes, places)?, |credit| {
                let used = match credit.batched {
                    0 => (0, 0),
                    _ => memory.used(run, header[at::RECORD])?,
                };
                Some((used, CreditWords::of(&memory.bytes(at, stride)?, places)?))
            })?;
            let (messages, bytes) = credit.sent(used, &quotas);
            sum.messages = sum.messages.wrapping_add(messages);
            sum.bytes = sum.bytes.wrapping_add(bytes);
            sum.received = sum.received.wrapping_add(credit.received());
        }
    }
    (memory.header(address)? == header).then_some(sum)
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u64::from_ne_bytes(*word));
    std::array::from_fn(|_| words.next().unwrap_or(0))
}

/// Memory of another process.
struct ExaminedMemory<R> {
    read: R,
}

impl<R: Fn(u64, usize) -> Option<Vec<u8>>> ExaminedMemory<R> {
    fn bytes(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        (self.read)(at, len).filter(|bytes| bytes.len() == len)
    }

    fn header(&self, at: u64) -> Option<[u64; HEADER_WORDS]> {
        Some(words(&self.bytes(at, HEADER_WORDS * size_of::<u64>())?))
    }

    /// Records and payload of a slot batch since it was opened.
    fn used(&self, run: BatchAddresses, record: u64) -> Option<(u32, u64)> {
        let (first, last) = (*run.iter().min()?, *run.iter().max()?);
        if first == 0 || last - first > RUN_BYTES_MAX {
            return Some((0, 0));
        }
        let bytes = self.bytes(first, (last - first) as usize + 8)?;
        let word = |at: u64| {
            let word = bytes.get((at - first) as usize..)?.first_chunk();
            Some(u64::from_ne_bytes(*word?))
        };
        let [place, began, payload] = [word(run[0])?, word(run[1])?, word(run[2])?];
        let records = place.wrapping_sub(began).checked_div(record)?;
        Some((records as u32, payload))
    }

    /// A peer state and how much of its slot batch is used, both of one moment: `again` reads the
    /// latter and then the peer state anew.
    fn settled(
        &self,
        mut credit: CreditWords,
        again: impl Fn(&CreditWords) -> Option<((u32, u64), CreditWords)>,
    ) -> Option<(CreditWords, (u32, u64))> {
        for _ in 0..TRIES {
            let (used, after) = again(&credit)?;
            if after == credit {
                return Some((credit, used));
            }
            credit = after;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::PeerCapabilities;
    use std::collections::BTreeMap;

    /// Opens so many peer states.
    fn open(counters: &mut ExportedCounters, peer_states: &mut Vec<PeerState>, count: u32) {
        let reach = PeerCapabilities {
            eager_max: 0,
            fragmented_max: 0,
            can_read: false,
            can_write: false,
            pipeline_chunk: 0,
            read_chunk: 0,
        };
        for peer in 0..count {
            counters.hide();
            peer_states.push(PeerState::new(
                peer,
                reach,
                (CreditQuotas::for_world(4), &CreditQuotas::for_world(4)),
            ));
            counters.show(peer_states);
        }
    }

    /// A header and peer states as bytes, at made-up addresses.
    fn memory(header: [u64; HEADER_WORDS], peer_states: &[u8]) -> BTreeMap<u64, Vec<u8>> {
        let header: Vec<u8> = header.iter().flat_map(|word| word.to_ne_bytes()).collect();
        BTreeMap::from([
            (1000, header),
            (2000, peer_states.to_vec()),
            (9000, vec![0; peer_states.len() / 100 * 24]),
        ])
    }

    fn of(memory: &BTreeMap<u64, Vec<u8>>) -> Option<CounterValues> {
        read(1000, |at, len| {
            let (begin, bytes) = memory.range(..=at).next_back()?;
            let from = (at - begin) as usize;
            Some(bytes.get(from..from + len)?.to_vec())
        })
    }

    /// A header over peer states of 100 bytes, with their words one behind the other.
    fn header(peer_states: u64) -> [u64; HEADER_WORDS] {
        let mut header = [0; HEADER_WORDS];
        header[..at::PLACES].copy_from_slice(&[
            MARK,
            2,
            peer_states,
            2000,
            100,
            9000,
            64,
            4096,
            1 << 20,
        ]);
        for (word, place) in header[at::PLACES..]
            .iter_mut()
            .zip([0, 8, 16, 24, 32, 40, 48, 56, 60])
        {
            *word = place;
        }
        header
    }

    fn peer_index(envelopes: u32, payload: u64, returned: u64) -> Vec<u8> {
        let mut bytes = vec![0; 100];
        bytes[8..12].copy_from_slice(&envelopes.to_ne_bytes());
        bytes[16..24].copy_from_slice(&payload.to_ne_bytes());
        bytes[32..40].copy_from_slice(&returned.to_ne_bytes());
        bytes
    }

    #[test]
    fn what_peers_have_sent_is_read_from_their_memory() {
        let all = [
            peer_index(4096, 1 << 20, 0),
            peer_index(4090, (1 << 20) - 48, 2048),
        ]
        .concat();
        let counted = CounterValues {
            messages: 2048 + 6,
            bytes: 48,
            received: 0,
        };
        assert_eq!(of(&memory(header(2), &all)), Some(counted));
        assert_eq!(of(&memory(header(0), &[])), Some(CounterValues::default()));
    }

    #[test]
    fn memory_that_is_no_header_any_more_or_changes_is_not_believed() {
        let all = peer_index(1, 1, 1);
        for (word, value) in [
            (at::MARK, 0),
            (at::SEQUENCE, 3),
            (at::PEER_STATES, u64::MAX),
            (at::PEER_STATES, 2),
            (at::STRIDE, 0),
            (at::STRIDE, u64::MAX),
            (at::FIRST, u64::MAX - 7),
            (at::RUNS, 5),
            (at::PLACES, u64::MAX),
        ] {
            let mut header = header(1);
            header[word] = value;
            assert_eq!(of(&memory(header, &all)), None, "{word}: {value}");
        }
        assert_eq!(of(&BTreeMap::new()), None);
        let mut garbage = header(1);
        garbage[at::PLACES..].fill(99);
        assert_eq!(of(&memory(garbage, &[0xff; 100])), None);
    }

    #[test]
    fn the_header_follows_peers_that_move_and_ends_with_its_engine() {
        let mut counters = ExportedCounters::new(&CreditQuotas::for_world(4));
        let mut all = Vec::new();
        open(&mut counters, &mut all, 40);
        let word = |counters: &ExportedCounters, word: usize| {
            counters.header[word].load(Ordering::Relaxed)
        };
        assert_eq!(word(&counters, at::FIRST), all.as_ptr().addr() as u64);
        assert_eq!(
            (
                word(&counters, at::PEER_STATES),
                word(&counters, at::SEQUENCE)
            ),
            (40, 80)
        );
        counters.hide();
        assert_eq!(word(&counters, at::SEQUENCE) % 2, 1);
    }
}
