//! Ranks that are told no more than their number and where rank 0 is: the variables of torchrun, which Kubernetes' operators set as well (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`,
//! `MASTER_PORT`).
//!
//! There is no launcher to ask, so rank 0 keeps the table: each fence brings what all have put to it, and the whole back. On one host they meet at an abstract socket, where
//! the kernel says that the other side is the same user's; on several at a port beside that of the variables (which is torch's own), and both sides prove a key that the
//! user has put into a file. Nothing that comes before that proof is believed; what looks like a rank with another key or library is told to people while there is time, and when it is over.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use garonne_rails::tcp::trusted::{self, Porch, Trusted};
use garonne_rails::tcp::{House, listen};
use rustix::event::{PollFd, PollFlags};

use super::doubts::{Doubts, doubt_of_caller, doubt_of_leader};
use super::key;
use super::{Exchange, Standing};
use crate::codes;
use crate::error::{Error, Result};
use crate::leaf;
use crate::limits::{
    EXCHANGE_PORTS, EXCHANGE_TABLE_MAX, EXCHANGE_VALUE_MAX, KEY_BYTES_MAX, LEADER_LOOK, LEADER_WAIT,
    RANKS_MAX,
};
use crate::wire::{Reader, Writer, damaged};

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Where {
    /// Host of rank 0.
    pub address: String,
    /// A port there, which is somebody else's.
    pub port: u16,
    /// All ranks are on this host.
    pub here: bool,
    /// What tells this start of the job from others.
    pub run: String,
}

type Table = HashMap<String, String>;

/// See the module's paragraph.
#[derive(Debug)]
pub(super) struct Variables {
    standing: Standing,
    place: Where,
    put: Vec<(String, String)>,
    table: Table,
    /// Rank 0 has all others, in any order; another has rank 0.
    lines: Vec<Line>,
}

#[derive(Debug)]
enum Line {
    Near(UnixStream),
    Far(Box<Trusted>),
}

impl Variables {
    pub fn new(standing: Standing, place: Where) -> Self {
        Self {
            standing,
            place,
            put: Vec::new(),
            table: Table::new(),
            lines: Vec::new(),
        }
    }

