//! Something between two hosts that can go wrong: forwards connections, and cuts or holds them
//! where its seed says.

use crate::traffic::mix;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// State that the proxies of a test share.
#[derive(Default)]
pub struct Weather {
    /// No more cuts; what is open stays.
    pub calm: AtomicBool,
    pub stop: AtomicBool,
    /// Connections cut so far.
    pub cuts: AtomicU32,
    /// Connections held so far.
    pub holds: AtomicU32,
}

/// Ends the proxies when it is dropped: a test that fails must not wait for them.
pub struct Ends(pub Arc<Weather>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Release);
    }
}

/// A connection that is forwarded.
struct Forwarded {
    near: TcpStream,
    far: TcpStream,
    /// Bytes until something happens to it.
    left: u64,
    /// Time until which it is held: both ends live, and nothing passes.
    held: Option<Instant>,
}

/// Starts a proxy to `to` in `scope`; connections are cut after some of `bytes` bytes, often within
/// a frame.
pub fn start<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    to: SocketAddr,
    weather: Arc<Weather>,
    (seed, bytes): (u64, u64),
) -> SocketAddr {
    start_on(
        scope,
        (Ipv4Addr::LOCALHOST, to),
        weather,
        (seed, bytes, Duration::ZERO),
    )
}

/// Starts a proxy on an address of its own. One in two is held for the time that is given instead
/// of being cut.
pub fn start_on<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    (on, to): (Ipv4Addr, SocketAddr),
    weather: Arc<Weather>,
    (seed, bytes, hold): (u64, u64, Duration),
) -> SocketAddr {
    let listener = TcpListener::bind((on, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    scope.spawn(move || {
        let mut pairs: Vec<Forwarded> = Vec::new();
        let (mut buffer, mut roll) = (vec![0; 64 * 1024], seed);
        while !weather.stop.load(Ordering::Acquire) {
            let mut moved = false;
            if let Ok((near, _)) = listener.accept()
                && let Ok(far) = TcpStream::connect(to)
            {
                near.set_nonblocking(true).unwrap();
                far.set_nonblocking(true).unwrap();
                roll = mix(roll + 1);
                pairs.push(Forwarded {
                    near,
                    far,
                    left: 1 + roll % bytes,
                    held: None,
                });
                moved = true;
            }
            pairs.retain_mut(|pair| {
                if pair.held.is_some_and(|until| Instant::now() < until) {
                    return true;
                }
                for way in 0..2 {
                    let (from, into) = if way == 0 {
                        (&mut pair.near, &mut pair.far)
                    } else {
                        (&mut pair.far, &mut pair.near)
                    };
                    let calm = weather.calm.load(Ordering::Acquire);
                    let most = if calm {
                        buffer.len()
                    } else {
                        buffer.len().min(pair.left as usize)
                    };
                    match from.read(&mut buffer[..most]) {
                        Ok(0) => return false,
                        Ok(got) => {
                            moved = true;
                            if !pass(into, &buffer[..got], &weather) {
                                return false;
                            }
                            pair.left = pair.left.saturating_sub(got as u64);
                            if pair.left > 0 || calm {
                                continue;
                            }
                            roll = mix(roll + 1);
                            if !hold.is_zero() && roll % 2 == 0 {
                                weather.holds.fetch_add(1, Ordering::AcqRel);
                                pair.held = Some(Instant::now() + hold);
                                pair.left = 1 + (roll >> 8) % bytes;
                                return true;
                            }
                            weather.cuts.fetch_add(1, Ordering::AcqRel);
                            let _ = pair.near.shutdown(Shutdown::Both);
                            let _ = pair.far.shutdown(Shutdown::Both);
                            return false;
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                        Err(_) => return false,
                    }
                }
                true
            });
            if !moved {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    address
}

fn pass(into: &mut TcpStream, mut bytes: &[u8], weather: &Weather) -> bool {
    while !bytes.is_empty() && !weather.stop.load(Ordering::Acquire) {
        match into.write(bytes) {
            Ok(sent) => bytes = &bytes[sent..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_micros(100))
            }
            Err(_) => return false,
        }
    }
    true
}
