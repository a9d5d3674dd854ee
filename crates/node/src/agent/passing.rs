//! How the agent passes output on: what it reads from which rank, where that goes, and when it stops reading.
//!
//! Two sinks, one per descriptor. Where both lead to one place (a terminal, `2>&1`), or the user wants one stream, all that ranks write
//! goes through the first, so that lines of their two streams never share a line either.

use std::time::Instant;

use rustix::event::epoll;

use super::far::side;
use super::output::{Flow, Kind, Sink, Stream};
use super::source::Source;
use super::{Agent, Token};
use crate::job::Streams;
use crate::limits::{FAR_ROOM_STEP, OUTPUT_PENDING_BYTES_MAX};
use crate::orders::{Order, Report};

/// The agent's two descriptors and what goes where.
#[derive(Debug)]
pub(super) struct Sinks {
    all: [Sink; 2],
    /// The place of ranks' errors.
    errors: usize,
    /// The place of the agent's own words.
    own: usize,
}

impl Sinks {
    pub fn new(streams: Streams) -> Self {
        let one_place = same_file();
        Self {
            all: [Sink::new(Kind::Out), Sink::new(Kind::Err)],
            errors: usize::from(!one_place && streams == Streams::Apart),
            own: usize::from(!one_place),
        }
    }

    /// Which sink a rank's stream goes to.
    fn place(&self, kind: Kind) -> usize {
        match kind {
            Kind::Out => 0,
            Kind::Err => self.errors,
        }
    }

    /// The sink that a rank's stream goes to.
    pub fn of(&mut self, kind: Kind) -> &mut Sink {
        &mut self.all[self.place(kind)]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Sink> {
        self.all.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sink> {
        self.all.iter_mut()
    }

    /// Why standard output cannot be written any more.
    pub fn fault(&self) -> Option<rustix::io::Errno> {
        self.all[0].fault()
    }
}

/// Whether both of our descriptors lead to one file.
fn same_file() -> bool {
    let of = |fd| rustix::fs::fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let (out, err) = (of(rustix::stdio::stdout()), of(rustix::stdio::stderr()));
    out.is_some() && out == err
}

impl Agent<'_> {
    /// A line of the agent itself.
    pub(super) fn say(&mut self, line: &str) {
        if self.up.is_some() {
            return self.report(&Report::Say(line.to_owned()));
        }
        let own = self.sinks.own;
        self.sinks.all[own].say(line);
        self.flush_sink(own);
    }

    /// Reads what a rank has written, as far as there is any.
    pub(super) fn pump(&mut self, kind: Kind, rank: u32) {
        if self.up.is_some() {
            return self.forward(kind, rank, false);
        }
        let mut buffer = [0; 16 * 1024];
        let was_full = self.slots[rank as usize].stream(kind).is_full();
        let mut taken = 0;
        for _ in 0..8 {
            let (stream, sink) = (self.slots[rank as usize].stream_mut(kind), self.sinks.of(kind));
            let Some(source) = &mut stream.source else { break };
            match source.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    stream.feed(&buffer[..n], sink);
                    taken += n;
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                _ => {
                    if let Some(pipe) = source.pipe() {
                        let _ = epoll::delete(&self.epoll, pipe);
                    }
                    stream.end(sink);
                }
            }
            // One that was full before is read only because its rank has closed the pipe.
            if (stream.is_full() && !was_full) || sink.is_turn_of_others() {
                break;
            }
        }
        self.give_room(kind, rank, taken);
        let stream = self.slots[rank as usize].stream(kind);
        let lying = stream.source.as_ref().map_or(0, Source::lying);
        if lying > 0 && stream.reading {
            self.revived.push((kind, rank));
        }
        let place = self.sinks.place(kind);
        self.settle(place);
        self.listen_as_wanted(kind, rank);
        self.flush_sink(place);
    }

    /// Tells the agent of a rank elsewhere that so much of its output was taken.
    fn give_room(&mut self, kind: Kind, rank: u32, taken: usize) {
        let slot = &mut self.slots[rank as usize];
        if slot.node == self.node || taken == 0 {
            return;
        }
        let (node, owed) = (slot.node, &mut slot.room[kind as usize]);
        *owed += taken;
        if *owed >= FAR_ROOM_STEP {
            let order = Order::Room(rank, side(kind), std::mem::take(owed) as u32);
            self.order(node, &order);
        }
    }

