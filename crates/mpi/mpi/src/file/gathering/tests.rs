//! Random accesses of several processes through writers, over a simulated file system, compared
//! with the same accesses one after the other.

use super::*;
use crate::file::agreement::in_call;
use crate::file::background::BackgroundAccess;
use crate::file::disk_work::AccessWaker;
use crate::file::plan::{AccessPlan, AccessSummary, Buffering, PlanSetting, writer_candidates};
use crate::file::stripes::stripes_of;
use crate::file::view::FileRun;
use crate::request;
use crate::testing::{TestBytes, engine_job};
use garonne_engine::api::CallOrigin;
use garonne_files::simulated::{Faults, SimulatedFileSystem};
use garonne_files::{FileSystem, OpenOptions};
use garonne_progress::tasks::shared;
use proptest::prelude::*;
use std::path::Path;
use std::sync::Mutex;

/// What programs are told of a handle that the server does not know any more.
const STALE: Class = Class::Io;

/// What a file has where nobody wrote.
const OLD: u8 = 0xee;

/// Runs of each rank: an offset, then gaps and lengths, each several times.
type Rank = (u64, Vec<(u64, u64, usize)>);

#[derive(Clone, Debug)]
struct Access {
    ranks: Vec<Rank>,
    writers: u32,
    hosts: u32,
    window_bytes: u64,
    /// Bytes that the file has before.
    size: u64,
    /// The program's data are every other byte of its memory.
    spread: bool,
    seed: u64,
    waiting: Waiting,
}

fn some_access() -> impl Strategy<Value = Access> {
    let steps = prop::collection::vec((0u64..50, 1u64..40, 1usize..5), 0..8);
    let ranks = prop::collection::vec((0u64..200, steps), 1..6);
    let setting = (1u32..4, 1u32..3, 16u64..400, 0u64..2000);
    let waiting = prop_oneof![Just(Waiting::InCall), Just(Waiting::InBackground)];
    (ranks, setting, any::<bool>(), any::<u64>(), waiting).prop_map(
        |(ranks, (writers, hosts, window_bytes, size), spread, seed, waiting)| Access {
            ranks,
            writers,
            hosts,
            window_bytes,
            size,
            spread,
            seed,
            waiting,
        },
    )
}

impl Access {
    fn runs(&self, rank: u32) -> Vec<FileRun> {
        let (mut at, steps) = (self.ranks[rank as usize].0, &self.ranks[rank as usize].1);
        let mut runs: Vec<FileRun> = Vec::new();
        for (gap, len, times) in steps {
            for _ in 0..*times {
                at += gap;
                match runs.last_mut().filter(|last| last.offset + last.len == at) {
                    Some(last) => last.len += len,
                    None => runs.push(FileRun {
                        offset: at,
                        len: *len,
                    }),
                }
                at += len;
            }
        }
        runs
    }

    fn places(&self, rank: u32) -> Vec<u64> {
        let runs = self.runs(rank);
        runs.iter()
            .flat_map(|run| run.offset..run.offset + run.len)
            .collect()
    }

    fn summary(&self, rank: u32) -> AccessSummary {
        AccessSummary::of_runs(
            self.runs(rank)
                .iter()
                .map(|run| run.offset..run.offset + run.len),
        )
    }

    fn size_of_job(&self) -> u32 {
        self.ranks.len() as u32
    }

    /// Chooses writers whatever pays; `None` if nobody touches anything.
    fn domains(&self, direction: Direction) -> Option<FileDomains> {
        let all = AccessSummary::of_ranks((0..self.size_of_job()).map(|rank| self.summary(rank)));
        let setting = PlanSetting {
            candidates: &writer_candidates(self.size_of_job(), 3, |rank| rank % self.hosts),
            hosts: self.hosts,
            writers_max: Some(self.writers),
            window_bytes: self.window_bytes,
            align: 16,
            exclusive_writes: true,
            pages_of_one_host: false,
            buffering: Buffering::Enable,
        };
        match AccessPlan::choose(&all, direction == Direction::Write, &setting) {
            AccessPlan::Collective(domains) => Some(domains),
            _ => None,
        }
    }

