//! Ranks as the agent knows them: what was started, who registered, and the worlds they share.

mod rank_description;

use std::net::TcpListener;
use std::ops::{Index, IndexMut};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use garonne_job::layout::RankState;
use garonne_job::process_exit::ProcessExit;
use garonne_job::rank_messages::ToRank;
use garonne_links::{process_tree, sys};
use rustix::event::epoll;
use rustix::net::SendFlags;

use super::context::Context;
use super::epoll_token::EpollToken;
use super::worlds::Worlds;

/// A rank as started.
#[derive(Debug)]
pub(super) struct RankSlot {
    /// Node on which the rank runs. A rank of another node has no process here; that node's agent
    /// reports its end.
    pub node: u32,
    /// Process that was started; 0 if none was started here.
    pub pid: i32,
    /// Index of the program in the job.
    pub program: usize,
    /// End of the process that was started.
    pub ended: Option<ProcessExit>,
    /// Number of the newest process that registered.
    pub member: Option<u32>,
    /// The registered process disappeared before its wrapper: the wrapper's status is awaited until
    /// then.
    pub wrapper_deadline: Option<Instant>,
    /// Port at which other hosts' ranks reach it.
    pub listener: Option<TcpListener>,
    /// The first agent knows of its end.
    pub end_reported: bool,
}

impl RankSlot {
    /// Returns whether the rank has ended well before it came to the world of this number.
    pub fn missed(&self, epoch_of_member: Option<u32>, epoch: u32) -> bool {
        self.ended == Some(ProcessExit::Exit(0)) && epoch_of_member.is_none_or(|last| last < epoch)
    }
}

/// A registered process of a rank.
#[derive(Debug)]
pub(super) struct RegisteredProcess {
    pub epoch: u32,
    /// Version of the protocol between the process and the agent.
    pub protocol: u16,
    pub pid: i32,
    pub socket: Option<OwnedFd>,
    /// `None` if the process is the rank's direct child, or not visible from here.
    pub pidfd: Option<OwnedFd>,
    pub direct: bool,
    pub finalized: bool,
    pub gone: bool,
    /// The process ends by itself.
    pub leaves: bool,
    pub report: String,
}

/// Ranks of the job, and the processes of this host that registered as one.
///
/// Owned by the agent. [`add`](Self::add) adds each rank in order, when it is started;
/// [`register`](Self::register) adds a process. Both stay to the end of the job.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// By rank.
    slots: Vec<RankSlot>,
    /// By number, in the order in which they registered.
    processes: Vec<RegisteredProcess>,
    worlds: Worlds,
}

impl Ranks {
    /// Adds the next rank.
    pub fn add(&mut self, slot: RankSlot) {
        self.slots.push(slot);
    }

    /// Adds a process that has registered as a rank, and returns its number.
    pub fn register(&mut self, rank: u32, process: RegisteredProcess) -> u32 {
        let index = self.processes.len() as u32;
        self.slots[rank as usize].member = Some(index);
        self.processes.push(process);
        index
    }

    /// Number of ranks; 0 before they are started.
    pub fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns all ranks in order.
    pub fn iter(&self) -> impl Iterator<Item = &RankSlot> {
        self.slots.iter()
    }

    /// Returns a rank that another process names.
    pub fn get(&self, rank: u32) -> Option<&RankSlot> {
        self.slots.get(rank as usize)
    }

    /// Returns a rank that another process names, to change it.
    pub fn get_mut(&mut self, rank: u32) -> Option<&mut RankSlot> {
        self.slots.get_mut(rank as usize)
    }

    /// Returns whether a rank was, or is to be, started on a node.
    pub fn is_of(&self, rank: u32, node: u32) -> bool {
        self.get(rank).is_some_and(|slot| slot.node == node)
    }

    /// Returns the registered process of this number.
    pub fn process(&self, index: u32) -> &RegisteredProcess {
        &self.processes[index as usize]
    }

    /// Returns the registered process of this number, to change it.
    pub fn process_mut(&mut self, index: u32) -> &mut RegisteredProcess {
        &mut self.processes[index as usize]
    }

    /// Returns all registered processes.
    pub fn processes(&self) -> impl Iterator<Item = &RegisteredProcess> {
        self.processes.iter()
    }

    /// Returns whether no process has registered yet.
    pub fn none_registered(&self) -> bool {
        self.processes.is_empty()
    }

    /// Returns the newest registered process of a rank.
    pub fn process_of(&self, rank: u32) -> Option<&RegisteredProcess> {
        Some(self.process(self[rank].member?))
    }

    /// Returns the worlds of the ranks.
    pub fn worlds(&self) -> &Worlds {
        &self.worlds
    }

