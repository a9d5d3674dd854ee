//! Hosts that are network namespaces without names, joined by a pair of virtual links: nothing is
//! left behind, whatever happens to the test.
//!
//! Needs root and `ip`; where these are missing the tests say so and pass.

use crate::support::{Book, identity};
use crate::traffic::{self, Plan};
use garonne_engine::api::Peer;
use garonne_tcp::{Secret, TcpTransport, connection_table, listen};
use garonne_transport::conformance::{World, check_all};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A network namespace; it lives as long as this.
#[derive(Debug)]
pub struct Net(File);

fn own() -> File {
    File::open("/proc/thread-self/ns/net").unwrap()
}

impl Net {
    /// Has the calling thread use it.
    pub fn enter(&self) {
        move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// A command that runs in it.
    fn run(&self, command: &str) -> Result<(), String> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                let mut words = command.split(' ');
                let done = Command::new(words.next().unwrap()).args(words).output();
                match done {
                    Ok(done) if done.status.success() => Ok(()),
                    Ok(done) => Err(format!(
                        "'{command}': {}",
                        String::from_utf8_lossy(&done.stderr)
                    )),
                    Err(error) => Err(format!("'{command}': {error}")),
                }
            });
            thread.join().unwrap()
        })
    }
}

fn fresh() -> Result<Net, String> {
    std::thread::spawn(|| {
        // SAFETY: only the network namespace of this thread changes, which ends at once.
        unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
            .map_err(|errno| format!("no network namespace: {errno}"))?;
        Ok(Net(own()))
    })
    .join()
    .unwrap()
}

/// Two hosts on one wire, 10.77.0.1 and 10.77.0.2.
pub fn pair() -> Result<[Net; 2], String> {
    let hosts = [fresh()?, fresh()?];
    let far = format!(
        "/proc/{}/fd/{}",
        std::process::id(),
        std::os::fd::AsRawFd::as_raw_fd(&hosts[1].0)
    );
    hosts[0].run(&format!(
        "ip link add wire type veth peer name wire netns {far}"
    ))?;
    for (n, host) in (1..).zip(&hosts) {
        host.run("ip link set lo up")?;
        host.run(&format!("ip address add 10.77.0.{n}/24 dev wire"))?;
        host.run("ip link set wire up")?;
    }
    Ok(hosts)
}

/// A transport for each of the two hosts.
pub fn transports(hosts: &[Net; 2], sealed: bool) -> [TcpTransport; 2] {
    let secret = Secret::generate().unwrap();
    let home = own();
    let listeners: Vec<_> = (1..)
        .zip(hosts)
        .map(|(n, host)| {
            host.enter();
            listen(SocketAddr::from(([10, 77, 0, n], 0))).unwrap()
        })
        .collect();
    Net(home).enter();
    let addresses: Vec<_> = listeners
        .iter()
        .map(|listener| vec![listener.local_addr().unwrap()])
        .collect();
    let mut listeners = listeners.into_iter();
    [0, 1].map(|me| {
        let directory = Arc::new(Book(addresses.clone(), Vec::new()));
        TcpTransport::new(
            identity(&secret, me, sealed),
            directory,
            listeners.next().unwrap(),
        )
        .unwrap()
    })
}

/// One thread that steps into the host whose transport it uses.
struct Hosts<'a> {
    hosts: &'a [Net; 2],
    transports: [Option<TcpTransport>; 2],
}

impl World for Hosts<'_> {
    type Tested = TcpTransport;
    fn transport(&mut self, peer: Peer) -> &mut TcpTransport {
        self.hosts[peer as usize].enter();
        self.transports[peer as usize].as_mut().unwrap()
    }
    fn settle(&mut self) {
        for (host, transport) in self.hosts.iter().zip(&mut self.transports) {
            host.enter();
            transport.iter_mut().for_each(TcpTransport::drive);
        }
        // The suite's patience is a number of looks, and the kernel of a busy machine may deliver
        // late.
        std::thread::sleep(Duration::from_micros(100));
    }
    fn kill_second(&mut self) {
        while !self.transport(1).has_left() {
            self.settle();
        }
        self.transports[1].take().unwrap().sever();
    }
}

impl Drop for Hosts<'_> {
    fn drop(&mut self) {
        self.transports
            .iter_mut()
            .filter_map(Option::take)
            .for_each(TcpTransport::sever);
    }
}

