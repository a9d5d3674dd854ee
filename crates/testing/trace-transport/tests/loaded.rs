//! The trace wrapper loaded as a module: the conformance suite over it, alone, around a loaded
//! fault wrapper, and around a transport that has no power but regions; and what it records.

use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::transport::{
    AccessRights, AtomicAccess, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult,
    Fragmentation, FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader,
    PeerCapabilities, PollSink, RegionDescriptor, RegionMemory, RegisteredMemory, RemoteMemory,
    RendezvousMode, SharedCopy, Transport, TransportLimits, WakeSource,
};
use garonne_shm::{ShmTransport, ThreadPeers};
use garonne_sim::local::Fabric;
use garonne_sync::user::{Data, Scratch, UserMem};
use garonne_transport::conformance::modules::built_module;
use garonne_transport::conformance::{RecordedEvents, World, check_all, send};
use garonne_transport::dynamic::{DynTransport, OptionalPowers, boxed};
use garonne_transport::module::{ModuleContext, TransportModule};
use std::sync::{Arc, Mutex, MutexGuard};

fn load(name: &str) -> TransportModule {
    TransportModule::load(&built_module(name)).unwrap()
}

fn trace() -> TransportModule {
    load("garonne-trace-transport")
}

fn wrap(
    module: &TransportModule,
    (me, options): (Peer, &str),
    inner: Box<dyn DynTransport>,
) -> Box<dyn DynTransport> {
    let context = ModuleContext {
        me,
        world: 2,
        shard: 0,
        options,
        inner: Some(inner),
        at_leave: &mut Vec::new(),
    };
    module.create(context).unwrap()
}

/// Two transports of any kind, and how the second of them dies.
struct Pair<K> {
    transports: Vec<Box<dyn DynTransport>>,
    kill: K,
}

impl<K: FnMut()> World for Pair<K> {
    type Tested = Box<dyn DynTransport>;
    fn transport(&mut self, peer: Peer) -> &mut Self::Tested {
        &mut self.transports[peer as usize]
    }
    fn kill_second(&mut self) {
        (self.kill)();
    }
}

fn in_process(
    wrapped: impl Fn(Peer, Box<dyn DynTransport>) -> Box<dyn DynTransport>,
) -> Pair<impl FnMut()> {
    let fabric = Fabric::new(2);
    let transports = (0..2)
        .map(|me| wrapped(me, boxed(fabric.transport(me))))
        .collect();
    Pair {
        transports,
        kill: move || fabric.kill(1),
    }
}

#[test]
fn the_suite_holds_over_a_transport_whose_kind_is_not_known() {
    check_all(|| in_process(|_, inner| inner));
}

#[test]
fn the_suite_holds_over_a_loaded_trace() {
    let trace = trace();
    check_all(|| in_process(|me, inner| wrap(&trace, (me, ""), inner)));
}

#[test]
fn the_suite_holds_over_a_loaded_trace_around_loaded_faults() {
    let (trace, faults) = (trace(), load("garonne-fault-transport"));
    check_all(|| {
        in_process(|me, inner| {
            let faulty = wrap(&faults, (me, "seed=7,late=300"), inner);
            wrap(&trace, (me, ""), faulty)
        })
    });
}

/// A shared-memory transport that others hold too, with no optional power but regions.
#[derive(Clone)]
struct OnlyRegions(Arc<Mutex<ShmTransport>>);

impl OnlyRegions {
    fn lock(&self) -> MutexGuard<'_, ShmTransport> {
        self.0.lock().unwrap()
    }
}

impl OptionalPowers for OnlyRegions {
    fn remote_memory(&mut self) -> Option<&mut dyn RemoteMemory> {
        Some(self)
    }
}

