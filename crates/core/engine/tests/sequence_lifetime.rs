//! Many large messages at once by packets: what is asked of the transport does not grow with how
//! many are open.

use garonne_engine::CreditQuotas;
use garonne_engine::api::{
    CallOrigin, Error, Pattern, Peer, RecvArgs, SendArgs, SendCompletion, Source, StartOutcome,
};
use garonne_engine::engine::Engine;
use garonne_engine::transport::{
    AsyncProgress, BulkStatus, BulkToken, BulkTransfer, ClaimError, ExposeResult, FastPath,
    FragmentedSends, NodeMemory, PacketBuffer, PacketClass, PacketHeader, PeerCapabilities,
    PollSink, RemoteMemory, SharedCopy, Transport, TransportLimits, WakeSource,
};
use garonne_sync::copy::StoreKind;
use garonne_sync::user::{Data, Scratch, UserMem};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RANKS: u32 = 3;
const PIECE: usize = 1024;
const MESSAGE: usize = 16 * PIECE;

/// A packet on its way: its sender, its header, its bytes.
type Packet = (Peer, PacketHeader, Vec<u8>);

/// Packets that arrived at each rank and were not taken yet.
type Inboxes = Arc<Mutex<Vec<VecDeque<Packet>>>>;

/// A transport with room for so many packets of data to each peer.
struct Pipe {
    me: Peer,
    inboxes: Inboxes,
    room: [u32; RANKS as usize],
    /// Claims of data refused, by peer.
    refused: [u32; RANKS as usize],
    lent: Vec<Scratch>,
}

struct Bed;

impl WakeSource for Bed {
    fn sleep(&self, _: u32, _: Option<Duration>) {}
    fn wake(&self) {}
}

impl Pipe {
    fn put(&self, peer: Peer, header: &PacketHeader, mem: UserMem) {
        let mut bytes = vec![0; header.len as usize];
        mem.read(0, &mut bytes);
        self.inboxes.lock().unwrap()[peer as usize].push_back((self.me, *header, bytes));
    }

    fn take_room(&mut self, peer: Peer) -> Result<(), ClaimError> {
        let room = &mut self.room[peer as usize];
        if *room == 0 {
            self.refused[peer as usize] += 1;
            return Err(ClaimError::Full);
        }
        *room -= 1;
        Ok(())
    }
}

impl Transport for Pipe {
    fn limits(&self) -> TransportLimits {
        TransportLimits {
            inline_max: 32,
            packet_max: PIECE,
            control_max: 88,
            ordered: true,
        }
    }
    fn capabilities(&self, _: Peer) -> Option<PeerCapabilities> {
        Some(PeerCapabilities {
            eager_max: PIECE,
            fragmented_max: 0,
            can_read: false,
            can_write: false,
            pipeline_chunk: PIECE,
            read_chunk: 1024,
        })
    }
    fn claim(
        &mut self,
        peer: Peer,
        len: usize,
        class: PacketClass,
    ) -> Result<PacketBuffer, ClaimError> {
        if class == PacketClass::Data {
            self.take_room(peer)?;
        }
        let scratch = Scratch::new(len.max(1)).ok_or(ClaimError::Full)?;
        let room = PacketBuffer {
            mem: scratch.mem(),
            len,
            peer,
            token: 0,
            stores: StoreKind::Cached,
        };
        self.lent.push(scratch);
        Ok(room)
    }
    fn commit(&mut self, room: PacketBuffer, header: &PacketHeader) {
        self.put(room.peer, header, room.mem);
        self.lent.pop();
    }
    fn abandon(&mut self, _: PacketBuffer) {
        self.lent.pop();
    }
    fn send_inline(
        &mut self,
        peer: Peer,
        header: &PacketHeader,
        mem: UserMem,
    ) -> Result<(), ClaimError> {
        self.take_room(peer)?;
        self.put(peer, header, mem);
        Ok(())
    }
    fn poll(&mut self, _: u32, sink: &mut impl PollSink) -> u32 {
        let packets = std::mem::take(&mut self.inboxes.lock().unwrap()[self.me as usize]);
        let told = packets.len() as u32;
        for (peer, header, bytes) in packets {
            let memory = Scratch::new(bytes.len().max(1)).unwrap();
            memory.mem().write(0, &bytes);
            sink.on_packet(peer, header, memory.mem(), bytes.len());
        }
        told
    }
    fn arm(&mut self) -> u32 {
        0
    }
    fn disarm(&mut self) {}
    fn wake_source(&self) -> Arc<dyn WakeSource> {
        Arc::new(Bed)
    }
    fn wake_peer(&mut self, _: Peer) {}
}

