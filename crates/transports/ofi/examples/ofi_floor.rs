//! What a provider of libfabric takes between two hosts: half round trips of 8 bytes as messages,
//! and 1 MB reads of remote memory, both sides polling.
//!
//! `ofi_floor serve PROVIDER ADDRESS` on one, `ofi_floor call PROVIDER ADDRESS OTHER` on the other;
//! they introduce each other by TCP port 7777 of OTHER.

use garonne_ofi::endpoint::{Endpoint, Event};
use garonne_ofi::library::Library;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const ROUNDS: usize = 5000;
const BULK: usize = 1_000_000;
const BULKS: usize = 300;

fn exchange(socket: &mut TcpStream, own: &[u8]) -> Vec<u8> {
    socket.write_all(&(own.len() as u32).to_le_bytes()).unwrap();
    socket.write_all(own).unwrap();
    let mut len = [0; 4];
    socket.read_exact(&mut len).unwrap();
    let mut other = vec![0; u32::from_le_bytes(len) as usize];
    socket.read_exact(&mut other).unwrap();
    other
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [role, provider, address, ..] = &words[..] else {
        panic!("serve PROVIDER ADDRESS, or call PROVIDER ADDRESS OTHER")
    };
    let offers = Library::load()
        .unwrap()
        .offers(Some(provider), Some(address))
        .unwrap();
    let mut endpoint = Endpoint::open(&offers).unwrap();
    let serves = role == "serve";
    let mut socket = if serves {
        TcpListener::bind((address.as_str(), 7777))
            .unwrap()
            .accept()
            .unwrap()
            .0
    } else {
        let begun = Instant::now();
        loop {
            match TcpStream::connect((words[3].as_str(), 7777)) {
                Ok(socket) => break socket,
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(10), "{error}"),
            }
        }
    };
    let mut memory = vec![1u8; BULK];
    // SAFETY: the memory outlives the endpoint's use of it.
    let (exposed, prepared) = unsafe {
        let at = memory.as_mut_ptr();
        (
            endpoint.expose(at, BULK).unwrap(),
            endpoint.prepare(at, BULK).unwrap(),
        )
    };
    let mut own = exposed.at.to_le_bytes().to_vec();
    own.extend(exposed.key.to_le_bytes());
    own.extend(endpoint.address());
    let other = exchange(&mut socket, &own);
    let word = |at: usize| u64::from_le_bytes(other[at..at + 8].try_into().unwrap());
    let (at, key) = (word(0), word(8));
    let peer = endpoint.insert(&other[16..]).unwrap();
    if serves {
        // Until the other leaves.
        socket.set_nonblocking(true).unwrap();
        let (mut owed, mut turns) = (0, 0u64);
        loop {
            endpoint
                .poll(&mut |event| owed += u32::from(matches!(event, Event::Message(_))))
                .unwrap();
            while owed > 0 && endpoint.send(peer, &[7; 8]).unwrap() {
                owed -= 1;
            }
            turns += 1;
            if turns % 10_000 == 0 && socket.read(&mut [0]).is_ok() {
                return;
            }
        }
    }
    let mut round = |send: &mut dyn FnMut(&mut Endpoint) -> bool| {
        let begun = Instant::now();
        let (mut sent, mut came) = (false, false);
        while !came {
            sent = sent || send(&mut endpoint);
            endpoint
                .poll(&mut |event| came |= !matches!(event, Event::Unsent(..)))
                .unwrap();
        }
        begun.elapsed().as_secs_f64() * 1e6
    };
    let mut small: Vec<f64> = (0..ROUNDS)
        .map(|_| round(&mut |e| e.send(peer, &[7; 8]).unwrap()) / 2.0)
        .collect();
    small.drain(..ROUNDS / 10);
    let mut bulk: Vec<f64> = (0..BULKS)
        .map(|_| {
            let local = memory.as_mut_ptr();
            // SAFETY: valid until the read has ended, which the round waits for.
            round(&mut |e| unsafe { e.read(1, (peer, at, key), (local, BULK, prepared)).unwrap() })
        })
        .collect();
    bulk.drain(..BULKS / 10);
    println!(
        "{}: 8 B half round trip {:.1} us, 1 MB read {:.0} us",
        endpoint.offer().provider,
        median(small),
        median(bulk)
    );
}
