//! The output of ranks on its way to the launcher's stdout and stderr: whole lines, tagged if asked
//! for.
//!
//! Owned by the agent. A [`RankStream`] collects one rank's bytes until a line is complete; a
//! [`OutputSink`] writes to one of the agent's own descriptors without ever blocking, and keeps
//! what a slow reader leaves, up to a limit that the agent watches.
//!
//! Lines of two ranks never share a line. A sink knows whose unfinished line it shows (a prompt):
//! another rank's begins with a newline, and the rest of the first one is a line of its own again.
//! While a line too long to be kept passes in pieces, the other streams wait, each with at most
//! [`LINE_BYTES_MAX`] and one read.

use std::fs::File;
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::time::{Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::output_source::OutputSource;
use super::timestamp::stamp;
use super::traceback::HeldTraceback;
use garonne_job::job::{OutputTags, OutputTimes, TagColour};
use garonne_job::limits::{
    LINE_BYTES_MAX, LINE_PASSES_BYTES_MAX, LINE_PASSES_WAIT, PARTIAL_LINE_WAIT,
};

/// Bytes that a pipe takes without blocking once it polls writable.
const CHUNK_BYTES: usize = 4096;

/// Standard output or standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    Out,
    Err,
}

/// State of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SinkState {
    /// Everything is written.
    Free,
    /// Bytes wait for the reader.
    Pending,
    /// The reader is gone.
    Broken,
}

/// A stream of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamId {
    pub rank: u32,
    pub kind: StreamKind,
}

/// The unfinished line that a sink shows.
#[derive(Clone, Copy, Debug)]
struct ShownPrefix {
    voice: StreamId,
    /// True if the rank cannot finish it any more.
    ended: bool,
}

/// A line that passes in pieces.
#[derive(Clone, Copy, Debug)]
struct PartialLine {
    voice: StreamId,
    bytes: usize,
    /// When its rank last wrote.
    last: Instant,
}

/// An output of the agent: one of its own descriptors, or a file.
#[derive(Debug)]
pub(super) struct OutputSink {
    kind: StreamKind,
    /// A plain file, which is written at once.
    file: Option<File>,
    pending: Vec<u8>,
    /// Why nothing can be written any more.
    broken: Option<Errno>,
    open: Option<ShownPrefix>,
    passing: Option<PartialLine>,
    /// True if some stream keeps whole lines back because of `output_routing`.
    pub waited_for: bool,
    /// The rank that comes first when those that wait may go on.
    pub next_turn: u32,
}

impl OutputSink {
    pub fn new(kind: StreamKind) -> Self {
        Self {
            kind,
            file: None,
            pending: Vec::new(),
            broken: None,
            open: None,
            passing: None,
            waited_for: false,
            next_turn: 0,
        }
    }

    pub fn to_file(file: File) -> Self {
        Self {
            file: Some(file),
            ..Self::new(StreamKind::Out)
        }
    }

    pub fn kind(&self) -> StreamKind {
        self.kind
    }

