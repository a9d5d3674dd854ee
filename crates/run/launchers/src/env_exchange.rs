//! Ranks that are told no more than their number and where rank 0 is: the variables of torchrun,
//! which Kubernetes' operators set as well (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`).
//!
//! There is no launcher to ask, so rank 0 keeps the table: each fence brings what all have put to
//! it, and the whole back. On one host they meet at an abstract socket, where the kernel says that
//! the other side is the same user's; on several at a port beside that of the variables (which is
//! torch's own), and both sides prove a key that the user has put into a file. Nothing that comes
//! before that proof is believed; what looks like a rank with another key or library is told to
//! people while there is time, and when it is over.

use garonne_job::settings::ENV_KEY;
use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixDatagram, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use garonne_tcp::agent_channel::{self, AgentChannel, PendingChannels};
use garonne_tcp::{LocalIdentity, listen};
use rustix::event::{PollFd, PollFlags};

use super::consistency::{
    ConsistencyCheck, caller_mismatch, foreign_socket_mismatch, own_address_mismatch,
    own_rank_mismatch, rank_zero_mismatch,
};
use super::exchange_table::{ExchangeTable, decode, encode, refusal};
use super::key_file;
use super::local_socket::{self, SocketOwner, is_own_user};
use super::{LauncherExchange, RankAndSize};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{EXCHANGE_PORTS, EXCHANGE_TABLE_MAX, LEADER_LOOK, LEADER_WAIT};

/// Address of rank 0 and identity of the job, from the variables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RankZeroAddress {
    /// Host of rank 0.
    pub address: String,
    /// A port there, which is somebody else's.
    pub port: u16,
    /// All ranks are on this host.
    pub here: bool,
    /// Identity of this start of the job.
    pub run: String,
}

/// How many times rank 0 is looked for at its own place, for one look at the table of all sockets
/// of the host.
const LOOKS_PER_TABLE: u32 = 16;

/// Key that every rank puts, so that two with one number are found.
const RANK_KEY: &str = "garonne-rank";

/// The exchange of ranks that know rank 0's address from variables. Rank 0 keeps the table.
#[derive(Debug)]
pub(super) struct EnvExchange {
    standing: RankAndSize,
    place: RankZeroAddress,
    put: Vec<(String, String)>,
    table: ExchangeTable,
    /// Rank 0 has all others, in any order; another has rank 0.
    lines: Vec<ExchangeConnection>,
    /// Listener of rank 0 for ranks of its host, until all have what they need. A later caller is
    /// one too many.
    door: Option<UnixListener>,
    /// Socket by which rank 0 shows on its host that all ranks have met.
    sign: Option<UnixDatagram>,
}

#[derive(Debug)]
enum ExchangeConnection {
    Near(UnixStream),
    Far(Box<AgentChannel>),
}

impl EnvExchange {
    pub fn new(standing: RankAndSize, place: RankZeroAddress) -> Self {
        Self {
            standing,
            place,
            put: Vec::new(),
            table: ExchangeTable::new(),
            lines: Vec::new(),
            door: None,
            sign: None,
        }
    }

    fn failed(&self, why: &str) -> Error {
        let RankZeroAddress { address, port, .. } = &self.place;
        let rank = self.standing.rank;
        Error::peer(
            codes::G0219,
            format!("rank {rank}, by MASTER_ADDR '{address}' and MASTER_PORT {port}: {why}"),
        )
    }

    /// Lines to all others (rank 0) or to rank 0.
    fn connect(&mut self) -> Result<()> {
        if !self.lines.is_empty() {
            return Ok(());
        }
        self.lines = match (self.standing.rank, self.place.here) {
            (0, true) => {
                let (lines, door) = self.accept_local()?;
                self.door = Some(door);
                lines
            }
            (_, true) => vec![self.connect_local()?],
            (0, false) => self.accept_remote()?,
            (_, false) => vec![self.connect_remote()?],
        };
        Ok(())
    }

    /// An error if the others have had their time to come.
    fn in_time(&self, came: usize, until: Instant, doubts: &ConsistencyCheck) -> Result<()> {
        let missing = self.standing.size as usize - 1 - came;
        match Instant::now() > until {
            true => Err(self.failed(&format!(
                "{missing} ranks have not called MPI_Init{}",
                doubts.last_mismatch()
            ))),
            false => Ok(()),
        }
    }

