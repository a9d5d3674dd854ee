//! Agreements of members that share a host: by a board in shared memory
//! ([`garonne_sync::agreement_board`]), without the agents.
//!
//! The first agreement of a communicator goes by the agents, and with it a second one on where the
//! board lies: the first member that lives offers one in its heap. From then on members write to
//! the board, and the last to come wakes the others. Where nobody can offer a board, or a member
//! cannot reach it, all go by the agents, as all know alike.
//!
//! The agreements of a communicator go on one after the other at each member, so that all members
//! take the same way for each. Only communicators of jobs that survive deaths have boards: their
//! agent wakes those who wait when a member dies or ends.

use super::super::Comm;
use crate::error::{Class, Error, Result};
use crate::process::{AgreementInput, AgreementKey, Decision, FaultDetector, Process};
use garonne_coll::segment_allocator::BOARD_UNIT;
use garonne_engine::api::Peer;
use garonne_engine::observe::events::ExternalWait;
use garonne_sync::agreement_board::{AgreementBoard, BoardMemory, MemberState};
use garonne_sync::doorbell::Doorbell;
use garonne_sync::mutex::lock;
use garonne_sync::shm::Segment;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Bit of the numbers of agreements on places of boards.
const ON_PLACE: u32 = 1 << 31;
/// Place that says that a member can use no board: above every other one.
const REFUSED: u32 = u32::MAX;

/// Place of a board in messages: the member that offers it, and 1 plus the unit of its heap.
fn place_of(member: u32, offset: usize) -> u32 {
    let unit = u32::try_from(offset / BOARD_UNIT + 1).unwrap_or(u32::MAX);
    match member < 0xffff && unit <= 0xffff {
        true => member << 16 | unit,
        false => REFUSED,
    }
}

/// The agreements of one communicator at one member.
pub(super) struct HostAgreements {
    process: Arc<Process>,
    detector: Arc<dyn FaultDetector>,
    /// Members of both groups, in the order of processes.
    peers: Arc<[Peer]>,
    me: u32,
    context: u32,
    label: String,
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    /// Agreements that go on. Only the first one is advanced.
    open: VecDeque<OpenAgreement>,
    /// Agreements that are over and that nobody has taken yet.
    over: Vec<(u32, Result<Decision>)>,
    board: BoardState,
}

struct OpenAgreement {
    given: AgreementInput,
    stage: Stage,
}

enum Stage {
    /// Earlier agreements go on.
    Queued,
    /// The agents decide it, and where the board lies.
    ByAgents {
        decision: Option<Decision>,
        place: Option<u32>,
        /// The board that this member offers.
        offered: Option<usize>,
    },
    /// The agreement of this number on the board.
    OnBoard(u32),
}

#[derive(Default)]
enum BoardState {
    /// The next agreement finds one.
    #[default]
    Unknown,
    Attached(Attached),
    /// There is none.
    Refused,
}

struct Attached {
    board: AgreementBoard<BoardMemory>,
    /// Number of the next agreement on it.
    next: u32,
    /// Offset of the board in the own heap, if this member offered it.
    own: Option<usize>,
    /// Doorbells of the other members.
    doorbells: Vec<Segment>,
}

impl Attached {
    fn wake_others(&self) {
        for (index, bell) in self.doorbells.iter().enumerate() {
            let bell = Doorbell::new(bell.atomic_u32(0));
            match index {
                0 => bell.ring_fenced(),
                _ => bell.ring(),
            }
        }
    }
}

impl Drop for HostAgreements {
    fn drop(&mut self) {
        let queue = self.queue.get_mut();
        let queue = queue.unwrap_or_else(std::sync::PoisonError::into_inner);
        if let BoardState::Attached(attached) = &queue.board {
            attached.board.leave(self.me);
            if let Some(offset) = attached.own {
                self.process.config.segments.release_board(offset, false);
            }
        }
    }
}

impl HostAgreements {
    /// Returns the agreements of `comm`; `None`: its members do not share a host, or its job does
    /// not survive deaths.
    pub fn of(comm: &Comm, peers: Vec<Peer>) -> Option<Self> {
        let process = comm.0.process.clone();
        let is_apt = process.survives() && peers.len() > 1 && comm.is_on_node();
        let detector = process.config.faults.clone().filter(|_| is_apt)?;
        let me = peers.binary_search(&process.host.me()).ok()?;
        Some(Self {
            detector,
            me: u32::try_from(me).ok()?,
            context: comm.context(),
            label: comm.label().to_string(),
            peers: peers.into(),
            process,
            queue: Mutex::default(),
        })
    }