    /// Carries the access out; returns the outcome and the data of each rank.
    fn run(&self, disk: &SimulatedFileSystem, direction: Direction) -> Vec<(Result<u64>, Vec<u8>)> {
        let Some(domains) = self.domains(direction) else {
            return Vec::new();
        };
        let found = Mutex::new(vec![None; self.ranks.len()]);
        engine_job(self.size_of_job(), |comm| {
            let rank = comm.rank();
            let stripes = stripes_of(self.runs(rank)).unwrap();
            let len = self.places(rank).len();
            let bytes = match direction {
                Direction::Write => (0..len as u64).map(|at| byte(rank, at)).collect(),
                Direction::Read => vec![OLD; len],
            };
            let (step, memory) = match self.spread {
                true => (2, TestBytes::new(2 * len + 1)),
                false => (1, TestBytes::new(len + 1)),
            };
            for (at, byte) in bytes.iter().enumerate() {
                memory.mem().write((step * at) as isize, &[*byte]);
            }
            let data = match self.spread {
                false => Data::contiguous(memory.mem(), len as u64),
                true => {
                    let byte = crate::datatype::Datatype::predefined(0x247).unwrap();
                    let spread = byte.vector(len as i64, 1, 2).unwrap();
                    spread.data(memory.mem(), 1).unwrap()
                }
            };
            let options = OpenOptions {
                write: true,
                ..OpenOptions::default()
            };
            let disk = disk.open(Path::new("file"), options).unwrap();
            let (domains, on, waiting) = (domains.clone(), comm.clone(), self.waiting);
            let workers = match waiting {
                Waiting::InCall => DiskWorkers::Caller,
                Waiting::InBackground => {
                    DiskWorkers::Tasks(shared().unwrap(), Arc::new(AccessWaker::new(&comm)))
                }
            };
            let locks = self.seed.is_multiple_of(2).then(GapLock::default);
            let work = async move {
                let mut gathering = Gathering {
                    meeting: Agreement {
                        comm: &on,
                        origin: CallOrigin::default(),
                        waiting,
                    },
                    disk,
                    workers: &workers,
                    locks,
                    domains: &domains,
                    direction,
                    stripes: &stripes,
                    stripes_max: 1 << 10,
                    data: &data,
                    buffers: &mut GatherBuffers::default(),
                };
                let len = gathering.run().await?;
                Ok(Status {
                    len,
                    ..Status::EMPTY
                })
            };
            let outcome = match waiting {
                Waiting::InCall => in_call(work),
                Waiting::InBackground => request::wait(&BackgroundAccess::start(&comm, work)),
            };
            let outcome = outcome.map(|status| status.len);
            let now = memory.get().into_iter().step_by(step).take(len).collect();
            found.lock().unwrap()[rank as usize] = Some((outcome, now));
        });
        let found = found.into_inner().unwrap();
        found
            .into_iter()
            .map(|one| one.expect("a rank has ended"))
            .collect()
    }

    fn disk(&self, faults: Faults) -> SimulatedFileSystem {
        let disk = SimulatedFileSystem::new(self.seed, Faults::default());
        disk.put(Path::new("file"), &vec![OLD; self.size as usize]);
        disk.set_faults(faults);
        disk
    }

    /// The file after writes of the ranks in turn, and for each byte those that wrote there.
    fn written(&self) -> Vec<Vec<u8>> {
        let mut file: Vec<Vec<u8>> = vec![vec![OLD]; self.size as usize];
        for rank in 0..self.size_of_job() {
            for (position, at) in (0..).zip(self.places(rank)) {
                if file.len() <= at as usize {
                    file.resize(at as usize + 1, vec![0]);
                }
                let of_rank = byte(rank, position);
                let there = &mut file[at as usize];
                there.retain(|old| *old != OLD && *old != 0);
                there.push(of_rank);
            }
        }
        file
    }
}

/// Byte that a rank writes at a position of its stream; neither 0 nor what is there before.
fn byte(rank: u32, position: u64) -> u8 {
    (u64::from(rank) * 37 + position * 5) as u8 % 200 + 1
}

