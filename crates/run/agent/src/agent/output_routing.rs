//! How the agent passes output on: what it reads from which rank, where that goes, and when it
//! stops reading.
//!
//! Two sinks, one per descriptor. Where both lead to one place (a terminal, `2>&1`), or the user
//! wants one stream, all that ranks write goes through the first, so that lines of their two
//! streams never share a line either. Files that take ranks' output are further sinks.

mod failure_output;
mod output_forwarding;

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rustix::event::epoll;

use super::output::{LineMarks, OutputSink, RankStream, SinkState, StreamKind};
use super::output_source::OutputSource;
use failure_output::FailureOutput;
use output_forwarding::UnfinishedLine;

use super::EpollToken;
use super::context::Context;
use super::root_role::output_stream;
use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::job::{Job, StderrMode};
use garonne_job::limits::{DRAIN_READS, OUTPUT_PENDING_BYTES_MAX, REMOTE_ROOM_STEP, REMOTE_WINDOW};
use garonne_job::output_files::{self, PatternValues};

/// The agent's two descriptors and what goes where.
#[derive(Debug)]
struct OutputSinks {
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

/// Returns whether both of our descriptors lead to one file.
fn same_file() -> bool {
    let of = |fd| {
        rustix::fs::fstat(fd)
            .ok()
            .map(|stat| (stat.st_dev, stat.st_ino))
    };
    let (out, err) = (of(rustix::stdio::stdout()), of(rustix::stdio::stderr()));
    out.is_some() && out == err
}

/// Output of a rank: its two streams.
#[derive(Debug)]
struct RankOutput {
    out: RankStream,
    err: RankStream,
    /// By stream: bytes that may still be sent to the first agent; or, there, that were taken and
    /// not yet told of.
    credit: [usize; 2],
    /// By stream: the beginning of a line, which the first agent gets with its end.
    unfinished: [UnfinishedLine; 2],
}

impl RankOutput {
    fn stream(&self, kind: StreamKind) -> &RankStream {
        match kind {
            StreamKind::Out => &self.out,
            StreamKind::Err => &self.err,
        }
    }

    fn stream_mut(&mut self, kind: StreamKind) -> &mut RankStream {
        match kind {
            StreamKind::Out => &mut self.out,
            StreamKind::Err => &mut self.err,
        }
    }
}

/// Why output of the job cannot be written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputLoss {
    /// Nobody reads standard output any more.
    ReaderGone,
    /// The system refuses to write.
    Fault(rustix::io::Errno),
}

/// Output of all ranks, and the lines of the agent itself.
///
/// Owned by the agent. [`open_output_files`](Self::open_output_files) comes first, then
/// [`add_rank`](Self::add_rank) for each rank in order. Streams are read and sinks written as the
/// epoll tells. [`output_due`](Self::output_due) is called when [`due`](Self::due) says so, and
/// [`read_resumed`](Self::read_resumed) and [`take_loss`](Self::take_loss) after each event. At the
/// end, [`drain`](Self::drain) reads what ranks have left.
#[derive(Debug)]
pub(super) struct Output {
    sinks: OutputSinks,
    /// By rank.
    streams: Vec<RankOutput>,
    /// Nothing is read, since too much waits for a slow reader.
    paused: bool,
    /// Streams of other hosts that may be read again.
    resumed: Vec<(StreamKind, u32)>,
    /// Tracebacks and words of a failure.
    failure: FailureOutput,
    /// The first line of the agent that says why the job ends.
    first_error: Option<String>,
    loss: Option<OutputLoss>,
}

impl Output {
    /// Makes the output of a job whose ranks are not there yet.
    pub fn new(job: &Job) -> Self {
        Self {
            sinks: OutputSinks::new(job.streams),
            streams: Vec::new(),
            paused: false,
            resumed: Vec::new(),
            failure: FailureOutput::default(),
            first_error: None,
            loss: None,
        }
    }

