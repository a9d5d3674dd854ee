//! What the ranks of all hosts show, for who asks about the job on one of them (`garonne who`,
//! `top`, `trace`, `overlap`, `rail`, `why`).
//!
//! Whoever is asked passes the question to the first agent, which has all others look; what they
//! see goes up to the first, and from there to the host where it was asked. An agent looks by
//! running its own program, which reads the host's ranks as a user's command would and writes what
//! it sees into a pipe: so what a look takes, and what might go wrong in it, keeps no agent. Nobody
//! waits for an answer but who asks, and that for [`LOOK_WAIT`]: a look that takes longer is ended
//! and left out. Bounded by [`LOOKERS_MAX`] who ask and for whom is looked, one look at a time,
//! [`LOOK_BYTES_MAX`] of each host; a line that is far behind is spared.
//!
//! What ranks record is told as it comes, in frames ([`garonne_trace::event_stream`]), by a look of
//! its own beside the others, at most [`RECORDERS_MAX`] of them. Where a line has more than
//! [`RECORDS_WAITING_MAX`] bytes to send its pipe is not read: then the program that looks waits,
//! and the journals that it reads lose their oldest records, which it counts. It ends when it has
//! seen enough, or when who asked has gone.

use std::collections::VecDeque;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fs::MemfdFlags;
use rustix::net::SendFlags;

use super::EpollToken;
use super::context::Context;
use super::helper_process::{self, HelperProcess};
use super::requests::reply;
use garonne_job::agent_messages::{AgentCommand, AgentReport, Query, QueryId};
use garonne_job::limits::{
    LOOK_BYTES_MAX, LOOK_WAIT, LOOK_WAITING_MAX, LOOKERS_MAX, RECORDERS_MAX, RECORDS_GRACE,
    RECORDS_PAUSE, RECORDS_WAITING_MAX,
};
use garonne_job::query::RemoteCommand;
use garonne_job::rank_messages::ToRank;
use garonne_links::sys;

/// Queries about the ranks of all hosts: the tools that asked, and the programs that answer for
/// this host.
///
/// Owned by the agent. A tool's query ([`query_other_hosts`](Self::query_other_hosts)) reaches all
/// agents ([`query_all`](Self::query_all), [`take_query`](Self::take_query)). Programs and tools go
/// on as the epoll tells; [`check_snapshots`](Self::check_snapshots) is called when
/// [`due`](Self::due) says so.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    /// Tools that have asked this agent.
    clients: VecDeque<QueryConnection>,
    /// The number of the last one.
    number: u32,
    /// The looks under way: at most one that is no stream.
    requests: Vec<SnapshotRequest>,
    /// The number of the last of them.
    begun: u32,
    /// Until when an agent that ends waits for what is still told of records.
    deadline: Option<Instant>,
    /// For whom the next one is, and what it is to see: a look that had begun before they asked is
    /// none for them.
    queued: Vec<(QueryId, Query)>,
}

#[derive(Debug)]
struct QueryConnection {
    number: u32,
    socket: OwnedFd,
    until: Instant,
    /// Answers of hosts, by node, that the tool's socket has not taken: it has room for some
    /// hundred.
    answers: VecDeque<(u32, Vec<u8>)>,
    /// Bytes of these.
    held: usize,
    /// The epoll tells when there is room.
    watched: bool,
    /// The tool wants a stream of answers from each host.
    stream: bool,
    /// The tool has gone.
    gone: bool,
}

impl QueryConnection {
    fn new(number: u32, socket: OwnedFd, wish: Query) -> Self {
        Self {
            number,
            socket,
            until: Instant::now() + LOOK_WAIT,
            answers: VecDeque::new(),
            held: 0,
            watched: false,
            stream: wish.is_stream(),
            gone: false,
        }
    }

    /// Returns whether nobody is at the other end any more.
    fn has_left(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
        let ends = PollFlags::HUP | PollFlags::ERR;
        poll(&mut polled, Some(&Timespec::default())).is_ok()
            && polled[0].revents().intersects(ends)
    }

    /// Keeps an answer for it, unless it takes too little of them.
    fn keep(&mut self, node: u32, look: Vec<u8>) {
        if self.held <= LOOK_WAITING_MAX {
            self.held += look.len();
            self.answers.push_back((node, look));
        }
        if self.stream {
            self.until = Instant::now() + LOOK_WAIT;
        }
    }

