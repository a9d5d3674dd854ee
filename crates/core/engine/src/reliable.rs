//! Reliability for transports that lose, repeat, reorder or change what they carry: checksums,
//! numbering, acknowledgement, retransmission; sans-IO.
//!
//! Owned by a lossy transport, one [`ReliableLink`] per peer, over however many ways lead there;
//! time is an argument in nanoseconds of any clock. A link delivers every packet once and in order,
//! or says that the peer is lost. What a medium may change travels as [`Frame::encode`] makes it,
//! and what does not come out of [`Frame::decode`] is as good as lost: it is sent again. An
//! acknowledgement also names what arrived early, so that only holes are sent again. Bounded:
//! at most [`WINDOW`] packets unacknowledged on the sending side and as many kept early on the
//! receiving side, [`RESERVE`] of them for control packets only.

mod frame;

use crate::transport::PacketClass;
pub use frame::{Frame, Packet, open, seal};
use std::collections::{BTreeMap, VecDeque};

/// Packets under way at most: covers a hundred microseconds of a fast link with small packets.
pub const WINDOW: usize = 64;
/// Packets of the window that data packets may not use: control packets make data flow.
pub const RESERVE: usize = 16;
/// First wait for an acknowledgement: several round trips of a local network.
const RETRY_FIRST_NS: u64 = 200_000;
/// Longest wait for an acknowledgement.
const RETRY_MAX_NS: u64 = 50_000_000;
/// Transmissions of one packet, while nothing comes from its peer, before that counts as lost. A
/// peer that is slow, or loses most of what comes, answers now and then.
const TRIES_MAX: u32 = 24;
/// Time after the first transmission of a packet at which a silent peer counts as lost: the sum of
/// the waits above, 0.85 seconds. A peer that answers sooner has lost nothing. A peer that falls
/// silent later, when waits are long already, is lost within [`LOST_WITHIN_NS`].
pub const LOST_AFTER_NS: u64 = waits_ns();
/// The longest time that a silent peer does not count as lost, while something is under way to it.
pub const LOST_WITHIN_NS: u64 = RETRY_MAX_NS * (TRIES_MAX as u64 + 1);

const fn waits_ns() -> u64 {
    let (mut sum_ns, mut wait_ns, mut tries) = (0, RETRY_FIRST_NS, 0);
    while tries < TRIES_MAX {
        sum_ns += wait_ns;
        wait_ns = if wait_ns * 2 < RETRY_MAX_NS {
            wait_ns * 2
        } else {
            RETRY_MAX_NS
        };
        tries += 1;
    }
    sum_ns
}

/// The peer did not answer for as long as is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkLost;

/// Later packets whose arrival says that an earlier one is lost, and not only overtaken.
const OVERTAKEN_BY: usize = 3;

/// When a link sends again, and whether it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// First wait for an acknowledgement.
    pub first_ns: u64,
    /// Longest wait for an acknowledgement.
    pub max_ns: u64,
    /// A peer that stays silent counts as lost. `false`: somebody else knows who lives. Then a
    /// silent peer is asked with its oldest packet alone, since it may only be busy, and the others
    /// follow when it answers.
    pub gives_up: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            first_ns: RETRY_FIRST_NS,
            max_ns: RETRY_MAX_NS,
            gives_up: true,
        }
    }
}

#[derive(Debug)]
struct UnackedPacket<P> {
    packet: P,
    again_at_ns: u64,
    wait_ns: u64,
    /// Transmissions since something came from the peer, which was the frame of this count.
    tries: u32,
    heard: u64,
    /// The peer has it, but not all before it.
    arrived: bool,
    /// Sent again since later ones arrived, which happens once.
    overtaken: bool,
    /// Overdue, while only the oldest packet was sent again.
    deferred: bool,
}

/// Both directions between this side and one peer.
#[derive(Debug)]
pub struct ReliableLink<P = Packet> {
    policy: RetryPolicy,
    /// Unacknowledged packets; the first has number `first`.
    sent: VecDeque<UnackedPacket<P>>,
    first: u64,
    /// Next number to deliver.
    next: u64,
    early: BTreeMap<u64, P>,
    owes_acknowledgement: bool,
    /// Frames that came.
    heard: u64,
    /// Deferred packets that the next answer makes leave.
    burst: usize,
    repeated: u64,
}