    pub fn fd(&self) -> BorrowedFd<'static> {
        match self.kind {
            StreamKind::Out => rustix::stdio::stdout(),
            StreamKind::Err => rustix::stdio::stderr(),
        }
    }

    pub fn pending_bytes(&self) -> usize {
        self.pending.len()
    }

    /// Writes now what can be written now, keeps the rest.
    pub fn write(&mut self, bytes: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        if !self.pending.is_empty() {
            self.pending.extend_from_slice(bytes);
            return;
        }
        let done = self.push(bytes);
        self.pending.extend_from_slice(&bytes[done..]);
    }

    /// Why nothing can be written any more, but for a reader that has left.
    pub fn fault(&self) -> Option<Errno> {
        self.broken.filter(|error| *error != Errno::PIPE)
    }

    /// Writes a line of the agent itself.
    pub fn say(&mut self, line: &str) {
        if self.open.take().is_some() {
            self.write(b"\n");
        }
        self.write(format!("{line}\n").as_bytes());
    }

    /// A rank is about to write: whether this goes on with its own unfinished line. Another's is
    /// ended here, but for one that nobody can finish in output without tags, which stays byte by
    /// byte what the ranks wrote.
    fn begin(&mut self, voice: StreamId, tagged: bool) -> bool {
        match self.open.take() {
            Some(open) if open.voice == voice => true,
            Some(open) => {
                if tagged || !open.ended {
                    self.write(b"\n");
                }
                false
            }
            None => false,
        }
    }

    /// The rank's pipe has ended.
    fn no_more_of(&mut self, voice: StreamId) {
        if let Some(open) = self.open.as_mut().filter(|open| open.voice == voice) {
            open.ended = true;
        }
        self.pass_over(voice);
    }

    /// The rank's long line is over.
    fn pass_over(&mut self, voice: StreamId) {
        if self.passing.is_some_and(|passing| passing.voice == voice) {
            self.passing = None;
            self.next_turn = voice.rank + 1;
        }
    }

    /// A piece of a long line of this rank was written.
    fn pass_piece(&mut self, voice: StreamId, len: usize) {
        let mine = self.passing.filter(|passing| passing.voice == voice);
        let bytes = mine.map_or(0, |passing| passing.bytes) + len;
        let last = Instant::now();
        self.passing = Some(PartialLine { voice, bytes, last });
        if bytes >= LINE_PASSES_BYTES_MAX {
            self.pass_over(voice);
        }
    }

    /// The one whose line passes has written more, or could not since we did not read.
    pub fn pass_goes_on(&mut self, voice: Option<StreamId>) {
        let passing = self.passing.as_mut();
        if let Some(passing) =
            passing.filter(|passing| voice.is_none_or(|voice| passing.voice == voice))
        {
            passing.last = Instant::now();
        }
    }

    /// The rank whose long line is passing.
    pub fn passes(&self) -> Option<u32> {
        self.passing.map(|passing| passing.voice.rank)
    }

    /// Returns whether another's line is passing.
    fn is_taken_from(&self, voice: StreamId) -> bool {
        self.passing.is_some_and(|passing| passing.voice != voice)
    }

    /// When those that wait need not wait any longer for a rank that does not finish its line.
    pub fn pass_due(&self) -> Option<Instant> {
        self.passing.map(|passing| passing.last + LINE_PASSES_WAIT)
    }

    /// Ends the waiting if it is due.
    pub fn look_at_pass(&mut self, now: Instant) {
        if let Some(passing) = self.passing
            && self.pass_due().is_some_and(|due| due <= now)
        {
            self.pass_over(passing.voice);
        }
    }

    /// Returns whether those that wait may go on now.
    pub fn is_turn_of_others(&self) -> bool {
        self.waited_for && self.passing.is_none()
    }

    /// Writes what is pending.
    pub fn flush(&mut self) -> SinkState {
        let pending = std::mem::take(&mut self.pending);
        let done = self.push(&pending);
        self.pending = pending;
        self.pending.drain(..done);
        match (self.broken, self.pending.is_empty()) {
            (Some(_), _) => SinkState::Broken,
            (None, true) => SinkState::Free,
            (None, false) => SinkState::Pending,
        }
    }

    fn push(&mut self, bytes: &[u8]) -> usize {
        if let Some(file) = &mut self.file {
            if let Err(error) = file.write_all(bytes) {
                self.broken = Some(Errno::from_io_error(&error).unwrap_or(Errno::IO));
            }
            return bytes.len();
        }
        let mut done = 0;
        while done < bytes.len() && self.broken.is_none() {
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
                // The reader closed its end, the disk is full, the terminal is gone: nobody will
                // see more.
                Err(error) => self.broken = Some(error),
            }
        }
        if self.broken.is_some() {
            bytes.len()
        } else {
            done
        }
    }
}

/// Way in which lines are marked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LineMarks {
    pub tags: OutputTags,
    pub stamps: OutputTimes,
    pub colour: TagColour,
}

/// Colours that are readable on dark and light terminals.
const COLOURS: [&str; 6] = ["36", "33", "35", "32", "34", "31"];

