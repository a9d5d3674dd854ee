//! A collective access that goes through writers: each process hands its bytes of a window of the
//! file to the window's writer, which moves all of them with one call where they touch.
//!
//! Windows are taken in ascending order, one of each domain in a round. A round begins with a
//! meeting in which processes tell their next window and what failed, so all end after the same
//! round: that of the last window, or the first in which something failed. Windows that nobody
//! touches cost nothing.
//!
//! Whatever fails in a round at one process, it takes part in the round to its end.

#[cfg(test)]
mod tests;

use super::agreement::{Agreement, Waiting};
use super::coverage::Coverage;
use super::disk_work::DiskWorkers;
use super::plan::FileDomains;
use super::stripes::{Stripe, StripeCursor};
use super::transfer::{Direction, GapLock};
use crate::error::{Class, Error, Result};
use crate::p2p::{RecvArgs, SendArgs, SendMode};
use crate::request::{Request, Status};
use garonne_files::File as DiskFile;
use garonne_sync::user::{Data, Packed, Scratch, Strided, UserMem};
use std::ops::Range;
use std::sync::Arc;

/// Tags of the file's communicator, on which no other messages are.
const HEADER: i32 = 1;
const STRIPES: i32 = 2;
const BYTES: i32 = 3;
const ANSWER: i32 = 4;

const WORD: usize = size_of::<u64>();
/// Bytes of a stripe that is sent.
const STRIPE_BYTES: u64 = (Stripe::WORDS * WORD) as u64;
/// Bytes of a header: stripes, bytes, and the first stripe.
const HEADER_BYTES: u64 = 2 * WORD as u64 + STRIPE_BYTES;
/// Bytes of a header and an answer.
const SMALL_BYTES: u64 = HEADER_BYTES + WORD as u64;
/// Gaps up to here are read over: another call takes as long.
const GAP_BYTES: usize = 16 << 10;

/// Memory of a writer, which it keeps for the next access.
#[derive(Debug, Default)]
pub(super) struct GatherBuffers {
    window: Option<Scratch>,
    stage: Option<Scratch>,
    /// Stripes that another process tells.
    list: Option<Scratch>,
    /// Headers and answers, see [`Gathering::small`].
    small: Option<Scratch>,
    coverage: Coverage,
}

/// One collective access through writers, at one of its processes.
pub(super) struct Gathering<'a> {
    pub meeting: Agreement<'a>,
    pub disk: Arc<dyn DiskFile>,
    pub workers: &'a DiskWorkers,
    /// Others may write over gaps: writes take locks.
    pub locks: Option<GapLock>,
    pub domains: &'a FileDomains,
    pub direction: Direction,
    /// What this process touches.
    pub stripes: &'a [Stripe],
    /// Stripes that a process touches at most.
    pub stripes_max: u64,
    /// This process's memory.
    pub data: &'a Data,
    pub buffers: &'a mut GatherBuffers,
}

/// What one process touches of one window.
#[derive(Debug, Default)]
struct WindowPart {
    stripes: Vec<Stripe>,
    bytes: u64,
    /// Where its bytes are in the process's stream.
    position: u64,
}

impl WindowPart {
    /// The part of a cursor's process that lies before `end`.
    fn take(cursor: &mut StripeCursor<'_>, end: u64) -> Self {
        let (position, mut stripes) = (cursor.position(), Vec::new());
        cursor.pass(end, |stripe| stripes.push(stripe));
        Self {
            stripes,
            bytes: cursor.position() - position,
            position,
        }
    }

    /// Returns the part as one block, if it is.
    fn as_block(&self) -> Option<Range<u64>> {
        match self.stripes.as_slice() {
            [one] if one.count == 1 => Some(one.offset..one.end()),
            _ => None,
        }
    }

    /// Returns the bytes before an offset of the file.
    fn bytes_before(&self, end: u64) -> u64 {
        let mut cursor = StripeCursor::new(&self.stripes);
        cursor.pass(end, |_| {});
        cursor.position()
    }
}