impl<P> Default for ReliableLink<P> {
    fn default() -> Self {
        Self::new(RetryPolicy::default())
    }
}

impl<P> ReliableLink<P> {
    /// A link that sends again as `policy` says.
    pub fn new(policy: RetryPolicy) -> Self {
        Self {
            policy,
            sent: VecDeque::new(),
            first: 0,
            next: 0,
            early: BTreeMap::new(),
            owes_acknowledgement: false,
            heard: 0,
            burst: 1,
            repeated: 0,
        }
    }
}

impl<P: Clone> ReliableLink<P> {
    /// Returns how many packets of this class may be sent now.
    pub fn room(&self, class: PacketClass) -> usize {
        let window = match class {
            PacketClass::Data => WINDOW - RESERVE,
            PacketClass::Control => WINDOW,
        };
        window.saturating_sub(self.sent.len())
    }

    /// Returns whether a packet of this class may be sent now.
    pub fn has_room(&self, class: PacketClass) -> bool {
        self.room(class) > 0
    }

    /// Packets that were sent again.
    pub fn repeated(&self) -> u64 {
        self.repeated
    }

    /// The peer is owed an acknowledgement.
    pub fn owes_acknowledgement(&self) -> bool {
        self.owes_acknowledgement
    }

    /// Has an acknowledgement leave although nothing came.
    pub fn owe_acknowledgement(&mut self) {
        self.owes_acknowledgement = true;
    }

    /// The word that names what arrived early: bit n stands for number `next + 1 + n`.
    fn selective(&self) -> u64 {
        let bits = self.early.keys().map(|number| number - self.next - 1);
        bits.filter(|bit| *bit < 64)
            .fold(0, |word, bit| word | 1 << bit)
    }

