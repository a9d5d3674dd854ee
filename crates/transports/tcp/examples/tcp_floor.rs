//! The TCP transport against bare TCP sockets, between two hosts that are network namespaces (or,
//! where these cannot be made, on loopback): half round trips and bulk bandwidth, both spinning,
//! interleaved in one run. `cargo run --release -p garonne-tcp --example tcp_floor`

use garonne_engine::api::{Error, Peer};
use garonne_engine::transport::{
    BulkStatus, BulkToken, BulkTransfer, ExposeResult, PacketHeader, PollSink, RegionDescriptor,
    RemoteMemory, Transport,
};
use garonne_sync::user::{Data, Scratch, UserMem};
use garonne_tcp::{LocalIdentity, PeerDirectory, ProcessId, Secret, TcpTransport, listen};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Instant;

const ROUNDS: usize = 2000;
const BULK: usize = 1 << 20;
const BULKS: usize = 200;

struct Book(Vec<SocketAddr>);

impl PeerDirectory for Book {
    fn size(&self) -> u32 {
        2
    }
    fn incarnation(&self, _: Peer) -> u32 {
        0
    }
    fn addresses(&self, peer: Peer) -> Vec<SocketAddr> {
        vec![self.0[peer as usize]]
    }
    fn is_gone(&self, _: Peer) -> bool {
        false
    }
}

#[derive(Default)]
struct Got {
    packets: usize,
    cookie: u64,
    done: bool,
}

impl PollSink for Got {
    fn on_packet(&mut self, _: Peer, _: PacketHeader, payload: UserMem, len: usize) {
        let mut word = [0; 8];
        payload.read(0, &mut word[..len.min(8)]);
        self.cookie = u64::from_le_bytes(word);
        self.packets += 1;
    }
    fn on_exposed(&mut self, _: BulkToken, _: Option<RegionDescriptor>) {}
    fn on_revoked(&mut self, _: BulkToken) {}
    fn on_bulk_done(&mut self, _: BulkToken, result: Result<(), Error>) {
        result.expect("the bulk data arrive");
        self.done = true;
    }
    fn on_peer_gone(&mut self, peer: Peer) {
        panic!("{peer} is gone");
    }
}

fn send(transport: &mut TcpTransport, peer: Peer, memory: &Scratch) {
    let header = PacketHeader {
        kind: 1,
        len: memory.len() as u32,
        ..PacketHeader::default()
    };
    while transport.send_inline(peer, &header, memory.mem()).is_err() {
        transport.poll(8, &mut Got::default());
    }
}

fn await_packet(transport: &mut TcpTransport) -> Got {
    let mut got = Got::default();
    while got.packets == 0 {
        transport.poll(8, &mut got);
    }
    got
}

/// Half round trips of the transport in nanoseconds.
fn transport_trips(transport: &mut TcpTransport, me: Peer, len: usize) -> Vec<f64> {
    let memory = Scratch::new(len).expect("memory");
    (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            if me == 0 {
                send(transport, 1, &memory);
                await_packet(transport);
            } else {
                await_packet(transport);
                send(transport, 0, &memory);
            }
            begun.elapsed().as_nanos() as f64 / 2.0
        })
        .collect()
}

/// Nanoseconds of each bulk transfer from rank 1 to rank 0.
fn transport_bulks(transport: &mut TcpTransport, me: Peer) -> Vec<f64> {
    let memory = Scratch::new(BULK).expect("memory");
    let data = Data::contiguous(memory.mem(), BULK as u64);
    let word = Scratch::new(8).expect("memory");
    let mut times = Vec::new();
    for n in 0..BULKS as u64 {
        if me == 1 {
            let ExposeResult::Ready(descriptor) = transport.expose(n, 0, &data) else {
                panic!("one region at a time")
            };
            word.mem().write(0, &descriptor.cookie.to_le_bytes());
            send(transport, 0, &word);
            await_packet(transport);
            assert_eq!(transport.revoke(n), BulkStatus::Done);
        } else {
            let mut got = await_packet(transport);
            let begun = Instant::now();
            let descriptor = RegionDescriptor::new(got.cookie, &[]).expect("short");
            let bulk = BulkTransfer {
                token: n,
                peer: 1,
                descriptor: &descriptor,
                offset: 0,
                local: &data,
                local_offset: 0,
                len: BULK as u64,
            };
            transport.read(bulk).expect("it reaches");
            while !got.done {
                transport.poll(8, &mut got);
            }
            times.push(begun.elapsed().as_nanos() as f64);
            send(transport, 1, &word);
        }
    }
    times
}

