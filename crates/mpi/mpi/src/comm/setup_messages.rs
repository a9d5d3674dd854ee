//! The small messages with which communicators are made: a context of their own, owned buffers,
//! steps written as `async` code.
//!
//! Constructors run before their communicator exists, and some must not block. So they use neither
//! the collectives nor the program's requests. A [`SetupTask`] is a constructor in flight: a
//! stepper of the engine, polled whenever there was progress. No program's message passes here;
//! buffers are allocated as needed and bounded by what the callers send.

use super::Comm;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::process::Process;
use crate::request::{Completion, Outcome, Status};
use garonne_engine::api::{
    self, CallOrigin, ContextId, Pattern, SendCompletion, Source, StartOutcome,
};
use garonne_engine::observe::events::ExternalWait;
use garonne_progress::messaging::{AnyOfWaiter, Messaging, Stepper, WaitTarget};
use garonne_sync::user::{Data, Scratch};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Cx, Poll, Waker};

/// A group of processes that exchange messages of one tag in one context.
#[derive(Clone)]
pub(crate) struct SetupChannel {
    pub process: Arc<Process>,
    /// Context of its messages.
    pub context: ContextId,
    pub tag: i32,
    /// This process's rank on its side.
    pub rank: u32,
    /// The processes on the other side (the same side within a group).
    pub group: Group,
    /// The program's call.
    pub origin: CallOrigin,
}

impl SetupChannel {
    fn size(&self) -> u32 {
        self.group.size()
    }

    /// Starts to send `bytes` to rank `to` of the group.
    pub fn start_send(&self, to: u32, bytes: &[u8]) -> Result<SetupMessage> {
        let scratch = scratch(bytes.len())?;
        scratch.mem().write(0, bytes);
        let peer = self
            .group
            .peer(to)
            .ok_or_else(|| Error::new(Class::Intern, "message to a rank beyond the group"))?;
        let send = api::SendArgs {
            context: self.context,
            peer,
            source: self.rank,
            tag: self.tag,
            data: Data::contiguous(scratch.mem(), bytes.len() as u64),
            mode: SendCompletion::Standard,
            origin: self.origin,
        };
        self.op(self.process.host.send(send), scratch)
    }

    fn start_recv(&self, from: u32, len: usize) -> Result<SetupMessage> {
        let scratch = scratch(len)?;
        let peer = self
            .group
            .peer(from)
            .ok_or_else(|| Error::new(Class::Intern, "message from a rank beyond the group"))?;
        let recv = api::RecvArgs {
            pattern: Pattern {
                context: self.context,
                source: Some(Source { rank: from, peer }),
                tag: Some(self.tag),
            },
            data: Data::contiguous(scratch.mem(), len as u64),
            origin: self.origin,
        };
        self.op(self.process.host.recv(recv), scratch)
    }

    /// Posts a receive of at most `len` bytes from any rank of the group.
    pub fn start_recv_any(&self, len: usize) -> Result<SetupMessage> {
        let scratch = scratch(len)?;
        let recv = api::RecvArgs {
            pattern: Pattern {
                context: self.context,
                source: None,
                tag: Some(self.tag),
            },
            data: Data::contiguous(scratch.mem(), len as u64),
            origin: self.origin,
        };
        self.op(self.process.host.recv(recv), scratch)
    }

    fn op(
        &self,
        started: Result<StartOutcome, api::Error>,
        scratch: Scratch,
    ) -> Result<SetupMessage> {
        let state = match started.map_err(|error| self.process.convert(error))? {
            StartOutcome::Done(status) => SetupState::Over(status),
            StartOutcome::Pending(name) => SetupState::Pending(name),
        };
        Ok(SetupMessage {
            process: self.process.clone(),
            state,
            scratch: Some(scratch),
        })
    }

    /// Sends `bytes` to rank `to` of the group.
    pub async fn send(&self, to: u32, bytes: &[u8]) -> Result<()> {
        self.start_send(to, bytes)?.end().await.map(drop)
    }

    /// Receives exactly `len` bytes from rank `from`.
    pub async fn recv(&self, from: u32, len: usize) -> Result<Vec<u8>> {
        self.start_recv(from, len)?.end().await
    }

