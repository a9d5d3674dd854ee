//! Communicators with processes of other worlds (MPI 5.0 chapter 11): accept and connect, spawn,
//! the parent.
//!
//! Both roots exchange the cards of their groups over the connector's channel. Then every process
//! makes its bridge, and both groups agree on a context over it, led by the roots. A communicator
//! holds a [`BridgeLease`] for each bridge that its processes are reached by. The last lease closes
//! the bridge.

use super::Comm;
use super::context_agreement::{GIVES_UP, LeaderBridge, Participants};
use super::context_ids;
use super::setup_messages::SetupChannel;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::process::Process;
use garonne_coll::call_tag::CollectiveKind;
use garonne_engine::api::{CallOrigin, Peer};
use garonne_progress::world_connector::{
    BRIDGE_SECRET, BridgePlan, ConnectError, ConnectFault, SpawnProgram, SpawnedJob, WorldConnector,
};
use garonne_sync::mutex::lock;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// Turns of a wait for another root before the waiting process sleeps between them.
const EAGER_TURNS: u32 = 200;
/// Time that it then sleeps.
const TURN_SLEEP: Duration = Duration::from_micros(200);

/// A bridge in use; closed when dropped.
pub(crate) struct BridgeLease {
    first: Peer,
    count: u32,
    connector: Arc<dyn WorldConnector>,
}

impl Drop for BridgeLease {
    fn drop(&mut self) {
        self.connector.close(self.first);
    }
}

/// Bridges of a process, by the numbers of their peers.
#[derive(Default)]
pub(crate) struct Bridges {
    leases: Mutex<Vec<Weak<BridgeLease>>>,
    parent: Mutex<Option<Comm>>,
}

impl Bridges {
    /// Returns the bridges that lead to members of these groups which are not below `world`.
    pub(crate) fn of(&self, groups: &[&Group], world: u32) -> Vec<Arc<BridgeLease>> {
        let far = |group: &&&Group| match group {
            Group::Strided { first, size, .. } if *size == 1 => *first >= world,
            group => group.members().any(|peer| peer >= world),
        };
        let mut found: Vec<Arc<BridgeLease>> = Vec::new();
        for group in groups.iter().filter(far) {
            for peer in group.members().filter(|peer| *peer >= world) {
                let is_in = |lease: &Arc<BridgeLease>| {
                    peer.checked_sub(lease.first)
                        .is_some_and(|at| at < lease.count)
                };
                if found.iter().any(is_in) {
                    continue;
                }
                let leases = lock(&self.leases);
                found.extend(leases.iter().filter_map(Weak::upgrade).find(is_in));
            }
        }
        found
    }

    fn add(&self, lease: &Arc<BridgeLease>) {
        let mut leases = lock(&self.leases);
        leases.retain(|known| known.strong_count() > 0);
        leases.push(Arc::downgrade(lease));
    }

    /// Takes the communicator with the parent, when MPI ends.
    pub(crate) fn take_parent(&self) -> Option<Comm> {
        lock(&self.parent).take()
    }
}

fn convert(error: ConnectError) -> Error {
    let class = match error.fault {
        ConnectFault::Port => Class::Port,
        ConnectFault::Spawn => Class::Spawn,
        ConnectFault::Name => Class::Name,
        ConnectFault::Service => Class::Service,
        ConnectFault::Other => Class::Other,
    };
    Error::new(class, error.text)
}

/// Byte strings behind their lengths.
fn put(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend((part.len() as u32).to_le_bytes());
    bytes.extend(part);
}

fn take<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *bytes = rest;
    Some(part)
}

/// Returns all byte strings; `None`: the bytes end within one.
fn parts(mut bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        all.push(take(&mut bytes)?.to_vec());
    }
    Some(all)
}

/// What one root tells the other: its rank, the secret that it proposes, the cards of its group.
struct Introduction {
    root: u32,
    secret: [u8; BRIDGE_SECRET],
    cards: Vec<Vec<u8>>,
}

