//! Checks of one-sided communication between two engines over any transport: by its own power where
//! it has one, by packets elsewhere.
//!
//! A transport's tests give two fresh transports that reach each other, stepped by one thread. Rank
//! 1 owns the region, rank 0 accesses it.

use super::{PATIENCE, pattern, scratch};
use garonne_engine::CreditQuotas;
use garonne_engine::api::{Error, StartOutcome};
use garonne_engine::engine::Engine;
use garonne_engine::one_sided::{
    AccessRights, AtomicArgs, AtomicOp, AtomicType, RegionKey, RegionMemory, RemoteRegion, SwapArgs,
};
use garonne_engine::transport::Transport;
use garonne_sync::user::{Data, Scratch};

/// Bytes of the region.
const LEN: usize = 200_000;
/// Bytes around the region, which nobody may touch.
const GUARD: usize = 64;

/// Two engines over two transports.
struct Pair<R, S> {
    engines: [Engine<R>; 2],
    settle: S,
    /// The region and its guards.
    memory: Scratch,
}

impl<R: Transport, S: FnMut(&mut R)> Pair<R, S> {
    fn new(transports: [R; 2], settle: S) -> Self {
        let quotas = CreditQuotas {
            envelopes: 64,
            payload: 1 << 20,
        };
        let mut rank = 0;
        let engines = transports.map(|transport| {
            rank += 1;
            Engine::new(transport, rank - 1, 2, quotas)
        });
        let memory = scratch(&[0xee; LEN + 2 * GUARD]);
        memory.mem().write(GUARD as isize, &[0; LEN]);
        Self {
            engines,
            settle,
            memory,
        }
    }

    fn region(&self, rights: AccessRights) -> RegionMemory {
        RegionMemory {
            mem: self.memory.mem().offset(GUARD as isize),
            len: LEN as u64,
            rights,
        }
    }

