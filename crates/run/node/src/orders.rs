//! What agents of several hosts say to each other (docs/formats-job.md, clauses D1 to D16): the
//! errand that an agent finds on its standard input, orders from the first agent (the launcher's)
//! to the others, and their reports.
//!
//! Owns the encoding, which is that of [`crate::wire`]. Whoever sends these has proved the job's
//! secret, but nothing here trusts a length.

mod ends;
mod job;
mod places;
mod reach;
mod ways;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use garonne_rails::tcp::{LIBRARY, SECRET_BYTES, Secret, VERSIONS, Versions};

pub use self::ends::RankEnd;
use self::ends::{ends, put_ends};
use self::job::{job, put_job};
pub use self::places::{Place, Seat, decode_place, encode_place};
use self::places::{put_seats, seats};
pub use self::ways::{Callback, Venue, Way};
use self::ways::{callback, put_callback, put_venue, put_way, venue, way};
use crate::added::Added;
use crate::codes;
use crate::error::{Error, Result};
use crate::job::Job;
use crate::limits;
use crate::reach::Own;
use crate::wire::{Reader, Writer, damaged, network, put_network};
pub use crate::wish::{Asked, Wish};
use crate::wish::{asked, put_asked, put_wish, wish};
use ipnet::IpNet;

/// What an agent that is started on another host is told first, on its standard input.
#[derive(Clone, Debug)]
pub struct Errand {
    /// The job.
    pub job: u128,
    /// The secret that both ends of every connection of the job prove.
    pub secret: Secret,
    /// The agent's node.
    pub node: u32,
    /// The name of its host, as the user gave it.
    pub name: String,
    /// The node that it reports to.
    pub parent: u32,
    /// The name of that one's host.
    pub above: String,
    /// Where that one's agent listens.
    pub port: u16,
    /// Its addresses, all that it has.
    pub addresses: Vec<IpAddr>,
}

/// Which of a rank's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// From the first agent to another, passed on by those between them.
#[derive(Clone, Debug)]
pub enum Order {
    /// What is to be run.
    Job(Box<Job>),
    /// Some of the hosts, in the order of nodes: all of them come before [`Order::Go`].
    Hosts(Vec<Seat>),
    /// All agents are there: start.
    Go,
    /// An order for a node below, to be passed on.
    For(u32, Vec<u8>),
    /// A signal for the job.
    Signal(i32),
    /// The job has failed: ranks are to end.
    End {
        /// They may do so by themselves for a while first.
        patient: bool,
        /// The job's exit code.
        code: i32,
    },
    /// All ranks of all hosts have ended.
    Finish,
    /// So many more bytes of a stream are wanted.
    Room(u32, Side, u32),
    /// Standard input for the rank that reads it; empty: its end.
    Input(Vec<u8>),
    /// These ranks, of other nodes, have ended well.
    Ended(Vec<u32>),
    /// A rank of that node is to call another.
    Call(Callback),
    /// Ranks are not to use these networks, and may use all others.
    Drained(Vec<IpNet>),
    /// Addresses that hosts have got since the job began: all, in the order in which they were
    /// found.
    Added(Vec<Added>),
    /// Whether that node reaches the one that is called: `from` calls `to` in vain.
    Probe(Callback),
    /// Ranks of that node reach those of `to` through `via`.
    Way(Way),
    /// Ranks of the two hosts may meet at that node, if these reach it.
    Meet(Callback),
    /// Whether that node reaches the one where two may meet.
    Try(Venue),
    /// All but that node are to say what their ranks show of this.
    Look(Asked, Wish),
    /// What each host has is to be told: a network is to be left alone.
    Reach(u32),
    /// What became of that, for who has asked at that node; without a word: what was asked for.
    Answer(u32, String),
    /// What the ranks of that node show, for who has asked at the one that gets this.
    Seen(u32, Asked, Vec<u8>),
    /// Nothing; the line is alive.
    Ping,
}