    fn failed(&self, why: &str) -> Error {
        let Where { address, port, .. } = &self.place;
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
            (0, true) => self.take_near()?,
            (_, true) => vec![self.call_near()?],
            (0, false) => self.take_far()?,
            (_, false) => vec![self.call_far()?],
        };
        Ok(())
    }

    /// An error if the others have had their time to come.
    fn in_time(&self, came: usize, until: Instant, doubts: &Doubts) -> Result<()> {
        let missing = self.standing.size as usize - 1 - came;
        match Instant::now() > until {
            true => Err(self.failed(&format!(
                "{missing} ranks have not called MPI_Init{}",
                doubts.last()
            ))),
            false => Ok(()),
        }
    }

    fn meeting_point(&self) -> Result<LocalAddr> {
        let name = format!(
            "garonne/meet/{}/{:016x}",
            rustix::process::geteuid().as_raw(),
            self.identity()[0]
        );
        LocalAddr::from_abstract_name(name)
            .map_err(|error| Error::system(codes::G0219, "no place to meet", error))
    }

    /// What is the same for all ranks of this start, and for no other.
    fn identity(&self) -> [u64; 2] {
        let Where {
            address, port, run, ..
        } = &self.place;
        let text = format!("{address}\n{port}\n{run}\n{}", self.standing.size);
        [0xcbf2_9ce4_8422_2325u64, 0x9ae1_6a3b_2f90_404f].map(|seed| {
            // FNV-1a: a name, not a proof.
            let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            text.bytes().fold(seed, mix)
        })
    }

    fn is_own_user(line: &UnixStream) -> bool {
        let own = rustix::process::geteuid();
        rustix::net::sockopt::socket_peercred(line).is_ok_and(|peer| peer.uid == own)
    }

    fn take_near(&self) -> Result<Vec<Line>> {
        let listener = UnixListener::bind_addr(&self.meeting_point()?)
            .map_err(|error| Error::system(codes::G0219, "another job meets by the same variables", error))?;
        let unusable = |error| Error::system(codes::G0219, "cannot take the other ranks in", error);
        listener.set_nonblocking(true).map_err(unusable)?;
        let (mut lines, until) = (Vec::new(), Instant::now() + LEADER_WAIT);
        while lines.len() + 1 < self.standing.size as usize {
            wait(&[(listener.as_fd(), PollFlags::IN)], Some(LEADER_LOOK));
            match listener.accept() {
                Ok((line, _)) if Self::is_own_user(&line) => {
                    line.set_nonblocking(false).map_err(unusable)?;
                    lines.push(Line::Near(line));
                }
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(unusable(error)),
                _ => self.in_time(lines.len(), until, &Doubts::default())?,
            }
        }
        Ok(lines)
    }

    fn call_near(&self) -> Result<Line> {
        let point = self.meeting_point()?;
        let until = Instant::now() + LEADER_WAIT;
        loop {
            match UnixStream::connect_addr(&point) {
                Ok(line) if Self::is_own_user(&line) => return Ok(Line::Near(line)),
                _ if Instant::now() > until => return Err(self.failed("rank 0 does not come")),
                _ => std::thread::sleep(LEADER_LOOK),
            }
        }
    }

    fn house(&self) -> Result<House> {
        let key = key::read()?.ok_or_else(|| {
            let text = format!(
                "the {} ranks are on several hosts, and nothing but RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT says so: they need a key to know each other\n  \
                 help: put one into a file that all of them can read (`openssl rand -hex 32 > FILE; chmod 600 FILE`) and name it by {}=FILE",
                self.standing.size,
                key::ENV_KEY
            );
            Error::misuse(codes::G0224, text)
        })?;
        let [high, low] = self.identity();
        let mut job = [0; 16];
        job[..8].copy_from_slice(&high.to_le_bytes());
        job[8..].copy_from_slice(&low.to_le_bytes());
        Ok(trusted::house(key, job, self.standing.rank))
    }

    /// The ports at which rank 0 may listen.
    fn ports(&self) -> impl Iterator<Item = u16> + use<> {
        let port = self.place.port;
        (1..=EXCHANGE_PORTS).filter_map(move |more| port.checked_add(more))
    }

    fn take_far(&self) -> Result<Vec<Line>> {
        let any = [SocketAddr::from(([0u16; 8], 0)), SocketAddr::from(([0u8; 4], 0))];
        let at = |mut address: SocketAddr, port| {
            address.set_port(port);
            listen(address).ok()
        };
        let listener = self
            .ports()
            .find_map(|port| at(any[0], port).or_else(|| at(any[1], port)));
        let listener = listener.ok_or_else(|| self.failed("none of the ports behind that one is free"))?;
        let mut porch = Porch::new(self.house()?, listener);
        let (mut strangers, mut lines): (Vec<usize>, HashMap<u32, Line>) = Default::default();
        let (until, mut doubts) = (Instant::now() + LEADER_WAIT, Doubts::default());
        while lines.len() + 1 < self.standing.size as usize {
            // Callers that are proving themselves have sockets of their own; looking at them is cheaper than a second epoll.
            wait(&[(porch.fd(), PollFlags::IN)], Some(LEADER_LOOK));
            porch.open(&mut |place, _| {
                strangers.push(place);
                true
            });
            strangers.sort_unstable();
            strangers.dedup();
            for place in &strangers {
                let size = self.standing.size;
                let expected = |rank: u32| rank < size && rank > 0 && !lines.contains_key(&rank);
                if let Some((rank, line)) = porch.look(*place, expected) {
                    lines.insert(rank, Line::Far(Box::new(line)));
                }
            }
            if let Some((from, fault)) = porch.turned_away() {
                doubts.hear(doubt_of_caller(from, &fault), Instant::now());
            }
            porch.keep_time();
            self.in_time(lines.len(), until, &doubts)?;
        }
        Ok(lines.into_values().collect())
    }

    fn call_far(&self) -> Result<Line> {
        let house = self.house()?;
        let (until, mut doubts) = (Instant::now() + LEADER_WAIT, Doubts::default());
        loop {
            let found = (self.place.address.as_str(), self.place.port).to_socket_addrs();
            let hosts: Vec<IpAddr> = found.into_iter().flatten().map(|address| address.ip()).collect();
            let mut why = String::from("the name of its host is not known");
            let ports = if hosts.is_empty() { 0 } else { usize::MAX };
            for port in self.ports().take(ports) {
                let places: Vec<_> = hosts.iter().map(|host| SocketAddr::new(*host, port)).collect();
                match leaf::reach(&house, &places, (0, leaf::Patience::with_key())) {
                    Ok((line, _)) => return Ok(Line::Far(Box::new(line))),
                    Err(missed) => {
                        doubts.hear(doubt_of_leader(&missed), Instant::now());
                        why = missed.tried.join("; ");
                    }
                }
            }
            if let Some(error) = doubts.proved(Instant::now()) {
                return Err(error);
            }
            if Instant::now() > until {
                return Err(self.failed(&format!("rank 0 is not reached: {why}{}", doubts.last())));
            }
            std::thread::sleep(LEADER_LOOK);
        }
    }
}