    /// Returns whether it has taken all that there is. What cannot be handed over is left out: it
    /// may have gone.
    fn hand_over(&mut self) -> bool {
        while let Some((node, look)) = self.answers.front() {
            if let Some(file) = file_of(look) {
                let message = ToRank::QueryResult { node: *node }.encode();
                let fds = [file.as_fd()];
                match sys::send(self.socket.as_fd(), &message, &fds, SendFlags::DONTWAIT) {
                    Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return false,
                    sent => self.gone |= sent.is_err(),
                }
            }
            self.held -= look.len();
            self.answers.pop_front();
        }
        true
    }
}

#[derive(Debug)]
struct SnapshotRequest {
    number: u32,
    wish: Query,
    /// The program that looks; 0 when it has ended.
    pid: i32,
    pipe: OwnedFd,
    said: Vec<u8>,
    /// Time until which answers are sent. A stream has none: the tool ends it.
    until: Option<Instant>,
    /// Until then its pipe is not read.
    paused: Option<Instant>,
    by: Vec<QueryId>,
}

/// Error: bytes that claim to be a frame, and are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NoFrame;

/// Takes the first frame out of what a stream has said, if it is whole.
fn take_frame(said: &mut Vec<u8>) -> std::result::Result<Option<Vec<u8>>, NoFrame> {
    let Some(len) = said.first_chunk() else {
        return Ok(None);
    };
    let len = u32::from_le_bytes(*len) as usize;
    if len == 0 || len > LOOK_BYTES_MAX {
        return Err(NoFrame);
    }
    let frame = said.get(4..4 + len).map(<[u8]>::to_vec);
    if frame.is_some() {
        said.drain(..4 + len);
    }
    Ok(frame)
}

impl Snapshots {
    fn client(&mut self, number: u32) -> Option<&mut QueryConnection> {
        self.clients.iter_mut().find(|asker| asker.number == number)
    }

    /// A child of the agent has ended, and its process id may be another's soon.
    pub fn reaped(&mut self, pid: i32) {
        if let Some(look) = self.requests.iter_mut().find(|look| look.pid == pid) {
            look.pid = 0;
        }
    }

    pub fn due(&self) -> Option<Instant> {
        let askers = self.clients.iter().map(|asker| asker.until);
        let looks = self
            .requests
            .iter()
            .flat_map(|look| [look.until, look.paused]);
        askers.chain(looks.flatten()).min()
    }

    fn request(&mut self, number: u32) -> Option<&mut SnapshotRequest> {
        self.requests.iter_mut().find(|look| look.number == number)
    }

    /// Until when an agent that has nothing else to do waits for what ranks recorded at their end:
    /// those who read that here, and who asked here, have not got all of it. `None`: they have, or
    /// it took too long.
    pub fn keep(&mut self, now: Instant) -> Option<Instant> {
        let unsaid = self
            .clients
            .iter()
            .any(|asker| asker.stream && !asker.answers.is_empty());
        if self.streams() == 0 && !unsaid {
            return None;
        }
        let until = *self.deadline.get_or_insert(now + RECORDS_GRACE);
        (until > now).then_some(until)
    }

    /// Returns whether it has waited so: longer than for anything else.
    pub fn has_kept(&self) -> bool {
        self.deadline.is_some()
    }

    fn streams(&self) -> usize {
        self.requests
            .iter()
            .filter(|look| look.wish.is_stream())
            .count()
    }
}

/// A file with these bytes in memory, to be handed over.
fn file_of(bytes: &[u8]) -> Option<OwnedFd> {
    let file = rustix::fs::memfd_create("garonne", MemfdFlags::CLOEXEC).ok()?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).ok()?;
    Some(file.into())
}

impl Snapshots {
    /// Somebody wants to know what the ranks of all other hosts show.
    pub fn query_other_hosts(&mut self, ctx: &mut Context<'_>, socket: OwnedFd, wish: Query) {
        let nodes: Vec<u8> = (0..ctx.job.size())
            .flat_map(|rank| ctx.job.nodes.of(rank).to_le_bytes())
            .collect();
        let Some(file) = file_of(&nodes) else { return };
        reply(
            socket.as_fd(),
            &ToRank::QueryStarted { node: ctx.node },
            &[file.as_fd()],
        );
        if !ctx.job.nodes.several() {
            return;
        }
        self.drop_client(ctx, QueryConnection::has_left);
        self.number = self.number.wrapping_add(1);
        let number = self.number;
        if self.clients.len() >= LOOKERS_MAX
            && let Some(oldest) = self.clients.pop_front()
        {
            self.cancel_query(ctx, &oldest);
        }
        self.clients
            .push_back(QueryConnection::new(number, socket, wish));
        self.forward_query(ctx, number, wish);
    }

