//! The last moments of an agent: what is left is killed, what ranks have written still goes out,
//! also to a slow reader.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use super::Agent;
use super::output::StreamKind;
use super::shutdown::ends_jobs;
use garonne_job::rank_messages::LauncherMessage;
use garonne_links::process_tree;
use garonne_links::sys;

impl Agent<'_> {
    /// Kills what is left, passes the last output on and returns the exit code.
    pub(super) fn close_output(&mut self) -> i32 {
        process_tree::kill_all();
        self.name_missing_hosts();
        self.exit_log
            .write_outcome(&self.ctx, &self.ranks, self.output.first_error());
        // The rank whose long line is passing finishes it first.
        let passing = self.output.passing();
        for rank in passing.into_iter().chain(0..self.ranks.count()) {
            self.output.drain(&mut self.ctx, rank);
        }
        let code = self.code();
        self.output.write_tracebacks(&mut self.ctx, code);
        if self.ctx.is_child() {
            self.report_done();
            self.report_end_to_joiner();
        } else {
            self.flush_slowly();
            self.output.flush(&self.ctx, StreamKind::Out);
            self.handle_output_loss();
            self.flight_recorders.hand_over(&self.ctx, &self.ranks);
        }
        self.code()
    }

    /// Writes what is left for a reader that may be slow, until it is gone or somebody asks the job
    /// to end.
    fn flush_slowly(&mut self) {
        loop {
            let waiting = self.output.waiting_descriptors();
            if waiting.is_empty() {
                return;
            }
            let mut fds = vec![
                PollFd::new(self.ctx.signals, PollFlags::IN),
                PollFd::new(self.ctx.launcher_socket, PollFlags::IN),
            ];
            fds.extend(waiting.iter().map(|fd| PollFd::new(fd, PollFlags::OUT)));
            let _ = rustix::event::poll(&mut fds, None);
            let link_speaks = !fds[1].revents().is_empty();
            drop(fds);
            if (link_speaks && self.launcher_requests_end())
                || std::iter::from_fn(|| self.ctx.signals.next())
                    .any(|signal| ends_jobs(signal.number))
            {
                return;
            }
            self.output.push();
        }
    }

    /// Reads one message of the launcher: whether it passes on a signal that ends jobs, or is gone.
    fn launcher_requests_end(&self) -> bool {
        match sys::recv(self.ctx.launcher_socket.as_fd(), RecvFlags::DONTWAIT)
            .map(|message| LauncherMessage::decode(&message.bytes))
        {
            Ok(Ok(LauncherMessage::Signal { signal, .. })) => ends_jobs(signal),
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            _ => true,
        }
    }
}