/// From another agent to the first, passed on by those between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Some of those at and below a node, all of which know the job and can start their ranks.
    Ready(Vec<Seat>),
    /// Those that are to report to a node can call it at this port of these addresses.
    Opened(u16, Vec<IpAddr>),
    /// A report of a node below.
    Of(u32, Vec<u8>),
    /// Output of a rank; empty: its end.
    Output(u32, Side, Vec<u8>),
    /// Something failed that ends the job, with the rank's last words, if it was one.
    Failed {
        /// Which rank it was.
        rank: Option<u32>,
        /// Exit code of the job.
        code: i32,
        /// It had finalized MPI.
        finalized: bool,
        /// What it left to be printed.
        report: String,
        /// What happened, in a line.
        line: String,
    },
    /// These ranks have ended, well or not.
    Over(Vec<u32>),
    /// So many bytes of standard input were passed on.
    Taken(u32),
    /// A line for the user.
    Say(String),
    /// What the host's ranks do not get of the binding that was asked for, in words that follow
    /// their numbers.
    Unbound(String),
    /// How the ranks of the host have ended: the last but Done, and once.
    Ends(Vec<RankEnd>),
    /// Nothing runs at the node and below it any more; the last message.
    Done,
    /// A rank of another node is to call one of this.
    Call(Callback),
    /// Somebody, whom the number tells apart from others who ask there, wants a network out of use,
    /// or in use again.
    Drain(IpNet, bool, u32),
    /// What the host has, as it was asked.
    Reach(u32, Vec<Own>),
    /// The host has got these addresses.
    Added(Vec<IpAddr>),
    /// It reaches the one that is called, and passes calls on at this port.
    Passes(Callback, u16),
    /// Two may meet there, at this port.
    Meets(Callback, u16),
    /// It reaches the one where two may meet.
    Reaches(Venue),
    /// Somebody asks there what the ranks of all other hosts show of this; the number tells it
    /// apart from others who ask.
    Look(u32, Wish),
    /// What the ranks of this host show, for who has asked.
    Seen(Asked, Vec<u8>),
    /// Nothing; the line is alive.
    Ping,
}

pub(crate) fn put_addresses(writer: Writer, addresses: &[IpAddr]) -> Writer {
    let shown = &addresses[..addresses.len().min(limits::ADDRESSES_MAX)];
    let writer = writer.raw((shown.len() as u32).to_le_bytes());
    shown.iter().fold(writer, |writer, address| match address {
        IpAddr::V4(four) => writer.raw([4]).raw(four.octets()),
        IpAddr::V6(six) => writer.raw([6]).raw(six.octets()),
    })
}

/// How many things follow, each of at least `least` bytes.
fn count(r: &mut Reader<'_>, least: usize, most: usize) -> Result<usize> {
    let count = r.u32()? as usize;
    if count > most || count > r.left() / least.max(1) {
        return Err(damaged("it announces more than it holds"));
    }
    Ok(count)
}

pub(crate) fn addresses(r: &mut Reader<'_>) -> Result<Vec<IpAddr>> {
    let count = count(r, 5, limits::ADDRESSES_MAX)?;
    let address = |r: &mut Reader<'_>| match r.raw::<1>()? {
        [4] => Ok(IpAddr::V4(Ipv4Addr::from(r.raw::<4>()?))),
        [6] => Ok(IpAddr::V6(Ipv6Addr::from(r.raw::<16>()?))),
        _ => Err(damaged("an address is of no known kind")),
    };
    (0..count).map(|_| address(r)).collect()
}

pub(crate) fn put_numbers<const N: usize>(
    writer: Writer,
    numbers: impl ExactSizeIterator<Item = [u8; N]>,
) -> Writer {
    let writer = writer.raw((numbers.len() as u32).to_le_bytes());
    numbers.fold(writer, Writer::raw)
}

fn ports(r: &mut Reader<'_>) -> Result<Vec<u16>> {
    let count = count(r, 2, limits::RANKS_MAX as usize)?;
    (0..count).map(|_| r.u16()).collect()
}

pub(crate) fn ranks(r: &mut Reader<'_>) -> Result<Vec<u32>> {
    let count = count(r, 4, limits::RANKS_MAX as usize)?;
    (0..count).map(|_| r.u32()).collect()
}

fn side(code: u32) -> Result<Side> {
    match code {
        0 => Ok(Side::Out),
        1 => Ok(Side::Err),
        _ => Err(damaged("there is no such stream")),
    }
}

