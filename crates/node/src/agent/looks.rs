//! What the ranks of all hosts show, for who asks about the job on one of them (`garonne who`).
//!
//! Whoever is asked passes the question to the first agent, which has all others look; what they see goes up to the first, and from there to the host where it was asked. An agent looks by
//! running its own program, which reads the host's ranks as a user's command would and writes what it sees into a pipe: so what a look takes, and what might go wrong in it, keeps no agent.
//! Nobody waits for an answer but who asks, and that for [`LOOK_WAIT`]: a look that takes longer is ended and left out. Bounded by [`LOOKERS_MAX`] who ask and for whom is looked, one look at a
//! time, [`LOOK_BYTES_MAX`] of each host; a line that is far behind is spared.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::net::SendFlags;
use rustix::pipe::PipeFlags;

use super::serve::reply;
use super::{Agent, Token, spawn};
use crate::limits::{LOOK_BYTES_MAX, LOOK_WAIT, LOOK_WAITING_MAX, LOOKERS_MAX};
use crate::orders::{Asked, Order, Report};
use crate::rendezvous;
use crate::sys;
use crate::wire::ToRank;

/// See the module's paragraph.
#[derive(Debug, Default)]
pub(super) struct Looks {
    /// Those that have asked here.
    askers: VecDeque<Asker>,
    /// The number of the last one.
    number: u32,
    /// The look under way.
    look: Option<Look>,
    /// For whom the next one is: a look that had begun before they asked is none for them.
    next: Vec<Asked>,
}

#[derive(Debug)]
struct Asker {
    number: u32,
    socket: OwnedFd,
    until: Instant,
    /// What hosts have answered, by node, and its socket has not taken: that has room for some hundred.
    answers: VecDeque<(u32, Vec<u8>)>,
    /// Bytes of these.
    held: usize,
    /// The epoll tells when there is room.
    watched: bool,
}

impl Asker {
    fn new(number: u32, socket: OwnedFd) -> Self {
        Self {
            number,
            socket,
            until: Instant::now() + LOOK_WAIT,
            answers: VecDeque::new(),
            held: 0,
            watched: false,
        }
    }

    /// Keeps an answer for it, unless it takes too little of them.
    fn keep(&mut self, node: u32, look: Vec<u8>) {
        if self.held <= LOOK_WAITING_MAX {
            self.held += look.len();
            self.answers.push_back((node, look));
        }
    }

    /// Whether it has taken all that there is. What cannot be handed over is left out: it may have gone.
    fn hand_over(&mut self) -> bool {
        while let Some((node, look)) = self.answers.front() {
            if let Some(file) = file_of(look) {
                let message = ToRank::Seen { node: *node }.encode();
                let fds = [file.as_fd()];
                let sent = sys::send(self.socket.as_fd(), &message, &fds, SendFlags::DONTWAIT);
                if sent.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock) {
                    return false;
                }
            }
            self.held -= look.len();
            self.answers.pop_front();
        }
        true
    }
}

#[derive(Debug)]
struct Look {
    /// The program that looks; 0 when it has ended.
    pid: i32,
    pipe: OwnedFd,
    said: Vec<u8>,
    until: Instant,
    by: Vec<Asked>,
}

impl Looks {
    fn asker(&mut self, number: u32) -> Option<&mut Asker> {
        self.askers.iter_mut().find(|asker| asker.number == number)
    }

    /// A child of the agent has ended, and its process id may be another's soon.
    pub fn reaped(&mut self, pid: i32) {
        if let Some(look) = self.look.as_mut().filter(|look| look.pid == pid) {
            look.pid = 0;
        }
    }

    pub fn due(&self) -> Option<Instant> {
        let askers = self.askers.iter().map(|asker| asker.until);
        askers.chain(self.look.as_ref().map(|look| look.until)).min()
    }
}

