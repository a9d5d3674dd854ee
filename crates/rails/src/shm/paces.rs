//! The paces from all peers, and the clock that measures them.
//!
//! Owned by the rail. One fetch at a time is measured, and only if no other runs beside it: two would slow each other. The clock is read
//! twice for each message that is measured. Bounded by the peers that announced something.

use crate::cost::CostModel;
use crate::shm::pace::Pace;
use garonne_engine::api::Peer;
use garonne_engine::rail::{Fetch, Token};
use std::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Running {
    token: Token,
    peer: Peer,
    len: u64,
    way: Fetch,
    start: Instant,
}

/// See the module's paragraph.
#[derive(Debug)]
pub(crate) struct Paces {
    /// By peer; made at its first announcement.
    of: Vec<Option<Box<Pace>>>,
    seed: Pace,
    running: Option<Running>,
    /// Fetches that go on.
    alive: u32,
}

impl Paces {
    pub(crate) fn new(peers: u32) -> Self {
        Self {
            of: (0..peers).map(|_| None).collect(),
            seed: Pace::default(),
            running: None,
            alive: 0,
        }
    }

    /// All paces begin with what the model says.
    pub(crate) fn seed(&mut self, costs: &CostModel) {
        for (way, len, ns) in costs.fetch_times() {
            self.seed.seed(way, len, ns);
        }
        self.of.iter_mut().for_each(|pace| *pace = None);
    }

    /// The pace from a peer, if it announced anything yet.
    pub(crate) fn of(&self, peer: Peer) -> Option<&Pace> {
        self.of.get(peer as usize)?.as_deref()
    }

    fn open(&mut self, peer: Peer) -> Option<&mut Pace> {
        let slot = self.of.get_mut(peer as usize)?;
        Some(slot.get_or_insert_with(|| Box::new(self.seed.clone())))
    }

    /// Decides how a message is fetched, which begins now.
    pub(crate) fn begin(
        &mut self,
        token: Token,
        peer: Peer,
        len: u64,
        able: impl Fn(Fetch) -> bool,
    ) -> Fetch {
        let alone = self.alive == 0;
        self.alive += 1;
        let Some(pace) = self.open(peer) else {
            return Fetch::Packets;
        };
        let way = pace.decide(len, able);
        self.running = alone.then(|| Running {
            token,
            peer,
            len,
            way,
            start: Instant::now(),
        });
        way
    }

    /// A fetch is over; `worked` is false if its way cannot be gone.
    pub(crate) fn end(&mut self, token: Token, worked: bool) {
        self.alive = self.alive.saturating_sub(1);
        let Some(running) = self.running.take_if(|running| running.token == token) else {
            return;
        };
        if let Some(pace) = self.open(running.peer) {
            if worked {
                pace.took(running.way, running.len, running.start.elapsed());
            } else {
                pace.bar(running.way);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shm::pace::WAYS;

    const LEN: u64 = 1 << 20;

    #[test]
    fn only_a_fetch_that_runs_alone_is_measured() {
        let mut paces = Paces::new(2);
        paces.begin(1, 1, LEN, |way| way == Fetch::Read);
        paces.begin(2, 1, LEN, |way| way == Fetch::Read);
        paces.end(1, true);
        paces.end(2, true);
        let nothing = |paces: &Paces| {
            paces
                .of(1)
                .map(|pace| pace.known(LEN).paces == [None; WAYS.len()])
        };
        assert_eq!(nothing(&paces), Some(true));
        paces.begin(3, 1, LEN, |way| way == Fetch::Read);
        paces.end(3, true);
        assert_eq!(nothing(&paces), Some(false));
    }

    #[test]
    fn a_way_that_fails_is_not_gone_again() {
        let mut paces = Paces::new(2);
        for token in 0..100 {
            let way = paces.begin(token, 1, LEN, |_| true);
            assert!(
                token < 10 || !matches!(way, Fetch::Push | Fetch::Share),
                "{token}"
            );
            paces.end(token, matches!(way, Fetch::Read | Fetch::Packets));
        }
    }

    #[test]
    fn peers_that_do_not_exist_send_packets() {
        let mut paces = Paces::new(1);
        assert_eq!(paces.begin(1, 7, LEN, |_| true), Fetch::Packets);
        paces.end(1, true);
    }
}
