//! What the network between this rank and one peer carries: whether frames arrive, and how long
//! they may be. Sans-IO.
//!
//! Owned by the [`PeerLink`](crate::peer_link::PeerLink). An interface's MTU says nothing about the
//! switches behind it, and a silent peer may only compute. So a path believes answers alone. Probes
//! of several lengths leave in frames, and where the path is in doubt one leaves by TCP. The answer
//! to the shortest, or to the one by TCP, says that the peer looks; what stays unanswered then does
//! not arrive. Frames that do not arrive go by TCP until a later probe is answered.

use crate::frame::HEAD;
use crate::limits::{
    DOUBT_MAX_NS, DOUBT_NS, FRAME_DEFAULT, FRAME_LEAST, FRAME_SURE, LONGER_NS, PROBE_GRACE_NS,
    PROBE_TRIES, RETURN_NS,
};

/// Bytes behind the Ethernet header of the shortest probe.
pub(crate) const PROBE_MIN: usize = HEAD;
/// Difference of lengths below which no longer frames are looked for.
const STEP_MIN: usize = 64;

/// What carries frames to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The Ethernet network itself.
    Frames,
    /// TCP, since the peer answers there and no answer comes in frames.
    Tcp,
}

/// A probe to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub nonce: u64,
    /// Bytes behind the Ethernet header.
    pub bytes: usize,
    pub by_tcp: bool,
}

/// What a round of probes is to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    /// Whether frames of this length arrive.
    Length(usize),
    /// Whether any frames arrive.
    Doubt,
    /// Whether frames arrive again.
    Return,
}

/// Probes that are out.
#[derive(Debug)]
struct Round {
    question: Question,
    probes: Vec<Probe>,
    /// One for each probe.
    answered: Vec<bool>,
    /// The peer looks, and what is unanswered then counts as lost.
    until_ns: Option<u64>,
    again_at_ns: u64,
    wait_ns: u64,
    tries: u32,
}

impl Round {
    fn is_answered(&self, wanted: impl Fn(&Probe) -> bool) -> bool {
        let mut both = self.probes.iter().zip(&self.answered);
        both.any(|(probe, answered)| *answered && wanted(probe))
    }
}

/// The path to one peer. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Path {
    /// Most bytes behind the Ethernet header that the interface takes.
    most: usize,
    /// Longest frame that is sent.
    max: usize,
    /// Shortest length that is known not to arrive, beyond `max`.
    too_long: usize,
    carrier: Carrier,
    round: Option<Round>,
    next_nonce: u64,
    /// Since when something is owed without progress.
    owed_since_ns: Option<u64>,
    doubt_ns: u64,
    next_length_ns: u64,
    next_return_ns: u64,
    /// The peer sent by TCP although frames leave here.
    is_told: bool,
    /// Something was found out that the peer is not told yet.
    is_untold: bool,
    doubted_ns: u64,
    /// Last probe of the peer: its number, and the longest frame that the peer sends.
    heard: (u64, usize),
}

impl Path {
    pub fn new(most: usize) -> Self {
        Self {
            most,
            max: most.min(FRAME_DEFAULT),
            too_long: most + 1,
            carrier: Carrier::Frames,
            round: None,
            next_nonce: 1,
            owed_since_ns: None,
            doubt_ns: DOUBT_NS,
            next_length_ns: 0,
            next_return_ns: 0,
            is_told: false,
            is_untold: false,
            doubted_ns: 0,
            heard: (0, most.min(FRAME_DEFAULT)),
        }
    }

    /// What carries frames now.
    pub fn carrier(&self) -> Carrier {
        self.carrier
    }

    /// Longest frame that is sent in frames: bytes behind the Ethernet header.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Longest frame that the peer sends here; 0: it sends by TCP.
    pub fn peer_max(&self) -> usize {
        self.heard.1
    }

    /// Returns what this side says to the peer: the longest frame that it sends; 0: by TCP.
    pub fn told(&self) -> usize {
        match self.carrier {
            Carrier::Frames => self.max,
            Carrier::Tcp => 0,
        }
    }

    /// Returns what carries a frame with so many bytes behind its Ethernet header.
    pub fn carries(&self, bytes: usize) -> Carrier {
        match self.carrier == Carrier::Frames && bytes <= self.max {
            true => Carrier::Frames,
            false => Carrier::Tcp,
        }
    }