impl Introduction {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.root.to_le_bytes().to_vec();
        bytes.extend(self.secret);
        self.cards.iter().for_each(|card| put(&mut bytes, card));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (root, rest) = bytes.split_first_chunk()?;
        let (secret, rest) = rest.split_first_chunk()?;
        let (root, cards) = (u32::from_le_bytes(*root), parts(rest)?);
        ((root as usize) < cards.len()).then_some(Self {
            root,
            secret: *secret,
            cards,
        })
    }
}

/// First byte of what a root tells its group: the other side's introduction, or an error's class.
/// Before it stand the numbers of processes of each program that was to be started.
const MET: u8 = 0;

/// Processes of one program of a spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpawnCounts {
    /// Most processes that the program asked for: so many codes it gets.
    pub asked: u32,
    /// Processes that start, no more than that.
    pub started: u32,
}

impl SpawnCounts {
    fn encode(all: &[Self]) -> Vec<u8> {
        let words = all.iter().flat_map(|counts| [counts.asked, counts.started]);
        words.flat_map(u32::to_le_bytes).collect()
    }

    fn decode(bytes: &[u8]) -> Vec<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let (pairs, _) = words.as_chunks::<2>();
        let read = |[asked, started]: &[[u8; 4]; 2]| Self {
            asked: u32::from_le_bytes(*asked),
            started: u32::from_le_bytes(*started),
        };
        pairs.iter().map(read).collect()
    }
}

/// The part of a root in a meeting.
pub struct RootMeeting<'a> {
    /// Name of the port at which both roots meet.
    pub port: &'a str,
    /// Job that is to connect, if this root started it.
    pub job: Option<Box<dyn SpawnedJob>>,
    /// Longest wait for the other root.
    pub limit: Option<Duration>,
}

impl Comm {
    fn connector(&self) -> Result<Arc<dyn WorldConnector>> {
        let connector = self.0.process.config.connector.clone();
        connector.ok_or_else(|| {
            self.error(
                Class::UnsupportedOperation,
                "is of a process that reaches no other worlds",
            )
        })
    }

    /// `MPI_Comm_accept`. `port` counts at `root` only.
    pub fn accept(&self, port: &str, root: i32, origin: CallOrigin) -> Result<Comm> {
        let root = self.root_of_meeting(root)?;
        let meeting = (root == self.rank()).then_some(RootMeeting {
            port,
            job: None,
            limit: None,
        });
        self.meet_world((root, Ok(meeting)), true, &mut Vec::new(), origin)
    }

    /// `MPI_Comm_connect`. `port` and `limit`, the longest wait, count at `root` only.
    pub fn connect(
        &self,
        (port, limit): (&str, Option<Duration>),
        root: i32,
        origin: CallOrigin,
    ) -> Result<Comm> {
        let root = self.root_of_meeting(root)?;
        let meeting = (root == self.rank()).then_some(RootMeeting {
            port,
            job: None,
            limit,
        });
        self.meet_world((root, Ok(meeting)), false, &mut Vec::new(), origin)
    }

    /// `MPI_Comm_spawn` and `MPI_Comm_spawn_multiple`. `programs` and `counts` count at `root`
    /// only; an error in the programs is told to all. Then `counts` are those of the root.
    pub fn spawn(
        &self,
        root: i32,
        programs: Result<Vec<SpawnProgram>>,
        counts: &mut Vec<SpawnCounts>,
        origin: CallOrigin,
    ) -> Result<Comm> {
        let root = self.root_of_meeting(root)?;
        if root != self.rank() {
            return self.meet_world((root, Ok(None)), true, counts, origin);
        }
        let connector = self.connector()?;
        let mut opened = String::new();
        let started = programs.and_then(|programs| {
            opened = connector.open_port().map_err(convert)?;
            connector.spawn(&programs, &opened).map_err(convert)
        });
        let meeting = started.map(|job| {
            Some(RootMeeting {
                port: &opened,
                job: Some(job),
                limit: None,
            })
        });
        let made = self.meet_world((root, meeting), true, counts, origin);
        if !opened.is_empty() {
            // It was opened above, and only this call knows its name.
            let _ = connector.close_port(&opened);
        }
        made
    }

