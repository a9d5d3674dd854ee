//! Transports that are loaded as modules: shared objects in Rust.
//!
//! A module is a crate of type `cdylib` that calls [`transport_module!`](crate::transport_module)
//! with a function of type [`CreateTransport`]. A process loads it by [`TransportModule::load`] and
//! makes transports with [`TransportModule::create`]. A module may be a transport of its own, or
//! wrap another one, which the process hands to it.
//!
//! Border: [`DynTransport`] and the types of its methods, by Rust's own conventions. So a module is
//! refused unless compiler, crates and their sources are alike (`garonne_plugin`).

mod sys;

use crate::dynamic::DynTransport;
use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::protocol::offload::OffloadResult;
use garonne_engine::transport::{
    AtomicAccess, BulkTransfer, ExposeResult, Fragmentation, Fragments, PacketBuffer, PacketHeader,
    PartWritten, PeekedPacket, PeerCapabilities, RegionDescriptor, RegionMemory, TransportLimits,
};
use garonne_plugin::{Checksum, Identity, LoadError, LoadedModule};
use garonne_sync::shm::Segment;
use garonne_sync::user::{Data, UserMem};
use std::path::Path;

#[doc(hidden)]
pub use garonne_plugin::ModuleHeader;

/// Identity of the interface of transport modules in this build. Modules carry it.
pub const IDENTITY: Identity = Identity::new(
    "transport",
    c"garonne_transport_module",
    env!("CARGO_PKG_VERSION"),
    LAYOUT,
);

/// Checksum of the sources that declare the border, and of the layouts of its types.
const LAYOUT: Checksum = Checksum::new(number(env!("TRANSPORT_SOURCES")))
    .layout_of::<ModuleContext<'static>>()
    .layout_of::<Result<Box<dyn DynTransport>, String>>()
    .layout_of::<TransportLimits>()
    .layout_of::<Option<PeerCapabilities>>()
    .layout_of::<Option<UnreachableCause>>()
    .layout_of::<PacketBuffer>()
    .layout_of::<PacketHeader>()
    .layout_of::<PeekedPacket>()
    .layout_of::<BulkTransfer<'static>>()
    .layout_of::<ExposeResult>()
    .layout_of::<AtomicAccess<'static>>()
    .layout_of::<RegionMemory>()
    .layout_of::<Option<RegionDescriptor>>()
    .layout_of::<Result<OffloadResult, Error>>()
    .layout_of::<Result<Option<PartWritten>, Error>>()
    .layout_of::<Fragmentation>()
    .layout_of::<Fragments>()
    .layout_of::<Option<Segment>>()
    .layout_of::<UserMem>()
    .layout_of::<Data>();

/// Returns the number that a decimal text says.
const fn number(text: &str) -> u64 {
    let (bytes, mut number, mut at) = (text.as_bytes(), 0u64, 0);
    while at < bytes.len() {
        number = number
            .wrapping_mul(10)
            .wrapping_add((bytes[at] - b'0') as u64);
        at += 1;
    }
    number
}

/// Parts from which a module makes a transport.
pub struct ModuleContext<'a> {
    /// Rank whose transport it is.
    pub me: Peer,
    /// Ranks of the world.
    pub world: u32,
    /// Engine of the rank whose transport it is; a rank of several threads may have several.
    pub shard: u32,
    /// Words of the user for the module; each module has its own.
    pub options: &'a str,
    /// Transport that the new one wraps; `None`: it is to reach peers by itself.
    pub inner: Option<Box<dyn DynTransport>>,
    /// What is called when the rank leaves the job. The module may add to it.
    pub at_leave: &'a mut Vec<LeaveHook>,
}

/// Function of a module that a rank calls each time it leaves its job: all that it sent has been
/// delivered. A process mostly ends without dropping its transports, so records are written here.
pub type LeaveHook = Box<dyn FnMut() + Send>;

/// Entry of a module: makes a transport, or says why it does not.
pub type CreateTransport = fn(ModuleContext<'_>) -> Result<Box<dyn DynTransport>, String>;

/// A transport module that was loaded.
///
/// Owned by whoever makes transports; made by [`TransportModule::load`]. The module itself stays
/// loaded until the process ends, so transports of it may live longer than this.
#[derive(Clone, Debug)]
pub struct TransportModule(LoadedModule);

impl TransportModule {
    /// Loads the module in a file.
    ///
    /// # Errors
    /// The file is no transport module, or was built otherwise than this process; the error names
    /// the file and both versions.
    pub fn load(file: &Path) -> Result<Self, LoadError> {
        garonne_plugin::load(file, &IDENTITY).map(Self)
    }

    /// Makes a transport.
    ///
    /// # Errors
    /// The module's reason, behind its file.
    pub fn create(&self, context: ModuleContext<'_>) -> Result<Box<dyn DynTransport>, String> {
        let create = sys::entry(&self.0);
        create(context).map_err(|why| format!("{}: {why}", self.0.file().display()))
    }
}
