//! An endpoint with an event queue: it listens, connects, and tells what happens on all of its
//! connections in one queue, which also has a descriptor to poll.

use crate::attributes::Attributes;
use crate::connection_setup::{Call, Port, Request};
use crate::error::misuse;
use crate::event::{ConnectionId, Event};
use crate::job_peer::JobRank;
use crate::limits::{CONNECT_DATA_MAX, CONNECT_LIMIT, SPINS};
use crate::pair::Key;
use crate::poll_set::PollSet;
use crate::region::RegionKey;
use crate::remote_memory::{RegionId, RegionRights};
use crate::switchboard::Switchboard;
use crate::uri;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_sync::shm::Segment;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An endpoint with an event queue, for any number of connections.
///
/// Order of calls: [`EventEndpoint::new`]; [`listen`](EventEndpoint::listen) and
/// [`connect`](EventEndpoint::connect); [`next_event`](EventEndpoint::next_event) again and again,
/// from any thread; [`close`](EventEndpoint::close). Messages move while some thread is inside a
/// call of the endpoint. Dropping it closes all connections without waiting for what was sent,
/// which may be lost then.
#[derive(Debug)]
pub struct EventEndpoint {
    polled: Arc<PollSet>,
    state: Mutex<Switchboard>,
}

impl EventEndpoint {
    /// Makes an endpoint without connections.
    ///
    /// # Errors
    /// `System`: the system lacks descriptors.
    pub fn new() -> Result<Self> {
        let polled = PollSet::new();
        let failed = |error| Error::system(codes::G0304, "EventEndpoint::new", error);
        let polled = Arc::new(polled.map_err(failed)?);
        Ok(Self {
            state: Mutex::new(Switchboard::new(polled.clone())),
            polled,
        })
    }

    /// Joins the job of `garonne run` as the rank that this process is, with an endpoint that may
    /// listen and connect, too.
    ///
    /// # Errors
    /// As for [`Endpoint::join`](crate::Endpoint::join).
    pub fn join() -> Result<Self> {
        let endpoint = Self::new()?;
        let job = JobRank::enter()?;
        endpoint.lock().join(job);
        Ok(endpoint)
    }

    /// The rank of this process in the job that the endpoint has joined, and the number of ranks.
    ///
    /// # Errors
    /// `Misuse`: the endpoint has joined no job.
    pub fn rank(&self) -> Result<(u32, u32)> {
        let state = self.lock();
        let job = state.job()?;
        Ok((job.me(), job.size()))
    }

    /// The connection to a rank of the job. It stands at once; [`Event::Connected`] comes here, and
    /// there with the first message. Messages go through shared memory on one host. Once the
    /// connection was closed it stays so.
    ///
    /// # Errors
    /// `Misuse`: no job, no such rank, or the connection was closed.
    pub fn connect_rank(&self, rank: u32) -> Result<ConnectionId> {
        let mut state = self.lock();
        let connection = state.connect_rank(rank)?;
        state.touch();
        Ok(connection)
    }

