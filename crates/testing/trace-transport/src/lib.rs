//! A transport module that wraps another transport, counts its packets and records the last of
//! them.
//!
//! Options of the module: `file=PATH`, where the record is written when the rank leaves its job or
//! the transport ends, and `last=N`, how many packets are recorded (default: 256). In the path `%r`
//! stands for the rank; files of further shards end with `.SHARD`. A file has a line `sent`,
//! `received` or `gone` for each recorded event, the oldest first, and then a line `total` with the
//! counts.

use garonne_engine::api::Peer;
use garonne_engine::transport::{PacketHeader, PacketKind};
use garonne_transport::dynamic::{DynTransport, boxed};
use garonne_transport::interceptor::{Intercepted, Interceptor};
use garonne_transport::module::ModuleContext;
use garonne_transport::transport_module;
use std::collections::VecDeque;
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Packets recorded where the options say nothing else.
const LAST: usize = 256;

/// Something that a trace records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedEvent {
    /// A packet left: peer, kind, bytes.
    Sent(Peer, u8, u32),
    /// A packet arrived: peer, kind, bytes.
    Received(Peer, u8, u32),
    /// A peer is gone.
    Gone(Peer),
}

/// Counts of packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes of their payloads.
    pub bytes: u64,
}

impl PacketCounts {
    fn add(&mut self, header: &PacketHeader) {
        self.packets += 1;
        self.bytes += u64::from(header.len);
    }
}

/// Counts and records what goes through a transport.
///
/// Owned by the wrapper around that transport, and by the hook that the rank calls when it leaves.
/// Writes its file when the hook is called, and when it is dropped with events that the file lacks.
#[derive(Debug)]
pub struct PacketTrace {
    file: Option<PathBuf>,
    /// The file lacks something.
    unwritten: bool,
    last: usize,
    events: VecDeque<TracedEvent>,
    sent: PacketCounts,
    received: PacketCounts,
}

impl PacketTrace {
    /// Reads the options of the module, for a shard of a rank.
    ///
    /// # Errors
    /// The word that is none of them.
    pub fn parse(options: &str, me: Peer, shard: u32) -> Result<Self, String> {
        let path_of = |path: &str| match shard {
            0 => PathBuf::from(path.replace("%r", &me.to_string())),
            _ => format!("{}.{shard}", path.replace("%r", &me.to_string())).into(),
        };
        let mut trace = Self {
            file: None,
            unwritten: true,
            last: LAST,
            events: VecDeque::new(),
            sent: PacketCounts::default(),
            received: PacketCounts::default(),
        };
        for word in options.split(',').filter(|word| !word.is_empty()) {
            let unknown = || format!("'{word}' is none of file=PATH, last=N");
            match word.split_once('=').ok_or_else(unknown)? {
                ("file", path) => trace.file = Some(path_of(path)),
                ("last", count) => trace.last = count.parse().map_err(|_| unknown())?,
                _ => return Err(unknown()),
            }
        }
        Ok(trace)
    }

    /// Returns the counts of packets that left, and of those that arrived.
    pub fn counts(&self) -> (PacketCounts, PacketCounts) {
        (self.sent, self.received)
    }

    /// Returns the last events, the oldest first.
    pub fn events(&self) -> impl Iterator<Item = &TracedEvent> {
        self.events.iter()
    }

    fn record(&mut self, event: TracedEvent) {
        self.unwritten = true;
        if self.last == 0 {
            return;
        }
        if self.events.len() >= self.last {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// Returns the text of the file.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for event in &self.events {
            let _ = match *event {
                TracedEvent::Sent(peer, kind, len) => {
                    writeln!(text, "sent {} {len} to {peer}", name(kind))
                }
                TracedEvent::Received(peer, kind, len) => {
                    writeln!(text, "received {} {len} from {peer}", name(kind))
                }
                TracedEvent::Gone(peer) => writeln!(text, "gone {peer}"),
            };
        }
        let (sent, received) = (self.sent, self.received);
        let _ = writeln!(
            text,
            "total sent {} packets {} bytes, received {} packets {} bytes",
            sent.packets, sent.bytes, received.packets, received.bytes
        );
        text
    }
}

/// Returns the name of a kind of packets.
fn name(kind: u8) -> String {
    PacketKind::from_code(kind).map_or_else(
        || format!("kind-{kind}"),
        |kind| format!("{kind:?}").to_lowercase(),
    )
}

/// Trace that the wrapper and the hook share. Nobody waits for it: the hook runs in a call of the
/// rank, as all calls of the transport do.
#[derive(Clone, Debug)]
struct SharedTrace(Arc<Mutex<PacketTrace>>);

impl SharedTrace {
    fn lock(&self) -> MutexGuard<'_, PacketTrace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interceptor for SharedTrace {
    fn on_send(&mut self, peer: Peer, header: &mut PacketHeader) -> bool {
        let mut trace = self.lock();
        trace.sent.add(header);
        trace.record(TracedEvent::Sent(peer, header.kind, header.len));
        true
    }

    fn on_receive(&mut self, peer: Peer, header: &PacketHeader) {
        let mut trace = self.lock();
        trace.received.add(header);
        trace.record(TracedEvent::Received(peer, header.kind, header.len));
    }

    fn on_peer_gone(&mut self, peer: Peer) {
        self.lock().record(TracedEvent::Gone(peer));
    }
}

impl PacketTrace {
    fn write(&mut self) {
        let Some(file) = &self.file else { return };
        if !std::mem::take(&mut self.unwritten) {
            return;
        }
        if let Err(error) = std::fs::write(file, self.text()) {
            eprintln!(
                "garonne: the trace of packets is lost: {}: {error}",
                file.display()
            );
        }
    }
}

impl Drop for PacketTrace {
    fn drop(&mut self) {
        self.write();
    }
}

fn create(context: ModuleContext<'_>) -> Result<Box<dyn DynTransport>, String> {
    let trace = PacketTrace::parse(context.options, context.me, context.shard)?;
    let inner = context
        .inner
        .ok_or("it wraps a transport, and was given none")?;
    let trace = SharedTrace(Arc::new(Mutex::new(trace)));
    let written = trace.clone();
    context
        .at_leave
        .push(Box::new(move || written.lock().write()));
    Ok(boxed(Intercepted::new(inner, trace)))
}

transport_module!(create);