/// A file with these bytes in memory, to be handed over.
fn file_of(bytes: &[u8]) -> Option<OwnedFd> {
    let file = rustix::fs::memfd_create("garonne", MemfdFlags::CLOEXEC).ok()?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).ok()?;
    Some(file.into())
}

impl Agent<'_> {
    /// Somebody wants to know what the ranks of all other hosts show.
    pub(super) fn ask_around(&mut self, socket: OwnedFd) {
        let nodes: Vec<u8> = (0..self.job.size())
            .flat_map(|rank| self.job.nodes.of(rank).to_le_bytes())
            .collect();
        let Some(file) = file_of(&nodes) else { return };
        reply(
            socket.as_fd(),
            &ToRank::Looking { node: self.node },
            &[file.as_fd()],
        );
        if !self.job.nodes.several() {
            return;
        }
        self.looks.number = self.looks.number.wrapping_add(1);
        let number = self.looks.number;
        if self.looks.askers.len() >= LOOKERS_MAX {
            self.looks.askers.pop_front();
        }
        self.looks.askers.push_back(Asker::new(number, socket));
        match self.up.is_some() {
            true => self.report(&Report::Look(number)),
            false => self.have_all_look(Asked {
                at: self.node,
                number,
            }),
        }
    }

    /// At the first agent: somebody has asked, here or elsewhere.
    pub(super) fn have_all_look(&mut self, asked: Asked) {
        self.order_all(&Order::Look(asked));
        self.look_for(asked);
    }

    /// Looks at the ranks of this host, unless it is here that somebody has asked, who looks himself.
    pub(super) fn look_for(&mut self, asked: Asked) {
        if asked.at == self.node || self.looks.next.len() >= LOOKERS_MAX {
            return;
        }
        self.looks.next.push(asked);
        self.begin_look();
    }

    fn begin_look(&mut self) {
        if self.looks.look.is_some() || self.looks.next.is_empty() {
            return;
        }
        let by = std::mem::take(&mut self.looks.next);
        // An agent that ends has other things to do, and what it could tell would be out of date at once.
        if self.ending.is_none() {
            self.looks.look = self.start_look(by);
        }
    }

    /// Starts this program anew to look. `None`: it cannot be, and who has asked hears nothing of this host.
    fn start_look(&self, by: Vec<Asked>) -> Option<Look> {
        let (pipe, output) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).ok()?;
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).ok()?;
        let nothing = std::fs::File::options()
            .read(true)
            .write(true)
            .open("/dev/null")
            .ok()?;
        let name = rendezvous::name_of(self.hello.as_fd())?;
        let words = ["garonne", "agent", "--look", &name.0];
        let words: Result<Vec<_>, _> = words.into_iter().map(CString::new).collect();
        let argv = words.ok()?;
        let envp = std::env::vars_os().filter_map(|(name, value)| {
            use std::os::unix::ffi::OsStringExt;
            CString::new([name.into_vec(), value.into_vec()].join(&b'=')).ok()
        });
        let pid = spawn::spawn(&spawn::Exec {
            // Also where it was replaced since.
            path: &c"/proc/self/exe".to_owned(),
            argv: &argv,
            envp: &envp.collect::<Vec<_>>(),
            dir: None,
            stdin: Some(nothing.as_fd()),
            stdout: output.as_fd(),
            stderr: nothing.as_fd(),
            pass: None,
            own_group: true,
            cpus: &[],
            nofile: None,
            signals: self.signals,
        });
        let pid = pid.ok()?;
        let look = Look {
            pid,
            pipe,
            said: Vec::new(),
            until: Instant::now() + LOOK_WAIT,
            by,
        };
        if self.listen(look.pipe.as_fd(), Token::Look).is_err() {
            sys::kill(pid, libc::SIGKILL);
            return None;
        }
        Some(look)
    }

    /// The program that looks says something, or has ended.
    pub(super) fn look_speaks(&mut self) {
        let mut buffer = [0; 16 * 1024];
        while let Some(look) = &mut self.looks.look {
            match rustix::io::read(&look.pipe, &mut buffer) {
                Ok(0) => return self.end_look(true),
                Ok(n) if look.said.len() + n <= LOOK_BYTES_MAX => look.said.extend_from_slice(&buffer[..n]),
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end_look(false),
            }
        }
    }

    /// The look is over; what it saw goes to those for whom it was.
    fn end_look(&mut self, whole: bool) {
        if let Some(look) = self.looks.look.take() {
            let _ = epoll::delete(&self.epoll, &look.pipe);
            if whole && !look.said.is_empty() {
                for asked in look.by {
                    self.pass_look(self.node, asked, look.said.clone());
                }
            } else {
                sys::kill(look.pid, libc::SIGKILL);
            }
        }
        self.begin_look();
    }

    /// What the ranks of `node` show, on its way to who has asked.
    pub(super) fn pass_look(&mut self, node: u32, asked: Asked, look: Vec<u8>) {
        if asked.at == self.node {
            self.give_look(node, asked.number, look);
        } else if self.up.is_some() {
            self.report(&Report::Seen(asked, look));
        } else {
            self.order(asked.at, &Order::Seen(node, asked, look));
        }
    }

    /// Hands it to who has asked here.
    fn give_look(&mut self, node: u32, number: u32, look: Vec<u8>) {
        if let Some(asker) = self.looks.asker(number) {
            asker.keep(node, look);
            self.asker_takes(number);
        }
    }

    /// Hands what there is to who has asked here, as far as it takes that.
    pub(super) fn asker_takes(&mut self, number: u32) {
        let Some(asker) = self.looks.asker(number) else {
            return;
        };
        let is_behind = !asker.hand_over();
        if is_behind == std::mem::replace(&mut asker.watched, is_behind) {
            return;
        }
        let watched = match is_behind {
            true => {
                let token = Token::Asker(number).pack();
                epoll::add(&self.epoll, &asker.socket, token, epoll::EventFlags::OUT)
            }
            false => epoll::delete(&self.epoll, &asker.socket),
        };
        if watched.is_err() {
            self.looks.askers.retain(|asker| asker.number != number);
        }
    }

    /// Those who ask for longer than that have gone, and a look that takes longer is for nobody.
    pub(super) fn looks_keep_time(&mut self, now: Instant) {
        self.looks.askers.retain(|asker| now < asker.until);
        if self.looks.look.as_ref().is_some_and(|look| look.until <= now) {
            self.end_look(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::private_pair;
    use rustix::net::RecvFlags;

    #[test]
    fn who_is_slower_than_many_hosts_gets_all_answers() {
        const HOSTS: u32 = 2000;
        let (theirs, ours) = private_pair().unwrap();
        let mut asker = Asker::new(1, ours);
        for node in 0..HOSTS {
            asker.keep(node, node.to_ne_bytes().to_vec());
            asker.hand_over();
        }
        for node in 0..HOSTS {
            let message = sys::recv(theirs.as_fd(), RecvFlags::DONTWAIT).unwrap();
            assert_eq!(ToRank::decode(&message.bytes).unwrap(), ToRank::Seen { node });
            assert_eq!(message.fds.len(), 1);
            asker.hand_over();
        }
        assert!(asker.answers.is_empty() && asker.held == 0);
    }

    #[test]
    fn for_who_takes_nothing_or_has_gone_little_is_kept() {
        let (theirs, ours) = private_pair().unwrap();
        let mut asker = Asker::new(1, ours);
        for node in 0..1000 {
            asker.keep(node, vec![0; 1 << 20]);
        }
        assert!(asker.held <= LOOK_WAITING_MAX + (1 << 20));
        drop(theirs);
        assert!(asker.hand_over());
        assert_eq!((asker.answers.len(), asker.held), (0, 0));
    }
}