/// A window's bytes in memory.
#[derive(Clone, Copy)]
struct StagedWindow<'a> {
    range: &'a Range<u64>,
    mem: UserMem,
}

impl StagedWindow<'_> {
    fn place(&self, stripe: Stripe) -> Strided {
        Strided {
            offset: (stripe.offset - self.range.start) as isize,
            block: stripe.len as usize,
            stride: stripe.stride as isize,
            count: stripe.count as usize,
        }
    }

    /// Moves the bytes of a part before `end` between the window and packed memory.
    fn copy(&self, part: &WindowPart, end: u64, packed: UserMem, direction: Direction) {
        let mut at = 0;
        StripeCursor::new(&part.stripes).pass(end, |stripe| {
            let bytes = stripe.bytes() as usize;
            let packed = Packed::new(packed.offset(at), bytes);
            match direction {
                Direction::Write => self.mem.scatter(self.place(stripe), packed),
                Direction::Read => self.mem.gather(self.place(stripe), packed),
            }
            at += bytes as isize;
        });
    }
}

/// Messages of a round that go on, and the memory that they use.
#[derive(Default)]
struct Pending {
    requests: Vec<Request>,
    memory: Vec<Scratch>,
}

impl Pending {
    /// Waits for all, and returns the first error.
    async fn finish(self, meeting: Agreement<'_>) -> Result<()> {
        let mut outcome = Ok(());
        for one in &self.requests {
            let ended = meeting.settle(one).await;
            outcome = outcome.and(ended.map(drop));
        }
        outcome
    }
}

/// What a process reads from another's domain.
struct Awaited {
    part: WindowPart,
    /// Where the bytes come, if not in the program's memory.
    packed: Option<Scratch>,
    answer: UserMem,
}

/// Memory of the small messages between two processes.
#[derive(Clone, Copy)]
struct Small {
    header: UserMem,
    answer: UserMem,
}

fn scratch(bytes: usize) -> Result<Scratch> {
    Scratch::new(bytes).ok_or_else(|| {
        let text = format!("no memory is left for {bytes} bytes of a collective access");
        Error::new(Class::NoMem, text)
    })
}

/// Returns memory of at least so many bytes, that which is there if it is enough.
fn at_least(memory: &mut Option<Scratch>, bytes: u64) -> Result<UserMem> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    match memory {
        Some(known) if known.len() >= bytes => Ok(known.mem()),
        _ => {
            *memory = None;
            Ok(memory.insert(scratch(bytes)?).mem())
        }
    }
}

#[cold]
fn unprepared() -> Error {
    let text = "a collective access has no memory that was taken before";
    Error::new(Class::Intern, text)
}

#[cold]
fn senseless(rank: u32) -> Error {
    let text = format!("rank {rank} describes its part of a collective access wrongly");
    Error::new(Class::Intern, text)
}

impl<'a> Gathering<'a> {
    /// Carries the access out; returns the bytes of this process that were moved.
    ///
    /// # Errors
    /// What failed first, at all processes if at one.
    pub async fn run(&mut self) -> Result<u64> {
        let mut cursors = self.cursors();
        let mut moved = self.data.len;
        let mut outcome = self.make_room();
        loop {
            let next = (0..).zip(&cursors).filter_map(|(domain, cursor)| {
                let piece = self.piece_at(cursor.next_offset()?)?;
                (piece.0 == domain).then_some(piece.1)
            });
            let next = next.min().unwrap_or(u64::MAX);
            let met = self.meeting.agree_and(outcome, [!next]).await;
            let ((), [window]) = met.inspect_err(|error| self.release(error))?;
            if window == 0 {
                return Ok(moved);
            }
            outcome = self.round(!window, &mut cursors, &mut moved).await;
        }
    }

    /// Ends the waits of others for a process that is not there: not all may have met its death in
    /// the same meeting.
    fn release(&self, error: &Error) {
        if error.class == Class::ProcFailed {
            // Where that is not possible, a death ends the job.
            let _ = self.meeting.comm.revoke();
        }
    }

