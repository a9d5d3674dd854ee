//! The launcher's standard input on its way to ranks that cannot read it themselves: one of another
//! host, or all.
//!
//! The first agent reads it when there is some and as much as fits the window ([`REMOTE_WINDOW`]).
//! The agent of each host with readers writes it to a pipe for each of them, and tells how much the
//! slowest has taken. Nothing blocks. A rank that closes its input is left out. A rank of the
//! launcher's own host that reads alone reads the launcher's input itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use super::EpollToken;
use super::context::Context;
use garonne_job::agent_messages::{AgentCommand, AgentReport};
use garonne_job::job::StdinReaders;
use garonne_job::limits::REMOTE_WINDOW;

/// State of the launcher's standard input at one agent.
///
/// Owned by the agent. [`open_stdin_pipe`](Self::open_stdin_pipe) comes before a rank starts,
/// [`open_stdin`](Self::open_stdin) once all ranks have, at the first agent. Then input is read and
/// written as the epoll tells.
#[derive(Debug, Default)]
pub(super) struct StdinForwarder {
    /// At the first agent, by node with readers: bytes on their way.
    under_way: BTreeMap<u32, usize>,
    state: StdinState,
    /// The pipes of this host's readers.
    feed: LocalReaders,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StdinState {
    /// Nobody needs to have it passed on, or it has ended.
    #[default]
    Over,
    /// The epoll tells of it.
    Watched,
    /// A file, of which no epoll tells: there is always something, or its end.
    File,
}

/// The pipes of a host's readers, and what they have not all taken.
#[derive(Debug, Default)]
struct LocalReaders {
    readers: Vec<StdinReader>,
    /// Bytes that some reader has not taken, in order.
    waiting: VecDeque<u8>,
    ended: bool,
}

#[derive(Debug)]
struct StdinReader {
    pipe: OwnedFd,
    /// How many of the waiting bytes its pipe has taken.
    taken: usize,
    watched: bool,
}

impl StdinForwarder {
    /// Returns whether a rank of this host reads the launcher's input by a pipe of this agent's.
    fn reads_stdin(ctx: &Context<'_>, rank: u32) -> bool {
        ctx.job.stdin.is_read_by(rank) && (ctx.is_child() || ctx.job.stdin == StdinReaders::All)
    }

    /// The nodes with ranks that read standard input by a pipe.
    fn stdin_nodes(ctx: &Context<'_>) -> BTreeSet<u32> {
        let ranks = 0..ctx.job.size();
        match ctx.job.stdin {
            StdinReaders::All => ranks.map(|rank| ctx.job.nodes.of(rank)).collect(),
            StdinReaders::Rank(rank) => {
                let node = ctx.job.nodes.of(rank);
                (node != 0).then_some(node).into_iter().collect()
            }
            StdinReaders::Nobody => BTreeSet::new(),
        }
    }

    /// The pipe through which a rank of this host gets standard input, if it is to. Returns its
    /// reading end.
    pub fn open_stdin_pipe(&mut self, ctx: &Context<'_>, rank: u32) -> Option<OwnedFd> {
        if !Self::reads_stdin(ctx, rank) {
            return None;
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        rustix::fs::fcntl_setfl(write.as_fd(), rustix::fs::OFlags::NONBLOCK).ok()?;
        let _ = epoll::add(
            &ctx.epoll,
            &write,
            EpollToken::StdinPipe.pack(),
            epoll::EventFlags::empty(),
        );
        self.feed.readers.push(StdinReader {
            pipe: write,
            taken: 0,
            watched: false,
        });
        Some(read)
    }

    /// At the first agent: begins to pass standard input on, if it is to.
    pub fn open_stdin(&mut self, ctx: &mut Context<'_>) {
        if ctx.is_child() || ctx.is_adopted {
            return;
        }
        self.under_way = Self::stdin_nodes(ctx)
            .into_iter()
            .map(|node| (node, 0))
            .collect();
        if self.under_way.is_empty() {
            return;
        }
        let watched = epoll::add(
            &ctx.epoll,
            rustix::stdio::stdin(),
            EpollToken::Stdin.pack(),
            epoll::EventFlags::IN,
        );
        match watched {
            Ok(()) => self.state = StdinState::Watched,
            Err(_) => {
                self.state = StdinState::File;
                self.read_stdin(ctx);
            }
        }
    }

    /// There is some standard input, or its end.
    pub fn read_stdin(&mut self, ctx: &mut Context<'_>) {
        loop {
            let under_way = self.under_way.values().max().copied().unwrap_or(0);
            let room = REMOTE_WINDOW - under_way.min(REMOTE_WINDOW);
            if self.state == StdinState::Over || room == 0 {
                return self.watch_stdin(ctx);
            }
            let mut buffer = vec![0; room.min(REMOTE_WINDOW / 4)];
            let got = match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
                Ok(got) => got,
                Err(Errno::INTR | Errno::AGAIN) => return,
                Err(_) => 0,
            };
            buffer.truncate(got);
            let watched = self.state == StdinState::Watched;
            if got == 0 {
                self.state = StdinState::Over;
                if watched {
                    let _ = epoll::delete(&ctx.epoll, rustix::stdio::stdin());
                }
            }
            self.forward_stdin(ctx, buffer);
            // More of what can be watched may not be there: a read would block.
            if watched || got == 0 {
                return self.watch_stdin(ctx);
            }
        }
    }

    /// Hands some standard input, or with no bytes its end, to each node with readers.
    fn forward_stdin(&mut self, ctx: &mut Context<'_>, bytes: Vec<u8>) {
        let nodes: Vec<u32> = self.under_way.keys().copied().collect();
        for under_way in self.under_way.values_mut() {
            *under_way += bytes.len();
        }
        for node in &nodes {
            if *node != ctx.node {
                ctx.command(*node, &AgentCommand::Input(bytes.clone()));
            }
        }
        if nodes.contains(&ctx.node) {
            self.feed.add(&bytes);
            let taken = self.feed.push(&ctx.epoll);
            self.let_go(ctx.node, taken);
        }
    }