    /// Reads streams of other hosts on again that had to wait.
    pub(super) fn pump_revived(&mut self) {
        for (kind, rank) in std::mem::take(&mut self.revived) {
            self.pump(kind, rank);
        }
    }

    /// Passes on what a stream has collected, unfinished lines too.
    pub(super) fn emit(&mut self, kind: Kind, rank: u32) {
        let sink = self.sinks.of(kind);
        self.slots[rank as usize].stream_mut(kind).emit(sink);
        self.listen_as_wanted(kind, rank);
    }

    /// Lets the streams go on that waited for a long line of another, if it has passed.
    fn settle(&mut self, place: usize) {
        let sink = &mut self.sinks.all[place];
        if !self.paused {
            sink.look_at_pass(Instant::now());
        }
        if !sink.is_turn_of_others() {
            return;
        }
        sink.waited_for = false;
        let (count, first) = (self.slots.len(), sink.next_turn as usize);
        for rank in (first..first + count).map(|rank| rank % count) {
            for kind in [Kind::Out, Kind::Err] {
                if self.sinks.place(kind) == place {
                    self.slots[rank]
                        .stream_mut(kind)
                        .resume(&mut self.sinks.all[place]);
                    self.listen_as_wanted(kind, rank as u32);
                }
            }
        }
    }

    /// Listens to a stream or not, as its state and that of the reader want it.
    fn listen_as_wanted(&mut self, kind: Kind, rank: u32) {
        let paused = self.paused;
        let stream = self.slots[rank as usize].stream_mut(kind);
        let reading = !paused && !stream.is_full();
        if reading == stream.reading {
            return;
        }
        stream.reading = reading;
        let flags = match reading {
            true => epoll::EventFlags::IN,
            false => epoll::EventFlags::empty(),
        };
        match stream
            .source
            .as_ref()
            .map(|source| (source.pipe(), source.lying()))
        {
            Some((Some(pipe), _)) => {
                let _ = epoll::modify(&self.epoll, pipe, Token::Output(kind, rank).pack(), flags);
            }
            Some((None, lying)) if reading && lying > 0 => self.revived.push((kind, rank)),
            _ => {}
        }
    }

    /// Writes what is pending on one of our descriptors.
    pub(super) fn flush(&mut self, kind: Kind) {
        self.flush_sink(kind as usize);
    }

    /// Writes pending output; stops reading from ranks while too much waits for a slow reader.
    fn flush_sink(&mut self, place: usize) {
        let sink = &mut self.sinks.all[place];
        let kind = sink.kind();
        if sink.pending_bytes() > 0 || sink.flush() == Flow::Broken {
            match sink.flush() {
                Flow::Free => drop(epoll::delete(&self.epoll, sink.fd())),
                Flow::Pending => {
                    let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
                    let token = Token::Sink(kind).pack();
                    if epoll::modify(&self.epoll, sink.fd(), token, flags).is_err() {
                        // A regular file cannot be watched, but it never has to be waited for either.
                        let _ = epoll::add(&self.epoll, sink.fd(), token, flags);
                    }
                }
                Flow::Broken => self.reader_gone(kind),
            }
        }
        let full = self
            .sinks
            .iter()
            .any(|sink| sink.pending_bytes() > OUTPUT_PENDING_BYTES_MAX);
        if full != self.paused {
            self.paused = full;
            for rank in 0..self.slots.len() as u32 {
                self.listen_as_wanted(Kind::Out, rank);
                self.listen_as_wanted(Kind::Err, rank);
            }
            // Nobody could finish a line while nothing was read.
            self.sinks.iter_mut().for_each(|sink| sink.pass_goes_on(None));
            let streams = self
                .slots
                .iter_mut()
                .flat_map(|slot| [&mut slot.out, &mut slot.err]);
            streams.for_each(Stream::wait_anew);
        }
    }

    /// Shows unfinished lines that are due, and lets those go on that have waited for one long enough.
    pub(super) fn output_due(&mut self, now: Instant) {
        for slot in &mut self.slots {
            for kind in [Kind::Out, Kind::Err] {
                let stream = slot.stream_mut(kind);
                if !self.paused && stream.due().is_some_and(|due| due <= now) {
                    stream.show_part(self.sinks.of(kind));
                }
            }
        }
        for place in 0..self.sinks.all.len() {
            self.settle(place);
            self.flush_sink(place);
        }
    }
}
