//! Where the launcher waits for the hosts that are to join: a port, the key that leads to it, and
//! the lines of those who have come.
//!
//! Used by `garonne run` before the job is decided, since where ranks run depends on what the hosts
//! offer. One thread, one epoll. Bounded: strangers as at every port, and lines of those who have
//! the key by the hosts asked for and [`JOIN_SPARE`]. A host that leaves while it waits gives its
//! place back.

use garonne_job::join_key::JoinKey;
use garonne_job::join_key::KeyAddresses;
use garonne_job::join_messages::HostOffer;
use garonne_job::join_messages::ToJoiner;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use garonne_tcp::agent_channel::{AgentChannel, PendingChannels};
use rustix::event::epoll;

use super::late_join::hosts;
use super::{NO_NODE, local_identity};
use crate::agent::listen_at;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{CALL_WAIT, JOIN_ADDRESSES_MAX, JOIN_SPARE};
use garonne_links::addresses;
use garonne_links::sys::{self, SignalFd};

/// The hosts that the launcher waits for, and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedHosts {
    /// How many hosts are to come.
    pub hosts: u32,
    /// Time that they have.
    pub patience: Duration,
    /// The port to listen at; 0: any.
    pub port: u16,
    /// Addresses at which hosts are to connect; none: those of this host.
    pub places: Vec<KeyAddresses>,
}

/// The port, before anybody has come.
#[derive(Debug)]
pub struct JoinListener {
    port: JoinPort,
    /// Watched before anybody has seen the key: who sees it may end this at once.
    signals: SignalFd,
}

#[derive(Debug)]
struct JoinPort {
    key: JoinKey,
    child_listener: PendingChannels,
    wanted: usize,
    patience: Duration,
}

/// Way in which the waiting ended.
#[derive(Debug)]
pub enum JoinResult {
    /// All are here.
    All(Box<JoinedHosts>),
    /// A person, or the system, has ended it by this signal.
    Signal(i32),
}

/// The hosts that have joined, each with the line that it made, and the port.
#[derive(Debug)]
pub struct JoinedHosts {
    pub(crate) guests: Vec<(HostOffer, AgentChannel)>,
    /// The port, with those inside who have not proved yet that they have the key: whoever takes it
    /// over is to watch them, too.
    pub(crate) child_listener: PendingChannels,
    /// Lines of those who have it and came too late. They have been told, and may not have read it.
    pub(crate) told: Vec<AgentChannel>,
}

impl JoinedHosts {
    /// Returns the offers of the hosts, in the order in which they came.
    pub fn offers(&self) -> Vec<HostOffer> {
        self.guests.iter().map(|(offer, _)| offer.clone()).collect()
    }
}

/// A host that has proved the key.
struct JoiningHost {
    line: AgentChannel,
    since: Instant,
    /// Offer of the host, once it has sent it.
    offer: Option<HostOffer>,
    /// The host was refused, and is to close the connection.
    refused: bool,
}

const SIGNALS: u64 = 0;
const PORCH: u64 = 1;
const STRANGER: u64 = 2 << 32;
const GUEST: u64 = 3 << 32;

impl JoinListener {
    /// Opens the port and makes its key. Signals that end the waiting are kept for it from now on.
    ///
    /// # Errors
    /// The port is taken, or the system lacks what it needs.
    pub fn open(invited: &ExpectedHosts) -> Result<Self> {
        let (listener, port) = listen_at(invited.port)?;
        let places = match invited.places.is_empty() {
            false => invited.places.clone(),
            true => own_places(),
        };
        let key = JoinKey::new(places, port)?;
        let child_listener = PendingChannels::new(local_identity(key.secret(), 0), listener);
        let signals = SignalFd::watch()
            .map_err(|error| Error::system(codes::G0209, "cannot watch signals", error))?;
        let (wanted, patience) = (invited.hosts as usize, invited.patience);
        let port = JoinPort {
            key,
            child_listener,
            wanted,
            patience,
        };
        Ok(Self { port, signals })
    }

    /// The key that leads here.
    pub fn key(&self) -> &JoinKey {
        &self.port.key
    }

    /// Waits until all are here.
    ///
    /// # Errors
    /// They did not come in time, or the system lacks what it needs.
    pub fn wait_for_hosts(self) -> Result<JoinResult> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|error| Error::system(codes::G0209, "cannot make an epoll", error))?;
        let waited = JoinWait {
            until: Instant::now() + self.port.patience,
            port: self.port,
            guests: Vec::new(),
            epoll,
        }
        .wait(&self.signals);
        // Whoever starts processes later does so with the mask that we began with.
        self.signals.release();
        waited
    }
}