fn optional(rank: Option<u32>) -> [u8; 4] {
    rank.unwrap_or(u32::MAX).to_le_bytes()
}

impl Errand {
    /// Bytes of the errand, its length before them.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSIONS, LIBRARY)
    }

    /// The same, as a library of that name says it which speaks these versions: first that, in the
    /// same place in all of them, since nothing was agreed on yet.
    fn encode_as(&self, versions: Versions, library: &str) -> Vec<u8> {
        let writer = Writer::new(341)
            .raw(versions.lowest.to_le_bytes())
            .raw(versions.highest.to_le_bytes())
            .bytes(library.as_bytes())
            .raw(self.job.to_le_bytes())
            .raw(*self.secret.bytes())
            .raw(self.node.to_le_bytes())
            .raw(self.port.to_le_bytes())
            .bytes(self.name.as_bytes())
            .raw(self.parent.to_le_bytes())
            .bytes(self.above.as_bytes());
        let body = put_addresses(writer, &self.addresses).0;
        [&(body.len() as u32).to_le_bytes()[..], &body].concat()
    }

    /// Reads an errand, without its length.
    ///
    /// # Errors
    /// It is damaged, or that of another library.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = Reader::new(message)?;
        if kind != 341 {
            return Err(damaged("it is no errand"));
        }
        let (theirs, library) = (Versions::from((r.u16()?, r.u16()?)), r.text()?);
        if library != LIBRARY || VERSIONS.agree(theirs).is_err() {
            return Err(Error::peer(
                codes::G0203,
                format!(
                    "the host above runs {library} with formats {theirs}, this one {LIBRARY} with {VERSIONS}"
                ),
            ));
        }
        let errand = Self {
            job: u128::from_le_bytes(r.raw()?),
            secret: Secret::from_bytes(&r.raw::<SECRET_BYTES>()?),
            node: r.u32()?,
            port: r.u16()?,
            name: r.text()?,
            parent: r.u32()?,
            above: r.text()?,
            addresses: addresses(&mut r)?,
        };
        r.end(errand)
    }
}

impl Order {
    /// Whether all agents are to obey it, and so those between pass it on.
    pub fn is_for_all(&self) -> bool {
        match self {
            Order::Hosts(_)
            | Order::Go
            | Order::Signal(_)
            | Order::End { .. }
            | Order::Finish
            | Order::Ended(_)
            | Order::Drained(_)
            | Order::Added(_)
            | Order::Reach(_)
            | Order::Look(..) => true,
            // A job is told to those who call; the others are one node's, or one line's.
            Order::Job(_)
            | Order::For(..)
            | Order::Room(..)
            | Order::Input(_)
            | Order::Call(_)
            | Order::Probe(_)
            | Order::Way(_)
            | Order::Meet(_)
            | Order::Try(_)
            | Order::Answer(..)
            | Order::Seen(..)
            | Order::Ping => false,
        }
    }

