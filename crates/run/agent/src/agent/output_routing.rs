//! How the agent passes output on: what it reads from which rank, where that goes, and when it
//! stops reading.
//!
//! Two sinks, one per descriptor. Where both lead to one place (a terminal, `2>&1`), or the user
//! wants one stream, all that ranks write goes through the first, so that lines of their two
//! streams never share a line either. Files that take ranks' output are further sinks.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll;

use super::output::{OutputSink, RankStream, SinkState, StreamKind};
use super::output_source::OutputSource;
use super::root_role::output_stream;
use super::{Agent, EpollToken};
use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::{Job, StderrMode};
use garonne_job::limits::{FAR_ROOM_STEP, OUTPUT_PENDING_BYTES_MAX};
use garonne_job::output_files::{self, PatternValues};

/// Index of the first file among the sinks; the two descriptors come before.
const FIRST_FILE: usize = 2;

/// The agent's two descriptors and what goes where.
#[derive(Debug)]
pub(super) struct OutputSinks {
    all: Vec<OutputSink>,
    /// By rank and stream: the place of its file, if it has one.
    files: Vec<[Option<usize>; 2]>,
    /// The place of ranks' errors.
    errors: usize,
    /// The place of the agent's own words.
    own: usize,
}

impl OutputSinks {
    pub fn new(streams: StderrMode) -> Self {
        let one_place = same_file();
        Self {
            all: vec![
                OutputSink::new(StreamKind::Out),
                OutputSink::new(StreamKind::Err),
            ],
            files: Vec::new(),
            errors: usize::from(!one_place && streams == StderrMode::Apart),
            own: usize::from(!one_place),
        }
    }

    /// Returns the index of the sink that a rank's stream goes to.
    fn place(&self, kind: StreamKind, rank: u32) -> usize {
        let file = self
            .files
            .get(rank as usize)
            .and_then(|files| files[kind as usize]);
        file.unwrap_or(match kind {
            StreamKind::Out => 0,
            StreamKind::Err => self.errors,
        })
    }

    /// The sink that a rank's stream goes to.
    pub fn of(&mut self, kind: StreamKind, rank: u32) -> &mut OutputSink {
        let place = self.place(kind, rank);
        &mut self.all[place]
    }

    /// Opens the files that take what ranks write.
    ///
    /// # Errors
    /// One cannot be written; which one.
    pub fn open_files(&mut self, job: &Job) -> Result<()> {
        let start = SystemTime::now().duration_since(UNIX_EPOCH);
        let start = start.map_or(0, |since| since.as_secs());
        let own = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let mut places: HashMap<PathBuf, usize> = HashMap::new();
        for rank in 0..job.size() {
            let node = job.nodes.of(rank);
            let host = match job.nodes.several() {
                true => job.nodes.name(node),
                false => &own,
            };
            let named = PatternValues {
                rank,
                host,
                node,
                start,
            };
            let mut files = [None; 2];
            for (place, pattern) in files.iter_mut().zip([&job.files.out, &job.files.err]) {
                let Some(pattern) = pattern else { continue };
                let path = output_files::path(pattern, named);
                if let Some(known) = places.get(&path) {
                    *place = Some(*known);
                    continue;
                }
                self.all.push(OutputSink::to_file(create(&path)?));
                *place = places
                    .insert(path, self.all.len() - 1)
                    .or(Some(self.all.len() - 1));
            }
            self.files.push(files);
        }
        Ok(())
    }

    pub fn iter(&self) -> impl Iterator<Item = &OutputSink> {
        self.all.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut OutputSink> {
        self.all.iter_mut()
    }

    /// Why standard output cannot be written any more.
    pub fn fault(&self) -> Option<rustix::io::Errno> {
        self.all[0].fault()
    }
}

/// Makes a file for output, with the directories above it. A program is not overwritten.
fn create(path: &Path) -> Result<File> {
    let fault = |why: &dyn std::fmt::Display| {
        let text = format!("cannot write ranks' output to '{}': {why}", path.display());
        Error::misuse(codes::G0211, text)
    };
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above).map_err(|error| fault(&error))?;
    }
    if let Ok(known) = path.metadata() {
        if !known.is_file() && path != Path::new("/dev/null") {
            return Err(fault(&"it is no plain file"));
        }
        if known.permissions().mode() & 0o111 != 0 {
            return Err(fault(
                &"a program is there; name another file, or remove it first",
            ));
        }
    }
    File::create(path).map_err(|error| fault(&error))
}

