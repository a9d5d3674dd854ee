//! Starting the agents of other hosts: for each the user's command or ssh, with a bootstrap message
//! on its standard input.
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

use super::context::Context;
use super::{EpollToken, executable, spawn};
use garonne_job::agent_messages::AgentBootstrap;
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::STARTER_WORDS_MAX;
use garonne_job::settings::ENV_SPAWN;
use garonne_links::process_tree;
use garonne_links::sys;

/// A command that starts the agent of a node.
struct RemoteStart {
    node: u32,
    /// Process of the command, until it has ended.
    pid: i32,
    /// When that was, and how.
    over: Option<(Instant, ProcessExit)>,
    /// Our end of its standard input: an agent that has not called yet ends with it.
    _bootstrap: OwnedFd,
    /// Output of the command.
    words: Option<OwnedFd>,
    said: Vec<u8>,
}

/// Commands that start the agents of other hosts.
///
/// Owned by the first agent's [`RootRole`](super::root_role::RootRole).
/// [`start_children`](Self::start_children) starts those that report to a node, once it is known
/// where that takes calls. [`take_ended`](Self::take_ended) is called when a child process has
/// ended.
#[derive(Default)]
pub(super) struct RemoteStarts(Vec<RemoteStart>);

impl RemoteStarts {
    /// Starts the agents of those that report to a node, which takes calls there, unless they are
    /// started already.
    ///
    /// # Errors
    /// A command cannot be executed.
    pub fn start_children(
        &mut self,
        ctx: &Context<'_>,
        node: u32,
        at: (u16, Vec<IpAddr>),
    ) -> Result<()> {
        let children = ctx.job.tree().children(node);
        let known = self.0.iter().any(|start| children.contains(&start.node));
        let Some(secret) = ctx.secret.as_ref().filter(|_| !known && !ctx.is_ending) else {
            return Ok(());
        };
        for child in children {
            let bootstrap = bootstrap_for(ctx, child, secret.clone(), at.clone());
            self.0.push(start_agent(ctx, &bootstrap)?);
        }
        Ok(())
    }

    fn of(&mut self, node: u32) -> Option<&mut RemoteStart> {
        self.0.iter_mut().find(|start| start.node == node)
    }

    /// Keeps what the command that starts an agent writes, for the case that it fails.
    pub fn read_output(&mut self, epoll: &OwnedFd, node: u32) {
        if let Some(start) = self.of(node) {
            start.read_output(epoll);
        }
    }

    /// Returns what the command that starts an agent has written so far.
    pub fn words_of(&mut self, epoll: &OwnedFd, node: u32) -> String {
        self.read_output(epoll, node);
        self.of(node).map_or_else(String::new, |start| {
            String::from_utf8_lossy(&start.said).trim_end().to_owned()
        })
    }

    /// Reaps commands that have ended since this was last asked: of which nodes, and how.
    pub fn take_ended(&mut self) -> Vec<(u32, ProcessExit)> {
        let running = self.0.iter_mut().filter(|start| start.pid > 0);
        running
            .filter_map(|start| {
                let how = process_tree::ended(start.pid)?;
                process_tree::reap(std::mem::take(&mut start.pid));
                start.over = Some((Instant::now(), how));
                Some((start.node, how))
            })
            .collect()
    }

    /// Returns when the command ended that started a node's agent, and how.
    pub fn ended(&self, node: u32) -> Option<(Instant, ProcessExit)> {
        self.0.iter().find(|start| start.node == node)?.over
    }

    /// Processes of the commands.
    pub fn processes(&self) -> impl Iterator<Item = i32> {
        self.0.iter().map(|start| start.pid)
    }

    /// Stops the commands of nodes whose agents would find nobody.
    pub fn stop(&self, is_absent: impl Fn(u32) -> bool) {
        let absent = self.0.iter().filter(|start| is_absent(start.node));
        absent
            .map(|start| start.pid)
            .filter(|pid| *pid > 0)
            .for_each(|pid| sys::kill(pid, libc::SIGTERM));
    }
}

impl RemoteStart {
    fn read_output(&mut self, epoll: &OwnedFd) {
        let Some(words) = &self.words else { return };
        let mut buffer = [0; 1024];
        loop {
            match rustix::io::read(words, &mut buffer) {
                Ok(n) if n > 0 => {
                    let room = STARTER_WORDS_MAX.saturating_sub(self.said.len());
                    self.said.extend_from_slice(&buffer[..n.min(room)]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                _ => {
                    let _ = epoll::delete(epoll, words);
                    self.words = None;
                    return;
                }
            }
        }
    }
}

/// Returns the bootstrap message for the agent of a node: where its parent listens, if the
/// agent is to connect.
pub(super) fn bootstrap_for(
    ctx: &Context<'_>,
    node: u32,
    secret: Secret,
    (port, addresses): (u16, Vec<IpAddr>),
) -> AgentBootstrap {
    let parent = ctx.job.tree().parent(node).unwrap_or(0);
    AgentBootstrap {
        job: ctx.id.0,
        secret,
        node,
        name: ctx.job.nodes.name(node).to_owned(),
        parent,
        parent_name: ctx.job.nodes.name(parent).to_owned(),
        port,
        addresses,
    }
}

/// Starts the agent that the bootstrap message is for.
fn start_agent(ctx: &Context<'_>, bootstrap: &AgentBootstrap) -> Result<RemoteStart> {
    let failed = |error| {
        Error::system(
            codes::G0209,
            "cannot make a pipe for another host's agent",
            error,
        )
    };
    let (input, bootstrap_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    let (words, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
    rustix::fs::fcntl_setfl(&words, rustix::fs::OFlags::NONBLOCK).map_err(failed)?;
    // It fits what a new pipe takes at once.
    rustix::io::write(&bootstrap_end, &bootstrap.encode()).map_err(failed)?;
    let argv = command(&ctx.job.starter, &bootstrap.name)?;
    let program = argv[0].to_string_lossy().into_owned();
    let path = std::env::var_os("PATH");
    let path = executable::find(argv[0].as_os_str(), path.as_deref(), None).map_err(|error| {
        Error::misuse(
            codes::G0216,
            format!("host '{}': {}", bootstrap.name, told(&error)),
        )
    })?;
    let c = |text: OsString| {
        CString::new(text.into_vec())
            .map_err(|_| Error::misuse(codes::G0211, "a word contains a zero byte"))
    };
    let path = c(path.into_os_string())?;
    let argv = argv.into_iter().map(c).collect::<Result<Vec<_>>>()?;
    // What this process was given as the launcher of a started job is not the agents' concern: they
    // get it with the job. A command that had it would count as a started job itself.
    let variables = std::env::vars_os().filter(|(name, _)| name != ENV_SPAWN);
    let envp = variables.map(|(name, value)| {
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
        signals: ctx.signals,
    };
    let pid = spawn::spawn(&exec).map_err(|error| match error {
        spawn::SpawnError::Fork(error) => {
            let what = format!(
                "cannot start a process for the agent of host '{}'",
                bootstrap.name
            );
            process_tree::too_many(&what, &error)
        }
        spawn::SpawnError::Chdir(error) | spawn::SpawnError::Exec(error) => Error::system(
            codes::G0216,
            format!("cannot execute '{program}' for host '{}'", bootstrap.name),
            error,
        ),
    })?;
    ctx.listen(words.as_fd(), EpollToken::StarterOutput(bootstrap.node))?;
    Ok(RemoteStart {
        node: bootstrap.node,
        pid,
        over: None,
        _bootstrap: bootstrap_end,
        words: Some(words),
        said: Vec::new(),
    })
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