    fn root_of_meeting(&self, root: i32) -> Result<u32> {
        if self.is_inter() {
            return Err(self.error(
                Class::Comm,
                "is an intercommunicator; processes of another world are met by an intracommunicator",
            ));
        }
        let found = u32::try_from(root).ok().filter(|rank| *rank < self.size());
        found.ok_or_else(|| self.error(Class::Root, format!("has no rank {root} as its root")))
    }

    fn meet_world(
        &self,
        (root, meeting): (u32, Result<Option<RootMeeting<'_>>>),
        accepts: bool,
        counts: &mut Vec<SpawnCounts>,
        origin: CallOrigin,
    ) -> Result<Comm> {
        let connector = self.connector()?;
        let entered = self.enter(CollectiveKind::IntercommCreate, origin)?;
        let origin = entered.origin();
        let (preparation, card) = match connector.prepare() {
            Ok((preparation, card)) => (Ok(preparation), card),
            // An empty card tells the others.
            Err(error) => (Err(convert(error)), Vec::new()),
        };
        let mut framed = Vec::new();
        put(&mut framed, &card);
        let channel = self.constructor_channel(origin);
        let all = {
            let channel = channel.clone();
            self.run(async move { channel.all_gather_sized(&framed).await })
        };
        let preparation = preparation?;
        let made = all.and_then(|all| {
            let cards = parts(&all).filter(|cards| cards.iter().all(|card| !card.is_empty()));
            let cards = cards.ok_or_else(|| {
                self.error(
                    Class::Other,
                    "has a process that cannot be connected to: it has no descriptors left",
                )
            })?;
            let told = match root == self.rank() {
                true => {
                    let met = self.meet_root(&connector, meeting, (root, &cards), accepts);
                    let mut bytes = Vec::new();
                    put(&mut bytes, &SpawnCounts::encode(counts));
                    match met {
                        Ok(met) => {
                            bytes.push(MET);
                            bytes.extend(met);
                        }
                        Err(error) => {
                            bytes.push(error.class as u8);
                            bytes.extend(error.detail.bytes());
                        }
                    }
                    bytes
                }
                false => Vec::new(),
            };
            let own = channel.clone();
            let told = self.run(async move { own.broadcast(root, told).await })?;
            let mut told = told.as_slice();
            *counts = take(&mut told).map(SpawnCounts::decode).unwrap_or_default();
            let bytes = match told.split_first() {
                Some((&MET, bytes)) => bytes,
                Some((class, text)) => {
                    let class = Class::try_from(i32::from(*class)).unwrap_or(Class::Other);
                    return Err(Error::new(class, String::from_utf8_lossy(text)));
                }
                None => return Err(self.error(Class::Intern, "was told nothing by its root")),
            };
            let damaged = || self.error(Class::Other, "got a damaged answer from the other side");
            let (own_secret, theirs) = bytes.split_first_chunk().ok_or_else(damaged)?;
            let theirs = Introduction::decode(theirs).ok_or_else(damaged)?;
            self.bridge(
                (&connector, preparation),
                (&cards, *own_secret),
                theirs,
                accepts,
            )
        });
        let (remote, remote_root, tag, lease) = match made {
            Ok(made) => made,
            Err(error) => {
                connector.discard(preparation);
                return Err(error);
            }
        };
        let circle = Participants {
            local: self.constructor_channel(origin),
            bridge: Some(LeaderBridge {
                leader: root,
                remote_leader: remote_root,
                channel: Some(SetupChannel {
                    process: self.0.process.clone(),
                    context: context_ids::base(context_ids::BOOTSTRAP) + 2,
                    tag,
                    rank: self.rank(),
                    group: remote.clone(),
                    origin,
                }),
            }),
        };
        let leaders = circle.leaders_channel();
        let comm = self.clone();
        let made = self.run(async move {
            let local = comm.0.local.clone();
            comm.face(&circle, remote, local).await
        });
        if let (Err(_), Some(channel)) = (&made, leaders) {
            // The other root waits for this one, which leaves in good order.
            let told = async move { channel.send(remote_root, &GIVES_UP.to_le_bytes()).await };
            let _ = self.run(told);
        }
        // The communicator has leases of its own.
        drop(lease);
        made?.ok_or_else(|| self.error(Class::Intern, "lost a process while it was connected"))
    }

    /// Meets the other root. Returns the own secret and the other root's introduction.
    fn meet_root(
        &self,
        connector: &Arc<dyn WorldConnector>,
        meeting: Result<Option<RootMeeting<'_>>>,
        (root, cards): (u32, &[Vec<u8>]),
        accepts: bool,
    ) -> Result<Vec<u8>> {
        let meeting = meeting?;
        let mut meeting = meeting.ok_or_else(|| self.error(Class::Intern, "has no port"))?;
        let own = Introduction {
            root,
            secret: connector.draw_secret().map_err(convert)?,
            cards: cards.to_vec(),
        };
        let host = &self.0.process.host;
        let (began, limit) = (Instant::now(), meeting.limit);
        let mut turns = 0;
        let mut wait = || {
            if host.progress() {
                return Ok(());
            }
            if let Some(limit) = limit.filter(|limit| began.elapsed() >= *limit) {
                let text = format!(
                    "no process accepted at the port {:?} within {} s, as its info key timeout asks",
                    meeting.port,
                    limit.as_secs()
                );
                return Err(ConnectError::new(ConnectFault::Port, text));
            }
            turns += 1;
            match turns {
                ..EAGER_TURNS => std::thread::yield_now(),
                _ => std::thread::sleep(TURN_SLEEP),
            }
            let job = meeting.job.as_mut().filter(|_| turns % 16 == 0);
            match job.is_some_and(|job| job.has_ended()) {
                true => Err(ConnectError::new(
                    ConnectFault::Spawn,
                    "the processes that were started ended before they initialised MPI",
                )),
                false => Ok(()),
            }
        };
        let bytes = own.encode();
        let theirs = match accepts {
            true => connector.accept(meeting.port, &bytes, &mut wait),
            false => connector.connect(meeting.port, &bytes, &mut wait),
        };
        let theirs = theirs.map_err(convert)?;
        Ok([&own.secret[..], &theirs].concat())
    }

    /// Makes this process's bridge. Returns the remote group, its root, a tag for the leaders'
    /// messages, and the lease.
    #[allow(clippy::type_complexity, reason = "the parts of one result")]
    fn bridge(
        &self,
        (connector, preparation): (&Arc<dyn WorldConnector>, u64),
        (cards, own_secret): (&[Vec<u8>], [u8; BRIDGE_SECRET]),
        theirs: Introduction,
        accepts: bool,
    ) -> Result<(Group, u32, i32, Option<Arc<BridgeLease>>)> {
        let (own, other) = (cards.len() as u32, theirs.cards.len() as u32);
        let (first, second) = match accepts {
            true => (cards.to_vec(), theirs.cards),
            false => (theirs.cards, cards.to_vec()),
        };
        let mut secret = own_secret;
        secret
            .iter_mut()
            .zip(theirs.secret)
            .for_each(|(a, b)| *a ^= b);
        let plan = BridgePlan {
            cards: [first, second].concat(),
            me: if accepts {
                self.rank()
            } else {
                other + self.rank()
            },
            remote: if accepts { own..own + other } else { 0..other },
            secret,
        };
        let made = connector.bridge(preparation, plan).map_err(convert)?;
        let lease = made.bridge.map(|first| {
            let lease = Arc::new(BridgeLease {
                first,
                count: other,
                connector: connector.clone(),
            });
            self.0.process.bridges.add(&lease);
            lease
        });
        let tag = i32::from_le_bytes([secret[0], secret[1], secret[2], secret[3] & 0x7f]);
        Ok((Group::compact(made.peers), theirs.root, tag, lease))
    }

    /// Returns whether some of its processes are of other worlds.
    #[inline]
    pub(crate) fn has_other_worlds(&self) -> bool {
        !self.0.bridges.is_empty()
    }

    /// Refuses what only communicators of one world can do.
    pub(crate) fn check_one_world(&self, what: &str) -> Result<()> {
        match self.has_other_worlds() {
            true => Err(self.error(
                Class::UnsupportedOperation,
                format!("has processes of several worlds, which {what} does not support"),
            )),
            false => Ok(()),
        }
    }
}

impl Process {
    /// Connects to the processes that started this one, if any did. All processes of the world call
    /// it after [`Process::init`].
    pub fn connect_parent(&self, origin: CallOrigin) -> Result<()> {
        let port = self
            .config
            .connector
            .as_ref()
            .and_then(|connector| connector.parent_port());
        let (Some(port), Some(world)) = (port, self.world()) else {
            return Ok(());
        };
        let parent = world.connect((&port, None), 0, origin)?;
        parent.set_name("MPI_COMM_PARENT");
        *lock(&self.bridges.parent) = Some(parent);
        Ok(())
    }

