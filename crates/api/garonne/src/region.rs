//! Memory that a process exposes, and reads of it by others.

use crate::endpoint::{Endpoint, Host};
use crate::error::misuse;
use crate::sys::{ExposedMemory, OwnedOperation};
use garonne_engine::api::{self, Peer as Rank, StartOutcome};
use garonne_engine::one_sided;
use garonne_job::error::Result;
use garonne_sync::user::Data;

/// Key with which another process reads a region. Travels as bytes in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionKey(pub(crate) one_sided::RegionKey);

impl RegionKey {
    /// Bytes of a key, at most.
    pub const BYTES_MAX: usize = one_sided::RegionKey::BYTES_MAX;

    /// The key as bytes, for a message.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.encode()
    }

    /// The key that came as these bytes.
    ///
    /// # Errors
    /// `Misuse`: the bytes are no key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let key = one_sided::RegionKey::decode(bytes);
        key.map(Self)
            .ok_or_else(|| misuse("these bytes are no key of a region"))
    }

    /// Length of the region in bytes.
    pub fn len(&self) -> u64 {
        self.0.region_len()
    }

    /// Returns whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Memory that all peers with its key may read, until it is withdrawn.
///
/// [`Endpoint::expose`] makes it. Nobody writes it meanwhile. Dropping it withdraws it without
/// waiting; its memory is freed when no peer reads it any more.
#[derive(Debug)]
#[must_use = "a region is withdrawn when it is dropped"]
pub struct Region<'a> {
    endpoint: &'a Endpoint,
    key: RegionKey,
    /// Taken by `withdraw` and `drop` alone.
    memory: Option<ExposedMemory>,
}

impl<'a> Region<'a> {
    pub(crate) fn new(endpoint: &'a Endpoint, bytes: Box<[u8]>) -> Result<Self> {
        let register = |memory| endpoint.host().register(memory);
        let (memory, key) = ExposedMemory::open(bytes.into_vec(), register)
            .map_err(|error| endpoint.failed("expose", error))?;
        Ok(Self {
            endpoint,
            key: RegionKey(key),
            memory: Some(memory),
        })
    }

    /// The key, for those who shall read.
    pub fn key(&self) -> RegionKey {
        self.key
    }

    /// The bytes of the region.
    pub fn bytes(&self) -> &[u8] {
        self.memory.as_ref().map_or(&[], ExposedMemory::bytes)
    }

    /// Withdraws the region, waits until nobody reads it any more, and gives its memory back.
    ///
    /// # Errors
    /// `Resource`: no memory is left.
    pub fn withdraw(mut self) -> Result<Box<[u8]>> {
        let Some(mut operation) = self.begin_to_withdraw()? else {
            return Ok(Box::default());
        };
        self.endpoint.finish(&mut operation, "withdraw")?;
        Ok(operation.into_bytes().into_boxed_slice())
    }

    fn begin_to_withdraw(&mut self) -> Result<Option<OwnedOperation>> {
        let Some(memory) = self.memory.take() else {
            return Ok(None);
        };
        let deregister = || self.endpoint.host().deregister(&self.key.0);
        let operation = memory.close(deregister);
        operation
            .map(Some)
            .map_err(|error| self.endpoint.failed("withdraw", error))
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        // Memory that cannot be withdrawn is lost.
        if let Ok(Some(operation)) = self.begin_to_withdraw() {
            self.endpoint.give_up(operation, false);
        }
    }
}

/// The calls of an engine that exposed memory needs, whatever its transport.
impl Host {
    fn register(
        &self,
        memory: one_sided::RegionMemory,
    ) -> std::result::Result<one_sided::RegionKey, api::Error> {
        match self {
            Host::Job(rank) => rank
                .host
                .inspect(|engine| engine.one_sided().register_region(memory)),
            Host::Pair(pair) => pair.with(|engine| engine.one_sided().register_region(memory)),
        }
    }

    fn deregister(
        &self,
        key: &one_sided::RegionKey,
    ) -> std::result::Result<StartOutcome, api::Error> {
        match self {
            Host::Job(rank) => rank
                .host
                .inspect(|engine| engine.one_sided().deregister_region(key)),
            Host::Pair(pair) => pair.with(|engine| engine.one_sided().deregister_region(key)),
        }
    }

    /// Starts to read from a peer's region.
    pub(crate) fn get(
        &self,
        (peer, key): (Rank, &RegionKey),
        offset: u64,
        data: Data,
    ) -> std::result::Result<StartOutcome, api::Error> {
        match self {
            Host::Job(rank) => rank.host.inspect(|engine| {
                let region = engine.one_sided().open_region(peer, &key.0)?;
                engine.one_sided().get(&region, offset, data)
            }),
            Host::Pair(pair) => pair.with(|engine| {
                let region = engine.one_sided().open_region(peer, &key.0)?;
                engine.one_sided().get(&region, offset, data)
            }),
        }
    }
}