    /// Registers the region at rank 1.
    fn register(&mut self, rights: AccessRights) -> RegionKey {
        let region = self.region(rights);
        self.engines[1]
            .one_sided()
            .register_region(region)
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Opens it at rank 0 by a key that travelled.
    fn open(&mut self, key: &RegionKey) -> RemoteRegion {
        let key = RegionKey::decode(&key.encode()).unwrap_or_else(|| panic!("a key is read back"));
        self.engines[0]
            .one_sided()
            .open_region(1, &key)
            .unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Waits for an operation of `rank`.
    fn end(&mut self, rank: usize, started: Result<StartOutcome, Error>) -> Result<(), Error> {
        let request = match started? {
            StartOutcome::Done(status) => return status.error.map_or(Ok(()), Err),
            StartOutcome::Pending(request) => request,
        };
        for _ in 0..PATIENCE {
            if let Ok(Some(status)) = self.engines[rank].take(request) {
                return status.error.map_or(Ok(()), Err);
            }
            self.step();
        }
        panic!("a one-sided operation never ended");
    }

    fn step(&mut self) {
        for engine in &mut self.engines {
            engine.progress();
            (self.settle)(engine.transport());
        }
    }

    fn flush(&mut self) -> Result<(), Error> {
        let started = self.engines[0].one_sided().flush(1);
        self.end(0, started)
    }

    fn put(&mut self, region: &RemoteRegion, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        let memory = scratch(bytes);
        let data = Data::contiguous(memory.mem(), bytes.len() as u64);
        let started = self.engines[0].one_sided().put(region, offset, data);
        self.end(0, started)
    }

    fn get(&mut self, region: &RemoteRegion, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
        let memory = scratch(&vec![0; len]);
        let data = Data::contiguous(memory.mem(), len as u64);
        let started = self.engines[0].one_sided().get(region, offset, data);
        self.end(0, started)?;
        let mut bytes = vec![0; len];
        memory.mem().read(0, &mut bytes);
        Ok(bytes)
    }

    /// Updates elements. Returns their old values.
    fn atomic(
        &mut self,
        region: &RemoteRegion,
        (offset, kind, op): (u64, AtomicType, AtomicOp),
        operands: &[u8],
    ) -> Result<Vec<u8>, Error> {
        let (memory, old) = (scratch(operands), scratch(&vec![0; operands.len()]));
        let args = AtomicArgs {
            offset,
            kind,
            op,
            operands: Data::contiguous(memory.mem(), operands.len() as u64),
            result: Some(old.mem()),
        };
        let started = self.engines[0].one_sided().atomic(region, args);
        self.end(0, started)?;
        let mut bytes = vec![0; operands.len()];
        old.mem().read(0, &mut bytes);
        Ok(bytes)
    }

    /// The bytes of the region, after a look at those around it.
    fn contents(&self) -> Vec<u8> {
        let mut bytes = vec![0; LEN + 2 * GUARD];
        self.memory.mem().read(0, &mut bytes);
        let guards = bytes[..GUARD].iter().chain(&bytes[GUARD + LEN..]);
        assert!(
            guards.copied().all(|byte| byte == 0xee),
            "an access touches its region only"
        );
        bytes[GUARD..GUARD + LEN].to_vec()
    }
}

/// Runs every check, each over two fresh transports. `settle` lets time pass at one of them.
pub fn check_one_sided<R: Transport>(
    mut fresh: impl FnMut() -> [R; 2],
    mut settle: impl FnMut(&mut R),
) {
    what_is_put_is_got(&mut Pair::new(fresh(), &mut settle));
    flushed_puts_are_there(&mut Pair::new(fresh(), &mut settle));
    elements_are_updated(&mut Pair::new(fresh(), &mut settle));
    rights_and_bounds_hold(&mut Pair::new(fresh(), &mut settle));
    stale_keys_move_nothing(&mut Pair::new(fresh(), &mut settle));
}

fn what_is_put_is_got<R: Transport, S: FnMut(&mut R)>(pair: &mut Pair<R, S>) {
    let key = pair.register(AccessRights::READ.with(AccessRights::WRITE));
    let region = pair.open(&key);
    let mut model = vec![0; LEN];
    for (turn, len) in [1, 7, 8, 64, 1000, 4096, 9000, 70_001, 150_000, 0]
        .into_iter()
        .enumerate()
    {
        let offset = 13 * turn;
        let bytes = pattern(len, turn);
        model[offset..offset + len].copy_from_slice(&bytes);
        let put = pair.put(&region, offset as u64, &bytes);
        put.unwrap_or_else(|error| panic!("{error:?}"));
        pair.flush().unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(pair.contents(), model, "a put writes what it says");
        let got = pair
            .get(&region, offset as u64, len)
            .unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(got, bytes, "a get reads what is there");
    }
}

fn flushed_puts_are_there<R: Transport, S: FnMut(&mut R)>(pair: &mut Pair<R, S>) {
    let key = pair.register(AccessRights::ALL);
    let region = pair.open(&key);
    // Many more than may be in flight, of several packets each at times.
    let count = 1500;
    let bytes = pattern(count * 100 + 50_000, 3);
    let source = scratch(&bytes);
    for turn in 0..count {
        let len = if turn % 300 == 7 { 50_000 } else { 100 };
        let data = Data::contiguous(source.mem().offset(turn as isize * 100), len);
        let offset = turn as u64 * 100;
        let started = pair.engines[0].one_sided().put(&region, offset, data);
        match started {
            Ok(StartOutcome::Done(status)) => assert_eq!(status.error, None),
            Ok(StartOutcome::Pending(request)) => {
                let left = pair.engines[0].abandon(request);
                assert_eq!(left, Ok(()), "nobody asks for it by name");
            }
            Err(error) => panic!("{error:?}"),
        }
    }
    pair.flush().unwrap_or_else(|error| panic!("{error:?}"));
    assert_eq!(
        pair.contents()[..count * 100],
        bytes[..count * 100],
        "a flush ends after all puts before it"
    );
    assert!(pair.engines[0].is_idle(), "and leaves nothing behind");
}

fn elements_are_updated<R: Transport, S: FnMut(&mut R)>(pair: &mut Pair<R, S>) {
    let key = pair.register(AccessRights::ALL);
    let region = pair.open(&key);
    let failed = |error: Error| -> ! { panic!("{error:?}") };
    for kind in AtomicType::ALL {
        for op in AtomicOp::ALL {
            let size = kind.size();
            let (old, operand) = (0x4008_0000_0000_0003u64, 0x4014_0000_4080_0005u64);
            let low = |value: u64| value.to_le_bytes()[..size].to_vec();
            let cut = |value: u64| {
                low(value)
                    .iter()
                    .rev()
                    .fold(0, |all, byte| all << 8 | u64::from(*byte))
            };
            let place = 64 * u64::from(op as u8) + 8;
            pair.put(&region, place, &low(old))
                .unwrap_or_else(|error| failed(error));
            let got = pair.atomic(&region, (place, kind, op), &low(operand));
            if !op.is_defined(kind) {
                assert!(matches!(got, Err(Error::Misuse(_))), "{kind:?} {op:?}");
                continue;
            }
            assert_eq!(got, Ok(low(old)), "the old value: {kind:?} {op:?}");
            let new = op.combine(kind, cut(old), cut(operand));
            let there = pair.get(&region, place, size);
            assert_eq!(there, Ok(low(new)), "the new value: {kind:?} {op:?}");
        }
    }
    // More elements than an answer brings, and again: the second sees the first.
    let add: Vec<u8> = (1..=100u32).flat_map(u32::to_le_bytes).collect();
    let sum = (4096, AtomicType::U32, AtomicOp::Sum);
    assert_eq!(pair.atomic(&region, sum, &add), Ok(vec![0; 400]));
    assert_eq!(pair.atomic(&region, sum, &add), Ok(add));
    let memory = scratch(&[0; 16]);
    for (compare, value, old) in [(7u64, 1u64, 0u64), (0, 5, 0), (5, 6, 5)] {
        memory.mem().write(0, &value.to_le_bytes());
        let args = SwapArgs {
            offset: 8192,
            kind: AtomicType::U64,
            compare,
            value: memory.mem(),
            result: memory.mem().offset(8),
        };
        let started = pair.engines[0].one_sided().compare_and_swap(&region, args);
        pair.end(0, started).unwrap_or_else(|error| failed(error));
        assert_eq!(memory.mem().read_array(8), old.to_le_bytes());
    }
    let six = pair.get(&region, 8192, 8);
    assert_eq!(six, Ok(6u64.to_le_bytes().to_vec()), "equal values swap");
    let odd = (4097, AtomicType::U32, AtomicOp::Sum);
    let refused = pair.atomic(&region, odd, &[1, 0, 0, 0]);
    assert!(
        matches!(refused, Err(Error::Misuse(_))),
        "misaligned: {refused:?}"
    );
    pair.contents();
}

fn rights_and_bounds_hold<R: Transport, S: FnMut(&mut R)>(pair: &mut Pair<R, S>) {
    let refused = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Misuse(_))), "{result:?}");
    };
    let read = AccessRights::READ;
    for rights in [read, AccessRights::WRITE, AccessRights::ATOMIC] {
        let key = pair.register(rights);
        // Who lies to itself about rights and length is refused by the target.
        let mut forged = key.encode();
        forged[8..16].copy_from_slice(&(2 * LEN as u64).to_le_bytes());
        forged[16] = AccessRights::ALL.bits();
        let forged = RegionKey::decode(&forged).unwrap_or_else(|| panic!("bytes of a key"));
        for key in [key, forged] {
            let region = pair.open(&key);
            if rights != AccessRights::WRITE {
                refused(pair.put(&region, 0, &[1; 8]));
            }
            if rights != read {
                refused(pair.get(&region, 0, 8).map(drop));
            }
            if rights != AccessRights::ATOMIC {
                let add = (0, AtomicType::U64, AtomicOp::Sum);
                refused(pair.atomic(&region, add, &[1; 8]).map(drop));
            }
            let beyond = LEN as u64 - 7;
            refused(pair.put(&region, beyond, &[1; 8]));
            refused(pair.get(&region, beyond, 8).map(drop));
            let add = (LEN as u64, AtomicType::U64, AtomicOp::Sum);
            refused(pair.atomic(&region, add, &[1; 8]).map(drop));
        }
        let closed = pair.engines[1].one_sided().deregister_region(&key);
        pair.end(1, closed)
            .unwrap_or_else(|error| panic!("{error:?}"));
    }
    assert!(pair.flush().is_err(), "a flush tells of failures");
    assert_eq!(pair.flush(), Ok(()), "once");
    assert!(pair.contents().iter().all(|byte| *byte == 0));
}

