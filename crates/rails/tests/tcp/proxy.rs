//! Something between two hosts that can go wrong: forwards connections and cuts them where its seed says.

use crate::traffic::mix;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// What the proxies of a test share.
#[derive(Default)]
pub struct Weather {
    /// No more cuts; what is open stays.
    pub calm: AtomicBool,
    pub stop: AtomicBool,
    /// Connections cut so far.
    pub cuts: AtomicU32,
}

/// Starts a proxy to `to` in `scope`; connections are cut after some of `bytes` bytes, often within a frame.
pub fn start<'scope>(
    scope: &'scope std::thread::Scope<'scope, '_>,
    to: SocketAddr,
    weather: Arc<Weather>,
    (seed, bytes): (u64, u64),
) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    scope.spawn(move || {
        let mut pairs: Vec<(TcpStream, TcpStream, u64)> = Vec::new();
        let (mut buffer, mut roll) = (vec![0; 64 * 1024], seed);
        while !weather.stop.load(Ordering::Acquire) {
            let mut moved = false;
            if let Ok((near, _)) = listener.accept()
                && let Ok(far) = TcpStream::connect(to)
            {
                near.set_nonblocking(true).unwrap();
                far.set_nonblocking(true).unwrap();
                roll = mix(roll + 1);
                pairs.push((near, far, 1 + roll % bytes));
                moved = true;
            }
            pairs.retain_mut(|(near, far, left)| {
                for way in 0..2 {
                    let (from, into) = if way == 0 {
                        (&mut *near, &mut *far)
                    } else {
                        (&mut *far, &mut *near)
                    };
                    let calm = weather.calm.load(Ordering::Acquire);
                    let most = if calm {
                        buffer.len()
                    } else {
                        buffer.len().min(*left as usize)
                    };
                    match from.read(&mut buffer[..most]) {
                        Ok(0) => return false,
                        Ok(got) => {
                            moved = true;
                            if !pass(into, &buffer[..got], &weather) {
                                return false;
                            }
                            *left = left.saturating_sub(got as u64);
                            if *left == 0 && !calm {
                                weather.cuts.fetch_add(1, Ordering::AcqRel);
                                let _ = (near.shutdown(Shutdown::Both), far.shutdown(Shutdown::Both));
                                return false;
                            }
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
