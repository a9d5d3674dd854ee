//! What a stand-in hands over to its shared process, and what it hears of its rank's end.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use garonne_links::sys;
use rustix::net::{RecvFlags, SendFlags};

/// A rank's process as its agent started it.
#[derive(Debug, Default)]
pub(crate) struct Handover {
    /// Number of the rank in the world.
    pub rank: u32,
    /// File of the program.
    pub program: PathBuf,
    /// Words of its command line.
    pub arguments: Vec<OsString>,
    /// Variables, `NAME=VALUE`.
    pub environment: Vec<OsString>,
    /// Number under which the program finds the agent's socket.
    pub agent_number: i32,
    /// Mask of new files.
    pub umask: u32,
    /// CPUs on which the rank may run.
    pub cpus: Vec<usize>,
    /// Standard input, output and error output, working directory, and the agent's socket.
    pub files: Vec<OwnedFd>,
}

impl Handover {
    /// Sends everything over a stand-in's connection.
    pub fn send(&self, to: BorrowedFd<'_>, files: [BorrowedFd<'_>; 5]) -> std::io::Result<()> {
        let text = rustix::fs::memfd_create("garonne-rank", rustix::fs::MemfdFlags::CLOEXEC)?;
        let mut text = File::from(text);
        text.write_all(&self.encode())?;
        let all = [
            text.as_fd(),
            files[0],
            files[1],
            files[2],
            files[3],
            files[4],
        ];
        for pair in all.chunks(2) {
            sys::send(to, b"r", pair, SendFlags::empty())?;
        }
        Ok(())
    }

    /// Receives what [`send`](Self::send) sent.
    pub fn receive(from: BorrowedFd<'_>) -> Result<Self, String> {
        let mut files = Vec::new();
        while files.len() < 6 {
            let message = sys::recv(from, RecvFlags::empty())
                .map_err(|error| format!("a rank's process cannot be heard: {error}"))?;
            if message.bytes.is_empty() || message.fds.is_empty() {
                return Err("a rank's process ended before its rank began".into());
            }
            files.extend(message.fds);
        }
        let mut text = File::from(files.remove(0));
        let mut bytes = Vec::new();
        let read = text.rewind().and_then(|()| text.read_to_end(&mut bytes));
        read.map_err(|error| format!("what a rank begins with cannot be read: {error}"))?;
        let handover = Self::decode(&bytes).ok_or("what a rank begins with is damaged")?;
        Ok(Self { files, ..handover })
    }

    fn encode(&self) -> Vec<u8> {
        let mut all = vec![
            self.rank.to_string().into(),
            self.agent_number.to_string().into(),
            self.umask.to_string().into(),
            self.cpus.len().to_string().into(),
        ];
        all.extend(self.cpus.iter().map(|cpu| cpu.to_string().into()));
        all.push(self.program.clone().into_os_string());
        all.push(self.arguments.len().to_string().into());
        all.extend(self.arguments.iter().cloned());
        all.extend(self.environment.iter().cloned());
        let with_ends = all.iter().flat_map(|word| [word.as_bytes(), b"\0"]);
        with_ends.collect::<Vec<_>>().concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.strip_suffix(b"\0")?.split(|byte| *byte == 0);
        let mut word = || Some(OsStr::from_bytes(words.next()?).to_owned());
        let mut number = || word()?.to_str()?.parse::<i64>().ok();
        let (rank, agent_number) = (number()?, number()?);
        let (umask, cpus) = (number()?, number()?);
        let cpus = (0..cpus).map(|_| usize::try_from(number()?).ok());
        let cpus = cpus.collect::<Option<Vec<_>>>()?;
        let program = PathBuf::from(word()?);
        let count = word()?.to_str()?.parse::<usize>().ok()?;
        let arguments = (0..count).map(|_| word()).collect::<Option<Vec<_>>>()?;
        Some(Self {
            rank: u32::try_from(rank).ok()?,
            program,
            arguments,
            environment: words
                .map(|word| OsString::from_vec(word.to_vec()))
                .collect(),
            agent_number: i32::try_from(agent_number).ok()?,
            umask: u32::try_from(umask).ok()?,
            cpus,
            files: Vec::new(),
        })
    }

    /// Value of a variable of the rank.
    pub fn variable(&self, name: &str) -> Option<OsString> {
        let mut all = self.environment.iter();
        all.find_map(|entry| {
            let value = entry.as_bytes().strip_prefix(name.as_bytes())?;
            Some(OsStr::from_bytes(value.strip_prefix(b"=")?).to_owned())
        })
    }

    /// Words as the C library has them. None contains a zero byte.
    pub fn c_strings(words: &[OsString]) -> Vec<CString> {
        let words = words.iter().map(|word| CString::new(word.as_bytes()));
        words.filter_map(Result::ok).collect()
    }
}

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RankEnd {
    /// The program returned or called `exit`, with this code.
    Exit(u8),
    /// A signal would have ended its process.
    Signal(u8),
}

impl RankEnd {
    /// Returns the end as a word that is not zero.
    pub fn to_word(self) -> u32 {
        match self {
            Self::Exit(code) => 0x100 | u32::from(code),
            Self::Signal(signal) => 0x200 | u32::from(signal),
        }
    }

    /// Reads a word of [`to_word`](Self::to_word).
    pub fn from_word(word: u32) -> Option<Self> {
        let low = word as u8;
        match word & !0xff {
            0x100 => Some(Self::Exit(low)),
            0x200 => Some(Self::Signal(low)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_comes_back() {
        let sent = Handover {
            rank: 7,
            program: "/bin/true".into(),
            arguments: vec!["true".into(), "".into(), "two words".into()],
            environment: vec!["A=1".into(), "AB=2=3".into()],
            agent_number: -1,
            umask: 0o22,
            cpus: vec![0, 5],
            files: Vec::new(),
        };
        let got = Handover::decode(&sent.encode()).unwrap();
        assert_eq!(format!("{got:?}"), format!("{sent:?}"));
        assert_eq!(got.variable("AB"), Some("2=3".into()));
        assert_eq!(got.variable("B"), None);
        let damaged = sent.encode();
        for len in 0..damaged.len() {
            let _ = Handover::decode(&damaged[..len]);
        }
    }

    #[test]
    fn ends_of_ranks_are_words() {
        for end in [RankEnd::Exit(0), RankEnd::Exit(255), RankEnd::Signal(11)] {
            assert_eq!(RankEnd::from_word(end.to_word()), Some(end));
        }
        assert_eq!(RankEnd::from_word(0), None);
    }
}
