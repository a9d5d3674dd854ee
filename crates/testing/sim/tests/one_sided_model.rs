//! One-sided communication against a sequential model: random reads, writes and atomic updates of
//! one region by several origins, with faults of the medium, by packets and by the transport.
//!
//! Each origin writes to a part of the region that is its own, so that a model says what is there.
//! All update the same counters, whose sums must be exact.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome, Status,
};
use garonne_engine::one_sided::{
    AccessRights, AtomicArgs, AtomicOp, AtomicType, RegionKey, RegionMemory, RemoteRegion, SwapArgs,
};
use garonne_progress::messaging::{Messaging, Waiting};
use garonne_sim::MemoryAccess;
use garonne_sim::faults::Faults;
use garonne_sim::job::{SimHost, SimJob, check};
use garonne_sim::random::Random;
use garonne_sim::storm::{deaths, storm};
use garonne_sync::user::{Data, Scratch};
use std::sync::Arc;

/// Rank that owns the region.
const TARGET: u32 = 0;
/// Bytes of an origin's own part.
const PART: usize = 3000;
/// Offsets of the counters that all update.
const SUM: u64 = 0;
const FLOAT: u64 = 8;
const SWAPPED: u64 = 16;
const ARRAY: u64 = 24;
/// Elements of the array, of 32 bits: more than one packet brings the old values of.
const ELEMENTS: u64 = 40;
const COUNTERS: usize = 24 + 4 * ELEMENTS as usize;
/// Bytes of the region; no peer may touch those around it.
const fn region_len(world: u32) -> usize {
    (COUNTERS + world as usize * PART).next_multiple_of(16)
}
const GUARD: usize = 64;

fn bytes_of(len: usize, random: &mut Random) -> Vec<u8> {
    (0..len).map(|_| random.below(256) as u8).collect()
}

fn memory(bytes: &[u8]) -> Scratch {
    let scratch = Scratch::new(bytes.len().max(1)).expect("memory");
    scratch.mem().write(0, bytes);
    scratch
}

fn read(scratch: &Scratch, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    scratch.mem().read(0, &mut bytes);
    bytes
}

/// Waits for an operation.
fn end(host: &SimHost, started: Result<StartOutcome, Error>) -> Result<Status, Error> {
    let request = match started? {
        StartOutcome::Done(status) => return status.error.clone().map_or(Ok(status), Err),
        StartOutcome::Pending(request) => request,
    };
    let mut status = None;
    host.wait_until(&mut || {
        if status.is_none() {
            status = host.take(request).expect("ours");
        }
        status.is_some()
    });
    let status = status.expect("waited for");
    status.error.clone().map_or(Ok(status), Err)
}

/// Starts a send; the memory holds its bytes.
fn start_send(
    host: &SimHost,
    peer: u32,
    memory: &Scratch,
    len: usize,
) -> Result<StartOutcome, Error> {
    let send = SendArgs {
        context: 0,
        peer,
        source: host.me(),
        tag: 1,
        data: Data::contiguous(memory.mem(), len as u64),
        mode: SendCompletion::Standard,
        origin: CallOrigin::default(),
    };
    host.send(send)
}

fn send(host: &SimHost, peer: u32, bytes: &[u8]) -> Result<Status, Error> {
    let memory = memory(bytes);
    end(host, start_send(host, peer, &memory, bytes.len()))
}

fn recv(host: &SimHost, peer: u32) -> Result<Vec<u8>, Error> {
    let room = Scratch::new(PART).expect("memory");
    let recv = RecvArgs {
        pattern: Pattern {
            context: 0,
            source: Some(Source { rank: peer, peer }),
            tag: Some(1),
        },
        data: Data::contiguous(room.mem(), PART as u64),
        origin: CallOrigin::default(),
    };
    let status = end(host, host.recv(recv))?;
    Ok(read(&room, status.len as usize))
}