    /// `MPI_Comm_get_parent`: `None` if nobody started this process, or the communicator was freed.
    pub fn parent(&self) -> Option<Comm> {
        lock(&self.bridges.parent).clone()
    }

    /// The program frees a communicator: if it is that with the parent, there is none any more.
    pub fn forget_parent(&self, freed: &Comm) {
        let mut parent = lock(&self.bridges.parent);
        let taken = parent.take_if(|parent| parent.is(freed));
        drop(parent);
        drop(taken);
    }

    /// `MPI_Open_port`.
    pub fn open_port(&self) -> Result<String> {
        self.ports()?.open_port().map_err(convert)
    }

    /// `MPI_Close_port`.
    pub fn close_port(&self, name: &str) -> Result<()> {
        self.ports()?.close_port(name).map_err(convert)
    }

    /// `MPI_Publish_name`.
    pub fn publish_name(&self, service: &str, port: &str) -> Result<()> {
        self.ports()?.publish(service, port).map_err(convert)
    }

    /// `MPI_Unpublish_name`.
    pub fn unpublish_name(&self, service: &str) -> Result<()> {
        self.ports()?.unpublish(service).map_err(convert)
    }

    /// `MPI_Lookup_name`.
    pub fn lookup_name(&self, service: &str) -> Result<String> {
        self.ports()?.lookup(service).map_err(convert)
    }