    /// Returns the worlds of the ranks, to add one or to exchange values.
    pub fn worlds_mut(&mut self) -> &mut Worlds {
        &mut self.worlds
    }

    /// Returns whether nothing of a rank runs any more.
    pub fn is_over(&self, slot: &RankSlot) -> bool {
        let gone = |index: u32| {
            let process = self.process(index);
            process.direct || process.gone
        };
        slot.ended.is_some() && slot.member.is_none_or(gone)
    }

    /// Returns whether nothing of any rank runs any more, and all is known of their ends.
    pub fn all_over(&self) -> bool {
        self.slots
            .iter()
            .all(|slot| self.is_over(slot) && slot.wrapper_deadline.is_none())
    }

    /// Shows on the board that a rank's process is gone. Not for one that ended well after
    /// MPI_Finalize: that is no failure that a peer's receive from any source should see.
    pub fn mark_gone(&self, rank: u32) {
        if let Some(process) = self.process_of(rank) {
            self.worlds[process.epoch]
                .rank_block(rank)
                .set_state(RankState::Gone);
        }
    }

    pub fn member_pid(&self, rank: u32) -> i32 {
        let slot = &self.slots[rank as usize];
        slot.member
            .map_or(slot.pid, |index| self.processes[index as usize].pid)
    }

    pub fn is_direct(&self, rank: u32) -> bool {
        self.slots[rank as usize]
            .member
            .is_none_or(|index| self.processes[index as usize].direct)
    }

    /// The ranks of this node that have ended and of which the first agent was not told.
    pub fn all_ended_here(&self, ctx: &Context<'_>) -> Vec<u32> {
        let news = self.slots.iter().zip(0..).filter(|(slot, _)| {
            slot.node == ctx.node
                && !slot.end_reported
                && self.is_over(slot)
                && slot.wrapper_deadline.is_none()
        });
        news.map(|(_, rank)| rank).collect()
    }

    /// Sends a signal to the process that is the rank: the registered one, else what was started.
    pub fn signal_rank(&self, rank: u32, signal: i32) {
        let slot = &self.slots[rank as usize];
        match slot.member.map(|index| &self.processes[index as usize]) {
            Some(member) if member.leaves => {}
            Some(member) if !member.direct && !member.gone => sys::kill(member.pid, signal),
            _ if slot.ended.is_none() => sys::kill(slot.pid, signal),
            _ => {}
        }
    }

    /// The rank that a member is or was.
    pub fn rank_of(&self, member: u32) -> Option<u32> {
        self.slots
            .iter()
            .position(|slot| slot.member == Some(member))
            .map(|rank| rank as u32)
    }

    /// Takes from a member's card that it has finalized: its program may have closed the socket by
    /// which it would say so.
    pub fn process_finalized(&mut self, index: u32) {
        let Some(rank) = self.rank_of(index) else {
            return;
        };
        let epoch = self.processes[index as usize].epoch;
        if self.worlds[epoch].rank_block(rank).state() == RankState::Finalized {
            self.processes[index as usize].finalized = true;
        }
    }

    /// Returns how a registered process behind a wrapper ended, as far as the kernel says it.
    pub fn end_reported_by(&self, index: u32) -> Option<ProcessExit> {
        let member = &self.processes[index as usize];
        // Once its wrapper is gone it is a child of ours.
        process_tree::end_told_by(member.pidfd.as_ref()?.as_fd())
            .or_else(|| process_tree::ended(member.pid))
    }

    /// Waits for the end of a dead process to be known: nothing but its reaping is reported from
    /// now on.
    pub fn await_reaping(&mut self, epoll: &OwnedFd, index: u32) {
        let member = &mut self.processes[index as usize];
        let token = EpollToken::Process(index).pack();
        let watched = member.pidfd.as_ref().is_some_and(|pidfd| {
            epoll::modify(epoll, pidfd, token, epoll::EventFlags::empty()).is_ok()
        });
        if !watched {
            member.pidfd = None;
        }
    }

    pub fn answer(&self, member: u32, message: &ToRank) {
        let member = &self.processes[member as usize];
        if let Some(socket) = &member.socket {
            let message = message.encode_in(member.protocol);
            let _ = sys::send(socket.as_fd(), &message, &[], SendFlags::DONTWAIT);
        }
    }
}

impl Index<u32> for Ranks {
    type Output = RankSlot;

    /// Returns a rank that there is.
    fn index(&self, rank: u32) -> &RankSlot {
        &self.slots[rank as usize]
    }
}

impl IndexMut<u32> for Ranks {
    fn index_mut(&mut self, rank: u32) -> &mut RankSlot {
        &mut self.slots[rank as usize]
    }
}