    /// The interface refused a frame as too long; it takes so many bytes now.
    pub fn limit(&mut self, most: usize) {
        self.most = most;
        self.max = self.max.min(most);
        self.too_long = most + 1;
        if most < FRAME_LEAST {
            (self.max, self.carrier) = (FRAME_LEAST, Carrier::Tcp);
        }
    }

    /// The peer confirmed something new.
    pub fn progress(&mut self, now_ns: u64) {
        self.owed_since_ns = Some(now_ns);
    }

    /// A probe of the peer came: its number, and what it says to send at most. Returns whether it
    /// is new.
    pub fn hear(&mut self, nonce: u64, told: usize) -> bool {
        let is_new = nonce > self.heard.0;
        if is_new {
            self.heard = (nonce, told);
        }
        is_new
    }

    /// A frame of the peer came by TCP, which says that it misses frames.
    pub fn came_by_tcp(&mut self) {
        self.is_told |= self.carrier == Carrier::Frames;
    }

    /// Returns whether probes are out that the peer may still answer.
    pub fn is_asking(&self) -> bool {
        self.round.is_some() || self.is_told || self.is_untold
    }

    /// A probe that asks for no answer to be waited for: it says what this side sends.
    fn note(&mut self) -> Probe {
        self.next_nonce += 1;
        Probe {
            nonce: self.next_nonce - 1,
            bytes: PROBE_MIN,
            by_tcp: self.carrier == Carrier::Tcp,
        }
    }

    /// Time of the next step, if nothing comes before.
    pub fn deadline_ns(&self, owes: bool) -> Option<u64> {
        let round = self.round.as_ref().map(|round| match round.until_ns {
            Some(until_ns) => until_ns.min(round.again_at_ns),
            None => round.again_at_ns,
        });
        let since_ns = self.owed_since_ns.filter(|_| owes && self.round.is_none());
        let doubt = match self.carrier {
            Carrier::Frames => since_ns.map(|since_ns| since_ns + self.doubt_ns),
            Carrier::Tcp => since_ns.map(|_| self.next_return_ns),
        };
        round.into_iter().chain(doubt).min()
    }

    /// Begins, repeats and ends rounds of probes, and appends the probes to send now. `owes`: the
    /// peer is still to confirm or to answer something.
    pub fn step(&mut self, now_ns: u64, owes: bool, send: &mut Vec<Probe>) {
        if std::mem::take(&mut self.is_untold) {
            send.push(self.note());
        }
        match owes || self.is_told {
            true => _ = self.owed_since_ns.get_or_insert(now_ns),
            false => self.owed_since_ns = None,
        }
        let is_over = |round: &Round| round.question == Question::Doubt && round.until_ns.is_none();
        if self.owed_since_ns.is_none() && self.round.as_ref().is_some_and(is_over) {
            self.round = None;
        }
        if self.round.is_none()
            && let Some(question) = self.question(now_ns)
        {
            self.ask(question, now_ns, send);
            return;
        }
        let Some(round) = &mut self.round else {
            return;
        };
        let is_tried_again = round.again_at_ns <= now_ns;
        let is_vain = is_tried_again && round.question == Question::Return;
        if is_vain || round.until_ns.is_some_and(|until_ns| until_ns <= now_ns) {
            self.conclude(now_ns);
        } else if is_tried_again {
            round.again_at_ns = now_ns + round.wait_ns;
            round.tries += 1;
            if round.until_ns.is_none() {
                round.wait_ns = (round.wait_ns * 2).min(DOUBT_MAX_NS);
                // Who computes for long is asked again when there is something to ask for.
                let gives_up = matches!(round.question, Question::Length(_));
                if gives_up && round.tries > PROBE_TRIES {
                    self.next_length_ns = now_ns + LONGER_NS;
                    self.round = None;
                    return;
                }
            }
            // TCP loses nothing.
            let both = round.probes.iter().zip(&round.answered);
            let again = both.filter(|(probe, answered)| !**answered && !probe.by_tcp);
            send.extend(again.map(|(probe, _)| *probe));
        }
    }

    /// Returns what is to be asked now.
    fn question(&mut self, now_ns: u64) -> Option<Question> {
        let since_ns = self.owed_since_ns?;
        match self.carrier {
            Carrier::Tcp => (self.next_return_ns <= now_ns).then_some(Question::Return),
            Carrier::Frames if std::mem::take(&mut self.is_told) => {
                // Too long frames come by TCP, too.
                (now_ns >= self.doubted_ns + self.doubt_ns).then_some(Question::Doubt)
            }
            Carrier::Frames if now_ns >= since_ns + self.doubt_ns => Some(Question::Doubt),
            Carrier::Frames => {
                let longer = self.longer(now_ns)?;
                Some(Question::Length(longer))
            }
        }
    }