    /// Listens at `uri`, `garonne://HOST:PORT`, for processes with the same key. Port 0 lets the
    /// system choose one. Returns the URI with the port. Each caller is an
    /// [`Event::ConnectRequest`].
    ///
    /// # Errors
    /// `Misuse`: no such URI. `System`: the address cannot be listened at.
    pub fn listen(&self, uri: &str, key: &Key) -> Result<String> {
        let address = uri::resolve(uri)?;
        let mut last = misuse(format!("listen {uri}: no address"));
        for address in address {
            match Port::open(address, key) {
                Ok(port) => {
                    let uri = uri::of(port.address());
                    self.lock().add_port(port)?;
                    return Ok(uri);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Begins to connect to the endpoint that listens at `uri` with the same key. `data`, of at
    /// most [`CONNECT_DATA_MAX`] bytes, goes to its program. Ends with [`Event::Connected`] or
    /// [`Event::ConnectFailed`]. A host's name is resolved here, which may take its time.
    ///
    /// # Errors
    /// `Misuse`: no such URI, too many bytes, or attributes that are not there yet. `System`: the
    /// host's name has no address.
    pub fn connect(
        &self,
        uri: &str,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
    ) -> Result<ConnectionId> {
        self.connect_within(uri, key, attributes, data, CONNECT_LIMIT)
    }

    /// Connects as [`EventEndpoint::connect`] does, and gives up after this time.
    ///
    /// # Errors
    /// As there.
    pub fn connect_within(
        &self,
        uri: &str,
        key: &Key,
        attributes: Attributes,
        data: &[u8],
        limit: Duration,
    ) -> Result<ConnectionId> {
        attributes.check()?;
        check_data(data)?;
        let addresses = uri::resolve(uri)?;
        let wish = (attributes, data.to_vec());
        let until = Instant::now() + limit;
        let call = Call::new((uri, addresses), key, wish, until);
        Ok(self.lock().add_call(call, attributes))
    }

    /// Accepts the caller of an [`Event::ConnectRequest`]. `data` goes to its program. The
    /// connection stands with [`Event::Connected`].
    ///
    /// # Errors
    /// `Misuse`: nobody of this name waits, or too many bytes. `Peer`: the caller is gone.
    pub fn accept(
        &self,
        connection: ConnectionId,
        attributes: Attributes,
        data: &[u8],
    ) -> Result<()> {
        attributes.check()?;
        check_data(data)?;
        let mut state = self.lock();
        let request = take_request(&mut state, connection)?;
        if !matches!(
            request.hello.delivery,
            crate::Delivery::ReliableOrdered | crate::Delivery::Reliable
        ) {
            state.add_rejected(request.reject());
            return Err(misuse(
                "the caller asks for attributes that are not there yet",
            ));
        }
        let accepting = request.accept(attributes, data.to_vec())?;
        state.add_accepted(connection, accepting, attributes);
        Ok(())
    }

    /// Sends the caller of an [`Event::ConnectRequest`] away.
    ///
    /// # Errors
    /// `Misuse`: nobody of this name waits.
    pub fn reject(&self, connection: ConnectionId) -> Result<()> {
        let mut state = self.lock();
        let request = take_request(&mut state, connection)?;
        state.add_rejected(request.reject());
        Ok(())
    }

    /// Starts to send a message. Its end is an [`Event::Sent`] with `context`, which gives the
    /// bytes back.
    ///
    /// # Errors
    /// `Misuse`: no such connection or tag, or the message is longer than the peer takes. `Peer`:
    /// the peer is gone.
    pub fn send(
        &self,
        connection: ConnectionId,
        tag: u32,
        bytes: impl Into<Vec<u8>>,
        context: u64,
    ) -> Result<()> {
        let mut state = self.lock();
        let link = state.link(connection)?;
        link.send(tag, bytes.into(), context)?;
        state.touch();
        Ok(())
    }

    /// Closes a connection: what was sent still leaves. Ends with [`Event::Closed`]. Messages that
    /// come meanwhile are dropped. One that is over already stays as it is until its end was told.
    ///
    /// # Errors
    /// `Misuse`: no such connection.
    pub fn disconnect(&self, connection: ConnectionId) -> Result<()> {
        let mut state = self.lock();
        if !state.has_ended(connection) {
            state.link(connection)?.close();
            state.touch();
        }
        Ok(())
    }

    /// Returns the next event, and waits for it at most this long; `None`: until there is one.
    /// `Ok(None)`: none came in time.
    ///
    /// # Errors
    /// `System`: the system refuses to wait.
    pub fn next_event(&self, limit: Option<Duration>) -> Result<Option<Event>> {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut looks = 0;
        loop {
            let mut state = self.lock();
            // Those that wait come first: a look is worth its time when there is none.
            if !state.has_event() {
                state.step();
            }
            if let Some(event) = state.take_event() {
                state.touch();
                return Ok(Some(event));
            }
            let now = Instant::now();
            if until.is_some_and(|until| now >= until) {
                state.touch();
                return Ok(None);
            }
            if looks < SPINS {
                looks += 1;
                drop(state);
                std::hint::spin_loop();
                continue;
            }
            let own = state.before_sleep();
            state.step();
            if state.has_event() {
                continue;
            }
            drop(state);
            let rest = until.map(|until| until.saturating_duration_since(now));
            let sleep = own.into_iter().chain(rest).min();
            let slept = self.polled.sleep(sleep);
            slept.map_err(|error| Error::system(codes::G0304, "next_event", error))?;
        }
    }

    /// A descriptor that is readable when [`EventEndpoint::next_event`] may have something, for a
    /// program's own poll, select or epoll. Call `next_event` with no time until it gives nothing,
    /// then poll. The descriptor belongs to the endpoint: it is neither read nor closed.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.lock().watch_from_outside();
        self.polled.as_fd()
    }

    /// Closes all connections, and waits until what was sent has arrived, but no longer than this.
    /// Events that were not taken are lost.
    ///
    /// # Errors
    /// `Timeout`: something had not arrived by then.
    pub fn close(self, limit: Duration) -> Result<()> {
        let until = Instant::now() + limit;
        self.lock().close_all();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if !self.lock().has_connections() {
                return Ok(());
            }
            if left.is_zero() {
                return Err(Error::Timeout {
                    code: codes::G0403,
                    text: "close: a peer did not take what was sent in time".into(),
                });
            }
            self.next_event(Some(left))?;
        }
    }

    /// Makes a region of zeros that peers may access once they have a key
    /// ([`EventEndpoint::expose`]).
    ///
    /// # Errors
    /// `Misuse`: a region without bytes. `Resource`: the system has no room for it.
    pub fn create_region(&self, len: usize) -> Result<RegionId> {
        if len == 0 {
            return Err(misuse("a region has at least one byte"));
        }
        let memory = Segment::anonymous(len);
        let failed =
            |_| Error::resource(codes::G0304, format!("no memory for a region of {len} B"));
        Ok(self.lock().add_region(memory.map_err(failed)?))
    }

    /// Ends a region, of which no peer has a key any more.
    ///
    /// # Errors
    /// `Misuse`: no such region, or a peer has a key of it.
    pub fn remove_region(&self, region: RegionId) -> Result<()> {
        self.lock().remove_region(region)
    }

    /// Copies bytes into a region of this endpoint. A peer that reads them meanwhile may get any
    /// mixture.
    ///
    /// # Errors
    /// `Misuse`: no such region, or the range is not in it.
    pub fn write_region(&self, region: RegionId, offset: usize, bytes: &[u8]) -> Result<()> {
        let state = self.lock();
        let memory = state.region(region)?;
        within(memory, offset, bytes.len())?;
        memory.write(offset, bytes);
        Ok(())
    }

    /// Copies bytes out of a region of this endpoint. Of those that a peer writes meanwhile any
    /// mixture may come out.
    ///
    /// # Errors
    /// `Misuse`: no such region, or the range is not in it.
    pub fn read_region(&self, region: RegionId, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let state = self.lock();
        let memory = state.region(region)?;
        within(memory, offset, bytes.len())?;
        memory.read(offset, bytes);
        Ok(())
    }

    /// Address of a region's memory, for C programs. Valid until the region or the endpoint ends;
    /// peers may write it at any time.
    ///
    /// # Errors
    /// `Misuse`: no such region.
    pub fn region_address(&self, region: RegionId) -> Result<*mut u8> {
        let state = self.lock();
        let memory = state.region(region)?;
        Ok(memory.ptr(0, memory.len()))
    }

    /// Lets the peer of a connection access a region, and returns the key that it needs. Send it in
    /// a message.
    ///
    /// # Errors
    /// `Misuse`: no such connection or region, or the peer has a key of it. `Resource`.
    pub fn expose(
        &self,
        connection: ConnectionId,
        region: RegionId,
        rights: RegionRights,
    ) -> Result<RegionKey> {
        let mut state = self.lock();
        let memory = state.region(region)?.clone();
        let (remote, host, _) = state.link(connection)?.memory()?;
        remote.expose(host, (region, &memory), rights)
    }

    /// Closes a region to the peer of a connection. Ends with [`Event::Withdrawn`]; the end of the
    /// connection closes it, too.
    ///
    /// # Errors
    /// `Misuse`: no such connection, or its peer has no key of the region.
    pub fn withdraw(&self, connection: ConnectionId, region: RegionId) -> Result<()> {
        let mut state = self.lock();
        let (remote, host, _) = state.link(connection)?.memory()?;
        remote.withdraw(host, region)?;
        state.touch();
        Ok(())
    }

    /// Starts to write bytes to a region of the peer, from `offset` on. Ends with
    /// [`Event::AccessDone`] when they are there. With `notify` the peer then gets
    /// [`Event::Notified`] with that number.
    ///
    /// # Errors
    /// `Misuse`: no such connection, or the key does not allow it. `Peer`: the peer is gone.
    pub fn put(
        &self,
        connection: ConnectionId,
        (key, offset): (&RegionKey, u64),
        bytes: impl Into<Vec<u8>>,
        context: u64,
        notify: Option<u64>,
    ) -> Result<()> {
        let mut state = self.lock();
        let (remote, host, peer) = state.link(connection)?.memory()?;
        remote.put((host, peer), (key, offset), bytes.into(), (context, notify))?;
        state.touch();
        Ok(())
    }

    /// Starts to read `len` bytes from a region of the peer, from `offset` on. Ends with
    /// [`Event::AccessDone`], which has them. `notify` is as for [`EventEndpoint::put`].
    ///
    /// # Errors
    /// As for [`EventEndpoint::put`]. `Resource`: no memory for so many bytes.
    pub fn get(
        &self,
        connection: ConnectionId,
        (key, offset): (&RegionKey, u64),
        len: usize,
        context: u64,
        notify: Option<u64>,
    ) -> Result<()> {
        let mut state = self.lock();
        let (remote, host, peer) = state.link(connection)?.memory()?;
        remote.get((host, peer), (key, offset, len), (context, notify))?;
        state.touch();
        Ok(())
    }

    /// Starts to add to the 64-bit word at `offset` of a region of the peer, a multiple of 8, in
    /// one atomic step. Ends with [`Event::AccessDone`], whose 8 bytes are the value before.
    ///
    /// # Errors
    /// As for [`EventEndpoint::put`].
    pub fn fetch_add(
        &self,
        connection: ConnectionId,
        (key, offset): (&RegionKey, u64),
        value: u64,
        context: u64,
        notify: Option<u64>,
    ) -> Result<()> {
        let mut state = self.lock();
        let (remote, host, peer) = state.link(connection)?.memory()?;
        remote.fetch_add((host, peer), (key, offset), value, (context, notify))?;
        state.touch();
        Ok(())
    }

    /// Starts a fence: [`Event::AccessDone`] with `context` comes when all accesses that were
    /// started before on the connection are over.
    ///
    /// # Errors
    /// `Misuse`: no such connection.
    pub fn fence(&self, connection: ConnectionId, context: u64) -> Result<()> {
        let mut state = self.lock();
        state.link(connection)?.memory()?.0.fence(context);
        state.touch();
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Switchboard> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses a range that is not in a region.
fn within(memory: &Segment, offset: usize, len: usize) -> Result<()> {
    match offset
        .checked_add(len)
        .is_some_and(|end| end <= memory.len())
    {
        true => Ok(()),
        false => Err(misuse(format!(
            "{len} B at {offset} are not within a region of {} B",
            memory.len()
        ))),
    }
}

fn check_data(data: &[u8]) -> Result<()> {
    match data.len() <= CONNECT_DATA_MAX {
        true => Ok(()),
        false => Err(misuse(format!(
            "a connection is asked for with at most {CONNECT_DATA_MAX} B, not {} B",
            data.len()
        ))),
    }
}

fn take_request(state: &mut Switchboard, connection: ConnectionId) -> Result<Request> {
    let request = state.take_request(connection).ok_or_else(|| {
        misuse(format!(
            "nobody of the name {} waits for an answer",
            connection.number()
        ))
    });
    let mut request = request?;
    match request.is_there() {
        true => Ok(request),
        false => Err(Error::peer(codes::G0404, "accept: the caller is gone")),
    }
}