    /// Adds the output of the next rank: pipes, or streams that another agent fills.
    pub fn add_rank(&mut self, ctx: &Context<'_>, (out, err): (OutputSource, OutputSource)) {
        let (job, rank) = (ctx.job, self.streams.len() as u32);
        let marks = LineMarks {
            tags: job.tags,
            stamps: job.stamps,
            colour: job.colour,
        };
        let err = RankStream::new(err, rank, StreamKind::Err, marks);
        // The first agent of several hosts counts what it takes, the others what they may send.
        let credit = match job.nodes.several() && !ctx.is_child() {
            true => 0,
            false => REMOTE_WINDOW,
        };
        self.streams.push(RankOutput {
            out: RankStream::new(out, rank, StreamKind::Out, marks),
            err: match job.files.err {
                None => err.hold_tracebacks(),
                Some(_) => err,
            },
            credit: [credit; 2],
            unfinished: Default::default(),
        });
    }

    /// Adds the output of the next rank, which nobody reads here: another launcher has it.
    pub fn add_unread_rank(&mut self) {
        let rank = self.streams.len() as u32;
        let stream = |kind| {
            let mut stream = RankStream::new(OutputSource::far(), rank, kind, LineMarks::default());
            stream.source = None;
            stream
        };
        self.streams.push(RankOutput {
            out: stream(StreamKind::Out),
            err: stream(StreamKind::Err),
            credit: [0; 2],
            unfinished: Default::default(),
        });
    }

    /// Takes why output cannot be written any more, if that has shown since it was last asked.
    pub fn take_loss(&mut self) -> Option<OutputLoss> {
        self.loss.take()
    }

    fn note_loss(&mut self, place: usize) {
        let loss = match (place, self.sinks.all[place].fault()) {
            // An error of standard output alone ends the job.
            (1, _) => None,
            (0, None) => Some(OutputLoss::ReaderGone),
            (_, fault) => fault.map(OutputLoss::Fault),
        };
        self.loss = self.loss.or(loss);
    }

    /// Returns the first line of the agent that says why the job ends.
    pub fn first_error(&self) -> Option<&str> {
        self.first_error.as_deref()
    }

    fn note_line(&mut self, line: &str) {
        if self.first_error.is_none() && line.starts_with("error[") {
            self.first_error = Some(line.to_owned());
        }
    }

    /// Returns when a stream, or a sink, is due.
    pub fn due(&self) -> Option<Instant> {
        let streams = self
            .streams
            .iter()
            .flat_map(|slot| [slot.out.due(), slot.err.due(), slot.err.held_due()])
            .flatten();
        let passes = self.sinks.iter().filter_map(OutputSink::pass_due);
        let lines = streams.chain(passes).filter(|_| !self.paused);
        let resumed = (!self.resumed.is_empty()).then(Instant::now);
        lines
            .chain(self.failure.due())
            .chain(resumed)
            .chain(self.unfinished_due())
            .min()
    }

    /// Returns whether the streams of a rank have ended.
    pub fn has_ended(&self, rank: u32) -> bool {
        let slot = &self.streams[rank as usize];
        slot.out.source.is_none() && slot.err.source.is_none()
    }

    /// Takes bytes of a rank of another host; nothing is the stream's end.
    pub fn feed(&mut self, ctx: &mut Context<'_>, kind: StreamKind, rank: u32, bytes: &[u8]) {
        let stream = self.streams[rank as usize].stream_mut(kind);
        if let Some(source) = &mut stream.source {
            source.feed(bytes);
        }
        if stream.reading {
            self.read_output(ctx, kind, rank);
        }
    }

    /// Returns the ranks whose long lines are passing.
    pub fn passing(&self) -> Vec<u32> {
        self.sinks.iter().filter_map(OutputSink::passes).collect()
    }

