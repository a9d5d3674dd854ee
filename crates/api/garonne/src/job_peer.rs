//! Connections between the ranks of a job: all of them go by the rank's one engine.

use crate::endpoint::{CONTROL, MESSAGES, enter_job};
use crate::error::{misuse, of_engine};
use crate::event::ConnectionId;
use crate::limits::{JOB_LOOK, MESSAGE_MAX};
use crate::link::{LinkEngine, from_peer};
use crate::pair::{GOODBYE, PairEnd};
use crate::sys::OwnedOperation;
use garonne_engine::api::{self, CallOrigin, Pattern, Peer, RecvArgs, SendArgs, SendCompletion};
use garonne_job::error::Result;
use garonne_progress::messaging::Messaging;
use garonne_rank::{Rank, RankHost};
use garonne_sync::mutex::lock;
use garonne_sync::user::Data;
use garonne_tcp::SocketSet;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The job of an endpoint. Order of calls: [`JobRank::enter`]; [`JobRank::engine_to`] for each rank
/// that is spoken to, [`JobRank::new_speaker`] for those that speak first; dropped after all
/// connections, it leaves the job.
pub(crate) struct JobRank {
    rank: Option<Box<Rank>>,
    host: Arc<RankHost>,
    known: BTreeMap<Peer, ConnectionId>,
    closed: BTreeSet<Peer>,
    /// Receives of messages that nobody wants.
    discarded: Vec<OwnedOperation>,
}

impl std::fmt::Debug for JobRank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.me(), self.size())
    }
}

impl JobRank {
    /// Joins the job as the rank that this process is.
    pub(crate) fn enter() -> Result<Self> {
        let rank = enter_job()?;
        Ok(Self {
            host: rank.host.clone(),
            rank: Some(Box::new(rank)),
            known: BTreeMap::new(),
            closed: BTreeSet::new(),
            discarded: Vec::new(),
        })
    }

    pub(crate) fn me(&self) -> Peer {
        self.host.me()
    }

    pub(crate) fn size(&self) -> u32 {
        self.host.world_size()
    }

    /// The connection to a rank, if there is one.
    pub(crate) fn known(&self, peer: Peer) -> Option<ConnectionId> {
        self.known.get(&peer).copied()
    }

    /// Makes the engine of a connection to a rank, which has this name from now on.
    pub(crate) fn engine_to(&mut self, peer: Peer, name: ConnectionId) -> Result<JobPeer> {
        if peer >= self.size() || peer == self.me() {
            let text = format!("no other rank {peer} among {}", self.size());
            return Err(misuse(text));
        }
        if self.closed.contains(&peer) {
            let text = format!("the connection to rank {peer} was closed, and stays so");
            return Err(misuse(text));
        }
        let engine = JobPeer::new(self.host.clone(), peer);
        let engine = engine.map_err(|error| of_engine("connect to a rank", error))?;
        self.known.insert(peer, name);
        Ok(engine)
    }

    /// A connection is over: its ranks do not connect again.
    pub(crate) fn ended(&mut self, name: ConnectionId) {
        let mut known = self.known.iter();
        if let Some(peer) = known.find_map(|(peer, known)| (*known == name).then_some(*peer)) {
            self.known.remove(&peer);
            self.closed.insert(peer);
        }
    }

    /// Returns a rank that has sent a message and to which there is no connection yet.
    pub(crate) fn new_speaker(&mut self) -> Option<Peer> {
        self.discarded.retain_mut(|one| !one.is_over(&*self.host));
        if self.known.len() + 1 >= self.size() as usize {
            return None;
        }
        let anybody = Pattern {
            context: MESSAGES,
            source: None,
            tag: None,
        };
        // What fails is told by the connections.
        let peer = self.host.probe(anybody).ok()??.source;
        if self.closed.contains(&peer) {
            self.discard(peer);
            return None;
        }
        (!self.known.contains_key(&peer)).then_some(peer)
    }

    /// Receives the next message of a rank whose connection was closed, and drops it.
    fn discard(&mut self, peer: Peer) {
        let Ok(Some((message, status))) = self.host.mprobe(from_peer(MESSAGES, peer)) else {
            return;
        };
        let len = status.len.min(MESSAGE_MAX) as usize;
        let receive = |data| self.host.mrecv(message, data, CallOrigin::default());
        self.discarded
            .extend(OwnedOperation::start(vec![0; len], receive));
    }
}

impl Drop for JobRank {
    fn drop(&mut self) {
        if let Some(rank) = self.rank.take() {
            if !std::thread::panicking() {
                // Nobody is left who could be told.
                let _ = rank.leave();
            }
            // Others look at its memory as long as the process is there.
            std::mem::forget(rank);
        }
    }
}

/// The engine of a rank, for the connection to one other rank.
pub(crate) struct JobPeer {
    host: Arc<RankHost>,
    peer: Peer,
    goodbye: Mutex<OwnedOperation>,
}

impl std::fmt::Debug for JobPeer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of the job", self.peer)
    }
}

impl JobPeer {
    fn new(host: Arc<RankHost>, peer: Peer) -> std::result::Result<Self, api::Error> {
        let pattern = Pattern {
            tag: Some(GOODBYE),
            ..from_peer(CONTROL, peer)
        };
        let goodbye = OwnedOperation::start(Vec::new(), |data| {
            host.recv(RecvArgs {
                pattern,
                data,
                origin: CallOrigin::default(),
            })
        })?;
        Ok(Self {
            host,
            peer,
            goodbye: Mutex::new(goodbye),
        })
    }
}

impl LinkEngine for JobPeer {
    fn messaging(&self) -> &dyn Messaging {
        &*self.host
    }

    fn other(&self) -> Peer {
        self.peer
    }

    fn end(&self) -> Option<PairEnd> {
        let mut goodbye = lock(&self.goodbye);
        if !goodbye.is_over(&*self.host) {
            return None;
        }
        Some(match goodbye.wait(&*self.host, |_, _| {}) {
            Ok(_) => PairEnd::Left,
            Err(error) => PairEnd::Lost(error),
        })
    }

    fn say_goodbye(&self) -> std::result::Result<(), api::Error> {
        let goodbye = OwnedOperation::start(Vec::new(), |data: Data| {
            self.host.send(SendArgs {
                context: CONTROL,
                peer: self.peer,
                source: self.host.me(),
                tag: GOODBYE,
                data,
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            })
        });
        goodbye.map(drop)
    }

    fn has_nothing_to_send(&self) -> bool {
        let owed = |peers: Vec<Peer>| peers.contains(&self.peer);
        use garonne_progress::messaging::Waiting;
        self.host.progress();
        !self.host.has_work() && !self.host.inspect(|engine| owed(engine.transport().owed()))
    }

    fn before_sleep(&self) -> Option<Duration> {
        // Only a look at memory tells what comes from ranks of this host.
        Some(JOB_LOOK)
    }

    fn sockets(&self) -> Option<SocketSet> {
        None
    }
}