    fn watch_stdin(&mut self, ctx: &Context<'_>) {
        if self.state == StdinState::Watched {
            let is_full = self.under_way.values().any(|bytes| *bytes >= REMOTE_WINDOW);
            let flags = match is_full {
                false => epoll::EventFlags::IN,
                true => epoll::EventFlags::empty(),
            };
            let _ = epoll::modify(
                &ctx.epoll,
                rustix::stdio::stdin(),
                EpollToken::Stdin.pack(),
                flags,
            );
        }
    }

    /// All readers of a node have taken so much.
    pub fn stdin_taken(&mut self, ctx: &mut Context<'_>, node: u32, bytes: u32) {
        self.let_go(node, bytes as usize);
        match self.state {
            StdinState::File => self.read_stdin(ctx),
            _ => self.watch_stdin(ctx),
        }
    }

    /// Standard input for ranks of this host; empty: its end.
    pub fn write_stdin(&mut self, ctx: &mut Context<'_>, bytes: &[u8]) {
        self.feed.add(bytes);
        self.flush_stdin_pipes(ctx);
    }

    /// Writes it as far as the ranks take it.
    pub fn flush_stdin_pipes(&mut self, ctx: &mut Context<'_>) {
        let taken = self.feed.push(&ctx.epoll) as u32;
        if taken == 0 {
            return;
        }
        match ctx.is_child() {
            true => ctx.report(&AgentReport::StdinTaken(taken)),
            false => self.stdin_taken(ctx, ctx.node, taken),
        }
    }
}

impl StdinForwarder {
    fn let_go(&mut self, node: u32, bytes: usize) {
        if let Some(under_way) = self.under_way.get_mut(&node) {
            *under_way = under_way.saturating_sub(bytes);
        }
    }
}

impl LocalReaders {
    /// More for the readers; nothing: there is no more.
    fn add(&mut self, bytes: &[u8]) {
        self.waiting.extend(bytes);
        self.ended |= bytes.is_empty();
    }

    /// Writes what the pipes take, and returns how much all of them have taken now that they had
    /// not.
    fn push(&mut self, epoll: &OwnedFd) -> usize {
        let (waiting, ended) = (&self.waiting, self.ended);
        self.readers
            .retain_mut(|reader| reader.push(waiting) && !(ended && reader.taken == waiting.len()));
        for reader in &mut self.readers {
            reader.watch(reader.taken < waiting.len(), epoll);
        }
        // Without readers what is left is nobody's.
        let taken = self.readers.iter().map(|reader| reader.taken).min();
        let taken = taken.unwrap_or(waiting.len());
        self.waiting.drain(..taken);
        self.readers
            .iter_mut()
            .for_each(|reader| reader.taken -= taken);
        taken
    }
}

impl StdinReader {
    /// Writes what the pipe takes of the bytes that wait. `false`: its rank does not read any more.
    fn push(&mut self, waiting: &VecDeque<u8>) -> bool {
        let (front, back) = waiting.as_slices();
        while self.taken < waiting.len() {
            let rest = match self.taken < front.len() {
                true => &front[self.taken..],
                false => &back[self.taken - front.len()..],
            };
            match rustix::io::write(&self.pipe, rest) {
                Ok(n) => self.taken += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
        true
    }

    fn watch(&mut self, wanted: bool, epoll: &OwnedFd) {
        if wanted != self.watched {
            self.watched = wanted;
            let flags = match wanted {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::empty(),
            };
            let _ = epoll::modify(epoll, &self.pipe, EpollToken::StdinPipe.pack(), flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader() -> (OwnedFd, StdinReader) {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        for fd in [&read, &write] {
            rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK).unwrap();
        }
        let reader = StdinReader {
            pipe: write,
            taken: 0,
            watched: false,
        };
        (read, reader)
    }

    /// Everything that lies in a pipe.
    fn all(read: &OwnedFd) -> Vec<u8> {
        let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(n @ 1..) = rustix::io::read(read, &mut buffer) {
            all.extend(&buffer[..n]);
        }
        all
    }

    #[test]
    fn every_reader_gets_all_bytes_in_order_and_the_slowest_sets_the_pace() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let ((quick, one), (slow, two)) = (reader(), reader());
        let mut feed = LocalReaders {
            readers: vec![one, two],
            ..LocalReaders::default()
        };
        let sent: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        let (mut told, mut got) = (0, [Vec::new(), Vec::new()]);
        for part in sent.chunks(10_000) {
            feed.add(part);
            told += feed.push(&epoll);
            got[0].extend(all(&quick));
        }
        assert_eq!(
            got[0], sent,
            "a reader that reads is not held back by this agent"
        );
        assert!(
            told <= 65_536 && told > 0,
            "{told}: as much as a pipe holds"
        );
        feed.add(&[]);
        while !feed.readers.is_empty() {
            got[1].extend(all(&slow));
            told += feed.push(&epoll);
        }
        got[1].extend(all(&slow));
        assert!(got[1] == sent && told == sent.len(), "{told}");
    }

    #[test]
    fn readers_that_are_gone_are_left_out() {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
        let (read, one) = reader();
        let mut feed = LocalReaders {
            readers: vec![one],
            ..LocalReaders::default()
        };
        drop(read);
        feed.add(b"abc");
        assert_eq!((feed.push(&epoll), feed.readers.len()), (3, 0));
        feed.add(b"d");
        assert_eq!(feed.push(&epoll), 1, "nobody's");
    }
}