    /// Returns the length to look for next.
    fn longer(&mut self, now_ns: u64) -> Option<usize> {
        if self.max >= self.most || now_ns < self.next_length_ns {
            return None;
        }
        if self.too_long <= self.max + STEP_MIN {
            // What did not arrive may do so later.
            self.too_long = self.most + 1;
            self.next_length_ns = now_ns + LONGER_NS;
            return None;
        }
        Some(match self.too_long > self.most {
            true => self.most,
            false if self.max < FRAME_DEFAULT && FRAME_DEFAULT < self.too_long => FRAME_DEFAULT,
            false => self.max.midpoint(self.too_long),
        })
    }

    fn ask(&mut self, question: Question, now_ns: u64, send: &mut Vec<Probe>) {
        let asked: &[(usize, bool)] = match question {
            Question::Length(bytes) => &[(bytes, false), (PROBE_MIN, false)],
            Question::Doubt if self.max > PROBE_MIN => {
                &[(self.max, false), (PROBE_MIN, false), (PROBE_MIN, true)]
            }
            Question::Doubt => &[(PROBE_MIN, false), (PROBE_MIN, true)],
            Question::Return => &[(PROBE_MIN, false)],
        };
        let mut probes = Vec::with_capacity(asked.len());
        for (bytes, by_tcp) in asked {
            probes.push(Probe {
                nonce: self.next_nonce,
                bytes: *bytes,
                by_tcp: *by_tcp,
            });
            self.next_nonce += 1;
        }
        send.extend(&probes);
        let wait_ns = match question {
            Question::Return => RETURN_NS,
            Question::Length(_) | Question::Doubt => PROBE_GRACE_NS,
        };
        self.round = Some(Round {
            question,
            answered: vec![false; probes.len()],
            probes,
            until_ns: None,
            again_at_ns: now_ns + wait_ns,
            wait_ns,
            tries: 0,
        });
    }

    /// The peer answered a probe.
    pub fn answered(&mut self, nonce: u64, now_ns: u64) {
        let Some(round) = &mut self.round else {
            return;
        };
        let Some(at) = round.probes.iter().position(|probe| probe.nonce == nonce) else {
            return;
        };
        round.answered[at] = true;
        if round.answered.iter().all(|answered| *answered) || round.question == Question::Return {
            return self.conclude(now_ns);
        }
        let frames = round.probes.iter().zip(&round.answered);
        let all_frames = frames.filter(|(probe, _)| !probe.by_tcp);
        if all_frames.into_iter().all(|(_, answered)| *answered) {
            return self.conclude(now_ns);
        }
        if round.until_ns.is_none() {
            // The peer looks now, and may not have done so before.
            round.until_ns = Some(now_ns + PROBE_GRACE_NS);
            round.wait_ns = PROBE_GRACE_NS / 3;
            round.again_at_ns = now_ns;
        }
    }

