//! Lines between ranks in bad weather: each passes connections on, and cuts, resets, stalls, slows
//! or half closes them, or is dark as a whole for a while, as a seed says.
//!
//! One thread serves all lines of a world. What happens to a connection is drawn when so many bytes
//! have passed, so most often in the midst of a frame, and now and then by the clock, so also to
//! one that is idle. Everything ends by itself within seconds.

use garonne_sim::random::Random;
use rustix::net::sockopt::set_socket_linger;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const BUFFER: usize = 64 * 1024;

/// State that the ranks of a world and its lines share.
#[derive(Default)]
pub struct Sky {
    /// Nothing goes wrong any more.
    pub calm: AtomicBool,
    pub stop: AtomicBool,
    /// Number of faults so far.
    pub ails: AtomicU32,
    /// Changes with the two below.
    pub turns: AtomicU32,
    /// Lines that are to be left alone, as bits.
    pub drained: AtomicU32,
    /// Lines that there are, as bits.
    pub present: AtomicU32,
}

impl Sky {
    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Acquire)
    }
}

/// Ends the lines when it is dropped: a test that fails must not wait for them.
pub struct Ends<'a>(pub &'a Sky);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

/// The address that a line has on this host.
pub fn address_of(line: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, 10 + line)
}

/// Way in which bad the weather is.
#[derive(Clone, Copy, Debug)]
pub struct Climate {
    /// Something happens to a connection after at most so many bytes.
    pub bytes: u64,
    /// Longest time that it lasts.
    pub lasts: Duration,
    /// Something happens by the clock about so often on each line.
    pub every: Duration,
    /// Lines of the world, of which any may be taken out of use and back.
    pub lines: u8,
    /// Count of failures that end it: what stands still then stands still for good, and the
    /// next break does not mend it.
    pub ails: u32,
}

/// One direction of a connection.
#[derive(Default)]
struct Half {
    /// Bytes of which those at `at..end` have come and not gone.
    pending: Vec<u8>,
    at: usize,
    end: usize,
    /// Nothing more comes.
    ended: bool,
    closed: bool,
    /// Nothing passes until then.
    stalls: Option<Instant>,
    /// Until when the line is slow, and bytes that pass in a millisecond meanwhile.
    slow: Option<(Instant, usize)>,
    /// When the next may.
    next: Option<Instant>,
}