    /// Two processes have one number: all are told.
    fn comes_twice(&self, rank: &str, lines: &mut [ExchangeConnection]) -> Error {
        let why = format!("two processes say that they are rank {rank} (RANK must not come twice)");
        let message = refusal(&why);
        for line in lines {
            // Whoever has gone needs no word.
            let _ = line.send(&message);
        }
        self.failed(&why)
    }

    /// Adds to an error what rank 0 has said about this rank.
    fn told(&self, error: Error) -> Error {
        match error {
            Error::Peer { code, text } if code == codes::G0219 => self.failed(&text),
            other => other,
        }
    }

    /// Returns the name of the socket by which rank 0 shows that all ranks have met. Another start
    /// with the same variables may have done so: it proves nothing.
    fn sign_of_all(&self) -> Result<LocalAddr> {
        LocalAddr::from_abstract_name(self.name_of("met")).map_err(|error| {
            Error::system(codes::G0219, "no place to show that all have met", error)
        })
    }

    /// The abstract name of a socket of these ranks.
    fn name_of(&self, what: &str) -> String {
        let user = rustix::process::geteuid().as_raw();
        format!("garonne/{what}/{user}/{:016x}", self.identity()[0])
    }

    /// Returns the identity of this start, which all its ranks share and no other has.
    fn identity(&self) -> [u64; 2] {
        let RankZeroAddress {
            address, port, run, ..
        } = &self.place;
        let text = format!("{address}\n{port}\n{run}\n{}", self.standing.size);
        [0xcbf2_9ce4_8422_2325u64, 0x9ae1_6a3b_2f90_404f].map(|seed| {
            // FNV-1a: a name, not a proof.
            let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            text.bytes().fold(seed, mix)
        })
    }

    fn accept_local(&self) -> Result<(Vec<ExchangeConnection>, UnixListener)> {
        let listener =
            local_socket::take(&self.name_of("meet")).map_err(|error| self.told(error))?;
        let unusable = |error| Error::system(codes::G0219, "cannot take the other ranks in", error);
        listener.set_nonblocking(true).map_err(unusable)?;
        let (mut lines, until) = (Vec::new(), Instant::now() + LEADER_WAIT);
        while lines.len() + 1 < self.standing.size as usize {
            wait(&[(listener.as_fd(), PollFlags::IN)], Some(LEADER_LOOK));
            match listener.accept() {
                Ok((line, _)) if is_own_user(&line) => {
                    line.set_nonblocking(false).map_err(unusable)?;
                    lines.push(ExchangeConnection::Near(line));
                }
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => {
                    return Err(unusable(error));
                }
                _ => self.in_time(lines.len(), until, &ConsistencyCheck::default())?,
            }
        }
        Ok((lines, listener))
    }

    /// Tells those who have called beside all others, and so have somebody else's number.
    fn turn_away(&self, door: &UnixListener) {
        let why = format!(
            "rank 0 has met as many as WORLD_SIZE {} says: another process is this rank, too (RANK must not come twice)",
            self.standing.size
        );
        while let Ok((line, _)) = door.accept() {
            if line.set_nonblocking(true).is_ok() && is_own_user(&line) {
                // Whoever has gone needs no word.
                let _ = ExchangeConnection::Near(line).send(&refusal(&why));
            }
        }
    }

    fn connect_local(&self) -> Result<ExchangeConnection> {
        let (point, sign) = (self.name_of("meet"), self.sign_of_all()?);
        let (until, mut doubts) = (Instant::now() + LEADER_WAIT, ConsistencyCheck::default());
        let (probe, mut foreign) = (UnixDatagram::unbound(), None);
        for attempt in 0u32.. {
            let thorough = attempt.is_multiple_of(LOOKS_PER_TABLE);
            match local_socket::connect(&point, thorough) {
                Some(line) => return Ok(ExchangeConnection::Near(line)),
                _ if Instant::now() > until => {
                    return Err(
                        self.failed(&format!("rank 0 does not come{}", doubts.last_mismatch()))
                    );
                }
                _ => {
                    let have_met = probe
                        .as_ref()
                        .is_ok_and(|probe| probe.connect_addr(&sign).is_ok());
                    doubts.report_mismatch(
                        own_rank_mismatch(have_met, self.standing.rank),
                        Instant::now(),
                    );
                    // Asked for once: calls that it does not take fill its queue, and then it
                    // cannot be asked.
                    if thorough && foreign.is_none() {
                        match local_socket::owner(&point) {
                            // Rank 0 has come since, and counts this call.
                            SocketOwner::Own(line) => return Ok(ExchangeConnection::Near(line)),
                            SocketOwner::Foreign(process) => foreign = Some(process),
                            SocketOwner::Nobody => {}
                        }
                    }
                    doubts.report_mismatch(
                        foreign_socket_mismatch(foreign.as_deref(), self.standing.rank),
                        Instant::now(),
                    );
                    std::thread::sleep(LEADER_LOOK);
                }
            }
        }
        Err(self.failed("rank 0 does not come"))
    }

