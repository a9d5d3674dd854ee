//! An agent and its launcher: what that one says, and the ends of the agent's lines, whose
//! connections both have ([`crate::launcher`]), so that they end properly whichever is killed.

use std::os::fd::AsFd;

use rustix::net::RecvFlags;

use super::Agent;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::process_tree;
use garonne_links::sys;

impl Agent<'_> {
    /// The launcher speaks, or is gone: then nobody sees the rest, and nothing must be left.
    pub(super) fn read_launcher(&mut self) {
        let message = sys::recv(self.ctx.launcher_socket.as_fd(), RecvFlags::DONTWAIT);
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
                self.ctx.links.say_end();
                process_tree::kill_all();
                sys::exit_now(1);
            }
        }
    }
}
