//! PMI-1, the line protocol of hydra (`mpiexec` of MPICH and Intel), Slurm (`srun --mpi=pmi2`) and
//! Flux: on a socket that ranks inherit (`PMI_FD`), or on one to an address that they are told
//! (`PMI_PORT`).
//!
//! Requests and answers are lines of `cmd=NAME key=value…`. What the launchers' dialects add is
//! passed over. Waits without a limit where other ranks are waited for: how long a job may take to
//! begin is its launcher's business, which ends it when a rank dies. What is said does not depend
//! on what carries it.

use std::fmt::Debug;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};

use super::process_mapping;
use super::{LauncherExchange, RankAndSize};
use garonne_job::codes;
use garonne_job::error::{Error, Result};
use garonne_job::limits::{EXCHANGE_LINE_MAX, EXCHANGE_VALUE_MIN};
use garonne_links::sys;

/// A socket to the launcher, of any family, as a stream.
#[derive(Debug)]
pub(super) struct LauncherSocket(OwnedFd);

impl Read for LauncherSocket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let (got, _) = rustix::net::recv(self.0.as_fd(), bytes, RecvFlags::empty())?;
        Ok(got)
    }
}

impl Write for LauncherSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(
            self.0.as_fd(),
            bytes,
            SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A rank's line to its launcher. See the module's paragraph.
#[derive(Debug)]
pub(super) struct PmiClient<S = LauncherSocket> {
    launcher: &'static str,
    socket: S,
    came: Vec<u8>,
    standing: RankAndSize,
    space: String,
}

impl PmiClient {
    /// On the socket with this number and inode, which the process has inherited. What it starts in
    /// turn does not get it.
    pub fn inherited(
        launcher: &'static str,
        (number, inode): (i32, u64),
        standing: RankAndSize,
    ) -> Result<Self> {
        let socket = sys::adopt_socket(number, inode).ok_or_else(|| {
            Error::misuse(
                codes::G0219,
                format!("PMI_FD names descriptor {number}, which is no socket of {launcher}"),
            )
        })?;
        Self::begin(launcher, LauncherSocket(socket), standing)
    }

    /// At the address `HOST:PORT`, as the process with this number. `None`: it was started alone.
    pub fn called(launcher: &'static str, port: &str, id: &str) -> Result<Option<Self>> {
        let socket = TcpStream::connect(port).map_err(|error| {
            Error::system(
                codes::G0219,
                format!("{launcher} is not reached at '{port}', which PMI_PORT names"),
                error,
            )
        })?;
        Self::acknowledged(launcher, LauncherSocket(socket.into()), id)
    }
}

impl<S: Read + Write> PmiClient<S> {
    fn acknowledged(launcher: &'static str, socket: S, id: &str) -> Result<Option<Self>> {
        let mut pmi = Self::silent(launcher, socket, RankAndSize { rank: 0, size: 0 });
        pmi.send(&format!("cmd=initack pmiid={id}"))?;
        pmi.answer("initack")?;
        // Who that is comes unasked.
        let mut set = |name| {
            let line = pmi.line()?;
            let number = number(&line, name).and_then(|number| u32::try_from(number).ok());
            match value(&line, "cmd") {
                Some("set") => number.ok_or_else(|| pmi.strange(&format!("set {name}"), &line)),
                _ => Err(pmi.strange(&format!("set {name}"), &line)),
            }
        };
        let (size, rank) = (set("size")?, set("rank")?);
        if size < 2 || rank >= size {
            return Ok(None);
        }
        pmi.standing = RankAndSize { rank, size };
        Self::begin_with(pmi).map(Some)
    }

    fn silent(launcher: &'static str, socket: S, standing: RankAndSize) -> Self {
        Self {
            launcher,
            socket,
            came: Vec::new(),
            standing,
            space: String::new(),
        }
    }

    fn begin(launcher: &'static str, socket: S, standing: RankAndSize) -> Result<Self> {
        Self::begin_with(Self::silent(launcher, socket, standing))
    }

    fn begin_with(mut pmi: Self) -> Result<Self> {
        pmi.ask(
            "cmd=init pmi_version=1 pmi_subversion=1",
            "response_to_init",
        )?;
        let most = pmi.ask("cmd=get_maxes", "maxes")?;
        if number(&most, "vallen_max").is_some_and(|most| (most as usize) < EXCHANGE_VALUE_MIN) {
            let text = format!(
                "{} exchanges values of {} bytes at most, which is too little",
                pmi.launcher,
                value(&most, "vallen_max").unwrap_or_default()
            );
            return Err(Error::resource(codes::G0219, text));
        }
        let space = pmi.ask("cmd=get_my_kvsname", "my_kvsname")?;
        pmi.space = value(&space, "kvsname")
            .ok_or_else(|| pmi.strange("my_kvsname", &space))?
            .to_owned();
        Ok(pmi)
    }

    fn lost(&self, error: io::Error) -> Error {
        Error::system(
            codes::G0219,
            format!(
                "the connection of rank {} to {} broke",
                self.standing.rank, self.launcher
            ),
            error,
        )
    }

    fn strange(&self, wanted: &str, line: &str) -> Error {
        let shown: String = line.chars().take(200).collect();
        Error::peer(
            codes::G0219,
            format!(
                "{} answers '{shown}' where PMI-1 has '{wanted}'",
                self.launcher
            ),
        )
    }

    fn send(&mut self, line: &str) -> Result<()> {
        let line = format!("{line}\n");
        self.socket
            .write_all(line.as_bytes())
            .map_err(|error| self.lost(error))
    }

    fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.came.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.came.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.came.len() > EXCHANGE_LINE_MAX {
                return Err(self.strange("a line", &String::from_utf8_lossy(&self.came)));
            }
            let mut bytes = [0; 4096];
            match self.socket.read(&mut bytes) {
                Ok(0) => return Err(self.lost(io::ErrorKind::UnexpectedEof.into())),
                Ok(got) => self.came.extend_from_slice(&bytes[..got]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
    }

    /// The next answer of this name; what a launcher says besides (`cmd=set …` of those that were
    /// called) is passed over.
    fn answer(&mut self, name: &str) -> Result<String> {
        loop {
            let line = self.line()?;
            match value(&line, "cmd") {
                Some("set") => {}
                Some(said) if said == name => return Ok(line),
                _ => return Err(self.strange(name, &line)),
            }
        }
    }

    /// Sends a request and returns the answer, if that tells of success.
    fn ask(&mut self, request: &str, name: &str) -> Result<String> {
        self.send(request)?;
        let line = self.answer(name)?;
        match number(&line, "rc") {
            None | Some(0) => Ok(line),
            Some(_) => Err(self.strange(&format!("{name} rc=0"), &line)),
        }
    }

    fn found(&mut self, key: &str) -> Result<Option<String>> {
        let request = format!("cmd=get kvsname={} key={key}", self.space);
        self.send(&request)?;
        let line = self.answer("get_result")?;
        Ok(match number(&line, "rc") {
            None | Some(0) => value(&line, "value").map(str::to_owned),
            Some(_) => None,
        })
    }
}

impl<S: Read + Write + Debug + Send> LauncherExchange for PmiClient<S> {
    fn launcher(&self) -> &str {
        self.launcher
    }

    fn rank_and_size(&self) -> RankAndSize {
        self.standing
    }

    fn nodes(&mut self) -> Result<Option<Vec<u32>>> {
        let told = self.found("PMI_process_mapping")?;
        Ok(told.and_then(|told| process_mapping::nodes(&told, self.standing.size)))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let request = format!("cmd=put kvsname={} key={key} value={value}", self.space);
        self.ask(&request, "put_result").map(drop)
    }

    fn fence(&mut self) -> Result<()> {
        self.ask("cmd=barrier_in", "barrier_out").map(drop)
    }

    fn get(&mut self, key: &str, _of: u32) -> Result<String> {
        let found = self.found(key)?;
        found.ok_or_else(|| {
            Error::peer(
                codes::G0219,
                format!(
                    "{} does not give the value of '{key}' that a rank has put",
                    self.launcher
                ),
            )
        })
    }

    fn finish(&mut self) {
        // Who has gone already needs no farewell.
        let _ = self.ask("cmd=finalize", "finalize_ack");
    }

    fn abort(&mut self, code: i32) {
        let _ = self.send(&format!("cmd=abort exitcode={code}"));
    }
}

/// The value of a key in a line. The first of its name counts.
fn value<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().find_map(|word| {
        let (name, value) = word.split_once('=')?;
        (name == key).then_some(value)
    })
}

fn number(line: &str, key: &str) -> Option<i64> {
    value(line, key)?.parse().ok()
}

/// A launcher that has said everything before it was asked, and hears nothing.
#[cfg(any(test, fuzzing))]
#[derive(Debug)]
struct Said<'a>(&'a [u8]);