/// This host's addresses, its own for itself only if there is no other.
fn own_places() -> Vec<KeyAddresses> {
    let all = addresses::own();
    let (inner, outer): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|address| address.is_loopback());
    let shown = if outer.is_empty() { inner } else { outer };
    shown
        .into_iter()
        .take(JOIN_ADDRESSES_MAX)
        .map(KeyAddresses::Address)
        .collect()
}

struct JoinWait {
    port: JoinPort,
    guests: Vec<Option<JoiningHost>>,
    epoll: OwnedFd,
    until: Instant,
}

impl JoinWait {
    fn wait(mut self, signals: &SignalFd) -> Result<JoinResult> {
        let watch = |fd: std::os::fd::BorrowedFd<'_>, what: u64| {
            epoll::add(
                &self.epoll,
                fd,
                epoll::EventData::new_u64(what),
                epoll::EventFlags::IN,
            )
            .map_err(|error| Error::system(codes::G0209, "cannot watch a descriptor", error))
        };
        watch(self.port.child_listener.fd(), PORCH)?;
        watch(signals.as_fd(), SIGNALS)?;
        let mut events = Vec::with_capacity(64);
        loop {
            if self.came() == self.port.wanted {
                return Ok(JoinResult::All(Box::new(self.company())));
            }
            let now = Instant::now();
            if now >= self.until {
                return Err(self.give_up());
            }
            let due = self
                .port
                .child_listener
                .keep_time()
                .into_iter()
                .chain([self.until]);
            let due = due
                .chain(self.guests.iter().flatten().filter_map(JoiningHost::due))
                .min();
            let left = due.unwrap_or(self.until).saturating_duration_since(now);
            let limit = sys::timespec(left);
            events.clear();
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&limit),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    return Err(Error::system(codes::G0209, "cannot wait for hosts", error));
                }
            }
            for event in &events {
                let what = event.data.u64();
                let index = what as u32 as usize;
                match what {
                    SIGNALS => {
                        let ends = |signal: &i32| {
                            [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT]
                                .contains(signal)
                        };
                        let came: Vec<i32> = std::iter::from_fn(|| signals.next())
                            .map(|signal| signal.number)
                            .collect();
                        if came.contains(&libc::SIGTSTP) {
                            sys::stop_self();
                        }
                        if let Some(signal) = came.into_iter().find(ends) {
                            self.refuse_all(
                                "whoever started the job has ended it while it waited for hosts",
                            );
                            return Ok(JoinResult::Signal(signal));
                        }
                    }
                    PORCH => self.open(),
                    _ if what >= GUEST => self.hear(index),
                    _ => self.look(index),
                }
            }
            self.check_timeouts();
        }
    }

    fn came(&self) -> usize {
        let guests = self.guests.iter().flatten();
        guests
            .filter(|guest| guest.offer.is_some() && !guest.refused)
            .count()
    }

    fn open(&mut self) {
        let epoll = &self.epoll;
        self.port.child_listener.open(&mut |place, socket| {
            let data = epoll::EventData::new_u64(STRANGER | place as u64);
            epoll::add(epoll, socket, data, epoll::EventFlags::IN).is_ok()
        });
    }

    /// A stranger goes on proving that it has the key.
    fn look(&mut self, place: usize) {
        let Some((_, line)) = self.port.child_listener.look(place, |node| node == NO_NODE) else {
            return;
        };
        let index = self.accept_host();
        let data = epoll::EventData::new_u64(GUEST | index as u64);
        if epoll::modify(&self.epoll, line.fd(), data, epoll::EventFlags::IN).is_err() {
            return;
        }
        let guest = Some(JoiningHost {
            line,
            since: Instant::now(),
            offer: None,
            refused: false,
        });
        match self.guests.get_mut(index) {
            Some(free) => *free = guest,
            None => self.guests.push(guest),
        }
        self.hear(index);
    }

    /// Returns the slot of the next host. If all are taken, the host that has waited longest
    /// without a place in the job loses its slot: it calls again.
    fn accept_host(&mut self) -> usize {
        if let Some(free) = self.guests.iter().position(Option::is_none) {
            return free;
        }
        let standing = |index: &usize| {
            let guest = self.guests[*index].as_ref();
            guest
                .filter(|guest| guest.due().is_some())
                .map(|guest| guest.since)
        };
        let without = (0..self.guests.len()).filter(|index| standing(index).is_some());
        match without.min_by_key(standing) {
            Some(oldest) if self.guests.len() >= self.port.wanted + JOIN_SPARE => {
                self.guests[oldest] = None;
                oldest
            }
            _ => self.guests.len(),
        }
    }

    /// A guest says something, or leaves.
    fn hear(&mut self, index: usize) {
        loop {
            let is_full = self.came() >= self.port.wanted;
            let Some(guest) = self.guests.get_mut(index).and_then(Option::as_mut) else {
                return;
            };
            let message = guest.line.push().and_then(|()| guest.line.receive());
            let offer = match message {
                Ok(None) => return,
                Ok(Some(_)) if guest.refused => continue,
                Ok(Some(message)) if guest.offer.is_none() => HostOffer::decode(&message),
                // It has said all that it had to say.
                _ => {
                    self.guests[index] = None;
                    return self.tell_all();
                }
            };
            match offer {
                Ok(_) if is_full => guest.come_too_late(self.port.wanted),
                Ok(offer) => {
                    guest.offer = Some(offer);
                    self.tell_all();
                }
                Err(_) => guest.refuse(
                    codes::G0227,
                    "the job does not understand what this host says",
                ),
            }
        }
    }

    /// Tells those who wait how many are here.
    fn tell_all(&mut self) {
        let (came, wanted) = (self.came() as u32, self.port.wanted as u32);
        let message = ToJoiner::Wait { came, wanted }.encode();
        let guests = self.guests.iter_mut().flatten();
        for guest in guests.filter(|guest| guest.offer.is_some() && !guest.refused) {
            // Its end is seen where it is heard.
            let _ = guest.line.send(&message);
        }
    }

    fn check_timeouts(&mut self) {
        let now = Instant::now();
        for guest in &mut self.guests {
            guest.take_if(|guest| guest.due().is_some_and(|due| due <= now));
        }
    }

    fn refuse_all(&mut self, text: &str) {
        for guest in self.guests.iter_mut().flatten() {
            guest.refuse(codes::G0228, text);
        }
    }

    fn give_up(mut self) -> Error {
        let (came, wanted) = (self.came(), self.port.wanted);
        let after = self.port.patience.as_secs_f64();
        let names: Vec<&str> = self
            .guests
            .iter()
            .flatten()
            .filter_map(|guest| Some(guest.offer.as_ref()?.name.as_str()))
            .collect();
        let who = match names.is_empty() {
            true => String::new(),
            false => format!(" ({})", names.join(", ")),
        };
        let text = format!(
            "{came} of the {} that were to join{who} came within {after} s",
            hosts(wanted)
        );
        self.refuse_all(&text);
        Error::Timeout {
            code: codes::G0228,
            text: text + "; nothing was started",
        }
    }

    /// All are here. Who has not said yet what it offers hears that now, since nobody listens to it
    /// any more.
    fn company(self) -> JoinedHosts {
        let (mut guests, mut told) = (Vec::new(), Vec::new());
        for mut guest in self.guests.into_iter().flatten() {
            match guest.offer.take() {
                Some(offer) => guests.push((offer, guest.line)),
                None => {
                    if !guest.refused {
                        guest.come_too_late(self.port.wanted);
                    }
                    told.push(guest.line);
                }
            }
        }
        JoinedHosts {
            guests,
            child_listener: self.port.child_listener,
            told,
        }
    }
}

