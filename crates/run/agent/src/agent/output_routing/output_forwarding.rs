//! Output of the ranks of another host than the launcher's, on its way to the first agent.
//!
//! What ranks write goes there as it is, within a window for each stream. The beginning of a line
//! waits for its end, since what arrives in two parts may look like a rank that pauses.

use std::time::Instant;

use rustix::event::epoll;

use super::super::EpollToken;
use super::super::context::Context;
use super::super::output::StreamKind;
use super::super::root_role::output_stream;
use super::Output;
use garonne_job::agent_messages::AgentReport;
use garonne_job::limits::{DRAIN_READS, PARTIAL_LINE_WAIT, REMOTE_WINDOW};

/// The beginning of a line that a rank has not ended yet. It travels with its end, since what
/// arrives in two parts may look like a rank that pauses.
#[derive(Debug, Default)]
pub(super) struct UnfinishedLine {
    bytes: Vec<u8>,
    since: Option<Instant>,
}

impl UnfinishedLine {
    /// Adds what was read and gives what is to be sent: whole lines, or everything if it is the
    /// last or long already. Nothing read is the end.
    fn take(&mut self, read: &[u8], everything: bool) -> Option<Vec<u8>> {
        self.bytes.extend_from_slice(read);
        let whole = self
            .bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if everything || read.is_empty() || (whole == 0 && self.bytes.len() >= REMOTE_WINDOW / 4) {
            return self.take_all();
        }
        let rest = self.bytes.split_off(whole);
        let lines = std::mem::replace(&mut self.bytes, rest);
        self.since = (!self.bytes.is_empty()).then(|| {
            self.since
                .filter(|_| lines.is_empty())
                .unwrap_or_else(Instant::now)
        });
        (!lines.is_empty()).then_some(lines)
    }

    /// There was no room for more: its end may have been there all the time.
    pub fn wait_anew(&mut self) {
        self.since = self.since.map(|_| Instant::now());
    }

    fn take_all(&mut self) -> Option<Vec<u8>> {
        self.since = None;
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl Output {
    /// Passes on what a rank has written, as far as there is room for it, or all as last words.
    pub(super) fn forward(
        &mut self,
        ctx: &mut Context<'_>,
        kind: StreamKind,
        rank: u32,
        last_words: bool,
    ) {
        let mut buffer = [0; 16 * 1024];
        for _ in 0..8 {
            let slot = &mut self.streams[rank as usize];
            let room = match last_words {
                true => buffer.len(),
                false => slot.credit[output_stream(kind) as usize].min(buffer.len()),
            };
            let stream = slot.stream_mut(kind);
            let Some(source) = &mut stream.source else {
                break;
            };
            if room == 0 {
                break;
            }
            let got = match source.read(&mut buffer[..room]) {
                Ok(got) => got,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(_) => 0,
            };
            if got == 0 {
                if let Some(pipe) = source.pipe() {
                    let _ = epoll::delete(&ctx.epoll, pipe);
                }
                stream.source = None;
            }
            let place = output_stream(kind) as usize;
            slot.credit[place] = slot.credit[place].saturating_sub(got);
            if let Some(bytes) = slot.unfinished[place].take(&buffer[..got], last_words) {
                ctx.report(&AgentReport::Output(rank, output_stream(kind), bytes));
            }
            if got == 0 {
                ctx.report(&AgentReport::Output(rank, output_stream(kind), Vec::new()));
            }
        }
        let slot = &mut self.streams[rank as usize];
        let reading = slot.credit[output_stream(kind) as usize] > 0;
        let stream = slot.stream_mut(kind);
        if reading != stream.reading {
            stream.reading = reading;
            let flags = match reading {
                true => epoll::EventFlags::IN,
                false => epoll::EventFlags::empty(),
            };
            if let Some(pipe) = stream.source.as_ref().and_then(|source| source.pipe()) {
                let _ = epoll::modify(
                    &ctx.epoll,
                    pipe,
                    EpollToken::Output(kind, rank).pack(),
                    flags,
                );
            }
        }
    }

    /// All that a rank has written so far.
    pub(super) fn forward_all(&mut self, ctx: &mut Context<'_>, rank: u32) {
        for kind in [StreamKind::Out, StreamKind::Err] {
            (0..DRAIN_READS).for_each(|_| self.forward(ctx, kind, rank, true));
            self.forward_unfinished(ctx, kind, rank);
        }
    }

    /// The beginning of a line that has waited long enough for its end.
    fn forward_unfinished(&mut self, ctx: &mut Context<'_>, kind: StreamKind, rank: u32) {
        let tail = &mut self.streams[rank as usize].unfinished[output_stream(kind) as usize];
        if let Some(bytes) = tail.take_all() {
            ctx.report(&AgentReport::Output(rank, output_stream(kind), bytes));
        }
    }

    /// When an unfinished line is to be passed on.
    pub(super) fn unfinished_due(&self) -> Option<Instant> {
        let tails = self
            .streams
            .iter()
            .flat_map(|slot| slot.unfinished.iter().zip(slot.credit));
        tails
            .filter_map(|(tail, room)| tail.since.filter(|_| room > 0))
            .min()
            .map(|since| since + PARTIAL_LINE_WAIT)
    }

    /// Passes on those that are due.
    pub fn check_unfinished(&mut self, ctx: &mut Context<'_>, now: Instant) {
        for rank in 0..self.streams.len() as u32 {
            for kind in [StreamKind::Out, StreamKind::Err] {
                let (slot, place) = (&self.streams[rank as usize], output_stream(kind) as usize);
                let since = slot.unfinished[place]
                    .since
                    .filter(|_| slot.credit[place] > 0);
                if since.is_some_and(|since| since + PARTIAL_LINE_WAIT <= now) {
                    self.forward_unfinished(ctx, kind, rank);
                }
            }
        }
    }

    /// Lets more of a stream of this host be sent to the first agent.
    pub fn add_credit(
        &mut self,
        ctx: &mut Context<'_>,
        (kind, rank): (StreamKind, u32),
        bytes: usize,
    ) {
        let (slot, place) = (
            &mut self.streams[rank as usize],
            output_stream(kind) as usize,
        );
        slot.credit[place] = (slot.credit[place] + bytes).min(REMOTE_WINDOW);
        slot.unfinished[place].wait_anew();
        self.forward(ctx, kind, rank, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_travel_whole_and_what_has_no_end_travels_when_it_is_long_or_the_last() {
        let mut tail = UnfinishedLine::default();
        assert_eq!(tail.take(b"a", false), None);
        assert!(tail.since.is_some());
        assert_eq!(tail.take(b"b\nc", false).unwrap(), b"ab\n");
        assert_eq!(tail.take(b"", false).unwrap(), b"c");
        assert_eq!((tail.take(b"", false), tail.since), (None, None));
        assert_eq!(tail.take(b"d", true).unwrap(), b"d");
        assert_eq!(
            tail.take(&[b'x'; REMOTE_WINDOW / 4], false).unwrap().len(),
            REMOTE_WINDOW / 4
        );
    }
}