    /// Every packet with a smaller number was acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.first
    }

    /// Everything sent was acknowledged.
    pub fn is_settled(&self) -> bool {
        self.sent.is_empty()
    }

    /// Numbers a packet and gives the frame to transmit.
    pub fn send(&mut self, packet: P, now_ns: u64) -> Frame<P> {
        let number = self.first + self.sent.len() as u64;
        let again_at_ns = now_ns + self.policy.first_ns;
        self.sent.push_back(UnackedPacket {
            packet: packet.clone(),
            again_at_ns,
            wait_ns: self.policy.first_ns,
            tries: 1,
            heard: self.heard,
            arrived: false,
            overtaken: false,
            deferred: false,
        });
        self.owes_acknowledgement = false;
        Frame {
            acknowledged: self.next,
            selective: self.selective(),
            packet: Some((number, packet)),
        }
    }

    /// Takes note of what the peer says to have.
    pub fn acknowledge(&mut self, acknowledged: u64, selective: u64) {
        self.heard += 1;
        // An acknowledgement of what was never sent is a mad peer's; it frees nothing.
        if acknowledged > self.first + self.sent.len() as u64 {
            return;
        }
        let advances = self.first < acknowledged;
        while self.first < acknowledged {
            self.sent.pop_front();
            self.first += 1;
        }
        if advances {
            self.resume();
        }
        if selective != 0 {
            self.note_early(acknowledged, selective);
        }
    }

    /// Lets packets leave again that were held back while the peer was silent: more with each
    /// answer.
    fn resume(&mut self) {
        let deferred = self.sent.iter_mut().filter(|sent| sent.deferred);
        let mut any = false;
        for sent in deferred.take(self.burst) {
            (sent.deferred, sent.again_at_ns) = (false, 0);
            sent.wait_ns = self.policy.first_ns;
            any = true;
        }
        self.burst = if any { (self.burst * 2).min(16) } else { 1 };
    }

    /// Notes what arrived early, and has what was overtaken sent again.
    fn note_early(&mut self, acknowledged: u64, selective: u64) {
        let mut later = 0;
        for bit in (0..64).rev().filter(|bit| selective >> bit & 1 != 0) {
            let at = (acknowledged + 1 + bit).checked_sub(self.first);
            if let Some(sent) = at.and_then(|at| self.sent.get_mut(at as usize)) {
                sent.arrived = true;
            }
        }
        for sent in self.sent.iter_mut().rev() {
            if sent.arrived {
                later += 1;
            } else if later >= OVERTAKEN_BY && !sent.overtaken {
                (sent.overtaken, sent.again_at_ns) = (true, 0);
                sent.deferred = false;
            }
        }
    }

    /// Returns whether a packet of this number is the next to deliver. If so it counts as
    /// delivered, and [`ReliableLink::deliver_early`] gives what follows it.
    pub fn accept_next(&mut self, number: u64) -> bool {
        self.owes_acknowledgement = true;
        let is_next = number == self.next;
        self.next += u64::from(is_next);
        is_next
    }

    /// Keeps a packet that came before its turn; one that was delivered or is too early is dropped.
    pub fn keep_early(&mut self, number: u64, packet: P) {
        self.owes_acknowledgement = true;
        if number >= self.next && number < self.next + WINDOW as u64 {
            self.early.entry(number).or_insert(packet);
        }
    }

    /// Appends what may be delivered now of what came early, in order.
    pub fn deliver_early(&mut self, deliver: &mut Vec<P>) {
        // A number that was accepted since needs no copy of it.
        while let Some(entry) = self.early.first_entry() {
            match *entry.key() {
                number if number < self.next => drop(entry.remove()),
                number if number == self.next => {
                    self.next += 1;
                    deliver.push(entry.remove());
                }
                _ => return,
            }
        }
    }

    /// Takes a frame in and appends what may be delivered now to `deliver`, in order.
    pub fn receive(&mut self, frame: Frame<P>, deliver: &mut Vec<P>) {
        self.acknowledge(frame.acknowledged, frame.selective);
        if let Some((number, packet)) = frame.packet {
            self.keep_early(number, packet);
            self.deliver_early(deliver);
        }
    }

    /// Appends what has to be transmitted now: acknowledgements owed, packets not acknowledged in
    /// time.
    ///
    /// # Errors
    /// [`LinkLost`] when a packet was tried too often and nothing came.
    pub fn due(&mut self, now_ns: u64, transmit: &mut Vec<Frame<P>>) -> Result<(), LinkLost> {
        let (first, next, selective) = (self.first, self.next, self.selective());
        let mut is_oldest = true;
        for (at, sent) in self.sent.iter_mut().enumerate() {
            if sent.arrived {
                continue;
            }
            let was_oldest = std::mem::take(&mut is_oldest);
            if sent.again_at_ns > now_ns {
                continue;
            }
            if sent.heard != self.heard {
                (sent.heard, sent.tries) = (self.heard, 0);
            }
            if self.policy.gives_up && sent.tries >= TRIES_MAX {
                return Err(LinkLost);
            }
            let was_asked_for = sent.again_at_ns == 0;
            sent.wait_ns = (sent.wait_ns * 2).min(self.policy.max_ns);
            sent.again_at_ns = now_ns + sent.wait_ns;
            if !self.policy.gives_up && !was_oldest && !was_asked_for {
                sent.deferred = true;
                continue;
            }
            sent.tries = sent.tries.saturating_add(1);
            sent.deferred = false;
            self.repeated += 1;
            transmit.push(Frame {
                acknowledged: next,
                selective,
                packet: Some((first + at as u64, sent.packet.clone())),
            });
            self.owes_acknowledgement = false;
        }
        if std::mem::take(&mut self.owes_acknowledgement) {
            transmit.push(Frame {
                acknowledged: next,
                selective,
                packet: None,
            });
        }
        Ok(())
    }

    /// When `due` has something to do again, if nothing arrives before.
    pub fn deadline_ns(&self) -> Option<u64> {
        let missing = self.sent.iter().filter(|sent| !sent.arrived);
        missing.map(|sent| sent.again_at_ns).min()
    }

    /// Forgets what was sent: nobody will acknowledge it any more.
    pub fn forget_sent(&mut self) {
        self.first += self.sent.len() as u64;
        self.sent.clear();
    }
}