/// Whether both of our descriptors lead to one file.
fn same_file() -> bool {
    let of = |fd| {
        rustix::fs::fstat(fd)
            .ok()
            .map(|stat| (stat.st_dev, stat.st_ino))
    };
    let (out, err) = (of(rustix::stdio::stdout()), of(rustix::stdio::stderr()));
    out.is_some() && out == err
}

impl Agent<'_> {
    /// Nobody reads our output any more: the job ends as a program in a shell's pipeline does. Or
    /// it cannot be written, which is a failure even of a job that has ended well.
    fn output_reader_gone(&mut self, kind: StreamKind) {
        match self.sinks.fault() {
            _ if kind != StreamKind::Out => {}
            Some(fault) => self.output_fails(fault),
            None if self.shutdown.is_none() => self.terminate(128 + libc::SIGPIPE),
            None => {}
        }
    }

    /// Ends the job because the output of ranks cannot be written.
    fn output_fails(&mut self, fault: rustix::io::Errno) {
        match (self.shutdown.is_some(), self.code()) {
            (false, _) => {
                self.output_lost(fault);
                self.terminate(1);
            }
            (true, 0) => {
                self.set_code(1);
                self.output_lost(fault);
            }
            (true, _) => {}
        }
    }

    fn output_lost(&mut self, fault: rustix::io::Errno) {
        let error = std::io::Error::from(fault);
        let line = format!(
            "error[{}]: cannot write the job's output: {error}",
            codes::G0305
        );
        self.print_line(&line);
    }

    /// At the first agent: opens the files that take what ranks write.
    pub(super) fn open_output_files(&mut self) -> Result<()> {
        let job = self.ctx.job;
        match self.ctx.is_child() || job.files.are_none() {
            true => Ok(()),
            false => self.sinks.open_files(job),
        }
    }

    /// A file of ranks' output cannot be written any more.
    fn file_lost(&mut self, place: usize) {
        if let Some(fault) = self.sinks.all[place].fault() {
            self.output_fails(fault);
        }
    }

    /// A line of the agent itself.
    pub(super) fn print_line(&mut self, line: &str) {
        if self.ctx.is_child() {
            return self.ctx.report(&AgentReport::Print(line.to_owned()));
        }
        self.exit_log.note_line(line);
        let own = self.sinks.own;
        self.sinks.all[own].say(line);
        self.flush_sink(own);
    }

    /// Reads what a rank has written, as far as there is any.
    pub(super) fn read_output(&mut self, kind: StreamKind, rank: u32) {
        if self.ctx.is_child() {
            return self.forward(kind, rank, false);
        }
        let mut buffer = [0; 16 * 1024];
        let was_full = self.slots[rank as usize].stream(kind).is_full();
        let mut taken = 0;
        for _ in 0..8 {
            let (stream, sink) = (
                self.slots[rank as usize].stream_mut(kind),
                self.sinks.of(kind, rank),
            );
            let Some(source) = &mut stream.source else {
                break;
            };
            match source.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    stream.feed(&buffer[..n], sink);
                    taken += n;
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                _ => {
                    if let Some(pipe) = source.pipe() {
                        let _ = epoll::delete(&self.ctx.epoll, pipe);
                    }
                    stream.end(sink);
                }
            }
            // One that was full before is read only because its rank has closed the pipe.
            if (stream.is_full() && !was_full) || sink.is_turn_of_others() {
                break;
            }
        }
        self.grant_stream_credit(kind, rank, taken);
        let stream = self.slots[rank as usize].stream(kind);
        let lying = stream.source.as_ref().map_or(0, OutputSource::lying);
        if lying > 0 && stream.reading {
            self.resumed_streams.push((kind, rank));
        }
        let place = self.sinks.place(kind, rank);
        self.settle_sinks(place);
        self.listen_as_wanted(kind, rank);
        self.flush_sink(place);
    }

    /// Tells the agent of a rank elsewhere that so much of its output was taken.
    fn grant_stream_credit(&mut self, kind: StreamKind, rank: u32, taken: usize) {
        let slot = &mut self.slots[rank as usize];
        if slot.node == self.ctx.node || taken == 0 {
            return;
        }
        let (node, owed) = (slot.node, &mut slot.stream_credit[kind as usize]);
        *owed += taken;
        if *owed >= FAR_ROOM_STEP {
            let order =
                AgentCommand::StreamCredit(rank, output_stream(kind), std::mem::take(owed) as u32);
            self.ctx.command(node, &order);
        }
    }

    /// Reads streams of other hosts on again that had to wait.
    pub(super) fn read_resumed(&mut self) {
        for (kind, rank) in std::mem::take(&mut self.resumed_streams) {
            self.read_output(kind, rank);
        }
    }

    /// Passes on what a stream has collected, unfinished lines too.
    pub(super) fn emit(&mut self, kind: StreamKind, rank: u32) {
        let sink = self.sinks.of(kind, rank);
        self.slots[rank as usize].stream_mut(kind).emit(sink);
        self.listen_as_wanted(kind, rank);
    }

    /// Lets the streams go on that waited for a long line of another, if it has passed.
    fn settle_sinks(&mut self, place: usize) {
        let sink = &mut self.sinks.all[place];
        if !self.output_paused {
            sink.look_at_pass(Instant::now());
        }
        if !sink.is_turn_of_others() {
            return;
        }
        sink.waited_for = false;
        let (count, first) = (self.slots.len(), sink.next_turn as usize);
        for rank in (first..first + count).map(|rank| rank % count) {
            for kind in [StreamKind::Out, StreamKind::Err] {
                if self.sinks.place(kind, rank as u32) == place {
                    self.slots[rank]
                        .stream_mut(kind)
                        .resume(&mut self.sinks.all[place]);
                    self.listen_as_wanted(kind, rank as u32);
                }
            }
        }
    }

    /// Listens to a stream or not, as its state and that of the reader want it.
    fn listen_as_wanted(&mut self, kind: StreamKind, rank: u32) {
        let paused = self.output_paused;
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
                let _ = epoll::modify(
                    &self.ctx.epoll,
                    pipe,
                    EpollToken::Output(kind, rank).pack(),
                    flags,
                );
            }
            Some((None, lying)) if reading && lying > 0 => self.resumed_streams.push((kind, rank)),
            _ => {}
        }
    }

    /// Writes what is pending on one of our descriptors.
    pub(super) fn flush(&mut self, kind: StreamKind) {
        self.flush_sink(kind as usize);
    }

    /// Writes pending output; stops reading from ranks while too much waits for a slow reader.
    fn flush_sink(&mut self, place: usize) {
        let sink = &mut self.sinks.all[place];
        let kind = sink.kind();
        if sink.pending_bytes() > 0 || sink.flush() == SinkState::Broken {
            match sink.flush() {
                SinkState::Free => drop(epoll::delete(&self.ctx.epoll, sink.fd())),
                SinkState::Pending => {
                    let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
                    let token = EpollToken::Sink(kind).pack();
                    if epoll::modify(&self.ctx.epoll, sink.fd(), token, flags).is_err() {
                        // A regular file cannot be watched, but it never has to be waited for
                        // either.
                        let _ = epoll::add(&self.ctx.epoll, sink.fd(), token, flags);
                    }
                }
                SinkState::Broken if place >= FIRST_FILE => self.file_lost(place),
                SinkState::Broken => self.output_reader_gone(kind),
            }
        }
        let full = self
            .sinks
            .iter()
            .any(|sink| sink.pending_bytes() > OUTPUT_PENDING_BYTES_MAX);
        if full != self.output_paused {
            self.output_paused = full;
            for rank in 0..self.slots.len() as u32 {
                self.listen_as_wanted(StreamKind::Out, rank);
                self.listen_as_wanted(StreamKind::Err, rank);
            }
            // Nobody could finish a line while nothing was read.
            self.sinks
                .iter_mut()
                .for_each(|sink| sink.pass_goes_on(None));
            let streams = self
                .slots
                .iter_mut()
                .flat_map(|slot| [&mut slot.out, &mut slot.err]);
            streams.for_each(RankStream::wait_anew);
        }
    }

    /// Shows unfinished lines that are due, and lets those go on that have waited for one long
    /// enough.
    pub(super) fn output_due(&mut self, now: Instant) {
        for (slot, rank) in self.slots.iter_mut().zip(0..) {
            for kind in [StreamKind::Out, StreamKind::Err] {
                let stream = slot.stream_mut(kind);
                if !self.output_paused && stream.due().is_some_and(|due| due <= now) {
                    stream.show_part(self.sinks.of(kind, rank));
                }
            }
        }
        for place in 0..self.sinks.all.len() {
            self.settle_sinks(place);
            self.flush_sink(place);
        }
    }
}
