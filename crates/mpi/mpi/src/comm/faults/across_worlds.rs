//! Agreements of members of several worlds, whose agents do not know each other: [`Consensus`] by
//! messages in a context that belongs to no communicator, so it is never revoked.
//!
//! A process takes all such messages whenever one of its threads is in an agreement. Those of
//! agreements that it has not begun are kept. Those of agreements that are over are dropped.

use super::super::setup_messages::{SetupChannel, SetupMessage};
use super::super::{Comm, context_ids};
use super::consensus::{Consensus, MemberSet, ViewMessage};
use crate::error::Result;
use crate::process::{AgreementInput, Decision, Process};
use garonne_engine::api::{CallOrigin, ContextId, Peer};
use garonne_sync::mutex::lock;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};

/// Longest message that is taken: views of more members than a job can have.
const LEN_MAX: usize = 1 << 24;

fn context() -> ContextId {
    context_ids::base(context_ids::BOOTSTRAP) + 3
}

/// Messages of agreements across worlds of one process. Owned by the process.
#[derive(Default)]
pub(crate) struct AgreementMail(Mutex<Mail>);

#[derive(Default)]
struct Mail {
    /// Messages that are on their way out.
    leaving: Vec<SetupMessage>,
    /// Messages that are arriving: source, communicator.
    arriving: Vec<(u32, i32, SetupMessage)>,
    /// Messages that are there, by the number of their communicator, with their sources.
    kept: HashMap<i32, VecDeque<(u32, Vec<u8>)>>,
    /// Communicators that are freed, for which messages may still arrive: a word for each that has
    /// agreed.
    closed: HashSet<i32>,
}

impl Mail {
    fn receive(&mut self, process: &Arc<Process>) -> Result<()> {
        self.leaving
            .retain_mut(|message| message.outcome().is_none());
        while let Some(message) = SetupMessage::take_any(process, context())? {
            self.arriving.push(message);
        }
        // In order of arrival: a message waits for those before it.
        while let Some((_, _, message)) = self.arriving.first_mut()
            && let Some(outcome) = message.outcome()
        {
            let (source, comm, message) = self.arriving.remove(0);
            if outcome.is_ok_and(|status| status.len as usize <= LEN_MAX)
                && !self.closed.contains(&comm)
            {
                let kept = self.kept.entry(comm).or_default();
                kept.push_back((source, message.bytes()));
            }
        }
        Ok(())
    }
}

impl AgreementMail {
    /// A communicator with this number has begun an agreement.
    fn open(&self, comm: i32) {
        lock(&self.0).closed.remove(&comm);
    }

    /// A communicator that has agreed is freed.
    pub(super) fn close(&self, comm: i32) {
        let mut mail = lock(&self.0);
        mail.kept.remove(&comm);
        mail.closed.insert(comm);
    }
}

/// One agreement that goes on.
pub(super) struct WorldsAgreement {
    comm: Comm,
    consensus: Consensus,
    number: u32,
    /// Own side, other side.
    members: Vec<Peer>,
    sides: [usize; 2],
    own: SetupChannel,
    other: Option<SetupChannel>,
    has_begun: bool,
}

/// The source of a message: the sender's rank on its side, and whether the receiver is on the other
/// one.
fn source(rank: u32, is_across: bool) -> u32 {
    rank << 1 | u32::from(is_across)
}

impl WorldsAgreement {
    pub fn new(comm: &Comm, given: &AgreementInput) -> Self {
        let (local, remote) = (&comm.0.local, comm.0.remote.as_ref());
        let far = remote.into_iter().flat_map(|group| group.members());
        let members: Vec<Peer> = local.members().chain(far).collect();
        let sides = [local.size() as usize, members.len() - local.size() as usize];
        let mut acknowledged = MemberSet::new(members.len());
        for (at, peer) in members.iter().enumerate() {
            if given.acknowledged.contains(peer) {
                acknowledged.insert(at);
            }
        }
        let process = comm.0.process.clone();
        let tag = comm.0.number() as i32;
        process.mail.open(tag);
        let channel = |is_across, group| SetupChannel {
            process: process.clone(),
            context: context(),
            tag,
            rank: source(comm.rank(), is_across),
            group,
            origin: CallOrigin::default(),
        };
        Self {
            consensus: Consensus::new(
                (comm.rank() as usize, members.len()),
                given.key.number,
                acknowledged,
                (given.flags, given.number),
            ),
            number: given.key.number,
            members,
            sides,
            own: channel(false, local.clone()),
            other: remote.map(|group| channel(true, group.clone())),
            comm: comm.clone(),
            has_begun: false,
        }
    }

    /// Goes on; gives the decision once it is there.
    ///
    /// # Errors
    /// No memory for a message.
    pub fn step(&mut self) -> Result<Option<Decision>> {
        let process = self.comm.0.process.clone();
        let dead = self.comm.dead_members();
        let mut mail = lock(&process.mail.0);
        mail.receive(&process)?;
        if !std::mem::replace(&mut self.has_begun, true) {
            let told = self.consensus.begin();
            self.tell(&mut mail, &told);
        }
        while let Some((source, bytes)) = self.next_message(&mut mail) {
            let (rank, is_across) = ((source >> 1) as usize, source & 1 != 0);
            let from = if is_across {
                self.sides[0] + rank
            } else {
                rank
            };
            let message = ViewMessage::decode(&bytes, self.members.len());
            if let Some(message) = message.filter(|_| from < self.members.len()) {
                let told = self.consensus.on_message(from, &message);
                self.tell(&mut mail, &told);
            }
        }
        for peer in dead {
            // After what the dead one has sent.
            if let Some(member) = self.members.iter().position(|member| *member == peer) {
                let told = self.consensus.on_death(member);
                self.tell(&mut mail, &told);
            }
        }
        Ok(self.decision())
    }

    /// Takes the next message of this agreement, and drops those of earlier ones.
    fn next_message(&self, mail: &mut Mail) -> Option<(u32, Vec<u8>)> {
        let kept = mail.kept.get_mut(&self.own.tag)?;
        kept.retain(|(_, bytes)| number_of(bytes) >= self.number);
        let at = kept
            .iter()
            .position(|(_, bytes)| number_of(bytes) == self.number)?;
        kept.remove(at)
    }

    fn tell(&self, mail: &mut Mail, told: &[ViewMessage]) {
        for message in told {
            for (at, _) in self.members.iter().enumerate() {
                if at == self.comm.rank() as usize || self.consensus.is_dead(at) {
                    continue;
                }
                let is_across = at >= self.sides[0];
                let (channel, rank) = match (&self.other, is_across) {
                    (Some(other), true) => (other, at - self.sides[0]),
                    _ => (&self.own, at),
                };
                let bytes = message.encode(self.sides, is_across);
                // Who cannot be sent to is found dead.
                if let Ok(message) = channel.start_send(rank as u32, &bytes) {
                    mail.leaving.push(message);
                }
            }
        }
    }

    fn decision(&self) -> Option<Decision> {
        let view = self.consensus.decision()?;
        let dead = self.members.iter().enumerate();
        let dead = dead.filter(|(at, _)| view.dead.contains(*at));
        let mut dead: Vec<Peer> = dead.map(|(_, peer)| *peer).collect();
        dead.sort_unstable();
        Some(Decision {
            dead,
            acknowledged: view.is_acknowledged(),
            flags: view.flags,
            number: view.number,
        })
    }
}

/// Number of the agreement that a message is for.
fn number_of(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |word| u32::from_le_bytes(*word))
}