fn read_all(socket: &mut TcpStream, mut bytes: &mut [u8]) {
    while !bytes.is_empty() {
        match socket.read(bytes) {
            Ok(0) => panic!("the other side has ended"),
            Ok(got) => bytes = &mut bytes[got..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn write_all(socket: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn bare_trips(socket: &mut TcpStream, me: Peer, len: usize) -> Vec<f64> {
    let mut bytes = vec![0; len];
    (0..ROUNDS)
        .map(|_| {
            let begun = Instant::now();
            if me == 0 {
                write_all(socket, &bytes);
                read_all(socket, &mut bytes);
            } else {
                read_all(socket, &mut bytes);
                write_all(socket, &bytes);
            }
            begun.elapsed().as_nanos() as f64 / 2.0
        })
        .collect()
}

fn bare_bulks(socket: &mut TcpStream, me: Peer) -> Vec<f64> {
    let mut bytes = vec![0; BULK];
    (0..BULKS)
        .map(|_| {
            let begun = Instant::now();
            if me == 0 {
                write_all(socket, &[1]);
                read_all(socket, &mut bytes);
            } else {
                read_all(socket, &mut [0]);
                write_all(socket, &bytes);
            }
            begun.elapsed().as_nanos() as f64
        })
        .collect()
}

fn quartiles(mut times: Vec<f64>) -> (f64, f64) {
    times.sort_unstable_by(f64::total_cmp);
    (times[times.len() / 4], times[times.len() / 2])
}

/// Two namespaces on a wire, or none.
fn hosts() -> Option<[File; 2]> {
    let fresh = || {
        let made = std::thread::spawn(|| {
            let thread = format!(
                "/proc/self/task/{}/ns/net",
                rustix::thread::gettid().as_raw_nonzero()
            );
            // The deprecated form is the one without unsafe code; the thread ends at once.
            #[allow(deprecated)]
            rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNET).ok()?;
            File::open(thread).ok()
        });
        made.join().ok().flatten()
    };
    let hosts = [fresh()?, fresh()?];
    let far = format!("/proc/{}/fd/{}", std::process::id(), hosts[1].as_raw_fd());
    run(
        &hosts[0],
        &format!("ip link add wire type veth peer name wire netns {far}"),
    )?;
    for (n, host) in (1..).zip(&hosts) {
        run(host, &format!("ip address add 10.77.0.{n}/24 dev wire"))?;
        run(host, "ip link set wire up")?;
    }
    Some(hosts)
}

fn enter(host: &File) {
    let kind = rustix::thread::LinkNameSpaceType::Network;
    rustix::thread::move_into_link_name_space(host.as_fd(), Some(kind)).expect("the host is there");
}

fn run(host: &File, command: &str) -> Option<()> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(host);
            let mut words = command.split(' ');
            let done = std::process::Command::new(words.next()?)
                .args(words)
                .status()
                .ok()?;
            done.success().then_some(())
        });
        thread.join().ok().flatten()
    })
}

fn main() {
    let sealed = std::env::args().any(|argument| argument == "--sealed");
    let hosts = hosts();
    let at = |n: u8| match &hosts {
        Some(hosts) => {
            enter(&hosts[usize::from(n) - 1]);
            SocketAddr::from(([10, 77, 0, n], 0))
        }
        None => SocketAddr::from(([127, 0, 0, 1], 0)),
    };
    let listeners: Vec<_> = [1, 2]
        .map(|n| {
            let address = at(n);
            (
                listen(address).expect("a port"),
                TcpListener::bind(address).expect("a port"),
            )
        })
        .into();
    let addresses: Vec<_> = listeners
        .iter()
        .map(|(transport, _)| transport.local_addr().expect("bound"))
        .collect();
    let bare = listeners[0].1.local_addr().expect("bound");
    let secret = Secret::generate().expect("random bytes");
    println!(
        "{}",
        if hosts.is_some() {
            "between two network namespaces"
        } else {
            "on loopback"
        }
    );
    std::thread::scope(|scope| {
        for (me, (listener, plain)) in (0..).zip(listeners) {
            let (secret, addresses, hosts) = (&secret, &addresses, &hosts);
            scope.spawn(move || {
                if let Some(hosts) = hosts {
                    enter(&hosts[me as usize]);
                }
                let process = ProcessId {
                    job: [0; 16],
                    world: 0,
                    rank: me,
                    incarnation: 0,
                };
                let identity = LocalIdentity::new(secret.clone(), process, sealed);
                let mut transport = TcpTransport::new(identity, Arc::new(Book(addresses.clone())), listener).expect("a transport");
                let mut socket = if me == 0 {
                    plain.accept().expect("the other side").0
                } else {
                    TcpStream::connect(bare).expect("the other side")
                };
                socket.set_nodelay(true).expect("an option");
                socket.set_nonblocking(true).expect("an option");
                for len in [8, 1024, 4096] {
                    for _ in 0..2 {
                        let floor = quartiles(bare_trips(&mut socket, me, len));
                        let ours = quartiles(transport_trips(&mut transport, me, len));
                        if me == 0 {
                            println!(
                                "{len:>8} B half round trip, lower quartile and median: bare {:.1} {:.1} us, transport {:.1} {:.1} us, ratio {:.2} {:.2}",
                                floor.0 / 1e3, floor.1 / 1e3, ours.0 / 1e3, ours.1 / 1e3, ours.0 / floor.0, ours.1 / floor.1
                            );
                        }
                    }
                }
                for _ in 0..3 {
                    let floor = quartiles(bare_bulks(&mut socket, me));
                    let ours = transport_bulks(&mut transport, me);
                    if me == 0 {
                        let ours = quartiles(ours);
                        println!(
                            "{BULK:>8} B fetched, lower quartile and median: bare {:.0} {:.0} us, transport {:.0} {:.0} us, ratio {:.2} {:.2}",
                            floor.0 / 1e3, floor.1 / 1e3, ours.0 / 1e3, ours.1 / 1e3, ours.0 / floor.0, ours.1 / floor.1
                        );
                    }
                }
            });
        }
    });
}