    /// Brings this member's part of an agreement. `acknowledged`: dead members, in order.
    pub fn begin(&self, key: AgreementKey, acknowledged: Vec<Peer>, (flags, number): (u32, u32)) {
        let given = AgreementInput {
            key,
            members: Vec::new(),
            acknowledged,
            flags,
            number,
        };
        let mut queue = lock(&self.queue);
        queue.open.push_back(OpenAgreement {
            given,
            stage: Stage::Queued,
        });
        self.advance(&mut queue);
    }

    /// Goes on, and takes the decision of an agreement once it is there.
    pub fn take(&self, key: &AgreementKey) -> Option<Result<Decision>> {
        let mut queue = lock(&self.queue);
        self.advance(&mut queue);
        let at = queue.over.iter().position(|(one, _)| *one == key.number)?;
        Some(queue.over.swap_remove(at).1)
    }

    /// Waits for an agreement on the board. Returns at once if something else is to be done for it
    /// first.
    pub fn wait_on_board(&self, key: &AgreementKey, meeting: ExternalWait) {
        let (board, agreement) = {
            let queue = lock(&self.queue);
            match (&queue.board, queue.open.front()) {
                (BoardState::Attached(attached), Some(first)) if first.given.key == *key => {
                    match first.stage {
                        Stage::OnBoard(agreement) => (attached.board.clone(), agreement),
                        _ => return,
                    }
                }
                _ => return,
            }
        };
        let host = &self.process.host;
        let (detector, peers) = (self.detector.clone(), self.peers.clone());
        // Members are awaited one after the other: each one's word is looked at until it has come.
        let mut awaited = 0;
        let mut come = move || {
            if board.is_decided(agreement) {
                return true;
            }
            let is_here = |member: u32| {
                board.has_come(member, agreement)
                    || detector.state(peers[member as usize]) != MemberState::Alive
            };
            while awaited < board.members() && is_here(awaited) {
                awaited += 1;
            }
            awaited == board.members()
        };
        for _ in 0..host.memory_spins() {
            if come() {
                return;
            }
            std::hint::spin_loop();
        }
        host.note_external_wait(0, Some(meeting));
        host.wait_for_memory(&mut come);
        host.note_external_wait(0, None);
    }

    fn advance(&self, queue: &mut Queue) {
        while let Some(first) = queue.open.front_mut() {
            let result = match self.step(first, &mut queue.board) {
                Ok(None) => return,
                Ok(Some(decision)) => Ok(decision),
                Err(error) => Err(error),
            };
            let number = first.given.key.number;
            queue.open.pop_front();
            queue.over.push((number, result));
        }
    }

    fn step(&self, one: &mut OpenAgreement, board: &mut BoardState) -> Result<Option<Decision>> {
        if let Stage::Queued = one.stage {
            one.stage = match board {
                BoardState::Attached(attached) => self.contribute(&one.given, attached),
                BoardState::Unknown => self.ask_agents(&one.given, true)?,
                BoardState::Refused => self.ask_agents(&one.given, false)?,
            };
        }
        match (&mut one.stage, &mut *board) {
            (Stage::OnBoard(agreement), BoardState::Attached(attached)) => {
                Ok(self.look_at_board(*agreement, attached))
            }
            (
                Stage::ByAgents {
                    decision,
                    place,
                    offered,
                },
                board,
            ) => {
                let key = one.given.key;
                if decision.is_none() {
                    *decision = self.detector.take_decision(&key);
                }
                if place.is_none() {
                    let decided = self.detector.take_decision(&place_key(&key));
                    *place = decided.map(|decided| decided.number);
                }
                let (Some(_), Some(place)) = (&decision, *place) else {
                    return Ok(None);
                };
                if let BoardState::Unknown = board {
                    *board = self.attach(place, offered.take());
                }
                Ok(decision.take())
            }
            _ => Ok(None),
        }
    }

    fn contribute(&self, given: &AgreementInput, attached: &mut Attached) -> Stage {
        let agreement = attached.next;
        attached.next = agreement.wrapping_add(1);
        let member = |peer: &Peer| self.peers.binary_search(peer).ok();
        let acknowledged = given.acknowledged.iter().filter_map(member);
        let is_last = attached.board.contribute(
            self.me,
            agreement,
            (given.flags, given.number),
            acknowledged.map(|member| member as u32),
        );
        if is_last {
            self.propose(agreement, attached);
        }
        Stage::OnBoard(agreement)
    }

    fn propose(&self, agreement: u32, attached: &Attached) {
        // A death is counted after it is shown: who sees none need not look at each member.
        let has_deaths = self.detector.deaths() != 0;
        let is_last = attached.board.all_have_come(agreement);
        let state = |member: u32| match has_deaths || !is_last {
            true => self.detector.state(self.peers[member as usize]),
            false => MemberState::Alive,
        };
        if attached.board.propose(self.me, agreement, state) {
            attached.wake_others();
        }
    }