/// Reads any bytes as a frame, and as frames of a peer whose checksums are right: first a byte that
/// says how long the frame is, then so many bytes. A link that hears them keeps its bounds.
#[cfg(any(test, fuzzing))]
pub fn receive_anything(bytes: &[u8]) {
    if let Some(frame) = Frame::decode(bytes) {
        assert_eq!(frame.encode(), bytes);
    }
    let (mut link, mut now_ns, mut rest) = (ReliableLink::<Packet>::default(), 0, bytes);
    let (mut delivered, mut out) = (Vec::new(), Vec::new());
    while let Some((len, after)) = rest.split_first() {
        let (frame, after) = after.split_at(after.len().min(usize::from(*len)));
        rest = after;
        if link.has_room(PacketClass::Data) {
            let packet = Packet {
                header: Default::default(),
                payload: Vec::new(),
            };
            link.send(packet, now_ns);
        }
        let before = delivered.len() as u64;
        if let Some(frame) = Frame::decode(&seal(frame)) {
            assert_eq!(frame.encode(), seal(&frame.encode()[4..]));
            link.receive(frame, &mut delivered);
        }
        assert!(link.sent.len() <= WINDOW && link.early.len() < WINDOW);
        assert_eq!(link.next, delivered.len() as u64);
        assert!(link.next - before <= WINDOW as u64);
        now_ns = link.deadline_ns().unwrap_or(now_ns);
        out.clear();
        if link.due(now_ns, &mut out).is_err() {
            return;
        }
        assert!(out.len() <= WINDOW);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::PacketHeader;
    use proptest::prelude::*;

    fn packet(number: u32) -> Packet {
        Packet {
            header: PacketHeader {
                sequence: number,
                len: 3,
                ..PacketHeader::default()
            },
            payload: vec![number as u8; 3],
        }
    }

    proptest! {
        #[test]
        fn every_packet_arrives_once_and_in_order_through_loss_damage_repeats_and_reordering(
            fates in proptest::collection::vec((0u8..10, any::<u32>()), 1..400), count in 1u32..120,
        ) {
            let (mut near, mut far) = (ReliableLink::default(), ReliableLink::default());
            let mut fates = fates.into_iter();
            let (mut sent, mut now, mut arrived) = (0, 0, Vec::new());
            // Frames on the medium: (towards far, bytes). The fate of each: lost, doubled, delayed,
            // changed or passed; then the medium heals.
            let mut medium: VecDeque<(bool, Vec<u8>)> = VecDeque::new();
            for _ in 0..200_000 {
                if sent < count && near.has_room(PacketClass::Data) {
                    medium.push_back((true, near.send(packet(sent), now).encode()));
                    sent += 1;
                }
                if let Some((to_far, mut bytes)) = medium.pop_front() {
                    let (fate, which) = fates.next().unwrap_or((9, 0));
                    match fate {
                        0 | 1 => continue,
                        2 => medium.push_back((to_far, bytes.clone())),
                        3 => { medium.push_back((to_far, bytes)); continue }
                        4 => {
                            let at = which as usize % (bytes.len() * 8);
                            bytes[at / 8] ^= 1 << (at % 8);
                        }
                        _ => {}
                    }
                    let frame = Frame::decode(&bytes);
                    prop_assert_eq!(frame.is_none(), fate == 4);
                    let Some(frame) = frame else { continue };
                    if to_far { far.receive(frame, &mut arrived) } else { near.receive(frame, &mut Vec::new()) }
                }
                now += 10_000;
                let mut out = Vec::new();
                near.due(now, &mut out).unwrap();
                medium.extend(out.drain(..).map(|frame| (true, frame.encode())));
                far.due(now, &mut out).unwrap();
                medium.extend(out.drain(..).map(|frame| (false, frame.encode())));
                if sent == count && near.is_settled() {
                    break;
                }
            }
            prop_assert!(near.is_settled());
            prop_assert_eq!(arrived, (0..count).map(packet).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_heard_without_harm(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            receive_anything(&bytes);
        }
    }

    #[test]
    fn kept_inputs_are_read_without_harm() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../fuzz/seeds/lossy_frames");
        let inputs = std::fs::read_dir(&dir).unwrap();
        let count = inputs
            .map(|input| receive_anything(&std::fs::read(input.unwrap().path()).unwrap()))
            .count();
        assert!(count > 0, "{}", dir.display());
    }

    #[test]
    fn what_was_overtaken_is_sent_again_before_its_time_and_nothing_else_is() {
        let (mut near, mut far) = (ReliableLink::default(), ReliableLink::default());
        let mut frames: Vec<Frame> = (0..6).map(|n| near.send(packet(n), 0)).collect();
        frames.remove(1);
        let mut arrived = Vec::new();
        for frame in frames {
            far.receive(frame, &mut arrived);
        }
        assert_eq!(arrived, [packet(0)]);
        let mut out = Vec::new();
        far.due(1, &mut out).unwrap();
        near.receive(out.remove(0), &mut Vec::new());
        near.due(1, &mut out).unwrap();
        let again: Vec<_> = out
            .iter()
            .map(|frame| frame.packet.as_ref().map(|(n, _)| *n))
            .collect();
        assert_eq!(again, [Some(1)]);
        far.receive(out.remove(0), &mut arrived);
        assert_eq!(arrived, (0..6).map(packet).collect::<Vec<_>>());
    }

    #[test]
    fn a_silent_peer_of_a_link_that_never_gives_up_is_asked_with_its_oldest_packet_alone() {
        let policy = RetryPolicy {
            gives_up: false,
            ..RetryPolicy::default()
        };
        let (mut near, mut far) = (ReliableLink::new(policy), ReliableLink::new(policy));
        (0..WINDOW as u32).for_each(|n| drop(near.send(packet(n), 0)));
        let (mut now_ns, mut out) = (0, Vec::new());
        for _ in 0..500 {
            now_ns = near.deadline_ns().expect("packets are under way");
            near.due(now_ns, &mut out).expect("it never gives up");
        }
        assert!(
            out.iter()
                .all(|frame| frame.packet.as_ref().is_some_and(|(n, _)| *n == 0))
        );
        // It answers: all arrive, and what leaves again grows with each answer.
        let (mut arrived, mut rounds) = (Vec::new(), 0);
        while !near.is_settled() {
            out.drain(..)
                .for_each(|frame| far.receive(frame, &mut arrived));
            far.due(now_ns, &mut out).unwrap();
            out.drain(..)
                .for_each(|frame| near.receive(frame, &mut Vec::new()));
            near.due(now_ns, &mut out).unwrap();
            rounds += 1;
        }
        assert_eq!(arrived, (0..WINDOW as u32).map(packet).collect::<Vec<_>>());
        assert!(rounds < 10, "{rounds} rounds");
    }

    #[test]
    fn a_peer_that_never_answers_is_lost() {
        let mut link = ReliableLink::<Packet>::default();
        link.send(packet(0), 0);
        let mut now_ns = 0;
        while link.due(now_ns, &mut Vec::new()).is_ok() {
            now_ns = link.deadline_ns().expect("a packet is under way");
        }
        assert_eq!(now_ns, LOST_AFTER_NS);
    }

    #[test]
    fn a_peer_that_misses_most_of_what_comes_but_answers_is_not_lost() {
        let (mut near, mut far) = (ReliableLink::default(), ReliableLink::default());
        near.send(packet(0), 0);
        let mut now_ns = 0;
        for _ in 0..10 * TRIES_MAX {
            now_ns = near.deadline_ns().expect("the packet is under way");
            near.due(now_ns, &mut Vec::new()).expect("the peer answers");
            near.receive(far.send(packet(0), now_ns), &mut Vec::new());
        }
        let silent_ns = now_ns;
        while near.due(now_ns, &mut Vec::new()).is_ok() {
            now_ns = near.deadline_ns().expect("the packet is under way");
        }
        assert!(now_ns - silent_ns <= LOST_WITHIN_NS);
    }
}