impl Half {
    /// Moves what may be moved; an error: the connection is over.
    fn flow(
        &mut self,
        (from, to): (&mut TcpStream, &mut TcpStream),
        most: usize,
        now: Instant,
    ) -> std::io::Result<usize> {
        if self.stalls.is_some_and(|until| now < until) || self.next.is_some_and(|next| now < next)
        {
            return Ok(0);
        }
        let mut most = most.min(BUFFER);
        (self.stalls, self.next) = (None, None);
        if let Some((until, bytes)) = self.slow {
            self.slow = self.slow.filter(|_| now < until);
            self.next = Some(now + Duration::from_millis(1));
            most = most.min(bytes);
        }
        let mut got = 0;
        if self.at == self.end && !self.ended {
            self.pending.resize(BUFFER, 0);
            match from.read(&mut self.pending[..most]) {
                Ok(0) => (self.ended, got) = (true, 0),
                Ok(moved) => got = moved,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            (self.at, self.end) = (0, got);
        }
        while self.at < self.end {
            match to.write(&self.pending[self.at..self.end]) {
                Ok(sent) => self.at += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.ended && self.at == self.end && !self.closed {
            self.closed = true;
            to.shutdown(Shutdown::Write)?;
        }
        Ok(got)
    }
}

struct Passage {
    near: TcpStream,
    far: TcpStream,
    there: Half,
    back: Half,
    /// Bytes until something happens to it.
    left: u64,
}

impl Passage {
    /// Moves bytes both ways; an error: it is over.
    fn flow(&mut self, calm: bool, now: Instant) -> std::io::Result<usize> {
        if calm {
            for half in [&mut self.there, &mut self.back] {
                (half.stalls, half.slow, half.next) = (None, None, None);
            }
        }
        let most = |left: u64| match calm {
            true => BUFFER,
            false => usize::try_from(left).unwrap_or(BUFFER).max(1),
        };
        let there = self
            .there
            .flow((&mut self.near, &mut self.far), most(self.left), now)?;
        self.left = self.left.saturating_sub(there as u64);
        let back = self
            .back
            .flow((&mut self.far, &mut self.near), most(self.left), now)?;
        self.left = self.left.saturating_sub(back as u64);
        Ok(there + back)
    }

    /// Something happens to it. `false`: that was its end.
    fn suffer(&mut self, climate: &Climate, dice: &mut Random, now: Instant) -> bool {
        self.left = budget(climate, dice);
        // Most last some milliseconds, some as long as anything does.
        let most = if dice.one_in(4) {
            climate.lasts
        } else {
            climate.lasts / 20
        };
        let until = now + Duration::from_micros(1 + dice.below(most.as_micros() as u64));
        match dice.below(7) {
            0 | 1 => {
                let _ = self.near.shutdown(Shutdown::Both);
                let _ = self.far.shutdown(Shutdown::Both);
                return false;
            }
            2 => {
                // What the other side has not read yet is lost, too.
                for end in [&self.near, &self.far] {
                    let _ = set_socket_linger(end, Some(Duration::ZERO));
                }
                return false;
            }
            3 => {
                let end = if dice.one_in(2) {
                    &self.near
                } else {
                    &self.far
                };
                return end.shutdown(Shutdown::Write).is_ok();
            }
            4 => (self.there.stalls, self.back.stalls) = (Some(until), Some(until)),
            5 => {
                let half = if dice.one_in(2) {
                    &mut self.there
                } else {
                    &mut self.back
                };
                half.stalls = Some(until);
            }
            _ => {
                let slow = Some((until, 1 << dice.below(15)));
                (self.there.slow, self.back.slow) = (slow, slow);
            }
        }
        true
    }
}

/// Bytes until something happens. Some connections do not live to prove themselves.
fn budget(climate: &Climate, dice: &mut Random) -> u64 {
    let most = if dice.one_in(10) { 600 } else { climate.bytes };
    1 + dice.below(most)
}

/// A way from one rank to another.
pub struct Line {
    number: u8,
    listener: TcpListener,
    to: SocketAddr,
    relayed_connections: Vec<Passage>,
    /// Time until which callers are cut off.
    dark: Option<Instant>,
    next: Instant,
}

impl Line {
    /// Line `number` to whoever listens at this port of all addresses.
    pub fn new(number: u8, port: u16) -> Self {
        let listener = TcpListener::bind((address_of(number), 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self {
            number,
            listener,
            to: (address_of(number), port).into(),
            relayed_connections: Vec::new(),
            dark: None,
            next: Instant::now(),
        }
    }

    /// Returns where to call.
    pub fn address(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    /// Takes a call. Whether there was one.
    fn open(&mut self, climate: &Climate, dice: &mut Random, is_there: bool) -> bool {
        let Ok((near, _)) = self.listener.accept() else {
            return false;
        };
        if self.dark.is_none()
            && is_there
            && let Ok(far) = TcpStream::connect(self.to)
        {
            near.set_nonblocking(true).unwrap();
            far.set_nonblocking(true).unwrap();
            self.relayed_connections.push(Passage {
                near,
                far,
                there: Half::default(),
                back: Half::default(),
                left: budget(climate, dice),
            });
        }
        true
    }

    /// Something happens by the clock: to one connection, or to all of it.
    fn strike(&mut self, sky: &Sky, climate: &Climate, dice: &mut Random, now: Instant) {
        let every = climate.every.as_micros() as u64;
        self.next = now + Duration::from_micros(every / 2 + dice.below(every));
        if self.relayed_connections.is_empty() {
            return;
        }
        sky.ails.fetch_add(1, Ordering::Relaxed);
        if dice.one_in(6) {
            self.dark =
                Some(now + Duration::from_micros(dice.below(climate.lasts.as_micros() as u64)));
            self.relayed_connections.clear();
            return;
        }
        let at = dice.below(self.relayed_connections.len() as u64) as usize;
        if !self.relayed_connections[at].suffer(climate, dice, now) {
            self.relayed_connections.remove(at);
        }
    }

    fn turn(&mut self, sky: &Sky, climate: &Climate, dice: &mut Random) -> bool {
        let (now, calm) = (Instant::now(), sky.is_calm());
        self.dark = self.dark.filter(|until| now < *until && !calm);
        let is_there = sky.present.load(Ordering::Acquire) & 1 << self.number != 0;
        let mut moved = self.open(climate, dice, is_there);
        self.relayed_connections.retain_mut(|relayed| {
            match relayed.flow(calm, now) {
                Ok(some) => moved |= some > 0,
                Err(_) => return false,
            }
            if relayed.there.closed && relayed.back.closed {
                return false;
            }
            if relayed.left > 0 || calm {
                return true;
            }
            sky.ails.fetch_add(1, Ordering::Relaxed);
            relayed.suffer(climate, dice, now)
        });
        if now >= self.next && !calm {
            self.strike(sky, climate, dice, now);
        }
        moved
    }
}

/// Takes a line out of use or back, or one into use that was not there: what `garonne network` has
/// ranks told.
fn change(sky: &Sky, climate: &Climate, dice: &mut Random) {
    let all = (1 << climate.lines) - 1;
    let (present, drained) = (
        sky.present.load(Ordering::Acquire),
        sky.drained.load(Ordering::Acquire),
    );
    if present != all && dice.one_in(3) {
        sky.present.store(all, Ordering::Release);
    }
    let then = drained ^ 1 << dice.below(climate.lines.into());
    // The last one is not drained.
    if present & !then != 0 {
        sky.drained.store(then, Ordering::Release);
    }
    sky.turns.fetch_add(1, Ordering::AcqRel);
}

/// Serves the lines until the sky says that it is over.
pub fn serve(mut lines: Vec<Line>, sky: &Sky, climate: Climate, mut dice: Random) {
    let every = climate.every.as_micros() as u64 * 4;
    let mut next = Instant::now();
    while !sky.stop.load(Ordering::Acquire) {
        let mut moved = false;
        if sky.ails.load(Ordering::Relaxed) >= climate.ails {
            sky.calm.store(true, Ordering::Release);
        }
        for line in &mut lines {
            moved |= line.turn(sky, &climate, &mut dice);
        }
        if climate.lines > 1 && Instant::now() >= next && !sky.is_calm() {
            change(sky, &climate, &mut dice);
            next = Instant::now() + Duration::from_micros(every / 2 + dice.below(every));
        }
        if !moved {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}