/// An output stream of a rank: collects bytes until a line is complete.
#[derive(Debug)]
pub(super) struct RankStream {
    /// Source of the bytes; `None` once it ended.
    pub source: Option<OutputSource>,
    /// True if the agent listens to it.
    pub reading: bool,
    voice: StreamId,
    stamps: OutputTimes,
    prefix: Vec<u8>,
    line: Vec<u8>,
    /// Another rank's long line is passing; `line` may hold whole lines meanwhile.
    waits: bool,
    /// When the unfinished line began to wait.
    pub since: Option<Instant>,
    /// A traceback, where this stream holds them back.
    holding: Option<HeldTraceback>,
}

impl RankStream {
    pub fn new(source: OutputSource, rank: u32, kind: StreamKind, marking: LineMarks) -> Self {
        let prefix = match (marking.tags, kind) {
            (OutputTags::None, _) => String::new(),
            (OutputTags::Rank, _) => format!("[{rank}] "),
            (OutputTags::Stream, StreamKind::Out) => format!("[1,{rank}]<stdout>: "),
            (OutputTags::Stream, StreamKind::Err) => format!("[1,{rank}]<stderr>: "),
        };
        let prefix = match marking.colour {
            TagColour::Always if !prefix.is_empty() => {
                format!(
                    "\x1b[{}m{}\x1b[0m ",
                    COLOURS[rank as usize % COLOURS.len()],
                    prefix.trim_end()
                )
            }
            _ => prefix,
        };
        Self {
            source: Some(source),
            reading: true,
            voice: StreamId { rank, kind },
            stamps: marking.stamps,
            prefix: prefix.into_bytes(),
            line: Vec::new(),
            waits: false,
            since: None,
            holding: None,
        }
    }

    /// Holds tracebacks back from now on.
    pub fn hold_tracebacks(self) -> Self {
        let holding = Some(HeldTraceback::default());
        Self { holding, ..self }
    }

    /// Returns whether a traceback is held back.
    pub fn holds(&self) -> bool {
        self.holding
            .as_ref()
            .is_some_and(|holding| !holding.is_empty())
    }

    /// When what is held back passes on.
    pub fn held_due(&self) -> Option<Instant> {
        self.holding.as_ref()?.due()
    }

    /// Returns the bytes that are held back, and stops holding.
    pub fn take_held(&mut self) -> Vec<u8> {
        self.holding
            .as_mut()
            .map_or_else(Vec::new, HeldTraceback::release)
    }