impl DynTransport for OnlyRegions {
    fn limits(&self) -> TransportLimits {
        self.lock().limits()
    }
    fn capabilities(&self, peer: Peer) -> Option<PeerCapabilities> {
        self.lock().capabilities(peer)
    }
    fn unreachable_cause(&self, peer: Peer) -> Option<UnreachableCause> {
        self.lock().unreachable_cause(peer)
    }
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        self.lock().claim(peer, len, class)
    }
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        self.lock().commit(room, header);
    }
    fn abandon(&mut self, room: PacketBuffer) {
        self.lock().abandon(room);
    }
    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        bytes: UserMem,
    ) -> Result<(), ClaimError> {
        self.lock().send_inline(peer, header, bytes)
    }
    fn poll(&mut self, budget: u32, sink: &mut dyn PollSink) -> u32 {
        let mut told = RecordedEvents::default();
        let count = self.lock().poll(budget, &mut told);
        for (peer, header, bytes) in told.packets {
            let payload = Scratch::new(bytes.len().max(1)).unwrap();
            payload.mem().write(0, &bytes);
            sink.on_packet(peer, header, payload.mem(), bytes.len());
        }
        told.revoked
            .into_iter()
            .for_each(|token| sink.on_revoked(token));
        for (token, result) in told.done {
            sink.on_bulk_done(token, result);
        }
        told.gone
            .into_iter()
            .for_each(|peer| sink.on_peer_gone(peer));
        count
    }
    fn choose_rendezvous(&mut self, token: BulkToken, peer: Peer, len: u64) -> RendezvousMode {
        self.lock().choose_rendezvous(token, peer, len)
    }
    fn rendezvous_done(&mut self, token: BulkToken, worked: bool) {
        self.lock().rendezvous_done(token, worked);
    }
    fn peer_lost(&mut self, peer: Peer) {
        self.lock().peer_lost(peer);
    }
    fn arm(&mut self) -> u32 {
        self.lock().arm()
    }
    fn disarm(&mut self) {
        self.lock().disarm();
    }
    fn wake_source(&self) -> Arc<dyn WakeSource> {
        self.lock().wake_source()
    }
    fn wake_peer(&mut self, peer: Peer) {
        self.lock().wake_peer(peer);
    }
}

impl RemoteMemory for OnlyRegions {
    fn expose(&mut self, token: BulkToken, peer: Peer, data: &Data) -> ExposeResult {
        self.lock().expose(token, peer, data)
    }
    fn revoke(&mut self, token: BulkToken) -> BulkStatus {
        self.lock().revoke(token)
    }
    fn read(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.lock().read(bulk)
    }
    fn write(&mut self, bulk: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        self.lock().write(bulk)
    }
    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        Some(self)
    }
}

/// Registered memory that notes what it is asked for, and refuses.
impl RegisteredMemory for OnlyRegions {
    fn register(&mut self, region: &RegionMemory) -> Option<RegionDescriptor> {
        RegionDescriptor::new(region.len, b"open")
    }
    fn deregister(&mut self, _: BulkToken, _: &RegionDescriptor) -> BulkStatus {
        BulkStatus::Pending
    }
    fn direct_rights(&mut self, _: Peer, _: &RegionDescriptor) -> AccessRights {
        AccessRights::READ
    }
    fn get(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse("get"))
    }
    fn put(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse("put"))
    }
    fn fetch_atomic(&mut self, _: AtomicAccess<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Misuse("atomic"))
    }
    fn flush(&mut self, _: BulkToken, peer: Peer) -> Result<BulkStatus, Error> {
        Err(Error::Peer {
            peer,
            what: "flush",
        })
    }
}

#[test]
fn the_power_of_registered_memory_is_reached_through_a_loaded_module() {
    let inner: Box<dyn DynTransport> = Box::new(shared_memory().swap_remove(0));
    let mut transport = wrap(&trace(), (0, ""), inner);
    let memory = Scratch::new(64).unwrap();
    let region = RegionMemory {
        mem: memory.mem(),
        len: 64,
        rights: AccessRights::ALL,
    };
    let power = transport.registered_memory().expect("it has the power");
    let descriptor = power.register(&region).unwrap();
    assert_eq!((descriptor.cookie, descriptor.blob()), (64, &b"open"[..]));
    assert_eq!(power.direct_rights(1, &descriptor), AccessRights::READ);
    assert_eq!(power.deregister(4, &descriptor), BulkStatus::Pending);
    let local = Data::contiguous(memory.mem(), 8);
    let transfer = BulkTransfer {
        token: 5,
        peer: 1,
        descriptor: &descriptor,
        offset: 0,
        local: &local,
        local_offset: 0,
        len: 8,
    };
    assert_eq!(power.get(transfer), Err(Error::Misuse("get")));
    assert_eq!(power.put(transfer), Err(Error::Misuse("put")));
    let what = "flush";
    assert_eq!(power.flush(6, 1), Err(Error::Peer { peer: 1, what }));
    let mut bare: Box<dyn DynTransport> = Box::new(Nothing);
    assert!(bare.registered_memory().is_none());
}

#[test]
fn the_suite_holds_over_a_loaded_trace_around_a_transport_whose_only_power_is_regions() {
    let trace = trace();
    check_all(|| {
        // Who holds the memory of a node tells its transports of deaths.
        let transports = shared_memory();
        let first = transports[0].clone();
        Pair {
            transports: (0..)
                .zip(transports)
                .map(|(me, transport)| wrap(&trace, (me, ""), Box::new(transport)))
                .collect(),
            kill: move || first.lock().peer_gone(1),
        }
    });
}

