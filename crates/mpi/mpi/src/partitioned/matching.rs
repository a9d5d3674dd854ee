//! Matching of partitioned operations, once in their life: by source and tag, in the order in
//! which they were initialised.
//!
//! Both sides exchange records of fixed size on a context and tag of their own. A sender announces
//! its operation. Announcements and receives of one source and tag wait in two queues, and those
//! at the same place belong together. The receiver answers once both are there and the receive was
//! started.
//!
//! Until then either side may be freed: a receive leaves its queue, a sender withdraws its
//! announcement, and others move up. A sender that is freed unstarted after the answer withdraws
//! as well, and the receive goes back to the front.
//!
//! Nothing is sent, received or posted under the lock: that may make progress, and so step the
//! matching again on the same thread. What is to be done is collected as actions.

use super::tag_space::{TagRange, TagSpace};
use super::{PartitionedReceive, PartitionedSend};
use crate::comm::Comm;
use crate::comm::faults::dead_processes;
use crate::comm::setup_messages::{SetupChannel, SetupMessage};
use crate::error::Error;
use garonne_engine::api::{self, CallOrigin};
use garonne_progress::messaging::{Messaging, Stepper};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Context of partitioned communication, counted from the first one of its communicator.
pub(super) const CONTEXT: u32 = 5;
/// Tag of the records.
const RECORDS: i32 = 0;
/// Least number of matched receives that are looked through for those that were freed.
const SWEEP_MIN: usize = 64;
/// Bytes of a record.
const RECORD_LEN: usize = 24;

/// What a sender tells of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announcement {
    /// The sender's number for the operation.
    pub id: u32,
    pub tag: i32,
    pub partitions: u32,
    /// Bytes of all partitions.
    pub bytes: u64,
}

/// What the receiver answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The sender's number for the operation.
    pub id: u32,
    /// Tag of the first piece; others follow.
    pub first_tag: i32,
    pub pieces: u32,
    /// Bytes for which the receiver has room.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    Announcement(Announcement),
    Answer(Answer),
    /// The sender freed the operation of this number without starting it.
    Withdrawal(u32),
}

impl Record {
    fn encode(self) -> [u8; RECORD_LEN] {
        let (kind, id, tag, number, bytes) = match self {
            Record::Announcement(a) => (1u32, a.id, a.tag, a.partitions, a.bytes),
            Record::Answer(a) => (2, a.id, a.first_tag, a.pieces, a.bytes),
            Record::Withdrawal(id) => (3, id, 0, 0, 0),
        };
        let mut record = [0; RECORD_LEN];
        record[..4].copy_from_slice(&kind.to_le_bytes());
        record[4..8].copy_from_slice(&id.to_le_bytes());
        record[8..12].copy_from_slice(&tag.to_le_bytes());
        record[12..16].copy_from_slice(&number.to_le_bytes());
        record[16..].copy_from_slice(&bytes.to_le_bytes());
        record
    }

    /// Returns the record in `bytes`; `None` if that is none.
    fn decode(bytes: &[u8]) -> Option<Self> {
        let record: &[u8; RECORD_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| {
            let word = [record[at], record[at + 1], record[at + 2], record[at + 3]];
            u32::from_le_bytes(word)
        };
        let (id, tag, number) = (word(4), word(8).cast_signed(), word(12));
        let bytes = u64::from(word(16)) | u64::from(word(20)) << 32;
        match word(0) {
            1 => Some(Record::Announcement(Announcement {
                id,
                tag,
                partitions: number,
                bytes,
            })),
            2 => Some(Record::Answer(Answer {
                id,
                first_tag: tag,
                pieces: number,
                bytes,
            })),
            3 => Some(Record::Withdrawal(id)),
            _ => None,
        }
    }
}

/// Reads any bytes as a record. What is understood is written as it was read, but for words that
/// its kind does not use.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    if let Some(record) = Record::decode(bytes) {
        assert_eq!(Record::decode(&record.encode()), Some(record));
    }
}

/// The partitioned operations of a communicator that are not matched yet. Owned by the
/// communicator; a stepper while something is open.
pub(crate) struct Matching {
    channel: SetupChannel,
    tags: Arc<TagSpace>,
    has_other_worlds: bool,
    state: Mutex<MatchingState>,
}