    /// Takes bytes of the rank and passes complete lines on, but for those that are held back.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut OutputSink) {
        let passes = self
            .holding
            .as_mut()
            .map_or(bytes.len(), |holding| holding.take(bytes));
        if passes > 0 {
            self.pass_on(&bytes[..passes], sink);
        }
        if self.holding.as_ref().is_some_and(HeldTraceback::is_full) {
            let text = self.take_held();
            self.pass_on(&text, sink);
        }
    }

    /// Passes complete lines on; of a stream that has ended all.
    pub fn pass_on(&mut self, bytes: &[u8], sink: &mut OutputSink) {
        self.pass_lines(bytes, sink);
        if self.source.is_none() {
            self.show_part(sink);
        }
    }

    fn pass_lines(&mut self, mut bytes: &[u8], sink: &mut OutputSink) {
        if self.must_wait(sink) {
            self.line.extend_from_slice(bytes);
            return;
        }
        sink.pass_goes_on(Some(self.voice));
        while let Some(end) = self.take_whole(bytes) {
            let (whole, rest) = bytes.split_at(end);
            self.line.extend_from_slice(whole);
            self.emit_piece(sink);
            bytes = rest;
        }
        if !bytes.is_empty() {
            self.line.extend_from_slice(bytes);
            self.since.get_or_insert_with(Instant::now);
        }
    }

    /// Returns how many of `bytes` to pass on together with what waits: up to the last newline, or
    /// a whole overlong line.
    fn take_whole(&self, bytes: &[u8]) -> Option<usize> {
        let newline = bytes.iter().rposition(|&b| b == b'\n').map(|at| at + 1);
        newline.or(
            (self.line.len() + bytes.len() >= LINE_BYTES_MAX && !bytes.is_empty())
                .then_some(bytes.len()),
        )
    }

    /// Returns whether another rank's long line is passing; then this stream waits.
    fn must_wait(&mut self, sink: &mut OutputSink) -> bool {
        if sink.is_taken_from(self.voice) {
            self.waits = true;
            self.since = None;
            sink.waited_for = true;
        }
        self.waits
    }

    /// Returns whether it waits with as much as it may hold: then nothing more is to be read.
    pub fn is_full(&self) -> bool {
        self.waits && self.line.len() >= LINE_BYTES_MAX
    }

    /// Passes on whole lines that were kept back, if no other rank's long line passes now. A stream
    /// that has ended passes on all.
    pub fn resume(&mut self, sink: &mut OutputSink) {
        if !self.waits || self.must_still_wait(sink) {
            return;
        }
        self.waits = false;
        let whole = self
            .line
            .iter()
            .rposition(|&b| b == b'\n')
            .map_or(0, |at| at + 1);
        let rest = self.line.split_off(whole);
        self.emit(sink);
        self.line = rest;
        if self.source.is_none() {
            self.emit(sink);
        } else if self.line.len() >= LINE_BYTES_MAX {
            self.emit_piece(sink);
        } else if !self.line.is_empty() {
            self.since = Some(Instant::now());
        }
    }

    fn must_still_wait(&self, sink: &mut OutputSink) -> bool {
        let taken = sink.is_taken_from(self.voice);
        sink.waited_for |= taken;
        taken
    }

    /// The pipe has ended.
    pub fn end(&mut self, sink: &mut OutputSink) {
        self.source = None;
        if !self.must_wait(sink) {
            self.emit(sink);
        }
        sink.no_more_of(self.voice);
    }

    /// The unfinished line has waited long enough for its end.
    pub fn show_part(&mut self, sink: &mut OutputSink) {
        if !self.must_wait(sink) {
            self.emit(sink);
        }
    }

    /// Passes on what is collected: whole lines, or a piece of one that is too long.
    fn emit_piece(&mut self, sink: &mut OutputSink) {
        let piece = (!self.line.ends_with(b"\n")).then_some(self.line.len());
        self.emit(sink);
        match piece {
            Some(len) => sink.pass_piece(self.voice, len),
            None => sink.pass_over(self.voice),
        }
    }

    /// Passes on what is collected at once, also an unfinished line.
    pub fn emit(&mut self, sink: &mut OutputSink) {
        self.since = None;
        self.waits = false;
        let Some(last) = self.line.last() else {
            return;
        };
        let unfinished = *last != b'\n';
        let plain = self.prefix.is_empty() && self.stamps == OutputTimes::None;
        let mut mid_line = sink.begin(self.voice, !plain);
        if plain {
            sink.write(&self.line);
        } else {
            let stamp = match self.stamps {
                OutputTimes::None => String::new(),
                OutputTimes::Time => stamp(SystemTime::now()),
            };
            let mut marked =
                Vec::with_capacity(self.line.len() + (stamp.len() + self.prefix.len()) * 4);
            for piece in self.line.split_inclusive(|&b| b == b'\n') {
                if !std::mem::replace(&mut mid_line, !piece.ends_with(b"\n")) {
                    marked.extend_from_slice(stamp.as_bytes());
                    marked.extend_from_slice(&self.prefix);
                }
                marked.extend_from_slice(piece);
            }
            sink.write(&marked);
        }
        self.line.clear();
        sink.open = unfinished.then_some(ShownPrefix {
            voice: self.voice,
            ended: self.source.is_none(),
        });
    }

    /// An unfinished line waits from now on: before, its rank could not end it.
    pub fn wait_anew(&mut self) {
        self.since = self.since.map(|_| Instant::now());
    }

    /// When the unfinished line is due.
    pub fn due(&self) -> Option<Instant> {
        self.since.map(|since| since + PARTIAL_LINE_WAIT)
    }
}

#[cfg(test)]
mod tests;
