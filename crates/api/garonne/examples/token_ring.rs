//! A number travels round all processes of a job, and each adds its rank:
//! `garonne run -n 4 target/debug/examples/token_ring`

use garonne::{Endpoint, RegionKey, Result};

const TOKEN: u32 = 1;
const LONG: u32 = 2;
const KEY: u32 = 3;
const DONE: u32 = 4;

fn main() -> Result<()> {
    let endpoint = Endpoint::join()?;
    let (rank, size) = (endpoint.rank(), endpoint.size());
    if size > 1 {
        let left = endpoint.peer((rank + size - 1) % size)?;
        let right = endpoint.peer((rank + 1) % size)?;
        let mut bytes = [0; 8];
        if rank > 0 {
            endpoint.recv(left, TOKEN, &mut bytes)?;
        }
        let sum = u64::from_le_bytes(bytes) + u64::from(rank);
        endpoint.send(right, TOKEN, &sum.to_le_bytes())?;
        if rank == 0 {
            endpoint.recv(left, TOKEN, &mut bytes)?;
            let sum = u64::from_le_bytes(bytes);
            let expected = u64::from(size) * u64::from(size - 1) / 2;
            assert_eq!(sum, expected, "every rank has added itself once");
        }
        // All send to the right at once, far more than fits an inbox.
        let sent = endpoint.start_send(right, LONG, vec![rank as u8; 4 << 20])?;
        let (received, long) = endpoint.start_recv(left, LONG, vec![0; 4 << 20])?.wait()?;
        assert_eq!(received.len, 4 << 20);
        assert!(long.iter().all(|byte| u32::from(*byte) == left.rank()));
        sent.wait()?;
        // Each reads a part of what the left one exposes.
        let region = endpoint.expose(vec![rank as u8; 1 << 20])?;
        endpoint.send(right, KEY, &region.key().to_bytes())?;
        let mut key = [0; RegionKey::BYTES_MAX];
        let received = endpoint.recv(left, KEY, &mut key)?;
        let key = RegionKey::from_bytes(&key[..received.len])?;
        let mut part = vec![0; 300_000];
        endpoint.read(left, &key, 700_000, &mut part)?;
        assert!(part.iter().all(|byte| u32::from(*byte) == left.rank()));
        endpoint.send(left, DONE, b"")?;
        endpoint.recv(right, DONE, &mut [])?;
        region.withdraw()?;
    }
    println!("rank {rank} of {size} is done");
    endpoint.leave()
}