    fn ports(&self) -> Result<&Arc<dyn WorldConnector>> {
        self.config.connector.as_ref().ok_or_else(|| {
            Error::new(
                Class::UnsupportedOperation,
                "this process reaches no other worlds",
            )
        })
    }
}

/// Reads any bytes as what roots of two groups tell each other and their groups. What is understood
/// is written as it was read.
#[cfg(any(test, fuzzing))]
pub(crate) fn read_anything(bytes: &[u8]) {
    super::faults::read_anything(bytes);
    if let Some(read) = Introduction::decode(bytes) {
        assert_eq!(read.encode(), bytes);
        assert!((read.root as usize) < read.cards.len());
    }
    let counts = SpawnCounts::encode(&SpawnCounts::decode(bytes));
    assert_eq!(counts, bytes[..counts.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn introductions_survive_the_way_and_other_bytes_are_refused_or_read(
            cards in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 1..6),
            secret: [u8; BRIDGE_SECRET],
            junk in prop::collection::vec(any::<u8>(), 0..90),
        ) {
            let sent = Introduction { root: cards.len() as u32 - 1, secret, cards: cards.clone() };
            let read = Introduction::decode(&sent.encode()).unwrap();
            prop_assert_eq!((read.root, read.secret, read.cards), (sent.root, secret, cards));
            if let Some(read) = Introduction::decode(&junk) {
                prop_assert!((read.root as usize) < read.cards.len());
            }
        }
    }
}