    fn forward_query(&mut self, ctx: &mut Context<'_>, number: u32, wish: Query) {
        match ctx.is_child() {
            true => ctx.report(&AgentReport::Query(number, wish)),
            false => {
                let at = ctx.node;
                self.query_all(ctx, QueryId { node: at, number }, wish);
            }
        }
    }

    /// Nobody tells this one anything any more.
    fn cancel_query(&mut self, ctx: &mut Context<'_>, asker: &QueryConnection) {
        if asker.stream {
            self.forward_query(ctx, asker.number, Query::Cancel);
        }
    }

    /// At the first agent: somebody has asked, here or elsewhere.
    pub fn query_all(&mut self, ctx: &mut Context<'_>, asked: QueryId, wish: Query) {
        ctx.command_all(&AgentCommand::Query(asked, wish));
        self.take_query(ctx, asked, wish);
    }

    /// Looks at the ranks of this host, unless it is here that somebody has asked, who looks
    /// himself.
    pub fn take_query(&mut self, ctx: &mut Context<'_>, asked: QueryId, wish: Query) {
        if asked.node == ctx.node {
            return;
        }
        match wish {
            Query::Clock => self.forward_snapshot(
                ctx,
                ctx.node,
                asked,
                sys::monotonic_ns().to_le_bytes().to_vec(),
            ),
            Query::Cancel => self.cancel_snapshot(ctx, asked),
            _ if self.queued.len() >= LOOKERS_MAX => {}
            Query::Records { .. } | Query::All if self.streams() >= RECORDERS_MAX => {}
            Query::Records { .. } | Query::All => self.answer_now(ctx, wish, vec![asked]),
            // Of one that is not here, or of none, there is nothing to say.
            Query::Command(RemoteCommand::Gate(rank), _) if !ctx.is_here(rank) => {}
            Query::Command(..) if ctx.job.ranks_of(ctx.node).is_empty() => {}
            Query::State | Query::Load | Query::Command(..) => {
                self.queued.push((asked, wish));
                self.begin_snapshot(ctx);
            }
        }
    }

    fn begin_snapshot(&mut self, ctx: &mut Context<'_>) {
        let looks = &mut *self;
        if looks.requests.len() > looks.streams() {
            return;
        }
        let Some(&(_, wish)) = looks.queued.first() else {
            return;
        };
        let by = looks.queued.iter().filter(|(_, other)| *other == wish);
        let by = by.map(|(asked, _)| *asked).collect();
        looks.queued.retain(|(_, other)| *other != wish);
        self.answer_now(ctx, wish, by);
    }

    fn answer_now(&mut self, ctx: &mut Context<'_>, wish: Query, by: Vec<QueryId>) {
        // An agent that ends has other things to do, and what it could tell would be out of date at
        // once.
        if !ctx.is_ending {
            self.begun = self.begun.wrapping_add(1);
            let look = self.start_snapshot(ctx, self.begun, wish, by);
            self.requests.extend(look);
        }
    }

    fn cancel_snapshot(&mut self, ctx: &mut Context<'_>, asked: QueryId) {
        let of = |look: &&SnapshotRequest| look.wish.is_stream() && look.by.contains(&asked);
        if let Some(number) = self.requests.iter().find(of).map(|look| look.number) {
            self.end_snapshot(ctx, number, false);
        }
    }

    /// Starts this program anew to look. `None`: it cannot be, and who has asked hears nothing of
    /// this host.
    fn start_snapshot(
        &self,
        ctx: &Context<'_>,
        number: u32,
        wish: Query,
        by: Vec<QueryId>,
    ) -> Option<SnapshotRequest> {
        let name = ctx.socket_name()?;
        let HelperProcess { pid, pipe } =
            helper_process::start(&["agent", "--look", &name.0, &wish.word()], ctx.signals)?;
        let look = SnapshotRequest {
            number,
            wish,
            pid,
            pipe,
            said: Vec::new(),
            until: (!wish.is_stream()).then(|| Instant::now() + LOOK_WAIT),
            paused: None,
            by,
        };
        if ctx
            .listen(look.pipe.as_fd(), EpollToken::SnapshotProcess(number))
            .is_err()
        {
            sys::kill(pid, libc::SIGKILL);
            return None;
        }
        Some(look)
    }