fn unsteady() -> Faults {
    Faults {
        short: 3,
        interrupted: 4,
        ..Faults::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn writers_leave_the_bytes_of_ranks_and_what_is_between(access in some_access()) {
        let disk = access.disk(unsteady());
        for (rank, (outcome, _)) in access.run(&disk, Direction::Write).into_iter().enumerate() {
            prop_assert_eq!(outcome.unwrap(), access.places(rank as u32).len() as u64);
        }
        let file = disk.content(Path::new("file")).unwrap();
        let expected = access.written();
        prop_assert_eq!(file.len(), expected.len());
        for (at, (found, allowed)) in file.iter().zip(&expected).enumerate() {
            prop_assert!(allowed.contains(found), "byte {} is {}, not of {:?}", at, found, allowed);
        }
    }

    #[test]
    fn ranks_read_their_bytes_up_to_the_end_of_the_file(access in some_access()) {
        let disk = access.disk(unsteady());
        let content: Vec<u8> = (0..access.size).map(|at| byte(7, at)).collect();
        disk.put(Path::new("file"), &content);
        for (rank, (outcome, data)) in access.run(&disk, Direction::Read).into_iter().enumerate() {
            let places = access.places(rank as u32);
            let there: Vec<u8> = places.iter().map_while(|at| content.get(*at as usize)).copied().collect();
            prop_assert_eq!(outcome.unwrap(), there.len() as u64);
            prop_assert_eq!(&data[..there.len()], &there[..]);
            // The program's memory beyond is as before.
            prop_assert!(data[there.len()..].iter().all(|byte| *byte == OLD));
        }
    }

    #[test]
    fn what_fails_is_told_to_all_and_nothing_else_is_touched(access in some_access(), broken in 0u64..1500, room in 0u64..600, writes: bool) {
        let direction = if writes { Direction::Write } else { Direction::Read };
        let faults = Faults {
            broken: (room % 2 == 0).then_some(broken..broken + 40),
            capacity: access.size + room + 1,
            ..unsteady()
        };
        let disk = access.disk(faults);
        let outcomes = access.run(&disk, direction);
        let classes: Vec<_> = outcomes.iter().map(|(outcome, _)| outcome.as_ref().err().map(|error| error.class)).collect();
        prop_assert!(classes.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", classes);
        prop_assert!(classes.iter().all(|class| matches!(class, None | Some(Class::Io | Class::NoSpace))), "{:?}", classes);
        let expected = access.written();
        for (at, found) in disk.content(Path::new("file")).unwrap().into_iter().enumerate() {
            let is_old = found == if (at as u64) < access.size { OLD } else { 0 };
            prop_assert!(is_old || writes && expected[at].contains(&found), "byte {} is {}", at, found);
        }
    }

    #[test]
    fn handles_that_become_stale_in_the_middle_are_told_to_all_and_what_was_written_stays(access in some_access(), after in 0u64..12, writes: bool) {
        let direction = if writes { Direction::Write } else { Direction::Read };
        let faults = Faults { stale_after: after + 1, ..unsteady() };
        let disk = access.disk(faults);
        let outcomes = access.run(&disk, direction);
        let classes: Vec<_> = outcomes.iter().map(|(outcome, _)| outcome.as_ref().err().map(|error| error.class)).collect();
        prop_assert!(classes.windows(2).all(|pair| pair[0] == pair[1]), "{:?}", classes);
        prop_assert!(classes.iter().all(|class| matches!(class, None | Some(STALE))), "{:?}", classes);
        let texts = outcomes.iter().filter_map(|(outcome, _)| outcome.as_ref().err()).map(|error| &error.detail);
        prop_assert!(texts.clone().count() == 0 || texts.clone().any(|text| text.contains("stale handle")), "{:?}", texts.collect::<Vec<_>>());
        let expected = access.written();
        for (at, found) in disk.content(Path::new("file")).unwrap().into_iter().enumerate() {
            let is_old = found == if (at as u64) < access.size { OLD } else { 0 };
            prop_assert!(is_old || writes && expected[at].contains(&found), "byte {} is {}", at, found);
        }
        // With handles of its own a later access does what this one could not.
        disk.set_faults(unsteady());
        if writes {
            for (outcome, _) in access.run(&disk, Direction::Write) {
                prop_assert!(outcome.is_ok());
            }
            for (at, (found, allowed)) in disk.content(Path::new("file")).unwrap().iter().zip(&expected).enumerate() {
                prop_assert!(allowed.contains(found), "byte {} is {}, not of {:?}", at, found, allowed);
            }
        }
    }
}