    /// Bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Order::Job(job) => put_job(Writer::new(301), job),
            Order::Go => Writer::new(302),
            Order::Signal(signal) => Writer::new(303).raw(signal.to_le_bytes()),
            Order::End { patient, code } => Writer::new(304)
                .raw([u8::from(*patient)])
                .raw(code.to_le_bytes()),
            Order::Finish => Writer::new(305),
            Order::Room(rank, side, bytes) => Writer::new(306)
                .raw(rank.to_le_bytes())
                .raw((*side as u32).to_le_bytes())
                .raw(bytes.to_le_bytes()),
            Order::Input(bytes) => Writer::new(307).bytes(bytes),
            Order::Ended(ranks) => put_numbers(
                Writer::new(308),
                ranks.iter().map(|rank| rank.to_le_bytes()),
            ),
            Order::Ping => Writer::new(309),
            Order::Call(call) => put_callback(Writer::new(310), call),
            Order::Drained(networks) => {
                let writer = Writer::new(311).raw((networks.len() as u32).to_le_bytes());
                networks.iter().fold(writer, put_network)
            }
            Order::Added(list) => {
                let writer = Writer::new(316).raw((list.len() as u32).to_le_bytes());
                list.iter().fold(writer, |writer, (node, address)| {
                    put_addresses(writer.raw(node.to_le_bytes()), &[*address])
                })
            }
            Order::Reach(question) => Writer::new(343).raw(question.to_le_bytes()),
            Order::Answer(number, text) => Writer::new(345)
                .raw(number.to_le_bytes())
                .bytes(text.as_bytes()),
            Order::Probe(call) => put_callback(Writer::new(312), call),
            Order::Way(way) => put_way(Writer::new(313), way),
            Order::Meet(call) => put_callback(Writer::new(319), call),
            Order::Try(venue) => put_venue(Writer::new(320), venue),
            Order::Hosts(seats) => put_seats(Writer::new(314), seats),
            Order::For(node, order) => Writer::new(315).raw(node.to_le_bytes()).bytes(order),
            Order::Look(asked, wish) => put_wish(put_asked(Writer::new(317), asked), *wish),
            Order::Seen(node, asked, look) => {
                put_asked(Writer::new(318).raw(node.to_le_bytes()), asked).bytes(look)
            }
        }
        .0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is damaged.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = Reader::new(message)?;
        let order = match kind {
            301 => Order::Job(Box::new(job(&mut r)?)),
            302 => Order::Go,
            303 => Order::Signal(r.u32()? as i32),
            304 => Order::End {
                patient: r.raw()? != [0],
                code: r.u32()? as i32,
            },
            305 => Order::Finish,
            306 => Order::Room(r.u32()?, side(r.u32()?)?, r.u32()?),
            307 => Order::Input(r.bytes()?.to_vec()),
            308 => Order::Ended(ranks(&mut r)?),
            309 => Order::Ping,
            310 => Order::Call(callback(&mut r)?),
            311 => {
                let count = count(&mut r, 6, limits::DRAINED_MAX)?;
                Order::Drained((0..count).map(|_| network(&mut r)).collect::<Result<_>>()?)
            }
            312 => Order::Probe(callback(&mut r)?),
            313 => Order::Way(way(&mut r)?),
            314 => Order::Hosts(seats(&mut r)?),
            315 => Order::For(r.u32()?, r.bytes()?.to_vec()),
            316 => {
                let count = count(&mut r, 13, limits::ADDED_MAX)?;
                let of_node = |r: &mut Reader<'_>| {
                    let (node, found) = (r.u32()?, addresses(r)?);
                    let [address] = found[..] else {
                        return Err(damaged("an entry has one address"));
                    };
                    Ok((node, address))
                };
                Order::Added((0..count).map(|_| of_node(&mut r)).collect::<Result<_>>()?)
            }
            317 => Order::Look(asked(&mut r)?, wish(&mut r)?),
            318 => Order::Seen(r.u32()?, asked(&mut r)?, r.bytes()?.to_vec()),
            319 => Order::Meet(callback(&mut r)?),
            320 => Order::Try(venue(&mut r)?),
            343 => Order::Reach(r.u32()?),
            345 => Order::Answer(r.u32()?, r.text()?),
            _ => return Err(damaged(&format!("its kind {kind} is unknown"))),
        };
        r.end(order)
    }
}

