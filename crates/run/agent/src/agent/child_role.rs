//! The side of an agent on another host than the launcher's: obeys the first agent and reports to
//! it, by its line to the agent that is above it in the tree.
//!
//! It starts, watches and serves its ranks as any agent does; but what they write goes to the first
//! agent as it is, within a window for each stream, a failure is reported instead of printed, and
//! the end of the job is ordered. Orders for others it passes on to those below it. If its line is
//! gone, it ends everything here, and so do those below.

use std::net::IpAddr;
use std::time::Instant;

use garonne_tcp::Secret;
use garonne_tcp::agent_channel::ChannelLoss;
use rustix::event::epoll;

use super::agent_link::{AgentLink, LinkLoss};
use super::output::StreamKind;
use super::reconnect::Reconnect;
use super::root_role::{kind, output_stream};
use super::{Agent, EpollToken};
use garonne_job::agent_checkin::table;
use garonne_job::agent_messages::{AgentCommand, AgentReport, HostEndpoint, NodeEndpoints};
use garonne_job::limits::{
    AGENT_SILENCE_MAX, DRAIN_READS, FAR_WINDOW, FINALIZED_GRACE, LEFTOVER_GRACE, PARTIAL_LINE_WAIT,
};
use garonne_links::process_tree;

/// State of an agent on another host than the launcher's: the link to its parent.
pub(super) struct ChildRole {
    pub(super) link: Option<AgentLink>,
    pub(super) secret: Secret,
    /// The node above.
    pub(super) parent: u32,
    /// The address at which its agent was reached, and its port.
    pub(super) parent_address: IpAddr,
    pub(super) port: u16,
    pub(super) reconnect: Reconnect,
    /// Hosts as they are told of, until all are.
    pub(super) reported: Vec<NodeEndpoints>,
    /// Addresses of all hosts and ports of all ranks, once the root has ordered the start.
    pub(super) start_data: Option<(Vec<HostEndpoint>, Vec<u16>)>,
    /// This host has joined with a key.
    pub(super) joined: bool,
}

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
        if everything || read.is_empty() || (whole == 0 && self.bytes.len() >= FAR_WINDOW / 4) {
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
    fn wait_anew(&mut self) {
        self.since = self.since.map(|_| Instant::now());
    }

    fn take_all(&mut self) -> Option<Vec<u8>> {
        self.since = None;
        let bytes = std::mem::take(&mut self.bytes);
        (!bytes.is_empty()).then_some(bytes)
    }
}