fn hosts() -> Option<[Net; 2]> {
    match pair() {
        Ok(hosts) => Some(hosts),
        Err(why) => {
            eprintln!("skipped: two hosts cannot be made here ({why})");
            None
        }
    }
}

#[test]
fn the_suite_holds_between_two_hosts() {
    let Some(hosts) = hosts() else {
        return;
    };
    let home = Net(own());
    check_all(|| Hosts {
        hosts: &hosts,
        transports: transports(&hosts, false).map(Some),
    });
    home.enter();
}

#[test]
fn links_that_go_down_and_up_lose_and_double_nothing() {
    let Some(hosts) = hosts() else {
        return;
    };
    let plan = Plan {
        packets: 4000,
        packet_max: 60_000,
        bulks: 20,
        bulk_max: 3_000_000,
    };
    let (done, over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (hosts, done, over) = (&hosts, &done, &over);
        let traffic = (0..)
            .zip(transports(hosts, false))
            .map(|(me, mut transport)| {
                scope.spawn(move || {
                    hosts[me as usize].enter();
                    traffic::run(&mut transport, (me, 2), plan, done, || {
                        std::thread::sleep(Duration::from_micros(50))
                    });
                    transport.sever();
                })
            });
        let traffic: Vec<_> = traffic.collect();
        scope.spawn(move || {
            // Down at different sides, for some hundred milliseconds each; up at the end.
            for n in 0..6 {
                std::thread::sleep(Duration::from_millis(60));
                if over.load(Ordering::Acquire) {
                    break;
                }
                hosts[n % 2].run("ip link set wire down").unwrap();
                std::thread::sleep(Duration::from_millis(250));
                hosts[n % 2].run("ip link set wire up").unwrap();
            }
        });
        for thread in traffic {
            thread.join().unwrap();
        }
        over.store(true, Ordering::Release);
    });
}

/// Two hosts at a switch that loses packets of more than 1,400 bytes without a word, while both
/// believe that 9,000 arrive. As long as the third lives.
fn lossy() -> Result<([Net; 2], Net), String> {
    let (hosts, switch) = ([fresh()?, fresh()?], fresh()?);
    let process = std::process::id();
    switch.run("ip link add bridge type bridge")?;
    switch.run("ip link set bridge up")?;
    for (n, host) in (1..).zip(&hosts) {
        let there = format!(
            "/proc/{process}/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&host.0)
        );
        switch.run(&format!(
            "ip link add port{n} type veth peer name wire netns {there}"
        ))?;
        switch.run(&format!("ip link set port{n} mtu 1400 master bridge up"))?;
        host.run(&format!("ip address add 10.77.0.{n}/24 dev wire"))?;
        // One segment at a time: what is to be cut by a device later passes a virtual link whatever
        // its length.
        host.run("ip link set wire mtu 9000 gso_max_segs 1 up")?;
    }
    Ok((hosts, switch))
}

#[test]
fn data_get_through_the_only_network_though_it_loses_long_packets() {
    let (hosts, _switch) = match lossy() {
        Ok(made) => made,
        Err(why) => {
            return eprintln!(
                "skipped: no network that loses long packets can be made here ({why})"
            );
        }
    };
    let plan = Plan {
        packets: 200,
        packet_max: 60_000,
        bulks: 8,
        bulk_max: 3_000_000,
    };
    let (done, begun) = (AtomicU32::new(0), Instant::now());
    let small = std::thread::scope(|scope| {
        let (hosts, done) = (&hosts, &done);
        let traffic = (0..)
            .zip(transports(hosts, false))
            .map(|(me, mut transport)| {
                scope.spawn(move || {
                    hosts[me as usize].enter();
                    traffic::run(&mut transport, (me, 2), plan, done, || {
                        assert!(
                            begun.elapsed() < Duration::from_secs(120),
                            "nothing arrives"
                        );
                        std::thread::sleep(Duration::from_micros(50));
                    });
                    let shown = connection_table::read_shown(&transport.shown_table());
                    transport.sever();
                    shown.iter().all(|seen| seen.brief)
                })
            });
        let traffic: Vec<_> = traffic.collect();
        traffic
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect::<Vec<_>>()
    });
    assert!(small.contains(&true), "{small:?}");
}