/// An origin, and what its accesses must have done.
struct Origin<'a> {
    host: &'a SimHost,
    region: RemoteRegion,
    random: Random,
    /// Contents of the own part.
    part: Vec<u8>,
    /// What this origin added to the counters.
    sum: i64,
    float: f64,
    swapped: i64,
    array: Vec<i32>,
    /// Accesses that are not waited for yet, and their memory.
    open: Vec<(garonne_engine::api::Request, Scratch)>,
}

impl Origin<'_> {
    fn begin(&self) -> u64 {
        (COUNTERS + self.host.me() as usize * PART) as u64
    }

    fn start(
        &mut self,
        started: Result<StartOutcome, Error>,
        memory: Scratch,
    ) -> Result<(), Error> {
        match started? {
            StartOutcome::Done(status) => status.error.map_or(Ok(()), Err),
            StartOutcome::Pending(request) => {
                self.open.push((request, memory));
                Ok(())
            }
        }
    }

    /// Waits for all accesses: each by its name, or all by a flush.
    fn settle(&mut self) -> Result<(), Error> {
        let mut failure = None;
        if self.random.one_in(2) {
            let flush = self.host.inspect(|engine| engine.one_sided().flush(TARGET));
            failure = end(self.host, flush).err();
        }
        for (request, _memory) in std::mem::take(&mut self.open) {
            let result = end(self.host, Ok(StartOutcome::Pending(request)));
            failure = failure.or(result.err());
        }
        failure.map_or(Ok(()), Err)
    }

    /// Writes to a half of the own part, which no open access touches.
    fn put(&mut self) -> Result<(), Error> {
        self.settle()?;
        for half in 0..2 {
            let from = half * PART / 2 + self.random.below(PART as u64 / 4) as usize;
            let len = self.random.below((PART / 2 * (half + 1) - from) as u64 + 1) as usize;
            let bytes = bytes_of(len, &mut self.random);
            self.part[from..from + len].copy_from_slice(&bytes);
            let memory = memory(&bytes);
            let data = Data::contiguous(memory.mem(), len as u64);
            let offset = self.begin() + from as u64;
            let region = self.region;
            let started = self
                .host
                .inspect(|engine| engine.one_sided().put(&region, offset, data));
            self.start(started, memory)?;
        }
        Ok(())
    }

    fn get_own(&mut self) -> Result<(), Error> {
        self.settle()?;
        let got = get(self.host, &self.region, self.begin(), PART)?;
        assert_eq!(got, self.part, "what was written is read");
        Ok(())
    }

    fn add(&mut self) -> Result<(), Error> {
        let value = self.random.below(2000) as i64 - 1000;
        self.sum += value;
        let bytes = value.to_le_bytes();
        self.atomic(SUM, AtomicType::I64, AtomicOp::Sum, &bytes)?;
        let value = self.random.below(1000) as f64;
        self.float += value;
        let bytes = value.to_le_bytes();
        self.atomic(FLOAT, AtomicType::F64, AtomicOp::Sum, &bytes)
    }

    fn atomic(
        &mut self,
        offset: u64,
        kind: AtomicType,
        op: AtomicOp,
        operands: &[u8],
    ) -> Result<(), Error> {
        let len = operands.len();
        // Operands, and behind them room for old values.
        let memory = memory(&[operands, &vec![0; len]].concat());
        let args = AtomicArgs {
            offset,
            kind,
            op,
            operands: Data::contiguous(memory.mem(), len as u64),
            result: self
                .random
                .one_in(2)
                .then(|| memory.mem().offset(len as isize)),
        };
        let region = self.region;
        let started = self
            .host
            .inspect(|engine| engine.one_sided().atomic(&region, args));
        self.start(started, memory)
    }

    fn add_array(&mut self) -> Result<(), Error> {
        let from = self.random.below(ELEMENTS);
        let count = 1 + self.random.below(ELEMENTS - from);
        let values: Vec<i32> = (0..count)
            .map(|_| self.random.below(1 << 32) as i32)
            .collect();
        for (at, value) in values.iter().enumerate() {
            let place = &mut self.array[from as usize + at];
            *place = place.wrapping_add(*value);
        }
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        self.atomic(ARRAY + 4 * from, AtomicType::I32, AtomicOp::Sum, &bytes)
    }

    /// Adds by compare-and-swap, again until nobody came between.
    fn swap(&mut self) -> Result<(), Error> {
        let add = 1 + self.random.below(9) as i64;
        let mut compare = 0i64;
        loop {
            let memory = memory(&[(compare + add).to_le_bytes(), [0; 8]].concat());
            let args = SwapArgs {
                offset: SWAPPED,
                kind: AtomicType::I64,
                compare: compare as u64,
                value: memory.mem(),
                result: memory.mem().offset(8),
            };
            let region = self.region;
            let started = self
                .host
                .inspect(|engine| engine.one_sided().compare_and_swap(&region, args));
            end(self.host, started)?;
            let old = i64::from_le_bytes(memory.mem().read_array(8));
            if old == compare {
                self.swapped += add;
                return Ok(());
            }
            compare = old;
        }
    }

    fn refused(&mut self) {
        let len = region_len(self.host.world_size()) as u64;
        let memory = memory(&[0; 16]);
        let eight = || Data::contiguous(memory.mem(), 8);
        let region = self.region;
        let beyond = self.host.inspect(|engine| {
            [
                engine.one_sided().put(&region, len - 7, eight()),
                engine.one_sided().get(&region, u64::MAX - 3, eight()),
            ]
        });
        for result in beyond {
            assert!(matches!(result, Err(Error::Misuse(_))), "{result:?}");
        }
        let args = AtomicArgs {
            offset: 4,
            kind: AtomicType::U64,
            op: AtomicOp::Sum,
            operands: eight(),
            result: None,
        };
        let misaligned = self
            .host
            .inspect(|engine| engine.one_sided().atomic(&region, args));
        let result = end(self.host, misaligned);
        assert!(
            matches!(result, Err(Error::Misuse(_) | Error::Peer { .. })),
            "{result:?}"
        );
        // The next flush tells of it, too.
        let flush = self.host.inspect(|engine| engine.one_sided().flush(TARGET));
        assert!(end(self.host, flush).is_err() || self.host.me() == TARGET);
    }

    fn act(&mut self) -> Result<(), Error> {
        match self.random.below(12) {
            0..3 => self.put(),
            3 => self.get_own(),
            4..7 => self.add(),
            7 | 8 => self.add_array(),
            9 => self.swap(),
            10 => self.settle(),
            _ => {
                self.host.progress();
                Ok(())
            }
        }
    }
}

