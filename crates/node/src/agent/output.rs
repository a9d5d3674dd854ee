//! The output of ranks on its way to the launcher's stdout and stderr: whole lines, tagged if asked for.
//!
//! Owned by the agent. A [`Stream`] collects one rank's bytes until a line is complete; a [`Sink`] writes to one of the
//! agent's own descriptors without ever blocking, and keeps what a slow reader leaves, up to a limit that the agent
//! watches.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::job::{Colour, Tags};
use crate::limits::{LINE_BYTES_MAX, PARTIAL_LINE_WAIT};

/// Bytes that a pipe takes without blocking once it polls writable.
const CHUNK_BYTES: usize = 4096;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Out,
    Err,
}

/// What a sink can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// Everything is written.
    Free,
    /// Bytes wait for the reader.
    Pending,
    /// The reader is gone.
    Broken,
}

/// One of the agent's own output descriptors.
#[derive(Debug)]
pub(super) struct Sink {
    kind: Kind,
    pending: Vec<u8>,
    broken: bool,
}

impl Sink {
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            pending: Vec::new(),
            broken: false,
        }
    }

    pub fn fd(&self) -> BorrowedFd<'static> {
        match self.kind {
            Kind::Out => rustix::stdio::stdout(),
            Kind::Err => rustix::stdio::stderr(),
        }
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes now what can be written now, keeps the rest.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
            return;
        }
        let done = self.push(bytes);
        self.pending.extend_from_slice(&bytes[done..]);
    }

    /// Writes what is pending.
    pub fn flush(&mut self) -> Flow {
        let pending = std::mem::take(&mut self.pending);
        let done = self.push(&pending);
        self.pending = pending;
        self.pending.drain(..done);
        match (self.broken, self.pending.is_empty()) {
            (true, _) => Flow::Broken,
            (false, true) => Flow::Free,
            (false, false) => Flow::Pending,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        let mut done = 0;
        while done < bytes.len() && !self.broken {
            let fd = self.fd();
            let mut poll = [PollFd::new(&fd, PollFlags::OUT)];
            match rustix::event::poll(&mut poll, Some(&Timespec::default())) {
                Ok(0) => break,
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(_) => break,
            }
            let end = bytes.len().min(done + CHUNK_BYTES);
            match rustix::io::write(fd, &bytes[done..end]) {
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // The reader closed its end, the disk is full, the terminal is gone: nobody will see more.
                Err(_) => self.broken = true,
            }
        }
        if self.broken { bytes.len() } else { done }
    }
}

/// How lines are marked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking {
    pub tags: Tags,
    pub colour: Colour,
}

/// Colours that are readable on dark and light terminals.
const COLOURS: [&str; 6] = ["36", "33", "35", "32", "34", "31"];

/// One of a rank's two output streams.
#[derive(Debug)]
pub(super) struct Stream {
    /// The agent's end of the pipe; `None` once it ended.
    pub fd: Option<OwnedFd>,
    prefix: Vec<u8>,
    line: Vec<u8>,
    /// Part of the current line is out already, so its rest gets no tag.
    mid_line: bool,
    /// When the unfinished line began to wait.
    pub since: Option<Instant>,
}

impl Stream {
    pub fn new(fd: OwnedFd, rank: u32, kind: Kind, marking: Marking) -> Self {
        let prefix = match (marking.tags, kind) {
            (Tags::None, _) => String::new(),
            (Tags::Rank, _) => format!("[{rank}] "),
            (Tags::Stream, Kind::Out) => format!("[1,{rank}]<stdout>: "),
            (Tags::Stream, Kind::Err) => format!("[1,{rank}]<stderr>: "),
        };
        let prefix = match marking.colour {
            Colour::Always if !prefix.is_empty() => {
                format!(
                    "\x1b[{}m{}\x1b[0m ",
                    COLOURS[rank as usize % COLOURS.len()],
                    prefix.trim_end()
                )
            }
            _ => prefix,
        };
        Self {
            fd: Some(fd),
            prefix: prefix.into_bytes(),
            line: Vec::new(),
            mid_line: false,
            since: None,
        }
    }

    /// Takes bytes of the rank and passes complete lines on.
    pub fn feed(&mut self, mut bytes: &[u8], sink: &mut Sink) {
        while let Some(end) = self.take_whole(bytes) {
            let (whole, rest) = bytes.split_at(end);
            self.line.extend_from_slice(whole);
            self.emit(sink);
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.line.extend_from_slice(bytes);
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// How many of `bytes` to pass on together with what waits: up to the last newline, or a whole overlong line.
    fn take_whole(&self, bytes: &[u8]) -> Option<usize> {
        let newline = bytes.iter().rposition(|&b| b == b'\n').map(|at| at + 1);
        newline
            .or((self.line.len() + bytes.len() >= LINE_BYTES_MAX && !bytes.is_empty()).then_some(bytes.len()))
    }

    /// Passes on what waits, also an unfinished line.
    pub fn emit(&mut self, sink: &mut Sink) {
        self.since = None;
        if self.line.is_empty() {
            return;
        }
        if self.prefix.is_empty() {
            sink.write(&self.line);
        } else {
            let mut marked = Vec::with_capacity(self.line.len() + self.prefix.len() * 4);
            for piece in self.line.split_inclusive(|&b| b == b'\n') {
                if !std::mem::replace(&mut self.mid_line, !piece.ends_with(b"\n")) {
                    marked.extend_from_slice(&self.prefix);
                }
                marked.extend_from_slice(piece);
            }
            sink.write(&marked);
        }
        self.line.clear();
    }

    /// When the unfinished line is due.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + PARTIAL_LINE_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(tags: Tags) -> Stream {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        Stream::new(
            read,
            3,
            Kind::Out,
            Marking {
                tags,
                colour: Colour::Never,
            },
        )
    }

    /// A sink that only collects: with something pending it never writes.
    fn collector() -> Sink {
        Sink {
            kind: Kind::Out,
            pending: vec![b'|'],
            broken: false,
        }
    }

    #[test]
    fn only_whole_lines_pass_until_the_rest_is_due() {
        let (mut stream, mut sink) = (stream(Tags::None), collector());
        stream.feed(b"one\ntw", &mut sink);
        assert_eq!(sink.pending, b"|one\n");
        assert!(stream.due().is_some());
        stream.feed(b"o\n", &mut sink);
        assert_eq!(sink.pending, b"|one\ntwo\n");
        assert!(stream.due().is_none());
    }

    #[test]
    fn every_line_is_tagged_once_also_when_it_comes_in_parts() {
        let (mut stream, mut sink) = (stream(Tags::Rank), collector());
        stream.feed(b"a\nb\nprompt", &mut sink);
        stream.emit(&mut sink);
        stream.feed(b" rest\nc\n", &mut sink);
        assert_eq!(sink.pending, b"|[3] a\n[3] b\n[3] prompt rest\n[3] c\n");
    }

    #[test]
    fn a_line_without_end_does_not_grow_without_bound() {
        let (mut stream, mut sink) = (stream(Tags::None), collector());
        for _ in 0..100 {
            stream.feed(&[b'x'; 4096], &mut sink);
            assert!(stream.line.len() < LINE_BYTES_MAX);
        }
        stream.emit(&mut sink);
        assert_eq!(sink.pending.len(), 1 + 409_600);
    }
}
