//! What all processes of a file agree on: greatest values, sums over lower ranks, and whether a
//! step worked everywhere.
//!
//! What accesses do in the background, too, is `async`: it gives way where it would wait. In a call
//! that waits itself nothing gives way, see [`in_call`].

use crate::coll::{Allgather, Allreduce, Barrier, Collective, Elements, Exscan};
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::error::{Class, Error, Result};
use crate::op::{Op, PredefinedOp};
use crate::request::{self, Outcome, Request};
use garonne_engine::api::CallOrigin;
use garonne_sync::user::Scratch;
use smallvec::SmallVec;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

/// `MPI_UINT64_T`.
const UINT64: u16 = 0x259;

/// The processes of a file in one collective call.
#[derive(Clone, Copy)]
pub(super) struct Agreement<'a> {
    pub comm: &'a Comm,
    pub origin: CallOrigin,
    pub waiting: Waiting,
}

/// Who waits for the other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// The calling thread.
    InCall,
    /// Nobody: the access is a stepper, which is asked again.
    InBackground,
}

/// Carries out what waits in the call, and so never gives way.
pub(super) fn in_call<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => {
            let text = "a blocking access to a file would go on in the background";
            Err(Error::new(Class::Intern, text))
        }
    }
}

fn word_type() -> Result<&'static Datatype> {
    Datatype::predefined_ref(UINT64)
        .ok_or_else(|| Error::new(Class::Intern, "MPI_UINT64_T is not predefined"))
}

fn no_memory() -> Error {
    Error::new(Class::NoMem, "no memory is left for an access to a file")
}

impl<'a> Agreement<'a> {
    /// For a call that waits itself.
    pub fn in_call(comm: &'a Comm, origin: CallOrigin) -> Self {
        Self {
            comm,
            origin,
            waiting: Waiting::InCall,
        }
    }

    /// Waits for an operation.
    pub async fn settle(self, request: &Request) -> Outcome {
        let outcome = match self.waiting {
            Waiting::InCall => request::wait(request),
            Waiting::InBackground => {
                poll_fn(|_| request.take().map_or(Poll::Pending, Poll::Ready)).await
            }
        };
        self.told(outcome)
    }

    /// Names the dead in an error that follows from a death. The communicator was revoked for no
    /// other reason.
    pub fn told<T>(self, outcome: Result<T>) -> Result<T> {
        outcome.map_err(|error| match error.class {
            Class::Revoked | Class::ProcFailed => self.comm.lost_members(),
            _ => error,
        })
    }

    /// Begins a collective of the file's communicator, which ends at once where the call waits.
    fn begin(self, call: &impl Collective) -> Result<Request> {
        let begun = match self.waiting {
            Waiting::InCall => {
                let outcome = self.comm.collective(call, self.origin);
                outcome.map(|()| Request::done(self.comm, request::Status::EMPTY))
            }
            Waiting::InBackground => self.comm.start_collective(call, self.origin),
        };
        self.told(begun)
    }

    /// Returns when all have come.
    pub fn barrier(self) -> Result<()> {
        self.told(self.comm.collective(&Barrier, self.origin))
    }

    /// Returns the greatest of all processes' words, place by place.
    pub fn greatest<const N: usize>(self, mut words: [u64; N]) -> Result<[u64; N]> {
        in_call(self.raise(&mut words))?;
        Ok(words)
    }

    /// Replaces words by the greatest of all processes.
    async fn raise(self, words: &mut [u64]) -> Result<()> {
        if self.comm.size() == 1 {
            return Ok(());
        }
        let room = Scratch::new(16 * words.len()).ok_or_else(no_memory)?;
        let (send, recv) = (room.mem(), room.mem().offset(8 * words.len() as isize));
        for (index, word) in words.iter().enumerate() {
            send.write_array(8 * index as isize, word.to_ne_bytes());
        }
        let begun = self.begin(&Allreduce {
            send: Some(send),
            recv,
            count: words.len() as u64,
            datatype: word_type()?,
            op: &Op::Predefined(PredefinedOp::Max),
        })?;
        self.settle(&begun).await?;
        for (index, word) in words.iter_mut().enumerate() {
            *word = u64::from_ne_bytes(recv.read_array(8 * index as isize));
        }
        Ok(())
    }

