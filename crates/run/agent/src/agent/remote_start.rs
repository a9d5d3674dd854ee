//! Starting the agents of other hosts: for each the user's command or ssh, with an errand on its
//! standard input.
//!
//! The first agent starts all, since it may be the only one that can. Those that report to another
//! one are started when that one has said where it takes calls, so each is told at once where to
//! call.

use garonne_job::process_exit::ProcessExit;
use std::ffi::{CString, OsString};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Instant;

use garonne_tcp::Secret;
use rustix::event::epoll;
use rustix::pipe::PipeFlags;

use super::{Agent, EpollToken, executable, spawn};
use garonne_job::agent_messages::AgentBootstrap;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::STARTER_WORDS_MAX;
use garonne_links::process_tree;
use garonne_links::sys;

/// A command that starts the agent of a node.
pub(super) struct RemoteStart {
    node: u32,
    /// Process of the command, until it has ended.
    pid: i32,
    /// When that was, and how.
    over: Option<(Instant, ProcessExit)>,
    /// Our end of its standard input: an agent that has not called yet ends with it.
    _errand: OwnedFd,
    /// Output of the command.
    words: Option<OwnedFd>,
    said: Vec<u8>,
}

impl Agent<'_> {
    /// Returns the bootstrap message for the agent of a node: where its parent listens, if the
    /// agent is to connect.
    pub(super) fn bootstrap_for(
        &self,
        node: u32,
        secret: Secret,
        (port, addresses): (u16, Vec<IpAddr>),
    ) -> AgentBootstrap {
        let parent = self.ctx.job.tree().parent(node).unwrap_or(0);
        AgentBootstrap {
            job: self.ctx.id.0,
            secret,
            node,
            name: self.ctx.job.nodes.name(node).to_owned(),
            parent,
            parent_name: self.ctx.job.nodes.name(parent).to_owned(),
            port,
            addresses,
        }
    }

    /// Starts the agents of those that report to a node, which takes calls there.
    pub(super) fn start_child_agents(&mut self, node: u32, at: (u16, Vec<IpAddr>)) -> Result<()> {
        let children = self.ctx.job.tree().children(node);
        let known = |far: &super::RootRole| {
            far.remote_starts
                .iter()
                .any(|hired| children.contains(&hired.node))
        };
        let is_new = self.root_role.as_ref().is_some_and(|far| !known(far));
        let Some(secret) = self.ctx.secret.clone().filter(|_| is_new) else {
            return Ok(());
        };
        if self.shutdown.is_some() {
            return Ok(());
        }
        for child in children {
            let errand = self.bootstrap_for(child, secret.clone(), at.clone());
            let hired = self.start_agent(&errand)?;
            if let Some(far) = &mut self.root_role {
                far.remote_starts.push(hired);
            }
        }
        Ok(())
    }

    /// Whether a node is known to have an agent that has found its parent.
    fn has_connected(&self, node: u32) -> bool {
        let below = self.ctx.links.children();
        below.is_some_and(|below| below.knows(node))
    }

    fn remote_start(&mut self, node: u32) -> Option<&mut RemoteStart> {
        self.root_role
            .as_mut()?
            .remote_starts
            .iter_mut()
            .find(|hired| hired.node == node)
    }

    /// Keeps what the command that starts an agent writes, for the case that it fails.
    pub(super) fn read_starter_output(&mut self, node: u32) {
        let Some(hired) = self.root_role.as_mut().and_then(|far| {
            far.remote_starts
                .iter_mut()
                .find(|hired| hired.node == node)
        }) else {
            return;
        };
        let Some(words) = &hired.words else { return };
        let mut buffer = [0; 1024];
        loop {
            match rustix::io::read(words, &mut buffer) {
                Ok(n) if n > 0 => {
                    let room = STARTER_WORDS_MAX.saturating_sub(hired.said.len());
                    hired.said.extend_from_slice(&buffer[..n.min(room)]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                _ => {
                    let _ = epoll::delete(&self.ctx.epoll, words);
                    hired.words = None;
                    return;
                }
            }
        }
    }

    /// Looks whether commands that start agents have ended: before all agents are ready, that is a
    /// failure.
    pub(super) fn check_starters(&mut self) {
        let Some(far) = &mut self.root_role else {
            return;
        };
        let ended = far.remote_starts.iter_mut().filter(|hired| hired.pid > 0);
        let ended: Vec<_> = ended
            .filter_map(|hired| {
                let how = process_tree::ended(hired.pid)?;
                process_tree::reap(std::mem::take(&mut hired.pid));
                hired.over = Some((Instant::now(), how));
                Some((hired.node, how))
            })
            .collect();
        for (node, how) in ended {
            self.suspect_link(node);
            if !self.ctx.waiting_for_agents || self.has_connected(node) {
                continue;
            }
            self.read_starter_output(node);
            let how = match how {
                ProcessExit::Exit(status) => format!("ended with exit status {status}"),
                ProcessExit::Signal(signal) => format!("was killed by signal {signal}"),
            };
            self.not_started(node, &format!("the command that starts its agent {how}"));
        }
    }

    /// When the command ended that started a node's agent, and how.
    pub(super) fn starter_ended(&self, node: u32) -> Option<(Instant, ProcessExit)> {
        let mut hired = self.root_role.iter().flat_map(|far| &far.remote_starts);
        hired.find(|hired| hired.node == node)?.over
    }

    /// The processes of such commands.
    pub(super) fn starters(&self) -> impl Iterator<Item = i32> {
        let hired = self.root_role.iter().flat_map(|far| &far.remote_starts);
        hired.map(|hired| hired.pid)
    }

    /// The agent of a node below is not there.
    pub(super) fn not_started(&mut self, node: u32, why: &str) {
        if let Some(below) = self.ctx.links.children_mut() {
            below.set_done(node);
        }
        self.read_starter_output(node);
        let name = self.ctx.host_name(node).to_owned();
        let said = self
            .remote_start(node)
            .map(|hired| String::from_utf8_lossy(&hired.said).trim_end().to_owned());
        let said = match said.filter(|said| !said.is_empty()) {
            None => String::new(),
            Some(said) => format!("; it said:\n  {}", said.replace('\n', "\n  ")),
        };
        self.fail_as_agent(&format!(
            "error[{}]: no agent on host '{name}': {why}{said}",
            codes::G0216
        ));
    }

    /// Stops the commands whose agents have not connected; these would find nobody.
    pub(super) fn stop_unused_starters(&mut self) {
        let absent: Vec<i32> = match &self.root_role {
            Some(far) if self.ctx.waiting_for_agents => {
                let absent = far
                    .remote_starts
                    .iter()
                    .filter(|hired| !self.has_connected(hired.node));
                absent
                    .map(|hired| hired.pid)
                    .filter(|pid| *pid > 0)
                    .collect()
            }
            _ => Vec::new(),
        };
        absent
            .into_iter()
            .for_each(|pid| sys::kill(pid, libc::SIGTERM));
        if let Some(below) = self.ctx.links.children_mut() {
            below.forget_absent();
        }
    }

    /// Starts the agent that the errand is for.
    fn start_agent(&self, errand: &AgentBootstrap) -> Result<RemoteStart> {
        let failed = |error| {
            Error::system(
                codes::G0209,
                "cannot make a pipe for another host's agent",
                error,
            )
        };
        let (input, errand_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let (words, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        rustix::fs::fcntl_setfl(&words, rustix::fs::OFlags::NONBLOCK).map_err(failed)?;
        // It fits what a new pipe takes at once.
        rustix::io::write(&errand_end, &errand.encode()).map_err(failed)?;
        let argv = command(&self.ctx.job.starter, &errand.name)?;
        let program = argv[0].to_string_lossy().into_owned();
        let path = std::env::var_os("PATH");
        let path =
            executable::find(argv[0].as_os_str(), path.as_deref(), None).map_err(|error| {
                Error::misuse(
                    codes::G0216,
                    format!("host '{}': {}", errand.name, told(&error)),
                )
            })?;
        let c = |text: OsString| {
            CString::new(text.into_vec())
                .map_err(|_| Error::misuse(codes::G0211, "a word contains a zero byte"))
        };
        let path = c(path.into_os_string())?;
        let argv = argv.into_iter().map(c).collect::<Result<Vec<_>>>()?;
        let envp = std::env::vars_os().map(|(name, value)| {
            let mut entry = name;
            entry.push("=");
            entry.push(value);
            c(entry)
        });
        let envp = envp.collect::<Result<Vec<_>>>()?;
        let exec = spawn::ExecRequest {
            path: &path,
            by_shell: true,
            argv: &argv,
            envp: &envp,
            dir: None,
            stdin: Some(input.as_fd()),
            stdout: output.as_fd(),
            stderr: output.as_fd(),
            pass: None,
            own_group: true,
            cpus: &[],
            nofile: None,
            signals: self.ctx.signals,
        };
        let pid = spawn::spawn(&exec).map_err(|error| match error {
            spawn::SpawnError::Fork(error) => {
                let what = format!(
                    "cannot start a process for the agent of host '{}'",
                    errand.name
                );
                process_tree::too_many(&what, &error)
            }
            spawn::SpawnError::Chdir(error) | spawn::SpawnError::Exec(error) => Error::system(
                codes::G0216,
                format!("cannot execute '{program}' for host '{}'", errand.name),
                error,
            ),
        })?;
        self.ctx
            .listen(words.as_fd(), EpollToken::StarterOutput(errand.node))?;
        Ok(RemoteStart {
            node: errand.node,
            pid,
            over: None,
            _errand: errand_end,
            words: Some(words),
            said: Vec::new(),
        })
    }
}

fn told(error: &Error) -> String {
    let text = error.to_string();
    text.split_once("]: ")
        .map_or(text.clone(), |(_, text)| text.to_owned())
}

/// Returns the command line that starts the agent of a host: the user's command or ssh, the host's
/// name, and the program that runs here.
fn command(starter: &[OsString], host: &str) -> Result<Vec<OsString>> {
    let garonne = std::env::current_exe().map_err(|error| {
        Error::system(
            codes::G0216,
            "cannot tell where `garonne` is installed",
            error,
        )
    })?;
    let mut words: Vec<OsString> = starter.to_vec();
    if words.is_empty() {
        words = [
            "ssh",
            "-x",
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=20",
        ]
        .map(OsString::from)
        .to_vec();
        words.push(host.into());
        let path = garonne.to_string_lossy();
        let path = shell_word(&path);
        words.push(format!("exec {path} agent").into());
        return Ok(words);
    }
    words.extend([host.into(), garonne.into_os_string(), "agent".into()]);
    Ok(words)
}

/// A word as a shell on the other host reads it back.
fn shell_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_of_the_users_own_is_called_with_the_host_and_our_program_as_words() {
        let words = command(&["ip".into(), "netns".into(), "exec".into()], "n1").unwrap();
        assert_eq!(
            words[..4],
            ["ip", "netns", "exec", "n1"].map(OsString::from)
        );
        assert_eq!(words.last().unwrap(), "agent");
    }

    #[test]
    fn ssh_gets_one_word_that_the_other_shell_reads_as_it_was() {
        let words = command(&[], "n1").unwrap();
        assert_eq!(words[words.len() - 2], "n1");
        assert_eq!(shell_word("/a b/it's"), "'/a b/it'\\''s'");
    }
}