    /// The program that looks says something, or has ended.
    pub fn read_snapshot(&mut self, ctx: &mut Context<'_>, number: u32) {
        let mut buffer = [0; 16 * 1024];
        while let Some(look) = self.request(number).filter(|look| look.paused.is_none()) {
            match rustix::io::read(&look.pipe, &mut buffer) {
                Ok(0) => return self.end_snapshot(ctx, number, true),
                Ok(n) if look.said.len() + n <= LOOK_BYTES_MAX + 4 + buffer.len() => {
                    look.said.extend_from_slice(&buffer[..n]);
                }
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return self.end_snapshot(ctx, number, false),
            }
            if self
                .request(number)
                .is_some_and(|look| look.wish.is_stream())
            {
                self.pass_frames(ctx, number);
            }
        }
    }

    /// Passes on what a stream has said, and leaves the rest in its pipe for a while if the line is
    /// behind.
    fn pass_frames(&mut self, ctx: &mut Context<'_>, number: u32) {
        while let Some(look) = self.request(number) {
            let by = look.by.clone();
            let frame = match take_frame(&mut look.said) {
                Ok(Some(frame)) => frame,
                Ok(None) => return,
                Err(NoFrame) => return self.end_snapshot(ctx, number, false),
            };
            for asked in &by {
                self.forward_snapshot(ctx, ctx.node, *asked, frame.clone());
            }
            if by
                .iter()
                .any(|asked| ctx.waiting_for(asked.node) > RECORDS_WAITING_MAX)
                && let Some(look) = self.request(number)
            {
                look.paused = Some(Instant::now() + RECORDS_PAUSE);
                let _ = epoll::delete(&ctx.epoll, &look.pipe);
            }
        }
    }

    /// The look is over; what it saw goes to those for whom it was, and of a stream that it is
    /// over.
    fn end_snapshot(&mut self, ctx: &mut Context<'_>, number: u32, whole: bool) {
        let looks = &mut self.requests;
        if let Some(place) = looks.iter().position(|look| look.number == number) {
            let look = looks.swap_remove(place);
            if look.paused.is_none() {
                let _ = epoll::delete(&ctx.epoll, &look.pipe);
            }
            let (stream, said) = (look.wish.is_stream(), look.said);
            // What a stream has said when it ends is half a frame.
            if whole && (stream || said.len() <= LOOK_BYTES_MAX && !said.is_empty()) {
                let said = if stream { Vec::new() } else { said };
                for asked in look.by {
                    self.forward_snapshot(ctx, ctx.node, asked, said.clone());
                }
            } else if look.pid != 0 {
                sys::kill(look.pid, libc::SIGKILL);
            }
        }
        self.begin_snapshot(ctx);
    }

    /// Passes the answer of `node` on to the tool that asked.
    pub fn forward_snapshot(
        &mut self,
        ctx: &mut Context<'_>,
        node: u32,
        asked: QueryId,
        look: Vec<u8>,
    ) {
        if asked.node == ctx.node {
            self.deliver_snapshot(ctx, node, asked.number, look);
        } else if ctx.is_child() {
            ctx.report(&AgentReport::QueryResult(asked, look));
        } else {
            ctx.command(asked.node, &AgentCommand::QueryResult(node, asked, look));
        }
    }

    /// Hands it to who has asked here.
    fn deliver_snapshot(&mut self, ctx: &mut Context<'_>, node: u32, number: u32, look: Vec<u8>) {
        if let Some(asker) = self.client(number) {
            asker.keep(node, look);
            self.client_ready(ctx, number);
        }
    }

    /// Hands what there is to who has asked here, as far as it takes that.
    pub fn client_ready(&mut self, ctx: &mut Context<'_>, number: u32) {
        let Some(asker) = self.client(number) else {
            return;
        };
        let is_behind = !asker.hand_over();
        if asker.gone {
            return self.drop_client(ctx, |asker| asker.number == number);
        }
        if is_behind == std::mem::replace(&mut asker.watched, is_behind) {
            return;
        }
        let watched = match is_behind {
            true => {
                let token = EpollToken::QueryClient(number).pack();
                epoll::add(&ctx.epoll, &asker.socket, token, epoll::EventFlags::OUT)
            }
            false => epoll::delete(&ctx.epoll, &asker.socket),
        };
        if watched.is_err() {
            self.drop_client(ctx, |asker| asker.number == number);
        }
    }