impl FastPath for Pipe {}

impl FragmentedSends for Pipe {}

impl RemoteMemory for Pipe {
    fn expose(&mut self, _: BulkToken, _: Peer, _: &Data) -> ExposeResult {
        ExposeResult::Unable
    }

    fn revoke(&mut self, _: BulkToken) -> BulkStatus {
        BulkStatus::Done
    }

    fn read(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Resource("nothing can be read here"))
    }

    fn write(&mut self, _: BulkTransfer<'_>) -> Result<BulkStatus, Error> {
        Err(Error::Resource("nothing can be written here"))
    }
}

impl SharedCopy for Pipe {}

impl AsyncProgress for Pipe {}

impl NodeMemory for Pipe {}

fn ranks() -> Vec<Engine<Pipe>> {
    let quotas = CreditQuotas {
        envelopes: 100_000,
        payload: 1 << 40,
    };
    let inboxes = Inboxes::default();
    inboxes
        .lock()
        .unwrap()
        .resize(RANKS as usize, VecDeque::new());
    let rank = |me| {
        let transport = Pipe {
            me,
            inboxes: inboxes.clone(),
            room: [u32::MAX; RANKS as usize],
            refused: [0; RANKS as usize],
            lent: Vec::new(),
        };
        Engine::new(transport, me, RANKS, quotas)
    };
    (0..RANKS).map(rank).collect()
}

fn pending(started: Result<StartOutcome, Error>) -> garonne_engine::api::Request {
    match started {
        Ok(StartOutcome::Pending(request)) => request,
        other => panic!("it cannot be over: {other:?}"),
    }
}

#[test]
fn a_full_peer_is_asked_once_in_a_pass_however_many_messages_are_open_to_it_and_others_go_on() {
    const OPEN: usize = 1000;
    let mut ranks = ranks();
    let (from, to) = (
        Scratch::new(MESSAGE).unwrap(),
        Scratch::new(MESSAGE).unwrap(),
    );
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for peer in [1, 2] {
        let count = if peer == 1 { OPEN } else { 3 };
        for _ in 0..count {
            sends.push(pending(ranks[0].send(SendArgs {
                context: 2,
                peer,
                source: 0,
                tag: 0,
                data: Data::contiguous(from.mem(), MESSAGE as u64),
                mode: SendCompletion::Standard,
                origin: CallOrigin::default(),
            })));
            let source = Some(Source { rank: 0, peer: 0 });
            let receive = pending(ranks[peer as usize].recv(RecvArgs {
                pattern: Pattern {
                    context: 2,
                    source,
                    tag: Some(0),
                },
                data: Data::contiguous(to.mem(), MESSAGE as u64),
                origin: CallOrigin::default(),
            }));
            receives.push((peer as usize, receive));
        }
    }
    // All are cleared.
    for rank in [1, 2, 1, 2] {
        ranks[rank].progress();
    }
    ranks[0].transport().room = [0, 2, 0];
    ranks[0].progress();
    assert_eq!(ranks[0].transport().refused, [0, 1, 1]);
    ranks[0].transport().room = [0, 0, 5];
    ranks[0].progress();
    assert_eq!(ranks[0].transport().refused, [0, 2, 2]);
    assert_eq!(
        ranks[0].transport().room,
        [0; 3],
        "the other peer's messages go on"
    );
    ranks[0].transport().room = [u32::MAX; RANKS as usize];
    for _ in 0..MESSAGE / PIECE {
        for rank in &mut ranks {
            rank.progress();
        }
    }
    for send in sends {
        assert_eq!(
            ranks[0].take(send).unwrap().expect("it goes on").error,
            None
        );
    }
    for (rank, receive) in receives {
        let status = ranks[rank].take(receive).unwrap().expect("it goes on");
        assert_eq!((status.error, status.len), (None, MESSAGE as u64));
    }
}