    /// Sends bytes whose number the receiver does not know.
    pub async fn send_sized(&self, to: u32, bytes: &[u8]) -> Result<()> {
        self.send(to, &(bytes.len() as u64).to_le_bytes()).await?;
        self.send(to, bytes).await
    }

    /// Receives what `send_sized` sent.
    pub async fn recv_sized(&self, from: u32) -> Result<Vec<u8>> {
        let len = self.recv(from, 8).await?;
        let len = u64::from_le_bytes(len.try_into().unwrap_or_default());
        self.recv(from, len as usize).await
    }

    /// Sends to one rank while receiving from another.
    pub async fn exchange(&self, to: u32, bytes: &[u8], from: u32, len: usize) -> Result<Vec<u8>> {
        let recv = self.start_recv(from, len)?;
        let sent = self.start_send(to, bytes)?;
        let received = recv.end().await;
        sent.end().await?;
        received
    }

    /// Every process gives a word; all get the least and the greatest (dissemination: both are
    /// idempotent).
    pub async fn min_max(&self, word: u64) -> Result<(u64, u64)> {
        let (mut min, mut max) = (word, word);
        let (rank, size) = (u64::from(self.rank), u64::from(self.size()));
        let mut distance = 1;
        while distance < size {
            let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
            let bytes = [min.to_le_bytes(), max.to_le_bytes()].concat();
            let got = self.exchange(to as u32, &bytes, from as u32, 16).await?;
            min = min.min(word_at(&got, 0));
            max = max.max(word_at(&got, 1));
            distance *= 2;
        }
        Ok((min, max))
    }

    /// Every process gives a record of one length; all get all, in rank order (Bruck's algorithm).
    pub async fn all_gather(&self, record: &[u8]) -> Result<Vec<u8>> {
        let (rank, size, len) = (self.rank as usize, self.size() as usize, record.len());
        let mut all = record.to_vec();
        let mut have = 1;
        while have < size {
            let count = have.min(size - have);
            let (to, from) = ((rank + size - have) % size, (rank + have) % size);
            let got = self
                .exchange(to as u32, &all[..count * len], from as u32, count * len)
                .await?;
            all.extend_from_slice(&got);
            have += count;
        }
        // `all` starts with our own record; turn it so that rank 0's comes first.
        all.rotate_right(rank * len);
        Ok(all)
    }

    /// Every process gives bytes of any length; all get all, joined in rank order (Bruck's
    /// algorithm over known lengths).
    pub async fn all_gather_sized(&self, bytes: &[u8]) -> Result<Vec<u8>> {
        let lens = self.all_gather(&(bytes.len() as u64).to_le_bytes()).await?;
        let (rank, size) = (self.rank as usize, self.size() as usize);
        // Bytes of `count` processes from `first` on, round the ring.
        let sum = |first: usize, count: usize| {
            (0..count)
                .map(|k| word_at(&lens, (first + k) % size) as usize)
                .sum::<usize>()
        };
        let mut all = bytes.to_vec();
        let mut have = 1;
        while have < size {
            let count = have.min(size - have);
            let (to, from) = ((rank + size - have) % size, (rank + have) % size);
            let got = self
                .exchange(
                    to as u32,
                    &all[..sum(rank, count)],
                    from as u32,
                    sum(from, count),
                )
                .await?;
            all.extend_from_slice(&got);
            have += count;
        }
        all.rotate_right(sum(0, rank));
        Ok(all)
    }

    /// Rank `root` gives bytes of any length; all get them (binomial tree).
    pub async fn broadcast(&self, root: u32, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let size = self.size();
        let rank = (self.rank + size - root) % size;
        let real = |rank: u32| (rank + root) % size;
        let mut bytes = bytes;
        let mut mask = 1;
        while mask < size {
            if rank & mask != 0 {
                bytes = self.recv_sized(real(rank - mask)).await?;
                break;
            }
            mask <<= 1;
        }
        mask >>= 1;
        while mask > 0 {
            if rank + mask < size {
                self.send_sized(real(rank + mask), &bytes).await?;
            }
            mask >>= 1;
        }
        Ok(bytes)
    }
}