    fn local_identity(&self) -> Result<LocalIdentity> {
        let key = key_file::read()?.ok_or_else(|| {
            let text = format!(
                "the {} ranks are on several hosts, and nothing but RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT says so: they need a key to know each other\n  \
                 help: put one into a file that all of them can read (`openssl rand -hex 32 > FILE; chmod 600 FILE`) and name it by {}=FILE",
                self.standing.size,
                ENV_KEY
            );
            Error::misuse(codes::G0224, text)
        })?;
        let [high, low] = self.identity();
        let mut job = [0; 16];
        job[..8].copy_from_slice(&high.to_le_bytes());
        job[8..].copy_from_slice(&low.to_le_bytes());
        Ok(agent_channel::identity(key, job, self.standing.rank))
    }

    /// The ports at which rank 0 may listen.
    fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        let port = self.place.port;
        (1..=EXCHANGE_PORTS).filter_map(move |more| port.checked_add(more))
    }

    /// Returns the addresses that MASTER_ADDR means on this host.
    fn hosts(&self) -> Vec<IpAddr> {
        let found = (self.place.address.as_str(), self.place.port).to_socket_addrs();
        found
            .into_iter()
            .flatten()
            .map(|address| address.ip())
            .collect()
    }

    fn accept_remote(&self) -> Result<Vec<ExchangeConnection>> {
        let any = [
            SocketAddr::from(([0u16; 8], 0)),
            SocketAddr::from(([0u8; 4], 0)),
        ];
        let at = |mut address: SocketAddr, port| {
            address.set_port(port);
            listen(address).ok()
        };
        let listener = self
            .ports()
            .find_map(|port| at(any[0], port).or_else(|| at(any[1], port)));
        let listener =
            listener.ok_or_else(|| self.failed("none of the ports behind that one is free"))?;
        let port = listener.local_addr().map_or(0, |address| address.port());
        let taken = self.ports().take_while(|other| *other != port).next();
        let mut pending = PendingChannels::new(self.local_identity()?, listener);
        let (mut strangers, mut lines): (Vec<usize>, HashMap<u32, ExchangeConnection>) =
            Default::default();
        let (until, mut doubts) = (Instant::now() + LEADER_WAIT, ConsistencyCheck::default());
        let place =
            own_address_mismatch((&self.place.address, self.place.port), taken, &self.hosts());
        while lines.len() + 1 < self.standing.size as usize {
            // Where others come the place is right.
            doubts.report_mismatch(place.clone().filter(|_| lines.is_empty()), Instant::now());
            // Callers that are proving themselves have sockets of their own; looking at them is
            // cheaper than a second epoll.
            wait(&[(pending.fd(), PollFlags::IN)], Some(LEADER_LOOK));
            pending.open(&mut |place, _| {
                strangers.push(place);
                true
            });
            strangers.sort_unstable();
            strangers.dedup();
            for place in &strangers {
                let size = self.standing.size;
                let expected = |rank: u32| rank < size && rank > 0 && !lines.contains_key(&rank);
                if let Some((rank, line)) = pending.look(*place, expected) {
                    lines.insert(rank, ExchangeConnection::Far(Box::new(line)));
                }
            }
            if let Some((from, fault)) = pending.turned_away() {
                doubts.report_mismatch(caller_mismatch(from, &fault), Instant::now());
            }
            pending.keep_time();
            self.in_time(lines.len(), until, &doubts)?;
        }
        Ok(lines.into_values().collect())
    }

    fn connect_remote(&self) -> Result<ExchangeConnection> {
        let identity = self.local_identity()?;
        let (until, mut doubts) = (Instant::now() + LEADER_WAIT, ConsistencyCheck::default());
        loop {
            let hosts = self.hosts();
            let mut why = String::from("the name of its host is not known");
            // All at once: whoever listens at one of the ports and says nothing holds up no other.
            let at = |port| hosts.iter().map(move |host| SocketAddr::new(*host, port));
            let places: Vec<_> = self.ports().flat_map(at).collect();
            if !places.is_empty() {
                match garonne_links::connect::connect_any(
                    &identity,
                    &places,
                    (0, garonne_links::connect::ConnectDeadlines::with_key()),
                ) {
                    Ok((line, _)) => return Ok(ExchangeConnection::Far(Box::new(line))),
                    Err(missed) => {
                        doubts.report_mismatch(rank_zero_mismatch(&missed), Instant::now());
                        why = missed.tried.join("; ");
                    }
                }
            }
            if let Some(error) = doubts.proved(Instant::now()) {
                return Err(error);
            }
            if Instant::now() > until {
                return Err(self.failed(&format!(
                    "rank 0 is not reached: {why}{}",
                    doubts.last_mismatch()
                )));
            }
            std::thread::sleep(LEADER_LOOK);
        }
    }
}