impl Line {
    fn send(&mut self, message: &[u8]) -> Option<()> {
        match self {
            Line::Near(line) => {
                line.write_all(&(message.len() as u32).to_le_bytes()).ok()?;
                line.write_all(message).ok()
            }
            Line::Far(line) => {
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
            Line::Near(line) => {
                let mut len = [0; 4];
                line.read_exact(&mut len).ok()?;
                let len = u32::from_le_bytes(len) as usize;
                let mut message = vec![0; (len <= EXCHANGE_TABLE_MAX).then_some(len)?];
                line.read_exact(&mut message).ok()?;
                Some(message)
            }
            Line::Far(line) => loop {
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
    let limit = limit.map(crate::sys::timespec);
    let mut fds: Vec<_> = fds
        .iter()
        .map(|(fd, flags)| PollFd::from_borrowed_fd(fd.as_fd(), *flags))
        .collect();
    let _ = rustix::event::poll(&mut fds, limit.as_ref());
}

fn encode<'a>(entries: impl ExactSizeIterator<Item = (&'a String, &'a String)>) -> Vec<u8> {
    let writer = Writer::new(371).raw((entries.len() as u32).to_le_bytes());
    let put = |writer: Writer, (key, value): (&String, &String)| {
        writer.bytes(key.as_bytes()).bytes(value.as_bytes())
    };
    entries.fold(writer, put).0
}

fn decode(message: &[u8]) -> Result<Vec<(String, String)>> {
    let (kind, mut r) = Reader::new(message)?;
    let count = r.u32()? as usize;
    if kind != 371 || count > r.left() / 8 || count > 4 * RANKS_MAX as usize {
        return Err(damaged("it is no table"));
    }
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (key, value) = (r.text()?, r.text()?);
        if key.len() > KEY_BYTES_MAX || value.len() > EXCHANGE_VALUE_MAX {
            return Err(damaged("an entry of a table is too long"));
        }
        entries.push((key, value));
    }
    r.end(entries)
}

#[cfg(any(test, fuzzing))]
impl Variables {
    /// What it makes of its variables alone.
    pub(super) fn read_own(&self) -> usize {
        let _ = (self.identity(), self.meeting_point());
        self.ports().count()
    }
}

/// Reads any bytes as a table.
#[cfg(any(test, fuzzing))]
pub(super) fn read_anything(bytes: &[u8]) {
    let _ = decode(bytes);
}

impl Exchange for Variables {
    fn launcher(&self) -> &str {
        "the launcher (by RANK and WORLD_SIZE)"
    }

    fn standing(&self) -> Standing {
        self.standing
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>> {
        Ok(self.place.here.then(|| vec![0; self.standing.size as usize]))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        self.put.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    fn fence(&mut self) -> Result<()> {
        self.connect()?;
        let own = std::mem::take(&mut self.put);
        let mut lines = std::mem::take(&mut self.lines);
        let gone = || Error::peer(codes::G0219, "a rank ended before all had come through MPI_Init");
        if self.standing.rank == 0 {
            self.table.extend(own);
            for line in &mut lines {
                self.table.extend(decode(&line.receive().ok_or_else(gone)?)?);
            }
            let whole = encode(self.table.iter());
            for line in &mut lines {
                line.send(&whole).ok_or_else(gone)?;
            }
        } else {
            let sent = encode(own.iter().map(|(key, value)| (key, value)));
            lines[0].send(&sent).ok_or_else(gone)?;
            self.table = decode(&lines[0].receive().ok_or_else(gone)?)?
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

    fn met(&mut self) {
        self.lines.clear();
    }

    fn finish(&mut self) {}

    fn abort(&mut self, _code: i32) {
        // The end of this process, with the code, is what its launcher sees.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(rank: u32, run: &str) -> Variables {
        let place = Where {
            address: "127.0.0.1".into(),
            port: 29500,
            here: true,
            run: format!("{run}-{}", std::process::id()),
        };
        Variables::new(Standing { rank, size: 3 }, place)
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
    fn no_prefix_of_a_table_is_one() {
        let entries = Table::from([("a".into(), "b".into()), ("c".into(), String::new())]);
        let bytes = encode(entries.iter());
        assert_eq!(decode(&bytes).unwrap().into_iter().collect::<Table>(), entries);
        (0..bytes.len()).for_each(|cut| assert!(decode(&bytes[..cut]).is_err()));
    }
}