impl JoiningHost {
    /// When its patience with us, or ours with it, is over.
    fn due(&self) -> Option<Instant> {
        (self.offer.is_none() || self.refused).then(|| self.since + CALL_WAIT)
    }

    /// Tells a host that all wanted hosts are here.
    fn come_too_late(&mut self, wanted: usize) {
        let text = format!("all that the job waits for ({}) have come", hosts(wanted));
        self.refuse(codes::G0227, &text);
    }

    fn refuse(&mut self, code: &str, text: &str) {
        let message = ToJoiner::Refused {
            code: code.to_owned(),
            text: text.to_owned(),
        };
        let _ = self.line.send(&message.encode());
        self.refused = true;
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::os::fd::BorrowedFd;

    use garonne_tcp::agent_channel::{ChannelConnect, ConnectOutcome};
    use rustix::event::{PollFd, PollFlags};

    use super::super::late_join::LateJoinListener;
    use super::*;

    fn room(hosts: u32) -> JoinListener {
        JoinListener::open(&ExpectedHosts {
            hosts,
            patience: CALL_WAIT,
            port: 0,
            places: Vec::new(),
        })
        .unwrap()
    }

    fn ready(fd: BorrowedFd<'_>, what: PollFlags) {
        let mut fds = [PollFd::from_borrowed_fd(fd, what)];
        let ready = rustix::event::poll(&mut fds, Some(&sys::timespec(CALL_WAIT))).unwrap();
        assert_eq!(ready, 1, "nothing came");
    }

    fn called(key: &JoinKey) -> ChannelConnect {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, key.port));
        let call = ChannelConnect::begin(&local_identity(key.secret(), NO_NODE), at, 0).unwrap();
        ready(call.fd().unwrap(), PollFlags::OUT);
        call
    }

    /// The caller looks until it is let in.
    fn let_in(mut call: ChannelConnect) -> AgentChannel {
        loop {
            match call.look() {
                ConnectOutcome::Open(line) => return *line,
                ConnectOutcome::Waits => ready(call.fd().unwrap(), PollFlags::IN),
                failed => panic!("{failed:?}"),
            }
        }
    }

    fn offer(line: &mut AgentChannel) {
        let offer = HostOffer {
            name: "n".into(),
            slots: 1,
        };
        line.send(&offer.encode()).unwrap();
    }

    /// Receives the job's next message. `None`: the connection is closed.
    fn said(line: &mut AgentChannel) -> Option<ToJoiner> {
        loop {
            match line.receive() {
                Ok(Some(message)) => return Some(ToJoiner::decode(&message).unwrap()),
                Ok(None) => ready(line.fd(), PollFlags::IN),
                Err(_) => return None,
            }
        }
    }

    fn is_told_that_all_have_come(line: &mut AgentChannel) {
        match said(line) {
            Some(ToJoiner::Refused { code, text }) => {
                assert!(
                    code == codes::G0227 && text.contains("have come"),
                    "{code} {text}"
                )
            }
            other => panic!("{other:?}"),
        }
    }

    fn all(room: JoinListener) -> JoinedHosts {
        match room.wait_for_hosts().unwrap() {
            JoinResult::All(company) => *company,
            JoinResult::Signal(signal) => panic!("{signal}"),
        }
    }

    #[test]
    fn who_is_half_way_in_when_the_last_host_comes_is_told_that_all_have_come() {
        let room = room(1);
        let key = room.key().clone();
        // It has called, and nobody answers before the room waits.
        let mut halfway = called(&key);
        assert!(matches!(halfway.look(), ConnectOutcome::Waits));
        let (tell, is_over) = std::sync::mpsc::channel();
        let callers = std::thread::spawn(move || {
            // It is answered, and does not look before all is over.
            ready(halfway.fd().unwrap(), PollFlags::IN);
            let mut inside = let_in(called(&key));
            let mut last = let_in(called(&key));
            offer(&mut last);
            assert!(matches!(
                said(&mut last),
                Some(ToJoiner::Wait { came: 1, wanted: 1 })
            ));
            is_over.recv().unwrap();
            offer(&mut inside);
            is_told_that_all_have_come(&mut inside);
            let mut halfway = let_in(halfway);
            offer(&mut halfway);
            is_told_that_all_have_come(&mut halfway);
        });
        let company = all(room);
        assert_eq!(company.offers().len(), 1);
        tell.send(()).unwrap();
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let watch = |fd: BorrowedFd<'_>, what| {
            let data = epoll::EventData::new_u64(what);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN).is_ok()
        };
        let mut gate = LateJoinListener::new(
            (company.child_listener, company.told),
            1,
            &mut |place, socket| watch(socket, STRANGER | place as u64),
        );
        assert!(watch(gate.fd(), PORCH));
        let mut events = Vec::with_capacity(8);
        while !callers.is_finished() {
            events.clear();
            let limit = sys::timespec(Duration::from_millis(10));
            let _ = epoll::wait(
                &epoll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&limit),
            );
            for event in &events {
                match event.data.u64() {
                    PORCH => gate.open(&mut |place, socket| watch(socket, STRANGER | place as u64)),
                    place => gate.read(place as u32 as usize, &mut |socket| {
                        epoll::delete(&epoll, socket).unwrap();
                    }),
                }
            }
        }
        callers.join().unwrap();
    }

    #[test]
    fn those_who_have_the_key_and_say_nothing_keep_nobody_out() {
        let room = room(1);
        let key = room.key().clone();
        let callers = std::thread::spawn(move || {
            let mut silent: Vec<AgentChannel> =
                (0..=JOIN_SPARE).map(|_| let_in(called(&key))).collect();
            let mut last = let_in(called(&key));
            // In the place of the first.
            assert!(said(&mut silent[0]).is_none());
            offer(&mut last);
            assert!(matches!(said(&mut last), Some(ToJoiner::Wait { .. })));
            silent[1..].iter_mut().for_each(is_told_that_all_have_come);
        });
        let company = all(room);
        callers.join().unwrap();
        assert_eq!((company.guests.len(), company.told.len()), (1, JOIN_SPARE));
    }
}