impl ExchangeConnection {
    fn send(&mut self, message: &[u8]) -> Option<()> {
        match self {
            ExchangeConnection::Near(line) => {
                line.write_all(&(message.len() as u32).to_le_bytes()).ok()?;
                line.write_all(message).ok()
            }
            ExchangeConnection::Far(line) => {
                line.send(message).ok()?;
                while line.waiting() > 0 {
                    wait(&[(line.fd(), PollFlags::OUT | PollFlags::IN)], None);
                    line.push().ok()?;
                }
                Some(())
            }
        }
    }

    fn receive(&mut self) -> Option<Vec<u8>> {
        match self {
            ExchangeConnection::Near(line) => {
                let mut len = [0; 4];
                line.read_exact(&mut len).ok()?;
                let len = u32::from_le_bytes(len) as usize;
                let mut message = vec![0; (len <= EXCHANGE_TABLE_MAX).then_some(len)?];
                line.read_exact(&mut message).ok()?;
                Some(message)
            }
            ExchangeConnection::Far(line) => loop {
                if let Some(message) = line.receive().ok()? {
                    return Some(message);
                }
                wait(&[(line.fd(), PollFlags::IN)], None);
            },
        }
    }
}

/// Until one of them is ready, or for so long.
fn wait(fds: &[(std::os::fd::BorrowedFd<'_>, PollFlags)], limit: Option<Duration>) {
    let limit = limit.map(garonne_links::sys::timespec);
    let mut fds: Vec<_> = fds
        .iter()
        .map(|(fd, flags)| PollFd::from_borrowed_fd(fd.as_fd(), *flags))
        .collect();
    let _ = rustix::event::poll(&mut fds, limit.as_ref());
}

#[cfg(any(test, fuzzing))]
impl EnvExchange {
    /// Reads the variables of this process.
    pub(super) fn read_own(&self) -> usize {
        let _ = (self.identity(), self.name_of("meet"));
        self.ports().count()
    }
}

/// Reads any bytes as a table.
#[cfg(any(test, fuzzing))]
pub(super) fn read_anything(bytes: &[u8]) {
    let _ = decode(bytes);
}

impl LauncherExchange for EnvExchange {
    fn launcher(&self) -> &str {
        "the launcher (by RANK and WORLD_SIZE)"
    }

    fn rank_and_size(&self) -> RankAndSize {
        self.standing
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>> {
        Ok(self
            .place
            .here
            .then(|| vec![0; self.standing.size as usize]))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.put.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.connect()?;
        let mut own = std::mem::take(&mut self.put);
        let mut lines = std::mem::take(&mut self.lines);
        let whose = if self.standing.rank == 0 {
            "a rank"
        } else {
            "rank 0"
        };
        let gone = || {
            let text = format!("{whose} ended before all had come through MPI_Init");
            Error::peer(codes::G0219, text)
        };
        if self.standing.rank == 0 {
            self.table.extend(own);
            let mut known = HashSet::new();
            for line in &mut lines {
                let mut entries = decode(&line.receive().ok_or_else(gone)?)?;
                let rank = entries.iter().position(|(key, _)| key == RANK_KEY);
                let rank = rank.map(|at| entries.swap_remove(at).1);
                if let Some(twice) = rank.filter(|rank| !known.insert(rank.clone())) {
                    return Err(self.comes_twice(&twice, &mut lines));
                }
                self.table.extend(entries);
            }
            let whole = encode(self.table.iter());
            for line in &mut lines {
                line.send(&whole).ok_or_else(gone)?;
            }
        } else {
            own.push((RANK_KEY.to_owned(), self.standing.rank.to_string()));
            let sent = encode(own.iter().map(|(key, value)| (key, value)));
            // It may have said why before it went.
            let _ = lines[0].send(&sent);
            let heard = lines[0].receive().ok_or_else(gone)?;
            self.table = decode(&heard)
                .map_err(|error| self.told(error))?
                .into_iter()
                .collect();
        }
        self.lines = lines;
        Ok(())
    }

    fn get(&mut self, key: &str, of: u32) -> Result<String> {
        let value = self.table.get(key).cloned();
        value.ok_or_else(|| self.failed(&format!("rank {of} has not put '{key}'")))
    }

    fn wired_up(&mut self) {
        self.lines.clear();
        if let Some(door) = self.door.take() {
            self.turn_away(&door);
            // Without it others wait as long, and are told less.
            let sign = self.sign_of_all().ok();
            self.sign = sign.and_then(|sign| UnixDatagram::bind_addr(&sign).ok());
        }
    }

    fn finish(&mut self) {
        self.sign = None;
    }

    fn abort(&mut self, _code: i32) {
        // The end of this process, with the code, is what its launcher sees.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(rank: u32, run: &str) -> EnvExchange {
        let place = RankZeroAddress {
            address: "127.0.0.1".into(),
            port: 29500,
            here: true,
            run: format!("{run}-{}", std::process::id()),
        };
        EnvExchange::new(RankAndSize { rank, size: 3 }, place)
    }

    #[test]
    fn what_each_has_put_all_have_after_the_fence() {
        let ranks = (0..3).map(|rank| {
            std::thread::spawn(move || {
                let mut exchange = exchange(rank, "puts");
                for round in 0..2 {
                    exchange
                        .put(&format!("{round}-{rank}"), &format!("value {rank}"))
                        .unwrap();
                    exchange.fence().unwrap();
                    for other in 0..3 {
                        assert_eq!(
                            exchange.get(&format!("{round}-{other}"), other).unwrap(),
                            format!("value {other}")
                        );
                    }
                }
            })
        });
        ranks
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|rank| rank.join().unwrap());
    }

    #[test]
    fn two_with_one_number_are_found_and_all_are_told() {
        let ranks = [0, 1, 1].map(|rank| {
            std::thread::spawn(move || {
                let mut exchange = exchange(rank, "twice");
                exchange.put("same", "key").unwrap();
                exchange.fence().unwrap_err().to_string()
            })
        });
        for rank in ranks {
            let error = rank.join().unwrap();
            assert!(
                error.contains("two processes say that they are rank 1"),
                "{error}"
            );
        }
    }

    #[test]
    fn who_comes_when_all_have_is_told_that_its_number_is_taken() {
        let ranks = (1..3).map(|rank| std::thread::spawn(move || exchange(rank, "more").fence()));
        let ranks: Vec<_> = ranks.collect();
        let mut first = exchange(0, "more");
        first.fence().unwrap();
        ranks
            .into_iter()
            .for_each(|rank| rank.join().unwrap().unwrap());
        // One that calls before rank 0 is through, and is taken in by nobody.
        let (waits, late) = (
            local_socket::connect(&first.name_of("meet"), false),
            exchange(2, "more"),
        );
        first.wired_up();
        let message = ExchangeConnection::Near(waits.unwrap()).receive().unwrap();
        let error = late.told(decode(&message).unwrap_err()).to_string();
        assert!(
            error.contains("rank 2, by") && error.contains("another process is this rank, too"),
            "{error}"
        );
        // And one that comes later, who waits, sees why nobody takes it in.
        let sees = || {
            let probe = UnixDatagram::unbound().unwrap();
            probe.connect_addr(&late.sign_of_all().unwrap()).is_ok()
        };
        assert!(sees());
        first.finish();
        assert!(!sees());
    }
}