    /// Draws the conclusion of a round.
    fn conclude(&mut self, now_ns: u64) {
        let Some(round) = self.round.take() else {
            return;
        };
        let before = (self.carrier, self.max);
        let short = round.is_answered(|probe| !probe.by_tcp && probe.bytes == PROBE_MIN);
        match round.question {
            Question::Length(bytes) if round.is_answered(|probe| probe.bytes == bytes) => {
                self.max = bytes;
            }
            Question::Length(bytes) => self.too_long = bytes,
            Question::Doubt => {
                let max = self.max;
                if !short {
                    self.carrier = Carrier::Tcp;
                    self.next_return_ns = now_ns + RETURN_NS;
                } else if !round.is_answered(|probe| probe.bytes == max) {
                    // Looked for anew, from a length that hardly any network refuses.
                    self.too_long = max;
                    self.max = FRAME_SURE.min(max);
                    self.next_length_ns = 0;
                }
                self.doubt_ns = (self.doubt_ns * 2).min(DOUBT_MAX_NS);
                self.doubted_ns = now_ns;
            }
            Question::Return if short => {
                self.carrier = Carrier::Frames;
                self.max = FRAME_SURE.min(self.most);
                self.too_long = self.most + 1;
                self.next_length_ns = 0;
                self.doubt_ns = DOUBT_NS;
            }
            Question::Return => self.next_return_ns = now_ns,
        }
        self.owed_since_ns = None;
        self.is_untold |= before != (self.carrier, self.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A network that carries frames up to a length, and a peer that looks at times.
    struct Network {
        path: Path,
        now_ns: u64,
        carries: usize,
        looks: bool,
        /// Probes that wait for the peer to look.
        waiting: Vec<Probe>,
        sent: u64,
    }

    impl Network {
        fn new(most: usize, carries: usize) -> Self {
            Self {
                path: Path::new(most),
                now_ns: 0,
                carries,
                looks: true,
                waiting: Vec::new(),
                sent: 0,
            }
        }

        fn run(&mut self, ms: u64) {
            for _ in 0..ms * 10 {
                self.now_ns += MS / 10;
                let mut probes = Vec::new();
                self.path.step(self.now_ns, true, &mut probes);
                self.sent += probes.len() as u64;
                let carries = self.carries;
                let arrive = probes.into_iter();
                self.waiting
                    .extend(arrive.filter(|probe| probe.by_tcp || probe.bytes <= carries));
                if self.looks {
                    for probe in std::mem::take(&mut self.waiting) {
                        self.path.answered(probe.nonce, self.now_ns);
                    }
                }
            }
        }
    }

    #[test]
    fn the_longest_frame_that_arrives_is_found_and_not_believed_from_the_interface() {
        for (most, carries) in [
            (9000, 9000),
            (9000, 1500),
            (9000, 4100),
            (1500, 1500),
            (9000, 8999),
        ] {
            let mut network = Network::new(most, carries);
            assert_eq!(network.path.max(), FRAME_DEFAULT);
            network.run(800);
            let found = network.path.max();
            assert!(found <= carries, "{found} of {carries}");
            assert!(found + STEP_MIN >= carries, "{found} of {carries}");
        }
    }

    #[test]
    fn a_network_that_passes_nothing_is_left_for_tcp_and_taken_again_when_it_does() {
        let mut network = Network::new(1500, 0);
        network.run(400);
        assert_eq!(network.path.carrier(), Carrier::Tcp);
        assert_eq!(network.path.carries(100), Carrier::Tcp);
        assert_eq!(network.path.told(), 0);
        network.run(5000);
        assert_eq!(network.path.carrier(), Carrier::Tcp);
        network.carries = 1500;
        network.run(3000);
        assert_eq!(network.path.carrier(), Carrier::Frames);
        assert_eq!(network.path.max(), 1500);
    }

    #[test]
    fn a_peer_that_computes_is_not_taken_for_a_network_that_passes_nothing() {
        let mut network = Network::new(1500, 1500);
        network.looks = false;
        network.run(20_000);
        assert_eq!(network.path.carrier(), Carrier::Frames);
        assert!(network.sent < 100, "{} probes", network.sent);
        network.looks = true;
        network.run(1000);
        assert_eq!(network.path.carrier(), Carrier::Frames);
        assert_eq!(network.path.max(), 1500);
    }

    #[test]
    fn a_network_that_carries_less_than_before_gets_shorter_frames_and_longer_ones_later() {
        let mut network = Network::new(9000, 9000);
        network.run(100);
        assert_eq!(network.path.max(), 9000);
        network.carries = 1500;
        network.run(1500);
        assert_eq!(network.path.carrier(), Carrier::Frames);
        let found = network.path.max();
        assert!((1500 - STEP_MIN..=1500).contains(&found), "{found}");
        network.carries = 9000;
        network.run(2 * LONGER_NS / MS);
        assert_eq!(network.path.max(), 9000);
    }

    #[test]
    fn an_interface_that_refuses_a_length_is_believed_at_once() {
        let mut network = Network::new(9000, 9000);
        network.run(100);
        network.path.limit(1500);
        assert_eq!(network.path.max(), 1500);
        assert_eq!(network.path.carries(9000), Carrier::Tcp);
    }

    #[test]
    fn what_the_peer_says_counts_once_and_in_order() {
        let mut path = Path::new(9000);
        assert!(path.hear(3, 9000) && !path.hear(3, 1500) && !path.hear(2, 0));
        assert_eq!(path.peer_max(), 9000);
        path.answered(77, 0);
        assert!(!path.is_asking());
    }
}