/// Little-endian word number `index` of received bytes; 0 beyond their end.
pub(crate) fn word_at(bytes: &[u8], index: usize) -> u64 {
    bytes
        .get(index * 8..index * 8 + 8)
        .and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_le_bytes)
}

fn scratch(len: usize) -> Result<Scratch> {
    Scratch::new(len).ok_or_else(|| {
        Error::new(
            Class::NoMem,
            format!("no memory for {len} bytes of a constructor's message"),
        )
    })
}

/// One message in flight and its buffer.
pub(crate) struct SetupMessage {
    process: Arc<Process>,
    state: SetupState,
    scratch: Option<Scratch>,
}

enum SetupState {
    Pending(api::Request),
    Over(api::Status),
}

impl SetupMessage {
    /// Takes the next message that is there in a context, from whomever, with its source and tag.
    pub fn take_any(
        process: &Arc<Process>,
        context: ContextId,
    ) -> Result<Option<(u32, i32, Self)>> {
        let any = Pattern {
            context,
            source: None,
            tag: None,
        };
        let found = process.host.mprobe(any);
        let Some((message, status)) = found.map_err(|error| process.convert(error))? else {
            return Ok(None);
        };
        let scratch = scratch(status.len as usize)?;
        let data = Data::contiguous(scratch.mem(), status.len);
        let started = process.host.mrecv(message, data, CallOrigin::default());
        let state = match started.map_err(|error| process.convert(error))? {
            StartOutcome::Done(status) => SetupState::Over(status),
            StartOutcome::Pending(name) => SetupState::Pending(name),
        };
        let message = Self {
            process: process.clone(),
            state,
            scratch: Some(scratch),
        };
        Ok(Some((status.source, status.tag, message)))
    }

    /// Returns how the message ended, once it is over.
    pub fn outcome(&mut self) -> Option<Result<api::Status>> {
        match self.poll() {
            Poll::Pending => None,
            Poll::Ready(Err(error)) => Some(Err(error)),
            Poll::Ready(Ok(())) => match &self.state {
                SetupState::Over(status) => Some(match &status.error {
                    Some(error) => Err(self.process.convert(error.clone())),
                    None => Ok(status.clone()),
                }),
                SetupState::Pending(_) => None,
            },
        }
    }

    /// Returns the bytes of a receive that is over.
    pub fn bytes(mut self) -> Vec<u8> {
        let (SetupState::Over(status), Some(scratch)) = (&self.state, &mut self.scratch) else {
            return Vec::new();
        };
        let mut bytes = vec![0; scratch.len().min(status.len as usize)];
        scratch.mem().read(0, &mut bytes);
        bytes
    }

    /// Cancels a receive for which no message came.
    pub fn cancel(self) {
        if let SetupState::Pending(name) = self.state {
            // A receive that has matched meanwhile is over.
            let _ = self.process.host.cancel(name);
        }
    }

    /// Completes; gives the bytes.
    async fn end(mut self) -> Result<Vec<u8>> {
        poll_fn(|_| self.poll()).await?;
        let SetupState::Over(status) = &self.state else {
            return Err(Error::new(Class::Intern, "operation not over"));
        };
        if let Some(error) = &status.error {
            return Err(self.process.convert(error.clone()));
        }
        let scratch = self
            .scratch
            .take()
            .ok_or_else(|| Error::new(Class::Intern, "operation without buffer"))?;
        let mut bytes = vec![0; scratch.len()];
        scratch.mem().read(0, &mut bytes);
        Ok(bytes)
    }

