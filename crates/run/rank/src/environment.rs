//! The environment of a rank's engines in a real process: how long they spin, and what they show to
//! others.
//!
//! One [`RankEnvironment`] for each shard; what others see of the rank is one, whatever shard it is
//! about ([`PublishedState`]).

use crate::client::AgentClient;
use crate::idle_cores::IdleCores;
use crate::trace_recorder::TraceRecorder;
use garonne_engine::api::Peer;
use garonne_engine::observe::events::{self, AwaitedRanks, PendingReport, SentMessage};
use garonne_job::layout::{AsyncProgressState, LAGGARDS, RankState, WaitInfo};
use garonne_job::limits;
use garonne_job::wait_report::WaitReport;
use garonne_links::process_memory::memory_of;
use garonne_links::sys;
use garonne_progress::environment::{
    CommunicatorInfo, Environment, GroupMembers, PeerFate, PossibleSenders, ProgressThreadEvent,
    SpinBudget, WaitObserver,
};
use garonne_trace::record::RecordKind;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The surroundings of the host of one of a rank's shards in a real process.
#[derive(Clone)]
pub struct RankEnvironment {
    pub(crate) shard: usize,
    pub(crate) shown: Option<Arc<PublishedState>>,
    pub(crate) tracer: Option<Arc<TraceRecorder>>,
    pub(crate) patience: SpinBudget,
    pub(crate) lends_always: bool,
    pub(crate) grace: Option<Duration>,
    pub(crate) idle: Option<IdleCores>,
}

/// State that a rank of a job publishes to others, put together from its shards.
pub struct PublishedState {
    wait_report: &'static WaitReport,
    pub(crate) client: Arc<AgentClient>,
    /// Operations that threads wait for, by shard.
    waits: Mutex<Vec<(usize, PendingReport)>>,
}

impl PublishedState {
    /// Nothing so far.
    pub(crate) fn new(client: Arc<AgentClient>) -> Self {
        Self {
            // It stays for those who watch after the rank has finalized.
            wait_report: Box::leak(Box::default()),
            client,
            waits: Mutex::default(),
        }
    }

    /// The book.
    pub(crate) fn book(&self) -> &'static WaitReport {
        self.wait_report
    }

    fn waits(&self, shard: usize, waiting: Option<&PendingReport>) {
        let mut waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let told = waits.iter().find(|(other, _)| *other == shard);
        // Since when it waits stays as it was, too.
        if told.map(|(_, waiting)| waiting) == waiting {
            return;
        }
        waits.retain(|(other, _)| *other != shard);
        waits.extend(waiting.map(|waiting| (shard, waiting.clone())));
        let all = waits
            .iter()
            .map(|(_, waiting)| waiting.clone())
            .reduce(|mut all, other| {
                all.join(&other);
                all
            });
        if let Some(all) = &all {
            self.wait_report.show_waiting(all);
        }
        let wait = all.as_ref().map_or_else(WaitInfo::default, said);
        self.client
            .rank_block(self.client.world().rank)
            .publish_wait(&wait);
    }
}

impl RankEnvironment {
    fn client(&self) -> Option<&AgentClient> {
        self.shown.as_ref().map(|shown| &*shown.client)
    }

    fn record(&self, kind: RecordKind) {
        if let Some(tracer) = &self.tracer {
            tracer.note(kind);
        }
    }
}

impl WaitObserver for RankEnvironment {
    fn note_long_wait(&self, waiting: Option<&PendingReport>) {
        if let Some(shown) = &self.shown {
            shown.waits(self.shard, waiting);
        }
    }

    fn publish_communicator(&self, number: u32, known: &CommunicatorInfo<'_>) {
        if let Some(shown) = &self.shown {
            shown.wait_report.show_communicator(number, known);
        }
        if let (Some(tracer), false) = (&self.tracer, matches!(known.members, GroupMembers::Gone)) {
            tracer.named(number, known.name);
        }
    }

    fn note_sleep(&self, asleep: bool) {
        self.record(if asleep {
            RecordKind::SleepBegin
        } else {
            RecordKind::SleepEnd
        });
    }

    fn note_progress_thread(&self, news: ProgressThreadEvent) {
        let Some(client) = self.client() else { return };
        let card = client.rank_block(client.world().rank);
        match news {
            ProgressThreadEvent::Started if self.grace.is_some() => {
                card.set_async_progress(AsyncProgressState::Late)
            }
            ProgressThreadEvent::Started => card.set_async_progress(AsyncProgressState::Helper),
            ProgressThreadEvent::Refused(errno) => {
                card.set_async_progress(AsyncProgressState::Refused(errno))
            }
            ProgressThreadEvent::Worked => card.count_helper_turn(),
            ProgressThreadEvent::Called => self.record(RecordKind::TurnBegin),
            ProgressThreadEvent::Leaves => self.record(RecordKind::TurnEnd),
        }
    }
}