fn get(host: &SimHost, region: &RemoteRegion, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let room = Scratch::new(len).expect("memory");
    let data = Data::contiguous(room.mem(), len as u64);
    let started = host.inspect(|engine| engine.one_sided().get(region, offset, data));
    end(host, started)?;
    Ok(read(&room, len))
}

/// The region of the target, with bytes around it that nobody may touch.
fn region(world: u32) -> (Scratch, RegionMemory) {
    let len = region_len(world);
    let memory = Scratch::new(len + 2 * GUARD).expect("memory");
    memory.mem().write(0, &[0xee; GUARD]);
    memory.mem().write((GUARD + len) as isize, &[0xee; GUARD]);
    let region = RegionMemory {
        mem: memory.mem().offset(GUARD as isize),
        len: len as u64,
        rights: AccessRights::ALL,
    };
    (memory, region)
}

/// Makes the region's key known to all.
fn share_key(host: &SimHost, memory: RegionMemory) -> Result<RegionKey, Error> {
    if host.me() != TARGET {
        return Ok(RegionKey::decode(&recv(host, TARGET)?).expect("a key"));
    }
    let key = host.inspect(|engine| engine.one_sided().register_region(memory))?;
    for peer in (0..host.world_size()).filter(|peer| *peer != TARGET) {
        // A peer that died needs none.
        let _ = send(host, peer, &key.encode());
    }
    Ok(key)
}

