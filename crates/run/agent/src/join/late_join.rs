//! The port at which hosts have joined, while the job runs: who comes with the key now is told that
//! it is too late.
//!
//! Owned by the first agent. Who has called and not been heard out when the last host comes is
//! handed over by the listener ([`super::join_listener`]), since nobody else hears it. Bounded as
//! every port is (strangers, time), and by [`LATE_LINES_MAX`] that were told and have not hung up.

use garonne_job::join_messages::ToJoiner;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use garonne_tcp::agent_channel::{AgentChannel, PendingChannels};

use super::NO_NODE;
use garonne_job::codes;
use garonne_job::limits::{LATE_LINES_MAX, LATE_WAIT};

/// The listener for hosts that come too late, and the connections of those that did.
#[derive(Debug)]
pub(crate) struct LateJoinListener {
    child_listener: PendingChannels,
    hosts: usize,
    told: VecDeque<(Instant, AgentChannel)>,
}

impl LateJoinListener {
    /// At the port where so many hosts have joined, with the lines of those who have been told
    /// already. The sockets of callers who are inside are handed to `watch`, with their places: the
    /// room has watched them until now.
    pub fn new(
        (mut child_listener, mut told): (PendingChannels, Vec<AgentChannel>),
        hosts: usize,
        watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool,
    ) -> Self {
        child_listener.hand_over(watch);
        told.truncate(LATE_LINES_MAX);
        let now = Instant::now();
        Self {
            child_listener,
            hosts,
            told: told.into_iter().map(|line| (now, line)).collect(),
        }
    }

    /// Readable when somebody calls.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.child_listener.fd()
    }

    /// Lets callers in; each takes a place, whose socket is handed to `watch`.
    pub fn open(&mut self, watch: &mut dyn FnMut(usize, BorrowedFd<'_>) -> bool) {
        self.child_listener.open(watch);
    }

    /// Goes on with the caller of a place. Who has the key is told; its socket is handed to
    /// `forget`, since nothing that it says matters.
    pub fn read(&mut self, place: usize, forget: &mut dyn FnMut(BorrowedFd<'_>)) {
        let Some((_, mut line)) = self.child_listener.look(place, |node| node == NO_NODE) else {
            return;
        };
        forget(line.fd());
        let message = ToJoiner::Refused {
            code: codes::G0227.to_owned(),
            text: format!(
                "the job has begun: all that it asked for ({}) have come, and its key admits no more",
                hosts(self.hosts)
            ),
        };
        // It stays open until the other side has read this: what a closed socket had not read yet
        // would take these words along.
        if line.send(&message.encode()).is_ok() {
            self.told.truncate(LATE_LINES_MAX - 1);
            self.told.push_front((Instant::now(), line));
        }
    }

    /// Sends those away who take too long.
    pub fn check_timeouts(&mut self, now: Instant) {
        self.child_listener.keep_time();
        self.told.retain(|(since, _)| now < *since + LATE_WAIT);
    }
}

/// Formats a number of hosts in words.
pub(crate) fn hosts(count: usize) -> String {
    match count {
        1 => String::from("1 host"),
        _ => format!("{count} hosts"),
    }
}