#[derive(Default)]
struct MatchingState {
    /// The receive that is posted for the next record.
    receive: Option<SetupMessage>,
    /// A step has taken that receive.
    in_step: bool,
    /// Records on their way.
    sends: Vec<SetupMessage>,
    /// Announcements that are not answered, by source and tag.
    announced: HashMap<(u32, i32), VecDeque<Announcement>>,
    /// Receives that are not matched, by source and tag.
    receives: HashMap<(u32, i32), VecDeque<QueuedReceive>>,
    /// Receives that are matched, by source and the sender's number.
    matched: HashMap<(u32, u32), Weak<PartitionedReceive>>,
    /// Number of entries at which `matched` is swept of receives that were freed.
    sweep_at: usize,
    /// Sends that have no answer yet, by number, with the ranks that are to answer.
    unanswered: HashMap<u32, (u32, Weak<PartitionedSend>)>,
    next_id: u32,
    /// The host steps it.
    stepping: bool,
    /// The communicator is gone.
    closed: bool,
}

/// What is to be done once the lock is free. An action holds its operation: the last reference to
/// one must not be dropped under the lock either, since its drop takes the lock.
enum Action {
    SendRecord(u32, Record),
    Matched {
        receive: Arc<PartitionedReceive>,
        announcement: Announcement,
        pieces: u32,
        tags: Option<TagRange>,
    },
    Answered(Arc<PartitionedSend>, Answer),
    Withdrawn(Arc<PartitionedReceive>),
    EndSend(Arc<PartitionedSend>, Error),
    EndReceive(Arc<PartitionedReceive>, Error),
}

type Actions = Vec<Action>;

/// A receive that is not matched.
struct QueuedReceive {
    receive: Weak<PartitionedReceive>,
    was_started: bool,
}

impl QueuedReceive {
    fn is_alive(&self) -> bool {
        self.receive.strong_count() > 0
    }
}

impl MatchingState {
    /// Returns whether a record or an answer is awaited, and forgets operations that were freed.
    fn is_open(&mut self) -> bool {
        self.unanswered
            .retain(|_, (_, send)| send.strong_count() > 0);
        let mut is_awaited = false;
        self.receives.retain(|_, queue| {
            queue.retain(QueuedReceive::is_alive);
            is_awaited |= queue.iter().any(|receive| receive.was_started);
            !queue.is_empty()
        });
        is_awaited || !(self.unanswered.is_empty() && self.sends.is_empty())
    }
}