    /// Returns the descriptors for whose readers output waits.
    pub fn waiting_descriptors(&self) -> Vec<BorrowedFd<'static>> {
        let waiting = self.sinks.iter().filter(|sink| sink.pending_bytes() > 0);
        waiting.map(OutputSink::fd).collect()
    }

    /// Writes what waits, as far as readers take it.
    pub fn push(&mut self) {
        let waiting = self
            .sinks
            .iter_mut()
            .filter(|sink| sink.pending_bytes() > 0);
        waiting.for_each(|sink| {
            let _ = sink.flush();
        });
    }

    /// Reads all that a rank has written so far and passes it on, unfinished lines too.
    pub fn drain(&mut self, ctx: &mut Context<'_>, rank: u32) {
        if ctx.is_child() {
            return self.forward_all(ctx, rank);
        }
        for kind in [StreamKind::Out, StreamKind::Err] {
            // One reading may stop early to let others finish their lines; all together take what a
            // pipe holds.
            for _ in 0..DRAIN_READS {
                self.read_output(ctx, kind, rank);
            }
            self.emit(ctx, kind, rank);
        }
    }

    /// At the first agent: opens the files that take what ranks write.
    pub fn open_output_files(&mut self, ctx: &Context<'_>) -> Result<()> {
        let job = ctx.job;
        match ctx.is_child() || job.files.are_none() {
            true => Ok(()),
            false => self.sinks.open_files(job),
        }
    }

    /// A line of the agent itself.
    pub fn print_line(&mut self, ctx: &mut Context<'_>, line: &str) {
        if ctx.is_child() {
            return ctx.report(&AgentReport::Print(line.to_owned()));
        }
        self.note_line(line);
        let own = self.sinks.own;
        self.sinks.all[own].say(line);
        self.flush_sink(ctx, own);
    }

    /// Reads what a rank has written, as far as there is any.
    pub fn read_output(&mut self, ctx: &mut Context<'_>, kind: StreamKind, rank: u32) {
        if ctx.is_child() {
            return self.forward(ctx, kind, rank, false);
        }
        let mut buffer = [0; 16 * 1024];
        let was_full = self.streams[rank as usize].stream(kind).is_full();
        let mut taken = 0;
        for _ in 0..8 {
            let (stream, sink) = (
                self.streams[rank as usize].stream_mut(kind),
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
                        let _ = epoll::delete(&ctx.epoll, pipe);
                    }
                    stream.end(sink);
                }
            }
            // One that was full before is read only because its rank has closed the pipe.
            if (stream.is_full() && !was_full) || sink.is_turn_of_others() {
                break;
            }
        }
        self.grant_stream_credit(ctx, kind, rank, taken);
        let stream = self.streams[rank as usize].stream(kind);
        let lying = stream.source.as_ref().map_or(0, OutputSource::lying);
        if lying > 0 && stream.reading {
            self.resumed.push((kind, rank));
        }
        let place = self.sinks.place(kind, rank);
        self.settle_sinks(ctx, place);
        self.listen_as_wanted(ctx, kind, rank);
        self.flush_sink(ctx, place);
    }

    /// Tells the agent of a rank elsewhere that so much of its output was taken.
    fn grant_stream_credit(
        &mut self,
        ctx: &mut Context<'_>,
        kind: StreamKind,
        rank: u32,
        taken: usize,
    ) {
        let slot = &mut self.streams[rank as usize];
        if ctx.is_here(rank) || taken == 0 {
            return;
        }
        let (node, owed) = (ctx.job.nodes.of(rank), &mut slot.credit[kind as usize]);
        *owed += taken;
        if *owed >= REMOTE_ROOM_STEP {
            let order =
                AgentCommand::StreamCredit(rank, output_stream(kind), std::mem::take(owed) as u32);
            ctx.command(node, &order);
        }
    }

    /// Reads streams of other hosts on again that had to wait.
    pub fn read_resumed(&mut self, ctx: &mut Context<'_>) {
        for (kind, rank) in std::mem::take(&mut self.resumed) {
            self.read_output(ctx, kind, rank);
        }
    }

    /// Passes on what a stream has collected, unfinished lines too.
    pub fn emit(&mut self, ctx: &Context<'_>, kind: StreamKind, rank: u32) {
        let sink = self.sinks.of(kind, rank);
        self.streams[rank as usize].stream_mut(kind).emit(sink);
        self.listen_as_wanted(ctx, kind, rank);
    }

    /// Lets the streams go on that waited for a long line of another, if it has passed.
    fn settle_sinks(&mut self, ctx: &Context<'_>, place: usize) {
        let sink = &mut self.sinks.all[place];
        if !self.paused {
            sink.look_at_pass(Instant::now());
        }
        if !sink.is_turn_of_others() {
            return;
        }
        sink.waited_for = false;
        let (count, first) = (self.streams.len(), sink.next_turn as usize);
        for rank in (first..first + count).map(|rank| rank % count) {
            for kind in [StreamKind::Out, StreamKind::Err] {
                if self.sinks.place(kind, rank as u32) == place {
                    self.streams[rank]
                        .stream_mut(kind)
                        .resume(&mut self.sinks.all[place]);
                    self.listen_as_wanted(ctx, kind, rank as u32);
                }
            }
        }
    }

    /// Listens to a stream or not, as its state and that of the reader want it.
    fn listen_as_wanted(&mut self, ctx: &Context<'_>, kind: StreamKind, rank: u32) {
        let paused = self.paused;
        let stream = self.streams[rank as usize].stream_mut(kind);
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
                    &ctx.epoll,
                    pipe,
                    EpollToken::Output(kind, rank).pack(),
                    flags,
                );
            }
            Some((None, lying)) if reading && lying > 0 => self.resumed.push((kind, rank)),
            _ => {}
        }
    }

    /// Writes what is pending on one of our descriptors.
    pub fn flush(&mut self, ctx: &Context<'_>, kind: StreamKind) {
        self.flush_sink(ctx, kind as usize);
    }

    /// Writes pending output; stops reading from ranks while too much waits for a slow reader.
    fn flush_sink(&mut self, ctx: &Context<'_>, place: usize) {
        let sink = &mut self.sinks.all[place];
        let kind = sink.kind();
        if sink.pending_bytes() > 0 || sink.flush() == SinkState::Broken {
            match sink.flush() {
                SinkState::Free => drop(epoll::delete(&ctx.epoll, sink.fd())),
                SinkState::Pending => {
                    let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
                    let token = EpollToken::Sink(kind).pack();
                    if epoll::modify(&ctx.epoll, sink.fd(), token, flags).is_err() {
                        // A regular file cannot be watched, but it never has to be waited for
                        // either.
                        let _ = epoll::add(&ctx.epoll, sink.fd(), token, flags);
                    }
                }
                SinkState::Broken => self.note_loss(place),
            }
        }
        let full = self
            .sinks
            .iter()
            .any(|sink| sink.pending_bytes() > OUTPUT_PENDING_BYTES_MAX);
        if full != self.paused {
            self.paused = full;
            for rank in 0..self.streams.len() as u32 {
                self.listen_as_wanted(ctx, StreamKind::Out, rank);
                self.listen_as_wanted(ctx, StreamKind::Err, rank);
            }
            // Nobody could finish a line while nothing was read.
            self.sinks
                .iter_mut()
                .for_each(|sink| sink.pass_goes_on(None));
            let streams = self
                .streams
                .iter_mut()
                .flat_map(|slot| [&mut slot.out, &mut slot.err]);
            streams.for_each(RankStream::wait_anew);
        }
    }

    /// Shows unfinished lines that are due, and lets those go on that have waited for one long
    /// enough.
    pub fn output_due(&mut self, ctx: &Context<'_>, now: Instant) {
        for (slot, rank) in self.streams.iter_mut().zip(0..) {
            for kind in [StreamKind::Out, StreamKind::Err] {
                let stream = slot.stream_mut(kind);
                if !self.paused && stream.due().is_some_and(|due| due <= now) {
                    stream.show_part(self.sinks.of(kind, rank));
                }
            }
        }
        for place in 0..self.sinks.all.len() {
            self.settle_sinks(ctx, place);
            self.flush_sink(ctx, place);
        }
    }
}