fn shared_memory() -> Vec<OnlyRegions> {
    let threads = ThreadPeers::new(2).unwrap().into_iter();
    threads
        .map(|peers| ShmTransport::new(Arc::new(peers)).unwrap())
        .map(|transport| OnlyRegions(Arc::new(Mutex::new(transport))))
        .collect()
}

#[test]
fn a_power_that_is_missing_answers_as_the_defaults_do() {
    let mut transport: Box<dyn DynTransport> = Box::new(shared_memory().swap_remove(0));
    assert_eq!(transport.fragmentation(1, 20_000), Fragmentation::None);
    assert!(transport.doorbell(0).is_none() && transport.coll_heap(0).is_none());
    assert!(transport.is_polling(1));
    let memory = Scratch::new(8).unwrap();
    let data = Data::contiguous(memory.mem(), 8);
    assert!(matches!(
        transport.expose(3, 1, &data),
        ExposeResult::Ready(_)
    ));
    let mut none: Box<dyn DynTransport> = Box::new(Nothing);
    assert_eq!(none.expose(3, 1, &data), ExposeResult::Unable);
    assert_eq!(none.revoke(3), BulkStatus::Done);
}

/// A transport that reaches nobody and has no power at all.
struct Nothing;

impl OptionalPowers for Nothing {}

impl DynTransport for Nothing {
    fn limits(&self) -> TransportLimits {
        shared_memory()[0].limits()
    }
    fn capabilities(&self, _: Peer) -> Option<PeerCapabilities> {
        None
    }
    fn unreachable_cause(&self, _: Peer) -> Option<UnreachableCause> {
        None
    }
    fn claim(&mut self, _: Peer, _: usize, _: PacketClass) -> Result<PacketBuffer, ClaimError> {
        Err(ClaimError::Gone)
    }
    fn commit(&mut self, _: PacketBuffer, _: &PacketHeader) {}
    fn abandon(&mut self, _: PacketBuffer) {}
    fn send_inline(&mut self, _: Peer, _: &PacketHeader, _: UserMem) -> Result<(), ClaimError> {
        Err(ClaimError::Gone)
    }
    fn poll(&mut self, _: u32, _: &mut dyn PollSink) -> u32 {
        0
    }
    fn choose_rendezvous(&mut self, _: BulkToken, _: Peer, _: u64) -> RendezvousMode {
        RendezvousMode::Data
    }
    fn rendezvous_done(&mut self, _: BulkToken, _: bool) {}
    fn peer_lost(&mut self, _: Peer) {}
    fn arm(&mut self) -> u32 {
        0
    }
    fn disarm(&mut self) {}
    fn wake_source(&self) -> Arc<dyn WakeSource> {
        shared_memory()[0].wake_source()
    }
    fn wake_peer(&mut self, _: Peer) {}
}

#[test]
fn what_went_through_is_counted_and_the_last_of_it_recorded() {
    let directory = std::env::temp_dir().join(format!("garonne-trace-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let options = format!("last=2,file={}/rank-%r", directory.display());
    let trace = trace();
    let mut pair = in_process(|me, inner| wrap(&trace, (me, &options), inner));
    for len in [10, 20, 300] {
        send(
            &mut pair.transports[0],
            1,
            &vec![7; len],
            0,
            PacketClass::Data,
        )
        .unwrap();
    }
    let mut told = RecordedEvents::default();
    while told.packets.len() < 3 {
        pair.transports[1].poll(1, &mut told);
    }
    (pair.kill)();
    while told.gone.is_empty() {
        pair.transports[0].poll(1, &mut told);
    }
    drop(pair);
    let read = |rank: u32| std::fs::read_to_string(directory.join(format!("rank-{rank}"))).unwrap();
    assert_eq!(
        read(0),
        "sent eager 300 to 1\ngone 1\n\
         total sent 3 packets 330 bytes, received 0 packets 0 bytes\n"
    );
    assert_eq!(
        read(1),
        "received eager 20 from 0\nreceived eager 300 from 0\n\
         total sent 0 packets 0 bytes, received 3 packets 330 bytes\n"
    );
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn options_that_are_none_are_refused_by_name() {
    let trace = trace();
    for options in ["lines=3", "last=many", "file"] {
        let made = trace.create(ModuleContext {
            me: 0,
            world: 1,
            shard: 0,
            options,
            inner: Some(boxed(Fabric::new(1).transport(0))),
            at_leave: &mut Vec::new(),
        });
        let error = made.err().expect("it is refused");
        assert!(error.contains(&format!("'{options}'")), "{error}");
    }
}