    /// The domain and the window of a byte.
    fn piece_at(&self, offset: u64) -> Option<(u32, u64)> {
        let mut pieces = self.domains.pieces_of_run(offset..offset + 1, 0);
        pieces.next().map(|piece| (piece.domain, piece.window))
    }

    /// A cursor for each domain, at its beginning.
    fn cursors(&self) -> Vec<StripeCursor<'a>> {
        let domains = 0..self.domains.writers().len() as u32;
        let mut cursor = StripeCursor::new(self.stripes);
        domains
            .map(|domain| {
                cursor.pass(self.domains.range(domain).start, |_| {});
                cursor.clone()
            })
            .collect()
    }

    /// Takes the memory that the windows of this process need.
    fn make_room(&mut self) -> Result<()> {
        let domains = self.domains.writers().len() as u64 + 1;
        at_least(&mut self.buffers.small, domains * SMALL_BYTES)?;
        if self.domains.domain_of_rank(self.rank()).is_some() {
            let bytes = self.domains.window_bytes();
            at_least(&mut self.buffers.window, bytes)?;
            at_least(&mut self.buffers.stage, bytes)?;
            // A window cuts at most two stripes.
            let stripes = (self.stripes_max + 2).min(bytes);
            at_least(&mut self.buffers.list, stripes * STRIPE_BYTES)?;
        }
        Ok(())
    }

    /// Memory for a header and an answer: of each domain, and of what others send to this process.
    fn small(&self, place: usize) -> Result<Small> {
        let all = self.buffers.small.as_ref().ok_or_else(unprepared)?;
        let header = all.mem().offset((place as u64 * SMALL_BYTES) as isize);
        let answer = header.offset(HEADER_BYTES as isize);
        Ok(Small { header, answer })
    }

    fn rank(&self) -> u32 {
        self.meeting.comm.rank()
    }

    fn send(&self, to: u32, tag: i32, mem: UserMem, bytes: u64) -> Result<Request> {
        self.meeting.told(self.meeting.comm.begin_send(SendArgs {
            data: Data::contiguous(mem, bytes),
            dest: to as i32,
            tag,
            mode: SendMode::Standard,
            origin: self.meeting.origin,
        }))
    }

    fn recv_args(&self, from: u32, tag: i32, mem: UserMem, bytes: u64) -> RecvArgs {
        RecvArgs {
            data: Data::contiguous(mem, bytes),
            source: from as i32,
            tag,
            origin: self.meeting.origin,
        }
    }

    async fn recv(&self, from: u32, tag: i32, mem: UserMem, bytes: u64) -> Result<Status> {
        let args = self.recv_args(from, tag, mem, bytes);
        match self.meeting.waiting {
            Waiting::InCall => self.meeting.told(self.meeting.comm.recv(args)),
            Waiting::InBackground => {
                let begun = self.meeting.told(self.meeting.comm.begin_recv(args))?;
                self.meeting.settle(&begun).await
            }
        }
    }

    /// One window of each domain.
    async fn round(
        &mut self,
        window: u64,
        cursors: &mut [StripeCursor<'_>],
        moved: &mut u64,
    ) -> Result<()> {
        let (mut pending, mut awaited) = (Pending::default(), Vec::new());
        let mut outcome = Ok(());
        let mut own = None;
        for (domain, cursor) in (0u32..).zip(cursors) {
            if window >= self.domains.windows(domain) {
                continue;
            }
            let range = self.domains.window_range(domain, window);
            let part = WindowPart::take(cursor, range.end);
            let place = domain as usize;
            let writer = self.domains.writers()[place];
            if writer == self.rank() {
                own = Some((range, part));
                continue;
            }
            let told = self.tell((writer, place), part, &mut pending);
            outcome = outcome.and(told.map(|more| awaited.extend(more)));
        }
        if let Some((range, part)) = own {
            let done = match self.direction {
                Direction::Write => self.write_window(&range, &part).await,
                Direction::Read => self.read_window(&range, &part, moved).await,
            };
            outcome = outcome.and(done);
        }
        let ended = pending.finish(self.meeting).await;
        outcome = outcome.and(ended);
        if outcome.is_ok() {
            for one in awaited {
                self.take_answer(&one, moved);
            }
        }
        outcome
    }

    /// Tells a writer what this process touches of its window, and sends or awaits the bytes.
    fn tell(
        &self,
        (writer, place): (u32, usize),
        mut part: WindowPart,
        pending: &mut Pending,
    ) -> Result<Option<Awaited>> {
        let Small { header, answer } = self.small(place)?;
        // Without memory for its bytes the process tells that it has none, and the error later.
        let room = self.room_to_tell(&part);
        if room.is_err() {
            part = WindowPart::default();
        }
        let first = part.stripes.first().map(|first| first.to_words());
        write_words(header, &[part.stripes.len() as u64, part.bytes]);
        let first = first.unwrap_or([0; Stripe::WORDS]);
        write_words(header.offset(2 * WORD as isize), &first);
        pending
            .requests
            .push(self.send(writer, HEADER, header, HEADER_BYTES)?);
        let (packed, list) = room?;
        if part.bytes == 0 {
            return Ok(None);
        }
        if let Some(list) = list {
            for (stripe, at) in part
                .stripes
                .iter()
                .zip((0..).step_by(STRIPE_BYTES as usize))
            {
                write_words(list.mem().offset(at), &stripe.to_words());
            }
            let sent = self.send(writer, STRIPES, list.mem(), list.len() as u64);
            pending.memory.push(list);
            pending.requests.push(sent?);
        }
        let mem = match &packed {
            Some(packed) => packed.mem(),
            None => self.data.mem.offset(part.position as isize),
        };
        match self.direction {
            Direction::Write => {
                if let Some(packed) = packed {
                    let bytes = Packed::new(mem, part.bytes as usize);
                    self.data.pack_to(part.position, bytes);
                    pending.memory.push(packed);
                }
                let sent = self.send(writer, BYTES, mem, part.bytes)?;
                pending.requests.push(sent);
                Ok(None)
            }
            Direction::Read => {
                let comm = self.meeting.comm;
                let got = self.recv_args(writer, ANSWER, answer, WORD as u64);
                pending.requests.push(comm.begin_recv(got)?);
                let bytes = self.recv_args(writer, BYTES, mem, part.bytes);
                pending.requests.push(comm.begin_recv(bytes)?);
                Ok(Some(Awaited {
                    part,
                    packed,
                    answer,
                }))
            }
        }
    }

    /// Memory for bytes that are not packed, and for stripes that do not fit a header.
    fn room_to_tell(&self, part: &WindowPart) -> Result<(Option<Scratch>, Option<Scratch>)> {
        let packs = self.data.layout.is_some() && part.bytes > 0;
        let packed = packs.then(|| scratch(part.bytes as usize)).transpose()?;
        let several = part.stripes.len() > 1;
        let list = several.then(|| scratch(part.stripes.len() * STRIPE_BYTES as usize));
        Ok((packed, list.transpose()?))
    }

    /// Takes bytes that came from another's domain.
    fn take_answer(&self, awaited: &Awaited, moved: &mut u64) {
        let part = &awaited.part;
        let got = u64::from_ne_bytes(awaited.answer.read_array(0)).min(part.bytes);
        if let Some(packed) = &awaited.packed {
            let bytes = Packed::new(packed.mem(), got as usize);
            self.data.unpack_from(part.position, bytes);
        }
        if got < part.bytes {
            *moved = (*moved).min(part.position + got);
        }
    }

    /// Receives what a process touches of the window.
    async fn hear(&self, rank: u32, range: &Range<u64>) -> Result<WindowPart> {
        let Small { header, .. } = self.small(self.domains.writers().len())?;
        self.recv(rank, HEADER, header, HEADER_BYTES).await?;
        let word = |mem: UserMem, index: usize| {
            u64::from_ne_bytes(mem.read_array((index * WORD) as isize))
        };
        let stripe = |mem: UserMem, at: usize| {
            let words = std::array::from_fn(|index| word(mem, at + index));
            Stripe::from_words(words, range).ok_or_else(|| senseless(rank))
        };
        let (count, bytes) = (word(header, 0), word(header, 1));
        let longest = range.end - range.start;
        if count > bytes || bytes > longest || (count == 0) != (bytes == 0) {
            return Err(senseless(rank));
        }
        let stripes: Vec<Stripe> = match count as usize {
            0 => Vec::new(),
            1 => vec![stripe(header, 2)?],
            several => {
                let bytes = several * STRIPE_BYTES as usize;
                let list = self.buffers.list.as_ref();
                let list = list.filter(|list| list.len() >= bytes);
                let list = list.ok_or_else(|| senseless(rank))?;
                self.recv(rank, STRIPES, list.mem(), bytes as u64).await?;
                let all = (0..several).map(|index| stripe(list.mem(), index * Stripe::WORDS));
                all.collect::<Result<_>>()?
            }
        };
        let told = stripes.iter().try_fold(0u64, |sum, one| {
            one.len.checked_mul(one.count)?.checked_add(sum)
        });
        match told == Some(bytes) {
            true => Ok(WindowPart {
                stripes,
                bytes,
                position: 0,
            }),
            false => Err(senseless(rank)),
        }
    }

    /// Memory of a window, and memory for bytes on their way.
    fn room(&mut self, range: &Range<u64>) -> Result<(UserMem, UserMem)> {
        let bytes = range.end - range.start;
        let window = at_least(&mut self.buffers.window, bytes)?;
        Ok((window, at_least(&mut self.buffers.stage, bytes)?))
    }

    fn mark(&mut self, range: &Range<u64>, part: &WindowPart) {
        for block in part.stripes.iter().flat_map(Stripe::blocks) {
            let [from, to] = [block.start, block.end].map(|at| (at - range.start) as usize);
            self.buffers.coverage.mark(from..to);
        }
    }

    /// Gathers all processes' bytes of a window, and writes them.
    async fn write_window(&mut self, range: &Range<u64>, own: &WindowPart) -> Result<()> {
        let (mem, stage) = self.room(range)?;
        let window = StagedWindow { range, mem };
        self.buffers
            .coverage
            .clear((range.end - range.start) as usize);
        let mut outcome = Ok(());
        for rank in 0..self.meeting.comm.size() {
            let taken = match rank == self.rank() {
                true => {
                    self.own_bytes(window, own, (u64::MAX, stage));
                    self.mark(range, own);
                    Ok(())
                }
                false => self.take_part(rank, window, stage).await,
            };
            outcome = outcome.and(taken);
        }
        outcome?;
        let pieces: Vec<_> = self.buffers.coverage.ranges().collect();
        let (disk, start, all) = (self.disk.clone(), range.start, range.clone());
        let locks = self.locks.clone();
        let write = move || {
            let write = || {
                let mut pieces = pieces.iter().map(|bytes| {
                    let from = Packed::new(mem.offset(bytes.start as isize), bytes.len());
                    disk.write_at(start + bytes.start as u64, from)
                });
                let outcome = pieces.try_for_each(|written| written.map_err(|failed| failed.error));
                outcome.map_err(Error::from)
            };
            Some(match &locks {
                Some(gap_lock) => gap_lock.hold(&*disk, &all, write),
                None => write(),
            })
        };
        self.workers.run(range.end - range.start, write).await
    }

    /// Moves this process's bytes before `end` between its memory and the window.
    fn own_bytes(&self, window: StagedWindow<'_>, part: &WindowPart, (end, stage): (u64, UserMem)) {
        let bytes = Packed::new(stage, part.bytes_before(end) as usize);
        match (&self.data.layout, self.direction) {
            (None, direction) => {
                let mem = self.data.mem.offset(part.position as isize);
                window.copy(part, end, mem, direction);
            }
            (Some(_), Direction::Write) => {
                self.data.pack_to(part.position, bytes);
                window.copy(part, end, stage, Direction::Write);
            }
            (Some(_), Direction::Read) => {
                window.copy(part, end, stage, Direction::Read);
                self.data.unpack_from(part.position, bytes);
            }
        }
    }

    /// Receives another process's bytes of the window.
    async fn take_part(
        &mut self,
        rank: u32,
        window: StagedWindow<'_>,
        stage: UserMem,
    ) -> Result<()> {
        let part = self.hear(rank, window.range).await?;
        if part.bytes == 0 {
            return Ok(());
        }
        match part.as_block() {
            Some(block) => {
                let at = (block.start - window.range.start) as isize;
                self.recv(rank, BYTES, window.mem.offset(at), part.bytes)
                    .await?;
            }
            None => {
                self.recv(rank, BYTES, stage, part.bytes).await?;
                window.copy(&part, u64::MAX, stage, Direction::Write);
            }
        }
        self.mark(window.range, &part);
        Ok(())
    }

    /// Reads a window, and gives all processes their bytes of it.
    async fn read_window(
        &mut self,
        range: &Range<u64>,
        own: &WindowPart,
        moved: &mut u64,
    ) -> Result<()> {
        let (mem, stage) = self.room(range)?;
        let window = StagedWindow { range, mem };
        self.buffers
            .coverage
            .clear((range.end - range.start) as usize);
        self.mark(range, own);
        let (mut outcome, mut others) = (Ok(()), Vec::new());
        let me = self.rank();
        for rank in (0..self.meeting.comm.size()).filter(|rank| *rank != me) {
            match self.hear(rank, range).await {
                Ok(part) => {
                    self.mark(range, &part);
                    others.push((rank, part));
                }
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        let (end, read) = self.fill(window).await;
        outcome = outcome.and(read);
        for (rank, part) in others.iter().filter(|(_, part)| part.bytes > 0) {
            let answered = self.answer(*rank, part, window, (end, stage)).await;
            outcome = outcome.and(answered);
        }
        let got = own.bytes_before(end);
        self.own_bytes(window, own, (end, stage));
        if got < own.bytes {
            *moved = (*moved).min(own.position + got);
        }
        outcome
    }

    /// Reads what is wanted of a window; returns where the file ends or fails, if it does.
    async fn fill(&self, window: StagedWindow<'_>) -> (u64, Result<()>) {
        let mut pieces: Vec<Range<usize>> = Vec::new();
        for range in self.buffers.coverage.ranges() {
            match pieces.last_mut() {
                Some(last) if range.start - last.end <= GAP_BYTES => last.end = range.end,
                _ => pieces.push(range),
            }
        }
        let (disk, start, mem) = (self.disk.clone(), window.range.start, window.mem);
        let read = move || {
            for range in &pieces {
                let from = start + range.start as u64;
                let into = Packed::new(mem.offset(range.start as isize), range.len());
                match disk.read_at(from, into) {
                    Ok(got) if got == range.len() as u64 => {}
                    Ok(got) => return Some((from + got, Ok(()))),
                    Err(failed) => return Some((from + failed.done, Err(failed.error.into()))),
                }
            }
            Some((u64::MAX, Ok(())))
        };
        let bytes = window.range.end - window.range.start;
        self.workers.run(bytes, read).await
    }

    /// Sends a process its bytes of the window before `end`.
    async fn answer(
        &self,
        rank: u32,
        part: &WindowPart,
        window: StagedWindow<'_>,
        (end, stage): (u64, UserMem),
    ) -> Result<()> {
        let got = part.bytes_before(end);
        let Small { answer, .. } = self.small(self.domains.writers().len())?;
        write_words(answer, &[got]);
        let told = self.send(rank, ANSWER, answer, WORD as u64)?;
        let mem = match part.as_block() {
            Some(block) => window
                .mem
                .offset((block.start - window.range.start) as isize),
            None => {
                window.copy(part, end, stage, Direction::Read);
                stage
            }
        };
        let sent = self.send(rank, BYTES, mem, got);
        let told = self.meeting.settle(&told).await;
        let sent = self.meeting.settle(&sent?).await;
        told.and(sent).map(drop)
    }
}

fn write_words(mem: UserMem, words: &[u64]) {
    for (index, word) in words.iter().enumerate() {
        mem.write_array((index * WORD) as isize, word.to_ne_bytes());
    }
}