    /// Drops the tools for which the predicate holds.
    fn drop_client(&mut self, ctx: &mut Context<'_>, of: impl Fn(&QueryConnection) -> bool) {
        let (gone, left) = std::mem::take(&mut self.clients).into_iter().partition(of);
        self.clients = left;
        let gone: VecDeque<QueryConnection> = gone;
        gone.iter().for_each(|asker| self.cancel_query(ctx, asker));
    }

    /// Drops tools whose time is over, and stops snapshots that take longer.
    pub fn check_snapshots(&mut self, ctx: &mut Context<'_>, now: Instant) {
        self.drop_client(ctx, |asker| asker.until <= now);
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let looks = self.requests.iter();
        let numbers: Vec<(u32, bool)> = looks
            .filter(|look| due(look.until) || due(look.paused))
            .map(|look| (look.number, due(look.until)))
            .collect();
        for (number, over) in numbers {
            match over {
                true => self.end_snapshot(ctx, number, false),
                false => self.read_on(ctx, number),
            }
        }
    }

    /// Reads a stream again that had to wait.
    fn read_on(&mut self, ctx: &mut Context<'_>, number: u32) {
        let Some(look) = self.request(number) else {
            return;
        };
        look.paused = None;
        let token = EpollToken::SnapshotProcess(number).pack();
        if epoll::add(&ctx.epoll, &look.pipe, token, epoll::EventFlags::IN).is_err() {
            self.end_snapshot(ctx, number, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use garonne_links::socket_pair::private_pair;
    use rustix::net::RecvFlags;

    #[test]
    fn who_is_slower_than_many_hosts_gets_all_answers() {
        const HOSTS: u32 = 2000;
        let (theirs, ours) = private_pair().unwrap();
        let mut asker = QueryConnection::new(1, ours, Query::State);
        for node in 0..HOSTS {
            asker.keep(node, node.to_ne_bytes().to_vec());
            asker.hand_over();
        }
        for node in 0..HOSTS {
            let message = sys::recv(theirs.as_fd(), RecvFlags::DONTWAIT).unwrap();
            assert_eq!(
                ToRank::decode(&message.bytes).unwrap(),
                ToRank::QueryResult { node }
            );
            assert_eq!(message.fds.len(), 1);
            asker.hand_over();
        }
        assert!(asker.answers.is_empty() && asker.held == 0);
    }

    #[test]
    fn frames_are_taken_when_they_are_whole_and_what_is_none_is_refused() {
        let mut said = [[3, 0, 0, 0].as_slice(), b"abc", &[2, 0, 0, 0], b"d"].concat();
        assert_eq!(take_frame(&mut said), Ok(Some(b"abc".to_vec())));
        assert_eq!(take_frame(&mut said), Ok(None));
        said.push(b'e');
        assert_eq!(take_frame(&mut said), Ok(Some(b"de".to_vec())));
        assert_eq!((take_frame(&mut said), said.len()), (Ok(None), 0));
        for len in [0, LOOK_BYTES_MAX as u32 + 1, u32::MAX] {
            assert_eq!(
                take_frame(&mut len.to_le_bytes().to_vec()),
                Err(NoFrame),
                "{len}"
            );
        }
    }

    #[test]
    fn an_agent_that_ends_waits_for_records_that_are_not_told_yet_and_only_so_long() {
        let (_theirs, ours) = private_pair().unwrap();
        let (mut looks, now) = (Snapshots::default(), Instant::now());
        assert_eq!((looks.keep(now), looks.has_kept()), (None, false));
        let mut asker = QueryConnection::new(1, ours, Query::All);
        asker.keep(0, vec![1]);
        looks.clients.push_back(asker);
        assert_eq!(looks.keep(now), Some(now + RECORDS_GRACE));
        assert_eq!(
            looks.keep(now + RECORDS_GRACE / 2),
            Some(now + RECORDS_GRACE)
        );
        assert_eq!(
            (looks.keep(now + RECORDS_GRACE), looks.has_kept()),
            (None, true)
        );
        assert!(looks.clients[0].hand_over());
        assert_eq!(looks.keep(now), None);
    }

    #[test]
    fn for_who_takes_nothing_or_has_gone_little_is_kept() {
        let (theirs, ours) = private_pair().unwrap();
        let mut asker = QueryConnection::new(1, ours, Query::State);
        for node in 0..1000 {
            asker.keep(node, vec![0; 1 << 20]);
        }
        assert!(asker.held <= LOOK_WAITING_MAX + (1 << 20));
        drop(theirs);
        assert!(asker.hand_over());
        assert_eq!((asker.answers.len(), asker.held), (0, 0));
    }
}
