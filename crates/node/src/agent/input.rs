//! The launcher's standard input on its way to a rank of another host.
//!
//! The first agent reads it when there is some and as much as fits the window ([`FAR_WINDOW`]); the rank's agent writes it to a pipe and tells how much the
//! rank's end took. Nothing blocks. A rank of the launcher's own host reads the launcher's input itself.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use rustix::event::epoll;
use rustix::io::Errno;

use super::{Agent, Token};
use crate::job::Stdin;
use crate::limits::FAR_WINDOW;
use crate::orders::{Order, Report};

/// The first agent's side.
#[derive(Debug, Default)]
pub(super) struct Input {
    /// Bytes on their way.
    under_way: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Nobody elsewhere reads it, or it has ended.
    #[default]
    Over,
    /// The epoll tells of it.
    Watched,
    /// A file, of which no epoll tells: there is always something, or its end.
    File,
}

/// The side of the rank's agent.
#[derive(Debug)]
pub(super) struct Feed {
    pipe: OwnedFd,
    waiting: VecDeque<u8>,
    ended: bool,
    watched: bool,
}

impl Agent<'_> {
    /// The node of the rank that reads standard input, if that is another one.
    fn reader_elsewhere(&self) -> Option<u32> {
        match self.job.stdin {
            Stdin::Rank(rank) => Some(self.job.nodes.of(rank)).filter(|node| *node != 0),
            Stdin::Nobody => None,
        }
    }

    /// Begins to pass standard input on, if its reader is elsewhere.
    pub(super) fn open_input(&mut self) {
        if self.reader_elsewhere().is_none() {
            return;
        }
        let watched = epoll::add(
            &self.epoll,
            rustix::stdio::stdin(),
            Token::Input.pack(),
            epoll::EventFlags::IN,
        );
        let Some(far) = &mut self.far else { return };
        far.input.state = match watched {
            Ok(()) => State::Watched,
            Err(_) => State::File,
        };
        if far.input.state == State::File {
            self.read_input();
        }
    }

    /// There is some standard input, or its end.
    pub(super) fn read_input(&mut self) {
        let Some(node) = self.reader_elsewhere() else {
            return;
        };
        loop {
            let Some(far) = &mut self.far else { return };
            let room = FAR_WINDOW - far.input.under_way.min(FAR_WINDOW);
            if far.input.state == State::Over || room == 0 {
                return self.watch_input();
            }
            let mut buffer = vec![0; room.min(FAR_WINDOW / 4)];
            let got = match rustix::io::read(rustix::stdio::stdin(), &mut buffer) {
                Ok(got) => got,
                Err(Errno::INTR | Errno::AGAIN) => return,
                Err(_) => 0,
            };
            buffer.truncate(got);
            far.input.under_way += got;
            let watched = far.input.state == State::Watched;
            if got == 0 {
                far.input.state = State::Over;
                if watched {
                    let _ = epoll::delete(&self.epoll, rustix::stdio::stdin());
                }
            }
            self.order(node, &Order::Input(buffer));
            // More of what can be watched may not be there: a read would block.
            if watched || got == 0 {
                return self.watch_input();
            }
        }
    }

    fn watch_input(&mut self) {
        let Some(far) = &self.far else { return };
        if far.input.state == State::Watched {
            let flags = match far.input.under_way < FAR_WINDOW {
                true => epoll::EventFlags::IN,
                false => epoll::EventFlags::empty(),
            };
            let _ = epoll::modify(&self.epoll, rustix::stdio::stdin(), Token::Input.pack(), flags);
        }
    }

    /// The rank's pipe has taken so much.
    pub(super) fn input_taken(&mut self, bytes: u32) {
        let Some(far) = &mut self.far else { return };
        far.input.under_way = far.input.under_way.saturating_sub(bytes as usize);
        match far.input.state {
            State::File => self.read_input(),
            _ => self.watch_input(),
        }
    }

    /// Standard input for our rank; empty: its end.
    pub(super) fn feed_rank(&mut self, bytes: &[u8]) {
        if let Some(feed) = self.up.as_mut().and_then(|up| up.feed.as_mut()) {
            feed.waiting.extend(bytes);
            feed.ended |= bytes.is_empty();
        }
        self.push_feed();
    }

    /// Writes it as far as the rank takes it.
    pub(super) fn push_feed(&mut self) {
        let Some(up) = self.up.as_mut() else { return };
        let Some(feed) = up.feed.as_mut() else { return };
        let (taken, over) = feed.push();
        if !over && feed.waiting.is_empty() == feed.watched {
            feed.watched = !feed.waiting.is_empty();
            let flags = match feed.watched {
                true => epoll::EventFlags::OUT,
                false => epoll::EventFlags::empty(),
            };
            let _ = epoll::modify(&self.epoll, &feed.pipe, Token::Feed.pack(), flags);
        }
        if over {
            up.feed = None;
        }
        if taken > 0 {
            self.report(&Report::Taken(taken));
        }
    }
}

impl Feed {
    /// For a pipe whose writing end does not block.
    pub fn new(pipe: OwnedFd, epoll: &OwnedFd) -> Self {
        let _ = epoll::add(epoll, &pipe, Token::Feed.pack(), epoll::EventFlags::empty());
        Self {
            pipe,
            waiting: VecDeque::new(),
            ended: false,
            watched: false,
        }
    }

    /// How much went, and whether nothing more will.
    fn push(&mut self) -> (u32, bool) {
        let mut taken = 0;
        while !self.waiting.is_empty() {
            let (front, _) = self.waiting.as_slices();
            match rustix::io::write(&self.pipe, front) {
                Ok(n) => {
                    self.waiting.drain(..n);
                    taken += n as u32;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return (taken, false),
                // The rank does not read any more; what is left is nobody's.
                Err(_) => return (taken, true),
            }
        }
        (taken, self.ended)
    }
}
