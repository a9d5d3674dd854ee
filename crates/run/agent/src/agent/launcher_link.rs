//! An agent and its launcher: what that one says, and the ends of the agent's lines, whose
//! connections both have ([`crate::launcher`]), so that they end properly whichever is killed.

use std::os::fd::AsFd;

use rustix::net::{RecvFlags, SendFlags};

use super::Agent;
use super::agent_link::AgentLink;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::process_tree;
use garonne_links::sys;

impl Agent<'_> {
    /// Hands the launcher the connection that leads to the agent of a node from now on.
    pub(super) fn share_connection(&self, node: u32) {
        // What started an agent of adopted ranks is a rank, which has nothing to do with it.
        if self.adopted_role.is_some() {
            return;
        }
        let up = self.child_role.as_ref().filter(|up| up.parent == node);
        let line = match up {
            Some(up) => up.link.as_ref(),
            None => self
                .child_agents
                .as_ref()
                .and_then(|below| below.link_to(node)),
        };
        if let Some(line) = line {
            // One that is stopped, and so takes no more, is no loss: the line ends with this agent,
            // as it would anyway.
            let _ = sys::send(
                self.launcher_socket.as_fd(),
                &LauncherMessage::AgentConnection { node }.encode(),
                &[line.fd()],
                SendFlags::DONTWAIT,
            );
        }
    }

    /// The launcher speaks, or is gone: then nobody sees the rest, and nothing must be left.
    pub(super) fn read_launcher(&mut self) {
        let message = sys::recv(self.launcher_socket.as_fd(), RecvFlags::DONTWAIT);
        match message
            .as_ref()
            .map(|message| LauncherMessage::decode(&message.bytes))
        {
            Ok(Ok(LauncherMessage::Signal { signal, broadcast })) => {
                self.say_ended_by(signal);
                self.signalled(signal, broadcast);
            }
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            _ => {
                // What comes while the ranks are ended would lie unread, and have the system reset
                // the lines.
                self.report_connection_ends();
                process_tree::kill_all();
                sys::exit_now(1);
            }
        }
    }

    /// Tells all agents with a line to this one that it ends.
    pub(super) fn report_connection_ends(&self) {
        let up = self.child_role.iter().filter_map(|up| up.link.as_ref());
        let below = self.child_agents.iter().flat_map(|below| below.links());
        up.chain(below).for_each(AgentLink::say_end);
    }
}
