//! A simulator of schedules for tests: all processes' steps in one thread, messages matched in
//! memory.
//!
//! A seed decides who moves next, and for each message whether it is buffered when it is sent or
//! read from the sender's memory only when it is delivered, at any time between the two posts and
//! the completions. So a wrong order of steps, a buffer changed too early or a cycle of waits shows
//! as wrong bytes or as a deadlock. Lengths must agree exactly.

use crate::plan::{GroupSide, PlanPeer, Schedule, ScheduleStep};
use crate::typed_buffer;
use garonne_sync::user::Data;
use std::collections::{HashMap, VecDeque};

/// A small generator of pseudo-random numbers (xorshift), so that a seed names a run on every
/// machine.
pub struct SimRandom(u64);

impl SimRandom {
    /// A generator for a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((self.number() >> 11) % bound.max(1) as u64) as usize
    }
}

enum SimPayload {
    Buffered(Vec<u8>),
    InPlace(Data),
}

struct SimPost<T> {
    owner: usize,
    comm: usize,
    what: T,
}

#[derive(Default)]
struct SimChannel {
    sends: VecDeque<SimPost<SimPayload>>,
    recvs: VecDeque<SimPost<Data>>,
}

struct SimProcess {
    schedule: Schedule,
    next: usize,
    done: Vec<bool>,
}

impl SimProcess {
    fn taken(&self) -> Option<usize> {
        (self.next < self.schedule.steps.len()).then_some(self.next)
    }
}

/// Processes `0..own` form the first group, the others the second one of an intercommunicator.
pub struct SimWorld {
    processes: Vec<SimProcess>,
    own: usize,
    channels: HashMap<(usize, usize), SimChannel>,
    random: SimRandom,
}

impl SimWorld {
    /// A world of these processes, of which the first `own` form the first group.
    pub fn new(schedules: Vec<Schedule>, own: usize, seed: u64) -> Self {
        let processes = schedules
            .into_iter()
            .map(|schedule| SimProcess {
                schedule,
                next: 0,
                done: Vec::new(),
            })
            .collect();
        Self {
            processes,
            own,
            channels: HashMap::new(),
            random: SimRandom::new(seed),
        }
    }

    /// Carries out all schedules. An error describes a deadlock or a mismatch.
    pub fn run(self) -> Result<(), String> {
        self.run_watched(|_| Ok(()))
    }

    /// Runs the schedules; `watch` sees after each move how many steps each process has taken, and
    /// `None` for one that has finished.
    pub fn run_watched(
        mut self,
        watch: impl Fn(&[Option<usize>]) -> Result<(), String>,
    ) -> Result<(), String> {
        loop {
            let taken: Vec<_> = self.processes.iter().map(SimProcess::taken).collect();
            watch(&taken)?;
            let movable: Vec<usize> = (0..self.processes.len())
                .filter(|&index| self.may_move(index))
                .collect();
            let mut matched: Vec<(usize, usize)> = Vec::new();
            for (key, channel) in &self.channels {
                if !channel.sends.is_empty() && !channel.recvs.is_empty() {
                    matched.push(*key);
                }
            }
            matched.sort_unstable();
            let choice = self.random.below(movable.len() + matched.len());
            match (
                movable.get(choice),
                matched.get(choice.wrapping_sub(movable.len())),
            ) {
                (Some(&process), _) => self.step(process)?,
                (None, Some(&key)) => self.deliver(key)?,
                (None, None) => break,
            }
        }
        for (index, process) in self.processes.iter().enumerate() {
            if let Some(step) = process.schedule.steps.get(process.next) {
                return Err(format!(
                    "deadlock: process {index} waits at step {} {step:?}",
                    process.next
                ));
            }
        }
        match self
            .channels
            .iter()
            .find(|(_, channel)| !channel.sends.is_empty() || !channel.recvs.is_empty())
        {
            Some((key, _)) => Err(format!(
                "a message from {} to {} was left over",
                key.0, key.1
            )),
            None => Ok(()),
        }
    }

    fn may_move(&self, index: usize) -> bool {
        let process = &self.processes[index];
        match process.schedule.steps.get(process.next) {
            None => false,
            Some(ScheduleStep::Wait(token)) => process.done[token.0 as usize],
            Some(ScheduleStep::Fence) => process.done.iter().all(|&done| done),
            Some(_) => true,
        }
    }

    fn peer(&self, index: usize, site: PlanPeer) -> usize {
        let first_group = index < self.own;
        let base = if first_group == (site.side == GroupSide::Local) {
            0
        } else {
            self.own
        };
        base + site.rank as usize
    }