impl Report {
    /// Bytes of the message.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Report::Ready(seats) => put_seats(Writer::new(321), seats),
            Report::Output(rank, side, bytes) => Writer::new(322)
                .raw(rank.to_le_bytes())
                .raw((*side as u32).to_le_bytes())
                .bytes(bytes),
            Report::Failed {
                rank,
                code,
                finalized,
                report,
                line,
            } => Writer::new(323)
                .raw(optional(*rank))
                .raw(code.to_le_bytes())
                .raw([u8::from(*finalized)])
                .bytes(report.as_bytes())
                .bytes(line.as_bytes()),
            Report::Over(ranks) => put_numbers(
                Writer::new(324),
                ranks.iter().map(|rank| rank.to_le_bytes()),
            ),
            Report::Taken(bytes) => Writer::new(325).raw(bytes.to_le_bytes()),
            Report::Say(line) => Writer::new(326).bytes(line.as_bytes()),
            Report::Unbound(what) => Writer::new(346).bytes(what.as_bytes()),
            Report::Ends(all) => put_ends(Writer::new(347), all),
            Report::Done => Writer::new(327),
            Report::Ping => Writer::new(328),
            Report::Call(call) => put_callback(Writer::new(329), call),
            Report::Drain(network, drained, number) => put_network(Writer::new(330), network)
                .raw([u8::from(*drained)])
                .raw(number.to_le_bytes()),
            Report::Reach(question, all) => {
                reach::put_own(Writer::new(344).raw(question.to_le_bytes()), all)
            }
            Report::Added(found) => put_addresses(Writer::new(334), found),
            Report::Passes(call, port) => {
                put_callback(Writer::new(331), call).raw(port.to_le_bytes())
            }
            Report::Meets(call, port) => {
                put_callback(Writer::new(337), call).raw(port.to_le_bytes())
            }
            Report::Reaches(venue) => put_venue(Writer::new(338), venue),
            Report::Opened(port, addresses) => {
                put_addresses(Writer::new(332).raw(port.to_le_bytes()), addresses)
            }
            Report::Look(number, wish) => {
                put_wish(Writer::new(335).raw(number.to_le_bytes()), *wish)
            }
            Report::Seen(asked, look) => put_asked(Writer::new(336), asked).bytes(look),
            Report::Of(node, report) => Writer::new(333).raw(node.to_le_bytes()).bytes(report),
        }
        .0
    }

    /// Reads a message.
    ///
    /// # Errors
    /// It is damaged.
    pub fn decode(message: &[u8]) -> Result<Self> {
        let (kind, mut r) = Reader::new(message)?;
        let report = match kind {
            321 => Report::Ready(seats(&mut r)?),
            322 => Report::Output(r.u32()?, side(r.u32()?)?, r.bytes()?.to_vec()),
            323 => Report::Failed {
                rank: Some(r.u32()?).filter(|rank| *rank != u32::MAX),
                code: r.u32()? as i32,
                finalized: r.raw()? != [0],
                report: r.text()?,
                line: r.text()?,
            },
            324 => Report::Over(ranks(&mut r)?),
            325 => Report::Taken(r.u32()?),
            326 => Report::Say(r.text()?),
            346 => Report::Unbound(r.text()?),
            347 => Report::Ends(ends(&mut r)?),
            327 => Report::Done,
            328 => Report::Ping,
            329 => Report::Call(callback(&mut r)?),
            330 => Report::Drain(network(&mut r)?, r.raw()? != [0], r.u32()?),
            344 => Report::Reach(r.u32()?, reach::own(&mut r)?),
            331 => Report::Passes(callback(&mut r)?, r.u16()?),
            332 => Report::Opened(r.u16()?, addresses(&mut r)?),
            333 => Report::Of(r.u32()?, r.bytes()?.to_vec()),
            334 => Report::Added(addresses(&mut r)?),
            335 => Report::Look(r.u32()?, wish(&mut r)?),
            336 => Report::Seen(asked(&mut r)?, r.bytes()?.to_vec()),
            337 => Report::Meets(callback(&mut r)?, r.u16()?),
            338 => Report::Reaches(venue(&mut r)?),
            _ => return Err(damaged(&format!("its kind {kind} is unknown"))),
        };
        r.end(report)
    }
}

/// Whether a message, or the one in it that is for or of another node, shows a host's ranks: what
/// may be left out where a line is far behind.
pub fn shows_ranks(message: &[u8]) -> bool {
    let shows = |kind| matches!(kind, 318 | 336);
    Reader::new(message).is_ok_and(|(kind, mut r)| match kind {
        315 | 333 => {
            let inner = r.u32().and_then(|_| r.bytes()).and_then(Reader::new);
            inner.is_ok_and(|(kind, _)| shows(kind))
        }
        kind => shows(kind),
    })
}

/// Reads any bytes as each kind of message.
#[cfg(any(test, fuzzing))]
pub fn read_anything(bytes: &[u8]) {
    let _ = (
        Errand::decode(bytes),
        decode_place(bytes),
        Order::decode(bytes),
        Report::decode(bytes),
    );
    let _ = crate::look::decode(bytes);
    crate::atlas::read_anything(bytes);
    crate::adoption::read_anything(bytes);
    crate::joining::read_anything(bytes);
}

#[cfg(test)]
mod pinned;
#[cfg(test)]
mod tests;