fn stale_keys_move_nothing<R: Transport, S: FnMut(&mut R)>(pair: &mut Pair<R, S>) {
    let stale = pair.register(AccessRights::ALL);
    let region = pair.open(&stale);
    pair.put(&region, 0, &[9; 16])
        .unwrap_or_else(|error| panic!("{error:?}"));
    let closed = pair.engines[1].one_sided().deregister_region(&stale);
    pair.end(1, closed)
        .unwrap_or_else(|error| panic!("{error:?}"));
    let again = pair.engines[1].one_sided().deregister_region(&stale);
    assert!(again.is_err(), "a region is closed once");
    // The place of the region is used again.
    let fresh = pair.register(AccessRights::ALL);
    for late in [false, true] {
        let region = if late { pair.open(&stale) } else { region };
        let add = (0, AtomicType::U64, AtomicOp::Sum);
        for result in [
            pair.put(&region, 0, &[1; 8]),
            pair.put(&region, 0, &[1; 20_000]),
            pair.get(&region, 0, 20_000).map(drop),
            pair.atomic(&region, add, &[1; 8]).map(drop),
        ] {
            assert!(result.is_err(), "a stale key opens nothing");
        }
    }
    assert_eq!(pair.contents()[..17], [[9; 16].as_slice(), &[0]].concat());
    let region = pair.open(&fresh);
    assert_eq!(pair.get(&region, 0, 16), Ok(vec![9; 16]));
}