impl Agent<'_> {
    /// Reports to the first agent. Its end is seen where its orders are read.
    pub(super) fn report(&mut self, report: &AgentReport) {
        if self.child_role.as_ref().is_some_and(|up| up.link.is_some()) {
            self.report_on(&report.encode());
        }
    }

    /// Sends an encoded report to the parent.
    pub(super) fn report_on(&mut self, report: &[u8]) {
        if let Some(trunk) = self.child_role.as_mut().and_then(|up| up.link.as_mut())
            && !trunk.leaves_out(report)
            && trunk.send(&self.epoll, report).is_err()
        {
            self.parent_lost();
        }
    }

    /// Orders have come. Those after the one to start are for ranks that have been started.
    pub(super) fn read_parent(&mut self) {
        loop {
            let Some(up) = self.child_role.as_mut() else {
                return;
            };
            let to_start = self.waiting_for_agents && up.start_data.is_some();
            let Some(trunk) = up.link.as_mut().filter(|_| !to_start) else {
                return;
            };
            let _ = trunk.push(&self.epoll);
            let message = trunk.receive(&self.epoll);
            let message = match message {
                Ok(Some(message)) => message,
                Ok(None) => return,
                Err(_) => return self.parent_lost(),
            };
            match AgentCommand::decode(&message) {
                Ok(order) => {
                    if order.is_for_all() {
                        self.send_to_child(&message);
                    }
                    self.handle_command(order);
                }
                Err(_) => return self.parent_lost(),
            }
        }
    }

    fn handle_command(&mut self, order: AgentCommand) {
        let now = Instant::now();
        match order {
            AgentCommand::Hosts(seats) => {
                if let Some(up) = &mut self.child_role
                    && up.reported.len() + seats.len() <= self.job.nodes.names.len()
                {
                    up.reported.extend(seats);
                }
            }
            AgentCommand::StartRanks => {
                let told = self
                    .child_role
                    .as_mut()
                    .map(|up| std::mem::take(&mut up.reported));
                match table(told.unwrap_or_default(), &self.job.nodes) {
                    Ok(told) => self
                        .child_role
                        .iter_mut()
                        .for_each(|up| up.start_data = Some(told.clone())),
                    Err(_) => self.parent_lost(),
                }
            }
            AgentCommand::Forward(node, order) => self.forward_command(node, order),
            AgentCommand::Signal(signal) => self.signalled(signal, false),
            AgentCommand::End {
                patient: true,
                code,
            } => self.end_with_grace(code, now + FINALIZED_GRACE),
            AgentCommand::End {
                patient: false,
                code,
            } if self.is_killing() => self.set_code(code),
            AgentCommand::End {
                patient: false,
                code,
            } => self.terminate(code),
            AgentCommand::Finish => self.finish(now + LEFTOVER_GRACE),
            AgentCommand::StreamCredit(rank, side, bytes) => {
                if self.is_here(rank) {
                    let room = &mut self.slots[rank as usize].stream_credit[side as usize];
                    *room = (*room + bytes as usize).min(FAR_WINDOW);
                    self.slots[rank as usize].unfinished_lines[side as usize].wait_anew();
                    self.forward(kind(side), rank, false);
                }
            }
            AgentCommand::Input(bytes) => self.write_stdin(&bytes),
            AgentCommand::Ended(ranks) => ranks
                .into_iter()
                .for_each(|rank| self.mark_ended_elsewhere(rank)),
            AgentCommand::ReverseConnect(call) => self.request_reverse_connect(call),
            AgentCommand::DisabledNetworks(networks) => self.set_disabled_networks(networks),
            AgentCommand::ReportAddresses(question) => self.report_own_addresses(question),
            AgentCommand::DrainResult(number, text) => self.send_drain_result(number, text),
            AgentCommand::NewAddresses(list) => self.set_new_addresses(list),
            AgentCommand::ProbeRelay(call) if call.from.max(call.to) < self.job.size() => {
                self.probe_relay(call)
            }
            AgentCommand::AddRelayRoute(way) => self.add_route(way),
            AgentCommand::OpenRendezvous(call) => self.offer_rendezvous(call),
            AgentCommand::TryRendezvous(venue) => self.try_rendezvous(venue),
            AgentCommand::Query(asked, wish) => self.take_query(asked, wish),
            AgentCommand::QueryResult(node, asked, look) => {
                self.forward_snapshot(node, asked, look)
            }
            AgentCommand::Job(_) | AgentCommand::Ping | AgentCommand::ProbeRelay(_) => {}
        }
    }

    /// The line to the first agent is gone: nothing may be left here.
    pub(super) fn parent_lost(&mut self) {
        let mut how = LinkLoss::Ended;
        if let Some(trunk) = self.child_role.as_mut().and_then(|up| up.link.take()) {
            how = trunk.how_lost();
            trunk.end(&self.epoll);
        }
        match self.adopted_role.is_some() {
            true => self.report_lost_parent(how),
            false => self.report_lost_root(how),
        }
        self.end_at_once();
    }

    /// Passes on what a rank has written, as far as there is room for it, or all as last words.
    pub(super) fn forward(&mut self, kind: StreamKind, rank: u32, last_words: bool) {
        let mut buffer = [0; 16 * 1024];
        for _ in 0..8 {
            let slot = &mut self.slots[rank as usize];
            let room = match last_words {
                true => buffer.len(),
                false => slot.stream_credit[output_stream(kind) as usize].min(buffer.len()),
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
                    let _ = epoll::delete(&self.epoll, pipe);
                }
                stream.source = None;
            }
            let place = output_stream(kind) as usize;
            slot.stream_credit[place] = slot.stream_credit[place].saturating_sub(got);
            if let Some(bytes) = slot.unfinished_lines[place].take(&buffer[..got], last_words) {
                self.report(&AgentReport::Output(rank, output_stream(kind), bytes));
            }
            if got == 0 {
                self.report(&AgentReport::Output(rank, output_stream(kind), Vec::new()));
            }
        }
        let slot = &mut self.slots[rank as usize];
        let reading = slot.stream_credit[output_stream(kind) as usize] > 0;
        let stream = slot.stream_mut(kind);
        if reading != stream.reading {
            stream.reading = reading;
            let flags = match reading {
                true => epoll::EventFlags::IN,
                false => epoll::EventFlags::empty(),
            };
            if let Some(pipe) = stream.source.as_ref().and_then(|source| source.pipe()) {
                let _ = epoll::modify(
                    &self.epoll,
                    pipe,
                    EpollToken::Output(kind, rank).pack(),
                    flags,
                );
            }
        }
    }

    /// All that a rank has written so far.
    pub(super) fn forward_all(&mut self, rank: u32) {
        for kind in [StreamKind::Out, StreamKind::Err] {
            (0..DRAIN_READS).for_each(|_| self.forward(kind, rank, true));
            self.forward_unfinished(kind, rank);
        }
    }

    /// The beginning of a line that has waited long enough for its end.
    fn forward_unfinished(&mut self, kind: StreamKind, rank: u32) {
        let tail = &mut self.slots[rank as usize].unfinished_lines[output_stream(kind) as usize];
        if let Some(bytes) = tail.take_all() {
            self.report(&AgentReport::Output(rank, output_stream(kind), bytes));
        }
    }

    /// When an unfinished line is to be passed on.
    fn unfinished_due(&self) -> Option<Instant> {
        let tails = self
            .slots
            .iter()
            .flat_map(|slot| slot.unfinished_lines.iter().zip(slot.stream_credit));
        tails
            .filter_map(|(tail, room)| tail.since.filter(|_| room > 0))
            .min()
            .map(|since| since + PARTIAL_LINE_WAIT)
    }

    /// Passes on those that are due.
    fn check_unfinished(&mut self, now: Instant) {
        for rank in 0..self.slots.len() as u32 {
            for kind in [StreamKind::Out, StreamKind::Err] {
                let (slot, place) = (&self.slots[rank as usize], output_stream(kind) as usize);
                let since = slot.unfinished_lines[place]
                    .since
                    .filter(|_| slot.stream_credit[place] > 0);
                if since.is_some_and(|since| since + PARTIAL_LINE_WAIT <= now) {
                    self.forward_unfinished(kind, rank);
                }
            }
        }
    }

    /// Tells the other agents of ranks that have ended here since this was last done.
    pub(super) fn report_ends(&mut self) {
        if !self.job.nodes.several() {
            return;
        }
        let mut over = self.all_ended_here();
        over.iter()
            .for_each(|rank| self.slots[*rank as usize].end_reported = true);
        match &mut self.root_role {
            Some(far) => far.ended_ranks.extend(over),
            None => {
                over.extend(
                    self.child_agents
                        .iter_mut()
                        .flat_map(|below| below.replace_link()),
                );
                if !over.is_empty() {
                    self.report(&AgentReport::RanksEnded(over));
                }
            }
        }
        self.announce_ended();
    }

    pub(super) fn child_role_due(&self) -> Option<Instant> {
        let trunk = self.child_role.as_ref()?.link.as_ref().map(AgentLink::due);
        let due = trunk.into_iter().chain(self.unfinished_due());
        due.chain(self.reconnect_due()).min()
    }

    /// A sign of life, and the end of patience.
    pub(super) fn check_child_role(&mut self, now: Instant) {
        if self.child_role.is_none() {
            return;
        }
        self.check_unfinished(now);
        let ping = AgentReport::Ping.encode();
        if let Some(trunk) = self.child_role.as_mut().and_then(|up| up.link.as_mut())
            && trunk.keep_alive(&self.epoll, &ping, now).is_err()
        {
            return self.parent_lost();
        }
        self.check_link(now);
    }

    /// The last message: nothing runs here any more. Waits until it has left, or the first agent is
    /// gone.
    pub(super) fn report_done(&mut self) {
        process_tree::kill_all();
        self.report_ends();
        // An adopted job has no launcher to which it would be told.
        if self.adopted_role.is_none() {
            let ends = self.ends_here();
            self.report(&AgentReport::RankExits(ends));
        }
        self.report(&AgentReport::Done);
        let until = Instant::now() + AGENT_SILENCE_MAX;
        while Instant::now() < until
            && let Some(trunk) = self.child_role.as_mut().and_then(|up| up.link.as_mut())
        {
            match trunk.push(&self.epoll) {
                Ok(true) | Err(ChannelLoss::Over) => return,
                Ok(false) => {}
                // Nobody waits for the epoll any more.
                Err(ChannelLoss::Broke) if trunk.receive(&self.epoll).is_ok() => {
                    self.reconnect_now()
                }
                Err(ChannelLoss::Broke) => return,
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
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
            tail.take(&[b'x'; FAR_WINDOW / 4], false).unwrap().len(),
            FAR_WINDOW / 4
        );
    }
}
