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
        self.looks.askers.push_back(Asker {
            number,
            socket,
            until: Instant::now() + LOOK_WAIT,
        });
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
            self.give_look(node, asked.number, &look);
        } else if let Some(up) = &self.up {
            let trunk = up.trunk.as_ref();
            if trunk.is_some_and(|trunk| !trunk.is_behind(LOOK_WAITING_MAX)) {
                self.report(&Report::Seen(asked, look));
            }
        } else if !self.is_behind(asked.at, LOOK_WAITING_MAX) {
            self.order(asked.at, &Order::Seen(node, asked, look));
        }
    }

    /// Hands it to who has asked here.
    fn give_look(&self, node: u32, number: u32, look: &[u8]) {
        let mut askers = self.looks.askers.iter();
        if let Some(asker) = askers.find(|asker| asker.number == number)
            && let Some(file) = file_of(look)
        {
            reply(asker.socket.as_fd(), &ToRank::Seen { node }, &[file.as_fd()]);
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