impl Environment for RankEnvironment {
    fn spin_budget(&self) -> SpinBudget {
        self.patience
    }

    #[inline]
    fn deaths(&self) -> u32 {
        self.client().map_or(0, AgentClient::deaths)
    }

    fn fate(&self, peer: Peer) -> PeerFate {
        let Some(client) = self.client() else {
            return PeerFate::Unknown;
        };
        // Of another world only its connection tells.
        let state = (peer < client.world().size).then(|| client.state_of(peer));
        match state {
            Some(RankState::Finalized) => PeerFate::Left,
            Some(RankState::Gone) => PeerFate::Died,
            _ => PeerFate::Unknown,
        }
    }

    fn extended_yield(&self) -> Duration {
        match self.patience.spins {
            0 => limits::YIELDS_ON,
            _ => Duration::ZERO,
        }
    }

    fn takeover_delay(&self) -> Option<Duration> {
        self.grace
    }

    fn progress_spin_time(&self) -> Duration {
        self.idle
            .as_ref()
            .map_or(Duration::ZERO, IdleCores::progress_spin)
    }

    fn releases_always(&self) -> bool {
        self.lends_always
    }

    fn retry_interval(&self) -> Option<Duration> {
        // Readers ring writers that found no room; this only bounds what a lost ring would cost.
        Some(limits::ROOM_RETRY)
    }

    fn process_of(&self, peer: Peer) -> Option<u32> {
        let client = self.client()?;
        let card = (peer < client.world().size).then(|| client.rank_block(peer))?;
        let own = client.rank_block(client.world().rank);
        let is_near = own.pid_space() != 0 && card.pid_space() == own.pid_space();
        Some(card.pid()).filter(|process| *process != 0 && is_near)
    }

    fn possible_senders(&self, sent: &SentMessage) -> Option<PossibleSenders> {
        let process = self.process_of(sent.from)?;
        let card = self.client()?.rank_block(sent.from);
        if card.event_ring() == 0 {
            return None;
        }
        let read = |address, len| memory_of(process, address, len);
        let origins = events::find_senders(card.event_ring(), sent, read)?;
        Some(PossibleSenders { process, origins })
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        // Without an agent to tell, or when the program has closed the way to it, the end of this
        // process is what the launcher sees.
        let told = self
            .client()
            .is_some_and(|client| client.abort(code, message).is_ok());
        if !told {
            drop(writeln!(std::io::stderr(), "{message}"));
        }
        std::process::exit(code)
    }

    fn wtime(&self) -> f64 {
        // The node's one monotonic clock, so that ranks may compare their times
        // (MPI_WTIME_IS_GLOBAL).
        sys::monotonic_ns() as f64 * 1e-9
    }
}

/// A wait as others see it on the board: the oldest receive, or else a send that cannot go on.
fn said(waiting: &PendingReport) -> WaitInfo {
    let since_ns = sys::monotonic_ns();
    if let Some(meeting) = waiting.external_wait {
        let call = u32::from(meeting.origin.call);
        let (comm, tag, site) = (meeting.context.into(), meeting.tag, meeting.origin.site);
        return WaitInfo {
            call,
            peer: match meeting.awaited {
                AwaitedRanks::Sender(Some(peer)) | AwaitedRanks::Leader(peer) => peer as i32,
                AwaitedRanks::Sender(None) | AwaitedRanks::Members => -1,
                AwaitedRanks::Laggards => LAGGARDS,
            },
            tag: tag.max(-2),
            comm,
            bytes: 0,
            since_ns,
            site,
        };
    }
    let (origin, peer, tag, context, bytes) = match (&waiting.oldest_receive, &waiting.blocked_send)
    {
        (Some((context, peer, tag, origin)), _) => (
            *origin,
            peer.map_or(-1, |peer| peer as i32),
            tag.unwrap_or(-2),
            *context,
            0,
        ),
        (None, Some((context, peer, tag, bytes, origin))) => {
            (*origin, *peer as i32, *tag, *context, *bytes)
        }
        (None, None) => {
            return WaitInfo {
                since_ns,
                ..WaitInfo::default()
            };
        }
    };
    let call = u32::from(origin.call);
    WaitInfo {
        call,
        peer,
        tag,
        comm: context.into(),
        bytes,
        since_ns,
        site: origin.site,
    }
}