    fn poll(&mut self) -> Poll<Result<()>> {
        if let SetupState::Pending(name) = self.state {
            match self.process.host.take(name) {
                Ok(None) => return Poll::Pending,
                Ok(Some(status)) => self.state = SetupState::Over(status),
                Err(error) => return Poll::Ready(Err(self.process.convert(error))),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for SetupMessage {
    fn drop(&mut self) {
        let SetupState::Pending(name) = self.state else {
            return;
        };
        if !matches!(self.process.host.take(name), Ok(Some(_))) {
            // The engine may still write there (a constructor failed half-way): better lost than
            // reused.
            std::mem::forget(self.scratch.take());
        }
    }
}

type SetupFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

/// A constructor in flight.
pub(crate) struct SetupTask<T> {
    /// The communicator that hears of its failure, where a request tells that.
    on: Option<Comm>,
    work: Mutex<Option<SetupFuture<T>>>,
    result: Mutex<Option<Result<T>>>,
    done: AtomicBool,
    waiter: AnyOfWaiter,
    /// Shown to tools while a thread waits for the request.
    meeting: Option<ExternalWait>,
    /// Whether the work waits for memory that others write.
    polls_memory: bool,
}

impl<T: Send + 'static> SetupTask<T> {
    /// Starts `work` on a communicator and lets the host advance it; `meeting` says what it is to
    /// those who watch.
    pub fn start(
        on: &Comm,
        meeting: ExternalWait,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Arc<Self> {
        let task = Self::new(Some((on.clone(), meeting)), work, false);
        on.process().host.attach_stepper(task.clone());
        task
    }

    /// Starts work that waits for what others write to memory.
    pub fn start_polling(
        on: &Comm,
        meeting: ExternalWait,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Arc<Self> {
        let task = Self::new(Some((on.clone(), meeting)), work, true);
        on.process().host.attach_stepper(task.clone());
        task
    }

    fn new(
        asked: Option<(Comm, ExternalWait)>,
        work: impl Future<Output = Result<T>> + Send + 'static,
        polls_memory: bool,
    ) -> Arc<Self> {
        let (on, meeting) = asked.unzip();
        Arc::new(Self {
            on,
            work: Mutex::new(Some(Box::pin(work))),
            result: Mutex::new(None),
            done: AtomicBool::new(false),
            waiter: AnyOfWaiter::default(),
            meeting,
            polls_memory,
        })
    }

    /// Runs `work` to its end, making progress for everything else meanwhile.
    pub fn run(
        process: &Process,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        Self::run_task(process, Self::new(None, work, false))
    }

    /// Runs work that waits for what others write to memory.
    pub fn run_polling(
        process: &Process,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        Self::run_task(process, Self::new(None, work, true))
    }

    fn run_task(process: &Process, task: Arc<Self>) -> Result<T> {
        process.host.attach_awaited_stepper(task.clone());
        let host = &process.host;
        host.wait_for(&|| WaitTarget::stepper_end(&*task), &mut || task.is_over());
        task.take().unwrap_or_else(|| {
            Err(Error::new(
                Class::Intern,
                "a constructor ended without result",
            ))
        })
    }

    pub fn is_over(&self) -> bool {
        // SYNC(task): Acquire the result.
        self.done.load(Ordering::Acquire)
    }

    pub fn take(&self) -> Option<Result<T>> {
        self.result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}

impl<T: Send + 'static> Stepper for SetupTask<T> {
    fn step(&self, _: &dyn Messaging) -> bool {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(future) = work.as_mut() else {
            return true;
        };
        match future.as_mut().poll(&mut Cx::from_waker(Waker::noop())) {
            Poll::Pending => false,
            Poll::Ready(result) => {
                *work = None;
                *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                // SYNC(task): Release the result.
                self.done.store(true, Ordering::Release);
                true
            }
        }
    }

    fn current_waiter(&self) -> Option<&AnyOfWaiter> {
        Some(&self.waiter)
    }

    fn polls_memory(&self) -> bool {
        self.polls_memory
    }
}

impl Completion for SetupTask<()> {
    fn is_done(&self) -> bool {
        self.is_over()
    }

    fn awaits(&self) -> WaitTarget {
        WaitTarget::stepper_end(self)
    }

    fn awaits_among(&self) -> WaitTarget {
        self.waiter.register();
        self.awaits()
    }

    fn meeting(&self) -> Option<ExternalWait> {
        self.meeting.filter(|_| !self.is_over())
    }

    fn peek(&self) -> Outcome {
        match &*self.result.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Err(error)) => Err(error.clone()),
            _ => Ok(Status::EMPTY),
        }
    }

    fn comm(&self) -> Option<Comm> {
        self.on.clone()
    }
}