fn origin<'a>(host: &'a SimHost, key: &RegionKey, seed: u64) -> Result<Origin<'a>, Error> {
    Ok(Origin {
        host,
        region: host.inspect(|engine| engine.one_sided().open_region(TARGET, key))?,
        random: Random::new(seed ^ u64::from(host.me()) << 32 ^ 0x051d),
        part: vec![0; PART],
        sum: 0,
        float: 0.0,
        swapped: 0,
        array: vec![0; ELEMENTS as usize],
        open: Vec::new(),
    })
}

/// Several rounds of random accesses; after each, what a flush made visible is read by another.
fn play(origin: &mut Origin<'_>) -> Result<(), Error> {
    let (host, world) = (origin.host, origin.host.world_size());
    let (next, before) = ((host.me() + 1) % world, (host.me() + world - 1) % world);
    for _ in 0..4 {
        for _ in 0..origin.random.below(12) {
            origin.act()?;
        }
        origin.settle()?;
        let part = memory(&origin.part);
        let sending = start_send(host, next, &part, PART);
        let theirs = recv(host, before)?;
        end(host, sending)?;
        let offset = (COUNTERS + before as usize * PART) as u64;
        let got = get(host, &origin.region, offset, PART)?;
        assert_eq!(got, theirs, "what was flushed is visible to all");
        // Only now may they write again.
        send(host, before, &[])?;
        recv(host, next)?;
    }
    Ok(())
}

fn job(seed: u64, world: u32, memory: MemoryAccess, faults: Faults) -> SimJob {
    SimJob {
        world,
        seed,
        faults,
        quotas: CreditQuotas {
            envelopes: 16,
            payload: 4096,
        },
        memory,
    }
}

fn exact(host: Arc<SimHost>, seed: u64) {
    let world = host.world_size();
    let (kept, memory) = region(world);
    let key = share_key(&host, memory).expect("alive");
    let mut origin = origin(&host, &key, seed).expect("alive");
    play(&mut origin).expect("alive");
    origin.refused();
    let totals: Vec<u8> = [
        origin.sum.to_le_bytes().to_vec(),
        origin.float.to_le_bytes().to_vec(),
        origin.swapped.to_le_bytes().to_vec(),
        origin
            .array
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
        origin.part.clone(),
    ]
    .concat();
    if host.me() != TARGET {
        send(&host, TARGET, &totals[..COUNTERS]).expect("alive");
        send(&host, TARGET, &totals[COUNTERS..]).expect("alive");
        recv(&host, TARGET).expect("alive");
        let region = origin.region;
        let room = Scratch::new(8).expect("memory");
        for write in [true, false] {
            let data = Data::contiguous(room.mem(), 8);
            let started = host.inspect(|engine| match write {
                true => engine.one_sided().put(&region, 0, data),
                false => engine.one_sided().get(&region, 0, data),
            });
            let result = end(&host, started);
            assert!(matches!(result, Err(Error::Misuse(_))), "stale: {result:?}");
        }
        // Errors that were told are told by one flush.
        let flush = || host.inspect(|engine| engine.one_sided().flush(TARGET));
        assert!(end(&host, flush()).is_err());
        assert!(end(&host, flush()).is_ok());
        send(&host, TARGET, &[]).expect("alive");
        return;
    }
    let mut all = vec![(0, totals)];
    for peer in 1..world {
        let first = recv(&host, peer).expect("alive");
        all.push((peer, [first, recv(&host, peer).expect("alive")].concat()));
    }
    let len = region_len(world);
    let bytes = read(&kept, len + 2 * GUARD);
    let (front, rest) = bytes.split_at(GUARD);
    let (bytes, back) = rest.split_at(len);
    assert!(front.iter().chain(back).all(|byte| *byte == 0xee));
    let word = |bytes: &[u8], at: u64| -> [u8; 8] {
        bytes[at as usize..][..8].try_into().expect("eight bytes")
    };
    for at in [SUM, SWAPPED] {
        let sum: i64 = all
            .iter()
            .map(|(_, of)| i64::from_le_bytes(word(of, at)))
            .sum();
        assert_eq!(
            i64::from_le_bytes(word(bytes, at)),
            sum,
            "counters are exact"
        );
    }
    let sum: f64 = all
        .iter()
        .map(|(_, of)| f64::from_le_bytes(word(of, FLOAT)))
        .sum();
    assert_eq!(f64::from_le_bytes(word(bytes, FLOAT)), sum);
    for at in (0..ELEMENTS).map(|element| (ARRAY + 4 * element) as usize) {
        let element =
            |bytes: &[u8]| i32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
        let sum = all
            .iter()
            .fold(0, |sum: i32, (_, of)| sum.wrapping_add(element(of)));
        assert_eq!(element(bytes), sum, "elements are exact");
    }
    for (peer, of) in &all {
        let from = COUNTERS + *peer as usize * PART;
        assert_eq!(bytes[from..from + PART], of[COUNTERS..], "part of {peer}");
    }
    let closed = host.inspect(|engine| engine.one_sided().deregister_region(&key));
    end(&host, closed).expect("ours");
    for peer in 1..world {
        send(&host, peer, &[]).expect("alive");
    }
    (1..world).for_each(|peer| drop(recv(&host, peer).expect("alive")));
    drop(kept);
}