    fn step(&mut self, index: usize) -> Result<(), String> {
        let position = self.processes[index].next;
        self.processes[index].next += 1;
        let comm = self.processes[index].done.len();
        let buffered = self.random.below(2) == 0;
        match &self.processes[index].schedule.steps[position] {
            ScheduleStep::Send(site, data) => {
                let (data, peer) = (data.clone(), self.peer(index, *site));
                if peer == index {
                    return Err(format!("process {index} sends to itself"));
                }
                self.processes[index].done.push(buffered);
                let what = if buffered {
                    SimPayload::Buffered(packed(&data))
                } else {
                    SimPayload::InPlace(data)
                };
                self.channels
                    .entry((index, peer))
                    .or_default()
                    .sends
                    .push_back(SimPost {
                        owner: index,
                        comm,
                        what,
                    });
            }
            ScheduleStep::Recv(site, data) => {
                let (what, peer) = (data.clone(), self.peer(index, *site));
                self.processes[index].done.push(false);
                self.channels
                    .entry((peer, index))
                    .or_default()
                    .recvs
                    .push_back(SimPost {
                        owner: index,
                        comm,
                        what,
                    });
            }
            ScheduleStep::Copy(src, dst) => {
                if src.len != dst.len {
                    return Err(format!(
                        "process {index} copies {} bytes to {}",
                        src.len, dst.len
                    ));
                }
                typed_buffer::copy(src, dst);
            }
            ScheduleStep::Fold(combine) => {
                combine.fold.fold(combine.left, combine.into, combine.count)
            }
            ScheduleStep::Wait(_) | ScheduleStep::Fence => {}
        }
        Ok(())
    }

    fn deliver(&mut self, key: (usize, usize)) -> Result<(), String> {
        let channel = self.channels.entry(key).or_default();
        let Some((send, recv)) = channel.sends.pop_front().zip(channel.recvs.pop_front()) else {
            return Ok(());
        };
        let bytes = match send.what {
            SimPayload::Buffered(bytes) => bytes,
            SimPayload::InPlace(data) => packed(&data),
        };
        if bytes.len() as u64 != recv.what.len {
            return Err(format!(
                "{} bytes from {} to {} meet a receive of {}",
                bytes.len(),
                key.0,
                key.1,
                recv.what.len
            ));
        }
        recv.what.unpack(0, &bytes);
        self.processes[send.owner].done[send.comm] = true;
        self.processes[recv.owner].done[recv.comm] = true;
        Ok(())
    }
}

/// The packed bytes of `data`.
pub fn packed(data: &Data) -> Vec<u8> {
    let mut bytes = vec![0; data.len as usize];
    data.pack(0, &mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, PlanRecorder};
    use garonne_sync::user::Scratch;

    fn outcome(plans: [&dyn Fn(&mut PlanRecorder); 2], seed: u64) -> Result<(), String> {
        let schedules = plans.iter().zip(0..).map(|(plan, rank)| {
            let mut recorder = PlanRecorder::new(rank, 2, 0);
            plan(&mut recorder);
            recorder.finish()
        });
        SimWorld::new(schedules.collect(), 2, seed).run()
    }

    #[test]
    fn sends_that_wait_for_each_other_are_a_deadlock_under_some_seed() {
        let (a, b) = (Scratch::new(8).unwrap(), Scratch::new(8).unwrap());
        let swap = |p: &mut PlanRecorder, peer: u32, scratch: &Scratch| {
            let data = Data::contiguous(scratch.mem(), 8);
            let token = p.send(peer, data.clone()).unwrap();
            p.wait(token).unwrap();
            p.recv(peer, data).unwrap();
        };
        let failed = (0..20)
            .filter(|&seed| outcome([&|p| swap(p, 1, &a), &|p| swap(p, 0, &b)], seed).is_err());
        assert!(failed.count() > 0);
    }

    #[test]
    fn a_buffer_changed_while_it_is_sent_arrives_wrong_under_some_seed() {
        let wrong = (0..20).filter(|&seed| {
            let (a, b, c) = (
                Scratch::new(8).unwrap(),
                Scratch::new(8).unwrap(),
                Scratch::new(8).unwrap(),
            );
            c.mem().write(0, &[9; 8]);
            let view = |scratch: &Scratch| Data::contiguous(scratch.mem(), 8);
            let sender = |p: &mut PlanRecorder| {
                p.send(1, view(&a)).unwrap();
                p.copy(view(&c), view(&a)).unwrap();
            };
            outcome(
                [&sender, &|p| {
                    p.recv(0, view(&b)).unwrap();
                }],
                seed,
            )
            .unwrap();
            packed(&view(&b)) != [0; 8]
        });
        assert!(wrong.count() > 0);
    }
}