    /// Returns the words of all processes, in the order of ranks.
    pub async fn all<const N: usize>(self, words: [u64; N]) -> Result<Vec<[u64; N]>> {
        let ranks = self.comm.size() as usize;
        if ranks == 1 {
            return Ok(vec![words]);
        }
        let room = Scratch::new(8 * N * (ranks + 1)).ok_or_else(no_memory)?;
        let (send, recv) = (room.mem(), room.mem().offset(8 * N as isize));
        for (index, word) in words.into_iter().enumerate() {
            send.write_array(8 * index as isize, word.to_ne_bytes());
        }
        let elements = |mem| {
            Ok::<_, Error>(Elements {
                mem,
                count: N as u64,
                datatype: word_type()?,
            })
        };
        let begun = self.begin(&Allgather {
            send: Some(elements(send)?),
            recv: elements(recv)?,
        })?;
        self.settle(&begun).await?;
        let word = |index: usize| u64::from_ne_bytes(recv.read_array(8 * index as isize));
        let of_rank = |rank| std::array::from_fn(|index| word(rank * N + index));
        Ok((0..ranks).map(of_rank).collect())
    }

    /// Returns the sum of the words of lower ranks, and that of all ranks.
    pub fn sums(self, word: u64) -> Result<(u64, u64)> {
        if self.comm.size() == 1 {
            return Ok((0, word));
        }
        let room = Scratch::new(24).ok_or_else(no_memory)?;
        let (send, below) = (room.mem(), room.mem().offset(8));
        let all = room.mem().offset(16);
        send.write_array(0, word.to_ne_bytes());
        let sum = Op::Predefined(PredefinedOp::Sum);
        let (count, datatype) = (1, word_type()?);
        let prefix = Exscan {
            send: Some(send),
            recv: below,
            count,
            datatype,
            op: &sum,
        };
        self.told(self.comm.collective(&prefix, self.origin))?;
        let total = Allreduce {
            send: Some(send),
            recv: all,
            count,
            datatype,
            op: &sum,
        };
        self.told(self.comm.collective(&total, self.origin))?;
        let below = match self.comm.rank() {
            0 => 0,
            _ => u64::from_ne_bytes(below.read_array(0)),
        };
        Ok((below, u64::from_ne_bytes(all.read_array(0))))
    }

    /// Returns what every process brings if none fails, else an error at all of them: its own where
    /// there is one.
    pub fn agree<T>(self, own: Result<T>) -> Result<T> {
        in_call(self.agree_by_steps(own))
    }

    /// Agrees as [`Agreement::agree`] does, and refuses numbers that differ between the processes.
    pub fn agree_on<T, const N: usize>(
        self,
        own: Result<T>,
        numbers: [(&str, u64); N],
    ) -> Result<T> {
        let both = numbers.iter().flat_map(|(_, number)| [*number, !number]);
        let mut words: SmallVec<[u64; 8]> = both.collect();
        let value = in_call(self.agree_with(own, &mut words))?;
        let differs = (0..N).find(|index| words[2 * index] != !words[2 * index + 1]);
        differs.map_or(Ok(value), |index| Err(differing(numbers[index].0)))
    }

    /// Agrees as [`Agreement::agree`] does, and gives way.
    pub async fn agree_by_steps<T>(self, own: Result<T>) -> Result<T> {
        self.agree_and(own, []).await.map(|(value, _)| value)
    }

    /// Agrees as [`Agreement::agree`] does, and returns the greatest words, too.
    pub async fn agree_and<T, const N: usize>(
        self,
        own: Result<T>,
        words: [u64; N],
    ) -> Result<(T, [u64; N])> {
        let mut all = SmallVec::from_slice(&words);
        let value = self.agree_with(own, &mut all).await?;
        Ok((value, std::array::from_fn(|index| all[index])))
    }

    /// Agrees as [`Agreement::agree`] does, and replaces words by the greatest.
    async fn agree_with<T>(self, own: Result<T>, words: &mut SmallVec<[u64; 8]>) -> Result<T> {
        let fault = own.as_ref().err().map_or(0, |error| {
            1 << 63 | (error.class as u64) << 32 | u64::from(u32::MAX - self.comm.rank())
        });
        words.push(fault);
        self.raise(words).await?;
        let fault = words.pop().unwrap_or(0);
        let value = own?;
        if fault == 0 {
            return Ok(value);
        }
        let class = Class::try_from((fault >> 32 & 0x7fff_ffff) as i32).unwrap_or(Class::Io);
        let rank = u32::MAX - fault as u32;
        let text = format!(
            "the collective call failed at rank {rank} with {}: {}",
            class.name(),
            class.text()
        );
        Err(Error::new(class, text))
    }

    /// Refuses a number that differs between the processes.
    pub fn same(self, what: &str, number: u64) -> Result<()> {
        let [most, least] = self.greatest([number, !number])?;
        match most == !least {
            true => Ok(()),
            false => Err(differing(what)),
        }
    }
}

#[cold]
fn differing(what: &str) -> Error {
    let text = format!("{what} differs between the processes of the file");
    Error::new(Class::NotSame, text)
}
