//! Frames of the Ethernet transport that TCP carries, where the network does not pass them: each is
//! a packet of a kind that the engine does not know.

use garonne_engine::api::{Error, Peer, UnreachableCause};
use garonne_engine::transport::{
    BulkToken, ClaimError, PacketClass, PacketHeader, PollSink, RegionDescriptor, Transport,
};
use garonne_ethernet::EthernetTransport;
use garonne_sync::user::UserMem;
use garonne_tcp::TcpTransport;

/// Kind of a packet that holds a frame of the Ethernet transport: none of the engine's, which
/// never sees one.
const FRAME_KIND: u8 = 0xE7;

/// Gives TCP the frames that it is to carry, as long as it takes them.
#[cold]
pub(super) fn carry_frames(ethernet: &mut EthernetTransport, home: &mut TcpTransport) {
    while let Some((peer, frame)) = ethernet.by_tcp() {
        match home.claim(peer, frame.len(), PacketClass::Data) {
            Ok(room) => {
                room.mem.write(0, frame);
                let header = PacketHeader {
                    kind: FRAME_KIND,
                    len: frame.len() as u32,
                    ..PacketHeader::default()
                };
                home.commit(room, &header);
            }
            Err(ClaimError::Full) => return,
            Err(_) => {}
        }
        ethernet.taken_by_tcp();
    }
}

/// Sink that gives frames which TCP carried to the Ethernet transport.
pub(super) struct FrameSink<'a, S> {
    pub sink: &'a mut S,
    pub ethernet: &'a mut EthernetTransport,
    /// Memory for a frame.
    pub frame: &'a mut Vec<u8>,
}

impl<S: PollSink> PollSink for FrameSink<'_, S> {
    fn on_packet(&mut self, peer: Peer, header: PacketHeader, payload: UserMem, len: usize) {
        if header.kind != FRAME_KIND {
            return self.sink.on_packet(peer, header, payload, len);
        }
        self.frame.resize(len, 0);
        payload.read(0, self.frame);
        self.ethernet.take_by_tcp(peer, self.frame, self.sink);
    }

    fn fragment_target(&mut self, peer: Peer, offset: u64, len: usize) -> Option<UserMem> {
        self.sink.fragment_target(peer, offset, len)
    }

    fn fragment_written(&mut self, peer: Peer, len: usize) {
        self.sink.fragment_written(peer, len);
    }

    fn on_exposed(&mut self, token: BulkToken, descriptor: Option<RegionDescriptor>) {
        self.sink.on_exposed(token, descriptor);
    }

    fn on_revoked(&mut self, token: BulkToken) {
        self.sink.on_revoked(token);
    }

    fn on_bulk_done(&mut self, token: BulkToken, result: Result<(), Error>) {
        self.sink.on_bulk_done(token, result);
    }

    fn on_peer_gone(&mut self, peer: Peer) {
        self.sink.on_peer_gone(peer);
    }

    fn on_peer_lost(&mut self, peer: Peer, why: &'static str) {
        self.sink.on_peer_lost(peer, why);
    }

    fn on_peer_left(&mut self, peer: Peer) {
        self.sink.on_peer_left(peer);
    }

    fn on_peer_unreachable(&mut self, shortage: UnreachableCause) {
        self.sink.on_peer_unreachable(shortage);
    }
}