impl Matching {
    pub fn new(comm: &Comm) -> Arc<Self> {
        Arc::new(Self {
            channel: SetupChannel {
                process: comm.process().clone(),
                context: comm.context() + CONTEXT,
                tag: RECORDS,
                rank: comm.rank(),
                group: comm.targets().clone(),
                origin: CallOrigin::default(),
            },
            tags: Arc::default(),
            has_other_worlds: comm.has_other_worlds(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, MatchingState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a send to rank `to`; `send` makes the operation with the number that it gets.
    pub(super) fn announce(
        self: &Arc<Self>,
        to: u32,
        (tag, partitions, bytes): (i32, u32, u64),
        send: impl FnOnce(u32) -> Arc<PartitionedSend>,
    ) -> Arc<PartitionedSend> {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id = id.wrapping_add(1);
        let send = send(id);
        state.unanswered.insert(id, (to, Arc::downgrade(&send)));
        drop(state);
        let announcement = Announcement {
            id,
            tag,
            partitions,
            bytes,
        };
        self.perform(vec![Action::SendRecord(
            to,
            Record::Announcement(announcement),
        )]);
        send
    }

    /// A send was freed; it was never started.
    pub(super) fn withdraw(self: &Arc<Self>, to: u32, id: u32) {
        self.lock().unanswered.remove(&id);
        self.perform(vec![Action::SendRecord(to, Record::Withdrawal(id))]);
    }

    /// Enters a receive in the queue of its source and tag.
    pub(super) fn enter(&self, key: (u32, i32), receive: &Arc<PartitionedReceive>) {
        let mut state = self.lock();
        let queue = state.receives.entry(key).or_default();
        queue.push_back(QueuedReceive {
            receive: Arc::downgrade(receive),
            was_started: false,
        });
    }

    /// A receive was started for the first time: from now on it is matched as soon as it can be.
    pub(super) fn await_match(
        self: &Arc<Self>,
        key: (u32, i32),
        receive: &Arc<PartitionedReceive>,
    ) {
        let mut state = self.lock();
        let queue = state.receives.get_mut(&key).into_iter().flatten();
        for queued in queue.filter(|queued| queued.receive.as_ptr() == Arc::as_ptr(receive)) {
            queued.was_started = true;
        }
        let mut actions = Actions::new();
        self.match_queues(&mut state, key, &mut actions);
        drop(state);
        self.perform(actions);
    }

    /// The communicator is gone: no record will come any more.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        if let Some(receive) = state.receive.take() {
            receive.cancel();
        }
    }

    /// Does what was collected under the lock, and makes sure that somebody looks for records, if
    /// any are awaited.
    fn perform(self: &Arc<Self>, actions: Actions) {
        self.carry_out(actions);
        let mut state = self.lock();
        if state.stepping || !state.is_open() {
            return;
        }
        state.stepping = true;
        drop(state);
        self.channel.process.host.attach_stepper(self.clone());
    }

    fn carry_out(&self, actions: Actions) {
        for action in actions {
            match action {
                Action::SendRecord(to, record) => self.send_record(to, record),
                Action::Matched {
                    receive,
                    announcement,
                    pieces,
                    tags,
                } => receive.matched(announcement, pieces, tags),
                Action::Answered(send, answer) => send.answered(&answer),
                Action::Withdrawn(receive) => drop(receive),
                Action::EndSend(send, error) => send.end(error),
                Action::EndReceive(receive, error) => receive.end(error),
            }
        }
    }

    fn send_record(&self, to: u32, record: Record) {
        // A process that can not be told any more is gone, and the job learns of that.
        if let Ok(mut message) = self.channel.start_send(to, &record.encode())
            && message.outcome().is_none()
        {
            self.lock().sends.push(message);
        }
    }

    /// Matches what is at the same place of both queues and was started.
    fn match_queues(&self, state: &mut MatchingState, key: (u32, i32), actions: &mut Actions) {
        let Some(mut receives) = state.receives.remove(&key) else {
            return;
        };
        let mut announced = state.announced.remove(&key).unwrap_or_default();
        receives.retain(QueuedReceive::is_alive);
        let mut place = 0;
        while place < receives.len().min(announced.len()) {
            if !receives[place].was_started {
                place += 1;
                continue;
            }
            let queued = receives.remove(place);
            let Some(receive) = queued.and_then(|queued| queued.receive.upgrade()) else {
                continue;
            };
            if let Some(announcement) = announced.remove(place) {
                self.join(state, (key.0, announcement), receive, actions);
            }
        }
        if !receives.is_empty() {
            state.receives.insert(key, receives);
        }
        if !announced.is_empty() {
            state.announced.insert(key, announced);
        }
    }

    /// Matches a receive with an announcement and tells the sender.
    fn join(
        &self,
        state: &mut MatchingState,
        (source, announcement): (u32, Announcement),
        receive: Arc<PartitionedReceive>,
        actions: &mut Actions,
    ) {
        let (pieces, bytes) = receive.offer(announcement.partitions);
        let tags = self.tags.reserve(pieces);
        let answer = Answer {
            id: announcement.id,
            first_tag: tags.as_ref().map_or(0, |range: &TagRange| range.first),
            pieces,
            bytes,
        };
        if state.matched.len() >= state.sweep_at {
            state
                .matched
                .retain(|_, receive| receive.strong_count() > 0);
            state.sweep_at = (2 * state.matched.len()).max(SWEEP_MIN);
        }
        let key = (source, announcement.id);
        state.matched.insert(key, Arc::downgrade(&receive));
        // The receives are posted first, so that pieces find them.
        actions.push(Action::Matched {
            receive,
            announcement,
            pieces,
            tags,
        });
        actions.push(Action::SendRecord(source, Record::Answer(answer)));
    }

    /// Collects what a record asks for.
    fn take_record(
        &self,
        state: &mut MatchingState,
        (source, record): (u32, Record),
        actions: &mut Actions,
    ) {
        match record {
            Record::Announcement(announcement) => {
                let key = (source, announcement.tag);
                let queue = state.announced.entry(key).or_default();
                queue.push_back(announcement);
                self.match_queues(state, key, actions);
            }
            Record::Answer(answer) => {
                let send = state.unanswered.remove(&answer.id);
                if let Some(send) = send.and_then(|(_, send)| send.upgrade()) {
                    actions.push(Action::Answered(send, answer));
                }
            }
            Record::Withdrawal(id) => {
                let queues = state.announced.iter_mut();
                for (_, queue) in queues.filter(|(key, _)| key.0 == source) {
                    queue.retain(|announcement| announcement.id != id);
                }
                let receive = state.matched.remove(&(source, id));
                if let Some(receive) = receive.and_then(|receive| receive.upgrade()) {
                    let key = (source, receive.withdrawn());
                    let queue = state.receives.entry(key).or_default();
                    queue.push_front(QueuedReceive {
                        receive: Arc::downgrade(&receive),
                        was_started: true,
                    });
                    self.match_queues(state, key, actions);
                    actions.push(Action::Withdrawn(receive));
                }
            }
        }
    }
}

impl Matching {
    /// Takes the next record, if one has come, and does what it asks for. `false`: none has come.
    fn take_next(&self) -> bool {
        let mut state = self.lock();
        if state.closed || state.in_step {
            return false;
        }
        state.in_step = true;
        state.sends.retain_mut(|send| send.outcome().is_none());
        let posted = state.receive.take();
        drop(state);
        let posted = posted.map_or_else(|| self.channel.start_recv_any(RECORD_LEN), Ok);
        let (message, outcome) = match posted {
            Ok(mut message) => {
                let outcome = message.outcome();
                (Some(message), outcome)
            }
            // No record can be received any more.
            Err(error) => {
                self.end_waiting(|_| Some(error.clone()));
                self.lock().in_step = false;
                return false;
            }
        };
        let mut state = self.lock();
        state.in_step = false;
        let Some(outcome) = outcome else {
            match message {
                Some(message) if state.closed => message.cancel(),
                message => state.receive = message,
            }
            return false;
        };
        let bytes = message.map_or(Vec::new(), |message| message.bytes());
        let mut actions = Actions::new();
        if let (Ok(status), Some(record)) = (outcome, Record::decode(&bytes)) {
            self.take_record(&mut state, (status.source, record), &mut actions);
        }
        drop(state);
        self.carry_out(actions);
        true
    }
}

impl Matching {
    /// Returns whether processes that this one waits for may die while it goes on.
    fn may_lose_peers(&self) -> bool {
        self.channel.process.survives() || self.has_other_worlds
    }

    /// Ends what waits for a process that has died.
    fn end_lost(&self) {
        let group = &self.channel.group;
        let dead = dead_processes(&self.channel.process, self.has_other_worlds);
        let lost = |rank: u32| {
            let peer = group.peer(rank).filter(|peer| dead.contains(peer))?;
            let what = "it died";
            let error = api::Error::Peer { peer, what };
            Some(self.channel.process.convert(error))
        };
        if !dead.is_empty() {
            self.end_waiting(lost);
        }
    }

    /// Ends the operations that are not matched and wait for a rank for which there is an error.
    fn end_waiting(&self, fault: impl Fn(u32) -> Option<Error>) {
        let mut state = self.lock();
        let mut actions = Actions::new();
        state.unanswered.retain(|_, (to, send)| {
            let Some(error) = fault(*to) else { return true };
            actions.extend(send.upgrade().map(|send| Action::EndSend(send, error)));
            false
        });
        state.receives.retain(|(source, _), queue| {
            let Some(error) = fault(*source) else {
                return true;
            };
            queue.retain(|queued| {
                if queued.was_started {
                    let receive = queued.receive.upgrade();
                    actions.extend(receive.map(|one| Action::EndReceive(one, error.clone())));
                }
                !queued.was_started
            });
            !queue.is_empty()
        });
        drop(state);
        self.carry_out(actions);
    }
}

impl Stepper for Matching {
    fn polls_memory(&self) -> bool {
        // What else ends here when a process dies may be nothing.
        self.may_lose_peers()
    }

    fn step(&self, _: &dyn Messaging) -> bool {
        while self.take_next() {}
        if self.may_lose_peers() {
            self.end_lost();
        }
        let mut state = self.lock();
        let is_open = state.is_open() && !state.closed;
        // A step within a step leaves the end to the outer one.
        state.stepping = is_open || state.in_step;
        !state.stepping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_the_way_to_others_and_garbage_is_none() {
        let announcement = Announcement {
            id: 7,
            tag: i32::MAX,
            partitions: 16,
            bytes: 1 << 40,
        };
        let answer = Answer {
            id: 7,
            first_tag: 12,
            pieces: 4,
            bytes: 3,
        };
        let all = [
            Record::Announcement(announcement),
            Record::Answer(answer),
            Record::Withdrawal(9),
        ];
        for record in all {
            assert_eq!(Record::decode(&record.encode()), Some(record));
        }
        assert_eq!(Record::decode(&[0; RECORD_LEN]), None);
        assert_eq!(Record::decode(&[1; 3]), None);
    }
}