fn modes() -> [MemoryAccess; 3] {
    [
        MemoryAccess::Apart,
        MemoryAccess::Asked,
        MemoryAccess::Reached,
    ]
}

#[test]
fn random_accesses_of_several_origins_do_what_a_sequential_model_does() {
    for seed in garonne_sim::seeds(24) {
        let memory = modes()[(seed % 3) as usize];
        let job = job(seed, 2 + (seed / 3 % 3) as u32, memory, Faults::none());
        check(&job, |host| exact(host, seed));
    }
}

#[test]
fn a_storm_of_faults_changes_nothing_of_what_accesses_do() {
    for seed in garonne_sim::seeds(24) {
        let world = 3 + (seed / 3 % 2) as u32;
        let memory = modes()[(seed % 3) as usize];
        check(&job(seed, world, memory, storm(seed, world)), |host| {
            exact(host, seed)
        });
    }
}

#[test]
fn the_death_of_a_target_or_an_origin_ends_every_access_with_an_error() {
    for seed in garonne_sim::seeds(36) {
        let world = 3 + (seed / 3 % 2) as u32;
        let faults = Faults {
            deaths: deaths(seed, world, 1 + (seed % 2) as usize),
            ..Faults::none()
        };
        let memory = modes()[(seed % 3) as usize];
        check(&job(seed, world, memory, faults), |host| {
            let (kept, memory) = region(host.world_size());
            let key = share_key(&host, memory);
            let played = key.as_ref().map_err(Clone::clone).and_then(|key| {
                let mut origin = origin(&host, key, seed)?;
                let mut played = Ok(());
                for _ in 0..60 {
                    played = played.and(origin.act());
                }
                // Whatever is open ends, too.
                played.and(origin.settle())
            });
            if let (TARGET, Ok(key)) = (host.me(), &key) {
                let closed = host.inspect(|engine| engine.one_sided().deregister_region(key));
                end(&host, closed).expect("ours");
            }
            match played {
                Ok(()) | Err(Error::Peer { .. } | Error::Misuse(_)) => {}
                Err(error) => panic!("{error:?}"),
            }
            drop(kept);
        });
    }
}