#[cfg(any(test, fuzzing))]
impl Read for Said<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        // In parts, as from a socket.
        let part = bytes.len().min(100);
        self.0.read(&mut bytes[..part])
    }
}

#[cfg(any(test, fuzzing))]
impl Write for Said<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads any bytes as the answers to all that a rank asks, which was called or has inherited its
/// socket.
#[cfg(any(test, fuzzing))]
pub(super) fn read_anything(bytes: &[u8]) {
    let standing = RankAndSize { rank: 1, size: 4 };
    let called = PmiClient::acknowledged("a launcher", Said(bytes), "1").unwrap_or(None);
    let inherited = PmiClient::begin("a launcher", Said(bytes), standing).ok();
    for mut pmi in called.into_iter().chain(inherited) {
        let RankAndSize { rank, size } = pmi.rank_and_size();
        assert!(rank < size);
        if size <= garonne_job::limits::RANKS_MAX
            && let Ok(Some(nodes)) = pmi.nodes()
        {
            assert_eq!(nodes.len(), size as usize);
        }
        let _ = (pmi.put("key", "value"), pmi.fence());
        if let Ok(value) = pmi.get("key", 0) {
            super::wireup::read_anything(&value);
        }
        assert!(pmi.came.len() <= EXCHANGE_LINE_MAX + 4096);
        pmi.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixStream;

    /// A launcher that answers each line by what `answers` gives for its command.
    fn launcher(answers: fn(&str) -> Option<String>) -> LauncherSocket {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut out = theirs.try_clone().unwrap();
            for line in BufReader::new(theirs).lines() {
                match answers(&line.unwrap()) {
                    Some(answer) => out.write_all(answer.as_bytes()).unwrap(),
                    None => return,
                }
            }
        });
        LauncherSocket(ours.into())
    }

    fn usual(line: &str) -> Option<String> {
        let answer = match value(line, "cmd")? {
            "init" => "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
            "get_maxes" => "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
            "get_my_kvsname" => "cmd=my_kvsname  kvsname=kvs_1_0 more=words without\n",
            "put" => "cmd=put_result rc=0 msg=success\n",
            "barrier_in" => "cmd=barrier_out\n",
            "get" if line.contains("PMI_process_mapping") => {
                "cmd=get_result rc=0 value=(vector,(0,2,2))\n"
            }
            "get" if line.contains("key=there") => "cmd=get_result rc=0 msg=success value=abc=\n",
            "get" => "cmd=get_result rc=-1 msg=key_not_found value=unknown\n",
            "finalize" => "cmd=finalize_ack\n",
            _ => return None,
        };
        Some(answer.to_owned())
    }

    const STANDING: RankAndSize = RankAndSize { rank: 1, size: 4 };

    #[test]
    fn a_rank_speaks_to_a_launcher_of_any_dialect() {
        let mut pmi = PmiClient::begin("a launcher", launcher(usual), STANDING).unwrap();
        assert_eq!(pmi.nodes().unwrap().unwrap(), [0, 0, 1, 1]);
        pmi.put("a", "b").unwrap();
        pmi.fence().unwrap();
        assert_eq!(pmi.get("there", 0).unwrap(), "abc=");
        let error = pmi.get("not-there", 0).unwrap_err();
        assert!(error.to_string().contains("not-there"), "{error}");
        pmi.finish();
    }

    #[test]
    fn a_rank_that_calls_is_told_who_it_is() {
        let calls = |line: &str| match line {
            "cmd=initack pmiid=9" => Some(
                "cmd=initack rc=0\ncmd=set size=4\ncmd=set rank=2\ncmd=set debug=0\n".to_owned(),
            ),
            line => usual(line),
        };
        let pmi = PmiClient::acknowledged("a launcher", launcher(calls), "9")
            .unwrap()
            .unwrap();
        assert_eq!(pmi.rank_and_size(), RankAndSize { rank: 2, size: 4 });
        let alone = |_: &str| Some("cmd=initack rc=0\ncmd=set size=1\ncmd=set rank=0\n".to_owned());
        assert!(
            PmiClient::acknowledged("a launcher", launcher(alone), "0")
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn a_launcher_that_refuses_or_goes_is_an_error_that_shows_what_it_said() {
        let refuses = |line: &str| Some(format!("cmd=response_to_init rc=7 # {line}\n"));
        let error = PmiClient::begin("a launcher", launcher(refuses), STANDING).unwrap_err();
        assert_eq!(error.code(), codes::G0219);
        assert!(error.to_string().contains("rc=7"), "{error}");
        let goes = |line: &str| (!line.contains("get_maxes")).then(|| usual(line))?;
        let error = PmiClient::begin("a launcher", launcher(goes), STANDING).unwrap_err();
        assert!(error.to_string().contains("broke"), "{error}");
    }
}