    fn look_at_board(&self, agreement: u32, attached: &Attached) -> Option<Decision> {
        if !attached.board.is_decided(agreement) {
            self.propose(agreement, attached);
        }
        let decided = attached.board.decision(agreement)?;
        let peer = |member: &u32| self.peers.get(*member as usize).copied();
        Some(Decision {
            dead: decided.dead.iter().filter_map(peer).collect(),
            acknowledged: decided.acknowledged,
            flags: decided.flags,
            number: decided.number,
        })
    }

    /// Leaves an agreement to the agents, and with it, if asked for, one on the place of a board.
    fn ask_agents(&self, given: &AgreementInput, with_place: bool) -> Result<Stage> {
        let failed = |text| Error::new(Class::Other, format!("{}: {text}", self.label));
        let members = self.peers.to_vec();
        let given = AgreementInput {
            members: members.clone(),
            ..given.clone()
        };
        let key = place_key(&given.key);
        self.detector.contribute(given).map_err(failed)?;
        if !with_place {
            return Ok(Stage::ByAgents {
                decision: None,
                place: Some(REFUSED),
                offered: None,
            });
        }
        let (place, offered) = self.offer();
        let given = AgreementInput {
            key,
            members,
            acknowledged: Vec::new(),
            flags: 0,
            number: place,
        };
        self.detector.contribute(given).map_err(failed)?;
        Ok(Stage::ByAgents {
            decision: None,
            place: None,
            offered,
        })
    }

    /// Offers a board if this is the first member that lives. Returns its place, and its offset in
    /// the own heap.
    fn offer(&self) -> (u32, Option<usize>) {
        let host = &self.process.host;
        let own = self.peers[self.me as usize];
        let Some(heap) = host.coll_heap(own).filter(|_| self.doorbells().is_some()) else {
            return (REFUSED, None);
        };
        let is_alive = |peer: &Peer| self.detector.state(*peer) == MemberState::Alive;
        if self.peers.iter().find(|peer| is_alive(peer)) != Some(&own) {
            return (0, None);
        }
        let state = |peer| self.detector.state(peer);
        let segments = &self.process.config.segments;
        match segments.allocate_board(&heap, &self.peers, state) {
            Some((offset, _)) => (place_of(self.me, offset), Some(offset)),
            None => (REFUSED, None),
        }
    }

    /// Uses the board at the place that all have agreed on.
    fn attach(&self, place: u32, offered: Option<usize>) -> BoardState {
        let is_own = offered.is_some_and(|offset| place_of(self.me, offset) == place);
        if let (Some(offset), false) = (offered, is_own) {
            self.process.config.segments.release_board(offset, true);
        }
        match place {
            // Who should have offered one has died before it did.
            0 => BoardState::Unknown,
            REFUSED => BoardState::Refused,
            _ => {
                let attached = self.attached(place, offered.filter(|_| is_own));
                attached.map_or(BoardState::Refused, BoardState::Attached)
            }
        }
    }

    fn attached(&self, place: u32, own: Option<usize>) -> Option<Attached> {
        let members = self.peers.len() as u32;
        let lender = *self.peers.get(place as usize >> 16)?;
        let heap = self.process.host.coll_heap(lender)?;
        let offset = ((place & 0xffff) as usize).checked_sub(1)? * BOARD_UNIT;
        let len = AgreementBoard::bytes(members);
        let memory = (offset + len <= heap.len()).then(|| heap.part(offset, len))?;
        Some(Attached {
            board: AgreementBoard::in_memory(memory, members)?,
            next: 0,
            own,
            doorbells: self.doorbells()?,
        })
    }

    /// Doorbells of the other members; `None`: not all can be rung for.
    fn doorbells(&self) -> Option<Vec<Segment>> {
        let own = self.peers[self.me as usize];
        let others = self.peers.iter().filter(|peer| **peer != own);
        others
            .map(|peer| self.process.host.doorbell(*peer))
            .collect()
    }

    /// First context of the communicator, and its first member.
    pub fn key(&self, number: u32) -> AgreementKey {
        AgreementKey {
            context: self.context,
            first: self.peers.first().copied().unwrap_or(0),
            number,
        }
    }
}

fn place_key(key: &AgreementKey) -> AgreementKey {
    AgreementKey {
        number: key.number | ON_PLACE,
        ..*key
    }
}

impl std::fmt::Debug for HostAgreements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HostAgreements")
    }
}
