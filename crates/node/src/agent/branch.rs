//! Starting the agent of another host: the user's command or ssh, with an errand on its standard input.

use std::ffi::{CString, OsString};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;

use rustix::pipe::PipeFlags;

use super::far::Branch;
use super::{Agent, Token, spawn, start};
use crate::codes;
use crate::error::{Error, Result};
use crate::orders::Errand;

impl Agent<'_> {
    /// Starts the agent that the errand is for.
    pub(super) fn start_branch(&self, errand: &Errand) -> Result<Branch> {
        let failed =
            |error| Error::system(codes::G0209, "cannot make a pipe for another host's agent", error);
        let (input, errand_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        let (words, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(failed)?;
        rustix::fs::fcntl_setfl(&words, rustix::fs::OFlags::NONBLOCK).map_err(failed)?;
        // It fits what a new pipe takes at once.
        rustix::io::write(&errand_end, &errand.encode()).map_err(failed)?;
        let argv = command(&self.job.starter, &errand.name)?;
        let program = argv[0].to_string_lossy().into_owned();
        let path = std::env::var_os("PATH");
        let path = start::find(argv[0].as_os_str(), path.as_deref(), None).map_err(|error| {
            Error::misuse(codes::G0216, format!("host '{}': {}", errand.name, told(&error)))
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
        let exec = spawn::Exec {
            path: &path,
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
            signals: self.signals,
        };
        let pid = spawn::spawn(&exec).map_err(|error| {
            let (spawn::SpawnError::Fork(error)
            | spawn::SpawnError::Chdir(error)
            | spawn::SpawnError::Exec(error)) = error;
            Error::system(
                codes::G0216,
                format!("cannot execute '{program}' for host '{}'", errand.name),
                error,
            )
        })?;
        self.listen(words.as_fd(), Token::Words(errand.node))?;
        Ok(Branch::new(errand.node, pid, (errand_end, words)))
    }
}

fn told(error: &Error) -> String {
    let text = error.to_string();
    text.split_once("]: ")
        .map_or(text.clone(), |(_, text)| text.to_owned())
}

/// What starts the agent of a host: the user's command or ssh, the host's name, and the same program that runs here.
fn command(starter: &[OsString], host: &str) -> Result<Vec<OsString>> {
    let garonne = std::env::current_exe()
        .map_err(|error| Error::system(codes::G0216, "cannot tell where `garonne` is installed", error))?;
    let mut words: Vec<OsString> = starter.to_vec();
    if words.is_empty() {
        words = ["ssh", "-x", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20"]
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
        assert_eq!(words[..4], ["ip", "netns", "exec", "n1"].map(OsString::from));
        assert_eq!(words.last().unwrap(), "agent");
    }

    #[test]
    fn ssh_gets_one_word_that_the_other_shell_reads_as_it_was() {
        let words = command(&[], "n1").unwrap();
        assert_eq!(words[words.len() - 2], "n1");
        assert_eq!(shell_word("/a b/it's"), "'/a b/it'\\''s'");
    }
}
